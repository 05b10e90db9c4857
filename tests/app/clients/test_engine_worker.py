"""The worker thread: both hosts behind one interface, cancelled at once, ended without a thread left."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeEngine
from PySide6.QtCore import QMetaMethod, QObject, QProcess, Qt, QThread, QTimer, Slot
from pytestqt.qtbot import QtBot
from support.systems import kill

from app.clients import engine_process
from app.clients.engine_process import Emit, EngineDied, EngineStarted, ProcessHost, Timeouts
from app.clients.engine_worker import EngineWorker, InThreadHost
from engine.service import protocol

FAKE = [sys.executable, str(Path(__file__).parents[1] / "fake_host.py")]


class Listener(QObject):
    """Hears in the test's thread, and remembers in which thread it heard."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []
        self.threads: set[QThread] = set()

    @Slot(object)
    def hear(self, event: object) -> None:
        self.threads.add(QThread.currentThread())
        self.heard.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]

    def finished(self, request_id: str) -> protocol.Finished | None:
        return next((event for event in self.of(protocol.Finished) if event.id == request_id), None)


@pytest.fixture(params=["process", "in-thread"])
def worker(request: pytest.FixtureRequest, tmp_path: Path, qtbot: QtBot) -> Iterator[EngineWorker]:
    quick = Timeouts(backoff_s=(0.01,))
    made = EngineWorker(
        request.param,
        {
            "process": lambda emit: ProcessHost(emit, tmp_path, FAKE, quick),
            "in-thread": lambda emit: InThreadHost(emit, FakeEngine),  # type: ignore[arg-type]
        },
    )
    yield made
    assert made.shutdown(60.0)
    assert not made._thread.isRunning()


@pytest.fixture
def listener(worker: EngineWorker) -> Listener:
    listener = Listener()
    worker.happened.connect(listener.hear)
    worker.start()
    return listener


def ask(text: str, request_id: str = "g") -> protocol.Generate:
    return protocol.Generate(request_id, [{"role": "user", "content": text}])


def wait(qtbot: QtBot, condition: Callable[[], object]) -> None:
    qtbot.waitUntil(lambda: bool(condition()))


def test_events_arrive_in_the_thread_of_the_listener(qtbot: QtBot, worker: EngineWorker, listener: Listener) -> None:
    worker.submit(protocol.Load("l", "fake"))
    worker.submit(ask("good day"))
    wait(qtbot, lambda: listener.finished("g"))
    assert listener.threads == {QThread.currentThread()}
    assert isinstance(listener.heard[0], EngineStarted)
    assert "".join(event.text for event in listener.of(protocol.Token)) == "good day "


def test_a_running_answer_is_cancelled_between_two_tokens(
    qtbot: QtBot, worker: EngineWorker, listener: Listener
) -> None:
    worker.submit(protocol.Load("l", "fake"))
    worker.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: listener.of(protocol.Token))
    worker.cancel("g")
    wait(qtbot, lambda: listener.finished("g"))
    done = listener.finished("g")
    assert done is not None
    assert done.result["finish_reason"] == "cancelled"
    assert done.result["tokens"] < 1000


def test_a_request_that_still_waits_can_be_cancelled(qtbot: QtBot, worker: EngineWorker, listener: Listener) -> None:
    worker.submit(protocol.Load("l", "fake-slow"))
    worker.submit(ask("words 100000 pace 0.01", "waiting"))
    worker.cancel("waiting")
    wait(qtbot, lambda: listener.finished("waiting"))
    assert not listener.of(protocol.Token)


def test_a_load_is_cancelled(qtbot: QtBot, worker: EngineWorker, listener: Listener) -> None:
    worker.submit(protocol.Load("l", "fake-endless"))
    wait(qtbot, lambda: listener.of(protocol.Progress))
    worker.cancel("l")
    wait(qtbot, lambda: listener.finished("l"))
    assert listener.finished("l") == protocol.Finished("l", {"cancelled": True})


def test_the_caller_never_waits(qtbot: QtBot, worker: EngineWorker, listener: Listener) -> None:
    """Every call comes back while the engine is still busy with the first of them."""
    worker.submit(protocol.Load("l", "fake-slow"))
    worker.submit(ask("one two"))
    worker.submit(protocol.Unload("u"))
    assert listener.finished("l") is None
    wait(qtbot, lambda: listener.finished("u"))


def test_cancel_may_come_from_another_thread(qtbot: QtBot, worker: EngineWorker, listener: Listener) -> None:
    worker.submit(protocol.Load("l", "fake"))
    worker.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: listener.of(protocol.Token))
    thread = threading.Thread(target=worker.cancel, args=("g",))
    thread.start()
    thread.join()
    wait(qtbot, lambda: listener.finished("g"))


def test_the_engine_moves_to_the_other_place_in_mid_answer(
    qtbot: QtBot, worker: EngineWorker, listener: Listener
) -> None:
    worker.submit(protocol.Load("l", "fake"))
    worker.submit(ask("words 100000 pace 0.01"))
    wait(qtbot, lambda: listener.of(protocol.Token))
    worker.use("in-thread" if worker.location == "process" else "process")
    wait(qtbot, lambda: len(listener.of(EngineStarted)) == 2)
    worker.submit(protocol.Load("l2", "fake"))
    worker.submit(ask("here too", "g2"))
    wait(qtbot, lambda: listener.finished("g2"))
    assert not listener.of(EngineDied)


@pytest.mark.parametrize("busy_with", ["words 100000 pace 0.01", "good day"])
def test_shutdown_ends_the_thread(qtbot: QtBot, worker: EngineWorker, listener: Listener, busy_with: str) -> None:
    worker.submit(protocol.Load("l", "fake"))
    worker.submit(ask(busy_with))
    wait(qtbot, lambda: listener.of(protocol.Token))
    assert worker.shutdown(60.0)


def test_a_fault_of_our_own_becomes_a_failed_event(qtbot: QtBot) -> None:
    class Broken(FakeEngine):
        def run_pending(self, block: bool = False) -> None:
            raise ZeroDivisionError("division by zero")

    heard: list[Any] = []
    host = InThreadHost(heard.append, Broken)  # type: ignore[arg-type]
    host.start()
    host.submit(ask("anything"))
    assert isinstance(heard[-1], protocol.Failed)
    assert heard[-1].crash
    assert "ZeroDivisionError" in heard[-1].details


def test_signals_are_connected_and_objects_destroyed_in_the_threads_they_were_made_in(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connect in the worker can wait for ever for a disconnect in the main thread, and that one for it."""
    notified: list[tuple[str, str, QThread]] = []

    class WatchedProcess(QProcess):
        def connectNotify(self, signal: QMetaMethod) -> None:
            notified.append(("connect", signal.name().toStdString(), QThread.currentThread()))

        def disconnectNotify(self, signal: QMetaMethod) -> None:
            notified.append(("disconnect", signal.name().toStdString(), QThread.currentThread()))

    class WatchedTimer(QTimer):
        def connectNotify(self, signal: QMetaMethod) -> None:
            notified.append(("connect", signal.name().toStdString(), QThread.currentThread()))

    monkeypatch.setattr(engine_process, "QProcess", WatchedProcess)
    monkeypatch.setattr(engine_process, "QTimer", WatchedTimer)
    main = QThread.currentThread()
    hosts: list[ProcessHost] = []
    ended: list[QThread] = []

    def make(emit: Emit) -> ProcessHost:
        hosts.append(ProcessHost(emit, tmp_path, FAKE, Timeouts(backoff_s=(0.01,))))
        hosts[-1].destroyed.connect(lambda: ended.append(QThread.currentThread()), Qt.ConnectionType.DirectConnection)
        return hosts[-1]

    worker = EngineWorker("process", {"process": make})
    listener = Listener()
    worker.happened.connect(listener.hear)
    worker.start()
    wait(qtbot, lambda: len(listener.of(EngineStarted)) == 1)
    kill(listener.of(EngineStarted)[0].pid)
    wait(qtbot, lambda: len(listener.of(EngineStarted)) == 2)  # it came back by itself
    worker.rest()
    worker.start()
    wait(qtbot, lambda: len(listener.of(EngineStarted)) == 3)
    worker.restart()
    wait(qtbot, lambda: len(listener.of(EngineStarted)) == 4)
    wait(qtbot, lambda: ended)
    assert worker.shutdown(60.0)
    assert len(hosts) == 2
    assert {name for _, name, _ in notified} >= {"finished", "timeout"}
    assert [one for one in notified if one[2] != main] == []
    assert ended == [main]
