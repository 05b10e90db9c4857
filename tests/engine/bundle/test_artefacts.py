"""Artefacts of a model: written, found and read again in bundles and by fingerprint; which counts; what is refused."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import needs_links

from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle
from engine.commands import cli
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import (
    ArtifactMismatchError,
    Cancelled,
    DiskSpaceError,
    HostMemoryError,
    ModelFormatError,
    ModelNotFoundError,
)
from engine.loading.modes import predictor_ram, read_predictors
from engine.model.kv_cache import KVCache
from engine.model.model_artefacts import predictor_place, predictor_sizes, read_predictor, read_stats
from engine.model.model_files import OpenedModel, open_model
from engine.model.weights import MARGIN_BYTES
from engine.session.loaded_model import LoadedModel
from engine.sparsity.artifact_files import save_artifact
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from engine.sparsity.stats import NeuronStats
from native_kernels.backend import PackedMatrix

D, F = 32, 64


def predictor(codec: str = "f16", rank: int = 32, seed: int = 0, d_ff: int = F) -> Predictor:
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> PackedMatrix:
        return PackedMatrix.pack(rng.standard_normal(shape).astype(np.float32), codec)

    parts = [LowRank(matrix(rank, D), matrix(d_ff, rank), threshold=0.1 * i) for i in range(2)]
    return Predictor(tuple(LayerPredictor(part, input="residual") for part in parts))


def stats(seed: int = 0, shape: tuple[int, int] = (2, F)) -> NeuronStats:
    return NeuronStats(np.random.default_rng(seed).integers(0, 100, shape), 100, "measured", "a text")


def make_bundle(folder: Path) -> Path:
    return convert(make_tiny_model(folder / "model"), folder / "bundle", "f16").bundle


MAKERS: dict[str, Callable[[Path], Path]] = {
    "safetensors": lambda folder: make_tiny_model(folder / "model"),
    "gguf": lambda folder: make_tiny_gguf(folder / "m.gguf"),
    "bundle": make_bundle,
}


@pytest.fixture(params=list(MAKERS))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MAKERS[request.param](tmp_path)


def load(path: Path, mode: Any = "auto", backend: Any = "auto") -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(mode=mode, threads=1, context=64, backend=backend))


def inspected(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- written, found, read again


@pytest.mark.parametrize("codec", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_predictors_are_found_again_bit_by_bit(tmp_path: Path, codec: str) -> None:
    opened = open_model(make_bundle(tmp_path))
    made = predictor(codec)
    head = artefacts.save_predictor(opened, made)
    assert head == opened.files.path / "artefacts" / "predictor.json"
    again = artefacts.load_predictor(open_model(opened.files.path), as_stored=True)
    for mine, theirs in zip(made.layers, again.layers, strict=True):
        assert theirs.low_rank.a.codec == theirs.low_rank.b.codec == codec
        np.testing.assert_array_equal(mine.low_rank.a.data, theirs.low_rank.a.data)
        np.testing.assert_array_equal(mine.low_rank.b.data, theirs.low_rank.b.data)
        assert mine.low_rank.threshold == theirs.low_rank.threshold
    sizes = predictor_sizes(opened)
    assert sizes.stored == made.n_bytes
    assert sizes.unpacked == (0 if codec in ("f32", "f16") else 4 * 2 * 32 * (D + F))
    unpacked = artefacts.load_predictor(opened)
    assert unpacked.layers[0].low_rank.a.codec == (codec if codec in ("f32", "f16") else "f32")
    assert unpacked.n_bytes == (sizes.unpacked or sizes.stored)


def test_every_kind_of_model_finds_what_was_made_of_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = open_model(path)
    assert (opened.has_predictors, opened.has_stats, opened.has_placement) == (False,) * 3
    assert read_stats(opened) is None
    counts = stats()
    artefacts.save_stats(opened, counts)
    artefacts.save_predictor(opened, predictor())
    artefacts.save_predictor(opened, predictor(seed=1))  # in place of the older one
    for found in (opened, open_model(path)):
        assert (found.has_predictors, found.has_stats, found.has_placement) == (True, True, False)
        assert predictor_place(found) == "artefact"
        np.testing.assert_array_equal(read_stats(found).counts, counts.counts)  # type: ignore[union-attr]
        first = read_predictor(found, as_stored=True).layers[0].low_rank.a.data
        np.testing.assert_array_equal(first, predictor(seed=1).layers[0].low_rank.a.data)
        assert artefacts.load_stats(found).model == found.fingerprint
    values = inspected(path, capsys)
    assert (values["has_predictors"], values["has_stats"], values["has_placement"]) == (True, True, False)
    assert cli.main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count(str(artefacts.artefact_folder(opened))) == 2, "predictors and activation counts"
    assert load(path, "sparse").mode == "sparse"


def test_a_bundle_lists_its_artefacts_and_takes_them_along(tmp_path: Path, own_folders: Path) -> None:
    path = make_bundle(tmp_path)
    opened = open_model(path)
    artefacts.save_stats(opened, stats())
    artefacts.save_predictor(opened, predictor())
    manifest = open_bundle(path).manifest
    assert manifest.artefacts.keys() == {"statistics", "predictors"}
    entry = manifest.artefacts["predictors"]
    assert entry.files == ("artefacts/predictor.json", "artefacts/predictor.safetensors")
    assert (entry.schema_version, entry.fingerprint) == (2, manifest.fingerprint)
    moved = Path(shutil.move(path, tmp_path / "elsewhere"))
    assert load(moved, "sparse").mode == "sparse"
    assert not (own_folders / "data" / "Hearth" / "artefacts").exists()


def test_opening_does_not_fingerprint_where_nothing_was_ever_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(opened: OpenedModel) -> str:
        raise AssertionError("this reads both ends of each tensor")

    monkeypatch.setattr(artefacts, "fingerprint", never)
    assert not open_model(make_tiny_model(tmp_path / "m")).has_predictors


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs folders that cannot be read")
def test_a_folder_of_artefacts_that_cannot_be_read(tmp_path: Path, own_folders: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    closed = own_folders / "data" / "Hearth" / "artefacts"
    closed.mkdir(parents=True, mode=0o000)
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        artefacts.find(opened, "predictors")


# --- which one counts


def test_an_artefact_counts_before_the_files_own_and_those_before_a_folder(tmp_path: Path) -> None:
    path = make_tiny_powerinfer(tmp_path / "m.gguf", rank=8)
    (tmp_path / "predictors").mkdir()
    for i in range(2):
        state = {"fc1.weight": torch.ones(3, D), "fc2.weight": torch.ones(F, 3)}
        torch.save(state, tmp_path / "predictors" / f"model_{i}.pt")
    opened = open_model(path)
    assert predictor_place(opened) == "file"
    assert [part.rank for part in read_predictors(opened).layers] == [8, 16]
    artefacts.save_predictor(opened, predictor(rank=5))
    assert predictor_place(opened) == "artefact"
    assert [part.rank for part in read_predictors(opened).layers] == [5, 5]
    folder = make_tiny_model(tmp_path / "hf")
    shutil.copytree(tmp_path / "predictors", folder / "predictors")
    assert predictor_place(open_model(folder)) == "folder"
    assert [part.rank for part in read_predictors(open_model(folder)).layers] == [3, 3]


def test_counts_made_here_count_before_the_publishers(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / "activation").mkdir()
    for i in range(2):
        torch.save(torch.full((F,), 10 + i), folder / "activation" / f"activation_{i}.pt")
    opened = open_model(folder)
    shipped = read_stats(opened)
    assert shipped is not None
    assert (shipped.source, shipped.counts[1, 0]) == ("shipped", 11)
    artefacts.save_stats(opened, stats())
    assert read_stats(open_model(folder)).source == "measured"  # type: ignore[union-attr]


# --- what is refused


def refused_in_sparse_and_done_without_in_auto(path: Path, words: str) -> None:
    with pytest.raises((ArtifactMismatchError, ModelFormatError), match=words):
        load(path, "sparse")
    model = load(path)
    assert model.mode == "exact"
    assert "predictors" in model.mode_reason


def test_another_models_artefact_is_never_misread(path: Path, tmp_path: Path) -> None:
    opened = open_model(path)
    artefacts.save_predictor(opened, predictor())
    artefacts.save_stats(opened, stats())
    for name in ("predictor", "neuron_stats"):
        head = artefacts.artefact_folder(opened) / f"{name}.json"
        head.write_text(json.dumps(json.loads(head.read_text()) | {"model": "0" * 64}))
    if opened.format != "bundle":
        refused_in_sparse_and_done_without_in_auto(path, "another model")
        with pytest.raises(ArtifactMismatchError, match="another model"):
            read_stats(open_model(path))
        return
    refused_in_sparse_and_done_without_in_auto(path, "not the (file|size)|has \\d+ bytes")
    manifest = json.loads((path / "manifest.json").read_text())
    for entry in manifest["artefacts"].values():
        entry["fingerprint"] = "0" * 64
    (path / "manifest.json").write_text(json.dumps(manifest))
    refused_in_sparse_and_done_without_in_auto(path, "another model")


def test_what_was_made_for_another_activation_is_refused(path: Path, tmp_path: Path, capsys: Any) -> None:
    asked = open_model(path, "fatrelu:0.01")
    artefacts.save_predictor(asked, predictor())
    artefacts.save_stats(asked, stats())
    for made in (read_predictor(asked, as_stored=True), read_stats(asked)):
        assert made is not None
        assert made.activation == "fatrelu-glu:0.01"
    other = open_model(path)
    for read in (lambda: read_predictor(other, True), lambda: predictor_sizes(other), lambda: read_stats(other)):
        with pytest.raises(ArtifactMismatchError, match=r"fatrelu-glu:0\.01.* relu-glu"):
            read()
    with pytest.raises(ArtifactMismatchError, match="fatrelu-glu:0"):
        load(path, "sparse")
    assert "fatrelu-glu:0.01" in load(path).mode_reason
    engine = EngineConfig(mode="sparse", threads=1, context=64, activation="fatrelu:0.01")
    assert LoadedModel.load(path, engine).mode == "sparse"
    assert cli.main(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.count("fatrelu-glu:0.01") == 2

    left = convert(path, tmp_path / "left", "f16")
    assert len(left.warnings) == 2
    assert "predictors" in left.warnings[0]
    assert "statistics" in left.warnings[1]
    taken = convert(path, tmp_path / "taken", "f16", activation="fatrelu:0.01").bundle
    assert read_predictor(open_model(taken), as_stored=True).activation == "fatrelu-glu:0.01"
    with pytest.raises(ArtifactMismatchError, match="relu-glu"):
        read_stats(open_model(taken, "relu"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "predictor.safetensors").unlink(), "no file|lacks its file"),
        (lambda folder: os.truncate(folder / "predictor.safetensors", 100), "sound safetensors|has 100 bytes"),
        (lambda folder: _flip(folder / "predictor.safetensors"), "predictor.json"),
        (lambda folder: (folder / "predictor.json").write_text("{"), "JSON|has 1 bytes"),
        (
            lambda folder: (folder / "predictor.json").write_text('{"schema_version": 4}'),
            "version 4|has 21 bytes",
        ),
    ],
)
def test_damage_is_noticed_and_the_model_still_runs(path: Path, damage: Callable[[Path], Any], words: str) -> None:
    opened = open_model(path)
    artefacts.save_predictor(opened, predictor())
    damage(artefacts.artefact_folder(opened))
    refused_in_sparse_and_done_without_in_auto(path, words)
    artefacts.save_predictor(open_model(path), predictor())  # made again
    assert load(path, "sparse").mode == "sparse"


def test_files_that_a_bundle_does_not_list_are_not_read(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    artefacts.save_stats(open_model(path), stats())
    predictor().save(path / "artefacts")
    assert not open_model(path).has_predictors
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["artefacts"]["predictors"] = manifest["artefacts"]["statistics"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    refused_in_sparse_and_done_without_in_auto(path, "in other files")


@needs_links
def test_a_link_in_place_of_an_artefact_is_refused(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    artefacts.save_predictor(open_model(path), predictor())
    numbers = path / "artefacts" / "predictor.safetensors"
    numbers.rename(tmp_path / "elsewhere")
    numbers.symlink_to(tmp_path / "elsewhere")
    refused_in_sparse_and_done_without_in_auto(path, "lacks its file")


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_artefacts_of_another_shape_are_not_kept(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    with pytest.raises(ArtifactMismatchError, match=r"96 .*\b2 layers"):
        artefacts.save_predictor(opened, predictor(d_ff=96))
    with pytest.raises(ArtifactMismatchError, match=r"\b3 .*\b2 layers"):
        artefacts.save_stats(opened, stats(shape=(3, F)))
    assert not artefacts.artefact_folder(opened).exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a_codec": "q4_1"}, r"0\.a .*\[32, 18\].*q4_1"),
        ({"a_codec": "f16"}, "'f16'.*codec"),
        ({"b_codec": ["q4_0"]}, "codec"),
        ({"a_codec": None}, "codec|stored as U8"),
    ],
)
def test_packed_matrices_that_lie(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    head = predictor("q4_0").save(tmp_path)
    values = json.loads(head.read_text())
    values["layers"][0] |= change
    head.write_text(json.dumps(values))
    with pytest.raises(Exception, match=words) as caught:
        Predictor.load(tmp_path)
    assert type(caught.value).__name__ in ("ModelFormatError", "UnsupportedModelError")


# --- memory and disks


def test_writing_takes_no_copy_of_the_tensors_and_can_be_stopped(tmp_path: Path) -> None:
    large = np.memmap(tmp_path / "zeros", np.float32, "w+", shape=(1 << 14, 1 << 10))  # 64 MiB
    seen: list[int] = []
    tracemalloc.start()
    save_artifact(tmp_path / "a", "x", 1, {}, {"large": large, "small": np.ones(3, np.float16)}, seen.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20
    assert seen[-1] == large.nbytes + 6
    with pytest.raises(Cancelled):
        save_artifact(tmp_path / "b", "x", 1, {}, {"large": large}, cancelled=lambda: len(seen) > 0)
    assert not (tmp_path / "b" / "x.json").exists()


def test_a_full_disk_is_a_failure_of_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DiskSpaceError, match="accepted no more"):
        predictor().save(tmp_path)


@dataclasses.dataclass(frozen=True)
class Kept:
    """save: keeps the artefact of that number as the model's own. number: of the one that is kept."""

    save: Callable[[OpenedModel, int], object]
    number: Callable[[OpenedModel], object]


KEPT = {
    "statistics": Kept(
        lambda opened, number: artefacts.save_stats(opened, NeuronStats(np.full((2, F), number), 100, "measured", "")),
        lambda opened: artefacts.load_stats(opened).counts[0, 0],
    ),
    "predictors": Kept(
        lambda opened, number: artefacts.save_predictor(
            opened, dataclasses.replace(predictor(seed=number), text=str(number))
        ),
        lambda opened: int(artefacts.load_predictor(opened).text or ""),
    ),
}


@pytest.mark.parametrize("kind", list(KEPT))
@pytest.mark.parametrize("from_then_on", [True, False], ids=["full", "once"])
def test_what_replaces_an_artefact_fails_at_any_step_and_the_old_or_the_new_is_left(
    path: Path, kind: str, from_then_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes nothing from some step on; other failures, as of a file that is held open, come once."""
    steps = ("fsync",) if from_then_on else ("fsync", "replace", "unlink", "rename")
    kept = KEPT[kind]
    failing, failed, refused = 0, True, set()
    while failed:
        failing += 1
        kept.save(open_model(path), 1)
        opened, taken = open_model(path), 0

        def failing_step(real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*arguments: Any) -> Any:
                nonlocal taken
                taken += 1
                if taken == failing or (from_then_on and taken > failing):  # noqa: B023 - called within the round
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(*arguments)

            return step

        with monkeypatch.context() as patch:
            for name in steps:
                patch.setattr(os, name, failing_step(getattr(os, name)))
            try:
                kept.save(opened, 2)
                left = {2}
            except DiskSpaceError:
                left = {1, 2}
                refused.add(failing)
        failed = taken >= failing
        assert kept.number(opened) in left, f"step {failing}, in the same process"
        assert kept.number(open_model(path)) in left, f"step {failing}"
    assert len(refused) >= 2
    kept.save(open_model(path), 3)
    assert kept.number(open_model(path)) == 3
    assert sorted(file.name for file in artefacts.artefact_folder(opened).iterdir()) == sorted(
        artefacts.file_names(kind)  # type: ignore[arg-type]
    )


def test_what_a_death_left_of_a_replacing_is_finished_only_where_it_was_decided(path: Path) -> None:
    """Files that were written whole and decided by nothing are not taken: who wrote them may still be at it."""
    opened = open_model(path)
    artefacts.save_stats(opened, stats())
    folder = artefacts.artefact_folder(opened)
    other = dataclasses.replace(stats(seed=1), model=opened.fingerprint).save(folder.parent / "other").parent
    for name in artefacts.file_names("statistics"):
        shutil.copy(other / name, folder / f"{name}.part")
    for found in (opened, open_model(path)):
        assert (artefacts.load_stats(found).counts == stats().counts).all()
    assert len(list(folder.glob("*.part"))) == 2
    artefacts.save_stats(open_model(path), stats(seed=2))
    assert (artefacts.load_stats(open_model(path)).counts == stats(seed=2).counts).all()
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
def test_pytorch_predictors_stay_in_their_files(tmp_path: Path, dtype: torch.dtype, monkeypatch: Any) -> None:
    folder = make_tiny_model(tmp_path / "m")
    states = []
    for i in range(2):
        torch.manual_seed(i)
        states.append({"fc1.weight": torch.randn(8, D).to(dtype), "fc2.weight": torch.randn(F, 8).to(dtype)})
        torch.save(states[i], folder / f"model_{i}.pt")
    opened = open_model(folder)
    sizes = predictor_sizes(opened)
    n_values = 2 * 8 * (D + F)
    assert (sizes.stored, sizes.copied) == (n_values * dtype.itemsize, 0)
    assert sizes.unpacked == (4 * n_values if dtype is torch.bfloat16 else 0)
    monkeypatch.setattr("engine.loading.modes._fits_in_ram", lambda n_bytes: n_bytes == 0)
    found = read_predictors(opened)
    assert found.n_bytes == sizes.stored  # packed in the file, not unpacked in the RAM
    x = np.random.default_rng(0).standard_normal((3, D)).astype(np.float32)
    for i, state in enumerate(states):
        fc1, fc2 = (state[name].float().numpy() for name in ("fc1.weight", "fc2.weight"))
        np.testing.assert_allclose(
            found.layers[i].low_rank.scores(x, found.operators), np.maximum(x @ fc1.T, 0) @ fc2.T, atol=1e-4
        )


def test_predictors_that_must_be_copied_are_refused_where_they_do_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    folder = make_tiny_model(tmp_path / "m")
    for i in range(2):
        state = {"fc1.weight": torch.randn(D, 8).T, "fc2.weight": torch.randn(F, 8)}
        torch.save(state, folder / f"model_{i}.pt")
    opened = open_model(folder)
    assert predictor_sizes(opened).copied == 2 * 4 * 8 * D
    assert read_predictors(opened).layers[0].rank == 8
    monkeypatch.setattr("engine.loading.modes._fits_in_ram", lambda n_bytes: n_bytes == 0)
    with pytest.raises(HostMemoryError, match=rf"The predictors of {folder.name} .* 0\.00 GiB"):
        read_predictors(opened)


@pytest.mark.parametrize(("mode", "counted"), [("sparse", True), ("auto", True), ("exact", False), ("dense", False)])
def test_predictors_count_before_the_weights_are_read(
    tmp_path: Path, mode: str, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_powerinfer(tmp_path / "m.gguf", rank=8)
    opened = open_model(path)
    own = predictor_sizes(opened).stored
    assert own == 2 * (8 + 16) * (D + F)
    largest = opened.config.vocab_size * opened.config.d_model
    need = opened.parameters * 4 + 8 * largest + MARGIN_BYTES + KVCache.bytes_for(opened.config, 64)

    def hold(free: int) -> str:
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=free, available=free))
        return load(path, mode, "reference").weights.hold  # kernels leave all weights in the file

    assert hold(need + own) == "f32"
    assert hold(need + own - 1) == ("f16" if counted else "f32")


def test_predictors_that_must_be_copied_are_asked_for_with_the_weights(tmp_path: Path, monkeypatch: Any) -> None:
    folder = make_tiny_model(tmp_path / "m")
    for i in range(2):
        torch.save({"fc1.weight": torch.randn(D, 8).T, "fc2.weight": torch.randn(F, 8)}, folder / f"model_{i}.pt")
    opened = open_model(folder)
    assert predictor_ram(opened, "sparse") == (2 * 4 * 8 * D, 2 * 4 * 8 * (D + F))
    assert predictor_ram(opened, "auto") == (0, 2 * 4 * 8 * D + 2 * 4 * 8 * (D + F))
    (folder / "model_0.pt").write_bytes(b"PK")
    assert predictor_ram(opened, "auto") == (0, 0)

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("it is refused before gigabytes are read")

    monkeypatch.setattr("engine.session.load_stages.load_weights", never)
    with pytest.raises(ModelFormatError, match=r"model_0\.pt"):
        load(folder, "sparse")


def test_large_metadata_are_named_by_all_of_their_values(tmp_path: Path) -> None:
    """NumPy would show a long array by its ends only."""
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    numbers = np.zeros(5000)
    names = set()
    for at in (0, 2500):
        numbers = np.zeros(5000)
        numbers[at] = 1
        names.add(artefacts.fingerprint(dataclasses.replace(opened, metadata={"scores": numbers})))
    assert len(names) == 2


# --- what comes with a model that is not a bundle


def test_artefacts_beside_a_model_are_its_own_where_they_name_it(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    beside = tmp_path / "m" / "artefacts"
    dataclasses.replace(stats(), model=opened.fingerprint).save(beside)
    found = artefacts.load_stats(opened)
    assert (found.source, found.tokens) == ("shipped", 100)
    assert opened.has_stats
    assert artefacts.find(opened, "predictors") is None
    artefacts.save_stats(opened, stats(seed=1))  # what is made here counts before it
    own = artefacts.load_stats(opened)
    assert own.source == "measured"
    assert (own.counts == stats(seed=1).counts).all()
    assert (NeuronStats.load(beside).counts == stats().counts).all()


def test_artefacts_beside_a_file_may_be_of_its_neighbour(tmp_path: Path) -> None:
    mine, neighbour = (make_tiny_gguf(tmp_path / f"{seed}.gguf", seed=seed) for seed in (0, 1))
    beside = tmp_path / "artefacts"
    dataclasses.replace(stats(), model=open_model(mine).fingerprint).save(beside)
    assert read_stats(open_model(mine)) is not None
    assert not open_model(neighbour).has_stats
    assert read_stats(open_model(neighbour)) is None


def test_a_damaged_head_beside_a_model_is_told_when_it_is_used_and_not_before(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    (tmp_path / "m" / "artefacts").mkdir()
    (tmp_path / "m" / "artefacts" / "neuron_stats.json").write_text("{")
    assert opened.has_stats
    with pytest.raises(ModelFormatError):
        read_stats(opened)


def test_the_starter_model_brings_its_counts() -> None:
    from engine.assets import starter_model

    found = read_stats(open_model(starter_model()))
    assert found is not None
    assert (found.source, found.text, found.tokens) == ("shipped", "self-written", 32768)
    assert found.fired_share is not None
    assert 0.05 < found.fired_share.mean() < 0.1
