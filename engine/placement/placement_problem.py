"""The placement problem in numbers: the ways to place each layer, each with seconds and bytes.

A layer's device is where its attention is computed, with its norms, KV cache and predictor. Only layers on the GPU have
hot neurons. Neurons are sorted by activity and grouped into blocks, so a way is a device and a number of hot blocks;
for a given number of blocks, the hottest ones leave the least work to the CPU. If down is stored row by row, either all
neurons of a layer are hot or none, and the GPU uses no predictor. An expert's neurons stay together: with experts, a
block is one expert. Paper: PowerInfer, section 6.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, Mode
from engine.model.graph import graph_of
from engine.placement.activity import Activity
from engine.placement.cost_model import (
    DeviceRates,
    Machine,
    cold_layer_s,
    cpu_layer_s,
    cpu_token_s,
    ffn_speeds,
    gpu_layer_s,
)
from engine.placement.gpu_bytes import gpu_cache_bytes
from engine.placement.model_bytes import LEAST_RESIDENT, ModelBytes, PredictorBytes
from native_kernels.codecs import COPY_CODECS

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
BOOL = NDArray[np.bool_]

# Maximum blocks per layer, and the multiple of their size. A block that does not fit is worth less than 1 % of a layer,
# and the problem is still solved in seconds.
MOST_BLOCKS = 128
BLOCK_MULTIPLE = 32
# Largest position of the predicted token, far enough that its KV cache counts.
TYPICAL_POSITION = 512
# Zero-copy blocks are used only if a layer then takes at most this share of its time.
_WORTH_IT = 0.9
# Attention reads the KV cache at a lower bandwidth than matrices are read.
_KV_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Problem:
    """The ways to place a model on a GPU and a CPU, and their costs. Way w is (attention_on_gpu[w], blocks[w]).

    Costs per layer and way: seconds f64 [L, W], infinite for an impossible way; vram, ram i64 [L, W], bytes;
    predictor_vram i64 [L, W], the predictor's share of vram. zero_copy i64 [L, W]: zero-copy blocks after the hot ones,
    which the GPU reads from pinned host memory.
    Costs of the head, (on the CPU, on the GPU): head_seconds, head_vram, head_ram.
    Neurons: order i32 [L, F], hottest first; computed f64 [L, K + 1], expected computed neurons in the first k blocks.
    Other costs: fixed_vram, bytes needed as soon as the GPU is used; fixed_ram, fixed_seconds, always added;
    crossing_s, added whenever two consecutive layers are on different devices. A token starts and ends on the CPU.
    tied_from: the layers from this one on have their attention on the same device.
    disk_block i64 [L]: bytes of a block that may stay on the disk, on average over the blocks that are not hot; None:
    the RAM must hold all of them.
    """

    seconds: F64
    vram: I64
    ram: I64
    predictor_vram: I64
    zero_copy: I64
    attention_on_gpu: BOOL
    blocks: I64
    head_seconds: tuple[float, float]
    head_vram: tuple[int, int]
    head_ram: tuple[int, int]
    order: I32
    block: int
    computed: F64
    fixed_vram: int
    fixed_ram: int
    fixed_seconds: float
    crossing_s: float
    tied_from: int
    disk_block: I64 | None = None

    @property
    def n_layers(self) -> int:
        return len(self.seconds)

    @property
    def cpu_alone(self) -> Choice:
        """The placement with nothing on the GPU."""
        way = int(np.flatnonzero(~self.attention_on_gpu & (self.blocks == 0))[0])
        return Choice((way,) * self.n_layers, head_on_gpu=False)

    @cached_property
    def most_vram(self) -> int:
        """VRAM bytes with everything possible on the GPU."""
        head = self.head_vram[1] if np.isfinite(self.head_seconds[1]) else 0
        return self.fixed_vram + int(np.where(self.possible, self.vram, 0).max(axis=1).sum()) + head

    @cached_property
    def possible(self) -> BOOL:
        """Bool [L, W]: the possible ways."""
        return np.isfinite(self.seconds)

    @cached_property
    def on_disk(self) -> I64:
        """i64 [L, W]: bytes that may stay on the disk."""
        if self.disk_block is None:
            return np.zeros_like(self.ram)
        n_cold = self.computed.shape[1] - 1 - self.blocks
        return np.asarray(self.disk_block[:, None] * n_cold, np.int64)

    @cached_property
    def with_disk(self) -> Problem:
        """The problem in which what may stay on the disk needs no RAM."""
        return replace(self, ram=self.ram - self.on_disk, disk_block=None)

    def hot_neurons(self, layer: int, way: int) -> I32:
        """Return the ids of a layer's hot neurons, ascending."""
        return np.sort(self.order[layer, : int(self.blocks[way]) * self.block])

    def zero_copy_neurons(self, layer: int, way: int) -> I32:
        """Return the ids of the neurons that the GPU reads zero-copy, ascending."""
        start = int(self.blocks[way]) * self.block
        return np.sort(self.order[layer, start : start + int(self.zero_copy[layer, way]) * self.block])


@dataclass(frozen=True)
class Choice:
    """A way for every layer, and the head's device."""

    ways: tuple[int, ...]
    head_on_gpu: bool

    def uses_gpu(self, problem: Problem) -> bool:
        return self.head_on_gpu or bool(problem.vram[np.arange(len(self.ways)), list(self.ways)].any())

    def vram(self, problem: Problem) -> int:
        """Return bytes on the GPU, fixed bytes included; 0 if the GPU is not used."""
        if not self.uses_gpu(problem):
            return 0
        layers = int(problem.vram[np.arange(len(self.ways)), list(self.ways)].sum())
        return problem.fixed_vram + layers + problem.head_vram[self.head_on_gpu]

    def ram(self, problem: Problem) -> int:
        layers = int(problem.ram[np.arange(len(self.ways)), list(self.ways)].sum())
        return problem.fixed_ram + layers + problem.head_ram[self.head_on_gpu]

    def disk(self, problem: Problem, ram_budget: int | None) -> int:
        """Return the bytes of experts that stay on the disk, because they exceed the RAM budget."""
        if ram_budget is None:
            return 0
        most = int(problem.on_disk[np.arange(len(self.ways)), list(self.ways)].sum())
        return min(most, max(0, self.ram(problem) - ram_budget))

    def disk_read(self, problem: Problem, ram_budget: int | None) -> int:
        """Return the bytes that a token reads from the disk, if the RAM holds the hottest blocks of every layer."""
        on_disk, hot = self.disk(problem, ram_budget), problem.blocks[list(self.ways)]
        if not on_disk or problem.disk_block is None:
            return 0
        block = problem.disk_block / (1 - LEAST_RESIDENT)  # bytes, [L]
        n_blocks = problem.computed.shape[1] - 1
        resident = hot + (n_blocks - hot) * (1 - min(1.0, on_disk / float((block * (n_blocks - hot)).sum())))
        ends = np.arange(n_blocks + 1)
        missed = [sums[-1] - np.interp(at, ends, sums) for sums, at in zip(problem.computed, resident, strict=True)]
        return int((np.array(missed) / problem.block * block).sum())

    def seconds(self, problem: Problem) -> float:
        """Return the predicted seconds per token."""
        layers = float(problem.seconds[np.arange(len(self.ways)), list(self.ways)].sum())
        homes = [False, *problem.attention_on_gpu[list(self.ways)].tolist(), self.head_on_gpu, False]
        crossings = sum(one != other for one, other in pairwise(homes))
        head = problem.head_seconds[self.head_on_gpu]
        return float(problem.fixed_seconds + layers + head + crossings * problem.crossing_s)

    def gpu_load(self, problem: Problem) -> float:
        """Return the share of computed neurons that the GPU computes."""
        layers, ways = np.arange(len(self.ways)), list(self.ways)
        hot = problem.computed[layers, problem.blocks[ways] + problem.zero_copy[layers, ways]].sum()
        return float(hot / max(problem.computed[:, -1].sum(), 1e-30))


def block_size(neurons: int) -> int:
    """Return the neurons per block for a layer with this many neurons."""
    return max(1, -(-neurons // (MOST_BLOCKS * BLOCK_MULTIPLE)) * BLOCK_MULTIPLE)


@dataclass(frozen=True, eq=False)
class Hottest:
    """A layer's neurons sorted by activity, with sums over the first blocks.

    This is most of the work of a Problem and does not depend on context, machine or budget. order i32 [L, F], hottest
    first; ends i64 [K + 1], neurons in the first k blocks; sums: f64 [L, K + 1] by name of an Activity's probabilities.
    """

    order: I32
    ends: I64
    sums: dict[str, F64]

    @classmethod
    def of(cls, activity: Activity, unit: int | None = None) -> Hottest:
        """Sort the neurons, or units of this many neurons each.

        Cost: 0.3 s for 80 layers of 28,672 neurons, most of it sorting.
        """
        neurons = activity.ranking.shape[1]
        block = unit or block_size(neurons)
        means = activity.ranking.reshape(len(activity.ranking), -1, unit or 1).mean(axis=2)
        units = np.argsort(-means, axis=1, kind="stable").astype(np.int32)
        order = units if unit is None else (units[..., None] * unit + np.arange(unit)).reshape(-1, neurons)
        order = order.astype(np.int32)
        ends = np.minimum(np.arange(-(-neurons // block) + 1) * block, neurons)
        names = ("active", "opened", "fired", "computed")
        return cls(order, ends, {name: _within(getattr(activity, name), order, ends) for name in names})


@dataclass(frozen=True)
class TokenContext:
    """The position of the token whose time is predicted.

    context: tokens of all sequences together. kv_positions: of these, the ones that layers on the GPU have KV cache
    for; None: all.
    """

    context: int
    position: int
    kv_codec: KvCodec
    sequences: int = 1
    kv_positions: int | None = None

    @classmethod
    def typical(
        cls, context: int, kv_codec: KvCodec, sequences: int = 1, kv_positions: int | None = None, least: int = 0
    ) -> TokenContext:
        """Return a token in the middle of the context, at most at TYPICAL_POSITION or at `least`."""
        position = max(least, min(TYPICAL_POSITION, context // 2))
        return cls(context, position, kv_codec, sequences, kv_positions)

    @property
    def on_gpu(self) -> int:
        """Positions of the KV cache of a layer on the GPU."""
        return self.context if self.kv_positions is None else self.kv_positions


@dataclass(frozen=True)
class FixedBytes:
    """Memory beside the layers, in bytes: vram as soon as the GPU is used, ram always. pinned: host memory that may be
    pinned for zero-copy neurons."""

    vram: int = 0
    ram: int = 0
    pinned: int = 0


def build_problem(
    model: ModelBytes,
    activity: Activity | Hottest,
    machine: Machine,
    mode: Mode,
    at: TokenContext,
    predictors: PredictorBytes | None = None,
    fixed: FixedBytes = FixedBytes(),
    zero_copy_blocks: I64 | None = None,
) -> Problem:
    """Return all ways to place this model on this machine.

    at: the token whose time is predicted. zero_copy_blocks [L]: number of zero-copy blocks to use instead of the best
    number.
    Cost: 20 ms for 80 layers of 28,672 neurons, plus Hottest if `activity` is an Activity.
    """
    block, neurons = model.unit or block_size(model.neurons), model.neurons
    hottest = Hottest.of(activity, model.unit) if isinstance(activity, Activity) else activity
    order, ends = hottest.order, hottest.ends
    parts = _Parts(model, hottest, mode, predictors if mode == "sparse" else None)
    kv_bytes = model.kv_of_layer(at.context, at.kv_codec, at.sequences)
    kv_read = model.kv_read(at.position, at.kv_codec)
    last = len(ends) - 1
    rates, d_model = machine.gpu, model.config.d_model

    of_cpu = parts.neurons_s(machine.cpu)
    cpu_s = parts.attention_s(machine.cpu, kv_read) + parts.predictor_s(machine.cpu) + cpu_layer_s(d_model)
    attention = model.attention + kv_bytes
    all_of_it = attention + parts.predictor_held + neurons * model.neuron
    seconds, vram, ram = (
        [cpu_s[:, None] + of_cpu[:, -1:]],
        [np.zeros((model.n_layers, 1), np.int64)],
        [all_of_it[:, None]],
    )
    of_predictor, zero_copy, ways = [vram[0]], [vram[0]], [(False, 0)]
    tied_from = graph_of(model.config).tied_from
    if rates is not None:
        on_gpu = model.gpu_bytes
        taken = np.array([0, last]) if model.ffn_is_whole else np.arange(last + 1)
        has_hot = (taken > 0) & parts.has_ffn
        hot = np.where(has_hot, parts.hot_s(rates)[:, taken] + gpu_layer_s(False, True), 0.0)
        most = 0 if model.ffn_is_whole or model.unit else fixed.pinned // max(1, int(on_gpu.neuron.sum()) * block)
        beside, hot, cold = _zero_copy(
            parts, machine, hot, parts.neurons_s(machine.cold), taken, most, zero_copy_blocks
        )
        beside, cold = beside * parts.has_ffn, cold * parts.has_ffn
        zero_copy.append(beside)
        # The GPU sends the input (f32) with a bit per neuron and receives the sum (f32).
        exchange = machine.exchange(8 * d_model + neurons // 8)
        has_cold = (taken + beside < last) & parts.has_ffn
        always = parts.attention_s(rates, kv_read) + gpu_layer_s(True, False)
        predictor_s = parts.predictor_s(rates)[:, None] * np.ones(len(taken))
        if model.ffn_is_whole:  # the GPU computes all neurons without a predictor, or the CPU computes the FFN
            predictor_s = parts.predictor_s(machine.cpu)[:, None] * has_cold
        layer_s = always[:, None] + predictor_s + np.maximum(hot, cold) + exchange * has_cold
        of_parts = parts.predictor_on_gpu * (not model.ffn_is_whole)
        possible = on_gpu.possible & (of_parts >= 0)
        possible[tied_from:] &= possible[tied_from:].all()
        seconds.append(np.where(possible[:, None], layer_s, np.inf))
        of_predictor.append(np.maximum(of_parts, 0)[:, None] * np.ones(len(taken), np.int64))
        held = on_gpu.attention + gpu_cache_bytes(model.config, at.on_gpu, at.kv_codec, at.sequences)
        vram.append(
            held[:, None]
            + of_predictor[1]
            + on_gpu.neuron[:, None] * ends[taken]
            + on_gpu.block[:, None] * (has_hot + (beside > 0))
        )
        stays = parts.predictor_held * model.ffn_is_whole
        pinned = on_gpu.neuron[:, None] * (ends[taken + beside] - ends[taken])
        kept = model.kept_in_ram(at.context, at.kv_codec, at.sequences)[:, None]
        ram.append(kept + (neurons - ends[taken]) * model.neuron[:, None] + stays[:, None] * has_cold + pinned)
        ways += [(True, int(k)) for k in taken]
    attention_way, blocks = (np.array(column) for column in zip(*ways, strict=True))
    head_cpu = model.head / machine.cpu.gemv(model.head_codec)
    head_gpu = head_cpu
    if rates is not None:
        logits_s = 4 * model.config.vocab_size / machine.link_bytes_per_s
        head_gpu = model.head / rates.gemv(model.head_codec) + logits_s if model.gpu_bytes.head_possible else np.inf
    return Problem(
        seconds=np.concatenate(seconds, axis=1),
        vram=np.concatenate(vram, axis=1),
        ram=np.concatenate(ram, axis=1),
        predictor_vram=np.concatenate(of_predictor, axis=1),
        zero_copy=np.concatenate(zero_copy, axis=1).astype(np.int64),
        attention_on_gpu=attention_way.astype(np.bool_),
        blocks=blocks.astype(np.int64),
        head_seconds=(head_cpu, head_gpu),
        head_vram=(0, model.gpu_bytes.head),
        head_ram=(model.head_in_ram, 0),
        order=order,
        block=block,
        computed=parts.sums["computed"],
        fixed_vram=fixed.vram,
        fixed_ram=fixed.ram + model.embedding,
        fixed_seconds=cpu_token_s(),
        crossing_s=machine.exchange(4 * d_model) if rates is not None else 0.0,
        tied_from=tied_from,
        disk_block=block * model.disk_neuron if model.disk_neuron.any() else None,
    )


def _zero_copy(
    parts: _Parts, machine: Machine, hot: F64, of_cpu: F64, taken: I64, most: int, wanted: I64 | None
) -> tuple[I64, F64, F64]:  # fmt: skip
    """Return the zero-copy blocks for each way, i64 [L, ways], with the GPU's and the CPU's seconds.

    Picks the number (at most `most`) that balances both sides, or 0 if the gain is small; `wanted` [L] sets it instead.
    hot: GPU seconds without zero-copy. of_cpu: CPU seconds by blocks.

    GPU and CPU share the RAM's bandwidth. If the CPU alone saturates it, as with floats on all cores, zero-copy gains
    nothing; with quantised rows the CPU is also limited by arithmetic.
    """
    last = of_cpu.shape[1] - 1
    over_bus, left = parts.neurons_s(machine.zero_copy), parts.neurons_s(machine.beside_zero_copy)
    slower = np.maximum(0.0, 1 - of_cpu[:, -1:] / np.maximum(left[:, -1:], 1e-30))  # lost share of the CPU's rate
    beside = np.zeros((len(of_cpu), len(taken)), np.int64)
    gpu_s, cold_s = hot.copy(), of_cpu[:, -1:] - of_cpu[:, taken] + cold_layer_s() * (taken < last)
    for way, k in enumerate(taken.tolist()):
        more = np.arange((last - k if wanted is not None else min(most, last - k)) + 1)
        gpu = hot[:, way, None] + over_bus[:, k + more] - over_bus[:, k, None] + gpu_layer_s(False, True) * (more > 0)
        cpu = of_cpu[:, -1:] - of_cpu[:, k + more] + cold_layer_s() * (k + more < last)
        cpu = cpu + slower * (over_bus[:, k + more] - over_bus[:, k, None])
        longer, layers = np.maximum(gpu, cpu), np.arange(len(of_cpu))
        best = longer.argmin(axis=1)
        best = np.where(longer[layers, best] < _WORTH_IT * longer[:, 0], best, 0)
        if wanted is not None:
            best = np.minimum(wanted, last - k)
        beside[:, way], gpu_s[:, way], cold_s[:, way] = best, gpu[layers, best], cpu[layers, best]
    return beside, gpu_s, cold_s


class _Parts:
    """Seconds of a layer's parts on a device: attention [L], predictor [L], first k blocks of neurons [L, K + 1]."""

    def __init__(
        self,
        model: ModelBytes,
        hottest: Hottest,
        mode: Mode,
        predictors: PredictorBytes | None,
    ) -> None:
        ends = hottest.ends
        self._model, self._mode, self._predictors, self._ends = model, mode, predictors, ends
        self.has_ffn = ~np.isin(np.arange(model.n_layers), model.config.mixer_only_layers)[:, None]  # [L, 1]
        self.sums = {name: np.asarray(sums * self.has_ffn) for name, sums in hottest.sums.items()}
        everything = ends.astype(np.float64)
        if model.ffn_is_whole:  # a token reads all of down
            self.sums["fired"] = np.broadcast_to(everything, self.sums["fired"].shape)
        self._modes: list[Mode] = [mode] * model.n_layers
        for layer in np.flatnonzero(predictors.is_true_gate) if predictors is not None else ():
            self._modes[layer] = "exact"  # both sides evaluate the first matrix for their own neurons
        nothing = np.zeros(model.n_layers, np.int64)
        self.predictor_held = nothing if predictors is None else predictors.held
        self.predictor_on_gpu = nothing if predictors is None else predictors.gpu_bytes

    def neurons_s(self, rates: DeviceRates) -> F64:
        """Return seconds on the CPU, or on a GPU if down is stored by neuron."""
        return self._neurons_s(rates, self._modes, [self.sums[part] for part in ("active", "opened", "fired")])

    def hot_s(self, rates: DeviceRates) -> F64:
        """Return seconds on a GPU."""
        if not self._model.ffn_is_whole:
            return self.neurons_s(rates)
        everything = np.broadcast_to(self._ends.astype(np.float64), self.sums["fired"].shape)
        return self._neurons_s(rates, ["dense"] * self._model.n_layers, [everything] * 3)

    def _neurons_s(self, rates: DeviceRates, modes: list[Mode], read: list[F64]) -> F64:
        model = self._model
        speeds = np.array(
            [
                ffn_speeds(rates, mode, first_codec, down_codec, model.down_is_row_wise, int(row_bytes))
                for mode, first_codec, down_codec, row_bytes in zip(
                    modes, model.first_codecs, model.down_codecs, model.first, strict=True
                )
            ]
        )
        per_neuron = np.stack([model.first, model.second, model.down], axis=1) / speeds
        return np.asarray(sum(per_neuron[:, i, None] * part for i, part in enumerate(read)), np.float64)

    def attention_s(self, rates: DeviceRates, kv_read: I64) -> F64:
        """Return seconds of attention [L]. kv_read [L]: bytes of each layer's cache that a token reads."""
        model = self._model
        seconds = [
            n_bytes / rates.gemv(codec) + kv / (_KV_SHARE * rates.gemv("f16"))
            for n_bytes, codec, kv in zip(model.attention, model.attention_codecs, kv_read, strict=True)
        ]
        return np.array(seconds)

    def predictor_s(self, rates: DeviceRates) -> F64:
        predictors = self._predictors
        if predictors is None:
            return np.zeros(self._model.n_layers)
        speeds = [rates.gemv(codec) if codec in COPY_CODECS else rates.short(codec) for codec in predictors.codecs]
        return np.asarray(predictors.read / np.array(speeds), np.float64)


def _within(values: NDArray[np.float32], order: I32, ends: I64) -> F64:
    """Return [L, K + 1]: the sum of values [L, F] over each layer's ends[k] hottest neurons."""
    hottest = np.take_along_axis(values, order, axis=1)
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(hottest, axis=1, dtype=np.float64, out=sums[:, 1:])
    return np.asarray(sums[:, ends], np.float64)
