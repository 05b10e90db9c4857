"""The resident experts on the GPU: the slot of each, and their exchange during decode.

Each expert has a heat that grows with every choice of the router and decays per token. The hottest experts in RAM are
copied beside the tokens, and replace the coldest resident ones between two. Captured work stays valid, because only the
contents of the slots change.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.config import ModelConfig
from engine.errors import DeviceFailedError
from engine.gpu.weights.expert_exchange import Exchange, Moved, ZeroCopy
from engine.gpu.weights.layers import GpuModel
from engine.gpu.weights.layout import slots_of
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import F32, I32, I64, U8
from native_kernels.cpu.ffn.experts import Residency
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu

# Simulated with routing as published, half of 128 experts resident, and an exchange per five tokens and layer: 93 % of
# the choices were resident. With a decay of .995 and a hysteresis of 1.3 it was 91 %.
DECAY = 0.98  # of the heat, per token
HYSTERESIS = 1.2  # an expert must be hotter than the one it replaces by this factor
LEAST_GAIN = 0.4  # and beyond that by this many choices
TIME_SHARE = 0.1  # of the decode time that the CPU's part of exchanges may take
_RESCALE_AT = 1e6


class Move(NamedTuple):
    """An expert to move into a slot."""

    layer: int
    slot: int
    expert: int


def no_such_expert(layer: int) -> DeviceFailedError:
    return DeviceFailedError(f"The GPU chose an expert that layer {layer} does not have.")


class ExpertSlots:
    """The slots of a model's experts.

    heat: f32 [L, E], scaled by a growing factor. expert_in: [L] of i32 [S], negative: an empty slot. exchanged: experts
    moved so far. exchange_s: the CPU's seconds for them after tokens. tokens: decoded so far. is_on_gpu: bool [L].
    counted: bool [L], layers whose choices are counted, because some of their experts are not resident. missing: i64
    [L], non-resident experts chosen in the last run. is_adapting: whether `exchange_after` exchanges experts. Not
    thread-safe: use it in the thread that decodes.
    """

    def __init__(
        self, gpu: Gpu, pool: Pool, config: ModelConfig, weights: ModelWeights, model: GpuModel, placed: Sequence[I32]
    ) -> None:
        """placed: [L], the experts in the order of their slots; empty for layers on the CPU.

        Raises: CudaOutOfMemoryError.
        """
        n = config.n_experts
        self._weights = weights
        self._ffns = [None if layer is None else layer.experts for layer in model.layers]
        self.expert_in = [np.array(ids, np.int32) for ids in placed]
        self.heat: F32 = np.zeros((config.n_layers, n), np.float32)
        self.is_adapting = True
        self.exchanged = 0
        self.exchange_s = 0.0
        self.tokens = 0
        self.is_on_gpu = np.array([one is not None for one in self._ffns])
        self._resident: U8 = np.zeros((config.n_layers, n), np.uint8)
        for row, ids in zip(self._resident, self.expert_in, strict=True):
            row[ids] = 1
        self._growth: F32 = np.ones(1, np.float32)
        self.missing: I64 = np.zeros(config.n_layers, np.int64)
        self._missed: I64 = np.zeros(config.n_layers, np.int64)  # before the last run
        self._moves = np.array([0 < len(ids) < n for ids in self.expert_in])
        self.counted = np.array(
            [there and len(ids) < n for there, ids in zip(self.is_on_gpu, self.expert_in, strict=True)]
        )
        self._unsure: set[int] = set()  # layers whose slots on the GPU are unknown after a failed exchange
        self._coming: Sequence[Move] = ()  # on their way to the GPU
        self._allowance_s = 0.0  # negative: exchanges have taken more than their share of the time
        expert = next(w.routed[0] for w in reversed(weights.layers) if w.routed)
        self._exchange = Exchange(gpu, pool, expert, n) if self._moves.any() else None

    def residency(self, layer: int) -> Residency:
        """Return the arrays of a layer that the CPU's calls read and count in."""
        return Residency(self._resident[layer], self.heat[layer], self._growth, self.missing[layer : layer + 1])

    def missing_of(self, layer: int, ids: I64) -> I64:
        """Count the choices ids [B, K] of a batch step; return them with -1 for resident experts.

        Raises: DeviceFailedError for an id that no expert has.
        """
        if ids.min() < 0 or ids.max() >= self.heat.shape[1]:
            raise no_such_expert(layer)
        np.add.at(self.heat[layer], ids, self._growth[0])
        found: I64 = np.where(self._resident[layer][ids] == 0, ids, -1)
        self.missing[layer] = np.count_nonzero(found >= 0)
        return found

    def begin_run(self, n_tokens: int = 1) -> None:
        """Let the heat decay for a run of this many tokens of a sequence, by giving later choices more weight.

        After a failed exchange, also uploads the slots again. Raises: CudaError.
        """
        for layer in list(self._unsure):
            ffn = self._ffns[layer]
            assert ffn is not None, "the layer is on the GPU"
            assert self._exchange is not None, "a layer has experts to exchange"
            self._exchange.tell(ffn, slots_of(self.expert_in[layer], self._resident.shape[1]))
            self._unsure.discard(layer)
        self._growth[0] /= DECAY**n_tokens
        if self._growth[0] > _RESCALE_AT:
            self.heat /= self._growth[0]
            self._growth[0] = 1.0
        self.tokens += n_tokens
        self._missed += self.missing
        self.missing.fill(0)

    def growth(self, n_later: int) -> float:
        """Return what a choice adds to the heat, of a token that this many others of the run follow."""
        return float(self._growth[0]) * DECAY**n_later

    def warm(self, heat: F32) -> None:
        """Set the heat [L, E], in choices, for instance from an earlier run."""
        self.heat[:] = heat * self._growth[0]

    @property
    def heat_in_choices(self) -> F32:
        """[L, E]: the decayed number of choices of each expert."""
        found: F32 = self.heat / self._growth[0]
        return found

    @property
    def missed(self) -> I64:
        """[L]: non-resident experts chosen over all tokens; 0 for layers on the CPU."""
        found: I64 = self._missed + self.missing
        return found

    def learn(self, choices: I64, n_tokens: int) -> None:
        """Add the choices [L, E] of n_tokens consecutive positions of a prompt, in unknown order."""
        share = (1 - DECAY**n_tokens) / (n_tokens * (1 - DECAY))  # mean weight over positions; the last has 1
        self.heat *= np.float32(DECAY**n_tokens)
        self.heat += choices.astype(np.float32) * np.float32(share * self._growth[0])

    def exchange_after(self, seconds: float) -> None:
        """Exchange experts after `seconds` of work, within TIME_SHARE. Raises: CudaError.

        Experts are copied beside later work, and take their slots in a later call, after they have arrived.
        """
        if self._exchange is None or not self.is_adapting:
            return
        self._allowance_s = min(self._allowance_s, 0.0) + TIME_SHARE * seconds
        if self._allowance_s < 0 or (self._coming and not self._exchange.has_arrived()):
            return
        started = time.perf_counter()
        self.finish()
        self._begin([one for one in self._best(self._exchange.at_once) if self._is_at_hand(one)])
        took = time.perf_counter() - started
        self._allowance_s -= took
        self.exchange_s += took

    def exchange(self, moves: Sequence[Move]) -> None:
        """Move experts from RAM into slots of different layers, replacing the former ones, and wait for it.

        Call this between tokens; the next token uses the new experts. Cost: the upload of the experts.
        Raises: CudaError; the slots may be empty then.
        """
        assert self._exchange is not None, "a layer has experts to exchange"
        self.finish()
        for start in range(0, len(moves), self._exchange.at_once):
            self._begin(moves[start : start + self._exchange.at_once])
            self.finish()

    def _begin(self, moves: Sequence[Move]) -> None:
        """Start copying experts to the GPU. Those that they replace stay until `finish`. Raises: CudaError."""
        if not moves:
            return
        assert self._exchange is not None, "a layer has experts to exchange"
        given = []
        for layer, slot, expert in moves:
            ffn = self._ffns[layer]
            assert ffn is not None, "the layer is on the GPU"
            given.append(Moved(ffn, slot, expert, self._weights.layers[layer].experts[expert]))
        self._exchange.begin(given)
        self._coming = moves

    def finish(self) -> None:
        """Wait for experts on their way, and give them their slots. Call this between tokens.

        Raises: CudaError; their slots are empty then.
        """
        if not self._coming:
            return
        assert self._exchange is not None, "a layer has experts to exchange"
        moves, self._coming = self._coming, ()
        after, left = [], list[FfnWeights]()
        for layer, slot, expert in moves:
            ids = self.expert_in[layer]
            if ids[slot] >= 0:
                self._resident[layer, ids[slot]] = 0
                left.append(self._weights.layers[layer].experts[ids[slot]])
            ids[slot] = -1
            self._unsure.add(layer)
            slot_of = slots_of(ids, self._resident.shape[1])
            slot_of[expert] = slot
            after.append(slot_of)
        self._exchange.finish(after)
        self._change_places(left, [self._weights.layers[layer].experts[expert] for layer, _, expert in moves])
        for layer, slot, expert in moves:
            self.expert_in[layer][slot] = expert
            self._resident[layer, expert] = 1
            self._unsure.discard(layer)
        self.exchanged += len(moves)

    def read_in_place(self, pinned: ZeroCopy) -> None:
        """Copy experts from pinned weights, which may grow. Call `wait` before they are unpinned."""
        if self._exchange is not None:
            self._exchange.zero_copy = pinned

    def wait(self) -> None:
        """Wait until no copy reads weights. Raises: CudaError."""
        if self._exchange is not None and self._coming:
            self._exchange.wait()

    def _is_at_hand(self, move: Move) -> bool:
        """Return whether the expert is in RAM. One on the disk is requested, and may move after a later token."""
        reads, expert = self._weights.expert_reads, self._weights.layers[move.layer].experts[move.expert]
        if reads is None or not reads.is_needed or reads.is_in_ram(expert):
            return True
        reads.request([expert])
        return False

    def _change_places(self, left: Sequence[FfnWeights], came: Sequence[FfnWeights]) -> None:
        """If RAM cannot hold all experts, read those that left the GPU, and drop those that came."""
        reads = self._weights.expert_reads
        if reads is not None and reads.is_needed:
            reads.request(left)
            reads.evict_matrices(matrix for block in came for matrix in block.matrices)

    def _best(self, most: int) -> list[Move]:
        """Return the exchanges that gain most and enough, at most one per layer."""
        cold = np.where(self._resident, -np.inf, self.heat)
        hot = np.where(self._resident, self.heat, np.inf)
        coming, leaving = cold.argmax(axis=1), hot.argmin(axis=1)
        layers = np.arange(len(self.heat))
        gains = np.where(self._moves, cold[layers, coming] - HYSTERESIS * hot[layers, leaving], -np.inf)
        order = np.argsort(-gains, kind="stable")[:most]
        order = order[gains[order] > LEAST_GAIN * self._growth[0]]
        return [
            Move(layer, int((self.expert_in[layer] == left).argmax()), expert)
            for layer, left, expert in zip(order.tolist(), leaving[order], coming[order].tolist(), strict=True)
        ]

    def close(self) -> None:
        """Release the memory of exchanges, but not the slots. Idempotent."""
        if self._exchange is not None:
            self._exchange.close()
