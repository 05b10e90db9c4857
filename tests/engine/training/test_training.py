"""Training as a whole: an artefact that runs, every kind, interruptions, bad input, the command."""

from __future__ import annotations

import argparse
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral
from samples.tiny_model import VOCAB_SIZE, make_tiny_model

from engine.bundle import artefacts
from engine.commands import cli
from engine.config import EngineConfig
from engine.errors import (
    ArtifactMismatchError,
    Cancelled,
    DeviceUnavailableError,
    DiskSpaceError,
    InvalidRequestError,
    UnsupportedModelError,
)
from engine.evaluation.evaluate import perplexity
from engine.job import Job
from engine.session.loaded_model import LoadedModel
from engine.training import training
from engine.training.low_rank import LowRankFitter, Recipe
from engine.training.training import TrainingOptions, ranks_for, train
from engine.training.training_data import split_texts, spread
from engine.training.training_records import LayerRecord

REFERENCE = EngineConfig(backend="reference")
RECIPE = Recipe(steps=12, batch=128)
TEXT = "The ferry left at seven, and half of the passengers slept. " * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m"), n_layers=3)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return LoadedModel.load(folder, REFERENCE)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little text, which is drawn and not written by the model."""

    def portion(model: Any, number: int, seed: int, size: int, **_: Any) -> dict[str, list[list[int]]]:
        rng = np.random.default_rng([seed, number])
        rows = rng.integers(0, VOCAB_SIZE, (-(-size // 40), 40)).tolist()
        return {"questions": rows[::2], "prose": rows[1::2]}

    monkeypatch.setattr(training, "write_portion", portion)
    monkeypatch.setattr(training, "LEAST_TOKENS", 800)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options(**changes: Any) -> TrainingOptions:
    return TrainingOptions(**{"tokens": 1600, "recipe": RECIPE, **changes})


def kept(model: LoadedModel) -> list[Path]:
    folder = artefacts.artefact_folder(model.opened)
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_what_is_trained_is_found_held_to_its_budget_and_run(model: LoadedModel, folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    goal = training.Goal(0.2, 0.8, 0.8)
    trained = train(
        model, TEXT, options(kind="low_rank", goal=goal), job=Job(progress=lambda *step: steps.append(step))
    )
    budget = trained.predictor.budget
    assert budget is not None
    assert [one.text for one in budget.measured] == ["the text given", "self-written chat", "self-written prose"]
    assert budget.held
    assert all(one.perplexity_rise <= 0.2 for one in budget.measured)
    assert steps[-1] == (1000, 1000)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    found = artefacts.load_predictor(model.opened, as_stored=True)
    assert [layer.kind for layer in found.layers] == ["low_rank"] * 3
    for layer in found.layers:
        assert layer.low_rank is not None
        assert layer.low_rank.a.codec == "q4_0"
        assert layer.recall is not None
        assert layer.recall >= budget.level - 1e-6
    sparse = LoadedModel.load(folder, EngineConfig(backend="reference", mode="sparse"))
    tokens = np.random.default_rng(5).integers(0, VOCAB_SIZE, 300).tolist()
    score = perplexity(sparse, tokens, context=50, against="exact")
    assert score.top1_agreement is not None
    assert score.top1_agreement > 0.8
    assert not list(training._saved_in(model, split_texts({"a": [[1]] * 3}), options(), "cpu").parent.iterdir())


def test_the_neurons_inside_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    model = LoadedModel.load(path, REFERENCE)
    with pytest.raises(UnsupportedModelError, match="low rank"):
        train(model, None, options(kind="sign"))
    trained = train(model, None, options(kind="low_rank", goal=training.Goal(0.2, 0.8, 0.8)))
    assert trained.predictor.budget is not None
    assert trained.predictor.budget.held
    found = artefacts.load_predictor(model.opened, as_stored=True)
    for layer in found.layers:
        assert layer.low_rank is not None
        assert layer.low_rank.b.n_rows == N_EXPERTS * 64
        of_second = layer.n_bytes - layer.low_rank.a.n_bytes - 4 * layer.low_rank.rank
        assert layer.bytes_read(1.0) == layer.n_bytes - of_second * (1 - N_USED / N_EXPERTS)
        assert layer.recall is not None
        assert layer.active_share is not None
        assert layer.recall >= trained.predictor.budget.level - 1e-6
        assert layer.active_share < 0.95
    tokens = np.random.default_rng(5).integers(0, VOCAB_SIZE, 300).tolist()
    exact = perplexity(model, tokens, context=50)
    assert exact.active_share is not None
    sparse = LoadedModel.load(path, EngineConfig(backend="reference", mode="sparse"))
    score = perplexity(sparse, tokens, context=50, against="exact")
    assert score.top1_agreement is not None
    assert score.top1_agreement > 0.8
    assert score.active_share is not None
    assert 0.1 < score.active_share < 0.95 * N_USED / N_EXPERTS
    # A program of before refuses the file by its version.
    monkeypatch.setattr("engine.sparsity.predictor._READ_VERSIONS", (1, 2))
    with pytest.raises(ArtifactMismatchError, match="version 3"):
        artefacts.load_predictor(model.opened, as_stored=True)


@pytest.mark.parametrize("kind", ["gate_copy", "cascade", "sign", "auto"])
def test_every_kind_is_what_was_asked_for(model: LoadedModel, kind: Any) -> None:
    trained = train(model, None, options(kind=kind))
    kinds = {layer.kind for layer in trained.predictor.layers}
    assert kinds == {kind} if kind != "auto" else kinds <= {"low_rank", "gate_copy", "cascade", "true_gate"}
    for layer in trained.predictor.layers:
        assert (layer.rank is not None) == (layer.kind in ("low_rank", "cascade"))
        assert layer.copy is None or layer.copy.signed_input == (kind == "sign")


def test_an_interruption_costs_a_layer_and_changes_nothing(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, own_folders: Path, tmp_path: Path
) -> None:
    fitted: list[int] = []
    real = LowRankFitter.__init__

    def counting(self: LowRankFitter, *arguments: Any) -> None:
        fitted.append(1)
        real(self, *arguments)

    monkeypatch.setattr(LowRankFitter, "__init__", counting)
    with pytest.raises(Cancelled):
        train(model, None, options(kind="cascade"), job=Job(lambda: len(fitted) == 3))
    assert len(fitted) == 3
    assert not kept(model)
    train(model, None, options(kind="cascade"))
    assert len(fitted) == 4  # of the layer in which it was stopped
    once_stopped = {path.name: path.read_bytes() for path in kept(model)}
    for variable in ("XDG_DATA_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "data"))
    train(model, None, options(kind="cascade"))
    assert len(fitted) == 7
    assert once_stopped == {path.name: path.read_bytes() for path in kept(model)}
    assert len(once_stopped) == 2


def test_a_record_that_was_cut_off_is_no_record(model: LoadedModel, tmp_path: Path) -> None:
    assert LayerRecord.load(tmp_path / "none.npz") is None
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    assert LayerRecord.load(tmp_path / "cut.npz") is None


def test_a_full_disk_leaves_nothing_half_written(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DiskSpaceError):
        train(model, None, options(kind="gate_copy"))
    assert not kept(model)


def test_a_budget_that_nothing_holds_is_said(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    real = training.measure_masked

    def worse(*arguments: Any) -> Any:
        return tuple(training.MeasuredText(one.text, 0.5, one.top1_agreement) for one in real(*arguments))

    monkeypatch.setattr(training, "measure_masked", worse)
    trained = train(model, None, options(kind="gate_copy"))
    assert trained.predictor.budget is not None
    assert not trained.predictor.budget.held
    assert len(kept(model)) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [({"kind": "magic"}, "magic"), ({"tokens": 700}, "700 tokens"), ({"goal": training.Goal(0.0)}, "0 %")],
)
def test_wishes_that_cannot_be_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        options(**change)


def test_a_text_that_is_too_short_is_refused_with_what_is_needed(model: LoadedModel) -> None:
    with pytest.raises(InvalidRequestError, match="at least 400"):
        train(model, "A few words.", options())


def test_models_without_zeros_are_refused(tmp_path: Path) -> None:
    dense = LoadedModel.load(make_tiny_model(tmp_path / "silu", activation="silu"), REFERENCE)
    with pytest.raises(UnsupportedModelError, match="makes no zeros"):
        train(dense, None, options())


def test_a_gpu_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training.training_device("auto") == training.training_device("cpu") == "cpu"
    with pytest.raises(DeviceUnavailableError):
        training.training_device("cuda")


def test_ranks_lie_between_a_thirtysecond_and_a_quarter_of_the_width() -> None:
    assert ranks_for(32) == [32]
    assert ranks_for(512) == [32, 64, 128]
    assert ranks_for(4096) == [128, 256, 512, 1024]
    assert ranks_for(5120) == [160, 320, 640, 1280]


def test_no_sequence_is_in_two_parts_and_every_kind_is_held_out() -> None:
    rows = {"a": [[i] for i in range(25)], "b": [[100 + i] for i in range(3)]}
    texts = split_texts(rows)
    held = [sequence for part in texts.held_out.values() for sequence in part]
    everything = [row[0] for row in (*texts.train, *texts.calibration, *held)]
    assert sorted(everything) == [*range(25), 100, 101, 102]
    assert {name: len(part) for name, part in texts.held_out.items()} == {"a": 2, "b": 1}
    with pytest.raises(InvalidRequestError, match="2 sequences"):
        split_texts({"a": [[1], [2]]})


def test_a_long_text_is_taken_from_all_over() -> None:
    taken = spread([[i] * 10 for i in range(100)], 50)
    assert [sequence[0] for sequence in taken] == [0, 20, 40, 60, 80]
    assert spread([[1, 2]], 50) == [[1, 2]]


def test_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(arguments: argparse.Namespace, cancelled: Any) -> LoadedModel:
        assert (arguments.mode, arguments.device) == ("exact", "cpu")
        return LoadedModel.load(arguments.model, REFERENCE)

    monkeypatch.setattr("engine.commands.train.load_model", load)
    (tmp_path / "mine.txt").write_text(TEXT)
    asked = ["train", str(folder), "--text", str(tmp_path / "mine.txt"), "--tokens", "1600", "--kind", "gate_copy"]
    assert cli.main([*asked, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [layer["kind"] for layer in shown["layers"]] == ["gate_copy"] * 3
    assert {"rank", "recall", "precision", "active_share", "bytes", "bits"} <= shown["layers"][0].keys()
    assert shown["layers"][0]["rank"] is None
    assert shown["bytes"] == sum(layer["bytes"] for layer in shown["layers"])
    assert shown["budget"]["perplexity_rise"] == 0.01
    assert cli.main([*asked, "--budget", "0.000001"]) == 0
    assert "3 bit" in capsys.readouterr().out or "2 bit" in capsys.readouterr().out
    assert cli.main([*asked[:2], "--text", str(tmp_path / "none.txt")]) == 1
    assert "none.txt" in capsys.readouterr().err
