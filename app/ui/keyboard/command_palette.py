"""The command palette: a field that finds commands, chats, models and settings, and runs the chosen one.

It asks for its entries each time it opens, and does not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.text.palette_search import Entry, marks, matching
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.direction import leading
from app.ui.look.painting import Index, block
from app.ui.widgets.floating import announce
from app.ui.widgets.marked_line import paint_line
from app.ui.widgets.popover import Popover, is_typed
from app.ui.widgets.search_field import GlassField

WIDTH, TOP, INSET = 560, 72, 8
ROW, HEAD, MOST_ROWS = 34, 28, 11


class PaletteModel(QAbstractListModel):
    """A list model: group titles, each followed by its entries."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[str | Entry] = []
        self.typed = ""

    def show(self, entries: Sequence[Entry], typed: str) -> None:
        """Show these entries under their group titles."""
        rows: list[str | Entry] = []
        group = ""
        for entry in entries:
            if entry.group != group:
                group = entry.group
                rows.append(group)
            rows.append(entry)
        self.beginResetModel()
        self.rows, self.typed = rows, typed
        self.endResetModel()

    def entry(self, row: int) -> Entry | None:
        """Return the entry of a row; None for a group title and outside the list."""
        found = self.rows[row] if 0 <= row < len(self.rows) else None
        return found if isinstance(found, Entry) else None

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.entry(index.row()) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or role not in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole}:
            return None
        row = self.rows[index.row()]
        return row if isinstance(row, str) else row.spoken


class PaletteDelegate(QStyledItemDelegate):
    """Paints a row: icon, name with the typed text highlighted, detail, and shortcut or figure at the end."""

    def __init__(self, view: PaletteView) -> None:
        super().__init__(view)
        self.view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(theme.px(100), theme.px(HEAD if self.view.entries.entry(index.row()) is None else ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        view, box = self.view, option.rect
        mirrored = view.isRightToLeft()
        row = view.entries.rows[index.row()]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        inset, side = theme.px(10), theme.px(16)
        if isinstance(row, str):
            painter.setFont(theme.font("meta"))
            painter.setPen(theme.colour("ink3"))
            words = box.adjusted(inset, 0, -inset, -theme.px(4))
            painter.drawText(words, leading(mirrored) | Qt.AlignmentFlag.AlignBottom, row)
            painter.restore()
            return
        marked = index == view.currentIndex()
        if marked:
            block(painter, QRectF(box), theme.wash("pressed" if view.is_pressed else "selected"), theme.px(8))

        def placed(rect: QRect) -> QRect:
            return QStyle.visualRect(view.layoutDirection(), box, rect)

        icon_rect = placed(QRect(box.left() + inset, box.center().y() - side // 2 + 1, side, side))
        icons.paint(painter, row.glyph, QRectF(icon_rect), theme.colour("ink2"))
        right = box.right() - inset
        if row.figure:
            painter.setFont(theme.font("meta"))
            painter.setPen(theme.colour("ink2" if marked else "ink3"))
            wide = min(QFontMetrics(painter.font()).horizontalAdvance(row.figure) + 1, box.width() // 3)
            cut = QFontMetrics(painter.font()).elidedText(row.figure, Qt.TextElideMode.ElideRight, wide)
            at = placed(QRect(right - wide, box.top(), wide, box.height()))
            painter.drawText(at, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextForceLeftToRight, cut)
            right -= wide + theme.px(12)
        left = box.left() + inset + side + theme.px(10)
        own = min(QFontMetrics(theme.font("row")).horizontalAdvance(row.words) + theme.px(6), right - left)
        if row.detail and right - left - own > theme.px(48):
            gap = theme.px(6)
            beside = placed(QRect(left + own + gap, box.top(), right - left - own - gap, box.height()))
            colour = theme.colour("ink2" if marked else "ink3")
            paint_line(painter, beside, row.detail, "meta", colour, (), mirrored)
        else:
            own = right - left
        found = marks(row.words, view.entries.typed)
        words = placed(QRect(left, box.top(), own, box.height()))
        paint_line(painter, words, row.words, "row", theme.colour("ink"), found, mirrored)
        painter.restore()


class PaletteView(QListView):
    """The list under the field. The row under the mouse is marked, as in a menu."""

    chosen = Signal(object)  # Entry

    def __init__(self, entries: PaletteModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries, self.is_pressed = entries, False
        self.setAccessibleName(tr("Found"))
        self.setProperty("kind", "plain")
        self.setProperty("focusRing", False)  # the marked row shows the focus
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the field
        self.setTabKeyNavigation(False)
        self.viewport().setAutoFillBackground(False)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setModel(entries)
        self.setItemDelegate(PaletteDelegate(self))

    def mark(self, row: int, step: int = 1) -> None:
        """Mark a row, which Enter then chooses; if it is a title, mark the next entry in that direction."""
        while 0 <= row < len(self.entries.rows):
            if self.entries.entry(row) is not None:
                self.setCurrentIndex(self.entries.index(row))
                if row == 1:
                    self.scrollToTop()  # including the group title
                return
            row += step

    def move_mark(self, step: int) -> None:
        """Move the mark by `step` entries, or as far as possible."""
        row = self.currentIndex().row()
        for _ in range(abs(step)):
            before = self.currentIndex().row()
            self.mark(row + (1 if step > 0 else -1), 1 if step > 0 else -1)
            row = self.currentIndex().row()
            if row == before:
                return

    def choose(self) -> None:
        entry = self.entries.entry(self.currentIndex().row())
        if entry is not None:
            self.chosen.emit(entry)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if self.entries.entry(index.row()) is not None:
            self.setCurrentIndex(index)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.is_pressed = True
            self.mouseMoveEvent(event)
            self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        was, self.is_pressed = self.is_pressed, False
        self.viewport().update()
        if was and self.entries.entry(self.indexAt(event.position().toPoint()).row()) is not None:
            self.choose()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        page = MOST_ROWS - 2
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: page, Qt.Key.Key_PageUp: -page}
        if event.key() in steps:
            self.move_mark(steps[Qt.Key(event.key())])
        elif event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self.choose()
        else:
            event.ignore()  # the palette closes, or the key goes to its field


class PaletteField(GlassField):
    """The text field of the palette; arrow and page keys go to the list."""

    def __init__(self, view: PaletteView, parent: QWidget | None = None) -> None:
        name = tr("Find commands, chats, models and settings")
        super().__init__(tr("Commands, chats, models, settings"), name, parent)
        self._view = view
        self.setProperty("focusRing", False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp}
        if event.key() in moves | {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self._view.keyPressEvent(event)
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()  # the palette closes
        else:
            super().keyPressEvent(event)


class CommandPalette(Popover):
    """The palette, near the top of the window.

    source: the entries, called each time it opens. further: an extra entry at the end, for any typed text.
    """

    def __init__(self, window: QWidget, source: Callable[[], Sequence[Entry]], further: Callable[[str], Entry]) -> None:
        super().__init__(tr("Find anything"), window, INSET)
        self._source, self._further = source, further
        self._entries: list[Entry] = []
        self.entries = PaletteModel(self)
        self.view = PaletteView(self.entries)
        self.field = PaletteField(self.view)
        self.body.setSpacing(0)
        self.body.addWidget(self.field)
        self.body.addSpacing(theme.px(4))
        self.body.addWidget(self.view)
        self.field.textChanged.connect(self._typed)
        self.view.chosen.connect(self._choose)
        self.view.selectionModel().currentChanged.connect(self._say)
        theme.current().changed.connect(self._fit)

    def width_px(self) -> int:
        return WIDTH

    def toggle(self) -> None:
        if self.is_open:
            self.dismiss()
            return
        self._entries = list(self._source())
        self.field.clear()
        self._typed("")
        self.open_at(self.window())
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    def card_rect(self, at: QRect, wanted: QSize) -> QRect:
        """Return a rectangle near the window's top, centred, as high as the entries need."""
        window, edge = self.window(), theme.px(8)
        height = min(wanted.height(), window.height() - 2 * edge)
        top = max(min(theme.px(TOP), (window.height() - height) // 2), edge)
        return QRect((window.width() - wanted.width()) // 2, top, wanted.width(), height)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.WindowBlocked and watched is self.parent():
            self.dismiss()  # a dialog opened, by a shortcut or by itself
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if is_typed(event):  # typing filters, wherever the focus is
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
            self.field.insert(event.text())
        else:
            super().keyPressEvent(event)

    def _typed(self, text: str) -> None:
        text = text.strip()
        found = matching(self._entries, text)
        self.entries.show([*found, self._further(text)] if text else found, text)
        self.view.mark(0)
        self._fit()

    def _choose(self, entry: Entry) -> None:
        self.dismiss()
        entry.run()

    def _say(self, now: QModelIndex) -> None:
        entry = self.entries.entry(now.row())
        # the focus stays in the field, so the screen reader needs an announcement
        if entry is not None and self.is_open:
            announce(self.field, entry.spoken)

    def _fit(self) -> None:
        heads = sum(isinstance(row, str) for row in self.entries.rows)
        high = heads * theme.px(HEAD) + (len(self.entries.rows) - heads) * theme.px(ROW)
        window = self.window().height() - 2 * theme.px(TOP) - theme.px(60)
        most = max(min(MOST_ROWS * theme.px(ROW), window), 3 * theme.px(ROW))
        self.view.setFixedHeight(min(high, most))
        self.body.invalidate()
        self.place()
