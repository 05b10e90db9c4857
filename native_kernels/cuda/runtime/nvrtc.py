"""Compile CUDA C++ to machine code with NVRTC, NVIDIA's compiler library, without a toolkit or a GPU.

The library is searched in the installed packages (torch's CUDA builds, nvidia-cuda-nvrtc-cu12) and by the system's
loader. modules.py caches the results.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization",
            "--ptxas-options=--verbose")  # fmt: skip
_SPECIFIC = (90,)  # compiled with architecture-specific features: all GPUs of this architecture have them


class CompilerUnavailableError(Exception):
    """NVRTC was not found; the message is the reason."""


class CompilationError(Exception):
    """The compiler rejected a source; the message is its output."""


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture. log: compiler output, with registers and spills of each kernel."""

    code: bytes
    log: str


class Compiler:
    """One NVRTC library. Raises: CompilerUnavailableError if the file is not one."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # It opens its builtins by name. Windows searches no package for them, but finds them once they are loaded.
            self._builtins = [ctypes.CDLL(str(file)) for file in Path(path).parent.glob("nvrtc-builtins64_*.dll")]
            self._library = ctypes.CDLL(path)
            self._library.nvrtcGetErrorString.restype = c_char_p
            major, minor = c_int(), c_int()
            self._check("nvrtcVersion", byref(major), byref(minor))
        except (OSError, AttributeError) as error:
            raise CompilerUnavailableError(f"{path} cannot be used: {error}") from error
        self.version = (major.value, minor.value)

    def architectures(self) -> tuple[int, ...]:
        """Return the supported compute capabilities, 75 for 7.5."""
        count = c_int()
        self._check("nvrtcGetNumSupportedArchs", byref(count))
        numbers = (c_int * count.value)()
        self._check("nvrtcGetSupportedArchs", numbers)
        return tuple(numbers)

    def compile(
        self,
        source: str,
        name: str,
        architecture: int,
        defines: Mapping[str, Any],
        headers: Mapping[str, str],
        as_ptx: bool = False,
    ) -> Compiled:
        """Compile one source to a cubin, or to PTX. headers: sources it may include, by name.

        Cost: 0.1 to 2 s. Raises: CompilationError.
        """
        specific = "a" if architecture in _SPECIFIC else ""
        options = [f"--gpu-architecture={'compute' if as_ptx else 'sm'}_{architecture}{specific}", *_OPTIONS]
        options += [f"--define-macro={key}={value}" for key, value in defines.items()]
        program = c_void_p()
        self._check(
            "nvrtcCreateProgram", byref(program), source.encode(), name.encode(), len(headers),
            _texts(list(headers.values())), _texts(list(headers)),
        )  # fmt: skip
        try:
            code = self._library.nvrtcCompileProgram(program, len(options), _texts(options))
            log = self._bytes(program, "ProgramLog").decode("utf-8", "replace").rstrip("\0").strip()
            if code:
                raise CompilationError(f"{name} for sm_{architecture}: {self._words(code)}\n{log}")
            return Compiled(self._bytes(program, "PTX" if as_ptx else "CUBIN"), log)
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _bytes(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._check(f"nvrtcGet{what}Size", program, byref(size))
        data = ctypes.create_string_buffer(max(1, size.value))
        self._check(f"nvrtcGet{what}", program, data)
        return data.raw[: size.value]

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CompilationError(f"{name}: {self._words(code)}")

    def _words(self, code: int) -> str:
        return str((self._library.nvrtcGetErrorString(code) or b"an unknown error").decode("ascii", "replace"))


@cache
def compiler() -> Compiler:
    """Return the oldest version found: drivers run machine code of their own major version and older ones.

    Raises: CompilerUnavailableError.
    """
    found: list[Compiler] = []
    problems = []
    for path in _candidates():
        try:
            found.append(Compiler(path))
        except CompilerUnavailableError as error:
            problems.append(str(error))
    if not found:
        raise CompilerUnavailableError("; ".join(problems) or "NVIDIA's compiler NVRTC is not installed")
    return min(found, key=lambda one: one.version)


def _candidates() -> Iterator[str]:
    patterns = ["nvidia/*/lib/libnvrtc.so.*", "torch/lib/libnvrtc*.so*"]
    if sys.platform == "win32":
        patterns = ["nvidia/*/bin/nvrtc64_*.dll", "nvidia/*/bin/*/nvrtc64_*.dll", "torch/lib/nvrtc64_*.dll"]
    folders = dict.fromkeys((*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    for folder in folders:
        if folder.endswith(("site-packages", "dist-packages")) or folder.startswith(sys.prefix):
            for pattern in patterns:
                for path in sorted(Path(folder).glob(pattern)):
                    if "builtins" not in path.name and ".alt." not in path.name:
                        yield str(path)
    if sys.platform != "win32":
        for version in ("", ".12", ".13"):
            name = f"libnvrtc.so{version}"
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            yield name


def _texts(values: Sequence[str]) -> Any:
    return (c_char_p * max(1, len(values)))(*(value.encode() for value in values))
