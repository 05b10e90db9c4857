"""The words that docs/troubleshooting.md quotes are those of the program: the page is searched for what is seen."""

from __future__ import annotations

import re
from functools import cache

from support.documented import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"


@cache
def texts_of_the_program() -> str:
    """The program's sources, with texts that are put together from several lines in one piece."""
    files = [file for package in ("app", "engine", "installer") for file in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in files)


def test_what_is_quoted_is_what_the_program_says() -> None:
    quoted = re.findall(r"“([^”]+)”", PAGE.read_text(encoding="utf-8"))
    assert len(quoted) > 30
    assert sorted(text for text in set(quoted) - {"quotation marks"} if text not in texts_of_the_program()) == []
