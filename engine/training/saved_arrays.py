"""Work in progress in the cache folder, so that an interruption costs little. Finished results are stored elsewhere.

Nothing depends on it: unreadable files are created again, and if nothing can be written the work continues.
"""

from __future__ import annotations

import logging
import os
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)


def saved_file(folder: str, name: str) -> Path:
    """Return the file of that name in one of the cache's folders; neither may exist yet."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("Hearth", appauthor=False)) / folder / f"{name}.npz"


def read_saved(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays in the file, by name; None without a readable one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if not isinstance(error, FileNotFoundError):
            log.info("%s is made anew: %s", path, error)
        return None


def save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Replace the file atomically, or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(part, path)
    except OSError as error:
        log.info("Work in progress is not kept in %s: %s", path.parent, error)
        with suppress(OSError):
            part.unlink(missing_ok=True)


def delete(path: Path) -> None:
    """Delete the file, because the work is done."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
