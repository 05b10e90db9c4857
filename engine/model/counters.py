"""Counts of what the FFN executors computed and what truly fired; it measures no time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import I32, I64


class FfnCounters:
    """Sums over all layers since the last reset. Neurons of experts are numbered one expert after another.

    computed: neuron evaluations that decode would do for them; in
    sparse mode those that the predictor expects. opened: of them those whose first activation was not zero, so that
    up is read where there is a gate. fired: those whose activation was not zero. copied: those of which a predictor's
    copy was read. layers: i64 [L, 4], these four for every layer. per_neuron: i64 [L, F], times each one fired; None
    until `record_per_neuron` switches it on. Of a token that was stopped half-way it may hold a part. on_gpu: those of
    `computed` that a GPU computed, of tokens that ran as programs; None where there is no GPU.
    """

    def __init__(
        self,
        n_layers: int,
        n_neurons: int,
        n_blocks_used: int = 1,
        collect: Callable[[], None] = lambda: None,
    ) -> None:
        """n_neurons: of a layer. n_blocks_used: how often a position is added in each, once for each expert. collect:
        adds to per_neuron, while it is on, what another device has counted since, and forgets it there."""
        self._collect = collect
        self._shape = (n_layers, n_neurons)
        self._visits = n_blocks_used
        self._visited = 0
        self.layers: I64 = np.zeros((n_layers, 4), np.int64)
        self.per_neuron: I64 | None = None
        self.on_gpu: int | None = None
        self._taken = 0  # positions visited whose neurons are no longer in per_neuron

    def collect_with(self, collect: Callable[[], None]) -> None:
        """As `collect` at the beginning, where the other device is known only now."""
        self._collect = collect

    def record_per_neuron(self) -> None:
        """Counts every neuron by itself from now on."""
        self._collect()
        self.per_neuron, self._taken = np.zeros(self._shape, np.int64), self._visited

    def stop_per_neuron(self) -> None:
        """Counts no neuron by itself any more."""
        self._collect()
        self.per_neuron = None

    def look(self, neurons: I64) -> I64:
        """How often each of these has fired since they were last taken; neurons [K]: layer x F + neuron."""
        assert self.per_neuron is not None, "neurons are counted where record_per_neuron asked for it"
        self._collect()
        found: I64 = self.per_neuron.reshape(-1)[neurons]
        return found

    def reset(self) -> None:
        """Back to nothing counted; a switched-on per-neuron count stays on."""
        self.reset_sums()
        self._taken = 0
        self._collect()
        if self.per_neuron is not None:
            self.per_neuron[:] = 0

    def reset_sums(self) -> None:
        """Back to nothing counted, but for the neurons: those are counted on until they are taken."""
        self._taken -= self._visited
        self._visited = 0
        self.layers[:] = 0
        self.on_gpu = None

    def take_per_neuron(self) -> tuple[I64, int]:
        """How often each neuron fired [L, F] since this was last asked, and over how many positions."""
        assert self.per_neuron is not None, "neurons are counted where record_per_neuron asked for it"
        self._collect()
        counts, positions = self.per_neuron.copy(), (self._visited - self._taken) // self._visits
        self.per_neuron[:], self._taken = 0, self._visited
        return counts, positions

    @property
    def computed(self) -> int:
        return int(self.layers[:, 0].sum())

    @property
    def opened(self) -> int:
        return int(self.layers[:, 1].sum())

    @property
    def fired(self) -> int:
        return int(self.layers[:, 2].sum())

    @property
    def tokens(self) -> int:
        """Positions that passed through the model."""
        return self._visited // self._visits

    @property
    def active_share(self) -> float | None:
        """Share of all FFN neurons computed for a token, mean over tokens and layers; None before the first token."""
        return self._share(self.computed)

    @property
    def fired_share(self) -> float | None:
        """Share whose activation was not zero, mean over tokens and layers; None before the first token."""
        return self._share(self.fired)

    @property
    def gpu_neuron_load(self) -> float | None:
        """Share of the neurons computed that a GPU computed; None without a GPU or before a token."""
        return self.on_gpu / self.computed if self.on_gpu is not None and self.computed else None

    @property
    def layer_shares(self) -> NDArray[np.float64]:
        """`layers` as shares of a layer's neurons, mean over tokens: [L, 4]; 0 before the first token."""
        found: NDArray[np.float64] = self.layers / max(1, self.tokens * self._shape[1])
        return found

    def add_token(self, layer: int, computed: int, opened: int, fired_ids: I32, first: int = 0) -> None:
        """One position of one layer; fired_ids [K]. first: of an expert, the number of its first neuron."""
        self._add(layer, 1, computed, opened, len(fired_ids))
        if self.per_neuron is not None:
            self.per_neuron[layer, fired_ids + first] += 1

    def add_batch(self, layer: int, computed: int, opened: int, fired: NDArray[np.bool_], first: int = 0) -> None:
        """Several positions of one layer; fired [T, F]. first: of an expert, the number of its first neuron."""
        self._add(layer, fired.shape[0], computed, opened, int(np.count_nonzero(fired)))
        if self.per_neuron is not None:
            self.per_neuron[layer, first : first + fired.shape[1]] += _column_counts(fired)

    def add_counted(self, layer: int, n_tokens: int, computed: int, opened: int, fired: int) -> None:
        """Several positions of one layer, counted elsewhere; its neurons are not counted one by one."""
        self._add(layer, n_tokens, computed, opened, fired)

    def add_decoded(self, layers: I64, on_gpu: int | None = None) -> None:
        """One position of all layers together, counted as `layers` is: [L, 4]; how many a GPU computed of them."""
        self._visited += self._visits
        self.layers += layers
        if on_gpu is not None:
            self.on_gpu = (self.on_gpu or 0) + on_gpu

    def add_copied(self, layer: int, rows: int) -> None:
        """Rows of a layer's copy that were read."""
        self.layers[layer, 3] += rows

    def _add(self, layer: int, n_tokens: int, *counted: int) -> None:
        if layer == 0:
            self._visited += n_tokens
        self.layers[layer, :3] += counted

    def _share(self, count: int) -> float | None:
        return count / (self.tokens * self._shape[0] * self._shape[1]) if self.tokens else None


def _column_counts(fired: NDArray[np.bool_]) -> I64:
    """How many of the rows are true in every column: [T, F] -> [F]. Sums of bytes, which do not overflow in pieces."""
    rows = fired.view(np.uint8)
    total = np.zeros(rows.shape[1], np.int64)
    for start in range(0, len(rows), 255):
        total += np.add.reduce(rows[start : start + 255], axis=0, dtype=np.uint8)
    return total
