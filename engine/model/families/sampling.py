"""The model's own sampling defaults, as its files give them; whether they are used is the session's business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import SamplingConfig
from engine.errors import InvalidRequestError, ModelFormatError
from engine.model.families.reading import Reader, decimal


def sampling_from_hf(generation: Mapping[str, Any]) -> dict[str, Any]:
    """The model's own sampling defaults: fields of SamplingConfig. Raises ModelFormatError for senseless values.

    Not its max_new_tokens: an answer ends where the model ends it, unless the person sets a limit.
    """
    read = Reader(generation, "generation_config.json")
    names = {"temperature": ("temperature", float), "top_k": ("top_k", int), "top_p": ("top_p", float),
             "min_p": ("min_p", float), "repeat_penalty": ("repetition_penalty", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    if read.optional("do_sample", bool, True) is False:
        values["temperature"] = 0.0
    return _sampling(values)


def sampling_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same from GGUF's `general.sampling.*`."""
    read = Reader(metadata, "the GGUF metadata")
    names = {"temperature": ("general.sampling.temp", float), "top_k": ("general.sampling.top_k", int),
             "top_p": ("general.sampling.top_p", float), "min_p": ("general.sampling.min_p", float),
             "repeat_penalty": ("general.sampling.penalty_repeat", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    return _sampling({k: decimal(v) if isinstance(v, float) else v for k, v in values.items()})


def _sampling(values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that are given, once SamplingConfig has accepted them."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        SamplingConfig(**given)
    except InvalidRequestError as error:
        raise ModelFormatError(f"The model's own sampling defaults are wrong: {error.message}") from error
    return given
