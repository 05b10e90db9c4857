"""Collect the window's texts into Qt Linguist's files, and compile these for the window.

    python -m installer.translations          after texts were changed: add new ones as unfinished, remove old ones
    python -m installer.translations --check  list missing translations; exit with 1 if there are any

The .ts files in assets/translations are edited with Qt Linguist or by hand. The .qm.z files beside them are made from
them and are in the repository too, so running Hearth needs no tool of Qt's. English is the source and has no file.
"""

from __future__ import annotations

import argparse
import ast
import json
import lzma
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "assets" / "translations"
CATALOGUE = ROOT / "assets" / "catalogue.json"  # its models are described in the user's language
CONTEXT = "Hearth"
FORMS = {"de": 2, "zh_CN": 1}  # how many forms a word has by its number, as Qt counts them

# Calls that note words for translation by standing in a table: places and names of the arguments that hold them.
_TABLES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "Command": ((1,), ("where", "also")),
    "_setting": ((2, 3), ("none", "choices")),
    "Bounds": ((3,), ("unit",)),
}


@dataclass(frozen=True)
class Words:
    """A text to translate. about: which of two meanings; counted: it has a form for each number."""

    text: str
    about: str = ""
    counted: bool = False


@dataclass
class Entry:
    """Words in a language's file. forms: one, or as many as the language has; empty texts are to be translated."""

    words: Words
    forms: list[str]
    is_unfinished: bool = False


# --- what the source holds


def words_of(source: str) -> Iterator[Words]:
    """Every word of a module that goes through the hook. Raises ValueError for one that cannot be collected."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in {"tr", "noted"} and node.args and isinstance(node.args[0], ast.Constant):
            about = next((word.value for word in node.keywords if word.arg == "about"), None)
            yield Words(_text(node.args[0]), _text(about) if about is not None and name == "tr" else "")
        elif name == "tr_n":
            yield Words(_text(node.args[1]), counted=True)
        elif name in _TABLES:
            yield from map(Words, _of_table(node, *_TABLES[name]))


def _of_table(node: ast.Call, places: tuple[int, ...], names: tuple[str, ...]) -> Iterator[str]:
    if node.func.__dict__.get("id") == "_setting" and not any(word.arg == "group" for word in node.keywords):
        return  # what the window remembers by itself is shown nowhere
    held = [node.args[place] for place in places if place < len(node.args)]
    held += [word.value for word in node.keywords if word.arg in names]
    for one in held:
        if isinstance(one, ast.Constant):
            yield _text(one)
        elif isinstance(one, ast.Tuple):  # choices: pairs of a value and its words
            yield from (_text(pair.elts[1]) for pair in one.elts if isinstance(pair, ast.Tuple))


def _text(node: ast.expr) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise ValueError(f"line {node.lineno}: text for translation must be a literal")
    return node.value


def collected() -> dict[Words, list[str]]:
    """Every word of the window, and the files that it stands in."""
    found: dict[Words, list[str]] = {}
    for path in sorted((ROOT / "app").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        for words in words_of(path.read_text(encoding="utf-8")):
            if words.text and place not in found.setdefault(words, []):
                found[words].append(place)
    for entry in json.loads(CATALOGUE.read_text(encoding="utf-8"))["models"]:
        found.setdefault(Words(entry["summary"]), [CATALOGUE.relative_to(ROOT).as_posix()])
    return found


# --- the files


def read(language: str) -> dict[Words, Entry]:
    """Return the content of a language's file; empty if there is none."""
    path = FOLDER / f"hearth_{language}.ts"
    if not path.is_file():
        return {}
    entries = {}
    for message in ET.parse(path).getroot().iter("message"):
        counted = message.get("numerus") == "yes"
        words = Words(message.findtext("source") or "", message.findtext("comment") or "", counted)
        given = message.find("translation")
        assert given is not None, "Qt Linguist writes a translation for each message, if an empty one"
        forms = [form.text or "" for form in given.iter("numerusform")] if counted else [given.text or ""]
        entries[words] = Entry(words, forms, given.get("type") == "unfinished")
    return entries


def written(language: str, entries: dict[Words, Entry], places: dict[Words, list[str]]) -> str:
    """A language's file, in the order of the modules, with a message a line."""
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<!DOCTYPE TS>",
        f'<TS version="2.1" language="{language}" sourcelanguage="en">',
        "<context>",
        f"<name>{CONTEXT}</name>",
    ]
    for words, _ in sorted(places.items(), key=lambda item: (item[1][0], item[0].text, item[0].about)):
        entry = entries[words]
        unfinished = ' type="unfinished"' if entry.is_unfinished else ""
        parts = ['<message numerus="yes">' if words.counted else "<message>", f"<source>{escape(words.text)}</source>"]
        if words.about:
            parts.append(f"<comment>{escape(words.about)}</comment>")
        forms = [escape(form) for form in entry.forms]
        of_numbers = "".join(f"<numerusform>{form}</numerusform>" for form in forms)
        parts.append(f"<translation{unfinished}>{of_numbers if words.counted else forms[0]}</translation></message>")
        lines.append("".join(parts))
    return "\n".join([*lines, "</context>", "</TS>", ""])


def update(language: str) -> int:
    """Take new words into a language's file and old ones out; returns how many are still to be translated."""
    places, known = collected(), read(language)
    entries = {
        words: known.get(words) or Entry(words, [""] * (FORMS[language] if words.counted else 1), True)
        for words in places
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"hearth_{language}.ts").write_text(written(language, entries, places), encoding="utf-8", newline="\n")
    return sum(entry.is_unfinished for entry in entries.values())


def without_sources(compiled: bytes) -> bytes:
    """Return a .qm file without the texts that are translated: Qt finds a translation by the hash of its text.

    Texts that share a hash stay. Format: qttools/src/linguist/shared/qm.cpp.
    """
    hashes_tag, messages_tag, end, obsolete, translation = 0x42, 0x69, 1, 5, 3
    sections, at = {}, 16  # after the magic number
    while at < len(compiled):
        tag, n = struct.unpack_from(">BI", compiled, at)
        sections[tag] = compiled[at + 5 : at + 5 + n]
        at += 5 + n
    offsets = list(struct.iter_unpack(">II", sections[hashes_tag]))
    times, messages, kept, hashes = Counter(key for key, _ in offsets), sections[messages_tag], b"", b""
    for key, at in offsets:
        hashes += struct.pack(">II", key, len(kept))
        while (tag := messages[at]) != end:
            n = 0 if tag == obsolete else int.from_bytes(messages[at + 1 : at + 5], "big", signed=True)
            part, at = messages[at : at + 5 + max(n, 0)], at + 5 + max(n, 0)
            if tag == translation or times[key] > 1:
                kept += part
        kept += bytes([end])
    sections |= {hashes_tag: hashes, messages_tag: kept}
    return compiled[:16] + b"".join(struct.pack(">BI", tag, len(data)) + data for tag, data in sections.items())


def compile_(language: str) -> None:
    """Make the file that the window reads. Raises CalledProcessError with what Qt's tool said."""
    source = FOLDER / f"hearth_{language}.ts"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "words.qm"
        command = ["pyside6-lrelease", "-silent", str(source), "-qm", str(made)]
        beside = Path(sys.executable).with_name(command[0])  # a virtual environment that is not activated
        subprocess.run([str(beside) if beside.exists() else command[0], *command[1:]], check=True)
        source.with_suffix(".qm.z").write_bytes(
            lzma.compress(without_sources(made.read_bytes()), preset=9 | lzma.PRESET_EXTREME)
        )


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and report what is missing")
    check = parser.parse_args().check
    left = 0
    for language in FORMS:
        if check:
            entries = read(language)
            missing = [words for words in collected() if words not in entries or entries[words].is_unfinished]
            for words in missing:
                print(f"{language}: {words.text!r}")
            left += len(missing)
        else:
            left += update(language)
            compile_(language)
    print(f"{left} to be translated")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
