"""The engine behind the protocol: in the caller's thread, and as a process on stdin and stdout."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import engine
from engine.service import protocol, request_events
from engine.service.host import EngineHost
from engine.service.protocol import GenerationResult, LoadedModelInfo
from engine.service.stdio import LAST_BREATH_S, _lines

LOAD = protocol.Load("load", "starter-chat")
HELLO = [{"role": "user", "content": "Hello!"}]
STORY = [{"role": "user", "content": "Tell me a long story about a shy robot called Bolt."}]


class Heard:
    """An EngineHost and what it emitted; events can be awaited from another thread."""

    def __init__(self) -> None:
        self.events: list[protocol.Event] = []
        self._arrived = threading.Condition()
        self.on_event = lambda event: None
        self.host = EngineHost(self._take)

    def _take(self, event: protocol.Event) -> None:
        with self._arrived:
            self.events.append(event)
            self._arrived.notify_all()
        self.on_event(event)

    def of(self, request: str) -> list[Any]:
        return [event for event in self.events if getattr(event, "id", None) == request]

    def run(self, *requests: protocol.Request) -> None:
        for request in requests:
            self.host.submit(request)
        self.host.run_pending()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Heard]:
    heard = Heard()
    heard.run(LOAD)
    yield heard
    heard.host.close()


@pytest.fixture
def heard(loaded: Heard) -> Iterator[Heard]:
    loaded.events.clear()
    yield loaded
    loaded.on_event = lambda event: None


def test_loading_reports_progress_and_describes_the_model() -> None:
    heard = Heard()
    heard.run(LOAD)
    *progress, finished = heard.of("load")
    assert {event.stage for event in progress} <= {"loading", "preparing"}
    assert progress[-1].done == progress[-1].total
    info = LoadedModelInfo.from_dict(finished.result)
    assert info.name == "Pip"
    assert (info.context, info.mode, info.device) == (1024, "sparse", "cpu")
    assert info.parameters == 32_514_560
    assert info.sampling["temperature"] == 0.3
    assert "demonstration" in info.description
    assert info.template == "own"
    assert info.template_reason
    json.dumps(finished.result)


def test_an_answer_arrives_as_tokens_and_ends_with_its_result(heard: Heard) -> None:
    heard.run(protocol.Generate("a", HELLO, {"temperature": 0}))
    events = heard.of("a")
    text = "".join(event.text for event in events if isinstance(event, protocol.Token))
    assert isinstance(events[-1], protocol.Finished)
    result = GenerationResult.from_dict(events[-1].result)
    assert result.text == text != ""
    assert result.finish_reason == "stop"
    assert result.context_used == result.prompt_tokens + result.tokens
    assert result.decode_tok_s
    assert result.ttft_s
    assert any(isinstance(event, protocol.Progress) and event.stage == "reading" for event in events)


def test_news_of_the_smaller_model_that_guesses(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for after the first answer, and its figures are those of an answer."""
    from engine.session.drafting import Drafting

    session = heard.host.session
    assert session is not None
    found: list[Drafting] = []

    def load(drafting: Drafting, job: Any) -> None:
        found.append(drafting)
        drafting._end("No model on this PC is small enough.")

    monkeypatch.setattr(Drafting, "load", load)
    monkeypatch.setattr(session, "drafting", Drafting(session.model))
    monkeypatch.setattr(heard.host, "_reported_draft", {"model": "Small"})
    heard.run(protocol.Generate("a", HELLO, {"temperature": 0}))
    for _ in range(2):
        heard.host._step_draft()
    news = [event for event in heard.events if isinstance(event, protocol.News) and event.topic == "draft"]
    assert found == [session.drafting]
    told = [(one.values["model"], one.values["reason"]) for one in news]
    assert told == [("", ""), ("", "No model on this PC is small enough.")], "each change is reported once"
    model = heard.host.session
    heard.run(protocol.ChooseDraft("b", "off"), protocol.ChooseDraft("c", "somewhere/small"))
    assert heard.of("c") == [protocol.Finished("c")]
    assert session.drafting._wanted == "somewhere/small"
    heard.host._step_draft()
    assert len(found) == 2
    assert heard.host.session is model, "the model stays loaded"
    result = GenerationResult.from_dict(heard.of("a")[-1].result)
    assert sum(guessed for guessed, _ in result.guesses.values()) == result.guessed_tokens


def test_a_lost_gpu_is_news_once(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard.host, "_is_gpu_lost", False)
    answer = protocol.Generate("a", HELLO, {"temperature": 0, "max_tokens": 2})
    heard.run(answer)
    monkeypatch.setattr(request_events, "process_failure", lambda: "CUDA_ERROR_LAUNCH_FAILED")
    heard.run(answer, answer)
    news = [event for event in heard.events if isinstance(event, protocol.News) and event.topic == "gpu_lost"]
    assert news == [protocol.News("gpu_lost", {"reason": "CUDA_ERROR_LAUNCH_FAILED"})]


def test_cancel_from_another_thread_stops_between_two_tokens(heard: Heard) -> None:
    heard.on_event = lambda event: (
        heard.host.submit(protocol.Cancel("c", target="b")) if isinstance(event, protocol.Token) else None
    )
    heard.run(protocol.Generate("b", STORY))
    result = GenerationResult.from_dict(heard.of("b")[-1].result)
    assert result.finish_reason == "cancelled"
    assert result.text
    assert heard.of("c") == [protocol.Finished("c")] * len(heard.of("c"))


def test_cancelling_what_still_waits_leaves_it_unanswered_but_ended(heard: Heard) -> None:
    heard.run(protocol.Generate("d", STORY), protocol.Cancel("e", target="d"))
    result = GenerationResult.from_dict(heard.of("d")[-1].result)
    assert (result.finish_reason, result.text, result.tokens) == ("cancelled", "", 0)


def test_a_cancelled_id_does_not_stop_a_later_request(heard: Heard) -> None:
    heard.run(protocol.Cancel("f", target="g"), protocol.Generate("g", HELLO, {"temperature": 0}))
    assert heard.of("g")[-1].result["finish_reason"] == "stop"


def test_failures_of_the_world_are_events_and_the_host_goes_on(heard: Heard) -> None:
    heard.run(
        protocol.Generate("1", [{"role": "user", "content": "word " * 4000}]),
        protocol.Generate("2", HELLO, {"temprature": 1}),
        protocol.Generate("3", [{"role": "robot", "content": "x"}]),
        protocol.Generate("4", HELLO, {}, mode="magic"),
        protocol.Job("5", "solve"),
        protocol.Generate("7", HELLO, {"temperature": 0}),
    )
    ends = {name: heard.of(name)[-1] for name in "123457"}
    assert ends["1"].error == "ContextOverflowError"
    assert "temprature" in ends["2"].message
    assert ends["4"].error == "InvalidRequestError"
    for name in "12345":
        assert isinstance(ends[name], protocol.Failed)
        assert not ends[name].crash
        assert ends[name].hint
    assert isinstance(ends["7"], protocol.Finished)


def test_a_load_that_fails_says_why_and_answering_then_says_that_nothing_is_loaded() -> None:
    heard = Heard()
    heard.run(protocol.Load("1", "no-such-model"), protocol.Load("2", "starter-chat", {"colour": 1}),
              protocol.Generate("3", HELLO))  # fmt: skip
    assert heard.of("1")[-1].error == "ModelNotFoundError"
    assert "colour" in heard.of("2")[-1].message
    assert "No model is loaded" in heard.of("3")[-1].message


def test_a_cancelled_load_ends_without_a_model() -> None:
    heard = Heard()
    heard.run(LOAD, protocol.Cancel("x", target="load"))
    assert heard.of("load")[-1] == protocol.Finished("load", {"cancelled": True})


def test_a_fault_of_our_own_is_reported_with_its_traceback(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("engine.session.chat_session.ChatSession.chat", broken)
    heard.run(protocol.Generate("1", HELLO))
    failed = heard.of("1")[-1]
    assert failed.crash
    assert failed.error == "ZeroDivisionError"
    assert "in broken" in failed.details


def test_close_stops_a_running_answer_and_a_blocked_host() -> None:
    heard = Heard()
    thread = threading.Thread(target=heard.host.run_pending, kwargs={"block": True})
    heard.on_event = lambda event: heard.host.close() if isinstance(event, protocol.Token) else None
    heard.host.submit(LOAD)
    heard.host.submit(protocol.Generate("1", STORY))
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert heard.of("1")[-1].result["finish_reason"] == "cancelled"


# --- the process


class Child:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", "host"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def say(self, line: bytes | protocol.Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(line if isinstance(line, bytes) else protocol.encode(line))
        self.process.stdin.flush()

    def hear(self, *kinds: type) -> Any:
        """The next message of one of the kinds; every line in between must be a message, too."""
        assert self.process.stdout
        while line := self.process.stdout.readline():
            message = protocol.decode(line)
            if isinstance(message, kinds):
                return message
        raise AssertionError(f"the engine ended: {self.process.stderr and self.process.stderr.read()!r}")


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.process.kill()
    child.process.communicate()


def test_the_process_greets_answers_beats_and_ends_when_its_stdin_closes(child: Child) -> None:
    hello = child.hear(protocol.Hello)
    assert (hello.version, hello.app_version) == (protocol.PROTOCOL_VERSION, engine.__version__)
    child.say(protocol.Hello())
    assert child.hear(protocol.Heartbeat).ram_bytes > 1 << 20
    child.say(LOAD)
    assert child.hear(protocol.Finished).id == "load"
    child.say(b"what?\n")
    assert child.hear(protocol.Failed).error == "ProtocolError"
    child.say(protocol.encode(protocol.Heartbeat()))
    assert "not a request" in child.hear(protocol.Failed).message
    child.say(protocol.Generate("1", HELLO, {"temperature": 0}))
    assert child.hear(protocol.Finished).result["text"]
    assert child.process.stdin
    child.process.stdin.close()
    assert child.process.wait(timeout=60) == 0
    child.process.stdin = None


@pytest.mark.parametrize(("idle_s", "share"), [(2.0, 0.25), pytest.param(5.0, 0.005, marks=pytest.mark.slow)])
def test_without_a_model_the_process_costs_nothing(child: Child, idle_s: float, share: float) -> None:
    """After a model was unloaded: less than 0.5 % of a core, its heartbeats included. A slow machine needs more, but
    never as much as a thread that waits in a circle.
    """
    psutil = pytest.importorskip("psutil")
    child.say(protocol.Hello())
    child.say(LOAD)
    child.hear(protocol.Finished)
    child.say(protocol.Unload("away"))
    assert child.hear(protocol.Finished).id == "away"
    process = psutil.Process(child.process.pid)
    time.sleep(0.5)
    before = process.cpu_times()
    time.sleep(idle_s)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    assert used <= max(share * idle_s, 0.02)  # the clock of a process ticks every 10 ms


def test_the_process_ends_on_shutdown(child: Child) -> None:
    child.say(protocol.Hello())
    child.say(protocol.Shutdown("1"))
    assert child.hear(protocol.Finished).id == "1"
    assert child.process.wait(timeout=60) == 0


def test_a_window_of_another_version_is_refused(child: Child) -> None:
    child.say(protocol.Hello(version=99))
    assert "protocol version" in child.hear(protocol.Failed).message
    assert child.process.wait(timeout=60) == 1


def test_a_line_that_nests_too_deeply_does_not_deafen_the_process(child: Child) -> None:
    child.say(protocol.Hello())
    child.say(b"[" * 200_000 + b"\n")
    assert child.hear(protocol.Failed).error == "ProtocolError"
    child.say(protocol.Shutdown("1"))
    assert child.hear(protocol.Finished).id == "1"


def test_the_process_ends_soon_when_its_stdin_closes_in_the_middle_of_an_answer(child: Child) -> None:
    child.say(protocol.Hello())
    child.say(LOAD)
    child.hear(protocol.Finished)
    child.say(protocol.Generate("1", STORY))
    child.hear(protocol.Token)
    assert child.process.stdin
    child.process.stdin.write(b'{"type": "gen')  # the window died while it wrote
    child.process.stdin.close()
    child.process.stdin = None
    assert child.process.wait(timeout=60) == 0


def test_a_call_that_does_not_look_up_keeps_no_process_alive() -> None:
    script = (
        "import time, engine.service.stdio as h, engine.session.loaded_model as s\n"
        "s.LoadedModel.load = lambda *a: time.sleep(3600)\n"
        "h.LAST_BREATH_S = 0.1\n"
        "h.serve_stdio()\n"
    )
    lines = protocol.encode(protocol.Hello()) + protocol.encode(LOAD)
    done = subprocess.run([sys.executable, "-c", script], input=lines, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert LAST_BREATH_S < 2


def test_what_utf8_cannot_hold_travels_and_is_answered(child: Child) -> None:
    child.say(protocol.Hello())
    child.say(protocol.Load("l\udcff", "no/such\udcff/model"))
    failed = child.hear(protocol.Failed)
    assert (failed.id, failed.error) == ("l\udcff", "ModelNotFoundError")


def test_of_a_line_that_is_too_long_nothing_is_taken_for_a_message() -> None:
    stream = io.BytesIO(b"short\n" + b"x" * 20 + b"shutdown\n" + b"y" * 7 + b"\n" + b"z" * 8 + b"\nlast")
    assert list(_lines(stream, 8)) == [b"short\n", b"x" * 8, b"y" * 7 + b"\n", b"z" * 8, b"last"]


def test_messages_that_are_none_are_refused_in_words(heard: Heard) -> None:
    broken: list[Any] = [[], [1], [{"role": "user"}], [{"role": "user", "content": 5}], [{"content": "x"}]]
    for number, messages in enumerate(broken):
        heard.run(protocol.Generate(str(number), messages))
        failed = heard.of(str(number))[-1]
        assert (failed.error, failed.crash) == ("InvalidRequestError", False)
    extra: list[Any] = [{"role": "user", "content": "Hello!", "tokens": 5}]
    heard.run(protocol.Generate("extra", extra, {"temperature": 0, "max_tokens": 2}))
    assert heard.of("extra")[-1].result["tokens"] == 2


def test_an_id_that_comes_twice_can_be_cancelled_twice(heard: Heard) -> None:
    def cancel_the_second(event: protocol.Event) -> None:
        first_ended = any(isinstance(past, protocol.Finished) for past in heard.of("twin"))
        if isinstance(event, protocol.Token) and first_ended:
            heard.host.submit(protocol.Cancel("x", target="twin"))

    heard.on_event = cancel_the_second
    heard.run(protocol.Generate("twin", HELLO, {"temperature": 0}), protocol.Generate("twin", STORY))
    reasons = [event.result["finish_reason"] for event in heard.of("twin") if isinstance(event, protocol.Finished)]
    assert reasons == ["stop", "cancelled"]


def test_text_and_stats_are_coalesced_and_lose_nothing(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.service.host.TEXT_EVERY_S", 60.0)
    heard.run(protocol.Generate("a", STORY, {"temperature": 0, "max_tokens": 30}))
    texts = [event.text for event in heard.of("a") if isinstance(event, protocol.Token)]
    assert 1 <= len(texts) <= 2  # the first one at once, and what had gathered at the end
    assert "".join(texts) == heard.of("a")[-1].result["text"]
    stats = [event for event in heard.of("a") if isinstance(event, protocol.Stats)]
    assert stats
    assert stats[0].context_total == 1024
    assert stats[0].context_used > 0


def test_loading_another_model_gives_the_first_one_back_before() -> None:
    heard = Heard()
    heard.run(LOAD, protocol.Load("2", "no-such-model"), protocol.Generate("3", HELLO))
    assert "No model is loaded" in heard.of("3")[-1].message
    heard.run(LOAD, protocol.Unload("4"), protocol.Generate("5", HELLO))
    assert heard.of("4")[-1] == protocol.Finished("4")
    assert "No model is loaded" in heard.of("5")[-1].message


def test_an_id_may_be_used_again_after_it_was_cancelled(heard: Heard) -> None:
    heard.run(protocol.Generate("again", STORY), protocol.Cancel("x", target="again"))
    heard.run(protocol.Generate("again", HELLO, {"temperature": 0}))
    reasons = [event.result["finish_reason"] for event in heard.of("again") if isinstance(event, protocol.Finished)]
    assert reasons == ["cancelled", "stop"]


def test_what_a_library_prints_does_not_reach_the_window() -> None:
    script = (
        "import engine.service.stdio as h, engine.session.loaded_model as s\n"
        "s.LoadedModel.load = lambda *a: print('chatter', flush=True)\n"
        "h.serve_stdio()\n"
    )
    lines = b"".join(map(protocol.encode, (protocol.Hello(), LOAD, protocol.Shutdown("end"))))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(lines)
    process.stdin.flush()
    heard = [protocol.decode(line) for line in process.stdout]
    assert heard[-1] == protocol.Finished("end")
    assert b"chatter" in process.stderr.read()
    assert process.wait(timeout=60) == 0
    process.communicate()


def test_the_heart_goes_on_beating(child: Child) -> None:
    child.say(protocol.Hello())
    for _ in range(2):
        child.hear(protocol.Heartbeat)


def test_a_window_that_no_longer_listens_ends_the_process(child: Child) -> None:
    child.say(protocol.Hello())
    child.hear(protocol.Heartbeat)
    assert child.process.stdout
    child.process.stdout.close()
    assert child.process.wait(timeout=60) == 0  # its next heartbeat finds nobody, though stdin is open
    child.process.stdout = None


def test_an_answer_that_is_to_be_fresh_reads_nothing_of_the_kv_cache(heard: Heard) -> None:
    heard.run(protocol.Generate("f1", HELLO, {"temperature": 0, "max_tokens": 4}))
    heard.run(protocol.Generate("f2", HELLO, {"temperature": 0, "max_tokens": 4}))
    heard.run(protocol.Generate("f3", HELLO, {"temperature": 0, "max_tokens": 4}, fresh=True))
    warm, fresh = (GenerationResult.from_dict(heard.of(name)[-1].result) for name in ("f2", "f3"))
    assert warm.reused_tokens == warm.prompt_tokens - 1
    assert fresh.reused_tokens == 0
    assert fresh.text == warm.text
