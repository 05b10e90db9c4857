"""The shapes of known models, and the tensors in a GGUF file of each. It draws no numbers and writes no file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["llama", "opt", "falcon", "qwen3moe", "gpt-oss"]
Variant = Literal["dense", "powerinfer"]
# What a tensor is filled with: see model_contents.py. "first" is the matrix that decides which neurons fire.
Content = Literal[
    "weights", "embedding", "positions", "first", "fc1", "fc2", "ones", "root half", "zeros",
    "text", "next token", "router",
]  # fmt: skip

N_SPECIAL = 259  # <unk>, <s>, </s> and a token for each byte


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder. norms: of a layer; Falcon has one or two, side by side. d_ff: of one expert, if any."""

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

    @property
    def head_dim(self) -> int:
        return self.head_size or self.d_model // self.n_heads

    @property
    def gated(self) -> bool:
        """Whether there is a gate beside up."""
        return self.family == "llama" or self.n_experts > 0

    @property
    def ffn_parameters(self) -> int:
        """Weights of all feed-forward blocks."""
        return self.n_layers * (3 if self.gated else 2) * self.d_model * self.d_ff


SHAPES: dict[str, Shape] = {
    "tiny": Shape("llama", 4, 512, 1536, 8, 4, vocab_size=1024, context=512),
    "1b": Shape("llama", 22, 2048, 5632, 32, 4),
    "7b": Shape("llama", 32, 4096, 11008, 32, 32),
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
}
# Models with experts, with a smaller vocabulary than the trained ones have.
EXPERT_SHAPES: dict[str, Shape] = {
    "qwen3moe-tiny": Shape("qwen3moe", 2, 256, 256, 4, 2, 1024, 512, n_experts=128, n_experts_used=8, head_size=64),
    "gpt-oss-tiny": Shape("gpt-oss", 2, 256, 256, 4, 2, 1024, 512, n_experts=8, n_experts_used=2, head_size=64),
    "qwen3moe-1b": Shape("qwen3moe", 16, 1024, 1792, 16, 4, context=4096, n_experts=8, n_experts_used=2, head_size=64),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2048, 768, 32, 4, context=8192, n_experts=128, n_experts_used=8, head_size=128
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


def tensors(shape: Shape, codec: str, variant: Variant, rank: int) -> Iterator[Tensor]:
    """Every tensor of the file, in its order. rank: of the predictors, which the powerinfer variant alone has."""
    d, vocab = shape.d_model, shape.vocab_size
    if shape.n_experts:
        yield from _with_experts(shape, codec)
        return
    yield Tensor("token_embd.weight", (vocab, d), codec, "embedding")
    if shape.family == "opt":  # begins with two rows that were meant for padding; the embedding is the head
        yield Tensor("position_embd.weight", (shape.context + 2, d), codec, "positions")
    yield from _norm("output_norm", shape)
    if shape.family != "opt":
        yield Tensor("output.weight", (vocab, d), codec, "weights")
    for layer in range(shape.n_layers):
        for name, sizes, content in _layer(shape):
            if name == "ffn_down" and variant == "powerinfer":
                name, sizes = "ffn_down_t", sizes[::-1]
            if len(sizes) == 1:
                vectors = _norm(name, shape) if content == "ones" else _bias(name, sizes[0])
                yield from (replace(vector, name=f"blk.{layer}.{vector.name}") for vector in vectors)
                continue
            yield Tensor(f"blk.{layer}.{name}.weight", sizes, codec, content, layer)
        if variant == "powerinfer":
            yield Tensor(f"blk.{layer}.fc1.weight", (rank, d), codec, "fc1", layer)
            yield Tensor(f"blk.{layer}.fc2.weight", (shape.d_ff, rank), codec, "fc2", layer)


def _with_experts(shape: Shape, codec: str) -> Iterator[Tensor]:
    """Every tensor of a model with experts. Only experts have the codec MXFP4, and only repeating numbers Q4_K."""
    d, f, vocab, n = shape.d_model, shape.d_ff, shape.vocab_size, shape.n_experts
    heads, kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    attention = "q8_0" if codec == "mxfp4" else codec
    embedding = "q8_0" if codec in ("mxfp4", "q4_k") else codec
    yield Tensor("token_embd.weight", (vocab, d), embedding, "text")
    yield Tensor("output_norm.weight", (d,), "f32", "ones")
    yield Tensor("output.weight", (vocab, d), embedding, "next token")
    for layer in range(shape.n_layers):
        own = f"blk.{layer}."
        matrices = (
            ("attn_q", (heads, d), attention), ("attn_k", (kv, d), attention), ("attn_v", (kv, d), attention),
            ("attn_output", (d, heads), attention), ("ffn_gate_exps", (n, f, d), codec),
            ("ffn_up_exps", (n, f, d), codec), ("ffn_down_exps", (n, d, f), codec),
        )  # fmt: skip
        for name, sizes, stored in matrices:
            yield Tensor(f"{own}{name}.weight", sizes, stored, "weights", layer)
            if shape.family == "gpt-oss":
                yield Tensor(f"{own}{name}.bias", sizes[:-1], "f32", "weights", layer)
        yield Tensor(f"{own}ffn_gate_inp.weight", (n, d), "f32", "router", layer)
        norms = {"attn_norm": d}
        if shape.family == "gpt-oss":
            norms["post_attention_norm"] = d
            yield Tensor(f"{own}ffn_gate_inp.bias", (n,), "f32", "zeros", layer)
            yield Tensor(f"{own}attn_sinks.weight", (shape.n_heads,), "f32", "zeros", layer)
        else:
            norms |= {"ffn_norm": d, "attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}
        for name, size in norms.items():
            yield Tensor(f"{own}{name}.weight", (size,), "f32", "ones", layer)


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
    if shape.family == "llama":
        yield Tensor(f"{name}.weight", (shape.d_model,), "f32", "ones")
        return
    yield Tensor(f"{name}.weight", (shape.d_model,), "f32", "root half")
    yield Tensor(f"{name}.bias", (shape.d_model,), "f32", "root half")


def _bias(name: str, size: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.bias", (size,), "f32", "zeros")
