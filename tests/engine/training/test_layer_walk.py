"""The walk layer by layer: masked streams, compiled kernels, files in place of memory, stopping, bad input."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import make_tiny_model
from support.walked_sequences import BATCH, CLOSE, OPS, by_sequence, check_batches, sequences_of

from engine.errors import Cancelled, ContextOverflowError, DiskSpaceError, InvalidRequestError, TokenizerMismatchError
from engine.executor.dense import DenseExecutor
from engine.executor.sparse import SparseExecutor
from engine.job import Job
from engine.loading.backends import choose_backend
from engine.model.weights import load_weights, open_model
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from engine.training import layer_walk, residual_stream
from engine.training.layer_walk import LayerBatch, ModelParts, walk_layers
from native_kernels.backend import PackedMatrix


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_walk, "BATCH_POSITIONS", BATCH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("relu"))


@pytest.fixture(scope="module")
def parts(folder: Path) -> ModelParts:
    opened = open_model(folder)
    return ModelParts(opened.config, load_weights(opened), OPS)


def test_with_predictors_the_stream_is_the_masked_one(parts: ModelParts) -> None:
    config, weights = parts.config, parts.weights
    rng = np.random.default_rng(2)

    def packed(*shape: int) -> PackedMatrix:
        return PackedMatrix.pack(rng.standard_normal(shape).astype(np.float32), "f32")

    layers = [
        LayerPredictor(LowRank(packed(4, config.d_model), packed(config.d_ff, 4), threshold=0.2))
        for _ in range(config.n_layers)
    ]
    executor = SparseExecutor(config, weights, Predictor(tuple(layers)), OPS)
    texts = sequences_of(config)
    seen, wanted = by_sequence(config, weights, executor, texts)
    walked: list[LayerBatch] = []
    with walk_layers(parts, texts, walked.append, executor=executor) as behind:
        np.testing.assert_allclose(behind.logits(0, len(wanted)), wanted, atol=CLOSE)
    check_batches(config, weights, walked, seen)  # and first and hidden are of every neuron of that stream
    with walk_layers(parts, texts) as behind:
        assert np.abs(behind.logits(0, len(wanted)) - wanted).max() > 0.1


def test_with_the_compiled_kernels_it_is_the_same(folder: Path) -> None:
    opened = open_model(folder)
    config, weights = opened.config, load_weights(opened, hold="mapped")
    backend = choose_backend("kernels", 2)
    texts = sequences_of(config)
    _, wanted = by_sequence(config, weights, DenseExecutor(config, weights, OPS), texts)
    with walk_layers(ModelParts(config, weights, backend.operators, "f16"), texts) as behind:
        np.testing.assert_allclose(behind.logits(0, len(wanted)), wanted, atol=0.02)


def test_a_loaded_model_is_walked_as_it_is(starter: LoadedModel) -> None:
    tokens = starter.tokenizer.encode("Once there was a lighthouse.", add_bos=True)
    graph = starter.transformer("dense")
    wanted = graph.logits(graph.forward(np.array(tokens), starter.new_cache(len(tokens))))
    with walk_layers(starter, [tokens[:7], tokens]) as behind:
        np.testing.assert_allclose(behind.logits(7, 7 + len(tokens)), wanted, atol=0.05)


def test_a_stream_that_is_too_large_for_the_memory_lies_in_a_file(
    parts: ModelParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    texts = sequences_of(parts.config)
    with walk_layers(parts, texts) as behind, walk_layers(parts, texts, most_ram_bytes=100) as filed:
        assert filed._stream._file is not None
        assert behind._stream._file is None
        assert (filed.logits(3, 20) == behind.logits(3, 20)).all()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("native", [True, False])
def test_a_full_disk_is_told(parts: ModelParts, monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if native:
        monkeypatch.setattr(residual_stream.os, "posix_fallocate", full, raising=False)
    else:
        monkeypatch.delattr(residual_stream.os, "posix_fallocate", raising=False)
        with walk_layers(parts, [[1, 2, 3]], most_ram_bytes=0) as walked:
            assert walked._stream._file is not None
        monkeypatch.setattr(residual_stream, "_reserve", full)
    with pytest.raises(DiskSpaceError, match="3 positions need"):
        walk_layers(parts, [[1, 2, 3]], most_ram_bytes=0)


def test_it_stops_between_batches(parts: ModelParts) -> None:
    walked: list[LayerBatch] = []
    with pytest.raises(Cancelled):
        walk_layers(parts, sequences_of(parts.config), walked.append, job=Job(lambda: len(walked) == 7))
    assert len(walked) == 7


def test_what_is_no_text_is_refused(parts: ModelParts) -> None:
    with pytest.raises(InvalidRequestError, match="no text"):
        walk_layers(parts, [[], []])
    with pytest.raises(TokenizerMismatchError, match="outside"):
        walk_layers(parts, [[1], [parts.config.vocab_size]])
    learned = replace(parts, config=replace(parts.config, positions="learned", max_context=4))
    with pytest.raises(ContextOverflowError, match="4 positions"):
        walk_layers(learned, [[1] * 5])
