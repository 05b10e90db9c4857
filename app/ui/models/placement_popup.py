"""The popup with a model's placement on GPU and CPU, the reasons, and how much GPU memory it may use.

Moving the slider requests a preview; only Apply changes the budget and loads the model again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QHBoxLayout, QLayout, QVBoxLayout, QWidget

from app.library_messages import in_users_language
from app.models import model_labels
from app.models.model_labels import Rate
from app.translation import figure, noted, tr
from app.ui.look import theme
from app.ui.look.direction import leading, set_margins
from app.ui.models.draft_choice import DraftChoice
from app.ui.widgets.controls import Button, Label, Rule, ShareBar, Slider
from app.ui.widgets.floating import announce
from app.ui.widgets.popover import Popover
from app.units import NARROW

if TYPE_CHECKING:
    from engine.library.records import Estimate

WIDTH, INSET, STEPS = 420, 18, 10  # slider steps per GiB
LEAST_GIB = 0.5
GIB = 1 << 30
NO_BREAK = "\u00a0"
_DECIMAL = re.compile(rf"(?<![\d.,])\d+\.(\d+)(?=[ {NARROW}](?:GB|MB|tok/s|ms)\b| of \d| von \d)")
_TOGETHER = re.compile(r"(?<=\d) (?=of \d)|(?<=\d of) (?=\d)|(?<=\babout) (?=\d)")  # no line break here
# What the engine says of a placement (engine/service/placement_words.py) and why no model guesses
# (engine/session/drafting.py); the window shows it in the user's language.
PLACEMENT_FACTS = (
    noted("No GPU is used: all of the model in RAM, {memory}"),
    noted("{gpu}: {share} of the active neurons on the GPU, {memory}"),
    noted("{gpu}: {share} of the neurons on the GPU, {memory}"),
    noted("{gpu}: {some} of {all} experts of each layer on the GPU, {memory}"),
    noted("{gpu}: {some} of {all} experts on the GPU, {memory}"),
    noted("About {share} of the experts that a token uses are on the GPU."),
    noted("{gpu}: the attention of {some} of {layers} layers on the GPU, {memory}"),
    noted("{gpu}: the output head on the GPU, {memory}"),
    noted("The rest is in RAM: {memory}, which the CPU computes."),
    noted("There is room for a context of {tokens} tokens."),
    noted(
        "The KV cache on the GPU holds {tokens} tokens until a conversation is longer. It then grows in place of "
        "weights."
    ),
    noted("CPU only: no NVIDIA driver is installed."),
    noted("No model on this PC has the same vocabulary and is small enough."),
    noted("It could not be loaded."),
    noted("{model} computes one token at a time here, so guesses would not help."),
    noted("{model} failed while it guessed."),
    noted("Answers were no faster with {model}."),
    noted("{draft} cannot guess for {model}: its vocabulary is another."),
    noted("{model} takes {memory} of RAM, and {free} are free."),
    noted("No GPU is used: {memory} in RAM, {disk} of experts on the disk"),
    noted(
        "{memory} of experts are read from the disk when they are chosen: about {part} for a token, and nearly all of "
        "them for a prompt."
    ),
)


@dataclass(frozen=True)
class Placed:
    """The loaded model. placement: as in LoadedModelInfo. budget_gib: the user's choice, None for automatic.

    device, reason: where it runs, for an engine that reports no placement. rate: as on its card.
    """

    name: str
    placement: Mapping[str, Any] = field(default_factory=dict)
    budget_gib: float | None = None
    device: str = ""
    reason: str = ""
    rate: Rate | None = None
    drafts: tuple[tuple[str, str], ...] = ()  # ids and names of the models that can guess tokens for it
    draft: str = ""  # the user's choice: an id or "off"; empty: automatic
    guesses: str = ""  # name of the one that guesses now
    no_guesses: str = ""  # why none guesses, in one sentence

    @property
    def total_bytes(self) -> int:
        """The GPU's memory; 0 without a GPU."""
        return int(self.placement.get("vram_total_bytes") or 0)

    @property
    def line(self) -> str:
        where = self.placement.get("where")
        if self.rate is None or not where:
            return tidy(str(self.placement.get("line") or self.device))
        return f"{tidy(str(where))}, {tidy(rate_line(self.rate))}"

    @property
    def why(self) -> list[str]:
        return [tidy(str(words)) for words in self.placement.get("why") or ([self.reason] if self.reason else [])]


def tidy(words: str) -> str:
    """Return the engine's text in the user's language, with figures and units in Hearth's style (GB for GiB)."""
    words = in_users_language(words, PLACEMENT_FACTS)
    for before, after in ((" %", "%"), (f"{NARROW}%", "%"), ("tokens/s", "tok/s"), ("GiB", "GB"), ("MiB", "MB"),
                          ("NVIDIA GeForce ", "")):  # fmt: skip
        words = words.replace(before, after)
    for unit in ("GB", "MB", "tok/s", "ms"):
        words = words.replace(f" {unit}", f"{NARROW}{unit}")
    words = _DECIMAL.sub(lambda found: figure(float(found[0]), f".{len(found[1])}f"), words)
    return _TOGETHER.sub(NO_BREAK, words)


def rate_line(rate: Rate) -> str:
    """Return a rate and how reliable it is, in one line."""
    words, how = model_labels.rate_text(rate)
    return f"{words}, {how}" if how and how != tr(model_labels.ESTIMATED) else words


def consequence(estimate: Estimate, asked_gib: float | None, rate: Rate | None = None) -> tuple[str, str]:
    """Return the effect of another budget: the rate, and the share of neurons and bytes on each side.

    rate: the model's rate with that budget, if known better than by this estimate.
    """
    if estimate.fits == "no":
        missing = model_labels.shortfall(estimate).missing
        return tr("Does not fit"), tr("{memory} of memory is missing.", memory=missing)
    rate = rate or model_labels.rate_of(estimate)
    first = rate_line(rate) if rate is not None else model_labels.speed(estimate)[0]
    share = estimate.gpu_neuron_load
    parts = []
    if share is not None:
        words = noted("{share}% of the active neurons on the GPU")
        if estimate.by_expert:
            words = noted("{share}% of the experts that a token uses on the GPU")
        parts.append(tr(words, share=figure(100 * share, ".0f")))
    parts.append(model_labels.place(estimate))
    if asked_gib is not None and estimate.vram_budget_bytes < (asked_gib - 0.15) * GIB:
        parts.append(tr("only {memory} of the GPU is free", memory=model_labels.memory(estimate.vram_budget_bytes)))
    return first, ". ".join(f"{part[0].upper()}{part[1:]}" for part in parts) + "."


class _Flat(Button):
    """A quiet button that aligns with the text around it: no background, only the text colour changes."""

    def __init__(self, words: str, glyph: str = "") -> None:
        super().__init__(words, "quiet", glyph)
        self.padding_px, self.glyph_px, self.height_px = 0, 14, 32
        self._restyle()

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, ink = super().colours()
        ground.setAlpha(0)
        return ground, border, ink


class PlacementPopup(Popover):
    """preview_requested, budget_chosen: GiB of GPU memory, None for automatic. draft_chosen: as Placed.draft.

    unload: unload the model.
    """

    preview_requested = Signal(object)
    draft_chosen = Signal(str)
    budget_chosen = Signal(object)
    unload = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("How the model runs here"), window, INSET)
        self._placed = Placed("")
        self._wanted: float | None = None  # the slider's value; None: automatic
        self._moved = False
        self.name = Label("", "heading", elide=True)
        self.line = Label("", "small", "ink", wrap=True)
        self.share = ShareBar(height=6)
        self.where = Label("", "meta", wrap=True)
        self.why_button = _Flat(tr("Why?"), "right")
        self._why = QWidget()
        self._reasons = QVBoxLayout(self._why)
        self._budget = QWidget()
        budget = self._budget_column = QVBoxLayout(self._budget)
        budget.setContentsMargins(0, 0, 0, 0)
        self._head = QHBoxLayout()
        self._head.addWidget(Label(tr("GPU memory"), "label"))
        self._head.addStretch(1)
        self.value = Label("", "small", "ink")
        self._head.addWidget(self.value)
        self.slider = Slider(tr("GPU memory for this model"))
        self.slider.setToolTip(tr("Double click: automatic"))
        self.slider.setPageStep(STEPS)
        self.speed = Label("", "smallstrong", "ink")
        self.effect = Label("", "meta", wrap=True)
        budget.addWidget(Rule())
        budget.addLayout(self._head)
        budget.addWidget(self.slider)
        budget.addWidget(self.speed)
        budget.addWidget(self.effect)
        self.drafts = DraftChoice()
        self.automatic = _Flat(tr("Automatic"))
        self.unload_button = Button(tr("Unload"))
        self.apply = Button(tr("Apply"), "primary")
        self._buttons = QHBoxLayout()
        self._buttons.addWidget(self.automatic)
        self._buttons.addStretch(1)
        self._buttons.addWidget(self.unload_button)
        self._buttons.addWidget(self.apply)
        self._why_row = QHBoxLayout()
        self._why_row.addWidget(self.why_button)
        self._why_row.addStretch(1)
        for part in (self.name, self.line, self.share, self.where, self._why_row, self._why, self._budget,
                     self.drafts, self._buttons):  # fmt: skip
            if part is self.share:
                self.body.addSpacing(theme.px(2))
            if isinstance(part, QLayout):
                self.body.addLayout(part)
            else:
                self.body.addWidget(part)
        self.why_button.clicked.connect(lambda: self.show_why(self._why.isHidden()))
        self.slider.valueChanged.connect(self._slid)
        self.slider.reset.connect(self._want_automatic)
        self.drafts.picked.connect(self.draft_chosen)
        self.automatic.clicked.connect(self._want_automatic)
        self.unload_button.clicked.connect(self._unload)
        self.apply.clicked.connect(self._choose)
        theme.current().changed.connect(self._restyle)
        self.show_why(False)
        self._restyle()

    def width_px(self) -> int:
        return WIDTH

    @property
    def budget_gib(self) -> float | None:
        """The slider's value; None: automatic."""
        return self._wanted

    # --- updates

    def show_model(self, placed: Placed) -> None:
        """Show the loaded model. A slider moved for the same model keeps its value."""
        same, self._placed = placed.name == self._placed.name and placed.total_bytes == self._placed.total_bytes, placed
        self.name.setText(placed.name)
        self.line.setText(placed.line)
        held, ram = int(placed.placement.get("vram_bytes") or 0), int(placed.placement.get("ram_bytes") or 0)
        self.share.setVisible(held > 0)
        self.share.set_share(held / max(held + ram, 1))
        parts = [tr("{memory} on the GPU", memory=model_labels.memory(held))] if held else []
        parts += [tr("{memory} in RAM", memory=model_labels.memory(ram))] if ram else []
        disk = int(placed.placement.get("disk_bytes") or 0)
        parts += [tr("{memory} of experts on the disk", memory=model_labels.memory(disk))] if disk else []
        self.where.setText(", ".join(parts))
        self.where.setVisible(held > 0)  # without a GPU, the line above says it
        self._show_reasons(placed.why)
        self._budget.setVisible(placed.total_bytes > 0)
        self.drafts.show_choices(placed.drafts, placed.draft, placed.guesses, tidy(placed.no_guesses))
        if not (same and self._moved):
            self._settle()
        self._tell()

    def take_estimate(self, estimate: Estimate) -> None:
        """Show the effect of the budget of the last preview request."""
        if not self._moved:
            return
        before, now = self._placed.placement.get("predicted_tok_s"), self._placed.rate
        if now is None and before:
            now = Rate(float(before))
        then = now.changed(before, estimate.predicted_tok_s) if now is not None and now.is_measured else None
        speed, effect = consequence(estimate, self._wanted, then)
        bad = estimate.fits == "no"
        if now is not None and not bad:
            speed += "  ·  " + tr("now {rate}", rate=rate_line(now))
        self.speed.set_look("smallstrong", "bad" if bad else "ink")
        self.speed.setText(speed)
        self.effect.setText(effect)
        self._tell(fits=not bad)

    def show_why(self, shown: bool) -> None:
        self._why.setVisible(shown)
        self.why_button.set_glyph("down" if shown else "right")
        self.why_button.setAccessibleName(tr("Hide the reasons") if shown else tr("Why?"))

    def _show_reasons(self, reasons: list[str]) -> None:
        while self._reasons.count():
            item = self._reasons.takeAt(0)
            if item is not None and (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        for words in reasons:
            self._reasons.addWidget(Label(words, "small", wrap=True))
        self._lead()
        self.why_button.setVisible(bool(reasons))
        if not reasons:
            self.show_why(False)

    def _lead(self) -> None:
        """Align wrapped text with the leading edge."""
        side = leading(self.isRightToLeft()) | Qt.AlignmentFlag.AlignVCenter
        for label in self.findChildren(Label):
            if label.wordWrap():
                label.setAlignment(side)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LayoutDirectionChange:
            self._restyle()
            self._lead()

    def _settle(self) -> None:
        """Reset the slider to the model's budget."""
        placed, self._moved, self._wanted = self._placed, False, self._placed.budget_gib
        total = placed.total_bytes / GIB
        self.slider.blockSignals(True)
        self.slider.setRange(round(LEAST_GIB * STEPS), max(round(LEAST_GIB * STEPS) + 1, int(total * STEPS)))
        self.slider.setValue(self._place_of(placed.budget_gib))
        self.slider.blockSignals(False)
        self.speed.setText("")
        self.effect.setText(tr("Less leaves room for other programs; more makes answers faster."))

    def _place_of(self, budget_gib: float | None) -> int:
        automatic = (self._placed.placement.get("vram_budget_bytes") or 0) / GIB
        return round((automatic if budget_gib is None else budget_gib) * STEPS)

    def _tell(self, fits: bool = True) -> None:
        placed, wanted = self._placed, self._wanted
        shown = self.slider.value() / STEPS
        total = placed.total_bytes / GIB
        amount = ""
        if total:
            amount = tr("{used} of {total}\u202fGB", used=figure(shown, ".1f"), total=figure(total, ".0f"))
        self.value.setText(tr("Automatic, {amount}", amount=amount) if wanted is None else amount)
        self.slider.set_automatic(wanted is None)
        said = (self.value.words, self.speed.words, self.effect.words)
        self.slider.setAccessibleDescription(". ".join(words.rstrip(".") for words in said if words))
        self.speed.setVisible(bool(self.speed.words))
        changed = self._moved and wanted != placed.budget_gib
        self.automatic.setVisible(wanted is not None and placed.total_bytes > 0)
        self.apply.setVisible(changed)
        self.apply.setEnabled(changed and fits)
        good, bad = tr("Reloads the model with this limit. The chat stays."), tr("It does not fit with this limit")
        self.apply.setToolTip(good if fits else bad)
        self.unload_button.setToolTip(tr("Frees its memory. The chat stays."))

    # --- user actions

    def _slid(self, value: int) -> None:
        self._wanted, self._moved = value / STEPS, True
        self._tell()
        self.preview_requested.emit(self._wanted)

    def _want_automatic(self) -> None:
        if self._wanted is None:
            return
        self._wanted, self._moved = None, True
        self.slider.blockSignals(True)
        self.slider.setValue(self._place_of(None))
        self.slider.blockSignals(False)
        if self._placed.budget_gib is None:  # back at the current budget: no preview needed
            self._settle()
        self._tell()
        if self._moved:
            self.preview_requested.emit(None)
        if self.automatic.isHidden():
            self.slider.setFocus(Qt.FocusReason.OtherFocusReason)

    def _choose(self) -> None:
        wanted, self._moved = self._wanted, False
        self.dismiss()
        self.budget_chosen.emit(wanted)

    def _unload(self) -> None:
        self.dismiss()
        self.unload.emit()

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        self.show_why(False)
        self._settle()
        self._tell()
        super().open_at(anchor)
        first = self.why_button if self.why_button.isVisible() else self.unload_button
        first.setFocus(Qt.FocusReason.PopupFocusReason)
        announce(self, f"{self._placed.name}. {self._placed.line}")

    def _restyle(self) -> None:
        px = theme.px
        self.body.setSpacing(px(6))
        set_margins(self._reasons, px(14 + 8), 0, 0, px(4), self.isRightToLeft())
        self._reasons.setSpacing(px(6))
        self._budget_column.setSpacing(px(4))
        self._buttons.setSpacing(px(8))
        self._buttons.setContentsMargins(0, px(4), 0, 0)
        self._head.setContentsMargins(0, px(8), 0, 0)
