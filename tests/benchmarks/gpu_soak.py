"""Decodes on the GPU for a while, with tokens cancelled at any moment and the model loaded again and again.

    python tests/benchmarks/gpu_soak.py starter-chat --minutes 2
    python tests/benchmarks/gpu_soak.py 1b-q4_0.gguf --minutes 1 --budget 0.4 --seed 7

It fails where anything hangs, where a known prompt gives other bits than the first time, or where memory of the GPU
or of the process is not given back: both are looked at after every time the model was closed, and only what the first
two times left there may stay.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.config import EngineConfig  # noqa: E402
from engine.errors import Cancelled  # noqa: E402
from engine.machine.cpu_and_ram import process_ram_bytes  # noqa: E402
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import choose_gpu, probe  # noqa: E402
from engine.session.generate import Logits, decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

HANG_S = 120  # nothing here takes so long
CONTEXT = 256
GPU_SLACK = 16 << 20  # what the driver may keep
RAM_SLACK = 96 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--budget", type=float, metavar="GIB", help="half of it is tried in turn")
    parser.add_argument("--mode", choices=("auto", "sparse", "exact", "dense"), default="auto")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    chance = random.Random(flags.seed)
    gpu, words = choose_gpu(probe())
    if gpu is None and flags.device == "cuda":
        print(words)
        return 1
    end = time.monotonic() + 60 * flags.minutes
    known: dict[float | None, bytes] = {}
    left: list[tuple[int, int]] = []  # bytes of GPU and process after each time
    tokens = cancelled = 0
    while len(left) < 4 or time.monotonic() < end:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        budget = flags.budget if flags.budget is None or len(left) % 2 == 0 else flags.budget / 2
        done, stopped, bits = one_life(flags, budget, chance, min(end, time.monotonic() + 15))
        tokens, cancelled = tokens + done, cancelled + stopped
        if known.setdefault(budget, bits) != bits:
            print(f"A known prompt gave other numbers after {tokens} tokens.")
            return 1
        gc.collect()
        left.append(((gpu and used_bytes(gpu.index)) or 0, process_ram_bytes()))
        print(f"life {len(left)}: {done} tokens, {stopped} cancelled; left {left[-1][0] >> 20} MiB of the GPU, "
              f"{left[-1][1] >> 20} MiB of RAM", flush=True)  # fmt: skip
    faulthandler.cancel_dump_traceback_later()
    gpu, ram = (max(one) - most for one, most in zip(zip(*left[2:], strict=True), map(max, *left[:2]), strict=True))
    print(f"{tokens} tokens, {cancelled} cancelled, {len(left)} lives; {gpu >> 20} MiB of the GPU and {ram >> 20} MiB"
          " of RAM more than after the first two")  # fmt: skip
    return 0 if gpu <= GPU_SLACK and ram <= RAM_SLACK else 1


def one_life(
    flags: argparse.Namespace, budget: float | None, chance: random.Random, end: float
) -> tuple[int, int, bytes]:
    """Loads, decodes in two conversations until the time is over, closes: tokens, how many of them were cancelled, and
    what the last token of a known prompt gives."""
    engine = EngineConfig(device=flags.device, context=CONTEXT, mode=flags.mode, vram_budget_gib=budget)
    model = LoadedModel.load(flags.model, engine)
    try:
        transformer, caches = model.transformer(), [model.new_cache(), model.new_cache()]
        vocabulary = model.opened.config.vocab_size
        prompt = np.random.default_rng(1).integers(0, vocabulary, 12).tolist()
        done = stopped = 0
        while done < 8 or time.monotonic() < end:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            cache = chance.choice(caches)
            if cache.length + 50 > CONTEXT or chance.random() < 0.2:
                cache.truncate(0)
            for n in (chance.randint(1, 40) if not cache.length else 1, *(1,) * chance.randint(1, 8)):
                before, tokens = cache.length, [chance.randrange(vocabulary) for _ in range(n)]
                with cancelled_at_some_time(model, chance):
                    try:
                        if before:
                            decode_one_token(transformer, tokens[0], cache)
                        else:
                            prefill(transformer, tokens, cache)
                        done += n
                    except Cancelled:
                        stopped += 1
                        assert before == cache.length or not before, "a cancelled token is none"
        return done, stopped, known_answer(model, prompt)
    finally:
        model.close()


@contextlib.contextmanager
def cancelled_at_some_time(model: LoadedModel, chance: random.Random) -> Iterator[None]:
    """One time in two, within the first millisecond, of which a small model's token takes a part."""
    assert model.backend.kernels is not None, "without compiled kernels there is no program to cancel"
    timer = threading.Timer(chance.uniform(0, 0.001), model.backend.kernels.pool.cancel)
    if chance.random() < 1 / 2:
        timer.start()
    try:
        yield
    finally:
        if timer.is_alive():
            timer.cancel()
            timer.join()


def known_answer(model: LoadedModel, prompt: list[int]) -> bytes:
    """The logits behind a prompt that is decoded token by token."""
    transformer, cache = model.transformer(), model.new_cache()
    logits: Logits = prefill(transformer, prompt[:1], cache)
    for token in prompt[1:]:
        logits = decode_one_token(transformer, token, cache)
    return logits.tobytes()


if __name__ == "__main__":
    sys.exit(main())
