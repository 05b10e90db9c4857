"""Whether GPU and CPU take equally long with a loaded model's neurons, by some of its own tokens; where not, the
model is placed anew by the rates that those have shown.

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
from engine.gpu.token.token_steps import REACHED
from engine.gpu.weights.cache import GpuCache
from engine.gpu.weights.layers import GpuModel
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

# Tokens that are decoded twice: first to bring their rows in, then to be timed, all but the one that begins a text. One
# less where that takes long, two less where it takes very long, and none where that comes of a disk.
TOKENS = 4
_LONG_S, _VERY_LONG_S = 0.15, 1.0
_FEW_PAGES = 8  # read from a disk meanwhile, that no token notices
_LEAST_GAIN = 0.04  # of a token's time, for which a model is placed anew
_ROUNDS = 2  # of placing anew
# Of the shortest time that was measured: as short; and as short where the sides have come closer together, for the RAM
# of a machine may give a fifth more or less from one second to the next, and to both.
_AS_SHORT, _AS_SHORT_IF_CLOSER = 1.02, 1.2
_CLOSER = 0.05
_AS_EXPECTED = 0.1  # that predictors may expect more or less in some tokens than in others


@dataclass(frozen=True)
class Tried:
    """A placement that was loaded: the rates that it was solved by (None: as reckoned), and what a token took."""

    rates: ReadRates | None
    times: ReadTimes


def balanced(
    first: Tried,
    gain: Callable[[ReadTimes], tuple[ReadRates | None, float]],
    place: Callable[[ReadRates | None], Tried | None],
    is_known: bool,
) -> tuple[Tried, bool]:
    """The placement that stays, the first one or another, which is loaded then; and whether that is to be remembered.

    gain: the rates by which the times are as they are, and the share of a token that another placement would save.
    place: places the model anew by rates and times it; None where it could not be timed. is_known: whether rows like
    these were timed on this machine before: then they are looked at again only where one side waits long. Where the
    GPU reads nothing over the bus, what it could read is hoped for, not known, and tried out once.
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
        if found is None:  # nothing says that it is worse, nor that it is right
            return Tried(rates, now.times), False
        is_found = True
        now = found  # also where it is slower: it was hoped for more than is true, and now that is known
        if _is_as_good(now.times, best.times):
            best = now
    if now is not best:
        log.info("That was no faster: placed as before")
        place(best.rates)
    return best, is_found


def _is_as_good(times: ReadTimes, others: ReadTimes) -> bool:
    is_closer = others.zero_copy_bytes > 0 and times.apart < others.apart - _CLOSER
    return times.token_s <= (_AS_SHORT_IF_CLOSER if is_closer else _AS_SHORT) * others.token_s


Timed = tuple[Solved, ReadTimes | None]  # what was placed, and what its tokens took, where that could be told


def settle(
    first: Timed, place: Callable[[dict[Mode, ReadRates] | None], Timed], is_this_machine: bool
) -> None:  # fmt: skip
    """Places a model that was just loaded anew where that gains, by `balanced`; what was found is remembered of this
    machine, where it is one and was quiet. place: loads it anew by these rates.

    Raises: what `place` raises.
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
    if best.rates is None and serves_this_load_alone():  # what was reckoned with is another thing at the next load
        return
    if is_found and is_this_machine and best.times.quiet:
        remember_read_rates(*rows, best.rates)


def _learned_expected(setting: Setting, mode: Mode, times: ReadTimes) -> float | None:
    """What the model's predictors expect, by what fires: remembered of the model, and kept as it is remembered while
    that is about right, because another figure is a reason to place it anew. None where nothing asks for it."""
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
    has_zero_copy = any(layer is not None and layer.reached is not None for layer in model.layers)
    could_not_pin = bool(placement.zero_copy) and not has_zero_copy
    return not could_not_pin and can_use_zero_copy(setting, placement)


def timed(
    program: GpuDecodeProgram,
    cache: GpuCache,
    sample: Sequence[int],
    weights: ModelWeights,
    model: GpuModel,
    blocks: HotBlocks | None,
    cancelled: Callable[[], bool],
) -> ReadTimes | None:
    """What a token takes of a part that was just loaded; nothing of it is counted or kept. None where it cannot be
    told: the GPU gives no times, the text is too short, or its files were being read meanwhile.

    cache: a new one, to be dropped. Cost: twice TOKENS tokens; where they take long, fewer.
    Raises: Cancelled; CudaError, DeviceFailedError.
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
            program.forget_marks()
    cold = np.array([layer is not None and layer.has_cold and layer.whole is None for layer in model.layers])
    bytes_of = [_bytes(program, weights, model, one, zero_copy, cold) for one in tokens]
    times = ReadTimes(
        token_s=_middle([one.seconds for one in tokens]),
        hot_s=_middle([one.gpu_s.get("ffn", 0.0) for one in tokens]),
        zero_copy_s=_middle([one.gpu_s.get(REACHED, 0.0) for one in tokens]),
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
    program: GpuDecodeProgram, cache: GpuCache, sample: Sequence[int], cancelled: Callable[[], bool]
) -> tuple[list[TimedToken], bool] | None:
    """The tokens that count, and whether hardly anybody else kept the CPU busy."""
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
    """[L]: of the neurons that the GPU computed, the share that it read over the bus, by what has fired."""
    shares = np.zeros(len(model.layers))
    for i, layer in enumerate(model.layers):
        if layer is None or blocks is None or not layer.blocks:
            continue
        fired = blocks.hot.take_fired(i)  # which also forgets it
        if layer.reached is not None:
            n_hot, total = (0 if layer.block is None else layer.block.n_slots), int(fired.sum())
            shares[i] = fired[n_hot:].sum() / total if total else layer.reached.n_slots / len(fired)
    return shares


def _bytes(
    program: GpuDecodeProgram,
    weights: ModelWeights,
    model: GpuModel,
    token: TimedToken,
    zero_copy: NDArray[np.float64],
    cold: NDArray[np.bool_],
) -> tuple[float, float]:
    """Of rows that the GPU read over the bus, and of those that the CPU read beside it."""
    over_bus = in_ram = 0.0
    for i, layer in enumerate(model.layers):
        if layer is None or layer.whole is not None:
            continue
        ffn = weights.layers[i].ffns[0]
        down = 0 if ffn.down_t is None else ffn.down_t.row_bytes
        first, second = (ffn.up.row_bytes, 0) if ffn.gate is None else (ffn.gate.row_bytes, ffn.up.row_bytes)
        if layer.reached is not None:
            _, opened, fired = (zero_copy[i] * token.by_gpu[i]).tolist()
            asked = float(zero_copy[i] * token.by_gpu[i, 0]) if program.predicts(i) else layer.reached.n_slots
            over_bus += asked * first + opened * second + fired * down
        if cold[i]:
            computed, opened, fired = token.by_cpu[i].tolist()
            n_cold = ffn.up.n_rows - sum(block.n_slots for block in layer.blocks)
            in_ram += (computed if program.predicts(i) else n_cold) * first + opened * second + fired * down
    return over_bus, in_ram


def _middle(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _pages_read() -> int:
    """How many pages this process has waited for a disk for; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
