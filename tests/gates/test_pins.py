"""Every package that the set-up installs has one pinned version, and the hashes of its files."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# sys_platform, platform_system, os_name, platform_machine of the supported systems
SYSTEMS = (
    ("linux", "Linux", "posix", "x86_64"),
    ("win32", "Windows", "nt", "AMD64"),
    ("darwin", "Darwin", "posix", "arm64"),
)
ENVIRONMENTS = [
    {"sys_platform": sys_platform, "platform_system": name, "os_name": os_name, "platform_machine": machine,
     "python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
    for sys_platform, name, os_name, machine in SYSTEMS
    for minor in (11, 12, 13)
]  # fmt: skip


def pins(file: str = "constraints.txt") -> dict[str, Requirement]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    names = [canonicalize_name(requirement.name) for requirement in wanted]
    assert len(names) == len(set(names)), "one pin a package"
    return dict(zip(names, wanted, strict=True))


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    return [
        Requirement(text)
        for text in [*project["build-system"]["requires"], *(text for group in groups for text in group)]
    ]


def version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", requirement
    return specifier.version


def test_what_the_project_asks_for_is_pinned_to_a_version_that_fits() -> None:
    pinned = pins()
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} has no pin"
        assert requirement.specifier.contains(version(pinned[name])), requirement


def test_the_versions_that_traps_were_found_around() -> None:
    pinned = {name: version(requirement) for name, requirement in pins().items()}
    assert pinned["pyside6-essentials"] == pinned["shiboken6"] == "6.11.3", "6.12.0 aborts on Python 3.11"
    assert pinned["torch"] == "2.13.0"


def test_the_pins_are_what_is_needed_no_more_and_no_less() -> None:
    """On this system; pins with a marker belong to another one, and a CUDA build of torch pins its own companions."""
    needed: set[str] = set()
    waiting = list(declared())
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in needed or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        needed.add(name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(name) or []]
    needed = {name for name in needed if not re.match(r"(nvidia-(?!ml-py|cuda-nvrtc-cu12)|cuda-|triton$)", name)}
    pinned = pins()
    assert needed - set(pinned) == set(), "needed and not pinned"
    assert {name for name, pin in pinned.items() if pin.marker is None} - needed == set(), "pinned and not needed"


def test_what_freezes_the_program_is_pinned_apart() -> None:
    apart = pins("installer/constraints.txt")
    assert "pyinstaller" in apart
    assert all(version(pin) for pin in apart.values())
    assert set(apart) & set(pins()) == set(), "one pin a package"


def test_what_is_installed_is_what_is_pinned() -> None:
    different = {}
    for name, pin in pins().items():
        if pin.marker is None or pin.marker.evaluate():
            installed = importlib.metadata.version(name).split("+")[0]
            if installed != version(pin):
                different[name] = f"{installed} installed, {version(pin)} pinned"
    assert different == {}, "run installer/bootstrap.py setup again"


@functools.cache
def locked(*names: str) -> dict[str, tuple[Requirement, list[str]]]:
    """The packages of the lists in installer/locked, each with its hashes."""
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for name in names:
        text = (ROOT / "installer" / "locked" / f"{name}.txt").read_text(encoding="utf-8")
        for entry in text.replace("\\\n", "").splitlines():
            if entry.startswith("#"):
                continue
            line, *hashes = re.split(r"\s+--hash=sha256:", entry)
            requirement = Requirement(line)
            key = canonicalize_name(requirement.name)
            assert key not in found, f"{key} is listed twice"
            found[key] = requirement, hashes
    return found


def test_every_pin_is_locked_with_its_version_its_marker_and_its_hashes() -> None:
    both = {**pins(), **pins("installer/constraints.txt")}
    entries = locked("app", "tests", "build", "torch")
    assert set(entries) == set(both), "run installer/lock_packages.py"
    for name, pin in both.items():
        requirement, hashes = entries[name]
        assert str(requirement) == str(pin), "run installer/lock_packages.py"
        assert hashes, name
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes), name
        assert len(hashes) == len(set(hashes)), name


@functools.cache
def requirements_of(name: str) -> list[Requirement]:
    """What an installed package needs; nothing for a small package of another system."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires(name) or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def closure(wanted: Iterable[Requirement], environment: dict[str, str]) -> set[str]:
    """Everything that `wanted` needs in `environment`, as the packages that are installed here say."""
    found: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in wanted]
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({**environment, "extra": of_extra}):
            continue
        for extra in {"", *requirement.extras}:
            key = canonicalize_name(requirement.name), extra
            if key in found:
                continue
            found.add(key)
            waiting += [(one, extra) for one in requirements_of(key[0])]
    needed = {name for name, _ in found}
    return {name for name in needed if not re.match(r"(nvidia-(?!ml-py|cuda-nvrtc-cu12)|cuda-|triton$)", name)}


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda one: f"{one['sys_platform']}-{one['python_version']}")
def test_the_lists_leave_nothing_out(environment: dict[str, str]) -> None:
    """pip is told not to look for dependencies: what a list lacks would be missing at run time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def missing(wanted: list[str], *lists: str) -> set[str]:
        there = {
            name
            for name, (requirement, _) in locked(*lists).items()
            if requirement.marker is None or requirement.marker.evaluate(environment)
        }
        return closure(map(Requirement, wanted), environment) - there

    app = [*project["project"]["dependencies"], *project["build-system"]["requires"], "editables"]
    assert missing(app, "app", "torch") == set()
    assert missing([*app, *project["project"]["optional-dependencies"]["dev"]], "app", "tests", "torch") == set()


def test_the_app_is_installed_without_the_tools_of_the_tests() -> None:
    assert {"pytest", "gguf", "transformers", "ruff"} & set(locked("app", "torch")) == set()


def test_known_builds_of_torch_for_the_cpu_are_accepted() -> None:
    requirement, hashes = locked("torch_cpu")["torch"]
    assert str(requirement) == f"{pins()['torch']}+cpu"
    known = dict(
        reversed(line.split())
        for line in (ROOT / "installer" / "torch_cpu.sha256").read_text(encoding="utf-8").splitlines()
    )
    for minor in (11, 12, 13):
        assert any(f"-cp3{minor}-manylinux" in name and name.endswith("_x86_64.whl") for name in known), minor
        assert any(f"-cp3{minor}-win_amd64" in name for name in known), minor
    assert set(known.values()) == set(hashes)


def test_packages_of_the_cuda_build_are_locked() -> None:
    entries = locked("cuda")
    assert {"nvidia-cudnn-cu13", "nvidia-cublas", "triton"} <= set(entries)
    assert set(entries) & set(pins()) == set(), "one pin a package"
    for name, (requirement, hashes) in entries.items():
        assert version(requirement), name
        assert hashes, name
        assert str(requirement.marker) == 'sys_platform == "linux"', name
