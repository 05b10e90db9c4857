"""Predictors and statistics on their way into a bundle: the same decisions, interruptions, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples.predictors import with_threshold as layer_at
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_model
from support.systems import ON_WINDOWS

from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle, verify
from engine.commands import cli
from engine.config import EngineConfig, SamplingConfig
from engine.conversion import convert as convert_module
from engine.conversion.convert import convert
from engine.errors import Cancelled, DiskSpaceError
from engine.evaluation.evaluate import last_logits
from engine.job import Job
from engine.loading.modes import read_predictors
from engine.model.model_artefacts import predictor_place, read_stats
from engine.model.model_files import open_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import Predictor
from engine.sparsity.stats import NeuronStats
from native_kernels.cpu.runtime import isa

TOKENS = np.random.default_rng(0).integers(6, 256, 24).tolist()


def load(path: Path, mode: Any = "sparse") -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(mode=mode, threads=1))


def tokens(model: LoadedModel, count: int = 24) -> list[int | None]:
    greedy = SamplingConfig(temperature=0, max_tokens=count)
    return [event.token_id for event in ChatSession(model).generate(TOKENS[:10], greedy)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def write_predictors(folder: Path, dtype: torch.dtype = torch.float16, d_ff: int = 64) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(2):
        torch.manual_seed(i)
        state = {
            "fc1.weight": torch.randn(8 + i, 32).to(dtype),
            "fc2.weight": torch.randn(d_ff, 8 + i).to(dtype),
            "fc2.bias": torch.randn(d_ff).to(dtype),
        }
        torch.save(state, folder / f"model_{i}.pt")


def write_counts(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(2):
        torch.save(torch.arange(64) + i, folder / f"activation_{i}.pt")


@pytest.fixture
def powerinfer(tmp_path: Path) -> Path:
    """A PowerInfer file with predictors, and the publisher's counts beside it."""
    (tmp_path / "source").mkdir()
    write_counts(tmp_path / "source" / "activation")
    return make_tiny_powerinfer(tmp_path / "source" / "m.gguf", rank=8)


# --- the same decisions


def test_a_powerinfer_file_becomes_a_bundle_that_answers_the_same_in_sparse_mode(
    powerinfer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = convert(powerinfer, tmp_path / "b", "f16")
    assert made.warnings == ()
    verify(open_bundle(made.bundle))
    source, bundle = open_model(powerinfer), open_model(made.bundle)
    ours, theirs = read_predictors(bundle), read_predictors(source)
    assert (ours.kinds, ours.layers[0].input, ours.model) == (theirs.kinds, "residual", source.fingerprint)
    for mine, original in zip(ours.layers, theirs.layers, strict=True):
        np.testing.assert_array_equal(mine.low_rank.a.data, original.low_rank.a.data)
        np.testing.assert_array_equal(mine.low_rank.b.data, original.low_rank.b.data)
        assert mine.low_rank.threshold == original.low_rank.threshold == 0.25
    entry = bundle.source.manifest.artefacts["predictors"]  # type: ignore[attr-defined]
    assert entry.fingerprint == source.fingerprint == bundle.source.manifest.source.fingerprint  # type: ignore[attr-defined]
    counts = read_stats(bundle)
    assert counts is not None
    assert (counts.source, counts.counts[1].tolist()) == ("shipped", list(range(1, 65)))
    assert (ours.activation, counts.activation) == (None, None)  # the publisher did not say: they fit any
    assert read_predictors(open_model(made.bundle, "fatrelu:0.01")).activation is None
    powerinfer.parent.rename(tmp_path / "gone")  # the bundle needs nothing of its source
    moved = tmp_path / "gone" / "m.gguf"
    assert cli.main(["inspect", str(made.bundle), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["has_predictors"], values["has_stats"], values["has_placement"]) == (True, True, False)
    from_bundle, from_source = load(made.bundle), load(moved)
    np.testing.assert_allclose(
        last_logits(from_bundle, TOKENS, every=True), last_logits(from_source, TOKENS, every=True), atol=3e-2
    )
    # 16-bit weights: the source's are 32-bit ones, rounded. A bundle of the bundle has the very numbers.
    again = convert(made.bundle, tmp_path / "c", "f16").bundle
    assert tokens(load(again)) == tokens(from_bundle)
    np.testing.assert_array_equal(last_logits(load(again), TOKENS), last_logits(from_bundle, TOKENS))


def test_with_weights_that_16_bits_hold_the_tokens_are_the_sources_own(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m", dtype="float16")
    write_predictors(folder / "predictors")
    bundle = convert(folder, tmp_path / "b", "f16").bundle
    theirs, ours = load(folder), load(bundle)
    logits = [last_logits(model, TOKENS, every=True) for model in (ours, theirs)]
    # Where the CPU has tiles of bfloat16, 16-bit weights lose 3 * 2^-16 of each product.
    np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=1e-3 if isa.chosen().name == "amx" else 0)
    assert tokens(ours) == tokens(theirs)
    assert np.abs(last_logits(ours, TOKENS) - last_logits(ours, TOKENS, mode="exact")).max() > 1e-3
    assert load(bundle, "auto").mode == load(folder, "auto").mode


def with_threshold(predictor: Predictor, threshold: float) -> Predictor:
    return replace(predictor, layers=tuple(layer_at(layer, threshold) for layer in predictor.layers))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_predictors_keep_their_codec(tmp_path: Path, dtype: torch.dtype, monkeypatch: Any) -> None:
    folder = make_tiny_model(tmp_path / "m", dtype="float16")
    write_predictors(folder / "predictor", dtype)
    bundle = convert(folder, tmp_path / "b", "q8_0").bundle
    monkeypatch.setattr("engine.loading.modes._fits_in_ram", lambda n_bytes: False)
    ours, theirs = read_predictors(open_model(bundle)), read_predictors(open_model(folder))
    assert (
        ours.layers[0].low_rank.a.codec
        == theirs.layers[0].low_rank.a.codec
        == ("bf16" if dtype is torch.bfloat16 else "f32")
    )
    x = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    np.testing.assert_array_equal(ours.expected(1, x, x).mask, theirs.expected(1, x, x).mask)
    assert ours.layers[1].low_rank.b_bias is not None


def test_what_was_made_of_a_model_goes_along_before_what_came_with_it(powerinfer: Path, tmp_path: Path) -> None:
    source = open_model(powerinfer)
    artefacts.save_predictor(source, with_threshold(read_predictors(source), 0.75))
    measured = NeuronStats(np.full((2, 64), 3), 10, "measured", "a text")
    artefacts.save_stats(source, measured)
    bundle = open_model(convert(powerinfer, tmp_path / "b", "q4_0").bundle)
    assert predictor_place(bundle) == "artefact"
    assert {layer.low_rank.threshold for layer in read_predictors(bundle).layers} == {0.75}
    found = read_stats(bundle)
    assert found is not None
    assert (found.tokens, found.source) == (10, "measured")
    # Trained anew for the bundle itself: that one counts, and goes along to the next bundle.
    artefacts.save_predictor(bundle, with_threshold(read_predictors(bundle), 0.5))
    last = open_model(convert(bundle.files.path, tmp_path / "c", "q4_0").bundle)
    assert {layer.low_rank.threshold for layer in read_predictors(last).layers} == {0.5}


# --- what stays behind


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: write_predictors(folder, d_ff=96), "96 neurons"),
        (lambda folder: (folder / "model_1.pt").write_bytes(b"PK\x03\x04"), "model_1.pt"),
        (lambda folder: (folder / "model_0.pt").unlink(), "model_0.pt"),
    ],
)
def test_predictors_that_cannot_be_used_stay_behind_and_are_named(tmp_path: Path, damage: Any, words: str) -> None:
    folder = make_tiny_model(tmp_path / "m")
    write_predictors(folder / "predictors")
    damage(folder / "predictors")
    made = convert(folder, tmp_path / "b", "f16")
    assert len(made.warnings) == 1
    assert "predictors" in made.warnings[0]
    assert words in made.warnings[0]
    assert open_bundle(made.bundle).manifest.warnings == made.warnings
    assert load(made.bundle, "auto").mode == "exact"
    assert not (made.bundle / "artefacts").exists()


# --- interruptions


def stop_once(what: str, root: Path) -> Any:
    """A wish to stop that comes when that file is there."""
    return lambda: any(root.rglob(what))


@pytest.mark.parametrize("at", ["predictor.safetensors.part", "predictor.json"])
def test_a_conversion_stopped_among_its_artefacts_goes_on(
    powerinfer: Path, tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(convert(powerinfer, tmp_path / "whole", "q8_0").bundle)
    assert {"artefacts/predictor.json", "artefacts/neuron_stats.safetensors"} <= whole.keys()
    if at == "predictor.json":  # nothing asks after the last byte: die while the next artefact is read

        def dies(*arguments: Any) -> None:
            raise Cancelled

        monkeypatch.setattr("engine.conversion.carried_artefacts.read_stats", dies)
    root = tmp_path / "b.partial"
    with pytest.raises(Cancelled):
        convert(powerinfer, tmp_path / "b", "q8_0", job=Job(stop_once(at, root) if "part" in at else lambda: False))
    monkeypatch.undo()
    assert not (tmp_path / "b").exists()
    kept = root / "bundle" / "artefacts" / "predictor.safetensors"
    before = kept.stat().st_ino if kept.exists() else None
    assert (before is None) == ("part" in at)
    made = convert(powerinfer, tmp_path / "b", "q8_0")
    assert made.reused_parts == 4
    assert before in (None, (made.bundle / "artefacts" / "predictor.safetensors").stat().st_ino)
    assert contents(made.bundle) == whole


def test_ended_at_any_flush_to_disk_it_goes_on_to_the_same_bundle(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(convert(powerinfer, tmp_path / "whole", "q8_0").bundle)
    flush, left = os.fsync, 0

    def counted(handle: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        flush(handle)

    for end_at in range(1, 100):
        destination = tmp_path / str(end_at)
        left = end_at
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr("os.fsync", counted)
            convert(powerinfer, destination, "q8_0")
        if left > 0:  # it came through
            break
        if not destination.exists():  # it does at the very last flush, which is of the folder above
            convert(powerinfer, destination, "q8_0")
        assert contents(destination) == whole
    assert (10 if ON_WINDOWS else 20) < end_at < 99  # Windows flushes no folder


def interrupted_behind_the_predictors(source: Path, destination: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def dies(*arguments: Any) -> None:
        raise Cancelled

    with monkeypatch.context() as patch:
        patch.setattr("engine.conversion.convert._finish", dies)
        with pytest.raises(Cancelled):
            convert(source, destination, "q8_0")
    return destination.with_name(destination.name + ".partial") / "bundle" / "artefacts" / "predictor.safetensors"


def test_a_finished_artefact_that_changed_is_written_again(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(convert(powerinfer, tmp_path / "whole", "q8_0").bundle)
    file = interrupted_behind_the_predictors(powerinfer, tmp_path / "b", monkeypatch)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    made = convert(powerinfer, tmp_path / "b", "q8_0")
    assert contents(made.bundle) == whole
    verify(open_bundle(made.bundle))


def test_predictors_trained_meanwhile_take_the_place_of_the_finished_ones(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_behind_the_predictors(powerinfer, tmp_path / "b", monkeypatch)
    source = open_model(powerinfer)
    artefacts.save_predictor(source, with_threshold(read_predictors(source), 0.75))
    made = convert(powerinfer, tmp_path / "b", "q8_0")
    assert made.reused_parts == 4
    assert {layer.low_rank.threshold for layer in read_predictors(open_model(made.bundle)).layers} == {0.75}


def test_progress_counts_finished_files_while_they_are_verified_and_never_goes_back(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted_behind_the_predictors(powerinfer, tmp_path / "b", monkeypatch)
    weights = file.parent.parent / "layer-0001.bin"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    monkeypatch.setattr("engine.bundle.bundle._HASH_CHUNK_BYTES", 1 << 10)
    seen: list[tuple[int, int]] = []
    made = convert(powerinfer, tmp_path / "b", "q8_0", Job(progress=lambda done, total: seen.append((done, total))))
    assert made.reused_parts == 3
    done = [now for now, _ in seen]
    assert done == sorted(set(done))
    assert len(done) > 30  # pieces of files, not files
    total = sum(open_model(powerinfer).codecs.values()) + 8 * 2 * 64
    assert seen[-1] == (total, total)


def test_stopping_while_finished_files_are_verified(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted_behind_the_predictors(powerinfer, tmp_path / "b", monkeypatch)
    before = contents(file.parent.parent)
    with pytest.raises(Cancelled):
        convert(powerinfer, tmp_path / "b", "q8_0", job=Job(lambda: True))
    assert contents(file.parent.parent) == before


def test_artefacts_count_when_the_disk_is_looked_at(
    powerinfer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_model(powerinfer)
    predictors, counts = convert_module.plan_carried(opened)
    assert (predictors.n_bytes, counts.n_bytes) == (2 * (8 + 16) * (32 + 64), 8 * 2 * 64)
    need = convert_module.plan_layout(opened, "f16").n_bytes + predictors.n_bytes + counts.n_bytes
    monkeypatch.setattr(convert_module, "DISK_MARGIN_BYTES", 10)
    monkeypatch.setattr(convert_module, "_side_bytes", lambda opened: 0)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=need + 9))
    with pytest.raises(DiskSpaceError):
        convert(powerinfer, tmp_path / "b", "f16")
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=need + 10))
    convert(powerinfer, tmp_path / "b", "f16")


def test_a_source_bundle_whose_artefact_is_another_models_leaves_it_behind(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m", dtype="float16")
    write_predictors(folder / "predictors")
    bundle = convert(folder, tmp_path / "b", "f16").bundle
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["artefacts"]["predictors"]["fingerprint"] = "0" * 64
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    made = convert(bundle, tmp_path / "c", "f16")
    assert "predictors" in made.warnings[0]
    assert "another model" in made.warnings[0]
