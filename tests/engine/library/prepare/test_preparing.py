"""Preparing as a whole: what is done in which order, what is kept, and that it goes on after anything."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.prepared_models import (
    RARELY,
    SMALL,
    OneModel,
    Recorded,
    installed,
    reference,
    slow_machine,
    sparse_gguf,
    vram_for,
)
from samples.tiny_model import VOCAB_SIZE, make_tiny_model

from engine.bundle import artefacts
from engine.bundle.bundle import is_bundle, open_bundle, verify
from engine.config import EngineConfig
from engine.conversion import convert as conversion
from engine.errors import (
    Cancelled,
    DiskSpaceError,
    HostMemoryError,
    InvalidRequestError,
    LibraryError,
    ModelNotFoundError,
)
from engine.job import Job
from engine.library.prepare import preparing
from engine.library.prepare.prepare_gains import Gains
from engine.library.prepare.prepare_state import PrepareState, delete_state, keep_state, only_one, read_pace, read_state
from engine.library.prepare.preparing import PrepareJob
from engine.library.records import InstalledModel, PreparePlan
from engine.model.model_files import open_model
from engine.placement.solving import solve_model
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import GateCopy, LayerPredictor, LowRank, Predictor
from engine.training import profiler, training
from native_kernels.backend import PackedMatrix
from native_kernels.copies import pack_copy

ID = "local/tiny"
STAGES = ["convert", "profile", "train", "solve"]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Text is drawn, not written by the model, and predictors are made up, not trained; tests may want true ones."""

    def portion(model: Any, number: int, seed: int, size: int, **_: Any) -> dict[str, list[list[int]]]:
        rng = np.random.default_rng([seed, number])
        rows = rng.integers(0, VOCAB_SIZE, (-(-size // 32), 32)).tolist()
        return {"questions": rows[::2], "prose": rows[1::2]}

    def made_up(model: LoadedModel, text: Any, wishes: Any, device: str, job: Any) -> Any:
        job.progress(0, 1000)
        config, signed = model.opened.config, wishes.kind == "sign"
        codes, scales = np.zeros((config.d_ff, config.d_model), np.uint8), np.ones((config.d_ff, 1), np.float16)
        copy = GateCopy(pack_copy(codes, scales, 1 if signed else 2), signed_input=signed)
        layer = LayerPredictor(None, copy, active_share=0.9 if signed else 0.12)
        artefacts.save_predictor(model.opened, Predictor((layer,) * config.n_layers))
        job.progress(1000, 1000)
        return SimpleNamespace(values=dict)

    for module in (profiler, training):
        monkeypatch.setattr(module, "write_portion", portion)
    if "truly_trained" not in request.fixturenames:
        monkeypatch.setattr(training, "train", made_up)


@pytest.fixture
def truly_trained() -> None:
    """Asked for by the test that trains."""


@pytest.fixture
def shelf(gguf: Path, tmp_path: Path) -> OneModel:
    return OneModel(installed(gguf, activation="relu"), tmp_path / "models")


@pytest.fixture
def everything(gguf: Path, tmp_path: Path) -> EngineConfig:
    """A machine on which every stage pays: its GPU holds half of the model."""
    hardware = slow_machine(tmp_path / "hw.json", gpu=True)
    half = vram_for(Gains(open_model(gguf, "relu"), reference(hardware), RARELY), 0.5)
    return reference(hardware, vram_budget_gib=half)


@pytest.fixture
def cpu(tmp_path: Path) -> EngineConfig:
    return reference(slow_machine(tmp_path / "hw.json"))


def run(
    shelf: OneModel, engine: EngineConfig, predictors: str = "train", **changes: Any
) -> tuple[InstalledModel, PreparePlan]:
    given: dict[str, Any] = {"engine": engine, "sparsity": RARELY, "amounts": SMALL, "jobs": Recorded(), **changes}
    return preparing.prepare(shelf, ID, predictors, **given)


def done(plan: PreparePlan) -> list[str]:
    return [step.stage for step in plan.steps]


# --- what is done


def test_every_stage_in_order_and_then_nothing(shelf: OneModel, everything: EngineConfig, truly_trained: None) -> None:
    jobs, told = Recorded(), []
    model, plan = run(shelf, everything, jobs=jobs, job=PrepareJob(lambda *said: told.append(said)))
    assert jobs.names == done(plan) == STAGES
    bundle = Path(model.prepared)
    assert bundle == shelf.prepared_folder(ID)
    assert model.state == "ready"
    opened = open_bundle(bundle)
    verify(opened)
    assert set(opened.manifest.artefacts) == {"statistics", "predictors", "placement"}
    assert all(arguments["model"] == str(bundle) for job, arguments in jobs.jobs if job != "convert")
    assert jobs.jobs[0][1]["activation"] == "relu"
    assert "activation" not in jobs.jobs[1][1]["engine"]
    assert (jobs.jobs[1][1]["tokens"], jobs.jobs[2][1]["tokens"]) == (128, 1024)
    assert LoadedModel.load(bundle, EngineConfig(backend="reference", device="cpu")).opened.has_predictors
    assert read_state(ID) is None
    assert preparing.pending_training(shelf) == preparing.unfinished(shelf) == []
    assert plan.then_tok_s is not None
    assert all(step.eta_s is not None and step.eta_s > 0 for step in plan.steps)
    # told: the stages in order, each from its beginning to its end, with what is left of all
    assert list(dict.fromkeys(stage for stage, *_ in told)) == STAGES
    assert all(eta is not None and eta >= 0 for *_, eta in told)
    for stage in STAGES:
        steps = [(finished, total) for name, finished, total, _ in told if name == stage]
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1]
    again = Recorded()
    assert done(run(shelf, everything, jobs=again)[1]) == again.names == []


def test_a_model_with_experts_gets_predictors_that_are_used(
    tmp_path: Path, cpu: EngineConfig, truly_trained: None
) -> None:
    sizes = {"d_model": 128, "d_ff": 256, "max_context": 128}
    shelf = OneModel(installed(make_tiny_mixtral(tmp_path / "m.gguf", sizes=sizes)), tmp_path / "models")
    jobs = Recorded()
    model, plan = run(shelf, cpu, jobs=jobs, sparsity=replace(RARELY, active_share=0.02))
    assert jobs.names == done(plan) == ["convert", "train", "solve"]
    opened = open_model(Path(model.prepared))
    predictor = artefacts.load_predictor(opened, as_stored=True)
    assert predictor.budget is not None
    assert {layer.kind for layer in predictor.layers} <= {"low_rank", "true_gate"}
    # random experts cannot be predicted: as though they could
    a, b = (PackedMatrix.pack(np.zeros(shape, np.float32), "q4_0") for shape in ((32, 128), (4 * 256, 32)))
    layer = LayerPredictor(LowRank(a, b, read_share=0.5), None, recall=1.0, active_share=0.1)
    predictor = replace(predictor, layers=(layer,) * 2, budget=replace(predictor.budget, held=True))
    artefacts.save_predictor(opened, predictor)
    placement = solve_model(opened, cpu).placement
    assert (placement.mode, solve_model(opened, replace(cpu, mode="exact")).placement.mode) == ("sparse", "exact")
    assert placement.ram_parts_bytes["predictors"] == predictor.n_bytes
    assert done(run(shelf, cpu)[1]) == []


def test_a_dense_model_is_only_placed(tmp_path: Path, cpu: EngineConfig) -> None:
    source = make_tiny_model(tmp_path / "m", activation="silu")
    shelf, jobs = OneModel(installed(source), tmp_path / "models"), Recorded()
    model, plan = run(shelf, cpu, jobs=jobs)
    assert jobs.names == done(plan) == ["solve"]
    assert model.prepared == ""
    assert shelf.prepared == [None]
    assert not shelf.folder.exists()
    assert open_model(source).has_placement


def test_signs_first_and_training_while_nobody_waits(shelf: OneModel, cpu: EngineConfig) -> None:
    jobs = Recorded()
    _, plan = run(shelf, cpu, "sign", jobs=jobs)
    assert done(plan) == ["convert", "train", "solve"]
    assert (jobs.jobs[1][1]["kind"], jobs.jobs[2][1].get("again")) == ("sign", None)
    assert preparing.pending_training(shelf) == [ID]
    assert not preparing.plan(shelf, ID, cpu, RARELY).interrupted
    assert done(run(shelf, cpu, "sign")[1]) == []  # it is as the person wanted it
    assert preparing.pending_training(shelf) == [ID]
    trained = Recorded()
    _, plan = run(shelf, cpu, jobs=trained)
    assert trained.names == ["train", "solve"]
    assert trained.jobs[0][1]["kind"] == "auto"
    assert preparing.pending_training(shelf) == []


def test_idle_training_that_is_cut_short_stays_wanted(shelf: OneModel, cpu: EngineConfig) -> None:
    run(shelf, cpu, "sign")

    def stop(job: str) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        run(shelf, cpu, jobs=Recorded(stop))
    assert preparing.pending_training(shelf) == preparing.unfinished(shelf) == [ID]
    assert preparing.plan(shelf, ID, cpu, RARELY).interrupted
    run(shelf, cpu)
    assert preparing.pending_training(shelf) == preparing.unfinished(shelf) == []


# --- going on


@pytest.mark.parametrize("failing", STAGES)
@pytest.mark.parametrize("error", [Cancelled, HostMemoryError("The RAM was used up.")])
def test_what_was_finished_is_not_done_again(
    shelf: OneModel, everything: EngineConfig, failing: str, error: Any
) -> None:
    def fail(job: str) -> None:
        if job == failing:
            raise error

    with pytest.raises(Cancelled if error is Cancelled else HostMemoryError):
        run(shelf, everything, jobs=Recorded(fail))
    state = read_state(ID)
    assert state is not None
    assert state.stage == failing
    assert preparing.plan(shelf, ID, everything, RARELY).interrupted
    assert preparing.unfinished(shelf) == [ID]
    jobs = Recorded()
    model, _ = run(shelf, everything, jobs=jobs)
    missed = STAGES[STAGES.index(failing) :]
    assert [name for name in jobs.names if name not in missed] == []
    assert failing in jobs.names
    assert model.state == "ready"
    assert read_state(ID) is None


def test_a_bundle_that_nobody_was_told_of_is_taken(shelf: OneModel, cpu: EngineConfig) -> None:
    """A death between the conversion's last rename and the library's list."""
    conversion.convert(Path(shelf.model.path), shelf.prepared_folder(ID), "q8_0", activation="relu")
    jobs = Recorded()
    run(shelf, cpu, jobs=jobs)
    assert jobs.names == ["train", "solve"]
    assert shelf.prepared[0] == shelf.prepared_folder(ID)


@pytest.mark.parametrize("finished", [True, False])
def test_what_was_made_of_other_files_is_made_anew(
    shelf: OneModel, cpu: EngineConfig, tmp_path: Path, finished: bool
) -> None:
    """The model was downloaded again in a newer revision."""
    other = sparse_gguf(tmp_path / "other.gguf", seed=7)
    place = shelf.prepared_folder(ID)
    if finished:
        conversion.convert(other, place, "q8_0", activation="relu")
    else:
        steps = iter([False, False, True, True, True])
        with pytest.raises(Cancelled):
            conversion.convert(other, place, "q8_0", job=Job(lambda: next(steps, True)), activation="relu")
        assert (place.parent / f"{place.name}.partial").is_dir()
    run(shelf, cpu)
    assert open_bundle(place).manifest.source.fingerprint == open_model(Path(shelf.model.path), "relu").fingerprint
    assert not (place.parent / f"{place.name}.partial").exists()


def test_a_damaged_bundle_is_made_anew(shelf: OneModel, cpu: EngineConfig) -> None:
    place = shelf.prepared_folder(ID)
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    run(shelf, cpu)
    verify(open_bundle(place))


def test_a_bundle_that_is_damaged_later_is_made_anew(shelf: OneModel, cpu: EngineConfig) -> None:
    run(shelf, cpu)
    (shelf.prepared_folder(ID) / "layer-0001.bin").unlink()
    jobs = Recorded()
    run(shelf, cpu, jobs=jobs)
    assert jobs.names[0] == "convert"
    verify(open_bundle(shelf.prepared_folder(ID)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 9}', '{"schema_version": 1, "model": 3}'])
def test_a_damaged_state_counts_as_none(shelf: OneModel, cpu: EngineConfig, own_folders: Path, text: str) -> None:
    keep_state(PrepareState(ID, stage="train"))
    (file,) = own_folders.glob("*/Hearth/preparing/*.json")
    file.write_text(text)
    assert read_state(ID) is None
    assert not preparing.plan(shelf, ID, cpu, RARELY).interrupted
    delete_state(ID)


# --- refusals


def test_one_model_at_a_time(shelf: OneModel, cpu: EngineConfig) -> None:
    with only_one("somebody/else"), pytest.raises(LibraryError, match="somebody/else"):
        run(shelf, cpu)
    assert shelf.prepared == []
    run(shelf, cpu)


def test_what_cannot_be_prepared_is_refused(shelf: OneModel, cpu: EngineConfig, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="train, sign"):
        run(shelf, cpu, "magic")
    with pytest.raises(ModelNotFoundError):
        preparing.prepare(shelf, "local/other")
    broken = OneModel(installed(tmp_path / "m.gguf", state="broken", reason="A file is missing."), tmp_path)
    with pytest.raises(LibraryError, match="A file is missing"):
        run(broken, cpu)


def test_no_room_on_the_disk(shelf: OneModel, cpu: EngineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conversion.shutil.disk_usage
    monkeypatch.setattr(conversion.shutil, "disk_usage", lambda path: before(path)._replace(free=1 << 20))
    with pytest.raises(DiskSpaceError, match="GB are free"):
        run(shelf, cpu)
    monkeypatch.undo()
    assert shelf.prepared == []
    assert not is_bundle(shelf.prepared_folder(ID))


def test_a_state_that_cannot_be_kept_is_said(
    shelf: OneModel, cpu: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, values: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("engine.library.prepare.prepare_state.write_json", full)
    with pytest.raises(DiskSpaceError):
        run(shelf, cpu)


def test_a_removed_model_leaves_nothing(shelf: OneModel, cpu: EngineConfig) -> None:
    place = shelf.prepared_folder(ID)
    steps = iter([False, False, True])
    with pytest.raises(Cancelled):
        conversion.convert(Path(shelf.model.path), place, "q8_0", job=Job(lambda: next(steps, True)))
    keep_state(PrepareState(ID, stage="convert"))
    with only_one("somebody/else"):
        preparing.discard(shelf, ID)
    assert read_state(ID) is not None
    preparing.discard(shelf, ID)
    assert read_state(ID) is None
    assert list(place.parent.iterdir()) == []


# --- times


def test_the_pace_of_a_whole_stage_is_kept(shelf: OneModel, everything: EngineConfig) -> None:
    forecast = preparing.outlook(shelf.model, engine=everything, sparsity=RARELY, amounts=SMALL)
    work = {stage: forecast.work(stage) for stage in STAGES}

    def fail(job: str) -> None:
        if job == "train":
            raise Cancelled

    with pytest.raises(Cancelled):
        run(shelf, everything, jobs=Recorded(fail))
    assert read_pace(forecast.machine, "train.cpu") is None
    _, plan = run(shelf, everything)
    assert read_pace(forecast.machine, "train.cpu") is None  # some of it may have been done before
    (solved,) = (step.eta_s for step in plan.steps if step.stage == "solve")
    kept = read_pace(forecast.machine, "solve")
    assert kept is not None
    assert work["solve"] / kept == pytest.approx(solved, rel=0.5)
    assert read_pace(forecast.machine, "convert") is not None
    assert read_pace(forecast.machine, "profile.cpu") is not None


def test_what_is_left_goes_by_how_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = preparing._Pace(expected_s=60, behind_s=10)
    assert pace.left(0, 100) == 70
    now += 20
    assert pace.left(0, 100) == 50
    assert pace.left(50, 100) == 40  # half of it lay there already: that says nothing of the pace
    now += 10
    assert pace.left(75, 100) == 20
    assert pace.left(100, 100) == 10
