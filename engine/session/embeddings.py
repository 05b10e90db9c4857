"""Vectors of texts: the hidden states of a model after its last norm, pooled and of length 1.

Models for this say in their files how they are pooled: engine/loading/embedding_models.py. Of others, it is the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DeviceFailedError, InvalidRequestError, ModelFormatError
from engine.job import Job, ShareProgress
from engine.loading.embedding_models import Role, pooling_of, prompt_of

if TYPE_CHECKING:
    from engine.model.model_files import OpenedModel
    from engine.session.loaded_model import LoadedModel
    from native_kernels.backend import F32

_CHUNK_TOKENS = 512
MOST_TOKENS = 8_192  # of a text; the rest is left out
# Tokens of the texts that an encoder computes at once, if there are several. More gain nothing, and delay others.
_BATCH_TOKENS = 512


def embed(
    model: LoadedModel, texts: Sequence[str | Sequence[int]], dimensions: int | None = None, job: Job = Job()
) -> Iterator[F32]:
    """Yield the vector [d] of each text, or of its tokens, of length 1. Texts are cut at `most_tokens`.

    dimensions: keeps this many numbers of each vector, for models that were trained for it; None: all D.
    Cost: a prompt of each text, on a cache of its own; an encoder computes a `batch` of texts at once.
    Raises: InvalidRequestError for a text without tokens, a token outside the vocabulary, or more dimensions than the
    model has; ModelFormatError for numbers that are not finite; DeviceFailedError; Cancelled between two layers.
    """
    config = model.opened.config
    if dimensions is not None and not 0 < dimensions <= config.d_model:
        raise InvalidRequestError(
            f"{dimensions} dimensions were asked for, and the model's vectors have {config.d_model}."
        )
    n_done = 0
    while n_done < len(texts):
        ids = [_cut(model, one) for one in batch(model, texts[n_done:])]
        for one in ids:
            if not one:
                raise InvalidRequestError("A text to embed is empty.")
            if bad := next((token for token in one if not 0 <= token < config.vocab_size), None):
                raise InvalidRequestError(f"Token {bad} is outside the vocabulary of {config.vocab_size}.")
        try:
            vectors = _pooled(model, ids, job)
        except DeviceFailedError as error:
            if model.residency is not None:
                model.residency.after_failure(error)
            raise
        n_done += len(ids)
        for vector in vectors:
            kept = vector[: dimensions or config.d_model]
            length = float(np.linalg.norm(kept.astype(np.float64)))
            if not np.isfinite(length):
                raise ModelFormatError(
                    "The model's vectors hold values that are not numbers; its files may be damaged."
                )
            yield kept / np.float32(length) if length > 0 else kept


def batch(model: LoadedModel, texts: Sequence[str | Sequence[int]], role: Role = "") -> list[list[int]]:
    """Return the tokens of the first texts that `embed` computes at once, at least of one."""
    found: list[list[int]] = []
    n_left = _BATCH_TOKENS
    for text in texts[: 1 if model.opened.config.causal else None]:
        ids = tokens_of(model, text, role)
        n_left -= min(len(ids), most_tokens(model))
        if found and n_left < 0:
            break
        found.append(ids)
    return found


def n_tokens(model: LoadedModel, text: str | Sequence[int]) -> int:
    """Return how many tokens `embed` reads of a text."""
    return len(_cut(model, tokens_of(model, text)))


def most_tokens(model: LoadedModel) -> int:
    """Return how many tokens of a text `embed` reads at most."""
    return min(MOST_TOKENS, model.context)


def tokens_of(model: LoadedModel, text: str | Sequence[int], role: Role = "") -> list[int]:
    """Return all tokens of a text, with the end token that the model reads behind it, if any.

    Tokens that are given stay as they are. role: of the text in a search; the model's prompt for it stands before.
    """
    if not isinstance(text, str):
        return list(text)
    text = prompt_of(model.opened, role) + text
    ids, end = model.tokenizer.encode(text, add_bos=model.tokenizer.adds_bos), _end_of(model)
    return ids if end is None else [*ids, end]


def _cut(model: LoadedModel, ids: list[int]) -> list[int]:
    """Return as many tokens as `embed` reads. The end token stays."""
    most = most_tokens(model)
    if len(ids) <= most:
        return ids
    return [*ids[: most - 1], ids[-1]] if ids[-1] == _end_of(model) else ids[:most]


def _end_of(model: LoadedModel) -> int | None:
    """Return the token that ends a text of an encoder, or of a model that is pooled at the last token; else None."""
    opened: OpenedModel = model.opened
    if not opened.config.causal:
        return model.tokenizer.closing_id
    if pooling_of(opened) != "last":
        return None
    if opened.files.kind == "gguf":
        end = opened.metadata.get("tokenizer.ggml.eos_token_id")
        return end if opened.metadata.get("tokenizer.ggml.add_eos_token") is True and isinstance(end, int) else None
    return next(iter(opened.config.eos_token_ids), None)


def _pooled(model: LoadedModel, texts: list[list[int]], job: Job) -> list[F32]:
    """Return the pooled hidden states [D] of each text's tokens. Several texts: of an encoder."""

    def progress(share: float) -> None:
        job.stop_if_cancelled()

    pooling = pooling_of(model.opened) or "mean"
    if model.opened.config.causal:
        return [_of_decoder(model, ids, pooling == "mean", progress) for ids in texts]
    with model.undisturbed():
        states = model.transformer("dense").encode([np.asarray(ids, np.int64) for ids in texts], progress)
    if pooling == "mean":
        return [np.asarray(one.mean(axis=0, dtype=np.float64), np.float32) for one in states]
    return [one[0 if pooling == "first" else -1] for one in states]


def _of_decoder(model: LoadedModel, ids: list[int], takes_mean: bool, progress: ShareProgress) -> F32:
    """Return the mean of a text's hidden states [D], or the last one."""
    if model.residency is not None:
        model.residency.make_room()
        model.reserve(len(ids))
    transformer, cache = model.transformer("dense"), model.new_cache(len(ids))
    tokens, total = np.asarray(ids, np.int64), np.zeros(model.opened.config.d_model, np.float64)
    run = transformer.forward if takes_mean else transformer.prefill
    with model.undisturbed():
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            chunk = tokens[start : start + _CHUNK_TOKENS]
            hidden = run(chunk, cache, len(tokens) - start - len(chunk), progress)
            states = hidden.astype(np.float64)
            total = total + states.sum(axis=0) if takes_mean else states[-1]
    return np.asarray(total / len(tokens) if takes_mean else total, np.float32)
