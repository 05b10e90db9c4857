"""Lays out a token's feed-forward block as calls of kernels, for every mode; the executors are the specification.

It runs nothing and chooses no mode.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.config import Mode, ModelConfig
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I64
from native_kernels.cpu.call import Call, aligned_empty
from native_kernels.cpu.elementwise import COUNT_WORDS, Activation, activation_calls, bias_calls
from native_kernels.cpu.linear import Products, Vector

_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "drelu": "relu", "fatrelu": "fatrelu", "silu": "silu", "gelu": "gelu", "gelu-tanh": "gelu-tanh",
}  # fmt: skip


class FfnPlan(Protocol):
    """How a token's feed-forward block is computed."""

    count_words: int

    def calls(self, layer: int, x: Vector, residual: F32, out: F32, counts: I64) -> list[Call]:
        """out [D] = what the block adds to the stream; x [D] normed, residual [D] before the norm.

        counts: i64 [workers, count_words], the layer's, zero before every token.
        """

    def totals(self, counts: I64) -> tuple[int, int, int]:
        """Computed, opened and fired over all layers: counts [L, workers, count_words]."""


def why_not(mode: Mode, config: ModelConfig, weights: ModelWeights, predictor: Predictor | None) -> list[str]:
    """The reasons, one sentence each, why no program computes the feed-forward blocks in this mode."""
    return ["Predicted neurons are computed layer by layer."] if mode == "sparse" else []


def ffn_plan(
    mode: Mode, config: ModelConfig, weights: ModelWeights, products: Products, predictor: Predictor | None = None
) -> FfnPlan:
    """The plan of a mode that a ModeChooser gave, where `why_not` has no reason against it."""
    return DensePlan(config, weights, products)


class DensePlan:
    """Every neuron: as DenseExecutor."""

    count_words = COUNT_WORDS

    def __init__(self, config: ModelConfig, weights: ModelWeights, products: Products) -> None:
        self._products = products
        self._config = config
        self._layers = weights.layers
        self._neurons = config.n_layers * config.d_ff
        self._gate: F32 = aligned_empty(config.d_ff)
        self._up: F32 = aligned_empty(config.d_ff)
        self._hidden = Vector(aligned_empty(config.d_ff))

    def calls(self, layer: int, x: Vector, residual: F32, out: F32, counts: I64) -> list[Call]:
        """As FfnPlan says."""
        w = self._layers[layer]
        if w.gate is None:
            calls = self._products.calls(w.up, x, self._gate, "ffn")
        else:
            calls = self._products.calls(w.gate, x, self._gate, "ffn", barrier=False)
            calls += self._products.calls(w.up, x, self._up, "ffn")
        self._hidden.renew()
        gated = w.gate is not None
        calls += activation_calls(
            _ACTIVATIONS[self._config.activation.removesuffix("-glu")],
            self._gate,
            self._hidden.values,
            bias=w.gate_bias if gated else w.up_bias,
            up=self._up if gated else None,
            up_bias=w.up_bias if gated else None,
            relu_on_up=self._config.activation == "drelu-glu",
            threshold=self._config.activation_threshold,
            counts=counts,
        )
        return calls + self._down(w, out)

    def totals(self, counts: I64) -> tuple[int, int, int]:
        """As FfnPlan says."""
        opened, fired = counts[:, :, :2].sum(axis=(0, 1))
        return self._neurons, int(opened), int(fired)

    def _down(self, w: LayerWeights, out: F32) -> list[Call]:
        if w.down_t is not None:
            calls = self._products.transposed_calls(w.down_t, self._hidden.values, out, "ffn")
        else:
            assert w.down is not None, "a layer has down_t or down"
            calls = self._products.calls(w.down, self._hidden, out, "ffn")
        return calls + ([] if w.down_bias is None else bias_calls(out, w.down_bias, "ffn"))
