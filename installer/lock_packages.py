"""Write the SHA-256 hashes of every pinned package to installer/locked, for the set-up to check.

    .venv/bin/python installer/lock_packages.py

Run it after each change of a pin, with the tests' tools installed. It asks pip's own package index for the files of
each pinned version and keeps the wheels for the supported Pythons and systems. It downloads no package: of the NVIDIA
packages that PyTorch's CUDA build needs, pip reads the metadata alone.

The set-up runs pip with --require-hashes on these lists: a damaged, exchanged or newly uploaded file is refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
BUILD_PINS = ROOT / "installer" / "constraints.txt"
CPU_BUILDS = ROOT / "installer" / "torch_cpu.sha256"
LOCKED = ROOT / "installer" / "locked"
PYTHONS = (11, 12, 13)  # minor versions
_JSON = "application/vnd.pypi.simple.v1+json"


class System(NamedTuple):
    """A system that packages are locked for: how markers name it, and the platform tags of its wheels."""

    platform: str
    name: str
    machine: str
    tags: str
    complete: bool  # every package must have a wheel


SYSTEMS = (
    System("linux", "Linux", "x86_64", r"(manylinux.*|linux)_x86_64", True),
    System("win32", "Windows", "AMD64", r"win_amd64", True),
    System("darwin", "Darwin", "arm64", r"macosx_.*_(arm64|universal2)", True),
    System("linux", "Linux", "aarch64", r"(manylinux.*|linux)_aarch64", False),
)


def main() -> int:
    """Write all lists. Returns the exit status."""
    pins, build_pins = read_pins(PINS), read_pins(BUILD_PINS)
    torch = pins.pop("torch")
    app = needed_by_app() & set(pins)
    index = Index()
    lists = {
        "app": (_lines(index, (pins[name] for name in app)), "What Hearth itself needs, apart from PyTorch."),
        "tests": (
            _lines(index, (pins[name] for name in pins if name not in app)),
            "What the tests need besides.",
        ),
        "build": (_lines(index, build_pins.values()), "What builds the program (installer/build.py)."),
        "torch": ([_entry(torch, index.hashes(torch))], "PyTorch, as the public index has it: with CUDA on Linux."),
        "torch_cpu": (
            [_entry(Requirement(f"{torch}+cpu"), cpu_build_hashes(torch))],
            "PyTorch's builds for the CPU, as PyTorch's own index has them (torch_cpu.sha256).",
        ),
        "cuda": (
            _lines(index, index.companions(torch)),
            "NVIDIA's packages for the CUDA build of PyTorch on Linux, which the public index has.",
        ),
    }
    LOCKED.mkdir(exist_ok=True)
    for name, (entries, purpose) in lists.items():
        text = f"# {purpose}\n# Written by installer/lock_packages.py; do not edit.\n" + "".join(entries)
        (LOCKED / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(entries)} packages, {text.count('--hash')} files")
    return 0


def read_pins(path: Path) -> dict[str, Requirement]:
    """The pinned requirements of a constraints file, by normalized name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def environments() -> Iterator[tuple[System, int, dict[str, str]]]:
    """Every supported system and Python, with the values of its markers."""
    for system in SYSTEMS:
        for minor in PYTHONS:
            yield (
                system,
                minor,
                {
                    "sys_platform": system.platform,
                    "platform_system": system.name,
                    "platform_machine": system.machine,
                    "os_name": "nt" if system.platform == "win32" else "posix",
                    "python_version": f"3.{minor}",
                    "python_full_version": f"3.{minor}.0",
                    "extra": "",
                },
            )


def needed_by_app() -> set[str]:
    """Packages that Hearth needs without the tests' tools, on any supported system, and what installs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    direct = [*project["project"]["dependencies"], *project["build-system"]["requires"], "editables"]
    found: set[str] = set()
    for _, _, environment in environments():
        found |= needed(map(Requirement, direct), environment)
    return found


def needed(requirements: Iterable[Requirement], environment: dict[str, str]) -> set[str]:
    """Names of the given requirements and all that these need in `environment`, by the metadata of what is installed.

    A package that is not installed here, because it is for another system, counts as needing nothing.
    """
    found: set[tuple[str, str]] = set()  # with one of its extras, or ""
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({**environment, "extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            try:
                lines = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            waiting += [(Requirement(line), extra) for line in lines]
    return {name for name, _ in found}


def fits(tags: Iterable[Tag], system: System, minor: int) -> bool:
    """Whether a wheel with these tags installs on CPython 3.`minor` of the system."""
    for tag in tags:
        own = re.fullmatch(r"cp3(\d+)", tag.interpreter)
        if own is None:
            python = re.fullmatch(r"py3\d*", tag.interpreter) is not None and tag.abi == "none"
        elif tag.abi == "abi3":
            python = int(own.group(1)) <= minor
        else:
            python = int(own.group(1)) == minor and tag.abi in (tag.interpreter, "none")
        if python and (tag.platform == "any" or re.fullmatch(system.tags, tag.platform)):
            return True
    return False


class Index:
    """The package index that pip is configured for, asked over pip's own connection (certificates, proxy, password)."""

    def __init__(self) -> None:
        # Nothing public tells pip's default index; `pip index versions` itself goes this way.
        from pip._internal.commands import create_command

        command: Any = create_command("download")
        options, _ = command.parse_args(["packaging"])
        self._session = command._build_session(options)
        self._address = options.index_url.rstrip("/")

    def hashes(self, pin: Requirement) -> list[str]:
        """SHA-256 of every wheel of the pinned version that fits a supported Python and system, by file name.

        Raises: SystemExit where a supported system or Python has no wheel.
        """
        answer = self._session.get(f"{self._address}/{canonicalize_name(pin.name)}/", headers={"Accept": _JSON})
        answer.raise_for_status()
        wheels: dict[str, str] = {}
        served: set[tuple[System, int]] = set()
        for file in answer.json()["files"]:
            if not file["filename"].endswith(".whl"):
                continue
            try:
                _, version, _, tags = parse_wheel_filename(file["filename"])
            except ValueError:  # of an old release
                continue
            if not pin.specifier.contains(version, prereleases=True):
                continue
            places = {(system, minor) for system, minor, _ in environments() if fits(tags, system, minor)}
            if places:
                wheels[file["filename"]] = file["hashes"]["sha256"]
                served |= places
        for system, minor, environment in environments():
            due = system.complete and (pin.marker is None or pin.marker.evaluate(environment))
            if due and (system, minor) not in served:
                raise SystemExit(f"{pin} has no wheel for {system.name} {system.machine}, Python 3.{minor}")
        return [wheels[name] for name in sorted(wheels)]

    def companions(self, torch: Requirement) -> list[Requirement]:
        """Pins of what the index's build of PyTorch needs on Linux beyond the pins: NVIDIA's packages and Triton."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 35)] + ["manylinux2014_x86_64"]
            command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
                       "--report", str(report), "--only-binary", ":all:", "--use-feature=fast-deps",
                       "--index-url", self._address, "--python-version", "3.12", "--target", folder,
                       "-c", str(PINS), *(word for one in platforms for word in ("--platform", one)),
                       str(torch)]  # fmt: skip
            # Without the machine's own collections of packages: they may hold a build for the CPU.
            alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
            subprocess.run(command, env={**os.environ, **alone}, check=True)
            found = json.loads(report.read_text(encoding="utf-8"))["install"]
        names = {canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in found}
        others = sorted(set(names) - set(read_pins(PINS)))
        return [Requirement(f'{name}=={names[name]} ; sys_platform == "linux"') for name in others]


def cpu_build_hashes(torch: Requirement) -> list[str]:
    """SHA-256 of the pinned version's builds for the CPU, from the list kept beside this file.

    Raises: SystemExit where the list is of another version.
    """
    (wanted,) = torch.specifier
    lines = [line.split() for line in CPU_BUILDS.read_text(encoding="utf-8").splitlines()]
    hashes = [digest for digest, name in lines if name.startswith(f"torch-{wanted.version}+cpu-")]
    if len(hashes) != len(lines):
        raise SystemExit(f"{CPU_BUILDS.name} is not of {torch}: copy the hashes from PyTorch's own index")
    return hashes


def _lines(index: Index, pins: Iterable[Requirement]) -> list[str]:
    return [_entry(pin, index.hashes(pin)) for pin in sorted(pins, key=lambda pin: canonicalize_name(pin.name))]


def _entry(pin: Requirement, hashes: Iterable[str]) -> str:
    marker = f" ; {pin.marker}" if pin.marker is not None else ""
    return f"{pin.name}{pin.specifier}{marker}" + "".join(f" \\\n    --hash=sha256:{one}" for one in hashes) + "\n"


if __name__ == "__main__":
    sys.exit(main())
