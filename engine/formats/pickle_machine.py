"""Run the few pickle instructions that a file of plain tensors needs, in a machine that can call nothing else.

Python's unpickler calls what the file names, hashes what it nests and allocates what it claims. Here globals come from
a closed table, keys are texts or integers, and the number of instructions is limited, so that cost follows from the
pickle's length. The caller handles storages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from engine.errors import ModelFormatError

_MAX_INSTRUCTIONS = 200_000  # 6,000 tensors
_SHOWN_NAME_BYTES = 100


class Mark:
    """Stack marker of the start of a group of values."""


class Global:
    """A name in the file that the caller's table knows; `call` is None if it is only passed on."""

    def __init__(self, name: str, call: Callable[..., Any] | None) -> None:
        self.name = name
        self.call = call


def run_pickle(
    file_name: str,
    code: bytes,
    known: Mapping[str, Callable[..., Any] | None],
    persistent: Callable[[Any], Any],
) -> Any:
    """Return the pickle's value: dicts, lists, tuples, texts, numbers and results of `known`.

    known: qualified name -> function, or None for a name that is only passed on as a Global. persistent: returns the
    value of a persistent id. Both may raise ModelFormatError.
    Raises: ModelFormatError for any other global, with its name, and for a damaged or long pickle.
    """
    return _Machine(file_name, code, known, persistent).run()


class _Machine:
    def __init__(
        self,
        file_name: str,
        code: bytes,
        known: Mapping[str, Callable[..., Any] | None],
        persistent: Callable[[Any], Any],
    ) -> None:
        self._file_name = file_name
        self._code = code
        self._at = 0
        self._known = known
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(_MAX_INSTRUCTIONS):
            instruction = self._take(1)
            if instruction == b".":
                if len(self._stack) != 1:
                    self._fail("its pickle leaves more than one value")
                return self._stack[0]
            step = _STEPS.get(instruction)
            if step is None:
                self._fail(f"its pickle uses the instruction {instruction!r}, which plain tensors do not need")
            step(self)
        return self._fail(f"its pickle has more than {_MAX_INSTRUCTIONS} instructions")

    # --- reading

    def _take(self, n_bytes: int) -> bytes:
        taken = self._code[self._at : self._at + n_bytes]
        if len(taken) < n_bytes:
            self._fail("its pickle ends early")
        self._at += n_bytes
        return taken

    def _number(self, fmt: str) -> int:
        value: int = struct.unpack(fmt, self._take(struct.calcsize(fmt)))[0]
        return value

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return self._fail(f"its pickle holds the text {raw[:40]!r}, which is not UTF-8")

    def _line(self) -> str:
        end = self._code.find(b"\n", self._at)
        if end < 0:
            self._fail("its pickle ends early")
        line = self._take(end + 1 - self._at)[:-1]
        return self._text(line)

    # --- the stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is Mark:
            self._fail("its pickle takes a value from an empty stack")
        return self._stack.pop()

    def _top(self, kind: type[Any]) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            self._fail(f"its pickle adds to something that is not a {kind.__name__}")
        return self._stack[-1]

    def _group(self) -> list[Any]:
        """Pop the values since the last mark, and the mark."""
        for i in range(len(self._stack) - 1, -1, -1):
            if self._stack[i] is Mark:
                values = self._stack[i + 1 :]
                del self._stack[i:]
                return values
        return self._fail("its pickle closes a group that it never opened")

    def _tuple(self, count: int) -> None:
        self._push(tuple(reversed([self._pop() for _ in range(count)])))

    def _append(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _set(self, pairs: list[Any]) -> None:
        if len(pairs) % 2:
            self._fail("its pickle has a key without a value")
        target = self._top(dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) not in (str, int):
                self._fail(f"its pickle uses a {type(key).__name__} as a key")
            if key in target:
                self._fail(f"its pickle sets {str(key)[:_SHOWN_NAME_BYTES]!r} twice")
            target[key] = value

    # --- dangerous instructions

    def _global(self) -> None:
        name = f"{self._line()}.{self._line()}"
        if name not in self._known:
            shown = name[:_SHOWN_NAME_BYTES]
            self._fail(
                f"loading it would call {shown}, which plain tensors do not need", "It may be an attack: delete it."
            )
        self._push(Global(name, self._known[name]))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or function.call is None or not isinstance(arguments, tuple):
            self._fail("its pickle calls something that is not a function")
        try:
            self._push(function.call(*arguments))
        except TypeError:  # wrong number of arguments; the functions check the rest
            self._fail(f"its pickle calls {function.name} with {len(arguments)} arguments")

    def _build(self) -> None:
        """Set an object's attributes. State dicts store module versions in `_metadata`, which is ignored."""
        state = self._pop()
        self._top(dict)
        if not isinstance(state, dict) or not state.keys() <= {"_metadata"}:
            self._fail("its pickle sets attributes that plain tensors do not have")

    def _recall(self, key: int) -> None:
        if key not in self._memo:
            self._fail(f"its pickle recalls value {key}, which it never stored")
        self._push(self._memo[key])

    def _store(self, key: int) -> None:
        if not self._stack:
            self._fail("its pickle stores a value from an empty stack")
        self._memo[key] = self._stack[-1]

    def _long(self, n_bytes: int) -> None:
        if n_bytes > 8:
            self._fail(f"its pickle holds a number of {n_bytes} bytes")
        self._push(int.from_bytes(self._take(n_bytes), "little", signed=True))

    def _protocol(self) -> None:
        if (version := self._number("<B")) != 2:
            self._fail(f"its pickle is of protocol {version}; PyTorch writes protocol 2")

    def _fail(self, words: str, hint: str | None = None) -> NoReturn:
        raise ModelFormatError(f"{self._file_name} is not a sound PyTorch file: {words}.", hint)


_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": lambda m: m._protocol(),
    b"(": lambda m: m._push(Mark),
    b"N": lambda m: m._push(None),
    b"\x88": lambda m: m._push(True),
    b"\x89": lambda m: m._push(False),
    b"K": lambda m: m._push(m._number("<B")),
    b"M": lambda m: m._push(m._number("<H")),
    b"J": lambda m: m._push(m._number("<i")),
    b"\x8a": lambda m: m._long(m._number("<B")),
    b"G": lambda m: m._push(m._number(">d")),
    b"X": lambda m: m._push(m._text(m._take(m._number("<I")))),
    b")": lambda m: m._push(()),
    b"]": lambda m: m._push([]),
    b"}": lambda m: m._push({}),
    b"t": lambda m: m._push(tuple(m._group())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"a": lambda m: m._append([m._pop()]),
    b"e": lambda m: m._append(m._group()),
    b"s": lambda m: m._set([m._pop(), m._pop()][::-1]),
    b"u": lambda m: m._set(m._group()),
    b"q": lambda m: m._store(m._number("<B")),
    b"r": lambda m: m._store(m._number("<I")),
    b"h": lambda m: m._recall(m._number("<B")),
    b"j": lambda m: m._recall(m._number("<I")),
    b"c": lambda m: m._global(),
    b"R": lambda m: m._reduce(),
    b"b": lambda m: m._build(),
    b"Q": lambda m: m._push(m._persistent(m._pop())),
}  # fmt: skip
