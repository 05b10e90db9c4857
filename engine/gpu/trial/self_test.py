"""Try whether and how a GPU can be used on this machine, once per driver, GPU and build.

The trial checks the kernels against NumPy, checks every value of some exchanges with the CPU, and measures the time of
an exchange and the speed of the bus. `decide` draws the conclusions. Successful results are stored in the user's cache;
failed trials are repeated at the next start. engine/machine/gpu_speed.py measures the GPU's speed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from engine.gpu.trial.kernel_checks import failures_of
from engine.gpu.trial.trial import GpuTrial, SlowGpuError
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.handover import LATE, await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s
from native_kernels.cuda.gpu import Gpu, GpuCopy
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError
from native_kernels.cuda.runtime.modules import NoMachineCodeError, cache_folder

log = logging.getLogger(__name__)

Execution = Literal["segments", "eager"]

N_EXCHANGES = 200
_WARMING = 10  # exchanges before the counted ones
_WIDTH = 4096  # values sent each way
_WORDS = 344  # u32, the bits of 11008 neurons
_PATIENCE_S = 1.0  # for one exchange, which takes some 15 us
_BUS_BYTES = 16 << 20
_BUS_ROUNDS = 4
_SHARED_S = 1e-3  # an exchange this slow waited for another program's work
_FILE = "card-tests.json"
_KEPT = 8  # results, for machines with changing GPUs or drivers


@dataclass(frozen=True)
class Findings:
    """Results of a GPU's trial; figures are 0 if it failed.

    failures: in words. captures: whether work can be captured and launched again. exchange_s, slow_exchange_s: time
    from a launch to its flag, median and 99th percentile. host_bytes_per_s: from pinned memory to the GPU.
    """

    failures: tuple[str, ...] = ()
    captures: bool = False
    exchange_s: float = 0.0
    slow_exchange_s: float = 0.0
    host_bytes_per_s: float = 0.0


@dataclass(frozen=True)
class GpuUse:
    """How to use a GPU.

    execution: "segments" are captured work between parts of the CPU; "eager" launches operators one by one.
    most_threads: of the CPU, while the GPU works. reasons: one sentence per decision.
    """

    usable: bool
    execution: Execution
    most_threads: int
    reasons: tuple[str, ...]


def decide(findings: Findings, processors: int) -> GpuUse:
    """Decide how to use the GPU. processors: usable logical CPUs."""
    most = max(1, processors - 1)
    if findings.failures:
        why = "; ".join(findings.failures)
        return GpuUse(False, "eager", most, (f"The GPU failed its test, so the CPU computes: {why}.",))
    reasons = [f"The GPU computed what the CPU computes, in {N_EXCHANGES} exchanges too."]
    if findings.captures:
        reasons.append(
            f"Work is captured up to each exchange, which takes {1e6 * findings.exchange_s:.0f} us "
            f"(99 of 100: below {1e6 * findings.slow_exchange_s:.0f} us)."
        )
    else:
        reasons.append("Operators are launched one by one, because the driver captures no work.")
    if findings.slow_exchange_s > _SHARED_S:
        reasons.append("Some exchanges waited: the GPU also works for a screen or another program.")
    reasons.append(
        f"At most {most} of {processors} logical CPUs wait for the GPU at once, so that one is left for its driver."
    )
    return GpuUse(True, "segments" if findings.captures else "eager", most, tuple(reasons))


def tried(gpu: Gpu, uuid: str, driver: str, folder: Path | None = None) -> Findings:
    """Return the stored findings, or run the trial now and store them if it succeeds.

    uuid, driver: identify the GPU and its driver's version. folder: of stored results; None: the user's cache. The
    calling thread must have entered the GPU.
    Cost: none if stored; else 0.2 to 0.5 s, and some seconds more if kernels must be compiled.
    """
    folder = folder or cache_folder()
    key = hashlib.sha256(repr((uuid, driver, sources_digest())).encode()).hexdigest()[:32]
    known = None if folder is None else _read(folder).get(key)
    if isinstance(known, dict):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return _from_json(known)
    findings = find(gpu)
    if folder is not None and not findings.failures:
        _keep(folder, key, findings)
    return findings


def find(gpu: Gpu, failures: Callable[[Gpu], tuple[str, ...]] = failures_of) -> Findings:
    """Run the trial. Errors of the GPU become failures and are not raised.

    Cost: 0.2 to 0.5 s with compiled kernels; 5 s for a GPU that does not respond.
    """
    try:
        wrong = failures(gpu)
        if wrong:
            return Findings(wrong)
        with GpuTrial(gpu) as trial:
            rate = _host_rate(trial)
            return _exchanges(trial, rate)
    except (CudaError, CudaUnavailableError, NoMachineCodeError, SlowGpuError) as error:
        log.info("the GPU failed its test", exc_info=True)
        return Findings((str(error),))


def sources_digest() -> str:
    """Return a digest of the kernels and their launching code."""
    import native_kernels.cuda as package

    digest = hashlib.sha256()
    folder = Path(package.__path__[0])
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cu", ".cuh", ".py"):
            digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


# --- exchanges and the bus


def _exchanges(trial: GpuTrial, host_rate: float) -> Findings:
    """Exchange values and bits with the CPU, launched and awaited as in decode, and check all of them.

    The GPU adds integers from the CPU, so that every sum is exact.
    """
    gpu, n_bytes = trial.gpu, 4 * _WIDTH
    shared = trial.pinned(2 * n_bytes + 4 * _WORDS + 128)
    out = shared.as_array(np.float32, _WIDTH)
    back = shared.as_array(np.float32, _WIDTH, n_bytes)
    bits_out = shared.as_array(np.uint32, _WORDS, 2 * n_bytes)
    at = -(-(2 * n_bytes + 4 * _WORDS) // 64) * 64
    shared.as_array(np.int64, 1, at)[:] = 0
    stream, epoch = trial.put(np.zeros(_WIDTH, np.float32)), trial.put(np.zeros(1, np.int64))
    bits, hot = (trial.random.integers(0, 1 << 32, _WORDS, dtype=np.uint32) for _ in range(2))
    bits_at, hot_at, address = trial.put(bits), trial.put(hot), shared.device_address

    def layer() -> None:
        gpu.advance(stream, _WIDTH, others=[address + n_bytes])
        values, bits = GpuCopy(stream, address, _WIDTH), GpuCopy(bits_at, address + 2 * n_bytes, _WORDS)
        gpu.publish(address + at, epoch, values, bits, hot_at)

    seen, stop, status = (aligned_empty(1, np.int64) for _ in range(3))
    wait = await_call(shared.address + at, seen, int(_PATIENCE_S * ticks_per_s()), stop, status)
    trial.settle()
    try:
        work = trial.closes(gpu.captured(layer))
    except CudaError:
        log.info("work cannot be captured", exc_info=True)
        work = None
    calls = [wait] if work is None else [launch_call(gpu.launch_function, work.handle, gpu.stream_handle, status), wait]
    pool = trial.closes(Pool(1))
    program, took, wanted = Program(calls), [], np.zeros(_WIDTH, np.float32)
    for number in range(_WARMING + N_EXCHANGES):
        back[:] = (np.arange(_WIDTH) * (number + 1)) % 251
        bits_out[:] = 0
        wanted += back
        started = time.perf_counter()
        if work is None:
            layer()
        pool.run(program)
        took.append(time.perf_counter() - started)
        if status[0]:
            trial.settle()  # raises the GPU's own error, if any
            late = int(status[0]) == LATE
            return Findings((f"an exchange {'came too late' if late else f'failed with status {int(status[0])}'}",))
        if not (np.array_equal(out, wanted) and np.array_equal(bits_out, bits & ~hot)):
            return Findings((f"exchange {number + 1} brought wrong numbers",))
    counted = sorted(took[_WARMING:])
    return Findings(
        (), work is not None, counted[len(counted) // 2], counted[math.ceil(0.99 * len(counted)) - 1], host_rate
    )


def _host_rate(trial: GpuTrial) -> float:
    """Return bytes per second from pinned memory, the best of some uploads."""
    source, to = trial.pinned(_BUS_BYTES), trial.room(_BUS_BYTES)
    source.as_array(np.uint8, _BUS_BYTES)[:] = 1
    best = math.inf
    for _ in range(_BUS_ROUNDS):
        trial.settle()
        started = time.perf_counter()
        trial.gpu.upload(to, source.address, _BUS_BYTES)
        trial.settle()
        best = min(best, time.perf_counter() - started)
    return _BUS_BYTES / best


# --- stored results


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / _FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(folder: Path, key: str, findings: Findings) -> None:
    """Store the newest results. If that fails, the next start repeats the trial."""
    others = {name: value for name, value in _read(folder).items() if name != key}
    newest = dict([*others.items(), (key, asdict(findings))][-_KEPT:])
    fresh = folder / f"{_FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(newest, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, folder / _FILE)
    except OSError as error:
        log.info("the GPU's test cannot be saved: %s", error)
        with contextlib.suppress(OSError):
            fresh.unlink()


def _from_json(known: dict[str, Any]) -> Findings:
    """Return stored findings. Raises: KeyError, TypeError, ValueError if `_keep` did not write them."""
    figures = {one.name: float(known[one.name]) for one in fields(Findings) if one.name.endswith("_s")}
    if known.get("failures") or not all(math.isfinite(value) and value > 0 for value in figures.values()):
        raise ValueError("only a passed test is saved")
    return Findings((), bool(known["captures"]), **figures)
