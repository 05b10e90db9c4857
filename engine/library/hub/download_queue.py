"""The download queue on the disk: one JSON file, never partly written."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engine.errors import EngineError, ModelFormatError
from engine.files import replace_file
from engine.library.hub.download_job import Resolved
from engine.library.hub.download_request import DownloadRequest
from engine.library.records import DownloadState
from engine.plain_config import from_plain

log = logging.getLogger(__name__)

SCHEMA = 1
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Kept:
    """A stored download. id: the name of its staging folder. resolved: its files, once they are known. cancelled: only
    its parts remain to be deleted.
    """

    id: str
    wanted: DownloadRequest
    staging: str
    state: DownloadState
    resolved: Resolved | None = None
    error: str = ""
    message: str = ""
    hint: str = ""
    cancelled: bool = False

    def now(self, state: DownloadState, error: EngineError | None = None) -> Kept:
        """Return the same download in another state."""
        if error is None:
            return replace(self, state=state, error="", message="", hint="")
        return replace(self, state=state, error=type(error).__name__, message=error.message, hint=error.hint)


def read_queue(path: Path) -> list[Kept]:
    """Return the downloads in order; empty without a queue file. A damaged file is renamed and kept."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ModelFormatError("It is too long.")
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ModelFormatError("It has another schema.")
        found: tuple[Kept, ...] = from_plain(tuple[Kept, ...], values.get("downloads"), "downloads")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, EngineError) as error:
        aside = path.with_name(path.name + ".damaged")
        log.warning("the queue of downloads cannot be read (%s); it lies in %s now", error, aside.name)
        try:
            os.replace(path, aside)
        except OSError:
            log.info("and cannot be moved there")
        return []
    return list(found)


def write_queue(path: Path, downloads: Sequence[Kept]) -> None:
    """Write the queue. Raises: OSError, after which the old file is still complete."""
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, "downloads": [asdict(kept) for kept in downloads]}, file)
        file.flush()
        os.fsync(file.fileno())
    replace_file(fresh, path)
