"""What must be known of a machine before a model is placed on it: recalled where it was measured before, else measured.

What measures are engine/hardware.py and engine/card_speed.py.
"""

from __future__ import annotations

from engine.hardware import MOST_SAMPLE_BYTES, HardwareProfile, measure
from engine.measured_hardware import recall, remember
from engine.offline.model_bytes import ModelBytes


def working_set(model: ModelBytes) -> int:
    """How much memory to read to see how fast this model is read: a small one stays in the processor's caches.

    The next power of two from the model's size on, from 16 MiB to MOST_SAMPLE_BYTES.
    """
    return int(min(MOST_SAMPLE_BYTES, max(16 << 20, 1 << (model.total - 1).bit_length())))


def with_figures(profile: HardwareProfile, threads: int, n_bytes: int, cards: bool) -> HardwareProfile:
    """What was measured earlier of this machine, or is now: how fast so much memory is read with so many threads, and
    the figures of its cards where they are asked for."""
    known = recall(profile, threads, n_bytes)
    profile = known if known.cpu.bytes_per_s else measure(known, threads, n_bytes)
    if cards and any(gpu.usable and not gpu.bytes_per_s for gpu in profile.gpus):
        from engine.card_speed import measure_cards

        profile = measure_cards(profile, threads)
    if profile != known:
        remember(profile, threads, n_bytes)
    return profile
