"""The experts of one layer for one chunk: chosen for all positions, then computed group by group.

The positions of each expert are a group of rows. Resident experts are read in GPU memory. The others are streamed once
per chunk, used or not: some hundred positions use nearly all of them, and streaming need not wait for the choice. The
products of several experts are one launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.config import ModelConfig
from engine.gpu.prefill.cold_buffers import ColdExperts
from engine.gpu.prefill.prefill_memory import PrefillMemory, expert_matrix_bytes
from engine.gpu.weights.layers import GpuExpertFfn
from engine.model.graph import graph_of
from native_kernels.cuda.gpu import GpuExperts, GpuNorm
from native_kernels.cuda.group_products import GroupProduct
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, Rows, Weights


@dataclass(frozen=True)
class _Stack:
    """n experts of one width, stored one after another. Fields as in GpuExperts and ColdExperts."""

    n: int
    width: int
    gate: Weights | None
    up: Weights
    down: Weights
    down_is_transposed: bool
    gate_bias: int
    up_bias: int
    down_bias: int

    @classmethod
    def of(cls, experts: GpuExperts | ColdExperts) -> _Stack:
        n = experts.n_slots if isinstance(experts, GpuExperts) else experts.n
        return cls(
            n, experts.up.n_rows // n, experts.gate, experts.up, experts.down, experts.down_is_transposed,
            experts.gate_bias, experts.up_bias, experts.down_bias,
        )  # fmt: skip

    def parts(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the number of up to `most` experts."""
        for first in range(0, self.n, most):
            yield first, min(most, self.n - first)


@dataclass(frozen=True)
class SharedApart:
    """A shared expert that reads x instead, and the norms of its output and of the sum of the others."""

    x: RoundedRows
    experts_norm: GpuNorm | None
    shared_norm: GpuNorm | None


class ExpertPass:
    """One chunk through the experts of a layer. counts: u32 [T, 2], as GpuPrefillOps.activate increments them."""

    def __init__(
        self, ops: GpuPrefillOps, memory: PrefillMemory, config: ModelConfig, layer: int, ffn: GpuExpertFfn,
        n_tokens: int,
    ) -> None:  # fmt: skip
        assert memory.experts is not None, "the model has experts"
        self._ops, self._memory, self._at, self._config = ops, memory, memory.experts, config
        self._spec = graph_of(config).ffn(layer).spec
        self._layer, self._ffn, self._n = layer, ffn, n_tokens
        self._groups = memory.experts.groups_of(layer)

    def choose(self, x: Rows) -> None:
        """Choose the experts of every position for the router's input x [T, D], and group the rows."""
        ops, at, ffn, spec, n = self._ops, self._at, self._ffn, self._spec.routing, self._n
        assert ffn.router is not None, "the layer has experts"
        assert spec is not None, "so it has a router"
        ops.score(x, n, ffn.router, ffn.router_bias, at.scores, self._memory.tile)
        shared = 0
        if ffn.shared_gate is not None:
            shared = at.shared_scores
            ops.score(x, n, ffn.shared_gate, 0, shared, self._memory.tile)
        choice = replace(at.choice, bias=ffn.selection_bias, factor=spec.scale, factors=ffn.scale)
        ops.choose(at.scores, n, spec.n_experts, choice, spec.weighing, spec.groups, shared)
        ranks = at.ranks_of(self._layer)
        ops.group(at.choice.ids, n, spec.n_used, ranks, spec.n_experts, self._groups, at.places)

    def run(
        self, x: RoundedRows, cold: Iterator[ColdExperts], out: Rows, adds: bool, apart: SharedApart | None = None
    ) -> None:
        """Compute out [T, D] = the experts' weighted outputs for x [T, D], or add them to it if none is apart."""
        ops, at, ffn, n = self._ops, self._at, self._ffn, self._n
        n_used, width = self._config.n_experts_used, self._config.d_model
        routing, choice = self._spec.routing, at.choice
        of_inputs = routing is not None and routing.of_inputs
        ops.take(x, self._groups.positions, n * n_used, at.rows, choice if of_inputs else None, at.places)
        if of_inputs:
            choice = replace(choice, weights=0)
        n_resident = 0
        if ffn.resident is not None:
            n_resident = ffn.resident.n_slots
            self._compute(_Stack.of(ffn.resident), self._groups.part(0, n_resident), at.rows, at.out)
        for experts in cold:
            groups = self._groups.part(n_resident + experts.first, experts.n)
            self._compute(_Stack.of(experts), groups, at.rows, at.out)
        if ffn.shared is not None:
            everything = Groups(1, at.all_rows, 0, self._n)
            self._compute(_Stack.of(ffn.shared), everything, x if apart is None else apart.x, at.shared_out)
        shared = at.shared_out if ffn.shared is not None and apart is None else 0
        ops.sum_experts(at.out, at.places, choice, shared, n, width, out, adds)
        if apart is not None:
            ops.round(out, n, width, None, apart.experts_norm, out)
            ops.round(Rows(at.shared_out, width), n, width, None, apart.shared_norm, out, adds=True)

    def _compute(self, experts: _Stack, groups: Groups, x: RoundedRows, to: int) -> None:
        """Compute the rows of these groups: `to` [R, D] = the experts' unweighted outputs for x [R, D]."""
        config, width, d_model = self._config, experts.width, self._config.d_model
        mean = self._n * (config.n_experts_used / config.n_experts if groups.positions else 1)
        if not experts.down_is_transposed and self._ops.groups.takes((experts.gate, experts.up, experts.down), mean):
            self._compute_stored(experts, groups, x, to)
            return
        half, other = self._memory.tile.halved()
        for first, n in experts.parts(max(1, half.n_bytes // expert_matrix_bytes(d_model, width))):
            part = groups.part(first, n)
            hidden = self._at.hidden(width)
            activated, up = Rows(self._at.first, hidden.step), Rows(self._at.up, hidden.step)
            products = []
            given = [(experts.up, experts.up_bias)]
            if experts.gate is not None:
                given = [(experts.gate, experts.gate_bias), *given]
            for (w, bias), rows, tile in zip(given, (activated, up), (half, other), strict=False):
                address, step = self._ops.as_halves(w, first * width, n * width, tile)
                products.append((address, rows, bias and bias + 4 * first * width))
            self._ops.multiply_groups(products, step, x, part, width, d_model)
            self._ops.activate(
                activated, None if experts.gate is None else up, self._rows_of(part), width, self._spec.activation,
                self._spec.threshold, hidden, self._memory.counts_of(self._layer), groups=part,
                keeps=False,
            )  # fmt: skip
            rows_of_one = experts.down.n_rows // experts.n
            address, step = self._ops.as_halves(experts.down, first * rows_of_one, n * rows_of_one, half)
            bias = experts.down_bias and experts.down_bias + 4 * first * d_model
            down = [(address, Rows(to, d_model), bias)]
            self._ops.multiply_groups(down, step, hidden, part, d_model, width, not experts.down_is_transposed)

    def _compute_stored(self, experts: _Stack, groups: Groups, x: RoundedRows, to: int) -> None:
        """As `_compute`, from weights as they are stored."""
        hidden, products = self._at.hidden(experts.width), self._ops.groups
        activated, up = Rows(self._at.first, hidden.step), Rows(self._at.up, hidden.step)
        given = [(experts.up, activated, experts.up_bias)]
        if experts.gate is not None:
            given = [(experts.gate, activated, experts.gate_bias), (experts.up, up, experts.up_bias)]
        products.multiply([GroupProduct(*one) for one in given], x, groups)
        self._ops.activate(
            activated, None if experts.gate is None else up, self._rows_of(groups), experts.width,
            self._spec.activation, self._spec.threshold, hidden, self._memory.counts_of(self._layer), groups=groups,
            keeps=False,
        )  # fmt: skip
        out = Rows(to, self._config.d_model)
        products.multiply([GroupProduct(experts.down, out, experts.down_bias)], hidden, groups)

    def _rows_of(self, groups: Groups) -> int:
        """Return the most rows that these groups have together."""
        return self._n * min(groups.n, self._config.n_experts_used) if groups.positions else self._n


__all__ = ["ExpertPass", "SharedApart"]
