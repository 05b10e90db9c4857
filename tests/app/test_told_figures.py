"""How often the engine's figures are told while an answer is written: no more often than the window is painted."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from app.clients.answer_request import AnswerRequest
from app.clients.engine_client import TELL_MS, EngineClient
from app.clients.engine_status import EngineStatus, Phase
from engine.service import protocol


class Worker(QObject):
    """Takes every request and answers none."""

    happened = Signal(object)

    def submit(self, request: protocol.Request) -> None:
        self.asked = request.id

    def cancel(self, target: str) -> None:
        pass


def answering() -> tuple[EngineClient, Worker, list[EngineStatus]]:
    worker, told = Worker(), list[EngineStatus]()
    client = EngineClient(worker)  # type: ignore[arg-type]
    client.ask(AnswerRequest([{"role": "user", "content": "?"}], {}, None))
    client.status_changed.connect(told.append)
    return client, worker, told


def stats(worker: Worker, tokens: int) -> protocol.Stats:
    return protocol.Stats(worker.asked, tokens, 50.0, 0.1, 10 + tokens, 512)


def test_figures_are_told_at_once_then_no_more_often_than_they_can_be_painted(qtbot: QtBot) -> None:
    client, worker, told = answering()
    words: list[str] = []
    client.text.connect(words.append)
    began = time.monotonic()
    worker.happened.emit(protocol.Token(worker.asked, "word0 ", 1))
    assert [status.phase for status in told] == [Phase.WRITING], "the first word is told at once"
    for n in range(2, 400):
        worker.happened.emit(protocol.Token(worker.asked, f"word{n} ", n))
        worker.happened.emit(stats(worker, n))
    assert len(words) == 399, "words wait for nothing"
    assert client.status.tokens == 399, "whoever asks hears how things stand now"
    qtbot.waitUntil(lambda: told[-1].tokens == 399, timeout=30_000)
    assert len(told) <= 2 + 1000 * (time.monotonic() - began) / TELL_MS


def test_another_state_is_told_at_once_with_the_newest_figures(qtbot: QtBot) -> None:
    client, worker, told = answering()
    worker.happened.emit(protocol.Token(worker.asked, "one ", 1))
    worker.happened.emit(stats(worker, 7))
    client.stop()
    assert (told[-1].phase, told[-1].tokens) == (Phase.STOPPING, 7)
    count = len(told)
    worker.happened.emit(protocol.Failed(worker.asked, "EngineError", "No.", ""))
    assert told[-1].phase is Phase.READY
    assert len(told) == count + 1
    qtbot.wait(3 * TELL_MS)
    assert len(told) == count + 1, "nothing is left to be told"
