"""State of preparing between runs: the stage of each model, the running one, and this machine's paces.

Small JSON files in the data folder, each replaced atomically; unreadable ones count as missing. The jobs themselves
keep their finished work; these files store only the request.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engine.bundle.bundle import write_json
from engine.errors import DiskSpaceError, EngineError, LibraryError, ModelNotFoundError
from engine.formats.json_text import read_object
from engine.library.records import PrepareStage
from engine.plain_config import from_plain
from engine.sparsity.artifact_files import DISK_FULL

log = logging.getLogger(__name__)

Predictors = Literal["train", "sign"]
PREDICTORS: tuple[Predictors, ...] = ("train", "sign")

_SCHEMA = 1
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class PrepareState:
    """The state of preparing one model.

    stage: the last one that ran, "" once all are done. predictors: the user's choice. later: whether predictors are yet
    to be trained while idle. profile_tokens: positions to count over, 0 if none; the same after an interruption, so
    that counts remain valid.
    """

    model: str
    predictors: Predictors = "train"
    stage: PrepareStage | Literal[""] = ""
    later: bool = False
    profile_tokens: int = 0

    @property
    def interrupted(self) -> bool:
        """Return whether an earlier run left work."""
        return self.stage != ""


def read_state(model: str) -> PrepareState | None:
    """Return the stored state of the model, or None."""
    file = _file(model)
    try:
        values = read_object(file, max_bytes=_MAX_BYTES, max_values=1 << 10)
        state: PrepareState = from_plain(PrepareState, values, file.name)
    except ModelNotFoundError:
        return None
    except EngineError as error:
        log.info("What was kept of preparing %s cannot be read: %s", model, error)
        return None
    return state if values.get("schema_version") == _SCHEMA and state.model == model else None


def keep_state(state: PrepareState) -> None:
    """Replace the stored state. Raises: LibraryError, DiskSpaceError if it cannot be written."""
    file = _file(state.model)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"schema_version": _SCHEMA, **asdict(state)})
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskSpaceError(f"The disk that holds {file.parent} is full.") from error
        raise LibraryError(f"{file} cannot be written: {error.strerror or error}.", "Make it writable.") from error


def delete_state(model: str) -> None:
    """Delete the state, because the model is done."""
    with suppress(OSError):
        _file(model).unlink(missing_ok=True)


def set_later(model: str, later: bool) -> None:
    """Store that all but training is done, or all."""
    if later:
        keep_state(replace(read_state(model) or PrepareState(model), stage="", later=True, predictors="sign"))
    else:
        delete_state(model)


@contextmanager
def only_one(model: str) -> Iterator[None]:
    """Hold the lock for preparing, for one process at a time; the system releases it when the process dies.

    Raises: LibraryError with the model's name if another process has it.
    """
    from filelock import FileLock, Timeout

    folder = _folder()
    note = folder / "running.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "running.lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise LibraryError(
            f"{_running(note)} is being prepared; one model at a time can be.", "Wait until it is done, or stop it."
        ) from error
    except OSError as error:
        raise LibraryError(f"{folder} cannot be written: {error.strerror or error}.", "Make it writable.") from error
    try:
        with suppress(OSError):
            note.write_text(json.dumps({"model": model, "pid": os.getpid()}), encoding="utf-8")
        yield
    finally:
        lock.release()


def _running(note: Path) -> str:
    try:
        found = read_object(note, max_bytes=_MAX_BYTES, max_values=64).get("model")
    except EngineError:
        found = None
    return found if isinstance(found, str) and found else "Another model"


# --- pace


def read_pace(machine: str, stage: str) -> float | None:
    """Return the stage's last work units per second on this machine; None if it never ran."""
    value = _paces().get(f"{machine}.{stage}")
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18
    return float(value) if sound else None  # type: ignore[arg-type]


def keep_pace(machine: str, stage: str, units_per_s: float) -> None:
    """Store the pace. Ignores errors: the next estimate is then as good as the last."""
    file = _folder() / "pace.json"
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {**_paces(), f"{machine}.{stage}": units_per_s})


def _paces() -> dict[str, Any]:
    try:
        return read_object(_folder() / "pace.json", max_bytes=_MAX_BYTES, max_values=1 << 12)
    except EngineError:
        return {}


# --- where


def _file(model: str) -> Path:
    return _folder() / f"{hashlib.sha256(model.encode()).hexdigest()[:24]}.json"


def _folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "preparing"
