"""Exponential counters: what they weigh, how they are kept, and what is refused of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.sparsity.activity import ARTIFACT_NAME, MEMORY_TOKENS, NeuronActivity
from engine.sparsity.artifact_files import save_artifact


def some_activity() -> NeuronActivity:
    activity = NeuronActivity.empty(2, 6)
    activity.add(np.arange(12).reshape(2, 6), 11)
    activity.hot = (np.array([4, 1], np.int32), np.array([3], np.int32))
    activity.placement, activity.model, activity.activation = "p", "m", "relu"
    return activity


def test_a_steady_rate_is_found_and_an_old_one_forgotten() -> None:
    activity = NeuronActivity.empty(1, 2)
    for _ in range(200):
        activity.add(np.array([[80, 20]]), 100)
    np.testing.assert_allclose(activity.counts[0] / activity.positions, [0.8, 0.2], rtol=1e-4)
    assert activity.positions == pytest.approx(MEMORY_TOKENS, rel=0.01)
    activity.add(np.array([[0, MEMORY_TOKENS]]), MEMORY_TOKENS)
    kept = 1 / np.e
    np.testing.assert_allclose(activity.counts[0] / activity.positions, [0.8 * kept, 0.2 * kept + 1 - kept], rtol=1e-2)


def test_in_pieces_or_at_once_is_nearly_the_same_and_nothing_changes_nothing() -> None:
    at_once, pieces = NeuronActivity.empty(1, 1), NeuronActivity.empty(1, 1)
    at_once.add(np.array([[300]]), 600)
    for _ in range(60):
        pieces.add(np.array([[5]]), 10)
        pieces.add(np.array([[0]]), 0)
    assert pieces.positions == pytest.approx(at_once.positions)
    assert pieces.counts[0, 0] == pytest.approx(at_once.counts[0, 0], rel=1e-5)


def test_what_is_kept_is_what_comes_back(tmp_path: Path) -> None:
    activity = some_activity()
    activity.save(tmp_path)
    found = NeuronActivity.load(tmp_path, "m", "relu")
    np.testing.assert_array_equal(found.counts, activity.counts)
    assert (found.positions, found.placement, found.model, found.activation) == (activity.positions, "p", "m", "relu")
    assert [ids.tolist() for ids in found.hot] == [[4, 1], [3]]
    activity.hot = ()
    activity.save(tmp_path)
    assert NeuronActivity.load(tmp_path).hot == ()
    with pytest.raises(ArtifactMismatchError, match="another model"):
        NeuronActivity.load(tmp_path, "other")
    with pytest.raises(ArtifactMismatchError, match="relu"):
        NeuronActivity.load(tmp_path, "m", "fatrelu:0.1")


def test_a_writer_that_dies_leaves_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    activity = some_activity()
    activity.save(tmp_path)
    activity.add(np.ones((2, 6), np.int64), 5)

    def dies(*paths: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dies)
        with pytest.raises(KeyboardInterrupt):
            activity.save(tmp_path)
    np.testing.assert_array_equal(NeuronActivity.load(tmp_path).counts, some_activity().counts)
    real, decided = os.replace, []

    def dies_after_the_first(*paths: Any) -> None:
        if decided:
            raise KeyboardInterrupt
        decided.append(real(*paths))

    for replace, left in ((dies, some_activity()), (dies_after_the_first, activity)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            with pytest.raises(KeyboardInterrupt):
                activity.save(tmp_path)
        np.testing.assert_array_equal(NeuronActivity.load(tmp_path).counts, left.counts)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positions": 5.0}, "positions"),
        ({"positions": 1e9}, "positions"),
        ({"positions": "many"}, "lacks positions"),
        ({"positions": True}, "lacks placement"),
        ({"placement": None}, "lacks placement"),
        ({"slots": [2, 2]}, "not those that"),
        ({"slots": [3]}, "layers"),
        ({"slots": [-1, 4]}, "slots"),
        ({"slots": None}, "slots"),
        ({"layers": 3}, "not those that"),
        ({"schema_version": 2}, "version 2"),
    ],
)
def test_a_head_that_lies_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    head = some_activity().save(tmp_path)
    head.write_text(json.dumps({**json.loads(head.read_text()), **change}))
    with pytest.raises((ModelFormatError, ArtifactMismatchError), match=words):
        NeuronActivity.load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"counts": np.full((2, 6), np.nan, np.float32)}, "number of positions"),
        ({"counts": np.full((2, 6), -1, np.float32)}, "number of positions"),
        ({"counts": np.zeros((2, 6), np.int64)}, "not those that"),
        ({"hot": np.array([4, 1, 6])}, "does not have"),
        ({"hot": np.array([4, 4, 1])}, "twice"),
        ({"hot": np.array([4, 1, -1])}, "neurons"),
        ({"hot": np.array([4, 1, 1 << 40])}, "neurons"),
        ({"hot": np.array([4, 1, 2], np.float32)}, "not those that"),
    ],
)
def test_false_tensors_are_refused(tmp_path: Path, tensors: dict[str, Any], words: str) -> None:
    head = some_activity().save(tmp_path)
    values = json.loads(head.read_text())
    del values["schema_version"], values["tensors_sha256"]
    sound = {"counts": some_activity().counts, "hot": np.array([4, 1, 3])}
    save_artifact(tmp_path, ARTIFACT_NAME, 1, values, {**sound, **tensors})
    with pytest.raises((ModelFormatError, ArtifactMismatchError), match=words):
        NeuronActivity.load(tmp_path)
