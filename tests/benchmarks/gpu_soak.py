"""Decodes on the GPU for a while, with tokens cancelled at any moment and the model loaded again and again.

    python tests/benchmarks/gpu_soak.py starter-chat --minutes 2
    python tests/benchmarks/gpu_soak.py 1b-q4_0.gguf --minutes 1 --budget 0.4 --seed 7
    python tests/benchmarks/gpu_soak.py experts.gguf --minutes 2 --budget 3 --pressure

A model with experts exchanges them after every token, but not in the first life with a budget: its known prompt gives
the numbers that all later ones must give, up to rounding, since experts are computed on either side. --pressure: now
and then the model is placed anew with less of the GPU's memory.

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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.exchanges import moves_at_once  # noqa: E402

from engine.config import EngineConfig  # noqa: E402
from engine.errors import Cancelled  # noqa: E402
from engine.gpu.weights.expert_slots import ExpertSlots  # noqa: E402
from engine.machine.cpu_and_ram import process_ram_bytes, return_freed_ram, share_heaps  # noqa: E402
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import choose_gpu, probe  # noqa: E402
from engine.session.generate import Logits, decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

HANG_S = 120  # nothing here takes so long
CONTEXT = 256
GPU_SLACK = 16 << 20  # what the driver may keep
RAM_SLACK = 96 << 20
ROUNDING = 0.05  # of the largest logit: an expert whose score is as high as another's is used or not


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--budget", type=float, metavar="GIB", help="half of it is tried in turn")
    parser.add_argument("--mode", choices=("auto", "sparse", "exact", "dense"), default="auto")
    parser.add_argument("--pressure", action="store_true", help="the GPU's memory runs short now and then")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    share_heaps()  # as the engine does when it starts
    chance = random.Random(flags.seed)
    gpu, words = choose_gpu(probe())
    if gpu is None and flags.device == "cuda":
        print(words)
        return 1
    moves_at_once()
    end = time.monotonic() + 60 * flags.minutes
    known: dict[float | None, Logits] = {}
    left: list[tuple[int, int]] = []  # bytes of GPU and process after each time
    tokens = cancelled = exchanged = 0
    while len(left) < 4 or time.monotonic() < end:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        budget = flags.budget if flags.budget is None or len(left) % 2 == 0 else flags.budget / 2
        life = one_life(flags, budget, chance, min(end, time.monotonic() + 15), exchanges=budget in known)
        tokens, cancelled, exchanged = tokens + life.tokens, cancelled + life.cancelled, exchanged + life.exchanged
        off_by = float(np.abs(life.known - known.setdefault(budget, life.known)).max() / np.abs(life.known).max())
        if not off_by <= (ROUNDING if life.has_experts or flags.pressure else 0.0):
            print(f"A known prompt gave other numbers after {tokens} tokens: off by {off_by:.4f} of the largest.")
            return 1
        gc.collect()
        return_freed_ram()  # as the engine does after a model
        left.append(((gpu and used_bytes(gpu.index)) or 0, process_ram_bytes()))
        print(f"life {len(left)}: {life.tokens} tokens, {life.cancelled} cancelled, {life.exchanged} experts moved; "
              f"off by {off_by:.1e}; left {left[-1][0] >> 20} MiB of the GPU, {left[-1][1] >> 20} MiB of RAM",
              flush=True)  # fmt: skip
    faulthandler.cancel_dump_traceback_later()
    gpu, ram = (max(one) - most for one, most in zip(zip(*left[2:], strict=True), map(max, *left[:2]), strict=True))
    print(f"{tokens} tokens, {cancelled} cancelled, {exchanged} experts moved, {len(left)} lives; {gpu >> 20} MiB of "
          f"the GPU and {ram >> 20} MiB of RAM more than after the first two")  # fmt: skip
    return 0 if gpu <= GPU_SLACK and ram <= RAM_SLACK else 1


@dataclass(frozen=True, eq=False)
class Life:
    """What came of a model from its load to its end. known: logits of the known prompt, [T, V]."""

    tokens: int
    cancelled: int
    exchanged: int
    has_experts: bool
    known: Logits


def one_life(
    flags: argparse.Namespace, budget: float | None, chance: random.Random, end: float, exchanges: bool
) -> Life:  # fmt: skip
    """Load, decode in two conversations until the time is over, and close."""
    engine = EngineConfig(device=flags.device, context=CONTEXT, mode=flags.mode, vram_budget_gib=budget)
    model = LoadedModel.load(flags.model, engine)
    try:
        let_move(model, exchanges)
        transformer, caches = model.transformer(), [model.new_cache(), model.new_cache()]
        vocabulary, has_experts = model.opened.config.vocab_size, model.opened.config.n_experts > 0
        prompt = np.random.default_rng(1).integers(0, vocabulary, 12).tolist()
        done = stopped = exchanged = 0
        while done < 8 or time.monotonic() < end:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            if flags.pressure and model.gpu is not None and chance.random() < 0.02:
                exchanged += n_exchanged(model)
                model.residency.make_room(at_once=True)
                let_move(model, exchanges)
                transformer, caches = model.transformer(), [model.new_cache(), model.new_cache()]
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
        known = known_answer(model, prompt)
        return Life(done, stopped, exchanged + n_exchanged(model), has_experts, known)
    finally:
        model.close()


def slots_of(model: LoadedModel) -> ExpertSlots | None:
    """The slots of a model's experts; None without experts, or without a GPU."""
    return None if model.gpu is None else model.gpu.expert_slots


def let_move(model: LoadedModel, exchanges: bool) -> None:
    """Let experts move between tokens, or keep them where they are."""
    if (slots := slots_of(model)) is not None:
        slots.is_adapting = exchanges


def n_exchanged(model: LoadedModel) -> int:
    """How many experts have moved since the model was placed."""
    return 0 if (slots := slots_of(model)) is None else slots.exchanged


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


def known_answer(model: LoadedModel, prompt: list[int]) -> Logits:
    """The logits behind every token of a prompt that is decoded token by token, [T, V]."""
    transformer, cache = model.transformer(), model.new_cache()
    found = [prefill(transformer, prompt[:1], cache)]
    found += [decode_one_token(transformer, token, cache) for token in prompt[1:]]
    return np.stack(found)


if __name__ == "__main__":
    sys.exit(main())
