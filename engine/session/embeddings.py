"""Vectors of texts: the hidden states of a model after its final norm, pooled and of length 1.

Models for this, such as Qwen3-Embedding, say in their files how they are pooled. Of other models the mean is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.errors import InvalidRequestError
from engine.job import Job

if TYPE_CHECKING:
    from engine.model.model_files import OpenedModel
    from engine.model.transformer import Transformer
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
    """Yield the vector [d] of each text, or of its tokens, of length 1. Texts are cut at MOST_TOKENS or the context.

    dimensions: keeps so many numbers of each vector, for models that were trained for it; None: all D.
    Cost: a prompt of each text, on a cache of its own. Raises: InvalidRequestError for a text without tokens, or more
    dimensions than the model has; Cancelled between two layers.
    """
    width = model.opened.config.d_model
    if dimensions is not None and not 0 < dimensions <= width:
        raise InvalidRequestError(f"{dimensions} dimensions were asked for, and the model's vectors have {width}.")
    pooling = pooling_of(model.opened)
    transformer, most = model.transformer("dense"), min(MOST_TOKENS, model.context)
    for text in texts:
        ids = _tokens_of(model, text, most, ends=pooling == "last")
        if not ids:
            raise InvalidRequestError("A text to embed is empty.")
        vector = _pooled(transformer, model, ids, pooling or "mean", job)[: dimensions or width]
        length = float(np.linalg.norm(vector))
        yield vector / np.float32(length) if length > 0 else vector


def n_tokens(model: LoadedModel, text: str | Sequence[int]) -> int:
    """Return how many tokens `embed` reads of a text."""
    most = min(MOST_TOKENS, model.context)
    return len(_tokens_of(model, text, most, ends=pooling_of(model.opened) == "last"))


def _tokens_of(model: LoadedModel, text: str | Sequence[int], most: int, ends: bool) -> list[int]:
    """Return a text's tokens. ends: the model's end token is added, whose state is the vector."""
    if not isinstance(text, str):
        return list(text)[:most]
    ids = model.tokenizer.encode(text, add_bos=model.tokenizer.adds_bos)
    end = _end_of(model.opened) if ends else None
    return ids[:most] if end is None else [*ids[: most - 1], end]


def _end_of(opened: OpenedModel) -> int | None:
    """Return the token that ends a text of a model that is pooled at the last token; None: no token does."""
    if opened.files.kind == "gguf":
        end = opened.metadata.get("tokenizer.ggml.eos_token_id")
        return end if opened.metadata.get("tokenizer.ggml.add_eos_token") is True and isinstance(end, int) else None
    return next(iter(opened.config.eos_token_ids), None)


def _pooled(transformer: Transformer, model: LoadedModel, ids: Sequence[int], pooling: Pooling, job: Job) -> F32:
    def look(share: float) -> None:
        job.stop_if_cancelled()

    cache = model.new_cache(len(ids))
    tokens, total = np.asarray(ids, np.int64), np.zeros(model.opened.config.d_model, np.float64)
    run = transformer.forward if pooling == "mean" else transformer.prefill
    for start in range(0, len(tokens), _CHUNK_TOKENS):
        chunk = tokens[start : start + _CHUNK_TOKENS]
        hidden = run(chunk, cache, len(tokens) - start - len(chunk), look)
        total = total + hidden.sum(axis=0, dtype=np.float64) if pooling == "mean" else hidden[-1].astype(np.float64)
    return np.asarray(total / len(tokens) if pooling == "mean" else total, np.float32)
