"""Typed reads from other projects' model descriptions, independent of the family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from engine.errors import ModelFormatError

T = TypeVar("T")


class Reader:
    """Reads a foreign dictionary. Missing required keys and wrong types raise ModelFormatError."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def required(self, key: str, kind: type[T]) -> T:
        if self.values.get(key) is None:
            raise ModelFormatError(f"{self.where} lacks {key!r}.")
        return self._typed(key, kind)

    def optional(self, key: str, kind: type[T], default: Any) -> Any:
        return default if self.values.get(key) is None else self._typed(key, kind)

    def _typed(self, key: str, kind: type[T]) -> T:
        value: Any = self.values[key]
        if type(value) is int and abs(value) >= 1 << 64:
            raise ModelFormatError(f"{key} in {self.where} is beyond every sensible number.")
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            shown = repr(value)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise ModelFormatError(f"{key} in {self.where} is {shown}; expected is {_KINDS[kind]}.")
        return value


_KINDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text",
                           list: "a list", dict: "an object"}  # fmt: skip


def numbers_by_layer(read: Reader, key: str, n_layers: int, least: int = 1) -> list[int]:
    """Return a whole number of at least `least` for each layer: those of a list, or the same one for all."""
    values = read.values.get(key)
    if not isinstance(values, list):
        return [read.required(key, int)] * n_layers
    if len(values) != n_layers or not all(type(value) is int and least <= value < 1 << 32 for value in values):
        raise ModelFormatError(f"{key} in {read.where} is not a list of {n_layers} whole numbers from {least} on.")
    return values


def decimal(value: float) -> float:
    """Return the decimal number that a float32 in a file stands for: 0.3 instead of 0.30000001192."""
    return float(f"{value:.7g}")


def share_width(d_model: int, n_heads: int) -> int:
    """Return the head width if the files do not state it."""
    if n_heads < 1 or d_model % n_heads:
        raise ModelFormatError(f"A width of {d_model} cannot be shared by {n_heads} attention heads.")
    return d_model // n_heads


def token_ids(read: Reader, key: str) -> list[int]:
    """Return the ids of a Hugging Face key: a number, a list of numbers or nothing."""
    value = read.values.get(key)
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and abs(token) < 1 << 64 for token in ids):
        raise ModelFormatError(f"{key} in {read.where} is {str(value)[:60]}; whole numbers are needed.")
    return ids
