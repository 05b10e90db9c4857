"""The Jinja environment in which a model's chat template runs: a program by a stranger, bounded in time and memory.

It knows nothing of messages or tokens (engine/chat_template.py does), and is imported only when a template is
rendered, because it needs jinja2. Three walls:

- Names: Jinja's immutable sandbox, a closed list of filters, methods and globals, no underscore attributes, no files.
- Time: every loop body, macro body, call, filter, test, comparison and operator passes a checkpoint, put into the
  template's syntax tree before it is compiled. That works in any thread and beside a debugger or coverage, which a
  trace function would not, and costs 1 us. The clock is the thread's CPU time: a busy machine fails no honest template.
- Memory: nothing is built before its size is known. Values are weighed as if printed, so that lists which hold the
  same list many times over count each time; the written text is counted where it is written.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from engine.errors import ChatTemplateError
from engine.template_format import BoundedFormatter

_ITEM_WEIGHT = 16  # characters that one item of a container counts as: about its memory
_MAX_INT_BITS = 4096
# A width or precision of four digits or from an argument, behind a key or not; and keys with brackets in them.
_WIDE_FORMAT = re.compile(r"%(\([^()]*\))?[^a-zA-Z%(]*(\*|\d{4})|%\([^()]*\(")
# These only look at the outside of a value or hand on a part of it: weighing a long chat for each would be quadratic.
_CHEAP_FILTERS = frozenset({"count", "d", "default", "first", "last", "length"})
# fmt: off
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
    "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum",
    "title", "trim", "truncate", "unique", "upper", "wordcount",
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "casefold", "center", "count", "endswith", "find", "index", "isalnum", "isalpha",
        "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join",
        "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
        "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
        "swapcase", "title", "upper", "zfill",
    }),
    dict: frozenset({
        "copy", "get", "items", "keys", "values",
    }),
    list: frozenset({
        "copy", "count", "index",
    }),
    tuple: frozenset({
        "count", "index",
    }),
    int: frozenset({
        "denominator", "imag", "is_integer", "numerator", "real",
    }),
    float: frozenset({
        "imag", "is_integer", "real",
    }),
}
# fmt: on


class Budget:
    """What one rendering may still spend: CPU seconds of this thread, characters written, and the size of a value."""

    def __init__(self, seconds: float, chars: int) -> None:
        self._seconds, self._chars = seconds, chars
        self._deadline = time.thread_time() + seconds
        self._written = 0

    def tick(self, chars: int = 0) -> None:
        """A checkpoint; `chars` of text are about to be written."""
        self._written += chars
        if self._written > self._chars:
            raise ChatTemplateError(f"The model's chat template writes more than {self._chars} characters.")
        if time.thread_time() > self._deadline:
            raise ChatTemplateError(f"The model's chat template did not end within {self._seconds:g} seconds.")

    def allow(self, weight: int) -> None:
        """Refuse a value of this weight before it is built."""
        if weight > self._chars:
            raise ChatTemplateError(
                f"The model's chat template asks for a value of {weight} characters; {self._chars} are allowed."
            )

    def weigh(self, value: object, *, printable: bool = False) -> int:
        """The size of a value as if printed, shared parts counted each time they appear.

        Cost: at most chars / 16 steps. `printable` refuses namespaces, which can hold one another and so
        hide any amount of text.
        """
        total, left = 0, [value]
        while left:
            item = left.pop()
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, (list, tuple, set, frozenset)):
                total += _ITEM_WEIGHT * len(item)
                self.allow(total)
                left.extend(item)
            elif isinstance(item, dict):
                total += 2 * _ITEM_WEIGHT * len(item)
                self.allow(total)
                left.extend(item.keys())
                left.extend(item.values())
            elif isinstance(item, range):
                total += _ITEM_WEIGHT * len(item)
            elif isinstance(item, int):
                total += _ITEM_WEIGHT + item.bit_length() // 3
            elif isinstance(item, Namespace) and printable:
                raise ChatTemplateError("The model's chat template uses a whole namespace as a value.")
            else:
                total += _ITEM_WEIGHT
            if total > self._chars:
                self.allow(total)
        return total

    def collect(self, items: Iterator[Any]) -> list[Any]:
        """The iterator's items as a list that stays within the limits while it grows."""
        kept: list[Any] = []
        total = 0
        for item in items:
            self.tick()
            total += _ITEM_WEIGHT + self.weigh(item)
            self.allow(total)
            kept.append(item)
        return kept


class _GenerationTag(Extension):
    """`{% generation %}` marks what a training run learns from; here its body simply stands."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Checkpoints(NodeTransformer):
    """Puts a checkpoint wherever a template can spend time or grow a value out of the sandbox's sight."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's spelling
        return self._with_tick(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._with_tick(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._with_tick(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concat_within_limits", list(node.nodes), node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _call("weighed", [node.expr], node.lineno)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", [node], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx != "load" else _call("weighed", [node], node.lineno)

    def _with_tick(self, node: Any) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", [nodes.Const(text)], node.lineno), lineno=node.lineno))
        return node  # type: ignore[no-any-return]


def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=lineno)


class _TimedCodeGenerator(CodeGenerator):
    """Compiling a huge template takes time as well."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self.environment.tick()  # type: ignore[attr-defined]
        return super().visit(node, *args, **kwargs)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment. Set `budget` before each compilation and each rendering; one rendering at a time."""

    code_generator_class = _TimedCodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, budget: Budget) -> None:
        # trim_blocks and lstrip_blocks as transformers sets them: templates are written against that.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            finalize=self._finalize,
            extensions=[loopcontrols, _GenerationTag],
        )
        self.budget = budget
        self.filters = {name: self._guarded(name, self.filters[name]) for name in _FILTERS}
        self.filters["tojson"] = self._guarded("tojson", _to_json)
        self.filters["format"] = self._format
        self.tests = {name: self._guarded_test(test) for name, test in self.tests.items()}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace", "joiner")}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        self.budget.tick()
        tree = _Checkpoints().visit(source)
        tree.set_environment(self)
        return super()._generate(tree, *args, **kwargs)

    # ------------------------------------------------------------------ called from the checkpoints

    def tick(self, chars: int = 0) -> None:
        self.budget.tick(chars)

    def weighed(self, value: Any) -> Any:
        self.budget.tick()
        self.budget.weigh(value)
        return value

    def concat_within_limits(self, *values: Any) -> str:
        self.budget.allow(sum(self.budget.weigh(value, printable=True) for value in values))
        return "".join(map(str, values))

    def _finalize(self, value: Any) -> str:
        self.budget.weigh(value, printable=True)
        text = str(value)
        self.budget.tick(len(text))
        return text

    # ------------------------------------------------------------------ Jinja's hooks

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return next((attr in names for kind, names in _METHODS.items() if isinstance(obj, kind)), True)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"{type(obj).__name__}.{attribute} is not for templates")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and str.format_map, within the limits; other methods are is_safe_attribute's."""
        text, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if type(text) is not str or name not in ("format", "format_map"):
            return None

        def format_within_limits(*args: Any, **kwargs: Any) -> str:
            if name == "format":
                return BoundedFormatter(self).vformat(text, args, kwargs)
            (mapping,) = args
            return BoundedFormatter(self).vformat(text, (), mapping, **kwargs)

        return format_within_limits

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = self.budget
        budget.tick()
        sizes = (budget.weigh(left), budget.weigh(right))
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            if (operator == "**" and bits * max(right, 0) > _MAX_INT_BITS) or (
                operator == "*" and bits + right.bit_length() > _MAX_INT_BITS
            ):
                raise ChatTemplateError("The model's chat template computes a number with more than 1200 digits.")
        elif operator == "+":
            budget.allow(sum(sizes))
        elif operator == "*":
            times, other, size = (left, right, sizes[1]) if isinstance(left, int) else (right, left, sizes[0])
            if isinstance(times, int) and not isinstance(other, float):
                budget.allow(max(times, 0) * size)
        elif operator == "%" and isinstance(left, str):
            self._allow_percent(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.budget.tick()
        receiver = getattr(obj, "__self__", None)
        if isinstance(receiver, tuple(_METHODS)) and not isinstance(obj, type):
            args = self._checked_arguments(f"str.{obj.__name__}", (receiver, *args), kwargs)[1:]
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, (str, list, tuple, dict)):
            self.budget.weigh(result)
        return result

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Jinja's filter of that name, within the limits of the operator %."""
        self.budget.tick()
        self.budget.weigh(value, printable=True)
        text, values = str(value), kwargs or args
        self._allow_percent(text, values)
        return text % values

    def _allow_percent(self, text: str, values: Any) -> None:
        if _WIDE_FORMAT.search(text):
            raise ChatTemplateError("The model's chat template formats with a width of more than 999 characters.")
        self.budget.allow(len(text) + text.count("%") * (2000 + self.budget.weigh(values, printable=True)))

    # ------------------------------------------------------------------ guards

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            if name in _CHEAP_FILTERS:
                return function(*args, **kwargs)
            n_given = 1 if isinstance(args[0], (TemplateSandbox, Context, EvalContext)) else 0
            args = (*args[:n_given], *self._checked_arguments(name, args[n_given:], kwargs))
            result = function(*args, **kwargs)
            self.budget.weigh(result)
            return result

        return guarded

    def _guarded_test(self, function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            for value in args if len(args) > 1 else ():  # comparisons; the others look at one value's outside
                self.budget.weigh(value)
            return function(*args, **kwargs)

        return guarded

    def _checked_arguments(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments with iterators turned into lists, once the result is known to be small enough."""
        budget = self.budget
        args = tuple(budget.collect(value) if isinstance(value, Iterator) else value for value in args)
        given = [*args, *(value for key, value in kwargs.items() if not key.startswith("_"))]
        weights = [budget.weigh(value, printable=True) for value in given]
        numbers = [abs(value) for value in given[1:] if isinstance(value, int)]
        budget.allow(max(numbers, default=0))
        if name.endswith("replace") and len(args) > 2:
            old, new = str(args[1]), str(args[2])
            budget.allow(weights[0] + str(args[0]).count(old) * len(new))
        elif name.endswith("replace"):
            raise ChatTemplateError("The model's chat template calls replace without the old and the new text.")
        elif name.endswith("join") and len(given) > 1:
            items, separator = (1, 0) if name == "str.join" else (0, 1)
            n_items = len(given[items]) if hasattr(given[items], "__len__") else 1
            budget.allow(weights[items] + n_items * weights[separator])
        elif name in ("indent", "tojson"):
            lines = str(given[0]).count("\n") + 1 if name == "indent" else 1 + weights[0] // _ITEM_WEIGHT
            budget.allow(lines * max([*numbers, *weights[1:], 4]))
        elif name == "round":
            budget.allow(max(numbers, default=0) << 16)
        elif name == "sum" and any(isinstance(value, (list, tuple)) for value in given[1:]):
            budget.allow(len(given[0]) * 1000)  # each addition copies the sum so far
        return args


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: Jinja's own would escape HTML, which models have never seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object = "") -> None:
    raise ChatTemplateError(f"The model's chat template refuses these messages: {str(message)[:500]}")


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 200 or re.search(r"%[-_0^#+]*\d", pattern):  # glibc allows any width
        raise ChatTemplateError("The model's chat template asks for a date in an unusual form.")
    return datetime.now().astimezone().strftime(pattern)
