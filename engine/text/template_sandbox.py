"""The Jinja environment of a model's chat template: an untrusted program, limited in time and memory.

It is imported only when a template is rendered, because it needs jinja2. Three barriers:

- Names: Jinja's immutable sandbox, a closed list of filters, methods and globals, no underscore attributes, no files.
- Time: every loop body, macro body, call, filter, test, comparison and operator has a checkpoint, inserted into the
  template's syntax tree before it is compiled. This works in any thread and with a debugger or coverage, unlike a trace
  function, and costs 1 us. The clock is the thread's CPU time, so a busy machine fails no honest template. A search in
  a text or arithmetic on a long number cannot be interrupted, so their lengths are limited beforehand.
- Memory: the size of every value is known before it is built. Values are weighed as if printed, so that lists which
  contain the same list many times count each time. Written text and every allocated byte are counted, because a sandbox
  cannot see which values a template still holds.

engine/text/template_budget.py does the counting.
"""

from __future__ import annotations

import functools
import json
import re
import sys
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
from jinja2.visitor import NodeTransformer

from engine.errors import ChatTemplateError
from engine.text.template_budget import ITEM_WEIGHT, MAX_INT_BITS, Budget
from engine.text.template_format import BoundedFormatter

# A width or precision of four digits or from an argument, with or without a key; and keys with brackets in them.
_WIDE_FORMAT = re.compile(r"%(\([^()]*\))?[^a-zA-Z%(]*(\*|\d{4})|%\([^()]*\(")
# These only inspect a value or return a part of it: weighing a long chat for each would be quadratic.
_CHEAP_FILTERS = frozenset({"count", "d", "default", "first", "last", "length"})
# Searches whose worst case is the product of two lengths, by the name of the method or filter.
_SEARCHES = frozenset({
    "count", "find", "index", "lstrip", "partition", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
    "split", "strip", "trim",
})  # fmt: skip
# Methods that change a list, as Kimi K2's template does with its own ones. Values of the caller stay as they are.
_CHANGES = ("append", "pop")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
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


class _GenerationTag(Extension):
    """`{% generation %}` marks what a training run learns from; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Checkpoints(NodeTransformer):
    """Inserts a checkpoint wherever a template can spend time or grow a value unseen by the sandbox."""

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
        for operand in node.ops:
            operand.expr = _call("still_small", [operand.expr], node.lineno)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("owned", [node], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("weighed", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx != "load" else _call("weighed", [node], node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = [end or nodes.Const(None) for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return _call("sliced", [node.node, *ends], node.lineno)

    def _with_tick(self, node: Any) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", [nodes.Const(text)], node.lineno), lineno=node.lineno))
        return node  # type: ignore[no-any-return]


def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=lineno)


class _TimedCodeGenerator(CodeGenerator):
    """Limits the time to compile a huge template."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self.environment.tick()  # type: ignore[attr-defined]
        return super().visit(node, *args, **kwargs)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment. Set `budget` before each compilation and each rendering; one rendering at a time."""

    code_generator_class = _TimedCodeGenerator
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self, budget: Budget) -> None:
        # trim_blocks and lstrip_blocks as in transformers, for which templates are written.
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
        self.tests = {name: self._guarded_test(name, test) for name, test in self.tests.items()}
        self.globals = {name: self.globals[name] for name in ("range", "namespace", "joiner")}
        self.globals["dict"] = self._dict
        self.globals["raise_exception"] = self._raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        self.budget.tick()
        tree = _Checkpoints().visit(source)
        tree.set_environment(self)
        return super()._generate(tree, *args, **kwargs)

    # --- called from the checkpoints

    def tick(self, chars: int = 0) -> None:
        self.budget.tick(chars)

    def weighed(self, value: Any) -> Any:
        self.budget.tick()
        self.budget.weigh(value)
        return self.budget.made(value)

    def owned(self, value: list[Any]) -> list[Any]:
        self.budget.own(self.weighed(value))
        return value

    def still_small(self, *values: Any) -> Any:
        """Return the first value. Only changed lists may be larger than when they were made."""
        if self.budget.has_changes:
            self.budget.weigh(values)
        return values[0]

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        self.budget.tick()
        return self.budget.made(value[start:stop:step])

    def concat_within_limits(self, *values: Any) -> str:
        self.budget.tick()
        self.budget.allow(sum(self.budget.weigh(value, printable=True) for value in values))
        return self.budget.made("".join(map(str, values)))

    def _finalize(self, value: Any) -> str:
        self.budget.weigh(value, printable=True)
        text = str(value)
        self.budget.tick(len(text))
        return text

    # --- Jinja's hooks

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, list) and attr in _CHANGES:
            self.budget.has_changes = True
            return self.budget.owns(obj)
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return next((attr in names for kind, names in _METHODS.items() if isinstance(obj, kind)), True)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(argument, (str, int)):  # an error message may show it
            self.budget.weigh(argument, printable=True)
        return super().getitem(obj, argument)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"{type(obj).__name__}.{attribute} is not for templates")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return str.format and str.format_map with limits; is_safe_attribute handles other methods."""
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
            if (operator == "**" and bits * max(right, 0) > MAX_INT_BITS) or (
                operator == "*" and bits + right.bit_length() > MAX_INT_BITS
            ):
                budget.refuse_number()
        elif operator == "+":
            budget.allow(sum(sizes))
        elif operator == "*":
            times, other, size = (left, right, sizes[1]) if isinstance(left, int) else (right, left, sizes[0])
            if isinstance(times, int) and not isinstance(other, float):
                budget.allow(max(times, 0) * size)
        elif operator == "%" and isinstance(left, str):
            self._allow_percent(left, right)
        return budget.made(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.budget.tick()
        self.budget.made(args)
        self.still_small(args, kwargs)
        receiver = getattr(obj, "__self__", None)
        is_change = isinstance(receiver, list) and obj.__name__ in _CHANGES  # weighing all of it each time is quadratic
        if isinstance(receiver, tuple(_METHODS)) and not isinstance(obj, type) and not is_change:
            args = self._checked_arguments(f"str.{obj.__name__}", (receiver, *args), kwargs)[1:]
        return self._result(super().call(context, obj, *args, **kwargs), receiver)

    def _result(self, result: Any, given: Any) -> Any:
        """Return the result of a call or filter: weighed, counted if it is new, and watched if it is an iterator."""
        if isinstance(result, Iterator):
            return self.budget.watched(result)
        if isinstance(result, (str, list, tuple, dict, set, int)):
            self.budget.weigh(result)
        return result if result is given else self.budget.made(result)

    def _dict(self, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """The global `dict`: item by item, because keys with equal hashes make each item slower than the last."""
        found: dict[Any, Any] = {}
        for given in (*args, kwargs):
            for key, value in self.budget.watched(iter(given.items() if isinstance(given, dict) else given)):
                found[key] = value
        return found

    def _raise_exception(self, message: object = "") -> None:
        self.budget.weigh(message, printable=True)
        raise ChatTemplateError(f"The model's chat template refuses these messages: {str(message)[:500]}")

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

    # --- guards

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            if name in _CHEAP_FILTERS:
                return function(*args, **kwargs)
            n_given = 1 if isinstance(args[0], (TemplateSandbox, Context, EvalContext)) else 0
            args = (*args[:n_given], *self._checked_arguments(name, args[n_given:], kwargs))
            return self._result(function(*args, **kwargs), args[n_given])

        return guarded

    def _guarded_test(self, name: str, function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            is_text_test = name in ("lower", "upper")
            for value in args if is_text_test or len(args) > 1 else ():  # the others look at one value's outside
                self.budget.weigh(value, printable=is_text_test)
            if name in ("odd", "even", "divisibleby") and isinstance(args[0], str):  # % formats a text
                self._allow_percent(args[0], args[1:])
            return function(*args, **kwargs)

        return guarded

    def _checked_arguments(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments with iterators turned into lists, once the result is known to be small enough."""
        budget = self.budget
        args = tuple(budget.collect(value) if isinstance(value, Iterator) else value for value in args)
        given = [*args, *(value for key, value in kwargs.items() if not key.startswith("_"))]
        weights = [budget.weigh(value, printable=True) for value in given]
        numbers = [abs(value) for value in given[1:] if isinstance(value, int)]
        budget.allow(max(numbers, default=0))
        method = name.removeprefix("str.")
        if method in _SEARCHES and len(weights) > 1:
            budget.allow_search(weights[0], max(weights[1:]))
        if method in ("split", "rsplit"):
            return self._bounded_split(args, kwargs)
        if method == "splitlines":
            budget.allow(ITEM_WEIGHT * sum(args[0].count(end) for end in _LINE_ENDS))
        elif method in ("list", "reverse", "sort", "unique") and isinstance(args[0], str):
            budget.allow(ITEM_WEIGHT * len(args[0]))
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
            lines = str(given[0]).count("\n") + 1 if name == "indent" else 1 + weights[0] // ITEM_WEIGHT
            budget.allow(lines * max([*numbers, *weights[1:], 4]))
        elif name == "round":
            budget.allow(max(numbers, default=0) << 16)
        elif name == "sum" and any(isinstance(value, (list, tuple)) for value in given[1:]):
            budget.allow(len(given[0]) * 1000)  # each addition copies the sum so far
        return args

    def _bounded_split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of split with a limit on the number of parts; `weigh` refuses more."""
        text, sep, most = (*args, *(None, -1)[len(args) - 1 :])[:3]
        most = kwargs.pop("maxsplit", most)
        bound = self.budget.most_items
        return text, kwargs.pop("sep", sep), bound if most < 0 else min(most, bound)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return the JSON as in transformers. Jinja's own would escape HTML, which models have never seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 200 or re.search(r"%[-_0^#+]*\d", pattern):  # glibc allows any width
        raise ChatTemplateError("The model's chat template asks for a date in an unusual form.")
    if sys.platform == "win32":  # a number without its zero, as in "%-d", is "%#d" there
        pattern = re.sub("%([%-])", lambda found: found[0].replace("-", "#"), pattern)
    return datetime.now().astimezone().strftime(pattern)
