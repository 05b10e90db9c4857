"""Concurrent read rates of a model's own rows, derived from timed tokens with GPU and CPU at the same time.

Arithmetic only; engine/gpu/token/balance.py times the tokens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.config import Mode
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import recall_read_rates
from engine.machine.read_rates import ReadRates
from engine.placement.cost_model import Machine, cold_layer_s, gpu_layer_s
from engine.placement.model_bytes import ModelBytes

# At least this share of a measured time is attributed to rows; the rest is overhead that does not depend on bytes.
_LEAST_OF_ROWS = 0.5
_TOO_FAR_APART = 0.25
_USUAL_ROWS = 0.5  # share of the RAM's bandwidth that the CPU reaches with gathered rows


@dataclass(frozen=True)
class ReadTimes:
    """Times of one token on GPU and CPU.

    Seconds: token_s, the whole token; hot_s and zero_copy_s, the GPU with neurons in VRAM and with zero-copy neurons;
    cold_s, the CPU with the rest. zero_copy_bytes, cold_bytes: bytes of rows read. zero_copy_layers, cold_layers:
    layers with such rows. quiet: whether other programs left the CPU almost idle. computed: neurons computed
    in all layers.
    """

    token_s: float
    hot_s: float
    zero_copy_s: float
    cold_s: float
    zero_copy_bytes: float
    cold_bytes: float
    zero_copy_layers: int
    cold_layers: int
    quiet: bool = True
    computed: float = 0.0

    def __str__(self) -> str:
        over_bus, beside = (1e-9 * n / max(s, 1e-12) for n, s in (
            (self.zero_copy_bytes, self.zero_copy_s), (self.cold_bytes, self.cold_s)))  # fmt: skip
        return (
            f"{1e3 * self.token_s:.2f} ms; the GPU {1e3 * self.hot_s:.2f} with its own neurons and "
            f"{1e3 * self.zero_copy_s:.2f} over the bus ({over_bus:.1f} GB/s), the CPU {1e3 * self.cold_s:.2f} "
            f"({beside:.1f} GB/s)" + ("" if self.quiet else "; others used the CPU as well")
        )

    @property
    def apart(self) -> float:
        """Difference between both sides' neuron times, as a share of the longer one."""
        gpu_s = self.hot_s + self.zero_copy_s
        return abs(gpu_s - self.cold_s) / max(gpu_s, self.cold_s, 1e-12)

    @property
    def are_far_apart(self) -> bool:
        """Whether one side waits long for the other."""
        return self.apart > _TOO_FAR_APART


def rates_of(times: ReadTimes, machine: Machine) -> ReadRates | None:
    """Return the rates that explain the times; None if neither side read rows.

    If the GPU read during all of the CPU's time, `beside` is the CPU's measured rate. If it read for a shorter time, it
    is assumed to have left the CPU as much of its own rate as possible. A side that read nothing gets an optimistic
    rate.
    """
    cold_s = _of_rows(times.cold_s, times.cold_layers * cold_layer_s())
    zero_copy_s = _of_rows(times.zero_copy_s, times.zero_copy_layers * gpu_layer_s(False, True))
    zero_copy = times.zero_copy_bytes / zero_copy_s if times.zero_copy_bytes > 0 and zero_copy_s > 0 else None
    if times.cold_bytes <= 0 or cold_s <= 0:
        return None if zero_copy is None else machine.optimistic_rates(_USUAL_ROWS * machine.cpu.bytes_per_s, zero_copy)
    had = times.cold_bytes / cold_s
    if zero_copy is None:
        return machine.optimistic_rates(had)
    left = machine.optimistic_rates(had, zero_copy).beside / had
    alone = times.cold_bytes / (cold_s - (1 - left) * min(zero_copy_s, cold_s))
    return ReadRates(zero_copy, left * alone, alone)


def kind_of(model: ModelBytes, mode: Mode) -> str:
    """Return the key of the rows that a mode reads of a model: the kind of most layers."""
    layers = zip(model.first_codecs, model.down_codecs, model.first.tolist(), strict=True)
    (first, down, n_bytes), _ = Counter(layers).most_common(1)[0]
    return f"{mode}.{first}.{down}.{n_bytes}"


def known_read_rates(
    profile: HardwareProfile, gpu: GpuInfo | None, threads: int, model: ModelBytes, modes: list[Mode]
) -> dict[Mode, ReadRates]:
    """Return the remembered rates of the rows that these modes read of a model."""
    found: dict[Mode, ReadRates] = {}
    if gpu is None or model.down_is_row_wise or model.unit:
        return found
    for mode in modes:
        _, rates = recall_read_rates(profile, gpu, threads, kind_of(model, mode))
        if rates is not None:
            found[mode] = rates
    return found


def _of_rows(seconds: float, fixed_s: float) -> float:
    return max(seconds - fixed_s, _LEAST_OF_ROWS * seconds)
