"""Count the neurons that the FFN executors computed and those that were active. Measures no time."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import I32, I64, U8

# Additions to a byte between two sums. A run of tokens may be prepared before a sum and computed after it.
_MOST_RECENT = 128


class FfnCounters:
    """Sums over all layers since the last reset. Expert neurons are numbered one expert after another.

    computed: neurons evaluated while decoding; in sparse mode those that the predictor selects.
    gate_active: those whose gate's activation is not zero, so that up is read; up's without a gate.
    fired: those whose activation is not zero; differs from gate_active if up has an activation too (dReLU).
    copied: rows read from a predictor that is a low-bit copy of gate (up without a gate).
    layers: i64 [L, 4], these four per layer.
    n_neurons: of all layers together.
    per_neuron: i64 [L, F], times each neuron was active; None until `record_per_neuron`. Decoding counts in bytes
    (`recent`), which are added when it is read: they stay in a core's cache.
    on_gpu: computed neurons that a GPU computed, for tokens run as programs; None without a GPU.
    A token cancelled half-way may be counted in part.
    """

    def __init__(
        self,
        n_layers: int,
        n_neurons: int,
        n_blocks_used: int = 1,
        collect: Callable[[], None] = lambda: None,
        without: Collection[int] = (),
    ) -> None:
        """Create the counters.

        n_neurons: per layer. n_blocks_used: additions per position and layer, one per expert used. collect: adds the
        counts of another device to per_neuron while it is on, and clears them there. without: layers without an FFN.
        """
        self._collect = collect
        self.n_neurons = (n_layers - len(without)) * n_neurons
        self._first = next((i for i in range(n_layers) if i not in without), 0)
        self._shape = (n_layers, n_neurons)
        self._visits = n_blocks_used
        self._visited = 0
        self.layers: I64 = np.zeros((n_layers, 4), np.int64)
        self._per_neuron: I64 | None = None
        self._recent = self._summed = np.zeros((0, 0), np.uint8)  # counts modulo 256; those already in _per_neuron
        self._n_recent = 0  # additions to a byte since then
        self._n_users = 0  # of per_neuron
        self.on_gpu: int | None = None
        self._taken = 0  # visited positions already taken from per_neuron

    def collect_with(self, collect: Callable[[], None]) -> None:
        """Set `collect` after construction, when the other device becomes known."""
        self._collect = collect

    @property
    def per_neuron(self) -> I64 | None:
        if self._n_recent:
            self._sum_recent()
        return self._per_neuron

    def recent(self, n_tokens: int) -> U8 | None:
        """Return the counts modulo 256 [L, F], to which up to 64 tokens, n_tokens, will be added; None: not counted."""
        if self._per_neuron is None:
            return None
        if self._n_recent + n_tokens > _MOST_RECENT:
            self._sum_recent()
        self._n_recent += n_tokens
        return self._recent

    def _sum_recent(self) -> None:
        if self._per_neuron is not None:
            self._per_neuron += self._recent - self._summed
            self._summed[:] = self._recent
        self._n_recent = 0

    def record_per_neuron(self) -> None:
        """Start counting each neuron, for one more user. Counts of the users before go on."""
        self._n_users += 1
        if self._per_neuron is None:
            self._collect()
            self._per_neuron, self._taken = np.zeros(self._shape, np.int64), self._visited
            self._recent, self._summed = np.zeros((2, *self._shape), np.uint8)

    def stop_per_neuron(self) -> None:
        """Stop counting each neuron for one user, and in fact with the last one."""
        self._n_users -= 1
        if not self._n_users:
            self._collect()
            self._per_neuron = None

    def fired_so_far(self, neurons: I64) -> I64:
        """Return how often each neuron was active since the last take. neurons [K]: layer x F + neuron."""
        assert self.per_neuron is not None, "neurons are counted where record_per_neuron asked for it"
        self._collect()
        found: I64 = self.per_neuron.reshape(-1)[neurons]
        return found

    def reset(self) -> None:
        """Reset all counts. Per-neuron counting stays on."""
        self.reset_sums()
        self._taken = 0
        self._collect()
        if self.per_neuron is not None:
            self.per_neuron[:] = 0

    def reset_sums(self) -> None:
        """Reset the sums but keep per-neuron counts until they are taken."""
        self._taken -= self._visited
        self._visited = 0
        self.layers[:] = 0
        self.on_gpu = None

    def take_per_neuron(self) -> tuple[I64, int]:
        """Return and clear how often each neuron was active [L, F], and the number of positions."""
        assert self.per_neuron is not None, "neurons are counted where record_per_neuron asked for it"
        self._collect()
        counts, positions = self.per_neuron.copy(), (self._visited - self._taken) // self._visits
        self.per_neuron[:], self._taken = 0, self._visited
        return counts, positions

    @property
    def computed(self) -> int:
        return int(self.layers[:, 0].sum())

    @property
    def gate_active(self) -> int:
        return int(self.layers[:, 1].sum())

    @property
    def fired(self) -> int:
        return int(self.layers[:, 2].sum())

    @property
    def tokens(self) -> int:
        """Number of positions that passed through the model."""
        return self._visited // self._visits

    @property
    def active_share(self) -> float | None:
        """Share of all FFN neurons computed, mean over tokens and layers; None before the first token."""
        return self._share(self.computed)

    @property
    def fired_share(self) -> float | None:
        """Share with a nonzero activation, mean over tokens and layers; None before the first token."""
        return self._share(self.fired)

    @property
    def gpu_neuron_load(self) -> float | None:
        """Share of computed neurons that a GPU computed; None without a GPU or before a token."""
        return self.on_gpu / self.computed if self.on_gpu is not None and self.computed else None

    @property
    def layer_shares(self) -> NDArray[np.float64]:
        """`layers` as shares of a layer's neurons, mean over tokens: [L, 4]; 0 before the first token."""
        found: NDArray[np.float64] = self.layers / max(1, self.tokens * self._shape[1])
        return found

    def add_token(self, layer: int, computed: int, gate_active: int, fired_ids: I32, first: int = 0) -> None:
        """Add one position of one layer. fired_ids [K]. first: number of an expert's first neuron."""
        self._add(layer, 1, computed, gate_active, len(fired_ids))
        if (counts := self.recent(1)) is not None:
            counts[layer, fired_ids + first] += 1

    def add_batch(self, layer: int, computed: int, gate_active: int, fired: NDArray[np.bool_], first: int = 0) -> None:
        """Add several positions of one layer. fired [T, F]. first: number of an expert's first neuron."""
        self._add(layer, fired.shape[0], computed, gate_active, int(np.count_nonzero(fired)))
        if len(fired) == 1:  # as in decoding
            counts: U8 | I64 | None = self.recent(1)
        else:
            counts = self.per_neuron
        if counts is not None:
            counts[layer, first : first + fired.shape[1]] += _column_counts(fired).astype(counts.dtype)

    def add_counted(self, layer: int, n_tokens: int, computed: int, gate_active: int, fired: int) -> None:
        """Add several positions of one layer counted elsewhere, without per-neuron counts."""
        self._add(layer, n_tokens, computed, gate_active, fired)

    def add_decoded(self, layers: I64, on_gpu: int | None = None) -> None:
        """Add one position of all layers, [L, 4], and how many neurons a GPU computed."""
        self._visited += self._visits
        self.layers += layers
        if on_gpu is not None:
            self.on_gpu = (self.on_gpu or 0) + on_gpu

    def add_copied(self, layer: int, rows: int) -> None:
        """Add the number of rows read from a layer's copy."""
        self.layers[layer, 3] += rows

    def _add(self, layer: int, n_tokens: int, *counted: int) -> None:
        if layer == self._first:
            self._visited += n_tokens
        self.layers[layer, :3] += counted

    def _share(self, count: int) -> float | None:
        return count / (self.tokens * self.n_neurons) if self.tokens else None


def _column_counts(fired: NDArray[np.bool_]) -> I64:
    """Count the true rows of every column: [T, F] -> [F]. Sums 255 rows at a time so that bytes cannot overflow."""
    rows = fired.view(np.uint8)
    total = np.zeros(rows.shape[1], np.int64)
    for start in range(0, len(rows), 255):
        total += np.add.reduce(rows[start : start + 255], axis=0, dtype=np.uint8)
    return total
