"""Find in a chat: what is counted is what can be marked, folded things open, and no chat holds the window."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from shown_messages import settle

from app.chat.chat_find import ChatFind, Spot
from app.chat.store.conversation import Conversation, Message, MessageState, Role
from app.clients.engine_status import EngineStatus, Phase
from app.text.plain_text import fold
from app.ui.chat.chat_page import ChatPage
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.selection.copied_text import span
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.text.code_block import CodeBlockView

pytestmark = pytest.mark.gui

RICH = """<think>
The needle is thought of here, on a line of its own.
And a Needle again.
</think>

# A **needle** in a heading

Some *nee*dle across marks, `needle()` in code, [a needle](https://example.com/needle) as a link, and 😀 needle.
With a soft
needle, and a formula $needle_1$ beside it.

- first needle
- second
  - nested **needle**

> A quoted needle.

| Name | Needle |
| --- | --- |
| needle | no |

```python
needle = 1
print("needle")
```

The end of the needles."""


def question(text: str) -> Message:
    return Message(Role.USER, text)


def answer(text: str, state: MessageState = MessageState.COMPLETE) -> Message:
    return Message(Role.ASSISTANT, text, state=state)


@pytest.fixture(scope="module")
def only_page(qapp: QApplication) -> Iterator[ChatPage]:
    """One page for all tests here: making it takes longer than most of them."""
    theme.apply(qapp, "light", 1.0)
    out = ChatPage()
    out.resize(900, 620)
    out.show()
    out.activateWindow()
    yield out
    out.close()
    out.deleteLater()


@pytest.fixture
def page(qtbot: QtBot, only_page: ChatPage) -> ChatPage:
    qtbot.waitUntil(only_page.isActiveWindow)
    only_page.set_status(EngineStatus())
    only_page.show_conversation(None, [])
    only_page.transcript.selection.clear()
    return only_page


def show(page: ChatPage, *messages: Message, chat: str = "chat") -> list[Message]:
    page.show_conversation(Conversation(id=chat, title="A chat"), list(messages))
    settle(page)
    return list(messages)


def rest(page: ChatPage, until: Callable[[], bool] = lambda: True) -> None:
    """Let the search come to its end."""
    find = page.transcript.text_find
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        QTest.qWait(1)
        timers = (find._slices, find._growing, find._settling)
        if find._wanted is None and not any(timer.isActive() for timer in timers) and until():
            return
    raise AssertionError("the search does not come to rest")


def seek(page: ChatPage, text: str) -> None:
    page.open_find()
    page.find_bar.field.setText(text)
    rest(page)


def marked(text: SelectableText) -> list[str]:
    return [part.cursor.selectedText() for part in text.extraSelections()]


def current(page: ChatPage) -> tuple[SelectableText, str]:
    """The text with the current place, and the words that are marked as that."""
    place = page.transcript.text_find._place
    assert place is not None
    ink = theme.colour("ink")
    strong = [part for part in place[0].extraSelections() if part.format.background().color() == ink]
    assert len(strong) == 1
    return place[0], strong[0].cursor.selectedText()


def is_in_view(page: ChatPage, text: SelectableText) -> bool:
    """Whether the current place of a text is inside the view."""
    place = page.transcript.text_find._place
    assert place is not None
    cursor = span(text.document(), *text.found()[place[1]])
    cursor.setPosition(cursor.selectionStart())
    corner = text.viewport().mapTo(page.transcript.viewport(), text.cursorRect(cursor).topLeft())
    return page.transcript.viewport().rect().contains(corner)


# --- what is found


def test_what_is_counted_in_the_words_is_what_is_found_in_the_widgets(page: ChatPage) -> None:
    show(page, question("Where is the *needle*?"), answer(RICH))
    for text in ("needle", "NEEDLE", "a needle in", "dle across", "needle()", "needle_1", "end of", "e"):
        seek(page, text)
        find = page.transcript.text_find
        texts = [one for view in page.transcript.views for one in view.searched()]
        assert find.total == sum(len(one.found()) for one in texts), text
        assert find.total > 0, text
        assert {fold(words) for one in texts for words in marked(one)} - {"\ufffc"} <= {fold(text)}, text
    seek(page, "example.com")
    assert page.transcript.text_find.total == 0


@pytest.mark.parametrize("seed", range(6))
def test_counts_agree_for_any_markdown(page: ChatPage, seed: int) -> None:
    dice = random.Random(seed)
    pieces = [
        "needle ", "**needle**", "*nee*dle", "`x needle`", "\n\n", "\n", "- ", "1. ", "> ", "# ", "~~needle~~ ",
        "| a | needle |\n|---|---|\n| needle | b |\n", "```\nneedle\n```\n", "$needle$ ", "Straße needle İ ", "😀",
        "[x](http://needle.com)", "&amp; ", "<b>needle</b>", "\\*needle", "  \n", "[^1] ", "\n[^1]: A needle.\n",
        "שלום needle ", "***",
    ]  # fmt: skip
    text = "".join(dice.choice(pieces) for _ in range(300))
    show(page, answer(text))
    seek(page, "needle")
    view = page.transcript.views[0]
    assert isinstance(view, AnswerView)
    rest(page, lambda: view.is_complete)
    for part in view.parts():
        if isinstance(part, CodeBlockView):
            part.show_more()
    assert page.transcript.text_find.total == sum(len(one.found()) for one in view.searched())


def test_every_place_is_reached_in_order_and_the_ends_are_joined(page: ChatPage) -> None:
    show(page, question("needle"), answer(RICH), question("and a needle"))
    seek(page, "needle")
    find = page.transcript.text_find
    page.transcript.verticalScrollBar().setValue(0)
    numbers = []
    for _ in range(find.total):
        numbers.append(find.number)
        text, words = current(page)
        assert fold(words) in ("needle", "\ufffc")
        assert is_in_view(page, text)
        find.step(1)
        rest(page)
    assert sorted(numbers) == list(range(1, find.total + 1))
    assert find.number == numbers[0]
    find.step(-1)
    rest(page)
    assert find.number == numbers[-1]


# --- what is folded


def folded_chat() -> str:
    code = "\n".join(f"line {i}" for i in range(1500)) + "\nthe codeneedle\n" + "\n".join(f"l {i}" for i in range(50))
    rows = "\n".join(f"| row {i} | {'tableneedle' if i == 1200 else i} |" for i in range(1300))
    thought = "A long thought.\n" * 600 + "thoughtneedle\n" + "More of it.\n" * 50
    prose = "\n\n".join(f"Paragraph {i} of a very long answer, with some more words in it." for i in range(900))
    return (
        f"<think>\n{thought}</think>\nHello.\n\n```\n{code}\n```\n\n| a | b |\n| - | - |\n{rows}\n\n{prose}\n\n"
        "the lastneedle"
    )


def test_what_is_folded_opens(page: ChatPage) -> None:
    own = "\n".join(f"my line {i}" for i in range(700)) + "\nownneedle"
    show(page, question(own), answer(folded_chat()))
    for text in ("codeneedle", "tableneedle", "thoughtneedle", "lastneedle", "ownneedle"):
        seek(page, text)
        assert page.transcript.text_find.total == 1, text
        shown, words = current(page)
        assert words == text
        assert shown.isVisible()
        assert is_in_view(page, shown), text


def test_a_long_line_of_code_is_scrolled_sideways(page: ChatPage) -> None:
    show(page, answer("```\n" + "word " * 200 + "needle\n```"))
    seek(page, "needle")
    text, _ = current(page)
    assert isinstance(text.parent(), CodeBlockView)
    assert text.horizontalScrollBar().value() > 0
    assert is_in_view(page, text)


# --- a long chat


def test_messages_that_are_not_built_count_and_are_gone_to(page: ChatPage) -> None:
    messages = [question(f"Question {i}") if i % 2 == 0 else answer(f"Answer {i}, a *needle*") for i in range(2000)]
    show(page, *messages)
    seek(page, "a needle")
    find = page.transcript.text_find
    assert find.total == 1000
    assert len(page.transcript.views) < 200
    first = find.number
    find.step(1)
    rest(page)
    assert find.number == first % 1000 + 1
    seek(page, "Answer 301,")
    text, words = current(page)
    assert words == "Answer 301,"
    assert is_in_view(page, text)
    assert len(page.transcript.views) < 200


def test_no_turn_of_the_event_loop_is_long(page: ChatPage) -> None:
    """Compared with a reference of the same run: reading one block of the parser's longest step."""
    from app.text.block_parser import STEP, parse

    paragraph = "Some *words* of an answer with `code` and **more**, e.g. a needle.\n\n"
    started = time.thread_time()
    parse(paragraph * (STEP // len(paragraph)))
    reference = time.thread_time() - started
    show(page, *[answer(paragraph * 25) if i % 2 else question(f"Question {i}") for i in range(200)])
    QTest.qWait(300)
    longest = 0.0
    page.open_find()
    page.find_bar.field.setText("needle")
    find = page.transcript.text_find
    while find.is_counting or find._slices.isActive():
        began = time.thread_time()
        QApplication.processEvents()
        longest = max(longest, time.thread_time() - began)
    assert find.total == 2500
    assert longest < 30 * reference + 0.1


def test_steps_are_bounded_in_one_long_message() -> None:
    find = ChatFind()
    find.seek("needle")
    find.take([answer("A paragraph with a needle in it.\n\n" * 10_000)])
    find.seek("needle")
    steps = 0
    while find.step():
        steps += 1
    assert steps > 50
    assert find.total == 10_000


# --- while one types, and while an answer is written


def test_typing_on_stays_at_the_place_and_typing_back_too(page: ChatPage) -> None:
    show(page, answer("\n\n".join(f"place {i} of time" for i in range(60))), question("timer"))
    page.transcript.verticalScrollBar().setValue(0)
    seek(page, "tim")
    find = page.transcript.text_find
    assert (find.number, find.total) == (1, 61)
    for _ in range(4):
        find.step(1)
    rest(page)
    assert find.number == 5
    page.find_bar.field.setText("time")
    rest(page)
    assert (find.number, find.total) == (5, 61)
    page.find_bar.field.setText("timer")
    rest(page)
    assert (find.number, find.total) == (1, 1)
    page.find_bar.field.setText("timers")
    rest(page)
    assert (find.number, find.total) == (0, 0)
    assert page.find_bar.words.text() == "No matches"


def test_the_count_follows_an_answer_that_is_written(page: ChatPage) -> None:
    writing = answer("", MessageState.WRITING)
    show(page, question("one needle"))
    page.add_message(writing)
    page.set_status(EngineStatus(Phase.WRITING, "Pip"))
    seek(page, "needle")
    find = page.transcript.text_find
    assert find.total == 1
    for n in range(2, 5):
        page.append_text(writing.id, "Another **needle**.\n\n")
        page.transcript.flush()
        rest(page)
        assert find.total == n
    assert find.number == 1
    written = "Another **needle**.\n\n" * 3
    page.finish_message(Message(Role.ASSISTANT, written + "needle", id=writing.id))
    rest(page)
    assert find.total == 5
    texts = [one for view in page.transcript.views for one in view.searched()]
    assert sum(len(marked(one)) for one in texts) == 5


def test_another_branch_is_counted_anew(page: ChatPage) -> None:
    first, second, other = question("needle"), answer("a needle and a needle"), answer("none")
    show(page, first, second)
    seek(page, "needle")
    page.transcript.text_find.step(1)
    page.show_branch([first, other], other.id)
    rest(page)
    assert page.transcript.text_find.total == 1
    assert page.find_bar.words.text() in ("1 match", "1 of 1")


# --- keys


def press(page: ChatPage, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    focus = QApplication.focusWidget()
    assert focus is not None
    QTest.keyClick(focus, key, modifiers)
    rest(page)


def test_the_bar_is_used_with_keys_alone(page: ChatPage) -> None:
    show(page, question("a needle"), answer("needle, needle"))
    page.transcript.verticalScrollBar().setValue(0)
    page.open_find()
    assert page.find_bar.field.hasFocus()
    QTest.keyClicks(page.find_bar.field, "needle")
    rest(page)
    assert page.find_bar.words.text() == "1 of 3"
    press(page, Qt.Key.Key_Return)
    assert page.find_bar.words.text() == "2 of 3"
    press(page, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    press(page, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert page.find_bar.words.text() == "3 of 3"
    page.find_bar.next.click()
    rest(page)
    assert page.find_bar.words.text() == "1 of 3"
    assert page.find_bar.field.hasFocus()
    press(page, Qt.Key.Key_Escape)
    assert page.find_bar.isHidden()
    assert page.composer.field.hasFocus()
    assert not any(marked(one) for view in page.transcript.views for one in view.searched())


def test_the_bar_takes_the_selected_words(page: ChatPage) -> None:
    show(page, question("a needle"), answer("needle, thread"))
    page.transcript.selection.select_all()
    selection = page.transcript.selection
    from app.text.selected_text import Place, Selection

    selection.select(Selection(Place(1, 1, 8), Place(1, 1, 14)))
    page.open_find()
    rest(page)
    assert page.find_bar.field.text() == "thread"
    assert page.transcript.text_find.total == 1


# --- a hit of the search in all chats


def test_an_opened_hit_is_marked_in_its_message_alone_until_esc(page: ChatPage) -> None:
    messages = show(page, question("needle"), answer(RICH), answer("needle"))
    page.show_message(messages[1].id, "needle")
    rest(page)
    by_message = [sum(len(marked(one)) for one in view.searched()) for view in page.transcript.views]
    assert by_message[0] == by_message[2] == 0
    assert by_message[1] == page.transcript.text_find.total > 10
    text, _ = current(page)
    view = page.transcript.views[1]
    assert isinstance(view, AnswerView)
    assert text is view.parts()[0], "the answer comes before the thought, which stays closed"
    assert not view.thought.is_open
    assert page.find_bar.isHidden()
    QApplication.sendEvent(page, QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier))
    assert not any(marked(one) for view in page.transcript.views for one in view.searched())
    page.show_message(messages[1].id, "thought of")
    rest(page)
    assert view.thought.is_open


def test_a_mark_goes_with_the_chat_and_find_goes_on_from_a_hit(page: ChatPage) -> None:
    messages = show(page, question("needle"), answer("a needle"), answer("needle"))
    page.show_message(messages[1].id, "needle")
    rest(page)
    page.step_find(1)
    rest(page)
    assert page.find_bar.field.text() == "needle"
    assert page.transcript.text_find.total == 3
    assert page.find_bar.words.text() == "2 of 3"
    show(page, question("needle"), chat="other")
    assert page.find_bar.isHidden()
    assert not page.transcript.text_find.is_on
    assert not any(marked(one) for view in page.transcript.views for one in view.searched())


def test_a_text_that_stands_only_in_the_markup_marks_nothing(page: ChatPage) -> None:
    messages = show(page, question("?"), answer("Read [this](https://example.com/needle)."))
    page.show_message(messages[1].id, "example.com")
    rest(page)
    assert page.transcript.text_find.total == 0


# --- the places as data


def test_places_are_gone_through_from_any_spot() -> None:
    find = ChatFind()
    messages = [question("x needle needle"), answer("none"), answer("# needle\n\nneedle")]
    find.take(messages)
    find.seek("needle", messages[2].id)
    while find.step():
        pass
    assert find.total == 4
    first = find.first_from(Spot(messages[0].id, 0, 3))
    assert first is not None
    assert (find.number(first), find.spot(first).offset) == (2, 9)
    assert find.number(find.beside(first, 1)) == 3
    assert find.number(find.beside(find.beside(first, -1), -1)) == 4
    behind = find.first_from(Spot(messages[2].id, 2, 4))
    assert behind is not None
    assert find.number(behind) == 1


def test_nothing_is_scrolled_when_the_place_is_in_view(page: ChatPage) -> None:
    show(page, *[answer(f"needle {i}") for i in range(40)])
    rest(page, lambda: len(page.transcript.views) == 40)
    seek(page, "needle 39")
    bar = page.transcript.verticalScrollBar()
    bar.setValue(bar.maximum())
    before = bar.value()
    page.transcript.text_find.step(1)
    rest(page)
    assert bar.value() == before
    assert page.transcript.views[-1].mapTo(page.transcript, QPoint(0, 0)).y() > 0


def test_a_hit_deep_in_a_very_long_answer_says_that_it_is_on_its_way(
    page: ChatPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ui.chat.chat_page.LATE_MS", 0)
    messages = show(page, question("?"), answer("A paragraph with *some* words in it.\n\n" * 4000 + "the needle"))
    words: set[str] = set()
    with_bar = page.transcript.text_find.changed.connect(
        lambda: words.add(page.find_bar.words.text().partition(",")[0]) if page.find_bar.isVisible() else None
    )
    page.show_message(messages[1].id, "needle")
    rest(page, lambda: page.transcript.text_find._place is not None)
    page.transcript.text_find.disconnect(with_bar)
    assert {"Searching", "Opening", "1 of 1"} <= words
    assert page.find_bar.isVisible()
    assert page.find_bar.field.text() == "needle"
    assert not page.find_bar.field.hasFocus()
    assert is_in_view(page, current(page)[0])
    page.step_find(1)
    rest(page)
    assert page.find_bar.field.hasFocus()
    assert not page.transcript.text_find.is_in_one_message
