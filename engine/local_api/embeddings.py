"""Embeddings of OpenAI's API: requests as plain data, and the reply."""

from __future__ import annotations

import base64
from typing import Any

from engine.local_api.api_request import ApiRequest, model_of
from engine.local_api.failures import ApiError, wrong
from engine.local_api.fields import read_object, shown, take
from engine.local_api.turns import End

MOST_INPUTS = 2048
_FORMATS = ("float", "base64")


def read_embeddings_request(body: bytes) -> ApiRequest:
    """Return the request in a body. Raises: ApiError with a message for the client's author."""
    values = read_object(body)
    model, inputs = model_of(values), _inputs(values.pop("input", None))
    dimensions = take(values, "dimensions", int)
    if dimensions is not None and dimensions < 1:
        raise wrong(f"The field 'dimensions' is {dimensions}; it must be 1 or more.", "dimensions")
    form = take(values, "encoding_format", str) or _FORMATS[0]
    if form not in _FORMATS:
        raise wrong(
            f"'encoding_format' is {shown(form)}; it must be one of {', '.join(_FORMATS)}.", "encoding_format"
        )  # fmt: skip
    take(values, "user", str)
    return ApiRequest(
        "embedding", model, inputs=inputs, dimensions=dimensions, as_base64=form == "base64",
        ignored=tuple(sorted(values)),
    )  # fmt: skip


def _inputs(given: Any) -> list[str | list[int]]:
    """Return the texts, and lists of token ids, of which vectors are made. Raises: ApiError."""
    if given is None:
        raise wrong("The field 'input' is missing.", "input", "missing_field")
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        given = [given]
    if not isinstance(given, list):
        raise wrong(
            f"The field 'input' is {shown(given)}; a text, a list of texts, or lists of token ids are needed.",
            "input", "invalid_type",
        )  # fmt: skip
    if not 1 <= len(given) <= MOST_INPUTS:
        raise wrong(f"The field 'input' has {len(given)} entries; 1 to {MOST_INPUTS} are taken.", "input")
    for i, one in enumerate(given):
        is_tokens = isinstance(one, list) and all(type(token) is int for token in one)
        if not (isinstance(one, str) or is_tokens):
            raise wrong(
                f"input[{i}] is {shown(one)}; a text or a list of token ids is needed.", f"input[{i}]", "invalid_type"
            )  # fmt: skip
        if not one:
            raise wrong(f"input[{i}] is empty.", f"input[{i}]")
    return given


def embeddings_reply(api_request: ApiRequest, model: str, end: End) -> dict[str, Any]:
    vectors = [vector.astype("<f4") for vector in end.vectors]
    coded: list[Any] = (
        [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        if api_request.as_base64
        else [vector.tolist() for vector in vectors]
    )
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(coded)],
        "model": model,
        "usage": {"prompt_tokens": end.prompt_tokens, "total_tokens": end.prompt_tokens},
    }


def too_long(i: int, n_tokens: int, most: int) -> ApiError:
    """Return the error for an input that no vector can be made of."""
    return ApiError(
        400, "context_length_exceeded", f"input[{i}] has {n_tokens} tokens; at most {most} are taken.", f"input[{i}]"
    )
