"""Index folders of documents, and find the right one for questions.

    python tests/benchmarks/document_search.py --folder ~/papers
    python tests/benchmarks/document_search.py --questions [--model multilingual-e5-small] [--note TEXT] [--record]

With --questions, the folder and the questions are those of tests/data; each question has one right document, and counts
as answered if that is among the first five, or the first. Those of `held_out` were looked at to compare variants.
--model: also by vectors of this installed model, or of the one at this path. --note: what the record says of it.
Prints a JSON object. The time to index includes starting the process that reads files. Where other programs use the CPU
too, vectors_cpu_s says what the vectors of the passages cost.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from app.documents.index_file import IndexFile  # noqa: E402 - found by the line above
from app.documents.indexing import Indexer  # noqa: E402
from app.documents.passage_vectors import AT_ONCE  # noqa: E402
from app.documents.search import Asked, search  # noqa: E402
from engine.machine.hardware import describe, probe  # noqa: E402
from engine.service import protocol  # noqa: E402
from engine.service.host import EngineHost  # noqa: E402

DATA = ROOT / "tests" / "data"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=DATA / "documents")
    parser.add_argument("--questions", action="store_true")
    parser.add_argument("--model", default="")
    parser.add_argument("--note", default="")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        index = IndexFile(Path(kept) / "documents.db")
        found = indexed(index, str(flags.folder.resolve()))
        found["index_mb"] = round(os.path.getsize(Path(kept) / "documents.db") / 1e6, 1)
        if flags.questions:
            vectors = Vectors(index, flags.model) if flags.model else None
            found |= answered(index, "document_questions", vectors)
            found["held_out"] = answered(index, "document_questions_held_out", vectors)
            if vectors is not None:
                found |= vectors.figures
        index.close()
    model = Path(flags.model).name
    given = ["--questions" if flags.questions else "--folder FOLDER", f"--model {model}" if model else ""]
    found |= {"note": flags.note} if flags.note else {}
    result = {
        "command": " ".join(["python tests/benchmarks/document_search.py", *filter(None, given)]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "hardware": describe(probe()), **found,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if flags.record:
        name = (
            f"document-{'questions' if flags.questions else 'index'}-{model}{'-' if model else ''}{result['date']}.json"
        )
        (Path(__file__).parent / "results" / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def indexed(index: IndexFile, folder: str) -> dict[str, Any]:
    indexer, began = Indexer(index, lambda: None), time.perf_counter()
    indexer.set_folders([folder])
    while not indexer.is_idle:
        time.sleep(0.02)
    seconds, (state,) = time.perf_counter() - began, indexer.states()
    files = indexer.files([folder])
    indexer.close()
    return {
        "files": state.n_files, "not_read": state.n_failed, "pages": sum(one.n_parts for one in files),
        "characters": state.chars, "index_s": round(seconds, 1),
    }  # fmt: skip


class Vectors:
    """Vectors of the passages, and of questions."""

    def __init__(self, index: IndexFile, model: str) -> None:
        self._events: list[Any] = []
        self._host, self.model = EngineHost(self._events.append), model
        self._of(["The model is loaded."], "passage")
        n_passages = n_tokens = 0
        seconds = cpu = 0.0
        while rows := index.without_vector(model, AT_ONCE):
            began, cpu_began = time.perf_counter(), time.process_time()
            vectors = self._of([text for _, text in rows], "passage")
            seconds, cpu = seconds + time.perf_counter() - began, cpu + time.process_time() - cpu_began
            n_passages, n_tokens = n_passages + len(rows), n_tokens + self._events[-1].result["tokens"]
            index.put_vectors(
                model, [(row[0], one.astype(np.float16).tobytes()) for row, one in zip(rows, vectors, strict=True)]
            )
        self.figures = {
            "passages": n_passages, "passage_tokens": n_tokens, "vectors_s": round(seconds, 1),
            "vectors_cpu_s": round(cpu, 1),
            "passages_per_s": round(n_passages / seconds, 1), "tokens_per_s": round(n_tokens / seconds),
            "passages_per_cpu_s": round(n_passages / cpu, 1),
        }  # fmt: skip

    def asked(self, question: str) -> Asked:
        return Asked(self._of([question], "query")[0], self.model)

    def _of(self, texts: list[str], role: str) -> list[np.ndarray]:
        self._host.submit(protocol.Embed("e", texts, self.model, role=role))
        self._host.run_pending()
        end = self._events[-1]
        if not isinstance(end, protocol.Finished):
            raise RuntimeError(end.message)
        return [np.frombuffer(base64.b64decode(one), "<f4") for one in end.result["vectors"]]


def answered(index: IndexFile, questions: str, vectors: Vectors | None) -> dict[str, Any]:
    lines = (DATA / f"{questions}.jsonl").read_text(encoding="utf-8").splitlines()
    files = [one.id for one in index.files().values()]
    first, five, asked, seconds = Counter[str](), Counter[str](), Counter[str](), []
    for question in map(json.loads, lines):
        began = time.perf_counter()
        hits = search(index, question["question"], files, 5, vectors.asked(question["question"]) if vectors else None)
        seconds.append(time.perf_counter() - began)
        names = [Path(hit.path).name for hit in hits]
        asked[question["kind"]] += 1
        five[question["kind"]] += question["document"] in names
        first[question["kind"]] += question["document"] in names[:1]
    return {
        "questions": len(lines), "in_first_five": five.total(), "first": first.total(),
        "by_kind": {kind: {"asked": asked[kind], "in_first_five": five[kind], "first": first[kind]} for kind in asked},
        "search_ms": {"p50": round(1e3 * float(np.median(seconds)), 2), "max": round(1e3 * max(seconds), 2)},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
