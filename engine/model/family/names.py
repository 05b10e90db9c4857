"""Tensor names that most families share, in both file formats."""

from __future__ import annotations

from collections.abc import Collection

HF_NAMES = {
    "embedding": "model.embed_tokens.weight",
    "attention_norm": "model.layers.{}.input_layernorm.weight",
    "q": "model.layers.{}.self_attn.q_proj.weight",
    "k": "model.layers.{}.self_attn.k_proj.weight",
    "v": "model.layers.{}.self_attn.v_proj.weight",
    "q_norm": "model.layers.{}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{}.self_attn.k_norm.weight",
    "o": "model.layers.{}.self_attn.o_proj.weight",
    "ffn_norm": "model.layers.{}.post_attention_layernorm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down_t": "model.layers.{}.mlp.down_proj.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
GGUF_NAMES = {
    "embedding": "token_embd.weight",
    "rope_factors": "rope_freqs.weight",
    "rope_factors_long": "rope_factors_long.weight",
    "rope_factors_short": "rope_factors_short.weight",
    "attention_norm": "blk.{}.attn_norm.weight",
    "q": "blk.{}.attn_q.weight",
    "k": "blk.{}.attn_k.weight",
    "v": "blk.{}.attn_v.weight",
    "qkv": "blk.{}.attn_qkv.weight",  # instead of the three, as an option of llama.cpp's converter
    "q_norm": "blk.{}.attn_q_norm.weight",
    "k_norm": "blk.{}.attn_k_norm.weight",
    "o": "blk.{}.attn_output.weight",
    "post_attention_norm": "blk.{}.post_attention_norm.weight",
    "ffn_norm": "blk.{}.ffn_norm.weight",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "down_t": "blk.{}.ffn_down.weight",
    "down_t already": "blk.{}.ffn_down_t.weight",  # PowerInfer, neuron-major
    "post_ffn_norm": "blk.{}.post_ffw_norm.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
}
# Names that replace gate, up and down in models with experts. Files of 2023 have one tensor per expert.
GGUF_EXPERTS = {
    "router": "blk.{}.ffn_gate_inp.weight",
    "selection_bias": "blk.{}.exp_probs_b.bias",
    "experts.gate_up": "blk.{}.ffn_gate_up_exps.weight",  # instead of the next two, if the file has it
    "experts.gate": "blk.{}.ffn_gate_exps.weight",
    "experts.up": "blk.{}.ffn_up_exps.weight",
    "experts.down_t": "blk.{}.ffn_down_exps.weight",
    "expert.gate": "blk.{}.ffn_gate.{}.weight",
    "expert.up": "blk.{}.ffn_up.{}.weight",
    "expert.down_t": "blk.{}.ffn_down.{}.weight",
    "shared.gate": "blk.{}.ffn_gate_shexp.weight",
    "shared.up": "blk.{}.ffn_up_shexp.weight",
    "shared.down_t": "blk.{}.ffn_down_shexp.weight",
    "shared_gate": "blk.{}.ffn_gate_inp_shexp.weight",
}


# Of a layer that drafts tokens, beside those of an ordinary layer.
GGUF_DRAFTS = {
    "draft.project": "blk.{}.nextn.eh_proj.weight",
    "draft.embedding_norm": "blk.{}.nextn.enorm.weight",
    "draft.hidden_norm": "blk.{}.nextn.hnorm.weight",
    "draft.final_norm": "blk.{}.nextn.shared_head_norm.weight",
    "draft.embedding": "blk.{}.nextn.embed_tokens.weight",
    "draft.head": "blk.{}.nextn.shared_head_head.weight",
}
HF_DRAFTS = {
    "draft.project": "model.layers.{}.eh_proj.weight",
    "draft.embedding_norm": "model.layers.{}.enorm.weight",
    "draft.hidden_norm": "model.layers.{}.hnorm.weight",
    "draft.final_norm": "model.layers.{}.shared_head.norm.weight",
    "draft.embedding": "model.layers.{}.embed_tokens.weight",
    "draft.head": "model.layers.{}.shared_head.head.weight",
}


def biases_in(names: Collection[str], *fields: str) -> tuple[str, ...]:
    """Return which of these weights have a bias in a GGUF file's first layer."""

    def is_there(field: str) -> bool:
        return GGUF_NAMES[field].format(0).replace(".weight", ".bias") in names

    return tuple(field for field in fields if is_there(field) or (field in ("q", "k", "v") and is_there("qkv")))


def hf_experts(router: str, expert: str, gate: str, up: str, down: str) -> dict[str, str]:
    """Return the same names in Hugging Face's format: modules below the layer, one tensor per expert."""
    parts = {"gate": gate, "up": up, "down_t": down}
    names = {f"expert.{part}": f"model.layers.{{}}.{expert}.{{}}.{name}.weight" for part, name in parts.items()}
    return {"router": f"model.layers.{{}}.{router}.weight", **names}


def fused(names: dict[str, str], **parts: str) -> dict[str, str]:
    """Return the names with "qkv" replacing q, k and v, and "gate_up" replacing gate and up."""
    gone = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
    out = {name: foreign for name, foreign in names.items() if all(name not in gone.get(part, ()) for part in parts)}
    return out | parts
