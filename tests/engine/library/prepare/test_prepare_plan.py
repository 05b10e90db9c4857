"""What is said before a model is prepared: which steps pay on which machine, how long they take, what they gain."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.prepared_models import RARELY, SMALL, installed, reference, slow_machine, sparse_gguf, vram_for
from samples.tiny_model import make_tiny_model

from engine.assets import starter_model
from engine.bundle import artefacts
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import ModelNotFoundError
from engine.library.prepare import prepare_plan
from engine.library.prepare.prepare_gains import Gains, Ways, kept_codec
from engine.library.prepare.prepare_plan import outlook
from engine.library.prepare.prepare_state import PrepareState, keep_pace
from engine.library.records import PreparePlan, from_json, to_json
from engine.machine.hardware import probe
from engine.model.model_files import open_model
from engine.placement.solving import solve_model
from engine.sparsity.predictor import GateCopy, LayerPredictor, Predictor
from engine.sparsity.stats import NeuronStats
from native_kernels.copies import pack_copy


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def bundle(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(gguf, tmp_path_factory.mktemp("bundle") / "tiny", "q8_0", activation="relu").bundle


@pytest.fixture
def own_bundle(bundle: Path, tmp_path: Path) -> Path:
    """One that a test may add to."""
    return Path(shutil.copytree(bundle, tmp_path / "tiny"))


def seen(path: Path, engine: EngineConfig, **changes: Any) -> prepare_plan.Outlook:
    activation = "" if open_model(path).format == "bundle" else "relu"
    given: dict[str, Any] = {"engine": engine, "sparsity": RARELY, "amounts": SMALL, **changes}
    return outlook(installed(path, activation=activation), **given)


def stages(plan: PreparePlan) -> list[str]:
    return [step.stage for step in plan.steps]


def count(path: Path) -> None:
    """Statistics as though they had been counted: a few neurons fire most."""
    opened = open_model(path)
    rates = np.linspace(0, 0.16, opened.config.n_neurons)
    counts = np.tile(np.rint(rates * 1000).astype(np.int64), (opened.config.n_layers, 1))
    artefacts.save_stats(opened, NeuronStats(counts, 1000, "measured", "test"))


def predict(path: Path, signed: bool) -> None:
    """Predictors: copies of the gate, of signs alone or of two bits."""
    opened = open_model(path)
    rows, width, bits = opened.config.d_ff, opened.config.d_model, 1 if signed else 2
    matrix = pack_copy(np.zeros((rows, width), np.uint8), np.ones((rows, 1), np.float16), bits)
    layer = LayerPredictor(None, GateCopy(matrix, signed_input=signed), active_share=0.9 if signed else 0.12)
    artefacts.save_predictor(opened, Predictor((layer,) * opened.config.n_layers))


# --- which steps


def test_without_a_gpu_counting_pays_nothing(gguf: Path, tmp_path: Path) -> None:
    plan = seen(gguf, reference(slow_machine(tmp_path / "hw.json"))).plan
    assert stages(plan) == ["convert", "train", "solve"]
    assert plan.now_tok_s is not None and plan.then_tok_s is not None  # noqa: PT018 - for the type checker
    assert plan.then_tok_s > 1.2 * plan.now_tok_s
    assert plan.eta_s == pytest.approx(sum(step.eta_s or 0 for step in plan.steps))
    assert plan.disk_bytes > 0
    assert plan.can_use_sign
    assert not plan.interrupted
    assert "times as fast" in plan.steps[0].why
    assert from_json(PreparePlan, json.loads(json.dumps(to_json(plan))), "plan") == plan


def test_with_a_gpu_that_holds_a_part_all_pay(gguf: Path, tmp_path: Path) -> None:
    hardware = slow_machine(tmp_path / "hw.json", gpu=True)
    half = vram_for(seen(gguf, reference(hardware)).gains, 0.5)
    found = seen(gguf, reference(hardware, vram_budget_gib=half))
    assert stages(found.plan) == ["convert", "profile", "train", "solve"]
    assert "GPU" in found.plan.steps[-1].why
    rates = [found.gains.tok_s(ways) for ways in (Ways(), Ways(True), Ways(True, True), Ways(True, True, True))]
    assert rates == sorted(rates)  # type: ignore[type-var]  # it fits in all of them


def test_a_model_that_has_all_is_only_placed(own_bundle: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    assert stages(seen(own_bundle, engine).plan) == ["train", "solve"]
    predict(own_bundle, signed=False)
    count(own_bundle)
    plan = seen(own_bundle, engine).plan
    assert stages(plan) == ["solve"]
    assert plan.now_tok_s == plan.then_tok_s
    assert not plan.can_use_sign
    solve_model(open_model(own_bundle), engine)
    assert seen(own_bundle, engine).plan.steps == ()
    assert seen(own_bundle, engine).plan.eta_s is None


def test_predictors_of_signs_serve_until_others_are_trained(own_bundle: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    predict(own_bundle, signed=True)
    waiting, trained = (seen(own_bundle, engine, predictors=chosen).plan for chosen in ("sign", "train"))
    assert stages(waiting) == ["solve"]
    assert stages(trained) == ["train", "solve"]
    assert "instant" in trained.steps[0].why
    assert not trained.can_use_sign


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_of_a_dense_model_nothing_but_the_placement(activation: str, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "m", activation=activation)
    found = outlook(installed(model), engine=reference(slow_machine(tmp_path / "hw.json", gpu=True)))
    assert stages(found.plan) == ["solve"]
    assert found.plan.now_tok_s == found.plan.then_tok_s


def test_the_starter_brings_counts_and_predictors() -> None:
    found = outlook(installed(starter_model()))
    assert set(stages(found.plan)) <= {"convert", "solve"}
    assert found.gains.missing == Ways(convert=True)


def test_what_fits_nowhere_is_not_prepared(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.library.prepare.prepare_gains._rate", lambda setting: None)
    plan = seen(gguf, reference(slow_machine(tmp_path / "hw.json"))).plan
    assert stages(plan) == ["solve"]
    assert plan.now_tok_s is plan.then_tok_s is None


def test_what_was_begun_is_ended(own_bundle: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    state = PrepareState("local/tiny", stage="profile", profile_tokens=512)
    found = seen(own_bundle, engine, state=state)
    assert stages(found.plan) == ["profile", "train", "solve"]
    assert found.plan.interrupted
    assert found.profile_tokens == 512
    count(own_bundle)
    assert stages(seen(own_bundle, engine, state=state).plan) == ["train", "solve"]


# --- whether it holds


def test_a_bundle_is_foretold_to_the_byte(gguf: Path, bundle: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    foretold, made = seen(gguf, engine), seen(bundle, engine)
    for ways in (Ways(), Ways(train=True)):
        assert foretold.gains.tok_s(replace(ways, convert=True)) == made.gains.tok_s(ways)
    on_disk = sum(file.stat().st_size for file in bundle.glob("*.bin"))
    assert foretold.plan.disk_bytes == on_disk


def test_trained_predictors_are_foretold(tmp_path: Path) -> None:
    """Against the starter's own, trained ones."""
    alone = Path(shutil.copy(starter_model() / "starter-chat-q8_0.gguf", tmp_path / "pip.gguf"))
    engine = reference(slow_machine(tmp_path / "hw.json"))
    real = outlook(installed(starter_model()), engine=engine)
    true, stats = real.gains.tok_s(Ways()), artefacts.load_stats(real.opened)
    artefacts.save_stats(open_model(alone), replace(stats, source="measured"))
    foretold = Gains(open_model(alone), engine)
    assert foretold.missing.train
    assert not foretold.missing.profile
    found = foretold.tok_s(Ways(train=True))
    assert found is not None
    assert found == pytest.approx(true, rel=0.2)


def test_the_codec_of_a_bundle_keeps_what_the_source_has(tmp_path: Path, gguf: Path) -> None:
    assert kept_codec(open_model(make_tiny_model(tmp_path / "m"))) == "f16"
    assert kept_codec(open_model(gguf)) == "q8_0"


def test_a_gpu_counts_as_though_no_chat_were_on_it(gguf: Path, tmp_path: Path) -> None:
    hardware = Path(slow_machine(tmp_path / "hw.json", gpu=True))
    empty = seen(gguf, reference(str(hardware))).plan
    text = hardware.read_text("utf-8")
    hardware.write_text(text.replace('"free_bytes": 11339300864', '"free_bytes": 300000000'), "utf-8")
    assert hardware.read_text("utf-8") != text
    assert seen(gguf, reference(str(hardware))).plan.then_tok_s == pytest.approx(empty.then_tok_s, rel=0.05)


# --- times and words


def test_times_go_by_the_pace_of_this_machine(gguf: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    found = seen(gguf, engine)
    before, conversion = found.eta_s("train"), found.eta_s("convert")
    assert seen(gguf, engine, predictors="sign").eta_s("train") < before
    keep_pace(found.machine, "train.cpu", found.pace("train") / 3)
    assert found.eta_s("train") == pytest.approx(3 * before)
    assert found.eta_s("convert") == conversion


def test_counting_takes_as_much_text_as_there_is_time_for(gguf: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    found = seen(gguf, engine, amounts=prepare_plan.Amounts())
    parameters = found.opened.parameters
    assert found.profile_tokens == 32768
    for portions, expected in ((2.5, 2), (0.1, 1)):
        enough_for = portions * 8192 * 2 * parameters / prepare_plan.LONGEST_PROFILE_S
        keep_pace(found.machine, "profile.cpu", enough_for)
        assert seen(gguf, engine, amounts=prepare_plan.Amounts()).profile_tokens == expected * 8192


def test_a_prepared_bundle_that_is_gone_gives_way_to_the_files(gguf: Path, tmp_path: Path) -> None:
    engine = reference(slow_machine(tmp_path / "hw.json"))
    model = installed(gguf, activation="relu", prepared=str(tmp_path / "gone"))
    assert stages(outlook(model, engine=engine, sparsity=RARELY).plan) == ["convert", "train", "solve"]
    with pytest.raises(ModelNotFoundError):
        outlook(installed(tmp_path / "nothing"), engine=engine)


def test_with_a_gpu_experts_need_neither_counts_nor_predictors(tmp_path: Path) -> None:
    opened = open_model(make_tiny_mixtral(tmp_path / "experts.gguf"), "relu")
    engine = reference(slow_machine(tmp_path / "hw.json", gpu=True))
    gains = Gains(opened, engine)
    assert gains.missing == Ways(convert=True)
    assert gains.tok_s(Ways()) == pytest.approx(solve_model(opened, engine).placement.predicted_tok_s, rel=0.02)


def test_neurons_inside_experts_are_predicted_where_it_pays(tmp_path: Path) -> None:
    path = make_tiny_mixtral(tmp_path / "experts.gguf", sizes={"d_model": 128, "d_ff": 512, "max_context": 128})
    engine = reference(slow_machine(tmp_path / "hw.json"))
    assert Gains(open_model(path), engine).missing == Ways(convert=True, train=True)
    rarely = replace(RARELY, active_share=0.02)
    found = seen(path, engine, sparsity=rarely)
    assert stages(found.plan) == ["convert", "train", "solve"]
    assert not found.plan.can_use_sign
    assert found.plan.eta_s
    assert stages(seen(path, engine, sparsity=replace(RARELY, active_share=0.3)).plan) == ["convert", "solve"]
    assert stages(seen(path, engine, sparsity=rarely, predictors="sign").plan) == ["convert", "solve"]


def test_the_cpu_counts_while_a_chat_fills_the_gpu(tmp_path: Path) -> None:
    from engine.machine.measured_hardware import load_profile

    machine = load_profile(slow_machine(tmp_path / "hw.json", gpu=True))
    full = replace(machine, gpus=(replace(machine.gpus[0], free_bytes=1 << 30),))
    assert prepare_plan.offline_device(machine, EngineConfig()) == "auto"
    assert prepare_plan.offline_device(full, EngineConfig()) == "cpu"
    assert prepare_plan.offline_device(machine, EngineConfig(device="cpu")) == "cpu"
    assert prepare_plan.machine_name(machine) == prepare_plan.machine_name(full) != prepare_plan.machine_name(probe())
