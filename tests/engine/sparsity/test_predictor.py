"""Predictors: from PowerInfer's GGUF, from predictor repositories, and from our own files; the neurons they expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples.predictors import with_threshold
from samples.raw_gguf import make_tiny_powerinfer, write_gguf

from engine.errors import ArtifactMismatchError, ModelFormatError, ModelNotFoundError
from engine.formats import TensorInfo
from engine.formats.gguf import open_gguf
from engine.sparsity.powerinfer_predictors import gguf_sizes, predictor_from_gguf, read_predictor_folder
from engine.sparsity.predictor import (
    Budget,
    GateCopy,
    LayerPredictor,
    LowRank,
    MeasuredText,
    Predictor,
    stored_kinds,
    stored_sizes,
)
from native_kernels.backend import PackedMatrix

D, F = 6, 9


def random(seed: int, *shape: int, dtype: str = "<f4") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layer(
    seed: int, rank: int, codec: Any = "f32", recall: Any = None, precision: Any = None, **options: Any
) -> LayerPredictor:
    a, b = PackedMatrix.pack(random(seed, rank, D), codec), PackedMatrix.pack(random(seed + 1, F, rank), codec)
    return LayerPredictor(LowRank(a, b, **options), recall=recall, precision=precision)


def scores(predictor: Predictor, i: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    part = predictor.layers[i].low_rank
    assert part is not None
    return part.scores(x, predictor.operators)


def write_repository(folder: Path, n_layers: int = 12, config: Any = None) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(n_layers):
        state = {
            "fc1.weight": torch.from_numpy(random(i, 3 + i, D)),
            "fc2.weight": torch.from_numpy(random(i + 50, F, 3 + i)),
        }
        torch.save(state, folder / f"model_{i}.pt")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


# --- what it computes


@pytest.mark.parametrize("codec", ["f32", "f16"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.7, 1e9])
def test_active_neurons_are_those_whose_score_reaches_the_threshold(codec: str, biased: bool, threshold: float) -> None:
    options = {"a_bias": random(8, 4), "b_bias": random(9, F)} if biased else {}
    part = layer(3, 4, codec, threshold=threshold, **options)
    predictor = Predictor((part,))
    x = random(5, D)
    a, b = part.low_rank.a.data.astype(np.float64), part.low_rank.b.data.astype(np.float64)
    hidden = np.maximum(a @ x + options.get("a_bias", 0), 0)
    wanted = np.flatnonzero(b @ hidden + options.get("b_bias", 0) >= threshold)
    active = predictor.active(0, x, x)
    assert active.dtype == np.int32
    assert active.tolist() == wanted.tolist()


def test_a_score_that_equals_the_threshold_counts() -> None:
    zeros = PackedMatrix.pack(np.zeros((2, D), np.float32), "f32")
    part = LayerPredictor(LowRank(zeros, PackedMatrix.pack(np.ones((F, 2), np.float32), "f32")))
    predictor = Predictor((part,))
    x = random(0, D)
    assert len(predictor.active(0, x, x)) == F
    assert len(Predictor((with_threshold(part, 1e-6),)).active(0, x, x)) == 0


# --- PowerInfer's GGUF


@pytest.mark.parametrize("threshold", [0.25, None])
def test_predictors_inside_a_gguf_file(tmp_path: Path, threshold: float | None) -> None:
    source = open_gguf(make_tiny_powerinfer(tmp_path / "m.gguf", threshold=threshold, rank=16))
    predictor = predictor_from_gguf(source)
    assert predictor.kinds == {"low_rank": 2}
    assert {part.input for part in predictor.layers} == {"residual"}
    assert predictor.shape == (32, 64)
    assert [part.rank for part in predictor.layers] == [16, 32]
    assert {part.low_rank.threshold for part in predictor.layers} == {threshold or 0.0}
    part = predictor.layers[1]
    assert part.low_rank.a.codec == "f16"
    assert np.shares_memory(part.low_rank.a.data, source.view("blk.1.fc1.weight"))
    x = random(1, 32)
    fc1, fc2 = source.read_f32("blk.1.fc1.weight"), source.read_f32("blk.1.fc2.weight")
    wanted = np.flatnonzero(fc2 @ np.maximum(fc1 @ x, 0) >= (threshold or 0.0))
    assert predictor.active(1, x, x).tolist() == wanted.tolist()
    assert 0 < len(wanted) < 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blk.0.fc1.weight": None, "blk.0.fc2.weight": None}, r"blk\.0\.fc1\.weight"),
        ({"blk.1.fc2.weight": None}, r"blk\.1\.fc2\.weight"),
        ({"blk.1.fc2.weight": random(0, F, 5)}, r"\b4\b.*\b5\b"),
        ({"blk.1.fc1.weight": random(0, 4, D + 1)}, r"\b7\b.*\b9\b.*\b6\b"),
        ({"blk.1.fc2.weight": np.full((F, 4), np.nan, "<f4")}, r"blk\.1\.fc2\.weight"),
        ({"blk.1.fc2.weight": np.full((F, 4), -np.inf, "<f2")}, r"blk\.1\.fc2\.weight"),
        ({"blk.1.fc1.weight": random(0, 4)}, r"blk\.1\.fc1\.weight"),
        ({"blk.1.fc1.bias": random(0, 5)}, r"bias .*\[5\].*\b4\b"),
    ],
)
def test_predictors_that_do_not_fit(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    tensors = {f"blk.{i}.fc1.weight": random(i, 4, D) for i in range(2)}
    tensors |= {f"blk.{i}.fc2.weight": random(i, F, 4) for i in range(2)}
    changed = {name: values for name, values in (tensors | change).items() if values is not None}
    source = open_gguf(write_gguf(tmp_path / "m.gguf", {}, changed, magic=b"PWRI"))
    with pytest.raises(ModelFormatError, match=words):
        predictor_from_gguf(source)


@pytest.mark.parametrize("threshold", ["low", True, float("nan"), float("inf")])
def test_a_threshold_that_is_no_number(tmp_path: Path, threshold: Any) -> None:
    tensors = {"blk.0.fc1.weight": random(0, 4, D), "blk.0.fc2.weight": random(0, F, 4)}
    path = write_gguf(tmp_path / "m.gguf", {"powerinfer.sparse_threshold": threshold}, tensors, magic=b"PWRI")
    with pytest.raises(ModelFormatError, match=r"powerinfer\.sparse_threshold"):
        predictor_from_gguf(open_gguf(path))


class Q4Source:
    """Predictors of one layer, as a quantised PowerInfer file stores them."""

    metadata: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        shapes = {"blk.0.fc1.weight": (608, 32), "blk.0.fc2.weight": (9, 608)}
        self.packed = {name: PackedMatrix.pack(random(i, *shape), "q4_0")
                       for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
        self.tensors = {name: TensorInfo(name, shapes[name], "q4_0", 0, w.n_bytes) for name, w in self.packed.items()}

    def view(self, name: str) -> np.ndarray[Any, Any]:
        return self.packed[name].data.reshape(-1)

    def read_f32(self, name: str) -> np.ndarray[Any, Any]:
        return self.packed[name].block_codec.decode(self.packed[name].data)


def test_packed_predictors_are_unpacked_or_stay_where_they_lie(tmp_path: Path) -> None:
    source = Q4Source()
    unpacked, stored = predictor_from_gguf(source), predictor_from_gguf(source, as_stored=True)
    assert gguf_sizes(source)[1] == unpacked.n_bytes == 4 * 608 * (32 + 9)
    assert stored.n_bytes == 608 * 18 + 9 * 608 // 32 * 18
    assert np.shares_memory(stored.layers[0].low_rank.b.data, source.packed["blk.0.fc2.weight"].data)
    x = random(7, 3, 32)
    np.testing.assert_allclose(scores(stored, 0, x), scores(unpacked, 0, x), rtol=1e-4, atol=1e-3)
    stored.save(tmp_path)
    np.testing.assert_allclose(scores(Predictor.load(tmp_path), 0, x), scores(unpacked, 0, x), rtol=1e-4, atol=1e-3)
    source.packed["blk.0.fc1.weight"].data[-1, :2] = np.array([np.inf], "<f2").view(np.uint8)
    with pytest.raises(ModelFormatError, match=r"blk\.0\.fc1\.weight"):
        predictor_from_gguf(source, as_stored=True)


# --- predictor repositories


@pytest.mark.parametrize(
    ("config", "threshold"), [(None, 0.0), ({}, 0.0), ({"sparse_threshold": -0.5, "x": [1]}, -0.5)]
)
def test_a_predictor_repository(tmp_path: Path, config: Any, threshold: float) -> None:
    write_repository(tmp_path / "p", config=config)
    predictor = read_predictor_folder(tmp_path / "p")
    assert [part.rank for part in predictor.layers] == [3 + i for i in range(12)]  # by number: 10 does not follow 1
    assert {part.low_rank.threshold for part in predictor.layers} == {threshold}
    x = random(1, D)
    state = torch.load(tmp_path / "p" / "model_10.pt", weights_only=True)
    scores = state["fc2.weight"] @ torch.relu(state["fc1.weight"] @ torch.from_numpy(x))
    assert predictor.active(10, x, x).tolist() == np.flatnonzero(scores.numpy() >= threshold).tolist()


def test_repositories_with_holes_and_odd_content(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model_0\.pt"):
        read_predictor_folder(tmp_path)
    write_repository(tmp_path, 3)
    (tmp_path / "model_1.pt").unlink()
    with pytest.raises(ModelFormatError, match=r"model_1\.pt"):
        read_predictor_folder(tmp_path)
    sound = {"fc1.weight": torch.ones(3, D), "fc2.weight": torch.ones(F, 3)}
    for state, words in [
        ({"fc1.weight": torch.ones(3, D)}, r"model_1\.pt .*fc1\.weight"),
        ({**sound, "fc3.weight": torch.ones(1)}, r"fc3\.weight"),
        ({**sound, "fc1.weight": torch.ones(3, D, dtype=torch.int64)}, "int64"),
        ({**sound, "fc1.weight": torch.full((3, D), float("inf"))}, "not numbers"),
    ]:
        torch.save(state, tmp_path / "model_1.pt")
        with pytest.raises(ModelFormatError, match=words):
            read_predictor_folder(tmp_path)
    torch.save(sound, tmp_path / "model_1.pt")
    (tmp_path / "config.json").write_text('{"sparse_threshold": "0"}')
    with pytest.raises(ModelFormatError, match=r"sparse_threshold .*config\.json .*'0'"):
        read_predictor_folder(tmp_path)


# --- our own files


def test_saved_and_loaded(tmp_path: Path) -> None:
    layers = (
        layer(0, 4, "f16", threshold=-0.25, recall=0.97, precision=0.5),
        layer(2, 7, "f32", a_bias=random(8, 7), b_bias=random(9, F)),
    )
    predictor = Predictor(layers, "abc")
    predictor.save(tmp_path)
    again = Predictor.load(tmp_path, model="abc")
    assert (again.kinds, again.model, again.n_bytes) == ({"low_rank": 2}, "abc", predictor.n_bytes)
    assert (again.layers[0].recall, again.layers[0].precision, again.layers[0].low_rank.threshold) == (0.97, 0.5, -0.25)
    assert again.layers[0].low_rank.a.codec == "f16"
    assert again.layers[0].low_rank.a_bias is None
    for i in range(2):
        np.testing.assert_array_equal(scores(again, i, random(4, 3, D)), scores(predictor, i, random(4, 3, D)))
    with pytest.raises(ArtifactMismatchError, match="another model"):
        Predictor.load(tmp_path, model="xyz")


def copy(seed: int, bits: int, **options: Any) -> GateCopy:
    return GateCopy(PackedMatrix.pack(random(seed, F, D), f"copy{bits}"), **options)


def of_every_kind() -> tuple[LayerPredictor, ...]:
    return (
        layer(0, 4, "f16", threshold=-0.25, recall=0.97),
        LayerPredictor(copy=copy(1, 2, threshold=-0.5), recall=0.99, precision=0.4, active_share=0.15),
        LayerPredictor(layer(2, 5).low_rank, copy(3, 3, bias=random(4, F)), "residual"),
        LayerPredictor(copy=copy(5, 1, signed_input=True)),
        LayerPredictor(),
        LayerPredictor(layer(6, 5).low_rank, copy(7, 4, signed_input=True)),
    )


def test_every_kind_is_saved_and_loaded(tmp_path: Path) -> None:
    measured = (MeasuredText("dialogue", 0.004, 0.985), MeasuredText("prose", -0.001, 0.97))
    budget = Budget(0.01, measured, True, 0.99)
    predictor = Predictor(of_every_kind(), "abc", "relu-glu", budget, "counts", "its own text")
    assert predictor.kinds == {"low_rank": 1, "gate_copy": 1, "cascade": 2, "sign": 1, "true_gate": 1}
    predictor.save(tmp_path)
    assert stored_kinds(tmp_path) == predictor.kinds
    again = Predictor.load(tmp_path, model="abc")
    assert (again.kinds, again.n_bytes, again.shape) == (predictor.kinds, predictor.n_bytes, (D, F))
    assert (again.budget, again.statistics, again.text) == (budget, "counts", "its own text")
    assert stored_sizes(tmp_path) == (predictor.n_bytes, 0)
    x, residual = random(4, 3, D), random(5, 3, D)
    for i, (mine, theirs) in enumerate(zip(predictor.layers, again.layers, strict=True)):
        assert (mine.kind, mine.input, mine.rank) == (theirs.kind, theirs.input, theirs.rank)
        assert (mine.recall, mine.precision, mine.active_share) == (
            theirs.recall,
            theirs.precision,
            theirs.active_share,
        )
        if mine.copy is not None:
            assert theirs.copy.matrix.codec == mine.copy.matrix.codec
            assert (theirs.copy.threshold, theirs.copy.bits) == (mine.copy.threshold, mine.copy.bits)
            np.testing.assert_array_equal(theirs.copy.matrix.data, mine.copy.matrix.data)
        if mine.kind != "true_gate":
            np.testing.assert_array_equal(again.expected(i, x, residual).mask, predictor.expected(i, x, residual).mask)
            np.testing.assert_array_equal(
                again.active(i, x[0], residual[0]), np.flatnonzero(predictor.expected(i, x, residual).mask[0])
            )


def test_low_rank_interleaved_by_lanes_stays_as_it_is_stored(tmp_path: Path) -> None:
    predictor = Predictor((layer(0, 5, "q4_0.lanes"), LayerPredictor(copy=copy(1, 3))))
    predictor.save(tmp_path)
    stored, unpacked = Predictor.load(tmp_path, as_stored=True), Predictor.load(tmp_path)
    assert stored.layers[0].low_rank.a.codec == stored.layers[0].low_rank.b.codec == "q4_0.lanes"
    assert (unpacked.layers[0].low_rank.a.codec, unpacked.layers[1].copy.matrix.codec) == ("f32", "copy3")
    x = random(3, 4, D)
    np.testing.assert_allclose(scores(stored, 0, x), scores(unpacked, 0, x), atol=1e-5)
    sizes = stored_sizes(tmp_path)
    assert sizes[0] == predictor.n_bytes
    assert sizes[1] >= 4 * 5 * (D + F)


def test_version_1_is_still_read(tmp_path: Path) -> None:
    part = layer(0, 4, "f16", threshold=-0.25, recall=0.97, b_bias=random(9, F))
    head = Predictor((part,), "abc").save(tmp_path)
    values = json.loads(head.read_text())
    for key in ("budget", "statistics", "text"):
        del values[key]
    values |= {"schema_version": 1, "kind": "low_rank", "input": "residual"}
    values["layers"] = [{"rank": 4, "threshold": -0.25, "recall": 0.97, "precision": None}]
    head.write_text(json.dumps(values))
    again = Predictor.load(tmp_path, "abc")
    assert stored_kinds(tmp_path) == again.kinds == {"low_rank": 1}
    assert (again.layers[0].input, again.layers[0].recall, again.budget) == ("residual", 0.97, None)
    np.testing.assert_array_equal(
        scores(again, 0, random(4, 3, D)), part.low_rank.scores(random(4, 3, D), again.operators)
    )


def test_what_a_token_reads_of_a_predictor() -> None:
    low, full, cascade, _, gate, _ = of_every_kind()
    assert low.bytes_read(0.0) == low.n_bytes == 2 * 4 * (D + F)
    assert full.bytes_read(1.0) == full.n_bytes == F * 18
    assert cascade.bytes_read(0.5) == 4 * 5 * (D + F) + 0.5 * (F * 26 + F * 4)
    assert gate.bytes_read(0.0) == 0


def test_parts_that_do_not_fit_together() -> None:
    with pytest.raises(ModelFormatError, match=r"f32.*codec"):
        GateCopy(PackedMatrix.pack(random(0, F, D), "f32"))
    with pytest.raises(ModelFormatError, match=r"bias .*\[3\].*\b9\b"):
        copy(0, 2, bias=random(0, 3))
    with pytest.raises(ModelFormatError, match=r"threshold.* nan"):
        copy(0, 2, threshold=float("nan"))
    with pytest.raises(ModelFormatError, match=r"\(6, 9\).*\(7, 9\)"):
        LayerPredictor(layer(0, 4).low_rank, GateCopy(PackedMatrix.pack(random(0, F, 7), "copy2")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": None}, "lacks the model"),
        ({"layers": 3}, "layers"),
        ({"layers": []}, "layers"),
        ({"layers": [{"kind": "oracle", "input": "normed"}]}, "[Ll]ayer 0 .*kind"),
        ({"layers": [{"kind": "low_rank", "input": None}]}, "[Ll]ayer 0 .*input"),
        ({"layers": 2 * [{"kind": "low_rank", "input": "normed"}]}, r"1\.a"),
        ({"layers": [{"kind": "low_rank", "input": "normed", "threshold": "x"}]}, "threshold.* 'x'"),
        ({"layers": [{"kind": "gate_copy", "input": "normed"}]}, "layer 0 .*'None'"),
        ({"schema_version": 1}, "kind"),
        ({"schema_version": 1, "kind": "low_rank", "input": "both"}, "input"),
        ({"budget": {"held": True}}, "budget"),
        ({"budget": {"held": True, "measured": [{"text": 1}]}}, "text"),
        ({"budget": {"held": True, "measured": [], "level": 0.9}}, "lacks perplexity_rise"),
        ({"text": 3}, "text"),
    ],
)
def test_our_own_files_when_damaged(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    head = Predictor((layer(0, 4),)).save(tmp_path)
    head.write_text(json.dumps(json.loads(head.read_text()) | change))
    with pytest.raises(ModelFormatError, match=words):
        Predictor.load(tmp_path)


def test_a_predictor_of_another_shape() -> None:
    predictor = Predictor((layer(0, 4),))
    predictor.check_against(1, D, F)
    with pytest.raises(ArtifactMismatchError, match=r"\b1 .*\b6 .*\b9 neurons.*\b2 layers"):
        predictor.check_against(2, D, F)
