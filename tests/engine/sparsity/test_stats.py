"""NeuronStats: what was counted comes back, coverage is what a plain loop finds, files are put in order by number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.windows_files import refused_like_windows

from engine.errors import ArtifactMismatchError, InvalidRequestError, ModelFormatError, ModelNotFoundError
from engine.sparsity.artifact_files import open_tensors
from engine.sparsity.stats import NeuronStats, read_activation_folder


def some_stats(tokens: int | None = 1000, model: str = "") -> NeuronStats:
    counts = np.random.default_rng(0).integers(0, 1000, (3, 50)).astype(np.int64)
    return NeuronStats(counts, tokens, "measured", "corpus-fingerprint", model)


def fewest(counts: list[int], share: float) -> int:
    taken = n = 0
    for count in sorted(counts, reverse=True):
        if taken >= share * sum(counts):
            break
        taken, n = taken + count, n + 1
    return n


@pytest.mark.parametrize("tokens", [1000, None])
def test_saved_and_loaded(tmp_path: Path, tokens: int | None) -> None:
    stats = some_stats(tokens, "abc")
    assert stats.save(tmp_path / "deep" / "down") == tmp_path / "deep" / "down" / "neuron_stats.json"
    again = NeuronStats.load(tmp_path / "deep" / "down", model="abc")
    np.testing.assert_array_equal(again.counts, stats.counts)
    assert again.counts.dtype == np.int64
    assert (again.tokens, again.source, again.corpus, again.model) == (tokens, "measured", "corpus-fingerprint", "abc")
    assert sorted(path.name for path in (tmp_path / "deep" / "down").iterdir()) == [
        "neuron_stats.json",
        "neuron_stats.safetensors",
    ]


def test_files_that_windows_does_not_replace_while_they_are_mapped_are_replaced_later(tmp_path: Path) -> None:
    some_stats(1000, "old").save(tmp_path)
    with refused_like_windows():
        mapped = open_tensors(tmp_path, "neuron_stats")
        some_stats(2000, "new").save(tmp_path)
        assert NeuronStats.load(tmp_path).model == "old"
        del mapped
        assert NeuronStats.load(tmp_path).model == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_the_kind_of_text_is_kept_and_older_files_do_without(tmp_path: Path) -> None:
    NeuronStats(np.ones((1, 4), np.int64), 9, "measured", "x", text="self-written").save(tmp_path)
    assert NeuronStats.load(tmp_path).text == "self-written"
    head = tmp_path / "neuron_stats.json"
    values = json.loads(head.read_text())
    del values["text"]
    head.write_text(json.dumps(values))
    assert NeuronStats.load(tmp_path).text == ""
    head.write_text(json.dumps({**values, "text": 5}))
    with pytest.raises(ModelFormatError, match="kind of text"):
        NeuronStats.load(tmp_path)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.8, 0.999, 1])
def test_coverage_is_what_a_plain_loop_finds(share: float) -> None:
    stats = some_stats()
    coverage = stats.coverage(share)
    assert coverage.per_layer.tolist() == [fewest(layer.tolist(), share) for layer in stats.counts]
    assert coverage.whole_model == fewest(stats.counts.reshape(-1).tolist(), share)


def test_coverage_of_layers_that_differ() -> None:
    counts = np.array([[90, 5, 5, 0], [10, 10, 10, 10], [0, 0, 0, 0]], np.int64)
    coverage = NeuronStats(counts, None, "measured", "").coverage(0.9)
    assert coverage.per_layer.tolist() == [1, 4, 0]
    assert coverage.whole_model == 5  # 90 + 4 x 10 of 140, of which 126 are wanted
    with pytest.raises(InvalidRequestError, match=r"1\.5"):
        NeuronStats(counts, None, "measured", "").coverage(1.5)


def test_fired_share() -> None:
    counts = np.array([[10, 0], [5, 5]], np.int64)
    share = NeuronStats(counts, 10, "measured", "").fired_share
    assert share is not None
    assert share.tolist() == [0.5, 0.5]
    assert NeuronStats(counts, None, "measured", "").fired_share is None


@pytest.mark.parametrize(
    ("counts", "tokens", "words"),
    [
        (np.zeros(4, np.int64), None, r"i64 \[L, F\]"),
        (np.zeros((2, 4), np.int32), None, r"i64 \[L, F\].*int32"),
        (np.zeros((0, 4), np.int64), None, r"i64 \[L, F\]"),
        (np.full((1, 1), -1, np.int64), None, "from -1 to -1"),
        (np.full((1, 1), 1 << 60, np.int64), None, "possible is 0"),
        (np.full((1, 1), 11, np.int64), 10, "10 tokens.* 11"),
    ],
)
def test_senseless_counts(counts: np.ndarray, tokens: int | None, words: str) -> None:
    with pytest.raises(ModelFormatError, match=words):
        NeuronStats(counts, tokens, "measured", "")


def test_artefacts_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"neuron_stats\.json"):
        NeuronStats.load(tmp_path)
    head = some_stats(model="abc").save(tmp_path)
    with pytest.raises(ArtifactMismatchError, match="another model"):
        NeuronStats.load(tmp_path, model="xyz")
    sound = json.loads(head.read_text())
    for change, kind, words in [
        ({"schema_version": 2}, ArtifactMismatchError, "version 2"),
        ({"layers": 2}, ArtifactMismatchError, "not those that"),
        ({"source": "guessed"}, ModelFormatError, "source"),
        ({"tokens": "many"}, ModelFormatError, "tokens"),
        ({"tensors_sha256": "0"}, ArtifactMismatchError, "neuron_stats"),
    ]:
        head.write_text(json.dumps(sound | change))
        with pytest.raises(kind, match=words):
            NeuronStats.load(tmp_path)
    head.write_text(json.dumps(sound))
    other = NeuronStats(np.ones((3, 50), np.int64), 1, "measured", "")
    other.save(tmp_path / "other")
    (tmp_path / "other" / "neuron_stats.safetensors").replace(tmp_path / "neuron_stats.safetensors")
    with pytest.raises(ArtifactMismatchError, match="neuron_stats"):
        NeuronStats.load(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        some_stats().save(tmp_path / "file" / "inside")


# --- PowerInfer's folder


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_layers_are_in_the_order_of_their_numbers(tmp_path: Path, dtype: torch.dtype) -> None:
    for layer in range(23):
        torch.save(torch.full((8,), layer).to(dtype), tmp_path / f"activation_{layer}.pt")
    (tmp_path / "activation_7.pt.part").write_bytes(b"")
    (tmp_path / "activation_.pt").write_bytes(b"")
    stats = read_activation_folder(tmp_path)
    assert stats.counts[:, 0].tolist() == list(range(23))
    assert (stats.counts.shape, stats.tokens, stats.source) == ((23, 8), None, "shipped")


def test_activation_folders_with_holes_and_odd_content(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no activation_0\.pt"):
        read_activation_folder(tmp_path)
    for layer in (0, 1, 3):
        torch.save(torch.arange(4), tmp_path / f"activation_{layer}.pt")
    with pytest.raises(ModelNotFoundError, match=r"activation_2\.pt .*\b3"):
        read_activation_folder(tmp_path)
    for value, words in [
        (torch.arange(5), "5 neurons"),
        (torch.ones(2, 2), "counts"),
        ({"a": torch.arange(4), "b": torch.arange(4)}, "counts"),
        (torch.tensor([0.5, 1, 2, 3]), "not counts"),
        (torch.tensor([float("nan"), 1, 2, 3]), "not counts"),
        (torch.tensor([-1, 1, 2, 3]), "count from -1"),
    ]:
        torch.save(value, tmp_path / "activation_2.pt")
        with pytest.raises(ModelFormatError, match=words):
            read_activation_folder(tmp_path)
