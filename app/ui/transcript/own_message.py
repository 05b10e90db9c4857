"""The user's message in a bubble, and its editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.chat.store.conversation import Message
from app.clients.engine_status import EngineStatus
from app.text.text_pages import OWN_LINES, OWN_PAGE, broken, page_end
from app.translation import figure, tr
from app.ui.composer.attachment_chip import SentAttachments
from app.ui.composer.destination_line import DestinationLine, sent_to
from app.ui.composer.message_field import MessageField
from app.ui.look import theme
from app.ui.transcript.message_buttons import CopyButton, HoverButton, VersionSwitch, reveal_all
from app.ui.transcript.message_view import MessageView, has_notes
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.text.more_row import MoreRow
from app.ui.transcript.text.text_view import PlainText
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.floating import Menu

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

BUBBLE_WIDTH = 560


class MessageEditor(QFrame):
    """The editor of a message. Enter sends the new version, Esc keeps the old one."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "composer")
        self.setProperty("state", "focus")
        self.setAccessibleName(tr("Edit your message"))
        self.field = MessageField()
        self.field.setAccessibleName(tr("Your message, changed"))
        self.field.set_text(text)
        self.note = Label(tr("The chat goes on from here in a new branch"), "meta", elide=True)
        self.cancel = Button(tr("Cancel"), "quiet")
        self.send = Button(tr("Send"), "primary")
        self.mark = DestinationLine(with_way_back=False)
        self._foot = QHBoxLayout()
        self._foot.addWidget(self.note, 1)
        self._foot.addWidget(self.cancel)
        self._foot.addWidget(self.send)
        self._column = QVBoxLayout(self)
        self._column.addWidget(self.mark)
        self._column.addWidget(self.field)
        self._column.addLayout(self._foot)
        self.field.document().contentsChanged.connect(self._weigh)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_server(self, status: EngineStatus) -> None:
        """Show which server the changed message is sent to, if any."""
        self.mark.show_server(status)
        theme.set_property(self, "away", "true" if status.leaves else "false")

    def _weigh(self) -> None:
        self.send.setEnabled(bool(self.field.text().strip()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancel.click()
        else:
            super().keyPressEvent(event)

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(16), px(12), px(10), px(10))
        self._column.setSpacing(px(10))
        self._foot.setSpacing(px(8))


class OwnMessage(MessageView):
    """A bubble at the right, at most BUBBLE_WIDTH wide; hover buttons appear left of it.

    edited: the text in its editor; empty if it is closed or holds the message's own text.
    """

    edited = Signal(str)

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(message, parent)
        self.setAccessibleName(tr("Your message"))
        self._shown = page_end(message.text, 0, OWN_PAGE, OWN_LINES)
        self._text = PlainText(broken(message.text[: self._shown]), tr("You: {text}", text=message.text[:200]))
        self._pages: list[PlainText] = []  # the pages the user asked for
        self._left: MoreRow | None = None
        self._bubble = QFrame()
        self._bubble.setProperty("kind", "bubble")
        self._inside = QVBoxLayout(self._bubble)
        self._inside.setSpacing(0)
        self._inside.addWidget(self._text)
        if self._shown < len(message.text):
            self._left = MoreRow()
            self._left.clicked.connect(self._show_page)
            self._inside.addWidget(self._left)
            self._show_left()
        self._more = HoverButton("more", tr("More for this message"), only_on_hover=True)
        self._edit = HoverButton("pen", tr("Edit message"), only_on_hover=True)
        self._copy = CopyButton(tr("Copy message"), is_answer=False, only_on_hover=True)
        self._copy.text_to_copy = message.text
        self._more.clicked.connect(self._open_menu)
        self._edit.clicked.connect(self.start_editing)
        self._attached: SentAttachments | None = None
        self._given = [one for one in message.attachments if one.source is None]  # the answer shows what was found
        if self._given:
            self._attached = SentAttachments(self._given)
            self._attached.opened.connect(self._open_attached)
            tiles = QHBoxLayout()
            tiles.addStretch(1)
            tiles.addWidget(self._attached)
            self.column.addLayout(tiles)
            self.column.addSpacing(theme.px(4))
        self._row = QHBoxLayout()
        self._row.addStretch(1)
        for button in self._buttons:
            self._row.addWidget(button)
        self._row.addWidget(self._bubble)
        self.column.addLayout(self._row)
        self._bubble.setVisible(self._has_text)  # only now: without a parent it would be a window
        self._versions: VersionSwitch | None = None
        self._editor: MessageEditor | None = None
        self._width = 0
        theme.current().changed.connect(self._restyle)
        self._restyle()

    @property
    def _buttons(self) -> list[HoverButton]:
        return [self._more, self._edit, self._copy]

    @property
    def _has_text(self) -> bool:
        """Whether the message has text, or no attachments either."""
        return bool(self.message.text.strip()) or not self._given

    def texts(self) -> list[SelectableText | None]:
        return [None if self.is_editing or not self._has_text else text for text in (self._text, *self._pages)]

    def reveal(self, piece: int, nth: int, find: TextFind) -> tuple[SelectableText, int] | None:
        while len(self._pages) < piece and not self.shows_all:
            self._show_page()
        return [self._text, *self._pages][min(piece, len(self._pages))], nth

    @property
    def shows_all(self) -> bool:
        return self._shown == len(self.message.text)

    def unshown(self) -> str:
        return self.message.text[self._shown :]

    @property
    def is_editing(self) -> bool:
        return self._editor is not None

    def set_width(self, width: int) -> None:
        if width == self._width:
            return
        self._width = width
        beside = theme.px(16) * 2 + sum(button.width() for button in self._buttons) + theme.px(6)
        most = min(theme.px(BUBBLE_WIDTH) - theme.px(16) * 2, max(width - beside, theme.px(80)))
        own = self._text.natural_width(most)
        for text in (self._text, *self._pages):
            text.setFixedWidth(own)
            text.set_width(own)
        if self._attached is not None:
            self._attached.fit(min(theme.px(BUBBLE_WIDTH), width))
        self._fit_editor()

    def _fit_editor(self) -> None:
        """Keep the editor as wide as a bubble may be, whatever the text needs."""
        if self._editor is not None:
            self._editor.setFixedWidth(min(theme.px(BUBBLE_WIDTH), self._width))

    def _show_page(self) -> None:
        """Show the next page of a very long message."""
        end = page_end(self.message.text, self._shown, OWN_PAGE, OWN_LINES)
        page = PlainText(broken(self.message.text[self._shown : end].removesuffix("\n")), tr("Your message"))
        page.setFixedWidth(self._text.width())
        page.set_width(self._text.width())
        self._shown = end
        self._pages.append(page)
        self.grown.emit()
        self._inside.insertWidget(len(self._pages), page)
        self._show_left()

    def _show_left(self) -> None:
        if self._left is not None:
            share = figure(100 * self._shown / len(self.message.text), ".0f")
            note = tr("{share}% of this message is shown. Copy and export include all of it.", share=share)
            self._left.show_text(tr("Show more"), note)
            self._left.setVisible(self._shown < len(self.message.text))

    def _open_attached(self, place: int) -> None:
        from app.ui.composer.attachment_dialog import AttachmentDialog

        AttachmentDialog(self, self._given[place]).open()

    def set_versions(self, which: int, count: int) -> None:
        if count > 1 and self._versions is None:
            self._versions = VersionSwitch()
            self._versions.stepped.connect(lambda step: self.do("switch", step=step))
            foot = QHBoxLayout()
            foot.addStretch(1)
            foot.addWidget(self._versions)
            self.column.addLayout(foot)
            self._restyle()
        if self._versions is not None:
            self._versions.show_place(which, count)
            self._versions.setVisible(count > 1)

    # --- editing

    def _tell_edit(self) -> None:
        text = self._editor.field.text() if self._editor is not None else ""
        self.edited.emit("" if text == self.message.text else text)

    def start_editing(self) -> None:
        """Replace the bubble by an editor, and focus it."""
        if self._editor is None:
            editor = self.edit(self.message.text)
            self.edit_opened.emit(editor)
            editor.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def edit(self, text: str) -> MessageEditor:
        """Replace the bubble by an editor of that text."""
        editor = self._editor = MessageEditor(text)
        editor.set_server(sent_to(self))
        editor.field.files_given.connect(self.files_given)
        editor.field.textChanged.connect(self._tell_edit)
        editor.field.send_requested.connect(self._send)
        editor.send.clicked.connect(self._send)
        editor.cancel.clicked.connect(self.stop_editing)
        self._show_bubble(False)
        self.column.addWidget(editor, 0, Qt.AlignmentFlag.AlignTrailing)
        self._fit_editor()
        return editor

    def stop_editing(self) -> None:
        """Close the editor and keep the message."""
        editor, self._editor = self._editor, None
        if editor is None:
            return
        self._tell_edit()
        self._show_bubble(True)
        self.column.removeWidget(editor)
        editor.hide()
        editor.deleteLater()

    def _show_bubble(self, shown: bool) -> None:
        for button in self._buttons:
            button.setVisible(shown)
        self._bubble.setVisible(shown and self._has_text)
        if self._versions is not None:
            self._versions.setVisible(shown)

    def _send(self) -> None:
        text = self._editor.field.text().strip() if self._editor is not None else ""
        if not text:
            return
        if text == self.message.text.strip():
            self.stop_editing()
        else:  # the new branch removes this view; an edit that is refused stays in its editor
            self.do("edit", text=text)

    # --- menu, style, mouse

    def make_menu(self) -> Menu:
        menu = Menu(tr("Your message"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.add(tr("Edit"), "pen", self.start_editing)
        menu.add(tr("Copy"), "copy", self._copy.click)
        if has_notes(self) and self.message.text.strip():
            menu.add(tr("Add to notes…"), "file", lambda: self.do("note", self.message.text))
        menu.add(tr("Print or export"), "put", lambda: self.do("print"))
        menu.addSeparator()
        menu.add(tr("Delete with its answer"), "trash", lambda: self.do("delete"), token="bad")
        return menu

    def _open_menu(self) -> None:
        self.make_menu().popup(self._more.mapToGlobal(QPoint(0, self._more.height() + theme.px(4))))

    def _restyle(self) -> None:
        px = theme.px
        self._row.setSpacing(0)
        self._inside.setContentsMargins(px(16), px(8), px(16), px(12))  # a line's extra height is above its text
        self.column.setSpacing(px(2))
        width, self._width = self._width, 0
        if width:
            self.set_width(width)

    def enterEvent(self, event: QEnterEvent) -> None:
        reveal_all(self._buttons, True)
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        reveal_all(self._buttons, False)
        super().leaveEvent(event)
