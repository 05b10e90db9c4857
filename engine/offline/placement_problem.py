"""The placement as a problem in numbers: for every layer the ways to place it, each with its seconds and its bytes.

A layer's neurons are sorted by how often they fire and taken in blocks, hottest first, so that a way to place a layer
is three things: the device of its attention, that of its predictor, and how many blocks are hot. Of the same number of
blocks no others than the hottest leave less to the CPU. Paper: PowerInfer, section 6.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, Mode
from engine.offline.activity import Activity
from engine.offline.cost_model import DeviceRates, Machine, cpu_layer_s, cpu_token_s, ffn_speeds, gpu_layer_s
from engine.offline.model_bytes import ModelBytes, PredictorBytes
from native_kernels.codecs import COPY_CODECS

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
BOOL = NDArray[np.bool_]

# Blocks of a layer at most, and what their size is a multiple of: fine enough that the last one, which may not fit, is
# worth less than 1 % of a layer, and few enough that all of it is solved in seconds.
MOST_BLOCKS = 128
BLOCK_MULTIPLE = 32
# Attention reads keys and values with less of the bandwidth than a matrix is read with.
_KV_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Problem:
    """Ways to place a model on a card and a CPU, and what they cost. Way w of a layer is (attention_on_gpu[w],
    predictor_on_gpu[w], blocks[w]).

    Shapes: seconds f64 [L, W], vram, ram i64 [L, W]: of a layer placed that way. head_seconds, head_vram, head_ram:
    (on the CPU, on the GPU). order i32 [L, F]: neurons, hottest first; computed f64 [L, K + 1]: how many neurons of the
    first k blocks are computed for a token, cold ones behind. fixed_vram: taken as soon as the card is used at all;
    fixed_ram and fixed_seconds: always. crossing_s: whenever one layer's attention is on another device than the
    next one's; a token starts on the CPU and ends there.
    """

    seconds: F64
    vram: I64
    ram: I64
    attention_on_gpu: BOOL
    predictor_on_gpu: BOOL
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

    @property
    def n_layers(self) -> int:
        return len(self.seconds)

    @property
    def cpu_alone(self) -> Choice:
        """Nothing on the card."""
        way = int(np.flatnonzero(~self.attention_on_gpu & ~self.predictor_on_gpu & (self.blocks == 0))[0])
        return Choice((way,) * self.n_layers, head_on_gpu=False)

    @cached_property
    def most_vram(self) -> int:
        """What the card takes with everything on it that can be."""
        return self.fixed_vram + int(self.vram.max(axis=1).sum()) + self.head_vram[1]

    def hot_neurons(self, layer: int, way: int) -> I32:
        """The ids of a layer's hot neurons, ascending."""
        return np.sort(self.order[layer, : int(self.blocks[way]) * self.block])


@dataclass(frozen=True)
class Choice:
    """A way for every layer, and the head's device."""

    ways: tuple[int, ...]
    head_on_gpu: bool

    def uses_gpu(self, problem: Problem) -> bool:
        return self.head_on_gpu or bool(problem.vram[np.arange(len(self.ways)), list(self.ways)].any())

    def vram(self, problem: Problem) -> int:
        """Bytes on the card, all that is counted included."""
        if not self.uses_gpu(problem):
            return 0
        layers = int(problem.vram[np.arange(len(self.ways)), list(self.ways)].sum())
        return problem.fixed_vram + layers + problem.head_vram[self.head_on_gpu]

    def ram(self, problem: Problem) -> int:
        """Bytes in the RAM."""
        layers = int(problem.ram[np.arange(len(self.ways)), list(self.ways)].sum())
        return problem.fixed_ram + layers + problem.head_ram[self.head_on_gpu]

    def seconds(self, problem: Problem) -> float:
        """Predicted seconds of a token."""
        layers = float(problem.seconds[np.arange(len(self.ways)), list(self.ways)].sum())
        homes = [False, *problem.attention_on_gpu[list(self.ways)].tolist(), self.head_on_gpu, False]
        crossings = sum(one != other for one, other in pairwise(homes))
        head = problem.head_seconds[self.head_on_gpu]
        return float(problem.fixed_seconds + layers + head + crossings * problem.crossing_s)

    def gpu_load(self, problem: Problem) -> float:
        """The share of the neurons computed for a token that the GPU computes."""
        hot = problem.computed[np.arange(len(self.ways)), problem.blocks[list(self.ways)]].sum()
        return float(hot / max(problem.computed[:, -1].sum(), 1e-30))


def block_size(neurons: int) -> int:
    """Neurons of a block, for a layer of so many."""
    return max(1, -(-neurons // (MOST_BLOCKS * BLOCK_MULTIPLE)) * BLOCK_MULTIPLE)


def build_problem(
    model: ModelBytes,
    activity: Activity,
    machine: Machine,
    mode: Mode,
    context: int,
    position: int,
    kv_codec: KvCodec,
    predictors: PredictorBytes | None = None,
    fixed_vram: int = 0,
    fixed_ram: int = 0,
) -> Problem:
    """All ways to place this model on this machine. position: that of the token whose time is predicted.

    Cost: for 80 layers of 28,672 neurons about half a second, most of it sorting.
    """
    block, neurons = block_size(model.neurons), model.neurons
    order = np.argsort(-activity.ranking, axis=1, kind="stable").astype(np.int32)
    ends = np.minimum(np.arange(-(-neurons // block) + 1) * block, neurons)
    with_predictors = predictors is not None and mode == "sparse"
    gates_apart = (
        predictors.is_true_gate if predictors is not None and with_predictors else np.zeros(model.n_layers, bool)
    )

    first = np.where(gates_apart, 0, model.first)
    neuron = first + model.second + model.down
    hot_bytes = neuron[:, None] * ends
    sums = {name: _within(getattr(activity, name), order, ends) for name in ("active", "opened", "fired", "computed")}
    if model.down_is_row_wise:  # a token reads all of it
        sums["fired"] = np.broadcast_to(ends.astype(np.float64), sums["fired"].shape)

    sparse_first = np.where(gates_apart, 0.0, model.first.astype(np.float64))

    def ffn_seconds(rates: DeviceRates) -> F64:
        """[L, K + 1]: of the first k blocks."""
        speeds = np.array(
            [
                ffn_speeds(rates, mode, first_codec, down_codec, model.down_is_row_wise)
                for first_codec, down_codec in zip(model.first_codecs, model.down_codecs, strict=True)
            ]
        )
        per_neuron = np.stack([sparse_first, model.second, model.down], axis=1) / speeds
        parts = (sums["active"], sums["opened"], sums["fired"])
        return np.asarray(sum(per_neuron[:, i, None] * part for i, part in enumerate(parts)), np.float64)

    kv_bytes, kv_read = model.kv_of_layer(context, kv_codec), model.kv_of_layer(position, kv_codec)
    attention_bytes = model.attention + kv_bytes
    nothing = np.zeros(model.n_layers, np.int64)
    predictor_bytes = predictors.held if predictors is not None and with_predictors else nothing
    predictor_read = predictors.read if predictors is not None and with_predictors else nothing

    def always_seconds(rates: DeviceRates) -> tuple[F64, F64]:
        """[L] each: attention, predictor."""
        codecs = predictors.codecs if predictors is not None and with_predictors else ("f16",) * model.n_layers
        attention = [
            n_bytes / rates.gemv(codec) + kv_read / (_KV_SHARE * rates.gemv("f16"))
            for n_bytes, codec in zip(model.attention, model.attention_codecs, strict=True)
        ]
        speeds = [
            rates.first(codec) if at_gate else rates.gemv(codec) if codec in COPY_CODECS else rates.short(codec)
            for codec, at_gate in zip(codecs, gates_apart.tolist(), strict=True)
        ]
        predictor = predictor_read / np.array(speeds)
        return np.array(attention), np.asarray(predictor, np.float64)

    of_cpu = ffn_seconds(machine.cpu)
    cold = of_cpu[:, -1:] - of_cpu
    cpu_attention, cpu_predictor = always_seconds(machine.cpu)
    cpu_attention = cpu_attention + cpu_layer_s(model.config.d_model)
    rates = machine.gpu
    devices = (False, True) if rates is not None else (False,)
    hot = ffn_seconds(rates) if rates is not None else cold
    gpu_attention, gpu_predictor = always_seconds(rates) if rates is not None else (cpu_attention, cpu_predictor)

    # The input goes one way (f16) with a bit for each neuron, the sum comes back (f32).
    d_model = model.config.d_model
    exchange = machine.exchange(6 * d_model + neurons // 8) if rates is not None else 0.0
    last = len(ends) - 1
    has_hot, has_cold = np.arange(len(ends)) > 0, np.arange(len(ends)) < last
    seconds, vram, ram, ways = [], [], [], []
    for attention_on_gpu in devices:
        for predictor_on_gpu in devices:
            if predictor_on_gpu != attention_on_gpu and not predictor_bytes.any():
                continue
            other = has_cold if attention_on_gpu else has_hot
            ffn = np.where(has_hot, hot + gpu_layer_s(False, True), 0.0) if len(devices) > 1 else 0.0 * cold
            ffn = np.maximum(ffn, np.where(has_cold, cold, 0.0)) + exchange * other
            always = gpu_attention + gpu_layer_s(True, False) if attention_on_gpu else cpu_attention
            always = always + (gpu_predictor if predictor_on_gpu else cpu_predictor)
            always = always + exchange * (predictor_on_gpu != attention_on_gpu)
            seconds.append(always[:, None] + ffn)
            on_card = attention_bytes * attention_on_gpu + predictor_bytes * predictor_on_gpu
            vram.append(on_card[:, None] + hot_bytes)
            ram.append((attention_bytes + predictor_bytes - on_card)[:, None] + hot_bytes[:, -1:] - hot_bytes)
            ways += [(attention_on_gpu, predictor_on_gpu, k) for k in range(last + 1)]
    if len(devices) == 1:  # without a card there is one way
        seconds, vram, ram = ([of_layer[0][:, :1]] for of_layer in (seconds, vram, ram))
        ways = ways[:1]
    attention_way, predictor_way, blocks = (np.array(column) for column in zip(*ways, strict=True))
    head_cpu = model.head / machine.cpu.gemv(model.head_codec)
    head_gpu = head_cpu
    if rates is not None:
        logits_s = 4 * model.config.vocab_size / machine.link_bytes_per_s
        head_gpu = model.head / rates.gemv(model.head_codec) + logits_s
    return Problem(
        seconds=np.concatenate(seconds, axis=1),
        vram=np.concatenate(vram, axis=1),
        ram=np.concatenate(ram, axis=1),
        attention_on_gpu=attention_way.astype(np.bool_),
        predictor_on_gpu=predictor_way.astype(np.bool_),
        blocks=blocks.astype(np.int64),
        head_seconds=(head_cpu, head_gpu),
        head_vram=(0, model.head),
        head_ram=(model.head_in_ram, 0),
        order=order,
        block=block,
        computed=sums["computed"],
        fixed_vram=fixed_vram,
        fixed_ram=fixed_ram + model.embedding,
        fixed_seconds=cpu_token_s(),
        crossing_s=machine.exchange(4 * d_model) if rates is not None else 0.0,
    )


def _within(values: NDArray[np.float32], order: I32, ends: I64) -> F64:
    """[L, F] -> [L, K + 1]: the sum over the first ends[k] neurons of each layer, hottest first."""
    hottest = np.take_along_axis(values, order, axis=1)
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(hottest, axis=1, dtype=np.float64, out=sums[:, 1:])
    return np.asarray(sums[:, ends], np.float64)
