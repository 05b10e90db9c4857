"""The model menu of the composer: models that can answer, their speed here, and unloading. Typing filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QEnterEvent, QKeyEvent
from PySide6.QtWidgets import QSizePolicy, QSpacerItem, QWidget

from app.clients.servers import Place
from app.models.model_rows import ModelRow
from app.translation import tr
from app.ui.look import theme
from app.ui.models.model_list import ROW, Entry, ModelList, ModelView, move_of
from app.ui.widgets.controls import Button, Label, Rule
from app.ui.widgets.popover import Popover, is_typed
from app.ui.widgets.search_field import GlassField

INSET, WIDTH, MOST_ROWS = 6, 340, 8
FIELD_FROM = 4  # from this number on, the filter field is always shown


class FilterField(GlassField):
    """The filter field; arrows and Enter go to the list."""

    def __init__(self, view: ModelView, parent: QWidget | None = None) -> None:
        super().__init__(tr("Type to filter"), tr("Filter models"), parent)
        self._view = view
        self.setProperty("focusRing", False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, step = event.key(), move_of(event)
        if step and key not in {Qt.Key.Key_Home, Qt.Key.Key_End}:  # these two move the cursor
            self._view.move_mark(step)
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self._view.choose()
        elif key == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif key == Qt.Key.Key_Escape:
            event.ignore()  # the menu closes
        else:
            super().keyPressEvent(event)


class MenuRow(Button):
    """An action at the foot of the menu. pointed: the mouse has entered it."""

    pointed = Signal()

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

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.pointed.emit()


class ModelMenu(Popover):
    """The model menu.

    chosen: id of the row to load. place_chosen: a model of a server, as app.clients.servers.Place. unload, cancel_load,
    placement_requested, compare_requested, all_models: its actions. again: id of the answer that the chosen model
    regenerates; empty if the choice is for the next messages.
    """

    chosen = Signal(str)
    unload = Signal()
    cancel_load = Signal()
    placement_requested = Signal()
    compare_requested = Signal()
    all_models = Signal()
    place_chosen = Signal(object)

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Models"), window, INSET)
        self.again = ""
        self._purpose = Label(tr("Answer again with"), "meta", "ink2")
        self.models = ModelList(self)
        self.view = ModelView(self.models, self._is_led)
        self.field = FilterField(self.view)
        self._none = Label("", "small", "ink3", wrap=True)
        self.letting_go = MenuRow("", "eject")
        self.placement = MenuRow(tr("How it runs here"), "tune")
        self.compare = MenuRow(tr("Compare models"), "table")
        self.all = MenuRow(tr("All models"), "models")
        self._loading = self._looking = self._loaded = False
        self.body.setSpacing(0)
        self.body.addWidget(self._purpose)
        self.body.addWidget(self.field)
        self._gap = QSpacerItem(0, 0, QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.body.addItem(self._gap)
        self.body.addWidget(self._none)
        self.body.addWidget(self.view)
        self._rule = Rule()
        self.body.addSpacing(theme.px(5))
        self.body.addWidget(self._rule)
        self.body.addSpacing(theme.px(5))
        for row in (self.placement, self.letting_go, self.compare, self.all):
            self.body.addWidget(row)
            # one highlight only: Enter chooses no model while the mouse is here
            row.pointed.connect(lambda: self.view.mark(-1))
        self.field.textChanged.connect(self._typed)
        self.view.chosen.connect(self._choose)
        self.placement.clicked.connect(lambda: self._act(self.placement_requested))
        self.letting_go.clicked.connect(lambda: self._act(self.cancel_load if self._loading else self.unload))
        self.compare.clicked.connect(lambda: self._act(self.compare_requested))
        self.all.clicked.connect(lambda: self._act(self.all_models))
        theme.current().changed.connect(self._fit)

    def _is_led(self) -> bool:
        return self.field.hasFocus() or self.view.hasFocus()

    def width_px(self) -> int:
        return WIDTH

    def outdent_px(self) -> int:
        return INSET + 1  # aligns the icons of its rows with the button's icon: padding is 10 here, 9 there

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        """Set all known models; those on this PC are shown."""
        self._change(lambda: self.models.set_rows(rows))

    def _change(self, change: Callable[[], None]) -> None:
        """Change the list and keep the mark on the same model, so that Enter never chooses another in its place."""
        marked, was_empty = self.view.marked, not self.models.rows
        change()
        self.view.mark(self.models.row_in_use() if was_empty else self.models.row_like(marked))
        self._fit()

    def set_state(self, model: str, loading: bool, loaded: bool) -> None:
        """Set the loaded model's name and whether it is loading or loaded."""
        self._loading = loading
        self._loaded = loaded
        self.letting_go.setText(tr("Stop loading") if loading else tr("Unload {model}", model=model).replace("&", "&&"))
        self.letting_go.set_glyph("close" if loading else "eject")
        self._fit()

    def set_places(self, places: Sequence[Place]) -> None:
        self._change(lambda: self.models.set_places(places))

    def set_place(self, place: Place | None) -> None:
        """Set the server model that answers the open chat; None: this PC."""
        if place != self.models.place:
            self.models.set_place(place)
            self._fit()

    def set_looking(self, looking: bool) -> None:
        """Set whether the search for models on this PC is still running."""
        self._looking = looking
        self._fit()

    def open_at(self, anchor: QWidget, again: str = "") -> None:
        """Open for the next messages, or to regenerate the answer `again`."""
        if self.is_open:
            return
        self.again = again
        self.field.clear()
        self._fit()
        super().open_at(anchor)
        in_use = self.models.row_in_use()
        self.view.mark(in_use if in_use >= 0 else self.models.first_usable())
        target = self.field if self.field.isVisibleTo(self) else self.view
        target.setFocus(Qt.FocusReason.PopupFocusReason)

    def _typed(self, text: str) -> None:
        self.models.set_typed(text)
        self.view.mark(self.models.first_usable())
        self._fit()

    def _choose(self, entry: Entry) -> None:
        self.dismiss()
        if isinstance(entry, Place):
            self.place_chosen.emit(entry)
        else:
            self.chosen.emit(entry.id)

    def _act(self, signal: object) -> None:
        self.dismiss()
        signal.emit()  # type: ignore[attr-defined]

    def _fit(self) -> None:
        found = len(self.models.rows)
        self.view.setVisible(found > 0)
        typed = self.field.text().strip()
        self._purpose.setVisible(bool(self.again))
        self.letting_go.setVisible((self._loading or self._loaded) and not self.again)
        self.compare.setVisible(not self.again and self.models.count > 0)
        self._purpose.setContentsMargins(theme.px(10), theme.px(6), theme.px(10), theme.px(4))
        self.placement.setVisible(self._loaded and self.models.place is None and not self.again)
        self.view.setFixedHeight(self.view.height_of(MOST_ROWS) or theme.px(ROW))
        self.field.setVisible(self.models.count >= FIELD_FROM or bool(self.field.text()))
        self._gap.changeSize(0, theme.px(4) if self.field.isVisibleTo(self) else 0)
        self.body.invalidate()
        self._none.setVisible(not found)
        nothing = tr("Looking for models on this PC") if self._looking else tr("No models on this PC yet.")
        self._none.setText(tr("No models match “{typed}”.", typed=typed) if typed else nothing)
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
