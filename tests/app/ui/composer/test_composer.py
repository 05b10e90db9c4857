"""The composer: which key sends, what may be sent when, and what it says meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pdf_files import pdf_with
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QInputMethodEvent, QTextCursor
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily
from support.shown_text import numbers_in

from app.chat.store.conversation import Attachment
from app.clients.engine_status import EngineStatus, Phase
from app.documents.attachment_texts import MOST_FILES, kept_of
from app.documents.draft_attachments import Measure
from app.ui.composer.attachment_dialog import AttachmentDialog
from app.ui.composer.composer import Composer
from app.ui.look import theme
from engine.service.protocol import CountResult

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
    composer.submitted.connect(lambda text, given: out.append(text))
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
    assert composer.send.toolTip(), "it says why"
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
    assert "42%" in numbers_in(composer.send.toolTip())
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
    waiting: list[str] = []
    composer.queued.connect(lambda text, given: waiting.append(text))
    qtbot.keyClicks(composer.field, "next")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert (out, waiting, composer.text()) == ([], ["next"], "")
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
    assert composer.meter.text() == "30% of 1,024"
    assert "312 of 1,024 tokens" in composer.meter.toolTip()
    assert numbers_in(composer.meter.accessibleName()) == ["30"]
    composer.set_status(EngineStatus(Phase.READY, "Pip", context_total=1024))
    assert composer.meter.isHidden(), "unknown is not 0"


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


# --- what was said before


def press(composer: Composer, qtbot: QtBot, key: Qt.Key, times: int = 1) -> str:
    for _ in range(times):
        qtbot.keyClick(composer.field, key)
    return composer.text()


def test_arrow_up_goes_back_through_what_was_said_and_down_returns(composer: Composer, qtbot: QtBot) -> None:
    composer._said_here = lambda: ["first", "second\nof two lines", " ", "third"]
    assert press(composer, qtbot, Qt.Key.Key_Up) == "third"
    assert press(composer, qtbot, Qt.Key.Key_Up) == "second\nof two lines"
    assert press(composer, qtbot, Qt.Key.Key_Up) == "first"
    assert press(composer, qtbot, Qt.Key.Key_Up) == "first"
    assert press(composer, qtbot, Qt.Key.Key_Down) == "second\nof two lines"
    assert press(composer, qtbot, Qt.Key.Key_Down) == "third"
    assert press(composer, qtbot, Qt.Key.Key_Down) == ""


def test_arrows_belong_to_the_text_once_something_is_written(composer: Composer, qtbot: QtBot) -> None:
    composer._said_here = lambda: ["said"]
    qtbot.keyClicks(composer.field, "mine")
    assert press(composer, qtbot, Qt.Key.Key_Up) == "mine"
    composer.set_text("")
    assert press(composer, qtbot, Qt.Key.Key_Up) == "said"
    qtbot.keyClicks(composer.field, "!")
    assert press(composer, qtbot, Qt.Key.Key_Down) == "said!", "what was changed is a text of its own"
    assert press(composer, qtbot, Qt.Key.Key_Up) == "said!"


def test_a_new_chat_goes_back_through_what_was_said_last(composer: Composer, qtbot: QtBot) -> None:
    composer.set_text("in another chat")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert press(composer, qtbot, Qt.Key.Key_Up) == "in another chat"


# --- giant texts

GIANTS = {
    "a word": "x" * 1_000_000,
    "a line": "word\u00a0and word " * 60_000,
    "lines": "".join(f"line {index}\n" for index in range(100_000)),
    "blank lines": "\n" * 100_000,
    "ideographs": "漢字" * 300_000,
    "joined emoji": "👩\u200d" * 200_000,
}


def mark(composer: Composer, behind: int = 0) -> QTextCursor:
    """What stands for the folded part of the text."""
    return composer.field.document().find("\ufffc", behind)


@pytest.mark.parametrize("name", GIANTS)
def test_a_giant_text_is_folded_and_keeps_every_character(composer: Composer, qtbot: QtBot, name: str) -> None:
    text = GIANTS[name]
    composer.set_text(text)
    shown = composer.field.toPlainText()
    assert len(shown) < 20_000
    assert shown.count("\n") < 1000
    assert composer.text() == text
    qtbot.keyClicks(composer.field, "ab")
    assert composer.text() == text + "ab"
    composer.field.undo()
    assert composer.text() == text


@pytest.mark.parametrize("name", some_daily(GIANTS, [*GIANTS][::3]))
def test_every_part_of_a_giant_text_can_be_opened_and_changed(composer: Composer, name: str) -> None:
    text = GIANTS[name]
    composer.set_text(text)
    for step in range(12):  # on from the beginning, then back from the end
        place = mark(composer, 3).selectionStart() if step < 6 else mark(composer).selectionStart()
        composer.field._folded.open(place)
        assert composer.text() == text
        assert composer.field.document().characterCount() < 30_000
        assert composer.field.document().blockCount() <= 1000
    before = composer.field._folded.text(0, composer.field.textCursor().position())
    composer.field.insertPlainText("!")
    assert composer.text() == f"{before}!{text[len(before) :]}"
    while composer.field.document().isUndoAvailable():
        composer.field.undo()
    assert composer.text() == text


@pytest.mark.parametrize("name", GIANTS)
@pytest.mark.parametrize("at", [QTextCursor.MoveOperation.Start, QTextCursor.MoveOperation.End])
def test_the_mark_is_opened_by_keys_from_anywhere(
    composer: Composer, qtbot: QtBot, name: str, at: QTextCursor.MoveOperation
) -> None:
    composer.set_text(GIANTS[name])
    composer.field.moveCursor(at)
    folded = len(composer.text()) - len(composer.field.toPlainText())
    qtbot.keyClick(composer.field, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert len(composer.text()) - len(composer.field.toPlainText()) < folded
    assert composer.text() == GIANTS[name]


def test_a_click_on_the_mark_opens_it_and_one_beside_it_does_not(composer: Composer, qtbot: QtBot) -> None:
    composer.set_text(GIANTS["lines"])
    place = mark(composer).selectionStart()
    at_mark = mark(composer)
    at_mark.setPosition(place)
    composer.field.setTextCursor(at_mark)
    composer.field.ensureCursorVisible()
    corner = composer.field.cursorRect().center()
    folded = len(composer.text()) - len(composer.field.toPlainText())
    qtbot.mouseClick(composer.field.viewport(), Qt.MouseButton.LeftButton, pos=corner + QPoint(300, 0))
    assert len(composer.text()) - len(composer.field.toPlainText()) == folded
    qtbot.mouseClick(composer.field.viewport(), Qt.MouseButton.LeftButton, pos=corner + QPoint(20, 0))
    assert len(composer.text()) - len(composer.field.toPlainText()) < folded
    assert composer.text() == GIANTS["lines"]


def test_what_is_folded_is_copied_cut_and_pasted_whole(composer: Composer) -> None:
    text = "Before\n" + GIANTS["lines"] + "behind"
    composer.set_text(text)
    composer.field.selectAll()
    copied = composer.field.createMimeDataFromSelection()
    assert copied.text() == text
    composer.field._take_paste = lambda words: False
    composer.field.insertFromMimeData(copied)
    assert composer.text() == text
    for _ in range(4):
        composer.field.moveCursor(QTextCursor.MoveOperation.End)
        composer.field.insertFromMimeData(copied)
    assert composer.text() == text * 5
    assert composer.field.document().characterCount() < 30_000
    mark(composer).removeSelectedText()
    assert 4 * len(text) < len(composer.text()) < 5 * len(text)


def test_arrows_walk_through_giant_texts(composer: Composer, qtbot: QtBot) -> None:
    composer._said_here = lambda: [GIANTS["a word"], "\r\n".join(GIANTS["lines"].splitlines())]
    assert len(press(composer, qtbot, Qt.Key.Key_Up)) > 1_000_000
    assert press(composer, qtbot, Qt.Key.Key_Up) == GIANTS["a word"]
    presses = 0
    while press(composer, qtbot, Qt.Key.Key_Down) == GIANTS["a word"] and presses < 500:
        presses += 1
    assert composer.text().startswith("line 0")


def test_an_attachment_of_one_giant_word_is_shown_in_lines_that_a_layout_takes(composer: Composer) -> None:
    dialog = AttachmentDialog(composer, Attachment("words.txt", GIANTS["a word"], "text"))
    shown = dialog.text.toPlainText()
    assert max(map(len, shown.splitlines())) <= 2000
    assert shown.endswith("\n…")
    dialog.deleteLater()


# --- what goes along


def text_data(text: str) -> QMimeData:
    data = QMimeData()
    data.setText(text)
    return data


def file_data(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def measured(composer: Composer, kept: int = 10, tokens: int = 10, chars: int = 10**9) -> None:
    composer.draft.measure(composer.draft.texts, [Measure(tokens, kept, chars) for _ in composer.draft.texts])


def test_a_long_paste_becomes_an_attachment_and_a_short_one_does_not(composer: Composer) -> None:
    composer.field.insertFromMimeData(text_data("x" * 2000))
    assert (len(composer.text()), composer.draft.items) == (2000, [])
    composer.set_text("")
    composer.field.insertFromMimeData(text_data("x" * 2001))
    assert composer.text() == ""
    assert [item.name for item in composer.draft.items] == ["Pasted text"]
    assert composer.attached.isVisible()


def test_attached_texts_are_sent_with_the_words_once_they_are_counted(composer: Composer, qtbot: QtBot) -> None:
    out: list[tuple[str, tuple[Attachment, ...]]] = []
    composer.submitted.connect(lambda text, given: out.append((text, given)))
    composer.field.insertFromMimeData(text_data("word " * 900))
    qtbot.keyClicks(composer.field, "What is it?")
    assert not composer.send.isEnabled()
    counting = composer.send.toolTip()
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert out == []
    measured(composer, kept=100, tokens=900, chars=500)
    assert composer.send.toolTip() != counting
    chip = next(iter(composer.attached.chips.values()))
    assert numbers_in(chip.facts.words) == ["100", "900"]
    qtbot.waitUntil(lambda: out != [])  # Enter was pressed before
    [(text, (attachment,))] = out
    assert text == "What is it?"
    assert kept_of(attachment) == (100, 900)
    assert (composer.draft.items, composer.text(), composer.attached.isHidden()) == ([], "", True)


@pytest.mark.parametrize("meanwhile", ["type", "remove", "refuse", "server"])
def test_enter_before_the_texts_are_counted_is_forgotten_if_the_message_changes(
    composer: Composer, qtbot: QtBot, meanwhile: str
) -> None:
    out: list[str] = []
    composer.submitted.connect(lambda text, given: out.append(text))
    composer.field.insertFromMimeData(text_data("word " * 900))
    qtbot.keyClicks(composer.field, "What is it?")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    if meanwhile == "type":
        qtbot.keyClicks(composer.field, " Say")
    elif meanwhile == "remove":
        composer.attached.removed.emit(composer.draft.items[0].id)
    elif meanwhile == "server":  # nothing leaves the PC unless the user sends it there
        composer.set_status(replace(READY, server="A server", host="far.example"))
    else:
        composer.draft.refused.emit("It is a picture.", "")
    measured(composer)
    qtbot.wait(1)
    assert out == []
    assert composer.send.isEnabled()


def test_enter_during_an_answer_queues_the_message_once_its_file_is_read(
    composer: Composer, qtbot: QtBot, tmp_path: Path
) -> None:
    out: list[str] = []
    composer.queued.connect(lambda text, given: out.append(f"{text} {given[0].name}"))
    (tmp_path / "a.txt").write_text("hello")
    composer.set_status(replace(READY, phase=Phase.WRITING))
    composer.attach([tmp_path / "a.txt"])
    qtbot.keyClicks(composer.field, "Read")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: out == ["Read a.txt"])


def test_a_message_stays_if_the_answer_is_stopped_while_its_file_is_read(
    composer: Composer, qtbot: QtBot, tmp_path: Path
) -> None:
    out: list[str] = []
    composer.queued.connect(lambda text, given: out.append(text))
    (tmp_path / "a.txt").write_text("hello")
    composer.set_status(replace(READY, phase=Phase.WRITING))
    composer.attach([tmp_path / "a.txt"])
    qtbot.keyClicks(composer.field, "Read")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    composer.set_status(replace(READY, phase=Phase.STOPPING))
    qtbot.waitUntil(lambda: not composer.draft.is_reading)
    qtbot.wait(1)
    assert (out, composer.text()) == ([], "Read")


def test_an_attachment_goes_alone_too_and_can_be_taken_off(composer: Composer, qtbot: QtBot) -> None:
    out: list[str] = []
    composer.submitted.connect(lambda text, given: out.append(given[0].name))
    composer.field.insertFromMimeData(text_data("word " * 900))
    chip = next(iter(composer.attached.chips.values()))
    assert chip.remove is not None
    chip.remove.setFocus()
    qtbot.keyClick(chip.remove, Qt.Key.Key_Space)
    assert composer.draft.items == []
    assert composer.field.hasFocus()
    composer.field.insertFromMimeData(text_data("word " * 900))
    measured(composer)
    assert next(iter(composer.attached.chips.values())).facts.words == "10 tokens"
    qtbot.mouseClick(composer.send, Qt.MouseButton.LeftButton)
    assert out == ["Pasted text"]


def test_what_the_context_has_no_room_for_is_not_sent(composer: Composer) -> None:
    composer.field.insertFromMimeData(text_data("word " * 900))
    measured(composer, kept=0, tokens=900, chars=0)
    assert not composer.send.isEnabled()
    assert "Pasted text" in composer.send.toolTip()
    assert numbers_in(next(iter(composer.attached.chips.values())).facts.words) == ["900"]


def test_files_are_dropped_and_pasted_and_read_behind_the_window(
    composer: Composer, qtbot: QtBot, tmp_path: Path
) -> None:
    refused: list[str] = []
    composer.draft.refused.connect(lambda words, chat: refused.append(words))
    note, report, picture = tmp_path / "note.txt", tmp_path / "report.pdf", tmp_path / "picture.png"
    note.write_text("Heat pumps")
    report.write_bytes(pdf_with(["Page one", "Page two"]))
    picture.write_bytes(bytes(range(256)))
    data = file_data(note, report)
    copy, left, no_key = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    composer.dragEnterEvent(QDragEnterEvent(QPoint(9, 9), copy, data, left, no_key))
    assert composer.property("state") == "drop"
    composer.dropEvent(QDropEvent(QPointF(9, 9), copy, data, left, no_key))
    assert composer.property("state") == "focus"
    composer.field.insertFromMimeData(file_data(picture))
    assert "note.txt" in composer.send.toolTip()
    qtbot.waitUntil(lambda: len(composer.draft.texts) == 2 and bool(refused))
    assert composer.draft.texts == ["Heat pumps", "Page one\n\nPage two"]
    assert ["picture.png" in words for words in refused] == [True]
    assert composer.text() == ""


def test_no_more_files_than_there_is_place_for(composer: Composer, qtbot: QtBot, tmp_path: Path) -> None:
    refused: list[str] = []
    composer.draft.refused.connect(lambda words, chat: refused.append(words))
    files = [tmp_path / f"{number}.txt" for number in range(MOST_FILES + 2)]
    for file in files:
        file.write_text("words")
    composer.attach(files)
    assert len(composer.draft.items) == MOST_FILES
    assert len(refused) == 2
    composer.field.insertFromMimeData(text_data("x" * 3000))
    assert len(composer.text()) == 3000, "a paste that finds no place is not lost"
    qtbot.waitUntil(lambda: not composer.draft.is_reading)


def test_an_attachment_is_shown_and_put_back_into_the_message(composer: Composer, qtbot: QtBot) -> None:
    composer.field.insertFromMimeData(text_data("word " * 900))
    qtbot.mouseClick(next(iter(composer.attached.chips.values())).name, Qt.MouseButton.LeftButton)
    dialog = next(w for w in QApplication.topLevelWidgets() if isinstance(w, AttachmentDialog) and w.isVisible())
    assert dialog.text.toPlainText().startswith("word word")
    into = next(b for b in dialog.findChildren(QAbstractButton) if b.text() == "Put into the message")
    qtbot.mouseClick(into, Qt.MouseButton.LeftButton)
    assert composer.draft.items == []
    assert composer.text() == ("word " * 900).strip()


def test_the_meter_tells_what_the_next_message_takes(composer: Composer) -> None:
    composer.set_count(CountResult(512, 1024, 768, dropped_messages=4))
    assert numbers_in(composer.meter.text()) == ["4"], "what is left is not what the chat needs"
    assert composer.meter.share == 1
    assert "512 of 1,024 tokens" in composer.meter.toolTip()
    composer.set_status(EngineStatus(Phase.WRITING, "Pip", context_used=600, context_total=1024))
    assert numbers_in(composer.meter.text()) == ["4"], "writing the answer does not empty it"
    composer.set_status(READY)
    composer.set_count(CountResult(1147, 1024, 768, fits=False))
    assert composer.meter.text() == "112% of 1,024"
    composer.set_count(None)
    assert composer.meter.text() == "30% of 1,024"
    composer.set_status(replace(READY, left_out=2))
    assert numbers_in(composer.meter.text()) == ["2"], "before it is counted, the last answer tells"
    composer.set_status(READY)
    composer.set_count(CountResult(512, 1024, 768))
    composer.set_status(EngineStatus(Phase.WRITING, "Pip", context_used=600, context_total=1024))
    assert composer.meter.text() == "59% of 1,024", "while it is written the engine tells by itself"
    composer.set_status(replace(READY, context_used=600))
    assert composer.meter.text() == "59% of 1,024", "the count from before the answer is out of date"


def test_enter_while_a_chat_is_read_sends_only_what_can_go_once_it_is_shown(
    composer: Composer, qtbot: QtBot, tmp_path: Path
) -> None:
    out = sent(composer)
    composer.set_waits(True)
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)  # nothing is written
    composer.set_waits(False)
    QApplication.processEvents()
    (file := tmp_path / "a.txt").write_text("words")
    composer.attach([file])
    qtbot.waitUntil(lambda: not composer.draft.is_reading)
    composer.draft.measure(composer.draft.texts, [Measure(1, 1, 5)])
    QApplication.processEvents()
    assert out == [], "an attachment of later does not go by itself"
    composer.draft.take()

    composer.set_waits(True)
    composer.set_status(EngineStatus(Phase.OFF))
    qtbot.keyClicks(composer.field, "Hello")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    composer.submit_to(lambda text, given: out.append(text))
    composer.set_waits(False)
    QApplication.processEvents()
    composer.set_status(READY)
    QApplication.processEvents()
    assert (out, composer.text()) == ([], "Hello"), "nor does a message once a model is loaded"
    composer.set_waits(True)
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    composer.submit_to(lambda text, given: out.append(text))
    assert out == []
    composer.set_waits(False)
    qtbot.waitUntil(lambda: out == ["Hello"])
