"""Operators for batches, on one position of each of several sequences: those of prefill_ops, and more.

Sequences share the products. Each has its own keys and values, in one of the consecutive slots of the layer's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.expert_batch import GpuExpertBatchOps
from native_kernels.cuda.gpu import GpuKv, GpuMatrix, GpuScoring, GpuSequences
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.operands import Operand, Product
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile
from native_kernels.cuda.runtime.driver import Event, Stream
from native_kernels.cuda.runtime.modules import load

_THREADS = 128
_FEW = (8, 16, 32)  # numbers of positions with a product in few_rows.cu
_FEW_SIDE = 16  # rows of a matrix per block there
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
    "few_rows": tuple(f"multiply_few_{most}" for most in _FEW),
}


class _Product(Structure):
    _fields_ = [("w", c_uint64), ("out", c_uint64), ("bias", c_uint64), ("n_out", c_uint64)]


class _Products(Structure):
    _fields_ = [
        ("of", _Product * _AT_ONCE), ("x", c_uint64), ("x_step", c_uint64), ("w_step", c_uint64),
        ("out_step", c_uint64), ("factors", c_uint64), ("n_tokens", c_int), ("depth", c_int), ("adds", c_int),
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

    def _launch_product(self, product: Product) -> None:
        width = next((one for one in _FEW if product.n_tokens <= one), None)
        if product.kind != "rows" or width is None:
            super()._launch_product(product)
            return
        matrices = [(product.w, product.result), *([product.other] if product.other else [])]
        products = [_Product(w.address, out.address, out.bias, product.n_out) for w, out in matrices]
        steps = product.w.step, product.result.step
        self._launch_few(width, products, product.x, product.factors, steps, product.adds)

    def _launch_few(
        self, width: int, products: Sequence[_Product], x: Operand, factors: int, steps: tuple[int, int], adds: bool
    ) -> None:
        """Launch up to _AT_ONCE products of x. steps: of the weights' rows and of the results'."""
        job = _Products((_Product * _AT_ONCE)(*products), x.address, x.step, *steps, factors, x.n_rows, x.n_cols, adds)
        most = max(product.n_out for product in products)
        self._functions[f"multiply_few_{width}"].launch(
            self.stream, (1, -(-most // _FEW_SIDE), len(products)), (256,), job
        )  # fmt: skip

    def multiply_three(
        self, matrices: tuple[GpuMatrix, GpuMatrix, GpuMatrix], x: RoundedRows, n_tokens: int,
        outs: tuple[Rows, Rows, Rows], tile: Tile, biases: tuple[int, int, int] = (0, 0, 0),
    ) -> None:  # fmt: skip
        """Compute three `multiply` of matrices with the same number of columns.

        This is one launch if all weights are halves, the results have one row stride, and there are few rows.
        """
        width = next((one for one in _FEW if n_tokens <= one), None)
        if width is None or any(w.codec != "f16" for w in matrices) or len({out.step for out in outs}) > 1:
            self.multiply(matrices[0], x, n_tokens, outs[0], tile, biases[0])
            self.multiply_two(matrices[1:], x, n_tokens, outs[1:], tile, biases[1:])
            return
        products = [
            _Product(w.planes[0], out.address, bias, w.n_rows)
            for w, out, bias in zip(matrices, outs, biases, strict=True)
        ]
        (row_bytes,), depth = plane_row_bytes("f16", matrices[0].n_cols), matrices[0].n_cols
        steps = row_bytes // 2, outs[0].step
        self._launch_few(width, products, x.operand(n_tokens, depth), x.factors, steps, False)

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
