"""A log without personal data, for reports.

Nothing is searched and removed, which would miss something. Instead only the program's own content is written: texts
from its source, numbers, exception names and lines of its own files. Any other text in a message (a name, a path, a
question, another library's text) is left out.
"""

from __future__ import annotations

import builtins
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

import app

LEFT_OUT = "…"
_OURS = ("app", "engine", "native_kernels")
_KNOWN_FAULTS = frozenset(name for name, kind in vars(builtins).items() if isinstance(kind, type)
                          and issubclass(kind, BaseException))  # fmt: skip
_FROZEN = frozenset({"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", "<frozen runpy>"})
_DEADLY = re.compile(
    r"Fatal Python error: (Segmentation fault|Aborted|Bus error|Illegal instruction|Floating-point exception|"
    r"Stack overflow)|Windows fatal exception: (access violation|stack overflow|code 0x[0-9a-f]{8})"
)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+),? in (<?[A-Za-z_][\w.]{0,99}>?)\s*$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]{1,16}")
_FAULT = re.compile(r"^(?:[a-z_.]{1,60}\.)?([A-Z][A-Za-z]{2,60})(?::|$)")


class ShareableFormatter(logging.Formatter):
    """Formats the parts of a record that anybody may read."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        parts = record.name.split(".")
        ours = parts[0] in _OURS
        name = record.name if ours else parts[0] if parts[0] == "qt" or parts[0] in sys.modules else LEFT_OUT
        said = _message(record) if ours else LEFT_OUT
        lines = [f"{self.formatTime(record)} {record.levelname} {name}: {said}"]
        if record.exc_info and record.exc_info[1] is not None:
            lines += described(record.exc_info[1], record.exc_info[2])
        return "\n".join(lines)


def _message(record: logging.LogRecord) -> str:
    """Return the message's format string, which is in the source, with numbers filled in."""
    if not isinstance(record.msg, str):
        return LEFT_OUT
    args: Any = record.args
    if not args:
        return record.msg
    try:
        if isinstance(args, Mapping):
            return record.msg % {key: _plain(value) for key, value in args.items()}
        return record.msg % tuple(_plain(value) for value in args)
    except (TypeError, ValueError, KeyError):
        return LEFT_OUT


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return _LeftOut() if value.__class__.__module__.partition(".")[0] not in _OURS else str(value.value)
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, BaseException):
        return fault_name(value)
    return _LeftOut()


class _LeftOut:
    """Replaces a text, however a message formats it."""

    def __str__(self) -> str:
        return LEFT_OUT

    __repr__ = __str__


def fault_name(error: BaseException) -> str:
    """Return an exception's class, and the number of a system error; never its message."""
    name = type(error).__name__
    known = type(error).__module__.partition(".")[0] in (*_OURS, "builtins")
    if isinstance(error, OSError) and error.errno is not None:
        return f"{name if known else 'OSError'} {error.errno}"
    return name if known else "Exception"


def described(error: BaseException, trace: TracebackType | None) -> list[str]:
    """Describe an exception and its causes, line by line: classes and places in the source, no values."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(f"  {fault_name(current)}")
        for frame in traceback.extract_tb(trace if current is error else current.__traceback__):
            lines.append(f"    {place(frame.filename)}:{frame.lineno} {frame.name}")
        current = current.__cause__ or current.__context__
    return lines


def place(path: str) -> str:
    """Return the path of one of our files or libraries from its package on; nothing of any other path."""
    if path in _FROZEN:
        return path
    parts = Path(path.replace("\\", "/")).parts
    for mark in ("site-packages", "dist-packages"):
        if mark in parts:
            return "/".join(parts[parts.index(mark) + 1 :])
    if parts and parts[0] in _OURS and ".." not in parts:  # how the built program names its files
        return "/".join(parts)
    roots = {name: Path(app.__path__[0]).resolve().parent / name for name in _OURS}
    for root in roots.values():
        if Path(path).is_relative_to(root):
            return Path(path).relative_to(root.parent).as_posix()
    if Path(path).is_relative_to(_standard()):
        return Path(path).relative_to(_standard()).as_posix()
    return LEFT_OUT


def _standard() -> Path:
    return Path(traceback.__file__).parent


def stacks_in(text: str) -> list[str]:
    """Return the stacks in a crash note or another process's log: kinds of faults and places, nothing else."""
    return list(_stacks(text.splitlines()))


def _stacks(lines: list[str]) -> Iterator[str]:
    in_stack = False
    for line in lines:
        if (match := _DEADLY.search(line)) or (match := _THREAD.match(line)):
            in_stack = True
            yield match[0]
        elif match := _FRAME.match(line):
            in_stack = True
            function = match[3] if place(match[1]) != LEFT_OUT else LEFT_OUT
            yield f"    {place(match[1])}:{match[2]} {function}"
        elif in_stack and (match := _FAULT.match(line)) and _is_fault(match[1]):
            in_stack = False
            yield f"  {match[1]}"


def _is_fault(name: str) -> bool:
    from engine import errors

    return name in _KNOWN_FAULTS or name in vars(errors)
