"""Modules that the first paint of the window doesn't need: imported at their first use, or one by one after it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_names: list[str] = []


class Later:
    """A module that is imported when it is first used, from any thread, or when its turn comes after the first paint.

    For names that a module needs often; a function that needs one once imports it itself. Type checkers see an import
    under TYPE_CHECKING in its place.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        if name not in _names:
            _names.append(name)

    def __getattr__(self, attribute: str) -> Any:
        module = self.__dict__["_module"] = self.__dict__.get("_module") or import_module(self._name)
        return getattr(module, attribute)


def import_next() -> bool:
    """Import the next of these modules. Returns whether there was one. Cost: at most 30 ms."""
    if _names:
        import_module(_names.pop(0))
        return True
    return False
