"""GPU operators of models with a state: gated delta nets, short convolutions, and the gate of attention's output.

Prepares the arguments of delta_net.cu and short_conv.cu. Never waits, so everything can be captured.
"""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.cuda.gpu import GpuDelta, GpuDeltaInput, GpuShortConv, GpuStates, GpuVector
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load
from native_kernels.specs import DeltaSpec

MAX_DIM = 128  # numbers of a key or value head; more would not fit into registers
_COLUMNS = 32  # of a head's matrix, for a block of `recur`
_HEADS = 4  # of a block of `prepare` and of `finish`
_THREADS = 128  # per block
_KERNELS = ("prepare", "recur", "finish", "step", "gate")
_PARTS = 4  # threads per column of a head's matrix
_ROWS = 16  # positions of a thread of `convolve`, at least


class _States(Structure):
    _fields_ = [("first", c_uint64), ("second", c_uint64), ("swap", c_uint64), ("step", c_uint64)]


class _Net(Structure):
    _fields_ = [
        *(
            (name, c_uint64)
            for name in ("qkv", "gate", "alpha", "beta", "conv", "decay", "alpha_bias", "norm", "prepared", "out")
        ),
        ("states", _States), ("epsilon", c_float),
        *((name, c_int) for name in ("n_each", "key_heads", "value_heads", "width", "tiled")),
    ]  # fmt: skip


class _Conv(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("x", "weights", "out", "first", "second", "swap", "step")),
        *((name, c_int) for name in ("channels", "width", "n_each", "n_rows")),
    ]  # fmt: skip


class GpuDeltaOps:
    """The group `delta nets` of native_kernels/cuda/gpu.py's `Gpu`; methods are documented there.

    Cost of a call: about 20 us of the caller's time; the first for a shape of heads compiles its kernels.
    Raises: CudaError, NoMachineCodeError; ValueError for heads that are too large.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._kernels: dict[tuple[int, int], dict[str, Function]] = {}
        self._short_conv: Module | None = None
        self._held = ExitStack()

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def gated_delta(self, x: GpuDeltaInput, w: GpuDelta, states: GpuStates, prepared: int, to: int) -> None:
        """Run the net. One kernel for a position of each sequence, with a block per value head; otherwise, or in place,
        three, of which one goes through the positions with a block per 32 columns of each head.
        """
        spec, rows = w.spec, x.n_sequences * x.n_each
        if not rows:
            return
        kernels = self._of(spec.key_dim, spec.value_dim)
        job = _Net(
            x.qkv, x.gate, x.alpha, x.beta, w.conv, w.decay, w.alpha_bias, w.norm, prepared, to,
            _States(states.first, states.second, states.swap, states.step), w.epsilon, x.n_each, spec.key_heads,
            spec.value_heads, spec.conv_width, spec.order == "tiled",
        )  # fmt: skip
        if x.n_each == 1 and states.first != states.second:
            threads = -(-_PARTS * spec.value_dim // 32) * 32
            kernels["step"].launch(self._stream, (spec.value_heads, x.n_sequences), (threads,), job)
            return
        columns, n_heads = -(-spec.value_dim // _COLUMNS), 2 * spec.key_heads + spec.value_heads
        kernels["prepare"].launch(self._stream, (-(-n_heads // _HEADS), rows), (_THREADS,), job)
        kernels["recur"].launch(self._stream, (spec.value_heads, columns, x.n_sequences), (_THREADS,), job)
        kernels["finish"].launch(self._stream, (-(-spec.value_heads // _HEADS), rows), (_THREADS,), job)

    def gated(self, x: GpuVector, gate: int) -> None:
        """Multiply by the gate. One kernel."""
        kernel = next(iter(self._kernels.values()), None) or self._of(MAX_DIM, MAX_DIM)
        kernel["gate"].launch(
            self._stream, (-(-x.n // (4 * _THREADS)),), (_THREADS,), _at(x.values), _at(gate), c_int(x.n), _at(x.bytes),
            _at(x.scales),
        )  # fmt: skip

    def short_conv(
        self, x: int, w: GpuShortConv, states: GpuStates, to: int, n_each: int = 1, n_sequences: int = 1
    ) -> None:
        """Convolve. One kernel, with a thread for some positions of a channel."""
        if self._short_conv is None:
            self._short_conv = load(self._device, "short_conv")
            self._held.callback(self._short_conv.close)
        channels, width = w.spec.channels, w.spec.conv_width
        rows = max(_ROWS, width - 1)
        job = _Conv(x, w.conv, to, states.first, states.second, states.swap, states.step, channels, width, n_each, rows)
        grid = (-(-channels // _THREADS), -(-n_each // rows), n_sequences)
        self._short_conv.function("convolve").launch(self._stream, grid, (_THREADS,), job)

    def _of(self, key_dim: int, value_dim: int) -> dict[str, Function]:
        shape = key_dim, value_dim
        if shape not in self._kernels:
            if max(shape) > MAX_DIM:
                raise ValueError(f"heads of {key_dim} and {value_dim} numbers; there may be {MAX_DIM} at most")
            module = load(self._device, "delta_net", {"KEY_DIM": key_dim, "VALUE_DIM": value_dim})
            self._held.callback(module.close)
            self._kernels[shape] = {name: module.function(name) for name in _KERNELS}
        return self._kernels[shape]


def why_not(spec: DeltaSpec) -> str:
    """Return in half a sentence why the GPU has no kernels for such a net; "" if it has."""
    if max(spec.key_dim, spec.value_dim) <= MAX_DIM:
        return ""
    return f"The GPU's kernels for layers that keep a state have heads of {MAX_DIM} numbers at most"


_at = c_uint64
