"""Read a model's own sampling defaults from its files. The session decides whether to use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import SamplingConfig
from engine.errors import InvalidRequestError, ModelFormatError
from engine.model.family.reading import Reader, decimal


def sampling_from_hf(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's sampling defaults as fields of SamplingConfig. Raises: ModelFormatError.

    Ignores max_new_tokens: the model ends an answer unless the user sets a limit.
    """
    read = Reader(generation, "generation_config.json")
    names = {"temperature": ("temperature", float), "top_k": ("top_k", int), "top_p": ("top_p", float),
             "min_p": ("min_p", float), "repeat_penalty": ("repetition_penalty", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    if read.optional("do_sample", bool, True) is False:
        values["temperature"] = 0.0
    return _sampling(values)


def sampling_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same from `general.sampling.*` of GGUF."""
    read = Reader(metadata, "the GGUF metadata")
    names = {"temperature": ("general.sampling.temp", float), "top_k": ("general.sampling.top_k", int),
             "top_p": ("general.sampling.top_p", float), "min_p": ("general.sampling.min_p", float),
             "repeat_penalty": ("general.sampling.penalty_repeat", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    return _sampling({k: decimal(v) if isinstance(v, float) else v for k, v in values.items()})


def _sampling(values: dict[str, Any]) -> dict[str, Any]:
    """Return the given values after SamplingConfig has checked them."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        SamplingConfig(**given)
    except InvalidRequestError as error:
        raise ModelFormatError(f"The model's own sampling defaults are wrong: {error.message}") from error
    return given
