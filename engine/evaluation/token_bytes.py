"""Count the bytes that a decoded token reads in VRAM and in RAM, and the least time for them.

Zero-copy reads by the GPU count as RAM. If a layer is split, the computed neurons are assumed to split as the active
ones do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import Mode
from engine.executor.ffn_bytes import layer_bytes
from engine.gpu.placed_model import PlacedModel
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import I32

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

EXCHANGE_S = 12e-6  # allowed by the floor for a layer that both sides compute


@dataclass(frozen=True, eq=False)
class TokenBytes:
    """Per layer [L]: bytes read before its neurons, and of its neurons, each as (VRAM, RAM).

    head: likewise. predictors: their share of all bytes.
    """

    before: tuple[F64, F64]
    neurons: tuple[F64, F64]
    head: tuple[float, float]
    predictors: float

    @property
    def on_gpu(self) -> int:
        return round(float(self.before[0].sum() + self.neurons[0].sum() + self.head[0]))

    @property
    def in_ram(self) -> int:
        return round(float(self.before[1].sum() + self.neurons[1].sum() + self.head[1]))

    @property
    def of_neurons(self) -> int:
        return round(float(self.neurons[0].sum() + self.neurons[1].sum()))

    def least_s(self, gpu_bytes_per_s: float, cpu_bytes_per_s: float) -> float:
        """Return the least seconds of a token at full memory bandwidth.

        Both sides read a layer's neurons at the same time and everything else in turn, with an exchange if both have
        some.
        """
        before = self.before[0] / gpu_bytes_per_s + self.before[1] / cpu_bytes_per_s
        hot, cold = self.neurons[0] / gpu_bytes_per_s, self.neurons[1] / cpu_bytes_per_s
        exchanges = EXCHANGE_S * np.count_nonzero((self.before[0] > 0) & (cold > 0))
        head = self.head[0] / gpu_bytes_per_s + self.head[1] / cpu_bytes_per_s
        return float((before + np.maximum(hot, cold)).sum() + exchanges + head)


@dataclass(frozen=True, eq=False)
class Routed:
    """How a token goes through experts.

    share: share of a layer's neurons in the experts that it uses. hits [L]: share of those experts, without the shared
    one, that are resident on the GPU.
    """

    n_experts: int
    share: float
    hits: F64


def token_bytes(
    weights: ModelWeights, part: PlacedModel, mode: Mode, shares: F64, fired_of: I64 | Routed, position: int,
    predictor: Predictor | None, least: bool = False,
) -> TokenBytes:  # fmt: skip
    """Return the bytes that a token at `position` reads.

    shares [L, 4]: FfnCounters.layer_shares. fired_of [L, F]: times each neuron was active; with experts, Routed. least:
    only the indispensable bytes: selected neurons in sparse mode, active ones in the others.
    """
    placement = part.placement
    at_home = np.array([home == "gpu" for home in placement.attention])
    hot = np.array([len(ids) for ids in placement.hot]) / placement.neurons
    routed, split = fired_of if isinstance(fired_of, Routed) else None, []
    if not isinstance(fired_of, Routed):
        split = [_share_of(ids, fired) for ids, fired in zip(placement.hot, fired_of, strict=True)]
    n_layers = len(weights.layers)
    neurons = (np.zeros(n_layers), np.zeros(n_layers))
    asked = np.zeros(n_layers)
    for i, layer in enumerate(weights.layers):
        computed, opened, fired, copied = shares[i]
        if routed is not None:
            first, second, down = (routed.share,) * 3 if mode == "dense" else (routed.share, opened, fired)
            if least and mode != "dense":
                first, second, down = (float(fired),) * 3
            all_of_it = layer_bytes(layer, first, second, down, routed.share)
            shared = sum(w.n_bytes for expert in layer.experts[routed.n_experts :] for w in expert.matrices)
            neurons[0][i] = at_home[i] * shared + routed.hits[i] * (all_of_it - shared)
            neurons[1][i] = all_of_it - neurons[0][i]
            continue
        row_wise = layer.ffns[0].down is not None
        if predictor is not None and not (row_wise and hot[i] == 1):
            asked[i] = predictor.layers[i].bytes_read(float(copied))
        if row_wise and hot[i] == 1:
            neurons[0][i] = fired * _ffn(layer)[0] + _ffn(layer)[1] if least else sum(_ffn(layer))
            continue
        first = computed if mode == "sparse" and not _decides_itself(predictor, i) else 1.0
        of_each = (first, opened, fired)
        if mode == "dense":
            of_each = (1.0, 1.0, 1.0)
        elif least:
            of_each = (computed,) * 3 if mode == "sparse" else (fired,) * 3
        share = split[i]
        first_share = hot[i] if of_each[0] == 1.0 else share
        n_first, n_second, n_down = _rows(layer)
        on_gpu = first_share * of_each[0] * n_first + share * (of_each[1] * n_second + of_each[2] * n_down)
        whole = _ffn(layer)[1]
        all_of_it = of_each[0] * n_first + of_each[1] * n_second + of_each[2] * n_down + whole
        neurons[0][i], neurons[1][i] = on_gpu, all_of_it - on_gpu
    asks_there = at_home & np.array([layer.ffns[0].down is None for layer in weights.layers])
    attention = np.array([sum(w.n_bytes for w in x.attention_matrices) for x in weights.layers], np.float64)
    attention += part.kv_bytes(position)
    attention += np.array([0 if layer.router is None else layer.router.n_bytes for layer in weights.layers])
    before = (
        np.where(at_home, attention, 0.0) + np.where(asks_there, asked, 0.0),
        np.where(at_home, 0.0, attention) + np.where(asks_there, 0.0, asked),
    )
    head = float(weights.head.n_bytes)
    heads = (head, 0.0) if placement.head == "gpu" else (0.0, head)
    return TokenBytes(before, neurons, heads, float(asked.sum()))


def _share_of(ids: I32, fired: NDArray[np.int64]) -> float:
    """Return these neurons' share of all activity; without any activity, their share of all neurons."""
    total = int(fired.sum())
    return float(fired[ids].sum() / total) if total else len(ids) / len(fired)


def _decides_itself(predictor: Predictor | None, layer: int) -> bool:
    return predictor is None or predictor.layers[layer].kind == "true_gate"


def _rows(layer: LayerWeights) -> tuple[int, int, int]:
    """Return bytes of the deciding matrix, of up beside a gate, and of a down stored by neuron."""
    ffn = layer.ffns[0]
    down = 0 if ffn.down_t is None else ffn.down_t.n_bytes
    return (ffn.up.n_bytes, 0, down) if ffn.gate is None else (ffn.gate.n_bytes, ffn.up.n_bytes, down)


def _ffn(layer: LayerWeights) -> tuple[int, int]:
    """Return bytes of everything stored by neuron, and of a row-wise down."""
    whole = layer.ffns[0].down
    return sum(_rows(layer)), 0 if whole is None else whole.n_bytes
