"""Writes a tiny Hugging Face model as GGUF the way llama.cpp's converter does: its names, permutations, sums.

Names come from the gguf package's own table where it knows the architecture; PowerInfer's otherwise.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from family_models import Case

_EXPERT_COUNTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_primary_experts")
Array = np.ndarray[Any, np.dtype[np.float32]]

_OPT = {
    "embed_tokens.weight": "token_embd.weight", "embed_positions.weight": "position_embd.weight",
    "final_layer_norm": "output_norm", "self_attn_layer_norm": "attn_norm", "layers.final_layer_norm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output", "fc1": "ffn_up", "fc2": "ffn_down",
}  # fmt: skip


def write_gguf(
    folder: Path,
    path: Path,
    case: Case,
    powerinfer: bool = False,
    apart: bool = False,
    turned: bool = False,
    drafts: dict[str, Array] | None = None,
) -> Path:
    """The model in `folder` as one F32 GGUF file; with `powerinfer`, down neuron-major and no word of activations.

    apart: as in 2023, one tensor for each expert, and one for keys and values of latent attention. turned: down of
    experts neuron-major under its usual name. drafts: the folder has one more layer, with these tensors of GGUF beside.
    """
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    if case.gguf == "granitehybrid":
        config |= _as_nemotron(config)
    config.setdefault("num_hidden_layers", len(config.get("layers_block_type", [])))
    writer = gguf.GGUFWriter(path, case.gguf)
    if drafts and not config.get("num_nextn_predict_layers"):
        config["num_nextn_predict_layers"] = 1
        writer.add_nextn_predict_layers(1)
    _write_metadata(writer, config, case, powerinfer)
    if "kv_lora_rank" in config:
        _write_latent(writer, config, apart)
    n_layers = config["num_hidden_layers"] + bool(drafts)
    for name, values in (drafts or {}).items():
        writer.add_tensor(name, values)
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known["llama" if case.gguf == "bamboo" else case.gguf], n_layers) if (
        case.gguf != "opt"
    ) else None  # fmt: skip
    tensors = load_file(folder / "model.safetensors")
    tensors = _halved(tensors, config) if case.gguf == "granitehybrid" else tensors
    experts = _fused_experts(tensors) if case.gguf == "gemma4" else _experts(tensors, apart, turned)
    for name, values in experts.items():
        writer.add_tensor(name, values)
    tensors = _stacked(tensors, config) if case.gguf == "gemma3n" else tensors
    for name, values in _unfused(tensors if apart else _by_head(tensors, config), config).items():
        if ".experts." in name or name.endswith(("per_expert_scale", "router.scale")):
            continue
        known_as = name.replace("e_score_correction_bias", "e_score_correction.bias")
        known_as = known_as.replace(".expert_bias", ".expert_bias.bias")
        known_as = known_as.replace(".dt_bias", ".dt.bias" if case.gguf.startswith("nemotron") else ".dt_proj.bias")
        foreign = _opt_name(name) if table is None else table.get_name(known_as, try_suffixes=(".weight", ".bias"))
        assert foreign is not None, name
        foreign += ".weight" if name.endswith((".sinks", "layer_scalar", "correct_output_scale")) else ""
        values = _convert(name, values.astype(np.float32), config, case.gguf)
        if powerinfer and ".ffn_down." in foreign:
            foreign = foreign.replace("ffn_down", "ffn_down_t")
            values = np.ascontiguousarray(values.T)
        writer.add_tensor(foreign, values)
    if powerinfer:
        for layer in range(n_layers):
            writer.add_tensor(f"blk.{layer}.fc1.weight", np.ones((8, 32), np.float32))
            writer.add_tensor(f"blk.{layer}.fc2.weight", np.ones((80, 8), np.float32))
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, config["head_dim"]))
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
    if case.gguf == "gemma4":
        waves, share = next(iter(config["per_layer_config"].values()))["head_dim"] // 2, 0.25
        turns = np.arange(waves) < int(share * waves)
        writer.add_tensor("rope_freqs.weight", np.where(turns, np.float32(1), np.float32(1e30)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_latent(writer: Any, config: dict[str, Any], old: bool) -> None:
    """old: as before April 2025, where nothing said what is cached."""
    rank, rotated = config["kv_lora_rank"], config["qk_rope_head_dim"]
    key_dim = config["qk_nope_head_dim"] + rotated
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_head_count_kv(config["num_attention_heads"] if old else 1)
    writer.add_key_length(key_dim if old else rank + rotated)
    writer.add_value_length(config["v_head_dim"] if old else rank)
    if not old:
        writer.add_key_length_mla(key_dim)
        writer.add_value_length_mla(config["v_head_dim"])
    if every := (config.get("rope_parameters") or {}).get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * every)


def _by_head(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Matrices of keys and values apart, where they are of latent attention."""
    found = {}
    for name, values in tensors.items():
        if "kv_b_proj" not in name:
            found[name] = values
            continue
        heads = values.reshape(config["num_attention_heads"], -1, values.shape[1])
        keys, of_values = np.split(heads, [config["qk_nope_head_dim"]], axis=1)
        found[name.replace("kv_b_proj", "k_b_proj")] = np.ascontiguousarray(keys.swapaxes(1, 2))
        found[name.replace("kv_b_proj", "v_b_proj")] = np.ascontiguousarray(of_values)
    return found


def _experts(tensors: dict[str, Array], apart: bool, turned: bool) -> dict[str, Array]:
    """The experts' tensors under GGUF's names."""
    parts = {"w1": "gate", "w2": "down", "w3": "up"} | {f"{part}_proj": part for part in ("gate", "up", "down")}
    found: dict[tuple[str, str], dict[int, Array]] = {}
    for name, values in tensors.items():
        if match := re.search(r"layers\.(\d+)\..*experts\.(\d+)\.(\w+)\.weight", name):
            layer, expert, part = match.groups()
            found.setdefault((layer, parts.get(part, part)), {})[int(expert)] = values
    if any(name.endswith("experts.gate_up_proj_bias") for name in tensors):
        return _column_experts(tensors)
    for name, values in tensors.items():
        if match := re.search(r"layers\.(\d+)\..*experts\.(gate_up|down)_proj$", name):
            layer, part = match.groups()
            if "feed_forward" in name:  # Llama 4's neurons are columns
                values = values.swapaxes(1, 2)
            both = {"gate": values[:, : values.shape[1] // 2], "up": values[:, values.shape[1] // 2 :]}
            for own, of in (both if part == "gate_up" else {"down": values}).items():
                found[layer, own] = {expert: np.ascontiguousarray(one) for expert, one in enumerate(of)}
    if apart:
        return {f"blk.{layer}.ffn_{part}.{expert}.weight": values
                for (layer, part), experts in found.items() for expert, values in experts.items()}  # fmt: skip
    together = {key: np.stack([experts[n] for n in sorted(experts)]) for key, experts in found.items()}
    if turned:
        together = {key: np.ascontiguousarray(values.swapaxes(1, 2)) if key[1] == "down" else values
                    for key, values in together.items()}  # fmt: skip
    return {f"blk.{layer}.ffn_{part}_exps.weight": values for (layer, part), values in together.items()}


def _fused_experts(tensors: dict[str, Array]) -> dict[str, Array]:
    """Gemma 4's, with one tensor for gate and up, and what it scales the router and the experts by."""
    kinds = {"experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
             "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}  # fmt: skip
    found = ((re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name), values) for name, values in tensors.items())
    return {f"blk.{at[1]}.{kinds[at[2]]}": values for at, values in found if at is not None and at[2] in kinds}


def _column_experts(tensors: dict[str, Array]) -> dict[str, Array]:
    """gpt-oss's, whose neurons are columns, gate and up in turn."""
    found: dict[str, Array] = {}
    for name, values in tensors.items():
        if match := re.search(r"layers\.(\d+)\..*experts\.(gate_up|down)_proj(_bias)?$", name):
            layer, part, bias = match.groups()
            values = values.astype(np.float32)
            both = {"gate": values[..., 0::2], "up": values[..., 1::2]}
            for own, of in (both if part == "gate_up" else {"down": values}).items():
                stored = of if bias else np.ascontiguousarray(of.swapaxes(1, 2))
                found[f"blk.{layer}.ffn_{own}_exps.{'bias' if bias else 'weight'}"] = np.ascontiguousarray(stored)
    return found


def _write_metadata(writer: Any, config: dict[str, Any], case: Case, powerinfer: bool) -> None:
    import gguf

    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or width // heads
    kv_heads = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
    if case.gguf == "falcon" and not config["new_decoder_architecture"]:
        kv_heads = 1
    neurons = config.get("intermediate_size") or config.get("ffn_dim") or config.get("moe_ffn_hidden_size")
    if case.gguf == "llama4":
        neurons = config["intermediate_size_mlp"]
        writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
    if case.gguf == "gemma4":
        kv_heads, neurons, head_dim = _by_layer(config)
    if case.gguf.startswith("lfm2"):
        kv_heads = [0 if kind == "conv" else kv_heads for kind in config["layer_types"]]
        if "block_multiple_of" in config:
            block = config["block_multiple_of"]
            neurons = -(-int(2 * neurons / 3) // block) * block
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    if "layers_block_type" in config:
        kv_heads, of_layers = _write_mamba(writer, config)
        neurons = neurons if case.gguf == "granitehybrid" else of_layers
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"] + (2 if case.gguf == "opt" else 0))
    writer.add_embedding_length(width)
    drafts = 0 if config["model_type"] == "deepseek_v3" else config.get("num_nextn_predict_layers", 0)
    writer.add_block_count(config["num_hidden_layers"] + drafts)
    if case.gguf != "qwen35moe":  # whose config.json knows no dense layer
        writer.add_feed_forward_length(neurons or 4 * width)
    if "linear_num_key_heads" in config:
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
        writer.add_full_attention_interval(4)
        recurrent = [kind == "linear_attention" for kind in config["layer_types"]] + [False] * drafts
        writer.add_array(f"{case.gguf}.attention.recurrent_layers", recurrent)
    _write_experts(writer, config, case)
    writer.add_head_count(heads)
    if case.gguf not in ("deepseek2", "mistral4"):
        writer.add_head_count_kv(kv_heads)
    writer.add_bos_token_id(config["bos_token_id"])
    if case.gguf in ("opt", "falcon", "command-r", "cohere2", "nemotron_h", "nemotron_h_moe"):
        writer.add_layer_norm_eps(1e-5)
    if case.gguf not in ("opt", "falcon", "command-r", "cohere2", "nemotron_h"):
        writer.add_layer_norm_rms_eps(_first(config, "rms_norm_eps", "layer_norm_epsilon", "norm_eps"))
    if case.gguf not in ("opt", "falcon", "command-r", "cohere2", "deepseek2", "mistral4"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    rope = config.get("rope_parameters") or {}
    if case.gguf in ("qwen35", "qwen35moe"):
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if case.gguf in ("llama", "bamboo", "phi3", "phimoe", "glm4", "glm4moe", "minimax-m2", "qwen35", "qwen35moe",
                     "qwen3next", "deepseek2", "mistral4", "llama4"):  # fmt: skip
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    rope = rope.get("full_attention") or rope
    theta = rope.get("rope_theta")
    if alpha := rope.get("alpha"):  # of Hunyuan
        theta = theta * alpha ** (head_dim / (head_dim - 2))
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_rope_scaling_factor(1)
    if theta:
        writer.add_rope_freq_base(theta)
    _write_rope_scaling(writer, rope, config)
    windowed = ("llama", "phi3", "phimoe", "gemma2", "gemma3", "gpt-oss", "cohere2")
    if "sliding_window" in config and case.gguf in windowed:
        writer.add_sliding_window(config["sliding_window"] or 0)
    if config.get("sliding_window") and case.gguf in ("olmo2", "exaone4"):
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
        if local := config["rope_parameters"].get("sliding_attention"):
            writer.add_rope_freq_base_swa(local["rope_theta"])
    if case.gguf == "gemma3n":
        _write_gemma3n(writer, config)
    if case.gguf == "gemma4":
        _write_gemma4(writer, config)
    if case.gguf == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if case.gguf in ("command-r", "cohere2"):
        writer.add_logit_scale(config["logit_scale"])
    if case.gguf in ("granite", "granitehybrid"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if not powerinfer and case.activation in ("relu", "relu-glu", "drelu-glu", "fatrelu-glu"):
        writer.add_string("hearth.activation", case.activation)
        writer.add_float32("hearth.activation_threshold", config.get("hidden_act_param", 0.0))


def _write_mamba(writer: Any, config: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Write what Mamba-2 needs; return the key-value heads and neurons of each layer, where each has one of both."""
    heads, kinds = config["mamba_num_heads"], config["layers_block_type"]
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * config["mamba_head_dim"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_scaling_finetuned(False)
    neurons = config["moe_intermediate_size"] if "moe" in kinds else config["intermediate_size"]
    kv_heads = config["num_key_value_heads"]
    more = config.get("num_nextn_predict_layers", 0)  # layers with both
    return (
        [kv_heads if kind == "full_attention" else 0 for kind in kinds] + more * [kv_heads],
        [neurons if kind in ("mlp", "moe") else 0 for kind in kinds] + more * [neurons],
    )


def _as_nemotron(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of Granite's Mamba-2 under Nemotron-H's names."""
    names = {"n_heads": "mamba_num_heads", "d_head": "mamba_head_dim", "d_state": "ssm_state_size",
             "n_groups": "n_groups", "d_conv": "conv_kernel"}  # fmt: skip
    own = {theirs: config[f"mamba_{ours}"] for ours, theirs in names.items()}
    if not config["num_local_experts"]:
        own["intermediate_size"] = config["shared_intermediate_size"]
    return {**own, "layers_block_type": config["layer_types"]}


def _halved(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Granite's tensors with gate and up apart."""
    found = {}
    for name, values in tensors.items():
        part = "block_sparse_moe" if "block_sparse_moe" in name else "shared_mlp" if "shared_mlp" in name else ""
        layer = name.removeprefix("model.layers.").partition(".")[0]
        if not part or "router" in name:
            found[name.replace("router.layer", "gate")] = values
            continue
        to = "experts" if part == "block_sparse_moe" else "shared_experts" if config["num_local_experts"] else ""
        if "output_linear" in name:
            halves = {"down": values}
        else:
            half = values.shape[-2] // 2
            halves = {"gate": values[..., :half, :], "up": values[..., half:, :]}
        for half_name, of in halves.items():
            key = f"model.layers.{layer}.mlp.{to}.{half_name}_proj.weight".replace("..", ".")
            if to != "experts":
                found[key] = np.ascontiguousarray(of)
                continue
            for expert, one in enumerate(of):
                found[f"model.layers.{layer}.mlp.experts.{expert}.{half_name}_proj.weight"] = np.ascontiguousarray(one)
    return found


def _by_layer(config: dict[str, Any]) -> tuple[list[int], list[int], int]:
    """Gemma 4's key-value heads and neurons of each layer, and the size of heads with full attention."""
    n_layers, shared, heads = (config[f"num_{key}"] for key in ("hidden_layers", "kv_shared_layers", "key_value_heads"))
    full = next(iter(config["per_layer_config"].values()))
    wide = 1 + config["use_double_wide_mlp"]
    neurons = [config["intermediate_size"] * (wide if i >= n_layers - shared else 1) for i in range(n_layers)]
    number = full.get("num_key_value_heads", heads)
    kv_heads = [heads if kind == "sliding_attention" else number for kind in config["layer_types"]]
    return kv_heads, neurons, full["head_dim"]


def _write_gemma3n(writer: Any, config: dict[str, Any]) -> None:
    normal = NormalDist()
    pattern = config["activation_sparsity_pattern"]
    writer.add_activation_sparsity_scale([normal.inv_cdf(one) if one else -math.inf for one in pattern])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _stacked(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Gemma 3n's matrices between streams in one tensor each, its table of all tokens, and unused keys and values."""
    found = {name: values for name, values in tensors.items() if ".altup_" not in name}
    for part in ("altup_projections", "altup_unembed_projections"):
        of_part = [values for name, values in sorted(tensors.items()) if f"model.{part}." in name]
        if of_part:
            found[f"model.{part}.weight"] = np.stack(of_part)
    table = "model.embed_tokens_per_layer.weight"
    if table in found:
        missing = config["vocab_size"] - len(found[table])
        # Published files have zeros for tokens of pictures; transformers takes token 0's row for them, and so do we.
        found[table] = np.concatenate([found[table], np.repeat(found[table][:1], missing, axis=0)])
    n_layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    for layer in range(n_layers - shared, n_layers):  # published files have keys and values that no layer uses
        for part in ("k_proj", "v_proj", "k_norm"):
            found[f"model.layers.{layer}.self_attn.{part}.weight"] = found[f"model.layers.0.self_attn.{part}.weight"]
    return found


def _write_gemma4(writer: Any, config: dict[str, Any]) -> None:
    shared, small = config["num_kv_shared_layers"], config["head_dim"]
    local = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_key_length_swa(small)
    writer.add_value_length_swa(small)
    writer.add_rope_dimension_count(_by_layer(config)[2])
    writer.add_rope_dimension_count_swa(small)
    writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(local)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _write_rope_scaling(writer: Any, rope: dict[str, Any], config: dict[str, Any]) -> None:
    import gguf

    kind = rope.get("rope_type")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    if strength := rope.get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(strength)
        if "kv_lora_rank" not in config:
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    if kind == "longrope":  # of whose kind the converter says nothing
        original = config["original_max_position_embeddings"]
        stretch = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))


def _write_experts(writer: Any, config: dict[str, Any], case: Case) -> None:
    import gguf

    experts = next((config[key] for key in _EXPERT_COUNTS if config.get(key)), 0)
    if not experts or case.gguf == "nemotron_h":
        return
    writer.add_expert_count(experts)
    keys = ("num_experts_per_tok", "moe_topk", "moe_num_active_primary_experts", "top_k_experts")
    writer.add_expert_used_count(_first(config, *keys))
    if case.gguf not in ("llama", "phimoe"):
        writer.add_expert_feed_forward_length(_width_of_experts(config))
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if case.gguf == "granitehybrid":
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if case.gguf in ("glm4moe", "deepseek2", "mistral4"):
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    if case.gguf == "nemotron_h_moe":
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if case.gguf == "glm4moe" or config["model_type"] == "glm4_moe_lite":
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])
    if case.gguf == "glm4moe":
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if case.gguf in ("deepseek2", "mistral4") and config["norm_topk_prob"]:  # of the function, config.json decides
        writer.add_expert_weights_norm(True)
    if case.gguf == "hunyuan-moe":
        writer.add_expert_shared_count(1)
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
    if case.gguf == "lfm2moe":
        writer.add_leading_dense_block_count(config["num_dense_layers"])
    if case.gguf in ("minimax-m2", "lfm2moe"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if case.gguf == "smallthinker":
        softmax = config.get("moe_primary_router_apply_softmax")
        writer.add_expert_gating_func(
            gguf.ExpertGatingFuncType.SOFTMAX if softmax else gguf.ExpertGatingFuncType.SIGMOID
        )
        if any(config["sliding_window_layout"]):
            writer.add_sliding_window(config["sliding_window_size"])


def _width_of_experts(config: dict[str, Any]) -> int:
    return _first(config, "moe_intermediate_size", "moe_ffn_hidden_size", "intermediate_size")


def _first(config: dict[str, Any], *keys: str) -> int:
    found: int = next(config[key] for key in keys if config.get(key))
    return found


def _convert(name: str, values: Array, config: dict[str, Any], architecture: str) -> Array:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    if architecture in ("llama", "bamboo", "smollm3", "granite", "granitehybrid", "mistral3") and name.endswith(
        ("q_proj.weight", "k_proj.weight")
    ):
        n = heads if "q_proj" in name else config["num_key_value_heads"]
        halves = values.reshape(n, 2, values.shape[0] // n // 2, values.shape[1])
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    if "mamba_num_heads" in config and name.endswith(
        (".A_log", ".D", "mixer.norm.weight", "mamba.norm.weight", "conv1d.weight")
    ):
        return _convert_mamba(name, values, config)
    if name.endswith("conv.conv.weight"):
        return values[:, 0]
    if "linear_attn" in name:
        return _convert_delta(name, values, config, architecture)
    if architecture in ("gemma2", "gemma3", "qwen35", "qwen35moe", "qwen3next") and name.endswith("norm.weight"):
        return values + np.float32(1)
    if "query_key_value" in name:
        n = config["num_kv_heads"] if config["new_decoder_architecture"] else 1
        grouped = values.reshape(n, heads // n + 2, width // heads, width)
        parts = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
        return np.concatenate([part.reshape(-1, width) for part in parts])
    return values


def _convert_mamba(name: str, values: Array, config: dict[str, Any]) -> Array:
    if "conv1d" in name:
        return np.ascontiguousarray(values[:, 0])
    if "norm" in name:
        return values.reshape(config["n_groups"], -1)
    return (-np.exp(values) if name.endswith("A_log") else values)[:, None]


def _unfused(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Qwen3-Next's in_proj_qkvz, whose rows are grouped by key head, as queries, keys and values, and the gate."""
    found = {}
    for name, values in tensors.items():
        if "in_proj_qkvz" not in name:
            found[name] = values
            continue
        heads, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
        width = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
        grouped = values.reshape(heads, 2 * size + 2 * width, -1)
        q, k, v, z = (part.reshape(-1, values.shape[1]) for part in np.split(
            grouped, [size, 2 * size, 2 * size + width], axis=1
        ))  # fmt: skip
        found[name.replace("qkvz", "qkv")] = np.concatenate([q, k, v])
        found[name.replace("qkvz", "z")] = z
    return found


def _convert_delta(name: str, values: Array, config: dict[str, Any], architecture: str) -> Array:
    values = -np.exp(values) if name.endswith("A_log") else values
    values = values[:, 0] if "conv1d" in name else values
    if architecture == "qwen3next":
        return np.ascontiguousarray(values)
    heads, size = config["linear_num_key_heads"], config["linear_value_head_dim"]
    keys = 2 * heads * config["linear_key_head_dim"]

    def tiled(of: Array, size: int) -> Array:
        """The value heads of each key head, of this many rows, in turn instead of together."""
        return of.reshape(heads, -1, size, *of.shape[1:]).swapaxes(0, 1).reshape(of.shape)

    if "in_proj_qkv" in name or "conv1d" in name:
        return np.concatenate([values[:keys], tiled(values[keys:], size)])
    if "in_proj_z" in name:
        return np.ascontiguousarray(tiled(values, size))
    if "out_proj" in name:
        return np.ascontiguousarray(tiled(values.T.copy(), size).T)
    return values if "norm" in name else np.ascontiguousarray(tiled(values, 1))


def _opt_name(name: str) -> str:
    name = name.removeprefix("model.decoder.")
    if not name.startswith("layers."):
        key = name if name in _OPT else name.rpartition(".")[0]
        return _OPT[key] + ("" if name in _OPT else "." + name.rpartition(".")[2])
    _, layer, rest = name.split(".", 2)
    module, _, kind = rest.rpartition(".")
    ours = _OPT["layers.final_layer_norm"] if module == "final_layer_norm" else _OPT[module]
    return f"blk.{layer}.{ours}.{kind}"


def _llama3_divisors(rope: dict[str, Any], head_dim: int) -> Array:
    out = []
    low, high = (rope["original_max_position_embeddings"] / rope[f"{end}_freq_factor"] for end in ("low", "high"))
    for i in range(0, head_dim, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        if wave < high:
            out.append(1.0)
        elif wave > low:
            out.append(rope["factor"])
        else:
            share = rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]
            share /= rope["high_freq_factor"] - rope["low_freq_factor"]
            out.append(1 / ((1 - share) / rope["factor"] + share))
    return np.array(out, np.float32)
