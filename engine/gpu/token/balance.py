"""Balance GPU and CPU after a load: time some tokens, and place the model again by the measured rates if that pays.

engine/placement/concurrent_reads.py and rebalancing.py evaluate the times; engine/gpu/placed_model.py places the model.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import MODES, Mode
from engine.errors import Cancelled, DeviceFailedError
from engine.executor.hot_blocks import HotBlocks
from engine.gpu.token.cpu_calls import COLD, LISTING
from engine.gpu.token.decode_program import GpuDecodeProgram, TimedToken
from engine.gpu.token.token_steps import ZERO_COPY
from engine.gpu.weights.cache import GpuCache
from engine.gpu.weights.layers import GpuModel
from engine.job import CancelCheck
from engine.machine.measured_hardware import recall_read_rates, remember_expected, remember_read_rates
from engine.machine.read_rates import ReadRates
from engine.model.weights import ModelWeights
from engine.placement.concurrent_reads import ReadTimes, kind_of
from engine.placement.machine_figures import Others, serves_this_load_alone
from engine.placement.rebalancing import can_use_zero_copy, expected_to_fired, gain_of, with_expected
from engine.placement.setting import Setting
from engine.placement.solving import Solved
from engine.sparsity.placement import Placement
from native_kernels.cuda.runtime.driver import CudaError

log = logging.getLogger(__name__)

# Tokens decoded twice: first to read their rows from disk, then to time all but the first. One token less if the first
# pass takes long, two less if it takes very long, none if a disk is the cause.
TOKENS = 4
_LONG_S, _VERY_LONG_S = 0.15, 1.0
_FEW_PAGES = 8  # pages read from disk that do not disturb the times
_LEAST_GAIN = 0.04  # least share of a token's time that another placement must save
_ROUNDS = 2  # of placing again
# Token time relative to the best one that still counts as equal. More is allowed if the sides have come closer, because
# RAM bandwidth may vary by a fifth within a second, for both sides.
_AS_SHORT, _AS_SHORT_IF_CLOSER = 1.02, 1.2
_CLOSER = 0.05
_AS_EXPECTED = 0.1  # variation between tokens in how many neurons predictors select


@dataclass(frozen=True)
class Tried:
    """A placement that was loaded: the rates used to solve it (None: estimated), and the times of its tokens."""

    rates: ReadRates | None
    times: ReadTimes


def balanced(
    first: Tried,
    gain: Callable[[ReadTimes], tuple[ReadRates | None, float]],
    place: Callable[[ReadRates | None], Tried | None],
    is_known: bool,
) -> tuple[Tried, bool]:
    """Return the placement to keep, which is loaded, and whether to remember its rates.

    gain: the rates that explain the times, and the share of a token's time that another placement would save. place:
    places the model again by rates and times it; None if timing failed. is_known: whether such rows were timed on this
    machine before. Then the model is placed again only if one side waits long for the other. If the GPU reads nothing
    by zero-copy, its rate is optimistic, so it is tried only while rows are not known.
    """
    best = now = first
    is_found = not is_known and first.times.zero_copy_bytes > 0
    if is_known and not first.times.zero_copy_bytes:
        return first, False
    for number in range(_ROUNDS):
        if (is_known or number) and not now.times.are_far_apart:
            break
        rates, saved = gain(now.times)
        if rates is None or saved <= _LEAST_GAIN:
            break
        log.info(
            "Placed anew: the GPU read %.1f GB/s over the bus and the CPU %.1f; a token would take %.0f%% less",
            rates.zero_copy / 1e9, rates.beside / 1e9, 100 * saved,
        )  # fmt: skip
        found = place(rates)
        if found is None:  # keep it, but do not remember rates that no timing confirmed
            return Tried(rates, now.times), False
        is_found = True
        now = found  # even if slower, because its times correct the optimistic rates
        if _is_as_good(now.times, best.times):
            best = now
    if now is not best:
        log.info("That was no faster: placed as before")
        place(best.rates)
    return best, is_found


def _is_as_good(times: ReadTimes, others: ReadTimes) -> bool:
    is_closer = others.zero_copy_bytes > 0 and times.apart < others.apart - _CLOSER
    return times.token_s <= (_AS_SHORT_IF_CLOSER if is_closer else _AS_SHORT) * others.token_s


Timed = tuple[Solved, ReadTimes | None]  # a placement, and the times of its tokens if they could be measured


def settle(
    first: Timed, place: Callable[[dict[Mode, ReadRates] | None], Timed], is_this_machine: bool
) -> None:  # fmt: skip
    """Place a just loaded model anew if that pays (`balanced`), and remember its rates.

    place: places and loads the model by these rates. is_this_machine: whether rates may be read from and saved to disk.
    They are not saved if other programs kept the CPU busy.

    Raises: errors of `place`.
    """
    now, times = first
    setting, mode = now.setting, next(mode for mode in MODES if mode == now.placement.mode)
    if times is None or setting.gpu is None:
        return
    others = {one: rates for one, rates in setting.read_rates.items() if one != mode}
    ratio = _learned_expected(setting, mode, times)

    def gain(times: ReadTimes) -> tuple[ReadRates | None, float]:
        return gain_of(now.setting if ratio is None else with_expected(now.setting, ratio), now.placement, times)

    def place_by(rates: ReadRates | None) -> Tried | None:
        nonlocal now
        now, found = place(others if rates is None else {**others, mode: rates})
        return None if found is None else Tried(rates, found)

    rows = setting.profile, setting.gpu, setting.threads, kind_of(setting.model, mode)
    is_known = is_this_machine and recall_read_rates(*rows)[0]
    best, is_found = balanced(Tried(setting.read_rates.get(mode), times), gain, place_by, is_known)
    if best.rates is None and serves_this_load_alone():  # the next load estimates with other figures
        return
    if is_found and is_this_machine and best.times.quiet:
        remember_read_rates(*rows, best.rates)


def _learned_expected(setting: Setting, mode: Mode, times: ReadTimes) -> float | None:
    """Return the neurons that the model's predictors select per active neuron, and remember it; None if not needed.

    A remembered ratio is kept while it is about right, because a new one would cause another placement.
    """
    found = expected_to_fired(setting, mode, times.computed)
    if found is None or setting.predictors is None:
        return None
    known = setting.predictors.expected_to_fired
    if known is not None and abs(found - known) <= _AS_EXPECTED * known:
        return known
    found = round(found, 2)
    remember_expected(setting.opened.fingerprint, found)
    return found


def can_balance(setting: Setting, placement: Placement, model: GpuModel) -> bool:
    """Return whether either side could take neurons from the other."""
    has_zero_copy = any(layer is not None and layer.zero_copy is not None for layer in model.layers)
    could_not_pin = bool(placement.zero_copy) and not has_zero_copy
    return not could_not_pin and can_use_zero_copy(setting, placement)


def timed(
    program: GpuDecodeProgram,
    cache: GpuCache,
    sample: Sequence[int],
    weights: ModelWeights,
    model: GpuModel,
    blocks: HotBlocks | None,
    cancelled: CancelCheck,
) -> ReadTimes | None:
    """Return the times of tokens of a model that was just loaded, without counting them.

    Returns None if the GPU gives no times, the text is too short, or the files are still being read. cache: an empty
    one, for this call alone. Cost: up to twice TOKENS tokens.
    Raises: Cancelled, CudaError, DeviceFailedError.
    """
    try:
        found = _decoded(program, cache, sample, cancelled)
        if found is None:
            if blocks is not None:
                blocks.collect(None)
            return None
        tokens, quiet = found
        zero_copy = _zero_copy_shares(model, blocks)
    except DeviceFailedError as error:
        if isinstance(error.__cause__, CudaError):
            raise error.__cause__ from error
        raise
    finally:
        with contextlib.suppress(CudaError):
            program.release_marks()
    cold = np.array([layer is not None and layer.has_cold and layer.whole is None for layer in model.layers])
    bytes_of = [_bytes(program, weights, model, one, zero_copy, cold) for one in tokens]
    times = ReadTimes(
        token_s=_middle([one.seconds for one in tokens]),
        hot_s=_middle([one.gpu_s.get("ffn", 0.0) for one in tokens]),
        zero_copy_s=_middle([one.gpu_s.get(ZERO_COPY, 0.0) for one in tokens]),
        cold_s=_middle([sum(one.cpu_s.get(stage, 0.0) for stage in (COLD, LISTING)) for one in tokens]),
        zero_copy_bytes=_middle([zero_copy_bytes for zero_copy_bytes, _ in bytes_of]),
        cold_bytes=_middle([cold_bytes for _, cold_bytes in bytes_of]),
        zero_copy_layers=int(np.count_nonzero(zero_copy)),
        cold_layers=int(np.count_nonzero(cold)),
        quiet=quiet,
        computed=_middle([float(one.by_gpu[:, 0].sum() + one.by_cpu[:, 0].sum()) for one in tokens]),
    )
    log.info("Tokens took: %s", times)
    return times


def _decoded(
    program: GpuDecodeProgram, cache: GpuCache, sample: Sequence[int], cancelled: CancelCheck
) -> tuple[list[TimedToken], bool] | None:
    """Return the timed tokens, and whether other programs left the CPU almost idle."""
    started, read_before, taken = time.perf_counter(), _pages_read(), 0

    def step(token: int) -> TimedToken | None:
        if cancelled():
            raise Cancelled
        return program.timed_step(token, cache, cancelled)

    for token in sample[: min(TOKENS, cache.capacity)]:
        if step(token) is None:
            return None
        taken += 1
        took = time.perf_counter() - started
        if took > _VERY_LONG_S and _pages_read() > read_before + _FEW_PAGES:
            log.info("Not balanced: the model's files are still being read")
            return None
        if (taken >= TOKENS - 1 and took > _LONG_S) or (taken >= TOKENS - 2 and took > _VERY_LONG_S):
            break
    if taken < TOKENS - 2:
        return None
    cache.truncate(0)
    read_before, others = _pages_read(), Others()
    found = [one for one in map(step, sample[:taken]) if one is not None]
    if _pages_read() > read_before + _FEW_PAGES:
        log.info("Not balanced: the model's files were being read meanwhile")
        return None
    return found[1:], others.are_quiet


def _zero_copy_shares(model: GpuModel, blocks: HotBlocks | None) -> NDArray[np.float64]:
    """Return [L]: the share of zero-copy neurons among the GPU's active neurons. Clears the firings of hot neurons."""
    shares = np.zeros(len(model.layers))
    for i, layer in enumerate(model.layers):
        if layer is None or blocks is None or not layer.blocks:
            continue
        fired = blocks.hot.take_fired(i)
        if layer.zero_copy is not None:
            n_hot, total = (0 if layer.block is None else layer.block.n_slots), int(fired.sum())
            shares[i] = fired[n_hot:].sum() / total if total else layer.zero_copy.n_slots / len(fired)
    return shares


def _bytes(
    program: GpuDecodeProgram,
    weights: ModelWeights,
    model: GpuModel,
    token: TimedToken,
    zero_copy: NDArray[np.float64],
    cold: NDArray[np.bool_],
) -> tuple[float, float]:
    """Return the bytes of rows that the GPU read by zero-copy, and of cold rows that the CPU read."""
    over_bus = in_ram = 0.0
    for i, layer in enumerate(model.layers):
        if layer is None or layer.whole is not None:
            continue
        ffn = weights.layers[i].ffns[0]
        down = 0 if ffn.down_t is None else ffn.down_t.row_bytes
        first, second = (ffn.up.row_bytes, 0) if ffn.gate is None else (ffn.gate.row_bytes, ffn.up.row_bytes)
        if layer.zero_copy is not None:
            selected, gate_active, fired = (zero_copy[i] * token.by_gpu[i]).tolist()
            n_zero_copy = selected if program.predicts(i) else layer.zero_copy.n_slots
            over_bus += n_zero_copy * first + gate_active * second + fired * down
        if cold[i]:
            computed, gate_active, fired = token.by_cpu[i].tolist()
            n_cold = ffn.up.n_rows - sum(block.n_slots for block in layer.blocks)
            in_ram += (computed if program.predicts(i) else n_cold) * first + gate_active * second + fired * down
    return over_bus, in_ram


def _middle(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _pages_read() -> int:
    """Return how many pages this process has waited for from disk; 0 on Windows."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
