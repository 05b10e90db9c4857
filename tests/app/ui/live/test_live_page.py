"""The Live page: what it shows, when it asks for figures, how it is read without a mouse, and how it looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_scenes import GROUPS, LAYERS, ON_CARD, ON_CPU, a_live, a_live_of_experts, a_minute, a_result
from person import Arrive
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily
from support.shown_text import numbers_in

from app.chat.answer_setup import Offer
from app.chat.answers.answer_choices import Chosen
from app.chat.answers.presets import Preset
from app.clients.engine_status import EngineStatus, Phase
from app.clients.live_figures import LiveFigures
from app.ui.live import live_page
from app.ui.live.live_graph import round_top
from app.ui.live.live_page import NO_MODEL, LivePage
from app.ui.look import theme
from app.units import NARROW
from engine.service.protocol import Live

pytestmark = pytest.mark.gui

OUTPUT = Path(__file__).parents[3] / "output"


class Room:
    """A page with a minute behind it."""

    def __init__(
        self, qtbot: QtBot, status: EngineStatus = ON_CARD, n_gpus: int = 1, live: Live | None = None, lost_at: int = 99
    ) -> None:
        self.qtbot = qtbot
        self.figures = LiveFigures()
        self.now = a_minute(self.figures, status, n_gpus, lost_at)
        if live is not None:
            self.figures.take_live(live)
        self.page = LivePage(self.figures, lambda: self.now)
        self.watching: list[bool] = []
        self.page.watching.connect(self.watching.append)
        qtbot.addWidget(self.page)
        self.page.resize(1024, 800)

    def show(self, live: Live | None = None) -> None:
        self.page.show()
        if live is not None:
            self.figures.take_live(live)
            self.page.set_live(live)
        self.qtbot.waitUntil(lambda: not self.page._soon.isActive())


def test_only_what_is_seen_is_asked_for(qtbot: QtBot) -> None:
    room = Room(qtbot)
    assert room.watching == []
    room.show()
    assert room.watching == [True]
    room.page.set_seen(False)  # the window is minimised
    assert room.watching == [True, False]
    room.page.set_seen(True)
    room.page.hide()
    assert room.watching == [True, False, True, False]
    painted = room.page.speed.accessibleName()
    room.figures.take_status(replace(ON_CARD, phase=Phase.OFF, model=""))
    room.page.set_status()
    room.page.show_machine()
    room.page.set_live(a_live())
    QTest.qWait(2 * live_page.SHOW_MS)
    assert room.page.speed.accessibleName() == painted
    assert not room.page.neurons._fired


def test_it_says_all_that_it_shows(qtbot: QtBot) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    page = room.page
    assert page.state.words.startswith("Bamboo DPO 7B ")
    assert page.mode.text() == "Sparse mode"
    said = page.speed.accessibleName()
    assert {"39.1", "13.8%", "83%"} <= set(numbers_in(said))
    assert numbers_in(page.token.accessibleName())
    assert [card.accessibleName().split(",")[0] for card in page.graphs][1] == "NVIDIA GeForce RTX 4070"
    assert numbers_in(page.neurons.accessibleName()) == [str(LAYERS), "39%"]


def test_experts_are_shown_where_a_model_has_them(qtbot: QtBot) -> None:
    live = a_live_of_experts()
    room = Room(qtbot, live=live)
    room.show(live)
    page = room.page
    assert {"8", "128", "87%"} <= set(numbers_in(page.speed.accessibleName()))
    assert numbers_in(page.neurons.accessibleName()) == ["48", "42%"]
    picture = page.neurons._picture()
    assert (picture.width(), picture.height()) == (48, 64)
    hottest, coldest = page.neurons.cell_text(0, 0), page.neurons.cell_text(0, 63)
    assert f"{live.chosen[0][0]}%" in numbers_in(hottest)
    assert "on the GPU" in hottest
    assert "on the CPU" in coldest
    before = picture.pixelColor(0, 63)
    resident = [[0, *row[1:]] for row in live.resident]
    page.neurons.set_experts(live.chosen, resident, live.n_experts)
    assert page.neurons._picture().pixelColor(0, 63) != before, "an expert has left the GPU"
    page.neurons.set_experts([], [], 0)
    assert page.neurons._picture().height() < 64


def test_at_rest_the_page_says_what_it_will_show(qtbot: QtBot) -> None:
    room = Room(qtbot, live=replace(a_live(), token_s=None, id="", fired=[]))
    room.figures.result = None
    room.page.show()
    room.figures.take_status(replace(room.figures.status, phase=Phase.READY))
    room.page._machine_is_new = True
    room.page._show()
    said = [card.accessibleName() for card in (room.page.speed, room.page.token, room.page.neurons)]
    assert all("Ask something" in words for words in said), said
    room.figures.take_status(replace(room.figures.status, phase=Phase.WRITING))
    room.page._show()
    assert "Ask something" not in room.page.neurons.accessibleName()


def test_why_nothing_can_be_compared_is_told_on_the_button(qtbot: QtBot) -> None:
    page = Room(qtbot).page
    balanced = Preset("balanced", "Balanced", {})
    page.set_offer(
        Offer(Chosen(None, balanced, {}, "auto", ""), (balanced,), "llama3", "", cannot_compare="It is away.")
    )
    assert not page.compare.isEnabled()
    assert page.compare.toolTip() == "It is away."


def test_the_mode_is_a_word_and_a_switch(qtbot: QtBot) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    page, picked = room.page, list[str]()
    page.mode_picked.connect(picked.append)
    assert page.modes.isHidden(), "nobody has said what there is to choose"
    balanced = Preset("balanced", "Balanced", {})
    offer = Offer(Chosen(None, balanced, {}, "auto", ""), (balanced,), "Bamboo DPO 7B", "exact")
    page.set_offer(offer)
    assert page.modes.isVisible()
    assert (page.modes.value(), page.mode.text()) == ("auto", "Sparse mode"), "what the answer is computed with"
    page.modes.buttons["dense"].click()
    assert picked == ["dense"]
    page.set_offer(replace(offer, chosen=replace(offer.chosen, mode="sparse")))
    assert page.mode.isHidden(), "the switch says it"
    room.figures.live = Live("")
    page.set_offer(offer)
    assert page.mode.text() == "Exact mode", "what auto stands for with this model, before the first answer"
    page.set_offer(replace(offer, model="", loaded_mode=""))
    assert page.modes.isHidden()
    assert page.mode.isHidden()


def test_figures_change_at_most_three_times_a_second(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(qtbot, live=a_live())
    room.show()
    shown: list[int] = []
    monkeypatch.setattr(room.page, "_show_model", lambda: shown.append(1))
    began = time.monotonic()
    for _ in range(20):
        room.page.set_live(a_live())
        room.page.show_machine()
        QTest.qWait(10)
    assert 2 <= len(shown) <= 1 + (time.monotonic() - began) * 1000 / (0.9 * live_page.SHOW_MS)


def test_the_arrow_keys_read_the_map(qtbot: QtBot) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    cells = room.page.neurons
    whole = cells.accessibleName()
    cells.setFocus()
    QTest.keyClick(cells, Qt.Key.Key_Right)
    assert numbers_in(cells.accessibleName())[:3] == ["0", "0", "5%"]
    assert "GPU" in cells.accessibleName()
    QTest.keyClick(cells, Qt.Key.Key_Right)
    QTest.keyClick(cells, Qt.Key.Key_Up)
    assert numbers_in(cells.accessibleName())[:3] == ["1", "5", "9%"]
    for _ in range(GROUPS):
        QTest.keyClick(cells, Qt.Key.Key_Up)
    assert "CPU" in cells.accessibleName()
    cells.clearFocus()
    assert cells.accessibleName() == whole
    field = cells._field()
    assert numbers_in(cells.text_at(field.bottomRight() - QPointF(2, 2)))[:3] == ["31", "0", "5%"]


def test_what_is_lit_goes_out_when_the_answer_ends(qtbot: QtBot) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    cells = room.page.neurons
    assert "fired" in cells.cell_text(0, 0)
    room.figures.take_status(replace(ON_CARD, phase=Phase.READY))
    room.page.set_status()
    qtbot.waitUntil(lambda: "fired" not in cells.cell_text(0, 0))
    qtbot.waitUntil(lambda: not cells._fade.isActive())  # nothing moves any more


def test_nothing_moves_by_itself_where_that_is_not_wanted(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    monkeypatch.setattr(theme.current(), "still", True)
    room.page.neurons.go_out()
    assert not room.page.neurons._fade.isActive()
    assert "fired" not in room.page.neurons.cell_text(0, 0)


def test_hovering_tells_more(qtbot: QtBot) -> None:
    room = Room(qtbot, live=a_live())
    room.show(a_live())
    page = room.page
    page.grab()
    assert f"39.0{NARROW}tok/s" in page.speed.text_at(page.speed._plot.center())
    load = page.graphs[0]
    assert f"30{NARROW}s ago: " in load.text_at(load._plot.center())
    assert "Other programs: 1.1" in page.graphs[1].text_at(page.graphs[1]._plot.center())
    told = {words for _, words in page.token._places}
    assert any("Attention" in words and "6.3" in words for words in told)
    assert any("waits" in words for words in told)


def test_a_scale_that_stands_still() -> None:
    assert [round_top(value) for value in (0.0, 0.9, 3.0, 39.0, 47.0, 96.0, 300.0)] == [1, 1, 5, 50, 50, 200, 500]


def test_no_gpu_is_said_and_two_have_a_row_each(qtbot: QtBot) -> None:
    room = Room(qtbot, ON_CPU, 0, a_live(card=False))
    room.show()
    assert "no NVIDIA driver" in room.page.note.words
    assert len(room.page.graphs) == 2
    two = Room(qtbot, ON_CARD, 2, a_live())
    two.show()
    assert len(two.page.graphs) == 6
    assert two.page.graphs[0].y() == two.page.graphs[3].y() < two.page.graphs[4].y()
    two.page.resize(620, 700)
    qtbot.waitUntil(lambda: two.page.graphs[0].y() < two.page.graphs[2].y())


def test_from_the_row_to_the_engine_and_back(arrive: Arrive, qtbot: QtBot) -> None:
    person = arrive()
    window, engine = person.window, person.hearth.engine
    qtbot.waitUntil(lambda: engine.is_ready)
    window.sidebar.live_requested.emit()
    page = window.pages.live_page
    assert page is not None
    assert window.pages.currentWidget() is page
    assert window.windowTitle() == "Live – Hearth"
    assert engine._watching
    window.show_chat()
    assert not engine._watching


STATES: dict[str, Callable[[QtBot], Room]] = {
    "card": lambda qtbot: Room(qtbot, live=a_live()),
    "two": lambda qtbot: Room(qtbot, n_gpus=2, live=a_live(layers=80)),
    "cpu": lambda qtbot: Room(qtbot, ON_CPU, 0, a_live(card=False)),
    "experts": lambda qtbot: Room(qtbot, replace(ON_CARD, model="Qwen3 30B-A3B"), live=a_live_of_experts()),
    "lost": lambda qtbot: Room(qtbot, replace(ON_CARD, phase=Phase.READY), lost_at=40),
    "empty": lambda qtbot: Room(qtbot, EngineStatus(phase=Phase.OFF), 0),
}


@pytest.fixture
def light_after(qapp: QApplication) -> Iterator[None]:
    yield
    theme.apply(qapp, "light", 1.0)


@pytest.mark.usefixtures("light_after")
@pytest.mark.parametrize("name", some_daily(STATES, [*STATES][::3]))
def test_a_picture_of(name: str, qtbot: QtBot, qapp: QApplication) -> None:
    room = STATES[name](qtbot)
    if name == "lost":
        room.figures.take_result(a_result())
    room.show(room.figures.live if room.figures.live.id else None)
    for choice, wide in (("light", 1024), ("dark", 1024), ("light", 844)):
        theme.apply(qapp, choice, 1.0)  # type: ignore[arg-type]
        room.page.resize(wide, 800 if wide > 900 else 572)
        QTest.qWait(60)
        image = room.page.grab().toImage()
        OUTPUT.mkdir(exist_ok=True)
        assert image.save(str(OUTPUT / f"live-{name}-{choice}-{wide}.png"))
        tokens, drawn = theme.current().tokens, _colours(image)
        assert QColor(tokens.page).rgb() in drawn
        assert QColor(tokens.card).rgb() in drawn
        cold = QColor(tokens.cold_fill).rgb() in drawn
        assert cold or name in ("two", "lost", "empty") or wide < 900
    if name == "empty":
        assert room.page.neurons.accessibleName() == f"Map of neurons. {NO_MODEL}"


def _colours(image: QImage) -> set[int]:
    return {image.pixel(x, y) for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
