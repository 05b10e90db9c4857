"""library.json, the list of installed models: read and write it, one writer at a time, and recover it if damaged.

engine/library/owned/stored_models.py validates the fields of a model. This module moves and deletes no model files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import DiskSpaceError, EngineError, LibraryError, ModelFormatError, ModelNotFoundError
from engine.files import matching, replace_file
from engine.formats.json_text import read_object
from engine.library.owned.stored_models import Remarks, StoredModel, from_plain_model, is_file_name, is_id, to_plain
from engine.plain_config import from_plain
from engine.sparsity.artifact_files import DISK_FULL

log = logging.getLogger(__name__)

LIST = "library.json"
BEFORE = "library.before.json"  # as it was before the last change: where the list is damaged
LOCK = "library.lock"
RECEIPT = ".hearth-model.json"  # in the folder of each model whose files are Hearth's
SCHEMA_VERSION = 1
LOCK_WAIT_S = 20.0

_MAX_BYTES = 64 << 20
_MAX_VALUES = 1 << 20
_MAX_RECEIPT_BYTES = 8 << 20


@dataclass(frozen=True)
class Removed:
    """A removed model. trash: the folder with its files; at: seconds since 1970."""

    model: StoredModel
    trash: str
    names: tuple[str, ...]  # of files in the model's folder that were Hearth's
    bundle: tuple[str, ...]  # the same of its prepared bundle
    at: float


@dataclass(frozen=True)
class Leftover:
    """Files below a folder that are no longer listed and must be deleted."""

    folder: str
    names: tuple[str, ...]


@dataclass
class Contents:
    """The contents of library.json.

    folder: for new models; paths are absolute. remarks: facts about models that are not listed themselves, by id.
    moving_to: the target of an unfinished move; empty: none.
    """

    folder: Path
    models: dict[str, StoredModel] = field(default_factory=dict)
    remarks: dict[str, Remarks] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    removed: dict[str, Removed] = field(default_factory=dict)
    leftovers: list[Leftover] = field(default_factory=list)
    moving_to: str = ""

    def to_json(self, home: Path) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "folder": "" if self.folder == home else str(self.folder),
            "models": [to_plain(model, self.folder) for model in self.models.values()],
            "remarks": {id: asdict(found) for id, found in self.remarks.items()},
            "hidden": sorted(self.hidden),
            "removed": {
                token: {**asdict(gone), "model": to_plain(gone.model, self.folder)}
                for token, gone in self.removed.items()
            },
            "leftovers": [asdict(leftover) for leftover in self.leftovers],
            "moving_to": self.moving_to,
        }


class LibraryFile:
    """The list in a folder. Safe for any number of threads and processes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / LIST
        self._thread_lock = threading.RLock()
        self._held = self._is_changing = False  # by the thread that holds the lock above
        self._cached: tuple[tuple[int, int, int], str] | None = None  # the file's stamp and text

    def read(self) -> Contents:
        """Return the contents; empty without a file. A damaged file is renamed and rebuilt.

        Raises: LibraryError for a list from a newer version of Hearth, or if it cannot be read.
        """
        with self._thread_lock:
            state = self._state()
            if self._cached is not None and self._cached[0] == state:
                return self._parsed(json.loads(self._cached[1]))
            if state is None:  # not yet, or no more
                return self._found_again()
            try:
                values, contents = self._read(self.path)
            except ModelNotFoundError as error:
                raise LibraryError(error.message, "Make the file readable.") from error
            except ModelFormatError as error:
                return self._made_anew(error)
            self._cached = (state, json.dumps(values))
            return contents

    @contextlib.contextmanager
    def changing(self) -> Iterator[Contents]:
        """Yield the contents for changes by this thread alone; write them if the block succeeds.

        Raises: LibraryError if another process holds the lock too long or the file cannot be written; DiskSpaceError.
        """
        with self.locked():
            assert not self._is_changing, "the inner change would be lost"
            self._is_changing = True
            try:
                contents = self.read()
                yield contents
                self._write(contents)
            finally:
                self._is_changing = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent changes by others during the block. Reentrant within a thread."""
        from filelock import FileLock, Timeout

        with self._thread_lock:
            if self._held:
                yield
                return
            with _words(self.path):
                self.home.mkdir(parents=True, exist_ok=True)
                lock = FileLock(str(self.home / LOCK))
                try:
                    lock.acquire(timeout=LOCK_WAIT_S)
                except Timeout as error:
                    raise LibraryError(
                        "Another Hearth has been changing the list of models for too long.", "Close it and try again."
                    ) from error
            self._held = True
            try:
                yield
            finally:
                self._held = False
                lock.release()

    # --- the file

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LibraryError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self, path: Path) -> tuple[dict[str, Any], Contents]:
        values = read_object(path, max_bytes=_MAX_BYTES, max_values=_MAX_VALUES, finite=True)
        return values, self._parsed(values)

    def _parsed(self, values: dict[str, Any]) -> Contents:
        version = values.get("schema_version")
        if type(version) is not int or version < 1:
            raise ModelFormatError(f"{LIST} has the schema version {str(version)[:40]!r}.")
        if version > SCHEMA_VERSION:
            raise LibraryError(
                f"The list of models was written by a newer Hearth: {self.path} has the version {version}, and this "
                f"one knows {SCHEMA_VERSION}.",
                "Update Hearth, or start the newer one.",
            )
        folder = from_plain(str, values.get("folder", ""), "folder")
        if folder and (not os.path.isabs(folder) or "\0" in folder):
            raise ModelFormatError(f"The models folder is set to {folder[:80]!r}.")
        root = Path(folder) if folder else self.home
        contents = Contents(root)
        for i, entry in enumerate(_list(values, "models")):
            model = from_plain_model(entry, root, f"models[{i}]")
            if any(model.id.casefold() == id.casefold() for id in contents.models):
                raise ModelFormatError(f"{model.id} is listed twice.")
            contents.models[model.id] = model
        contents.remarks = {id: _remarks(id, found) for id, found in _dict(values, "remarks").items()}
        contents.hidden = {id for id in _list(values, "hidden") if isinstance(id, str) and is_id(id)}
        contents.removed = {token: _removed(found, root) for token, found in _dict(values, "removed").items()}
        contents.leftovers = [_leftover(found) for found in _list(values, "leftovers")]
        contents.moving_to = from_plain(str, values.get("moving_to", ""), "moving_to")
        if contents.moving_to and (not os.path.isabs(contents.moving_to) or "\0" in contents.moving_to):
            raise ModelFormatError(f"{contents.moving_to[:80]!r}, where the models move to, is not a full path.")
        return contents

    def _write(self, contents: Contents, keep_before: bool = True) -> None:
        for model in contents.models.values():
            model.check()
        values = contents.to_json(self.home)
        # ASCII: a name that is not Unicode, as Linux allows, survives the round trip
        text = json.dumps(values, allow_nan=False, indent=1)
        if (
            self._cached is not None
            and self._cached[0] == self._state()
            and json.loads(self._cached[1]) == json.loads(text)
        ):
            return
        with _words(self.path):
            if keep_before and self.path.exists():
                _copy(self.path, self.home / BEFORE)
            write_durably(self.path, text.encode())
            state = self._state()
        self._cached = None if state is None else (state, text)

    # --- damage

    def _made_anew(self, error: EngineError) -> Contents:
        """Keep the damaged list under another name and rebuild it."""
        with self.locked():
            with contextlib.suppress(ModelFormatError, ModelNotFoundError):
                return self._read(self.path)[1]  # another process was faster
            aside = self.home / f"library.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}-{time.time_ns() % 10**6}.json"
            contents = self._found_again()
            log.warning(
                "The list of models was damaged (%s); it is kept as %s, and made anew with %d models",
                error.message, aside.name, len(contents.models),
            )  # fmt: skip
            with _words(self.path):
                _copy(self.path, aside)
                self._cached = None
                self._write(contents, keep_before=False)
            return contents

    def _found_again(self) -> Contents:
        """Return the list before the last change, with the models that receipts in the models folder describe."""
        contents = Contents(self.home)
        with contextlib.suppress(ModelFormatError, ModelNotFoundError):
            contents = self._read(self.home / BEFORE)[1]
        for root in {self.home, contents.folder}:
            for model in models_with_receipt(root):
                if model.id.casefold() not in {id.casefold() for id in contents.models}:
                    contents.models[model.id] = model
        return contents


# --- receipts


def write_receipt(model: StoredModel, into: Path | None = None) -> None:
    """Write into a model's folder what it is and which files belong to Hearth. Without this receipt none is deleted.

    into: the folder that will become the model's. Raises: LibraryError, DiskSpaceError.
    """
    folder = Path(model.folder)
    values = {"schema_version": SCHEMA_VERSION, **to_plain(model, folder.parents[1])}
    with _words(folder):
        write_durably((into or folder) / RECEIPT, json.dumps(values, allow_nan=False, indent=1).encode())


def read_receipt(folder: Path) -> StoredModel | None:
    """Return the model that Hearth put into the folder; None without a valid receipt."""
    try:
        values = read_object(
            folder / RECEIPT, max_bytes=_MAX_RECEIPT_BYTES, max_values=_MAX_VALUES, finite=True
        )  # fmt: skip
        if values.pop("schema_version", None) != SCHEMA_VERSION:
            return None
        model = from_plain_model(values, folder.parents[1], RECEIPT)
    except EngineError:
        return None
    # wherever the folder has been moved
    return replace(model, folder=str(folder)) if model.id == f"{folder.parent.name}/{folder.name}" else None


def models_with_receipt(root: Path) -> list[StoredModel]:
    """Return the models below a models folder according to their receipts."""
    found = []
    with contextlib.suppress(OSError):
        for receipt in matching(root, f"*/*/{RECEIPT}"):
            model = read_receipt(receipt.parent)
            if model is not None and not receipt.parent.parent.name.startswith("."):
                found.append(model)
    return found


def write_durably(path: Path, data: bytes) -> None:
    """Replace the file atomically, also across a power failure."""
    writing = path.with_name(f"{path.name}.{os.getpid()}.writing")
    try:
        with writing.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        replace_file(writing, path)
    except BaseException:
        with contextlib.suppress(OSError):
            writing.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make renames in the folder survive a power failure, if the system supports it."""
    if os.name == "posix":
        with contextlib.suppress(OSError):  # some file systems refuse it
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _copy(source: Path, target: Path) -> None:
    write_durably(target, source.read_bytes())


# --- foreign values


def _list(values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key, [])
    if not isinstance(found, list):
        raise ModelFormatError(f"{key} is not a list.")
    return found


def _dict(values: dict[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key, {})
    if not isinstance(found, dict):
        raise ModelFormatError(f"{key} is not an object.")
    return found


def _remarks(id: str, found: object) -> Remarks:
    if not is_id(id):
        raise ModelFormatError(f"Something is stored for {id[:80]!r}, which is not a model id.")
    remarks: Remarks = from_plain(Remarks, found, f"remarks of {id}")
    remarks.check(id)
    return remarks


def _removed(found: object, root: Path) -> Removed:
    if not isinstance(found, dict):
        raise ModelFormatError("The record of removed files is not an object.")
    model = from_plain_model(found.get("model"), root, "removed.model")
    gone: Removed = from_plain(Removed, {**found, "model": model}, "removed")
    _check_names(gone.trash, (*gone.names, *gone.bundle))
    return gone


def _leftover(found: object) -> Leftover:
    leftover: Leftover = from_plain(Leftover, found, "leftovers")
    _check_names(leftover.folder, leftover.names)
    return leftover


def _check_names(folder: str, names: tuple[str, ...]) -> None:
    if not os.path.isabs(folder) or "\0" in folder or not all(is_file_name(name) for name in names):
        raise ModelFormatError(f"The content of {folder[:80]!r} is invalid.")


@contextlib.contextmanager
def _words(path: Path) -> Iterator[None]:
    """Translate failures of the disk into errors of the engine."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskSpaceError(
                f"The disk accepted no more data while {path} was written: {error.strerror}."
            ) from error
        raise LibraryError(
            f"{error.filename or path} cannot be written: {error.strerror or error}.", "Make the folder writable."
        ) from error
