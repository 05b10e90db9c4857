"""The composer: field, attachments, model, context meter, and the Send or Stop button.

The page sends messages, keeps drafts and loads models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.chat.store.conversation import Attachment, Unsent
from app.clients.engine_status import EngineStatus, Phase
from app.documents.draft_attachments import DraftAttachments
from app.shortcuts import keys, tooltip
from app.tools.tool_offer import ToolOffer
from app.translation import tr
from app.ui.composer.attachment_chip import AttachmentRow
from app.ui.composer.context_meter import ContextMeter
from app.ui.composer.destination_line import DestinationLine
from app.ui.composer.documents_button import DocumentsButton
from app.ui.composer.inherited_line import InheritedLine
from app.ui.composer.message_field import MessageField, files_in
from app.ui.composer.next_message_row import NextMessageRow
from app.ui.composer.slash_prompts import SlashPrompts
from app.ui.composer.tools_button import ToolsButton
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.widgets.controls import Button, Dot, IconButton, Look

if TYPE_CHECKING:
    from engine.service.protocol import CountResult


class ModelButton(Button):
    """The button with the model's name or state, which opens the model menu. Long names are elided."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "chip", parent=parent)
        self.glyph_px = 16
        self._icon = "chip"
        self.dot = Dot("hot_fill", working=True, parent=self)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.set_state(tr("Loading"), True)

    @property
    def words(self) -> str:
        return self.text().replace("&&", "&")

    def set_state(self, words: str, working: bool) -> None:
        """Set the text; `working` shows the ember dot instead of the icon."""
        if words != self.words:
            self.setText(words.replace("&", "&&"))
            self.updateGeometry()
        self.glyph = "none" if working else self._icon
        self.dot.setVisible(working)
        self._place_dot()
        self.update()

    def set_icon(self, glyph: str) -> None:
        """Set the icon, which says whether the model is on this PC."""
        self._icon = self.glyph = glyph
        self.glyph_token = "away" if glyph == "away" else ""
        self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(76), self.sizeHint().width()), self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_dot()

    def _place_dot(self) -> None:
        inset = theme.px(self.padding_px) + 1
        x = self.width() - inset - self.dot.width() if self.isRightToLeft() else inset
        self.dot.move(x, (self.height() - self.dot.height()) // 2)


class NameButton(Button):
    """A button with a name that may be long; it shrinks if space is scarce."""

    def __init__(self, words: str, look: Look, glyph: str = "") -> None:
        super().__init__(words, look, glyph)
        self._words, self._is_short = words, False

    def set_words(self, words: str) -> None:
        self._words = words.replace("&", "&&")
        self.setText("" if self._is_short else self._words)
        self.updateGeometry()

    def set_short(self, is_short: bool) -> None:
        """Show the icon alone, or the name too."""
        if is_short != self._is_short:
            self._is_short = is_short
            self.setText("" if is_short else self._words)
            self.updateGeometry()

    def full_width(self) -> int:
        """Return the width with the name, px."""
        hidden = QFontMetrics(self.font()).horizontalAdvance(self._words.replace("&&", "&"))
        beside = theme.px(8) + 2 * theme.px(self.padding_px) + 2 + theme.px(self.glyph_px)
        return hidden + beside if self._is_short else self.sizeHint().width()

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())


class Composer(QFrame):
    """The card at the foot of a chat.

    submitted: the text to send, and its attachments. queued: the same, to be sent after the current answer.
    stop_requested: stop the answer. model_menu_requested: open the model menu. load_stop_requested: cancel the load.
    load_requested: load the last model again. changed: text or attachments changed. context_requested: open the context
    popup. preset_menu_requested: open the preset menu. thinking_menu_requested: open the menu of how much to think.
    tools_picked: the names of the tools that are on for the open chat. tools_page_wanted: open the settings of tools.
    folders_given: folders that were dropped or pasted.
    """

    submitted = Signal(str, object)
    queued = Signal(str, object)
    stop_requested = Signal()
    model_menu_requested = Signal()
    load_stop_requested = Signal()
    load_requested = Signal()
    changed = Signal()
    context_requested = Signal()
    preset_menu_requested = Signal()
    thinking_menu_requested = Signal()
    tools_picked = Signal(list)
    tools_page_wanted = Signal()
    folders_given = Signal(list)
    stay_requested = Signal()  # have this PC answer the chat again

    def __init__(
        self,
        parent: QWidget | None = None,
        said_here: Callable[[], Sequence[str]] = tuple,
        edit_last: Callable[[], bool] = lambda: False,
    ) -> None:
        """Build the composer. said_here: returns the user's messages in this chat, oldest first, for the Up key.

        edit_last: as in MessageField.
        """
        super().__init__(parent)
        self.setProperty("kind", "composer")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAcceptDrops(True)
        self._status = EngineStatus()
        self._count: CountResult | None = None
        self._said_here = said_here
        self._recent: list[str] = []  # in all chats, since the window opened
        self.draft = DraftAttachments(self)
        self.attached = AttachmentRow()
        self.field = MessageField(self, self.draft.add_paste, edit_last, self._history)
        self.field.setAcceptDrops(False)  # the whole card accepts drops
        self.attach_button = IconButton("plus", tr("Attach files"), keys("attach"))
        self._model = ModelButton()
        self._stop_load = IconButton("close", tr("Stop loading"))
        self._stop_load.glyph_px = 15
        self._load = NameButton("", "secondary")
        self._load.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.preset_button = NameButton("", "quiet", "tune")
        self.preset_button.glyph_px = 16
        self.preset_button.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.thinking_button = IconButton("thinking", tr("Thinking"))
        self.tools_button = ToolsButton()
        self.documents_button = DocumentsButton()
        self.meter = ContextMeter()
        self.send = Button("", "primary", "send")
        self.send.height_px, self.send.radius_px, self.send.glyph_px = 34, 10, 18
        self.send.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._bar = QHBoxLayout()
        self._bar.addWidget(self.attach_button)
        self._bar.addWidget(self._model)
        self._bar.addWidget(self._stop_load)
        self._bar.addWidget(self._load)
        self._bar.addWidget(self.preset_button)
        self._bar.addWidget(self.thinking_button)
        self._bar.addWidget(self.tools_button)
        self._bar.addWidget(self.documents_button)
        self._bar.addStretch(1)
        self._bar.addWidget(self.meter)
        self._bar.addWidget(self.send)
        self.destination = DestinationLine()
        self.inherited = InheritedLine()
        self.next = NextMessageRow()
        self._goes_once_counted = False
        self._waits = False  # for a chat that is being read
        self._column = QVBoxLayout(self)
        self._column.addWidget(self.next)
        self._column.addWidget(self.destination)
        self._column.addWidget(self.inherited)
        self._tiles = QHBoxLayout()
        self._tiles.addWidget(self.attached)
        self._words = QHBoxLayout()
        self._words.addWidget(self.field)
        self._column.addLayout(self._tiles)
        self._column.addLayout(self._words)
        self._column.addLayout(self._bar)

        self.field.textChanged.connect(self._typed)
        self.field.textChanged.connect(self.changed)
        self.field.send_requested.connect(self._submit)
        self.field.focus_changed.connect(self._on_focus)
        self.field.files_given.connect(self.attach)
        self.prompts = SlashPrompts(self.field, self)
        self.draft.changed.connect(self._show_attached)
        self.draft.changed.connect(self.changed)
        self.draft.refused.connect(self._stay)
        self.attached.removed.connect(self._stay)
        self.attached.removed.connect(self.draft.remove)
        self.attached.opened.connect(self._open_attached)
        self.attach_button.clicked.connect(self.choose_files)
        self.meter.clicked.connect(self.context_requested)
        self.send.clicked.connect(self._on_button)
        self._model.clicked.connect(self.model_menu_requested)
        self._stop_load.clicked.connect(self.load_stop_requested)
        self._load.clicked.connect(self.load_requested)
        self.preset_button.clicked.connect(self.preset_menu_requested)
        self.thinking_button.clicked.connect(self.thinking_menu_requested)
        self.tools_button.tools_picked.connect(self.tools_picked)
        self.tools_button.tools_page_wanted.connect(self.tools_page_wanted)
        self.destination.back_requested.connect(self.stay_requested)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.set_status(self._status)
        self.set_preset("", "")
        self.set_thinking("")
        self.set_tools(ToolOffer())

    def text(self) -> str:
        return self.field.text()

    def set_text(self, text: str) -> None:
        self.field.set_text(text)

    def switch(self, chat: str, text: str) -> None:
        """Show the draft of another chat. A message that is still counted stays in its chat, unsent."""
        self._goes_once_counted = False
        self.draft.switch(chat)
        self.set_text(text)

    def set_waits(self, waits: bool) -> None:
        """Keep a message that is sent until the chat that it goes to is shown."""
        self._waits = waits
        if not waits and self._goes_once_counted:
            QTimer.singleShot(0, self, self._go)  # now or, as ever, not at all: no model, no text

    def give_back(self, unsent: Unsent, goes: bool) -> None:
        """Return an unsent message to the composer, before what was typed since.

        goes: send it once its attachments are counted, unless the user types meanwhile.
        """
        since = self.text() if self.text().strip() else ""
        goes = goes and not since and not self.draft.items
        self.set_text("\n".join(part for part in (unsent.text, since) if part))
        self._goes_once_counted = goes
        self.draft.give_back(unsent.attachments)

    def _typed(self) -> None:
        self._stay()
        self._refresh()

    def _stay(self) -> None:
        self._goes_once_counted = False

    def _history(self) -> list[str]:
        return [text for text in self._said_here() if text.strip()] or self._recent

    # --- attachments

    def attach(self, paths: Sequence[str | Path]) -> None:
        """Attach files; folders are emitted by `folders_given`."""
        given = [Path(path) for path in paths]
        folders = [path for path in given if path.is_dir()]
        if files := [path for path in given if path not in folders]:
            self.draft.add_files(files)
        if folders:
            self.folders_given.emit(folders)
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def choose_files(self) -> None:
        dialog = QFileDialog(self.window(), tr("Attach files"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters([tr("Documents and text files (*)")])
        dialog.filesSelected.connect(self.attach)
        dialog.open()

    def _show_attached(self) -> None:
        if self.attached.show_items(self.draft.items):
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self._restyle()
        self._refresh()

    def _open_attached(self, item_id: str) -> None:
        from app.ui.composer.attachment_dialog import AttachmentDialog

        item = next((item for item in self.draft.items if item.id == item_id), None)
        if item is None or item.attachment is None:
            return
        text, facts = item.attachment.text, self.attached.chips[item_id].facts.words

        def put_back() -> None:
            self.draft.remove(item_id)
            self.field.insert(text)

        AttachmentDialog(self, item.attachment, put_back, facts[:1].upper() + facts[1:]).open()

    # --- state

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status: Send or Stop, the model's name or state, and the buttons to load."""
        stops = status.phase is Phase.STOPPING and self._status.phase is not Phase.STOPPING
        if stops or (status.leaves and (status.server, status.host) != (self._status.server, self._status.host)):
            self._stay()
        if status.server != self._status.server or status.host != self._status.host:
            self._show_destination(status)
        elif status.is_base != self._status.is_base:
            self.field.set_destination(status)
        if self._status.answering and not status.answering:
            self._count = None  # of the message before the answer
        self._status = status
        settled = status.phase is Phase.READY or (status.answering and status.phase is not Phase.OFF)
        words = status.model if settled and status.model else status.word
        self._model.set_state(words, status.working and not settled)
        self._model.setAccessibleName(tr("Model: {words}", words=words))
        about = " · ".join(part for part in (status.model, status.device) if part)
        self._model.setToolTip("\n".join(part for part in (tooltip("model_menu"), about) if part))
        loading = status.phase is Phase.LOADING and not status.cancelling
        self._show_part(self._stop_load, loading)
        self._load.set_words(tr("Load {model}", model=status.can_load))
        self._load.setToolTip(tr("Load {model}; the chat stays", model=status.can_load))
        self._show_part(self._load, bool(status.can_load))
        self._show_context()
        self._refresh()

    def _show_destination(self, status: EngineStatus) -> None:
        """Show whether messages leave this PC."""
        if self.destination.back.hasFocus() and not status.server:
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self.destination.show_server(status)
        self._model.set_icon("away" if status.leaves else "chip")
        self.field.set_destination(status)
        theme.set_property(self, "away", "true" if status.leaves else "false")

    def set_count(self, count: CountResult | None) -> None:
        """Set the token count of the next message; None if unknown."""
        self._count = count
        self._show_context()
        self._refresh()

    def _show_context(self) -> None:
        status, count = self._status, self._count
        if count is not None and status.phase is Phase.READY:
            self.meter.show_figures(
                count.tokens, count.context_total, count.dropped_messages, count.fits, count.tool_tokens
            )
        else:
            left_out = status.left_out or (count.dropped_messages if count is not None and status.answering else 0)
            self.meter.show_figures(status.context_used, status.context_total, left_out)

    def set_preset(self, words: str, tooltip: str) -> None:
        """Set the text and the tooltip of the preset button."""
        self.preset_button.set_words(words)
        self.preset_button.setAccessibleName(tr("How answers are made: {words}", words=words))
        self.preset_button.setToolTip(tooltip)
        self.preset_button.setVisible(bool(words))

    def set_thinking(self, words: str, is_on: bool = True) -> None:
        """Show how much the model thinks; "": it has no choice."""
        self._show_part(self.thinking_button, bool(words))
        self.thinking_button.set_name(tr("Thinking: {words}", words=words) if words else tr("Thinking"))
        self.thinking_button.glyph = "thinking" if is_on else "no_thinking"
        self.thinking_button.update()

    def set_tools(self, offer: ToolOffer) -> None:
        """Show the tools of the open chat; the button is hidden if there are none, or the model cannot call them."""
        self._show_part(self.tools_button, offer.is_shown)
        self.tools_button.set_tools(offer)

    @property
    def status(self) -> EngineStatus:
        """The status of the engine as the open chat sees it."""
        return self._status

    @property
    def model_button(self) -> ModelButton:
        """The anchor of the model menu."""
        return self._model

    def _show_part(self, part: QWidget, shown: bool) -> None:
        if not shown and part.hasFocus():
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)  # else Qt would move the focus to a neighbour
        part.setVisible(shown)

    def why_not(self) -> str:
        """Return why the message cannot be sent now; empty if it can."""
        if not self._status.takes_messages:
            return tr("No model is loaded")
        for item in self.draft.items:
            if item.attachment is None:
                return tr("Reading {name}", name=item.name)
            if not item.has_room:
                return tr("{name} does not fit into the context: remove it", name=item.name)
        if any(item.measure is None for item in self.draft.items):
            return tr("The attachments are counted first")
        if not self.text().strip() and not self.draft.items:
            return tr("Write a message first")
        return ""

    def _refresh(self) -> None:
        status = self._status
        if status.answering:
            stopping = status.phase is Phase.STOPPING
            self._name_button(
                tr("Stopping") if stopping else tr("Stop"), tr("Stopping") if stopping else tr("Stop  (Esc)"), "stop"
            )
            self.send.setEnabled(not stopping)
            if self._goes_once_counted and not self.draft.is_reading and not self._waits:
                QTimer.singleShot(0, self, self._go)
            return
        reason = why_not = self.why_not()
        if not why_not:
            reason = tr("Send  (Enter)")
            if status.can_load:
                reason += "\n" + tr("{model} is loaded first", model=status.can_load)
            elif status.phase is not Phase.READY:
                reason += "\n" + tr("{state}: the answer starts once the model is loaded", state=status.word)
        self._name_button(tr("Send"), reason, "send")
        self.send.setEnabled(not why_not)
        if self._goes_once_counted and not why_not and not self._waits:
            QTimer.singleShot(0, self, self._go)

    def _go(self) -> None:
        if self._goes_once_counted and not self._waits:
            self._goes_once_counted = False
            self._submit()

    def _name_button(self, name: str, tooltip: str, glyph: str) -> None:
        self.send.setAccessibleName(name)
        self.send.setToolTip(tooltip)
        if self.send.glyph != glyph:
            self.send.set_glyph(glyph)

    def _submit(self) -> None:
        """Send or queue the message, at once or, unless it changes before, when its attachments are read."""
        if self._waits:
            self._goes_once_counted = True
            return
        answering = self._status.answering
        waits = any(one.attachment is None or (one.measure is None and not answering) for one in self.draft.items)
        self._goes_once_counted = waits and (answering or self._status.takes_messages)
        self.submit_to(self.queued.emit if self._status.answering else self.submitted.emit)

    def submit_to(self, receive: Callable[[str, tuple[Attachment, ...]], object]) -> None:
        """Pass the message to `receive` and clear the field, if the message can be sent now."""
        answering, text = self._status.answering, self.text().strip("\n")
        nothing = not text.strip() and not self.draft.items
        if nothing or self._waits or (self.draft.is_reading if answering else self.why_not()):
            return  # keep the typed text
        if self.prompts.holds_back():
            return
        given = self.draft.take_whole() if answering else self.draft.take()
        if text.strip():
            self._recent.append(text)
        self.field.set_text("")
        receive(text, given)

    def _stop(self) -> None:
        self._stay()
        if self._status.answering and self._status.phase is not Phase.STOPPING:
            self.stop_requested.emit()

    def _on_button(self) -> None:
        if self._status.answering:
            self._stop()
        else:
            self._submit()

    def _on_focus(self, focused: bool) -> None:
        theme.set_property(self, "state", "focus" if focused else "")

    # --- events

    def event(self, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.LayoutRequest, QEvent.Type.Resize}:
            self._fit_bar()
        return super().event(event)

    def _fit_bar(self) -> None:
        """Leave out the preset's name if the row is too narrow, even with the model's name cut."""
        button, model, margins = self.preset_button, self._model, self._column.contentsMargins()
        needed = self._bar.sizeHint().width() - button.sizeHint().width() + button.full_width()
        needed -= model.sizeHint().width() - model.minimumSizeHint().width()
        button.set_short(needed > self.width() - margins.left() - margins.right())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._status.answering:
            self._stop()
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.field.setFocus(Qt.FocusReason.MouseFocusReason)  # a click anywhere on the card focuses the field
        super().mousePressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.source() is not self.field.viewport() and self.field.canInsertFromMimeData(event.mimeData()):
            event.setDropAction(Qt.DropAction.CopyAction)
            event.accept()
            theme.set_property(self, "state", "drop")

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._on_focus(self.field.hasFocus())

    def dropEvent(self, event: QDropEvent) -> None:
        self._on_focus(self.field.hasFocus())
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()
        if paths := files_in(event.mimeData()):
            self.attach(paths)
        else:
            self.field.insertFromMimeData(event.mimeData())

    def _restyle(self) -> None:
        px = theme.px
        # The text aligns with the messages: the card extends 24 px beyond the column.
        inset = (self.attach_button.sizeHint().width() - px(self.attach_button.glyph_px)) // 2
        set_margins(self._column, px(23) - inset, px(13), px(10), px(9), self.isRightToLeft())
        set_margins(self._words, inset, 0, 0, 0, self.isRightToLeft())
        set_margins(self._tiles, inset, 0, px(4), px(2), self.isRightToLeft())
        self._column.setSpacing(px(8))
        self._bar.setSpacing(px(6))
        self.send.setFixedSize(px(34), px(34))
