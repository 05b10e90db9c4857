"""Prepare a model for this PC: convert it, count active neurons, train predictors, place it, as far as each pays.

Each stage is a job that keeps its finished work, so that after a crash, a cancel or a power failure little is lost and
preparing continues. One model at a time, across all processes of a user. prepare_plan.py decides what pays.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from engine.bundle.bundle import is_bundle, open_bundle
from engine.bundle.bundle_manifest import BundleCodec
from engine.config import Device, EngineConfig
from engine.conversion.conversion_folder import conversion_of
from engine.errors import Cancelled, EngineError, InvalidRequestError, LibraryError
from engine.job import CancelCheck, never
from engine.library.prepare.prepare_gains import has_sign_predictors
from engine.library.prepare.prepare_plan import Amounts, Outlook, openable, outlook
from engine.library.prepare.prepare_state import (
    PREDICTORS,
    Predictors,
    PrepareState,
    delete_state,
    keep_pace,
    keep_state,
    only_one,
    read_state,
    set_later,
)
from engine.library.prepare.stage_process import Jobs, StageProcess
from engine.library.records import InstalledModel, PreparePlan, PrepareStage, PrepareStep, Sparsity

log = logging.getLogger(__name__)

_BEGINNING = 0.02  # share of a stage that counts as none
# The name that engine/service/jobs.py gives to the main work; earlier stages (loading, compiling) do not indicate its
# pace.
_WORK: dict[PrepareStage, str] = {
    "convert": "converting",
    "profile": "profiling",
    "train": "training",
    "solve": "solving",
}

Report = Callable[[str, int, int, float | None], None]  # stage, done, total, seconds left of all stages


def _report_nothing(stage: str, done: int, total: int, eta_s: float | None) -> None:
    """Drop a report."""


@dataclass(frozen=True)
class PrepareJob:
    """A cancel check and where preparing reports. The default is never cancelled and reports nowhere."""

    report: Report = _report_nothing
    cancelled: CancelCheck = never


class ModelStore(Protocol):
    """What is needed of the library in engine/library/owned/installed.py."""

    def models(self) -> list[InstalledModel]: ...

    def get(self, id: str) -> InstalledModel: ...

    def prepared_folder(self, id: str) -> Path: ...

    def set_prepared(self, id: str, bundle: Path | None = None, still_needed: str = "") -> InstalledModel: ...


def plan(
    library: ModelStore, model: str, engine: EngineConfig | None = None, sparsity: Sparsity | None = None
) -> PreparePlan:
    """Return what preparing would do and gain. Cost and errors: as `outlook`; LibraryError if the model is missing."""
    return outlook(library.get(model), "train", read_state(model), engine, sparsity).plan


def prepare(
    library: ModelStore,
    model: str,
    predictors: str = "train",
    job: PrepareJob = PrepareJob(),
    *,
    engine: EngineConfig | None = None,
    sparsity: Sparsity | None = None,
    amounts: Amounts | None = None,
    jobs: Jobs | None = None,
) -> tuple[InstalledModel, PreparePlan]:
    """Prepare a model as far as it pays; return the steps with the rates before and after.

    predictors: "train", or "sign" for those that need no training, to be trained while idle (`pending_training`).
    engine: how the model will be run. jobs: where the stages run; None: a separate process, ended afterwards. Units:
    job.report receives the stage's own units, and the seconds left of all stages. Raises: LibraryError if another model
    is being prepared, or this one is missing or broken; the jobs' errors; Cancelled, within a second in a separate
    process. After any of these, the same call continues.
    """
    if predictors not in PREDICTORS:
        raise InvalidRequestError(f"predictors is {predictors!r}; supported: {', '.join(PREDICTORS)}.")
    chosen: Predictors = "sign" if predictors == "sign" else "train"
    with only_one(model):
        installed = library.get(model)
        if installed.state == "broken":
            raise LibraryError(f"{installed.name} cannot be prepared: {installed.reason}", "Repair or remove it first.")
        seen = outlook(installed, chosen, read_state(model), engine, sparsity, amounts)
        running = jobs or StageProcess()
        try:
            run = _Run(library, seen, engine or EngineConfig(), job, running)
            steps = run.all_stages()
        finally:
            if jobs is None:
                running.close()
        installed = library.set_prepared(model, run.bundle)
        after = outlook(installed, chosen, None, engine, sparsity, amounts)
        set_later(model, chosen == "sign" and has_sign_predictors(after.opened))
        done = replace(seen.plan, steps=steps, then_tok_s=after.plan.now_tok_s or seen.plan.then_tok_s)
        return installed, replace(done, eta_s=sum(step.eta_s or 0.0 for step in steps), interrupted=False)


def pending_training(library: ModelStore) -> list[str]:
    """Return the models whose predictors without training are to be replaced by trained ones while idle.

    For each, `prepare(library, model, "train")` may be cancelled and continues the next time.
    """
    found = []
    for model in library.models():
        state = read_state(model.id)
        if state is not None and state.later and model.state != "broken":
            found.append(model.id)
    return found


def unfinished(library: ModelStore) -> list[str]:
    """Return the models whose preparing was interrupted, by a crash or a cancel."""
    states = [read_state(model.id) for model in library.models()]
    return [state.model for state in states if state is not None and state.interrupted]


def discard(library: ModelStore, model: str) -> None:
    """Delete what an unfinished preparing of a removed model left. The library deletes finished bundles.

    Does nothing while the model is being prepared.
    """
    try:
        with only_one(model):
            shutil.rmtree(_unfinished_bundle(library.prepared_folder(model)), ignore_errors=True)
            delete_state(model)
    except LibraryError as error:
        log.info("What is left of preparing %s stays: %s", model, error)


def _unfinished_bundle(destination: Path) -> Path:
    """Return the folder in which engine/conversion/convert.py works."""
    return destination.with_name(destination.name + ".partial")


def _delete(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise LibraryError(f"{folder} cannot be deleted: {error.strerror or error}.", "Close what uses it.") from error


class _Run:
    """One run of all stages. bundle: what the model is loaded from, None: its own files."""

    def __init__(
        self,
        library: ModelStore,
        seen: Outlook,
        engine: EngineConfig,
        job: PrepareJob,
        jobs: Jobs,
    ) -> None:
        self._library = library
        self._seen = seen
        self._model = seen.model
        self._engine = engine
        self._job = job
        self._jobs = jobs
        self._begun = "" if seen.state is None else seen.state.stage  # part of that stage is done
        self._left = {step.stage: step.eta_s or 0.0 for step in seen.plan.steps}
        path, self._activation = openable(self._model)
        self.bundle = None if path == Path(self._model.path) else path
        self._state = PrepareState(
            model=self._model.id,
            predictors=seen.predictors,
            later=seen.state is not None and seen.state.later,
            profile_tokens=seen.profile_tokens if "profile" in self._left else 0,
        )

    def all_stages(self) -> tuple[PrepareStep, ...]:
        """Run all stages; return them with their seconds. Raises: the jobs' errors, Cancelled."""
        steps = []
        for step in self._seen.plan.steps:
            if self._job.cancelled():
                raise Cancelled
            keep_state(replace(self._state, stage=step.stage))
            started = time.monotonic()
            match step.stage:
                case "convert":
                    self._convert()
                case "profile":
                    self._do("profile", self._on_model() | {"tokens": self._seen.profile_tokens})
                case "train":
                    kind = "sign" if self._seen.predictors == "sign" else "auto"
                    tokens = self._seen.amounts.of_training(self._seen.predictors)
                    self._do("train", self._on_model() | {"tokens": tokens, "kind": kind})
                case "solve":
                    self._do("solve", self._on_model(self._engine.device))
            del self._left[step.stage]
            steps.append(replace(step, eta_s=time.monotonic() - started))
        return tuple(steps)

    def _convert(self) -> None:
        """Convert into the models' folder, from which the library loads it from then on."""
        destination, codec = self._library.prepared_folder(self._model.id), self._seen.gains.codec
        assert codec is not None, "only what has one is converted"
        if not self._is_made(destination, codec):
            destination.parent.mkdir(parents=True, exist_ok=True)
            given = {"source": self._model.path, "bundle": str(destination), "codec": codec}
            self._do("convert", given | {"activation": self._activation})
        self._library.set_prepared(self._model.id, destination)
        self.bundle, self._activation = destination, None

    def _is_made(self, destination: Path, codec: BundleCodec) -> bool:
        """Return whether an earlier run finished the bundle. Deletes one made from other files or in another codec."""
        source = self._seen.opened.fingerprint
        if is_bundle(destination):
            try:
                manifest = open_bundle(destination).manifest
                if manifest.source.fingerprint == source and manifest.codec == codec:
                    return True
            except EngineError as error:
                log.info("The bundle %s is made anew: %s", destination, error)
            _delete(destination)
        work = _unfinished_bundle(destination)
        if work.exists() and conversion_of(work) != (source, codec):
            _delete(work)
        return False

    def _on_model(self, device: Device | None = None) -> dict[str, Any]:
        """Return the arguments of a job on the model as it is loaded from now on."""
        path = self._model.path if self.bundle is None else str(self.bundle)
        engine = replace(
            self._engine,
            device=device or self._seen.device,
            activation=self._activation,
            template=self._engine.template or self._model.template or None,
        )
        return {"model": path, "engine": {key: value for key, value in asdict(engine).items() if value is not None}}

    def _do(self, stage: PrepareStage, arguments: dict[str, Any]) -> None:
        """Run one job. Stores its pace if it ran from beginning to end."""
        pace = _Pace(self._left[stage], sum(self._left.values()) - self._left[stage])

        def hear(name: str, done: int, total: int) -> None:
            if name == _WORK[stage]:
                self._job.report(stage, done, total, pace.left(done, total))
            else:
                self._job.report(stage, 0, max(1, total), pace.left(0, 1))

        self._job.report(stage, 0, 1, pace.left(0, 1))
        self._jobs.run(stage, arguments, hear, self._job.cancelled)
        if self._begun != stage:
            keep_pace(self._seen.machine, self._seen.pace_name(stage), self._seen.work(stage) / pace.elapsed_s)


class _Pace:
    """Estimate the seconds left of a stage and the following ones, from the pace so far."""

    def __init__(self, expected_s: float, behind_s: float) -> None:
        self._expected_s = expected_s
        self._behind_s = behind_s
        self._started = time.monotonic()
        self._first: tuple[float, float] | None = None  # share done, when

    @property
    def elapsed_s(self) -> float:
        return max(1e-3, time.monotonic() - self._started)

    def left(self, done: int, total: int) -> float:
        share = done / max(1, total)
        now = time.monotonic()
        if share and self._first is None:
            self._first = share, now
        if self._first is not None and share > self._first[0] + _BEGINNING:
            here = (now - self._first[1]) * (1 - share) / (share - self._first[0])
        else:
            here = max(0.0, self._expected_s * (1 - share) - (0 if share else now - self._started))
        return here + self._behind_s
