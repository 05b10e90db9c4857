"""Lays out a token's experts as calls of kernels: the router's choice, the chosen experts, and the shared one.

It runs nothing. Specification: engine/model/router.py, and dense.py, exact.py or sparse.py of engine/executor: in exact
mode the neurons inside experts that do not fire are skipped, in sparse mode also those that are not predicted to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.config import Mode, ModelConfig
from engine.executor.feed_forward import ffn_matrices
from engine.model.graph import graph_of
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.attention.norms import RowNorm, norm_calls
from native_kernels.cpu.ffn import experts
from native_kernels.cpu.ffn.elementwise import activation_calls, scale_calls
from native_kernels.cpu.ffn.expert_biases import ExpertBiases, chosen_bias_calls
from native_kernels.cpu.ffn.experts import ExpertMatrices, ExpertRows, ExpertVectors, Residency
from native_kernels.cpu.ffn.router import Chosen, choose_calls
from native_kernels.cpu.ffn.sparse_ffn import Buffers, ffn_calls
from native_kernels.cpu.products.gemv import OVER, gemv_calls, vector_format
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.products.linear import why_not as cannot_multiply
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.tallies import Counting, Tally, TallyBlock, tally_calls

# The first of three words of a layer's counts, by sparse_ffn: computed neurons, those of an active gate, active ones.
_OF_SHARED = 4
_Part = Literal["gate", "up", "down", "down_t"]
_Blocks = tuple[FfnWeights, ...]


def why_not(config: ModelConfig, weights: ModelWeights, mode: Mode, predictor: Predictor | None = None) -> list[str]:
    """The reasons, one sentence each, why the experts of this model have no program; empty where they have one."""
    if mode == "sparse":
        layers = () if predictor is None else predictor.layers
        if not all(one.kind == "true_gate" or _is_known(one) for one in layers) or not layers or not config.has_zeros:
            return ["For the neurons of experts, only low-rank predictors of the normed input are supported."]
    if mode != "dense" and {"gate", "up", "down"} & set(config.biases):
        return ["Neurons of experts with biases are not skipped."]
    reasons = []
    for layer in weights.layers:
        blocks = layer.routed
        for part in _parts(blocks[0]) if blocks else ():
            reasons += experts.why_not(
                [_matrix(block, part) for block in blocks], summed=part == "down_t", listed=mode != "dense"
            )
        others = () if layer.shared is None else vars(layer.shared).values()
        matrices = [one for one in (layer.router, *others) if isinstance(one, PackedMatrix)]
        reasons += [why for one in matrices for why in cannot_multiply(one)]
    return list(dict.fromkeys(reasons))


class ExpertCalls:
    """The buffers of one model's experts, and the calls over them; a FfnPlan of decode_calls.

    chosen: of each layer. tallies: where every neuron that fires is counted by itself, i64 [L, F of all experts].
    """

    def __init__(
        self, mode: Mode, config: ModelConfig, weights: ModelWeights, products: Products,
        predictor: Predictor | None = None,
    ) -> None:  # fmt: skip
        self.tallies = TallyBlock()
        self._skips = mode != "dense"
        self._predictors = predictor.layers if mode == "sparse" and predictor is not None else None
        self._config, self._graph = config, graph_of(config)
        self._layers = weights.layers
        self._n_computed = np.array([self._graph.ffn(layer).spec.n_computed for layer in range(config.n_layers)])
        self._reads = weights.expert_reads
        self._products = products
        n_used, width = config.n_experts_used, config.d_ff
        self.chosen = [Chosen.make(config.n_experts, n_used) for _ in weights.layers]
        self._scores: F32 = aligned_empty(config.n_experts)
        self._shared_score: F32 = aligned_empty(1)
        self._gate: F32 = aligned_empty((n_used, width))
        self._up: F32 = aligned_empty((n_used, width))
        self._hidden = ExpertVectors(n_used, width)
        self._rows = ExpertRows(n_used, width) if self._skips else ExpertRows.of_all(self._hidden)
        self._said: F32 = aligned_empty((n_used * self._segments(weights), config.d_model))
        for chosen in self.chosen:
            chosen.weights[n_used] = 1.0  # of a shared expert without a gate
        self._shared: F32 = aligned_empty(config.d_model)
        widest = max(config.shared_d_ff, config.dense_d_ff)
        self._shared_gate: F32 = aligned_empty(widest)
        self._shared_up: F32 = aligned_empty(widest)
        hidden: F32 = aligned_empty(widest)
        self._shared_hidden = {n: Vector(hidden[:n]) for n in (config.shared_d_ff, config.dense_d_ff)}
        self._some = Buffers.make(widest, config.d_model, products.n_workers) if self._skips and widest else None

    def select(self, layer: int, x: Vector) -> list[Call]:
        """The router's choice, from x [D]."""
        w, routing = self._layers[layer], self._graph.ffn(layer).spec.routing
        if routing is None or w.router is None:
            return []
        alone = w.shared_gate is None
        calls = self._products.calls(w.router, x, self._scores, "ffn", bias=w.router_bias, barrier=alone)
        score = None
        if w.shared_gate is not None:
            score = self._shared_score
            row = PackedMatrix(1, len(w.shared_gate), "f32", w.shared_gate[None])
            calls += self._products.calls(row, x, score, "ffn")
        factor = routing.scale if w.expert_scale is None else np.float32(routing.scale) * w.expert_scale
        return calls + choose_calls(
            self._scores, self.chosen[layer], routing.weighing, score, w.selection_bias, factor, routing.groups
        )

    def of_layer(
        self, layer: int, x: Vector, residual: Vector, out: F32, counts: I64, of_shared: Vector | None = None
    ) -> list[Call]:
        """out [D] = what the chosen experts and the shared one add to the stream; x [D] normed.

        of_shared [D]: what the shared expert reads instead of x; then a norm follows each of the two sums.
        """
        w, chosen = self._layers[layer], self.chosen[layer]
        if w.router is None:
            return self._of_all(layer, w.ffns[0], x, out, self._tally(layer, 0), counts)
        calls, shared = self._of_chosen(layer, x, counts), None
        if w.shared is not None:
            shared = self._shared
            tally = self._tally(layer, self._config.n_experts)
            calls += self._of_all(layer, w.shared, x if of_shared is None else of_shared, shared, tally, counts)
        if of_shared is None or shared is None:
            return calls + experts.combine_calls(self._said, chosen, shared, out)
        calls += experts.combine_calls(self._said, chosen, None, out)
        norms = [RowNorm("rms", self._config.norm_eps, one) for one in (w.post_experts_norm, w.post_shared_norm)]
        calls += norm_calls(out, out, norms[0], stage="ffn", barrier=False)
        calls += norm_calls(shared, shared, norms[1], stage="ffn")
        return calls + norm_calls(out, out, None, added=(shared,), stage="ffn")

    def of_missing(
        self, layer: int, x: Vector, published: I32, residency: Residency, out: F32, counts: I64
    ) -> list[Call]:  # fmt: skip
        """out [D] = what those experts add to the stream that a GPU chose and does not compute itself.

        published i32 [2 K + 1]: the ids and the bits of the weights that it chose.
        """
        own, chosen = self._layers[layer].routed, self.chosen[layer]
        rounding: list[Call] = []
        for part in ("gate", "up"):
            if (matrix := getattr(own[0], part)) is not None:
                rounding += x.as_read_by(matrix.codec, "ffn")[1]
        calls = self._of_chosen(layer, x, counts) + experts.combine_calls(self._said, chosen, None, out)
        rows = self._rows if self._skips else None
        return rounding + experts.missing_calls(calls, chosen, rows, published, residency)

    def _of_chosen(self, layer: int, x: Vector, counts: I64) -> list[Call]:
        """Lay out the output of each chosen expert, in `said`."""
        own, chosen, calls = self._layers[layer].routed, self.chosen[layer], list[Call]()
        if self._reads is not None and self._predictors is None:
            parts = _parts(own[0])[: 1 if self._skips else None]  # most rows of the others are skipped with neurons
            calls = experts.request_calls([_all_of(own, part) for part in parts], chosen, self._reads.function)
        calls += self._fired(layer, own, chosen, x, counts) if self._skips else self._all(layer, own, chosen, x, counts)
        calls += experts.tally_calls(self._hidden, chosen, self._tally(layer, 0))
        said = self._said
        if own[0].down_t is not None:
            calls += experts.sum_calls(_all_of(own, "down_t"), chosen, self._rows, said, self._products.n_workers)
        else:
            down = _all_of(own, "down")
            rows, more = self._hidden.as_read_by(down.first.codec)
            calls += more + experts.product_calls(down, chosen, rows, said)
        return calls + self._biases(own, "down_bias", chosen, said)

    def _all(self, layer: int, blocks: _Blocks, chosen: Chosen, x: Vector, counts: I64) -> list[Call]:
        """Every hidden value of the chosen experts."""
        calls, up = [], None
        if blocks[0].gate is not None:
            has_bias = blocks[0].gate_bias is not None
            calls, up = self._product(blocks, "gate", chosen, x, self._gate, barrier=has_bias), self._up
            calls += self._biases(blocks, "gate_bias", chosen, self._gate)
        calls += self._product(blocks, "up", chosen, x, self._gate if up is None else up)
        calls += self._biases(blocks, "up_bias", chosen, self._gate if up is None else up)
        calls += self._weighed(layer, chosen)
        return calls + self._activated(layer, self._gate, up, self._hidden.values, counts)

    def _fired(self, layer: int, blocks: _Blocks, chosen: Chosen, x: Vector, counts: I64) -> list[Call]:
        """The first matrix, whole or of predicted neurons, up where it passes the activation, and the list of what
        fired.
        """
        gated, rows, hidden = blocks[0].gate is not None, self._rows, self._hidden
        first: _Part = "gate" if gated else "up"
        part = None if self._predictors is None else self._predictors[layer].low_rank
        if part is None:
            calls = self._product(blocks, first, chosen, x, self._gate)
        else:
            calls = self._predicted(part, chosen, x, counts)
            matrices = _all_of(blocks, first)
            values, more = x.as_read_by(matrices.first.codec, "ffn")
            calls += more + experts.listed_product_calls(matrices, chosen, rows, values, self._up)
            calls += experts.spread_calls(self._up, rows, self._gate)
        calls += self._weighed(layer, chosen)
        calls += self._activated(layer, self._gate, None, hidden.values, None)
        calls += experts.active_calls(hidden, rows, counts)
        up = None
        if gated:
            matrices, up = _all_of(blocks, "up"), self._up
            values, more = x.as_read_by(matrices.first.codec, "ffn")
            calls += more + experts.listed_product_calls(matrices, chosen, rows, values, up)
        return calls + experts.fire_calls(hidden, up, self._graph.ffn(layer).spec.relu_on_up, rows, counts)

    def _predicted(self, part: LowRank, chosen: Chosen, x: Vector, counts: I64) -> list[Call]:
        """The list of the chosen experts' neurons whose scores reach the threshold, and zeros in place of the gates."""
        width, inner = self._config.d_ff, Vector(aligned_empty(part.rank))
        values, calls = x.as_read_by(part.a.codec, "predictor")
        calls += gemv_calls(part.a, values, inner.values, bias=part.a_bias, relu=True, stage="predictor")
        starts = range(0, part.b.n_rows, width)
        second = ExpertMatrices.of([replace(part.b, n_rows=width, data=part.b.data[n : n + width]) for n in starts])
        between, more = inner.as_read_by(part.b.codec, "predictor")
        calls += more + experts.product_calls(second, chosen, between, self._up, stage="predictor")
        if part.b_bias is not None:
            calls += chosen_bias_calls(ExpertBiases.of(list(part.b_bias.reshape(-1, width))), chosen, self._up)
        return calls + experts.reached_calls(self._up, part.threshold, self._gate, self._rows, counts)

    def _weighed(self, layer: int, chosen: Chosen) -> list[Call]:
        """The gates times the weights, if these belong on the input of an expert.

        Its up would have the same factor, which is left to the output: the rest of the expert is linear in it.
        """
        routing, calls = self._graph.ffn(layer).spec.routing, []
        if routing is not None and routing.of_inputs:
            for k, gates in enumerate(self._gate):
                calls += scale_calls(gates, chosen.weights[k : k + 1], "ffn")
        return calls

    def _product(
        self, blocks: _Blocks, part: _Part, chosen: Chosen, x: Vector, out: F32, barrier: bool = True
    ) -> list[Call]:
        matrices = _all_of(blocks, part)
        values, calls = x.as_read_by(matrices.first.codec, "ffn")
        return calls + experts.product_calls(matrices, chosen, values, out, barrier=barrier)

    def _biases(self, blocks: _Blocks, part: str, chosen: Chosen, values: F32) -> list[Call]:
        if getattr(blocks[0], part) is None:
            return []
        biases = ExpertBiases.of([getattr(block, part) for block in blocks])
        return chosen_bias_calls(biases, chosen, values)

    def _segments(self, weights: ModelWeights) -> int:
        """Return how many partial sums sum_calls leaves for each chosen expert; 1 where down is multiplied."""
        down = next((layer.routed[0].down_t for layer in reversed(weights.layers) if layer.routed), None)
        return 1 if down is None else experts.segments_of(down, self._config.n_experts_used)

    def of_last_token(self) -> list[I32 | None]:
        """[L] the experts that the last token used; None for a layer without."""
        pairs = zip(self.chosen, self._layers, strict=True)
        return [None if layer.router is None else chosen.ids for chosen, layer in pairs]

    def totals(self, counts: I64) -> I64:
        """Return totals by layer of a token's counts [L, workers, COUNT_WORDS], in the order of FfnCounters.layers."""
        found = np.zeros((len(self._layers), 4), np.int64)
        found[:, 1:3] = counts[:, :, :2].sum(axis=1)
        found[:, 1] += counts[:, 0, _OF_SHARED + (1 if self._config.gated else 2)]  # without a gate 1 is all neurons
        found[:, 2] += counts[:, 0, _OF_SHARED + 2]
        found[:, 0] = found[:, 1] if self._skips else self._n_computed
        for layer, part in enumerate(self._predictors or ()):
            if part.low_rank is not None and self._layers[layer].routed:
                found[layer, 0] = counts[layer, :, 2].sum() + self._config.shared_d_ff  # whose first matrix is read
        return found

    def _tally(self, layer: int, expert: int) -> Tally:
        return Tally(self.tallies, layer * self._config.n_neurons + expert * self._config.d_ff)

    def _of_all(self, layer: int, w: FfnWeights, x: Vector, out: F32, tally: Tally, counts: I64) -> list[Call]:
        """Set out [D] to the shared expert's output without its weight, or to that of a layer without experts."""
        if self._some is not None and w.down_t is not None and w.down_t.codec in SUMS:
            return self._some_of_all(layer, w, x, out, tally, counts)
        n = w.up.n_rows
        gate, up, hidden = self._shared_gate[:n], self._shared_up[:n], self._shared_hidden[n]
        calls = self._products.calls(w.up if w.gate is None else w.gate, x, gate, "ffn", barrier=w.gate is None)
        if w.gate is not None:
            calls += self._products.calls(w.up, x, up, "ffn")
        calls += self._activated(layer, gate, None if w.gate is None else up, hidden.values, counts)
        hidden.renew()
        calls += tally_calls(hidden.values, tally)
        if w.down_t is not None:
            return calls + self._products.transposed_calls(w.down_t, hidden.values, out, "ffn")
        assert w.down is not None, "a block has down_t or down"
        return calls + self._products.calls(w.down, hidden, out, "ffn")

    def _some_of_all(self, layer: int, w: FfnWeights, x: Vector, out: F32, tally: Tally, counts: I64) -> list[Call]:
        """Do as `_of_all`, without the neurons that do not fire."""
        assert self._some is not None, "the mode skips neurons"
        calls: list[Call] = []
        forms: dict[str, NDArray[Any]] = {}
        for matrix in (w.up, *([] if w.gate is None else [w.gate])):
            forms[vector_format(matrix.codec)], more = x.as_read_by(matrix.codec, "ffn")
            calls += more
        counting = Counting(counts.reshape(-1)[_OF_SHARED:], tally)
        matrices = ffn_matrices(self._graph.ffn(layer).spec, w)
        return calls + ffn_calls(matrices, forms, out, self._some, counting=counting)

    def _activated(self, layer: int, x: F32, up: F32 | None, out: F32, counts: I64 | None) -> list[Call]:
        spec = self._graph.ffn(layer).spec
        return activation_calls(
            spec.activation, x, out, up=up, relu_on_up=up is not None and spec.relu_on_up, threshold=spec.threshold,
            counts=counts,
        )  # fmt: skip


def _is_known(part: LayerPredictor) -> bool:
    known = part.kind == "low_rank" and part.input == "normed"
    return known and all(one.codec in OVER for one in part.matrices)


def _parts(block: FfnWeights) -> list[_Part]:
    return [part for part in ("gate", "up", "down", "down_t") if getattr(block, part) is not None]


def _matrix(block: FfnWeights, part: _Part) -> PackedMatrix:
    found = getattr(block, part)
    assert isinstance(found, PackedMatrix), "all experts of a layer have the same matrices"
    return found


def _all_of(blocks: _Blocks, part: _Part) -> ExpertMatrices:
    return ExpertMatrices.of([_matrix(block, part) for block in blocks])
