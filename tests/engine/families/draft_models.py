"""Adds a layer that drafts tokens (MTP) to a family's tiny model, as its files are published.

The layer is a model of one layer that transformers makes, and transformers says what it computes from its input.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from family_models import CASES, Reference, save_model
from gguf_models import write_gguf

# By case: the arguments of transformers for a model with one full layer of the family.
ONE_LAYER: dict[str, dict[str, Any]] = {
    **{key: {"layer_types": ["full_attention"]} for key in ("qwen3.5", "qwen3.5-moe", "qwen3-next")},
    **{key: {"first_k_dense_replace": 0} for key in ("glm4-moe", "deepseek-v3")},
    "glm4-moe-lite": {"mlp_layer_types": ["sparse"]},
    "nemotron-h-moe": {"layers_block_type": ["full_attention", "moe"]},
}
_OF_QWEN = {"project": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden",
            "norm": "mtp.norm", "layer": "mtp.layers.0."}  # fmt: skip
_OF_NEMOTRON = {"project": "mtp.layers.0.eh_proj", "enorm": "mtp.layers.0.enorm", "hnorm": "mtp.layers.0.hnorm",
                "norm": "mtp.layers.1.final_layernorm", "layer": "mtp.layers."}  # fmt: skip


@dataclass(frozen=True)
class DraftReference:
    """A model's folder with a layer that drafts tokens, and what the layer makes of T positions.

    tokens [T], hidden [T, D]: its input. logits [T, V].
    """

    folder: Path
    tokens: np.ndarray
    hidden: np.ndarray
    logits: np.ndarray


def with_drafts(name: str, reference: Reference, to: Path, own: bool = False) -> DraftReference:
    """own: the layer has an embedding and a head of its own, which most files repeat."""
    import torch
    from safetensors.numpy import load_file, save_file

    n_parts = len(ONE_LAYER[name].get("layers_block_type", [0]))
    layer = save_model(name, to / "layer", {**ONE_LAYER[name], "num_hidden_layers": n_parts})
    tensors = load_file(reference.folder / "model.safetensors")
    config = json.loads((reference.folder / "config.json").read_text())
    n_layers, width = _n_layers(config), config["hidden_size"]
    at = f"model.layers.{n_layers}."
    names = {"project": f"{at}eh_proj", "enorm": f"{at}enorm", "hnorm": f"{at}hnorm", "norm": f"{at}shared_head.norm",
             "layer": at}  # fmt: skip
    names = _OF_QWEN if name.startswith("qwen") else _OF_NEMOTRON if name.startswith("nemotron") else names
    outer = "backbone." if name.startswith("nemotron") else "model."
    rng = np.random.default_rng(1)
    stored_less_one = np.float32(name.startswith("qwen"))
    norms = {key: rng.uniform(0.5, 1.5, width).astype(np.float32) for key in ("enorm", "hnorm")}
    project = (rng.standard_normal((width, 2 * width)) * (2 * width) ** -0.5).astype(np.float32)
    for tensor, values in load_file(to / "layer/model.safetensors").items():
        if tensor.startswith(first := f"{outer}layers." + "0." * (n_parts == 1)):
            tensors[names["layer"] + tensor.removeprefix(first)] = values
    norm = layer.model.norm if n_parts == 1 else layer.model.norm_f
    tensors[f"{names['norm']}.weight"] = norm.weight.detach().numpy()
    tensors[f"{names['project']}.weight"] = project
    tensors |= {f"{names[key]}.weight": norm - stored_less_one for key, norm in norms.items()}
    embedding = tensors[f"{outer}embed_tokens.weight" if n_parts == 1 else f"{outer}embeddings.weight"]
    head = tensors["lm_head.weight"]
    if own:
        embedding, head = embedding[::-1].copy(), head[::-1].copy()
        tensors |= {f"{at}embed_tokens.weight": embedding, f"{at}shared_head.head.weight": head}
    folder = to / "model"
    shutil.copytree(reference.folder, folder)
    save_file(tensors, folder / "model.safetensors")
    tokens, hidden = reference.tokens[:40], rng.standard_normal((40, width)).astype(np.float32)
    parts = _normed(embedding[tokens], norms["enorm"], config), _normed(hidden, norms["hnorm"], config)
    x = np.concatenate(parts, axis=1) @ project.T
    with torch.inference_mode():
        layer.lm_head.weight.copy_(torch.from_numpy(head))
        logits = layer(inputs_embeds=torch.from_numpy(x)[None], use_cache=False).logits[0].numpy()
    return DraftReference(folder, tokens, hidden, logits)


def _normed(x: np.ndarray, weight: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    eps = config.get("rms_norm_eps") or config["layer_norm_epsilon"]
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + eps) * weight  # type: ignore[no-any-return]


def _n_layers(config: dict[str, Any]) -> int:
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def drafts_gguf(name: str, folder: Path, path: Path) -> Path:
    """The same as a GGUF file, where the layer is one more block."""
    from safetensors.numpy import load_file, save_file

    at = folder.parent / "published"
    if at.exists():
        shutil.rmtree(at)
    shutil.copytree(folder, at)
    n_layers = _n_layers(json.loads((folder / "config.json").read_text()))
    tensors = load_file(folder / "model.safetensors")
    own, block = {}, f"blk.{n_layers}.nextn."
    known = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "shared_head_norm",
             "embed_tokens": "embed_tokens", "shared_head.head": "shared_head_head"}  # fmt: skip
    names = {f"model.layers.{n_layers}.{key}.weight": found for key, found in known.items()}
    names |= {f"{of[key]}.weight": found for of in (_OF_QWEN, _OF_NEMOTRON)
              for key, found in (
        ("project", "eh_proj"), ("enorm", "enorm"), ("hnorm", "hnorm"), ("norm", "shared_head_norm"))}  # fmt: skip
    for tensor in list(tensors):
        if tensor in names:
            values = tensors.pop(tensor)
            more = np.float32(name.startswith("qwen") and values.ndim == 1)
            own[f"{block}{names[tensor]}.weight"] = values + more
        elif tensor == "mtp.layers.1.norm.weight":
            own[f"blk.{n_layers}.post_attention_norm.weight"] = tensors.pop(tensor)
        elif name.startswith("nemotron") and tensor.startswith("mtp.layers."):
            tensors[f"backbone.layers.{n_layers}.{tensor.removeprefix('mtp.layers.')[2:]}"] = tensors.pop(tensor)
        elif tensor.startswith("mtp.layers.0."):
            tensors[f"model.layers.{n_layers}.{tensor.removeprefix('mtp.layers.0.')}"] = tensors.pop(tensor)
    save_file(tensors, at / "model.safetensors")
    return write_gguf(at, path, CASES[name], drafts=own)
