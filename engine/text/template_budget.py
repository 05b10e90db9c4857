"""Limits of one rendering of a chat template: time, text, memory, and steps of calls that cannot be interrupted.

It counts plain values; engine/text/template_sandbox.py calls it at every operation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, NoReturn, TypeVar

from jinja2.utils import Namespace

from engine.errors import ChatTemplateError

ITEM_WEIGHT = 16  # characters that one item of a container counts as: about its memory
MAX_INT_BITS = 4096  # arithmetic takes the product of two lengths
_MADE_LIMIT_BYTES = 256 << 20  # allocated in all; an honest template makes about ten copies of a chat
_MOST_STEPS = 1 << 27  # of one search in a text, about 20 ms
_T = TypeVar("_T")


class Budget:
    """The remaining budget of a rendering.

    seconds: CPU time of this thread; chars: written, and the size of one value.
    """

    def __init__(self, seconds: float, chars: int) -> None:
        self._seconds, self._chars = seconds, chars
        self._deadline = time.thread_time() + seconds
        self._written = 0
        self._made_bytes = 0
        self.has_changes = False  # whether a list may have grown since it was weighed
        self._own: dict[int, list[Any]] = {}  # by id(); kept, so that no other list gets the same

    @property
    def most_items(self) -> int:
        """Return the most items of a list, plus one, with which `weigh` refuses it."""
        return self._chars // ITEM_WEIGHT + 1

    def tick(self, chars: int = 0) -> None:
        """Check the limits; `chars` of text are about to be written."""
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

    def allow_search(self, length: int, sought: int) -> None:
        """Refuse a search that could compare every position of a text with every character of the other."""
        if length * sought > _MOST_STEPS:
            raise ChatTemplateError(
                f"The model's chat template searches {length} characters for {sought}; their product may be "
                f"{_MOST_STEPS} at most."
            )

    def refuse_number(self) -> NoReturn:
        """Refuse a number of more than MAX_INT_BITS."""
        raise ChatTemplateError("The model's chat template computes a number with more than 1200 digits.")

    def made(self, value: _T) -> _T:
        """Return the value after counting its memory, including the texts in a container."""
        if isinstance(value, (str, list, tuple, set, frozenset, dict)):
            n_bytes = sys.getsizeof(value)
            if isinstance(value, (list, tuple, set, frozenset)):
                n_bytes += sum(sys.getsizeof(item) for item in value if isinstance(item, str))
            self._made_bytes += n_bytes
            if self._made_bytes > _MADE_LIMIT_BYTES:
                raise ChatTemplateError(
                    f"The model's chat template makes values of more than {_MADE_LIMIT_BYTES >> 20} MiB in all."
                )
        return value

    def own(self, value: list[Any]) -> None:
        """Note a list that the template wrote, which it may change."""
        self._own[id(value)] = value

    def owns(self, value: list[Any]) -> bool:
        """Return whether the template wrote this list."""
        return id(value) in self._own

    def watched(self, items: Iterator[_T]) -> Iterator[_T]:
        """Yield the items, with a checkpoint at each."""
        for item in items:
            self.tick()
            yield item

    def weigh(self, value: object, *, printable: bool = False) -> int:
        """Return the size of a value as if printed; shared parts count each time they appear.

        Cost: at most chars / 16 steps. `printable` refuses namespaces, which can contain one another and so hide any
        amount of text.
        """
        total, left = 0, [value]
        while left:
            item = left.pop()
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)):
                total += ITEM_WEIGHT * len(item)
                self.allow(total)
                left.extend(item)
            elif isinstance(item, dict):
                total += 2 * ITEM_WEIGHT * len(item)
                self.allow(total)
                left.extend(item.keys())
                left.extend(item.values())
            elif isinstance(item, range):
                total += ITEM_WEIGHT * len(item)
            elif isinstance(item, int):
                if item.bit_length() > MAX_INT_BITS:
                    self.refuse_number()
                total += ITEM_WEIGHT + item.bit_length() // 3
            elif isinstance(item, Namespace) and printable:
                raise ChatTemplateError("The model's chat template uses a whole namespace as a value.")
            else:
                total += ITEM_WEIGHT
            if total > self._chars:
                self.allow(total)
        return total

    def collect(self, items: Iterator[Any]) -> list[Any]:
        """Return the iterator's items as a list, within the limits while it grows."""
        kept: list[Any] = []
        total = 0
        for item in items:
            self.tick()
            total += ITEM_WEIGHT + self.weigh(item)
            self.allow(total)
            kept.append(item)
        return self.made(kept)
