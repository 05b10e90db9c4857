"""Find the shards of a split model by their names. Opens none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from engine.errors import ModelFormatError, ModelNotFoundError

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[A-Za-z]+)", re.DOTALL)


def shard_paths(path: Path) -> list[Path]:
    """Return all shards of the file's model in order; only the file if its name is no shard's.

    Raises: ModelNotFoundError naming the first missing shard, ModelFormatError for an impossible number such as 3 of 2.
    """
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise ModelFormatError(
            f"{path.name} calls itself part {number} of {count}.", "Give the file its own name back."
        )
    names = (f"{match['stem']}-{i:05d}-of-{count:05d}{match['suffix']}" for i in range(1, count + 1))
    return existing_parts(path.parent, names, count)


def existing_parts(folder: Path, names: Iterable[str], count: int) -> list[Path]:
    """Return the files of those names. Raises: ModelNotFoundError naming the first missing one."""
    paths = []
    for i, name in enumerate(names):
        if not (folder / name).is_file():
            raise ModelNotFoundError(
                f"Part {i + 1} of {count} of the model is missing: there is no {name} in {folder}.",
                f"Download {name} into the same folder.",
            )
        paths.append(folder / name)
    return paths


def first_shards(paths: list[Path]) -> list[Path]:
    """Return the files without later shards: one path per model."""
    return [path for path in paths if (match := _SHARD.fullmatch(path.name)) is None or int(match["number"]) == 1]
