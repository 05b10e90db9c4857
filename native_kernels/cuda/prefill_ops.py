"""Operators on many positions at once, for prefill: products on tensor cores, attention, norms, activations.

They are queued in one stream; nothing waits. Numbers are f32 [T, n], rows `step` numbers apart. The input of a product
is rounded to halves row by row, each scaled by a power of two against overflow. Weights become halves too (f32 and bf16
lose precision, and are clamped to 65504), and sums are f32: a product is exact to about 2^-11 of its terms. Attention
over f32 keys and values is f32 throughout; otherwise it uses halves as well.

The kernels here sum each position by itself, in an order that depends only on the sizes of the matrices. With the
library, the same call gives the same bits from run to run, but the order of a position's sums may depend on the number
of positions. A prompt that is cut elsewhere, or starts after a cached prefix, may then differ in the last bits of f32.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from ctypes import c_float, c_int, c_uint64

from native_kernels.backend import Activation
from native_kernels.cuda.cublas_products import LibraryProducts
from native_kernels.cuda.delta_net import GpuDeltaOps
from native_kernels.cuda.experts import choice_job, choice_threads
from native_kernels.cuda.gpu import GpuChoice, GpuHeads, GpuKv, GpuMatrix, GpuNorm, GpuScoring, KvCodec
from native_kernels.cuda.group_products import GroupProducts
from native_kernels.cuda.latent import GpuLatentOps
from native_kernels.cuda.layouts import PLANE_FIELDS, plane_row_bytes
from native_kernels.cuda.operands import Operand, Product, Result
from native_kernels.cuda.prompt_rows import Groups, HostRows, RoundedRows, RowAngles, Rows, StoredMatrix, Tile, Weights
from native_kernels.cuda.runtime.cublas import LEAST_POSITIONS, Cublas, LibraryError
from native_kernels.cuda.runtime.driver import Device, Function, Launch, Launches, Module, Stream
from native_kernels.cuda.runtime.modules import load
from native_kernels.cuda.streams import GpuStreamOps
from native_kernels.cuda.token_ops import temperature_words, v_norm_words
from native_kernels.cuda.wgmma_products import CAPABILITY, WgmmaProducts
from native_kernels.kv_blocks import KvLayout
from native_kernels.specs import ExpertGroups, Weighing

log = logging.getLogger(__name__)

_ACTIVATIONS: dict[Activation, int] = {
    "relu": 0,
    "drelu": 1,
    "fatrelu": 2,
    "silu": 3,
    "gelu": 4,
    "gelu-tanh": 5,
    "clamped-silu": 6,
    "relu2": 7,
}
_NORMS = {"rms": 1, "layer": 2}
_CODECS: dict[KvCodec, int] = {"f32": 0, "f16": 1, "q8_0": 2}
_PLAIN = ("f32", "f16", "bf16")  # stored as on the GPU
_DEQUANTISED = ("f32", "bf16", *PLANE_FIELDS)
_HEAD_DIMS, _HALF_DIMS, _WIDE_DIMS = (64, 128, 256, 512, 576), (64, 128), (256, 512, 576)
MAX_HEAD_DIM = _HEAD_DIMS[-1]
_HALF_KEYS = 64  # flash_half.cu
_RINGS = {64: (128, 6), 128: (128, 6), 256: (64, 5)}  # positions of a tile, and tiles of the ring: flash_wgmma.cu
_WIDE_KEYS, _WIDE_BLOCKS = 32, {256: (48, 2), 512: (48, 4), 576: (32, 6)}  # queries and parts of a head: flash_wide.cu
_OF_SHARED = 576  # that kernel takes only heads of this many numbers, whose keys are the values too
_STORED = (*PLANE_FIELDS, "q8_0_lanes", "q4_0_lanes")
_KERNELS = {
    "gemm": (
        "multiply_rows",
        "multiply_each_rows",
        "multiply_columns",
        "multiply_group_rows",
        "multiply_group_columns",
    ),
    "flash": tuple(f"attend_{dim}" for dim in _HEAD_DIMS),
    "flash_half": tuple(f"attend_half_{dim}" for dim in _HALF_DIMS),
    "flash_wide": tuple(f"attend_wide_{dim}" for dim in _WIDE_DIMS),
    "finish": ("scale_rows",),
    "gather": ("gather_rows",),
    "expert_rows": ("score_floats", "score_halves", "group_rows", "take_rows", "sum_experts"),
    "router": ("choose",),
    "kv_blocks": ("blocks_to_rows", "rows_to_blocks"),
    "prefill": ("round_rows", "activate_rows", "scale_stream", "tally", "place_heads"),
    "dequantise": (*(f"dequantise_{one}" for one in _DEQUANTISED), *(f"stored_{one}" for one in _STORED)),
}
_SIDE = 128  # rows and columns of the tile that a block computes
PIECES_BYTES = (64 << 10, 96 << 10)  # shared memory per block: two stages before compute capability 8.0, else three
_MOST_ROWS = 65535  # of one launch
_ROUNDED_BY_THREAD, _ACTIVATED_BY_THREAD = 16, 8  # numbers of a row, as in prefill.cu
_MOST_ROW_THREADS, _MOST_ACTIVE_THREADS = 1024, 512
_MOST_HELD = 64_000  # bytes of a row in shared memory; every GPU has that much
# Gathering rows of host memory waits for the bus, so at most this many multiprocessors are enough. By its registers it
# displaces one block of a product on each of them: with 8 of an H200's 132, all blocks of 512 positions and 8192
# columns still fit at once.
_GATHERING_SHARE, _MOST_GATHERING, _GATHERING_THREADS = 8, 8, 512
MOST_GATHERED = 3  # matrices at once


class _Source(ctypes.Structure):
    """As in gather.cu."""

    _fields_ = tuple((name, c_uint64) for name in ("rows", "stride", "row_bytes", "to", "step"))


class _Layout(ctypes.Structure):
    """As in kv_blocks.cu."""

    _fields_ = tuple(
        (name, c_int) for name in ("dim", "padded", "groups", "key_scales", "values", "value_scales", "block_bytes")
    )


class GpuPrefillOps:
    """The operators. stream: runs them; copy_stream: gathers weights meanwhile. The GPU must be entered.

    library: computes products of LEAST_POSITIONS and more, owned by the operators; None, the initial value: use the
    kernels here. failure: why the library was given up.
    Cost of construction: 5 ms, some seconds if the kernels must be compiled.
    Raises: NoMachineCodeError, CudaError; all operators raise CudaError.
    """

    library: LibraryProducts | None = None
    failure = ""

    def __init__(self, device: Device, stream: Stream, copy_stream: Stream) -> None:
        self.device, self.stream, self.copy_stream = device, stream, copy_stream
        self._row_threads: int | None = None  # threads of a block that rounds or activates a row; None: by row length
        self._modules: list[Module | GpuDeltaOps | GpuLatentOps | GpuStreamOps | GroupProducts] = []
        self._functions: dict[str, Function] = {}
        self._launches = Launches()  # of weights to halves and of products, most of which recur in every chunk
        for source, functions in _KERNELS.items():
            module = load(device, source)
            self._modules.append(module)
            self._functions |= {name: module.function(name) for name in functions}
        # Otherwise no product runs on a multiprocessor that gathers: half as fast on an H200 with one block on each.
        self._functions["gather_rows"].prefer_shared()
        self._pieces_bytes = PIECES_BYTES[device.capability >= (8, 0)]
        for name in _KERNELS["gemm"]:
            self._functions[name].allow_shared(self._pieces_bytes)
        self._functions["activate_rows"].allow_shared(_MOST_HELD)
        self._wide_dims = [dim for dim in _WIDE_DIMS if device.capability >= (8, 0) or dim == _WIDE_DIMS[0]]
        for dim in _HALF_DIMS:
            self._functions[f"attend_half_{dim}"].allow_shared(_half_bytes(dim))
        for dim in self._wide_dims:
            self._functions[f"attend_wide_{dim}"].allow_shared(_wide_bytes(dim))
        self._ring_dims: list[int] = []
        if device.capability == CAPABILITY:
            module = load(device, "flash_wgmma")
            self._modules.append(module)
            for dim in _RINGS:
                name = f"attend_wgmma_{dim}"
                self._functions[name] = module.function(name)
                self._functions[name].allow_shared(_wgmma_bytes(dim))
                self._ring_dims.append(dim)
        self.wgmma: WgmmaProducts | None = None  # None: gemm.cu computes all products
        if device.capability == CAPABILITY and device.driver.offers("cuTensorMapEncodeTiled", "cuLaunchKernelEx"):
            module = load(device, "gemm_wgmma")
            self._modules.append(module)
            self.wgmma = WgmmaProducts(device, module.function)
        delta, latent = GpuDeltaOps(device, stream), GpuLatentOps(device, stream)
        self.groups = GroupProducts(device, stream)
        streams = GpuStreamOps(device, stream)
        self._modules += [delta, latent, streams, self.groups]
        self.place_latents = latent.place_latents
        self.predict_streams, self.correct_streams = streams.predict_streams, streams.correct_streams
        self.add_beside, self.scale_alike, self.cut_off = streams.add_beside, streams.scale_alike, streams.cut_off
        self.gated_delta, self.gated = delta.gated_delta, delta.gated
        self.short_conv = delta.short_conv
        self.gathering = min(_MOST_GATHERING, max(1, device.n_multiprocessors // _GATHERING_SHARE)), _GATHERING_THREADS

    def close(self) -> None:
        """Unload the kernels and the library."""
        library, self.library = self.library, None
        if library is not None:
            library.close()
        while self._modules:
            self._modules.pop().close()

    def by_library(self, library: Cublas) -> LibraryProducts:
        """Return the products of `library` in this stream."""
        return LibraryProducts(library, self._functions["scale_rows"], self.stream)

    # --- gathering

    def gather(self, rows: Sequence[HostRows], ids: int, n: int) -> None:
        """Copy row ids[i] of up to MOST_GATHERED host matrices to row i on the GPU, in copy_stream.

        ids: address of i32 [n] on the GPU; 0: row i. Each row is padded with zeros to a multiple of 16 bytes.
        """
        if any(one.to % 16 or one.step % 16 or one.step < one.row_bytes for one in rows):
            raise ValueError("rows on the GPU begin where sixteen bytes do, and do not overlap")
        sources = [_Source(one.address, one.stride, one.row_bytes, one.to, one.step) for one in rows]
        sources += [_Source()] * (MOST_GATHERED - len(sources))
        blocks, threads = self.gathering
        self._spare(blocks)
        self._functions["gather_rows"].launch(
            self.copy_stream, (blocks,), (threads,), *sources, c_int(len(rows)), c_uint64(ids), c_int(n)
        )

    def fetch(self, to: int, source: int, n_bytes: int) -> None:
        """Copy pinned host bytes at `source` to the GPU, in copy_stream."""
        self.copy_stream.upload(to, source, n_bytes)

    def gather_nothing(self) -> None:
        """Let products use the whole GPU until the next `gather`."""
        self._spare(0)

    def _spare(self, n: int) -> None:
        if self.library is not None:
            try:
                self.library.spare(n)
            except LibraryError as error:
                self._without_library(error)

    # --- products

    def multiply(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute out [T, n] = x [T, D] times the n consecutive `rows` of w [N, D] (+ bias [n]), or add it to out.

        rows None: all.
        """
        rows = range(w.n_rows) if rows is None else rows
        for row, some, at, step in self._pieces(w, rows, range(w.n_cols), tile):
            done = 4 * (row - rows.start)
            result = Result(out.address + done, out.step, bias and bias + done)
            part = Operand(at, some, w.n_cols, step)
            self._launch_product(Product("rows", x.operand(n_tokens, w.n_cols), x.factors, part, result, adds))

    def multiply_each(
        self, w: Weights, n: int, x: RoundedRows, x_apart: int, n_tokens: int, out: Rows, out_apart: int, tile: Tile
    ) -> None:
        """Multiply each of n equal parts of w's rows by its own columns of x, into its own columns of out.

        Columns of two parts begin x_apart and out_apart numbers apart, a multiple of 8 and of 4.
        """
        n_out, step = w.n_rows // n, -(-w.n_cols // 8) * 8
        most = n if w.codec == "f16" else tile.n_bytes // (2 * n_out * step)
        for first in range(0, n, max(1, most)):
            some = min(max(1, most), n - first)
            at, step = self.as_halves(w, first * n_out, some * n_out, tile)
            self._functions["multiply_each_rows"].launch(
                self.stream, (-(-n_tokens // _SIDE), -(-n_out // _SIDE), some), (256,),
                c_uint64(x.address + 2 * first * x_apart), c_uint64(x.step), c_uint64(at), c_uint64(step),
                c_uint64(out.address + 4 * first * out_apart), c_uint64(out.step), c_uint64(x.factors),
                c_int(n_tokens), c_int(n_out), c_int(w.n_cols), c_int(x_apart), c_int(out_apart),
                shared_bytes=self._pieces_bytes,
            )  # fmt: skip

    def multiply_two(
        self, pair: tuple[Weights, Weights], x: RoundedRows, n_tokens: int, outs: tuple[Rows, Rows], tile: Tile,
        biases: tuple[int, int] = (0, 0), rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute two `multiply`, in one launch if the matrices have one shape and codec, to occupy more of the GPU."""
        one, other = pair
        alike = (one.n_rows, one.n_cols, one.codec) == (other.n_rows, other.n_cols, other.codec)
        if not alike or type(one) is not type(other) or outs[0].step != outs[1].step:
            for w, out, bias in zip(pair, outs, biases, strict=True):
                self.multiply(w, x, n_tokens, out, tile, bias, False, rows)
            return
        rows = range(one.n_rows) if rows is None else rows
        halves = tile.halved()
        pieces = (self._pieces(w, rows, range(w.n_cols), half) for w, half in zip(pair, halves, strict=True))
        for (row, some, at, step), (_, _, other_at, _) in zip(*pieces, strict=True):
            done = 4 * (row - rows.start)
            result, other_result = (
                Result(out.address + done, out.step, bias and bias + done)
                for out, bias in zip(outs, biases, strict=True)
            )
            part = Operand(at, some, one.n_cols, step)
            second = part._replace(address=other_at), other_result
            operand = x.operand(n_tokens, one.n_cols)
            self._launch_product(Product("rows", operand, x.factors, part, result, other=second))

    def multiply_columns(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        columns: range | None = None,
    ) -> None:  # fmt: skip
        """Compute out [T, N] = x [T, n] times the n consecutive `columns` of w [N, F], from a multiple of 8 on.

        This is the contribution of some neurons with a row-wise down. columns None: all.
        """
        columns = range(w.n_cols) if columns is None else columns
        count = len(columns)
        for row, some, at, step in self._pieces(w, range(w.n_rows), columns, tile):
            result = Result(out.address + 4 * row, out.step, bias and bias + 4 * row)
            part = Operand(at, some, count, step)
            self._launch_product(Product("rows", x.operand(n_tokens, count), x.factors, part, result, adds))

    def multiply_transposed(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute out [T, D] = x [T, n] times the n consecutive `rows` (None: all) of w [F, D]: a transposed down."""
        rows = range(w.n_rows) if rows is None else rows
        for row, some, at, step in self._pieces(w, rows, range(w.n_cols), tile):
            fresh = row == rows.start
            result = Result(out.address, out.step, bias if fresh else 0)
            operand, part = x.operand(n_tokens, some, row - rows.start), Operand(at, some, w.n_cols, step)
            self._launch_product(Product("columns", operand, x.factors, part, result, adds or not fresh))

    def _pieces(self, w: Weights, rows: range, columns: range, tile: Tile) -> Iterator[tuple[int, int, int, int]]:
        """Yield (row, rows, address, step) of parts of the matrix as halves.

        All parts use the same tile: queue the product of one before requesting the next.
        """
        if w.codec == "f16":
            (at, row_bytes), *_ = _planes(w)
            yield rows.start, len(rows), at + rows.start * row_bytes + 2 * columns.start, row_bytes // 2
            return
        n_cols = len(columns)
        step = -(-n_cols // 8) * 8
        most = tile.n_bytes // (2 * step)
        most = most // _SIDE * _SIDE or most // 8 * 8
        if most == 0:
            raise ValueError(f"eight rows of {n_cols} halves do not lie in {tile.n_bytes} bytes")
        for row in rows[::most]:
            some = min(most, rows.stop - row)
            self.dequantise(w, row, some, columns.start, n_cols, tile.address, step)
            yield row, some, tile.address, step

    def dequantise(self, w: Weights, first: int, n_rows: int, column: int, n_cols: int, to: int, step: int) -> None:
        """Convert n_rows rows and n_cols columns of w to halves at `to`. column: the first, a multiple of 8."""
        for done in range(0, n_rows, _MOST_ROWS):
            key = w, first + done, min(_MOST_ROWS, n_rows - done), column, n_cols, to + 2 * done * step, step
            self._launches.run(key, lambda key=key: self._prepared_dequantise(*key))  # type: ignore[misc]

    def _prepared_dequantise(
        self, w: Weights, first: int, n_rows: int, column: int, n_cols: int, to: int, step: int
    ) -> Launch:
        places = [c_uint64(word) for pair in _planes(w) for word in pair]
        name = f"dequantise_{w.codec}"
        if isinstance(w, StoredMatrix) and w.codec not in _PLAIN:
            name = "stored_" + w.codec.replace(".", "_")
            if w.codec.endswith(".lanes"):
                places.append(c_int(-(-w.n_cols // 32)))  # type: ignore[arg-type]
        return self._functions[name].prepared(
            self.stream, (-(-n_cols // 1024), n_rows), (128,), *places, c_int(first), c_int(column), c_int(n_cols),
            c_uint64(to), c_uint64(step),
        )  # fmt: skip

    def _launch_product(self, product: Product) -> None:
        if self.library is not None and product.n_tokens >= LEAST_POSITIONS:
            try:
                self.library.multiply(product)
                return
            except LibraryError as error:
                self._without_library(error)
        if self.wgmma is not None:
            self.wgmma.launch(self.stream, product)
            return
        self._launches.run(product, lambda: self._prepared_product(product))

    def _prepared_product(self, product: Product) -> Launch:
        kind, x, factors, w, result, adds, other = product
        others: list[c_uint64] = []
        if kind == "rows":
            words = (other[0].address, other[1].address, other[1].bias) if other else (0, 0, 0)
            others = [c_uint64(word) for word in words]
        blocks = (-(-product.n_tokens // _SIDE), -(-product.n_out // _SIDE), 2 if other else 1)
        return self._functions[f"multiply_{kind}"].prepared(
            self.stream, blocks, (256,), c_uint64(x.address), c_uint64(x.step), c_uint64(w.address), c_uint64(w.step),
            c_uint64(result.address), c_uint64(result.step), c_uint64(factors), c_uint64(result.bias),
            c_int(product.n_tokens), c_int(product.n_out), c_int(product.depth), c_int(adds), *others,
            shared_bytes=self._pieces_bytes,
        )  # fmt: skip

    def _without_library(self, error: LibraryError) -> None:
        library, self.library, self.failure = self.library, None, str(error)
        log.info("cuBLAS is no longer used: %s", error)
        if library is not None:
            library.close()

    # --- rows

    def round(
        self, x: Rows, n_tokens: int, n: int, to: RoundedRows | None, norm: GpuNorm | None = None,
        out: Rows | None = None, adds: bool = False,
    ) -> None:  # fmt: skip
        """Norm (optional) each row of x [T, n], round it into `to`, and write or add it to `out`, which may be x."""
        halves, half_step, factors = (to.address, to.step, to.factors) if to else (0, 0, 0)
        kind, weight, bias, eps = (_NORMS[norm.kind], norm.weight, norm.bias, norm.eps) if norm else (0, 0, 0, 0.0)
        self._functions["round_rows"].launch(
            self.stream, (n_tokens,), self._threads_of_row(n, _ROUNDED_BY_THREAD), c_uint64(x.address),
            c_uint64(x.step), c_int(n), c_int(kind), c_uint64(weight), c_uint64(bias), c_float(eps),
            c_uint64(out.address if out else 0), c_uint64(out.step if out else 0), c_int(adds), c_uint64(halves),
            c_uint64(half_step), c_uint64(factors),
        )  # fmt: skip

    def scale(self, x: Rows, n_tokens: int, n: int, factor: float) -> None:
        """Multiply x [T, n] by the factor."""
        self._functions["scale_stream"].launch(
            self.stream,
            (-(-n // 1024), n_tokens),
            (256,),
            c_uint64(x.address),
            c_uint64(x.step),
            c_int(n),
            c_float(factor),
        )

    def activate(
        self, first: Rows, up: Rows | None, n_tokens: int, n: int, activation: Activation, threshold: float,
        to: RoundedRows, counts: int, neuron_in: int = 0, groups: Groups | None = None, keeps: bool = True,
    ) -> None:  # fmt: skip
        """Round activation(first) * up [T, n], or activation(first) without up, into `to`; if keeps, write it to first.

        Slots with a negative neuron_in i32 [n] become 0. counts u32 [T, 2], incremented: values with an active gate,
        and values that fired (drelu: gate and up active). groups: only their rows, of n_tokens at most.
        """
        threads = min(_MOST_ACTIVE_THREADS, *self._threads_of_row(n, _ACTIVATED_BY_THREAD))
        held = 4 * n if _ACTIVATED_BY_THREAD * threads < n <= _MOST_HELD // 4 else 0
        self._functions["activate_rows"].launch(
            self.stream, (n_tokens,), (threads,), c_uint64(first.address),
            c_uint64(up.address if up else 0), c_uint64(first.step), c_uint64(up.step if up else 0), c_int(n),
            c_int(_ACTIVATIONS[activation]),
            c_float(threshold), c_uint64(neuron_in), c_uint64(to.address), c_uint64(to.step), c_uint64(to.factors),
            c_uint64(counts), c_uint64(groups.starts if groups else 0), c_int(groups.n if groups else 0),
            c_uint64(groups.positions if groups else 0), c_int(keeps), c_int(held > 0), shared_bytes=held,
        )  # fmt: skip

    def _threads_of_row(self, n: int, by_thread: int) -> tuple[int]:
        """Return the threads per row, from its length alone: the order of its sums depends on them."""
        return (self._row_threads or min(_MOST_ROW_THREADS, -(-n // (32 * by_thread)) * 32),)

    def tally(self, h: Rows, n_tokens: int, n: int, fired: int, places: int = 0) -> None:
        """Increment fired u32 by the number of positions where h [T, n] is not 0.

        Each neuron counts at its own place, or at places i32 [n], where a negative place is skipped.
        """
        self._functions["tally"].launch(
            self.stream, (-(-n // 128), -(-n_tokens // 32)), (128,), c_uint64(h.address), c_uint64(h.step),
            c_int(n_tokens), c_int(n), c_uint64(fired), c_uint64(places),
        )  # fmt: skip

    # --- experts

    def score(self, x: Rows, n_tokens: int, router: GpuMatrix, bias: int, scores: int, tile: Tile) -> None:
        """Compute scores [T, E] = x [T, D] times the router [E, D] (+ bias [E]), in f32 if the router is."""
        name, at, step = "score_floats", router.planes[0], plane_row_bytes(router.codec, router.n_cols)[0] // 4
        if router.codec != "f32":
            name, (at, step) = "score_halves", self.as_halves(router, 0, router.n_rows, tile)
        self._functions[name].launch(
            self.stream, (-(-n_tokens // 4), -(-router.n_rows // 8)), (256,), c_uint64(x.address), c_uint64(x.step),
            c_uint64(at), c_uint64(step), c_uint64(bias), c_uint64(scores), c_int(n_tokens), c_int(router.n_rows),
            c_int(router.n_cols),
        )  # fmt: skip

    def choose(
        self, scores: int, n_tokens: int, n_experts: int, choice: GpuChoice, weighing: Weighing,
        groups: ExpertGroups, shared_scores: int,
    ) -> None:  # fmt: skip
        """Write ids [T, K] and weights [T, K + 1] of the choice for scores [T, E], as Gpu.choose does."""
        job = choice_job(scores, n_experts, 0, choice, weighing, groups, shared_scores)
        self._functions["choose"].launch(self.stream, (n_tokens,), choice_threads(n_experts), job)

    def group(
        self, ids: int, n_tokens: int, n_used: int, rank_of: int, n_experts: int, to: Groups, places: int
    ) -> None:
        """Group the rows of ids i32 [T, K] by the rank i32 [E] of their experts, and by positions within.

        Writes the starts [E + 1] and positions [T K] of `to`, and the row of each of ids, places i32 [T, K].
        """
        self._functions["group_rows"].launch(
            self.stream, (n_experts,), (256,), c_uint64(ids), c_uint64(rank_of), c_int(n_tokens * n_used),
            c_int(n_used), c_int(n_experts), c_uint64(to.starts), c_uint64(to.positions), c_uint64(places),
        )  # fmt: skip

    def take(
        self, x: RoundedRows, positions: int, n_rows: int, to: RoundedRows, choice: GpuChoice | None = None,
        places: int = 0,
    ) -> None:  # fmt: skip
        """Set row i of `to` to row positions[i] of x. Both must have the same step.

        choice: multiply row places [t, k] by the weight of position t's k-th expert.
        """
        if x.step != to.step:
            raise ValueError("both rows lie alike")
        self._functions["take_rows"].launch(
            self.stream, (n_rows,), (128,), c_uint64(x.address), c_uint64(x.factors), c_uint64(positions),
            c_uint64(x.step), c_uint64(to.address), c_uint64(to.factors), c_uint64(choice.weights if choice else 0),
            c_uint64(places), c_int(choice.n_used if choice else 0),
        )  # fmt: skip

    def as_halves(self, w: Weights, first: int, n_rows: int, tile: Tile) -> tuple[int, int]:
        """Return the address and row step of rows as halves: in the tile, or in place for f16."""
        if w.codec == "f16":
            ((at, row_bytes), *_) = _planes(w)
            return at + first * row_bytes, row_bytes // 2
        step = -(-w.n_cols // 8) * 8
        if 2 * n_rows * step > tile.n_bytes:
            raise ValueError(f"{n_rows} rows of {step} halves do not lie in {tile.n_bytes} bytes")
        self.dequantise(w, first, n_rows, 0, w.n_cols, tile.address, step)
        return tile.address, step

    def multiply_groups(
        self, matrices: Sequence[tuple[int, Rows, int]], step: int, x: RoundedRows, groups: Groups, n_out: int,
        depth: int, by_rows: bool = True,
    ) -> None:  # fmt: skip
        """Compute out = x times each group's matrix (+ bias [n_out]), for one or two (matrix, out, bias).

        Matrices are halves at an address, [n, n_out, depth] with rows `step` apart; if not by_rows, a single one
        [n, depth, n_out].
        """
        key = tuple(matrices), step, x, groups, n_out, depth, by_rows
        self._launches.run(key, lambda: self._prepared_groups(*key))

    def _prepared_groups(
        self, matrices: Sequence[tuple[int, Rows, int]], step: int, x: RoundedRows, groups: Groups, n_out: int,
        depth: int, by_rows: bool,
    ) -> Launch:  # fmt: skip
        (w, out, bias), *others = matrices
        words = [c_uint64(w), c_uint64(step), c_uint64(out.address), c_uint64(out.step), c_uint64(x.factors),
                 c_uint64(bias), c_uint64(groups.starts), c_int(groups.n), c_int(n_out), c_int(depth)]  # fmt: skip
        if by_rows:
            other = (others[0][0], others[0][1].address, others[0][2]) if others else (0, 0, 0)
            words += [c_uint64(word) for word in other]
        return self._functions["multiply_group_rows" if by_rows else "multiply_group_columns"].prepared(
            self.stream, (-(-groups.most // _SIDE), -(-n_out // _SIDE), groups.n * len(matrices)), (256,),
            c_uint64(x.address), c_uint64(x.step), *words, shared_bytes=self._pieces_bytes,
        )  # fmt: skip

    def sum_experts(
        self, y: int, places: int, choice: GpuChoice, shared: int, n_tokens: int, n: int, out: Rows, adds: bool
    ) -> None:
        """Compute out [T, n] = the sum of rows places [T, K] of y, times the choice's weights, or add it to out.

        weights 0: all 1. shared [T, n]: added with the last weight; 0: none.
        """
        self._functions["sum_experts"].launch(
            self.stream, (n_tokens,), (256,), c_uint64(y), c_uint64(places), c_uint64(choice.weights),
            c_uint64(shared), c_int(choice.n_used), c_int(n), c_uint64(out.address), c_uint64(out.step), c_int(adds),
        )  # fmt: skip

    # --- attention

    def place_heads(
        self, qkv: Rows, n_tokens: int, heads: GpuHeads, kv: GpuKv, start: int, angles: RowAngles, positions: int = 0
    ) -> None:
        """Norm and rotate the heads of qkv [T, H + 2 H_kv, head_dim] in place, and store k and v into kv.

        Before or after the norms, the first 2 angles.n values of q and k are rotated. k and v go to positions from
        `start` on, or to the positions i32 [T] at that address.
        """
        q_norm, k_norm = heads.q_norm, heads.k_norm
        norm, n_all = q_norm or k_norm, heads.n + 2 * kv.n_kv_heads * heads.stored
        self._functions["place_heads"].launch(
            self.stream, (n_tokens, -(-n_all // 4)), (128,), c_uint64(qkv.address), c_uint64(qkv.step), c_int(heads.n),
            c_int(kv.n_kv_heads), c_int(kv.head_dim),
            c_int(_NORMS[norm.kind] if norm else 0), c_uint64(q_norm.weight if q_norm else 0),
            c_uint64(q_norm.bias if q_norm else 0), c_uint64(k_norm.weight if k_norm else 0),
            c_uint64(k_norm.bias if k_norm else 0), c_float(norm.eps if norm else 0.0),
            *v_norm_words(heads), c_int(heads.v_is_k), c_int(n_all), c_uint64(angles.cosines),
            c_uint64(angles.sines), c_int(angles.n), c_int(angles.order == "interleaved"),
            c_uint64(kv.keys), c_uint64(kv.values), c_uint64(kv.key_scales), c_uint64(kv.value_scales),
            c_int(_CODECS[kv.codec]), c_int(kv.capacity), c_int(start), c_uint64(positions), c_int(angles.norm_last),
            *temperature_words(angles.temperature), c_uint64(angles.positions),
        )  # fmt: skip

    def read_blocks(self, blocks: int, n_blocks: int, kv: GpuKv, head: int, first: int, end: int) -> None:
        """Copy n_blocks blocks of a head, as native_kernels/kv_blocks.py lays them out, to kv.

        The first one goes to positions from first * BLOCK on; positions from `end` on are left out.
        """
        self._convert_blocks("blocks_to_rows", blocks, (n_blocks, 1), kv, head, first, end)

    def write_blocks(self, blocks: int, n_blocks: int, kv: GpuKv, first: int, end: int) -> None:
        """Copy kv's positions from first * BLOCK up to `end` to blocks [H_kv, n_blocks], and zeros after them."""
        self._convert_blocks("rows_to_blocks", blocks, (n_blocks, kv.n_kv_heads), kv, 0, first, end)

    def _convert_blocks(
        self, kernel: str, blocks: int, grid: tuple[int, int], kv: GpuKv, head: int, first: int, end: int
    ) -> None:
        of = KvLayout(kv.head_dim, kv.codec)
        layout = _Layout(
            of.head_dim, of.padded_dim, of.n_groups, of.key_scales, of.values, of.value_scales, of.block_bytes
        )
        self._functions[kernel].launch(
            self.stream, grid, (256,), c_uint64(blocks), layout, c_uint64(kv.keys), c_uint64(kv.values),
            c_uint64(kv.key_scales), c_uint64(kv.value_scales), c_int(of.value_bytes), c_int(head), c_int(first),
            c_int(min(end, kv.capacity)), c_int(kv.capacity),
        )  # fmt: skip

    def attend(
        self, q: Rows, n_tokens: int, n_heads: int, kv: GpuKv, start: int, out: Rows, scoring: GpuScoring
    ) -> None:
        """Compute out [T, H * head_dim] = attention of q [T, H, head_dim], at positions from `start` on.

        Each sees the positions that Gpu.attend says. head_dim up to 576.
        """
        window = scoring.window or 0
        if not scoring.chunked or not window:
            self._attend(q, n_tokens, n_heads, kv, start, out, scoring, window)
            return
        done = 0
        while done < n_tokens:  # a launch per chunk, whose positions see it from its beginning on
            first = (start + done) // window * window
            n = min(n_tokens - done, first + window - start - done)
            some_q, some_out = (Rows(one.address + 4 * done * one.step, one.step) for one in (q, out))
            self._attend(some_q, n, n_heads, kv, start + done, some_out, scoring, -first)
            done += n

    def _attend(
        self, q: Rows, n_tokens: int, n_heads: int, kv: GpuKv, start: int, out: Rows, scoring: GpuScoring, window: int
    ) -> None:
        """window: as in flash.cu."""
        name, queries, threads, shared_bytes = self._attention_of(kv)
        self._functions[name].launch(
            self.stream, (-(-n_tokens // queries), n_heads), (threads,), c_uint64(q.address), c_uint64(q.step),
            c_uint64(out.address), c_uint64(out.step), c_uint64(kv.keys), c_uint64(kv.values), c_uint64(kv.key_scales),
            c_uint64(kv.value_scales), c_int(_CODECS[kv.codec]), c_int(kv.head_dim), c_int(n_tokens), c_int(start),
            c_int(n_heads // kv.n_kv_heads), c_int(kv.capacity), c_float(scoring.scale),
            c_float(scoring.softcap or 0.0), c_int(window), c_uint64(scoring.sinks),
            shared_bytes=shared_bytes,
        )  # fmt: skip

    def _attention_of(self, kv: GpuKv) -> tuple[str, int, int, int]:
        """Return the name of the kernel of attention, queries and threads of a block, and bytes of shared memory."""
        if kv.codec != "f32" and kv.head_dim % 8 == 0:
            for dim in self._ring_dims:
                if kv.head_dim <= dim:
                    return f"attend_wgmma_{dim}", 128, 384, _wgmma_bytes(dim)
            for dim in _HALF_DIMS:
                if kv.head_dim <= dim:
                    return f"attend_half_{dim}", 128, 256, _half_bytes(dim)
            for dim in self._wide_dims:
                if kv.head_dim <= dim and (dim != _OF_SHARED or (kv.is_shared and kv.head_dim == dim)):
                    queries, parts = _WIDE_BLOCKS[dim]
                    return f"attend_wide_{dim}", queries, 2 * queries * parts, _wide_bytes(dim)
        dim = next(dim for dim in _HEAD_DIMS if kv.head_dim <= dim)
        return f"attend_{dim}", 64, 256, 0


def _half_bytes(dim: int) -> int:
    """Return the shared memory of a block of flash_half.cu."""
    return 2 * 2 * _HALF_KEYS * dim * 2  # keys and values in turns


def _wgmma_bytes(dim: int) -> int:
    """Return the shared memory of a block of flash_wgmma.cu: queries, ring, and two barriers for each tile of it."""
    positions, n_tiles = _RINGS[dim]
    return 128 * dim * 2 + n_tiles * (positions * dim * 2 + 16)


def _wide_bytes(dim: int) -> int:
    """Return the shared memory of a block of flash_wide.cu."""
    tiles = 1 if dim == _OF_SHARED else 2  # of keys and of values
    queries, parts = _WIDE_BLOCKS[dim]
    return tiles * _WIDE_KEYS * dim * 2 + parts * queries * (_WIDE_KEYS + 1) * 4


def is_streamed(codec: str) -> bool:
    """Return whether products read matrices of this codec as they are stored (StoredMatrix)."""
    return codec in _PLAIN or codec.replace(".", "_") in _STORED


def _planes(w: Weights) -> list[tuple[int, int]]:
    """Return the address and row stride in bytes of each plane of a matrix."""
    if isinstance(w, StoredMatrix):
        return [(w.address, w.step)]
    return list(zip(w.planes, plane_row_bytes(w.codec, w.n_cols), strict=True))
