"""All sentences that a person can read, in one file for review: sentences.txt.

Tests assert facts, not sentences, so a sentence can change without a test that fails. It shows here: the file lists
every text of at least three words in the sources, besides docstrings, what is only logged for developers and what
stands in the translations, where it is reviewed. Renew it with HEARTH_UPDATE_SENTENCES=1 and read the difference.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from installer.translations import read

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("sentences.txt")
FOLDERS = ("app", "engine", "native_kernels", "installer")
FEWEST_WORDS = 3
CODE = ("{ ", "{%")  # in style sheets and templates


def test_every_sentence_is_listed_for_review() -> None:
    translated = {" ".join(words.text.split()) for words in read("de")}
    texts = {text for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") for text in sentences(path)}
    found = sorted(texts - translated)
    if os.environ.get("HEARTH_UPDATE_SENTENCES"):
        LISTED.write_text("".join(f"{text}\n" for text in found), encoding="utf-8")
    listed = LISTED.read_text(encoding="utf-8").splitlines()
    assert found == listed, "set HEARTH_UPDATE_SENTENCES=1, run this again and read the difference"


def sentences(path: Path) -> Iterator[str]:
    """Return the texts of a source file, each in one line; what is filled in stands as {}."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            text = " ".join("".join(parts).split())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = " ".join(node.value.split())
        else:
            waiting += seen_parts(node)
            continue
        words = [word for word in text.split() if word.strip(".,:;!?()'\"“”").isalpha()]
        if len(words) >= FEWEST_WORDS and not any(mark in text for mark in CODE):
            yield text


def seen_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's parts, without what only developers see: docstrings, assertions and calls of a log."""
    if isinstance(node, ast.Assert):
        return
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and getattr(node.func.value, "id", "") == "log"
    ):
        return
    for part in ast.iter_child_nodes(node):
        is_docstring = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        if not is_docstring and not isinstance(part, (ast.expr_context, ast.operator, ast.Name)):
            yield part
