"""The machine as data: CPU, memory and GPUs, read from the system or from a saved profile.

A profile of another machine serves for planning too. Live figures are in engine/machine/monitor.py; figures that need
CUDA are in engine/machine/gpu_speed.py.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import ArtifactMismatchError, EngineError, HostMemoryError, InvalidRequestError
from engine.machine.cpu_and_ram import CpuInfo, RamInfo, memory_limits, read_cpu, read_ram
from engine.machine.graphics import GpuInfo, read_gpus

__all__ = ["CpuInfo", "GpuInfo", "HardwareProfile", "RamInfo", "choose_gpu", "choose_threads", "default_threads",
           "describe", "measure",
           "probe"]  # fmt: skip

SCHEMA_VERSION = 1
MOST_SAMPLE_BYTES = 4 << 30  # bytes read to measure memory bandwidth
SAMPLE_S = 0.5  # how long they are read again and again
_MAX_PROFILE_BYTES = 1 << 20
_NARROW = "\u202f"  # narrow no-break space between number and unit


@dataclass(frozen=True)
class HardwareProfile:
    """One machine at one moment. None for what was not measured."""

    cpu: CpuInfo
    ram: RamInfo
    gpus: tuple[GpuInfo, ...] = ()
    gpu_reasons: tuple[str, ...] = ()  # why no GPU is usable; empty if one is
    sync_s: float | None = None  # one exchange between CPU and GPU

    def to_json(self) -> dict[str, Any]:
        """Return the profile as `probe` prints it and `--hardware` reads it."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: object, origin: str = "the hardware profile") -> HardwareProfile:
        """Read a profile written by to_json or by hand. `origin` names it in messages.

        Raises: ArtifactMismatchError with the missing or wrong key.
        """
        document = _Reader(value, origin, "")
        version = document.whole("schema_version", default=SCHEMA_VERSION)
        if version is None or not 1 <= version <= SCHEMA_VERSION:
            raise ArtifactMismatchError(
                f"{origin} has schema version {version}; this Hearth reads {SCHEMA_VERSION}.",
                "Make it again with this version, or update Hearth.",
            )
        cpu, ram = document.child("cpu"), document.child("ram")
        return cls(
            cpu=CpuInfo(
                name=cpu.text("name"),
                cores=cpu.count("cores"),
                threads=cpu.count("threads"),
                isa=cpu.texts("isa"),
                bytes_per_s=cpu.real("bytes_per_s"),
                performance_cores=cpu.whole("performance_cores", default=None),
            ),
            ram=RamInfo(ram.count("total_bytes"), ram.count("free_bytes", least=0)),
            gpus=tuple(_gpu(gpu) for gpu in document.children("gpus")),
            gpu_reasons=document.texts("gpu_reasons", default=()),
            sync_s=document.real("sync_s"),
        )

    def save(self, path: Path) -> None:
        """Write the profile atomically.

        Raises: EngineError if the file cannot be written.
        """
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
            os.replace(fresh, path)
        except OSError as error:
            raise EngineError(
                f"{path} cannot be written: {error.strerror or error}.", "Choose another place."
            ) from error

    @classmethod
    def load(cls, path: Path) -> HardwareProfile:
        """Read the profile saved at `path`.

        Raises: ArtifactMismatchError, InvalidRequestError if the file cannot be read.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_PROFILE_BYTES + 1)
        except OSError as error:
            raise InvalidRequestError(
                f"{path} cannot be read: {error.strerror or error}.", "Check the path."
            ) from error
        if len(raw) > _MAX_PROFILE_BYTES:
            raise ArtifactMismatchError(f"{path} is larger than any hardware profile ({_MAX_PROFILE_BYTES} bytes).")
        try:
            value = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ArtifactMismatchError(f"{path} is not JSON: {error}.", _MAKE_AGAIN) from error
        return cls.from_json(value, str(path))


# --- reading the machine


def probe(
    nvml: Any = None,
    *,
    psutil: Any = None,
    root: Path = Path("/"),
    cpus: Collection[int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> HardwareProfile:
    """Return this machine, as far as this process may use it.

    A missing or failing driver is recorded in `gpu_reasons`, never raised. The parameters replace the real machine in
    tests: `nvml` and `psutil` the modules, `root` the file system, `cpus` the affinity, `environment` the environment.
    Cost: about 0.1 s, most of it imports; it never waits for a driver that is not loaded.
    """
    if psutil is None:
        import psutil
    gpus, gpu_reasons = read_gpus(nvml, root, environment)
    if nvml is None:
        gpus = tuple(map(with_library, gpus))
    return HardwareProfile(read_cpu(psutil, root, cpus), read_ram(psutil, memory_limits(root)), gpus, gpu_reasons)


def with_library(gpu: GpuInfo) -> GpuInfo:
    """Return the GPU with the bytes of cuBLAS, if a CUDA build of PyTorch has installed it. Cost: 1 ms."""
    from native_kernels.cuda.runtime.cublas import GPU_BYTES, LibraryUnavailableError, find

    if not gpu.usable:
        return gpu
    try:
        find()
    except LibraryUnavailableError:
        return gpu
    return replace(gpu, library_bytes=GPU_BYTES)


def measure(profile: HardwareProfile, threads: int | None = None, n_bytes: int | None = None) -> HardwareProfile:
    """Return the profile with the CPU's read bandwidth from RAM, measured with this many threads.

    threads None: default_threads. n_bytes: bytes to read; None: more than any cache holds, if memory allows. GPU
    figures stay unchanged (engine/machine/gpu_speed.py).
    Cost: under 2 s and `sample_bytes` of memory.
    Raises: HostMemoryError.
    """
    import numpy as np

    threads = default_threads(profile) if threads is None else threads
    if threads < 1:
        raise InvalidRequestError(f"threads is {threads}; at least 1 is needed.")
    n_bytes = sample_bytes(profile) if n_bytes is None else min(n_bytes, sample_bytes(profile))
    try:
        buffer = np.empty(n_bytes // 4, np.int32)
    except MemoryError as error:
        raise HostMemoryError(f"{n_bytes} bytes for measuring the memory's speed are not available.") from error
    # Chunks of a few MB: small enough to balance the threads, large enough to hide Python's overhead.
    pieces = np.array_split(buffer, max(threads, n_bytes >> 23))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda piece: piece.fill(1), pieces))  # an unwritten page is not in RAM
        took, end = [], time.perf_counter() + SAMPLE_S
        for _ in range(8):
            start = time.perf_counter()
            # The maximum of int32 is NumPy's fastest read (2 cores: 38 GB/s, a float32 sum 32).
            list(pool.map(np.max, pieces))
            now = time.perf_counter()
            took.append(now - start)
            if now > end:
                break
    # The median: the rate that a shared machine sustains for the length of an answer.
    return replace(profile, cpu=replace(profile.cpu, bytes_per_s=buffer.nbytes / statistics.median(took)))


def sample_bytes(profile: HardwareProfile) -> int:
    """Return the bytes to read in a bandwidth measurement: MOST_SAMPLE_BYTES, at most an eighth of free RAM.

    Far more than any cache: a Xeon with 300 MB of cache read 256 MiB at 230 GB/s, 1 GiB at 97 to 152, 3 GiB at 110.
    """
    return max(16 << 20, min(MOST_SAMPLE_BYTES, profile.ram.free_bytes // 8))


# --- decisions


def default_threads(profile: HardwareProfile) -> int:
    """Return the usable physical cores less one for the window and the system, at least 1.

    If the CPU has fast and slow cores, only the fast ones count: every layer waits for the slowest thread.
    """
    return max(1, (profile.cpu.performance_cores or profile.cpu.cores) - 1)


def choose_threads(profile: HardwareProfile, wanted: int | None) -> tuple[int, str]:
    """Return the number of threads and the reason, half a sentence: as requested, at most one per CPU.

    Threads wait for each other many times per token; one without its own CPU delays all others.
    """
    usable = profile.cpu.threads
    if wanted is None:
        threads = default_threads(profile)
        return threads, "a thread for each core but one" if threads > 1 else "one thread, so that the window has a core"
    if wanted <= usable:
        return wanted, "as requested"
    return usable, f"{wanted} were asked for, and this process may use {usable} CPU{'s' if usable > 1 else ''}"


def choose_gpu(profile: HardwareProfile) -> tuple[GpuInfo | None, str]:
    """Return the usable GPU with the most free memory, and the reason in one line.

    A discrete GPU precedes integrated graphics, which claims part of the RAM and has no CUDA.
    """
    usable = [gpu for gpu in profile.gpus if gpu.usable]
    others = [f"{gpu.name} is not usable: {'; '.join(gpu.reasons)}" for gpu in profile.gpus if not gpu.usable]
    if not usable:
        return None, f"CPU only: {'; '.join(profile.gpu_reasons) or 'the machine has no GPU'}."
    best = max(usable, key=lambda gpu: (_is_discrete(gpu), gpu.free_bytes or 0))
    free = f"{(best.free_bytes or 0) / 1e9:.1f}{_NARROW}GB free"
    why = "the only usable GPU" if len(usable) == 1 else f"the most of {len(usable)} usable GPUs"
    if any((gpu.free_bytes or 0) > (best.free_bytes or 0) for gpu in usable):
        why = "a GPU of its own, which counts before graphics that share the RAM"
    return best, f"{best.name}: {free}, {why}. {''.join(f'{other}. ' for other in others)}".rstrip()


def _is_discrete(gpu: GpuInfo) -> bool:
    """Return whether it is a discrete GPU known to CUDA."""
    return gpu.compute_capability is not None


# --- description


@dataclass(frozen=True)
class MachineFacts:
    """The facts that users know about their machine. gpu: the one to be used, empty without one.

    Memory is named as sold: a GPU with 24 GiB is "24 GB", though it holds 25.8e9 bytes.
    """

    gpu: str
    vram_gb: int
    ram_gb: int
    cores: int
    has_unusable_gpu: bool


def facts_of(profile: HardwareProfile) -> MachineFacts:
    """Return the facts that users know about their machine."""
    gpu, _ = choose_gpu(profile)
    vram = _sold_as(gpu.total_bytes or 0) if gpu is not None else 0
    ram, name = _sold_as(profile.ram.total_bytes), gpu.name if gpu is not None else ""
    return MachineFacts(name, vram, ram, profile.cpu.cores, gpu is None and bool(profile.gpus))


def describe(profile: HardwareProfile) -> str:
    """Return the machine in one line for users."""
    facts = facts_of(profile)
    cores = f"{facts.cores} core{'s' if facts.cores != 1 else ''}"
    ram = f"{facts.ram_gb}{_NARROW}GB RAM"
    if facts.gpu:
        return f"{facts.gpu}, {facts.vram_gb}{_NARROW}GB · {ram} · {cores}"
    return f"No {'usable GPU' if facts.has_unusable_gpu else 'GPU found'}: runs on {cores} · {ram}"


_SOLD_GIB = (
    1,
    2,
    3,
    4,
    6,
    8,
    10,
    12,
    16,
    20,
    24,
    32,
    40,
    48,
    64,
    80,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
)


def _sold_as(n_bytes: int) -> int:
    """Return memory in the GB on the box, which are GiB; firmware and ECC reserve up to 7 %."""
    gib = n_bytes / (1 << 30)
    return next((size for size in _SOLD_GIB if 0.93 * size <= gib <= size), max(1, round(gib)))


# --- reading JSON


def _gpu(gpu: _Reader) -> GpuInfo:
    usable = gpu.boolean("usable")
    read = GpuInfo(
        index=gpu.whole("index"),
        name=gpu.text("name"),
        compute_capability=gpu.optional_text("compute_capability"),
        total_bytes=gpu.whole("total_bytes"),
        free_bytes=gpu.whole("free_bytes"),
        context_bytes=gpu.whole("context_bytes"),
        bytes_per_s=gpu.real("bytes_per_s"),
        pcie_bytes_per_s=gpu.real("pcie_bytes_per_s"),
        driver=gpu.optional_text("driver"),
        usable=usable,
        reasons=gpu.texts("reasons"),
        uuid=gpu.optional_text("uuid", default=None),
        reach_bytes_per_s=gpu.real("reach_bytes_per_s", default=None),
        beside_share=gpu.real("beside_share", default=None),
        library_bytes=gpu.whole("library_bytes", default=None),
    )
    if usable and (read.total_bytes is None or read.free_bytes is None):
        raise gpu.wrong("total_bytes and free_bytes", "needed for a usable GPU, and null")
    return read


_MAKE_AGAIN = "Make it again: python -m engine probe --measure --json > FILE."


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


class _Reader:
    """Typed reads from a foreign dictionary. Missing required keys raise ArtifactMismatchError."""

    _REQUIRED = object()

    def __init__(self, value: object, origin: str, where: str) -> None:
        self._origin, self._where = origin, where
        if not isinstance(value, dict):
            raise self.wrong("", f"{type(value).__name__}, not an object")
        self._value: dict[str, Any] = value

    def wrong(self, key: str, what: str) -> ArtifactMismatchError:
        place = f"{self._where}{key}" or "its content"
        return ArtifactMismatchError(f"{self._origin} is not a hardware profile: {place} is {what}.", _MAKE_AGAIN)

    def _get(self, key: str, default: object) -> Any:
        if key not in self._value and default is self._REQUIRED:
            raise self.wrong(key, "missing")
        return self._value.get(key, default)

    def child(self, key: str) -> _Reader:
        return _Reader(self._get(key, self._REQUIRED), self._origin, f"{self._where}{key}.")

    def children(self, key: str) -> list[_Reader]:
        values = self._get(key, self._REQUIRED)
        if not isinstance(values, (list, tuple)):
            raise self.wrong(key, f"{str(values)[:40]!r}, not a list")
        return [_Reader(value, self._origin, f"{self._where}{key}[{i}].") for i, value in enumerate(values)]

    def text(self, key: str) -> str:
        value = self._get(key, self._REQUIRED)
        if not isinstance(value, str):
            raise self.wrong(key, f"{str(value)[:40]!r}, not a text")
        return value

    def optional_text(self, key: str, default: object = _REQUIRED) -> str | None:
        return None if self._get(key, default) is None else self.text(key)

    def texts(self, key: str, default: object = _REQUIRED) -> tuple[str, ...]:
        values = self._get(key, default)
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
            raise self.wrong(key, f"{str(values)[:40]!r}, not a list of texts")
        return tuple(values)

    def boolean(self, key: str) -> bool:
        value = self._get(key, self._REQUIRED)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{str(value)[:40]!r}, not true or false")
        return value

    def count(self, key: str, least: int = 1) -> int:
        value = self.whole(key)
        if value is None or value < least:
            raise self.wrong(key, f"{str(value)[:40]!r}, not a whole number from {least}")
        return value

    def whole(self, key: str, default: object = _REQUIRED) -> int | None:
        value = self._get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
            raise self.wrong(key, f"{str(value)[:40]!r}, not a whole number from 0")
        return value

    def real(self, key: str, default: object = _REQUIRED) -> float | None:
        value = self._get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
            raise self.wrong(key, f"{str(value)[:40]!r}, not a number from 0")
        return float(value)
