"""How a model runs here: the line, the reasons, and the slider with what would come of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_library import estimate
from person import Arrive
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QMainWindow, QPushButton, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app import translation
from app.clients.engine_status import EngineStatus, Phase
from app.ui.look import theme
from app.ui.models.placement_popup import (
    GIB,
    NO_BREAK,
    PLACEMENT_FACTS,
    Placed,
    PlacementPopup,
    consequence,
    tidy,
)
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Label
from app.units import NARROW
from engine.gpu import placement_text
from engine.machine import graphics, hardware
from engine.service import placement_words
from engine.session import drafting

pytestmark = pytest.mark.gui

WHY = [
    "The RTX 4090 is used because it has the most free memory of the cards that can be used here.",
    "21.5 GiB of its memory are free; 0.5 GiB stay free for the desktop and for other programs that draw.",
    "Eine Erklärung in einer Sprache mit Grundstücksverkehrsgenehmigungszuständigkeitsübertragungen.",
]
PLACEMENT: dict[str, Any] = {
    "line": "NVIDIA GeForce RTX 4090: 71 % of the active neurons on the GPU, 21.3 of 24 GB, about 11 tokens/s",
    "why": WHY, "gpu_neuron_load": 0.71, "hot_share": 0.2, "vram_bytes": int(21.3 * GIB), "vram_total_bytes": 24 * GIB,
    "vram_budget_bytes": int(21.5 * GIB), "ram_bytes": 30 * GIB, "predicted_tok_s": 11.2, "context": 4096,
    "is_automatic": True,
}  # fmt: skip
PLACED = Placed("ReluLLaMA 70B", PLACEMENT)
ON_CPU = Placed("Pip", {"line": "No GPU is used: all of the model in RAM, 0.1 GB, about 310 tokens/s", "why": WHY[:1],
                        "vram_total_bytes": 0, "vram_bytes": 0, "ram_bytes": GIB // 10})  # fmt: skip


class Window(QMainWindow):
    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)


@pytest.fixture
def popup(qtbot: QtBot, qapp: QApplication) -> Iterator[PlacementPopup]:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    window = Window()
    anchor = QPushButton("Engine", window)
    anchor.setGeometry(10, 690, 236, 60)
    window.resize(1100, 760)
    focus_ring.install(window)
    qtbot.addWidget(window)
    window.show()
    window.activateWindow()
    out = PlacementPopup(window)
    out.show_model(PLACED)
    out.open_at(anchor)
    yield out
    if theme.current().zoom != 1.0 or theme.current().is_dark:
        theme.apply(qapp, "light", 1.0)


def cut(root: QWidget) -> list[str]:
    labels = [label for label in root.findChildren(Label) if label.isVisible() and label.words]
    return [
        label.words for label in labels if label.wordWrap() and label.heightForWidth(label.width()) > label.height()
    ]


# --- words


def test_the_line_has_figures_as_the_product_writes_them() -> None:
    assert PLACED.line.startswith("RTX 4090: ")
    assert numbers_in(PLACED.line)[1:] == ["71%", "21.3", "24 GB", "11 tok/s"]
    assert tidy("2.5 GiB and 12 MiB in 30 ms") == "2.5\u202fGB and 12\u202fMB in 30\u202fms"


def test_an_engine_that_tells_no_placement_leaves_where_it_runs() -> None:
    placed = Placed("Pip", {}, None, "CPU, 7 threads", "No NVIDIA driver is installed.")
    assert (placed.line, placed.why, placed.total_bytes) == (
        "CPU, 7 threads", ["No NVIDIA driver is installed."], 0)  # fmt: skip


def test_a_budget_has_a_rate_with_its_range_and_a_place() -> None:
    speed, effect = consequence(estimate("hybrid", 10.0, 12, 30), 12.0)
    assert numbers_in(speed) == ["10 tok/s", "8", "11"]
    assert numbers_in(effect)[0] == "71%"
    assert numbers_in(effect)[-1] == "10.2 GB", "what is free of the GPU"
    assert "experts" in consequence(replace(estimate("hybrid", 10.0, 12, 30), by_expert=True), 12.0)[1]
    speed, effect = consequence(estimate("no", None, 12, 30, short=2.147483648), 0.5)
    assert (numbers_in(speed), numbers_in(effect)) == ([], ["2.1 GB"])


# --- the card


def test_it_shows_the_line_the_bar_and_on_request_the_reasons(popup: PlacementPopup, qtbot: QtBot) -> None:
    assert popup.line.text() == PLACED.line
    assert popup.share.isVisible()
    assert popup.share.share == pytest.approx(21.3 / 51.3)
    assert numbers_in(popup.where.words) == ["21.3 GB", "30.0 GB"]
    assert popup._why.isHidden()
    low = popup.height()
    qtbot.mouseClick(popup.why_button, Qt.MouseButton.LeftButton)
    QTest.qWait(20)
    shown = [label.words for label in popup._why.findChildren(Label) if label.isVisible()]
    assert shown == [tidy(words) for words in WHY]
    assert popup.height() > low
    assert cut(popup) == []
    assert popup._area.verticalScrollBar().maximum() == 0
    qtbot.mouseClick(popup.why_button, Qt.MouseButton.LeftButton)
    QTest.qWait(20)
    assert popup.height() == low


def test_the_slider_asks_shows_and_only_apply_changes(popup: PlacementPopup, qtbot: QtBot) -> None:
    asked: list[float | None] = []
    chosen: list[float | None] = []
    popup.preview_requested.connect(asked.append)
    popup.budget_chosen.connect(chosen.append)
    assert numbers_in(popup.value.words) == ["21.5", "24 GB"]
    assert popup.apply.isHidden()
    assert popup.automatic.isHidden()
    popup.slider.setFocus()
    qtbot.keyClick(popup.slider, Qt.Key.Key_PageDown)
    assert asked == [20.5]
    assert numbers_in(popup.value.words) == ["20.5", "24 GB"]
    popup.take_estimate(estimate("hybrid", 10.0, 20, 32))
    assert numbers_in(popup.speed.words) == ["10 tok/s", "8", "11", "11 tok/s"]
    assert numbers_in(popup.slider.accessibleDescription())[:5] == ["20.5", "24 GB", "10 tok/s", "8", "11"]
    assert chosen == []
    assert popup.apply.isVisible()
    qtbot.mouseClick(popup.apply, Qt.MouseButton.LeftButton)
    assert chosen == [20.5]
    assert not popup.is_open


def test_automatic_is_one_press_or_double_click_away(popup: PlacementPopup, qtbot: QtBot) -> None:
    asked: list[float | None] = []
    chosen: list[float | None] = []
    popup.preview_requested.connect(asked.append)
    popup.budget_chosen.connect(chosen.append)
    popup.slider.setValue(80)
    qtbot.keyClick(popup.slider, Qt.Key.Key_Backspace)
    assert numbers_in(popup.value.words) == ["21.5", "24 GB"]
    assert popup.apply.isHidden(), "it is what is loaded"
    popup.show_model(Placed("ReluLLaMA 70B", {**PLACEMENT, "is_automatic": False}, 8.0))
    assert numbers_in(popup.value.words) == ["8.0", "24 GB"]
    assert popup.automatic.isVisible()
    asked.clear()
    qtbot.mouseClick(popup.automatic, Qt.MouseButton.LeftButton)
    assert asked == [None]
    assert popup.apply.isVisible()
    assert popup.slider.hasFocus(), "the button that had the focus has gone"
    popup.take_estimate(estimate("hybrid", 12.0))
    qtbot.mouseClick(popup.apply, Qt.MouseButton.LeftButton)
    assert chosen == [None]


def test_what_does_not_fit_cannot_be_applied(popup: PlacementPopup) -> None:
    popup.slider.setValue(20)
    popup.take_estimate(estimate("no", None, 2, 60, short=3))
    assert popup.speed.words == "Does not fit"
    assert popup.speed.token == "bad"
    assert not popup.apply.isEnabled()
    popup.slider.setValue(200)
    popup.take_estimate(estimate("hybrid", 11.0))
    assert popup.apply.isEnabled()
    assert popup.speed.token == "ink"


def test_what_comes_meanwhile_does_not_move_the_slider(popup: PlacementPopup) -> None:
    popup.slider.setValue(100)
    popup.show_model(Placed("ReluLLaMA 70B", {**PLACEMENT, "vram_bytes": 20 * GIB}))
    assert popup.slider.value() == 100
    assert popup.where.words.startswith("20.0\u202fGB on the GPU")
    popup.show_model(ON_CPU)
    assert not popup.slider.isVisible()


def test_without_a_gpu_there_is_nothing_to_set(popup: PlacementPopup) -> None:
    popup.show_model(ON_CPU)
    QTest.qWait(20)
    assert popup.line.text().startswith("No GPU is used")
    assert popup.share.isHidden()
    assert not popup.slider.isVisible()
    assert popup.unload_button.isVisible()
    assert cut(popup) == []


def test_esc_gives_the_focus_back_and_tab_stays_inside(popup: PlacementPopup, qtbot: QtBot) -> None:
    window = popup.window()
    seen = []
    for _ in range(4):
        focus = QApplication.focusWidget()
        assert isinstance(focus, QWidget)
        assert popup.isAncestorOf(focus)
        seen.append(focus)
        QTest.keyClick(focus, Qt.Key.Key_Tab)
    assert seen[:3] == [popup.why_button, popup.slider, popup.unload_button]
    assert seen[3] is popup.why_button
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert not popup.is_open
    assert window.isVisible()


@pytest.mark.parametrize(("size", "zoom"), [((720, 520), 1.0), ((720, 520), 1.6), ((1920, 1080), 1.6)])
@pytest.mark.parametrize("direction", [Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft])
def test_it_stays_in_the_window_and_scrolls_what_has_no_room(
    popup: PlacementPopup, qapp: QApplication, size: tuple[int, int], zoom: float, direction: Qt.LayoutDirection
) -> None:
    window = popup.window()
    window.setLayoutDirection(direction)
    window.resize(*size)
    theme.apply(qapp, "dark", zoom)
    popup.show_why(True)
    QTest.qWait(50)
    card = popup.geometry().adjusted(24, 24, -24, -24)
    assert window.rect().contains(card)
    assert cut(popup) == []
    assert popup._area.horizontalScrollBar().maximum() == 0


def test_everything_that_takes_the_focus_has_a_name(popup: PlacementPopup) -> None:
    for widget in popup.findChildren(QWidget):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            assert widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text()), widget


# --- in the window


def test_the_engines_card_opens_it_and_a_budget_loads_the_model_again(arrive: Arrive, qtbot: QtBot) -> None:
    person = arrive("in-thread", model="fake-gpu")
    person.wait_ready()
    parts = person.window.chat_models
    assert parts is not None
    card = person.window.sidebar.panel.engine
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    assert parts.popup.is_open
    assert parts.popup.line.text() == "RTX 4090 + CPU, 1 thread"
    parts.popup.dismiss()
    status = person.hearth.engine.status
    person.hearth.engine._set(placement=PLACEMENT)
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    parts.popup.slider.setValue(120)
    person.wait(lambda: parts.popup.speed.words)
    qtbot.mouseClick(parts.popup.apply, Qt.MouseButton.LeftButton)
    person.wait(lambda: "2.7 GB" in numbers_in(person.hearth.engine.status.device_reason))
    person.wait_ready()
    assert person.hearth.choices.of("fake-gpu").vram_budget_gib == 12.0
    assert status.model == person.hearth.engine.status.model


def test_it_goes_when_the_model_does(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    parts = person.window.chat_models
    assert parts is not None
    parts.open_placement(person.page.composer.model_button)
    assert parts.popup.is_open
    person.hearth.controller.unload()
    person.wait(lambda: person.hearth.engine.status.phase is Phase.OFF)
    assert not parts.popup.is_open
    parts.open_placement(person.page.composer.model_button)
    assert parts.menu.is_open, "there is nothing to tell, but something to choose"
    assert isinstance(parts._status, EngineStatus)


def test_the_line_is_in_the_users_language(monkeypatch: pytest.MonkeyPatch) -> None:
    german = {PLACEMENT_FACTS[0]: "Alles im RAM, {memory}", PLACEMENT_FACTS[1]: "{gpu}: {share} auf der GPU, {memory}"}
    monkeypatch.setattr(translation, "_installed", lambda text, about, count: german.get(text, ""))
    monkeypatch.setattr(translation, "_marks", str.maketrans({".": ",", ",": "."}))
    translation._found.cache_clear()
    assert tidy("No GPU is used: all of the model in RAM, 0.4 GB") == f"Alles im RAM, 0,4{NARROW}GB"
    card = tidy("NVIDIA GeForce RTX 4090: 71% of the active neurons on the GPU, 21.3 of 24 GB")
    assert card == f"RTX 4090: 71% auf der GPU, 21,3{NO_BREAK}of{NO_BREAK}24{NARROW}GB"
    translation._found.cache_clear()


def test_what_is_translated_is_what_the_engine_says() -> None:
    modules = placement_words, placement_text, hardware, graphics, drafting
    source = "".join(Path(str(one.__file__)).read_text(encoding="utf-8") for one in modules).lower()
    for fact in PLACEMENT_FACTS:
        parts = re.split(r"\{\w+\}|of the (?:active )?|[:,] | on the gpu| of ram|\.$", fact.lower())
        assert all(part.strip() in source for part in parts), fact


# --- a smaller model that guesses


def test_a_smaller_model_can_be_chosen_only_where_there_is_one(
    popup: PlacementPopup, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert popup.drafts.isHidden()
    popup.show_model(replace(PLACED, drafts=(("a/small", "Small 0.5B"),), guesses="Small 0.5B"))
    segments = popup.drafts.segments
    assert segments is not None
    assert popup.drafts.isVisible()
    assert (list(segments.buttons), segments.value()) == (["", "off", "a/small"], "")
    assert "Small 0.5B" in popup.drafts.effect.words
    with qtbot.waitSignal(popup.draft_chosen) as chosen:
        segments.buttons["off"].click()
    assert chosen.args == ["off"]
    assert popup.is_open, "it shows what becomes of the choice"
    monkeypatch.setattr(translation, "_found", lambda text, *_: text.replace("could not be loaded", "failed"))
    monkeypatch.setattr(translation, "_installed", lambda *_: "")
    why = "It could not be loaded."
    popup.show_model(replace(PLACED, drafts=(("a/small", "Small 0.5B"),), draft="a/small", no_guesses=why))
    assert segments.value() == "a/small"
    assert "Small 0.5B" not in popup.drafts.effect.words
    assert "It failed." in popup.drafts.effect.words


def test_the_chosen_smaller_model_is_shown_though_it_is_small_or_removed(popup: PlacementPopup) -> None:
    drafts = tuple((f"a/{n}", f"Model {n}") for n in range(5))
    for chosen in ("a/4", "a/removed", "a/0", ""):
        popup.show_model(replace(PLACED, drafts=drafts, draft=chosen))
        segments = popup.drafts.segments
        assert segments is not None
        assert segments.value() == chosen
        assert len(segments.buttons) == 5
    popup.show_model(replace(PLACED, draft="a/removed"))
    assert popup.drafts.isVisible(), "another choice must be possible"
