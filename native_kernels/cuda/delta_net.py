"""GPU operators of layers that keep a state: gated delta nets, Mamba-2, short convolutions; and attention's gate.

Prepares the arguments of delta_net.cu, mamba.cu and short_conv.cu. Never waits, so everything can be captured.
"""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.cuda.gpu import GpuDelta, GpuDeltaInput, GpuShortConv, GpuStates, GpuVector
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load
from native_kernels.specs import DeltaSpec

# Numbers of a head's key or value in a delta net, and of its key in Mamba-2; more would not fit into registers.
MAX_DIM, MAX_MAMBA_KEY = 128, 256
_COLUMNS = 32  # of a head's matrix, for a block of `recur`, and of `step` in mamba.cu
_HEADS = 4  # of a block of a delta net's `prepare` and `finish`
_AT_ONCE = 8  # positions of a block of `prepare` in mamba.cu
_THREADS, _NORM_THREADS = 128, 256  # per block; the latter of `finish` in mamba.cu
_KERNELS = ("prepare", "recur", "finish", "step")
_PARTS = 4  # threads per column of a head's matrix in a delta net
_ROWS = 16  # positions of a thread of `convolve`, at least


class _States(Structure):
    _fields_ = [("first", c_uint64), ("second", c_uint64), ("swap", c_uint64), ("step", c_uint64)]


class _Net(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("qkv", "gate", "alpha", "beta", "conv", "conv_bias", "decay", "alpha_bias",
                                        "norm", "skip", "done", "prepared", "out", "bytes", "scales")),
        ("states", _States), ("epsilon", c_float),
        *((name, c_int) for name in ("n_each", "key_heads", "value_heads", "width", "tiled", "norm_size", "unit")),
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
        self._modules: dict[tuple[str, int, int], Module] = {}
        self._kernels: dict[tuple[str, int, int], dict[str, Function]] = {}
        self._gate: Function | None = None
        self._short_conv: Module | None = None
        self._held = ExitStack()

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def gated_delta(self, x: GpuDeltaInput, w: GpuDelta, states: GpuStates, prepared: int, to: GpuVector) -> None:
        """Run the layer. One kernel for a position of each sequence; otherwise, or in place, three, of which one goes
        through the positions with a block per 32 columns of each head.
        """
        spec, rows = w.spec, x.n_sequences * x.n_each
        if not rows:
            return
        kernels = self._of(spec)
        job = _Net(
            x.qkv, x.gate, x.alpha, x.beta, w.conv, w.conv_bias, w.decay, w.alpha_bias, w.norm, w.skip, w.done,
            prepared, to.values, to.bytes, to.scales,
            _States(states.first, states.second, states.swap, states.step), w.epsilon, x.n_each, spec.key_heads,
            spec.value_heads, spec.conv_width, spec.order == "tiled", spec.value_width // spec.norm_groups,
            norm_unit(spec),
        )  # fmt: skip
        columns = -(-spec.value_dim // _COLUMNS)
        if x.n_each == 1 and states.first != states.second:
            threads = _THREADS if spec.mamba else -(-_PARTS * spec.value_dim // 32) * 32
            by_sequence = (columns, x.n_sequences) if spec.mamba else (x.n_sequences,)
            kernels["step"].launch(self._stream, (spec.value_heads, *by_sequence), (threads,), job)
            return
        n_heads, n_numbers = 2 * spec.key_heads + spec.value_heads, spec.channels + spec.value_heads
        before, after = (-(-n_heads // _HEADS), rows), (-(-spec.value_heads // _HEADS), rows)
        if spec.mamba:
            before = -(-n_numbers // _THREADS), x.n_sequences * -(-x.n_each // _AT_ONCE)
            after = spec.norm_groups, rows
        kernels["prepare"].launch(self._stream, before, (_THREADS,), job)
        kernels["recur"].launch(self._stream, (spec.value_heads, columns, x.n_sequences), (_THREADS,), job)
        kernels["finish"].launch(self._stream, after, (_NORM_THREADS if spec.mamba else _THREADS,), job)

    def gated(self, x: GpuVector, gate: int) -> None:
        """Multiply by the gate. One kernel."""
        if self._gate is None:
            self._gate = self._module("delta_net", MAX_DIM, MAX_DIM).function("gate")
        self._gate.launch(
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

    def _of(self, spec: DeltaSpec) -> dict[str, Function]:
        shape = "mamba" if spec.mamba else "delta_net", spec.key_dim, spec.value_dim
        if shape not in self._kernels:
            if reason := why_not(spec):
                raise ValueError(reason)
            module = self._module(*shape)
            self._kernels[shape] = {name: module.function(name) for name in _KERNELS}
        return self._kernels[shape]

    def _module(self, name: str, key_dim: int, value_dim: int) -> Module:
        shape = name, key_dim, value_dim
        if shape not in self._modules:
            self._modules[shape] = load(self._device, name, {"KEY_DIM": key_dim, "VALUE_DIM": value_dim})
            self._held.callback(self._modules[shape].close)
        return self._modules[shape]


def norm_unit(spec: DeltaSpec) -> int:
    """Return how many numbers of a Mamba-2's output one block norms and rounds: a group if it can be rounded apart."""
    size = spec.value_width // spec.norm_groups
    return spec.value_width if size % 64 or size % spec.value_dim else size


def done_bytes(spec: DeltaSpec) -> int:
    """Return the bytes of GpuDelta.done for one sequence; 0 for a delta net."""
    return 4 * (spec.value_width // norm_unit(spec)) * spec.mamba


def why_not(spec: DeltaSpec) -> str:
    """Return in half a sentence why the GPU has no kernels for such a layer; "" if it has."""
    if spec.mamba:
        if spec.key_dim <= MAX_MAMBA_KEY:
            return ""
        return f"The GPU's kernels for Mamba-2 layers have states of {MAX_MAMBA_KEY} numbers per value at most"
    if max(spec.key_dim, spec.value_dim) <= MAX_DIM:
        return ""
    return f"The GPU's kernels for layers that keep a state have heads of {MAX_DIM} numbers at most"


_at = c_uint64
