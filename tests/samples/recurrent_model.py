"""Makes tiny random models with gated delta nets, as Qwen3.5's are published: with a vision tower and a draft layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from samples.tiny_model import VOCAB_SIZE, make_tiny_model

from engine.model.families import config_from_hf, planned_tensors

TEXT = {
    "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512, "hidden_act": "silu", "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 16, "full_attention_interval": 4, "eos_token_id": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                        "mrope_section": [2, 1, 1], "mrope_interleaved": True},
}  # fmt: skip
EXPERTS = {
    "model_type": "qwen3_5_moe_text", "intermediate_size": None, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}  # fmt: skip


def make_recurrent_model(
    folder: Path, *, experts: bool = False, seed: int = 0, drafts: Literal["damaged", "random", "right"] = "damaged"
) -> Path:
    """Writes a folder as make_tiny_model does; it back. The same arguments write the same bytes.

    drafts: what the layer that drafts tokens is worth. If its drafts are all right, that is because the other layers do
    nothing.
    """
    from safetensors.numpy import save_file

    text: dict[str, Any] = {**TEXT, **(EXPERTS if experts else {})}
    outer = {
        "model_type": text["model_type"].removesuffix("_text"), "text_config": text, "tie_word_embeddings": False,
        "vision_config": {"depth": 1}, "image_token_id": 3,
    }  # fmt: skip
    make_tiny_model(folder, max_context=512)  # its tokenizer
    (folder / "config.json").write_text(json.dumps(outer))
    (folder / "generation_config.json").write_text("{}")
    inner = "model.language_model."
    present = {f"{inner}embed_tokens.weight"}
    present |= {f"{inner}layers.{i}.mlp.experts.gate_up_proj" for i in range(text["num_hidden_layers"])}
    rng = np.random.default_rng(seed)
    tensors = {}
    for planned in planned_tensors(config_from_hf(outer, {}), "safetensors", present):
        if planned.foreign_name not in tensors:
            values = rng.standard_normal(planned.shape) * (planned.shape[-1] ** -0.5 if len(planned.shape) > 1 else 0.3)
            if planned.name.endswith("head_norm"):
                values = 1 + values
            tensors[planned.foreign_name] = values.astype(np.float32)
    tensors[f"{inner}embed_tokens.weight"] *= np.float32(32**0.5)
    names = ["model.visual.blocks.0.attn.qkv.weight"]
    if drafts == "damaged":
        names += ["mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight"]
    else:
        tensors |= _drafts(tensors, inner, rng)
    tensors |= {name: np.ones((2, 2), np.float32) for name in names}
    if drafts == "right":
        width = text["hidden_size"]
        for name, values in tensors.items():
            if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
                values[:] = 0
        tensors["mtp.norm.weight"] = tensors[f"{inner}norm.weight"]
        tensors["mtp.pre_fc_norm_embedding.weight"][:] = 0
        tensors["mtp.fc.weight"] = np.eye(width, 2 * width, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def _drafts(tensors: dict[str, Any], inner: str, rng: np.random.Generator) -> dict[str, Any]:
    """A random layer that drafts tokens, of the shape of the last layer."""
    width = tensors[f"{inner}norm.weight"].size
    last = f"{inner}layers.{TEXT['num_hidden_layers'] - 1}."
    found = {name.replace(last, "mtp.layers.0."): rng.permuted(values, axis=-1)
             for name, values in tensors.items() if name.startswith(last)}  # fmt: skip
    found["mtp.fc.weight"] = rng.standard_normal((width, 2 * width)) * (2 * width) ** -0.5
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    found |= {f"mtp.{name}.weight": rng.standard_normal(width) * 0.3 for name in norms}
    return {name: values.astype(np.float32) for name, values in found.items()}
