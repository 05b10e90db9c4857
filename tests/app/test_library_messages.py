"""What the library's process says in sentences of its own is known to the window, which shows it in any language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import library_messages
from app.library_messages import FACTS, in_users_language
from app.user_messages import describe
from engine.errors import LibraryError

ROOT = Path(__file__).resolve().parents[2]
# Never shown: they hold names from inside, or consist of what another sentence says.
UNSEEN = {"{} is not where {} belongs.", "{} is not an id of a model.", "{}: {}.", "{} cannot be listed. {}",
          "{} cannot be prepared: {}",
          # a figure with its reason, of which the window has its own words
          "{} are still to be {}{}, and 2 GB must stay free; there are {} free in {}."}  # fmt: skip


def sentences() -> Iterator[str]:
    """Yield what LibraryError and DiskSpaceError are raised with in engine/library, values as {}."""
    for file in sorted((ROOT / "engine" / "library").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            if node.func.id not in ("LibraryError", "DiskSpaceError"):
                continue
            said = node.args[0]
            if isinstance(said, ast.Constant):
                yield str(said.value)
            elif isinstance(said, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in said.values)


def test_every_sentence_of_the_library_is_known_and_no_other() -> None:
    known = {re.sub(r"\{\w+\}", "{}", fact) for fact in FACTS}
    assert set(sentences()) - UNSEEN == known


def test_a_sentence_is_shown_in_the_users_language(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = next(fact for fact in FACTS if "{" not in fact)
    valued = next(fact for fact in FACTS if sorted(re.findall(r"{(\w+)}", fact)) == ["what", "why"])
    german = {plain: "Ein Satz.", valued: "{what}, und zwar {why}."}
    monkeypatch.setattr(library_messages, "tr", lambda text, **values: german.get(text, text).format(**values))
    assert in_users_language(plain) == "Ein Satz."
    assert in_users_language(valued.format(what="/a/b", why="No space")) == "/a/b, und zwar No space."
    assert in_users_language("Something else.") == "Something else."
    assert describe(LibraryError(plain, "Close the other one."), during="download").sentence == "Ein Satz."


def test_a_file_that_was_cut_is_told_in_megabytes() -> None:
    said = library_messages.remark("Its file a.gguf has 9000000 bytes; it had 34845504 bytes when it was imported.")
    assert "9\u202fMB" in said
    assert "35\u202fMB" in said
