"""The models that can answer a chat, as a list: those on this PC with their rate, then those of servers.

At most one row is marked, and Enter chooses only that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

from app.clients.servers import Place
from app.library_messages import remark
from app.models import model_labels
from app.models.model_rows import ModelRow
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import block
from app.ui.widgets.indicators import paint_dot
from app.ui.widgets.popover import is_typed

Index = QModelIndex | QPersistentModelIndex

ROW, HEAD = 34, 28
PAGE, MANY = 7, 1_000_000  # models per page, and more than any list has

Entry = ModelRow | Place  # a model on this PC, or one of a server


def can_answer(row: ModelRow) -> bool:
    """Return whether a model can be loaded for a chat now."""
    return row.installed is not None and row.installed.state != "broken" and row.kind != "embedding"


def figure(row: ModelRow) -> str:
    """Return the text at the right of a model: its rate here, or why it cannot answer."""
    if row.installed is not None and row.installed.state == "broken":
        return tr("Broken")
    if row.loading or row.preparing is not None:
        return tr("Loading") if row.loading else tr("Preparing")
    if row.estimate is not None and row.estimate.fits == "no":
        return row.verdict
    rate = model_labels.rate_text(row.rate)[0] if row.rate is not None else ""
    return "  ".join(part for part in (tr("base model") if row.kind == "base" else "", rate) if part)


def section(place: Place) -> str:
    """Return the heading for a server's model."""
    return tr("Other programs on this PC") if place.server.is_here else tr("Not on this PC")


def spoken(row: Entry, in_use: bool = False) -> str:
    """Return a row's text for a screen reader. in_use: whether a server's model answers the open chat."""
    if isinstance(row, Place):
        server = row.server
        where = (tr("in {server}, another program on this PC", server=server.name) if server.is_here else
                 tr("on {server}, not on this PC", server=server.name))  # fmt: skip
        words = (row.model, tr("in use") if in_use else "", where)
        return ", ".join(part for part in words if part)
    state = tr("in use") if row.in_use else ""
    rate = figure(row).replace("tok/s", tr("tokens per second")).replace("≈", tr("about"))
    return ", ".join(part for part in (row.name, state, rate) if part)


class ModelList(QAbstractListModel):
    """The models that match the filter: those on this PC, then those of servers, each group under a heading (a str)."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._models: list[ModelRow] = []
        self._places: list[Place] = []
        self._typed = ""
        self.rows: list[Entry | str] = []
        self.place: Place | None = None  # the server model that answers the open chat; None: this PC

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return None
        row = self.rows[index.row()] if index.row() < len(self.rows) else None
        return row if isinstance(row, str | None) else spoken(row, self.is_in_use(row))

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.entry(index.row()) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    @property
    def count(self) -> int:
        """The number of models, before filtering."""
        return len(self._models) + len(self._places)

    def usable(self) -> list[Entry]:
        """Return all models that can answer, before filtering."""
        return [*(row for row in self._models if can_answer(row)), *self._places]

    def entry(self, row: int) -> Entry | None:
        """Return the model of a row; None for a heading and outside the list."""
        found = self.rows[row] if 0 <= row < len(self.rows) else None
        return None if isinstance(found, str) else found

    def is_in_use(self, entry: Entry) -> bool:
        """Return whether this model answers the open chat."""
        return entry == self.place if isinstance(entry, Place) else entry.in_use and self.place is None

    def row_in_use(self) -> int:
        """Return the row of the model that answers the open chat or is being loaded; -1 if not shown."""
        used = (i for i, row in enumerate(self.rows) if not isinstance(row, str) and self.is_in_use(row))
        loading = (i for i, row in enumerate(self.rows) if isinstance(row, ModelRow) and row.loading)
        return next(used if self.place is not None else loading, next(used, -1))

    def row_like(self, entry: Entry | None) -> int:
        """Return the row of the same model, whose figures may differ; -1 if not shown."""
        return next((i for i, row in enumerate(self.rows) if not isinstance(row, str) and _is_same(row, entry)), -1)

    def first_usable(self) -> int:
        """Return the first row that can be chosen; -1 for none."""
        return next((i for i, row in enumerate(self.rows) if not isinstance(row, str) and _can_choose(row)), -1)

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        self._models = [row for row in rows if row.installed is not None]
        self._match()

    def set_places(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._match()

    def set_place(self, place: Place | None) -> None:
        """Set the server model that answers the open chat."""
        self.place = place
        if self.rows:
            self.dataChanged.emit(self.index(0), self.index(len(self.rows) - 1))

    def set_typed(self, typed: str) -> None:
        self._typed = typed
        self._match()

    def _match(self) -> None:
        words = self._typed.casefold().split()
        found: list[Entry | str] = [
            row for row in self._models if all(word in f"{row.name} {row.maker}".casefold() for word in words)
        ]
        heading = ""
        for place in sorted(self._places, key=lambda place: not place.server.is_here):
            if all(word in f"{place.model} {place.server.name}".casefold() for word in words):
                if section(place) != heading:
                    heading = section(place)
                    found.append(heading)
                found.append(place)
        if found != self.rows:
            self.beginResetModel()
            self.rows = found
            self.endResetModel()


def _is_same(row: Entry, other: Entry | None) -> bool:
    if isinstance(row, ModelRow) and isinstance(other, ModelRow):
        return row.id == other.id
    return row == other


def _can_choose(entry: Entry) -> bool:
    return isinstance(entry, Place) or can_answer(entry)


class ModelDelegate(QStyledItemDelegate):
    """Paints a row: icon, name, and rate or server at the right; or a heading."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        view = self.parent()
        assert isinstance(view, ModelView)
        return QSize(theme.px(100), theme.px(ROW if view.models.entry(index.row()) is not None else HEAD))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        view = self.parent()
        assert isinstance(view, ModelView)
        box, mirrored, inset = option.rect, view.isRightToLeft(), theme.px(10)
        row = view.models.entry(index.row())
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if row is None:
            painter.setFont(theme.font("metastrong"))
            painter.setPen(theme.colour("ink2"))
            under = box.adjusted(inset, 0, -inset, -theme.px(4))
            heading = str(view.models.rows[index.row()])
            painter.drawText(under, leading(mirrored) | Qt.AlignmentFlag.AlignBottom, heading)
            painter.restore()
            return
        served = isinstance(row, Place)
        away = isinstance(row, Place) and not row.server.is_here
        usable, current = _can_choose(row), index == view.currentIndex()
        in_use = view.models.is_in_use(row)
        if current and usable and view.is_led():
            block(painter, QRectF(box), theme.wash("pressed" if view.is_pressed else "selected"), theme.px(8))
        side = theme.px(16)
        icon_rect = QRect(box.left() + inset, box.center().y() - side // 2 + 1, side, side)
        icon_rect = QStyle.visualRect(view.layoutDirection(), box, icon_rect)
        if isinstance(row, ModelRow) and (row.loading or row.preparing is not None):
            paint_dot(painter, QRectF(icon_rect).adjusted(1, 1, -1, -1), theme.colour("hot_fill"), True)
        else:
            name = "check" if in_use else "away" if away else "server" if served else "chip" if usable else "warn"
            token = "away" if away else "ok" if in_use else "ink2" if usable else "bad"
            icons.paint(painter, name, QRectF(icon_rect), theme.colour(token))
        words = row.server.name if isinstance(row, Place) else figure(row)
        painter.setFont(theme.font("meta"))
        words = QFontMetrics(painter.font()).elidedText(words, Qt.TextElideMode.ElideRight, box.width() // 2)
        wide = QFontMetrics(painter.font()).horizontalAdvance(words) + 1
        at = QRect(box.right() - inset - wide, box.top(), wide, box.height())
        too_big = isinstance(row, ModelRow) and row.estimate is not None and row.estimate.fits == "no"
        painter.setPen(theme.colour("bad" if too_big or not usable else "ink2" if current or served else "ink3"))
        painter.drawText(QStyle.visualRect(view.layoutDirection(), box, at),
                         Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextForceLeftToRight, words)  # fmt: skip
        left = box.left() + inset + side + theme.px(8)
        room = QRect(left, box.top(), at.left() - theme.px(10) - left, box.height())
        room = QStyle.visualRect(view.layoutDirection(), box, room)
        painter.setFont(theme.font("rowstrong" if in_use else "row"))
        painter.setPen(theme.colour("ink" if usable else "ink3"))
        called = name_of(row)
        shown = QFontMetrics(painter.font()).elidedText(called, Qt.TextElideMode.ElideRight, room.width())
        flags = leading(mirrored) | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
        painter.drawText(room, flags | order(called), shown)
        painter.restore()

    def helpEvent(self, event: QHelpEvent, view: QAbstractItemView, option: QStyleOptionViewItem, index: Index) -> bool:
        assert isinstance(view, ModelView)
        row = view.models.entry(index.row()) if index.isValid() else None
        QToolTip.showText(event.globalPos(), about(row) if row is not None else "", view)
        return True


def name_of(entry: Entry) -> str:
    """Return a model's name."""
    return entry.model if isinstance(entry, Place) else entry.name


def about(row: Entry) -> str:
    """Return a model's tooltip: the details that do not fit its row."""
    if isinstance(row, Place):
        return f"{row.model}\n{row.server.name} · {row.server.host}"
    lines = [row.name]
    if row.installed is not None and row.installed.state != "ready" and row.installed.reason:
        lines.append(remark(row.installed.reason))
    elif row.estimate is not None:
        lines.append(model_labels.place(row.estimate))
        lines.append(", ".join(part for part in row.speed if part.strip("–")))
    return "\n".join(filter(None, lines))


class ModelView(QListView):
    """The list view. The row under the mouse is marked, as in a menu. chosen: the marked ModelRow or Place."""

    chosen = Signal(object)

    def __init__(self, models: ModelList, is_led: Callable[[], bool] | None = None) -> None:
        """Build the view.

        is_led: whether Enter would reach the list now; otherwise no row is highlighted. None: while the list has the
        focus.
        """
        super().__init__()
        self.models, self.is_pressed = models, False
        self.is_led: Callable[[], bool] = is_led or self.hasFocus
        self.setAccessibleName(tr("Models"))
        self.setProperty("kind", "plain")
        self.setProperty("focusRing", False)  # the marked row shows the focus
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setModel(models)
        self.setItemDelegate(ModelDelegate(self))

    @property
    def marked(self) -> Entry | None:
        """The model that Enter chooses."""
        return self.models.entry(self.currentIndex().row()) if self.currentIndex().isValid() else None

    def mark(self, row: int) -> None:
        """Mark the row that Enter chooses; a row without a model clears the mark."""
        none = self.models.entry(row) is None
        self.setCurrentIndex(QModelIndex() if none else self.models.index(row))

    def move_mark(self, step: int) -> None:
        """Move the mark by `step` models, or as far as possible, skipping headings."""
        forward = 1 if step > 0 else -1
        places = [i for i in range(len(self.models.rows)) if self.models.entry(i) is not None]
        if not places:
            return
        now = self.currentIndex().row()
        if now not in places:
            self.mark(places[0 if forward > 0 else -1])
            return
        self.mark(places[min(max(places.index(now) + step, 0), len(places) - 1)])

    def choose(self) -> None:
        """Choose the marked row, if it can answer."""
        entry = self.marked
        if entry is not None and _can_choose(entry):
            self.chosen.emit(entry)

    def height_of(self, rows: int) -> int:
        """Return the height of the first rows, including headings."""
        return sum(theme.px(HEAD if isinstance(row, str) else ROW) for row in self.models.rows[:rows])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if self.models.entry(index.row()) is not None:
            self.setCurrentIndex(index)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.is_pressed = True
            self.mouseMoveEvent(event)
            self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        was, self.is_pressed = self.is_pressed, False
        self.viewport().update()
        index = self.indexAt(event.position().toPoint())
        if was and self.models.entry(index.row()) is not None:
            self.mark(index.row())
            self.choose()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = move_of(event)
        if step:
            self.move_mark(step)
        elif event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self.choose()
        elif event.key() in {Qt.Key.Key_Escape, Qt.Key.Key_Backspace} or is_typed(event):
            event.ignore()  # the menu closes, or filters
        else:
            super().keyPressEvent(event)


def move_of(event: QKeyEvent) -> int:
    """Return how many models a key moves the mark; 0 for other keys."""
    steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: PAGE, Qt.Key.Key_PageUp: -PAGE,
             Qt.Key.Key_Home: -MANY, Qt.Key.Key_End: MANY}  # fmt: skip
    return steps.get(Qt.Key(event.key()), 0)
