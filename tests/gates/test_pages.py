"""README and docs hold together: links lead somewhere, README's index has every page, and named files are there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from support.documented import PAGES, ROOT, anchors, blocks, links

from engine.commands import cli

# A path of the tree in a sentence, perhaps with a star, a place in it behind a colon, or braces for several.
_PATH = re.compile(r"(?:app|engine|native_kernels|docs|assets|installer|tests)/[\w.*/\-]+")


_TOUR_DEEPEST = 4  # folders; what is indented further goes on with the row above


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for line, target in links(page):
        if target.startswith(("https://", "mailto:")):
            continue
        place, _, heading = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not file.exists() or (heading and heading not in anchors(file)):
            wrong.append(f"line {line}: {target}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {span for span in re.findall(r"`([^`\n]+)`", text) if _PATH.fullmatch(span)}
    patterns = {path: re.sub(r"[A-Z]{4,}", "*", path) for path in named}  # hearth_LANGUAGE.ts: any of them
    assert sorted(path for path, pattern in patterns.items() if not any(ROOT.glob(pattern))) == []


def test_the_tour_names_files_where_they_are() -> None:
    """Each name of a row is in the folder that the row describes, or below it."""
    (tree,) = blocks(ROOT / "docs" / "tour.md")
    place: dict[int, list[Path]] = {-1: [ROOT]}
    missing, within = [], [ROOT]
    for line in tree.text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        if depth < _TOUR_DEEPEST:
            names, _, words = line.strip().partition("  ")
            parent = place[depth - 1][0]
            found = [parent / name.rstrip("/") for name in names.split(", ")]
            missing += [str(path.relative_to(ROOT)) for path in found if not path.exists()]
            place[depth] = within = found if found[0].is_dir() else [parent]
        else:
            words = line
        for name in re.findall(r"\b[\w/]+\.(?:py|spec)\b|\b[a-z]+/(?=[ ,;)]|$)", words):
            if not any((ROOT / name).exists() or any(folder.rglob(name.rstrip("/"))) for folder in within):
                missing.append(f"{within[0].relative_to(ROOT)}: {name}")
    assert missing == []


def test_the_index_has_every_page() -> None:
    indexed = {target for _, target in links(ROOT / "README.md")}
    assert sorted(page.name for page in PAGES[1:] if f"docs/{page.name}" not in indexed) == []


def test_the_readme_names_every_command() -> None:
    parser = cli.build_parser()
    (names,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert sorted(name for name in names.choices if f"`{name}`" not in text) == []
