"""Decide whether a load copies a model's row-wise down by neuron, so that inactive neurons are skipped in it, too.

Estimates, the solver and the load ask the same question here. engine/model/mapped_weights.py copies.
"""

from __future__ import annotations

from dataclasses import replace

from engine.config import Mode
from engine.errors import EngineError
from engine.loading.modes import predictor_ram
from engine.loading.opening import choose_context
from engine.machine.hardware import choose_gpu, choose_threads, probe
from engine.model.model_artefacts import read_stats
from engine.model.model_files import OpenedModel
from engine.placement import memory_plan
from engine.placement.activity import activity_of
from engine.placement.cost_model import cpu_efficiency_rates
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Case, MemoryLimits

# Copying may take this long. A thread copies 0.37 billion numbers/s in a load (products/transposed.py of the kernels).
LONGEST_S = 20.0
NUMBERS_PER_S = 0.35e9
# Rounding to 8 bits must save this much time of reading down, and this many bytes per token: other kernels are compiled
# for such a copy, and small models are limited by arithmetic.
LARGEST_TIME_SHARE = 0.9
LEAST_SAVED_BYTES = 32 << 20


def as_loaded(case: Case, context: int, limits: MemoryLimits, share: float, threads: int) -> ModelBytes:
    """Return the case's model as a load in RAM keeps it: with down as stored, or copied by neuron.

    It is copied if the activation makes zeros, reading fewer rows is faster, the free RAM holds the whole model and the
    copy, and copying takes at most LONGEST_S. If the GPU could hold the whole model only with down as stored, down
    stays. share: of the neurons that fire, per token.
    """
    stored, copied = case.model, case.model.with_down_copied
    if copied is None or not stored.config.has_zeros or not _is_faster(stored, copied, share):
        return stored
    numbers = stored.config.d_model * sum(stored.config.ffn_width(i) for i in range(stored.n_layers) if stored.down[i])
    if numbers > LONGEST_S * NUMBERS_PER_S * threads:
        return stored
    larger = replace(case, model=copied)
    beside = memory_plan.PROCESS_BYTES + copied.drafts_in_ram(context, case.kv_codec)
    if larger.in_ram(context) + beside > limits.sure_ram_bytes:
        return stored
    if case.fits_gpu(context, limits) and not larger.fits_gpu(context, limits):
        return stored
    return copied


def will_copy(opened: OpenedModel) -> bool:
    """Return whether a load on this machine would copy down now. Cost: reads headers, statistics and free memory."""
    model = ModelBytes.of(opened)
    if model.with_down_copied is None:
        return False
    profile = probe()
    gpu, _ = choose_gpu(profile)
    budgets = memory_plan.budgets_of(profile, gpu, None)
    free = min(profile.ram.free_bytes, budgets.vram_bytes or profile.ram.free_bytes)
    context, limits = choose_context(opened, None, free, "f16"), MemoryLimits(profile, gpu, budgets)
    case = Case(model, "f16", must_bytes=sum(predictor_ram(opened, "auto")))
    threads, _ = choose_threads(profile, None)
    return as_loaded(case, context, limits, fired_share(opened, "auto"), threads) is not model


def fired_share(opened: OpenedModel, mode: Mode) -> float:
    """Return the share of neurons that fire, as counted or as usual for the activation; 1 if the mode skips none.

    Statistics that cannot be read, which their users report, count as none.
    """
    if mode == "dense" or not opened.config.has_zeros:
        return 1.0
    try:
        stats = read_stats(opened)
    except EngineError:
        stats = None
    return activity_of(opened.config, "exact", stats).fired_share


def _is_faster(stored: ModelBytes, copied: ModelBytes, share: float) -> bool:
    """Return whether a token reads a share of the copy sooner than all of down."""
    cpu, neurons = cpu_efficiency_rates(), stored.neurons
    before = after = saved = 0.0
    for i in range(stored.n_layers):
        old, new = neurons * float(stored.down[i]), neurons * float(copied.down[i]) * share
        if not old:
            continue
        before += old / cpu.gemv(stored.down_codecs[i])
        after += new / cpu.rows(copied.down_codecs[i], int(copied.down[i]))
        saved += old - new
    rounds = stored.down_codecs != copied.down_codecs
    return after < before * LARGEST_TIME_SHARE and (not rounds or saved >= LEAST_SAVED_BYTES)
