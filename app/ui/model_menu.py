"""The menu of models in the composer: what can answer next, how fast each is here, and the way to let it go.

Typing filters. It switches nothing by itself: what was chosen is a signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QLineEdit, QSizePolicy, QSpacerItem, QVBoxLayout, QWidget

from app.model_rows import ModelRow
from app.servers import Place
from app.translation import tr
from app.ui import icons, theme
from app.ui.controls import Button, Label, Rule
from app.ui.direction import leading
from app.ui.model_list import ROW, ModelList, ModelView, is_typed
from app.ui.painting import antialiased, block
from app.ui.popover import Popover

INSET, WIDTH, MOST_ROWS = 6, 340, 8
FIELD_FROM = 4  # models from which on a field to filter them is shown before anybody types


class FilterField(QLineEdit):
    """Where the name is typed; arrows and Enter go to the list."""

    def __init__(self, view: ModelView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setProperty("focusRing", False)
        self.setPlaceholderText(tr("Type to filter"))
        self.setAccessibleName(tr("Filter models"))
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


class AwayRow(MenuRow):
    """A model of a server elsewhere, with its server at the right."""

    def __init__(self, place: Place, parent: QWidget | None = None) -> None:
        super().__init__(place.model.replace("&", "&&"), "away", parent)
        self.place = place
        self.said = f"{place.model} {place.server.name}".casefold()
        self.set_in_use(False)

    def set_in_use(self, in_use: bool) -> None:
        """Whether the open chat is sent there."""
        self.in_use = in_use
        words = (self.place.model, tr("in use") if in_use else "", tr("on {server}, not on this PC",
                 server=self.place.server.name))  # fmt: skip
        self.setAccessibleName(", ".join(part for part in words if part))
        self.update()

    def glyph_colour(self, text: QColor) -> QColor:
        return theme.colour("away")

    def paintEvent(self, event: QPaintEvent) -> None:
        ground, _, ink = self.colours()
        painter, px, leftwards = antialiased(self), theme.px, self.isRightToLeft()
        if ground.alpha() or self.in_use:
            shown = ground if ground.alpha() else theme.colour("away_soft")
            block(painter, QRectF(self.rect()), shown, px(self.radius_px))
        inset, side = px(self.padding_px), px(self.glyph_px)
        left = self.width() - inset - side if leftwards else inset
        icons.paint(painter, self.glyph, QRectF(left, (self.height() - side) / 2, side, side), self.glyph_colour(ink))
        room = self.rect().adjusted(inset, 0, -inset - side - px(8), 0) if leftwards else self.rect().adjusted(
            inset + side + px(8), 0, -inset, 0)  # fmt: skip
        metrics = QFontMetrics(theme.font("meta"))
        server = metrics.elidedText(self.place.server.name, Qt.TextElideMode.ElideRight, room.width() // 2)
        painter.setFont(theme.font("meta"))
        painter.setPen(theme.colour("ink2"))
        painter.drawText(room, leading(not leftwards) | Qt.AlignmentFlag.AlignVCenter, server)
        beside = metrics.horizontalAdvance(server) + px(10)
        room = room.adjusted(beside, 0, 0, 0) if leftwards else room.adjusted(0, 0, -beside, 0)
        painter.setFont(theme.font("row"))
        painter.setPen(ink)
        words = QFontMetrics(painter.font()).elidedText(self.place.model, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, leading(leftwards) | Qt.AlignmentFlag.AlignVCenter, words)


class ModelMenu(Popover):
    """chosen: id of the row to load. place_chosen: a model of a server elsewhere, as app.servers.Place. unload,
    cancel_load, placement_asked and all_models: the acts at its foot."""

    chosen = Signal(str)
    unload = Signal()
    cancel_load = Signal()
    placement_asked = Signal()
    all_models = Signal()
    place_chosen = Signal(object)

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Models"), window, INSET)
        self.models = ModelList(self)
        self.view = ModelView(self.models)
        self.field = FilterField(self.view)
        self._none = Label("", "small", "ink3", wrap=True)
        self.letting_go = MenuRow("", "eject")
        self.placement = MenuRow(tr("How it runs here"), "tune")
        self.all = MenuRow(tr("All models"), "models")
        self._loading = self._looking = self._loaded = False
        self._places: dict[Place, AwayRow] = {}
        self._place: Place | None = None
        self.body.setSpacing(0)
        self.body.addWidget(self.field)
        self._gap = QSpacerItem(0, 0, QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.body.addItem(self._gap)
        self.body.addWidget(self._none)
        self.body.addWidget(self.view)
        self._away_title = Label(tr("Not on this PC"), "metastrong", "away")
        self._away = QVBoxLayout()
        self._away.setSpacing(0)
        self.body.addWidget(self._away_title)
        self.body.addLayout(self._away)
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
        self._loaded = loaded
        self.letting_go.setVisible(loading or loaded)
        self.letting_go.setText(tr("Stop loading") if loading else tr("Unload {model}", model=model).replace("&", "&&"))
        self.letting_go.set_glyph("close" if loading else "eject")
        self._fit()

    def set_places(self, places: Sequence[Place]) -> None:
        """The models of servers elsewhere that were picked."""
        for row in self._places.values():
            self._away.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._places = {place: AwayRow(place) for place in places}
        for place, row in self._places.items():
            row.clicked.connect(partial(self._choose_place, place))
            self._away.addWidget(row)
        self._fit()

    def set_place(self, place: Place | None) -> None:
        """Where the open chat is sent; None: it is answered on this PC."""
        if place != self._place:
            self._place = place
            self._fit()

    def _choose_place(self, place: Place) -> None:
        self.dismiss()
        self.place_chosen.emit(place)

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
        typed = self.field.text().strip()
        some = False
        for place, row in self._places.items():
            row.set_in_use(place == self._place)
            row.setVisible(all(word in row.said for word in typed.casefold().split()))
            some = some or not row.isHidden()
        self._away_title.setVisible(some)
        self._away_title.setContentsMargins(theme.px(10), theme.px(8), theme.px(10), theme.px(3))
        self.placement.setVisible(self._loaded and self._place is None)
        self.view.setFixedHeight(min(max(found, 1), MOST_ROWS) * theme.px(ROW))
        self.field.setVisible(self.models.count + len(self._places) >= FIELD_FROM or bool(self.field.text()))
        self._gap.changeSize(0, theme.px(4) if self.field.isVisibleTo(self) else 0)
        self.body.invalidate()
        self._none.setVisible(not found and not some)
        nothing = tr("Looking what is on this PC") if self._looking else tr("No model lies on this PC yet.")
        self._none.setText(tr("No model here is called “{typed}”.", typed=typed) if typed else nothing)
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
