"""The machine's GPUs: which exist, and whether each is usable or why not.

Asks NVIDIA's management library (NVML) through pynvml, and on Linux the kernel's display adapters for GPUs that NVML
does not list. A broken or missing driver is a valid answer. Creates no CUDA context and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

OLDEST_DRIVER = 525  # the first that runs CUDA 12
OLDEST_CAPABILITY = (7, 5)  # Turing: the kernels use its tensor and integer instructions
LEAST_GPU_BYTES = 1_900_000_000  # a "2 GB" GPU; with less, context, desktop and margin leave nothing

# Messages for NVML's common status codes (nvml.h, nvmlReturn_t).
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, GPU_IS_LOST, _RESET_REQUIRED, _VERSION_MISMATCH = 9, 12, 15, 16, 18
_WORDS = {
    _DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    _LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    GPU_IS_LOST: "the GPU was lost: restart the computer",
    _RESET_REQUIRED: "the GPU needs a reset: restart the computer",
    _VERSION_MISMATCH: "the NVIDIA driver was updated while it ran: restart the computer",
}
_MAKERS = {"0x8086": "Intel", "0x1002": "AMD", "0x10de": "NVIDIA"}

T = TypeVar("T")


@dataclass(frozen=True)
class GpuInfo:
    """One GPU. None for figures that are unreadable, inapplicable or not measured.

    bytes_per_s: of its memory. pcie_bytes_per_s: uploads from pinned host memory. reach_bytes_per_s: zero-copy reads of
    host memory by kernels while the CPU reads it too; the CPU then keeps beside_share of its own rate.
    """

    index: int | None  # NVML's, in bus order; None: not NVIDIA, or unknown to its driver
    name: str  # without the prefix "NVIDIA "
    compute_capability: str | None  # "8.9"
    total_bytes: int | None
    free_bytes: int | None
    context_bytes: int | None  # bytes of a CUDA context on this GPU
    bytes_per_s: float | None
    pcie_bytes_per_s: float | None
    driver: str | None
    usable: bool
    reasons: tuple[str, ...] = ()  # why not usable
    uuid: str | None = None
    reach_bytes_per_s: float | None = None
    beside_share: float | None = None
    library_bytes: int | None = None  # bytes of cuBLAS on this GPU; None: not available


class NvmlUnavailableError(Exception):
    """NVML does not answer. The message is the reason. Never leaves the hardware modules."""


def failures(nvml: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that NVML calls may raise: its own, a failed library load, undecodable names."""
    return (nvml.NVMLError, OSError, UnicodeError)


def reason(error: Exception) -> str:
    """Return an NVML failure in words."""
    return _WORDS.get(getattr(error, "value", -1), f"NVML says: {str(error) or 'nothing'}")


@contextmanager
def nvml_session(nvml: Any = None) -> Iterator[Any]:
    """Open NVML and shut it down at the end.

    Raises: NvmlUnavailableError.
    """
    module = open_nvml(nvml)
    try:
        yield module
    finally:
        close_nvml(module)


def open_nvml(nvml: Any = None) -> Any:
    """Return pynvml or the given fake, initialised.

    Raises: NvmlUnavailableError.
    """
    if nvml is None:
        try:
            import pynvml
        except ImportError as error:
            raise NvmlUnavailableError("the Python package nvidia-ml-py is missing") from error
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except failures(nvml) as error:
        raise NvmlUnavailableError(reason(error)) from error
    return nvml


def close_nvml(nvml: Any) -> None:
    """Shut NVML down; ignores a driver that disappeared."""
    try:
        nvml.nvmlShutdown()
    except failures(nvml):
        return


def text(value: str | bytes) -> str:
    """Decode NVML's strings: older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def display_name(name: str | bytes) -> str:
    """Return a GPU's name without "NVIDIA ", which newer drivers prefix."""
    return text(name).removeprefix("NVIDIA ").strip()


def is_visible(index: int, uuid: str | None, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES, a list of indices or UUID prefixes, includes the GPU.

    As in CUDA, the list ends at the first entry that is neither. Indices count in bus order, as NVML and nvidia-smi do.
    """
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return True
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.isdecimal():
            if int(entry) == index:
                return True
        elif entry.startswith("GPU-"):
            if uuid is not None and uuid.lower().startswith(entry.lower()):
                return True
        else:
            return False
    return False


def read_gpus(
    nvml: Any = None, root: Path = Path("/"), environment: Mapping[str, str] | None = None
) -> tuple[tuple[GpuInfo, ...], tuple[str, ...]]:
    """Return all GPUs, and the reasons that none is usable (empty if one is)."""
    why: tuple[str, ...] = ()
    gpus: list[GpuInfo] = []
    try:
        with nvml_session(nvml) as library:
            gpus = _nvidia_gpus(library, environment)
    except NvmlUnavailableError as error:
        why = (str(error),)
    known_to_nvml = bool(gpus)
    gpus += _other_gpus(root, () if known_to_nvml else (why or ("the NVIDIA driver does not see this GPU",)),
                          skip_nvidia=known_to_nvml)  # fmt: skip
    if any(gpu.usable for gpu in gpus):
        return tuple(gpus), ()
    if not known_to_nvml and not why:
        why = ("the NVIDIA driver sees no GPU",)
    per_gpu = (f"{gpu.name}: {'; '.join(gpu.reasons)}" for gpu in gpus if gpu.reasons != why)
    return tuple(gpus), (*why, *per_gpu)


def used_bytes(index: int | None, nvml: Any = None) -> int | None:
    """Return the bytes used by all programs on this GPU; None if unknown."""
    try:
        with nvml_session(nvml) as library:
            memory, _ = _ask(
                library, "the memory",
                lambda: library.nvmlDeviceGetMemoryInfo(library.nvmlDeviceGetHandleByIndex(index)),
            )  # fmt: skip
    except NvmlUnavailableError:
        return None
    return None if memory is None else int(memory.used)


def _nvidia_gpus(nvml: Any, environment: Mapping[str, str] | None) -> list[GpuInfo]:
    """Raises: NvmlUnavailableError if not even the number of GPUs is readable."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except failures(nvml) as error:
        raise NvmlUnavailableError(reason(error)) from error
    driver, driver_problem = _ask(nvml, "the driver's version", lambda: text(nvml.nvmlSystemGetDriverVersion()))
    return [_nvidia_gpu(nvml, index, driver, driver_problem, environment) for index in range(count)]


def _ask(nvml: Any, what: str, question: Callable[[], T]) -> tuple[T | None, list[str]]:
    """Return NVML's answer, or None and the reason."""
    try:
        return question(), []
    except failures(nvml) as error:
        return None, [f"{what} cannot be read: {reason(error)}"]


def _nvidia_gpu(
    nvml: Any, index: int, driver: str | None, driver_problem: list[str], environment: Mapping[str, str] | None
) -> GpuInfo:
    unknown = GpuInfo(index, f"NVIDIA GPU {index}", None, None, None, None, None, None, driver, usable=False)
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except failures(nvml) as error:
        return replace(unknown, reasons=(reason(error),))
    name, _ = _ask(nvml, "the name", lambda: display_name(nvml.nvmlDeviceGetName(handle)))
    uuid, _ = _ask(nvml, "the UUID", lambda: text(nvml.nvmlDeviceGetUUID(handle)))
    capability, capability_problem = _ask(
        nvml, "the compute capability", lambda: tuple(int(x) for x in nvml.nvmlDeviceGetCudaComputeCapability(handle))
    )
    memory, memory_problem = _ask(nvml, "the memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    reasons = [*driver_problem, *capability_problem, *memory_problem]
    if not is_visible(index, uuid, environment):
        reasons.append("hidden by CUDA_VISIBLE_DEVICES")
    if driver is not None and (major := _major(driver)) < OLDEST_DRIVER:
        reasons.append(f"driver {driver if major else repr(driver)} is too old: {OLDEST_DRIVER} or newer is needed")
    if capability is not None and capability < OLDEST_CAPABILITY:
        reasons.append(f"compute capability {_dotted(capability)} is too old: {_dotted(OLDEST_CAPABILITY)} is needed")
    if memory is not None and memory.total < LEAST_GPU_BYTES:
        reasons.append(f"{memory.total / 1e9:.1f} GB of memory is too little: 2 GB is needed")
    return replace(
        unknown,
        name=name or unknown.name,
        compute_capability=None if capability is None else _dotted(capability),
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        usable=not reasons,
        reasons=tuple(reasons),
        uuid=uuid,
    )


def _major(driver: str) -> int:
    first = driver.partition(".")[0]
    return int(first) if first.isdecimal() else 0


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in capability)


def _other_gpus(root: Path, nvidia_reasons: tuple[str, ...], skip_nvidia: bool) -> list[GpuInfo]:
    """Return display adapters that Linux lists and NVML does not: integrated graphics, or GPUs without drivers."""
    found: list[GpuInfo] = []
    try:
        folders = sorted((root / "sys/class/drm").glob("card[0-9]*/device"))
    except OSError:
        return []
    for folder in folders:
        if "-" in folder.parent.name:  # card0-HDMI-A-1 is a connector of card0
            continue
        try:
            vendor, kind = ((folder / name).read_text(encoding="ascii").strip() for name in ("vendor", "class"))
        except (OSError, UnicodeError):
            continue
        maker = _MAKERS.get(vendor.lower())
        if maker is None or not kind.startswith("0x03") or (maker == "NVIDIA" and skip_nvidia):
            continue
        name, reasons = ("NVIDIA GPU", nvidia_reasons) if maker == "NVIDIA" else (f"{maker} graphics", ("no CUDA",))
        found.append(GpuInfo(None, name, None, None, None, None, None, None, None, usable=False, reasons=reasons))
    return found
