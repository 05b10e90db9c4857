"""Files of one model that was split: which belong together by their names. It opens none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from engine.errors import ModelFormatError, ModelNotFoundError

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[A-Za-z]+)", re.DOTALL)


def shard_paths(path: Path) -> list[Path]:
    """All parts of the model that the file is a part of, in order; the file alone where its name is no part's.

    Raises: ModelNotFoundError naming the first part that is missing, ModelFormatError for part 3 of 2.
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
    """The files of those names. Raises ModelNotFoundError naming the first that is not there, and looks no further."""
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
    """The files without the later parts of split models: one path for each model."""
    return [path for path in paths if (match := _SHARD.fullmatch(path.name)) is None or int(match["number"]) == 1]
