"""GPU operators between several residual streams (AltUp), and the cut-off of gates.

Prepares the arguments of streams.cu. Never waits, so everything can be captured.
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_int, c_uint64
from typing import Any

from native_kernels.cuda.gpu import GpuStreams, GpuVector
from native_kernels.cuda.operands import Rounded
from native_kernels.cuda.runtime.driver import Device, Module, Stream
from native_kernels.cuda.runtime.modules import load

MAX_STREAMS = 8


class _Streams(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("values", "predicted", "scores", "weights", "step")),
        ("n", c_int), ("width", c_int),
    ]  # fmt: skip


class GpuStreamOps:
    """The group `several streams` of native_kernels/cuda/gpu.py's `Gpu`; methods are documented there.

    The first call loads the kernels. Raises: CudaError, NoMachineCodeError.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._module: Module | None = None

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        module, self._module = self._module, None
        if module is not None:
            module.close()

    def predict_streams(self, x: GpuStreams, scores: int, mixture: int) -> None:
        self._launch("predict_streams", (-(-x.width // 64), x.n_tokens), 64, _job(x, scores, mixture))

    def correct_streams(self, x: GpuStreams, scores: int, shares: int, scale: int, scaled: GpuVector) -> None:
        """Correct the streams. Only a single position's `scaled` may have an 8-bit form."""
        if scaled.n != x.width or (scaled.bytes and x.n_tokens > 1):
            raise ValueError(f"a vector of {scaled.n} for {x.n_tokens} positions of {x.width}")
        to = Rounded(0, scaled.values, scaled.bytes, scaled.scales, scaled.n)
        job = _job(x, scores, shares)
        self._launch("correct_streams", (-(-x.width // 128), x.n_tokens), 32, job, c_uint64(scale), to)

    def add_beside(self, x: GpuStreams, added: int) -> None:
        others = c_uint64(x.values + 4 * x.step), c_uint64(x.step)
        grid = -(-x.width // 128), x.n_tokens, x.n - 1
        self._launch("add_to_each", grid, 128, *others, c_int(x.width), c_uint64(added))

    def scale_alike(self, x: GpuStreams, others: int, least: float) -> None:
        threads = min(512, -(-x.width // 32) * 32)
        rows = c_uint64(x.values), c_uint64(others), c_uint64(x.step), c_int(x.width), c_float(least)
        self._launch("scale_alike", (x.n - 1, x.n_tokens), threads, *rows)

    def cut_off(self, x: int, n: int, cutoff: float, n_tokens: int = 1, step: int = 0) -> None:
        if n:
            threads = min(1024, -(-n // 32) * 32)
            self._launch("cut_off", (n_tokens,), threads, c_uint64(x), c_uint64(step), c_int(n), c_float(cutoff))

    def _launch(self, kernel: str, grid: tuple[int, ...], threads: int, *arguments: Any) -> None:
        if self._module is None:
            self._module = load(self._device, "streams")
        self._module.function(kernel).launch(self._stream, grid, (threads,), *arguments)


def _job(x: GpuStreams, scores: int, weights: int) -> _Streams:
    if not 1 < x.n <= MAX_STREAMS:
        raise ValueError(f"{x.n} streams; there may be 2 to {MAX_STREAMS}")
    return _Streams(x.values, x.predicted, scores, weights, x.step, x.n, x.width)
