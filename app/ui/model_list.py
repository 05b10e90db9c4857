"""The models on this PC as rows of a menu: sign, name and, at the right, the rate here or what is in the way.

It shows and filters; a row that was chosen is a signal.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QHelpEvent, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolTip,
    QWidget,
)

from app import model_words
from app.model_rows import ModelRow
from app.translation import tr
from app.ui import icons, theme
from app.ui.direction import leading, order
from app.ui.painting import block
from app.ui.signs import paint_dot

Index = QModelIndex | QPersistentModelIndex

ROW = 34


def can_answer(row: ModelRow) -> bool:
    """Whether a model can be loaded now."""
    return row.installed is not None and row.installed.state != "broken"


def figure(row: ModelRow) -> str:
    """What stands at the right of a model: its rate here, or what keeps it from answering."""
    if row.installed is not None and row.installed.state == "broken":
        return tr("Broken")
    if row.loading or row.preparing is not None:
        return tr("Loading") if row.loading else tr("Preparing")
    if row.estimate is not None and row.estimate.fits == "no":
        return row.verdict
    measured = row.installed.measured_tok_s if row.installed else None
    if measured is None and (row.estimate is None or row.estimate.predicted_tok_s is None):
        return ""
    return model_words.speed(row.estimate, measured)[0]


def spoken(row: ModelRow) -> str:
    """A row as a screen reader says it."""
    state = tr("in use") if row.in_use else ""
    rate = figure(row).replace("tok/s", tr("tokens per second")).replace("≈", tr("about"))
    return ", ".join(part for part in (row.name, state, rate) if part)


class ModelList(QAbstractListModel):
    """The models that lie on this PC and match what was typed."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._all: list[ModelRow] = []
        self._typed = ""
        self.rows: list[ModelRow] = []

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return spoken(self.rows[index.row()])
        return None

    @property
    def count(self) -> int:
        """How many models there are, typed or not."""
        return len(self._all)

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        self._all = [row for row in rows if row.installed is not None]
        self._match()

    def set_typed(self, typed: str) -> None:
        self._typed = typed
        self._match()

    def _match(self) -> None:
        words = self._typed.casefold().split()
        found = [row for row in self._all if all(word in f"{row.name} {row.maker}".casefold() for word in words)]
        if found != self.rows:
            self.beginResetModel()
            self.rows = found
            self.endResetModel()


class ModelDelegate(QStyledItemDelegate):
    """A row: its sign, the name, and at the right a figure."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(theme.px(100), theme.px(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        view = self.parent()
        assert isinstance(view, ModelView)
        row = view.models.rows[index.row()]
        mirrored, box = view.isRightToLeft(), option.rect
        usable, current = can_answer(row), index == view.currentIndex()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if current and usable:
            block(painter, QRectF(box), theme.wash("pressed" if view.is_pressed else "selected"), theme.px(8))
        side, inset = theme.px(16), theme.px(10)
        sign = QRect(box.left() + inset, box.center().y() - side // 2 + 1, side, side)
        sign = QStyle.visualRect(view.layoutDirection(), box, sign)
        if row.loading or row.preparing is not None:
            paint_dot(painter, QRectF(sign).adjusted(1, 1, -1, -1), theme.colour("hot_fill"), True)
        else:
            name = "check" if row.in_use else "chip" if usable else "warn"
            token = "ok" if row.in_use else "ink2" if usable else "bad"
            icons.paint(painter, name, QRectF(sign), theme.colour(token))
        words = figure(row)
        painter.setFont(theme.font("meta"))
        wide = QFontMetrics(painter.font()).horizontalAdvance(words) + 1
        at = QRect(box.right() - inset - wide, box.top(), wide, box.height())
        bad = not usable or (row.estimate is not None and row.estimate.fits == "no")
        painter.setPen(theme.colour("bad" if bad else "ink2" if current else "ink3"))
        painter.drawText(QStyle.visualRect(view.layoutDirection(), box, at),
                         Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextForceLeftToRight, words)  # fmt: skip
        left = box.left() + inset + side + theme.px(8)
        room = QRect(left, box.top(), at.left() - theme.px(10) - left, box.height())
        room = QStyle.visualRect(view.layoutDirection(), box, room)
        painter.setFont(theme.font("rowstrong" if row.in_use else "row"))
        painter.setPen(theme.colour("ink" if usable else "ink3"))
        shown = QFontMetrics(painter.font()).elidedText(row.name, Qt.TextElideMode.ElideRight, room.width())
        flags = leading(mirrored) | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
        painter.drawText(room, flags | order(row.name), shown)
        painter.restore()

    def helpEvent(self, event: QHelpEvent, view: QAbstractItemView, option: QStyleOptionViewItem, index: Index) -> bool:
        assert isinstance(view, ModelView)
        QToolTip.showText(event.globalPos(), about(view.models.rows[index.row()]) if index.isValid() else "", view)
        return True


def about(row: ModelRow) -> str:
    """A model in a few words: what there is no room for in its row."""
    lines = [row.name]
    if row.installed is not None and row.installed.state != "ready" and row.installed.reason:
        lines.append(row.installed.reason)
    elif row.estimate is not None:
        lines.append(model_words.place(row.estimate))
        rate, why = model_words.speed(row.estimate, row.installed.measured_tok_s if row.installed else None)
        lines.append(", ".join(part for part in (rate, why) if part))
    return "\n".join(lines)


def is_typed(event: QKeyEvent) -> bool:
    """Whether a key writes a letter; Esc has a character as well."""
    return event.text().isprintable() and bool(event.text().strip())


class ModelView(QListView):
    """The list. The mouse marks what is under it, as in a menu; `chosen` gives the row's id."""

    chosen = Signal(str)

    def __init__(self, models: ModelList, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.models, self.is_pressed = models, False
        self.setAccessibleName(tr("Models on this PC"))
        self.setProperty("kind", "plain")
        self.setProperty("focusRing", False)  # the marked row is the sign
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setModel(models)
        self.setItemDelegate(ModelDelegate(self))

    def mark(self, row: int) -> None:
        """Mark the row that Enter chooses."""
        if self.models.rows:
            self.setCurrentIndex(self.models.index(min(max(row, 0), len(self.models.rows) - 1)))

    def choose(self) -> None:
        """Take the marked row, if it can answer."""
        index = self.currentIndex()
        if index.isValid() and can_answer(row := self.models.rows[index.row()]):
            self.chosen.emit(row.id)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if index.isValid():
            self.setCurrentIndex(index)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.is_pressed = True
            self.mouseMoveEvent(event)
            self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        was, self.is_pressed = self.is_pressed, False
        self.viewport().update()
        if was and self.indexAt(event.position().toPoint()).isValid():
            self.choose()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self.choose()
        elif event.key() in {Qt.Key.Key_Escape, Qt.Key.Key_Backspace} or is_typed(event):
            event.ignore()  # the menu closes, or filters
        else:
            super().keyPressEvent(event)
