"""Models on a GPU for tests of what decodes there, beside the CPU's own program of the same model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from samples.placements import a_placement

from engine.config import KvCodec, Mode, ModelConfig
from engine.decode.decode_program import DecodeProgram
from engine.executor.slots import SlotTable
from engine.gpu.token.decode_program import GpuDecodeProgram
from engine.gpu.token.token_model import TokenModel
from engine.gpu.weights.cache import GpuCache, KvRegion
from engine.gpu.weights.loading import GpuContents, LoadedGpu, load_onto_gpu
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu
from native_kernels.reference import ReferenceOperators

CONTEXT = 40


@dataclass(frozen=True, eq=False)
class OnGpu:
    """A model whose tokens run on GPU and CPU. tables: which neurons lie in which slots."""

    loaded: LoadedGpu
    region: KvRegion
    decoder: GpuDecodeProgram
    counters: FfnCounters
    pool: Pool
    tables: list[SlotTable]
    config: ModelConfig

    def cache(self) -> GpuCache:
        return GpuCache(self.config, CONTEXT, self.region)

    def close(self) -> None:
        self.decoder.close()
        self.loaded.close()
        self.pool.close()


def put_on_gpu(
    gpu: Gpu,
    config: ModelConfig,
    weights: ModelWeights,
    mode: Mode,
    hot: Sequence[I32],
    predictor: Predictor | None = None,
    *,
    attention: Sequence[str] | None = None,
    head: str = "gpu",
    threads: int = 2,
    kv_codec: KvCodec = "f32",
    reached: Sequence[I32] = (),
    sequences: int = 1,
    **how: Any,
) -> OnGpu:
    """hot, reached: [L], ascending; none where attention [L] is not "gpu". how: as GpuDecodeProgram has it."""
    homes = tuple(attention or ("gpu",) * config.n_layers)
    placement = a_placement(hot, config.n_neurons, attention=homes, predictor=homes, head=head, reached=tuple(reached))
    predictor = predictor if mode == "sparse" else None
    counters, pool = FfnCounters(config.n_layers, config.n_neurons), Pool(threads)
    contents = GpuContents(placement, CONTEXT, kv_codec, sequences=sequences)
    loaded = load_onto_gpu(gpu, pool, config, weights, predictor, contents)
    region = KvRegion(gpu, loaded.model.layers, config, kv_codec, CONTEXT)
    tables = [] if config.n_experts else [SlotTable(config.ffn_width(i), ids) for i, ids in enumerate(loaded.placed)]
    model = TokenModel(config, weights, loaded.model, mode, predictor, tables or None, loaded.expert_slots)
    decoder = GpuDecodeProgram(gpu, model, counters, pool, region, **how)
    return OnGpu(loaded, region, decoder, counters, pool, tables, config)


def logits_of(
    step: Callable[[int, Any], F32], cache: KVCache, tokens: Sequence[int]
) -> F32:  # fmt: skip
    """The logits behind every token, [T, V]."""
    return np.stack([step(int(token), cache) for token in tokens])


def by_cpu(
    config: ModelConfig,
    weights: ModelWeights,
    mode: Mode,
    tokens: Sequence[int],
    predictor: Predictor | None = None,
    kv_codec: KvCodec = "f32",
) -> tuple[F32, FfnCounters]:
    """What the CPU's own program makes of the tokens."""
    counters, pool = FfnCounters(config.n_layers, config.n_neurons), Pool(2)
    program = DecodeProgram(config, weights, mode, counters, pool, predictor if mode == "sparse" else None)
    found = logits_of(program.step, KVCache(config, CONTEXT, kv_codec), tokens)
    pool.close()
    return found, counters


def some_hot(config: ModelConfig, kind: str, seed: int = 11) -> list[I32]:
    """Hot neurons of every layer: none, all, some, or of each layer other ones in number."""
    rng = np.random.default_rng(seed)
    uneven = [(0.1, 1.0, 0.0, 0.6)[i % 4] for i in range(config.n_layers)]
    shares = {"empty": [0.0], "full": [1.0], "random": [0.4], "uneven": uneven}[kind]
    found = []
    for i in range(config.n_layers):
        width, share = config.ffn_width(i), shares[i % len(shares)]
        if config.gate_cutoffs and config.gate_cutoffs[i] and share < 1:  # all or none; of some layers none
            share = float(i % 4 == 0 and share > 0)
        found.append(np.sort(rng.permutation(width)[: round(share * width)]).astype(np.int32))
    return found


def some_experts(config: ModelConfig, counts: Sequence[int], seed: int = 5) -> list[I32]:
    """The neurons of some experts of every layer, so many in each; none in layers without experts."""
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.permutation(config.n_experts)[:count]) for count in counts]
    has_some = [not config.is_dense(i) and config.ffn_width(i) > 0 for i in range(config.n_layers)]
    chosen = [ids[: len(ids) * some] for ids, some in zip(chosen, has_some, strict=False)]
    width = np.arange(config.d_ff)
    return [(config.d_ff * ids[:, None] + width).reshape(-1).astype(np.int32) for ids in chosen]


def recoded(weights: ModelWeights, codec: str, ffn_codec: str | None = None) -> ModelWeights:
    """The weights with every matrix of their layers in another codec."""

    def of(matrix: PackedMatrix | None, into: str) -> PackedMatrix | None:
        if matrix is None:
            return None
        return PackedMatrix.pack(ReferenceOperators().rows(matrix, np.arange(matrix.n_rows)), into)

    def layer(w: LayerWeights) -> LayerWeights:
        attention = {name: of(getattr(w, name), codec) for name in ("q", "k", "v", "o")}
        ffn = {name: of(getattr(w, name), ffn_codec or codec) for name in ("gate", "up", "down_t", "down")}
        return replace(w, **attention, **ffn)

    return replace(weights, layers=[layer(w) for w in weights.layers])
