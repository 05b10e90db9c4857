"""Models behind the real window: what is wired to what, with the real processes and a fake for the hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_library import FakeLibrary, installed
from person import Arrive

from app.clients.engine_status import Phase
from app.models import models_controller
from app.settings import load_settings


def test_the_model_and_the_choices_are_remembered(arrive: Arrive, tmp_path: Path) -> None:
    library = FakeLibrary()
    library.models.append(installed("Other", id="fake-gpu"))
    person = arrive(library=library, location="in-thread")
    person.wait_ready()
    models = person.hearth.models
    models.refresh()
    person.wait(lambda: models.row("fake-gpu"))
    models.use("fake-gpu")
    person.wait(lambda: models.row("fake-gpu").in_use)
    assert person.hearth.engine.status.vram_bytes == 21 << 30
    assert library.jobs("estimate"), "estimates are asked for what is installed"
    models.refresh()
    assert library.jobs("catalogue")[-1]["own_vram_bytes"] == 21 << 30, "what is loaded makes room for the next"
    models.set_budget("fake-gpu", 6.0)
    person.wait(lambda: person.hearth.engine.status.phase is Phase.READY)
    models.dismiss_offer()
    person.leave()
    settings, _ = load_settings(tmp_path / "settings.json")
    assert settings.model == "fake-gpu"
    assert settings.offer_dismissed

    again = arrive(library=FakeLibrary(), location="in-thread", settings=settings)
    again.wait_ready()
    assert again.hearth.models.choices.of("fake-gpu").vram_budget_gib == 6.0
    assert again.hearth.choices.engine_options("fake-gpu") == {"vram_budget_gib": 6.0}


def test_the_library_is_asked_once_the_engine_is_there(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_controller, "START_AFTER_MS", 100)
    library = FakeLibrary()
    person = arrive(library=library)
    assert library.asked == []
    person.wait(lambda: library.jobs("catalogue"))
    assert person.hearth.engine.status.phase is Phase.READY
