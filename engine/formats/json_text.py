"""Read JSON that may be hostile: limited before parsing, without duplicate names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelFormatError, ModelNotFoundError


def read_object(path: Path, *, max_bytes: int, max_values: int, finite: bool = False) -> dict[str, Any]:
    """Return the object in a JSON file. finite: refuse NaN and Infinity, which JSON does not define.

    Raises: ModelNotFoundError if the file is missing or unreadable, ModelFormatError for its content.
    """
    try:
        if not path.is_file():  # a device or pipe could be endless
            raise ModelNotFoundError(f"There is no {path.name} in {path.parent}.")
        with path.open("rb") as file:
            raw = file.read(min(path.stat().st_size, max_bytes) + 1)  # read() allocates the requested size
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror or error}.") from error
    return parse_object(raw, path.name, max_bytes=max_bytes, max_values=max_values, finite=finite)


def parse_object(
    raw: bytes,
    file_name: str,
    *,
    max_bytes: int,
    max_values: int,
    max_containers: int = 1 << 16,
    finite: bool = False,
) -> dict[str, Any]:
    """Return the object of the text.

    max_values, max_containers: limits on allocation, counted as commas and opening brackets, texts included; allow a
    margin.
    Raises: ModelFormatError naming the file.
    """
    if len(raw) > max_bytes:
        raise ModelFormatError(f"{file_name} is not a sound JSON file: it is longer than {max_bytes} bytes.")
    if raw.count(b",") > max_values or raw.count(b"[") + raw.count(b"{") > max_containers:
        raise ModelFormatError(f"{file_name} is not a sound JSON file: it lists more than {max_values} values.")
    try:
        values = json.loads(raw, object_pairs_hook=_without_duplicates, parse_constant=_refuse if finite else None)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{file_name} is not JSON: {str(error)[:100]}.") from error
    if not isinstance(values, dict):
        raise ModelFormatError(f"{file_name} has no JSON object.")
    return values


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:60]!r} appears twice")
    return values


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")
