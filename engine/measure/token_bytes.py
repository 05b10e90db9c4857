"""Counts the bytes that a decoded token reads in a GPU's memory and in the RAM, and the least time that those need.

It times nothing. Neurons that the GPU reads in the RAM over the bus are the RAM's. Where a layer is split, what is
computed is taken to be divided as what fires.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import Mode
from engine.gpu.part import GpuPart
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import I32

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

EXCHANGE_S = 12e-6  # that the floor allows for a layer of which both sides compute neurons


@dataclass(frozen=True, eq=False)
class TokenBytes:
    """Of every layer [L]: what is read before its neurons in (the GPU's memory, the RAM), and of its neurons in each.
    head: likewise. predictors: of all that, theirs."""

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
        """Seconds of a token in which both sides read as fast as their memories: a layer's neurons at the same time,
        all else one after the other, and an exchange wherever both have some."""
        before = self.before[0] / gpu_bytes_per_s + self.before[1] / cpu_bytes_per_s
        hot, cold = self.neurons[0] / gpu_bytes_per_s, self.neurons[1] / cpu_bytes_per_s
        exchanges = EXCHANGE_S * np.count_nonzero((self.before[0] > 0) & (cold > 0))
        head = self.head[0] / gpu_bytes_per_s + self.head[1] / cpu_bytes_per_s
        return float((before + np.maximum(hot, cold)).sum() + exchanges + head)


def token_bytes(
    weights: ModelWeights, part: GpuPart, mode: Mode, shares: F64, fired_of: I64, position: int,
    predictor: Predictor | None, least: bool = False,
) -> TokenBytes:  # fmt: skip
    """What a token at `position` read; shares: [L, 4], as FfnCounters.layer_shares; fired_of: [L, F], how often each
    neuron fired. least: only what it could not do without: neurons that were predicted in sparse mode, those that fired
    in the others.
    """
    placement = part.placement
    at_home = np.array([home == "gpu" for home in placement.attention])
    hot = np.array([len(ids) for ids in placement.hot]) / placement.neurons
    split = [_share_of(ids, fired) for ids, fired in zip(placement.hot, fired_of, strict=True)]
    n_layers = len(weights.layers)
    neurons = (np.zeros(n_layers), np.zeros(n_layers))
    asked = np.zeros(n_layers)
    for i, layer in enumerate(weights.layers):
        computed, opened, fired, copied = shares[i]
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
    attention = np.array([sum(w.n_bytes for w in (x.q, x.k, x.v, x.o)) for x in weights.layers], np.float64)
    attention += part.kv_bytes(position)
    before = (
        np.where(at_home, attention, 0.0) + np.where(asks_there, asked, 0.0),
        np.where(at_home, 0.0, attention) + np.where(asks_there, 0.0, asked),
    )
    head = float(weights.head.n_bytes)
    heads = (head, 0.0) if placement.head == "gpu" else (0.0, head)
    return TokenBytes(before, neurons, heads, float(asked.sum()))


def _share_of(ids: I32, fired: NDArray[np.int64]) -> float:
    """How much of what fires the neurons `ids` do; of nothing, how many of all they are."""
    total = int(fired.sum())
    return float(fired[ids].sum() / total) if total else len(ids) / len(fired)


def _decides_itself(predictor: Predictor | None, layer: int) -> bool:
    return predictor is None or predictor.layers[layer].kind == "true_gate"


def _rows(layer: LayerWeights) -> tuple[int, int, int]:
    """Bytes of the matrix that decides, of up beside a gate, of a down that lies neuron by neuron."""
    ffn = layer.ffns[0]
    down = 0 if ffn.down_t is None else ffn.down_t.n_bytes
    return (ffn.up.n_bytes, 0, down) if ffn.gate is None else (ffn.gate.n_bytes, ffn.up.n_bytes, down)


def _ffn(layer: LayerWeights) -> tuple[int, int]:
    """Bytes of all that lies neuron by neuron, and of a down that lies row by row."""
    whole = layer.ffns[0].down
    return sum(_rows(layer)), 0 if whole is None else whole.n_bytes
