"""Pictures of the Models page in its states, light and dark, for somebody to look at: tests/output/models-*.png.

What a program can judge of them is judged: grounds are there, nothing is empty, ember is only where something works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_library import GB, PIP, FakeLibrary, installed
from models_room import ModelsRoom
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily

from app.models.model_rows import Preparing
from app.ui.look import theme
from app.ui.widgets.controls import Label
from engine.errors import UnsupportedModelError
from engine.library.records import Download
from engine.model.families import config_from_gguf

pytestmark = pytest.mark.gui

OUTPUT = Path(__file__).parents[1] / "output"


def shelf_at_work() -> FakeLibrary:
    """One model in use, one being prepared, one on its way."""
    library = FakeLibrary(0)
    library.models = [
        PIP,
        installed("Bamboo DPO 7B", id="PowerInfer/b", catalogue_id="bamboo-dpo-7b", measured_tok_s=39.1),
        installed("ProSparse 13B", id="SparseLLM/p", catalogue_id="prosparse-13b"),
    ]
    library.downloads = [
        Download("d1", "PowerInfer/t", "TurboSparse Mistral 7B", "PowerInfer/t", "downloading", int(1.9 * GB),
                 int(4.3 * GB), 38e6, 63.0, "m.gguf", "turbosparse-mistral-7b"),
    ]  # fmt: skip
    return library


def at_work(room: ModelsRoom) -> None:
    room.controller.known.set_preparing(Preparing("SparseLLM/p", "train", 25, 40, 240.0))
    QTest.qWait(80)


def searching(room: ModelsRoom) -> None:
    room.search("relu")
    room.wait(lambda: room.page.hub.grid.cards)


def looking(room: ModelsRoom) -> None:
    room.search("o/name")
    room.wait(lambda: room.page.repository.rows)


def not_yet() -> FakeLibrary:
    """A hub with a model of an architecture that the engine does not know."""
    library = FakeLibrary()
    with pytest.raises(UnsupportedModelError) as caught:
        config_from_gguf({"general.architecture": "qwen99"}, set())
    library.refusal = caught.value.message
    return library


def all_of_them(room: ModelsRoom) -> None:
    room.page.filters.pick("all")


STATES: dict[str, tuple[Callable[[], FakeLibrary], Callable[[ModelsRoom], None], bool]] = {
    "work": (shelf_at_work, at_work, True),
    "all": (FakeLibrary, all_of_them, True),  # the placement bars of the GPU are ember as well
    "search": (FakeLibrary, searching, True),
    "repository": (FakeLibrary, looking, False),
    "not-yet": (not_yet, looking, False),
}


@pytest.mark.parametrize("name", some_daily(STATES, ("all", "repository", "not-yet")))
def test_a_picture_of(name: str, qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> None:
    make, act, has_ember = STATES[name]
    room = ModelsRoom(qtbot, tmp_path, make(), model="PowerInfer/b")
    try:
        room.settle()
        act(room)
        for choice in ("light", "dark"):
            theme.apply(qapp, choice, 1.0)  # type: ignore[arg-type]
            QTest.qWait(260)
            image = room.window.grab().toImage()
            OUTPUT.mkdir(exist_ok=True)
            assert image.save(str(OUTPUT / f"models-{name}-{choice}.png"))
            tokens = theme.current().tokens
            assert image.pixelColor(image.width() - 30, 10) == QColor(tokens.page)
            drawn = _colours(image)
            assert len(drawn) > 100, "there is something on it"
            assert QColor(tokens.card).rgb() in drawn
            assert (QColor(tokens.hot_fill).rgb() in drawn) == has_ember
    finally:
        theme.apply(qapp, "light", 1.0)
        room.close()


def test_a_repository_says_what_hearth_does_not_run_yet_before_a_download(qtbot: QtBot, tmp_path: Path) -> None:
    library = not_yet()
    room = ModelsRoom(qtbot, tmp_path, library)
    try:
        room.settle()
        looking(room)
        for row in room.page.repository.rows:
            assert row.button is None
            words = next(one for one in row.findChildren(Label) if one.text() == row.variant.refused)
            room.wait(words.isVisible)
            assert row.variant.refused in row.accessibleName()
            assert words.height() >= words.heightForWidth(words.width()) > 0, "nothing is cut off"
        assert "'qwen99' yet" in room.page.repository.rows[0].accessibleName()
        assert library.downloads == []
    finally:
        room.close()


def _colours(image: QImage) -> set[int]:
    return {image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
