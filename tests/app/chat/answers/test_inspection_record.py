"""What was recorded of an answer's tokens: kept compactly, continued, branched, exported; damage is not read."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.chat.answers import inspection
from app.chat.answers.inspection import Inspection
from engine.service import protocol


def row(token: int, other: int = 9, **more: Any) -> dict[str, Any]:
    return {"id": token, "p": 0.7, "top": [[token, 0.7], [other, 0.2]], "us": 12, "run": 1, **more}


TEXTS = {"1": "<s>", "2": " a", "3": "\n", "9": " б"}
RECORD = Inspection([1, 2], [row(2), row(3, fired=[1, 2], computed=4)], TEXTS, 8, "Pip")


ACTIVE, HOT = base64.b64encode(b"\x81\x01\x06\x00").decode(), base64.b64encode(b"\x01\x00\xff\x01").decode()
NEURONS = Inspection([1], [row(2, fired=[3, 2], active=ACTIVE, hot=0)], TEXTS, 9, "Pip", hot=[HOT])


def ids_of(flags: Any) -> list[list[int]]:
    return [np.flatnonzero(layer).tolist() for layer in flags]


def test_active_neurons_by_token() -> None:
    kept = Inspection.from_bytes(NEURONS.to_bytes())
    assert kept == NEURONS
    assert ids_of(kept.active(0)) == [[0, 7, 8], [1, 2]]
    assert ids_of(kept.on_gpu(0)) == [[0], [0, 1, 2, 3, 4, 5, 6, 7, 8]]
    exported = json.loads(list(kept.lines())[1])
    assert exported["active_neuron_ids_by_layer"] == [[0, 7, 8], [1, 2]]
    assert exported["active_on_gpu_by_layer"] == [[0], [1, 2]]
    event = protocol.Inspected("b", [1, 2], [row(3, fired=[3, 2], active=ACTIVE)], TEXTS, 9)
    both = kept.followed_by(Inspection.of(event, "Pip"))
    assert both.on_gpu(0) is not None
    assert both.on_gpu(1) is None, "the part that was continued had no GPU"


def test_active_neurons_are_kept_of_the_last_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MOST_ACTIVE_CHARS", 4 * len(ACTIVE))
    kept = Inspection.from_bytes(replace(NEURONS, rows=NEURONS.rows * 5).to_bytes())
    assert kept is not None
    assert ["active" in one for one in kept.rows] == [False] * 2 + [True] * 3
    assert all("fired" in one for one in kept.rows)


@pytest.mark.parametrize("changed", [{"active": "x"}, {"active": ACTIVE[:-4]}, {"hot": 1}, {"hot": "0"}])
def test_damaged_active_neurons_are_no_record(changed: dict[str, Any]) -> None:
    assert Inspection.from_bytes(replace(NEURONS, rows=[NEURONS.rows[0] | changed]).to_bytes()) is None


def test_a_record_is_read_as_it_was_written() -> None:
    assert Inspection.from_bytes(RECORD.to_bytes()) == RECORD
    event = protocol.Inspected("a", RECORD.prompt, RECORD.rows, TEXTS, 8)
    assert replace(Inspection.of(event, "Pip"), hot=[]) == RECORD


def test_a_record_that_is_too_large_loses_its_last_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = [row(2, bytes=int(n)) for n in rng.integers(1 << 40, size=400)]
    monkeypatch.setattr(inspection, "MOST_BYTES", 2000)
    data = replace(RECORD, rows=rows).to_bytes()
    kept = Inspection.from_bytes(data)
    assert len(data) <= 2000
    assert kept is not None
    assert 50 < len(kept.rows) < 400
    assert kept.rows == rows[: len(kept.rows)]
    assert kept.n_left_out == 400 - len(kept.rows)
    monkeypatch.setattr(inspection, "MOST_BYTES", 150)
    nothing = Inspection.from_bytes(replace(RECORD, prompt=[1] * 9, rows=rows).to_bytes())
    assert nothing is not None
    assert (nothing.rows, nothing.n_left_out) == ([], 400)


@pytest.mark.parametrize(
    "data",
    [b"", b"junk", zlib.compress(b"[]"), zlib.compress(b"{\"rows\": 1}"), RECORD.to_bytes()[:-4],
     replace(RECORD, texts={}).to_bytes(), replace(RECORD, rows=[{"id": 2}]).to_bytes()],
)  # fmt: skip
def test_damage_is_no_record(data: bytes) -> None:
    assert Inspection.from_bytes(data) is None


@pytest.mark.parametrize(
    "changed",
    [{"texts": {**TEXTS, "2": 5}}, {"model": 5}, {"before": None}, {"prompt": [1.0]}, {"n_neurons": "8"},
     *({"rows": [row(2, **more)]} for more in (
         {"us": "x"}, {"run": [1]}, {"fired": 3}, {"fired": ["x"]}, {"experts": [[1], [2]], "missed": [1]},
         {"experts": [["x"]]}, {"bytes": float("nan")},
         {"p": "1"}, {"p": -0.5}, {"top": []}, {"top": [[2, "x"]]}, {"us": 10**400}))],
    ids=str,
)  # fmt: skip
def test_a_record_with_values_that_cannot_be_shown_is_none(changed: dict[str, Any]) -> None:
    assert Inspection.from_bytes(replace(RECORD, **changed).to_bytes()) is None
    full = row(2, fired=[1], computed=2, on_gpu=0, bytes=3, experts=[None, [1, 2]], missed=[0, 1])
    assert Inspection.from_bytes(replace(RECORD, rows=[full]).to_bytes()) is not None


def test_a_branch_ends_with_the_alternative() -> None:
    branch = RECORD.branched(1, 9)
    assert branch.ids == [2, 9]
    assert branch.rows[0] == RECORD.rows[0]
    assert (branch.rows[1]["p"], branch.rows[1]["run"], branch.rows[1]["us"]) == (0.2, 0, 0)
    assert "fired" not in branch.rows[1]
    assert RECORD.branched(1, 3) == RECORD


def test_a_continued_record_has_both_parts_if_the_tokens_are_the_same() -> None:
    later = Inspection([1, 2, 2, 3], [row(9)], TEXTS, 8, "Pip")
    assert RECORD.followed_by(later).ids == [2, 3, 9]
    assert RECORD.followed_by(later).prompt == [1, 2]
    other = replace(later, prompt=[1, 2, 9])
    assert RECORD.followed_by(other) == other
    assert Inspection(before="Once").followed_by(other) == replace(other, before="Once")


def test_the_export_names_everything() -> None:
    head, *tokens = map(json.loads, RECORD.lines())
    assert head["prompt"] == [{"id": 1, "text": "<s>"}, {"id": 2, "text": " a"}]
    assert (head["model"], head["neurons_per_layer"]) == ("Pip", 8)
    assert [token["text"] for token in tokens] == [" a", "\n"]
    assert tokens[0]["alternatives"][1] == {"id": 9, "text": " б", "probability": 0.2}
    assert (tokens[1]["active_neurons_by_layer"], tokens[1]["computed_neurons"]) == ([1, 2], 4)
    assert "computed_neurons" not in tokens[0]
