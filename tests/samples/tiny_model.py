"""Makes tiny random models of the LLaMA family for tests: a Hugging Face directory, or a GGUF file of the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>")
MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "a"), ("l", "l"), ("o", "r"), ("ll", "o"))
VOCAB_SIZE = len(SPECIAL_TOKENS) + 256 + len(MERGES)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_tiny_model(
    folder: Path,
    *,
    activation: str = "relu",
    tied: bool = True,
    n_layers: int = 2,
    d_model: int = 32,
    d_ff: int = 64,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    max_context: int = 64,
    dtype: str = "float32",
    seed: int = 0,
    config: dict[str, Any] | None = None,
    tensors: dict[str, NDArray[Any] | None] | None = None,
) -> Path:
    """Writes config.json, generation_config.json, model.safetensors and the tokenizer's two files; `folder` back.

    config: keys of config.json to change. tensors: tensors to replace or add; None leaves one out.
    The same arguments write the same bytes.
    """
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": activation,
        "hidden_size": d_model,
        "intermediate_size": d_ff,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": d_model // n_heads,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": max_context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 5,
        **(config or {}),
    }
    _write_json(folder / "config.json", values)
    _write_json(folder / "generation_config.json", {"do_sample": True, "temperature": 0.5, "eos_token_id": [1]})
    weights = _random_weights(values, tied, n_layers, d_model, d_ff, n_heads, n_kv_heads, seed)
    weights = {name: value.astype(dtype) for name, value in weights.items()}
    changed = {name: value for name, value in {**weights, **(tensors or {})}.items() if value is not None}
    save_file({name: np.ascontiguousarray(value) for name, value in changed.items()}, folder / "model.safetensors")
    _write_tokenizer(folder)
    return folder


def make_tiny_gguf(path: Path, **options: Any) -> Path:
    """The same model as one Q8_0 GGUF file (widths must be multiples of 32); `path` back."""
    from installer.make_starter_model import make_gguf

    source = make_tiny_model(path.parent / f"{path.stem}-source", **options)
    make_gguf(source, path, name="Tiny", description="Random numbers.")
    return path


def _random_weights(
    config: dict[str, Any], tied: bool, n_layers: int, d: int, f: int, n_heads: int, n_kv_heads: int, seed: int
) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    head_dim = d // n_heads

    def matrix(n_rows: int, n_cols: int) -> NDArray[np.float32]:
        return (rng.standard_normal((n_rows, n_cols)) / np.sqrt(n_cols)).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return rng.uniform(0.5, 1.5, d).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, d) * np.float32(d**0.5), "model.norm.weight": norm()}
    for i in range(n_layers):
        layer = f"model.layers.{i}"
        weights |= {
            f"{layer}.input_layernorm.weight": norm(),
            f"{layer}.self_attn.q_proj.weight": matrix(n_heads * head_dim, d),
            f"{layer}.self_attn.k_proj.weight": matrix(n_kv_heads * head_dim, d),
            f"{layer}.self_attn.v_proj.weight": matrix(n_kv_heads * head_dim, d),
            f"{layer}.self_attn.o_proj.weight": matrix(d, n_heads * head_dim),
            f"{layer}.post_attention_layernorm.weight": norm(),
            f"{layer}.mlp.gate_proj.weight": matrix(f, d),
            f"{layer}.mlp.up_proj.weight": matrix(f, d),
            f"{layer}.mlp.down_proj.weight": matrix(d, f),
        }
    if not tied:
        weights["lm_head.weight"] = matrix(VOCAB_SIZE, d)
    return weights


def byte_letters() -> list[str]:
    """The letter that stands for each of the 256 bytes in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _write_tokenizer(folder: Path) -> None:
    tokens = [*SPECIAL_TOKENS, *byte_letters(), *("".join(pair) for pair in MERGES)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": [list(pair) for pair in MERGES],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1), encoding="utf-8")
