"""Asks an engine for things and changes its mind at random moments: answers, stops, loads, switches, unloads, counts.

Run as a program, over the same requests as the window's. A watchdog ends it with all stacks where a request does not
end. Prints one JSON object: acts, answers, tokens, how many were stopped, memory in MB by time with its slope, threads
before and after. Arguments: how many acts, a seed, and a folder to work in; "--soak": answers to their ends
only; "--small": tiny models.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from samples.tiny_model import make_tiny_model

from engine.service import protocol
from engine.service.host import EngineHost

PATIENCE_S = 150.0
QUESTIONS = ("Tell me a story about a fox who lived by the sea.", "What is the capital of Peru?", "Why does it rain?")


class Restless:
    """An engine in a thread of its own, and what it said."""

    def __init__(self, folder: Path, seed: int, small: bool = False) -> None:
        """small: two tiny models and the operators of NumPy, for which nothing has to be compiled."""
        self.chance = random.Random(seed)
        first = str(make_tiny_model(folder / "other")) if small else "starter-chat"
        self.models = [first, str(make_tiny_model(folder / "tiny", seed=1))]
        self.engine = {"device": "cpu", "threads": 1, "backend": "reference" if small else "auto"}
        self.ended = threading.Condition()
        self.ends: dict[str, protocol.Finished | protocol.Failed] = {}
        self.tokens = self.stopped = self.answers = self.asked = 0
        self.messages: list[dict[str, str]] = []
        self.host = EngineHost(self.hear)
        self.thread = threading.Thread(target=lambda: self.host.run_pending(block=True), name="engine", daemon=True)
        self.thread.start()

    def hear(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.Finished | protocol.Failed):
            with self.ended:
                self.ends[event.id] = event
                self.ended.notify_all()

    def ask(self, make: Any, *values: Any, **more: Any) -> str:
        self.asked += 1
        request = make(f"r{self.asked}", *values, **more)
        self.host.submit(request)
        return str(request.id)

    def await_end(self, id: str) -> protocol.Finished | protocol.Failed:
        with self.ended:
            if not self.ended.wait_for(lambda: id in self.ends, PATIENCE_S):
                faulthandler.dump_traceback(all_threads=True)
                raise AssertionError(f"{id} has not ended after {PATIENCE_S:.0f} s")
            return self.ends.pop(id)

    def load(self, model: str) -> str:
        return self.ask(protocol.Load, model, self.engine)

    def generate(self, most: int) -> str:
        if len(self.messages) > 6:
            self.messages = []
        self.messages.append({"role": "user", "content": self.chance.choice(QUESTIONS)})
        mode = self.chance.choice([None, "exact", "dense"])
        return self.ask(protocol.Generate, list(self.messages), {"max_tokens": most, "seed": 1}, mode=mode)

    def take_answer(self, end: protocol.Finished | protocol.Failed) -> None:
        if isinstance(end, protocol.Failed):
            assert not end.crash, end
            self.messages = []
            return
        self.answers += 1
        self.tokens += end.result["tokens"]
        self.stopped += end.result["finish_reason"] == "cancelled"
        self.messages.append({"role": "assistant", "content": end.result["text"]})

    def act(self) -> None:
        """One thing, and maybe another before it has ended."""
        kind = self.chance.choices(["answer", "switch", "unload", "count"], [6, 3, 1, 1])[0]
        if kind == "answer":
            id = self.generate(self.chance.randrange(1, 60))
        elif kind == "switch":
            id, self.messages = self.load(self.chance.choice(self.models)), []
        elif kind == "unload":
            id, self.messages = self.ask(protocol.Unload), []
        else:
            id = self.ask(protocol.Count, [{"role": "user", "content": "Hello"}])
        if self.chance.random() < 0.6:
            time.sleep(self.chance.expovariate(5))
            cancel = self.ask(protocol.Cancel, id)
            self.await_end(cancel)
        end = self.await_end(id)
        if kind == "answer":
            self.take_answer(end)
            if isinstance(end, protocol.Failed):  # nothing is loaded just now
                self.await_end(self.load(self.models[0]))
        else:
            assert not (isinstance(end, protocol.Failed) and end.crash), end

    def close(self) -> bool:
        self.host.close()
        self.thread.join(PATIENCE_S)
        return not self.thread.is_alive()


def slope_mb(memory: list[tuple[int, float]]) -> float:
    """MB for a hundred acts, over the second half, in which everything has been used once."""
    half = memory[len(memory) // 2 :]
    return float(np.polyfit([at for at, _ in half], [mb for _, mb in half], 1)[0] * 100) if len(half) > 2 else 0.0


def main(acts: int, seed: int, folder: Path, soak: bool, small: bool, most_tokens: int) -> dict[str, Any]:
    faulthandler.enable()
    process, before = psutil.Process(), threading.active_count()
    one = Restless(folder, seed, small)
    one.await_end(one.load(one.models[0]))
    memory: list[tuple[int, float]] = []
    rates: list[float] = []
    for number in range(acts):
        if soak:
            asked = time.perf_counter()
            was = one.tokens
            one.take_answer(one.await_end(one.generate(most_tokens)))
            rates.append((one.tokens - was) / (time.perf_counter() - asked))
        else:
            one.act()
        if number % 10 == 0:
            if not soak:  # what stays when nothing is loaded
                one.await_end(one.ask(protocol.Unload))
                gc.collect()
            memory.append((number, process.memory_info().rss / 1e6))
    ended = one.close()
    quarter = max(1, acts // 4)
    return {
        "acts": acts, "answers": one.answers, "tokens": one.tokens, "stopped": one.stopped, "ended": ended,
        "memory_mb": [round(memory[0][1], 1), round(memory[len(memory) // 2][1], 1), round(memory[-1][1], 1)],
        "memory_mb_for_100_acts": round(slope_mb(memory), 3),
        "tok_s_first_quarter": round(float(np.median(rates[:quarter])), 1) if rates else None,
        "tok_s_last_quarter": round(float(np.median(rates[-quarter:])), 1) if rates else None,
        "threads_before": before, "threads_after": threading.active_count(), "waiting": len(one.ends),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("acts", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    print(json.dumps(main(given.acts, given.seed, given.folder, given.soak, given.small, given.tokens)), flush=True)
