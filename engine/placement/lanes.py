"""Concurrent read rates of a model's own rows, derived from timed tokens with GPU and CPU at the same time.

Arithmetic only; engine/gpu/token/balance.py times the tokens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.config import Mode
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.lane_rates import LaneRates
from engine.machine.measured_hardware import recall_lanes
from engine.placement.cost_model import Machine, cold_layer_s, gpu_layer_s
from engine.placement.model_bytes import ModelBytes

# At least this share of a measured time is attributed to rows; the rest is overhead that does not depend on bytes.
_LEAST_OF_ROWS = 0.5
_TOO_FAR_APART = 0.25
_USUAL_ROWS = 0.5  # share of the RAM's bandwidth that the CPU reaches with gathered rows


@dataclass(frozen=True)
class LaneTimes:
    """Times of one token on GPU and CPU.

    Seconds: token_s, the whole token; hot_s and reached_s, the GPU with neurons in VRAM and with zero-copy neurons;
    cold_s, the CPU with the rest. reached_bytes, cold_bytes: bytes of rows read. reached_layers, cold_layers: layers
    with such rows. quiet: whether other programs left the CPU almost idle. computed: neurons computed in all layers.
    """

    token_s: float
    hot_s: float
    reached_s: float
    cold_s: float
    reached_bytes: float
    cold_bytes: float
    reached_layers: int
    cold_layers: int
    quiet: bool = True
    computed: float = 0.0

    def __str__(self) -> str:
        over_bus, beside = (1e-9 * n / max(s, 1e-12) for n, s in (
            (self.reached_bytes, self.reached_s), (self.cold_bytes, self.cold_s)))  # fmt: skip
        return (
            f"{1e3 * self.token_s:.2f} ms; the GPU {1e3 * self.hot_s:.2f} with its own neurons and "
            f"{1e3 * self.reached_s:.2f} over the bus ({over_bus:.1f} GB/s), the CPU {1e3 * self.cold_s:.2f} "
            f"({beside:.1f} GB/s)" + ("" if self.quiet else "; others used the CPU as well")
        )

    @property
    def apart(self) -> float:
        """Difference between both sides' neuron times, as a share of the longer one."""
        gpu_s = self.hot_s + self.reached_s
        return abs(gpu_s - self.cold_s) / max(gpu_s, self.cold_s, 1e-12)

    @property
    def are_far_apart(self) -> bool:
        """Whether one side waits long for the other."""
        return self.apart > _TOO_FAR_APART


def rates_of(times: LaneTimes, machine: Machine) -> LaneRates | None:
    """Return the rates that explain the times; None if neither side read rows.

    If the GPU read during all of the CPU's time, `beside` is the CPU's measured rate. If it read for a shorter time, it
    is assumed to have left the CPU as much of its own rate as possible. A side that read nothing gets an optimistic
    rate.
    """
    cold_s = _of_rows(times.cold_s, times.cold_layers * cold_layer_s())
    reached_s = _of_rows(times.reached_s, times.reached_layers * gpu_layer_s(False, True))
    reach = times.reached_bytes / reached_s if times.reached_bytes > 0 and reached_s > 0 else None
    if times.cold_bytes <= 0 or cold_s <= 0:
        return None if reach is None else machine.hopeful_lanes(_USUAL_ROWS * machine.cpu.bytes_per_s, reach)
    had = times.cold_bytes / cold_s
    if reach is None:
        return machine.hopeful_lanes(had)
    left = machine.hopeful_lanes(had, reach).beside / had
    alone = times.cold_bytes / (cold_s - (1 - left) * min(reached_s, cold_s))
    return LaneRates(reach, left * alone, alone)


def kind_of(model: ModelBytes, mode: Mode) -> str:
    """Return the key of the rows that a mode reads of a model: the kind of most layers."""
    layers = zip(model.first_codecs, model.down_codecs, model.first.tolist(), strict=True)
    (first, down, n_bytes), _ = Counter(layers).most_common(1)[0]
    return f"{mode}.{first}.{down}.{n_bytes}"


def known_lanes(
    profile: HardwareProfile, gpu: GpuInfo | None, threads: int, model: ModelBytes, modes: list[Mode]
) -> dict[Mode, LaneRates]:
    """Return the remembered rates of the rows that these modes read of a model."""
    found: dict[Mode, LaneRates] = {}
    if gpu is None or model.down_is_row_wise:
        return found
    for mode in modes:
        _, rates = recall_lanes(profile, gpu, threads, kind_of(model, mode))
        if rates is not None:
            found[mode] = rates
    return found


def _of_rows(seconds: float, fixed_s: float) -> float:
    return max(seconds - fixed_s, _LEAST_OF_ROWS * seconds)
