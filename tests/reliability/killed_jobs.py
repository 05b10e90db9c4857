"""Kills convert, profile, train and solve of a small model, and looks at what is left: each artefact whole, none lost.

Run as a program: a child is forked for every life, so that nothing of it is cleaned up, and the next life goes on with
what the last one left. Every artefact is made a second time over the first, for what is replaced can be lost too. Each
life ends before its so-many-th step on the disk, or at a moment that nobody chose. Prints one JSON object: kills, how
often all was made, faults. Arguments: where to work, "steps" or "moments", how many kills, a seed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samples.prepared_models import slow_machine, sparse_gguf
from support.killed_moves import kill_before

from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle, verify
from engine.errors import EngineError
from engine.job import StagedJob
from engine.model.weights import open_model
from engine.service.jobs import run_job

_READ: dict[str, Callable[[Any], object]] = {
    "statistics": artefacts.load_stats, "predictors": artefacts.load_predictor, "placement": artefacts.load_placement,
}  # fmt: skip


class Jobs:
    """The work of one folder, job by job; which of them were done to their end is noted there."""

    def __init__(self, folder: Path) -> None:
        self._source = sparse_gguf(folder / "tiny.gguf", n_layers=2, d_model=32, d_ff=64)
        self._text = folder / "text.txt"
        self._text.write_text("The fox lived by the sea and told stories of rain. " * 200)
        self._engine = {"backend": "reference", "hardware_file": slow_machine(folder / "machine.json")}
        self.work = folder / "work"
        self.bundle = self.work / "bundle"

    def live(self) -> None:
        """What is left to do."""
        of_model: dict[str, Any] = {"model": str(self.bundle), "engine": self._engine}
        text = {"text": str(self._text)}
        plan: list[tuple[str, dict[str, Any]]] = [
            ("convert", {"source": str(self._source), "bundle": str(self.bundle), "codec": "q8_0"}),
            ("profile", {**of_model, **text, "tokens": 64}), ("train", {**of_model, **text, "kind": "sign"}),
            ("solve", of_model), ("profile", {**of_model, **text, "tokens": 128}),
            ("train", {**of_model, **text, "kind": "gate_copy"}), ("solve", {**of_model, "again": True}),
        ]  # fmt: skip
        self.work.mkdir(exist_ok=True)
        for number, (job, arguments) in enumerate(plan):
            if (done := self.work / f"{number}.done").exists() or (job == "convert" and self.bundle.exists()):
                continue
            if job == "train":
                arguments = {**arguments, "tokens": 1024}
            run_job(job, arguments, StagedJob())
            done.touch()

    @property
    def is_done(self) -> bool:
        return (self.work / "6.done").exists()

    def faults(self) -> list[str]:
        """What is not whole, and what was there and is gone."""
        if not self.bundle.exists():
            return []
        found = []
        try:
            verify(open_bundle(self.bundle))
            opened = open_model(self.bundle)
        except EngineError as error:
            return [f"the bundle: {error.message}"]
        for first, (kind, read) in enumerate(_READ.items(), 1):  # the jobs that make each for the first time
            if artefacts.find(opened, kind) is not None:  # type: ignore[arg-type]
                try:
                    read(opened)
                except EngineError as error:
                    found.append(f"{kind}: {error.message}")
            elif (self.work / f"{first}.done").exists():
                found.append(f"{kind} are not there")
        return found


def killed(life: Callable[[], None], step: int | None, after_s: float) -> bool:
    """Whether a life was ended before its step on the disk, or after so long, before it came to its end."""
    child = os.fork()
    if child == 0:
        if step is not None:
            kill_before(step)
        try:
            life()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            print(f"{error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if step is None:
        until = time.monotonic() + after_s
        while time.monotonic() < until:
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                return False
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise AssertionError("a life failed")
    return os.WIFSIGNALED(status)


def main(folder: Path, how: str, kills: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    jobs = Jobs(folder)
    for module in ("conversion.convert", "training.profiler", "training.training", "placement.solving", "session"):
        importlib.import_module(f"engine.{module}")  # once, for all lives; nothing is computed, so no thread is begun
    importlib.import_module("torch")
    started = time.monotonic()
    assert not killed(jobs.live, None, 600), "a life takes too long"
    whole_s = time.monotonic() - started
    faults, done, wholes, lives = jobs.faults(), 0, 0, 0
    shutil.rmtree(jobs.work)
    while done < kills:
        lives += 1
        step = chance.randrange(1, 40) if how == "steps" else None
        done += killed(jobs.live, step, chance.uniform(0, whole_s / 2))
        for one in jobs.faults():
            faults.append(f"life {lives}, step {step}: {one}")
        if jobs.is_done:
            wholes += 1
            shutil.rmtree(jobs.work)
    return {"kills": done, "wholes": wholes, "faults": faults}


if __name__ == "__main__":
    told = main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(told))
