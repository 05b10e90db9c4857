"""Prompts in the message field: a menu behind "/", and the variables of the chosen saved prompt to fill in.

The field keeps the focus, so that typing continues and filters. Text after "/" that no prompt matches is plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, QPoint, QRectF, QRegularExpression, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent, QTextCursor
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.chat.answers.saved_prompts import MAX_TEXT, SavedPrompt, matching
from app.chat.store.preset_store import NAME_LENGTH
from app.translation import tr
from app.ui.composer.message_field import MessageField
from app.ui.look import theme
from app.ui.look.painting import antialiased
from app.ui.widgets.controls import Label, Rule
from app.ui.widgets.floating import PAD, announce, paint_floating
from app.ui.widgets.pick_menu import clear
from app.ui.widgets.pick_row import INSET, PickRow

WIDTH, INSIDE, AWAY, MOST_ROWS = 420, 6, 6, 7  # px; rows that are shown at once
MENU_KEYS = {Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Escape}


@dataclass(frozen=True)
class ServerPrompt(SavedPrompt):
    """A row for an MCP server or one of its prompts. text: what the row says beside its name."""

    glyph: str = "tool"


class PromptCard(QFrame):
    """The menu above the composer, or one line in its place. It takes no focus. picked: id of a prompt."""

    picked = Signal(str)
    edit_requested = Signal()

    def __init__(self, anchor: QWidget) -> None:
        """anchor: the card opens above it."""
        super().__init__(anchor.window())
        self.hide()
        self._anchor = anchor
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("Prompts"))
        self.line = Label("", "small", wrap=True)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        self._rule, self.edit = Rule(), PickRow(tr("Edit prompts"), "pen")
        self.edit.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.edit.clicked.connect(self.edit_requested)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(0)
        self._column.addWidget(self.line)
        self._column.addLayout(self._rows)
        self._column.addWidget(self._rule)
        self._column.addWidget(self.edit)

    def rows(self) -> list[PickRow]:
        found = (self._rows.itemAt(i) for i in range(self._rows.count()))
        return [row for item in found if item is not None and isinstance(row := item.widget(), PickRow)]

    def show_prompts(self, prompts: Sequence[SavedPrompt], at: int) -> None:
        """Show the prompts around the current one, which is marked."""
        clear(self._rows)
        first = min(max(at - MOST_ROWS // 2, 0), max(len(prompts) - MOST_ROWS, 0))
        for number, prompt in enumerate(prompts[first : first + MOST_ROWS], first):
            glyph = prompt.glyph if isinstance(prompt, ServerPrompt) else "lines"
            row = PickRow(prompt.name, glyph, " ".join(prompt.text[:120].split()))
            row.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            row.set_shown(number == at)
            row.clicked.connect(lambda _=False, prompt_id=prompt.id: self.picked.emit(prompt_id))
            self._rows.addWidget(row)
            row.show()
        self._show("")
        announce(self, prompts[at].name)

    def show_line(self, words: str) -> None:
        clear(self._rows)
        self._show(words)
        announce(self, words)

    def _show(self, words: str) -> None:
        px = theme.px
        self.line.setText(words)
        self.line.setVisible(bool(words))
        self.line.setContentsMargins(px(INSET), px(6), px(INSET), px(6))
        for part in (self._rule, self.edit):
            part.setVisible(not words)
        margin = PAD + px(INSIDE)
        self._column.setContentsMargins(margin, margin, margin, margin)
        self.place()
        self.raise_()
        self.show()

    def place(self) -> None:
        """Move the card to its anchor: above it if there is space, else below."""
        px, anchor = theme.px, self._anchor
        width = min(px(WIDTH), anchor.width()) + 2 * PAD
        self._column.activate()
        high = self._column.totalHeightForWidth(width) if self.line.words else self._column.totalSizeHint().height()
        corner = anchor.mapTo(self.window(), QPoint(0, 0))
        left = corner.x() + (anchor.width() - width + PAD if self.isRightToLeft() else -PAD)
        above = corner.y() - px(AWAY) - high + PAD
        top = above if above >= -PAD else corner.y() + anchor.height() + px(AWAY) - PAD
        self.setGeometry(left, top, width, high)

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_floating(antialiased(self), QRectF(self.rect()).adjusted(PAD, PAD, -PAD, -PAD), theme.px(12))


class SlashPrompts(QObject):
    """Watches a message field. anchor: the card opens above it. edit_requested: open the dialog of prompts.
    server_requested: the id of a ServerPrompt.
    """

    edit_requested = Signal()
    server_requested = Signal(str)

    def __init__(self, field: MessageField, anchor: QWidget) -> None:
        super().__init__(anchor)
        self._field, self._anchor = field, anchor
        self._prompts: Sequence[SavedPrompt] = ()
        self._of_servers: Sequence[ServerPrompt] = ()
        self._found: list[SavedPrompt] = []  # in the open menu
        self._at = 0
        self._is_dismissed = False  # the user closed the menu for the text that begins with "/"
        self._names: list[str] = []  # variables of the prompt that was inserted
        self._has_asked = False  # whether the next try to send sends variables as they are
        self.card: PromptCard | None = None  # built on first use
        field.textChanged.connect(self._typed)
        field.focus_changed.connect(lambda focused: None if focused else self.close())
        field.installEventFilter(self)
        theme.current().changed.connect(self.close)

    def set_prompts(self, prompts: Sequence[SavedPrompt]) -> None:
        """Set the prompts to choose from."""
        self._prompts = prompts

    def set_server_prompts(self, prompts: Sequence[ServerPrompt]) -> None:
        """Set what MCP servers offer, which comes after the saved prompts."""
        self._of_servers = prompts

    @property
    def is_open(self) -> bool:
        """Whether the menu is open."""
        return bool(self._found)

    def close(self) -> None:
        """Close the menu, or the line in its place."""
        self._found = []
        if self.card is not None:
            self.card.hide()

    def begin(self) -> None:
        """Open the menu, as if the user had typed "/" into the empty field."""
        self._field.setFocus(Qt.FocusReason.OtherFocusReason)
        if not self._field.text():
            self._field.insert("/")

    # --- the menu

    def _typed(self) -> None:
        self._has_asked = False
        document = self._field.document()
        if document.isEmpty():
            self._names = []
        starts = str(document.characterAt(0)) == "/" and document.characterCount() <= NAME_LENGTH + 2
        if not starts or document.blockCount() > 1:
            self._is_dismissed = False
            self.close()
            return
        typed = self._field.text()[1:]
        found = [*matching(self._prompts, typed), *matching(self._of_servers, typed)] if not self._is_dismissed else []
        if not found or not self._field.hasFocus():
            self.close()
            return
        self._found, self._at = found, 0
        self._show()

    def _show(self) -> None:
        self._built().show_prompts(self._found, self._at)

    def _built(self) -> PromptCard:
        if self.card is None:
            self.card = PromptCard(self._anchor)
            for around in (self._anchor, self._anchor.window()):
                around.installEventFilter(self)
            self.card.picked.connect(self._pick)
            self.card.edit_requested.connect(self._edit)
        return self.card

    def _edit(self) -> None:
        self._field.set_text("")
        self.close()
        self.edit_requested.emit()

    def _pick(self, prompt_id: str) -> None:
        prompt = next((one for one in self._found if one.id == prompt_id), None)
        self.close()
        if prompt is None:
            return
        if isinstance(prompt, ServerPrompt):
            self._field.set_text("")
            self.server_requested.emit(prompt.id)
            return
        self._field.selectAll()
        self._field.insert(prompt.text[:MAX_TEXT])
        self._names = prompt.variables
        self._field.moveCursor(QTextCursor.MoveOperation.Start)
        if not self._select(forward=True):
            self._field.moveCursor(QTextCursor.MoveOperation.End)

    # --- variables

    def _select(self, forward: bool) -> str:
        """Select the next variable that is not filled in, from the cursor on and then from the other end. Return it."""
        if not self._names:
            return ""
        names = "|".join(QRegularExpression.escape(name) for name in self._names)
        wanted = QRegularExpression(r"\{(?:" + names + r")\}")
        document, cursor = self._field.document(), self._field.textCursor()
        way = type(document).FindFlag(0) if forward else type(document).FindFlag.FindBackward
        found = document.find(wanted, cursor, way)
        if found.isNull():
            other_end = QTextCursor(document)
            if not forward:
                other_end.movePosition(QTextCursor.MoveOperation.End)
            found = document.find(wanted, other_end, way)
        if found.isNull():
            return ""
        self._field.setTextCursor(found)
        self._field.ensureCursorVisible()
        return found.selectedText()

    def holds_back(self) -> bool:
        """Return whether the message must not be sent yet: the first time while a variable is not filled in."""
        if self._has_asked:
            return False
        variable = self._select(forward=True)
        if not variable:
            return False
        self._field.setFocus(Qt.FocusReason.OtherFocusReason)
        self._has_asked = True
        words = tr("{variable} is not filled in. Send again to send it as it is.", variable=variable)
        self._built().show_line(words)
        return True

    # --- keys

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if watched is not self._field:
            if kind in {QEvent.Type.Resize, QEvent.Type.Move} and self.card is not None and self.card.isVisible():
                QTimer.singleShot(0, self.card, self.card.place)
            return False
        if kind == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent) and self._wants(event):
            event.accept()
            return True
        if kind != QEvent.Type.KeyPress or not isinstance(event, QKeyEvent):
            return False
        return self._wants(event) and self._press(event)

    def _wants(self, event: QKeyEvent) -> bool:
        pressed = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if self.is_open:
            return event.key() in MENU_KEYS and not pressed
        if event.key() == Qt.Key.Key_Escape and self.card is not None and self.card.isVisible():
            return not pressed
        return event.key() in {Qt.Key.Key_Tab, Qt.Key.Key_Backtab} and bool(self._names)

    def _press(self, event: QKeyEvent) -> bool:
        key = event.key()
        if not self.is_open:
            if key == Qt.Key.Key_Escape:
                self.close()
                return True
            return bool(self._select(forward=key == Qt.Key.Key_Tab))
        if key in {Qt.Key.Key_Up, Qt.Key.Key_Down}:
            self._at = (self._at + (1 if key == Qt.Key.Key_Down else -1)) % len(self._found)
            self._show()
        elif key == Qt.Key.Key_Escape:
            self._is_dismissed = True
            self.close()
        else:
            self._pick(self._found[self._at].id)
        return True
