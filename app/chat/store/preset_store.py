"""Named things that the user keeps in a small JSON file: personas and presets. No Qt.

A store has built-in things, which do not change, and the user's own. Callers save after a change. Files from outside
are checked before anything is imported.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from app.translation import tr
from engine.files import replace_file

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 8 << 20
MAX_THINGS = 500
NAME_LENGTH = 60


class Named(Protocol):
    """A thing in a store: a frozen dataclass with an id and a name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class PresetStoreError(Exception):
    """A file that cannot be imported. The message says why in one sentence."""


class PresetStore(ABC, Generic[T]):
    """The built-in things, then the user's own in the order in which they were added."""

    kind: ClassVar[str]  # the file's "kind"
    holds_none: ClassVar[str]  # the sentence for a file, {name}, without any
    schema_version: ClassVar[int] = 1

    def __init__(self, built_in: Sequence[T], path: Path | None = None) -> None:
        """Read nothing. path: None keeps everything in memory."""
        self.built_in = tuple(built_in)
        self._path = path
        self._own: list[T] = []
        self._newer = False  # the file belongs to a newer version and is not written

    # --- each kind says

    @abstractmethod
    def from_json(self, values: Mapping[str, Any]) -> T:
        """Return the thing with these values. Raises ValueError with one sentence."""

    @abstractmethod
    def to_json_values(self, thing: T) -> dict[str, Any]:
        """Return its values, without the id."""

    # --- contents

    @property
    def things(self) -> list[T]:
        return [*self.built_in, *self._own]

    @property
    def own(self) -> list[T]:
        return list(self._own)

    def get(self, thing_id: str) -> T | None:
        return next((thing for thing in self.things if thing.id == thing_id), None)

    def is_own(self, thing_id: str) -> bool:
        return any(thing.id == thing_id for thing in self._own)

    @property
    def is_full(self) -> bool:
        return len(self._own) >= MAX_THINGS

    # --- changing

    def put(self, thing: T, at: int | None = None) -> T:
        """Add one of the user's things, or replace the one with its id. Returns it with a unique name. Raises
        PresetStoreError if the store is full."""
        others = [other.name for other in self.things if other.id != thing.id]
        thing = replace(thing, name=free_name(thing.name, others))
        index = next((i for i, other in enumerate(self._own) if other.id == thing.id), None)
        if index is not None:
            self._own[index] = thing
        elif self.is_full:
            raise PresetStoreError(tr("Hearth keeps at most {most}.", most=MAX_THINGS))
        else:
            self._own.insert(len(self._own) if at is None else at, thing)
        return thing

    def remove(self, thing_id: str) -> int:
        """Remove one of the user's own. Returns its index, for `put`. Raises KeyError."""
        index = next((i for i, thing in enumerate(self._own) if thing.id == thing_id), None)
        if index is None:
            raise KeyError(thing_id)
        del self._own[index]
        return index

    # --- the file

    def read(self) -> None:
        """Read the file; a missing or damaged one gives nothing, and bad entries are skipped.

        A damaged file is renamed and kept. A file that cannot be read, or is a newer version's, stays and is not saved.
        """
        if self._path is None:
            return
        try:
            values = _parsed(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            log.info("%s could not be read and stays as it is: %s", self._path.name, error)
            self._newer = True
            return
        except PresetStoreError as error:
            self._newer = not keep_aside(self._path, error)
            return
        version = values.get("schema_version")
        self._newer = type(version) is int and version > self.schema_version
        if not self._newer:
            self._own = []
            for thing in self._checked(values, keep_ids=True)[0]:
                self.put(thing)

    def to_json(self, things: Iterable[T] | None = None) -> dict[str, Any]:
        """Return the user's own things, or the given ones, as `read` and `import_file` expect them."""
        chosen = self._own if things is None else things
        listed = [{"id": thing.id, **self.to_json_values(thing)} for thing in chosen]
        return {"hearth": self.kind, "schema_version": self.schema_version, self.kind: listed}

    def save(self, values: dict[str, Any]) -> None:
        """Write the values of `to_json` atomically. Thread-safe. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)

    def import_file(self, path: Path) -> tuple[list[T], int]:
        """Import a file. Returns the added things and the number of invalid ones that were skipped. Exact duplicates
        are not added. Raises PresetStoreError."""
        try:
            values = _parsed(path)
        except OSError as error:
            raise PresetStoreError(
                tr("{name} could not be read: {why}.", name=path.name, why=error.strerror or error)
            ) from error
        version = values.get("schema_version")
        if type(version) is int and version > self.schema_version:
            raise PresetStoreError(tr("{name} was written by a newer Hearth.", name=path.name))
        found, left_out = self._checked(values, keep_ids=False)
        if not found:
            raise PresetStoreError(tr(self.holds_none, name=path.name))
        added = []
        for thing in found:
            if any(self.to_json_values(thing) == self.to_json_values(old) for old in self.things):
                continue
            if self.is_full:
                left_out += 1
                continue
            added.append(self.put(thing))
        return added, left_out

    def export_file(self, path: Path, things: Iterable[T]) -> None:
        """Export things to a file. Raises OSError."""
        write_json(path, self.to_json(things))

    def _checked(self, values: Mapping[str, Any], keep_ids: bool) -> tuple[list[T], int]:
        """Return the valid things of a file, and the number of invalid ones."""
        listed = values.get(self.kind)
        if not isinstance(listed, list):
            return [], 0
        found: list[T] = []
        built_in = {thing.id for thing in self.built_in}
        seen: set[str] = set()
        for one in listed[:MAX_THINGS]:
            if not isinstance(one, dict):
                continue
            own_id = one.get("id")
            usable = keep_ids and isinstance(own_id, str) and 0 < len(own_id) <= 100 and own_id not in built_in | seen
            try:
                thing = self.from_json({**one, "id": own_id if usable else new_id()})
            except ValueError:
                continue
            seen.add(thing.id)
            found.append(thing)
        return found, len(listed) - len(found)


def keep_aside(path: Path, fault: PresetStoreError) -> bool:
    """Rename a damaged file, so that it is kept. Return False if it could not be renamed and must not be written."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    log.info("%s It is kept as %s.", fault, aside.name)
    try:
        path.rename(aside)
    except OSError:
        return False
    return True


def new_id() -> str:
    return os.urandom(16).hex()


def checked_name(name: object) -> str:
    """Return a name in one line, of limited length, without characters that reorder or hide text. Raises ValueError."""
    if not isinstance(name, str):
        raise ValueError("The name is not text.")
    plain = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in name[:1000])
    words = " ".join(plain.split())[:NAME_LENGTH].rstrip()
    if not words:
        raise ValueError("The name is empty.")
    return words


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    used = {other.casefold() for other in taken}
    if name.casefold() not in used:
        return name
    number = 2
    while (tried := f"{name[: NAME_LENGTH - 5].rstrip()} {number}").casefold() in used:
        number += 1
    return tried


class VersionedFile:
    """A small JSON file with a schema version. That of a newer version of Hearth is neither used nor written."""

    def __init__(self, path: Path | None, schema_version: int) -> None:
        """Read nothing. path: None: there is no file."""
        self._path, self._schema_version = path, schema_version
        self._newer = False

    def values(self, most_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
        """Read the file. Return {} if it is missing, damaged or a newer version's."""
        try:
            found = None if self._path is None else read_json(self._path, most_bytes)
        except (OSError, PresetStoreError):
            return {}
        version = found.get("schema_version") if isinstance(found, dict) else None
        self._newer = type(version) is int and version > self._schema_version
        return found if isinstance(found, dict) and not self._newer else {}

    def save(self, values: Mapping[str, Any]) -> None:
        """Write the values of `to_json`. Thread-safe. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file atomically. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        replace_file(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path, most_bytes: int = MAX_FILE_BYTES) -> Any:
    """Read a JSON file of limited size. Raises OSError, and PresetStoreError with a sentence."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise PresetStoreError(tr("{name} is larger than {most} MB.", name=path.name, most=most_bytes >> 20))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PresetStoreError(tr("{name} is not a JSON file.", name=path.name)) from error


def _parsed(path: Path) -> dict[str, Any]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise PresetStoreError(tr("{name} contains nothing that Hearth exported.", name=path.name))
    return values
