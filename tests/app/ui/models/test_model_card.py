"""One card: what it says in every state, what can be pressed, what it does with long names and the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_library import GB, PIP, entry, estimate, installed
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.clients.engine_status import EngineStatus, Phase
from app.library_messages import REMARKS
from app.models.model_labels import stopped_why
from app.models.model_rows import ModelRow, Preparing, rows_of
from app.ui.chat.offer_card import pitch
from app.ui.look import theme
from app.ui.models.model_card import ModelCard, activity_of, main_actions
from app.ui.widgets.card_frame import CardGrid, elided
from app.units import NARROW
from engine.errors import DiskSpaceError
from engine.library.owned.disk_space import SPARE_BYTES, check_free_space, full_disk
from engine.library.owned.states import NOT_PREPARED
from engine.library.records import Download

pytestmark = pytest.mark.gui

ENTRY = entry("ProSparse 13B", maker="SparseLLM", licence="Llama 2 licence", parameters=13 * GB, codec="q8_0")
MINE = installed("ProSparse 13B", id="SparseLLM/p", catalogue_id=ENTRY.id)
Make = Callable[..., ModelCard]


def row(known: Any = None, model: Any = None, get: Any = None, preparing: Any = None, **values: Any) -> ModelRow:
    known = estimate("hybrid", 24, 9.8, 3.6) if known is None else known
    (made,) = rows_of([(ENTRY, known)], [model] if model else [], [get] if get else [], preparing, **values)
    return made


def fetch(state: str, **values: Any) -> Download:
    given: dict[str, Any] = {"bytes_per_s": 38e6, "eta_s": 63.0, "catalogue_id": ENTRY.id, **values}
    return Download("d1", "SparseLLM/p", ENTRY.name, ENTRY.repo, state, int(1.9 * GB), int(4.3 * GB), **given)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def plain_theme(qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)


@pytest.fixture
def make(qtbot: QtBot) -> Make:
    def made(shown: ModelRow, width: int = 473) -> ModelCard:
        card = ModelCard(shown)
        qtbot.addWidget(card)
        card.resize(width, 194)
        card.show()
        return card

    return made


STATES: list[tuple[str, ModelRow, tuple[str, ...], str]] = [
    ("to be had", row(), ("more", "download"), "GPU + CPU"),
    ("too big", row(estimate("no", None, 10, 29, short=8)), ("more", "fits"), "8"),
    ("queued", row(get=fetch("queued")), ("pause", "cancel"), "Queued"),
    ("downloading", row(get=fetch("downloading")), ("pause", "cancel"), "38"),
    ("paused", row(get=fetch("paused")), ("resume", "cancel"), "Paused"),
    ("waiting", row(get=fetch("waiting")), ("pause", "cancel"), "Waiting for the network"),
    ("checking", row(get=fetch("checking")), ("cancel",), "Checking the file"),
    ("failed", row(get=fetch("failed", error="X", message="It broke.")), ("retry", "cancel"), "It broke"),
    ("ready", row(model=MINE), ("more", "chat"), "Ready"),
    ("raw", row(model=replace(MINE, state="needs preparing", reason="Twice as fast.")), ("more", "prepare", "chat"),
     "Twice as fast"),
    ("preparing", row(model=MINE, preparing=Preparing("SparseLLM/p", "train", 25, 40, 240.0)), ("cancel-prepare",),
     "Training predictors, 62%"),
    ("loading", row(model=MINE, loading="SparseLLM/p"), ("cancel-load",), "Loading"),
    ("in use", row(model=MINE, in_use="SparseLLM/p"), ("more", "unload"), "In use"),
    ("broken", row(model=replace(MINE, state="broken", reason="A file is missing.", repo="o/r")), ("more", "repair"),
     "A file is missing"),
    ("gone", replace(row(model=replace(MINE, state="broken", owned=False)), entry=None), ("more", "remove"), "Broken"),
]  # fmt: skip
each = pytest.mark.parametrize(("name", "shown", "actions", "words"), STATES, ids=[state[0] for state in STATES])


def test_the_sentence_of_a_model_to_prepare_is_not_cut(qtbot: QtBot) -> None:
    card = ModelCard(row(model=replace(MINE, state="needs preparing", reason=NOT_PREPARED)))
    qtbot.addWidget(card)
    card.resize(420, card.height())
    sentence = card.sentence()[0]
    assert elided(sentence, "small", int(card.inside().width()))[0] == sentence
    assert NOT_PREPARED in REMARKS, "translated"


@pytest.mark.parametrize("width", [300, 420])
def test_a_download_without_disk_space_says_what_it_needs_and_what_to_do(
    make: Make, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.library.owned.disk_space.free_bytes", lambda folder: 1_500_000_000)
    with pytest.raises(DiskSpaceError) as refused:
        check_free_space(Path("/a_b/models"), 25 * 10**9, 1_200_000_000)
    needs = refused.value
    for error in (needs, full_disk(Path("/a_b/models"))):
        get = fetch("paused", error="DiskSpaceError", message=error.message, hint=error.hint)
        card = make(row(get=get), width)
        sentence, token = card.sentence()
        assert "fetched" not in sentence + pitch(card.row)[1]
        assert sentence in pitch(card.row)[1]
        assert token == "warn"
        assert card.lines_of(sentence) <= 3
        assert not card.toolTip(), "all of it is read on the card"
    assert stopped_why(replace(get, state="downloading")) == ""
    message = stopped_why(replace(get, message=needs.message))
    assert all(figure in message.replace(NARROW, " ") for figure in ("25", f"{SPARE_BYTES / 1e9:.0f} GB", "1.5 GB"))


@each
def test_every_state_has_its_buttons_and_words(
    make: Make, name: str, shown: ModelRow, actions: tuple[str, ...], words: str
) -> None:
    card = make(shown)
    assert tuple(card.buttons) == actions
    assert words in card.accessibleName()
    assert all(button.isVisible() and ENTRY.name in button.accessibleName() for button in card.buttons.values())
    inside = card.rect().adjusted(8, 8, -8, -8)
    assert all(inside.contains(button.geometry()) for button in card.buttons.values())


@each
def test_every_state_becomes_every_other_one(
    make: Make, name: str, shown: ModelRow, actions: tuple[str, ...], words: str
) -> None:
    card = make(STATES[0][1])
    for _, before, _, _ in STATES:
        card.set_row(before)
        card.set_row(shown)
        assert tuple(card.buttons) == actions
        assert [act for act, button in card._made.items() if button.isVisible()].sort() == list(actions).sort()


@each
def test_it_is_painted_without_a_fault_at_any_size(
    make: Make, qapp: QApplication, name: str, shown: ModelRow, actions: tuple[str, ...], words: str
) -> None:
    for zoom, width, choice in ((1.0, 300, "light"), (1.6, 520, "dark"), (0.8, 473, "light")):
        theme.apply(qapp, choice, zoom)  # type: ignore[arg-type]
        card = make(shown, width)
        image = card.grab().toImage()
        # Corners are round, so the ground is looked at inside.
        assert image.pixelColor(6, image.height() // 2) == QColor(theme.current().tokens.card)


def test_buttons_ask_and_the_card_opens_its_details(make: Make, qtbot: QtBot) -> None:
    card = make(row())
    asked: list[tuple[str, str]] = []
    card.asked.connect(lambda *what: asked.append(what))
    QTest.mouseClick(card.buttons["download"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(card, Qt.MouseButton.LeftButton, pos=QPoint(40, 30))
    QTest.keyClick(card, Qt.Key.Key_Return)
    assert asked == [(ENTRY.id, "download"), (ENTRY.id, "details"), (ENTRY.id, "details")]
    with qtbot.waitSignal(card.menu_requested):
        QTest.mouseClick(card.buttons["more"], Qt.MouseButton.LeftButton)


def test_a_second_press_on_the_cross_presses_nothing_that_came_in_its_place(make: Make, qtbot: QtBot) -> None:
    card = make(row(model=MINE, preparing=Preparing("SparseLLM/p", "train", 25, 40, 240.0)))
    asked: list[tuple[str, str]] = []
    card.asked.connect(lambda row_id, act: asked.append((row_id, act)))
    at = card.buttons["cancel-prepare"].geometry().center()

    def press() -> None:
        target = card.childAt(at)
        assert target is not None
        qtbot.mouseClick(target, Qt.MouseButton.LeftButton, pos=target.mapFrom(card, at))

    press()
    card.set_row(row(model=MINE))
    assert card.childAt(at) is card.buttons["chat"]
    press()
    assert [act for _, act in asked] == ["cancel-prepare"]
    card._hear_again()  # as a little later
    press()
    assert [act for _, act in asked] == ["cancel-prepare", "chat"]


def test_the_keyboard_stays_on_the_card_when_its_button_goes(make: Make) -> None:
    card = make(row())
    card.activateWindow()
    card.buttons["download"].setFocus()
    card.set_row(row(get=fetch("downloading")))
    assert card.buttons["pause"].hasFocus() or not card.isActiveWindow()


def test_progress_runs_to_its_value_and_never_backwards(make: Make, qtbot: QtBot) -> None:
    card = make(row(get=fetch("downloading", bytes_per_s=1.0)))
    at = 1.9 / 4.3
    assert card._shown == pytest.approx(at, abs=1e-6), "what is there already does not grow before one's eyes"
    more = replace(fetch("downloading"), done_bytes=3 * GB)
    card.set_row(row(get=more))
    assert card._shown < 3 / 4.3
    qtbot.waitUntil(lambda: card._shown == pytest.approx(3 / 4.3, abs=1e-3))
    card.set_row(row(get=fetch("downloading")))
    assert card._shown == pytest.approx(at, abs=1e-6), "a file that was thrown away is not animated"


def test_loading_shows_how_far_the_engine_is(make: Make) -> None:
    card = make(row(model=MINE, loading="SparseLLM/p"))
    card.set_status(EngineStatus(phase=Phase.LOADING, done=42, total=100))
    assert "Loading, 42%" in card.accessibleName()
    assert card.activity is not None
    assert card.activity.done == pytest.approx(0.42)


def test_what_failed_is_never_told_by_colour_alone() -> None:
    failed = row(get=fetch("failed", error="X", message="1.2 GB is free and 14.7 GB are needed."))
    sentence, token = ModelCard.sentence(_Bare(failed))  # type: ignore[arg-type]
    assert token == "bad"
    assert "\u202fGB" in sentence, "figures in the product's manner"


class _Bare:
    def __init__(self, shown: ModelRow) -> None:
        self.row = shown


def test_a_shipped_model_cannot_be_deleted_or_repaired() -> None:
    (shipped,) = rows_of([], [PIP], [], None)
    assert main_actions(shipped) == ("chat",)
    assert activity_of(shipped) is None


def test_long_names_are_whole_in_the_tooltip(make: Make) -> None:
    name = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsmodell 47B Instruct"
    (long,) = rows_of([(replace(ENTRY, name=name, summary="Kurz."), estimate())], [], [], None)
    card = make(long)
    assert card.toolTip() == name
    assert make(row()).toolTip() == ""


def test_one_or_two_columns_and_arrows_between_cards(qtbot: QtBot) -> None:
    grid = CardGrid("Models")
    qtbot.addWidget(grid)
    cards = [ModelCard(replace(row(), id=f"m{i}", name=f"Model {i}")) for i in range(5)]
    grid.resize(960, 400)
    grid.set_cards(cards)
    grid.show()
    grid.activateWindow()
    assert grid.columns == 2
    assert [card.x() for card in cards[:2]] == [0, 487]
    assert grid.height() == 3 * 194 + 2 * 14
    cards[0].setFocus()
    QTest.keyClick(cards[0], Qt.Key.Key_Down)
    assert cards[2].hasFocus() or not grid.isActiveWindow()
    QTest.keyClick(cards[2], Qt.Key.Key_Right)
    assert cards[3].hasFocus() or not grid.isActiveWindow()
    grid.resize(600, 400)
    assert grid.columns == 1
    assert grid.height() == 5 * 194 + 4 * 14
    grid.set_cards(cards[:1])
    assert [card.isVisible() for card in cards] == [True, False, False, False, False]
