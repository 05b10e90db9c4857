"""The question set of the document search: every question names one document and quotes it exactly once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from app.documents.index_file import IndexedFile, IndexFile
from app.documents.passages import divided
from app.documents.reading.document import Part
from app.documents.search import search

DATA = Path(__file__).parents[2] / "data"
PER_DOCUMENT = {"literal": 1, "paraphrase": 2, "hard": 1}


def _questions(name: str = "document_questions") -> list[dict[str, str]]:
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_questions_quote_their_document_once() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (DATA / "documents").iterdir()}
    questions = _questions()
    counts = Counter((one["document"], one["kind"]) for one in questions)
    assert counts == {(name, kind): count for name in texts for kind, count in PER_DOCUMENT.items()}
    assert len({one["question"] for one in questions}) == len(questions) == 200
    for one in questions:
        assert 20 <= len(one["quote"]) <= 80, one
        assert texts[one["document"]].count(one["quote"]) == 1, one
    # A quote found in a second document would make that one a right answer too.
    assert [one for one in questions if sum(one["quote"] in text for text in texts.values()) > 1] == []


def test_words_alone_find_most_of_the_documents() -> None:
    index = IndexFile(None)
    index.open()
    for path in sorted((DATA / "documents").iterdir()):
        text = path.read_text(encoding="utf-8")
        index.put(IndexedFile(0, str(path), 1, 1, "text", 1), divided([Part(text, 1)]))
    files = [one.id for one in index.files().values()]
    held_out = _questions("document_questions_held_out")
    assert {one["document"] for one in held_out} <= {Path(path).name for path in index.files()}
    found = Counter[str]()
    for question in _questions() + [{**one, "kind": "held out"} for one in held_out]:
        names = [Path(hit.path).name for hit in search(index, question["question"], files)]
        found[question["kind"]] += question["document"] in names
    index.close()
    assert found["held out"] >= 36
    assert found["literal"] == 50
    assert found["paraphrase"] >= 97
    assert found["hard"] >= 36
