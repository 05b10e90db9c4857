"""The words for this PC, and the sentences of the engine that are translated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import translation
from app.clients.engine_status import NARROW, SENTENCES, machine_line, translated, why_there
from engine.machine.hardware import MachineFacts

ENGINE = Path(__file__).resolve().parents[3] / "engine"


@pytest.fixture
def shouting() -> Iterator[None]:
    """A language in which everything is in capitals, with its values as they are."""
    translation.install(lambda text, about, count: "" if "{" in text else text.upper())
    yield
    translation.install(None)


def test_every_translated_sentence_is_one_that_the_engine_says() -> None:
    said = "\n".join(file.read_text(encoding="utf-8") for file in ENGINE.rglob("*.py"))
    assert [one for one in SENTENCES if one.rstrip(".") not in said] == []


def test_a_sentence_of_the_engine_is_shown_in_the_users_language(shouting: None) -> None:
    assert why_there("CPU only: no NVIDIA driver is installed.") == "NO NVIDIA DRIVER IS INSTALLED"
    assert translated("Estimated from models of the same family.") == "ESTIMATED FROM MODELS OF THE SAME FAMILY."
    assert translated("Something else.") == "Something else."


@pytest.mark.parametrize(("facts", "line"), [
    (MachineFacts("RTX 4090", 24, 64, 16, False), f"RTX 4090, 24{NARROW}GB · 64{NARROW}GB RAM · 16 cores"),
    (MachineFacts("", 0, 16, 1, False), f"No GPU found: runs on 1 core · 16{NARROW}GB RAM"),
    (MachineFacts("", 0, 16, 8, True), f"No usable GPU: runs on 8 cores · 16{NARROW}GB RAM"),
])  # fmt: skip
def test_this_pc_in_one_line(facts: MachineFacts, line: str) -> None:
    assert machine_line(facts) == line
