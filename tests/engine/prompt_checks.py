"""A prompt through a model of which a part is on a GPU, compared with the CPU: for any GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from samples.split_model import hot_part, in_a_file, random_weights

from engine.config import ModelConfig
from engine.executor.dense import DenseExecutor
from engine.gpu.prefill.pinned_weights import PinnedWeights, pinnable_spans
from engine.gpu.prefill.prefill import GpuPrefill
from engine.gpu.prefill.prefill_memory import Sizes, sizes_for
from engine.gpu.prefill.streamed_layers import StreamedLayers, can_stream, matrices_of
from engine.gpu.weights.cache import host_rows
from engine.gpu.weights.layers import GpuModel
from engine.model.kv_cache import KVCache
from engine.model.prefetch import Prefetch
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
CAPACITY = 96


class Cache(KVCache):
    """A cache with blocks for the layers at home on the CPU only."""

    def __init__(self, config: ModelConfig, model: GpuModel, codec: Any) -> None:
        super().__init__(config, CAPACITY, codec, host_rows(config, model.layers))

    @property
    def half(self) -> int:
        return self._half


class Setting:
    """A model on both sides. arrays, ops: the GPU's, or a fake's."""

    def __init__(
        self, config: ModelConfig, arrays: Any, ops: Any, *, codec: str = "f32", row_wise: bool = False,
        whole: bool = False, hot: Any = None, at_home: Any = lambda i: True, sizes: Sizes | None = None,
        kv_codec: Any = "f32", weights: ModelWeights | None = None, in_place: bool = False, streams: int | None = None,
    ) -> None:  # fmt: skip
        """weights: instead of random ones in RAM. in_place: whether the GPU reads them where they lie, in a file then:
        small arrays share their pages with others. streams: from so many tokens on the CPU's layers are streamed."""
        self.config, self.kv_codec = config, kv_codec
        self.weights = weights or random_weights(config, codec, row_wise)
        if in_place and weights is None:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows deletes no mapped file
                self.weights = in_a_file(self.weights, Path(folder, "weights"))
        rng = np.random.default_rng(3)

        def some(i: int) -> Any:
            """About half of the neurons in any order, and two empty slots; or some experts."""
            if config.n_experts:
                return rng.permutation(config.n_experts)[: (3, 8, 0)[i % 3]]
            return np.append(rng.permutation(config.d_ff)[: config.d_ff // 2 - 7 * i], [-1, -1])

        self.model = hot_part(config, self.weights, arrays, CAPACITY, hot or some, at_home, kv_codec, whole)
        self.pool = Pool(2)
        wanted = sizes or sizes_for(config, [w.ffns[0] for w in self.weights.layers], CAPACITY, counts_neurons=True)
        self.oracle = self._transformer()
        self.in_place = PinnedWeights(ops.device, lambda at, n_bytes: n_bytes)
        if in_place:
            spans = pinnable_spans(one for w in self.weights.layers for one in matrices_of(w))
            self.in_place.begin(spans, self.weights, Prefetch([], None), lambda is_pinned: True)
            assert self.in_place.wait(60)
            assert self.in_place.is_all
        streamed = None
        if streams is not None:
            layers = zip(self.weights.layers, self.model.layers, strict=True)
            of_cpu = [w if layer is None and can_stream(w) else None for w, layer in layers]
            streamed = StreamedLayers(ops, config, of_cpu, CAPACITY, kv_codec, wanted.positions)
        self.prefill = GpuPrefill(
            self._transformer(), self.model, ops, self.pool, wanted, self.in_place, streamed,
            lambda n_tokens: streams is not None and n_tokens >= streams,
        )  # fmt: skip
        self.cache, self.expected = Cache(config, self.model, kv_codec), KVCache(config, CAPACITY, kv_codec)

    def _transformer(self) -> Transformer:
        return Transformer(self.config, self.weights, DenseExecutor(self.config, self.weights, OPS), OPS)

    def check(self, *counts: int) -> None:
        """Pieces of so many tokens, one after another: hidden states of each as the CPU has them."""
        rng = np.random.default_rng(1)
        for count in counts:
            tokens = rng.integers(0, self.config.vocab_size, count)
            found = self.prefill.run(tokens, self.cache, self.cache.length + count)  # type: ignore[arg-type]
            self.cache.advance(count)
            wanted = self.oracle.forward(tokens, self.expected)
            size = np.sqrt(np.square(wanted).mean(axis=1))
            error = np.sqrt(np.square(found - wanted).mean(axis=1)) / size
            # Keys and values of 8 bits, and routers near a tie, make more of what is rounded.
            near = 1e-2 if self.kv_codec == "q8_0" or self.config.n_experts else 4e-3
            few = len(error) // 8 if self.config.n_experts else 0
            assert np.sort(error)[len(error) - few - 1] < near, error.tolist()
            assert error.max() < ((0.4 if self.config.router_margin else 0.15) if few else near), error.tolist()
        assert np.array_equal(self.cache.tokens, self.expected.tokens)

    def close(self) -> None:
        self.prefill.close()
        self.in_place.close()
        self.pool.close()
