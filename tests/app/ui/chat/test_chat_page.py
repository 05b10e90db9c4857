"""The page of a chat: empty or full, drafts per chat, banner, menu, links, keys."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from person import Arrive
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Attachment, Conversation, Message, MessageState, Role, Unsent
from app.clients.engine_status import EngineStatus, Phase
from app.errors import StoreError
from app.ui.chat import chat_page
from app.ui.chat.chat_page import ChatPage, chat_as_markdown
from app.ui.look import theme
from app.ui.widgets.controls import Label
from app.ui.widgets.floating import ConfirmDialog
from app.user_messages import UserMessage

pytestmark = pytest.mark.gui

READY = EngineStatus(Phase.READY, "Pip", "CPU", description="A tiny demonstration model.")
TALK = [Message(Role.USER, "Hello\nthere"), Message(Role.ASSISTANT, "Hi, **you**.\n")]


@pytest.fixture
def page(qtbot: QtBot, qapp: QApplication) -> ChatPage:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = ChatPage()
    out.resize(900, 600)
    qtbot.addWidget(out)
    out.show()
    out.set_status(READY)
    return out


def words_of(widget: QWidget) -> set[str]:
    return {label.words for label in widget.findChildren(Label) if label.isVisible() and label.words}


def test_the_empty_page_says_how_things_stand(page: ChatPage) -> None:
    page.set_machine_line("No GPU found: runs on 8 cores")
    assert page.is_empty
    shown = words_of(page)
    assert "No GPU found: runs on 8 cores" in shown
    assert any(words.startswith("Pip ") for words in shown)
    field = page.composer.field
    usual = (field._placeholder, field.accessibleDescription())
    page.set_status(replace(READY, is_base=True))
    assert words_of(page) != shown, "a base model continues a text"
    assert field._placeholder != usual[0]
    assert field.accessibleDescription() != usual[1]
    page.set_status(READY)
    assert (field._placeholder, field.accessibleDescription()) == usual
    page.set_status(EngineStatus(Phase.LOADING, "Pip", done=42, total=100))
    assert any("42%" in words for words in words_of(page))
    page.set_status(EngineStatus(Phase.FAILED))
    assert not any("42%" in words for words in words_of(page))


def test_a_card_asks_at_once_or_becomes_the_draft(page: ChatPage, qtbot: QtBot) -> None:
    chosen: list[str] = []
    page.prompt_chosen.connect(chosen.append)
    card = page.empty.cards[1]
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    assert chosen == [card.prompt]
    assert page.composer.text() == ""
    page.set_status(EngineStatus(Phase.LOADING))
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    assert len(chosen) == 2
    page.set_status(EngineStatus(Phase.FAILED))
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    assert len(chosen) == 2
    assert page.composer.text() == card.prompt


def test_a_card_never_replaces_a_draft(page: ChatPage, qtbot: QtBot) -> None:
    chosen: list[str] = []
    page.prompt_chosen.connect(chosen.append)
    page.composer.set_text("My own words")
    for phase in (Phase.READY, Phase.OFF):
        page.set_status(EngineStatus(phase))
        qtbot.mouseClick(page.empty.cards[1], Qt.MouseButton.LeftButton)
    assert chosen == []
    asked = "What is the capital of Peru?"
    assert page.composer.text().split("\n") == ["My own words", asked, asked]


def test_a_card_asks_without_a_model_where_one_can_be_loaded(page: ChatPage, qtbot: QtBot) -> None:
    chosen: list[str] = []
    page.prompt_chosen.connect(chosen.append)
    page.set_status(EngineStatus(Phase.OFF, can_load="Pip"))
    assert any(" Pip." in words for words in words_of(page))
    qtbot.mouseClick(page.empty.cards[1], Qt.MouseButton.LeftButton)
    assert len(chosen) == 1


def test_the_first_message_turns_the_page(page: ChatPage, qtbot: QtBot) -> None:
    out: list[str] = []
    page.submitted.connect(lambda text, given: out.append(text))
    page.focus_composer()
    qtbot.keyClicks(page.composer.field, "Hello")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert out == ["Hello"]
    page.add_message(TALK[0])
    assert not page.is_empty
    assert page.composer.isVisible()
    assert page.focusWidget() is page.composer.field, "typing must go on"
    page.show_branch([])
    assert page.is_empty


def test_every_chat_keeps_its_draft(page: ChatPage) -> None:
    chats = {"one": Conversation("one", title="One"), "two": Conversation("two", title="Two")}

    def keep(chat: str, text: str) -> None:
        if chat:
            chats[chat] = replace(chats[chat], draft=text)

    page.draft_changed.connect(keep)
    page.composer.set_text("for a new chat")
    page.show_conversation(chats["one"], TALK)
    assert page.composer.text() == ""
    page.composer.set_text("for the first")
    page.show_conversation(chats["two"], TALK)
    assert page.composer.text() == ""
    page.show_conversation(chats["one"], TALK)
    assert page.composer.text() == "for the first"
    page.show_conversation(chats["one"], TALK)
    assert page.composer.text() == "for the first"
    page.show_conversation(None, [])
    assert page.composer.text() == "for a new chat"
    assert [chat.draft for chat in chats.values()] == ["for the first", ""]


def test_every_chat_keeps_what_is_attached_to_its_draft(page: ChatPage) -> None:
    page.show_conversation(Conversation("one"), TALK)
    page.composer.draft.add_paste("long " * 500)
    page.show_conversation(Conversation("two"), TALK)
    assert page.composer.draft.items == []
    assert page.composer.attached.isHidden()
    page.show_conversation(Conversation("one"), TALK)
    assert [item.name for item in page.composer.draft.items] == ["Pasted text"]


def test_a_draft_that_comes_back_loses_nothing(page: ChatPage) -> None:
    page.give_back(Unsent("not sent", (Attachment("notes.txt", "words", "text"),)), goes=False)
    assert page.composer.text() == "not sent"
    page.give_back(Unsent("earlier", (Attachment("first.txt", "words", "text"),)), goes=False)
    assert page.composer.text() == "earlier\nnot sent"
    assert [item.name for item in page.composer.draft.items] == ["first.txt", "notes.txt"]


def test_a_message_that_is_still_counted_sends_no_draft_of_another_chat(page: ChatPage, qtbot: QtBot) -> None:
    sent: list[str] = []
    page.submitted.connect(lambda text, attachments: sent.append(text))
    page.show_conversation(Conversation("one"), TALK)
    page.give_back(Unsent("goes when counted", (Attachment("notes.txt", "words", "text"),)), goes=True)
    page.show_conversation(Conversation("two", draft="half a thought"), TALK)
    qtbot.wait(10)
    assert (sent, page.composer.text()) == ([], "half a thought")
    page.show_conversation(Conversation("one", draft="goes when counted"), TALK)
    assert [item.name for item in page.composer.draft.items] == ["notes.txt"]


def test_an_answer_streams_into_the_page(page: ChatPage, qtbot: QtBot) -> None:
    page.show_conversation(Conversation(title="T"), TALK)
    message = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    page.add_message(message)
    page.set_status(replace(READY, phase=Phase.WRITING))
    page.append_text(message.id, "Once upon")
    page.append_text(message.id, " a time")
    page.finish_message(replace(message, text="Once upon a time", state=MessageState.COMPLETE))
    assert page.transcript.messages[-1].text == "Once upon a time"
    page.copy_last_answer()
    assert QGuiApplication.clipboard().text() == "Once upon a time"


def test_escape_anywhere_on_the_page_stops(page: ChatPage, qtbot: QtBot) -> None:
    stops: list[bool] = []
    page.stop_requested.connect(lambda: stops.append(True))
    page.show_conversation(Conversation(title="T"), TALK)
    qtbot.keyClick(page.transcript, Qt.Key.Key_Escape)
    assert stops == []
    page.set_status(replace(READY, phase=Phase.WRITING))
    qtbot.keyClick(page.transcript, Qt.Key.Key_Escape)
    assert len(stops) == 1
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Escape)
    assert len(stops) == 2, "one key, one stop"
    page.set_status(replace(READY, phase=Phase.STOPPING))
    qtbot.keyClick(page.transcript, Qt.Key.Key_Escape)
    assert len(stops) == 2


def test_the_menu_acts_on_the_chat(page: ChatPage) -> None:
    chosen: list[str] = []
    notes: list[str] = []
    page.title_menu.connect(chosen.append)
    page.copied.connect(notes.append)
    page.show_conversation(Conversation(title="Greetings"), TALK)
    menu = page.make_menu()
    for action in menu.actions():
        if not action.isSeparator():
            action.trigger()
    assert chosen == ["rename", "delete"]
    assert len(notes) == 1
    assert QGuiApplication.clipboard().text() == "# Greetings\n\n> Hello\n> there\n\nHi, **you**.\n"
    menu.deleteLater()


def test_an_untitled_chat_is_a_new_chat() -> None:
    assert chat_as_markdown("New chat", []) == "# New chat\n"


def test_the_banner_passes_its_remedy_on(page: ChatPage, qtbot: QtBot) -> None:
    acts: list[str] = []
    page.remedy.connect(acts.append)
    page.show_banner(UserMessage("It does not fit", "It needs more.", "Try again", "", "bad", "retry", None))
    assert page.banner.isVisible()
    button = next(b for b in page.banner.findChildren(QAbstractButton) if b.text() == "Try again")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert acts == ["retry"]
    page.clear_banner()
    assert not page.banner.isVisible()


def test_a_link_is_shown_before_it_is_opened(page: ChatPage, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(chat_page, "_open", opened.append)
    page.transcript.link_activated.emit("https://example.org/path")
    (dialog,) = page.findChildren(ConfirmDialog)
    assert dialog.accessibleDescription().replace("\u200b", "") == "https://example.org/path"
    assert opened == []
    qtbot.mouseClick(dialog.danger, Qt.MouseButton.LeftButton)
    assert opened == ["https://example.org/path"]
    dialog.deleteLater()
    QApplication.sendPostedEvents(dialog, QEvent.Type.DeferredDelete)
    page.transcript.link_activated.emit("file:///etc/passwd")
    assert page.findChildren(ConfirmDialog) == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [(664, 520), (844, 600), (1024, 832)])
def test_no_label_is_cut(page: ChatPage, qapp: QApplication, size: tuple[int, int], dark: bool) -> None:
    theme.apply(qapp, "dark" if dark else "light", 1.0)
    page.resize(*size)
    stats = {"tokens": 231, "total_s": 6.0, "ttft_s": 0.29, "active_share": 0.064, "decode_tok_s": 38.6}
    for messages in ([], [TALK[0], replace(TALK[1], stats=stats)]):
        page.show_conversation(Conversation(title="A title") if messages else None, messages)
        for _ in range(4):
            QApplication.processEvents()
        for label in page.findChildren(Label):
            if label.isVisible() and not label.wordWrap():
                assert label.text() == label.words
                assert label.width() >= label.fontMetrics().horizontalAdvance(label.text()), label.words
    theme.apply(qapp, "light", 1.0)


def test_text_title_and_composer_stand_on_one_edge(page: ChatPage) -> None:
    page.show_conversation(Conversation(title="T"), TALK)
    for _ in range(4):
        QApplication.processEvents()
    answer = page.transcript.views[-1]
    text = answer.mapTo(page, answer.rect().topLeft()).x()
    field = page.composer.field
    assert abs(field.mapTo(page, field.rect().topLeft()).x() - text) <= 1


def test_everything_that_takes_the_focus_has_a_name(page: ChatPage) -> None:
    page.show_conversation(Conversation(title="T"), TALK)
    page.show_banner(UserMessage("It does not fit", "It needs more.", "Try again", "details", "bad", "retry", None))
    for widget in page.findChildren(QWidget):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            named = widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text())
            assert named or widget.isHidden(), widget


@pytest.mark.parametrize("sends", [False, True])
def test_what_is_typed_while_a_chat_is_read_goes_into_it(arrive: Arrive, sends: bool) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("hello one")
    first = person.hearth.controller.open_conversation
    person.hearth.controller.new_chat()
    person.ask("hello two")
    second = person.hearth.controller.open_conversation
    memory, controller = person.hearth.memory, person.hearth.controller
    assert first
    assert second
    del memory._chats[first]  # as after a restart
    may_read = threading.Event()
    memory._reads.run("wait", may_read.wait)
    person.type("rest")
    controller.open(first)
    (person.send if sends else person.type)("words 2")
    assert (memory.draft(first), memory.draft(second)) == ("words 2", "rest")
    may_read.set()
    person.wait(lambda: controller.open_conversation == first)
    if sends:
        person.wait(lambda: [one.text for one in person.shown][2:3] == ["words 2"])
    else:
        assert person.page.composer.text() == "words 2"
    controller.open(second)
    assert person.page.composer.text() == "rest"
    assert not any("words" in one.text for one in memory.messages(second) or [])


def test_a_chat_that_cannot_be_read_leaves_the_open_one_as_it_was(
    arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("hello one")
    memory, controller = person.hearth.memory, person.hearth.controller
    first = controller.open_conversation
    controller.new_chat()
    person.ask("words 2000 pace 0")
    bar = person.page.transcript.verticalScrollBar()
    person.wait(lambda: bar.maximum() > 1000)
    bar.setValue(200)
    assert first
    del memory._chats[first]

    def fails(_: str) -> list[Message]:
        raise StoreError("damaged", "The chats cannot be read.")

    monkeypatch.setattr(memory._stored, "messages", fails)
    person.type("rest")
    controller.open(first)
    assert person.page.composer.text() == ""
    person.wait(lambda: person.page.composer.text() == "rest")
    assert not person.page.composer._waits
    assert bar.value() == 200
