"""Counting: what the executors count, in portions that an interruption keeps; bad input; the command."""

from __future__ import annotations

import argparse
import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.tiny_model import make_tiny_model

from engine.bundle import artefacts
from engine.commands import cli
from engine.config import EngineConfig
from engine.errors import (
    ArtifactMismatchError,
    Cancelled,
    DiskSpaceError,
    EngineError,
    InvalidRequestError,
    UnsupportedModelError,
)
from engine.job import Job
from engine.model.model_artefacts import read_stats
from engine.session.loaded_model import LoadedModel
from engine.sparsity.stats import NeuronStats
from engine.training import calibration, profiler
from engine.training.calibration import write_portion
from engine.training.given_text import text_sequences
from engine.training.profiler import LEAST_TOKENS, profile, published_stats

REFERENCE = EngineConfig(backend="reference")
TEXT = "The ferry left at seven, and half of the passengers slept. " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m"), max_context=128)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return LoadedModel.load(folder, REFERENCE)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (calibration, profiler):
        monkeypatch.setattr(module, "PORTION_TOKENS", 200)


@pytest.fixture
def in_reference_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command without compiled kernels, of which every codec has its own."""

    def load(arguments: argparse.Namespace, cancelled: Any) -> LoadedModel:
        return LoadedModel.load(arguments.model, REFERENCE)

    monkeypatch.setattr("engine.commands.profile.load_model", load)


def counted(model: LoadedModel, sequences: list[list[int]]) -> np.ndarray:
    """What the executor that answers people counts."""
    graph = model.transformer("exact")
    graph.executor.counters.record_per_neuron()
    for sequence in sequences:
        graph.forward(np.array(sequence), model.new_cache(len(sequence)))
    assert graph.executor.counters.per_neuron is not None
    return graph.executor.counters.per_neuron


def test_it_counts_what_the_executor_counts(model: LoadedModel) -> None:
    steps: list[tuple[int, int]] = []
    found = profile(model, TEXT, job=Job(progress=lambda *step: steps.append(step)))
    sequences = text_sequences(model, TEXT)
    tokens = sum(map(len, sequences))
    assert found.stats.tokens == tokens > 600
    # A value that is zero to rounding may fall on either side.
    assert np.abs(found.stats.counts - counted(model, sequences)).sum() <= 2
    assert (found.stats.source, found.stats.text) == ("measured", "given")
    assert steps[-1] == (tokens, tokens)
    assert steps == sorted(steps)
    kept = read_stats(model.opened)
    assert kept is not None
    assert (kept.counts == found.stats.counts).all()
    assert (kept.corpus, kept.text, kept.model) == (found.stats.corpus, "given", model.opened.fingerprint)
    assert found.file == artefacts.artefact_folder(model.opened) / "neuron_stats.json"


def test_without_a_text_the_model_writes_one(model: LoadedModel) -> None:
    steps: list[tuple[int, int]] = []
    found = profile(model, tokens=500, job=Job(progress=lambda *step: steps.append(step)))
    assert (found.stats.tokens, found.stats.text) == (500, "self-written")
    portions = (write_portion(model, number, size=size) for number, size in enumerate((200, 200, 100)))
    texts = [text for portion in portions for of_kind in portion.values() for text in of_kind]
    assert np.abs(found.stats.counts - counted(model, texts)).sum() <= 2
    assert steps[-1] == (1000, 1000)
    assert steps == sorted(steps)


@pytest.mark.parametrize(("text", "patience"), [(TEXT, 3), (None, 250)])
def test_an_interruption_changes_nothing(
    model: LoadedModel, own_folders: Path, text: str | None, patience: int
) -> None:
    tokens = 500
    whole = profile(model, text, tokens).stats
    for path in own_folders.rglob("*.npz"):
        path.unlink()
    assert not list(own_folders.rglob("*.part"))
    stopped = 0
    for limit in range(20):
        asked = 0

        def cancelled(limit: int = limit) -> bool:
            nonlocal asked
            asked += 1
            return asked > patience * (1 + limit / 10)

        try:
            again = profile(model, text, tokens, job=Job(cancelled)).stats
            break
        except Cancelled:
            stopped += 1
    assert stopped
    assert (again.counts == whole.counts).all()
    assert (again.tokens, again.corpus) == (whole.tokens, whole.corpus)
    assert not list(own_folders.rglob("profiles/*"))


def test_cancelled_leaves_the_older_statistics(model: LoadedModel) -> None:
    before = profile(model, TEXT, 100)
    with pytest.raises(Cancelled):
        profile(model, TEXT, 150, job=Job(lambda: True))
    kept = read_stats(model.opened)
    assert kept is not None
    assert kept.tokens == 100
    assert {path.name for path in before.file.parent.iterdir()} == {"neuron_stats.json", "neuron_stats.safetensors"}


@pytest.mark.parametrize("damage", [b"", b"nothing", None])
def test_kept_counts_are_not_trusted(model: LoadedModel, own_folders: Path, damage: bytes | None) -> None:
    asked = 0

    def later() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with pytest.raises(Cancelled):
        profile(model, TEXT, 500, job=Job(later))
    (kept,) = own_folders.rglob("profiles/*")
    if damage is None:
        np.savez(kept, counts=np.full((2, 64), 10**6), digests=np.array(["x"]))
    else:
        kept.write_bytes(damage)
    resumed = profile(model, TEXT, 500).stats
    assert (resumed.counts == profile(model, TEXT, 500).stats.counts).all()


# --- what cannot be counted


def test_too_short_a_text_is_refused(model: LoadedModel) -> None:
    with pytest.raises(InvalidRequestError, match=rf"\d tokens.* {LEAST_TOKENS}"):
        profile(model, "Hello!")
    with pytest.raises(InvalidRequestError, match="63 tokens"):
        profile(model, TEXT, 63)


def test_a_model_without_zeros_is_refused(tmp_path: Path) -> None:
    silu = LoadedModel.load(make_tiny_model(tmp_path / "silu", activation="silu"), REFERENCE)
    with pytest.raises(UnsupportedModelError, match="makes no zeros"):
        profile(silu, TEXT)


def test_statistics_of_another_model_are_refused(model: LoadedModel, tmp_path: Path) -> None:
    found = profile(model, TEXT, 100)
    other = LoadedModel.load(make_tiny_model(tmp_path / "m", seed=5, max_context=128), REFERENCE)
    theirs = artefacts.artefact_folder(other.opened)
    theirs.mkdir(parents=True)
    for path in found.file.parent.iterdir():
        (theirs / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ArtifactMismatchError, match="another model"):
        read_stats(other.opened)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, DiskSpaceError), (errno.EACCES, InvalidRequestError)])
def test_where_nothing_can_be_written_is_seen_before_the_work(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[EngineError]
) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    asked: list[int] = []
    with pytest.raises(kind):
        profile(model, TEXT, job=Job(progress=lambda done, total: asked.append(done)))
    assert not asked
    assert not list(artefacts.artefact_folder(model.opened).iterdir())


def test_a_disk_that_fills_up_leaves_nothing_half_written(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.sparsity import artifact_files

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(artifact_files, "_flush", full)
        with pytest.raises(DiskSpaceError):
            profile(model, TEXT)
    assert not list(artefacts.artefact_folder(model.opened).iterdir())
    assert profile(model, TEXT).stats.tokens


# --- experts, bundles, published statistics


def test_experts_are_counted_one_after_another(tmp_path: Path) -> None:
    model = LoadedModel.load(make_tiny_mixtral(tmp_path / "m.gguf"), REFERENCE)
    found = profile(model, TEXT, 100)
    config = model.opened.config
    assert found.stats.counts.shape == (config.n_layers, config.n_experts * config.d_ff)
    assert np.abs(found.stats.counts - counted(model, text_sequences(model, TEXT, 100))).sum() <= 2
    kept = read_stats(model.opened)
    assert kept is not None
    assert kept.counts.shape == found.stats.counts.shape


@pytest.mark.usefixtures("in_reference_form")
def test_a_bundle_keeps_its_own(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from engine.conversion.convert import convert

    bundle = convert(folder, tmp_path / "bundle", "f16").bundle
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    assert cli.main(["profile", str(bundle), "--text", str(text), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert Path(values["file"]) == bundle / "artefacts" / "neuron_stats.json"
    assert cli.main(["inspect", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["has_stats"] is True


def publish(folder: Path, counts: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    (folder / "activation").mkdir()
    for i, layer in enumerate(counts):
        torch.save(torch.from_numpy(layer), folder / "activation" / f"activation_{i}.pt")


@pytest.mark.usefixtures("in_reference_form")
def test_published_statistics_are_read_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_tiny_model(tmp_path / "m", max_context=128)
    counts = np.arange(128).reshape(2, 64)
    publish(folder, counts)
    assert cli.main(["profile", str(folder), "--json"]) == 0
    out = capsys.readouterr()
    values = json.loads(out.out)
    assert (values["tokens"], values["source"], values["fired_share"]) == (None, "shipped", None)
    assert "come with" in out.err
    wanted = NeuronStats(counts, None, "shipped", "").coverage(0.8)
    assert [layer["neurons_for_80_percent"] for layer in values["layers"]] == wanted.per_layer.tolist()
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    assert cli.main(["profile", str(folder), "--text", str(text), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "measured"
    # What was counted here is nobody's publication: the next time it is counted again.
    assert published_stats(LoadedModel.load(folder, REFERENCE).opened) is None


# --- the command


@pytest.mark.usefixtures("in_reference_form")
def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "locality.svg"
    assert cli.main(["profile", str(folder), "--tokens", "300", "--plot", str(plot), "--json"]) == 0
    out = capsys.readouterr()
    values = json.loads(out.out)
    assert values["tokens"] == 300
    assert len(values["layers"]) == 2
    assert all(0 < layer["fired_share"] < 1 and 0 < layer["neurons_for_80_percent"] < 64 for layer in values["layers"])
    assert Path(values["file"]).is_file()
    assert plot.read_text(encoding="utf-8").startswith("<?xml")
    assert cli.main(["profile", str(folder), "--tokens", "300"]) == 0
    words = capsys.readouterr().out
    assert "80%" in words
    assert values["file"] in words


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--plot", "curves.pdf"], "supported: .png and .svg"),
        (["--plot", "/no/such/folder/a.png"], "no folder"),
        (["--text", "/no/such/file.txt"], "cannot be read"),
        (["--tokens", "3"], "at least 64"),
    ],
)
def test_the_command_refuses(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    assert cli.main(["profile", str(folder), *flags, "--json"]) == 1
    out = capsys.readouterr()
    assert out.out == ""
    assert words in out.err
