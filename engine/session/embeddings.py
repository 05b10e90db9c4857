"""Vectors of texts: the hidden states of a model after its final norm, pooled and of length 1.

Models for this, such as Qwen3-Embedding, say in their files how they are pooled. Of other models the mean is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.errors import DeviceFailedError, InvalidRequestError
from engine.job import Job

if TYPE_CHECKING:
    from engine.model.model_files import OpenedModel
    from engine.session.loaded_model import LoadedModel
    from native_kernels.backend import F32

Pooling = Literal["mean", "last"]
_IN_GGUF: dict[int, Pooling] = {1: "mean", 3: "last"}  # llama.cpp's numbers; 2 (first token) suits no decoder
_CHUNK_TOKENS = 512
MOST_TOKENS = 8_192  # of a text; the rest is left out


def pooling_of(opened: OpenedModel) -> Pooling | None:
    """Return how the files say that the model is pooled; None: it was not made for vectors.

    Source: `<architecture>.pooling_type` of a GGUF file, or 1_Pooling/config.json of sentence-transformers.
    """
    stated = opened.metadata.get(f"{opened.metadata.get('general.architecture')}.pooling_type")
    if isinstance(stated, int) and stated in _IN_GGUF:
        return _IN_GGUF[stated]
    path = opened.files.path
    file = (path if path.is_dir() else path.parent) / "1_Pooling" / "config.json"
    try:
        values: Any = json.loads(file.read_text(encoding="utf-8")) if opened.files.kind != "gguf" else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    if values.get("pooling_mode_lasttoken") is True or values.get("pooling_mode") == "lasttoken":
        return "last"
    return "mean" if values.get("pooling_mode_mean_tokens") is True or values.get("pooling_mode") == "mean" else None


def embed(
    model: LoadedModel, texts: Sequence[str | Sequence[int]], dimensions: int | None = None, job: Job = Job()
) -> Iterator[F32]:
    """Yield the vector [d] of each text, or of its tokens, of length 1. Texts are cut at `most_tokens`.

    dimensions: keeps so many numbers of each vector, for models that were trained for it; None: all D.
    Cost: a prompt of each text, on a cache of its own. Raises: InvalidRequestError for a text without tokens, a token
    outside the vocabulary, or more dimensions than the model has; DeviceFailedError; Cancelled between two layers.
    """
    config = model.opened.config
    if dimensions is not None and not 0 < dimensions <= config.d_model:
        raise InvalidRequestError(
            f"{dimensions} dimensions were asked for, and the model's vectors have {config.d_model}."
        )
    for text in texts:
        ids = _cut(model, tokens_of(model, text))
        if not ids:
            raise InvalidRequestError("A text to embed is empty.")
        if bad := next((token for token in ids if not 0 <= token < config.vocab_size), None):
            raise InvalidRequestError(f"Token {bad} lies outside the vocabulary of {config.vocab_size}.")
        try:
            vector = _pooled(model, ids, job)[: dimensions or config.d_model]
        except DeviceFailedError as error:
            if model.gpu is not None:
                model.gpu.after_failure(error)
            raise
        length = float(np.linalg.norm(vector))
        yield vector / np.float32(length) if length > 0 else vector


def n_tokens(model: LoadedModel, text: str | Sequence[int]) -> int:
    """Return how many tokens `embed` reads of a text."""
    return len(_cut(model, tokens_of(model, text)))


def most_tokens(model: LoadedModel) -> int:
    """Return how many tokens of a text `embed` reads at most."""
    return min(MOST_TOKENS, model.context)


def tokens_of(model: LoadedModel, text: str | Sequence[int]) -> list[int]:
    """Return all tokens of a text, with the end token whose state is the vector, if the model has one.

    Tokens that are given stay as they are.
    """
    if not isinstance(text, str):
        return list(text)
    ids, end = model.tokenizer.encode(text, add_bos=model.tokenizer.adds_bos), _end_of(model.opened)
    return ids if end is None else [*ids, end]


def _cut(model: LoadedModel, ids: list[int]) -> list[int]:
    """Return as many tokens as `embed` reads. The end token stays."""
    most = most_tokens(model)
    if len(ids) <= most:
        return ids
    return [*ids[: most - 1], ids[-1]] if ids[-1] == _end_of(model.opened) else ids[:most]


def _end_of(opened: OpenedModel) -> int | None:
    """Return the token that ends a text of a model that is pooled at the last token; None: no token does."""
    if pooling_of(opened) != "last":
        return None
    if opened.files.kind == "gguf":
        end = opened.metadata.get("tokenizer.ggml.eos_token_id")
        return end if opened.metadata.get("tokenizer.ggml.add_eos_token") is True and isinstance(end, int) else None
    return next(iter(opened.config.eos_token_ids), None)


def _pooled(model: LoadedModel, ids: Sequence[int], job: Job) -> F32:
    """Return the pooled hidden states [D] of a text's tokens."""

    def look(share: float) -> None:
        job.stop_if_cancelled()

    if model.gpu is not None:
        model.gpu.make_room()
    transformer, pooling, cache = (
        model.transformer("dense"),
        pooling_of(model.opened) or "mean",
        model.new_cache(len(ids)),
    )
    tokens, total = np.asarray(ids, np.int64), np.zeros(model.opened.config.d_model, np.float64)
    run = transformer.forward if pooling == "mean" else transformer.prefill
    with model.undisturbed():
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = tokens[start : start + _CHUNK_TOKENS]
            hidden = run(chunk, cache, len(tokens) - start - len(chunk), look)
            states = hidden.astype(np.float64)
            total = total + states.sum(axis=0) if pooling == "mean" else states[-1]
    return np.asarray(total / len(tokens) if pooling == "mean" else total, np.float32)
