"""The shapes of known models, and the tensors in a GGUF file of each. It draws no numbers and writes no file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["llama", "opt", "falcon"]
Variant = Literal["dense", "powerinfer"]
# What a tensor is filled with: see model_contents.py. "first" is the matrix that decides which neurons fire.
Content = Literal["weights", "embedding", "positions", "first", "fc1", "fc2", "ones", "root half", "zeros"]

N_SPECIAL = 259  # <unk>, <s>, </s> and a token for each byte


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder. norms: of a layer; Falcon has one or two, side by side."""

    family: Family
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int = 32000
    context: int = 2048
    norms: int = 2

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def gated(self) -> bool:
        """Whether there is a gate beside up."""
        return self.family == "llama"

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
