"""Quality of a KV cache in 16 bits and in 8, against one in 32 bits.

    python tests/benchmarks/kv_quality.py MODEL... TEXT [--tokens 8192] [--context 4096] [--record NAME]

At every position of the text: KL divergence of the next token's distribution, agreement of the most likely token, and
rise of the perplexity. All weights and positions are the same; prompts run in pieces of 128 tokens, so every position
reads the cache of those before its piece.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from made_zeros import hidden_states, quality  # noqa: E402 - found by the line above

from engine.config import EngineConfig, KvCodec  # noqa: E402
from engine.evaluation.evaluate import windows  # noqa: E402
from engine.machine.hardware import describe, probe  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

CODECS: tuple[KvCodec, ...] = ("f16", "q8_0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--record", metavar="NAME", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    found = {path.name.removesuffix(".gguf"): measured(path, flags) for path in flags.models}
    result = {
        "command": f"python tests/benchmarks/kv_quality.py MODEL TEXT --tokens {flags.tokens} "
        f"--context {flags.context}",
        "date": time.strftime("%Y-%m-%d"), "hardware": f"{describe(probe())}; {platform.machine()}", "models": found,
    }  # fmt: skip
    if flags.record:
        path = Path(__file__).parent / "results" / f"kv-quality-{flags.record}-{result['date']}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(path: Path, flags: argparse.Namespace) -> dict[str, Any]:
    """Return the quality of each codec."""

    def loaded(codec: KvCodec) -> LoadedModel:
        return LoadedModel.load(path, EngineConfig(device="cpu", context=flags.context, kv_cache=codec))

    exact = loaded("f32")
    tokens = exact.tokenizer.encode(flags.text.read_text(encoding="utf-8"))[: flags.tokens]
    pairs: list[Any] = [
        (inputs, targets, hidden_states(exact, exact.transformer("dense"), inputs))
        for inputs, targets in windows(tokens, exact.text_bos_id, flags.context)
    ]
    rows = {}
    for codec in CODECS:
        model = loaded(codec)
        rows[codec] = quality(model, model.transformer("dense"), exact.transformer("dense"), pairs)
        print(path.name, codec, json.dumps(rows[codec]), flush=True)
        model.close()
    exact.close()
    return rows


if __name__ == "__main__":
    sys.exit(main())
