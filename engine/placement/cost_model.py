"""Predicts the seconds of a decoded token from bytes and rates: GPU with CPU, or CPU alone. It measures nothing.

A token costs the sum over layers of [attention and predictor bytes / rate + the longer of (active hot bytes / GPU rate,
active cold bytes / CPU rate) + exchange], and the head. Rates are a device's measured bandwidth times what the kernels
reach of it, which is measured too, kernel by kernel, and stands below with its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import Mode
from engine.errors import InvalidRequestError
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.lane_rates import LaneRates
from native_kernels.codecs import ROW_CODECS

# One exchange between the devices within a layer: segment graphs, measured on an H200 with Linux (11.6 to 15.5 us).
EXCHANGE_S = 12e-6
# A GPU whose figures nobody has measured; few have less.
UNKNOWN_GPU_BYTES_PER_S = 250e9
UNKNOWN_PCIE_BYTES_PER_S = 6e9


@dataclass(frozen=True)
class Efficiency:
    """What kernels reach of a bandwidth, by codec.

    gemv: a whole matrix. first: the deciding matrix of an FFN whose other rows are skipped. rows: rows gathered where
    neurons fire; long_rows: those of 10 KiB and more, where they differ (between 4 and 10 KiB it is between the two).
    sums: a whole down that is stored by neuron. short: a low-rank predictor, half of whose rows are as short as its
    rank.
    core_bytes_per_s: what one core computes when no memory holds it up; None: never the limit.
    """

    gemv: float
    first: float
    rows: float
    sums: float
    short: float
    core_bytes_per_s: float | None = None
    long_rows: float | None = None


# tests/benchmarks/results: cpu-kernels-2026-11-21 (EPYC, 1 and 2 threads) and cpu-kernels-xeon (1 to 8 threads) for
# gemv and for the lanes; against-llama-cpp-1b (EPYC, 2 threads) and prediction (EPYC, 1 thread) for the others, from
# what dense, exact and sparse mode took beside each other. Those are of rows of 2,048 values, which are read with less
# of the bandwidth than the 4,096 of cpu-kernels. Long rows of floats: 15 threads beside a GPU had 0.95 of what plain
# reading gave just before (gpu-anchors-32b), which is put a little lower. Cores within their caches: the starter model
# and make_model.py's tiny ones on that EPYC, 1 thread.
_CPU: dict[str, Efficiency] = {
    "f32": Efficiency(0.98, 0.85, 0.55, 0.95, 0.6, 80e9),
    "f16": Efficiency(0.98, 0.85, 0.5, 0.95, 0.6, 60e9, long_rows=0.9),
    "bf16": Efficiency(0.98, 0.85, 0.5, 0.95, 0.6, 60e9, long_rows=0.9),
    "q8_0": Efficiency(0.95, 0.9, 0.65, 0.85, 0.4, 35e9),
    "q8_0.lanes": Efficiency(0.9, 0.8, 0.65, 0.8, 0.4, 35e9),
    "q4_0": Efficiency(0.97, 0.8, 0.4, 0.9, 0.25, 45e9, long_rows=0.62),
    "q4_0.lanes": Efficiency(0.9, 0.8, 0.65, 0.8, 0.4, 45e9),
}
_CPU_OTHER = Efficiency(0.85, 0.8, 0.5, 0.7, 0.4, 25e9)  # K-quants and the like, which cost more arithmetic

# gpu-design.md's table of kernels on an H200, their fixed part taken out (it is in _GPU_ATTENTION_S and _GPU_FFN_S).
_GPU: dict[str, Efficiency] = {
    "f32": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
    "f16": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
    "bf16": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
}
_GPU_OTHER = Efficiency(0.88, 0.88, 0.7, 0.7, 0.7)

# Kernels that read the host's pinned memory over the bus while the CPU reads the RAM too, where nobody has measured
# both at once: on an H200's machine, whose bus copies 55 GB/s and whose processors read 98, the GPU had 32 of a 70B
# model in q4_0 and 15 threads had 44, as reckoned from what the stages took (gpu-anchors-70b); alone those had 62, of a
# 13B model. Where it was measured, kernels that gather rows have about so much of what a plain reading had.
_REACH_SHARE, _RAM_SHARE, _GATHERED = 0.58, 0.78, 0.9
# Of a RAM's rate, what rows that are gathered are read with at best; of a processor's own, what is left at least.
_BEST_ROWS, _LEAST_LEFT = 0.75, 0.5
_EVENLY = Efficiency(1.0, 1.0, 1.0, 1.0, 1.0)

_SHORT_ROW, _LONG_ROW = 2 << 10, 5 << 10  # columns

# Seconds that no bytes explain. CPU: the hand-offs, norms and activations of a layer, per layer and per value of its
# residual stream; sampling and Python per token. GPU: the fixed parts of the kernels of attention, and of an FFN.
_CPU_LAYER_S, _CPU_VALUE_S, _CPU_TOKEN_S = 10e-6, 2e-9, 5e-5
_GPU_ATTENTION_S, _GPU_FFN_S = 20e-6, 15e-6
# Cold neurons beside a GPU: their list, the rounding of their input, three meetings of the threads. A 70B model in
# q4_0 with 15 threads took 168 us a layer for 7 MB and 428 us for 24 MB.
_CPU_COLD_S = 15e-6


@dataclass(frozen=True)
class DeviceRates:
    """How fast one device reads weights.

    bytes_per_s: the bandwidth. threads: whose arithmetic limits it, 0 for a GPU.
    """

    bytes_per_s: float
    efficiencies: dict[str, Efficiency]
    other: Efficiency
    threads: int = 0

    def _speed(self, share: float, codec: str) -> float:
        known = self._of(codec)
        speed = share * self.bytes_per_s
        if self.threads and known.core_bytes_per_s is not None:
            speed = min(speed, self.threads * known.core_bytes_per_s)
        return speed

    def _of(self, codec: str) -> Efficiency:
        return self.efficiencies.get(codec, self.other)

    def gemv(self, codec: str) -> float:
        """Bytes/s of a whole matrix."""
        return self._speed(self._of(codec).gemv, codec)

    def first(self, codec: str) -> float:
        """Bytes/s of the deciding matrix of a sparse FFN."""
        return self._speed(self._of(codec).first, codec)

    def rows(self, codec: str, row_bytes: int) -> float:
        """Bytes/s of gathered rows of so many bytes."""
        known = self._of(codec)
        if known.long_rows is None:
            return self._speed(known.rows, codec)
        columns = row_bytes / (ROW_CODECS[codec].n_bytes(256) / 256)
        length = min(1.0, max(0.0, (columns - _SHORT_ROW) / (_LONG_ROW - _SHORT_ROW)))
        return self._speed(known.rows + length * (known.long_rows - known.rows), codec)

    def sums(self, codec: str) -> float:
        """Bytes/s of a whole matrix that is read neuron by neuron into a weighted sum."""
        return self._speed(self._of(codec).sums, codec)

    def short(self, codec: str) -> float:
        """Bytes/s of a predictor."""
        return self._speed(self._of(codec).short, codec)


@dataclass(frozen=True)
class Machine:
    """Rates of a CPU and, where there is one, of a GPU; what an exchange between them costs.

    exchange_s: of one layer's, without its bytes. link_bytes_per_s: between the two. both_bytes_per_s: of the RAM, by
    the GPU over the bus and by the CPU meanwhile, where that was measured. lanes: the same of the very rows that a
    model's tokens read, where those were timed; before all that is reckoned.
    """

    cpu: DeviceRates
    gpu: DeviceRates | None
    exchange_s: float
    link_bytes_per_s: float
    notes: tuple[str, ...] = ()
    both_bytes_per_s: tuple[float, float] | None = None
    lanes: LaneRates | None = None

    @classmethod
    def of(
        cls, profile: HardwareProfile, threads: int, gpu: GpuInfo | None, lanes: LaneRates | None = None
    ) -> Machine:  # fmt: skip
        """The rates of a profile. gpu: the GPU that is used, None for the CPU alone. lanes: as measured with the GPU.

        Raises: InvalidRequestError where nobody has measured how fast its RAM is read.
        """
        if not profile.cpu.bytes_per_s:
            raise InvalidRequestError(
                "The hardware profile does not say how fast the RAM is read (cpu.bytes_per_s).",
                "Make it again: python -m engine probe --measure --json > FILE.",
            )
        cpu = DeviceRates(profile.cpu.bytes_per_s, _CPU, _CPU_OTHER, threads)
        if gpu is None:
            return cls(cpu, None, 0.0, 1.0)
        notes = []
        if not gpu.bytes_per_s:
            notes.append(f"Nobody has measured {gpu.name}; taken are {UNKNOWN_GPU_BYTES_PER_S / 1e9:.0f} GB/s.")
        rates = DeviceRates(gpu.bytes_per_s or UNKNOWN_GPU_BYTES_PER_S, _GPU, _GPU_OTHER)
        link = gpu.pcie_bytes_per_s or UNKNOWN_PCIE_BYTES_PER_S
        both = None
        if gpu.reach_bytes_per_s and gpu.beside_share:
            both = _GATHERED * gpu.reach_bytes_per_s, _GATHERED * gpu.beside_share * profile.cpu.bytes_per_s
        return cls(cpu, rates, profile.sync_s or EXCHANGE_S, link, tuple(notes), both, lanes)

    @property
    def reach(self) -> DeviceRates:
        """The GPU's own reading of the host's pinned memory."""
        if self.lanes is not None:
            return DeviceRates(self.lanes.reach, {}, _EVENLY)
        over_bus = _REACH_SHARE * self.link_bytes_per_s if self.both_bytes_per_s is None else self.both_bytes_per_s[0]
        return DeviceRates(over_bus, {}, _EVENLY)

    @property
    def beside_reach(self) -> DeviceRates:
        """What is left to the CPU meanwhile."""
        if self.lanes is not None:
            return DeviceRates(self.lanes.beside, {}, _EVENLY)
        if self.both_bytes_per_s is not None:
            return DeviceRates(self.both_bytes_per_s[1], {}, _EVENLY)
        left = _RAM_SHARE * self.cpu.bytes_per_s - self.reach.bytes_per_s
        return DeviceRates(max(left, 1e-3 * self.cpu.bytes_per_s), {}, _EVENLY)

    @property
    def cold(self) -> DeviceRates:
        """The CPU's reading of neurons beside a GPU that reads none of the host's memory."""
        return self.cpu if self.lanes is None else DeviceRates(self.lanes.alone, {}, _EVENLY)

    def hopeful_lanes(self, alone: float, reach: float | None = None) -> LaneRates:
        """What both would do at once, as well as it may be, by what the CPU does of a model's rows by itself and, where
        that is known, the GPU over the bus: to be tried out. The RAM gives at least what its reading gave, and the
        rows that are read best are read with a share of what it gives."""
        if reach is None:
            measured = 0.0 if self.both_bytes_per_s is None else self.both_bytes_per_s[0]
            reach = max(measured, _REACH_SHARE * self.link_bytes_per_s)
        ram = max(self.cpu.bytes_per_s, alone / _BEST_ROWS)
        return LaneRates(reach, min(alone, max(ram - reach, _LEAST_LEFT * alone)), alone)

    def exchange(self, n_bytes: int) -> float:
        """Seconds of one exchange that carries so many bytes."""
        return self.exchange_s + n_bytes / self.link_bytes_per_s


def cpu_layer_s(d_model: int) -> float:
    """What a layer costs on the CPU beside its bytes."""
    return _CPU_LAYER_S + _CPU_VALUE_S * d_model


def cpu_token_s() -> float:
    """What a token costs on the CPU beside its layers and its head."""
    return _CPU_TOKEN_S


def cold_layer_s() -> float:
    """What a layer's cold neurons cost on the CPU beside their bytes and the exchange."""
    return _CPU_COLD_S


def gpu_layer_s(attention: bool, ffn: bool) -> float:
    """What a layer costs on the GPU beside its bytes."""
    return _GPU_ATTENTION_S * attention + _GPU_FFN_S * ffn


def ffn_speeds(
    rates: DeviceRates, mode: Mode, first: str, down: str, down_is_row_wise: bool, row_bytes: int = 0
) -> tuple[float, float, float]:
    """Bytes/s of a neuron's first row, of its row of up beside a gate, and of its down. row_bytes: of one of them."""
    all_of_down = rates.gemv(down) if down_is_row_wise else rates.sums(down)
    some_of_down = all_of_down if down_is_row_wise else rates.rows(down, row_bytes)
    match mode:
        case "dense":
            return rates.gemv(first), rates.gemv(first), all_of_down
        case "exact":
            return rates.first(first), rates.rows(first, row_bytes), some_of_down
        case _:
            return rates.rows(first, row_bytes), rates.rows(first, row_bytes), some_of_down
