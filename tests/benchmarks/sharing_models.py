"""What gpu_sharing.py loads and asks: models on this machine, their greedy answers, and whether two answers agree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.job import Job

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.config import EngineConfig, SamplingConfig  # noqa: E402
from engine.gpu.trial import budget  # noqa: E402 - found by the line above
from engine.machine.graphics import GpuInfo, used_bytes  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.generate import decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

ANSWER = 24  # tokens
CLOSE = 0.03  # of the largest logit: halves, and sums in another order

Figures = dict[str, Any]


@dataclass(eq=False)
class Bench:
    """What is measured, and where. before: bytes of the GPU that were in use at the beginning."""

    flags: argparse.Namespace
    gpu: GpuInfo | None
    before: int

    def load(self, budget_gib: float | None = None, cancelled: Callable[[], bool] = lambda: False) -> LoadedModel:
        return LoadedModel.load(self.flags.model, self.engine(budget_gib), job=Job(cancelled))

    def engine(self, budget_gib: float | None = None) -> EngineConfig:
        flags = self.flags
        return EngineConfig(
            device=flags.device, mode=flags.mode, threads=flags.threads, context=flags.context,
            vram_budget_gib=budget_gib,
        )  # fmt: skip

    def held(self) -> int:
        """Bytes that this process holds on the GPU, as NVML says; where it says that of nobody, what is in use there
        beyond what was at the beginning, which is the same where nobody else is there."""
        if self.gpu is None:
            return 0
        own = budget.process_bytes(self.gpu.index)
        return own if own is not None else max(0, (used_bytes(self.gpu.index) or 0) - self.before)


def answer(session: ChatSession, prompt: Sequence[int], tokens: int) -> list[int]:
    """The greedy answer."""
    sampling = SamplingConfig().changed({"temperature": 0, "max_tokens": tokens})
    return [one.token_id for one in session.generate(prompt, sampling) if one.token_id is not None]


def random_prompt(model: LoadedModel, n: int, seed: int = 0) -> list[int]:
    drawn = np.random.default_rng([n, seed]).integers(0, model.opened.config.vocab_size, n)
    return [int(token) for token in drawn]


def long_prompt(model: LoadedModel) -> list[int]:
    return random_prompt(model, max(1, min(600, model.context - 2 * ANSWER)))


def question(model: LoadedModel) -> list[int]:
    """A prompt whose answer does not end at once."""
    session = ChatSession(model)
    prompts = [random_prompt(model, 12, seed) for seed in range(8)]
    return next((one for one in prompts if len(answer(session, one, ANSWER)) == ANSWER), prompts[0])


def walk(model: LoadedModel, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits [T, V] behind each token, decoded one by one."""
    graph, cache = model.transformer(), model.new_cache()
    rows = [prefill(graph, tokens[:1], cache).copy()]
    rows += [decode_one_token(graph, token, cache).copy() for token in tokens[1:]]
    return np.stack(rows)


def agreement(found: NDArray[np.float32], known: NDArray[np.float32]) -> Figures:
    """How far two walks agree: logits within CLOSE of the largest, and the same choice wherever the two best are
    further apart than twice what the walks differ there."""
    off = np.abs(found - known).max(axis=1)
    best = np.sort(known, axis=1)
    wide = best[:, -1] - best[:, -2] > 2 * off
    same = found.argmax(axis=1) == known.argmax(axis=1)
    largest = float(np.abs(known).max())
    return {
        "same_bits": found.tobytes() == known.tobytes(), "off": float(off.max()) / largest,
        "same_choices": float(same.mean()), "wide": float(wide.mean()),
        "right": bool(off.max() <= CLOSE * largest and same[wide].all()),
    }  # fmt: skip


def modes_of(model: LoadedModel) -> list[str]:
    """The modes that are offered for it."""
    if not model.opened.config.has_zeros:
        return ["dense"]
    return ["exact", *(["sparse"] if model.opened.has_predictors else []), "dense"]
