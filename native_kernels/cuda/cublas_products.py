"""Products of rounded rows by cuBLAS, plus row factors and bias, which cuBLAS lacks.

Each product is prepared once and reused in all layers and chunks, because passing its arguments takes longer in Python
than in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint64
from dataclasses import replace

from native_kernels.cuda.runtime.cublas import Cublas, LibraryError, Shape, alignment
from native_kernels.cuda.runtime.driver import Function, Launch, Stream

_MOST_PREPARED = 4096  # 3 KB each: models in halves need some thousand, others some dozen per number of positions
_ROW_THREADS = 256

_Prepared = tuple[Launch | None, list[Callable[[], None]], Launch]


class LibraryProducts:
    """The products of GpuPrefillOps by cuBLAS. Owns the library; the GPU must be entered. scale: scale_rows of
    finish.cu.
    """

    def __init__(self, library: Cublas, scale: Function, stream: Stream) -> None:
        self.stream = stream
        self._library, self._scale = library, scale
        self._prepared: dict[tuple[object, ...], _Prepared] = {}

    @property
    def version(self) -> int:
        """The version, as in Cublas."""
        return self._library.version

    def multiply(
        self, columns: bool, x: int, x_step: int, w: int, w_step: int, out: int, out_step: int, factors: int, bias: int,
        n_tokens: int, n_out: int, depth: int, adds: bool, other: tuple[int, int, int] | None,
    ) -> None:  # fmt: skip
        """Compute out [T, N] = x [T, K] times the rows of w [N, K], or with `columns` times w [K, N].

        The result is multiplied by factors [T], plus bias [N] (0: none), or added to out. other: weights, out and bias
        of a second product of the same rows, which is not added.

        Raises: LibraryError; if it was to be added, out is then unchanged.
        """
        key = (
            columns,
            x,
            x_step,
            w,
            w_step,
            out,
            out_step,
            factors,
            bias,
            n_tokens,
            n_out,
            depth,
            adds,
            other,
            self._library.spared,
        )
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            found = self._prepared[key] = self._prepare(
                columns, x, x_step, w, w_step, out, out_step, factors, bias, n_tokens, n_out, depth, adds, other
            )
        before, products, after = found
        if before is not None:
            before()
        try:
            for product in products:
                product()
        except LibraryError:
            if before is not None:
                self._scaling((out, 0), out_step, factors, (0, 0), n_tokens, n_out, False)()
            raise
        after()

    def _prepare(
        self, columns: bool, x: int, x_step: int, w: int, w_step: int, out: int, out_step: int, factors: int, bias: int,
        n_tokens: int, n_out: int, depth: int, adds: bool, other: tuple[int, int, int] | None,
    ) -> _Prepared:  # fmt: skip
        ws, outs, biases = (w, w), (out, 0), (bias, 0)
        apart = (0, 0)
        if other is not None:
            ws, outs, biases = (w, other[0]), (out, other[1]), (bias, other[2])
            apart = other[0] - w, other[1] - out
        side_by_side = min(apart) > 0
        aligned = alignment(*ws), alignment(x), alignment(out, outs[1])
        shape = Shape(n_tokens, n_out, depth, columns, adds, x_step, w_step, out_step, aligned)
        if side_by_side:
            shape = replace(shape, count=2, w_apart=apart[0] // 2, out_apart=apart[1] // 4)
        products = [self._library.product(shape, x, w, out)]
        if other is not None and not side_by_side:
            products.append(self._library.product(shape, x, other[0], other[1]))
        before = self._scaling(outs, out_step, factors, (0, 0), n_tokens, n_out, True) if adds else None
        return before, products, self._scaling(outs, out_step, factors, biases, n_tokens, n_out, False)

    def _scaling(
        self, outs: tuple[int, int], step: int, factors: int, biases: tuple[int, int], n_tokens: int, n: int, undo: bool
    ) -> Launch:
        return self._scale.prepared(
            self.stream, (n_tokens, 2 if outs[1] else 1), (_ROW_THREADS,), *(c_uint64(at) for at in outs),
            c_uint64(step), c_int(n), c_uint64(factors), *(c_uint64(one) for one in biases), c_int(undo),
        )  # fmt: skip

    def spare(self, n: int) -> None:
        """As Cublas.spare."""
        self._library.spare(n)

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        self._prepared.clear()
        self._library.close()
