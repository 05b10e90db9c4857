"""What the engine asks of a GPU, as plain addresses and numbers: its operators with their meaning.

Everything is put into one stream and runs in that order; nothing here waits unless it says so. Every sum is added up in
a fixed order, so that the same input gives the same bits. native_kernels/cuda/cuda_gpu.py is the GPU; the tests have
one of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from native_kernels.backend import Activation, RopeOrder
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.layouts import n_gpu_bytes

Norm = Literal["rms", "layer"]
KvCodec = Literal["f32", "f16", "q8_0"]


@dataclass(frozen=True)
class GpuMatrix:
    """A weight matrix on the GPU. planes: addresses of its parts, each [n_rows, row bytes], as
    native_kernels/cuda/layouts.py lays out the codec."""

    n_rows: int
    n_cols: int
    codec: str
    planes: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return n_gpu_bytes(self.codec, self.n_rows, self.n_cols)

    @property
    def reads_bytes(self) -> bool:
        """Whether it is multiplied with the 8-bit form of a vector."""
        return self.codec not in ("f32", "f16", "bf16") and self.codec in ROW_CODECS


@dataclass(frozen=True)
class GpuVector:
    """n numbers on the GPU: values f32 [n]; and rounded, as quantised matrices read them: bytes i8 [n], zeros up to a
    multiple of 64, and scales f32 [n / 32 rounded up, 2]: a block's scale, and that times the sum of its bytes. Both
    are 0 where nobody reads them."""

    n: int
    values: int
    bytes: int = 0
    scales: int = 0


@dataclass(frozen=True)
class GpuNorm:
    """A norm's weights, f32 [n]; bias 0: none."""

    kind: Norm
    weight: int
    bias: int
    eps: float


@dataclass(frozen=True)
class GpuKv:
    """One layer's keys and values: [H_kv, capacity, head_dim] each, in f32, f16 or bytes; of bytes the scales f16
    [H_kv, capacity, head_dim / 32 rounded up]."""

    codec: KvCodec
    keys: int
    values: int
    key_scales: int
    value_scales: int
    n_kv_heads: int
    head_dim: int
    capacity: int


@dataclass(frozen=True)
class GpuBlock:
    """The hot neurons of a layer, by slots: gate, up and down_t [S, D], biases f32 [S] (0: none).

    neuron_in: i32 [S], which neuron lies in each slot; below 0: none. fired: u32 [S], counted up by `hidden` where a
    neuron fires.
    """

    gate: GpuMatrix | None
    up: GpuMatrix
    down_t: GpuMatrix
    gate_bias: int
    up_bias: int
    neuron_in: int
    fired: int

    @property
    def n_slots(self) -> int:
        return self.up.n_rows


class Memory(Protocol):
    """Bytes on the GPU, or (device_address) of the host that the GPU sees too."""

    address: int
    n_bytes: int

    def free(self) -> None: ...


class HostMemory(Memory, Protocol):
    """Pinned bytes of the host. address: the host's name for them; device_address: the GPU's."""

    device_address: int

    def as_array(self, dtype: Any, count: int, offset: int = 0) -> Any:
        """The bytes as a NumPy array [count], which must not outlive `free`."""


class Work(Protocol):
    """Operators that were captured, to be launched again and again. handle: what compiled code launches it by."""

    handle: int

    def close(self) -> None: ...


class Mark(Protocol):
    """A point in captured work, and when it was last reached."""

    def seconds_since(self, earlier: Any) -> float:
        """Between two marks of a GPU that have been reached."""

    def close(self) -> None: ...


class Gpu(Protocol):
    """One GPU's memory, stream and operators. All addresses are the GPU's unless said otherwise; 0: none.

    Dimension letters: N rows, D columns, F neurons, S slots, H heads. Vectors of numbers are f32.
    Raises, all of it: CudaError; where memory is asked for, CudaOutOfMemoryError.
    """

    stream_handle: int
    launch_function: int  # address of int f(work handle, stream handle), for native_kernels/cpu/runtime/handover.py
    n_multiprocessors: int

    # ------------------------------------------------------------ memory and execution

    def enter(self) -> None:
        """Makes the GPU the calling thread's; before anything else there."""

    def allocate(self, n_bytes: int) -> Memory:
        """Memory of the GPU, aligned to 256 bytes."""

    def pin(self, n_bytes: int) -> HostMemory:
        """Memory of the host that the GPU reads and writes."""

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        """From the host's address `source` (pinned: while the caller goes on)."""

    def download(self, to: int, source: int, n_bytes: int) -> None:
        """To the host's address `to`."""

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        """Every byte to the value."""

    def synchronize(self) -> None:
        """Waits until all that was asked for is done. Raises: CudaError for what went wrong."""

    def captured(self, work: Callable[[], None]) -> Work:
        """The operators that `work` asks for, to be launched later; they do not run now."""

    def mark(self) -> Mark:
        """A point of the work that is being captured."""

    def launch(self, work: Work) -> None:
        """Puts captured work into the stream."""

    def close(self) -> None:
        """Gives back stream, modules and context; memory and work must be given back before."""

    # ------------------------------------------------------------ products (products.py)

    def unpack_rows(
        self, raw: int, raw_stride: int, n_rows: int, to: GpuMatrix, source_codec: str, rows: int = 0, first: int = 0
    ) -> None:
        """Rows as a file or a bundle stores them (on the GPU at `raw`, `raw_stride` bytes apart, in source_codec,
        which may be a lane form such as q4_0.lanes) into `to`: into the rows i32 [n_rows] at the address `rows`, or
        from `first` on."""

    def quantise(self, x: GpuVector) -> None:
        """The bytes and scales of x from its values: scale = largest magnitude of 32 / 127, rounded to nearest even."""

    def multiply(
        self, matrices: Sequence[GpuMatrix], x: GpuVector, outs: Sequence[int], biases: Sequence[int] = (),
        relu: bool = False,
    ) -> None:  # fmt: skip
        """outs[i] [N_i] = matrices[i] x (+ bias), all [N_i, D]; relu: negative results become 0. Reads x's 8-bit form
        where the codec is quantised."""

    def expect(
        self, matrix: GpuMatrix, x: GpuVector, bias: int, threshold: float, bits: int, among: int = 0,
        copied: int = 0,
    ) -> None:  # fmt: skip
        """bits u32 [N / 32 rounded up]: neuron i's bit is set where row i times x (+ bias) reaches the threshold; of
        `among`, bits too, only set ones are read and can be set. copied u32: counted up by the rows that were read.

        The matrix may be a copy (copy1 to copy4)."""

    def signs(self, x: GpuVector, to: GpuVector) -> None:
        """to = 1 where x >= 0, else -1: values, bytes and scales."""

    # ------------------------------------------------------------ neurons (neurons.py)

    def hidden(
        self, block: GpuBlock, x: GpuVector, bits: int, activation: Activation, threshold: float, h: int,
        counts: int, gate_first: bool,
    ) -> None:  # fmt: skip
        """h [S]: what goes into down: activation(gate x) * up x, or activation(up x) without a gate, as
        cpu/ffn/sparse_ffn.py; 0 for neurons whose bit in `bits` (by neuron number; 0: all) is not set, whose
        rows are not read. gate_first: up is read only where gate fires, in a second step. counts u32 [3], added to: how
        many were computed, passed the first activation, fired (drelu: both)."""

    def down_parts(self, block: GpuBlock) -> int:
        """How many partial sums `down` leaves for such a block."""

    def down(self, block: GpuBlock, h: int, parts: int) -> None:
        """parts [n, D]: partial sums of h[s] * row s of down_t. Rows where h is 0 are not read."""

    def activate(
        self, first: int, up: int, n: int, activation: Activation, threshold: float, to: GpuVector, counts: int
    ) -> None:  # fmt: skip
        """to [n] = activation(first) * up, or activation(first) where up is 0: of a block whose down lies row-wise, so
        that all of it is on the GPU or none. counts as `hidden`."""

    # ------------------------------------------------------------ the stream (token_ops.py)

    def advance(
        self, stream: int, n: int, parts: int = 0, n_parts: int = 0, others: Sequence[int] = (),
        norm: GpuNorm | None = None, to: GpuVector | None = None,
    ) -> None:  # fmt: skip
        """stream [n] += sum of parts [n_parts, n] + sum of others (each [n], in this order; may lie in pinned memory
        that the CPU has just written). Then, where a norm is given: to = norm of the stream, with its 8-bit form where
        `to` has one; `to.values` may be the stream itself."""

    def norm(self, x: int, norm: GpuNorm, to: GpuVector) -> None:
        """to = norm of x [to.n]; may be in place."""

    def copy(self, source: int, to: int, n_words: int) -> None:
        """n_words u32 from one place to another; either may be pinned memory of the host."""

    def angles(self, state: int, frequencies: int, scale: float, n: int, to: int) -> None:
        """to [n, 2] = cosine and sine, times scale, of position * frequency; state i32: [0] is the position;
        frequencies f64 [n]."""

    def rotate_and_store(
        self, qkv: int, n_heads: int, kv: GpuKv, state: int, angles: int, n_angles: int, order: RopeOrder,
        q_norm: GpuNorm | None, k_norm: GpuNorm | None,
    ) -> None:  # fmt: skip
        """qkv [H + 2 H_kv, head_dim] of one position: norms over each head of q and of k (those that there are), then
        rotation of the first 2 n_angles values of each (0: none), in place; k and v go into kv at position state[0]."""

    def attend(
        self, q: int, n_heads: int, kv: GpuKv, state: int, to: GpuVector, scale: float, softcap: float | None,
        window: int | None,
    ) -> None:  # fmt: skip
        """to [H * head_dim] = attention of q [H, head_dim] over positions 0 to state[0], of them the last `window`."""

    def softcap(self, x: int, n: int, cap: float) -> None:
        """x = cap tanh(x / cap), in place."""

    # ------------------------------------------------------------ the exchange (token_ops.py)

    def publish(
        self, flag: int, epoch: int, values: int = 0, to_values: int = 0, n: int = 0, bits: int = 0, without: int = 0,
        to_bits: int = 0, n_words: int = 0,
    ) -> None:  # fmt: skip
        """Leaves values f32 [n] and bits & ~without u32 [n_words] (without 0: all of them) in pinned memory, then
        counts the i64 at `epoch` (the GPU's) up by one and writes it to `flag` (pinned): who sees the flag sees it."""


__all__ = [
    "Gpu", "GpuBlock", "GpuKv", "GpuMatrix", "GpuNorm", "GpuVector", "HostMemory", "KvCodec",
    "Memory", "Norm", "Work",
]  # fmt: skip
