"""Writes a GGUF file of the shape of any model of the catalogue, with random numbers: to measure every family's speed.

    python tests/benchmarks/catalogue_models.py granite-4.0-h-tiny /dev/shm/granite.gguf
    python tests/benchmarks/catalogue_models.py minimax-m2 /dev/shm/minimax.gguf --layers 8

Matrices are Q4_0 but for those that llama.cpp's converter keeps in F16 or F32; the embedding that is also the head, and
the head, are Q8_0. make_model.py makes models whose neurons fire and whose experts are chosen as in real models.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from make_model import _count, _vocabulary
from samples.raw_gguf import array, entry, gguf_file, tensor, value

from engine.config import ModelConfig
from engine.library.estimate.catalogue import load_catalogue
from engine.library.estimate.mixtures import codecs_of
from engine.library.estimate.shapes import config_of
from engine.library.records import ModelShape
from engine.model.families import FAMILIES, planned_tensors
from native_kernels.codecs import CODECS

ROOT = Path(__file__).resolve().parents[2]
_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
_ALIGNMENT = 32
_POOL = 1 << 22  # weights
# Norms are divided by one in F32; what Mamba-2 and gated delta nets decay by is negative.
_CONSTANTS = {"norm.weight": 1.0, "ssm_a": -1.0, "rope_freqs.weight": 1.0, "layer_output_scale.weight": 1.0}
_LAYERS = ("delta_layers", "ffn_only_layers", "mixer_only_layers")


def of_layers(shape: ModelShape, n_layers: int) -> ModelShape:
    """Return the shape of the first layers of a model, up to the first with attention, and with experts, at least."""
    others = {*shape.delta_layers, *shape.ffn_only_layers, *range(shape.n_dense_layers)}
    n_layers = max(n_layers, 1 + next(n for n in range(shape.n_layers) if n not in others))
    if n_layers >= shape.n_layers:
        return shape
    few: dict[str, Any] = {name: tuple(n for n in getattr(shape, name) if n < n_layers) for name in _LAYERS}
    few |= {name: getattr(shape, name)[:n_layers] for name in ("windows", "d_ff_by_layer")}
    return replace(shape, n_layers=n_layers, n_shared_kv_layers=0, **few)


def write_model(path: Path, shape: ModelShape, filled: bool = True) -> int:
    """Write the file and return its bytes. filled: with numbers. Cost: about a second per 2 GB in RAM."""
    config = _as_published(config_of(shape))
    all_keys = replace(config, n_shared_kv_layers=0)  # files have keys and values that no layer uses
    plan = planned_tensors(all_keys, "gguf", one_expert=True)
    codecs = codecs_of(plan, "q4_0", config, "gguf")
    stored = {one.foreign_name: (one.shape, codec) for one, codec in zip(plan, codecs, strict=True)}
    if shape.family == "gemma4":
        stored["rope_freqs.weight"] = (config.head_dim // 2,), "f32"
    table, places, at = [], [], 0
    for foreign, (dims, codec) in stored.items():
        fits = dims[-1] % CODECS.get(codec, CODECS["f32"]).block_size == 0
        own = codec if codec in _TYPES and fits else "q8_0" if dims[-1] % 32 == 0 else "f16"
        n_bytes = CODECS[own].n_bytes(dims[-1]) * int(np.prod(dims[:-1], dtype=np.int64))
        table.append(tensor(foreign, dims[::-1], _TYPES[own], at))
        places.append((foreign, own, at, n_bytes))
        at += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    head = gguf_file(tuple(_metadata(config)), tuple(table), data=b"")
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    if not filled:
        return len(head) + at
    memory = np.memmap(path, np.uint8, "r+")
    random = np.random.default_rng(1).standard_normal(_POOL, np.float32)
    scale = np.float32(config.d_model**-0.5)
    pools = {codec: CODECS[codec].encode(random * scale).reshape(-1) for codec in _TYPES}
    for number, (foreign, codec, start, n_bytes) in enumerate(places):
        here = memory[len(head) + start :][:n_bytes]
        constant = next((one for end, one in _CONSTANTS.items() if foreign.endswith(end)), None)
        if constant is not None:
            here.view(np.float32)[:] = constant
            if foreign == "rope_freqs.weight":  # a quarter is rotated
                here.view(np.float32)[config.head_dim // 8 :] = 1e30
            continue
        pool, done = pools[codec], 0
        begin = number * 4099 * CODECS[codec].type_size % len(pool)
        while done < n_bytes:
            piece = pool[begin : begin + n_bytes - done]
            here[done : done + len(piece)] = piece
            done, begin = done + len(piece), 0
    memory.flush()
    return len(head) + at


def _as_published(config: ModelConfig) -> ModelConfig:
    """Return the configuration with what files of the family have, and a shape does not say."""
    own: dict[str, dict[str, Any]] = {
        "gemma3n": {"layer_vocab_size": None},
        "lfm2_moe": {"selection_bias": True},
        "phimoe": {"norm": "layer", "biases": ("norm", "head", "q", "k", "v", "o")},
    }
    return replace(config, **own.get(config.family, {}))


def _metadata(config: ModelConfig) -> Iterator[bytes]:
    family = next(one for one in FAMILIES if one.name == config.family)
    arch = family.architectures[family.name == "nemotron_h" and config.n_experts > 0]
    yield value("general.architecture", arch)
    yield value("general.name", "synthetic")  # from published names llama.cpp concludes what tokens are
    keys: dict[str, Any] = {
        "vocab_size": config.vocab_size, "context_length": config.max_context, "block_count": config.n_layers,
        "embedding_length": config.d_model, "feed_forward_length": _neurons(config, arch),
        "attention.head_count": config.n_heads, "attention.head_count_kv": _kv_heads(config, arch),
        "attention.key_length": config.head_dim, "attention.value_length": config.head_dim, "rope.freq_base": 1e4,
        "rope.dimension_count": config.rotated,
        "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
    }  # fmt: skip
    for key, content in (keys | _of_layers(config, arch) | _OWN.get(arch, {})).items():
        yield _value(f"{arch}.{key}", content)
    yield from _vocabulary(config.vocab_size)


def _kv_heads(config: ModelConfig, arch: str) -> int | list[int]:
    """Of the model, or of each layer where they differ; without attention: 0."""
    others = {*config.delta_layers, *config.ffn_only_layers}
    if others and not arch.startswith("qwen"):
        return [0 if n in others else config.n_kv_heads for n in range(config.n_layers)]
    if config.local_kv_heads:
        return [config.local_kv_heads if one else config.n_kv_heads for one in config.windows]
    return config.n_kv_heads


def _neurons(config: ModelConfig, arch: str) -> int | list[int]:
    if config.mixer_only_layers:
        return [0 if n in config.mixer_only_layers else config.d_ff for n in range(config.n_layers)]
    if config.d_ff_by_layer:
        return list(config.d_ff_by_layer)
    return config.shared_d_ff if arch == "gemma4" and config.n_experts else config.dense_d_ff or config.d_ff


def _of_layers(config: ModelConfig, arch: str) -> dict[str, Any]:
    """Return the keys of experts, windows, recurrent layers and layers that differ."""
    keys: dict[str, Any] = {}
    if config.n_experts:
        keys |= {"expert_count": config.n_experts, "expert_used_count": config.n_experts_used}
        keys |= {} if arch == "phimoe" else {"expert_feed_forward_length": config.d_ff}
        if config.shared_d_ff and arch not in ("glm4moe", "llama4", "deepseek2", "gemma4"):
            keys["expert_shared_feed_forward_length"] = config.shared_d_ff
        if config.shared_d_ff and arch in ("glm4moe", "deepseek2", "nemotron_h_moe"):
            keys["expert_shared_count"] = config.shared_d_ff // config.d_ff
        keys |= {"leading_dense_block_count": config.n_dense_layers} if config.n_dense_layers else {}
    if window := max(config.windows, default=0):
        keys["attention.sliding_window"] = window
        if arch in ("olmo2", "exaone4", "gemma3n", "gemma4"):
            keys["attention.sliding_window_pattern"] = [bool(one) for one in config.windows]
    if (delta := config.delta) is not None:
        keys |= {
            "ssm.conv_kernel": delta.conv_width, "ssm.state_size": delta.key_dim, "ssm.group_count": delta.key_heads,
            "ssm.time_step_rank": delta.value_heads, "ssm.inner_size": delta.value_heads * delta.value_dim,
        }  # fmt: skip
    if config.short_conv is not None:
        keys["shortconv.l_cache"] = config.short_conv.conv_width
    if (latent := config.latent) is not None:
        rotated = config.head_dim - latent.rank
        keys |= {
            "attention.kv_lora_rank": latent.rank, "attention.key_length_mla": latent.key_dim + rotated,
            "attention.value_length_mla": latent.value_dim, "attention.value_length": latent.rank,
            "rope.dimension_count": rotated, "attention.head_count_kv": 1,
            **({"attention.q_lora_rank": latent.query_rank} if latent.query_rank else {}),
        }  # fmt: skip
    if arch in ("gemma3n", "gemma4"):
        keys |= {
            "embedding_length_per_layer_input": config.layer_embedding_dim, "final_logit_softcapping": 30.0,
            "attention.shared_kv_layers": config.n_shared_kv_layers,
        }  # fmt: skip
    if arch == "gemma3n":
        cut = [NormalDist().inv_cdf(0.95) if n < _CUT_LAYERS else -math.inf for n in range(config.n_layers)]
        keys |= {"altup.active_idx": 0, "altup.num_inputs": config.n_streams, "activation_sparsity_scale": cut}
    if arch == "gemma4":
        local = ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa")
        keys |= dict.fromkeys(local, config.local_head_dim) | {"rope.freq_base_swa": 1e4}
    return keys


_SIGMOID, _CUT_LAYERS = 2, 10
_QWEN35 = {"full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0]}
# What an architecture's files have beside what its configuration says.
_OWN: dict[str, dict[str, Any]] = {
    "nemotron_h": {"rope.scaling.finetuned": False},
    "nemotron_h_moe": {"rope.scaling.finetuned": False, "expert_weights_norm": True, "expert_weights_scale": 2.5,
                       "expert_group_count": 1},
    "granitehybrid": {"rope.scaling.finetuned": False, "attention.scale": 0.0078125, "embedding_scale": 12.0,
                      "residual_scale": 0.22, "logit_scale": 8.0},
    "granite": {"attention.scale": 0.0078125, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 16.0},
    "lfm2moe": {"expert_gating_func": _SIGMOID},
    "minimax-m2": {"expert_gating_func": _SIGMOID},
    "glm4moe": {"expert_gating_func": _SIGMOID, "expert_weights_norm": True, "expert_weights_scale": 1.0},
    "deepseek2": {"expert_weights_scale": 1.0},
    "llama4": {"interleave_moe_layer_step": 1},
    "hunyuan-dense": {"rope.scaling.type": "none", "rope.scaling.factor": 1.0},
    "qwen3next": {"full_attention_interval": 4},
    "qwen35": _QWEN35, "qwen35moe": _QWEN35,
}  # fmt: skip


def _value(key: str, content: Any) -> bytes:
    if not isinstance(content, list):
        return _count(key, content) if type(content) is int else value(key, content)
    kind, dtype = {bool: (7, "u1"), int: (5, "<i4"), float: (6, "<f4")}[type(content[-1])]
    return entry(key, 9, array(kind, len(content), np.array(content, dtype).tobytes()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", metavar="ID", help="of the catalogue")
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=1000, help="the first so many alone")
    flags = parser.parse_args()
    found = load_catalogue().get(flags.entry)
    n_bytes = write_model(flags.file, of_layers(found.shape, flags.layers))
    print(f"{flags.file}: {n_bytes / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
