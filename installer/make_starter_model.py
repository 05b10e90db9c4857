"""Makes the model file that ships with Hearth: a Hugging Face LLaMA directory in, one Q8_0 GGUF file out.

    python -m installer.make_starter_model SRC DST

The output depends on the input alone, byte for byte. It is not the general converter: it knows one tokenizer kind
(byte-level BPE) and one codec.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.formats.safetensors import open_safetensors
from engine.model.families import (
    ACTIVATION_KEY,
    config_from_hf,
    planned_tensors,
)

NAME = "Pip"
DESCRIPTION = "A tiny demonstration model that answers simple questions and tells small stories."
_CODEC = gguf.GGMLQuantizationType.Q8_0


def make_gguf(source: Path, target: Path, name: str = NAME, description: str = DESCRIPTION) -> None:
    """Writes the model in the directory `source` to the GGUF file `target`: matrices Q8_0, norms F32."""
    generation = _json(source / "generation_config.json")
    config = config_from_hf(_json(source / "config.json"), generation)
    writer = gguf.GGUFWriter(target, "llama")
    _write_shape(writer, config, name, description)
    _write_sampling(writer, generation)
    _write_tokenizer(writer, config, source)
    _write_tensors(writer, config, source / "model.safetensors")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: gguf.GGUFWriter, config: ModelConfig, name: str, description: str) -> None:
    writer.add_name(name)
    writer.add_description(description)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config.max_context)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_string(ACTIVATION_KEY, config.activation)


def _write_sampling(writer: gguf.GGUFWriter, generation: dict[str, Any]) -> None:
    adders = {"temperature": writer.add_sampling_temp, "top_k": writer.add_sampling_top_k,
              "top_p": writer.add_sampling_top_p, "min_p": writer.add_sampling_min_p,
              "repetition_penalty": writer.add_sampling_penalty_repeat}  # fmt: skip
    for key, add in adders.items():
        if key in generation:
            add(generation[key])
    if "max_new_tokens" in generation:  # the trainer's advice, kept with the file; the engine itself sets no limit
        writer.add_uint32("hearth.sampling.max_tokens", generation["max_new_tokens"])


def _write_tokenizer(writer: gguf.GGUFWriter, config: ModelConfig, source: Path) -> None:
    tokenizer, settings = _json(source / "tokenizer.json"), _json(source / "tokenizer_config.json")
    model = tokenizer["model"]
    if model["type"] != "BPE" or tokenizer["pre_tokenizer"]["type"] != "ByteLevel":
        raise SystemExit("Only a byte-level BPE tokenizer can be written.")
    tokens = [f"[PAD{i}]" for i in range(config.vocab_size)]
    types = [int(gguf.TokenType.UNUSED)] * config.vocab_size
    for text, token in model["vocab"].items():
        tokens[token], types[token] = text, int(gguf.TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    ids = {text: token for token, text in enumerate(tokens)}
    for key, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        if settings.get(key):
            add(ids[settings[key]])
    writer.add_add_bos_token(bool(settings.get("add_bos_token", False)))
    writer.add_add_space_prefix(False)
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def _write_tensors(writer: gguf.GGUFWriter, config: ModelConfig, weights: Path) -> None:
    source = open_safetensors(weights)
    for ours, theirs in zip(planned_tensors(config, "gguf"), planned_tensors(config, "safetensors"), strict=True):
        values = source.read_f32(theirs.foreign_name)
        if ours.name.endswith((".q", ".k")):
            values = _pair(values, config.head_dim)
        if values.ndim == 1:
            writer.add_tensor(ours.foreign_name, values)
        else:
            writer.add_tensor(ours.foreign_name, gguf.quants.quantize(values, _CODEC), raw_dtype=_CODEC)


def _pair(values: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Rows of each head in the order that GGUF's LLaMA wants: the two halves of a head interleaved."""
    halves: NDArray[np.float32] = values.reshape(-1, 2, head_dim // 2, values.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return values


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, folder = Path(argv[0]), Path(argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{folder.name}-q8_0.gguf"
    make_gguf(source, target)
    shutil.copyfile(source / "MODEL_CARD.md", folder / "MODEL_CARD.md")
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
