"""The menu of models in the composer: what can answer next, how fast each is here, and the way to let it go.

Typing filters. It switches nothing by itself: what was chosen is a signal.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QLineEdit,
    QListView,
    QSizePolicy,
    QSpacerItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolTip,
    QWidget,
)

from app import model_words
from app.model_rows import ModelRow
from app.ui import icons, theme
from app.ui.controls import Button, Label, Rule
from app.ui.direction import leading, order
from app.ui.painting import block
from app.ui.popover import Popover
from app.ui.signs import paint_dot

Index = QModelIndex | QPersistentModelIndex

ROW, INSET, WIDTH, MOST_ROWS = 34, 6, 340, 8
FIELD_FROM = 4  # models from which on a field to filter them is shown before anybody types


def can_answer(row: ModelRow) -> bool:
    """Whether a model can be loaded now."""
    return row.installed is not None and row.installed.state != "broken"


def figure(row: ModelRow) -> str:
    """What stands at the right of a model: its rate here, or what keeps it from answering."""
    if row.installed is not None and row.installed.state == "broken":
        return "Broken"
    if row.loading or row.preparing is not None:
        return "Loading" if row.loading else "Preparing"
    if row.estimate is not None and row.estimate.fits == "no":
        return row.verdict
    measured = row.installed.measured_tok_s if row.installed else None
    if measured is None and (row.estimate is None or row.estimate.predicted_tok_s is None):
        return ""
    return model_words.speed(row.estimate, measured)[0]


def spoken(row: ModelRow) -> str:
    """A row as a screen reader says it."""
    state = "in use" if row.in_use else ""
    rate = figure(row).replace("tok/s", "tokens per second").replace("≈", "about")
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
        self.setAccessibleName("Models on this PC")
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


class FilterField(QLineEdit):
    """Where the name is typed; arrows and Enter go to the list."""

    def __init__(self, view: ModelView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setProperty("focusRing", False)
        self.setPlaceholderText("Type to filter")
        self.setAccessibleName("Filter models")
        self._sign = self.addAction(icons.icon("search", "ink3", 16), QLineEdit.ActionPosition.LeadingPosition)
        theme.current().changed.connect(self._restyle)

    def _restyle(self) -> None:
        self._sign.setIcon(icons.icon("search", "ink3", 16))
        self.setFont(theme.font("row"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, page = event.key(), MOST_ROWS - 1
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: page, Qt.Key.Key_PageUp: -page}
        if key in steps:
            self._view.mark(self._view.currentIndex().row() + steps[Qt.Key(key)])
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self._view.choose()
        elif key == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif key == Qt.Key.Key_Escape:
            event.ignore()  # the menu closes
        else:
            super().keyPressEvent(event)


class MenuRow(Button):
    """An act at the foot of the menu."""

    def __init__(self, words: str, glyph: str, parent: QWidget | None = None) -> None:
        super().__init__(words, "quiet", glyph, parent=parent)
        self.height_px, self.align_left, self.padding_px, self.glyph_px = ROW, True, 10, 16
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("row"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, _ = super().colours()
        return ground, border, theme.colour("ink")

    def glyph_colour(self, text: QColor) -> QColor:
        return theme.colour("ink2")


class ModelMenu(Popover):
    """chosen: id of the row to load. unload, cancel_load, placement_asked and all_models: the acts at its foot."""

    chosen = Signal(str)
    unload = Signal()
    cancel_load = Signal()
    placement_asked = Signal()
    all_models = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__("Models", window, INSET)
        self.models = ModelList(self)
        self.view = ModelView(self.models)
        self.field = FilterField(self.view)
        self._none = Label("", "small", "ink3", wrap=True)
        self.letting_go = MenuRow("", "eject")
        self.placement = MenuRow("How it runs here", "tune")
        self.all = MenuRow("All models", "models")
        self._loading = self._looking = False
        self.body.setSpacing(0)
        self.body.addWidget(self.field)
        self._gap = QSpacerItem(0, 0, QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.body.addItem(self._gap)
        self.body.addWidget(self._none)
        self.body.addWidget(self.view)
        self._rule = Rule()
        self.body.addSpacing(theme.px(5))
        self.body.addWidget(self._rule)
        self.body.addSpacing(theme.px(5))
        for row in (self.placement, self.letting_go, self.all):
            self.body.addWidget(row)
        self.field.textChanged.connect(self._typed)
        self.view.chosen.connect(self._choose)
        self.placement.clicked.connect(lambda: self._act(self.placement_asked))
        self.letting_go.clicked.connect(lambda: self._act(self.cancel_load if self._loading else self.unload))
        self.all.clicked.connect(lambda: self._act(self.all_models))
        theme.current().changed.connect(self._fit)

    def width_px(self) -> int:
        return WIDTH

    def outdent_px(self) -> int:
        return INSET + 1  # icons of its rows below the icon of the button: 10 of padding here, 9 there

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        """Every model that is known; those on this PC are shown."""
        marked = self._marked()
        self.models.set_rows(rows)
        index = next((i for i, row in enumerate(self.models.rows) if row.id == marked), 0)
        self.view.mark(index)
        self._fit()

    def set_state(self, model: str, loading: bool, loaded: bool) -> None:
        """What is loaded: its name, and whether it is still on its way."""
        self._loading = loading
        self.letting_go.setVisible(loading or loaded)
        self.letting_go.setText("Stop loading" if loading else f"Unload {model}".replace("&", "&&"))
        self.letting_go.set_glyph("close" if loading else "eject")
        self.placement.setVisible(loaded)
        self._fit()

    def set_looking(self, looking: bool) -> None:
        """Whether what lies on this PC is still being found out."""
        self._looking = looking
        self._fit()

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        self.field.clear()
        self._fit()
        super().open_at(anchor)
        in_use = next((i for i, row in enumerate(self.models.rows) if row.in_use or row.loading), 0)
        self.view.mark(in_use)
        target = self.field if self.field.isVisibleTo(self) else self.view
        target.setFocus(Qt.FocusReason.PopupFocusReason)

    def _marked(self) -> str:
        index = self.view.currentIndex()
        return self.models.rows[index.row()].id if index.isValid() and index.row() < len(self.models.rows) else ""

    def _typed(self, text: str) -> None:
        self.models.set_typed(text)
        self.view.mark(0)
        self._fit()

    def _choose(self, row_id: str) -> None:
        self.dismiss()
        self.chosen.emit(row_id)

    def _act(self, signal: object) -> None:
        self.dismiss()
        signal.emit()  # type: ignore[attr-defined]

    def _fit(self) -> None:
        found = len(self.models.rows)
        self.view.setVisible(found > 0)
        self.view.setFixedHeight(min(max(found, 1), MOST_ROWS) * theme.px(ROW))
        self.field.setVisible(self.models.count >= FIELD_FROM or bool(self.field.text()))
        self._gap.changeSize(0, theme.px(4) if self.field.isVisibleTo(self) else 0)
        self.body.invalidate()
        typed = self.field.text().strip()
        self._none.setVisible(not found)
        nothing = "Looking what is on this PC" if self._looking else "No model lies on this PC yet."
        self._none.setText(f"No model here is called “{typed}”." if typed else nothing)
        self._none.setContentsMargins(theme.px(10), theme.px(8), theme.px(10), theme.px(8))
        self.place()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if is_typed(event) and self.models.count:  # typing filters, wherever the focus is
            self.field.setVisible(True)
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
            self.field.insert(event.text())
            event.accept()
        else:
            super().keyPressEvent(event)
