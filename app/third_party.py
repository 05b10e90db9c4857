"""Third-party software in Hearth: name, version, licence and its text. Downloads nothing.

A checkout and the built program read the packages' own metadata. What the build adds beyond packages (Python, system
libraries) is in the assets, listed by installer/licences.py.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from engine.assets import asset_root

PROJECT = "hearth"
ADDED = "added.json"  # in asset_root()/licences/added: what the build adds
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice|eula)", re.IGNORECASE)
# Packages without a licence text of their own; the texts are in the assets.
_TEXTS = {
    "pyside6-essentials": ("lgpl-3.0.txt", "gpl-3.0.txt"),
    "shiboken6": ("lgpl-3.0.txt", "gpl-3.0.txt"),
    "tokenizers": ("apache-2.0.txt",),
    "nvidia-ml-py": ("nvidia-ml-py.txt",),
    "latex2mathml": ("latex2mathml.txt",),
    "ziamath": ("stix-two-math.txt",),  # besides its own
}
_NAMES = {  # the names people know
    "pyside6-essentials": "Qt and Qt for Python",
    "torch": "PyTorch",
    "nvidia-cuda-nvrtc-cu12": "NVIDIA's compiler NVRTC",
    "nvidia-ml-py": "NVIDIA Management Library",
    "ziamath": "ziamath, with the font STIX Two Math",
}
# Where the metadata field holds the whole text, or less than the classifiers.
_WORDS = {"BSD License": "BSD", "Apache Software License": "Apache-2.0", "MIT License": "MIT",
          "Python Software Foundation License": "PSF-2.0"}  # fmt: skip
_FONT = (
    "inter",
    "Inter",
    "4.1",
    "OFL-1.1",
)  # the window's, without hints and unused glyphs; licence in the assets
_MOST_CHARS = 100  # of a licence's name


@dataclass(frozen=True)
class Part:
    """One piece of third-party software. key: for `licence_text`."""

    key: str
    name: str
    version: str
    licence: str


@cache
def parts() -> tuple[Part, ...]:
    """Return all third-party software, sorted by name. Cost: about 0.3 s, once."""
    found = [Part("python", "Python", platform.python_version(), "PSF-2.0")]
    for key in needed_distributions():
        try:
            of_it = metadata.metadata(key)
        except metadata.PackageNotFoundError:  # the build leaves out packages that are never imported
            continue
        found.append(Part(key, _NAMES.get(key, of_it["Name"]), of_it["Version"], licence_name(of_it)))
    found += [Part(*_FONT), *_added()]
    return tuple(sorted(found, key=lambda part: part.name.lower()))


def licence_text(key: str) -> str:
    """Return a licence with its notices; empty if there is none."""
    folder = asset_root() / "licences"
    if any(part.key == key for part in _added()):
        return _read(folder / "added" / f"{key}.txt")
    if key == _FONT[0]:
        return _read(folder / f"{key}.txt")
    if key == "python":
        # on Windows it is beside python.exe
        places = (Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix))
        own = next(filter(None, (_read(place / "LICENSE.txt") for place in places)), "")
        return own or _read(folder / "added" / "python.txt")
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in _licence_files(key)]
    texts += [_read(folder / name) for name in _TEXTS.get(key, ())]
    return "\n\n".join(text.strip() for text in texts if text.strip())


def needed_distributions(project: str = PROJECT) -> list[str]:
    """Return the packages that the program needs on this system: the project's dependencies and theirs."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(project, frozenset())]
    while waiting:
        name, extras = waiting.pop()
        try:
            lines = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for line in lines:
            requirement = Requirement(line)
            key, marker = canonicalize_name(requirement.name), requirement.marker
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))
            if wanted and key not in found:
                found.add(key)
                waiting.append((key, frozenset(requirement.extras)))
    return sorted(found)


def licence_name(of_it: metadata.PackageMetadata) -> str:
    """Return the name of a package's licence; "–" if it names none."""
    for field in ("License-Expression", "License"):
        lines = "\n".join(of_it.get_all(field) or ()).strip().splitlines()
        if len(lines) == 1 and lines[0] not in ("BSD", "") and len(lines[0]) <= _MOST_CHARS and "(c)" not in lines[0]:
            return lines[0].replace("LicenseRef-NVIDIA-Proprietary", "NVIDIA's own")
    for classifier in of_it.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            name = str(classifier).rpartition(" :: ")[2]
            return _WORDS.get(name, name)
    return "–"


def _licence_files(key: str) -> Iterator[Path]:
    try:
        files = metadata.files(key) or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        is_licence = "licenses" in file.parts or _LICENCE_FILE.search(file.name)
        if file.parts[0].endswith(".dist-info") and is_licence:
            path = Path(str(file.locate()))
            if path.is_file():
                yield path


def _added() -> list[Part]:
    try:
        listed = json.loads((asset_root() / "licences" / "added" / ADDED).read_text(encoding="utf-8"))
    except OSError:  # running from a checkout
        return []
    return [Part(one["key"], one["name"], one["version"], one["licence"]) for one in listed]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
