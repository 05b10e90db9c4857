"""Messages for the tests of the transcript, and what a person does with it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Message, MessageState, Role
from app.clients.engine_status import EngineStatus, Phase
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_builder import MessageBuilder
from app.ui.transcript.text.slices import is_working
from app.ui.transcript.transcript import Transcript

STATS = {"tokens": 142, "total_s": 3.6, "ttft_s": 0.34, "active_share": 0.064, "decode_tok_s": 39.1}
WRITING = EngineStatus(Phase.WRITING, "Pip", tok_s=38.6, tokens=212)


def question(text: str = "And then?") -> Message:
    return Message(Role.USER, text)


def answer(text: str, state: MessageState = MessageState.COMPLETE, **stats: Any) -> Message:
    return Message(Role.ASSISTANT, text, state=state, stats=stats or None)


def chat(column: int) -> list[Message]:
    out: list[Message] = []
    for turn in range(column):
        out += [question(f"Question {turn}"), answer(f"Answer {turn}\n\nwith *two* paragraphs", **STATS)]
    return out


def show(transcript: Transcript, messages: list[Message]) -> None:
    """Show messages and wait until the newest of them are built."""
    transcript.show_messages(messages)
    settle(transcript)


def settle(widget: QWidget) -> None:
    """Wait until everything inside a widget is built, which happens in slices, and laid out."""
    builders = widget.findChildren(MessageBuilder)
    is_busy = True
    while is_busy:
        for _ in range(4):
            QApplication.processEvents()
        is_busy = is_working() or any(builder.is_busy for builder in builders)


def at_end(transcript: Transcript) -> bool:
    bar = transcript.verticalScrollBar()
    return bar.value() == bar.maximum()


def wheel(widget: QWidget, degrees: int, sideways: int = 0) -> bool:
    event = QWheelEvent(
        QPointF(widget.rect().center()), QPointF(widget.mapToGlobal(widget.rect().center())), QPoint(),
        QPoint(sideways, degrees), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def start_answer(transcript: Transcript, text: str = "") -> Message:
    message = answer("", MessageState.WRITING)
    transcript.add_message(message)
    transcript.set_status(WRITING)
    if text:
        transcript.append_text(message.id, text)
        transcript.flush()
        settle(transcript)
    return message


def complete(view: QWidget) -> None:
    """Wait until all of an answer is built, which happens in slices."""
    assert isinstance(view, AnswerView)
    while not view.is_complete:
        QApplication.processEvents()


def wait_built(transcript: Transcript, qtbot: QtBot, count: int) -> None:
    qtbot.waitUntil(lambda: len(transcript.views) == count)
    settle(transcript)
