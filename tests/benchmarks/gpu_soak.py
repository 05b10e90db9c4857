"""Answers for thousands of tokens while experts or neurons move, and compares every token with answers without that.

    python tests/benchmarks/gpu_soak.py experts.gguf --tokens 10000
    python tests/benchmarks/gpu_soak.py dense.gguf --tokens 10000 --mode exact --seed 7
    python tests/benchmarks/gpu_soak.py experts.gguf --tokens 1000 --device cpu

Greedy answers are computed first, with adaptation off. Then the model is loaded LOADS times, with half and a quarter of
its experts or hot neurons on the GPU in turn. Two chats repeat the answers: experts move after every token that makes
another one hotter, neurons at random; tokens are cancelled at any moment; chats are abandoned; the GPU's memory "runs
out", so that the model is placed anew. Each chat is given the first answer's tokens, so every token is compared.

A token may differ only if the logits of both candidates are as close as rounding: sums of experts or neurons have
another order on the other side. It fails if another token differs, something hangs for HANG_S, nothing moved, or if
memory, threads or file handles are left after a load that the first two loads did not leave.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import gc
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from psutil import Process

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.exchanges import moves_at_once  # noqa: E402

from engine.config import EngineConfig  # noqa: E402
from engine.errors import Cancelled, DeviceMemoryError  # noqa: E402
from engine.job import Job  # noqa: E402
from engine.machine.cpu_and_ram import process_ram_bytes, return_freed_ram, share_heaps  # noqa: E402
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import choose_gpu, probe  # noqa: E402
from engine.model.kv_cache import KVCache  # noqa: E402
from engine.session.generate import decode_one_token, decode_tokens, most_at_once, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from native_kernels.backend import F32  # noqa: E402

HANG_S = 120  # nothing here takes so long
CONTEXT = 256
ANSWERS, ANSWER_TOKENS, MOST_PROMPT_TOKENS = 16, 48, 40
LOADS, MOST_BUDGETS = 6, 6
GIB = 1 << 30
MOVES = 0.2  # chance that neurons move after a token
MOST_PLACINGS = 3  # in one load, for want of memory
CLOSE = 0.004  # of the largest logit: products of halves in prompts are off by 0.0005 of their terms, in every layer
SLACK = {"GPU MiB": 16, "RAM MiB": 96, "threads": 0, "handles": 0}  # what may be left

Load = Callable[[float, bool], LoadedModel]  # (share of the experts or neurons on the GPU, whether they move)


@dataclass(frozen=True, eq=False)
class Answer:
    """A greedy answer. logits: [T, V], of its tokens [T]."""

    prompt: list[int]
    logits: F32

    @functools.cached_property
    def tokens(self) -> list[int]:
        return self.logits.argmax(axis=1).tolist()


@dataclass
class Talk:
    """A chat that repeats an answer. n: tokens so far."""

    cache: KVCache
    answer: Answer | None = None
    n: int = 0
    differs: bool = False


@dataclass
class Tally:
    """What was compared. excused: other tokens within rounding; wrong: others; far: logits further off than CLOSE."""

    tokens: int = 0
    answers: int = 0
    identical: int = 0
    excused: int = 0
    wrong: int = 0
    far: int = 0
    worst: float = 0.0
    cancelled: int = 0
    placed: int = 0
    moved: int = 0
    left: list[dict[str, int]] = field(default_factory=list)  # after each load

    def compare(self, found: F32, known: F32) -> bool:
        """Compare the logits [V] for a token with the answer's; return whether the token is the same."""
        self.tokens += 1
        largest = float(np.abs(known).max())
        off = float(np.abs(found - known).max()) / largest
        self.worst = max(self.worst, off)
        self.far += not off <= CLOSE
        token, other = int(known.argmax()), int(found.argmax())
        if token == other and np.isfinite(off):
            return True
        close = (known[token] - known[other]) / largest <= 2 * CLOSE
        self.excused += bool(close)
        self.wrong += not close
        return False

    @property
    def leaks(self) -> dict[str, int]:
        """What the later loads left that the first two did not."""
        first, later = self.left[:2], self.left[2:]
        return {key: max(one[key] for one in later) - max(one[key] for one in first) for key in SLACK}

    def is_right(self, moves: bool) -> bool:
        lost = any(self.leaks[key] > most for key, most in SLACK.items())
        return not self.wrong and not lost and bool(self.moved or not moves)

    def __str__(self) -> str:
        leaks = ", ".join(f"{n:+d} {key}" for key, n in self.leaks.items())
        return (
            f"{self.tokens} tokens compared, {self.wrong} wrong, {self.excused} others within rounding; "
            f"{self.identical} of {self.answers} answers identical; logits off by {self.worst:.1e} of the largest "
            f"at most, {self.far} times by more than {CLOSE}; {self.moved} experts or neurons moved, {self.cancelled} "
            f"tokens cancelled, {self.placed} times placed anew, {len(self.left)} loads; left behind: {leaks}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--mode", choices=("auto", "sparse", "exact", "dense"), default="auto")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: nothing moves")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    share_heaps()  # as the engine does when it starts
    gpu, words = choose_gpu(probe())
    if gpu is None and flags.device == "cuda":
        print(words)
        return 1
    engine = EngineConfig(device=flags.device, context=CONTEXT, mode=flags.mode)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    began = time.monotonic()
    load = loader(functools.partial(LoadedModel.load, flags.model), engine)
    tally = soak(load, flags.tokens, flags.seed, None if gpu is None else gpu.index)
    faulthandler.cancel_dump_traceback_later()
    print(f"{Path(flags.model).name}: {tally}; {time.monotonic() - began:.0f} s")
    return 0 if tally.is_right(moves=flags.device == "cuda") else 1


def loader(load: Callable[[EngineConfig], LoadedModel], engine: EngineConfig) -> Load:
    """Return what loads the model with a share of its experts or hot neurons on the GPU."""
    if engine.device == "cpu":
        return lambda share, moves: load(engine)
    began, whole = time.monotonic(), load(engine)
    assert whole.gpu is not None, whole.device_reason
    placement = whole.gpu.placement
    whole.close()

    parts = placement.vram_parts_bytes
    budgets: dict[float, float] = {}  # bytes by share

    def of_share(share: float, moves: bool) -> LoadedModel:
        hot = share * placement.hot_bytes
        budget = budgets.get(share, placement.vram_bytes - placement.hot_bytes + hot)
        for _ in range(MOST_BUDGETS):
            try:
                model = load(replace(engine, vram_budget_gib=budget / GIB, adapt=moves))
            except DeviceMemoryError as error:  # buffers depend on the budget
                (least,) = re.findall(r"at least ([\d.]+) GiB", error.message)
                budget = float(least) * GIB + parts["attention"] + parts["head"] + parts["kv_cache"] + hot
                continue
            assert model.gpu is not None, model.device_reason
            found = model.gpu.placement.hot_bytes
            if abs(found - hot) < 0.2 * placement.hot_bytes:
                break
            model.close()
            budget += hot - found
        else:
            raise SystemExit(f"No budget puts about {share:.0%} of the experts or neurons on the GPU.")
        budgets[share] = budget
        on_gpu = 100 * found / placement.hot_bytes
        print(
            f"{time.monotonic() - began:.0f} s: {on_gpu:.0f} % on the GPU in {budget / GIB:.3f} GiB, {model.mode}",
            flush=True,
        )
        return model

    return of_share


def soak(load: Load, n_tokens: int, seed: int, gpu: int | None) -> Tally:
    """Repeat answers for this many tokens. gpu: its index, whose memory is looked at."""
    chance, tally = random.Random(seed), Tally()
    moves_at_once()
    still = load(0.5, False)
    answers = [answer_of(still, chance) for _ in range(ANSWERS)]
    still.close()
    del still
    for number in range(LOADS):
        repeat(load((0.5, 0.25)[number % 2], True), answers, chance, tally, n_tokens * (number + 1) / LOADS)
        gc.collect()
        return_freed_ram()  # as the engine does after a model
        tally.left.append(in_use(gpu))
        print(f"load {number + 1}: {tally.tokens} tokens, {tally.wrong} wrong; in use {tally.left[-1]}", flush=True)
    return tally


def in_use(gpu: int | None) -> dict[str, int]:
    """Return what this process, and all programs on the GPU, hold now."""
    vram, ours = 0 if gpu is None else (used_bytes(gpu) or 0), Process()
    handles = ours.num_handles() if sys.platform == "win32" else ours.num_fds()
    return {
        "GPU MiB": vram >> 20,
        "RAM MiB": process_ram_bytes() >> 20,
        "threads": ours.num_threads(),
        "handles": handles,
    }


def answer_of(model: LoadedModel, chance: random.Random) -> Answer:
    """Answer a prompt of random tokens, greedily."""
    transformer, cache = model.transformer(), model.new_cache()
    prompt = [chance.randrange(model.opened.config.vocab_size) for _ in range(chance.randint(1, MOST_PROMPT_TOKENS))]
    rows = [prefill(transformer, prompt, cache)]
    while len(rows) < ANSWER_TOKENS:
        rows.append(decode_one_token(transformer, int(rows[-1].argmax()), cache))
    return Answer(prompt, np.stack(rows))


def repeat(model: LoadedModel, answers: list[Answer], chance: random.Random, tally: Tally, n_tokens: float) -> None:
    """Repeat answers in two chats until so many tokens are compared, and close the model."""
    try:
        transformer, talks = model.transformer(), [Talk(model.new_cache()) for _ in range(2)]
        moved, placings = Moves(model, chance), 0
        while tally.tokens < n_tokens:
            if placings < MOST_PLACINGS and model.residency is not None and chance.random() < 0.005:
                tally.moved += moved.n
                model.residency.make_room(at_once=True)
                transformer, talks = model.transformer(), [Talk(model.new_cache()) for _ in range(2)]
                moved, placings, tally.placed = Moves(model, chance), placings + 1, tally.placed + 1
            talk = chance.choice(talks)
            if talk.answer is None or chance.random() < 0.005:
                faulthandler.dump_traceback_later(HANG_S, exit=True)
                talk.answer, talk.n, talk.differs = chance.choice(answers), 0, False
                talk.cache.truncate(0)
            before = talk.cache.length
            try:
                if talk.n == 0:  # whose eager operators do not expect the pool to be cancelled
                    late = time.monotonic() + chance.choice((0.002, HANG_S))
                    job = Job(lambda late=late: time.monotonic() > late)  # type: ignore[misc]
                    rows = prefill(transformer, talk.answer.prompt, talk.cache, job)[None]
                else:
                    with cancelled_at_some_time(model, chance):
                        n = min(chance.choice((1, 1, 1, 4)), most_at_once(transformer, talk.cache))
                        said = talk.answer.tokens[talk.n - 1 :][:n]
                        rows = decode_tokens(transformer, said[: ANSWER_TOKENS - talk.n], talk.cache)
            except Cancelled:
                tally.cancelled += 1
                assert before == talk.cache.length or not before, "a cancelled token is none"
                talk.cache.truncate(before)
                continue
            for row in rows:
                talk.differs |= not tally.compare(row, talk.answer.logits[talk.n])
                talk.n += 1
            if talk.n == ANSWER_TOKENS:
                tally.answers, tally.identical = tally.answers + 1, tally.identical + (not talk.differs)
                talk.answer = None
            moved.neurons()
        tally.moved += moved.n
    finally:
        model.close()


class Moves:
    """What moves in a model between its sides until it is placed anew. Experts move by themselves."""

    def __init__(self, model: LoadedModel, chance: random.Random) -> None:
        self._slots = None if model.gpu is None else model.gpu.expert_slots
        self._blocks, self._chance = model.hot_blocks, chance
        self._moved = 0

    @property
    def n(self) -> int:
        return self._moved if self._slots is None else self._slots.exchanged

    def neurons(self) -> None:
        """Now and then, exchange random hot neurons of a layer for random cold ones."""
        if self._blocks is None or self._chance.random() >= MOVES:
            return
        layer = self._chance.randrange(len(self._blocks.tables))
        table = self._blocks.tables[layer]
        if n := min(64, table.n_slots, len(table.cold)):
            slots = np.array(self._chance.sample(range(table.n_slots), n), np.int32)
            self._blocks.exchange(layer, slots, np.array(self._chance.sample(table.cold.tolist(), n), np.int32))
            self._moved += n


@contextlib.contextmanager
def cancelled_at_some_time(model: LoadedModel, chance: random.Random) -> Iterator[None]:
    """One time in four, within the first millisecond, of which a small model's token takes a part."""
    assert model.backend.kernels is not None, "without compiled kernels there is no program to cancel"
    timer = threading.Timer(chance.uniform(0, 0.001), model.backend.kernels.pool.cancel)
    if chance.random() < 1 / 4:
        timer.start()
    try:
        yield
    finally:
        if timer.is_alive():
            timer.cancel()
            timer.join()


if __name__ == "__main__":
    sys.exit(main())
