"""The text of messages: code, tables, links, strange text and long answers; showing it fetches nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QObject, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextDocument
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget
from pytestqt.qtbot import QtBot
from shown_messages import (
    STATS,
    answer,
    chat,
    complete,
    question,
    settle,
    show,
    start_answer,
    wheel,
)
from support.shown_text import numbers_in

from app.chat.store.conversation import CallState, Message, MessageState, Role, ToolCall
from app.text.code_colours import coloured_spans
from app.text.markdown_blocks import FORMULA, STRUT, CodeBlock
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.text import prose, slices
from app.ui.transcript.text.code_block import CodeBlockView
from app.ui.transcript.text.further_rows import FurtherRows
from app.ui.transcript.text.prose import Prose, Table
from app.ui.transcript.text.slices import is_working
from app.ui.transcript.text.text_view import TextView
from app.ui.transcript.transcript import Transcript

pytestmark = pytest.mark.gui

# --- code


def test_code_copies_and_is_coloured_when_it_is_whole(qtbot: QtBot) -> None:
    view = CodeBlockView(CodeBlock("python", "def f(", closed=False))
    qtbot.addWidget(view)

    def colours() -> set[str]:
        line = view.text.document().begin()
        return {part.format.foreground().color().name() for part in line.layout().formats()} | {
            it.fragment().charFormat().foreground().color().name() for it in _fragments(line)
        }

    assert len(colours()) == 1
    view.update_block(CodeBlock("python", "def f(): pass"))
    tokens = theme.current().tokens
    assert {tokens.code_keyword.lower(), tokens.code_function.lower()} <= colours()
    button = next(b for b in view.findChildren(QAbstractButton) if b.accessibleName() == "Copy python code")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "def f(): pass"
    assert button.text() == "Copied"
    qtbot.waitUntil(lambda: button.text() == "Copy")


def _fragments(line: Any) -> list[Any]:
    out, it = [], line.begin()
    while not it.atEnd():
        out.append(type(it)(it))
        it += 1
    return out


def test_colours_count_as_qt_counts() -> None:
    (span,) = [s for s in coloured_spans("python", "'👩' + 1") if s[2] == "code_number"]
    assert span[:2] == (7, 1)
    assert not list(coloured_spans("no such language", "x"))


def test_long_code_folds_unless_it_was_seen_being_written(qtbot: QtBot) -> None:
    code = "\n".join(f"line {i}" for i in range(84))
    folded = CodeBlockView(CodeBlock("", code))
    qtbot.addWidget(folded)
    button = next(b for b in folded.findChildren(QAbstractButton) if b.text() == "Show 84 lines")
    low = folded.text.height()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert folded.text.height() > 4 * low
    assert button.text() == "Show fewer lines"
    written = CodeBlockView(CodeBlock("", "line 0", closed=False))
    qtbot.addWidget(written)
    written.update_block(CodeBlock("", code))
    assert written.text.height() == folded.text.height()


def test_wide_code_scrolls_inside_and_passes_the_wheel_on_at_its_ends(qtbot: QtBot) -> None:
    view = CodeBlockView(CodeBlock("", "x" * 500))
    view.resize(400, 100)
    qtbot.addWidget(view)
    view.show()
    settle(view)
    bar = view.text.horizontalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == 0
    assert not wheel(view.text.viewport(), 120), "an upright wheel belongs to the page"
    assert not wheel(view.text.viewport(), 0, 120), "at the left end"
    assert wheel(view.text.viewport(), 0, -120)
    assert bar.value() > 0
    bar.setValue(bar.maximum())
    assert not wheel(view.text.viewport(), 0, -120), "at the right end"


# --- context, links, strange text, names


def test_the_context_mark_stands_where_the_context_begins(transcript: Transcript) -> None:
    def told() -> dict[str, list[str]]:
        return {message: numbers_in(words) for message, words in marks(transcript).items()}

    messages = chat(3)
    show(transcript, messages)
    transcript.set_dropped(messages[5].id, 2)
    assert told() == {messages[2].id: ["2"]}
    transcript.set_dropped(messages[5].id, 2, at=2)
    assert told() == {messages[4].id: ["2"]}
    transcript.set_dropped(messages[5].id, 12)
    assert told() == {messages[4].id: ["4"]}, "those of the chat"
    done = ToolCall("c", "calculate", {}, CallState.DONE)
    called = replace(messages[1], id="called", calls=(done, done))
    messages = [messages[0], called, *messages[1:]]
    show(transcript, messages)
    transcript.set_dropped(messages[6].id, 5)  # sent as a question, a call, two results and an answer
    assert told() == {messages[3].id: ["3"]}
    transcript.set_dropped(messages[6].id, 0)
    assert marks(transcript) == {}


def test_the_context_mark_comes_back_with_the_chat(transcript: Transcript) -> None:
    messages = chat(3)
    messages[-1] = replace(messages[-1], stats={**STATS, "dropped_messages": 2})
    show(transcript, messages)
    assert list(marks(transcript)) == [messages[2].id], "above the first message that is kept"


def marks(transcript: Transcript) -> dict[str, str]:
    return {
        v.message.id: v._mark.accessibleName()
        for v in transcript.views
        if v._mark is not None and not v._mark.isHidden()
    }


def test_only_web_links_are_followed(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [answer("[a](https://example.org/x)")])
    prose = transcript.views[-1].findChildren(Prose)[0]
    assert prose.focusPolicy() is Qt.FocusPolicy.StrongFocus, "a link must be within reach of the keyboard"
    followed: list[str] = []
    transcript.link_activated.connect(followed.append)
    for url in ("https://example.org/x", "file:///etc/passwd", "javascript:x"):
        prose.anchorClicked.emit(QUrl(url))
    assert followed == ["https://example.org/x"]


STRANGE = st.text(max_size=120) | st.lists(
    st.sampled_from(["<img src='file:///etc/passwd'>", "![x](http://a.b/c.png)", "```", "\n", "|a|\n|-|\n", "- ",
                     "שלום", "日本", "👩‍👩‍👧", "e\u0301" * 9, "w" * 300, "&amp;", "\x00", "\u202e",
                     "<a href='x'>", "`", "> "]),
    max_size=25,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a\n\n- b\n- c\n\nd", "a\n\n1. b\n2. c\n\nd", "a\n\n- b\n  - c\n\nd", "a\n\n- [ ] b\n\nd"]
)
def test_a_list_stands_as_far_from_the_text_below_it_as_from_that_above_it(transcript: Transcript, text: str) -> None:
    show(transcript, [answer(text)])
    document = transcript.views[-1].findChildren(Prose)[0].document()
    boxes = [document.documentLayout().blockBoundingRect(document.findBlockByNumber(line))
             for line in range(document.blockCount())]  # fmt: skip
    assert boxes[-1].top() - boxes[-2].bottom() == pytest.approx(boxes[1].top() - boxes[0].bottom(), abs=1)


def objects_in(document: QTextDocument) -> set[str]:
    """The names of what stands in a document where text could, as `\ufffc`; other objects have an empty name."""
    cursor, names = QTextCursor(document), set()
    for place in range(document.characterCount()):
        if document.characterAt(place) == "\ufffc":
            cursor.setPosition(place + 1)
            names.add(cursor.charFormat().toImageFormat().name())
    return names


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STRANGE, min_size=1, max_size=4))
@example(["\\[0\\]"])
@example(["👩 $0$ <img src='a'> \\[0\\]"])
@example(["\ufffc"])
def test_strange_text_never_fails_and_asks_for_nothing(qtbot: QtBot, pieces: list[str]) -> None:
    transcript = Transcript()
    transcript.resize(600, 400)
    try:
        transcript.add_message(question("".join(pieces)))
        message = start_answer(transcript)
        for piece in pieces:
            transcript.append_text(message.id, piece)
            transcript.flush()
        transcript.finish_message(replace(message, text="".join(pieces), state=MessageState.COMPLETE))
        transcript.grab()
        for view in transcript.findChildren(TextView):
            assert objects_in(view.document()) <= {FORMULA, STRUT}, "something else than a formula stands in the text"
            assert view.loadResource(int(QTextDocument.ResourceType.ImageResource), QUrl("file:///x")) is None
    finally:
        transcript.deleteLater()


def test_everything_that_takes_the_focus_has_a_name(transcript: Transcript) -> None:
    show(transcript, [
        question("Hi"), answer("Text [l](https://a.b)\n\n|a|\n|-|\n|1|\n\n```py\n" + "x\n" * 40 + "```\n", **STATS),
    ])  # fmt: skip
    for widget in transcript.findChildren(QWidget):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            name = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
            assert name, widget
    assert isinstance(transcript.views[0], OwnMessage)
    assert [view.accessibleName() for view in transcript.views] == ["Your message", "Answer"]


def test_a_theme_change_renders_again(transcript: Transcript, qapp: QApplication) -> None:
    show(transcript, [question(), answer("Some `code` and\n\n```py\nx = 1\n```", **STATS)])
    prose = transcript.views[-1].findChildren(Prose)[0]
    code = transcript.views[-1].findChildren(CodeBlockView)[0]

    def ink(view: TextView) -> str:
        return _fragments(view.document().lastBlock())[-1].fragment().charFormat().foreground().color().name()

    light = (ink(prose), ink(code.text))
    theme.apply(qapp, "dark", 1.2)
    assert ink(prose) == theme.DARK.ink.lower() != light[0]
    assert ink(code.text) == theme.DARK.code_number.lower() != light[1]
    theme.apply(qapp, "light", 1.0)


def test_a_copy_made_in_mid_answer_holds_the_words_so_far(qtbot: QtBot) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    show(transcript, [Message(Role.USER, "Count")])
    transcript.add_message(answer)
    transcript.append_text(answer.id, "One, ")
    transcript.flush()
    transcript.append_text(answer.id, "two")
    assert [message.text for message in transcript.messages] == ["Count", "One, two"]
    newest = transcript.last_answer()
    assert newest is not None
    assert newest.text == "One, two"


def test_tasks_are_drawn_as_boxes(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bool] = []
    monkeypatch.setattr(prose, "paint_task", lambda painter, place, is_done: drawn.append(is_done))
    show(transcript, [answer("- [ ] open\n- [x] done\n- none\n")])
    QApplication.processEvents()
    transcript.grab()
    assert drawn[:2] == [False, True]


def test_aligned_columns_keep_lines_and_baselines(transcript: Transcript) -> None:
    show(transcript, [answer("| a | b | c | d |\n|---|:---|:---:|---:|\n| x | x | x | x |\n| y | y | y | y |\n")])
    (table,) = transcript.findChildren(Table)
    grid = QTextCursor(table.document().begin().next()).currentTable()
    layout = table.document().documentLayout()
    for row in range(3):
        cells = [grid.cellAt(row, column) for column in range(4)]
        assert len({layout.blockBoundingRect(cell.firstCursorPosition().block()).y() for cell in cells}) == 1
        formats = [cell.format().toTableCellFormat() for cell in cells]
        assert {form.bottomBorder() for form in formats} == {1.0}
        assert len({form.bottomPadding() for form in formats}) == 1


def test_a_long_answer_is_shown_page_by_page(transcript: Transcript) -> None:
    show(transcript, [answer("Words of a paragraph.\n\n" * 5000)])
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    complete(view)
    before = len(view.parts())
    assert not view.shows_all
    assert view._more is not None
    view._more.button.click()
    QApplication.processEvents()
    complete(view)
    assert len(view.parts()) > before
    assert view.stats.copy.text_to_copy.count("paragraph") == 5000


def test_more_rows_of_a_table_stand_in_the_columns_of_the_first(transcript: Transcript) -> None:
    rows = "".join(f"| {i} | {'word ' * (i % 7)} |\n" for i in range(900))
    show(transcript, [answer(f"| n | words |\n|---|---|\n{rows}")])
    complete(transcript.views[-1])
    (more,) = transcript.findChildren(FurtherRows)
    more._row.button.click()
    while is_working():
        QApplication.processEvents()
    (table,) = (part for part in transcript.views[-1].findChildren(Table) if part not in more.tables)
    shown = [table, *more.tables]
    assert sum(len(part.toPlainText().split("word ")) > 0 for part in shown) == len(shown)
    assert "899" in more.tables[-1].toPlainText()
    assert all(
        abs(one - other) <= 2
        for part in more.tables
        for one, other in zip(part.column_widths(), table.column_widths(), strict=True)
    )
    assert not more._row.isVisible()


def test_a_long_message_and_a_long_thought_are_shown_page_by_page(transcript: Transcript) -> None:
    text = "word " * 20_000
    show(transcript, [question(text), answer(f"<think>{text}</think>Done")])
    own, view = transcript.views
    assert isinstance(own, OwnMessage)
    assert isinstance(view, AnswerView)
    assert own._left is not None
    shown = own._shown
    own._left.button.click()
    assert shown < own._shown < len(text)
    assert own._copy.text_to_copy == text
    assert view.thought is not None
    length = view.thought.words.length
    assert length < len(text) / 2
    view.thought.words.show_more()
    assert view.thought.words.length > length


def test_a_footnote_leads_to_its_text_and_back(transcript: Transcript) -> None:
    between = "A paragraph between them.\n\n" * 150
    show(transcript, [answer(f"Said[^a] here.\n\n{between}[^a]: The *note*.\n", **STATS)])
    view = transcript.views[-1]
    complete(view)
    QApplication.processEvents()
    bar = transcript.verticalScrollBar()
    opened: list[str] = []
    transcript.link_activated.connect(opened.append)
    view.link_activated.emit("https://a.b")
    bar.setValue(0)
    parts = view.findChildren(Prose)
    first, last = parts[0], parts[-1]
    first._follow(QUrl("#note-1"))
    assert bar.value() > transcript.viewport().height()
    last._follow(QUrl("#back-1"))
    assert bar.value() < 100
    assert opened == ["https://a.b"]


def test_bold_words_have_a_weight_that_the_font_has(transcript: Transcript) -> None:
    show(transcript, [question(), answer("one **bold** word")])
    complete(transcript.views[-1])
    (text,) = transcript.views[-1].findChildren(Prose)
    cursor = text.document().find("bold")
    assert cursor.charFormat().fontWeight() == 600, "at 700 Qt smears the letters of the next lighter weight"


def test_a_look_is_painted_when_all_texts_in_view_have_it(
    transcript: Transcript, qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(transcript, [answer("Some *words*.\n\n| a |\n|---|\n| 1 |\n\nAnd more.\n\n```\ncode\n```\n\nThe end.")])
    monkeypatch.setattr(slices, "AT_ONCE_S", 0.0)
    texts = [text for text in transcript.findChildren(Prose) if not text.visibleRegion().isEmpty()]
    assert len(texts) > 2
    old: list[int] = []

    class Watch(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Paint:
                old.append(sum(text._outdated for text in texts))
            return False

    watch = Watch()
    for text in texts:
        text.viewport().installEventFilter(watch)
    try:
        theme.apply(qapp, "dark", 1.0, in_turns=True)
        qtbot.waitUntil(lambda: bool(old), timeout=5000)
        assert old[0] == 0
    finally:
        theme.apply(qapp, "light", 1.0)
