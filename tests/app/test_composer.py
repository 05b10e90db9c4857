"""The composer: which key sends, what may be sent when, and what it says meanwhile."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.engine_status import EngineStatus, Phase
from app.ui import theme
from app.ui.composer import Composer

pytestmark = pytest.mark.gui

READY = EngineStatus(Phase.READY, "Pip", "CPU, 1 thread", context_used=312, context_total=1024)


@pytest.fixture
def composer(qtbot: QtBot, qapp: QApplication) -> Composer:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = Composer()
    out.resize(600, 90)
    qtbot.addWidget(out)
    out.set_status(READY)
    out.show()
    out.field.setFocus()
    return out


def sent(composer: Composer) -> list[str]:
    out: list[str] = []
    composer.submitted.connect(out.append)
    return out


def test_enter_sends_and_empties(composer: Composer, qtbot: QtBot) -> None:
    out = sent(composer)
    qtbot.keyClicks(composer.field, "Hello")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == ["Hello"]
    assert composer.text() == ""


def test_shift_enter_breaks_the_line(composer: Composer, qtbot: QtBot) -> None:
    out = sent(composer)
    qtbot.keyClicks(composer.field, "a")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(composer.field, "b")
    assert out == []
    qtbot.keyClick(composer.field, Qt.Key.Key_Enter)
    assert out == ["a\nb"]


def test_enter_that_ends_a_composition_does_not_send(composer: Composer, qtbot: QtBot) -> None:
    out = sent(composer)
    QApplication.sendEvent(composer.field, QInputMethodEvent("にほ", []))
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == []
    done = QInputMethodEvent()
    done.setCommitString("日本")
    QApplication.sendEvent(composer.field, done)
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == ["日本"]


def test_blanks_are_not_sent(composer: Composer, qtbot: QtBot) -> None:
    out = sent(composer)
    qtbot.keyClicks(composer.field, "   ")
    assert not composer.send.isEnabled()
    assert composer.send.toolTip() == "Write a message first"
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (EngineStatus(Phase.FAILED), "No model is loaded"),
        (EngineStatus(Phase.OFF), "No model is loaded"),
    ],
)
def test_without_a_model_one_can_type_but_not_send(
    composer: Composer, qtbot: QtBot, status: EngineStatus, reason: str
) -> None:
    out = sent(composer)
    composer.set_status(status)
    qtbot.keyClicks(composer.field, "A draft")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == []
    assert composer.text() == "A draft"
    assert not composer.send.isEnabled()
    assert composer.send.toolTip() == reason
    composer.set_status(READY)
    assert composer.send.isEnabled()
    qtbot.mouseClick(composer.send, Qt.MouseButton.LeftButton)
    assert out == ["A draft"]


def test_what_is_sent_while_the_model_loads_is_taken(composer: Composer, qtbot: QtBot) -> None:
    out = sent(composer)
    composer.set_status(EngineStatus(Phase.LOADING, "Pip", done=42, total=100))
    qtbot.keyClicks(composer.field, "Early")
    assert "Loading, 42%: the answer begins once the model is there" in composer.send.toolTip()
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == ["Early"]


def test_send_turns_into_stop_while_an_answer_comes(composer: Composer, qtbot: QtBot) -> None:
    stops: list[bool] = []
    composer.stop_requested.connect(lambda: stops.append(True))
    out = sent(composer)
    assert composer.send.accessibleName() == "Send"
    composer.set_status(EngineStatus(Phase.WRITING, "Pip"))
    assert composer.send.accessibleName() == "Stop"
    assert composer.send.isEnabled()
    qtbot.mouseClick(composer.send, Qt.MouseButton.LeftButton)
    qtbot.keyClick(composer.field, Qt.Key.Key_Escape)
    assert len(stops) == 2
    qtbot.keyClicks(composer.field, "next")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert (out, composer.text()) == ([], "next")
    composer.set_status(EngineStatus(Phase.STOPPING, "Pip"))
    assert not composer.send.isEnabled()
    qtbot.keyClick(composer.field, Qt.Key.Key_Escape)
    assert len(stops) == 2


def test_escape_at_rest_asks_for_nothing(composer: Composer, qtbot: QtBot) -> None:
    stops: list[bool] = []
    composer.stop_requested.connect(lambda: stops.append(True))
    qtbot.keyClick(composer.field, Qt.Key.Key_Escape)
    assert stops == []


def test_it_grows_to_eight_lines_and_then_scrolls(composer: Composer, qtbot: QtBot) -> None:
    line = theme.line_height("body")
    assert composer.field.height() == line
    heights = []
    for lines in range(1, 12):
        composer.set_text("\n".join("x" * lines))
        heights.append(composer.field.height())
    assert heights == [line * min(lines, 8) for lines in range(1, 12)]
    assert composer.field.verticalScrollBar().maximum() > 0
    composer.set_text("")
    assert composer.field.height() == line


def test_pasting_takes_words_alone(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b><img src='file:///etc/passwd'>")
    data.setText("bo\x00ld\r\nnext")
    composer.field.insertFromMimeData(data)
    assert composer.text() == "bo\ufffdld\nnext"
    assert composer.field.document().begin().charFormat().fontWeight() <= 400
    picture = QMimeData()
    picture.setImageData(composer.grab().toImage())
    assert not composer.field.canInsertFromMimeData(picture)


def test_context_is_a_ring_with_words(composer: Composer) -> None:
    assert composer._context.text() == "30% of 1,024"
    assert "312 of 1,024 tokens" in composer._ring.toolTip()
    assert composer._ring.accessibleName() == "Context used, 30 percent"
    composer.set_status(EngineStatus(Phase.READY, "Pip", context_total=1024))
    assert composer._context.isHidden(), "unknown is not 0"


def test_the_model_or_the_state_is_named(composer: Composer) -> None:
    assert composer._model.words == "Pip"
    composer.set_status(EngineStatus(Phase.LOADING, "Pip", done=1, total=2))
    assert composer._model.words == "Loading, 50%"


def test_the_whole_card_is_the_field(composer: Composer, qtbot: QtBot) -> None:
    composer.send.setFocus()
    qtbot.mouseClick(composer, Qt.MouseButton.LeftButton, pos=QPoint(300, composer.height() - 8))
    assert composer.focusWidget() is composer.field


def test_everything_that_takes_the_focus_has_a_name(composer: Composer) -> None:
    for widget in composer.findChildren(QWidget):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            assert widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text()), widget
