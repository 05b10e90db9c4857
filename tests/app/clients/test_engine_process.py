"""The engine's process: greeted, watched, ended, and started again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot
from support.systems import ON_WINDOWS, is_alive, kill

from app.clients.engine_process import BoundedLog, EngineDied, EngineStarted, ProcessHost, Timeouts
from engine.service import protocol

FAKE = [sys.executable, str(Path(__file__).parents[1] / "fake_host.py")]
QUICK = Timeouts(silence_s=60.0, close_s=60.0, backoff_s=(0.01, 0.02))

MakeHost = Callable[..., tuple[ProcessHost, list[Any]]]


@pytest.fixture
def make_host(tmp_path: Path, qtbot: QtBot) -> Iterator[MakeHost]:
    hosts: list[ProcessHost] = []

    def make(*arguments: str, timeouts: Timeouts = QUICK) -> tuple[ProcessHost, list[Any]]:
        heard: list[Any] = []
        host = ProcessHost(heard.append, tmp_path, [*FAKE, *arguments], timeouts)
        hosts.append(host)
        host.start()
        return host, heard

    yield make
    for host in hosts:
        host.close()


def of(heard: list[Any], kind: type) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


def finished(heard: list[Any], request_id: str) -> protocol.Finished | None:
    return next((event for event in of(heard, protocol.Finished) if event.id == request_id), None)


def ask(text: str, request_id: str = "g") -> protocol.Generate:
    return protocol.Generate(request_id, [{"role": "user", "content": text}])


def wait(qtbot: QtBot, condition: Callable[[], object]) -> None:
    qtbot.waitUntil(lambda: bool(condition()))


def test_requests_made_before_the_hello_are_answered(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake"))
    host.submit(ask("good day"))
    wait(qtbot, lambda: finished(heard, "g"))
    assert isinstance(heard[0], EngineStarted)
    assert heard[0].pid not in (0, os.getpid())
    assert "".join(event.text for event in of(heard, protocol.Token)) == "good day "
    loaded = finished(heard, "l")
    assert loaded is not None
    assert protocol.LoadedModelInfo.from_dict(loaded.result).name == "Fake"


def test_cancel_reaches_a_running_answer(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake"))
    host.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: of(heard, protocol.Token))
    host.submit(protocol.Cancel("c", "g"))
    wait(qtbot, lambda: finished(heard, "g"))
    done = finished(heard, "g")
    assert done is not None
    assert done.result["finish_reason"] == "cancelled"


def test_a_killed_engine_starts_again_and_loads_the_last_model(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake"))
    host.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: of(heard, protocol.Token))
    kill(heard[0].pid)
    wait(qtbot, lambda: len(of(heard, EngineStarted)) == 2)
    (died,) = of(heard, EngineDied)
    assert died.restarting
    assert ("exit code 15" if ON_WINDOWS else "SIGKILL") in died.reason
    assert "fake engine is up" in died.details
    after = heard.index(of(heard, EngineStarted)[1])
    wait(qtbot, lambda: finished(heard[after:], "l"))
    host.submit(ask("and again", "g2"))
    wait(qtbot, lambda: finished(heard, "g2"))
    assert finished(heard, "g") is None


def test_a_restarted_engine_has_the_last_choice_of_a_smaller_model(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake", {"threads": 1}))
    host.submit(protocol.ChooseDraft("d", "off"))
    wait(qtbot, lambda: finished(heard, "d"))
    written = list[bytes]()
    write = host._write
    host._write = lambda line: (written.append(line), write(line))  # type: ignore[assignment,return-value]
    kill(heard[0].pid)
    wait(qtbot, lambda: len(of(heard, EngineStarted)) == 2)
    assert protocol.Load("l", "fake", {"threads": 1, "draft": "off"}) in [protocol.decode(line) for line in written]


def test_a_silent_engine_is_ended_and_said_so(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host(timeouts=Timeouts(silence_s=1.5, backoff_s=(0.01,)))
    host.submit(protocol.Load("l", "fake"))
    host.submit(ask("hang after 2"))
    wait(qtbot, lambda: len(of(heard, EngineStarted)) >= 2)
    assert "did not answer for" in of(heard, EngineDied)[0].reason


def test_an_engine_that_never_greets_is_ended(qtbot: QtBot, make_host: MakeHost) -> None:
    _, heard = make_host("--no-hello", timeouts=Timeouts(hello_s=0.3, silence_s=0.3, backoff_s=(0.01,), max_deaths=2))
    wait(qtbot, lambda: len(of(heard, EngineDied)) == 2)
    assert [event.restarting for event in of(heard, EngineDied)] == [True, False]


def test_three_deaths_and_it_gives_up_until_a_model_is_asked_for(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake-crash"))
    wait(qtbot, lambda: len(of(heard, EngineDied)) == 3)
    assert [event.restarting for event in of(heard, EngineDied)] == [True, True, False]
    host.submit(ask("is anybody there", "g"))
    assert isinstance(heard[-1], protocol.Failed)
    assert heard[-1].error == "EngineProcessError"
    host.submit(protocol.Load("l2", "fake"))
    wait(qtbot, lambda: finished(heard, "l2"))


def test_an_exit_code_is_named(qtbot: QtBot, make_host: MakeHost) -> None:
    _, heard = make_host("--die")
    wait(qtbot, lambda: len(of(heard, EngineDied)) == 3)
    assert "exit code 3" in heard[-1].reason
    assert "cannot go on" in heard[-1].details


@pytest.mark.parametrize(("flag", "words"), [("--version-99", "version 99"), ("--garbage", "not JSON")])
def test_a_process_that_speaks_something_else_is_ended(
    qtbot: QtBot, make_host: MakeHost, flag: str, words: str
) -> None:
    _, heard = make_host(flag)
    wait(qtbot, lambda: of(heard, EngineDied) and not of(heard, EngineDied)[-1].restarting)
    assert words in of(heard, EngineDied)[0].reason
    assert not of(heard, EngineStarted)


def test_a_program_that_is_not_there_is_named(qtbot: QtBot, tmp_path: Path) -> None:
    heard: list[Any] = []
    host = ProcessHost(heard.append, tmp_path, [str(tmp_path / "nothing")], Timeouts(max_deaths=1))
    host.start()
    wait(qtbot, lambda: of(heard, EngineDied))
    assert "could not be started" in heard[-1].reason
    host.close()


def test_closing_in_mid_answer_leaves_no_process(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host()
    host.submit(protocol.Load("l", "fake"))
    host.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: of(heard, protocol.Token))
    pid = heard[0].pid
    host.close()
    assert not is_alive(pid)
    assert not of(heard, EngineDied)


def test_a_child_that_will_not_end_is_killed(qtbot: QtBot, make_host: MakeHost) -> None:
    host, heard = make_host("--deaf", timeouts=Timeouts(close_s=0.2))
    wait(qtbot, lambda: of(heard, EngineStarted))
    host.close()
    assert not is_alive(heard[0].pid)


def test_the_child_does_not_depend_on_the_folder_it_is_started_from(
    qtbot: QtBot, make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    _, heard = make_host()
    wait(qtbot, lambda: of(heard, EngineStarted))


def test_the_log_of_the_child_stays_bounded(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "engine.log", limit_bytes=100)
    for number in range(50):
        log.write(f"line {number}\n".encode())
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["engine.log", "engine.log.1"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert log.tail().endswith("line 49")


def test_a_log_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "no" / "such" / "folder" / "engine.log")
    log.write(b"one\n")
    log.write(b"two\n")
    assert log.tail() == "one\ntwo"
