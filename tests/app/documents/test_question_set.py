"""The question set of the document search: every question names one document and quotes it exactly once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"
PER_DOCUMENT = {"literal": 1, "paraphrase": 2, "hard": 1}


def test_questions_quote_their_document_once() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (DATA / "documents").iterdir()}
    lines = (DATA / "document_questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    counts = Counter((one["document"], one["kind"]) for one in questions)
    assert counts == {(name, kind): count for name in texts for kind, count in PER_DOCUMENT.items()}
    assert len({one["question"] for one in questions}) == len(questions) == 200
    for one in questions:
        assert 20 <= len(one["quote"]) <= 80, one
        assert texts[one["document"]].count(one["quote"]) == 1, one
    # A quote found in a second document would make that one a right answer too.
    assert [one for one in questions if sum(one["quote"] in text for text in texts.values()) > 1] == []
