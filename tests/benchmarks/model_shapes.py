"""The shapes of known models, and the tensors in a GGUF file of each. It draws no numbers and writes no file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["llama", "opt", "falcon", "qwen3moe", "gpt-oss", "qwen35", "qwen35moe", "gemma4", "deepseek2"]
Variant = Literal["dense", "powerinfer"]
# What a tensor is filled with: see model_contents.py. "first" is the matrix that decides which neurons fire.
Content = Literal[
    "weights", "embedding", "positions", "first", "fc1", "fc2", "ones", "minus one", "root half", "zeros",
    "text", "next token", "router",
]  # fmt: skip

_LOCAL_PERIOD = 6  # every sixth layer of Gemma 4 has no window
_DELTA_PERIOD = 4  # every fourth layer of a model with gated delta nets has attention
_DELTA_KEY_HEADS, _DELTA_DIM, _DELTA_CONV = 16, 128, 4
N_SPECIAL = 259  # <unk>, <s>, </s> and a token for each byte


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder. norms: of a layer; Falcon has one or two, side by side. d_ff: of one expert, if any.

    value_heads: of gated delta nets. shared: neurons of the shared expert. local: number and size of the heads of keys
    in layers with a window. latent: query_rank, rank, key_dim, rotated numbers and value_dim of latent attention.
    dense: neurons of the first layer, which has no experts then; 0: it has. drafts: layers behind the others that draft
    tokens.
    """

    family: Family
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int = 32000
    context: int = 2048
    norms: int = 2
    n_experts: int = 0
    n_experts_used: int = 0
    head_size: int | None = None  # None: heads share d_model
    value_heads: int = 0
    shared: int = 0
    local: tuple[int, int] = (0, 0)
    latent: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    dense: int = 0
    drafts: int = 0

    @property
    def windows(self) -> list[bool]:
        """Which layers have a window."""
        return [bool(self.local[0]) and (layer + 1) % _LOCAL_PERIOD > 0 for layer in range(self.n_layers)]

    @property
    def head_dim(self) -> int:
        return self.head_size or self.d_model // self.n_heads

    @property
    def gated(self) -> bool:
        """Whether there is a gate beside up."""
        return self.family in ("llama", "qwen35", "gemma4") or self.n_experts > 0

    @property
    def ffn_parameters(self) -> int:
        """Weights of all feed-forward blocks."""
        return self.n_layers * (3 if self.gated else 2) * self.d_model * self.d_ff


SHAPES: dict[str, Shape] = {
    "tiny": Shape("llama", 4, 512, 1536, 8, 4, vocab_size=1024, context=512),
    "135m": Shape("llama", 30, 576, 1536, 9, 3),
    "0.5b": Shape("llama", 24, 896, 4864, 14, 2),
    "1b": Shape("llama", 22, 2048, 5632, 32, 4),
    "7b": Shape("llama", 32, 4096, 11008, 32, 32),
    "8b": Shape("llama", 32, 4096, 14336, 32, 8, context=131072),
    "13b": Shape("llama", 40, 5120, 13824, 40, 40),
    "30b": Shape("llama", 60, 6656, 17920, 52, 52),
    "32b": Shape("llama", 64, 5120, 27648, 40, 8),  # a 30B-class model with grouped-query attention
    "70b": Shape("llama", 80, 8192, 28672, 64, 8),
    "opt-tiny": Shape("opt", 4, 512, 2048, 8, 8, vocab_size=1024, context=512),
    "opt-1.3b": Shape("opt", 24, 2048, 8192, 32, 32, vocab_size=50272),
    "opt-6.7b": Shape("opt", 32, 4096, 16384, 32, 32, vocab_size=50272),
    "opt-13b": Shape("opt", 40, 5120, 20480, 40, 40, vocab_size=50272),
    "opt-30b": Shape("opt", 48, 7168, 28672, 56, 56, vocab_size=50272),
    "opt-66b": Shape("opt", 64, 9216, 36864, 72, 72, vocab_size=50272),
    "opt-175b": Shape("opt", 96, 12288, 49152, 96, 96, vocab_size=50272),
    "falcon-tiny": Shape("falcon", 4, 512, 2048, 8, 1, vocab_size=1024, context=512, norms=1),
    "falcon-7b": Shape("falcon", 32, 4544, 18176, 71, 1, vocab_size=65024, norms=1),
    "falcon-40b": Shape("falcon", 60, 8192, 32768, 128, 8, vocab_size=65024),
    "qwen3.5-tiny": Shape("qwen35", 4, 512, 1536, 4, 2, 1024, 512, head_size=256, value_heads=16),
    "qwen3.5-9b": Shape("qwen35", 32, 4096, 12288, 16, 4, context=8192, head_size=256, value_heads=32),
    "gemma4-tiny": Shape("gemma4", 6, 512, 1536, 4, 1, 1024, 512, head_size=512, local=(2, 256)),
    "gemma4-31b": Shape("gemma4", 60, 5376, 21504, 32, 4, context=8192, head_size=512, local=(16, 256)),
    "qwen3.6-27b": Shape("qwen35", 64, 5120, 17408, 24, 4, context=8192, head_size=256, value_heads=48),
}
SHAPES |= {f"{name}-mtp": replace(SHAPES[name], drafts=1) for name in ("qwen3.5-tiny", "qwen3.5-9b", "qwen3.6-27b")}
# Models with experts, with a smaller vocabulary than the trained ones have.
EXPERT_SHAPES: dict[str, Shape] = {
    "qwen3moe-tiny": Shape("qwen3moe", 2, 256, 256, 4, 2, 1024, 512, n_experts=128, n_experts_used=8, head_size=64),
    "turbosparse-tiny": Shape("llama", 4, 256, 512, 4, 2, 1024, 512, n_experts=8, n_experts_used=2, head_size=64),
    "turbosparse-small": Shape("llama", 8, 1024, 1792, 16, 4, context=4096, n_experts=8, n_experts_used=2),
    "gpt-oss-tiny": Shape("gpt-oss", 2, 256, 256, 4, 2, 1024, 512, n_experts=8, n_experts_used=2, head_size=64),
    "qwen3moe-1b": Shape("qwen3moe", 16, 1024, 1792, 16, 4, context=4096, n_experts=8, n_experts_used=2, head_size=64),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2048, 768, 32, 4, context=8192, n_experts=128, n_experts_used=8, head_size=128
    ),
    "qwen3.6-35b-a3b": Shape(
        "qwen35moe",
        40,
        2048,
        512,
        16,
        2,
        context=8192,
        n_experts=256,
        n_experts_used=8,
        head_size=256,
        value_heads=32,
        shared=512,
    ),
    "gemma4-26b-a4b": Shape(
        "gemma4",
        30,
        2816,
        704,
        16,
        2,
        context=8192,
        n_experts=128,
        n_experts_used=8,
        head_size=512,
        shared=2112,
        local=(8, 256),
    ),
    "glm-4.7-flash": Shape(
        "deepseek2",
        47,
        2048,
        1536,
        20,
        1,
        context=8192,
        n_experts=64,
        n_experts_used=4,
        head_size=576,
        shared=1536,
        latent=(768, 512, 192, 64, 256),
        dense=10240,
    ),
    "mla-tiny": Shape(
        "deepseek2",
        3,
        256,
        256,
        4,
        1,
        1024,
        512,
        n_experts=16,
        n_experts_used=4,
        head_size=320,
        shared=256,
        latent=(256, 256, 64, 64, 128),
        dense=512,
    ),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 2880, 64, 8, context=8192, n_experts=32, n_experts_used=4, head_size=64),
    "gpt-oss-120b": Shape(
        "gpt-oss", 36, 2880, 2880, 64, 8, context=8192, n_experts=128, n_experts_used=4, head_size=64
    ),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file. number: of the layer, for contents of which there are several in turn."""

    name: str
    shape: tuple[int, ...]  # rows first
    codec: str
    content: Content
    layer: int = 0

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


def delta_sizes(shape: Shape) -> dict[str, int]:
    """The sizes of gated delta nets, by GGUF's keys."""
    return {
        "ssm.conv_kernel": _DELTA_CONV,
        "ssm.state_size": _DELTA_DIM,
        "ssm.group_count": _DELTA_KEY_HEADS,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": _DELTA_DIM * shape.value_heads,
        "full_attention_interval": _DELTA_PERIOD,
    }


def tensors(shape: Shape, codec: str, variant: Variant, rank: int) -> Iterator[Tensor]:
    """Every tensor of the file, in its order. rank: of the predictors, which the powerinfer variant alone has."""
    d, vocab = shape.d_model, shape.vocab_size
    if shape.family == "gemma4":
        yield from _gemma4(shape, codec)
        return
    if shape.family == "deepseek2":
        yield from _deepseek2(shape, codec)
        return
    if shape.n_experts:
        yield from _with_experts(shape, codec)
        return
    yield Tensor("token_embd.weight", (vocab, d), codec, "embedding")
    if shape.family == "opt":  # begins with two rows that were meant for padding; the embedding is the head
        yield Tensor("position_embd.weight", (shape.context + 2, d), codec, "positions")
    yield from _norm("output_norm", shape)
    if shape.family != "opt":
        yield Tensor("output.weight", (vocab, d), codec, "weights")
    for layer in range(shape.n_layers + shape.drafts):
        is_draft = layer >= shape.n_layers
        parts = _mixing(shape, layer, is_draft) if shape.value_heads else _layer(shape)
        for name, sizes, content in parts:
            if name == "ffn_down" and variant == "powerinfer":
                name, sizes = "ffn_down_t", sizes[::-1]
            if len(sizes) == 1:
                if shape.value_heads:
                    yield Tensor(f"blk.{layer}.{name}", sizes, "f32", content)
                    continue
                vectors = _norm(name, shape) if content == "ones" else _bias(name, sizes[0])
                yield from (replace(vector, name=f"blk.{layer}.{vector.name}") for vector in vectors)
                continue
            stored = "f32" if name == "ssm_conv1d" else codec
            yield Tensor(f"blk.{layer}.{name}.weight", sizes, stored, content, layer)
        if variant == "powerinfer":
            yield Tensor(f"blk.{layer}.fc1.weight", (rank, d), codec, "fc1", layer)
            yield Tensor(f"blk.{layer}.fc2.weight", (shape.d_ff, rank), codec, "fc2", layer)


def _mixing(shape: Shape, layer: int, drafts: bool = False) -> Iterator[tuple[str, tuple[int, ...], Content]]:
    """As `_layer`, for a model with gated delta nets; names of vectors are whole. drafts: of a layer that does."""
    d, dim, heads, n = shape.d_model, shape.head_dim, shape.n_heads, shape.value_heads
    yield "attn_norm.weight", (d,), "ones"
    yield "post_attention_norm.weight", (d,), "ones"
    if drafts:
        yield "nextn.eh_proj", (d, 2 * d), "weights"
        for name in ("enorm", "hnorm", "shared_head_norm"):
            yield f"nextn.{name}.weight", (d,), "ones"
    if (layer + 1) % _DELTA_PERIOD and not drafts:
        keys, values = _DELTA_KEY_HEADS * _DELTA_DIM, n * _DELTA_DIM
        yield "attn_qkv", (2 * keys + values, d), "weights"
        yield "attn_gate", (values, d), "weights"
        yield "ssm_alpha", (n, d), "weights"
        yield "ssm_beta", (n, d), "weights"
        yield "ssm_conv1d", (2 * keys + values, _DELTA_CONV), "weights"
        yield "ssm_dt.bias", (n,), "zeros"
        yield "ssm_a", (n,), "minus one"
        yield "ssm_norm.weight", (_DELTA_DIM,), "ones"
        yield "ssm_out", (d, values), "weights"
    else:
        yield "attn_q", (2 * heads * dim, d), "weights"  # of each head a query and a gate
        yield "attn_k", (shape.n_kv_heads * dim, d), "weights"
        yield "attn_v", (shape.n_kv_heads * dim, d), "weights"
        yield "attn_output", (d, heads * dim), "weights"
        yield "attn_q_norm.weight", (dim,), "ones"
        yield "attn_k_norm.weight", (dim,), "ones"
    if not shape.n_experts:
        yield "ffn_gate", (shape.d_ff, d), "weights"
        yield "ffn_up", (shape.d_ff, d), "weights"
        yield "ffn_down", (d, shape.d_ff), "weights"


def _with_experts(shape: Shape, codec: str) -> Iterator[Tensor]:
    """Every tensor of a model with experts. Only experts have the codec MXFP4, and only repeating numbers Q4_K."""
    d, f, vocab, n = shape.d_model, shape.d_ff, shape.vocab_size, shape.n_experts
    heads, kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    attention = "q8_0" if codec == "mxfp4" else codec
    embedding = "q8_0" if codec in ("mxfp4", "q4_k", "q6_k") else codec
    yield Tensor("token_embd.weight", (vocab, d), embedding, "text")
    yield Tensor("output_norm.weight", (d,), "f32", "ones")
    yield Tensor("output.weight", (vocab, d), embedding, "next token")
    for layer in range(shape.n_layers):
        own = f"blk.{layer}."
        matrices: list[tuple[str, tuple[int, ...], str]] = [
            ("ffn_gate_exps", (n, f, d), codec), ("ffn_up_exps", (n, f, d), codec), ("ffn_down_exps", (n, d, f), codec),
        ]  # fmt: skip
        if shape.value_heads:
            for name, sizes, content in _mixing(shape, layer):
                is_vector, exact = len(sizes) == 1, len(sizes) == 1 or name == "ssm_conv1d"
                full = f"{own}{name}" if is_vector else f"{own}{name}.weight"
                yield Tensor(full, sizes, "f32" if exact else attention, content, layer)
            s = shape.shared
            matrices += [("ffn_gate_shexp", (s, d), attention), ("ffn_up_shexp", (s, d), attention)]
            matrices.append(("ffn_down_shexp", (d, s), attention))
            yield Tensor(f"{own}ffn_gate_inp_shexp.weight", (d,), "f32", "weights", layer)
        else:
            matrices += [("attn_q", (heads, d), attention), ("attn_k", (kv, d), attention)]
            matrices += [("attn_v", (kv, d), attention), ("attn_output", (d, heads), attention)]
        for name, sizes, stored in matrices:
            yield Tensor(f"{own}{name}.weight", sizes, stored, "weights", layer)
            if shape.family == "gpt-oss":
                yield Tensor(f"{own}{name}.bias", sizes[:-1], "f32", "weights", layer)
        yield Tensor(f"{own}ffn_gate_inp.weight", (n, d), "f32", "router", layer)
        if shape.value_heads:
            continue
        norms = {"attn_norm": d}
        if shape.family == "gpt-oss":
            norms["post_attention_norm"] = d
            yield Tensor(f"{own}ffn_gate_inp.bias", (n,), "f32", "zeros", layer)
            yield Tensor(f"{own}attn_sinks.weight", (shape.n_heads,), "f32", "zeros", layer)
        else:
            norms["ffn_norm"] = d
            if shape.family != "llama":
                norms |= {"attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}
        for name, size in norms.items():
            yield Tensor(f"{own}{name}.weight", (size,), "f32", "ones", layer)


def _gemma4(shape: Shape, codec: str) -> Iterator[Tensor]:
    """Every tensor of Gemma 4: heads of two shapes, norms around each block, and a FFN beside the experts if any."""
    d, vocab, n, f = shape.d_model, shape.vocab_size, shape.n_experts, shape.d_ff
    yield Tensor("token_embd.weight", (vocab, d), codec, "text" if n else "embedding")
    yield Tensor("output_norm.weight", (d,), "f32", "ones")
    yield Tensor("output.weight", (vocab, d), codec, "next token" if n else "weights")
    yield Tensor("rope_freqs.weight", (shape.head_dim // 2,), "f32", "ones")
    for layer, is_local in enumerate(shape.windows):
        n_kv, size = shape.local if is_local else (shape.n_kv_heads, shape.head_dim)
        heads, wide = shape.n_heads * size, shape.shared or f
        matrices = {"attn_q": (heads, d), "attn_k": (n_kv * size, d), "attn_output": (d, heads), "ffn_gate": (wide, d),
                    "ffn_up": (wide, d), "ffn_down": (d, wide)}  # fmt: skip
        vectors = dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), d)
        vectors |= {"attn_q_norm": size, "attn_k_norm": size, "layer_output_scale": 1}
        stacks = {"ffn_gate_exps": (n, f, d), "ffn_up_exps": (n, f, d), "ffn_down_exps": (n, d, f)} if n else {}
        if is_local:
            matrices["attn_v"] = (n_kv * size, d)
        if n:
            vectors |= dict.fromkeys(("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"), d)
            yield Tensor(f"blk.{layer}.ffn_gate_inp.weight", (n, d), "f32", "router", layer)
            yield Tensor(f"blk.{layer}.ffn_gate_inp.scale", (d,), "f32", "ones", layer)
            yield Tensor(f"blk.{layer}.ffn_down_exps.scale", (n,), "f32", "ones", layer)
        for name, sizes in (matrices | stacks).items():
            content: Content = "first" if name == "ffn_gate" and not n else "weights"
            yield Tensor(f"blk.{layer}.{name}.weight", sizes, codec, content, layer)
        for name, length in vectors.items():
            yield Tensor(f"blk.{layer}.{name}.weight", (length,), "f32", "ones", layer)


def _deepseek2(shape: Shape, codec: str) -> Iterator[Tensor]:
    """Every tensor of a model with latent attention and experts. Only repeating numbers may have Q4_K or MXFP4."""
    d, vocab, n, f = shape.d_model, shape.vocab_size, shape.n_experts, shape.d_ff
    query_rank, rank, key_dim, rotated, value_dim = shape.latent
    heads, embedding = shape.n_heads, "q8_0" if codec in ("mxfp4", "q4_k", "q6_k") else codec
    of_heads = embedding  # rows of key_dim numbers are not whole blocks of 256
    yield Tensor("token_embd.weight", (vocab, d), embedding, "text")
    yield Tensor("output_norm.weight", (d,), "f32", "ones")
    yield Tensor("output.weight", (vocab, d), embedding, "next token")
    for layer in range(shape.n_layers):
        own, is_dense = f"blk.{layer}.", layer == 0 and shape.dense > 0
        matrices: list[tuple[str, tuple[int, ...], str]] = [
            ("attn_q_a", (query_rank, d), codec), ("attn_q_b", (heads * (key_dim + rotated), query_rank), codec),
            ("attn_kv_a_mqa", (rank + rotated, d), codec), ("attn_k_b", (heads, rank, key_dim), of_heads),
            ("attn_v_b", (heads, value_dim, rank), codec), ("attn_output", (d, heads * value_dim), codec),
        ]  # fmt: skip
        vectors = {"attn_norm": d, "attn_q_a_norm": query_rank, "attn_kv_a_norm": rank, "ffn_norm": d}
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            kinds = [("", (shape.dense,))] if is_dense else [("_exps", (n, f)), ("_shexp", (shape.shared,))]
            for kind, (*stack, width) in kinds:
                sizes = (d, width) if name == "ffn_down" else (width, d)
                matrices.append((name + kind, (*stack, *sizes), codec))
        for name, sizes, stored in matrices:
            yield Tensor(f"{own}{name}.weight", sizes, stored, "weights", layer)
        for name, size in vectors.items():
            yield Tensor(f"{own}{name}.weight", (size,), "f32", "ones", layer)
        if not is_dense:
            yield Tensor(f"{own}ffn_gate_inp.weight", (n, d), "f32", "router", layer)
            yield Tensor(f"{own}exp_probs_b.bias", (n,), "f32", "zeros", layer)


def _layer(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], Content]]:
    """Name, sizes and content of a layer's parts; one size with ones: a norm, with zeros: a bias."""
    d, f, kv = shape.d_model, shape.d_ff, shape.n_kv_heads * shape.head_dim
    yield "attn_norm", (d,), "ones"
    if shape.family == "falcon":
        if shape.norms == 2:
            yield "attn_norm_2", (d,), "ones"
        yield "attn_qkv", (d + 2 * kv, d), "weights"
    else:
        for name, rows in (("attn_q", d), ("attn_k", kv), ("attn_v", kv)):
            yield name, (rows, d), "weights"
            if shape.family == "opt":
                yield name, (rows,), "zeros"
    yield "attn_output", (d, d), "weights"
    if shape.family == "opt":
        yield "attn_output", (d,), "zeros"
    if shape.family != "falcon":
        yield "ffn_norm", (d,), "ones"
    if shape.gated:
        yield "ffn_gate", (f, d), "first"
    yield "ffn_up", (f, d), "weights" if shape.gated else "first"
    if shape.family == "opt":
        yield "ffn_up", (f,), "zeros"
    yield "ffn_down", (d, f), "weights"
    if shape.family == "opt":
        yield "ffn_down", (d,), "zeros"


def _norm(name: str, shape: Shape) -> Iterator[Tensor]:
    """LayerNorm takes the mean away that model_contents.py counts on: its bias puts it back."""
    if shape.family in ("llama", "qwen35"):
        yield Tensor(f"{name}.weight", (shape.d_model,), "f32", "ones")
        return
    yield Tensor(f"{name}.weight", (shape.d_model,), "f32", "root half")
    yield Tensor(f"{name}.bias", (shape.d_model,), "f32", "root half")


def _bias(name: str, size: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.bias", (size,), "f32", "zeros")
