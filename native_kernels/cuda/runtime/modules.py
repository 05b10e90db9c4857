"""Load the kernels of the .cu files as machine code for a GPU: cached on disk, else compiled and cached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from native_kernels.cuda.runtime.driver import Device, Module
from native_kernels.cuda.runtime.nvrtc import CompilationError, CompilerUnavailableError, compiler

# Compute capabilities to compile for: code for x.y runs on GPUs of x.z with z >= y.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
CACHE_VARIABLE = "HEARTH_CUDA_CACHE"  # overrides the cache folder; used by tests

_FOLDER = Path(__file__).parents[1] / "kernels"
_CHECKS = threading.local()


class NoMachineCodeError(Exception):
    """No machine code for a GPU exists or can be compiled; the message is the reason."""


@contextlib.contextmanager
def interrupted_by(check: Callable[[], None]) -> Iterator[None]:
    """Within this context, call `check` before this thread loads or compiles a file; its exception aborts the load."""
    before, _CHECKS.check = getattr(_CHECKS, "check", None), check
    try:
        yield
    finally:
        _CHECKS.check = before


def sources() -> tuple[str, ...]:
    """Return the names of the .cu files, without suffix."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.cu")))


def source_of(name: str) -> tuple[str, dict[str, str]]:
    """Return the source of a .cu file, and the headers it may include, by name."""
    headers = {path.name: path.read_text("utf-8") for path in sorted(_FOLDER.glob("*.cuh"))}
    return (_FOLDER / f"{name}.cu").read_text("utf-8"), headers


def load(device: Device, name: str, defines: Mapping[str, int | str] | None = None) -> Module:
    """Load a file's kernels on the GPU, whose context must be entered.

    Cost: 1 ms from the disk, 0.1 to 2 s if compiled.
    Raises: NoMachineCodeError, CudaError, and exceptions of the `interrupted_by` callback.
    """
    check: Callable[[], None] | None = getattr(_CHECKS, "check", None)
    if check is not None:
        check()
    architecture, as_ptx = architecture_for(device.capability), device.tested_as is not None
    return Module(device, machine_code(name, architecture, defines or {}, as_ptx), architecture >= 90)


def architecture_for(capability: tuple[int, int]) -> int:
    """Return the newest architecture that runs on a GPU. Raises: NoMachineCodeError if there is none."""
    major, minor = capability
    fitting = [one for one in ARCHITECTURES if one // 10 == major and one % 10 <= minor]
    if not fitting:
        known = ", ".join(f"{one // 10}.{one % 10}" for one in ARCHITECTURES)
        raise NoMachineCodeError(f"there are no kernels for compute capability {major}.{minor}; there are for {known}")
    return max(fitting)


def machine_code(name: str, architecture: int, defines: Mapping[str, int | str], as_ptx: bool = False) -> bytes:
    """Return the cubin of a .cu file, or its PTX, which the driver compiles for a newer GPU.

    Raises: NoMachineCodeError without a compiler that knows the GPU.
    """
    source, headers = source_of(name)
    target = f"{'compute_' if as_ptx else 'sm'}{architecture}"
    digest = hashlib.sha256(repr((architecture, sorted(defines.items()), sorted(headers.items()))).encode())
    digest.update(source.encode())
    folder = cache_folder()
    kept = None if folder is None else folder / f"{name}-{target}-{digest.hexdigest()[:24]}.cubin"
    if kept is not None and kept.is_file():
        with contextlib.suppress(OSError):
            code = kept.read_bytes()
            if hashlib.sha256(code[32:]).digest() == code[:32]:
                return code[32:]
    try:
        code = compiler().compile(source, f"{name}.cu", architecture, defines, headers, as_ptx).code
    except (CompilerUnavailableError, CompilationError) as error:  # no compiler, or one older than this GPU
        raise NoMachineCodeError(f"the kernels for this GPU are not there and cannot be made: {error}") from error
    if kept is not None:
        _keep(kept, code)
    return code


def _keep(path: Path, code: bytes) -> None:
    """Write atomically; if that fails, the next start compiles again."""
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_bytes(hashlib.sha256(code).digest() + code)
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()


@cache
def cache_folder() -> Path | None:
    """Return the cache folder for machine code; None if not writable."""
    import platformdirs

    root = os.environ.get(CACHE_VARIABLE) or Path(platformdirs.user_cache_dir("Hearth", appauthor=False), "cuda")
    folder = Path(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
