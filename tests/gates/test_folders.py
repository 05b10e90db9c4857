"""Folders depend on each other one way: two that import each other are one folder, or hold a name in the wrong one.

Counted are all imports, those under TYPE_CHECKING too. The root of a package holds what all of its folders use.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "engine", "native_kernels")
MOST_IMPORTS = 20  # of our modules in one module
MOST_WIDE_FUNCTIONS = 4  # with more than 8 parameters
MOST_FILES = 20  # in a folder
NESTED = {
    ("app", "app/startup"), ("engine", "engine/commands"),  # __main__ runs the two front doors
}  # fmt: skip


@functools.cache
def modules() -> dict[str, Path]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@functools.cache
def statements(file: Path, types: bool = False) -> list[ast.AST]:
    """The imports and functions of a file; types: with those under `if TYPE_CHECKING`. Expressions hold none."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef):
            found.append(node)
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
        elif not isinstance(node, ast.expr):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def imported(file: Path, types: bool = False) -> Iterator[str]:
    """Yield our modules that a file imports when it runs; types: and those that it names in types alone."""
    known = modules()
    for node in statements(file, types):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            yield from [name for name in names if name in known][: len(node.names)]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def folder(file: Path) -> PurePosixPath:
    return PurePosixPath(file.parent.relative_to(ROOT).as_posix())


def mutual_pairs() -> set[tuple[str, str]]:
    """Pairs of folders that import each other."""
    known = modules()
    arrows = {(folder(file), folder(known[name])) for file in known.values() for name in imported(file, types=True)}
    assert len(arrows) > 100
    return {(str(one), str(other)) for one, other in arrows if str(one) < str(other) and (other, one) in arrows}


def test_no_two_folders_import_each_other() -> None:
    assert mutual_pairs() == NESTED


def test_no_module_imports_more_of_ours_than_now() -> None:
    known = modules()
    found = {str(file.relative_to(ROOT)): len(set(imported(file))) for file in known.values()}
    assert {name: n for name, n in found.items() if n > MOST_IMPORTS} == {}


def parameters(function: ast.FunctionDef) -> int:
    """The parameters of a function, without self and cls."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_no_more_functions_take_many_parameters_than_now() -> None:
    files = modules().values()
    functions = [node for file in files for node in statements(file) if isinstance(node, ast.FunctionDef)]
    assert len([one for one in functions if parameters(one) > 8]) <= MOST_WIDE_FUNCTIONS


def test_no_folder_has_more_files_than_ls_explains() -> None:
    files = [folder(file) for file in modules().values() if file.name != "__init__.py"]
    crowded = {str(one): files.count(one) for one in set(files) if files.count(one) > MOST_FILES}
    assert crowded == {}
