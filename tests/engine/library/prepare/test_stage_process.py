"""Stages in a process of their own: killed, stopped, deaf or silly; and preparing itself killed in each of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from samples.prepared_models import RARELY, SMALL, OneModel, Recorded, installed, reference, slow_machine, sparse_gguf
from support.systems import ON_WINDOWS, UNDER_WINE, is_alive, is_below_normal, kill

from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle, verify
from engine.config import EngineConfig
from engine.errors import Cancelled, EngineError, EngineProcessError, ModelNotFoundError
from engine.library.prepare import prepare_gains, preparing
from engine.library.prepare.prepare_state import read_state
from engine.library.prepare.preparing import PrepareJob
from engine.library.prepare.stage_process import Jobs, StageProcess
from engine.library.records import PreparePlan
from engine.model.model_files import open_model

ID = "local/tiny"
STAGES = ["convert", "profile", "train", "solve"]
ROOT = Path(__file__).resolve().parents[4]
ALL_PAY = {"convert": 0.0, "profile": 0.0, "train": 0.0}

# A fake engine: it greets, and does with a job what the test says.
FAKE_ENGINE = """
import json, sys, time
def say(**values):
    print(json.dumps(values), flush=True)
say(type="hello", version=1)
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "job":
        id = message["id"]
        {act}
"""

# Preparing in a process that will be killed: tells its stages as they come.
PREPARING = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from samples.prepared_models import RARELY, SMALL, OneModel, installed
from engine.config import EngineConfig
from engine.library.prepare import prepare_gains, preparing
from engine.library.prepare.stage_process import StageProcess
prepare_gains.LEAST_GAIN = {pay!r}
shelf = OneModel(installed(Path({model!r}), activation="relu"), Path({folder!r}))
with StageProcess() as jobs:
    def report(stage, done, total, eta_s):
        print(stage, done, total, jobs.pid or 0, flush=True)
    preparing.prepare(shelf, {id!r}, "sign", preparing.PrepareJob(report), engine=EngineConfig(**{engine!r}),
                      sparsity=RARELY, amounts=SMALL, jobs=jobs)
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", n_layers=2, d_model=32, d_ff=64)


@pytest.fixture
def shelf(gguf: Path, tmp_path: Path) -> OneModel:
    return OneModel(installed(gguf, activation="relu"), tmp_path / "models")


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    """Every stage is taken to pay."""
    monkeypatch.setattr(prepare_gains, "LEAST_GAIN", ALL_PAY)
    return reference(slow_machine(tmp_path / "hw.json"))


def prepare(shelf: OneModel, engine: EngineConfig, jobs: Jobs, **changes: Any) -> PreparePlan:
    given: dict[str, Any] = {"engine": engine, "sparsity": RARELY, "amounts": SMALL, "jobs": jobs, **changes}
    return preparing.prepare(shelf, ID, "sign", **given)[1]


def is_whole(shelf: OneModel) -> None:
    """All was made, and is what it says."""
    bundle = open_bundle(Path(shelf.model.prepared))
    verify(bundle)
    assert set(bundle.manifest.artefacts) == {"statistics", "predictors", "placement"}
    opened = open_model(Path(shelf.model.prepared))
    assert artefacts.load_stats(opened).tokens == 128
    assert artefacts.load_predictor(opened).kinds == {"sign": 2}
    assert shelf.model.state == "ready"
    assert preparing.unfinished(shelf) == []
    assert sorted(path.name for path in shelf.prepared_folder(ID).parent.iterdir()) == [shelf.prepared_folder(ID).name]


def test_all_stages_in_a_process_of_its_own(shelf: OneModel, everything: EngineConfig) -> None:
    told: list[tuple[Any, ...]] = []
    made, plan = preparing.prepare(
        shelf,
        ID,
        "sign",
        PrepareJob(lambda *said: told.append(said)),
        engine=everything,
        sparsity=RARELY,
        amounts=SMALL,
    )
    assert [step.stage for step in plan.steps] == STAGES
    assert made == shelf.model
    is_whole(shelf)
    assert list(dict.fromkeys(stage for stage, *_ in told)) == STAGES
    assert [child for child in psutil.Process().children() if "engine" in child.cmdline()] == []


# Each in a process of its own, which takes seconds to start: every day the one that writes most.
SOME_STAGES = [stage if stage == "train" else pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES]


@pytest.mark.parametrize("stage", SOME_STAGES)
def test_a_stage_whose_process_is_killed_goes_on(shelf: OneModel, everything: EngineConfig, stage: str) -> None:
    reports = 0

    def kill_at(name: str, done: int, total: int, eta_s: float | None) -> None:
        nonlocal reports
        reports += name == stage
        if reports == 2 and jobs.pid is not None:  # the first comes before the job begins
            kill(jobs.pid)

    try:
        with StageProcess() as jobs:
            prepare(shelf, everything, jobs, job=PrepareJob(kill_at))
    except EngineProcessError as error:
        ended = "15" if ON_WINDOWS else "signal 9"
        assert ended in error.message  # noqa: PT017 - solving may be quicker than the end
        state = read_state(ID)
        assert state is not None
        assert state.stage in STAGES[STAGES.index(stage) : STAGES.index(stage) + 2]
    else:
        assert stage == "solve"
    prepare(shelf, everything, Recorded())
    is_whole(shelf)


@pytest.mark.parametrize("stage", SOME_STAGES)
def test_a_stage_is_stopped(shelf: OneModel, everything: EngineConfig, stage: str) -> None:
    wanted: list[bool] = []

    def hear(name: str, done: int, total: int, eta_s: float | None) -> None:
        if name == stage and not wanted and (done or name == "solve"):
            wanted.append(True)

    with StageProcess() as jobs, pytest.raises(Cancelled):
        prepare(shelf, everything, jobs, job=PrepareJob(hear, lambda: bool(wanted)))
    prepare(shelf, everything, Recorded())
    is_whole(shelf)


@pytest.mark.parametrize("stage", SOME_STAGES)
def test_preparing_that_is_killed_itself_goes_on(
    gguf: Path, shelf: OneModel, everything: EngineConfig, stage: str
) -> None:
    engine = {"backend": "reference", "hardware_file": everything.hardware_file}
    script = PREPARING.format(
        tests=str(ROOT / "tests"), model=str(gguf), folder=str(shelf.folder), id=ID, engine=engine, pay=ALL_PAY
    )
    reports, child = 0, 0
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, *_, pid = line.split()
            child = int(pid) or child
            reports += name == stage
            if reports == 2:
                break
        process.kill()
    until = time.monotonic() + 300
    while is_alive(child):
        assert time.monotonic() < until, "its stage outlives it"
        time.sleep(0.05)
    if stage != "convert":  # the library had been told of the bundle
        shelf.set_prepared(ID, shelf.prepared_folder(ID))
    prepare(shelf, everything, Recorded())
    is_whole(shelf)


# --- fake engines


def fake_engine(act: str) -> StageProcess:
    return StageProcess([sys.executable, "-c", FAKE_ENGINE.format(act=act)])


def run(jobs: StageProcess, cancelled: Callable[[], bool] = lambda: False) -> tuple[dict[str, Any], list[Any]]:
    told: list[Any] = []
    with jobs:
        return jobs.run("profile", {"model": "x"}, lambda *said: told.append(said), cancelled), told


def test_what_it_says_is_heard() -> None:
    act = (
        'print("no JSON", flush=True); say(type="heartbeat"); '
        'say(type="progress", id="other", stage="a", done=1, total=2); '
        'say(type="progress", id=id, stage="profiling", done=1, total=2); '
        'say(type="finished", id="other"); say(type="finished", id=id, result={"tokens": 3})'
    )
    assert run(fake_engine(act.replace("{", "{").replace("}", "}"))) == ({"tokens": 3}, [("profiling", 1, 2)])


def test_its_failures_are_ours() -> None:
    failed = 'say(type="failed", id=id, message="No.", hint="Wait.", **{{"class": "ModelNotFoundError"}})'
    with pytest.raises(ModelNotFoundError, match=r"No\.") as caught:
        run(fake_engine(failed.format()))
    assert caught.value.hint == "Wait."


@pytest.mark.expects_log("A stage of preparing failed")
def test_its_faults_are_logged() -> None:
    act = 'say(type="failed", id=id, message="odd", hint="", crash=True, details="line 1", **{{"class": "KeyError"}})'
    with pytest.raises(EngineError) as caught:
        run(fake_engine(act.format()))
    assert "KeyError" not in str(caught.value), "its class is for the log alone"


def test_one_that_ends_is_noticed() -> None:
    with pytest.raises(EngineProcessError, match=r"\b3 .*profile"):
        run(fake_engine("sys.exit(3)"))
    with pytest.raises(EngineProcessError, match="cannot be started"):
        run(StageProcess(["/no/such/program"]))


def test_a_deaf_one_is_ended() -> None:
    wanted_at = time.monotonic() + 0.5
    with pytest.raises(Cancelled):
        run(fake_engine("time.sleep(3600)"), lambda: time.monotonic() > wanted_at)


def test_one_that_was_stopped_before_it_began() -> None:
    jobs = fake_engine("")
    with pytest.raises(Cancelled):
        run(jobs, lambda: True)
    assert jobs.pid is None


@pytest.mark.skipif(UNDER_WINE, reason="Wine 8 starts every process with normal priority")
def test_chatting_goes_first() -> None:
    with fake_engine("say(type='finished', id=id)") as jobs:
        jobs.run("profile", {}, lambda *said: None, lambda: False)
        assert jobs.pid is not None
        assert is_below_normal(jobs.pid)
