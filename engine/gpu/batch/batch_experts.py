"""The experts of a batch step on the GPU: chosen per sequence, then each expert is read once for all that use it.

The CPU computes experts that are not resident, after reading the choice from pinned memory. One exchange per layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from engine.config import ModelConfig
from engine.errors import InvalidRequestError
from engine.gpu.batch.batch_memory import BatchMemory
from engine.gpu.weights.layers import GpuExpertFfn, GpuModel
from engine.model.graph import FfnSpec, RoutingSpec
from native_kernels.backend import F32, I32, I64
from native_kernels.cuda.batch_ops import GpuBatchOps
from native_kernels.cuda.expert_batch import MOST_PAIRS, ExpertPairs
from native_kernels.cuda.gpu import Gpu, GpuChoice, GpuCopy, GpuExperts, GpuVector
from native_kernels.cuda.prompt_rows import Rows

_ALIGNMENT = 256


class BatchExperts:
    """Memory and operators of a batch's experts, until `free`. Each of B sequences uses K of E experts.

    n_bytes: on the GPU.
    """

    def __init__(self, gpu: Gpu, config: ModelConfig, model: GpuModel, ops: GpuBatchOps, batch: int) -> None:
        """Raises: InvalidRequestError for too many; CudaOutOfMemoryError, CudaError; nothing stays allocated."""
        if batch * config.n_experts_used > MOST_PAIRS:
            raise InvalidRequestError(f"{batch} sequences use too many experts at once.", "Decode fewer together.")
        self._gpu, self._config, self._ops, self._n = gpu, config, ops, batch
        b, k, d = batch, config.n_experts_used, config.d_model
        self._at: dict[str, int] = defaultdict(int)  # addresses by name; 0 while sizes are computed
        hidden = b * max(k * config.d_ff, config.shared_d_ff, config.dense_d_ff)
        ffns = [layer.experts for layer in model.layers if layer is not None and layer.experts is not None]
        most_groups = max((self._n_groups(ffn) for ffn in ffns), default=0)
        parts = max((sum(ops.experts.parts(one, pairs) for one, pairs in self._blocks(ffn)) for ffn in ffns), default=0)
        sizes = {
            "scores": 4 * b * config.n_experts, "shared_scores": 4 * b, "choice": 4 * b * (2 * k + 1),
            "order": 4 * b * k, "groups": 8 * (most_groups + 1), "everyone": 4 * b, "one_group": 16,
            "x_bytes": _filled(b * d, 64), "x_scales": 8 * -(-b * d // 32), "first": 4 * hidden, "up": 4 * hidden,
            "hidden": 4 * hidden, "bytes": _filled(hidden, 64), "scales": 8 * -(-hidden // 32),
            "parts": 4 * parts * b * d,
        }  # fmt: skip
        at, self.n_bytes = {}, 0
        for name, size in sizes.items():
            at[name] = self.n_bytes
            self.n_bytes += _filled(size, _ALIGNMENT)
        with ExitStack() as held:
            memory = gpu.allocate(self.n_bytes)
            held.callback(memory.free)
            self._pinned = gpu.pin(4 * b * (2 * k + 1))
            held.callback(self._pinned.free)
            gpu.fill(memory.address, 0, self.n_bytes)
            self._at |= {name: memory.address + offset for name, offset in at.items()}
            everyone, one_group = np.arange(b, dtype=np.int32), np.array([0, 0, -1, b], np.int32)
            for name, values in (("everyone", everyone), ("one_group", one_group)):
                gpu.upload(self._at[name], values.ctypes.data, values.nbytes)
            gpu.synchronize()  # before the arrays are freed
            self._held = held.pop_all()
        self._ids: I32 = self._pinned.as_array(np.int32, b * k).reshape(b, k)
        self._weights: F32 = self._pinned.as_array(np.float32, b * (k + 1), 4 * b * k).reshape(b, k + 1)

    def free(self) -> None:
        """Release the memory. Arrays from `published` must not be used afterwards."""
        self._held.close()

    def published(self) -> tuple[I64, F32]:
        """Return the chosen experts [B, K] and their weights [B, K]."""
        return self._ids.astype(np.int64), self._weights[:, :-1]

    def choose(self, spec: RoutingSpec | None, ffn: GpuExpertFfn, x: Rows, memory: BatchMemory) -> None:
        """Choose the experts of each sequence for the router's input x [B, D], if the layer has a router."""
        if spec is None or ffn.router is None:
            return
        ops, at, n = self._ops, self._at, self._n
        ops.score(x, n, ffn.router, ffn.router_bias, at["scores"], memory.tile)
        shared = 0
        if ffn.shared_gate is not None:
            shared = at["shared_scores"]
            ops.score(x, n, ffn.shared_gate, 0, shared, memory.tile)
        choice = GpuChoice(
            spec.n_used, at["choice"], self._weights_address, 0, ffn.selection_bias, spec.scale, ffn.scale
        )
        ops.choose(at["scores"], n, spec.n_experts, choice, spec.weighing, spec.groups, shared)
        if ffn.resident is not None:
            ops.experts.group(at["choice"], ffn.slot_of, self._chosen(ffn))

    def publish(self, x: Rows, memory: BatchMemory) -> None:
        """Publish the choice and the experts' input x [B, D] to the CPU."""
        words = self._n * (2 * self._config.n_experts_used + 1)
        values = GpuCopy(x.address, memory.host_x.pinned, self._n * self._config.d_model)
        choice = GpuCopy(self._at["choice"], self._pinned.device_address, words)
        self._gpu.publish(memory.flag_address, memory.epoch, values, choice)

    def add(
        self, spec: FfnSpec, ffn: GpuExpertFfn, x: Rows, target: Rows, counts: int, only: GpuExperts | None = None
    ) -> None:
        """Add the outputs of resident experts and of the shared one for x [B, D] to target [B, D], or of `only`.

        counts u32 [3]: as Gpu.activate increments them; experts that are not resident count as computed.
        """
        gpu, at, config, ops = self._gpu, self._at, self._config, self._ops.experts
        size = self._n * config.d_model
        vectors = GpuVector(size, x.address, at["x_bytes"], at["x_scales"])
        blocks = [one for one in self._blocks(ffn) if only is None or one[0] is only]
        if any(one is not None and one.reads_bytes for block, _ in blocks for one in (block.gate, block.up)):
            gpu.quantise(vectors)
        parts = at["parts"]
        for experts, pairs in blocks:
            n = pairs.n * experts.width
            rounds = experts.down.reads_bytes and not experts.down_is_transposed
            hidden = GpuVector(n, at["hidden"], at["bytes"] if rounds else 0, at["scales"] if rounds else 0)
            up = 0 if experts.gate is None else at["up"]
            weighed = spec.routing is not None and spec.routing.of_inputs and experts is not ffn.shared
            ops.products(experts, vectors, pairs, at["first"], up, weighed)
            gpu.activate(at["first"], up, n, spec.activation, spec.threshold, hidden, counts)
            ops.down(experts, hidden, pairs, parts)
            parts += 4 * ops.parts(experts, pairs) * size
        if blocks:
            gpu.advance(target.address, size, at["parts"], (parts - at["parts"]) // (4 * size))

    @property
    def _weights_address(self) -> int:
        return self._at["choice"] + 4 * self._n * self._config.n_experts_used

    def _n_groups(self, ffn: GpuExpertFfn) -> int:
        """Return the most groups of a layer: one per resident expert, and one for all others."""
        slots = 0 if ffn.resident is None else ffn.resident.n_slots
        return min(self._n * self._config.n_experts_used, slots + 1)

    def _chosen(self, ffn: GpuExpertFfn) -> ExpertPairs:
        k = self._config.n_experts_used
        at = self._at
        return ExpertPairs(
            self._n, k, self._n_groups(ffn), at["order"], at["groups"], self._weights_address, weight_step=k + 1
        )

    def _blocks(self, ffn: GpuExpertFfn) -> Iterator[tuple[GpuExperts, ExpertPairs]]:
        """Yield the experts that the GPU computes, with the sequences that use them."""
        if ffn.resident is not None:
            yield ffn.resident, self._chosen(ffn)
        if ffn.shared is not None:
            at, k = self._at, self._config.n_experts_used
            weights, step = self._weights_address + 4 * k, k + 1
            if ffn.shared_weight:
                weights, step = ffn.shared_weight, 0
            yield ffn.shared, ExpertPairs(self._n, 1, 1, at["everyone"], at["one_group"], weights, weight_step=step)


def _filled(n: int, step: int) -> int:
    return -(-n // step) * step


__all__ = ["BatchExperts"]
