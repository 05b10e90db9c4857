"""The page of one chat: title bar, banner, messages or the empty page, composer. It wires these parts.

It stores nothing and knows no engine: whoever owns the chat listens to its signals and calls its slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.answers.thinking import spoken
from app.chat.conversation import UNTITLED, Conversation, Message, Role, Unsent
from app.chat.message_act import Act, MessageAct, can_continue
from app.clients.engine_status import EngineStatus, Phase
from app.text.markdown_blocks import web_address
from app.text.selected_text import quoted
from app.translation import tr
from app.ui.chat.empty_page import EmptyPage
from app.ui.chat.find_bar import MOST_SELECTED, FindBar
from app.ui.composer.away_mark import SENT_TO
from app.ui.composer.composer import Composer
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.transcript.own_message import MessageEditor
from app.ui.transcript.transcript import Transcript, text_column
from app.ui.widgets.banner import Banner, BannerPlace
from app.ui.widgets.controls import IconButton, Label
from app.ui.widgets.floating import ConfirmDialog, Menu, confirm

if TYPE_CHECKING:
    from app.user_messages import UserMessage

BAR, BANNER_GAP = 48, 12
LATE_MS = 500  # after which the bar says what an opened hit is waiting for
WITH_TITLE = 520  # a narrower page shows no title beside Find
COMPOSER_OUTSET = 24  # the composer reaches this far beyond the text column


def chat_as_markdown(title: str, messages: list[Message]) -> str:
    """A chat as one Markdown document: the person's words quoted, the answers as they are."""
    parts = [f"# {title}"]
    for message in messages:
        if message.role is Role.USER:
            parts.append(quoted(message.text))
        elif message.role is Role.ASSISTANT and message.text:
            parts.append(spoken(message.text).strip("\n"))
    return "\n\n".join(parts) + "\n"


class ChatPage(QFrame):
    """One chat, or the start of one.

    submitted: text to send, and what is attached. queued: the same, after the answer that is being written.
    stop_requested: end the running answer. title_menu: "rename" or "delete" was chosen for this chat. copied: words for
    a note that something is on the clipboard now. remedy: action of the banner's button. prompt_chosen: text of a card
    of the empty page, while messages are taken and there is no draft (else it is added to the draft).
    """

    submitted = Signal(str, object)
    queued = Signal(str, object)
    draft_changed = Signal(str, str)  # id of the chat, or "" for a new one; what stands in the composer
    acted = Signal(object)  # MessageAct: what is wanted with one message
    other_model_asked = Signal(str, QWidget)  # answer that is wanted from another model, and where to choose one
    stop_requested = Signal()
    title_menu = Signal(str)
    menu_asked = Signal(Menu)  # of the title bar, before it opens: for rows of others
    copied = Signal(str)
    remedy = Signal(str)
    prompt_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "page")
        self._conversation_id = ""
        self._title = ""
        self._new_draft = ""  # of a chat that is not there yet, while another one is shown
        self._status = EngineStatus()

        self._bar = QFrame()
        self._bar.setProperty("kind", "bar")
        self._title_label = Label("", "label", elide=True)
        self.find_bar = FindBar()
        self.find_bar.hide()
        self._late = QTimer(self, singleShot=True)
        self._late.timeout.connect(self._show_late)
        self._more = IconButton("more", tr("Chat menu"))
        self._more.clicked.connect(self._open_menu)
        bar = QHBoxLayout(self._bar)
        bar.addWidget(self._title_label, 1)
        bar.addWidget(self.find_bar)
        bar.addWidget(self._more)
        self.banner = Banner()
        self.banner.remedy.connect(self.remedy)
        self.banner.closed.connect(self._lay_out)
        self._banner_room = BannerPlace(self.banner)
        self._banner_place = QHBoxLayout()
        self._banner_place.addWidget(self._banner_room)
        self.composer = Composer(said_here=self._said_here, edit_last=self._edit_last)
        self.transcript = Transcript()
        self.transcript.setMinimumHeight(1)  # in a window too low for everything it is what gives way
        self.empty = EmptyPage()
        self._composer_place = QVBoxLayout()
        self._chat = QWidget()
        chat = QVBoxLayout(self._chat)
        chat.setContentsMargins(0, 0, 0, 0)
        chat.setSpacing(0)
        chat.addWidget(self.transcript, 1)
        chat.addLayout(self._composer_place)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self._chat)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._bar)
        column.addLayout(self._banner_place)
        column.addWidget(self._stack, 1)

        self.composer.submitted.connect(self.submitted)
        self.composer.queued.connect(self.queued)
        self.composer.field.textChanged.connect(self._tell_draft)
        self.composer.stop_requested.connect(self.stop_requested)
        self.transcript.link_activated.connect(self._ask_to_open)
        self.transcript.acted.connect(self._act)
        self.find_bar.sought.connect(self.transcript.text_find.seek)
        self.find_bar.stepped.connect(self.transcript.text_find.step)
        self.find_bar.left.connect(self.close_find)
        self.transcript.text_find.changed.connect(lambda: self.find_bar.show_result(self.transcript.text_find))
        self.transcript.selection.began.connect(self._end_other_selection)
        self.composer.field.copyAvailable.connect(lambda some: self.transcript.selection.clear() if some else None)
        self.empty.prompt_chosen.connect(self._choose_prompt)
        theme.current().changed.connect(self._lay_out)
        self._place_composer(empty=True)
        self._lay_out()

    # ------------------------------------------------------------------ slots

    @property
    def status(self) -> EngineStatus:
        """What was shown last."""
        return self._status

    @property
    def is_empty(self) -> bool:
        """Whether the empty page is shown."""
        return self._stack.currentWidget() is self.empty

    def show_conversation(self, conversation: Conversation | None, messages: list[Message]) -> None:
        """Show a chat from its end, or the empty page; the draft that was written there comes back."""
        wanted = conversation.id if conversation is not None else ""
        if wanted != self._conversation_id:
            self._end_find()
            if not self._conversation_id:
                self._new_draft = self.composer.text()
            self._conversation_id = wanted
            self.composer.draft.switch(wanted)
            self.composer.set_text(conversation.draft if conversation is not None else self._new_draft)
        self.set_title(conversation.title if conversation is not None else "")
        self.transcript.show_messages(messages)
        self.transcript.set_status(self._status)
        self._show_empty(not messages)

    def add_message(self, message: Message) -> None:
        """Show one message more."""
        self._show_empty(False)
        self.transcript.add_message(message)

    def append_text(self, message_id: str, text: str) -> None:
        """Add text to the answer that is being written."""
        self.transcript.append_text(message_id, text)

    def finish_message(self, message: Message) -> None:
        """Show an answer as it is kept now."""
        self.transcript.finish_message(message)

    def show_branch(self, messages: list[Message], keep: str = "") -> None:
        """Show another branch of this chat, with that message where its other version stood, or the end."""
        self.transcript.show_branch(messages, keep)
        self.transcript.set_status(self._status)
        self._show_empty(not messages)

    def set_versions(self, versions: dict[str, tuple[int, int]]) -> None:
        """Of which of the messages that are shown next, or now, there are several versions."""
        self.transcript.set_versions(versions)

    def resume_message(self, message: Message) -> None:
        """An answer is being written on."""
        self.transcript.resume_message(message)

    def show_message(self, message_id: str, text: str = "") -> None:
        """Bring a message into view, and mark a text in it that was found."""
        self.transcript.show_message(message_id)
        if text:
            self._end_find()
            self.transcript.text_find.seek(text, only=message_id)
            self._late.start(LATE_MS)

    def set_dropped(self, message_id: str, count: int) -> None:
        """Mark where the context of that answer begins: it was given without `count` earlier messages."""
        self.transcript.set_dropped(message_id, count)

    def set_status(self, status: EngineStatus) -> None:
        """What the engine is doing, or the server elsewhere that the chat is sent to."""
        if (status.server, status.host) != (self._status.server, self._status.host):
            self.setProperty(SENT_TO, status)
            for editor in self.findChildren(MessageEditor):
                editor.set_server(status)
        self._status = status
        self.composer.set_status(status)
        self.empty.set_status(status)
        self.transcript.set_status(status)

    def set_machine_line(self, line: str, has_gpu: bool = False) -> None:
        """This PC in one line."""
        self.empty.set_machine_line(line, has_gpu)

    def show_banner(self, message: UserMessage) -> None:
        """Show a problem at the top of the column."""
        self.banner.show_message(message)
        self._lay_out()

    def clear_banner(self) -> None:
        """The problem is solved."""
        self.banner.clear()
        self._lay_out()

    def set_title(self, title: str) -> None:
        """The chat's title; an empty one is shown as "New chat"."""
        self._title = title
        self._title_label.setText(title or tr(UNTITLED))

    def focus_composer(self) -> None:
        """Let the person type."""
        self.composer.field.setFocus(Qt.FocusReason.OtherFocusReason)

    # ------------------------------------------------------------------ Find

    def open_find(self) -> None:
        """Let the user find a text in this chat: what is selected, or what was found last."""
        find, selection = self.transcript.text_find, self.transcript.selection
        selected = "" if selection.is_empty else selection.plain_text().strip()
        text = selected if 0 < len(selected) <= MOST_SELECTED and "\n" not in selected else find.text
        self.find_bar.open(text)
        self._lay_out()
        find.seek(self.find_bar.field.text())

    def step_find(self, by: int) -> None:
        """Go to the next place of what is found (1) or the one before (-1); without the bar, open it."""
        if self.find_bar.isHidden() or self.transcript.text_find.is_in_one_message:
            self.open_find()
        else:
            self.transcript.text_find.step(by)

    def _show_late(self) -> None:
        """Say how far the search is: the message of a hit is so long that the place is not in view yet."""
        find = self.transcript.text_find
        if find.is_counting or find.is_opening:
            self.find_bar.show_text(find.text)
            self.find_bar.show_result(find)
            self._lay_out()

    def close_find(self) -> None:
        """Mark nothing any more, and let the user type."""
        self._end_find()
        self.focus_composer()

    def _end_find(self) -> None:
        self.find_bar.hide()
        self.find_bar.field.clear()
        self.transcript.text_find.clear()
        self._lay_out()

    def give_back(self, unsent: Unsent, goes: bool) -> None:
        """Put a message that was not sent back into the composer; `goes`: have it sent once it is counted."""
        self.composer.give_back(unsent, goes)
        self.focus_composer()

    # ------------------------------------------------------------------ acts of the person

    def copy_last_answer(self) -> None:
        """Put the newest answer on the clipboard, as Markdown."""
        answer = self.transcript.last_answer()
        if answer is not None and answer.text:
            QGuiApplication.clipboard().setText(answer.text)
            self.copied.emit(tr("Answer copied"))

    def can_act_on_last(self, act: Act) -> bool:
        """Whether the last answer can be written on ("continue") or answered anew ("regenerate")."""
        answer = self.transcript.last_answer()
        if answer is None or self._status.answering or self.is_empty:
            return False
        return can_continue(answer) if act == "continue" else True

    def act_on_last(self, act: Act) -> None:
        """Ask for an act on the last answer."""
        answer = self.transcript.last_answer()
        if answer is not None:
            self._act(MessageAct(act, answer.id))

    def _act(self, act: MessageAct) -> None:
        if act.act != "other_model":
            self.acted.emit(act)
        elif self._status.answering:  # which is said where answers are made
            self.acted.emit(MessageAct("regenerate", act.message_id))
        else:
            anchor = self.transcript.foot_of(act.message_id) or self.composer.model_button
            self.other_model_asked.emit(act.message_id, anchor)

    def copy_chat(self) -> None:
        """Put the whole chat on the clipboard, as Markdown."""
        text = chat_as_markdown(self._title or tr(UNTITLED), self.transcript.messages)
        QGuiApplication.clipboard().setText(text)
        self.copied.emit(tr("Chat copied as Markdown"))

    def take_new_draft(self, text: str) -> None:
        """What stood in the composer of a new chat when the window was closed last."""
        self._new_draft = text
        if not self._conversation_id and not self.composer.text():
            self.composer.set_text(text)

    def _tell_draft(self) -> None:
        self.draft_changed.emit(self._conversation_id, self.composer.text())

    def _said_here(self) -> list[str]:
        return [m.text for m in self.transcript.messages if m.role is Role.USER]

    def _edit_last(self) -> bool:
        """Open the message that waits, or else the last one that was sent; False while an answer to it is written."""
        if self.composer.next.queued is not None:
            self.composer.next.edit_asked.emit()
            return True
        return not self._status.answering and not self.composer.draft.items and self.transcript.edit_last()

    def _choose_prompt(self, prompt: str) -> None:
        draft = self.composer.text()
        if self._status.takes_messages and not draft.strip() and not self.composer.draft.items:
            self.prompt_chosen.emit(prompt)
        else:  # a draft stays, with the prompt below it
            self.composer.set_text(f"{draft.rstrip()}\n{prompt}" if draft.strip() else prompt)
            self.focus_composer()

    def _open_menu(self) -> None:
        menu = self.make_menu()
        corner = self._more.mapToGlobal(QPoint(self._more.width(), self._more.height() + theme.px(4)))
        menu.popup(corner - QPoint(menu.sizeHint().width(), 0))

    def make_menu(self) -> Menu:
        """The menu of the title bar."""
        menu = Menu(tr("Chat menu"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.add(tr("Rename"), "pen", lambda: self.title_menu.emit("rename"))
        self.menu_asked.emit(menu)
        menu.add(tr("Copy chat as Markdown"), "copy", self.copy_chat)
        menu.addSeparator()
        menu.add(tr("Delete"), "trash", lambda: self.title_menu.emit("delete"), token="bad")
        return menu

    def _ask_to_open(self, address: str) -> ConfirmDialog | None:
        """A link in an answer leads out of Hearth: show where before it is opened."""
        if web_address(address) is None:
            return None
        shown = address if len(address) <= 200 else address[:200] + "…"
        broken = "\u200b".join(shown[i : i + 24] for i in range(0, len(shown), 24))  # no spaces to wrap at
        dialog = confirm(
            self, tr("Open this link in your browser?"), broken, tr("Stay"), tr("Open"),
            lambda: _open(address),
        )  # fmt: skip
        dialog.danger.set_look("secondary")  # it leaves the program; it destroys nothing
        return dialog

    def _end_other_selection(self) -> None:
        """One text at a time is selected: Ctrl+C copies the one that was selected last."""
        cursor = self.composer.field.textCursor()
        if cursor.hasSelection():
            cursor.clearSelection()
            self.composer.field.setTextCursor(cursor)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._status.answering:
            if self._status.phase is not Phase.STOPPING:
                self.stop_requested.emit()
        elif event.key() == Qt.Key.Key_Escape and self.transcript.text_find.is_on:
            self.close_find()
        elif event.matches(QKeySequence.StandardKey.Copy) and not self.transcript.selection.is_empty:
            self.transcript.selection.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll) and not self.is_empty:
            self.transcript.selection.select_all()
        else:
            super().keyPressEvent(event)

    # ------------------------------------------------------------------ layout

    def _show_empty(self, empty: bool) -> None:
        if empty == self.is_empty:
            return
        focus = QApplication.focusWidget()
        here = focus is not None and self.isAncestorOf(focus)
        self._place_composer(empty)
        if here:  # whatever had it may be gone, and Qt would hand it to a neighbour
            self.focus_composer()

    def _place_composer(self, empty: bool) -> None:
        (self.empty.composer_place if empty else self._composer_place).addWidget(self.composer)
        self.composer.show()  # a new parent hides it, and what is hidden takes no focus
        self._stack.setCurrentWidget(self.empty if empty else self._chat)
        self._bar.setVisible(not empty)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        px = theme.px
        left, width = text_column(self.width())
        outset = min(px(COMPOSER_OUTSET), left)
        sides = (left - outset, self.width() - left - width - outset)
        gap = 0 if self.banner.isHidden() else px(BANNER_GAP)
        self._banner_place.setContentsMargins(sides[0], gap, sides[1], gap)
        self._composer_place.setContentsMargins(sides[0], 0, sides[1], px(20))
        self._bar.setFixedHeight(px(BAR))
        self._title_label.setVisible(self.find_bar.isHidden() or self.width() >= px(WITH_TITLE))
        # Whatever a banner has to say, the composer stays whole and the last lines of the chat in view.
        others = 0 if self.is_empty else px(BAR) + self.composer.sizeHint().height() + px(20 + 2 * BANNER_GAP)
        self._banner_room.set_most(max((self.height() - others) * 2 // 3, px(80)))
        bar = self._bar.layout()
        if bar is not None:
            set_margins(bar, px(24), 0, px(14), 0, self.isRightToLeft())


def _open(address: str) -> None:
    QDesktopServices.openUrl(QUrl(address))
