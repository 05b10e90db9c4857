"""Measure the time to a long chat's first token: computed, from RAM after another chat, from disk after a restart.

"A new chat" begins with all but the last tokens of the first question, as the chats of a project do.

    python tests/benchmarks/warm_chats.py MODEL [--tokens 20000] [--device cpu] [--vram-budget GIB] [--kv-cache q8_0]
    python tests/benchmarks/warm_chats.py MODEL --tokens 512 8192 32768 130000 --answer 64

Prints a JSON list with one object for each length. Answers are decoded token by token, without guesses. The files were
just written, so the system still has them in its page cache. `--drop` asks Linux to drop them from it, which works on
ext4 and similar file systems.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import EngineConfig, SamplingConfig
from engine.prompt_cache.store import PromptStore, ram_bytes_for_blocks
from engine.prompt_cache.stored_prompts import StoredPrompts
from engine.session.chat_session import ChatSession
from engine.session.generate import GenerationStats
from engine.session.guesses import StepTimes
from engine.session.loaded_model import LoadedModel

QUOTA_BYTES = 64 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, nargs="+", default=[20_000], help="of each chat")
    parser.add_argument("--new", type=int, default=30, help="tokens of the next message")
    parser.add_argument("--answer", type=int, default=2, help="tokens of each answer")
    parser.add_argument("--folder", type=Path, help="of the files; default: a temporary one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--vram-budget", type=float, metavar="GIB")
    parser.add_argument("--kv-cache", default=None)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--drop", action="store_true", help="have the system forget the files before they are read")
    flags = parser.parse_args()
    found = []
    for n_tokens in flags.tokens:
        with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
            found.append(_measured(flags, n_tokens, Path(folder) / "prompts"))
    print(json.dumps(found, indent=1))
    return 0


class _OneByOne(StepTimes):
    """Times with which no guess is worth computing."""

    def of(self, n_tokens: int) -> float:
        return self.one_s if n_tokens == 1 else math.inf


def _measured(flags: argparse.Namespace, n_tokens: int, folder: Path) -> dict[str, Any]:
    changes = {"kv_cache": flags.kv_cache} if flags.kv_cache else {}
    engine = EngineConfig(
        device=flags.device, threads=flags.threads, context=n_tokens + 512, vram_budget_gib=flags.vram_budget,
        **changes,
    )  # fmt: skip
    model = LoadedModel.load(flags.model, engine)
    session, store = _start(model, folder)
    most = model.opened.config.vocab_size
    lengths = n_tokens, 200, flags.new, flags.new, flags.new
    chat, other, new, second, third = (_tokens(most, n, seed) for seed, n in enumerate(lengths, 1))
    project = chat[: n_tokens - flags.new]
    cold = _ask(session, chat, flags.answer)
    began = time.perf_counter()
    while (wait := session.save_step()) is not None:
        time.sleep(wait)
    store.flush()
    writing_s = time.perf_counter() - began
    in_place = _ask(session, [*chat, *new], flags.answer)
    _ask(session, other, flags.answer, "other")
    after_another = _ask(session, [*chat, *new], flags.answer)
    new_in_place = _ask(session, [*project, *second], flags.answer, "second")
    session.keep()
    store.flush()
    store.close(60)
    model.close()
    files = list(folder.glob("*.kv"))
    if flags.drop:
        for file in files:
            _forget(file)
    model = LoadedModel.load(flags.model, engine)
    session, store = _start(model, folder)
    restarted = _ask(session, [*chat, *new], flags.answer)
    _ask(session, other, flags.answer, "other")
    new_restored = _ask(session, [*project, *third], flags.answer, "third")
    store.close(60)
    n_bytes = sum(file.stat().st_size for file in files)
    found = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(), "model": model.name,
        "device": model.device_reason, "kv_cache": model.kv_codec, "tokens": n_tokens, "new": flags.new,
        "file_bytes": n_bytes, "bytes_per_token": n_bytes / n_tokens, "writing_s": writing_s,
        "dropped": flags.drop,
        "cold": _about(cold), "in place": _about(in_place), "after another chat": _about(after_another),
        "after a restart": _about(restarted), "a new chat, in place": _about(new_in_place),
        "a new chat, after another chat": _about(new_restored),
    }  # fmt: skip
    model.close()
    return found


def _start(model: LoadedModel, folder: Path) -> tuple[ChatSession, PromptStore]:
    store = PromptStore(folder, QUOTA_BYTES, ram_bytes_for_blocks())
    session = ChatSession(model, prompts=StoredPrompts(store, model.opened, model.kv_codec))
    session._times = _OneByOne()
    return session, store


def _tokens(vocabulary: int, n: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, vocabulary, n)]


def _ask(session: ChatSession, tokens: list[int], answer: int, chat: str = "chat") -> GenerationStats:
    return list(session.generate(tokens, SamplingConfig(temperature=0.0, max_tokens=answer), chat=chat))[-1].stats


def _about(stats: GenerationStats) -> dict[str, Any]:
    return {
        "first_token_s": stats.ttft_s, "restored_tokens": stats.restored_tokens, "reused_tokens": stats.reused_tokens,
        "prefill_tok_s": stats.prefill_tok_s, "decode_tok_s": stats.decode_tok_s,
    }  # fmt: skip


def _forget(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    raise SystemExit(main())
