"""The layers hold in a fresh interpreter, and the tree holds nothing that is foreign to it."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = ["PySide6", "shiboken6", "torch", "cuda", "cupy", "numba.cuda", "pynvml"]
BLOCK_AND_IMPORT = """
import importlib, json, sys
blocked, modules = json.loads(sys.argv[1]), json.loads(sys.argv[2])

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == part or name.startswith(part + ".") for part in blocked):
            raise ModuleNotFoundError(f"{name} is blocked here", name=name)

sys.meta_path.insert(0, Blocker())
for module in modules:
    importlib.import_module(module)
print(json.dumps(sorted(sys.modules)))
"""


def modules_of(*packages: str) -> list[str]:
    """Every module of the packages; to import a __main__ would be to run the program."""
    files = [file for package in packages for file in sorted((ROOT / package).rglob("*.py")) if file.stem != "__main__"]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def imported_fresh(blocked: list[str], modules: list[str]) -> set[str]:
    """Every module that a fresh interpreter holds after importing these, while the others cannot be imported."""
    command = [sys.executable, "-W", "error", "-c", BLOCK_AND_IMPORT, json.dumps(blocked), json.dumps(modules)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_engine_and_kernels_import_without_qt_torch_and_cuda() -> None:
    modules = modules_of("native_kernels", "engine")
    assert len(modules) > 10
    assert set(modules) <= imported_fresh(BLOCKED, modules)


def test_the_blocker_blocks() -> None:
    with pytest.raises(AssertionError, match="PySide6 is blocked here"):
        imported_fresh(["PySide6"], ["PySide6.QtCore"])


@pytest.mark.parametrize("package", ["engine", "native_kernels"])
def test_importing_the_package_loads_numpy_only(package: str) -> None:
    before = imported_fresh([], [])
    foreign = {name.split(".")[0] for name in imported_fresh([], [package]) - before} - set(sys.stdlib_module_names)
    assert foreign <= {"engine", "native_kernels", "numpy"}


def test_the_window_is_painted_before_anything_heavy_is_loaded() -> None:
    modules = modules_of("app")
    assert len(modules) > 5
    heavy = {"torch", "numba", "llvmlite", "tokenizers", "huggingface_hub"} & imported_fresh([], modules)
    assert heavy == set()


def test_the_plain_rooms_of_app_do_without_qt() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    plain = next(contract for contract in contracts if "plain-data" in contract["name"])["source_modules"]
    imported_fresh(["PySide6", "shiboken6"], plain)


@functools.cache
def tracked() -> tuple[Path, ...]:
    """The files of the project that git keeps, or would keep."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy of the project is no git checkout")
    paths = (ROOT / name for name in done.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    parts = {path: {part.removesuffix(".py") for part in path.relative_to(ROOT).parts} for path in tracked()}
    assert [str(path) for path, names in parts.items() if path.suffix == ".py" and names & drawers] == []


def test_nothing_names_this_machine_or_a_package_host() -> None:
    words = [str(place) for place in (ROOT, Path.home()) if len(place.parts) > 2]
    index = re.compile(rb"(index-url[= ]+|find-links[= ]+)[a-z]+://[a-z0-9.-]*\.[a-z]+|://[^\s\"']+/simple\b")
    found = []
    for path in tracked():
        text = path.read_bytes()
        if b"\0" not in text[:1024]:
            found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word.encode() in text]
            found += [f"{path.relative_to(ROOT)}: {match[0]!r}" for match in index.finditer(text)]
    assert found == []


def test_the_working_tree_stays_small() -> None:
    sizes = sorted(((path.stat().st_size, path) for path in tracked()), reverse=True)
    total = sum(size for size, _ in sizes)
    assert total < 50 * 2**20, [f"{path.relative_to(ROOT)}: {size / 2**20:.1f} MiB" for size, path in sizes[:5]]


def test_every_test_module_has_a_name_of_its_own_and_a_test_in_it() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [file.name for file in files]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    a_test = re.compile(r"^(    )?def test_", re.MULTILINE)  # in a class, too
    empty = [file.name for file in files if not a_test.search(file.read_text(encoding="utf-8"))]
    assert empty == [], "files without a test in them"


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code; a commit cannot."""
    used = [
        line.split("uses:")[1].strip()
        for file in (ROOT / ".github").rglob("*.y*ml")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", one)] == []
