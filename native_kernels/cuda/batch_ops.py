"""Operators for batches, on one position of each of several sequences: those of prefill_ops, and more.

Sequences share the products. Each has its own keys and values, in one of the consecutive slots of the layer's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.expert_batch import GpuExpertBatchOps
from native_kernels.cuda.gpu import GpuKv, GpuMatrix, GpuScoring, GpuSequences
from native_kernels.cuda.layouts import UNIT_COLUMNS, plane_row_bytes
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile, Weights
from native_kernels.cuda.runtime.driver import Event, Function, Stream
from native_kernels.cuda.runtime.modules import load

_THREADS = 128
_FEW = (8, 16, 32)  # numbers of positions with a product in few_rows.cu
_FEW_SIDE, _WARPS = 16, 8  # rows of a matrix per warp there, and warps per block
_WARPS_AT_ONCE = 16  # of a multiprocessor, there
_AT_ONCE = 3  # products per launch
MOST_STAGED_SLOTS = 16384  # limit of the list in stage_rows.cu
_MOST_PLANES = 12
# Best on an H200: 51 GB/s over its bus. With 8 blocks it is at most 29 GB/s, and more than 16 gain nothing.
_STAGING_BLOCKS, _STAGING_THREADS = 16, 1024
_STAGING_SHARE = 4  # at most one in this many of a small GPU's multiprocessors
_FEW_ROW_THREADS = 1024  # per row, if there are few rows: the GPU is otherwise idle
_KERNELS = {
    "batch": ("needed_words", "keep_needed", "count_used"),
    "stage_rows": ("stage_rows",),
}


class _Product(Structure):
    _fields_ = [("planes", c_uint64 * 4), ("out", c_uint64), ("bias", c_uint64), ("n_out", c_uint64)]


class _Products(Structure):
    _fields_ = [
        ("of", _Product * _AT_ONCE), ("x", c_uint64), ("x_step", c_uint64), ("out_step", c_uint64),
        ("factors", c_uint64), ("n_tokens", c_int), ("depth", c_int), ("adds", c_int), ("split", c_int),
    ]  # fmt: skip


class _Plane(Structure):
    _fields_ = [("source", c_uint64), ("to", c_uint64), ("n_lines", c_uint64)]


class _Staged(Structure):
    _fields_ = [
        ("planes", _Plane * _MOST_PLANES), ("neuron_in", c_uint64), ("words", c_uint64), ("count", c_uint64),
        ("n_planes", c_int), ("n_slots", c_int),
    ]  # fmt: skip


class GpuBatchOps(GpuPrefillOps):
    """The operators, in the GPU's stream; `stage` runs in a second stream. The GPU must be entered.

    experts: the operators on chosen experts.

    Raises: NoMachineCodeError, CudaError.
    """

    def __init__(self, gpu: CudaGpu) -> None:
        self._gpu = gpu
        self._few: dict[str, dict[int, Function]] = {}  # kernels of few_rows.cu, by codec and positions
        self.experts = GpuExpertBatchOps(gpu.device, gpu.stream)
        self._copies = Stream(gpu.device)
        self._so_far, self._staged = Event(gpu.device), (Event(gpu.device), Event(gpu.device))
        self._staging_blocks = max(1, min(_STAGING_BLOCKS, gpu.n_multiprocessors // _STAGING_SHARE))
        try:
            super().__init__(gpu.device, gpu.stream, self._copies)
            self._row_threads = _FEW_ROW_THREADS
            for source, names in _KERNELS.items():
                module = load(gpu.device, source)
                self._modules.append(module)
                self._functions |= {name: module.function(name) for name in names}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        self.experts.close()
        for event in (self._so_far, *self._staged):
            event.close()
        self._copies.close()

    def multiply(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute as GpuPrefillOps.multiply, of all rows. Weights are read as they are stored; no tile is needed."""
        assert isinstance(w, GpuMatrix), "batches have no streamed weights"
        self._multiply_few([(w, out, bias)], x, n_tokens, adds)

    def multiply_two(
        self, pair: tuple[Weights, Weights], x: RoundedRows, n_tokens: int, outs: tuple[Rows, Rows], tile: Tile,
        biases: tuple[int, int] = (0, 0), rows: range | None = None,
    ) -> None:  # fmt: skip
        """As multiply_all."""
        self.multiply_all(pair, x, n_tokens, outs, biases)

    def multiply_all(
        self, matrices: Sequence[Weights], x: RoundedRows, n_tokens: int, outs: Sequence[Rows], biases: Sequence[int]
    ) -> None:
        """Compute `multiply` for up to three matrices with the same number of columns.

        This is one launch for all that have one codec and whose results have one row stride.
        """
        launches: dict[tuple[str, int], list[tuple[GpuMatrix, Rows, int]]] = {}
        for w, out, bias in zip(matrices, outs, biases, strict=True):
            assert isinstance(w, GpuMatrix), "batches have no streamed weights"
            launches.setdefault((w.codec, out.step), []).append((w, out, bias))
        for given in launches.values():
            self._multiply_few(given, x, n_tokens, False)

    def _multiply_few(
        self, given: Sequence[tuple[GpuMatrix, Rows, int]], x: RoundedRows, n_tokens: int, adds: bool
    ) -> None:
        """Launch up to _AT_ONCE products of x, in few_rows.cu. given: matrices of a codec, results and biases."""
        w, out, _ = given[0]
        if w.codec not in self._few:
            module = load(self.device, "few_rows", defines_of_few(w.codec))
            self._modules.append(module)
            self._few[w.codec] = {most: module.function(f"multiply_few_{most}") for most in _FEW}
        products = [_Product((c_uint64 * 4)(*w.planes), out.address, bias, w.n_rows) for w, out, bias in given]
        split, n_units = 1, -(-w.n_cols // UNIT_COLUMNS[w.codec])
        n_warps = sum(-(-one.n_rows // _FEW_SIDE) for one, *_ in given)
        while (
            split < _WARPS and 8 * split <= n_units and n_warps * split < _WARPS_AT_ONCE * self._gpu.n_multiprocessors
        ):
            split *= 2
        job = _Products(
            (_Product * _AT_ONCE)(*products), x.address, x.step, out.step, x.factors, n_tokens, w.n_cols, adds, split
        )
        blocks = -(-max(one.n_rows for one, *_ in given) * split // (_FEW_SIDE * _WARPS))
        kernel = self._few[w.codec][next(most for most in _FEW if n_tokens <= most)]
        kernel.launch(self.stream, (blocks, len(given)), (32 * _WARPS,), job)

    def attend_each(
        self, q: Rows, sequences: GpuSequences, n_heads: int, kv: GpuKv, out: Rows, scoring: GpuScoring
    ) -> None:
        """Compute out [T, H * head_dim]: attention of row t of q [T, H, head_dim] over sequence t's positions in kv,
        up to its latest.
        """
        self._gpu.attend_each(q.address, q.step, sequences, n_heads, kv, out.address, out.step, scoring)

    def needed(
        self, logits: Rows, n_tokens: int, n: int, threshold: float, hot_bits: int, words: int, cold: int
    ) -> None:
        """Write words u32 [n]: bit t is set if row t of logits [T, n] reaches the threshold.

        cold: the same without the neurons whose bit in hot_bits is set.
        """
        self._functions["needed_words"].launch(
            self.stream, (-(-n // _THREADS),), (_THREADS,), c_uint64(logits.address), c_uint64(logits.step),
            c_int(n_tokens), c_int(n), c_float(threshold), c_uint64(hot_bits), c_uint64(words), c_uint64(cold),
        )  # fmt: skip

    def keep(self, first: Rows, n_tokens: int, n: int, neuron_in: int, words: int, computed: int) -> None:
        """Set first [t, s] to 0 unless bit t of words[neuron_in[s]] is set. neuron_in i32 [n], negative: none.

        computed u32 is incremented by the number of remaining values.
        """
        self._functions["keep_needed"].launch(
            self.stream, (-(-n // _THREADS),), (_THREADS,), c_uint64(first.address), c_uint64(first.step),
            c_int(n_tokens), c_int(n), c_uint64(neuron_in), c_uint64(words), c_uint64(computed),
        )  # fmt: skip

    def count_used(self, h: Rows, n_tokens: int, n: int, used: int) -> None:
        """Increment used u32 by the columns of h [T, n] that hold any nonzero number."""
        self._functions["count_used"].launch(
            self.stream, (-(-n // _THREADS),), (_THREADS,), c_uint64(h.address), c_uint64(h.step), c_int(n_tokens),
            c_int(n), c_uint64(used),
        )  # fmt: skip

    # ------------------------------------------------------------ staging

    def hold_staging(self) -> None:
        """Order later staging after all work queued so far."""
        self._so_far.record(self.stream)
        self._so_far.hold(self._copies)

    def stage(
        self, pairs: Sequence[tuple[GpuMatrix, GpuMatrix]], neuron_in: int, words: int, count: int, half: int
    ) -> None:
        """Copy needed rows from host memory into half 0 or 1 of a staging buffer, in a second stream.

        Row s of each pair's first matrix goes to the second if words[neuron_in[s]] is not 0; all other rows become 0.
        neuron_in i32, negative: none. words: address of u32 by neuron; 0: all. All matrices have the same number of
        rows. count u32 is incremented by the slots read.

        Raises: ValueError for sizes that do not match.
        """
        planes: list[_Plane] = []
        for source, to in pairs:
            if (source.n_rows, source.n_cols, source.codec) != (to.n_rows, to.n_cols, to.codec):
                raise ValueError("rows are staged in a matrix like theirs")
            widths = plane_row_bytes(source.codec, source.n_cols)
            planes += [_Plane(*one) for one in zip(source.planes, to.planes, (w // 16 for w in widths), strict=True)]
        n_slots = pairs[0][0].n_rows
        if not 0 < n_slots <= MOST_STAGED_SLOTS or any(source.n_rows != n_slots for source, _ in pairs):
            raise ValueError(f"{n_slots} neurons are to be staged; at most {MOST_STAGED_SLOTS} are at once")
        job = _Staged((_Plane * _MOST_PLANES)(*planes), neuron_in, words, count, len(planes), n_slots)
        self._functions["stage_rows"].launch(self._copies, (self._staging_blocks,), (_STAGING_THREADS,), job)
        self._staged[half].record(self._copies)

    def await_staging(self, half: int) -> None:
        """Order later work after the last staging in that half."""
        self._staged[half].hold(self.stream)


def defines_of_few(codec: str) -> dict[str, int | str]:
    """Return the macros that few_rows.cu is compiled with for a codec: as many units ahead as registers allow."""
    return {"CODEC": codec.upper(), "UNITS_AHEAD": {1: 4, 32: 2, 256: 1}[ROW_CODECS[codec].block_size]}
