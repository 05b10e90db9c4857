"""Text is selected across paragraphs, lists, code, tables and messages, and copied as plain text and as Markdown."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QImage, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from shown_messages import settle, show

from app.chat.store.conversation import Message, MessageState, Role
from app.text.block_parser import BlockParser
from app.text.selected_text import FAR, Cut, Place, Selection, cut, markdown_of, whole_message
from app.ui.chat.chat_page import ChatPage
from app.ui.look import theme
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.text.document_style import LIST_INDENT
from app.ui.transcript.transcript import Transcript

pytestmark = pytest.mark.gui
importlib.import_module("app.text.math_drawing")  # hides a warning: not on a thread, in the middle of a test

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
SOURCE = """First **bold** words with `f(x)`.

- one
- two
  - deep

1. a
2. b

```py
def f():
    return "a\u00a0b"
```

| h1 | h2 |
|----|----|
| c1 | `c2` |
| d1 | d2 |

Last words."""


def question(text: str) -> Message:
    return Message(Role.USER, text)


def answer(text: str, state: MessageState = MessageState.COMPLETE) -> Message:
    return Message(Role.ASSISTANT, text, state=state)


@pytest.fixture
def transcript(qtbot: QtBot, qapp: QApplication) -> Transcript:
    theme.apply(qapp, "light", 1.0)
    out = Transcript()
    out.resize(900, 900)
    qtbot.addWidget(out)
    out.show()
    return out


def texts(transcript: Transcript, message: int = -1) -> list[SelectableText]:
    return [text for text in transcript.views[message].texts() if text is not None]


def point(text: SelectableText, words: str, behind: bool = False) -> QPoint:
    """The place before (or behind) some words of a text, in its viewport."""
    cursor = text.document().find(words)
    assert not cursor.isNull(), words
    cursor.setPosition(cursor.selectionEnd() if behind else cursor.selectionStart())
    return text.cursorRect(cursor).center()


def drag(begin: SelectableText, start: QPoint, end_in: SelectableText, end: QPoint) -> None:
    """Press, move and release with the mouse, as a person does: all events go to where the button was pressed."""
    place = begin.viewport()
    to = place.mapFromGlobal(end_in.viewport().mapToGlobal(end))
    QTest.mousePress(place, LEFT, NONE, start)
    QTest.mouseMove(place, (start + to) / 2)
    for at in ((start + to) / 2, to):
        event = QMouseEvent(
            QEvent.Type.MouseMove, QPointF(at), QPointF(place.mapToGlobal(at)), LEFT, LEFT, NONE
        )  # fmt: skip
        QApplication.sendEvent(place, event)
    QTest.mouseRelease(place, LEFT, NONE, to)


def copied(transcript: Transcript, markdown: bool = False) -> str:
    transcript.selection.copy(markdown)
    while transcript.selection._copy is not None:  # it copies in slices
        QApplication.processEvents()
    return QGuiApplication.clipboard().text()


# --- drags


def test_a_drag_runs_over_paragraphs_lists_code_and_tables(transcript: Transcript) -> None:
    show(transcript, [question("Hi"), answer(SOURCE)])
    parts = texts(transcript)
    drag(parts[0], point(parts[0], "words"), parts[-1], point(parts[-1], "Last", behind=True))
    assert copied(transcript) == (
        "words with f(x).\n\n- one\n- two\n  - deep\n\n1. a\n2. b\n\n"
        'def f():\n    return "a\u00a0b"\n\nh1\th2\nc1\tc2\nd1\td2\n\nLast'
    )
    assert copied(transcript, markdown=True) == (
        "words with f(x).\n\n" + SOURCE[SOURCE.index("- one") : SOURCE.index("Last words")] + "Last"
    )


def test_a_drag_upwards_selects_the_same(transcript: Transcript) -> None:
    show(transcript, [answer("One two\n\n```\ncode\n```")])
    prose, code = texts(transcript)
    drag(code, point(code, "co", behind=True), prose, point(prose, "two"))
    assert copied(transcript) == "two\n\nco"


def test_a_drag_runs_over_messages(transcript: Transcript) -> None:
    show(transcript, [question("What is\nit?"), answer("It *is*."), question("Sure?"), answer("Yes `it` is")])
    first, last = texts(transcript, 0)[0], texts(transcript, -1)[0]
    drag(first, point(first, "is"), last, point(last, "Yes", behind=True))
    assert copied(transcript) == "is\nit?\n\nIt is.\n\nSure?\n\nYes"
    assert transcript.selection.markdown() == "> is\n> it?\n\nIt *is*.\n\n> Sure?\n\nYes"


def test_part_of_a_table_is_copied_by_rows(transcript: Transcript) -> None:
    show(transcript, [answer("| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |\n| 4 | 5 | 6 |\n| 7 | 8 | 9 |")])
    (table,) = texts(transcript)
    drag(table, point(table, "2"), table, point(table, "8", behind=True))
    assert copied(transcript) == "2\t3\n4\t5\t6\n7\t8"
    assert len(table.extraSelections()) == 3, "the rest of a row, whole rows, the beginning of a row"


def test_the_highlight_covers_no_empty_lines_around_tables_and_quotes(transcript: Transcript) -> None:
    show(transcript, [answer("| a |\n|---|\n| 1 |\n\nText\n\n> quoted\n\n| b |\n|---|\n| 2 |")])
    transcript.selection.select(whole_message(0))
    table, prose, _ = texts(transcript)
    assert [mark.cursor.selectedText() for mark in prose.extraSelections()] == ["Text", "quoted"]
    assert all(mark.cursor.selectionStart() > 0 for mark in table.extraSelections())
    assert transcript.selection.plain_text() == "a\n1\n\nText\n\nquoted\n\nb\n2"


def test_the_highlight_leaves_the_numbers_of_items_readable(transcript: Transcript) -> None:
    show(transcript, [answer("1. one\n2. two")])
    (prose,) = texts(transcript)
    beside = point(prose, "two") - QPoint(LIST_INDENT // 2, 0)

    def number() -> QImage:
        return prose.viewport().grab(QRect(0, beside.y() - 6, beside.x() + 8, 12)).toImage()

    before = number()
    transcript.selection.select(whole_message(0))
    assert number() == before


def test_rows_and_lines_that_are_not_drawn_are_copied(transcript: Transcript) -> None:
    rows = "".join(f"| {i} | `x` \\| y |\n" for i in range(2000))
    code = "\n".join(f"line {i}" for i in range(200))
    show(transcript, [answer(f"| a | b |\n|---|---|\n{rows}\n```\n{code}\n```")])
    transcript.selection.select(whole_message(0))
    table, lines = transcript.selection.plain_text().split("\n\n")
    assert len(table.split("\n")) == 2001
    assert all(len(row.split("\t")) == 2 for row in table.split("\n"))
    assert lines == code


def test_formulas_are_copied_as_latex(transcript: Transcript) -> None:
    source = "So \\(x\\) and $a^2 + b$ give\n\n$$\\frac{a}{b}$$\n\nin **all**"
    show(transcript, [answer(source), question("?")])
    (prose,) = texts(transcript, 0)
    drag(prose, point(prose, "and"), prose, point(prose, "in", behind=True))
    assert copied(transcript) == "and $a^2 + b$ give\n\n$$\\frac{a}{b}$$\n\nin"
    assert transcript.selection.markdown() == copied(transcript)
    transcript.selection.select(Selection(Place(0, 0, 0), Place(1, 0, 1)))
    transcript._column.start_at(0)
    assert transcript.selection.plain_text() == source.replace("*", "") + "\n\n?", "of messages that are not built"


def test_tasks_and_bare_links_are_copied_as_written(transcript: Transcript) -> None:
    source = "- [x] done\n- [ ] see https://example.org/x"
    show(transcript, [answer(source), question("?")])
    transcript.selection.select(whole_message(0))
    assert transcript.selection.plain_text() == transcript.selection.markdown() == source
    transcript._column.start_at(0)
    assert transcript.selection.plain_text() == source


def test_part_of_code_stays_code_in_markdown(transcript: Transcript) -> None:
    show(transcript, [answer("Run\n\n```sh\nls -l\ncd ..\n```")])
    prose, code = texts(transcript)
    drag(prose, point(prose, "Run"), code, point(code, "-l", behind=True))
    assert copied(transcript) == "Run\n\nls -l"
    assert transcript.selection.markdown() == "Run\n\n```sh\nls -l\n```"
    drag(code, point(code, "ls"), code, point(code, "-l", behind=True))
    assert transcript.selection.markdown() == "ls -l"


def test_a_drag_may_begin_and_end_beside_the_text(transcript: Transcript) -> None:
    show(transcript, [answer("One\n\n```\ncode\n```\n\nTwo")])
    column = transcript.widget()
    assert column is not None
    first, last = texts(transcript)[0], texts(transcript)[-1]
    top = first.viewport().mapTo(column, point(first, "One"))
    foot = last.viewport().mapTo(column, QPoint(0, last.height())) + QPoint(0, 40)
    QTest.mousePress(column, LEFT, NONE, QPoint(3, top.y()))
    event = QMouseEvent(
        QEvent.Type.MouseMove, QPointF(foot), QPointF(column.mapToGlobal(foot)), LEFT, LEFT, NONE
    )  # fmt: skip
    QApplication.sendEvent(column, event)
    QTest.mouseRelease(column, LEFT, NONE, foot)
    assert copied(transcript) == "One\n\ncode\n\nTwo"


def test_what_is_not_built_of_a_long_message_is_copied(transcript: Transcript, qtbot: QtBot) -> None:
    words = "\n\n".join(f"Paragraph {i} of a long answer, `x`." for i in range(3000))
    own = "\n".join(f"line {i}" for i in range(2000))
    show(transcript, [question(own), answer(words), question("End")])
    qtbot.waitUntil(lambda: len(transcript.views) == 3)
    assert not any(view.shows_all for view in transcript.views[:2])
    transcript.selection.select(Selection(Place(0, 0, 0), Place(2, 0, FAR)))
    assert transcript.selection.plain_text() == "\n\n".join([own, words.replace("`", ""), "End"])
    transcript.selection.select(Selection(Place(0, 0, 5), Place(0, FAR, FAR)))
    assert transcript.selection.plain_text() == own[5:]
    transcript.selection.select(Selection(Place(1, 1, 10), Place(2, 0, 1)))
    assert transcript.selection.plain_text() == words.replace("`", "")[10:] + "\n\nE"
    assert transcript.selection.markdown().startswith("0 of a long answer, x.\n\nParagraph 1 of a long answer, `x`.")


def test_parts_that_are_built_later_are_highlighted(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages([answer("\n\n".join(f"Text\n\n```\n{i}\n```" for i in range(20)))])
    transcript.selection.select(whole_message(0))
    built = len(texts(transcript))
    qtbot.waitUntil(lambda: transcript.views[0].shows_all)
    assert len(texts(transcript)) == 40 > built
    assert all(text.extraSelections() for text in texts(transcript))


def test_long_lines_of_code_are_copied_without_breaks(transcript: Transcript) -> None:
    code = "x = " + "1" * 5000 + "\ny = 2"
    show(transcript, [answer(f"```\n{code}\n```")])
    transcript.selection.select(Selection(Place(0, 1, 2), Place(0, 1, 5012)))
    assert transcript.selection.plain_text() == code[2:]


# --- clicks and keys


def test_clicks_select_a_word_a_paragraph_and_extend(transcript: Transcript) -> None:
    show(transcript, [answer("Some words here.\n\nAnother one.\n\n```\nx = 1\n```")])
    prose, code = texts(transcript)
    at = point(prose, "ords")
    QTest.mouseDClick(prose.viewport(), LEFT, NONE, at)
    assert copied(transcript) == "words"
    third = QMouseEvent(
        QEvent.Type.MouseButtonPress, QPointF(at), QPointF(prose.viewport().mapToGlobal(at)), LEFT, LEFT, NONE
    )  # fmt: skip
    third.setTimestamp(transcript.selection._double_at[0] + 50 if transcript.selection._double_at else 0)
    QApplication.sendEvent(prose.viewport(), third)
    QTest.mouseRelease(prose.viewport(), LEFT, NONE, at)
    assert copied(transcript) == "Some words here."
    QTest.mouseClick(prose.viewport(), LEFT, NONE, point(prose, "here"))
    assert transcript.selection.is_empty
    QTest.mouseClick(code.viewport(), LEFT, Qt.KeyboardModifier.ShiftModifier, point(code, "x ="))
    assert copied(transcript) == "here.\n\nAnother one."


def test_select_all_takes_the_message_then_the_chat(transcript: Transcript) -> None:
    show(transcript, [question("Ask"), answer("**Answer**"), question("Again"), answer("Yes")])
    text = texts(transcript, 1)[0]
    QTest.mouseClick(text.viewport(), LEFT, NONE, point(text, "Answer"))
    transcript.selection.select_all()
    assert transcript.selection.plain_text() == "Answer"
    assert transcript.selection.markdown() == "**Answer**"
    for _ in range(2):
        transcript.selection.select_all()
        assert transcript.selection.plain_text() == "Ask\n\nAnswer\n\nAgain\n\nYes"


def test_a_chat_of_which_little_is_built_is_copied_whole(transcript: Transcript, qtbot: QtBot) -> None:
    messages = [m for i in range(150) for m in (question(f"Q{i}"), answer(f"- A{i}\n\n`x`"))]
    show(transcript, messages)
    assert len(transcript.views) < len(messages)
    transcript.selection.select(Selection(Place(0, 0, 1), Place(len(messages) - 1, FAR, FAR)))
    expected = "\n\n".join(f"Q{i}\n\n- A{i}\n\nx" for i in range(150))[1:]
    transcript.selection.copy()
    qtbot.waitUntil(lambda: QGuiApplication.clipboard().text() == expected)


RICH = """# Head <x>

Some **bold** text with `#include <iostream>` and $x^2$.

```cpp
#include <iostream> // a & b
```

| a | b |
|---|---|
| 1 | `<i>` |

1. one
2. two"""


def html_on_clipboard() -> str:
    html = QGuiApplication.clipboard().mimeData().html()
    assert html.startswith('<html><head><meta charset="utf-8"></head><body>')
    return html.partition("<body>")[2]


def test_a_copied_answer_is_formatted_for_other_programs(transcript: Transcript) -> None:
    show(transcript, [question("Ask <b>\n  indented"), answer(RICH)])
    transcript.selection.select(whole_message(1))
    transcript.selection.copy()
    selected = html_on_clipboard()
    transcript.views[1].stats.copy.click()  # type: ignore[attr-defined]
    assert html_on_clipboard() == selected
    assert QGuiApplication.clipboard().text() == RICH
    for part in (
        "<h1>Head &lt;x&gt;</h1>", "<strong>bold</strong>", "<code>#include &lt;iostream&gt;</code>", "$x^2$",
        "<pre><code>#include &lt;iostream&gt; // a &amp; b</code></pre>", "<td><code>&lt;i&gt;</code></td>",
        "<ol><li>one</li><li>two</li></ol>",
    ):  # fmt: skip
        assert part in selected, part
    transcript.selection.select(whole_message(0))
    transcript.selection.copy()
    assert html_on_clipboard() == "<p>Ask &lt;b&gt;<br>\u00a0 indented</p></body></html>"


def test_parts_of_an_answer_are_copied_as_they_are(transcript: Transcript) -> None:
    show(transcript, [answer(RICH)])
    head, code = texts(transcript, 0)[:2]
    bold = head.toPlainText().index("bold")
    start = code.plain().index("<iostream>")
    transcript.selection.select(Selection(Place(0, 1, bold), Place(0, 2, start + len("<iostream>"))))
    transcript.selection.copy()
    assert html_on_clipboard() == (
        "<p>bold text with #include &lt;iostream&gt; and $x^2$.</p>\n"
        "<pre><code>#include &lt;iostream&gt;</code></pre></body></html>"
    )


def test_copied_markdown_has_no_formatting(transcript: Transcript) -> None:
    show(transcript, [answer("**bold**")])
    transcript.selection.select(whole_message(0))
    transcript.selection.copy(markdown=True)
    assert not QGuiApplication.clipboard().mimeData().hasHtml()
    assert QGuiApplication.clipboard().text() == "**bold**"


def test_ctrl_c_in_the_composer_copies_what_is_selected_above(qtbot: QtBot, qapp: QApplication) -> None:
    page = ChatPage()
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show_conversation(None, [answer("Some words")])
    page.show()
    settle(page)
    page.focus_composer()
    page.transcript.selection.select(whole_message(0))
    QGuiApplication.clipboard().clear()
    QTest.keyClick(page.composer.field, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Some words"
    page.composer.set_text("draft")
    page.composer.field.selectAll()
    assert page.transcript.selection.is_empty, "one selection in the window"
    QTest.keyClick(page.composer.field, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "draft"
    page.transcript.selection.select(whole_message(0))
    assert not page.composer.field.textCursor().hasSelection()
    page.composer.set_text("")
    page.transcript.selection.clear()
    QTest.keyClick(page.composer.field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert page.transcript.selection.plain_text() == "Some words"


# --- it lasts


def test_it_survives_the_running_answer(transcript: Transcript) -> None:
    show(transcript, [answer("Kept words")])
    message = answer("", MessageState.WRITING)
    transcript.add_message(message)
    transcript.append_text(message.id, "Some **words** to select")
    transcript.flush()
    settle(transcript)
    old, new = texts(transcript, 0)[0], texts(transcript)[0]
    drag(old, point(old, "words"), new, point(new, "words", behind=True))
    for piece in (" and more", "\n\n```\ncode\n", "```\n\nEnd"):
        transcript.append_text(message.id, piece)
        transcript.flush()
        assert transcript.selection.plain_text() == "words\n\nSome words"
        assert all(text.extraSelections() for text in (old, texts(transcript)[0]))
    transcript.finish_message(replace(message, text="Some **words** to", state=MessageState.CANCELLED))
    assert transcript.selection.plain_text() == "words\n\nSome words"


def test_it_comes_back_with_messages_that_were_taken_down(transcript: Transcript) -> None:
    show(transcript, [question("Ask"), answer("Some words")])
    transcript.selection.select(Selection(Place(0, 0, 0), Place(1, 1, 4)))
    transcript._column.start_at(0)
    assert transcript.selection.plain_text() == "Ask\n\nSome"
    transcript._build_the_end()
    settle(transcript)
    marks = texts(transcript)[0].extraSelections()
    assert [mark.cursor.selectedText() for mark in marks] == ["Some"]
    show(transcript, [answer("Another chat")])
    assert transcript.selection.is_empty


def test_the_highlight_is_the_themes(transcript: Transcript, qapp: QApplication) -> None:
    show(transcript, [answer("Text\n\n```\ncode\n```")])
    transcript.selection.select(whole_message(0))

    def grounds() -> set[str]:
        return {m.format.background().color().name() for t in texts(transcript) for m in t.extraSelections()}

    assert grounds() == {theme.LIGHT.selection.lower()}
    theme.apply(qapp, "dark", 1.0)
    assert grounds() == {theme.DARK.selection.lower()}
    theme.apply(qapp, "light", 1.0)


# --- links, scrolling, the menu


def test_a_link_is_followed_by_a_click_and_not_by_a_drag(transcript: Transcript) -> None:
    show(transcript, [answer("See [the page](https://example.org/x) now\n\n```\ncode\n```")])
    prose, code = texts(transcript)
    followed: list[str] = []
    transcript.link_activated.connect(followed.append)
    QTest.mouseClick(prose.viewport(), LEFT, NONE, point(prose, "page"))
    assert followed == ["https://example.org/x"]
    drag(prose, point(prose, "page"), code, point(code, "code", behind=True))
    assert followed == ["https://example.org/x"]
    assert copied(transcript) == "page now\n\ncode"


def test_a_drag_beyond_the_edge_scrolls(transcript: Transcript, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    show(transcript, [answer("\n\n".join(f"Paragraph {i}" for i in range(200)))])
    last = texts(transcript)[-1]
    bar = transcript.verticalScrollBar()
    beyond = transcript.mapToGlobal(QPoint(300, -40))
    monkeypatch.setattr("app.ui.transcript.selection.selection.QCursor.pos", lambda: beyond)
    monkeypatch.setattr("app.ui.transcript.selection.selection.QGuiApplication.mouseButtons", lambda: LEFT)
    place = last.viewport()
    QTest.mousePress(place, LEFT, NONE, point(last, "199"))
    before = bar.value()
    at = place.mapFromGlobal(beyond)
    event = QMouseEvent(QEvent.Type.MouseMove, QPointF(at), QPointF(beyond), LEFT, LEFT, NONE)
    QApplication.sendEvent(place, event)
    lines = transcript.selection.plain_text().count("\n")
    qtbot.waitUntil(lambda: bar.value() < before - 200)
    assert transcript.selection.plain_text().count("\n") > lines
    QTest.mouseRelease(place, LEFT, NONE, at)
    assert not transcript.selection._scroller.isActive()


def test_the_menu_offers_what_can_be_done_here(transcript: Transcript) -> None:
    show(transcript, [answer("See [it](https://example.org/x) **now**")])
    (prose,) = texts(transcript)
    column = transcript.widget()
    assert column is not None

    def rows(words: str) -> dict[str, str]:
        menu = transcript.selection.make_menu(prose.viewport().mapTo(column, point(prose, words)))
        found = {a.text().split("\t")[0]: a for a in menu.actions() if not a.isSeparator()}
        out = {}
        for name, action in found.items():
            if name.startswith("Copy"):
                QGuiApplication.clipboard().clear()
                action.trigger()
                out[name] = QGuiApplication.clipboard().text()
        menu.close()
        return out

    assert rows("See") == {"Copy message": "See [it](https://example.org/x) **now**"}
    assert rows("t")["Copy link"] == "https://example.org/x"
    transcript.selection.select(whole_message(0))
    assert rows("See") == {
        "Copy": "See it now",
        "Copy as Markdown": "See [it](https://example.org/x) **now**",
        "Copy message": "See [it](https://example.org/x) **now**",
    }
    copied(transcript)
    data = QGuiApplication.clipboard().mimeData()
    assert bytes(data.data("text/markdown").data()).decode() == "See [it](https://example.org/x) **now**"
    assert data.text() == "See it now"
    assert "color" not in data.html(), "colours of the theme have no business in another program"
    assert "style" not in data.html()


def test_a_right_click_opens_the_menu_and_keeps_the_selection(transcript: Transcript) -> None:
    show(transcript, [answer("Words")])
    (prose,) = texts(transcript)
    transcript.selection.select(whole_message(0))
    QTest.mousePress(prose.viewport(), Qt.MouseButton.RightButton, NONE, point(prose, "Words"))
    QTest.mouseRelease(prose.viewport(), Qt.MouseButton.RightButton, NONE, point(prose, "Words"))
    at = point(prose, "Words")
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, prose.viewport().mapToGlobal(at))
    QApplication.sendEvent(prose.viewport(), event)
    menu = QApplication.activePopupWidget()
    assert menu is not None
    menu.close()
    assert transcript.selection.plain_text() == "Words"


def test_thoughts_are_selected_while_they_are_open(transcript: Transcript) -> None:
    show(transcript, [answer("<think>Let me see.</think>It is.")])
    transcript.selection.select(whole_message(0))
    assert transcript.selection.plain_text() == "It is."
    view = transcript.views[0]
    assert view.thought is not None  # type: ignore[attr-defined]
    view.thought._toggle()  # type: ignore[attr-defined]
    assert transcript.selection.plain_text() == "Let me see.\n\nIt is."
    assert transcript.selection.markdown() == "> Let me see.\n\nIt is."


# --- the rules alone


def test_what_lies_between_two_places() -> None:
    selection = Selection(Place(2, 1, 7), Place(1, 3, 4))
    assert selection.within(1, 2) is None
    assert selection.within(1, 3) == (4, FAR)
    assert selection.within(2, 0) == (0, FAR)
    assert selection.within(2, 1) == (0, 7)
    assert selection.within(2, 2) is None
    assert Selection(Place(1, 1, 4), Place(1, 1, 4)).within(1, 1) is None


def test_markdown_of_parts() -> None:
    full = "Head\n\n- a\n- b\n\nEnd"
    cuts = cut(["Head", "- a\n- b", "End"], full, 2, len(full))
    assert cuts == [Cut("ad", False), Cut("- a\n- b", True), Cut("End", True)]
    assert markdown_of([("# Head", 1), ("* a\n* b", 1), ("**End**", 1)], cuts) == "ad\n\n* a\n* b\n\n**End**"
    assert markdown_of([("# Head", 1)], cuts) is None
    assert cut(["not there"], full, 0, 3) is None


def test_the_source_of_every_block() -> None:
    parser = BlockParser()
    parser.append("# H\n\n- a\n  ```\n  x\n  ```\n- b\n\n> q\n> r\n")
    assert parser.sources()[-1] == ("> q\n> r", 1), "the last one may still grow"
    parser.finish()
    found = parser.sources()
    assert [source for source, _ in found] == ["# H", "- a\n  ```\n  x\n  ```\n- b", "> q\n> r"]
    assert found[1][1] == 3
