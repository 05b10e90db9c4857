"""The menu of the preset button: preset, persona, mode and its cost, and the comparison."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.answer_setup import Offer
from app.chat.answers.mode_rates import MODE_TEXTS, rates_text
from app.chat.answers.presets import BALANCED, Preset
from app.translation import figure as number
from app.translation import noted, tr
from app.ui.look import theme
from app.ui.widgets.controls import Label, Rule, Segments
from app.ui.widgets.pick_menu import PickMenu, clear
from app.ui.widgets.pick_row import INSET as ROW_INSET
from app.ui.widgets.pick_row import PickRow

WIDTH = 380
ABOUT = {
    "auto": noted("Chosen for this model"),
    "sparse": noted("Only the neurons that the predictors expect"),
    "exact": noted("Skips inactive neurons; the same text as dense"),
    "dense": noted("Every neuron"),
}
SENT_ALONG = noted(
    "This chat uses a server. It receives temperature, top p, seed, the longest answer and the stop texts."
)
NAMES = {
    "temperature": noted("temperature"),
    "top_p": noted("top p"),
    "top_k": noted("top k"),
    "min_p": noted("min p"),
    "seed": noted("seed"),
}


def figure(preset: Preset, settings_decide: bool) -> str:
    if preset.id == BALANCED:
        return tr("As in Settings") if settings_decide else tr("The model's own")
    if preset.about:
        return preset.about
    parts = [f"{tr(NAMES[name])} {number(value, '.10g')}" for name, value in preset.values.items() if name in NAMES]
    return ", ".join(parts[:2])


def mode_text(offer: Offer) -> str:
    mode = offer.chosen.mode
    if mode == "sparse" and not offer.has_predictors:
        if offer.loaded_mode not in MODE_TEXTS:
            return tr("This model has no predictors, so it answers without them.")
        became = tr(MODE_TEXTS[offer.loaded_mode]).lower()
        return tr("This model has no predictors, so it answers {mode} instead.", mode=became)
    if mode == "auto" and offer.loaded_mode in MODE_TEXTS:
        return tr("Chosen for this model: {mode}.", mode=tr(MODE_TEXTS[offer.loaded_mode]).lower())
    return f"{tr(ABOUT[mode])}."


class PresetMenu(PickMenu):
    """The preset menu. picked: id of a preset. mode_picked: auto, sparse, exact or dense. The others: actions of its
    rows."""

    picked = Signal(str)
    mode_picked = Signal(object)
    adjust_requested = Signal()
    persona_requested = Signal()
    compare_requested = Signal()
    keep_requested = Signal(bool)  # whether to use this for every chat with the model
    edit_requested = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("How answers are made"), window, WIDTH)
        self.add_head(tr("Preset"))
        self._presets = QVBoxLayout()
        self.body.addLayout(self._presets)
        self.adjust = PickRow(tr("Adjust sampling"), "settings")
        self.edit = PickRow(tr("Edit presets"), "pen")
        self.body.addWidget(self.adjust)
        self.body.addWidget(self.edit)
        self.add_rule()
        self.persona = PickRow(tr("System prompt and persona"), "chat")
        self.body.addWidget(self.persona)
        self.add_rule()
        self._neurons = self.add_head(tr("Neurons"))
        self.modes = Segments([(mode, tr(words)) for mode, words in MODE_TEXTS.items()], "auto", tr("Neurons"))
        self._mode_place = QVBoxLayout()
        self._mode_place.addWidget(self.modes, 0, Qt.AlignmentFlag.AlignLeading)
        self.says = Label("", "small", wrap=True)
        self.costs = Label("", "meta", wrap=True)
        self._mode_place.addWidget(self.says)
        self._mode_place.addWidget(self.costs)
        self.body.addLayout(self._mode_place)
        self.compare = PickRow(tr("Compare with dense"), "table")
        self.body.addWidget(self.compare)
        self._last = QWidget()
        last = QVBoxLayout(self._last)
        last.setContentsMargins(0, 0, 0, 0)
        last.setSpacing(0)
        self.keep = PickRow("", "models")
        last.addSpacing(theme.px(5))
        last.addWidget(Rule())
        last.addSpacing(theme.px(5))
        last.addWidget(self.keep)
        self.body.addWidget(self._last)
        self._offer: Offer | None = None
        for row in (self.adjust, self.persona, self.compare):
            row.leads_on = True
        self.adjust.clicked.connect(lambda: self._act(self.adjust_requested))
        self.edit.clicked.connect(lambda: self._act(self.edit_requested))
        self.persona.clicked.connect(lambda: self._act(self.persona_requested))
        self.compare.clicked.connect(lambda: self._act(self.compare_requested))
        self.keep.clicked.connect(self._keep)
        self.modes.picked.connect(self.mode_picked)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def show_offer(self, offer: Offer) -> None:
        """Show the choices and the current ones."""
        before, self._offer, chosen = self._offer, offer, offer.chosen
        if (
            before is None
            or (before.presets, before.settings_decide) != (offer.presets, offer.settings_decide)
            or self._presets.count() == 0
        ):
            clear(self._presets)
            for preset in offer.presets:
                row = PickRow(preset.name, figure=figure(preset, offer.settings_decide))
                row.setProperty("preset", preset.id)
                row.setToolTip(preset.about)
                row.clicked.connect(lambda _=False, preset=preset: self._pick(preset.id))
                self._presets.addWidget(row)
                row.show()  # at once, so that the card's height is right
        for row in self.rows():
            row.set_picked(row.property("preset") == chosen.preset.id)
        self.adjust.set_figure(tr("Changed for this chat") if chosen.is_changed else "")
        self.persona.set_figure(chosen.persona.name if chosen.persona is not None else tr("None"))
        self.modes.set_value(chosen.mode)
        here = not offer.is_elsewhere
        for part in (self._neurons, self.modes, self.compare):
            part.setVisible(here)
        self.says.setText(mode_text(offer) if here else tr(SENT_ALONG))
        self.costs.setText(rates_text(offer.rates) if offer.model and here else "")
        self.costs.setVisible(bool(offer.model) and here)
        self.compare.setEnabled(not offer.cannot_compare)
        self.compare.setToolTip(offer.cannot_compare)
        self.compare.set_figure("" if not offer.cannot_compare else tr("Not now"))
        self._last.setVisible(bool(offer.model) and (not offer.is_default or offer.has_default))
        undoes = offer.is_default and offer.has_default
        self.keep.set_name(tr("Stop using this for every {model} chat", model=offer.model) if undoes
                            else tr("Use this for every chat with {model}", model=offer.model))  # fmt: skip
        self.keep.set_glyph("close" if undoes else "models")
        self.place()

    def rows(self) -> list[PickRow]:
        found = (self._presets.itemAt(i) for i in range(self._presets.count()))
        return [row for item in found if item is not None and isinstance(row := item.widget(), PickRow)]

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        super().open_at(anchor)
        self.focus_first()

    def _pick(self, preset_id: str) -> None:
        self.dismiss()
        self.picked.emit(preset_id)

    def _act(self, signal: object) -> None:
        self.dismiss()
        signal.emit()  # type: ignore[attr-defined]

    def _keep(self) -> None:
        offer = self._offer
        self.dismiss()
        if offer is not None:
            self.keep_requested.emit(not (offer.is_default and offer.has_default))

    def _restyle(self) -> None:
        px = theme.px
        self._mode_place.setContentsMargins(px(ROW_INSET), px(2), px(ROW_INSET), px(6))
        self._mode_place.setSpacing(px(4))
