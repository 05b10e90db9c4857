"""Find where a model's numbers stop being finite, once its logits are not: compute layer by layer on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.executor.dense import DenseExecutor
from engine.job import Job
from engine.model.graph import Select
from engine.model.kv_cache import KVCache
from engine.model.transformer import EagerLayer, Transformer
from native_kernels.backend import F32

MOST_TOKENS = 256  # a damaged file shows in the first ones; more would take many seconds


class _FoundError(Exception):
    """Carries the answer out of the transformer."""


class _Layer(EagerLayer):
    def select(self, layer: int, step: Select) -> None:
        super().select(layer, step)
        if self._routing is not None and np.isfinite(self._values[step.reads]).all():
            _require_finite(self._routing.weights, f"the router of layer {layer}")


class _Watched(Transformer):
    @property
    def _layer_type(self) -> type[EagerLayer]:
        return _Layer

    def layer(self, i: int, x: F32, *others: Any, **named: Any) -> F32:
        _require_finite(x, "the embedding")  # the layer before was checked
        streams = super().layer(i, x, *others, **named)
        _require_finite(streams, f"layer {i}")
        return streams


def first_broken(model: Transformer, tokens: Sequence[int], job: Job = Job()) -> str:
    """Return the part that first gives NaN or infinity in the first MOST_TOKENS tokens, such as "layer 3".

    Layers count from 0, as in the names of tensors. Return "" if the numbers are finite on the CPU.
    Cost: a prompt of these tokens on the CPU. Raises: as Transformer.forward; Cancelled between two layers.
    """
    ids = np.array(tokens[:MOST_TOKENS], np.int64)
    executor = DenseExecutor(model.config, model.weights, model.operators)
    watched = _Watched(model.config, model.weights, executor, model.operators)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            cache = KVCache(model.config, len(ids), "f32")
            hidden = watched.forward(ids, cache, progress=lambda share: job.stop_if_cancelled())
            _require_finite(watched.logits(hidden[-1:]), "the output layer")
    except _FoundError as found:
        return str(found)
    return ""


def _require_finite(values: F32, where: str) -> None:
    if not np.isfinite(values).all():
        raise _FoundError(where)
