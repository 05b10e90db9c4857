"""From the first launch to a chat with a model that was fetched, by what a person clicks: the real window, both real
processes, and a fake for the hub.

Pictures go to tests/output, and to docs/screenshots when HEARTH_UPDATE_SCREENSHOTS=1 is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.hub import FakeHub
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QWidget
from samples.tiny_model import make_tiny_gguf
from support.systems import kill

from app.models.model_rows import ModelRow
from app.settings import AppSettings
from app.ui.models.model_dialogs import PrepareDialog
from app.ui.models.models_page import ModelsPage

ROOT = Path(__file__).parents[2]
BLOCK = 8 << 20

pytestmark = pytest.mark.gui


class Newcomer:
    """A person whose every step is a click, and who counts them."""

    def __init__(self, person: Person) -> None:
        self.person, self.window, self.clicks = person, person.window, 0

    @property
    def page(self) -> ModelsPage:
        page = self.window.pages.models_page
        assert page is not None
        return page

    def click(self, button: QPushButton) -> None:
        assert button.isVisible()
        assert button.isEnabled(), button.accessibleName()
        self.clicks += 1
        self.person.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    def row(self, name: str) -> ModelRow:
        return next(row for row in self.person.hearth.models.rows if row.name == name)

    def button(self, name: str, act: str) -> QPushButton:
        """A button of a card that is in view."""
        card = next(card for card in self.page.cards.values() if card.row.name == name)
        return card.buttons[act]

    def can(self, name: str, act: str) -> bool:
        """Whether its card is in view and offers that."""
        return any(card.row.name == name and act in card.buttons for card in self.page.cards.values())

    def wait_for(self, name: str, condition: Callable[[ModelRow], Any], most_ms: int = 60_000) -> None:
        self.person.qtbot.waitUntil(lambda: bool(condition(self.row(name))), timeout=most_ms)

    def picture(self, name: str, of: QWidget | None = None) -> None:
        shown = ROOT / "docs" / "screenshots"
        kept = os.environ.get("HEARTH_UPDATE_SCREENSHOTS") == "1" and (shown / f"{name}.png").exists()
        folder = shown if kept else ROOT / "tests" / "output"
        folder.mkdir(parents=True, exist_ok=True)
        self.person.qtbot.wait(50)
        assert (of or self.window).grab().save(str(folder / f"{name}.png"))


PREPARED_MS = 400_000  # a thousand steps of training: 45 s on two cores that seven others share


@pytest.mark.timeout(600)
def test_from_the_first_launch_to_a_prepared_model(
    arrive: Arrive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = make_tiny_gguf(tmp_path / "tiny.gguf", n_layers=1, d_model=1792, d_ff=256, max_context=512).read_bytes()
    with FakeHub(bytes_per_s=len(data) // 3) as hub:
        hub.connect(monkeypatch, tmp_path)
        settings = AppSettings(theme="light", temperature=0.0, max_tokens=8)
        person = arrive(model="starter-chat", library="real", settings=settings)
        newcomer, models = Newcomer(person), person.hearth.models
        pids: list[int] = []
        person.hearth.library.started.connect(pids.append)  # type: ignore[attr-defined]
        person.wait_ready()

        # The first launch: an answer without a download, and the offer of a bigger model.
        assert person.ask("What is the capital of Peru?").text
        person.window.sidebar.new_chat.emit()
        person.wait(lambda: models.offer)
        assert hub.asked == [], "nothing was asked of the hub before the person did"
        offer = models.offer
        assert offer is not None
        assert offer.entry is not None
        newcomer.picture("first-run")
        hub.add(offer.entry.repo, {offer.entry.files[0]: data, "README.md": b"# A model"})

        # The Models page, and the recommended model: two clicks from the launch.
        newcomer.click(person.window.sidebar.panel.models)
        person.wait(lambda: any(card.row.name == offer.name for card in newcomer.page.cards.values()))
        newcomer.picture("models")
        newcomer.click(newcomer.button(offer.name, "download"))
        assert newcomer.clicks <= 3

        # Killed in the middle, it goes on behind the last whole block.
        newcomer.wait_for(offer.name, lambda row: row.download and row.download.done_bytes > BLOCK)
        newcomer.picture("models-downloading")
        kill(pids[-1])
        newcomer.wait_for(offer.name, lambda row: row.installed)
        starts = [asked.start for asked in hub.asked if asked.method == "GET" and asked.path.endswith(".gguf")]
        assert starts[0] == 0
        assert starts[-1] >= BLOCK, "no whole block was fetched twice"
        assert len(pids) == 2

        # Prepared for this PC, with what it brings told before.
        assert newcomer.row(offer.name).installed.state == "needs preparing"  # type: ignore[union-attr]
        person.wait(lambda: newcomer.can(offer.name, "prepare"))
        newcomer.click(newcomer.button(offer.name, "prepare"))
        person.wait(lambda: [s for s in person.window.findChildren(PrepareDialog) if s.start.isEnabled()])
        dialog = next(s for s in person.window.findChildren(PrepareDialog) if s.isVisible())
        newcomer.picture("prepare", dialog)
        dialog.predictors.set_value("sign")
        newcomer.click(dialog.start)
        newcomer.wait_for(offer.name, lambda row: row.preparing)
        newcomer.picture("models-preparing")
        newcomer.wait_for(offer.name, lambda row: row.installed.state == "ready" and row.preparing is None, PREPARED_MS)

        # Chatting with it; the answer names its model.
        newcomer.click(newcomer.button(offer.name, "chat"))
        newcomer.wait_for(offer.name, lambda row: row.in_use)
        person.wait_ready()
        answer = person.ask("Hello")
        assert answer.stats is not None
        assert answer.stats["model"] == offer.name
        assert not person.page.banner.isVisible()
