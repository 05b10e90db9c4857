"""Attention over a KV cache in one shape after another against the reference, in whatever instruction set this is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from native_kernels import kv_blocks
from native_kernels.backend import Scoring
from native_kernels.cpu.attention.attention import attention_buffers, attention_calls
from native_kernels.cpu.attention.kv_store import CachePlace, store_calls
from native_kernels.cpu.runtime import call
from native_kernels.kv_blocks import KvCodec, KvLayout
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import Temperature

F32 = NDArray[np.float32]

# The reference reads the same stored numbers, so what remains is the rounding of sums in float32: a score of up to 256
# products, each rounded by 6e-8 of itself, is off by a few 1e-7 of its size, which is at most 5, and 30 where the scale
# is 1; by as much, relatively, are the weights, and exp is within 2e-7. Outputs are of the order of 1.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Case:
    """Tokens T behind `past` positions; heads H that share H_kv key-value heads."""

    heads: int
    kv_heads: int
    head_dim: int
    past: int
    tokens: int = 1
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    codec: KvCodec = "f16"
    seed: int = 0
    sinks: bool = False
    shared: bool = False
    temperature: Temperature | None = None

    @property
    def layout(self) -> KvLayout:
        return KvLayout(self.head_dim, self.codec, self.shared)

    @property
    def scoring(self) -> Scoring:
        rng = np.random.default_rng(self.seed + 1)
        sinks = rng.standard_normal(self.heads).astype(np.float32) * 3 if self.sinks else None
        return Scoring(self.scale, self.softcap, self.window, sinks, self.temperature)

    def inputs(self) -> tuple[F32, F32, F32]:
        """q of the tokens; k and v of all positions."""
        rng = np.random.default_rng([self.seed, self.heads, self.head_dim, self.past])
        n = self.past + self.tokens
        q = rng.standard_normal((self.tokens, self.heads, self.head_dim), np.float32)
        k, v = (rng.standard_normal((n, self.kv_heads, self.head_dim), np.float32) for _ in range(2))
        return q, k, k if self.shared else v


CASES = (
    *(Case(8, 2, dim, 77) for dim in (64, 80, 96, 128, 256)),
    *(Case(4, 4, dim, 45, window=20) for dim in (2, 8, 20, 33, 100)),
    *(Case(*heads, 64, 130) for heads in ((1, 1), (5, 5), (6, 2), (12, 1), (71, 1), (9, 3))),
    *(Case(4, 2, 64, past) for past in (0, 1, 30, 31, 32, 33, 63, 64, 255, 999, 2999)),
    Case(2, 1, 16, 33_000),
    Case(4, 2, 64, 500, window=1),
    Case(4, 2, 64, 500, window=32, softcap=3.0),
    Case(4, 2, 64, 500, window=4000, scale=1.0),
    Case(8, 1, 128, 5, softcap=50.0),
    *(Case(6, 2, 64, past, tokens) for past, tokens in ((0, 2), (0, 31), (0, 100), (17, 33), (300, 7))),
    *(Case(4, 1, 80, past, tokens, window=40) for past, tokens in ((0, 130), (100, 50))),
    Case(71, 1, 64, 3, 9, softcap=2.0),
    *(Case(8, 2, 64, past, tokens, sinks=True) for past, tokens in ((0, 1), (40, 1), (3000, 1), (0, 70), (300, 7))),
    Case(4, 1, 80, 300, 50, window=40, sinks=True),
    *(Case(16, 1, 576, past, tokens, shared=True) for past, tokens in ((0, 1), (33, 1), (1000, 1), (0, 40))),
    *(Case(heads, 1, 40, 130, shared=True) for heads in (3, 128)),
    Case(8, 2, 36, 70, 9, window=20, shared=True),
    Case(6, 2, 64, 100, temperature=Temperature(0.3, 32)),
    Case(6, 2, 64, 20, 90, temperature=Temperature(0.3, 32)),
)


def cached(case: Case, workers: int = 1) -> tuple[CachePlace, NDArray[np.uint8]]:
    """A cache of two layers whose second one holds the case's positions before its tokens, and its blocks."""
    layout = case.layout
    _, k, v = case.inputs()
    blocks = kv_blocks.allocate(2, case.kv_heads, case.past + case.tokens, layout)
    words = np.array([0, blocks.ctypes.data, blocks[0].nbytes], np.int64)
    place = CachePlace(words[:1], words[1:2], words[2:], layout, case.kv_heads)
    if case.past:
        call.run(store_calls(k[: case.past], v[: case.past], place, 1), workers)
    words[0] = case.past
    return place, blocks


def calls(case: Case, place: CachePlace, out: F32, workers: int) -> list[call.Call]:
    """What stores the case's tokens and attends."""
    q, k, v = case.inputs()
    buffers = attention_buffers(case.heads, case.kv_heads, place.layout, case.tokens, workers)
    stored = store_calls(k[case.past :], v[case.past :], place, 1)
    return stored + attention_calls(q, out, place, 1, buffers, case.scoring)


def found(case: Case, workers: int = 1) -> tuple[F32, NDArray[np.uint8]]:
    """What the kernels make of the case, and the cache's second layer."""
    place, blocks = cached(case, workers)
    out = np.zeros((case.tokens, case.heads, case.head_dim), np.float32)
    call.run(calls(case, place, out, workers), workers)
    return out, blocks[1]


def wanted(case: Case, blocks: NDArray[np.uint8]) -> F32:
    """The reference over what the cache holds."""
    q, _, _ = case.inputs()
    k, v = kv_blocks.read(blocks, case.layout, case.past + case.tokens)
    return ReferenceOperators().attention(q, k, v, case.scoring)


def stored_by_reference(case: Case) -> NDArray[np.uint8]:
    layout = case.layout
    _, k, v = case.inputs()
    blocks = kv_blocks.allocate(1, case.kv_heads, case.past + case.tokens, layout)[0]
    kv_blocks.write(blocks, layout, 0, k, v)
    return blocks


def check(codecs: Sequence[KvCodec], cases: Sequence[Case] = CASES) -> None:
    """Compare outputs, and what is stored, with the reference."""
    for codec in codecs:
        for case in cases:
            here = replace(case, codec=codec)
            out, blocks = found(here)
            np.testing.assert_allclose(out, wanted(here, blocks), rtol=0, atol=TOLERANCE)
            np.testing.assert_array_equal(blocks, stored_by_reference(here))


if __name__ == "__main__":
    check(sys.argv[1:])  # type: ignore[arg-type]
