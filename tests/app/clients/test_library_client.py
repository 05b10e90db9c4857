"""The library's process from the window's side: started late, ended early, killed at any time, and nobody notices."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from desk import MakeDesk
from fakes.hub import FakeHub
from pytestqt.qtbot import QtBot
from support.systems import ON_WINDOWS, is_below_normal, kill

from app.chat.store.conversation import MessageState
from app.clients.engine_process import EngineDied, ProcessHost, Timeouts, default_command
from app.clients.engine_worker import EngineWorker
from app.clients.library_client import LibraryClient, library_makers
from app.models.model_choices import ModelChoices
from app.models.models_controller import ModelsController
from app.user_messages import UserMessage
from engine.service import protocol


class Line:
    """A client with its process, and everything that came."""

    def __init__(self, qtbot: QtBot, folder: Path, location: str = "process", idle_s: float = 60.0,
                 command: list[str] | None = None) -> None:  # fmt: skip
        self.qtbot = qtbot
        timeouts = Timeouts(backoff_s=(0.02,))
        command = command or default_command("--library")
        makers = library_makers(folder) | {
            "process": lambda emit: ProcessHost(emit, folder, command, timeouts, name="library")
        }
        self.worker = EngineWorker(location, makers, "library")
        self.client = LibraryClient(self.worker, idle_s)
        self.pids: list[int] = []
        self.deaths: list[EngineDied] = []
        self.news: list[tuple[str, dict[str, Any]]] = []
        self.ended: list[tuple[str, Any]] = []
        self.client.started.connect(self.pids.append)
        self.client.died.connect(self.deaths.append)
        self.client.news.connect(lambda topic, values: self.news.append((topic, values)))

    def begin(self, job: str, **arguments: Any) -> str:
        return self.client.ask(job, arguments, lambda values: self.ended.append((job, values)),
                               lambda failed: self.ended.append((job, failed)))  # fmt: skip

    def wait(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=int(seconds * 1000))

    def ask(self, job: str, **arguments: Any) -> Any:
        before = len(self.ended)
        self.begin(job, **arguments)
        self.wait(lambda: len(self.ended) > before)
        return self.ended[before][1]

    def download(self) -> dict[str, Any]:
        """The only download as it was told last."""
        told = [values["downloads"] for topic, values in self.news if topic == "downloads"]
        return told[-1][0] if told and told[-1] else {}


@pytest.fixture
def line(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[..., Line]]:
    lines: list[Line] = []

    def make(**options: Any) -> Line:
        lines.append(Line(qtbot, tmp_path, **options))
        return lines[-1]

    yield make
    for one in lines:
        assert one.client.close()


@pytest.fixture
def slow_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, large_gguf: bytes) -> Iterator[tuple[FakeHub, bytes]]:
    """A hub with one model of some 30 MB, which takes three seconds."""
    data = large_gguf
    with FakeHub(bytes_per_s=len(data) // 3) as hub:
        hub.connect(monkeypatch, tmp_path)
        hub.add("maker/tiny-GGUF", {"tiny-q8_0.gguf": data})
        hub.fail("*.gguf", stall_after=14 << 20)  # it ends before the kill on no machine
        yield hub, data


def test_nothing_runs_until_something_is_asked(line: Callable[..., Line]) -> None:
    here = line()
    here.qtbot.wait(200)
    assert not here.pids
    assert not here.client.is_running
    assert len(here.ask("library")["models"]) == 1
    (pid,) = here.pids
    assert pid not in (0, os.getpid())


def test_it_is_ended_when_nothing_is_left_and_started_again(line: Callable[..., Line]) -> None:
    here = line(idle_s=0.3)
    here.ask("library")
    (pid,) = here.pids
    here.wait(lambda: not here.client.is_running)
    here.wait(lambda: not psutil.pid_exists(pid))
    assert not here.deaths, "an end that was wanted is no death"
    assert len(here.ask("library")["models"]) == 1
    assert len(here.pids) == 2


def test_chatting_goes_before_it(line: Callable[..., Line]) -> None:
    here = line()
    here.ask("library")
    assert is_below_normal(here.pids[0])


def test_a_process_that_dies_at_once_is_given_up_and_tried_anew_when_asked(line: Callable[..., Line]) -> None:
    here = line(command=[sys.executable, "-c", "import sys; sys.exit(3)"])
    failed = here.ask("library")
    assert isinstance(failed, protocol.Failed)
    assert failed.error == "EngineProcessError"
    here.wait(lambda: here.deaths and not here.deaths[-1].restarting)
    assert not here.client.is_running
    assert isinstance(here.ask("library"), protocol.Failed)


def stop(pid: int) -> None:
    """Stop a process. The signal of POSIX returns before the last of its threads stands still."""
    psutil.Process(pid).suspend()
    threads = [] if ON_WINDOWS else [psutil.Process(thread.id) for thread in psutil.Process(pid).threads()]
    while any(thread.status() != psutil.STATUS_STOPPED for thread in threads):
        time.sleep(0.01)


def test_what_a_killed_process_had_not_answered_is_asked_again(line: Callable[..., Line]) -> None:
    here = line()
    here.ask("library")
    stop(here.pids[0])  # it takes the requests and does not answer
    here.begin("downloads")
    here.begin("import", path="/nowhere/at/all.gguf", copy=False)
    here.qtbot.wait(200)
    kill(here.pids[0])
    here.wait(lambda: len(here.ended) == 3)
    ended = dict(here.ended)
    assert ended["downloads"] == {"downloads": []}
    assert ended["import"].error == "EngineProcessError", "an import is not done twice by itself"
    assert [died.restarting for died in here.deaths] == [True]
    assert "library" in here.deaths[0].reason


def test_a_download_goes_on_after_kill_9_and_the_chat_does_not_notice(
    line: Callable[..., Line], make_desk: MakeDesk, slow_hub: tuple[FakeHub, bytes], tmp_path: Path
) -> None:
    hub, data = slow_hub
    desk = make_desk(location="process")
    desk.wait_ready()
    desk.controller.send(f"words 400 until {tmp_path / 'go_on'}")
    here = line()
    here.ask("download", repo="maker/tiny-GGUF")
    here.wait(lambda: here.download().get("done_bytes", 0) > 12 << 20)
    assert desk.last.state is MessageState.WRITING
    kill(here.pids[0])
    here.wait(lambda: len(here.pids) == 2)
    here.wait(lambda: here.download().get("state") == "done")
    assert here.deaths[0].restarting
    block = 8 << 20
    assert hub.sent_bytes("tiny-q8_0.gguf") < len(data) + block + (4 << 20), "it went on where it was"
    models = here.ask("library")["models"]
    path = next(model["path"] for model in models if model["repo"] == "maker/tiny-GGUF")
    assert Path(path).read_bytes() == data

    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is not MessageState.WRITING)
    assert desk.last.state is MessageState.COMPLETE
    assert len(desk.last.text.split()) == 400
    assert desk.problems == []
    assert desk.toasts == []


@pytest.mark.slow  # test_first_model kills a download that the page shows, too
def test_the_page_shows_a_download_that_was_cut_short_as_if_nothing_had_been(
    line: Callable[..., Line], make_desk: MakeDesk, slow_hub: tuple[FakeHub, bytes]
) -> None:
    desk = make_desk()
    desk.wait_ready()
    here = line()
    models = ModelsController(here.client, desk.controller, ModelChoices())
    problems: list[UserMessage] = []
    models.problem.connect(problems.append)
    models.open_page()
    here.wait(lambda: not models.is_loading and models.machine)
    models.download_variant("maker/tiny-GGUF", "q8_0")
    here.wait(
        lambda: (row := models.row("maker/tiny-GGUF-q8_0")) and row.download and row.download.done_bytes > 9 << 20
    )
    kill(here.pids[0])
    here.wait(lambda: (row := models.row("maker/tiny-GGUF-q8_0")) and row.installed)
    assert problems == []
    here.wait(lambda: (row := models.row("maker/tiny-GGUF-q8_0")) and row.estimate)
    models.close()


def test_it_runs_in_the_windows_own_process_as_well(line: Callable[..., Line]) -> None:
    here = line(location="in-thread", idle_s=0.3)
    assert len(here.ask("library")["models"]) == 1
    assert here.pids == [0]
    assert here.ask("downloads") == {"downloads": []}
    here.wait(lambda: not here.client.is_running)
    assert len(here.ask("library")["models"]) == 1


def test_a_cancelled_job_says_so(line: Callable[..., Line], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with FakeHub() as hub:
        hub.connect(monkeypatch, tmp_path)
        hub.add("maker/tiny-GGUF", {"tiny-q8_0.gguf": b"GGUF"})
        here = line()
        here.ask("library")
        here.client.cancel(here.begin("search", query="tiny"))
        here.wait(lambda: len(here.ended) == 2)
    assert here.ended[-1][1] == {"cancelled": True} or here.ended[-1][1]["models"]
