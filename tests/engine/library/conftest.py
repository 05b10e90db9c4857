"""The hub's fake for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.download_places import SMALL
from fakes.hub import FakeHub


@pytest.fixture(autouse=True)
def patient_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of downloads end however slow the machine is: what a test does next finds none of them at work."""
    monkeypatch.setattr("engine.library.hub.downloads.CLOSE_S", 60.0)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub with one small model, which is the only hub that anybody asks."""
    with FakeHub() as found:
        found.connect(monkeypatch, tmp_path)
        found.add("maker/small-gguf", {"small-q4_0.gguf": SMALL, "README.md": b"# Small"})
        yield found
