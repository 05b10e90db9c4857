"""Dependencies come in through constructors and methods: nothing sets a callable on another object."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {
    "sys.excepthook": "the interpreter's hook",
    "threading.excepthook": "the interpreter's hook",
    "db.text_factory": "sqlite3 takes it in no other way",
    "md.validateLink": "markdown-it takes it in no other way",
    "parser.CharacterDataHandler": "expat takes it in no other way",
    "parser.StartDoctypeDeclHandler": "expat takes it in no other way",
    "function.argtypes": "ctypes takes it in no other way",
    "made.emit": "a numba intrinsic has no subclass",
    "_CHECKS.check": "threading.local is a namespace",
    "running.access.key": "a hashed key; a method elsewhere has this name",
    "loaded.expert_slots.is_adapting": "a bool; a method elsewhere has this name",
    "self._pending.through": "the weights of a norm; a method elsewhere has this name",
}


def callables_set_from_outside(sources: dict[str, str]) -> list[str]:
    """Return "file:line target" of every assignment of a callable to an attribute of an object other than `self`.

    A callable is a lambda, a function or method that one of the sources defines, or any value for an attribute that one
    of them declares as a Callable.
    """
    trees = {name: ast.parse(source) for name, source in sources.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    declared = {
        node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute | ast.Name)
        and ast.unparse(node.annotation).startswith("Callable[")
    }
    defined = {node for node in nodes if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    methods = {node.name for node in defined if node.args.args[:1] and node.args.args[0].arg == "self"}
    functions = {node.name for node in defined} - methods
    # A name that is also an attribute with a plain value says nothing: `self.text = ""` beside `def text`.
    methods -= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    found = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            for target, value in _assigned(node):
                outside = isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
                if (
                    outside
                    and ast.unparse(target) not in ALLOWED
                    and _is_callable(target, value, declared, methods, functions)
                ):
                    found.append(f"{name}:{target.lineno} {ast.unparse(target)}")
    return found


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The pairs of target and value of an assignment, one for each name of a tuple."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(node.target, node.value)]
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            pairs += zip(target.elts, node.value.elts, strict=False)  # a starred target
        elif isinstance(node, ast.Assign):
            pairs.append((target, node.value))
    return pairs


def _is_callable(target: ast.expr, value: ast.expr, declared: set[str], methods: set[str], functions: set[str]) -> bool:
    if isinstance(value, ast.Lambda) or (isinstance(target, ast.Attribute) and target.attr in declared):
        return True
    return (isinstance(value, ast.Attribute) and value.attr in methods) or (
        isinstance(value, ast.Name) and value.id in functions
    )


@pytest.mark.parametrize("package", ["app", "engine", "native_kernels", "installer"])
def test_no_callable_is_set_from_outside(package: str) -> None:
    files = (ROOT / package).rglob("*.py")
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    assert callables_set_from_outside(sources) == []


@pytest.mark.parametrize(
    "line",
    [
        "other.key_of = lambda place: ''",
        "self.chat.key_of = self._key_of",
        "self.finder.models, self.finder.used = 1, helper",
        "other.hook = anything",
    ],
)
def test_the_gate_sees_every_way_to_set_one(line: str) -> None:
    source = f"hook: Callable[[], None] = print\ndef helper(): ...\nclass A:\n    def _key_of(self): ...\n{line}\n"
    assert len(callables_set_from_outside({"a.py": source})) == 1


@pytest.mark.parametrize("line", ["self.hook = lambda: 1", "other.size = 4", "sys.excepthook = lambda kind: None"])
def test_the_gate_lets_plain_values_and_own_attributes_be(line: str) -> None:
    assert callables_set_from_outside({"a.py": line}) == []
