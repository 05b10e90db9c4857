"""Random models of several families, and a part of each on a GPU: some neurons hot, the others cold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import ModelConfig
from engine.gpu.weights.layers import (
    GpuConvolution,
    GpuDeltaNet,
    GpuExpertFfn,
    GpuLatentMatrices,
    GpuLayer,
    GpuModel,
    GpuRowWiseFfn,
)
from engine.gpu.weights.layout import slots_of
from engine.model.weights import FfnWeights, LayerWeights, ModelWeights, no_rows
from native_kernels.backend import PackedMatrix
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.gpu import GpuBlock, GpuDelta, GpuExperts, GpuKv, GpuMatrix, GpuNorm, GpuShortConv
from native_kernels.specs import DeltaSpec, LatentSpec, ShortConvSpec, Temperature

BASE = ModelConfig(
    family="llama", n_layers=3, d_model=64, d_ff=320, n_heads=4, n_kv_heads=2, head_dim=16, vocab_size=50,
    rope_theta=10000.0, norm_eps=1e-5, activation="relu-glu", max_context=256, tied_embeddings=False,
    bos_token_id=None, eos_token_ids=(),
)  # fmt: skip
_OPT_BIASES = ("q", "k", "v", "o", "up", "down", "norm")
WITH_EXPERTS = replace(BASE, activation="silu-glu", d_ff=96, n_experts=8, n_experts_used=3)
MAMBA = DeltaSpec(
    key_heads=2, value_heads=4, key_dim=12, value_dim=20, conv_width=4, mamba=True, norm_groups=2, conv_bias=True
)
EXPERT_FAMILIES: dict[str, ModelConfig] = {
    "qwen": WITH_EXPERTS,
    "relu": replace(WITH_EXPERTS, activation="relu-glu", normed_routing=False),
    "shared": replace(WITH_EXPERTS, shared_d_ff=160, normed_routing=False),
    "early": replace(WITH_EXPERTS, early_router=True, router="sigmoid"),
    "glm": replace(
        WITH_EXPERTS, router="sigmoid", selection_bias=True, routing_scale=2.5, shared_d_ff=160, shared_gated=False,
        n_dense_layers=1, dense_d_ff=224,
    ),
    "groups": replace(
        WITH_EXPERTS, router="sigmoid", selection_bias=True, routing_scale=2.5, n_groups=4, n_groups_used=2
    ),
    "near": replace(WITH_EXPERTS, normed_routing=False, router_margin=0.5),
    "llama4": replace(
        WITH_EXPERTS, weighed_inputs=True, router="sigmoid", normed_routing=False, shared_d_ff=96, shared_gated=False,
        experts_every=2, dense_d_ff=160, n_experts_used=2,
    ),
    "gpt-oss": replace(
        WITH_EXPERTS, activation="clamped-silu-glu", activation_threshold=1.5, attention_sinks=True,
        biases=("q", "k", "v", "o", "gate", "up", "down", "router"),
    ),
    "nemotron": replace(
        WITH_EXPERTS, activation="relu2", router="sigmoid", selection_bias=True, shared_d_ff=160, shared_gated=False,
        n_layers=5, unrotated=tuple(range(5)), delta=MAMBA, delta_layers=(0, 4), mixer_only_layers=(0, 2, 4),
        ffn_only_layers=(1, 3),
    ),
}  # fmt: skip
FAMILIES: dict[str, ModelConfig] = {
    "llama": BASE,
    "silu": replace(BASE, activation="silu-glu", rotary_dim=8, rope_order="interleaved"),
    "drelu": replace(BASE, activation="drelu-glu", biases=("q", "k", "v")),
    "opt": replace(
        BASE, activation="relu", norm="layer", biases=_OPT_BIASES, positions="learned", position_offset=2, n_kv_heads=4
    ),
    "opt-350m": replace(
        BASE, activation="relu", norm="layer", norms="post", final_norm=False, biases=_OPT_BIASES,
        positions="learned", position_offset=2, embedding_dim=32,
    ),
    "falcon": replace(
        BASE, activation="relu", norm="layer", biases=("norm",), parallel=True, shared_norm=True, n_kv_heads=1
    ),
    "falcon-40b": replace(BASE, activation="gelu", norm="layer", biases=("norm",), parallel=True, n_kv_heads=2),
    "gemma": replace(
        BASE, activation="gelu-tanh-glu", norms="both", qk_norm=True, windows=(9, 0, 9), rope_theta_local=1000.0,
        attention_softcap=20.0, embedding_scale=8.0, attention_scale=0.2, unrotated=(1,),
    ),
    "sinks": replace(BASE, attention_sinks=True),
    "temperature": replace(
        BASE, qk_norm=True, qk_norm_after=True, attention_temperature=Temperature(0.3, 8), rope_order="interleaved"
    ),
    "chunks": replace(
        BASE, windows=(9, 0, 9), chunked_windows=True, unrotated=(1,), qk_norm=True, qk_norm_after=True,
        qk_norm_plain=True, attention_temperature=Temperature(0.3, 8, offset=1), temperature_of_unrotated=True,
    ),
    "delta": replace(
        BASE, gated_attention=True, delta_layers=(0, 2), qk_norm=True, rotary_dim=8,
        delta=DeltaSpec(key_heads=2, value_heads=4, key_dim=12, value_dim=20, conv_width=4),
    ),
    "convolution": replace(BASE, delta_layers=(0, 2), qk_norm=True, short_conv=ShortConvSpec(64, 4)),
    "latent": replace(
        BASE, n_kv_heads=1, head_dim=32, rotary_dim=8, attention_scale=0.2, rope_order="interleaved",
        latent=LatentSpec(rank=24, key_dim=16, value_dim=12, query_rank=20),
        attention_temperature=Temperature(0.3, 8),
    ),
    "granite": replace(BASE, activation="silu-glu", delta=MAMBA, delta_layers=(0, 2), unrotated=(0, 1, 2)),
    "nemotron": replace(
        BASE, n_layers=5, activation="relu2", unrotated=tuple(range(5)),
        delta=replace(MAMBA, conv_width=2, conv_bias=False),
        delta_layers=(0, 4), mixer_only_layers=(0, 2, 4), ffn_only_layers=(1, 3),
    ),
    "olmo": replace(BASE, norms="output", qk_norm=True, qk_norm_whole=True),
}  # fmt: skip


def random_weights(config: ModelConfig, codec: str = "f32", row_wise: bool = False, seed: int = 0) -> ModelWeights:
    """Weights of all that the family has. row_wise: down [D, F] instead of neuron by neuron."""
    rng = np.random.default_rng(seed)
    d, f, kv = config.d_model, config.d_ff, config.n_kv_heads * config.head_dim
    heads, wide = config.n_heads * config.head_dim, config.embedding_dim or config.d_model

    def matrix(n_rows: int, n_cols: int, codec: str = codec, scale: float = 1.0) -> PackedMatrix:
        values = (scale * rng.standard_normal((n_rows, n_cols)) / np.sqrt(n_cols)).astype(np.float32)
        return PackedMatrix.pack(values, codec)

    def vector(n: int, around: float = 0.0) -> Any:
        return (around + 0.3 * rng.standard_normal(n)).astype(np.float32)

    def expert(f: int) -> FfnWeights:
        biases = {name: f"{name}_bias" for name in ("gate", "up", "down") if name in config.biases}
        return FfnWeights(
            up=matrix(f, d), gate=matrix(f, d) if config.gated else None, down=matrix(d, f) if row_wise else None,
            down_t=None if row_wise else matrix(f, d),
            **{bias: vector(d if name == "down" else f) for name, bias in biases.items()},
        )  # fmt: skip

    def with_experts(found: dict[str, Any], dense: bool) -> LayerWeights:
        kept = {name: one for name, one in found.items() if name not in ("gate", "up", "down", "down_t")}
        if dense:
            return LayerWeights(**kept, experts=(expert(config.dense_d_ff),))
        experts = [expert(f) for _ in range(config.n_experts)]
        shared = [expert(config.shared_d_ff)] if config.shared_d_ff else []
        return LayerWeights(
            **kept, router=matrix(config.n_experts, d, "f32", 2.0), experts=tuple(experts + shared),
            router_bias=vector(config.n_experts) if "router" in config.biases else None,
            shared_gate=vector(d) if shared and config.shared_gated else None,
            selection_bias=vector(config.n_experts) if config.selection_bias else None,
            sinks=vector(config.n_heads) if config.attention_sinks else None,
        )  # fmt: skip

    def delta_net(spec: DeltaSpec) -> dict[str, Any]:
        n = spec.value_heads
        others = {"beta": matrix(n, d, "f32")} if not spec.mamba else {"skip": vector(n, 1)}
        return others | ({"conv_bias": vector(spec.channels)} if spec.conv_bias else {}) | {
            "q": matrix(spec.key_width, d), "k": matrix(spec.key_width, d), "v": matrix(spec.value_width, d),
            "o": matrix(d, spec.value_width), "attention_gate": matrix(spec.value_width, d),
            "alpha": matrix(n, d, "f32"), "alpha_bias": vector(n),
            "decay": -np.exp(vector(n)), "conv": vector(spec.channels * spec.conv_width),
            "head_norm": vector(spec.norm_size, 1),
        }  # fmt: skip

    def latent(spec: LatentSpec) -> dict[str, Any]:
        n, of_query = config.n_heads, spec.query_rank or d
        below = {"q_down": matrix(of_query, d), "q_norm": vector(of_query, 1)} if spec.query_rank else {}
        return below | {
            "q": matrix(n * (spec.key_dim + config.rotated), of_query), "k": matrix(config.head_dim, d),
            "k_up": matrix(n * spec.rank, spec.key_dim), "v": matrix(n * spec.value_dim, spec.rank),
            "o": matrix(d, n * spec.value_dim), "k_norm": vector(spec.rank, 1),
        }  # fmt: skip

    def layer(i: int) -> LayerWeights:
        before = None if config.norms == "output" else vector(d, 1)
        found: dict[str, Any] = {"attention_norm": before, "q": matrix(heads, d), "k": matrix(kv, d),
                                 "v": matrix(kv, d), "o": matrix(d, heads), "up": matrix(f, d)}  # fmt: skip
        if config.gated_attention:
            found["attention_gate"] = matrix(heads, d)
        if i in config.delta_layers and config.delta is not None:
            found |= delta_net(config.delta)
        if i in config.delta_layers and config.short_conv is not None:
            found |= {name: matrix(d, d) for name in ("q", "k", "v", "o")}
            found["conv"] = vector(d * config.short_conv.conv_width)
        if config.latent is not None:
            found |= latent(config.latent)
        if not config.shared_norm and config.norms != "output":
            found["ffn_norm"] = vector(d, 1)
        if config.gated:
            found["gate"] = matrix(f, d)
        found |= {"down": matrix(d, f)} if row_wise else {"down_t": matrix(f, d)}
        if i in config.ffn_only_layers:
            found = {name: one for name, one in found.items() if name not in ("attention_norm", "k", "v")}
            found |= {"attention_norm": None, "q": no_rows(d), "o": no_rows(d)}
        if i in config.mixer_only_layers:
            of_ffn = ("ffn_norm", "gate", "up", "down", "down_t")
            return LayerWeights(**{name: one for name, one in found.items() if name not in of_ffn})
        if config.n_experts:
            return with_experts(found, dense=config.is_dense(i))
        if "norm" in config.biases:
            found |= {name + "_bias": vector(d) for name in ("attention_norm", "ffn_norm") if name in found}
        if config.norms in ("both", "output"):
            found |= {"post_attention_norm": vector(d, 1), "post_ffn_norm": vector(d, 1)}
        if config.qk_norm and i not in config.delta_layers and not config.qk_norm_plain:
            q, k = (heads, kv) if config.qk_norm_whole else (config.head_dim, config.head_dim)
            found |= {"q_norm": vector(q, 1), "k_norm": vector(k, 1)}
        widths = {"q": heads, "k": kv, "v": kv, "o": d, "gate": f, "up": f, "down": d}
        found |= {name + "_bias": vector(n) for name, n in widths.items() if name in config.biases}
        return LayerWeights(**found, sinks=vector(config.n_heads) if config.attention_sinks else None)

    learned = config.positions == "learned"
    return ModelWeights(
        embedding=matrix(config.vocab_size, wide, "f32", 8.0), layers=[layer(i) for i in range(config.n_layers)],
        final_norm=vector(d, 1) if config.final_norm else None, head=matrix(config.vocab_size, wide, "f32"),
        hold="f32", hold_reason="", n_bytes=0, ram_bytes=0,
        final_norm_bias=vector(d) if config.final_norm and "norm" in config.biases else None,
        positions=matrix(config.max_context + config.position_offset, d, "f32") if learned else None,
        project_in=matrix(d, wide, "f32") if config.embedding_dim else None,
        project_out=matrix(wide, d, "f32") if config.embedding_dim else None,
    )  # fmt: skip


def in_a_file(weights: ModelWeights, path: Path, first: int = 0) -> ModelWeights:
    """The same, whose matrices of layers are views of a file that was mapped to be read: one behind the other from
    byte `first` on, so that they begin wherever they do."""
    names = ("q", "k", "v", "o", "gate", "up", "down_t", "down")
    found, starts, size = [], {}, first
    for name in names:  # those of a layer's experts follow each other
        for w in weights.layers:
            for block in (w, *w.experts):
                if (one := getattr(block, name, None)) is not None:
                    found.append(one.data.tobytes())
                    starts[block, name] = size, one
                    size += len(found[-1])
    path.write_bytes(bytes(first) + b"".join(found))
    mapped = np.asarray(np.memmap(path, np.uint8, mode="r"))

    def of(block: Any) -> Any:
        views = {}
        for name in names:
            if (block, name) in starts:
                at, one = starts[block, name]
                n_bytes = one.n_rows * one.row_bytes
                views[name] = PackedMatrix.view(mapped[at : at + n_bytes], one.n_rows, one.n_cols, one.codec)
        return replace(block, **views)

    layers = [replace(of(w), experts=tuple(of(one) for one in w.experts)) for w in weights.layers]
    return replace(weights, layers=layers)


def hot_part(
    config: ModelConfig, weights: ModelWeights, arrays: Any, capacity: int, hot: Callable[[int], Any],
    at_home: Callable[[int], bool], kv_codec: Any = "f32", whole: bool = False,
) -> GpuModel:  # fmt: skip
    """The model on the GPU. arrays: puts arrays and matrices there (support/arrays_on_gpu.py). hot: of a layer, the
    neurons in its slots, -1 for an empty one. at_home: whether its home is the GPU; whole: row-wise, all of it there.
    """

    def of_layer(i: int, w: LayerWeights) -> GpuLayer:
        def put(values: Any) -> int:
            return 0 if values is None else int(arrays.put(values))

        def norm(weight: Any, bias: Any = None) -> GpuNorm | None:
            return None if weight is None else GpuNorm(config.norm, put(weight), put(bias), config.norm_eps)

        def some(matrix: PackedMatrix | None, ids: Any) -> GpuMatrix | None:
            if matrix is None:
                return None
            return arrays.matrix(PackedMatrix(len(ids), matrix.n_cols, matrix.codec, matrix.data[ids]))

        slots = np.array([] if i in config.mixer_only_layers else hot(i), np.int32)
        block, rows = None, None
        if w.experts:
            pass
        elif w.down is not None and whole:
            rows = GpuRowWiseFfn(
                some(w.gate, np.arange(config.d_ff)), arrays.matrix(w.up), arrays.matrix(w.down),
                put(w.gate_bias), put(w.up_bias),
            )  # fmt: skip
        elif w.down_t is not None and len(slots):
            ids = np.maximum(slots, 0)
            up, down_t = some(w.up, ids), some(w.down_t, ids)
            assert up is not None
            assert down_t is not None
            shifts = [put(None if bias is None else bias[ids]) for bias in (w.gate_bias, w.up_bias)]
            fired = arrays.put(np.zeros(len(slots), np.uint32))
            block = GpuBlock(some(w.gate, ids), up, down_t, *shifts, arrays.put(slots), fired)
        kv_numbers = config.n_kv_heads * capacity * config.head_dim
        places = [arrays.space(4 * kv_numbers) for _ in range(2 if config.latent else 4)]
        numbers, scales = (places[0], places[-2]), (places[1], places[-1])
        kv = GpuKv(kv_codec, *numbers, *scales, config.n_kv_heads, config.head_dim, capacity)
        heads = (
            None if w.k_up is None else GpuLatentMatrices(w.q_down and arrays.matrix(w.q_down), arrays.matrix(w.k_up))
        )
        delta, spec = None, config.delta
        if w.alpha is not None and spec is not None:
            of = w.delta(config.norm_eps)
            done = put(np.zeros(done_bytes(spec), np.uint8)) if spec.mamba else 0
            delta = GpuDeltaNet(
                tuple(arrays.matrix(one) for one in w.delta_projections),
                GpuDelta(
                    spec,
                    put(of.conv),
                    put(of.decay),
                    put(of.alpha_bias),
                    put(of.norm),
                    of.epsilon,
                    put(of.conv_bias),
                    put(of.skip),
                    done,
                ),
                (arrays.space(4 * spec.state_size, 0), arrays.space(4 * spec.state_size, 0)),
            )
        convolution, short = None, config.short_conv
        if w.conv is not None and short is not None:
            states = arrays.space(4 * short.state_size, 0), arrays.space(4 * short.state_size, 0)
            convolution = GpuConvolution(GpuShortConv(short, put(w.conv)), states)
        gate = None if delta or w.attention_gate is None else arrays.matrix(w.attention_gate)
        n_hot = int((slots >= 0).sum()) if block else 0
        matrices = [None if one is None else arrays.matrix(one) for one in (w.q, w.k, w.v, w.o)]
        kv = None if delta or convolution or i in config.ffn_only_layers else kv
        biases = [put(one) for one in (w.q_bias, w.k_bias, w.v_bias, w.o_bias)]
        norms = [norm(w.attention_norm, w.attention_norm_bias), norm(w.post_attention_norm),
                 norm(w.ffn_norm, w.ffn_norm_bias), norm(w.post_ffn_norm), norm(w.q_norm), norm(w.k_norm)]  # fmt: skip
        has_cold = rows is None and n_hot < config.ffn_width(i)
        if w.experts:
            ffn = experts_on_gpu(w, slots)
            return GpuLayer(
                *matrices, *biases, *norms, kv, None, None, 0, None, 0, True, experts=ffn, sinks=put(w.sinks)
            )
        return GpuLayer(
            *matrices, *biases, *norms, kv, None, block, 0, rows, put(w.down_bias), has_cold,
            sinks=put(w.sinks), attention_gate=gate, delta=delta, convolution=convolution, latent=heads,
        )  # fmt: skip

    def stack(blocks: Sequence[FfnWeights]) -> GpuExperts | None:
        if not blocks:
            return None

        def one(name: str) -> GpuMatrix | None:
            found = [one for block in blocks if (one := getattr(block, name)) is not None]
            if not found:
                return None
            rows = np.concatenate([one.data for one in found])
            return arrays.matrix(PackedMatrix(len(rows), found[0].n_cols, found[0].codec, rows))

        def bias(name: str) -> int:
            found = [one for block in blocks if (one := getattr(block, name)) is not None]
            return int(arrays.put(np.concatenate(found))) if found else 0

        up, by_neuron = one("up"), blocks[0].down is None
        down = one("down_t" if by_neuron else "down")
        assert up is not None
        assert down is not None
        biases = [bias(name) for name in ("gate_bias", "up_bias", "down_bias")]
        return GpuExperts(len(blocks), blocks[0].up.n_rows, one("gate"), up, down, by_neuron, *biases)

    def experts_on_gpu(w: LayerWeights, slots: Any) -> GpuExpertFfn:
        """The experts with these numbers in slots; none in a layer without a router."""
        n, gate = config.n_experts, w.shared_gate
        slots = slots if w.routed else slots[:0]

        def put(values: Any) -> int:
            return 0 if values is None else int(arrays.put(values))

        return GpuExpertFfn(
            None if w.router is None else arrays.matrix(w.router), put(w.router_bias), put(slots_of(slots, n)),
            stack([w.experts[i] for i in slots]), stack([] if w.shared is None else [w.shared]),
            None if gate is None else arrays.matrix(PackedMatrix(1, len(gate), "f32", gate[None])),
            put(w.selection_bias),
        )  # fmt: skip

    layers = tuple(of_layer(i, w) if at_home(i) else None for i, w in enumerate(weights.layers))
    return GpuModel(layers, None, None, None)
