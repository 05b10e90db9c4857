"""Collects the licences of what the build takes in beside Python packages: Python itself and the system's libraries.

On Debian and Ubuntu each library's package says what it is and under which licence; elsewhere the names are listed.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

LISTED = "added.json"
_DOCS = Path("/usr/share/doc")


def collect(libraries: Iterable[Path], folder: Path) -> list[dict[str, str]]:
    """Write one text for each package that a library belongs to, and the list of them, into the folder.

    libraries: files of the build that come from the system. Returns the list, as app/third_party.py reads it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for place in (sysconfig.get_path("stdlib"), sys.base_prefix):  # the latter on Windows
        _copy(Path(place, "LICENSE.txt"), folder / "python.txt")
    by_package: dict[str, list[str]] = {}
    for library in sorted(set(libraries)):
        by_package.setdefault(package_of(library) or library.name, []).append(library.name)
    listed = []
    for package, names in sorted(by_package.items()):
        key = f"system-{package}"
        _copy(_DOCS / package / "copyright", folder / f"{key}.txt")
        listed.append({"key": key, "name": f"{package} ({', '.join(sorted(names))})", "version": version_of(package),
                       "licence": licences_in(folder / f"{key}.txt")})  # fmt: skip
    (folder / LISTED).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return listed


def package_of(library: Path) -> str:
    """The Debian package that holds a file; empty where none does."""
    for path in dict.fromkeys((library, library.resolve())):
        for place in (str(path), str(path).removeprefix("/usr")):  # / and /usr are one on newer systems
            if said := _ask("dpkg-query", "-S", place):
                return said.partition(":")[0]
    return ""


def version_of(package: str) -> str:
    """The installed version of a Debian package; a dash where there is none."""
    return _ask("dpkg-query", "-W", "-f=${Version}", package) or "–"


def licences_in(copyright_file: Path) -> str:
    """The names that a Debian copyright file gives, each once; a dash where it names none."""
    try:
        text = copyright_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "–"
    names = dict.fromkeys(name.strip() for name in re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.M))
    return ", ".join(names)[:100] or "see its text"


def is_of_the_system(path: Path) -> bool:
    """Whether a file of the build was taken from the operating system."""
    return platform.system() == "Linux" and path.resolve().parts[1] in ("lib", "lib64", "usr")


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
