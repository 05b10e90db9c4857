"""Bundles that are damaged or lie: each ends in one clear error, quickly and without eating memory."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samples.tiny_model import make_tiny_model
from support.systems import MAKES_LINKS

from engine.bundle.bundle_manifest import Manifest
from engine.conversion.convert import convert
from engine.errors import EngineError, ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.model.weights import load_weights, open_model

MOST_MEMORY_BYTES = 64 << 20
Spoil = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    return convert(make_tiny_model(folder / "m", tied=False), folder / "bundle", "q4_0").bundle


@pytest.fixture
def bundle(sound: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each test; the files are shared until one is replaced."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    for file in sound.iterdir():
        os.link(file, folder / file.name)
    return folder


@pytest.fixture(autouse=True)
def little_memory(sound: Path) -> Iterator[None]:
    """What a hostile bundle makes us allocate stays small, whatever it claims."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY_BYTES


def replace(file: Path, data: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(data)


def refused(path: Path, kind: type[EngineError] | tuple[type[EngineError], ...], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        load_weights(open_model(path))
    assert len(caught.value.message) < 500
    assert caught.value.hint


def spoilt(bundle: Path, spoil: Spoil, signed: bool = True) -> None:
    """Changes the manifest; `signed` computes its fingerprint anew, as somebody who means harm would."""
    values = json.loads((bundle / "manifest.json").read_text())
    spoil(values)
    if signed:
        values["fingerprint"] = fingerprint_of(values)
    replace(bundle / "manifest.json", json.dumps(values).encode())


def fingerprint_of(values: dict[str, Any]) -> str:
    weights = {name: entry["sha256"] for name, entry in values["files"].items() if name.endswith(".bin")}
    text = json.dumps({"config": values["config"], "weights": weights}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def set_at(*path: Any) -> Spoil:
    """Sets the value at the end of `path` (its last element) in the manifest."""
    *keys, last, value = path

    def spoil(values: dict[str, Any]) -> None:
        for key in keys:
            values = values[key]
        values[last] = value

    return spoil


def test_the_untouched_bundle_opens(bundle: Path) -> None:
    spoilt(bundle, lambda values: None)
    assert load_weights(open_model(bundle)).n_bytes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "not a manifest of a Hearth bundle"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"format": "hearth-bundle", "format": "hearth-bundle"}', "appears twice"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b'{"format": "other"}', "not a manifest of a Hearth bundle"),
        (b'{"format": "hearth-bundle"}', "schema version 'None'"),
        (b'{"format": "hearth-bundle", "schema_version": 1}', "config is None"),
        (b"[" * 60_000, "not JSON"),
        (b"[" * 4_000_000, "lists more than"),
        (b"[" + b"1," * 1_000_000 + b"1]", "lists more than"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (9 << 20), "longer than"),
    ],
)
def test_manifests_that_are_none(bundle: Path, data: bytes, words: str) -> None:
    replace(bundle / "manifest.json", data)
    refused(bundle, ModelFormatError, words)


@pytest.mark.parametrize("kept", [1, 20, 200, 2000, -100, -2, -1])
def test_truncated_manifests(bundle: Path, kept: int) -> None:
    replace(bundle / "manifest.json", (bundle / "manifest.json").read_bytes()[:kept])
    refused(bundle, ModelFormatError, "not JSON")


def test_a_newer_bundle_is_named_as_such(bundle: Path) -> None:
    spoilt(bundle, set_at("schema_version", 2))
    refused(bundle, UnsupportedModelError, "schema version 2; this Hearth reads version 1")
    spoilt(bundle, set_at("schema_version", 1))
    spoilt(bundle, set_at("config", "wormholes", 3))
    refused(bundle, UnsupportedModelError, "'wormholes', which this version of Hearth does not know")


FILES, TENSORS = "files", "tensors"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (set_at("schema_version", True), "schema version"),
        (set_at("schema_version", "1"), "schema version"),
        (set_at("config", []), "config is"),
        (set_at("config", "n_layers", "2"), "config.n_layers is '2'; expected is a whole number"),
        (set_at("config", "n_layers", True), "n_layers is True"),
        (set_at("config", "n_layers", 10**9), "n_layers is 1000000000"),
        (set_at("config", "n_layers", 3), "lack 2.attention_norm"),
        (set_at("config", "rope_theta", [1]), "rope_theta"),
        (set_at("config", "rope_theta", -1.0), "rope_theta"),
        (set_at("config", "activation", "swish"), "config.activation is 'swish'; expected is one of"),
        (set_at("config", "activation", {}), "config.activation"),
        (set_at("config", "eos_token_ids", [1, "x"]), r"eos_token_ids\[1\]"),
        (set_at("config", "eos_token_ids", [10**9]), "outside the vocabulary"),
        (set_at("config", "vocab_size", 271), r"embedding has the shape \[270, 32\]"),
        (lambda values: values["config"].pop("d_model"), "config lacks 'd_model'"),
        (set_at("activation", "function", "silu-glu"), "contradicts itself about the activation"),
        (set_at("activation", "threshold", 0.5), "contradicts itself about the activation"),
        (set_at("name", 3), "name is 3"),
        (set_at("codec", "q9_9"), "codec"),
        (set_at("sampling", "temperature", "hot"), "temperature"),
        (set_at("sampling", "temperature", 1e9), "sampling defaults are wrong"),
        (set_at("sampling", "wit", 1.0), "sampling defaults are wrong"),
        (set_at("warnings", "none"), "warnings"),
        (set_at("source", None), "source"),
        (set_at("source", "parameters", "many"), "parameters"),
        (set_at(FILES, {}), "not a listed weight file"),
        (set_at(FILES, "layer-0000.bin", "bytes", -1), "no sound size"),
        (set_at(FILES, "layer-0000.bin", "bytes", 1 << 70), "no sound size"),
        (set_at(FILES, "layer-0000.bin", "sha256", "abc"), "no sound size and SHA-256"),
        (set_at(FILES, "layer-0000.bin", "sha256", None), "sha256"),
        (set_at(FILES, "../manifest.json", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "/etc/passwd", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "artefacts/../x", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "..", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "C:evil", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "a\\b", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "manifest.json", {"bytes": 1, "sha256": "0" * 64}), "not a name within a bundle"),
        (set_at(FILES, "gone.bin", {"bytes": 1, "sha256": "0" * 64}), r"lacks its file gone\.bin"),
        (set_at(FILES, "metadata.json", "bytes", 3), "3 are listed"),
        (lambda values: values[FILES].pop("metadata.json"), r"lists no metadata\.json"),
        (set_at(TENSORS, {}), "lack embedding"),
        (set_at(TENSORS, "0.q", "file", "../x.bin"), "not a listed weight file"),
        (set_at(TENSORS, "0.q", "file", "tokenizer.json"), "not a listed weight file"),
        (set_at(TENSORS, "0.q", "offset", -64), "begins at -64"),
        (set_at(TENSORS, "0.q", "offset", 1), "not a multiple of 64"),
        (set_at(TENSORS, "0.q", "offset", 1 << 62), "not a multiple of 64"),
        (set_at(TENSORS, "0.q", "offset", 1 << 50), "bytes past its file"),
        (set_at(TENSORS, "0.q", "offset", 0), "overlap"),
        (set_at(TENSORS, "0.q", "shape", []), "has the shape"),
        (set_at(TENSORS, "0.q", "shape", [32, 32, 32]), "has the shape"),
        (set_at(TENSORS, "0.q", "shape", [32, 0]), "has the shape"),
        (set_at(TENSORS, "0.q", "shape", [32, -32]), "has the shape"),
        (set_at(TENSORS, "0.q", "shape", [1 << 60, 32]), "has the shape"),
        (set_at(TENSORS, "0.q", "shape", [1 << 39, 32]), "bytes past its file"),
        (set_at(TENSORS, "0.q", "shape", [16, 32]), r"0\.q has the shape \[16, 32\]"),
        (set_at(TENSORS, "0.q", "codec", "f32"), "of 2 dimensions is stored as f32"),
        (set_at(TENSORS, "0.q", "codec", "q8_0"), "claim 18 bytes"),
        (set_at(TENSORS, "final_norm", "codec", "q8_0"), "of 1 dimensions is stored as q8_0"),
        (set_at(TENSORS, "0.q", "row_bytes", 1 << 40), "claim 1099511627776 bytes"),
        (set_at(TENSORS, "0.q", "row_stride", 0), "0 bytes apart"),
        (set_at(TENSORS, "0.q", "row_stride", -64), "-64 bytes apart"),
        (set_at(TENSORS, "0.q", "row_stride", 128), "128 bytes apart"),
        (set_at(TENSORS, "0.gate", "row_stride", 64), "not contiguous"),
        (set_at(TENSORS, "0.up", "offset", 0), "not contiguous"),
        (set_at(TENSORS, "0.up", "file", "layer-0001.bin"), "not contiguous"),
        (set_at(TENSORS, "0.down_t", "shape", [63, 32]), "not contiguous"),
        (lambda values: values[TENSORS].pop("0.up"), "FFN parts gate, down_t"),
        (lambda values: values[TENSORS].pop("0.q"), r"lack 0\.q"),
        (set_at("artefacts", "predictors", {"files": ["x"], "schema_version": 1, "fingerprint": ""}), "not listed"),
        (set_at("artefacts", "predictors", {"files": [], "schema_version": 1, "fingerprint": ""}), "name no file"),
        (set_at("artefacts", "predictors", 5), "predictors is 5"),
    ],
)  # fmt: skip
def test_manifests_that_lie(bundle: Path, spoil: Spoil, words: str) -> None:
    spoilt(bundle, spoil)
    refused(bundle, ModelFormatError, words)


def test_a_tensor_that_no_configuration_calls_for(bundle: Path) -> None:
    spoilt(bundle, lambda values: values[TENSORS].update({"0.third_eye": dict(values[TENSORS]["final_norm"])}))
    refused(bundle, (ModelFormatError, UnsupportedModelError), "overlap|ignore")


def test_a_manifest_that_was_edited(bundle: Path) -> None:
    spoilt(bundle, set_at("config", "rope_theta", 5000.0), signed=False)
    refused(bundle, ModelFormatError, "was changed: its fingerprint does not fit")


@pytest.mark.parametrize("name", ["layer-0001.bin", "embedding.bin", "metadata.json", "tokenizer.json"])
def test_files_that_are_gone_cut_or_links(bundle: Path, sound: Path, name: str) -> None:
    data = (bundle / name).read_bytes()
    (bundle / name).unlink()
    refused(bundle, ModelFormatError, "lacks its file")
    if MAKES_LINKS:
        (bundle / name).symlink_to(sound / name)
        refused(bundle, ModelFormatError, "lacks its file")
        (bundle / name).unlink()
    (bundle / name).mkdir()
    refused(bundle, ModelFormatError, "lacks its file")
    (bundle / name).rmdir()
    for changed in (b"", data[:-1], data + b"x"):
        replace(bundle / name, changed)
        refused(bundle, ModelFormatError, "are listed")


def test_metadata_that_are_none(bundle: Path) -> None:
    size = (bundle / "metadata.json").stat().st_size
    replace(bundle / "metadata.json", b"[" * size)
    refused(bundle, ModelFormatError, r"metadata\.json is not JSON")


def test_scales_that_are_no_numbers(bundle: Path) -> None:
    data = bytearray((bundle / "embedding.bin").read_bytes())
    data[16:18] = b"\x00\x7e"
    replace(bundle / "embedding.bin", bytes(data))
    refused(bundle, ModelFormatError, "embedding holds values that are not numbers")


def test_an_unfinished_bundle_is_none(tmp_path: Path) -> None:
    (tmp_path / "b.partial" / "bundle").mkdir(parents=True)
    refused(tmp_path / "b.partial", ModelNotFoundError, "There is no model")


LEAVES = (
    None, True, False, -5, 0, 1, 63, 64, 65, 1 << 70, 0.5, -1.0, float("nan"), float("inf"), "", "x", "f16", "q8_0",
    "f32", "layer-0000.bin", [], {}, [1, 2], [64], {"a": 1},
)  # fmt: skip


def test_any_value_anywhere_is_refused_or_harmless(sound: Path) -> None:
    """Whatever replaces whatever in the manifest: an EngineError, or a manifest that holds."""
    text = (sound / "manifest.json").read_text()
    refusals = 0
    for seed in range(600):
        rng = random.Random(seed)
        values = json.loads(text)
        for _ in range(rng.randint(1, 3)):
            _spoil_somewhere(values, rng)
        with contextlib.suppress(TypeError, AttributeError, KeyError):
            values["fingerprint"] = fingerprint_of(values)
        try:
            Manifest.from_json(values)
        except EngineError:
            refusals += 1
    assert 300 < refusals < 600


def _spoil_somewhere(place: Any, rng: random.Random) -> None:
    while True:
        key = rng.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.2:
            place[key] = copy.deepcopy(rng.choice(LEAVES))
            return
        place = place[key]
