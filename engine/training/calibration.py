"""Calibration text that the model writes itself, so that none must be shipped or found.

Each portion has the same mixture of kinds, with other prompts and random numbers. Finished portions stay in the cache
folder: training reuses those of profiling, and an interruption costs one portion. Research for the mixture:
tests/benchmarks/hot_set_coverage.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.config import SamplingConfig
from engine.job import Job
from engine.training.layer_walk import ModelParts
from engine.training.prompts import KindOfText, encode_prompt, read_prompts, recipe_fingerprint, usable_kinds
from engine.training.saved_arrays import read_saved, save, saved_file
from engine.training.writing import Task, write_texts

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

PORTION_TOKENS = 8192
DEFAULT_TOKENS = 32768
# Slightly less random than the model's own distribution; the least likely twentieth of it is mostly noise.
SAMPLING = SamplingConfig(temperature=0.8, top_k=0, top_p=0.95)
Texts = dict[str, list[list[int]]]  # kind -> token ids of each text


def write_portion(
    model: LoadedModel,
    number: int,
    seed: int = 0,
    size: int = PORTION_TOKENS,
    *,
    parts: ModelParts | None = None,
    job: Job = Job(),
) -> Texts:
    """Return this portion, `size` positions, each kind with its share, from the cache if possible.

    Units: progress reports tokens written.
    """
    saved = _saved_in(model, number, seed, size)
    if (found := _read(saved, model, size)) is not None:
        job.progress(size, size)
        return found
    written = _write(model, parts or ModelParts.of(model), number, seed, size, job)
    _save(saved, written)
    return written


def _write(
    model: LoadedModel,
    parts: ModelParts,
    number: int,
    seed: int,
    size: int,
    job: Job,
) -> Texts:
    kinds = usable_kinds(model)
    shares = np.array([kind.share for kind in kinds])
    ends = np.rint(np.cumsum(shares) / shares.sum() * size).astype(int)
    wanted = dict(zip(kinds, np.diff(ends, prepend=0).tolist(), strict=True))
    texts: dict[KindOfText, list[list[int]]] = {kind: [] for kind in kinds}
    draws = {kind: _Draw(model, kind, number, seed) for kind in kinds}
    round_number = 0
    while True:
        missing = {kind: wanted[kind] - sum(map(len, texts[kind])) for kind in kinds}
        tasks = [(kind, task) for kind in kinds for task in draws[kind].tasks(missing[kind])]
        if not tasks:
            break
        before = size - sum(max(0, count) for count in missing.values())

        def report(done: int, total: int, before: int = before) -> None:
            job.progress(before + (size - before) * done // max(1, total), size)

        seeds = int(np.random.SeedSequence([seed, number, round_number]).generate_state(1)[0])
        written = write_texts(parts, [task for _, task in tasks], seeds, job.reporting(report))
        for (kind, _), text in zip(tasks, written, strict=True):
            room = wanted[kind] - sum(map(len, texts[kind]))
            if room > 0:
                texts[kind].append(text[:room])
        round_number += 1
    return {kind.name: texts[kind] for kind in kinds}


class _Draw:
    """Prompts of one kind in their own order; the next portion continues where the last one ended."""

    def __init__(self, model: LoadedModel, kind: KindOfText, number: int, seed: int) -> None:
        self._model = model
        self._kind = kind
        prompts = read_prompts(kind)
        order = np.random.Generator(np.random.PCG64([seed, len(kind.name)])).permutation(len(prompts))
        self._prompts = [prompts[at] for at in order]
        # A portion takes about 10 texts of a kind: a step without a common divisor with most counts visits all of them.
        self._next = number * 13

    def tasks(self, missing: int) -> list[Task]:
        """Return enough prompts for this many tokens if all texts reach their limit."""
        found: list[Task] = []
        context = self._model.opened.config.max_context
        stops = self._model.stop_token_ids if self._kind.form in ("chat", "text") else frozenset[int]()
        while missing > 0:
            ids = encode_prompt(self._model, self._kind, self._prompts[self._next % len(self._prompts)])
            self._next += 1
            most = max(1, min(self._kind.most_tokens, context - len(ids)))
            found.append(Task(ids, most, SAMPLING, stops))
            missing -= len(ids) + most
        return found


# --- what is kept


def _saved_in(model: LoadedModel, number: int, seed: int, size: int) -> Path:
    """Return the file of a portion; its name contains everything that determines its contents."""
    made_of = "\n".join([model.opened.fingerprint, model.opened.config.activation_text, model.backend.name,
                         model.kv_codec, recipe_fingerprint(), repr(SAMPLING)])  # fmt: skip
    key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
    return saved_file("calibration", f"{key}-{seed}-{number}-{size}")


def _read(path: Path, model: LoadedModel, size: int) -> Texts | None:
    """Return the texts in the file; None without a valid one, so that they are written again."""
    names = [kind.name for kind in usable_kinds(model)]
    arrays = read_saved(path)
    if arrays is None or set(arrays) != {"ids", "kinds", "lengths"}:
        return None
    ids, kinds, lengths = arrays["ids"], arrays["kinds"], arrays["lengths"]
    if not all(
        one.ndim == 1 and one.dtype == np.int64 and one.size and one.min() >= 0 for one in (ids, kinds, lengths)
    ):
        return None
    if ids.max() >= model.opened.config.vocab_size or kinds.max() >= len(names):
        return None
    if len(ids) != size or lengths.sum() != size or len(kinds) != len(lengths):
        return None
    texts: Texts = {name: [] for name in names}
    for kind, text in zip(kinds.tolist(), np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        texts[names[kind]].append(text.tolist())
    return texts


def _save(path: Path, texts: Texts) -> None:
    rows: list[list[int]] = [text for of_kind in texts.values() for text in of_kind]
    kinds = np.repeat(np.arange(len(texts)), [len(of_kind) for of_kind in texts.values()])
    lengths = np.array([len(row) for row in rows], np.int64)
    save(path, {"ids": np.concatenate(rows).astype(np.int64), "kinds": kinds.astype(np.int64), "lengths": lengths})
