"""Configurations refuse what does not fit where it enters, also values of JSON types that nobody expects."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig, SamplingConfig, plain_values
from engine.errors import InvalidRequestError


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": "0.5"}, {"temperature": True}, {"temperature": float("nan")}, {"temperature": -0.1},
        {"top_k": 2.5}, {"top_k": -1}, {"top_p": 1.1}, {"min_p": None}, {"repeat_penalty": 0},
        {"max_tokens": "5"}, {"max_tokens": 0}, {"max_tokens": 2.0}, {"max_tokens": True},
        {"seed": "1"}, {"seed": -1}, {"seed": 1 << 63}, {"seed": 1.0},
        {"stop": 5}, {"stop": "END"}, {"stop": [1]}, {"stop": None}, {"colour": 1},
    ],
    ids=str,
)  # fmt: skip
def test_sampling_that_makes_no_sense_is_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(values))):
        SamplingConfig().changed(values)


def test_sampling_values_change_one_by_one() -> None:
    changed = SamplingConfig().changed({"temperature": 0, "stop": ["END"], "seed": None, "max_tokens": 1})
    assert (changed.temperature, changed.stop, changed.seed, changed.max_tokens) == (0, ("END",), None, 1)
    assert changed.top_k == SamplingConfig().top_k
    assert plain_values(changed)["stop"] == ["END"]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"threads": "4"}, "threads"), ({"threads": 0}, "threads"), ({"threads": 1.5}, "threads"),
        ({"threads": 1025}, "threads"), ({"context": "64"}, "context"), ({"context": 7}, "context"),
        ({"context": False}, "context"), ({"mode": "fast"}, "mode"), ({"mode": None}, "mode"),
        ({"device": "tpu"}, "device"), ({"vram_budget_gib": "8"}, "budget"), ({"vram_budget_gib": 0}, "budget"),
        ({"hardware_file": 5}, "hardware file"), ({"colour": 1}, "colour"), ({"activation": 5}, "activation"),
        ({"activation": "mish"}, "'mish'.* drelu, fatrelu"), ({"activation": ""}, "activation"),
        ({"activation": "relu:0.1"}, "threshold"), ({"activation": "fatrelu"}, "threshold"),
        ({"activation": "fatrelu:x"}, "threshold"), ({"activation": "fatrelu:nan"}, "threshold"),
        ({"activation": "fatrelu:-1"}, "threshold"), ({"activation": "x" * 9999}, "supported: "),
    ],
    ids=str,
)  # fmt: skip
def test_engine_settings_that_make_no_sense_are_refused_by_name(values: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        EngineConfig.from_dict(values)


def test_engine_settings_at_their_bounds_are_accepted() -> None:
    config = EngineConfig.from_dict({"threads": 1024, "context": 8, "vram_budget_gib": 0.5})
    assert (config.threads, config.context, config.vram_budget_gib) == (1024, 8, 0.5)
