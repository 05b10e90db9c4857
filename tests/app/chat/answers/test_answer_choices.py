"""Which persona, preset and mode count, and what each mode was measured to cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.shown_text import numbers_in

from app.chat.answers.answer_choices import AnswerChoices, checked_choices
from app.chat.answers.mode_rates import KEPT, ModeRate, ModeRates, rates_text
from app.chat.answers.personas import Persona, Personas
from app.chat.answers.presets import Preset, Presets
from app.clients.engine_status import FEWEST_TOKENS
from app.settings import AppSettings
from engine.config import MODES
from engine.service.protocol import GenerationResult

SETTINGS = AppSettings(system_prompt="Be brief.", temperature=0.5, max_tokens=100, mode="exact")


@pytest.fixture
def choices() -> AnswerChoices:
    out = AnswerChoices(Personas(), Presets())
    out.personas.put(Persona("poet", "Poet", "In rhymes."))
    out.presets.put(Preset("haiku", "Haiku", {"temperature": 0.9, "stop": ["\n\n"]}))
    return out


def test_the_settings_count_where_nothing_was_chosen(choices: AnswerChoices) -> None:
    chosen = choices.chosen({}, "pip", SETTINGS)
    assert (chosen.persona, chosen.preset.id, chosen.mode) == (None, "balanced", "exact")
    assert chosen.instructions == "Be brief."
    assert chosen.in_force == {"temperature": 0.5, "max_tokens": 100}
    assert not chosen.is_changed


def test_a_chats_choice_comes_before_a_models_default_and_that_before_the_settings(choices: AnswerChoices) -> None:
    choices.set_default("pip", {"persona": "poet", "preset": "precise", "mode": "dense", "sampling": {"seed": 3}})
    chosen = choices.chosen({}, "pip", SETTINGS)
    assert chosen.persona is not None
    assert (chosen.persona.id, chosen.preset.id, chosen.mode) == ("poet", "precise", "dense")
    assert chosen.instructions == "In rhymes."
    assert chosen.in_force == {"temperature": 0.2, "top_p": 0.9, "max_tokens": 100, "seed": 3}
    own = choices.chosen({"persona": "", "preset": "haiku", "mode": "auto"}, "pip", SETTINGS)
    assert (own.persona, own.preset.id, own.mode) == (None, "haiku", "auto")
    assert own.in_force == {"temperature": 0.9, "stop": ["\n\n"], "max_tokens": 100}, "the default's tuning is gone"
    assert choices.chosen({}, "another", SETTINGS).preset.id == "balanced"


def test_what_is_changed_by_hand_lies_over_the_preset(choices: AnswerChoices) -> None:
    chosen = choices.chosen({"preset": "haiku", "sampling": {"temperature": 0.1}}, "pip", SETTINGS)
    assert chosen.is_changed
    assert chosen.in_force["temperature"] == 0.1
    assert chosen.in_force["stop"] == ["\n\n"]


def test_what_was_deleted_since_counts_as_never_chosen(choices: AnswerChoices) -> None:
    values = {"persona": "poet", "preset": "haiku"}
    choices.personas.remove("poet")
    choices.presets.remove("haiku")
    chosen = choices.chosen(values, "pip", SETTINGS)
    assert (chosen.persona, chosen.preset.id, chosen.instructions) == (None, "balanced", "Be brief.")


@pytest.mark.parametrize(
    ("values", "good"),
    [
        ({"persona": 5, "preset": None, "mode": "fast", "sampling": []}, {}),
        ({"mode": "dense", "overflow": "roll", "persona": ""}, {"mode": "dense", "persona": ""}),
        ({"sampling": {"temperature": 99, "seed": 1, "junk": 2}}, {"sampling": {"seed": 1}}),
        ({"preset": "x" * 101}, {}),
    ],
)
def test_senseless_choices_are_none(values: dict[str, Any], good: dict[str, Any]) -> None:
    assert checked_choices(values) == good


def test_every_mode_of_the_engine_can_be_chosen() -> None:
    """The window does not import them, because NumPy comes with them."""
    assert [checked_choices({"mode": mode}) for mode in MODES] == [{"mode": mode} for mode in MODES]


def test_defaults_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    first = AnswerChoices(Personas(), Presets(), path)
    first.set_default("pip", {"preset": "precise", "overflow": "roll"})
    first.set_default("other", {"mode": "dense"})
    first.set_default("other", None)
    first.save(first.to_json())
    again = AnswerChoices(Personas(), Presets(), path)
    again.read()
    assert again.default_of("pip") == {"preset": "precise"}
    assert again.default_of("other") == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"models": 5}', b'{"models": {"m": 5}}', b"[" * 100_000])
def test_a_damaged_file_gives_no_defaults(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "answers.json"
    path.write_bytes(content)
    for thing in (AnswerChoices(Personas(), Presets(), path), ModeRates(path)):
        thing.read()
        assert thing.to_json()["models"] == {}


# --- rates

RESULT = GenerationResult(
    text="", finish_reason="stop", context_full=False, prompt_tokens=9, reused_tokens=0, tokens=FEWEST_TOKENS,
    dropped_messages=0, context_used=20, context_total=512, total_s=1.0, ttft_s=0.1, prefill_tok_s=900.0,
    decode_tok_s=40.0, gpu_neuron_load=None, active_share=0.2, fired_share=0.1, vram_bytes=0, ram_bytes=1,
    mode="exact", model="Pip",
)  # fmt: skip


def test_the_middle_one_of_the_last_answers_counts() -> None:
    rates = ModeRates()
    for tok_s in (10.0, 38.0, 39.0, 40.0, 900.0):
        assert rates.take(replace(RESULT, decode_tok_s=tok_s))
    rates.take(replace(RESULT, mode="dense", decode_tok_s=20.0))
    assert rates.of("Pip", "cpu") == {"exact": ModeRate(39.0, 5), "dense": ModeRate(20.0, 1)}
    assert rates.of("Pip", "cuda") == rates.of("Other", "cpu") == {}
    for _ in range(3 * KEPT):
        rates.take(replace(RESULT, decode_tok_s=50.0))
    assert rates.of("Pip", "cpu")["exact"] == ModeRate(50.0, KEPT)


@pytest.mark.parametrize(
    "values", [{"tokens": FEWEST_TOKENS - 1}, {"decode_tok_s": None}, {"decode_tok_s": float("inf")}, {"mode": "auto"}]
)
def test_what_tells_nothing_is_not_counted(values: dict[str, Any]) -> None:
    rates = ModeRates()
    assert not rates.take(replace(RESULT, **values))
    assert rates.of("Pip", "cpu") == {}


def test_rates_are_kept_and_bad_ones_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    rates = ModeRates(path)
    rates.take(RESULT)
    rates.save(rates.to_json())
    values = json.loads(path.read_text())
    values["models"]["Pip"]["cpu"]["dense"] = [1e400, -1, "x", True, 20.0]
    values["models"]["Pip"]["cpu"]["warp"] = [9.0]
    path.write_text(json.dumps(values))
    again = ModeRates(path)
    again.read()
    assert again.of("Pip", "cpu") == {"exact": ModeRate(40.0, 1), "dense": ModeRate(20.0, 1)}


def test_the_cost_in_words() -> None:
    assert numbers_in(rates_text({})) == []
    words = rates_text({"exact": ModeRate(38.24, 9), "dense": ModeRate(21.0, 3)})
    assert numbers_in(words) == ["38.2 tok/s", "21.0 tok/s", "12"]
    assert numbers_in(rates_text({"dense": ModeRate(120.0, 1)})) == ["120 tok/s", "1"]
