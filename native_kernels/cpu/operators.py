"""The operators of native_kernels.backend.Operators as kernels on the pool, for prefill and evaluation.

Decode runs as a program instead (engine/decode/decode_program.py). The reference computes what has no kernel: embedding
rows, angles, attention without a cache, and products with a codec that `reads` rejects. Matrices of a model are decoded
before that happens (engine/loading/backends.py checks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from native_kernels.backend import (
    F32,
    I32,
    I64,
    PLAIN_SCORING,
    U8,
    Activation,
    DeltaInput,
    DeltaWeights,
    ExpertBatch,
    PackedMatrix,
    RopeOrder,
    Scoring,
    ShortConvInput,
)
from native_kernels.codecs import COPY_CODECS, ROW_CODECS
from native_kernels.cpu.attention.attention import attention_buffers, attention_calls
from native_kernels.cpu.attention.delta_net import StatePlace, delta_calls, short_conv_calls
from native_kernels.cpu.attention.kv_store import CachePlace, store_calls
from native_kernels.cpu.attention.norms import RowNorm, norm_calls
from native_kernels.cpu.attention.rope import rope_calls
from native_kernels.cpu.ffn.elementwise import activation_calls, gate_calls, softcap_calls
from native_kernels.cpu.ffn.expert_batch import CpuExpertBatch, batch_kernels
from native_kernels.cpu.gemm.gemm import Firing, Panels, Scratch, form_of, matmul_calls, matmul_t_calls, pack_calls
from native_kernels.cpu.products.copy_batch import batch_calls, batch_kernels_of
from native_kernels.cpu.products.gemv import GEMV
from native_kernels.cpu.products.linear import Products, Vector, has_kernel, why_not
from native_kernels.cpu.runtime.call import Call, Listed
from native_kernels.cpu.runtime.isa import why_unavailable
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.kv_blocks import KvLayout
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import DeltaSpec, ShortConvSpec

_MANY = 512  # tokens per chunk of a long prompt
_ROWS_OF_A_THREAD = 64  # of embeddings or angles


class CpuOperators:
    """The operators on the threads of a pool. Results do not depend on the number of threads."""

    name = "cpu"

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._reference = ReferenceOperators()
        self._products = Products(pool.n_threads)
        self._scratch = Scratch.make(pool.n_threads)
        self._attention: tuple[Any, Any] = (None, None)  # shape and buffers of the last call
        self._packed: tuple[F32 | None, Panels | None] = (None, None)

    def why_unavailable(self) -> list[str]:
        """Return what is missing for a better instruction set; the operators work nevertheless."""
        return why_unavailable()

    @staticmethod
    def reads(codec: str) -> bool:
        """Return whether matrices in this codec are multiplied in place."""
        return has_kernel(codec)

    def kernels(self, codecs: Iterable[str]) -> list[Kernel]:
        """Return the kernels for products of many tokens with matrices in these codecs, to compile them ahead."""
        needed: list[Kernel] = []
        for codec in codecs:
            if not self.reads(codec):
                continue
            if codec in COPY_CODECS:
                needed += [*batch_kernels_of(codec), GEMV[codec]]
                continue
            width = ROW_CODECS[codec].block_size
            empty = np.zeros((1, ROW_CODECS[codec].n_bytes(width)), np.uint8)
            w = PackedMatrix.view(empty, 1, width, codec)
            one = np.zeros(1, np.int64)
            for form, n_tokens in {form_of(codec, n, n > 2): n for n in (_MANY, 3, 2)}.items():
                x, out = np.zeros((n_tokens, width), np.float32), np.zeros((n_tokens, 1), np.float32)
                panels = Panels.make(n_tokens, width, form)
                calls = pack_calls(x, one, panels) + matmul_calls(panels, w, one, out, self._scratch)
                calls += matmul_t_calls(out, one, w, x, Firing.make(n_tokens, 1, codec), self._scratch)
                needed += [call.kernel for call in calls]
        return needed

    def attention_kernels(self, layout: KvLayout) -> list[Kernel]:
        """Return the kernels for attention of many tokens over a cache with this layout."""
        q = np.zeros((2, 1, layout.head_dim), np.float32)
        place = CachePlace.of_layer(np.zeros((1, 1, layout.block_bytes), np.uint8), layout, 0)
        buffers = attention_buffers(1, 1, layout, 2, self.pool.n_threads)
        return [call.kernel for call in (*store_calls(q, q, place, 0), *attention_calls(q, q, place, 0, buffers))]

    def vector_kernels(self, activation: Activation, rotates: bool) -> list[Kernel]:
        """Return the kernels that prefill needs beside products and attention."""
        x = np.zeros((1, 1, 2), np.float32)
        calls = norm_calls(x, x, RowNorm("rms", 1e-5, x[0, 0])) + activation_calls(activation, x, x)
        if rotates:
            calls += rope_calls(x, x[0, :, :1], x[0, :, :1])
        return [call.kernel for call in calls]

    def delta_kernels(self) -> list[Kernel]:
        """Return the kernels of gated delta nets and gated attention."""
        spec, one = DeltaSpec(1, 1, 1, 1, 1), np.zeros((1, 3), np.float32)
        x, w = DeltaInput(one, one[:, :1], one[:, :1], one[:, :1]), DeltaWeights(one[0], *(one[0, :1],) * 3, 1e-6)
        calls = delta_calls(x, one[:, :1].copy(), w, spec, StatePlace.of(one, one), 0, 1) + gate_calls(
            one, one, one, ""
        )
        return [call.kernel for call in calls]

    def short_conv_kernels(self) -> list[Kernel]:
        """Return the kernels of gated short convolutions."""
        one = np.zeros((1, 1), np.float32)
        calls = short_conv_calls(
            ShortConvInput(one, one, one), one.copy(), one[0], ShortConvSpec(1, 1), StatePlace.of(one, one), 0
        )
        return [call.kernel for call in calls]

    def expert_kernels(self) -> list[Kernel]:
        """Return the kernels that prefill through experts needs beside their products."""
        return batch_kernels()

    def rows(self, w: PackedMatrix, ids: I64) -> F32:
        out = np.empty((len(ids), w.n_cols), np.float32)

        def decode(some: slice) -> None:
            out[some] = self._reference.rows(w, ids[some])

        self._in_threads(len(ids), decode)
        return out

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        x = np.ascontiguousarray(x, np.float32)
        if x.shape[0] == 1 and not why_not(w):
            out = np.empty((1, w.n_rows), np.float32)
            self._run(self._products.calls(w, Vector(x[0]), out[0], ""))
            return out
        if not self.reads(w.codec):
            return self._reference.matmul(x, w)
        out = np.empty((x.shape[0], w.n_rows), np.float32)
        if not out.size:
            return out
        if w.codec in COPY_CODECS:
            self._run(batch_calls(x, w, out, self.pool.n_threads))
            return out
        tokens = np.array([x.shape[0]], np.int64)
        last, panels = self._packed
        calls: list[Call] = []
        form = form_of(w.codec, x.shape[0], of_prompt=True)
        if panels is None or last is not x or panels.form != form:
            panels = Panels.make(x.shape[0], w.n_cols, form)
            calls += pack_calls(x, tokens, panels)
            self._packed = (x, panels)  # q, k and v read the same tokens in turn
        self._run(calls + matmul_calls(panels, w, tokens, out, self._scratch))
        return out

    def matmul_t(self, h: F32, w: PackedMatrix) -> F32:
        if not self.reads(w.codec):
            return self._reference.matmul_t(h, w)
        h = np.ascontiguousarray(h, np.float32)
        out = np.zeros((h.shape[0], w.n_cols), np.float32)
        if out.size and w.n_rows:
            tokens, firing = np.array([h.shape[0]], np.int64), Firing.make(h.shape[0], w.n_rows, w.codec)
            self._run(matmul_t_calls(h, tokens, w, out, firing, self._scratch))
        return out

    def sparse_gemv(self, w: PackedMatrix, x: F32, ids: I32) -> F32:
        if why_not(w):
            return self._reference.sparse_gemv(w, x, ids)
        out = np.empty(len(ids), np.float32)
        if len(ids):
            listed = Listed.of(np.ascontiguousarray(ids, np.int32))
            self._run(self._products.calls(w, Vector(np.ascontiguousarray(x, np.float32)), out, "", listed=listed))
        return out

    def sparse_axpy(self, w: PackedMatrix, values: F32, ids: I32) -> F32:
        weights = np.zeros((1, w.n_rows), np.float32)
        weights[0, ids] = values
        found: F32 = self.matmul_t(weights, w)[0]
        return found

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return self._norm(x, RowNorm("rms", eps, np.ascontiguousarray(weight)))

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        return self._norm(x, RowNorm("layer", eps, np.ascontiguousarray(weight), bias))

    def rope_angles(self, positions: I64, rotary_dim: int, theta: float, factors: F32 | None = None) -> tuple[F32, F32]:
        cos, sin = np.empty((2, len(positions), -(-rotary_dim // 2)), np.float32)

        def compute(some: slice) -> None:
            cos[some], sin[some] = self._reference.rope_angles(positions[some], rotary_dim, theta, factors)

        self._in_threads(len(positions), compute)
        return cos, sin

    def _in_threads(self, n: int, work: Callable[[slice], None]) -> None:
        """Call `work` for all of n rows, in parts. NumPy computes without the interpreter's lock."""
        n_parts = max(1, min(self.pool.n_threads, n // _ROWS_OF_A_THREAD))
        if n_parts == 1:
            work(slice(0, n))
            return
        ends = [n * i // n_parts for i in range(n_parts + 1)]
        with ThreadPoolExecutor(n_parts) as threads:
            list(threads.map(work, map(slice, ends, ends[1:])))

    def rope(self, x: F32, cos: F32, sin: F32, order: RopeOrder = "halves") -> F32:
        out: F32 = np.array(x, np.float32, order="C")
        if out.size and cos.size:
            cos, sin = np.ascontiguousarray(cos, np.float32), np.ascontiguousarray(sin, np.float32)
            self._run(rope_calls(out, cos, sin, order == "interleaved"))
        return out

    def attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        return self._reference.attention(q, k, v, scoring)

    def cached_attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        blocks: U8,
        layout: KvLayout,
        position: int,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        q, k, v = (np.ascontiguousarray(x, np.float32) for x in (q, k, v))
        out = np.empty_like(q)
        if not out.size:
            return out
        place = CachePlace.of_layer(blocks, layout, position)
        shape = (len(q), q.shape[1], place.n_kv_heads, layout)
        if self._attention[0] != shape:  # the same in every layer of a chunk
            buffers = attention_buffers(q.shape[1], place.n_kv_heads, layout, len(q), self.pool.n_threads)
            self._attention = (shape, buffers)
        calls = store_calls(k, v, place, 0) if len(k) else []
        self._run(calls + attention_calls(q, out, place, 0, self._attention[1], scoring))
        return out

    def gated_delta(self, x: DeltaInput, w: DeltaWeights, spec: DeltaSpec, before: F32, after: F32) -> F32:
        x = DeltaInput(*(np.ascontiguousarray(one, np.float32) for one in x))
        out = np.empty_like(x.gate)
        self._run(delta_calls(x, out, w, spec, StatePlace.of(before, after), 0, self.pool.n_threads))
        return out

    def short_conv(self, x: ShortConvInput, conv: F32, spec: ShortConvSpec, before: F32, after: F32) -> F32:
        x = ShortConvInput(*(np.ascontiguousarray(one, np.float32) for one in x))
        out = np.empty_like(x.gate)
        self._run(short_conv_calls(x, out, conv, spec, StatePlace.of(before, after), 0))
        return out

    def gated(self, x: F32, gate: F32) -> F32:
        x, gate = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(gate, np.float32)
        out = np.empty_like(x)
        if x.size:
            self._run(gate_calls(x, gate, out, ""))
        return out

    def relu(self, x: F32, threshold: float = 0.0) -> F32:
        return self._activate("fatrelu" if threshold else "relu", x, threshold)

    def relu2(self, x: F32) -> F32:
        return self._activate("relu2", x)

    def silu(self, x: F32) -> F32:
        return self._activate("silu", x)

    def gelu(self, x: F32) -> F32:
        return self._activate("gelu", x)

    def gelu_tanh(self, x: F32) -> F32:
        return self._activate("gelu-tanh", x)

    def clamped_silu(self, x: F32, limit: float) -> F32:
        return self._activate("clamped-silu", x, limit)

    def softcap(self, x: F32, cap: float) -> F32:
        x = np.ascontiguousarray(x, np.float32)
        out = np.empty_like(x)
        if x.size:
            self._run(softcap_calls(x, out, cap))
        return out

    def expert_batch(self, activation: Activation, threshold: float, relu_on_up: bool) -> ExpertBatch | None:
        return CpuExpertBatch(self.pool, self._scratch, activation, threshold, relu_on_up)

    def _activate(self, activation: Activation, x: F32, threshold: float = 0.0) -> F32:
        x = np.ascontiguousarray(x, np.float32)
        out = np.empty_like(x)
        if x.size:
            self._run(activation_calls(activation, x, out, threshold=threshold))
        return out

    def _norm(self, x: F32, norm: RowNorm) -> F32:
        x = np.ascontiguousarray(x, np.float32)
        out = np.empty_like(x)
        if x.size:
            self._run(norm_calls(x, out, norm))
        return out

    def _run(self, calls: list[Call]) -> None:
        self.pool.run(Program(calls))
