"""The LLaMA model of sparsify_small.py: its layers with SiLU, as a student and as tested; and the log of its stages."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.formats.gguf import open_gguf  # noqa: E402 - found by the line above

Tensor = torch.Tensor
PER_LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
BEGAN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:6.1f} s] {text}", flush=True)


@dataclass
class Llama:
    """Weights by GGUF name. Matrices are multiplied in `dtype`; the residual stream is f32."""

    weights: dict[str, Tensor]
    n_layers: int
    n_heads: int
    n_kv_heads: int
    epsilon: float
    rope_base: float
    dtype: torch.dtype

    @classmethod
    def read(cls, path: Path, device: str) -> Llama:
        source = open_gguf(path)
        data = source.metadata
        if data["general.architecture"] != "llama" or "output.weight" in source.tensors:
            raise SystemExit(f"{path.name} is no LLaMA model with tied embeddings.")
        weights = {name: torch.from_numpy(source.read_f32(name).copy()).to(device) for name in source.tensors}
        return cls(
            weights, data["llama.block_count"], data["llama.attention.head_count"],
            data["llama.attention.head_count_kv"], data["llama.attention.layer_norm_rms_epsilon"],
            data.get("llama.rope.freq_base", 10000.0), torch.bfloat16 if device == "cuda" else torch.float32,
        )  # fmt: skip

    @classmethod
    def random(cls, n_layers: int, device: str) -> Llama:
        """SmolLM2-135M's shape with so many layers, to test the program without a file."""
        shapes = {"attn_q": (576, 576), "attn_k": (192, 576), "attn_v": (192, 576), "attn_output": (576, 576)}
        shapes |= {"ffn_gate": (1536, 576), "ffn_up": (1536, 576), "ffn_down": (576, 1536)}
        made = {
            f"blk.{i}.{name}.weight": 0.03 * torch.randn(shape)
            for i in range(n_layers)
            for name, shape in shapes.items()
        }
        ones = [f"blk.{i}.{name}.weight" for i in range(n_layers) for name in ("attn_norm", "ffn_norm")]
        made |= {name: torch.ones(576) for name in [*ones, "output_norm.weight"]}
        made["token_embd.weight"] = 0.1 * torch.randn(49152, 576)
        weights = {name: one.to(device) for name, one in made.items()}
        return cls(weights, n_layers, 9, 3, 1e-5, 1e5, torch.bfloat16 if device == "cuda" else torch.float32)

    def copy(self) -> Llama:
        return Llama({name: one.clone() for name, one in self.weights.items()}, *list(vars(self).values())[1:])

    def layer(self, i: int) -> list[Tensor]:
        return [self.weights[f"blk.{i}.{name}.weight"] for name in PER_LAYER]

    def rotations(self, n: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [n, head width / 2]."""
        half = self.weights["blk.0.attn_q.weight"].shape[0] // self.n_heads // 2
        at = torch.arange(half, device=self.device, dtype=torch.float64) / half
        angles = torch.outer(torch.arange(n, device=self.device, dtype=torch.float64), self.rope_base**-at)
        return angles.cos().float(), angles.sin().float()

    @property
    def device(self) -> torch.device:
        return self.weights["token_embd.weight"].device

    @property
    def n_neurons(self) -> int:
        return self.weights["blk.0.ffn_gate.weight"].shape[0]

    @property
    def head(self) -> Tensor:
        return self.weights["token_embd.weight"]


def linear(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return functional.linear(x.to(dtype), weight.to(dtype))


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GGUF's LLaMA rotates neighbouring numbers. x [..., T, H, W], cos and sin [T, W / 2]."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def attention(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    before = norm(x, w[0], epsilon)
    q, k, v = (
        linear(before, one, dtype).unflatten(-1, (n, -1))
        for one, n in zip(w[1:4], (heads[0], heads[1], heads[1]), strict=True)
    )
    q, k = rotate(q, *rotations), rotate(k, *rotations)
    mixed = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    return x + linear(mixed.transpose(1, 2).flatten(-2), w[4], dtype).float()


def plain_layer(x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int],
                epsilon: float, dtype: torch.dtype) -> Tensor:  # fmt: skip
    """A layer with SiLU: x f32 [B, T, D] to the same."""
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    hidden = functional.silu(linear(before, w[6], dtype)) * linear(before, w[7], dtype)
    return x + linear(hidden, w[8], dtype).float()


def student_layer(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype, threshold: Tensor, width: Tensor, change: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """A layer with (1 - change) * silu + change * FATReLU.

    threshold [F]; width: of the smooth count, in units of the gate. Returns x, the share of active neurons, their
    smooth count as a share, and the means of |up| and of relu(gate), [2, F], over the first sequences.
    """
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    gate, up = linear(before, w[6], dtype).float(), linear(before, w[7], dtype)
    active = gate > threshold
    near = torch.sigmoid((gate - threshold) / width)
    # Inactive neurons near the threshold get a gradient too, so that they can become active again.
    passed = torch.where(active, gate, near.detach() * (gate - gate.detach()))
    activated = (1 - change) * functional.silu(gate) + change * passed
    x = x + linear(activated.to(dtype) * up, w[8], dtype).float()
    seen = torch.stack((up[:4].detach().float().abs().mean((0, 1)), gate[:4].detach().relu().mean((0, 1))))
    return x, active.float().mean().detach(), near.mean(), seen


def tested_layer(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype, threshold: Tensor, skips: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """FATReLU, or with `skips` SiLU where |silu| is above the threshold. Returns x and which neurons are active."""
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    gate, up = linear(before, w[6], dtype).float(), linear(before, w[7], dtype)
    values = functional.silu(gate) if skips else gate
    active = (values.abs() if skips else values) > threshold
    x = x + linear((values * active).to(dtype) * up, w[8], dtype).float()
    return x, active


def same_for_all(model: Llama) -> tuple[Any, ...]:
    return (model.n_heads, model.n_kv_heads), model.epsilon, model.dtype


def last_norm(model: Llama, x: Tensor) -> Tensor:
    return norm(x, model.weights["output_norm.weight"], model.epsilon).to(model.dtype).flatten(0, -2)


def wait(model: Llama) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()
