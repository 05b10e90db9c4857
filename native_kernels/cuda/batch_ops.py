"""Operators for batches, on one position of each of several sequences: those of prefill_ops, and more.

Sequences share the products. Each has its own keys and values, in one of the consecutive slots of the layer's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.expert_batch import GpuExpertBatchOps
from native_kernels.cuda.gpu import GpuKv, GpuMatrix, GpuScoring, GpuSequences
from native_kernels.cuda.group_products import FewProducts
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile, Weights
from native_kernels.cuda.runtime.driver import Event, Stream
from native_kernels.cuda.runtime.modules import load

_THREADS = 128
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
        self.experts = GpuExpertBatchOps(gpu.device, gpu.stream)
        self._few = FewProducts(gpu.device, gpu.stream)
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
        self._few.close()
        for event in (self._so_far, *self._staged):
            event.close()
        self._copies.close()

    def multiply(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute as GpuPrefillOps.multiply, without converting weights: the tile is not used."""
        self._few.multiply([_rows_of(w, rows)], x, n_tokens, [out], [bias], adds)

    def multiply_two(
        self, pair: tuple[Weights, Weights], x: RoundedRows, n_tokens: int, outs: tuple[Rows, Rows], tile: Tile,
        biases: tuple[int, int] = (0, 0), rows: range | None = None,
    ) -> None:  # fmt: skip
        """Compute two `multiply`, in one launch if the matrices have one codec and the results one row stride."""
        self._few.multiply([_rows_of(w, rows) for w in pair], x, n_tokens, outs, biases)

    def multiply_three(
        self, matrices: tuple[GpuMatrix, GpuMatrix, GpuMatrix], x: RoundedRows, n_tokens: int,
        outs: tuple[Rows, Rows, Rows], tile: Tile, biases: tuple[int, int, int] = (0, 0, 0),
    ) -> None:  # fmt: skip
        """Compute three `multiply` of matrices with the same number of columns, as multiply_two."""
        self._few.multiply(matrices, x, n_tokens, outs, biases)

    def multiply_columns(
        self, w: Weights, x: RoundedRows, n_tokens: int, out: Rows, tile: Tile, bias: int = 0, adds: bool = False,
        columns: range | None = None,
    ) -> None:  # fmt: skip
        """Compute as GpuPrefillOps.multiply_columns; all columns are read as they are stored."""
        if columns is None:
            self.multiply(w, x, n_tokens, out, tile, bias, adds)
        else:
            super().multiply_columns(w, x, n_tokens, out, tile, bias, adds, columns)

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

    # --- staging

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


def _rows_of(w: Weights, rows: range | None) -> GpuMatrix:
    assert isinstance(w, GpuMatrix), "batches stream no weights"
    return w if rows is None else w.part(rows)
