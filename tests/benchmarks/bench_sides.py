"""One engine in a process of its own, told over stdin what to time: Hearth or llama.cpp. It compares nothing.

Each line in is a JSON object with "do": prefill, decode, memory; each line out answers it. A process each, because
thread pools and memory are then each engine's own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

SAMPLING_S = 0.005  # how often the memory is looked at


class Side(Protocol):
    """An engine with a model and one conversation of at most `context` tokens."""

    vocab_size: int
    kv_bytes: int  # of the whole cache

    def prefill(self, tokens: list[int]) -> None:
        """Forgets everything and computes these tokens up to the logits of the last one."""

    def truncate(self, length: int) -> None:
        """Forgets what lies behind `length` tokens."""

    def decode(self, token: int) -> None:
        """Appends one token and computes the logits."""


class HearthSide:
    def __init__(self, path: Path, mode: str, threads: int, context: int) -> None:
        from engine.config import EngineConfig
        from engine.session.loaded_model import LoadedModel

        config = EngineConfig(device="cpu", threads=threads, context=context, mode=mode)  # type: ignore[arg-type]
        self._model = LoadedModel.load(path, config)
        self._transformer = self._model.transformer()
        self._cache = self._model.new_cache(context)
        self.vocab_size, self.kv_bytes = self._model.opened.config.vocab_size, self._cache.n_bytes
        self.counters = self._transformer.executor.counters

    def prefill(self, tokens: list[int]) -> None:
        from engine.session.generate import prefill

        self._cache.truncate(0)
        prefill(self._transformer, tokens, self._cache)

    def truncate(self, length: int) -> None:
        self._cache.truncate(length)

    def decode(self, token: int) -> None:
        from engine.session.generate import decode_one_token

        decode_one_token(self._transformer, token, self._cache)


class LlamaCppSide:
    """llama.cpp with its defaults: mapped weights, keys and values in F16, batches of 512."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        import llama_cpp

        self._lib: Any = llama_cpp
        llama_cpp.llama_backend_init()
        silent = llama_cpp.llama_log_callback(lambda level, text, user_data: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self._kept = silent
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, 512, 512
        params.n_threads = params.n_threads_batch = threads
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp cannot open {path}.")
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        heads = llama_cpp.llama_model_n_head_kv(model)
        width = llama_cpp.llama_model_n_embd(model) // llama_cpp.llama_model_n_head(model)
        self.kv_bytes = 2 * 2 * llama_cpp.llama_model_n_layer(model) * context * heads * width

    def prefill(self, tokens: list[int]) -> None:
        self.truncate(0)
        for start in range(0, len(tokens), 512):
            self._run(tokens[start : start + 512])

    def truncate(self, length: int) -> None:
        lib = self._lib
        lib.llama_memory_seq_rm(lib.llama_get_memory(self._context), 0, length, -1)

    def decode(self, token: int) -> None:
        self._run([token])

    def _run(self, tokens: list[int]) -> None:
        lib = self._lib
        ids = (ctypes.c_int32 * len(tokens))(*tokens)  # the batch points to it and keeps it no longer than we do
        batch = lib.llama_batch_get_one(ids, len(tokens))
        if lib.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp failed to compute a batch.")
        lib.llama_synchronize(self._context)
        lib.llama_get_logits(self._context)


class PeakMemory:
    """The most memory of its own that the process had, looked at every few ms until it is stopped.

    On Linux: resident pages that belong to no file, RssAnon and RssShmem of /proc/self/status, so that mapped weights
    do not count, and everything read or copied does. Elsewhere: the unique set, which is near it.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        self.n_bytes = max(self.n_bytes, own_bytes())
        return self.n_bytes

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLING_S):
            self.n_bytes = max(self.n_bytes, own_bytes())


def own_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line.split() for line in status.read_text(encoding="ascii").splitlines()]
        found = [int(words[1]) << 10 for words in lines if words and words[0] in ("RssAnon:", "RssShmem:")]
        if found:
            return sum(found)
    import psutil

    return int(psutil.Process().memory_full_info().uss)


def waited_s() -> float:
    """Seconds that the threads of this process stood ready and had no CPU; 0 where nobody counts them."""
    total = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(task.read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue  # the thread has ended
    return total / 1e9


def timed(side: Side, order: dict[str, Any]) -> dict[str, Any]:
    """One sample: order "n" tokens; decode begins behind "at" tokens. The same "sample" is the same tokens."""
    tokens = np.random.default_rng(order["sample"]).integers(3, side.vocab_size, order["n"]).tolist()
    if order["do"] == "decode":
        side.truncate(order["at"])
    waited, started = waited_s(), time.perf_counter()
    if order["do"] == "prefill":
        side.prefill(tokens)
    else:
        for token in tokens:
            side.decode(token)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "waited_s": waited_s() - waited}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("engine", choices=("hearth", "llama.cpp"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--mode", default="dense")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    flags = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    memory = PeakMemory()
    side: Side
    if flags.engine == "hearth":
        side = HearthSide(flags.path, flags.mode, flags.threads, flags.context)
    else:
        side = LlamaCppSide(flags.path, flags.threads, flags.context)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "memory":  # after what was to be watched; the thread must not disturb the times
            answer: dict[str, Any] = {"peak_bytes": memory.stop(), "kv_bytes": side.kv_bytes}
            if isinstance(side, HearthSide):
                answer["active_share"] = side.counters.active_share
        else:
            answer = timed(side, order)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
