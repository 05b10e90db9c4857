"""The interface between the engine and a GPU, in plain addresses and numbers: the operators and their meaning.

All work runs in order in one stream, except in `side_by_side`; only methods that say so wait. Every sum has a fixed
order, so that the same input gives the same bits. native_kernels/cuda/cuda_gpu.py is the GPU; the tests have a NumPy
fake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from native_kernels.backend import Activation, RopeOrder
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.layouts import n_gpu_bytes, plane_row_bytes
from native_kernels.specs import ONE_GROUP, DeltaSpec, ExpertGroups, LatentSpec, ShortConvSpec, Temperature, Weighing

Norm = Literal["rms", "layer"]
KvCodec = Literal["f32", "f16", "q8_0"]


@dataclass(frozen=True)
class GpuMatrix:
    """A weight matrix on the GPU.

    planes: addresses of its planes, each [n_rows, row bytes], laid out per codec in native_kernels/cuda/layouts.py.
    """

    n_rows: int
    n_cols: int
    codec: str
    planes: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return n_gpu_bytes(self.codec, self.n_rows, self.n_cols)

    def part(self, rows: range) -> GpuMatrix:
        widths = plane_row_bytes(self.codec, self.n_cols)
        planes = tuple(at + rows.start * width for at, width in zip(self.planes, widths, strict=True))
        return replace(self, n_rows=len(rows), planes=planes)

    @property
    def reads_bytes(self) -> bool:
        """Whether it is multiplied with the 8-bit form of a vector."""
        return self.codec not in ("f32", "f16", "bf16") and self.codec in ROW_CODECS


@dataclass(frozen=True)
class GpuVector:
    """n numbers on the GPU: values f32 [n], and their rounded form for quantised matrices.

    The rounded form is bytes i8 [n], padded with zeros to a multiple of 64, and scales f32 [n / 32 rounded up, 2]: a
    block's scale, and that times the sum of its bytes. Both addresses are 0 if unused.
    """

    n: int
    values: int
    bytes: int = 0
    scales: int = 0


@dataclass(frozen=True)
class VectorBatch:
    """n vectors for one operator. step: bytes from one vector to the next, and from its result to the next result."""

    n: int = 1
    step: int = 0


ONE_VECTOR = VectorBatch()


@dataclass(frozen=True)
class GpuNorm:
    """A norm's weights, f32 [n]; bias 0: none."""

    kind: Norm
    weight: int
    bias: int
    eps: float


@dataclass(frozen=True)
class GpuKv:
    """One layer's keys and values: [H_kv, capacity, head_dim] each, in f32, f16 or bytes.

    Bytes have scales f16 [H_kv, capacity, head_dim / 32 rounded up]. With latent attention, values are the keys.
    """

    codec: KvCodec
    keys: int
    values: int
    key_scales: int
    value_scales: int
    n_kv_heads: int
    head_dim: int
    capacity: int

    @property
    def is_shared(self) -> bool:
        """Whether a position's key is its value too."""
        return self.keys == self.values


@dataclass(frozen=True)
class GpuAngles:
    """Rotary angles of one position: f32 [n, 2], cosine and sine. n 0: nothing is rotated.

    norm_last: the norms of heads apply after the rotation. temperature: None: queries do not grow.
    """

    values: int
    n: int
    order: RopeOrder
    norm_last: bool = False
    temperature: Temperature | None = None


@dataclass(frozen=True)
class GpuHeads:
    """The operations on a position's heads before attention: norms of each head of q, k and v; None: none.

    n: heads of q. v_norm has no weights (0). v_is_k: v is k before its norm and rotation, instead of what is in its
    place. stored: whether there are k and v; otherwise the layer reads those of another one, and only q is computed.
    """

    n: int
    q_norm: GpuNorm | None = None
    k_norm: GpuNorm | None = None
    v_norm: GpuNorm | None = None
    v_is_k: bool = False
    stored: bool = True


@dataclass(frozen=True)
class GpuScoring:
    """How attention scores positions, as Scoring. sinks f32 [H]: an extra score per head, without a value; 0: none."""

    scale: float
    softcap: float | None = None
    window: int | None = None
    sinks: int = 0
    chunked: bool = False


@dataclass(frozen=True)
class GpuSequences:
    """Sequences that share a layer's keys and values: sequence t has `slot` positions of them, from slot * t on.

    states i32 [n]: the latest position of each.
    """

    n: int
    slot: int
    states: int


@dataclass(frozen=True)
class GpuLatent:
    """Numbers of T positions in latent attention with R rotated numbers: addresses of f32 arrays.

    q [T, H, key_dim + R], k [T, rank + R], queries [T, H, rank + R]. norm: of the latent vector.
    """

    spec: LatentSpec
    n_heads: int
    rotated: int
    q: int
    k: int
    queries: int
    norm: GpuNorm


@dataclass(frozen=True)
class GpuDelta:
    """Weights of a gated delta net or Mamba-2 besides its projections: addresses of f32 arrays, as DeltaWeights.

    done: of Mamba-2, zeros of delta_net.done_bytes for each sequence, by which the blocks of a launch know which is the
    last.
    """

    spec: DeltaSpec
    conv: int
    decay: int
    alpha_bias: int
    norm: int
    epsilon: float
    conv_bias: int = 0
    skip: int = 0
    done: int = 0


@dataclass(frozen=True)
class GpuDeltaInput:
    """Projections for a gated delta net or Mamba-2: the next n_each positions of each of n_sequences sequences.

    Addresses of f32 arrays, shaped as DeltaInput with T = n_sequences x n_each rows.
    """

    qkv: int
    gate: int
    alpha: int
    beta: int
    n_each: int = 1
    n_sequences: int = 1


@dataclass(frozen=True)
class GpuShortConv:
    """A short convolution. conv: address of its weights, f32 [channels, conv_width]."""

    spec: ShortConvSpec
    conv: int


@dataclass(frozen=True)
class GpuStates:
    """A layer's states, f32 [state_size] each: read at `first` and written at `second`, which may be the same.

    The state of sequence s is s * step numbers behind. swap i32 [n_sequences]: where it is not 0, the state is read at
    `second` and written at `first`; 0: nowhere.
    """

    first: int
    second: int
    swap: int = 0
    step: int = 0


@dataclass(frozen=True)
class GpuStreams:
    """n residual streams of T positions: addresses of f32 arrays [n, T, width] each, streams `step` numbers apart.

    predicted: the streams as predicted before a layer.
    """

    n: int
    width: int
    values: int
    predicted: int
    step: int
    n_tokens: int = 1


@dataclass(frozen=True)
class GpuCopy:
    """n words of 32 bits, from one address to another."""

    source: int
    to: int
    n: int


NOTHING = GpuCopy(0, 0, 0)


@dataclass(frozen=True)
class GpuBlock:
    """The hot neurons of a layer, by slots: gate, up and down_t [S, D], biases f32 [S] (0: none).

    neuron_in: i32 [S], the neuron in each slot; negative: none. fired: u32 [S], incremented by `hidden` when a neuron
    fires.
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


@dataclass(frozen=True)
class GpuExperts:
    """Experts of a layer, in slots of one each: gate and up [S * F, D]; down [S * D, F], or [S * F, D] by neuron.

    width: F, neurons of an expert. Biases f32 [S, F], down's [S, D]; 0: none. down_is_transposed: by neuron.
    """

    n_slots: int
    width: int
    gate: GpuMatrix | None
    up: GpuMatrix
    down: GpuMatrix
    down_is_transposed: bool
    gate_bias: int = 0
    up_bias: int = 0
    down_bias: int = 0


@dataclass(frozen=True)
class GpuChoice:
    """Addresses of the experts chosen for a token: ids i32 [K], weights f32 [K + 1], the last the shared expert's.

    slots i32 [K]: the slot of each; negative: not resident. bias f32 [E]: added to the weights for the choice alone; 0:
    the scores choose. factor: on the weights. factors f32 [E]: on those of each expert; 0: none.
    """

    n_used: int
    ids: int
    weights: int
    slots: int
    bias: int = 0
    factor: float = 1.0
    factors: int = 0

    def of_shared(self, slot: int, weight: int = 0) -> GpuChoice:
        """Return the choice of the shared expert alone.

        slot: address of its slot, an i32. weight: address of an f32 that replaces the chosen weight.
        """
        return GpuChoice(1, 0, weight or self.weights + 4 * self.n_used, slot)


class Memory(Protocol):
    """Bytes on the GPU, or host bytes that the GPU sees too (at device_address)."""

    address: int
    n_bytes: int

    def free(self) -> None: ...


class HostMemory(Memory, Protocol):
    """Pinned host memory. address: on the host; device_address: on the GPU."""

    device_address: int

    def as_array(self, dtype: Any, count: int, offset: int = 0) -> Any:
        """Return the bytes as a NumPy array [count], which must not outlive `free`."""


class Copier(Protocol):
    """Copies to GPU memory, in order, beside the GPU's other work. All methods raise CudaError."""

    def follow(self) -> None:
        """Let later copies wait for the work that the GPU's stream has been given so far."""

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        """As Gpu.upload. Pinned memory must stay as it is until `has_ended`."""

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        """Copy rows as Gpu.upload_rows does. Pinned memory must stay as it is until `has_ended`."""

    def has_ended(self) -> bool:
        """Return whether all copies so far are done."""

    def wait(self) -> None:
        """Wait for all copies so far."""

    def close(self) -> None:
        """Wait for the copies, and release the queue. Errors are ignored."""


class Work(Protocol):
    """Captured operators that can be launched repeatedly. handle: for launches from compiled code."""

    handle: int

    def close(self) -> None: ...


class Mark(Protocol):
    """A point in captured work, and the time it was last reached."""

    def seconds_since(self, earlier: Any) -> float:
        """Return the seconds between two marks of a GPU; both must have been reached."""

    def close(self) -> None: ...


class Gpu(Protocol):
    """One GPU's memory, stream and operators. Addresses are the GPU's unless stated otherwise; 0: none.

    Dimension letters: N rows, D columns, F neurons, S slots, H heads. Vectors of numbers are f32.
    All methods raise CudaError; those that allocate memory, CudaOutOfMemoryError.
    """

    stream_handle: int
    launch_function: int  # address of int f(work handle, stream handle), for native_kernels/cpu/runtime/handover.py
    n_multiprocessors: int

    # --- memory and execution

    def enter(self) -> None:
        """Make the GPU's context current in the calling thread; must come first there."""

    def allocate(self, n_bytes: int) -> Memory:
        """Allocate GPU memory, aligned to 256 bytes."""

    def pin(self, n_bytes: int) -> HostMemory:
        """Allocate host memory that the GPU reads and writes."""

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        """Copy from the host address `source`; asynchronous if that is pinned."""

    def download(self, to: int, source: int, n_bytes: int) -> None:
        """Copy to the host address `to`."""

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        """As `upload`, for n_rows of n_bytes each. steps: bytes from the beginning of a row to that of the next one."""

    def download_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        """As `download`, for n_rows of n_bytes each. steps: as in upload_rows."""

    def move_rows(self, to: int, source: int, step: int, n_bytes: int, n_rows: int) -> None:
        """Copy n_rows of n_bytes each within the GPU, which must not overlap. step: as in upload_rows."""

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        """Set every byte to the value."""

    def copier(self) -> Copier:
        """Return a queue of copies beside the stream."""

    def synchronize(self) -> None:
        """Wait until all queued work is done. Raises: CudaError for an error in it."""

    def side_by_side(self, works: Sequence[Callable[[], None]]) -> None:
        """Queue works that may run at the same time: none reads or writes what another one writes.

        Later work waits for all of them. Products with the same matrices are faster as one operator (`VectorBatch`).
        """

    def captured(self, work: Callable[[], None]) -> Work:
        """Capture the operators that `work` queues, without running them."""

    def mark(self) -> Mark:
        """Add a mark to the work that is being captured."""

    def launch(self, work: Work) -> None:
        """Queue captured work."""

    def close(self) -> None:
        """Release stream, modules and context; memory and work must have been released before."""

    # --- products (products.py)

    def unpack_rows(
        self, raw: int, raw_stride: int, n_rows: int, to: GpuMatrix, source_codec: str, rows: int = 0, first: int = 0
    ) -> None:
        """Convert stored rows to the planes of `to`.

        The rows are on the GPU at `raw`, `raw_stride` bytes apart, in source_codec as in a file or a bundle (lane forms
        such as q4_0.lanes too). They go to the rows i32 [n_rows] at the address `rows`, or to consecutive rows from
        `first` on.
        """

    def quantise(self, x: GpuVector) -> None:
        """Compute the bytes and scales of x from its values: scale = largest magnitude of 32 / 127, ties to even."""

    def multiply(
        self, matrices: Sequence[GpuMatrix], x: GpuVector, outs: Sequence[int], biases: Sequence[int] = (),
        relu: bool = False, batch: VectorBatch = ONE_VECTOR,
    ) -> None:  # fmt: skip
        """Compute outs[i] [N_i] = matrices[i] x (+ bias), all [N_i, D]; relu: negative results become 0.

        Quantised codecs read x's 8-bit form. batch: multiply 2, 4 or 8 vectors, each with the same bits as alone.
        """

    def multiply_each(self, matrix: GpuMatrix, n: int, x: GpuVector, out: int, out_step: int) -> None:
        """Multiply each of n equal parts of the matrix's rows by its own part of x [n, D].

        out: results of the first part; those of the next ones begin out_step numbers apart.
        """

    def expect(
        self, matrix: GpuMatrix, x: GpuVector, bias: int, threshold: float, bits: int, among: int = 0,
        copied: int = 0,
    ) -> None:  # fmt: skip
        """Predict: set neuron i's bit in bits u32 [N / 32 rounded up] if row i times x (+ bias) reaches the threshold.

        With `among`, also a bit mask, only rows with a set bit are read and can be set. copied u32: incremented by the
        rows read. The matrix may be a copy (copy1 to copy4).
        """

    def signs(self, x: GpuVector, to: GpuVector) -> None:
        """Set `to` to 1 where x >= 0, else -1: values, bytes and scales."""

    # --- neurons (neurons.py)

    def hidden(
        self, block: GpuBlock, x: GpuVector, bits: int, activation: Activation, threshold: float, h: int,
        counts: int, gate_first: bool,
    ) -> None:  # fmt: skip
        """Compute h [S], the input of down: activation(gate x) * up x, or activation(up x) without a gate.

        The same as cpu/ffn/sparse_ffn.py. h is 0 for neurons whose bit in `bits` (by neuron number; 0: all) is not set;
        their rows are not read. gate_first: read up only for active gates, in a second step. counts u32 [3],
        incremented: neurons computed, those with an active gate, those that fired (drelu: gate and up active).
        """

    def down_parts(self, block: GpuBlock) -> int:
        """Return the number of partial sums that `down` writes for such a block."""

    def down(self, block: GpuBlock, h: int, parts: int) -> None:
        """Compute parts [n, D]: partial sums of h[s] * row s of down_t. Rows with h = 0 are not read."""

    def activate(
        self, first: int, up: int, n: int, activation: Activation, threshold: float, to: GpuVector, counts: int
    ) -> None:  # fmt: skip
        """Compute to [n] = activation(first) * up, or activation(first) if up is 0.

        For an FFN with row-wise down, which is on the GPU entirely or not at all. counts: as in `hidden`.
        """

    # --- experts (experts.py)

    def choose(
        self, scores: int, n_experts: int, slot_of: int, choice: GpuChoice, weighing: Weighing,
        groups: ExpertGroups = ONE_GROUP, shared_score: int = 0,
    ) -> None:  # fmt: skip
        """Write the choice for the router's scores f32 [E], as engine/model/router.py does.

        Equal scores rank by expert id, and NaN ranks last. slot_of i32 [E]: the slot of each expert. groups: those that
        experts are chosen from. shared_score f32 [1]: its logistic function weighs the shared expert; 0: weight 1.
        """

    def expert_products(
        self, experts: GpuExperts, x: GpuVector, choice: GpuChoice, first: int, up: int, weighed: bool = False
    ) -> None:  # fmt: skip
        """Compute first [K, F] = gate x and up [K, F] = up x of the chosen experts, or first = up x without a gate.

        Adds biases. The result is 0 for experts that are not resident; their rows are not read. weighed: gate x is
        multiplied by the expert's weight, which `expert_down` multiplies with too: the same as weighing x, because the
        output is linear in up x.
        """

    def expert_parts(self, experts: GpuExperts, n_used: int) -> int:
        """Return the number of partial sums that `expert_down` writes."""

    def expert_down(self, experts: GpuExperts, h: GpuVector, choice: GpuChoice, parts: int) -> None:
        """Compute parts [n, D], whose sum is that of the chosen experts' outputs for h [K * F], each times its weight.

        Experts that are not resident add 0. F is a multiple of 4, and of 32 if down is quantised. Neurons with h = 0
        are not read if down is stored by neuron.
        """

    # --- the stream (token_ops.py)

    def advance(
        self, stream: int, n: int, parts: int = 0, n_parts: int = 0, others: Sequence[int] = (),
        norm: GpuNorm | None = None, to: GpuVector | None = None, factor: float = 1.0,
    ) -> None:  # fmt: skip
        """Add the sum of parts [n_parts, n] and the sum of others to stream [n], and multiply it by the factor; with a
        norm, also write the normed stream.

        others: each [n], added in this order; may be pinned memory that the CPU has just written. to: norm of the
        stream, with its 8-bit form if `to` has one; `to.values` may be the stream itself.
        """

    def total(
        self, out: int, n: int, parts: int, n_parts: int, others: Sequence[int] = (), norm: GpuNorm | None = None
    ) -> None:
        """Compute out [n] = the sum of parts [n_parts, n] and the sum of others, each [n], or its norm."""

    def norm(self, x: int, norm: GpuNorm, to: GpuVector, again: bool = False) -> None:
        """Compute to = norm of x [to.n]; may be in place. again: the last operator normed x too, in the same way."""

    def norm_rows(self, x: int, n_rows: int, n: int, norm: GpuNorm, added: int) -> None:
        """Norm each row of x [n_rows, n] by an RMS norm, in place, and add `added` [n_rows, n] to it.

        added: may be pinned memory that the CPU has just written.
        """

    def copy(self, source: int, to: int, n_words: int) -> None:
        """Copy n_words u32; either address may be pinned host memory."""

    def angles(self, state: int, frequencies: int, scale: float, n: int, to: int) -> None:
        """Compute to [n, 2] = cosine and sine, times scale, of position * frequency.

        state i32: [0] is the position. frequencies f64 [n].
        """

    def rotate_and_store(self, qkv: int, heads: GpuHeads, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        """Norm and rotate the heads of one position in place, and store k and v into kv at position state[0].

        qkv [H + 2 H_kv, head_dim]. Before or after the norms, the first 2 angles.n values of q and k are rotated.
        """

    def attend(self, q: int, n_heads: int, kv: GpuKv, state: int, to: GpuVector, scoring: GpuScoring) -> None:
        """Compute to [H * head_dim] = attention of q [H, head_dim] over positions 0 to state[0], limited by the window
        as in Scoring. If values are the keys, `to` may have fewer numbers per head: the first ones.
        """

    def softcap(self, x: int, n: int, cap: float) -> None:
        """Compute x = cap tanh(x / cap), in place."""

    # --- several streams (streams.py)

    def predict_streams(self, x: GpuStreams, scores: int, mixture: int) -> None:
        """Set `predicted` to each stream plus a mixture of all, and the first stream to the first of them.

        The mixture's coefficients [n, n] are mixture f32 [n n, n] times the tanh of scores f32 [T, n].
        """

    def correct_streams(self, x: GpuStreams, scores: int, shares: int, scale: int, scaled: GpuVector) -> None:
        """Set each stream to its prediction plus 1 + its share times what the first stream has changed since.

        The shares [n] are shares f32 [n, n] times the tanh of scores f32 [T, n]. scaled [T, width], rounded as one
        vector: the first stream times scale f32 [width].
        """

    def add_beside(self, x: GpuStreams, added: int) -> None:
        """Add `added` [T, width] to all streams but the first."""

    def scale_alike(self, x: GpuStreams, others: int, least: float) -> None:
        """Scale the n - 1 vectors [T, width] at `others`, `step` numbers apart, to the first stream's size.

        The size is the root mean square of a position; their own mean square counts as at least `least`.
        """

    def cut_off(self, x: int, n: int, cutoff: float, n_tokens: int = 1, step: int = 0) -> None:
        """Reduce each row x [T, n] by its mean plus `cutoff` standard deviations; negative results become 0.

        step: numbers between two rows.
        """

    # --- latent attention (latent.py)

    def place_latent(self, x: GpuLatent, plain: GpuVector, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        """Norm and rotate the key of one position, and store it into kv at position state[0].

        The rotated numbers of q go to the end of each of `queries`, the others to plain [H, key_dim].
        """

    # --- layers with a state (delta_net.py)

    def gated_delta(self, x: GpuDeltaInput, w: GpuDelta, states: GpuStates, prepared: int, to: GpuVector) -> None:
        """Compute to [T, H_v x value_dim]: a gated delta net or Mamba-2 over x, as Operators.gated_delta, and write
        the states. In Mamba-2 the 8-bit form too, if `to` has one, for one position whose state is not in place.

        prepared: [T, prepared_width of the spec], overwritten.
        """

    def short_conv(
        self, x: int, w: GpuShortConv, states: GpuStates, to: int, n_each: int = 1, n_sequences: int = 1
    ) -> None:
        """Compute to [T, channels]: a gated short convolution over x, as Operators.short_conv, and write the states.

        x f32 [T, 3, channels]: the gate behind the convolution, the gate before it, the values; of the next n_each
        positions of n_sequences sequences, one after another.
        """

    def gated(self, x: GpuVector, gate: int) -> None:
        """Compute x times the logistic function of gate [x.n], in place, and the 8-bit form if x has one."""

    # --- the exchange (token_ops.py)

    def publish(
        self, flag: int, epoch: int, values: GpuCopy = NOTHING, bits: GpuCopy = NOTHING, without: int = 0
    ) -> None:
        """Copy values f32 and bits & ~without u32 (without 0: all bits) to pinned memory, then set the flag.

        Increments the i64 at `epoch` (on the GPU) and writes it to `flag` (pinned). A reader that sees the flag sees
        the data.
        """


__all__ = [
    "ONE_VECTOR",
    "Gpu", "GpuBlock", "GpuChoice", "GpuDelta", "GpuDeltaInput", "GpuExperts", "GpuKv", "GpuMatrix", "GpuNorm",
    "GpuStates", "GpuVector", "HostMemory", "KvCodec", "Memory", "Norm", "VectorBatch", "Work",
]  # fmt: skip
