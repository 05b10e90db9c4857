"""Conversion from every codec that Hearth reads: what keeps its values, what is rounded, what is said of down."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from samples.raw_gguf import make_tiny_powerinfer
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf
from support.repetitions import some_daily

from engine.bundle.bundle import open_bundle
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.evaluation.evaluate import last_logits
from engine.loading.modes import read_predictors
from engine.model.model_files import open_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.codecs import CODECS

PLAIN = ("f32", "f16", "bf16")
TOKENS = np.random.default_rng(0).integers(6, 256, 24).tolist()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough for blocks of 256 along every axis."""
    folder = tmp_path_factory.mktemp("wide")
    return make_tiny_gguf(folder / "m.gguf", d_model=256, d_ff=512, n_layers=1)


@pytest.mark.parametrize("codec", some_daily(CODECS, ("f16", "q4_0", "q5_k", "mxfp4")))
def test_every_readable_codec_becomes_a_bundle_of_each(wide: Path, tmp_path: Path, codec: str) -> None:
    path = recode(wide, tmp_path / f"{codec}.gguf", codec)
    source = open_model(path).source
    kept = {"gate": source.read_f32("blk.0.ffn_gate.weight"), "up": source.read_f32("blk.0.ffn_up.weight")}
    down = source.read_f32("blk.0.ffn_down.weight").T
    for asked, coarse in (("f16", 5e-4), ("q8_0", 0.01), ("q4_0", 0.2)):
        made = convert(path, tmp_path / asked, asked)
        bundle = open_bundle(made.bundle)
        entries = bundle.manifest.tensors
        squeezed = asked == "q4_0" and codec not in PLAIN
        assert entries["0.down_t"].codec == ("q8_0" if squeezed else asked)
        assert len(made.warnings) == squeezed
        if squeezed:
            assert re.search(rf"1 down .*q8_0.*q4_0.*\({codec}\)", made.warnings[0])
        for name, values in {**kept, "down_t": down}.items():
            entry = entries[f"0.{name}"]
            assert entry.source_codec == codec
            found = bundle.source.read_f32(f"0.{name}")
            error = float(np.linalg.norm(found - values) / np.linalg.norm(values))
            assert entry.relative_error == pytest.approx(error, rel=1e-3, abs=1e-9)
            assert error < (0.01 if entry.codec == "q8_0" else coarse)
            if codec == asked and name != "down_t":
                np.testing.assert_array_equal(found, values)
                assert entry.relative_error == 0
        if codec == asked == "f16":
            assert set(made.relative_errors.values()) == {0.0}


@pytest.mark.parametrize("codec", ["q4_0", "q8_0"])
def test_a_down_that_is_neuron_major_keeps_its_blocks(tmp_path: Path, codec: str) -> None:
    path = recode(make_tiny_powerinfer(tmp_path / "f.gguf", rank=32, magic=b"GGUF"), tmp_path / "m.gguf", codec)
    with path.open("r+b") as file:
        file.write(b"PWRI")
    source = open_model(path)
    assert source.format == "powerinfer-gguf"
    assert not source.down_is_row_wise
    made = convert(path, tmp_path / "b", codec)
    assert made.warnings == ()
    assert set(made.relative_errors.values()) == {0.0}
    bundle = open_bundle(made.bundle)
    for ours, theirs in {"down_t": "ffn_down_t", "gate": "ffn_gate", "up": "ffn_up"}.items():
        found = bundle.source.read_f32(f"1.{ours}")
        np.testing.assert_array_equal(found, source.source.read_f32(f"blk.1.{theirs}.weight"))
        assert bundle.manifest.tensors[f"1.{ours}"].codec == codec


@pytest.mark.parametrize("codec", ["q4_0", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_a_packed_powerinfer_file_and_its_bundle_answer_the_same_in_sparse_mode(tmp_path: Path, codec: str) -> None:
    path = recode(make_tiny_powerinfer(tmp_path / "f.gguf", rank=32, magic=b"GGUF"), tmp_path / "m.gguf", codec)
    with path.open("r+b") as file:
        file.write(b"PWRI")
    bundle = convert(path, tmp_path / "b", codec).bundle
    kept = read_predictors(open_model(bundle)), read_predictors(open_model(path))
    for ours, theirs in zip(kept[0].layers, kept[1].layers, strict=True):
        np.testing.assert_array_equal(ours.low_rank.b.data, theirs.low_rank.b.data)
    stored = (bundle / "artefacts" / "predictor.safetensors").stat().st_size
    assert stored < CODECS[codec].n_bytes(2 * (32 + 64) * (32 + 64)) + 2048  # not unpacked on the way
    models = [LoadedModel.load(place, EngineConfig(mode="sparse", threads=1)) for place in (path, bundle)]
    logits = [last_logits(model, TOKENS, every=True) for model in models]
    np.testing.assert_array_equal(*logits)
    greedy = SamplingConfig(temperature=0, max_tokens=24)
    answers = [[event.token_id for event in ChatSession(model).generate(TOKENS[:10], greedy)] for model in models]
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 24
    assert models[1].transformer().executor.name == "sparse"
    assert np.abs(logits[0] - last_logits(models[0], TOKENS, every=True, mode="exact")).max() > 1e-3
