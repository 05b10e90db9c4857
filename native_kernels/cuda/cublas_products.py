"""Products of rounded rows by cuBLAS, plus row factors and bias, which cuBLAS lacks.

Each product is prepared once and reused in all layers and chunks, because passing its arguments takes longer in Python
than in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint64
from dataclasses import replace

from native_kernels.cuda.operands import Product
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
        return self._library.version

    def multiply(self, product: Product) -> None:
        """Compute the product. A second one is not added to its result.

        Raises: LibraryError; if it was to be added, the result is then unchanged.
        """
        key = product, self._library.spared
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            found = self._prepared[key] = self._prepare(product)
        before, products, after = found
        if before is not None:
            before()
        try:
            for multiply in products:
                multiply()
        except LibraryError:
            if before is not None:
                self._scaling(product, (product.result.address, 0), (0, 0), undo=False)()
            raise
        after()

    def _prepare(self, product: Product) -> _Prepared:
        x, w, out, bias = product.x.address, product.w.address, product.result.address, product.result.bias
        ws, outs, biases = (w, w), (out, 0), (bias, 0)
        apart = (0, 0)
        if product.other is not None:
            other_w, other = product.other
            ws, outs, biases = (w, other_w.address), (out, other.address), (bias, other.bias)
            apart = other_w.address - w, other.address - out
        side_by_side = min(apart) > 0
        aligned = alignment(*ws), alignment(x), alignment(out, outs[1])
        shape = Shape(
            product.n_tokens, product.n_out, product.depth, product.kind == "columns", product.adds, product.x.step,
            product.w.step, product.result.step, aligned,
        )  # fmt: skip
        if side_by_side:
            shape = replace(shape, count=2, w_apart=apart[0] // 2, out_apart=apart[1] // 4)
        products = [self._library.product(shape, x, w, out)]
        if product.other is not None and not side_by_side:
            products.append(self._library.product(shape, x, ws[1], outs[1]))
        before = self._scaling(product, outs, (0, 0), undo=True) if product.adds else None
        return before, products, self._scaling(product, outs, biases, undo=False)

    def _scaling(self, product: Product, outs: tuple[int, int], biases: tuple[int, int], undo: bool) -> Launch:
        return self._scale.prepared(
            self.stream, (product.n_tokens, 2 if outs[1] else 1), (_ROW_THREADS,), *(c_uint64(at) for at in outs),
            c_uint64(product.result.step), c_int(product.n_out), c_uint64(product.factors),
            *(c_uint64(one) for one in biases), c_int(undo),
        )  # fmt: skip

    def spare(self, n: int) -> None:
        self._library.spare(n)

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        self._prepared.clear()
        self._library.close()
