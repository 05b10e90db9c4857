"""Train small models of several families, to measure what depends on trained attention, with kv_quality.py.

    python tests/benchmarks/tiny_families.py FAMILY... --texts TEXT... --out FOLDER [--seconds 25]

FAMILY: a key of SHAPES. The classes are those of transformers, the shape and the vocabulary the starter model's.
Windows of 1,024 tokens are drawn from the texts. Written: FOLDER/FAMILY in Hugging Face's format, in F16. The models
see few tokens, so they are far from fluent.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/engine/families")]

from family_models import SHAPE, save_model  # noqa: E402 - found by the line above

from engine.formats.gguf import open_gguf  # noqa: E402
from engine.text.tokenizer import Tokenizer  # noqa: E402

STARTER = ROOT / "assets/models/starter-chat/starter-chat-q8_0.gguf"
LENGTH, WINDOW = 1024, 256
COMMON = {**SHAPE, "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1792, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": LENGTH,
          "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 5, "tie_word_embeddings": True}  # fmt: skip
PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
                         "sliding_window": WINDOW}  # fmt: skip
LATENT: dict[str, Any] = {"n_routed_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 896,
                          "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
                          "qk_rope_head_dim": 32, "v_head_dim": 64, "num_key_value_heads": 8,
                          "rope_parameters": PLAIN}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 64},
    "gemma2": {**GEMMA, "query_pre_attn_scalar": 256},
    "gemma3": {**GEMMA, "query_pre_attn_scalar": 256, "num_hidden_layers": 8},
    "gemma4": {**GEMMA, "global_head_dim": 512, "layer_types": None},
    "glm4": {"head_dim": 64},
    "smollm3": {"num_hidden_layers": 8},
    "olmo2": {},
    "exaone4": {"num_hidden_layers": 8, "head_dim": 64, "sliding_window": WINDOW},
    "cohere2": {"num_hidden_layers": 8, "sliding_window": WINDOW},
    "falcon-7b": {"multi_query": True},
    "gpt-oss": {"num_local_experts": 2, "num_experts_per_tok": 2, "intermediate_size": 896,
                "num_hidden_layers": 8, "head_dim": 64,
                "sliding_window": 128, "rope_parameters": PLAIN},
    "deepseek-v3": {**LATENT, "n_group": 1, "topk_group": 1},
    "qwen3.5": {"num_hidden_layers": 8, "head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
                "linear_key_head_dim": 64, "linear_value_head_dim": 64,
                "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [8, 4, 4]}},
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+", choices=SHAPES)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=25)
    flags = parser.parse_args()
    metadata = open_gguf(STARTER).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    tokens = torch.tensor([token for text in flags.texts for token in tokenizer.encode(text.read_text("utf-8"))])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in flags.families:
        folder = flags.out / name
        model = save_model(name, folder, {**COMMON, **SHAPES[name]})
        torch.manual_seed(0)
        model.config._experts_implementation = "eager"
        model = type(model)(model.config).to(device)  # not the random weights of the tests
        found = train(model, tokens.to(device), flags.seconds)
        shutil.rmtree(folder)
        model.half().save_pretrained(folder)
        vocabulary = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (folder / "merges.txt").write_text("\n".join(metadata["tokenizer.ggml.merges"]), encoding="utf-8")
        print(json.dumps({"model": name, **found}), flush=True)
    return 0


def train(model: Any, tokens: torch.Tensor, seconds: float, rate: float = 1.5e-3) -> dict[str, Any]:
    """Return the steps, the tokens seen, and the last loss."""
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rows, offsets = (8 if tokens.is_cuda else 1), torch.arange(LENGTH, device=tokens.device)
    began, steps = time.perf_counter(), 0
    while (share := (time.perf_counter() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (steps + 1) / 50, 2 - 2 * share)
        starts = torch.randint(len(tokens) - LENGTH, (rows, 1), device=tokens.device)
        batch = tokens[starts + offsets]
        with torch.autocast(batch.device.type, torch.bfloat16):
            loss = model(batch, labels=batch, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        steps += 1
    return {"steps": steps, "tokens": steps * rows * LENGTH, "last loss": float(loss)}


if __name__ == "__main__":
    raise SystemExit(main())
