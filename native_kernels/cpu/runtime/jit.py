"""Compile kernels when they are first needed and cache the machine code on disk.

A kernel is a Python function (args, lo, hi, worker) of four int64, without a result: the address of its block of
arguments, its range of items, and the number of the worker that runs it. It runs without the GIL.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import platformdirs

import native_kernels
from native_kernels.cpu.runtime import isa

isa.chosen()  # before numba is imported: may limit numba's target

import numba  # noqa: E402
from numba import types  # noqa: E402

from native_kernels.cpu.runtime.inlining import InlinedCompiler, KernelCompiler  # noqa: E402

CACHE_VARIABLE = "HEARTH_KERNELS_CACHE"  # overrides the cache folder; used by tests
_KEPT_VERSIONS = 6  # of the machine code, so that tests and two installed versions can alternate
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
_SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)
_MAGIC = b"hearth-kernel 1\n"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def inline(function: AnyFunction) -> AnyFunction:
    """Declare a function that is compiled into every kernel that calls it. Arguments: numbers and vectors of simd."""
    compiled: AnyFunction = numba.njit(forceinline=True, pipeline_class=InlinedCompiler, **_OPTIONS)(function)
    return compiled


class Kernel:
    """A compiled function and its address. Nothing is compiled before the address is read."""

    def __init__(self, function: Callable[[int, int, int, int], None], name: str = "") -> None:
        self.name = name or f"{function.__module__.removeprefix('native_kernels.')}.{function.__name__}"
        self.function = function
        self._address = 0
        self._keep: Any = None  # the library that owns the code

    @property
    def address(self) -> int:
        """Address of the machine code.

        Cost: some ms from the cache on disk, else 0.3 to 9 s of compiling; nothing after the first time.
        """
        if not self._address:
            with _LOCK:
                if not self._address and not self._load():
                    self._compile()
        return self._address

    @property
    def is_ready(self) -> bool:
        """Return whether the machine code is loaded or cached on disk."""
        path = self._path()
        return bool(self._address) or (path is not None and path.exists())

    def assembly(self) -> str:
        """Return the machine code as text, compiled again, for inspection."""
        found: str = self._compiled()._library.get_asm_str()
        return found

    def llvm_ir(self) -> str:
        """Return the optimised LLVM code as text, compiled again."""
        found: str = self._compiled()._library.get_llvm_str()
        return found

    def _compiled(self) -> Any:
        with _LOCK:
            return _compiled(self.function)

    def _compile(self) -> None:
        compiled = _compiled(self.function)
        self._keep, self._address = compiled, int(compiled.address)
        path = self._path()
        if path is not None:
            library, _, (code, shared) = compiled._library.serialize_using_object_code()
            _write(path, {"symbol": compiled.native_name, "library": library}, code, shared)

    def _load(self) -> bool:
        path = self._path()
        found = None if path is None else _read(path)
        if found is None:
            return False
        from numba.core.registry import cpu_target

        header, code, shared = found
        codegen = cpu_target.target_context.codegen()
        self._keep = codegen.unserialize_library((header["library"], "object", (code, shared)))
        self._address = int(self._keep.get_pointer_to_function(header["symbol"]))
        return self._address != 0

    def _path(self) -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / f"{self.name}.code"


_LOCK = threading.RLock()


def _compiled(function: Callable[[int, int, int, int], None]) -> Any:
    return numba.cfunc(_SIGNATURE, pipeline_class=KernelCompiler, **_OPTIONS)(function)


def kernel(function: Callable[[int, int, int, int], None]) -> Kernel:
    """Declare a kernel, named after its module and function; kernels made in a loop need a distinct name each."""
    return Kernel(function)


@cache
def cache_folder() -> Path | None:
    """Return the folder for the machine code of these exact sources, versions and instruction set; None if not
    writable.

    Folders of other versions are deleted, except the most recently used.
    """
    key = _key()
    root = Path(
        os.environ.get(CACHE_VARIABLE) or Path(platformdirs.user_cache_dir("Hearth", appauthor=False), "kernels")
    )
    if key is None:
        return None
    folder = root / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)  # marks it as used
        probe = folder / f"writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return None
    with contextlib.suppress(OSError):
        by_age = sorted((one for one in root.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
        for old in by_age[:-_KEPT_VERSIONS]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _key() -> str | None:
    """Return a hash of everything that the machine code depends on; None if the sources cannot be read."""
    from llvmlite import binding

    package = Path(native_kernels.__path__[0])
    sources = sorted(package.rglob("*.py"))
    if not sources:
        return None
    versions = (numba.__version__, llvmlite.__version__, *sys.version_info[:2], sys.platform)
    target = (isa.chosen().name, binding.get_host_cpu_name(), sorted(isa.features()), binding.get_process_triple())
    digest = hashlib.sha256(repr((versions, target)).encode())
    for source in sources:
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def _write(path: Path, header: dict[str, str], code: bytes, shared: bytes) -> None:
    """Write atomically. A full or read-only disk only costs the next start its time."""
    checked = hashlib.sha256(code + shared).hexdigest()
    line = json.dumps({**header, "code": len(code), "shared": len(shared), "sha256": checked}).encode()
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_bytes(_MAGIC + line + b"\n" + code + shared)
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()


def _read(path: Path) -> tuple[dict[str, Any], bytes, bytes] | None:
    """Read what _write wrote; None if it is missing or damaged."""
    try:
        data = path.read_bytes()
        if not data.startswith(_MAGIC):
            return None
        end = data.index(b"\n", len(_MAGIC))
        header: dict[str, Any] = json.loads(data[len(_MAGIC) : end])
        body = data[end + 1 :]
        if len(body) != header["code"] + header["shared"] or hashlib.sha256(body).hexdigest() != header["sha256"]:
            return None
        return header, body[: header["code"]], body[header["code"] :]
    except (OSError, ValueError, KeyError, TypeError):
        return None
