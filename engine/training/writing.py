"""Write many texts with a model at once: every step takes each of them one token further through the same weights.

So a step reads the weights once for all of them; reading dominates the time of writing single texts.
engine/training/calibration.py chooses what to write; engine/session/generate.py answers users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.config import SamplingConfig
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.job import Job
from engine.model.kv_cache import KVCache
from engine.model.transformer import RecurInput, Transformer, check_sequence
from engine.session.sampling import Sampler, make_sampler
from engine.training.layer_walk import ModelParts
from native_kernels.backend import F32

# Texts at once. Their number is part of what a seed determines (products of few tokens round differently from those of
# many), so it depends on the model alone and not on the free memory.
MOST_AT_ONCE = 48
MOST_CACHE_BYTES = 2 << 30  # of keys and values; a 7B model without grouped heads writes 16 texts of 256 tokens then


@dataclass(frozen=True)
class Task:
    """A text to write: its prompt, most tokens, sampling, and end tokens."""

    prompt: Sequence[int]
    most_tokens: int
    sampling: SamplingConfig
    stops: frozenset[int] = frozenset()


def write_texts(
    parts: ModelParts,
    tasks: Sequence[Task],
    seed: int,
    job: Job = Job(),
) -> list[list[int]]:
    """Return each task's prompt and what the model wrote after it, including the token that ended it.

    Units: progress reports tokens done and at most. Raises: HostMemoryError, TokenizerMismatchError,
    ContextOverflowError, BrokenLogitsError, and Cancelled between two steps.
    """
    return _Writer(parts, tasks, seed).run(job) if tasks else []


@dataclass(eq=False)
class _Text:
    number: int  # of its task
    task: Task
    tokens: list[int]
    cache: KVCache
    sampler: Sampler

    @property
    def waiting(self) -> list[int]:
        """Return tokens that have not gone through the model."""
        return self.tokens[self.cache.length :]


class _Writer:
    def __init__(self, parts: ModelParts, tasks: Sequence[Task], seed: int) -> None:
        config = parts.config
        self._capacity = max(len(task.prompt) + task.most_tokens for task in tasks)
        for task in tasks:
            # Tokens stay within the vocabulary, but positions may exceed those that the model was trained on.
            check_sequence(config, np.array(task.prompt), task.most_tokens)
        executor = (ExactExecutor if config.has_zeros else DenseExecutor)(config, parts.weights, parts.operators)
        self._graph = Transformer(config, parts.weights, executor, parts.operators)
        each = KVCache.bytes_for(config, self._capacity, parts.kv_codec)
        at_once = min(MOST_AT_ONCE, max(2, MOST_CACHE_BYTES // each), len(tasks))
        self._free = [KVCache(config, self._capacity, parts.kv_codec) for _ in range(at_once)]
        self._tasks = list(enumerate(tasks))
        self._seed = seed
        self._most = sum(len(task.prompt) + task.most_tokens for task in tasks)
        self._done = 0

    def run(self, job: Job) -> list[list[int]]:
        texts: list[list[int]] = [[] for _ in self._tasks]
        waiting = iter(self._tasks)
        running: list[_Text] = []
        while True:
            while self._free and (following := next(waiting, None)) is not None:
                running.append(self._begin(*following))
            if not running:
                return texts
            job.stop_if_cancelled()
            going_on = []
            for text, logits in zip(running, self._step(running), strict=True):
                if self._goes_on(text, logits):
                    going_on.append(text)
                else:
                    texts[text.number] = text.tokens
                    self._done += len(text.task.prompt) + text.task.most_tokens - len(text.tokens)
                    self._free.append(text.cache)
            running = going_on
            job.progress(self._done, self._most)

    def _begin(self, number: int, task: Task) -> _Text:
        cache = self._free.pop()
        cache.truncate(0)
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        self._done += len(task.prompt)
        return _Text(number, task, list(task.prompt), cache, make_sampler(replace(task.sampling, seed=seed)))

    def _goes_on(self, text: _Text, logits: F32) -> bool:
        token = text.sampler(logits, text.tokens)
        text.tokens.append(token)
        self._done += 1
        return token not in text.task.stops and len(text.tokens) < len(text.task.prompt) + text.task.most_tokens

    def _step(self, texts: Sequence[_Text]) -> F32:
        """Run the waiting tokens of each text through the model; return the logits after each, [texts, V]."""
        graph, pieces = self._graph, [text.waiting for text in texts]
        starts = [text.cache.length for text in texts]
        ends = np.cumsum([len(piece) for piece in pieces])
        places = [slice(end - len(piece), end) for end, piece in zip(ends, pieces, strict=True)]
        positions = np.concatenate(
            [np.arange(start, start + len(piece)) for start, piece in zip(starts, pieces, strict=True)]
        )
        angles = graph.angles(positions, self._capacity)

        windows = []
        for text, start, piece in zip(texts, starts, pieces, strict=True):
            text.cache.make_room(len(piece))
            windows.append(text.cache.pieces(start, len(piece)))
        states, row = [text.cache.states() for text in texts], graph.graph.rows

        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            out = np.empty_like(q)
            for text, start, rows, window in zip(texts, starts, places, windows, strict=True):
                out[rows] = graph.attend_cached(layer, q[rows], k[rows], v[rows], text.cache, start, window)
            return out

        def recur(layer: int, inputs: RecurInput) -> F32:
            out = np.empty_like(inputs.gate)
            for (before, after), rows in zip(states, places, strict=True):
                out[rows] = graph.recur(layer, inputs.rows(rows), before[row[layer]], after[row[layer]])
            return out

        tokens = np.concatenate(pieces).astype(np.int64)
        x = graph.embed(tokens, positions)
        inputs = graph.layer_inputs(tokens, x)
        for layer in range(graph.config.n_layers):
            x = graph.layer(layer, x, angles, attend, recur, inputs)
        for text, piece in zip(texts, pieces, strict=True):
            text.cache.advance(len(piece))
        return graph.logits(graph.last_norm(x[ends - 1]))
