"""Remember figures measured on this machine, and find the named profiles that ship with Hearth.

engine/machine/hardware.py measures. Code that computes on a GPU stores that GPU's figures here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.assets import asset_root
from engine.errors import EngineError, ModelFormatError, ModelNotFoundError
from engine.formats.json_text import read_object
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import MOST_SAMPLE_BYTES, HardwareProfile
from engine.machine.read_rates import ReadRates

log = logging.getLogger(__name__)

_LIBRARY = "library_share"  # share of our kernels' time; stored beside the machines
_EXPECTED = "expected_to_fired"  # of models; stored beside the machines
_DISK = "disk_bytes_per_s"  # of models' files; stored beside the machines
_MODELS = 256  # models remembered
_GPU_FIGURES = ("context_bytes", "bytes_per_s", "pcie_bytes_per_s", "reach_bytes_per_s", "beside_share")


def recall(profile: HardwareProfile, threads: int, n_bytes: int = MOST_SAMPLE_BYTES) -> HardwareProfile:
    """Return the profile with remembered figures for those it lacks.

    threads, n_bytes: of the bandwidth measurement; a small n_bytes stays in the CPU's caches.
    """
    known = _read().get(_machine(profile))
    if not isinstance(known, dict):
        return profile
    speed = known.get(_reading(threads, n_bytes))
    cpu = profile.cpu if profile.cpu.bytes_per_s else replace(profile.cpu, bytes_per_s=_figure(speed))
    gpus = []
    for gpu in profile.gpus:
        figures = {name: _figure(known.get(f"{_gpu(gpu)}.{name}")) for name in _GPU_FIGURES}
        missing: dict[str, Any] = {
            name: value for name, value in figures.items() if value and getattr(gpu, name) is None
        }
        if "context_bytes" in missing:
            missing["context_bytes"] = int(missing["context_bytes"])
        gpus.append(replace(gpu, **missing))
    sync_s = profile.sync_s if profile.sync_s is not None else _figure(known.get("sync_s"))
    return replace(profile, cpu=cpu, gpus=tuple(gpus), sync_s=sync_s)


def remember(profile: HardwareProfile, threads: int, n_bytes: int = MOST_SAMPLE_BYTES) -> None:
    """Store every figure of the profile. If the file cannot be written, they are measured again later."""
    known: dict[str, Any] = {}
    if profile.cpu.bytes_per_s:
        known[_reading(threads, n_bytes)] = profile.cpu.bytes_per_s
    for gpu in profile.gpus:
        for name in _GPU_FIGURES:
            if (value := getattr(gpu, name)) is not None:
                known[f"{_gpu(gpu)}.{name}"] = value
    if profile.sync_s is not None:
        known["sync_s"] = profile.sync_s
    _keep(profile, known)


def remember_context(profile: HardwareProfile, gpu: GpuInfo) -> None:
    """Store only the bytes of a context on the GPU."""
    _keep(profile, {f"{_gpu(gpu)}.context_bytes": gpu.context_bytes})


def recall_read_rates(profile: HardwareProfile, gpu: GpuInfo, threads: int, kind: str) -> tuple[bool, ReadRates | None]:
    """Return whether rows of this kind were timed with this GPU and threads, and their rates.

    Rates None: the estimated ones were found correct.
    """
    known = _read().get(_machine(profile))
    found = known.get(_read_rates(gpu, threads, kind)) if isinstance(known, dict) else None
    if not isinstance(found, list):
        return False, None
    if not found:
        return True, None
    rates = [rate for rate in map(_figure, found) if rate is not None]
    return (True, ReadRates(*rates)) if len(rates) == len(found) == 3 else (False, None)


def remember_read_rates(
    profile: HardwareProfile, gpu: GpuInfo, threads: int, kind: str, rates: ReadRates | None
) -> None:  # fmt: skip
    """Store the answer of `recall_read_rates`. Ignores a file that cannot be written."""
    values = [] if rates is None else [rates.zero_copy, rates.beside, rates.alone]
    _keep(profile, {_read_rates(gpu, threads, kind): values})


def recall_expected(model: str) -> float | None:
    """Return the neurons that a model's predictors select per active neuron. model: its fingerprint."""
    known = _read().get(_EXPECTED)
    return _figure(known.get(model)) if isinstance(known, dict) else None


def remember_expected(model: str, expected_to_fired: float) -> None:
    """Store the answer of `recall_expected` for the most recent models."""
    known = _read().get(_EXPECTED)
    others = [(name, value) for name, value in known.items() if name != model] if isinstance(known, dict) else []
    _write({**_read(), _EXPECTED: dict([*others[1 - _MODELS :], (model, expected_to_fired)])})


def recall_disk() -> float | None:
    """Return the bytes/s at which experts are read from this machine's disk by page faults; None if not measured."""
    return _figure(_read().get(_DISK))


def remember_disk(bytes_per_s: float) -> None:
    """Store the answer of `recall_disk`."""
    _write({**_read(), _DISK: bytes_per_s})


def recall_library(gpu: GpuInfo) -> dict[str, float]:
    """Return each product library's time on the GPU as a share of our kernels' time, for the current driver."""
    known = _read().get(_LIBRARY)
    found = known.get(_driven(gpu)) if isinstance(known, dict) else None
    shares = {name: _figure(value) for name, value in found.items()} if isinstance(found, dict) else {}
    return {name: share for name, share in shares.items() if share is not None}


def remember_library(gpu: GpuInfo, shares: dict[str, float]) -> None:
    """Store the answer of `recall_library`."""
    known = _read().get(_LIBRARY)
    _write({**_read(), _LIBRARY: {**(known if isinstance(known, dict) else {}), _driven(gpu): shares}})


def _keep(profile: HardwareProfile, found: dict[str, Any]) -> None:
    machines = _read()
    before = machines.get(_machine(profile))
    machines[_machine(profile)] = {**(before if isinstance(before, dict) else {}), **found}
    _write(machines)


def _write(machines: dict[str, Any]) -> None:
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(json.dumps(machines, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        log.info("What was measured cannot be kept in %s: %s", path, error)


def named_profile(name: str) -> Path | None:
    """Return the file of a profile that ships with Hearth, such as "pc-high"; None if unknown."""
    known = profile_names()
    plain = name.lower().removesuffix(".json")
    return asset_root() / "hardware" / f"{plain}.json" if plain in known else None


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that ship with Hearth."""
    return tuple(sorted(file.stem for file in (asset_root() / "hardware").glob("*.json")))


def load_profile(name_or_path: str) -> HardwareProfile:
    """Return a saved profile by path, or one that ships with Hearth by name.

    Raises: as `HardwareProfile.load`.
    """
    path = Path(os.path.expanduser(name_or_path))
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            return HardwareProfile.load(path)
    shipped = named_profile(name_or_path)
    if shipped is not None:
        return HardwareProfile.load(shipped)
    raise ModelNotFoundError(
        f"There is no hardware profile {name_or_path!r}.",
        f"Give the path of a file that `probe --json` wrote, or one of {', '.join(profile_names())}.",
    )


def _machine(profile: HardwareProfile) -> str:
    """Return a key of the machine for everything that affects its memory bandwidth."""
    cpu = profile.cpu
    facts = [cpu.name, cpu.cores, cpu.threads, list(cpu.isa), profile.ram.total_bytes]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _reading(threads: int, n_bytes: int) -> str:
    return f"cpu_bytes_per_s.{threads}.{n_bytes >> 20}"


def _read_rates(gpu: GpuInfo, threads: int, kind: str) -> str:
    return f"{_gpu(gpu)}.read_rates.{threads}.{kind}"


def _driven(gpu: GpuInfo) -> str:
    return f"{_gpu(gpu)}.{gpu.driver}"


def _gpu(gpu: GpuInfo) -> str:
    return f"gpu.{gpu.uuid or gpu.name}"


def _file() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("Hearth", appauthor=False), "measured-hardware.json")


def _read() -> dict[str, Any]:
    """Return the stored figures; {} if the file is missing, damaged or unreadable."""
    try:
        return read_object(_file(), max_bytes=1 << 20, max_values=1 << 14)
    except ModelNotFoundError:
        return {}
    except (ModelFormatError, EngineError) as error:
        log.info("What was measured earlier cannot be read: %s", error)
        return {}


def _figure(value: Any) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
    return float(value) if sound else None
