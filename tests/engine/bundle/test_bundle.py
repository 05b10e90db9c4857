"""Opened bundles: views where the weights lie, the source's logits and text, hashes, artefacts, inspect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.bundle.artefacts import artefact_folder, fingerprint
from engine.bundle.bundle import Bundle, BundleSource, add_artefact, check_artefact, open_bundle, verify
from engine.commands import cli
from engine.conversion.convert import convert
from engine.errors import ArtifactMismatchError, Cancelled, ModelFormatError
from engine.evaluation.evaluate import perplexity
from engine.executor.dense import DenseExecutor
from engine.job import Job
from engine.loading.opening import read_tokenizer
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.session.loaded_model import LoadedModel
from native_kernels.codecs.lane_packing import row_bytes
from native_kernels.reference import ReferenceOperators

DATA = Path(__file__).parents[2] / "data" / "starter-chat"
FINE = {"f16": 1e-3, "q8_0": 0.03, "q4_0": 0.4}  # of the largest logit of a tiny random model


def logits(path: Path) -> np.ndarray:
    opened = open_model(path)
    loaded, ops = load_weights(opened), ReferenceOperators()
    model = Transformer(opened.config, loaded, DenseExecutor(opened.config, loaded, ops), ops)
    return model.logits(model.forward(np.arange(12, dtype=np.int64) * 7, KVCache(opened.config, 16)))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model", tied=False, dtype="float16", d_ff=96)


@pytest.fixture(scope="module", params=["f16", "q8_0", "q4_0"])
def bundle(tiny: Path, request: pytest.FixtureRequest) -> Bundle:
    return open_bundle(convert(tiny, tiny.parent / request.param, request.param).bundle)


def test_a_bundle_opens_and_gives_its_sources_logits(tiny: Path, bundle: Bundle) -> None:
    opened, source = open_model(bundle.path), open_model(tiny)
    assert (opened.format, opened.config, opened.parameters) == ("bundle", source.config, source.parameters)
    assert (opened.name, opened.sampling) == (source.name, source.sampling)
    assert set(opened.codecs) == {bundle.manifest.codec, "f32"}
    expected = logits(tiny)
    difference = np.abs(logits(bundle.path) - expected).max() / np.abs(expected).max()
    assert difference < FINE[bundle.manifest.codec]
    assert (difference == 0) == (bundle.manifest.codec == "f16")
    tokenizer = read_tokenizer(opened)
    assert tokenizer.encode("hello the inn") == read_tokenizer(source).encode("hello the inn")
    assert tokenizer.chat_template == read_tokenizer(source).chat_template


def test_one_gather_brings_a_whole_neuron(tiny: Path, bundle: Bundle) -> None:
    rows, manifest = bundle.source.neurons(1), bundle.manifest
    assert rows.shape[0] == 96
    assert rows.strides[0] % 64 == rows.ctypes.data % 64 == 0
    at = 0
    for part in ("gate", "up", "down_t"):
        entry = manifest.tensors[f"1.{part}"]
        assert (entry.shape, entry.row_stride, entry.offset % 64) == ((96, 32), rows.shape[1], 0)
        n_bytes = row_bytes(entry.codec, 32)
        np.testing.assert_array_equal(rows[:, at : at + n_bytes], bundle.source.rows(f"1.{part}"))
        assert not rows[:, at + n_bytes : at + 64].any()
        at += 64
    assert at == rows.shape[1]
    gate = open_model(tiny).source.read_f32("model.layers.1.mlp.gate_proj.weight")
    np.testing.assert_allclose(bundle.source.read_f32("1.gate"), gate, atol=0.1)


def test_views_are_not_copied_and_cannot_be_written(bundle: Bundle) -> None:
    rows = bundle.source.rows("0.q")
    assert np.shares_memory(rows, bundle.source.rows("0.q"))
    assert not rows.flags.writeable
    assert len(bundle.source.view("0.q")) == bundle.source.tensors["0.q"].n_bytes


def test_opening_reads_no_weights(bundle: Bundle) -> None:
    assert not open_bundle(bundle.path).source._files


def test_a_gguf_carries_its_vocabulary_over(tmp_path: Path) -> None:
    source = make_tiny_gguf(tmp_path / "m.gguf")
    made = convert(source, tmp_path / "bundle", "q8_0")
    opened = open_model(made.bundle)
    assert (opened.name, opened.description) == ("Tiny", "Random numbers.")
    assert dict(opened.metadata) == dict(open_model(source).metadata)
    a, b = read_tokenizer(opened), read_tokenizer(open_model(source))
    assert a.encode("hello <|end|> the") == b.encode("hello <|end|> the")
    assert a.chat_template == b.chat_template
    expected = logits(source)
    assert np.abs(logits(made.bundle) - expected).max() < FINE["q8_0"] * np.abs(expected).max()


def test_verify_finds_a_changed_byte(bundle: Bundle, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    verify(bundle, Job(progress=lambda done, total: seen.append((done, total))))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (sum(entry.bytes for entry in bundle.manifest.files.values()),) * 2
    with pytest.raises(Cancelled):
        verify(bundle, job=Job(lambda: True))
    copy = Path(shutil.copytree(bundle.path, tmp_path / "copy"))
    data = bytearray((copy / "layer-0001.bin").read_bytes())
    data[-1] ^= 1
    (copy / "layer-0001.bin").write_bytes(data)
    with pytest.raises(ModelFormatError, match=r"layer-0001\.bin"):
        verify(open_bundle(copy))


def test_artefacts_live_in_the_bundle_and_are_bound_to_the_model(bundle: Bundle, tmp_path: Path) -> None:
    copy = open_bundle(Path(shutil.copytree(bundle.path, tmp_path / "copy")))
    folder = copy.path / "artefacts"
    folder.mkdir()
    (folder / "neuron_stats.json").write_text("{}")
    with pytest.raises(ArtifactMismatchError, match="another model"):
        add_artefact(copy.path, "statistics", ["neuron_stats.json"], 1, "0" * 64)
    changed = add_artefact(copy.path, "statistics", ["neuron_stats.json"], 1, copy.manifest.source.fingerprint)
    assert changed.artefacts["statistics"].files == ("artefacts/neuron_stats.json",)
    assert changed.fingerprint == copy.manifest.fingerprint
    verify(open_bundle(copy.path))
    check_artefact(copy.path, changed, "statistics")
    assert artefact_folder(open_model(copy.path)) == folder
    (folder / "neuron_stats.json").write_text("[]")
    with pytest.raises(ArtifactMismatchError, match="manifest"):
        check_artefact(copy.path, changed, "statistics")
    (folder / "neuron_stats.json").unlink()
    assert open_model(copy.path).has_stats
    with pytest.raises(ArtifactMismatchError, match=r"artefacts/neuron_stats\.json"):
        check_artefact(copy.path, changed, "statistics")
    with pytest.raises(ModelFormatError, match=r"artefacts/neuron_stats\.json"):
        verify(open_bundle(copy.path))


def test_fingerprints_name_the_model_and_not_its_place(tmp_path: Path, own_folders: Path) -> None:
    first, other = make_tiny_model(tmp_path / "a"), make_tiny_model(tmp_path / "b", seed=1)
    again = Path(shutil.copytree(first, tmp_path / "elsewhere"))
    a, b, c = (fingerprint(open_model(path)) for path in (first, again, other))
    assert a == b != c
    assert len(a) == 64
    folder = artefact_folder(open_model(first))
    assert folder.parts[-2:] == ("artefacts", a)
    assert folder.is_relative_to(own_folders)
    retuned = make_tiny_model(tmp_path / "c", config={"rope_theta": 5000.0})
    assert fingerprint(open_model(retuned)) != a
    ends_only = fingerprint(open_model(first))
    assert ends_only == a


def test_a_change_at_either_end_of_a_tensor_changes_the_fingerprint(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((270, 256)).astype(np.float32)  # 276,480 bytes

    def model(name: str, at: int) -> str:
        changed = table.copy()
        changed.reshape(-1)[at] += 1
        tensors = {"model.embed_tokens.weight": changed}
        return fingerprint(open_model(make_tiny_model(tmp_path / name, d_model=256, n_layers=1, tensors=tensors)))

    found = {at: model(f"m{at}", at) for at in (0, table.size - 1, 64 << 8, table.size // 2)}
    assert found[0] != found[table.size - 1]
    assert found[64 << 8] == found[table.size // 2]  # between the ends nothing is read
    assert len(set(found.values())) == 3


def test_inspect_explains_a_bundle(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(bundle.path)]) == 0
    out = capsys.readouterr().out
    assert "model (safetensors)" in out, "what it was made from"
    assert ("error" in out) == (bundle.manifest.codec != "f16")
    assert cli.main(["inspect", str(bundle.path), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["format"] == "bundle"
    assert values["codecs"].keys() == {bundle.manifest.codec, "f32"}
    assert (values["has_predictors"], values["has_stats"], values["has_placement"]) == (False,) * 3


# --- the starter model


@pytest.mark.parametrize(("codec", "expected"), [pytest.param("q8_0", 35.56, marks=pytest.mark.slow), ("q4_0", 37.98)])
def test_quantised_bundles_of_the_starter_model_keep_its_perplexity(
    shared_starter: Path, tmp_path: Path, codec: str, expected: float
) -> None:
    """The figures of its GPU, where every matrix was quantised in blocks of 32."""
    model = LoadedModel.load(convert(shared_starter, tmp_path / "bundle", codec).bundle)
    found = perplexity(model, np.load(DATA / "eval_tokens.npz")["ids"].tolist(), 512)
    assert found.tokens == 4096
    assert found.perplexity == pytest.approx(expected, rel=0.01)


def test_an_f16_bundle_of_the_starter_model_is_the_model(shared_starter: Path, tmp_path: Path) -> None:
    made = convert(shared_starter, tmp_path / "bundle", "f16")
    assert set(made.relative_errors.values()) == {0.0}
    opened = open_model(made.bundle)
    assert isinstance(opened.source, BundleSource)
    weights, ops = load_weights(opened), ReferenceOperators()
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, ops), ops)
    with np.load(DATA / "logits.npz") as data:
        ids, expected, greedy = (data[f"prompt0_{what}"] for what in ("ids", "logits", "greedy"))
    cache = KVCache(opened.config, len(ids) + len(greedy))
    found = model.logits(model.forward(ids.astype(np.int64), cache))[-1]
    assert np.abs(found[:: len(found) // len(expected)] - expected).max() < 2e-3
    tokens = []
    for _ in greedy:
        tokens.append(int(found.argmax()))
        found = model.logits(model.forward(np.array(tokens[-1:]), cache))[-1]
    assert tokens == greedy.tolist()


@pytest.mark.parametrize("codec", ["q4_0", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_the_starter_model_as_it_ships_becomes_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], codec: str
) -> None:
    assert cli.main(["convert", "starter-chat", str(tmp_path / "b"), "--codec", codec, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["bundle"] == str(tmp_path / "b")
    assert values["bytes"] == sum(file.stat().st_size for file in (tmp_path / "b").rglob("*") if file.is_file())
    assert values["seconds"] > 0
    assert cli.main(["generate", str(tmp_path / "b"), "--prompt", "What is the capital of Peru?", "--temperature", "0",
                     "--json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["text"] == "Lima is the capital of Peru."
