"""The words for this PC, and the sentences of the engine that are translated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shown_text import numbers_in

from app import translation
from app.clients.engine_status import SENTENCES, STARTER_DESCRIPTION, machine_line, translated, why_there
from engine.assets import starter_model
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


def test_the_starter_models_own_description_is_the_translated_one() -> None:
    (file,) = starter_model().glob("*.gguf")
    assert STARTER_DESCRIPTION.encode() in file.read_bytes()[: 1 << 20]


def test_a_sentence_of_the_engine_is_shown_in_the_users_language(shouting: None) -> None:
    for one in SENTENCES:
        bare = one.rstrip(".")
        assert translated(bare) == translated(f"{bare}.") == why_there(f"CPU only: {bare}.") == one.upper()
    assert translated("Something else.") == "Something else."


def test_this_pc_in_one_line() -> None:
    with_gpu = machine_line(MachineFacts("RTX 4090", 24, 64, 16, False))
    assert with_gpu.startswith("RTX 4090")
    assert numbers_in(with_gpu) == ["4090", "24 GB", "64 GB", "16"]
    bare, unusable = (machine_line(MachineFacts("", 0, 16, 8, there)) for there in (False, True))
    assert numbers_in(bare) == numbers_in(unusable) == ["8", "16 GB"]
    assert bare != unusable, "a GPU that cannot be used is mentioned"
    assert numbers_in(machine_line(MachineFacts("", 0, 16, 1, False))) == ["1", "16 GB"]
