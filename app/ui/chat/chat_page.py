"""The page of one chat: title bar, banner, transcript or empty page, and composer.

It connects these parts and stores nothing. The chat controller connects to its signals and calls its slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.message_action import ActionName, MessageAction, can_continue
from app.chat.store.conversation import UNTITLED, Conversation, Message, Role, Unsent
from app.clients.engine_status import EngineStatus, Phase
from app.text.markdown_blocks import web_address
from app.text.selected_text import quoted
from app.translation import tr
from app.ui.chat.empty_page import EmptyPage
from app.ui.chat.find_bar import MOST_SELECTED, FindBar
from app.ui.chat.offer_card import OfferCard
from app.ui.composer.composer import Composer
from app.ui.composer.destination_line import SENT_TO
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.transcript.message_column import text_column
from app.ui.transcript.own_message import MessageEditor
from app.ui.transcript.transcript import Transcript
from app.ui.widgets.banner import Banner, BannerPlace
from app.ui.widgets.controls import IconButton, Label
from app.ui.widgets.floating import ConfirmDialog, Menu, confirm
from engine.text.thoughts import spoken

if TYPE_CHECKING:
    from app.models.model_rows import ModelRow
    from app.user_messages import UserMessage

BAR, BANNER_GAP = 48, 12
# the bar shows the search's progress after this time, while the message of a search result is still opening
LATE_MS = 500
WITH_TITLE = 520  # a narrower page hides the title beside the find bar
COMPOSER_OUTSET = 24  # the composer extends this far beyond the text column


def chat_as_markdown(title: str, messages: list[Message]) -> str:
    """Return a chat as one Markdown document: user messages quoted, answers as they are."""
    parts = [f"# {title}"]
    for message in messages:
        if message.role is Role.USER:
            parts.append(quoted(message.text))
        elif message.role is Role.ASSISTANT and message.text:
            parts.append(spoken(message.text).strip("\n"))
    return "\n\n".join(parts) + "\n"


class ChatPage(QFrame):
    """The page of a chat, or of a new one.

    submitted: text to send, and its attachments. queued: the same, to be sent after the current answer. stop_requested:
    stop the answer. title_menu: "rename" or "delete" this chat. copied: text for a toast after copying. remedy: the
    action of the banner's button. prompt_chosen: the prompt of a card on the empty page, if messages can be sent and
    there is no draft (else the prompt is added to the draft).
    """

    submitted = Signal(str, object)
    queued = Signal(str, object)
    draft_changed = Signal(str, str)  # chat id, or "" for a new chat; the text in the composer
    acted = Signal(object)  # MessageAction: an action on one message
    # id of the answer to regenerate with another model, and the anchor of the model menu
    other_model_requested = Signal(str, QWidget)
    print_requested = Signal(str)  # id of a message to print or export
    inspect_requested = Signal(str)  # id of an answer whose tokens to show
    side_by_side_requested = Signal(str)  # id of an answer whose versions to show
    over_left = Signal()  # the messages are shown again
    stop_requested = Signal()
    note_requested = Signal(str)  # text to add to the notes of the project
    title_menu = Signal(str)
    # Emitted before the title bar's menu opens, so that others add rows: pin and folder, what answers obey, exports.
    menu_requested, answer_rows_requested, exports_requested = Signal(Menu), Signal(Menu), Signal(Menu)
    copied = Signal(str)
    remedy = Signal(str)
    prompt_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "page")
        self._conversation_id = ""
        self._title = ""
        self._new_draft = ""  # of a new chat, while another chat is shown
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
        self.offer = OfferCard()  # under an answer
        self.transcript.setMinimumHeight(1)  # in a very low window the transcript shrinks
        self.empty = EmptyPage()
        self._composer_place = QVBoxLayout()
        self._chat = QWidget()
        chat = QVBoxLayout(self._chat)
        chat.setContentsMargins(0, 0, 0, 0)
        chat.setSpacing(0)
        self._offer_place = QHBoxLayout()
        self._offer_place.addWidget(self.offer)
        chat.addWidget(self.transcript, 1)
        self._over: QWidget | None = None  # shown in place of the messages
        chat.addLayout(self._offer_place)
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
        self.transcript.files_given.connect(self.composer.attach)
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

    # --- slots

    @property
    def status(self) -> EngineStatus:
        """The status shown last."""
        return self._status

    @property
    def is_empty(self) -> bool:
        """Whether the empty page is shown."""
        return self._stack.currentWidget() is self.empty

    def expect(self, conversation: Conversation) -> None:
        """Take what is typed for a chat that is still being read. A message goes once the chat is shown."""
        self._write_in(conversation)
        self.composer.set_waits(True)

    def stay(self, conversation: Conversation | None) -> None:
        """Write in the chat that is still shown: the expected one could not be read."""
        self._write_in(conversation)
        self.composer.set_waits(False)

    def show_conversation(self, conversation: Conversation | None, messages: list[Message]) -> None:
        """Show a chat from its end, or the empty page, and restore its draft."""
        self._write_in(conversation)
        self.set_title(conversation.title if conversation is not None else "")
        self.transcript.set_has_folder(conversation is not None and bool(conversation.folder))
        self.transcript.show_messages(messages)
        self.transcript.set_status(self._status)
        self._show_empty(not messages)
        self.composer.set_waits(False)

    def _write_in(self, conversation: Conversation | None) -> None:
        """Leave a chat that is shown for another one, with its draft."""
        wanted = conversation.id if conversation is not None else ""
        if wanted != self._conversation_id:
            self.show_over(None)
            self._end_find()
            if not self._conversation_id:
                self._new_draft = self.composer.text()
            self._conversation_id = wanted
            self.composer.switch(wanted, conversation.draft if conversation is not None else self._new_draft)

    def add_message(self, message: Message) -> None:
        if message.role is Role.USER:
            self.show_over(None)
        self._show_empty(False)
        self.transcript.add_message(message)

    def append_text(self, message_id: str, text: str) -> None:
        self.transcript.append_text(message_id, text)

    def finish_message(self, message: Message) -> None:
        """Show the final state of an answer."""
        self.transcript.finish_message(message)

    def update_message(self, message: Message) -> None:
        """Show newer states of an answer's calls of tools, or what was found for a question."""
        self.transcript.update_message(message)

    def show_branch(self, messages: list[Message], keep: str = "") -> None:
        """Show another branch of this chat, keeping message `keep` in place, or else showing the end."""
        self.transcript.show_branch(messages, keep)
        self.transcript.set_status(self._status)
        self._show_empty(not messages)

    def set_versions(self, versions: dict[str, tuple[int, int]]) -> None:
        """Set the version number and count of messages that have several versions."""
        self.transcript.set_versions(versions)

    def resume_message(self, message: Message) -> None:
        """Show that a finished answer is being continued."""
        self.transcript.resume_message(message)

    def show_message(self, message_id: str, text: str = "") -> None:
        """Scroll to a message, and highlight a search match in it."""
        self.show_over(None)
        self.transcript.show_message(message_id)
        if text:
            self._end_find()
            self.transcript.text_find.seek(text, only=message_id)
            self._late.start(LATE_MS)

    def set_dropped(self, message_id: str, count: int) -> None:
        """Mark where the context of that answer begins, after `count` dropped messages."""
        self.transcript.set_dropped(message_id, count)

    def set_status(self, status: EngineStatus) -> None:
        """Show the status of the engine, or of the server that answers this chat."""
        if (status.server, status.host) != (self._status.server, self._status.host):
            self.setProperty(SENT_TO, status)
            for editor in self.findChildren(MessageEditor):
                editor.set_server(status)
        self._status = status
        self.composer.set_status(status)
        self.empty.set_status(status)
        self.transcript.set_status(status)

    def set_machine_line(self, line: str, has_gpu: bool = False) -> None:
        """Show a one-line description of this PC."""
        self.empty.set_machine_line(line, has_gpu)

    def show_offer(self, row: ModelRow | None, instead_of: str = "") -> None:
        """Offer a larger model under the last answer, of the model `instead_of`; None hides the card."""
        self.offer.instead_of = instead_of
        self.offer.show_row(row)
        self._lay_out()

    def show_banner(self, message: UserMessage) -> None:
        """Show a problem at the top of the page."""
        self.banner.show_message(message)
        self._lay_out()

    def clear_banner(self) -> None:
        """Remove the banner because its problem is solved."""
        self.banner.clear()
        self._lay_out()

    def set_title(self, title: str) -> None:
        """Set the title; an empty title is shown as "New chat"."""
        self._title = title
        self._title_label.setText(title or tr(UNTITLED))

    def show_over(self, widget: QWidget | None) -> None:
        """Show a widget in place of the messages; None: the messages again."""
        before, self._over = self._over, widget
        if widget is before:
            return
        layout = self._chat.layout()
        assert isinstance(layout, QVBoxLayout)
        if before is not None:
            before.hide()
            layout.removeWidget(before)
        if widget is not None:
            layout.insertWidget(0, widget, 1)
            widget.show()
        self.transcript.setVisible(widget is None)
        if widget is None:
            self.focus_composer()
            self.over_left.emit()

    def focus_composer(self) -> None:
        self.composer.field.setFocus(Qt.FocusReason.OtherFocusReason)

    # --- Find

    def open_find(self) -> None:
        """Open the find bar with the selected text, or else the last search."""
        self.show_over(None)
        find, selection = self.transcript.text_find, self.transcript.selection
        selected = "" if selection.is_empty else selection.plain_text().strip()
        text = selected if 0 < len(selected) <= MOST_SELECTED and "\n" not in selected else find.text
        self.find_bar.open(text)
        self._lay_out()
        find.seek(self.find_bar.field.text())

    def step_find(self, by: int) -> None:
        """Go to the next (1) or previous (-1) match; open the find bar if it is closed."""
        if self.find_bar.isHidden() or self.transcript.text_find.is_in_one_message:
            self.open_find()
        else:
            self.transcript.text_find.step(by)

    def _show_late(self) -> None:
        """Show the search's progress: the message is so long that the match is not visible yet."""
        find = self.transcript.text_find
        if find.is_counting or find.is_opening:
            self.find_bar.show_text(find.text)
            self.find_bar.show_result(find)
            self._lay_out()

    def close_find(self) -> None:
        """Close the find bar, remove all highlights and focus the composer."""
        self._end_find()
        self.focus_composer()

    def _end_find(self) -> None:
        self.find_bar.hide()
        self.find_bar.field.clear()
        self.transcript.text_find.clear()
        self._lay_out()

    def give_back(self, unsent: Unsent, goes: bool) -> None:
        """Return an unsent message to the composer. goes: send it as soon as it is counted."""
        self.composer.give_back(unsent, goes)
        self.focus_composer()

    # --- user actions

    def copy_last_answer(self) -> None:
        """Copy the last answer as Markdown."""
        if self.transcript.copy_last_answer():
            self.copied.emit(tr("Answer copied"))

    def can_act_on_last(self, act: ActionName) -> bool:
        """Return whether the last answer can be continued, regenerated or shown side by side with other versions."""
        answer = self.transcript.last_answer()
        if answer is None or self._status.answering or self.is_empty:
            return False
        if act == "side_by_side":
            return self.transcript.has_versions(answer.id)
        return can_continue(answer) if act == "continue" else True

    def act_on_last(self, act: ActionName) -> None:
        """Request an action on the last answer."""
        answer = self.transcript.last_answer()
        if answer is not None:
            self._act(MessageAction(act, answer.id))

    def _act(self, act: MessageAction) -> None:
        if act.act == "note":
            self.note_requested.emit(act.text)
        elif act.act == "print":
            self.print_requested.emit(act.message_id)
        elif act.act == "inspect":
            self.inspect_requested.emit(act.message_id)
        elif act.act == "side_by_side":
            self.side_by_side_requested.emit(act.message_id)
        elif act.act != "other_model":
            self.acted.emit(act)
        elif self._status.answering:  # the controller explains that it must wait
            self.acted.emit(MessageAction("regenerate", act.message_id))
        else:
            anchor = self.transcript.foot_of(act.message_id) or self.composer.model_button
            self.other_model_requested.emit(act.message_id, anchor)

    def copy_chat(self) -> None:
        """Copy the whole chat as Markdown."""
        text = chat_as_markdown(self._title or tr(UNTITLED), self.transcript.messages)
        QGuiApplication.clipboard().setText(text)
        self.copied.emit(tr("Chat copied as Markdown"))

    def take_new_draft(self, text: str) -> None:
        """Restore the draft of a new chat from the last run, with what was typed since."""
        self._new_draft = text
        if not self._conversation_id and self.composer.text() != text:
            self.composer.set_text(text)

    def _tell_draft(self) -> None:
        self.draft_changed.emit(self._conversation_id, self.composer.text())

    def _said_here(self) -> list[str]:
        return [m.text for m in self.transcript.messages if m.role is Role.USER]

    def _edit_last(self) -> bool:
        """Edit the queued message, or else the last one sent. Return False while its answer is being written."""
        if self.composer.next.queued is not None:
            self.composer.next.edit_requested.emit()
            return True
        if self._status.answering or self.composer.draft.items:
            return False
        self.show_over(None)
        return self.transcript.edit_last()

    def _choose_prompt(self, prompt: str) -> None:
        draft = self.composer.text()
        if self._status.takes_messages and not draft.strip() and not self.composer.draft.items:
            self.prompt_chosen.emit(prompt)
        else:  # keep the draft and add the prompt below it
            self.composer.set_text(f"{draft.rstrip()}\n{prompt}" if draft.strip() else prompt)
            self.focus_composer()

    def _open_menu(self) -> None:
        menu = self.make_menu()
        corner = self._more.mapToGlobal(QPoint(self._more.width(), self._more.height() + theme.px(4)))
        menu.popup(corner - QPoint(menu.sizeHint().width(), 0))

    def make_menu(self) -> Menu:
        """Return the menu of the title bar."""
        menu = Menu(tr("Chat menu"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.add(tr("Rename"), "pen", lambda: self.title_menu.emit("rename"))
        self.menu_requested.emit(menu)
        menu.addSeparator()
        self.answer_rows_requested.emit(menu)
        menu.addSeparator()
        self.exports_requested.emit(menu)
        menu.add(tr("Copy chat as Markdown"), "copy", self.copy_chat)
        menu.addSeparator()
        menu.add(tr("Delete"), "trash", lambda: self.title_menu.emit("delete"), token="bad")
        return menu

    def _ask_to_open(self, address: str) -> ConfirmDialog | None:
        """Ask before opening a link of an answer, showing its address."""
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
        """Clear the composer's selection: only one text is selected at a time, and Ctrl+C copies it."""
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
        elif event.key() == Qt.Key.Key_Escape and self._over is not None:
            self.show_over(None)
        elif self._over is not None:  # the selection is of the messages
            super().keyPressEvent(event)
        elif event.matches(QKeySequence.StandardKey.Copy) and not self.transcript.selection.is_empty:
            self.transcript.selection.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll) and not self.is_empty:
            self.transcript.selection.select_all()
        else:
            super().keyPressEvent(event)

    # --- layout

    def _show_empty(self, empty: bool) -> None:
        if empty == self.is_empty:
            return
        focus = QApplication.focusWidget()
        here = focus is not None and self.isAncestorOf(focus)
        self._place_composer(empty)
        if here:  # else Qt would move the focus to a neighbour
            self.focus_composer()

    def _place_composer(self, empty: bool) -> None:
        (self.empty.composer_place if empty else self._composer_place).addWidget(self.composer)
        self.composer.show()  # a new parent hides it, and a hidden widget takes no focus
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
        self._offer_place.setContentsMargins(sides[0], 0, sides[1], 0 if self.offer.isHidden() else px(BANNER_GAP))
        self._composer_place.setContentsMargins(sides[0], 0, sides[1], px(20))
        self._bar.setFixedHeight(px(BAR))
        self._title_label.setVisible(self.find_bar.isHidden() or self.width() >= px(WITH_TITLE))
        # Limit the banner so that the whole composer and the last lines of the chat stay visible.
        others = 0 if self.is_empty else px(BAR) + self.composer.sizeHint().height() + px(20 + 2 * BANNER_GAP)
        self._banner_room.set_most(max((self.height() - others) * 2 // 3, px(80)))
        bar = self._bar.layout()
        if bar is not None:
            set_margins(bar, px(24), 0, px(14), 0, self.isRightToLeft())


def _open(address: str) -> None:
    QDesktopServices.openUrl(QUrl(address))
