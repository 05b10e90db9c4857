"""The words that docs/troubleshooting.md quotes are those of the program: a person searches the page for what they see."""

from __future__ import annotations

import ast
import re
from functools import cache

from documented import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"


@cache
def texts_of_the_program() -> str:
    """Every text that stands in the program's sources, docstrings among them, one a line."""
    found: list[str] = []
    for package in ("app", "engine", "installer"):
        for file in sorted((ROOT / package).rglob("*.py")):
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            found += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


def test_what_is_quoted_is_what_the_program_says() -> None:
    quoted = re.findall(r"“([^”]+)”", PAGE.read_text(encoding="utf-8"))
    assert len(quoted) > 30
    assert sorted(text for text in set(quoted) - {"quotation marks"} if text not in texts_of_the_program()) == []
