"""Predict the seconds of a decoded token from bytes and rates, for GPU with CPU or CPU alone.

A token takes the sum over layers of [attention and predictor bytes / rate + max(active hot bytes / GPU rate, active
cold bytes / CPU rate) + exchange], plus the head. A rate is the device's measured bandwidth times the share that a
kernel reaches; the shares below were measured too, with their sources. This module measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import Mode
from engine.errors import InvalidRequestError
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.read_rates import ReadRates
from native_kernels.codecs import ROW_CODECS

# One exchange between the devices within a layer, with segment graphs: 11.6 to 15.5 us on an H200 with Linux.
EXCHANGE_S = 12e-6
# A GPU that was not measured; few are slower.
UNKNOWN_GPU_BYTES_PER_S = 250e9
UNKNOWN_PCIE_BYTES_PER_S = 6e9


@dataclass(frozen=True)
class Efficiency:
    """Share of a bandwidth that kernels reach, by codec.

    gemv: a whole matrix. first: the deciding matrix of a sparse FFN. rows: gathered rows of active neurons; long_rows:
    rows of 10 KiB and more if they differ, interpolated from 4 KiB. sums: all of a down stored by neuron. short: a
    low-rank predictor, half of whose rows are only rank values long. core_bytes_per_s: arithmetic limit of one core
    with data in cache; None: never the limit.
    """

    gemv: float
    first: float
    rows: float
    sums: float
    short: float
    core_bytes_per_s: float | None = None
    long_rows: float | None = None


# Sources in tests/benchmarks/results. gemv and read_rates: cpu-kernels-2026-11-21 (EPYC, 1 and 2 threads) and
# cpu-kernels-xeon (1 to 8 threads). The others: dense, exact and sparse mode compared in against-llama-cpp-1b (EPYC, 2
# threads) and prediction (EPYC, 1 thread). Those have rows of 2,048 values, which reach less bandwidth than the 4,096
# of cpu-kernels. Long rows of floats: 15 threads beside a GPU reached 0.95 of plain reading (gpu-anchors-32b); set
# slightly lower. Cores within caches: the starter model and the tiny models of make_model.py on that EPYC, 1 thread.
_CPU: dict[str, Efficiency] = {
    "f32": Efficiency(0.98, 0.85, 0.55, 0.95, 0.6, 80e9),
    "f16": Efficiency(0.98, 0.85, 0.5, 0.95, 0.6, 60e9, long_rows=0.9),
    "bf16": Efficiency(0.98, 0.85, 0.5, 0.95, 0.6, 60e9, long_rows=0.9),
    "q8_0": Efficiency(0.95, 0.9, 0.65, 0.85, 0.4, 35e9),
    "q8_0.lanes": Efficiency(0.9, 0.8, 0.65, 0.8, 0.4, 35e9),
    "q4_0": Efficiency(0.97, 0.8, 0.4, 0.9, 0.25, 45e9, long_rows=0.62),
    "q4_0.lanes": Efficiency(0.9, 0.8, 0.65, 0.8, 0.4, 45e9),
}
_CPU_OTHER = Efficiency(0.85, 0.8, 0.5, 0.7, 0.4, 25e9)  # K-quants and similar codecs cost more arithmetic

# Kernel table of gpu-design.md, measured on an H200, without the fixed costs (in _GPU_ATTENTION_S and _GPU_FFN_S).
_GPU: dict[str, Efficiency] = {
    "f32": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
    "f16": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
    "bf16": Efficiency(0.95, 0.95, 0.9, 0.95, 0.9),
}
_GPU_OTHER = Efficiency(0.88, 0.88, 0.7, 0.7, 0.7)

# Estimates for zero-copy reads by the GPU while the CPU reads RAM too, if not measured. On an H200 machine (bus 55
# GB/s, CPU 98 GB/s) with a 70B q4_0 model, the GPU got 32 GB/s and 15 threads 44, derived from stage times
# (gpu-anchors-70b); alone the threads got 62 with a 13B model. If plain concurrent reads were measured, gathering
# kernels reach about this share of them.
_REACH_SHARE, _RAM_SHARE, _GATHERED = 0.58, 0.78, 0.9
# Best share of the RAM's bandwidth for gathered rows; minimum share of the CPU's own rate that zero-copy leaves it.
_BEST_ROWS, _LEAST_LEFT = 0.75, 0.5
_EVENLY = Efficiency(1.0, 1.0, 1.0, 1.0, 1.0)

_SHORT_ROW, _LONG_ROW = 2 << 10, 5 << 10  # columns

# Seconds not explained by memory traffic. CPU: hand-offs, norms and activations per layer and per value of the residual
# stream; sampling and Python per token. GPU: fixed costs of the kernels of attention and of an FFN.
_CPU_LAYER_S, _CPU_VALUE_S, _CPU_TOKEN_S = 10e-6, 2e-9, 5e-5
_GPU_ATTENTION_S, _GPU_FFN_S = 20e-6, 15e-6
# Cold neurons beside a GPU: building their list, rounding their input, three thread barriers. A 70B q4_0 model with 15
# threads took 168 us per layer for 7 MB and 428 us for 24 MB.
_CPU_COLD_S = 15e-6


@dataclass(frozen=True)
class DeviceRates:
    """How fast one device reads weights.

    bytes_per_s: the bandwidth. threads: CPU threads, whose arithmetic may be the limit; 0 for a GPU.
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
        """Return bytes/s for a whole matrix."""
        return self._speed(self._of(codec).gemv, codec)

    def first(self, codec: str) -> float:
        """Return bytes/s for the deciding matrix of a sparse FFN."""
        return self._speed(self._of(codec).first, codec)

    def rows(self, codec: str, row_bytes: int) -> float:
        """Return bytes/s for gathered rows of this many bytes."""
        known = self._of(codec)
        if known.long_rows is None:
            return self._speed(known.rows, codec)
        columns = row_bytes / (ROW_CODECS[codec].n_bytes(256) / 256)
        length = min(1.0, max(0.0, (columns - _SHORT_ROW) / (_LONG_ROW - _SHORT_ROW)))
        return self._speed(known.rows + length * (known.long_rows - known.rows), codec)

    def sums(self, codec: str) -> float:
        """Return bytes/s for a whole matrix read neuron by neuron into a weighted sum."""
        return self._speed(self._of(codec).sums, codec)

    def short(self, codec: str) -> float:
        """Return bytes/s for a predictor."""
        return self._speed(self._of(codec).short, codec)


def cpu_efficiency_rates() -> DeviceRates:
    """Return a CPU's rates as shares of its bandwidth, without the limit of its arithmetic."""
    return DeviceRates(1.0, _CPU, _CPU_OTHER)


@dataclass(frozen=True)
class Machine:
    """Rates of a CPU and, if present, a GPU, and the cost of an exchange between them.

    exchange_s: per layer, without its bytes. link_bytes_per_s: between the two. both_bytes_per_s: measured concurrent
    RAM reads (by the GPU over the bus, by the CPU); None if not measured. read_rates: concurrent rates of the model's
    own rows, which override all estimates.
    """

    cpu: DeviceRates
    gpu: DeviceRates | None
    exchange_s: float
    link_bytes_per_s: float
    notes: tuple[str, ...] = ()
    both_bytes_per_s: tuple[float, float] | None = None
    read_rates: ReadRates | None = None

    @classmethod
    def of(
        cls, profile: HardwareProfile, threads: int, gpu: GpuInfo | None, read_rates: ReadRates | None = None
    ) -> Machine:  # fmt: skip
        """Return the rates of a profile. gpu: the GPU in use, None for the CPU alone. read_rates: measured with it.

        Raises: InvalidRequestError if the profile lacks the RAM's bandwidth.
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
            notes.append(f"{gpu.name} was not measured; {UNKNOWN_GPU_BYTES_PER_S / 1e9:.0f} GB/s is assumed.")
        rates = DeviceRates(gpu.bytes_per_s or UNKNOWN_GPU_BYTES_PER_S, _GPU, _GPU_OTHER)
        link = gpu.pcie_bytes_per_s or UNKNOWN_PCIE_BYTES_PER_S
        both = None
        if gpu.reach_bytes_per_s and gpu.beside_share:
            both = _GATHERED * gpu.reach_bytes_per_s, _GATHERED * gpu.beside_share * profile.cpu.bytes_per_s
        return cls(cpu, rates, profile.sync_s or EXCHANGE_S, link, tuple(notes), both, read_rates)

    @property
    def zero_copy(self) -> DeviceRates:
        """The GPU's rate for zero-copy reads of pinned host memory."""
        if self.read_rates is not None:
            return DeviceRates(self.read_rates.zero_copy, {}, _EVENLY)
        over_bus = _REACH_SHARE * self.link_bytes_per_s if self.both_bytes_per_s is None else self.both_bytes_per_s[0]
        return DeviceRates(over_bus, {}, _EVENLY)

    @property
    def beside_zero_copy(self) -> DeviceRates:
        """The CPU's rate while the GPU reads zero-copy."""
        if self.read_rates is not None:
            return DeviceRates(self.read_rates.beside, {}, _EVENLY)
        if self.both_bytes_per_s is not None:
            return DeviceRates(self.both_bytes_per_s[1], {}, _EVENLY)
        left = _RAM_SHARE * self.cpu.bytes_per_s - self.zero_copy.bytes_per_s
        return DeviceRates(max(left, 1e-3 * self.cpu.bytes_per_s), {}, _EVENLY)

    @property
    def cold(self) -> DeviceRates:
        """The CPU's rate for cold neurons while the GPU reads no host memory."""
        return self.cpu if self.read_rates is None else DeviceRates(self.read_rates.alone, {}, _EVENLY)

    def optimistic_rates(self, alone: float, zero_copy: float | None = None) -> ReadRates:
        """Return optimistic concurrent rates to try out.

        alone: the CPU's rate for the model's rows by itself. zero_copy: the GPU's zero-copy rate, if known. Assumes
        that the RAM provides at least its measured bandwidth, and that gathered rows use a share of it.
        """
        if zero_copy is None:
            measured = 0.0 if self.both_bytes_per_s is None else self.both_bytes_per_s[0]
            zero_copy = max(measured, _REACH_SHARE * self.link_bytes_per_s)
        ram = max(self.cpu.bytes_per_s, alone / _BEST_ROWS)
        return ReadRates(zero_copy, min(alone, max(ram - zero_copy, _LEAST_LEFT * alone)), alone)

    def exchange(self, n_bytes: int) -> float:
        """Return the seconds of one exchange of this many bytes."""
        return self.exchange_s + n_bytes / self.link_bytes_per_s


def with_disk_s(seconds: float, disk_read_bytes: int, disk_bytes_per_s: float | None) -> float | None:
    """Return a token's seconds with the time for reading experts from the disk; None if its rate is not known."""
    if not disk_read_bytes:
        return seconds
    return None if not disk_bytes_per_s else seconds + disk_read_bytes / disk_bytes_per_s


def cpu_layer_s(d_model: int) -> float:
    """Return a layer's seconds on the CPU without memory traffic."""
    return _CPU_LAYER_S + _CPU_VALUE_S * d_model


def cpu_token_s() -> float:
    """Return a token's seconds on the CPU outside its layers and head."""
    return _CPU_TOKEN_S


def cold_layer_s() -> float:
    """Return the CPU seconds of a layer's cold neurons without memory traffic and exchange."""
    return _CPU_COLD_S


def gpu_layer_s(attention: bool, ffn: bool) -> float:
    """Return a layer's seconds on the GPU without memory traffic."""
    return _GPU_ATTENTION_S * attention + _GPU_FFN_S * ffn


def ffn_speeds(
    rates: DeviceRates, mode: Mode, first: str, down: str, down_is_row_wise: bool, row_bytes: int = 0
) -> tuple[float, float, float]:
    """Return bytes/s of a neuron's first row, its row of up beside a gate, and its down. row_bytes: per row."""
    all_of_down = rates.gemv(down) if down_is_row_wise else rates.sums(down)
    some_of_down = all_of_down if down_is_row_wise else rates.rows(down, row_bytes)
    match mode:
        case "dense":
            return rates.gemv(first), rates.gemv(first), all_of_down
        case "exact":
            return rates.first(first), rates.rows(first, row_bytes), some_of_down
        case _:
            return rates.rows(first, row_bytes), rates.rows(first, row_bytes), some_of_down
