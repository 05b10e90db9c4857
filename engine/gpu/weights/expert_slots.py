"""The experts that are resident on the GPU: which slot holds which, and their exchange while a model answers.

Each expert has a heat, to which every choice of the router adds and which decays from token to token. Between two
tokens the hottest experts in RAM replace the coldest resident ones, within a bounded share of the time. Captured work
stays as it is: only what lies at its addresses changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.gpu.weights.landing import LANDING_BYTES, Landing, Numbers
from engine.gpu.weights.layers import GpuModel
from engine.gpu.weights.layout import expert_uploads, slots_of
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, I32, U8
from native_kernels.cpu.ffn.experts import Residency
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu

DECAY = 0.995  # of the heat, per token
HYSTERESIS = 1.3  # an expert must be this much hotter than the one that it replaces
LEAST_GAIN = 0.5  # and by this many choices, so that a single one moves nothing
TIME_SHARE = 0.05  # of the decode time that exchanges may take
_MOST_AT_ONCE = 4  # exchanges between two tokens
_RESCALE_AT = 1e6
_FIRST_EXCHANGE_S = 1e-3  # until one was measured


def exchange_bytes(expert_bytes: int) -> int:
    """Return the GPU memory that exchanges take beside the slots."""
    return min(LANDING_BYTES, max(1 << 20, expert_bytes))


class ExpertSlots:
    """The slots of a model's experts. heat: f32 [L, E]. expert_in: [L] of i32 [S]. exchanged: experts moved so far.

    is_following: whether `follow` exchanges experts. Not thread-safe: use it in the thread that decodes.
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
        self.is_following = True
        self.exchanged = 0
        self._resident: U8 = np.zeros((config.n_layers, n), np.uint8)
        for row, ids in zip(self._resident, self.expert_in, strict=True):
            row[ids] = 1
        self._growth: F32 = np.ones(1, np.float32)
        self.missing: NDArray[np.int64] = np.zeros(config.n_layers, np.int64)
        self._moves = np.array([0 < len(ids) < n for ids in self.expert_in])
        self._allowance_s = 0.0
        self._exchange_s = _FIRST_EXCHANGE_S
        first = weights.layers[0].experts[0]
        sizes = [one.n_bytes for one in (first.gate, first.up, first.down, first.down_t) if one is not None]
        self._landing = Landing(gpu, pool, exchange_bytes(sum(sizes))) if self._moves.any() else None

    def residency(self, layer: int) -> Residency:
        """Return what the CPU's calls read and count of a layer."""
        return Residency(self._resident[layer], self.heat[layer], self._growth, self.missing[layer : layer + 1])

    def begin_token(self) -> None:
        """Let the heat decay: later choices count more instead."""
        self._growth[0] /= DECAY
        if self._growth[0] > _RESCALE_AT:
            self.heat /= self._growth[0]
            self._growth[0] = 1.0
        self.missing.fill(0)

    def warm(self, heat: F32) -> None:
        """Start with a heat [L, E] in choices, for instance an earlier run's."""
        self.heat[:] = heat * self._growth[0]

    @property
    def heat_in_choices(self) -> F32:
        """[L, E]: the choices of each expert, each worth less the longer ago it was."""
        found: F32 = self.heat / self._growth[0]
        return found

    def follow(self, token_s: float) -> None:
        """Exchange experts after a token that took so long, within TIME_SHARE. Raises: CudaError."""
        if self._landing is None or not self.is_following:
            return
        most = _MOST_AT_ONCE * self._exchange_s
        self._allowance_s = min(most, self._allowance_s + TIME_SHARE * token_s)
        while self._allowance_s >= self._exchange_s:
            found = self._best()
            if found is None:
                return
            started = time.perf_counter()
            self.exchange(*found)
            took = time.perf_counter() - started
            self._exchange_s += 0.2 * (took - self._exchange_s)
            self._allowance_s -= took

    def exchange(self, layer: int, slot: int, expert: int) -> None:
        """Move an expert from RAM into a slot; the former one is no longer resident. Between tokens.

        Raises: CudaError; the slot is empty then.
        """
        ffn = self._ffns[layer]
        assert ffn is not None, "the layer is on the GPU"
        assert ffn.resident is not None, "the layer has slots"
        assert self._landing is not None, "a layer has experts to exchange"
        ids = self.expert_in[layer]
        self._resident[layer, ids[slot]] = 0
        slot_of = slots_of(ids, self._resident.shape[1])
        slot_of[ids[slot]] = -1
        self._landing.run([Numbers(slot_of, ffn.slot_of)])
        uploads = expert_uploads(self._weights.layers[layer].experts[expert], ffn.resident, slot)
        slot_of[expert] = slot
        self._landing.run([*uploads, Numbers(slot_of, ffn.slot_of)])
        ids[slot] = expert
        self._resident[layer, expert] = 1
        self.exchanged += 1

    def _best(self) -> tuple[int, int, int] | None:
        """The exchange that gains most, as layer, slot and expert; None if none gains enough."""
        resident = self._resident != 0
        cold = np.where(resident, -np.inf, self.heat)
        hot = np.where(resident, self.heat, np.inf)
        best, worst = cold.max(axis=1), hot.min(axis=1)
        with np.errstate(invalid="ignore"):
            gains = np.where(self._moves, best - HYSTERESIS * worst, -np.inf)
        layer = int(gains.argmax())
        if not gains[layer] > LEAST_GAIN * self._growth[0]:
            return None
        leaving = int(hot[layer].argmin())
        slot = int(np.flatnonzero(self.expert_in[layer] == leaving)[0])
        return layer, slot, int(cold[layer].argmax())

    def close(self) -> None:
        """Free what exchanges need; the slots are others'. A second call does nothing."""
        if self._landing is not None:
            self._landing.close()
