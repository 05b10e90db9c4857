"""Named things that a person keeps in a small JSON file: personas and presets are such shelves.

A shelf has what comes with Hearth, which stays as it is, and a person's own. It knows no Qt; whoever changes something
saves it. Files from outside are bounded before anything of them is taken.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import unicodedata
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from app.translation import tr

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 8 << 20
MAX_THINGS = 500
NAME_LENGTH = 60


class Named(Protocol):
    """What can stand on a shelf: a frozen dataclass with an id and a name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class PresetStoreError(Exception):
    """A file that cannot be taken in; the message says why in one sentence."""


class PresetStore(ABC, Generic[T]):
    """What comes with Hearth, then a person's own in the order in which they came."""

    kind: ClassVar[str]  # what the file calls itself
    holds_none: ClassVar[str]  # the sentence for a file, {name}, without any
    schema_version: ClassVar[int] = 1

    def __init__(self, built_in: Sequence[T], path: Path | None = None) -> None:
        """Nothing is read here. path: None keeps everything in memory."""
        self.built_in = tuple(built_in)
        self._path = path
        self._own: list[T] = []
        self._newer = False  # the file, a newer Hearth's say, stays as it is

    # -------------------------------------------------------------- each kind says

    @abstractmethod
    def from_json(self, values: Mapping[str, Any]) -> T:
        """A thing of plain values. Raises ValueError with one sentence for what makes no sense."""

    @abstractmethod
    def to_json_values(self, thing: T) -> dict[str, Any]:
        """Its plain values, without the id."""

    # -------------------------------------------------------------- what there is

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

    # -------------------------------------------------------------- changing

    def put(self, thing: T, at: int | None = None) -> T:
        """Add a thing of the person's, or put it in place of the one with its id; as it stands then, with a name
        that no other has. Raises PresetStoreError where there is no room for another."""
        others = [other.name for other in self.things if other.id != thing.id]
        thing = replace(thing, name=free_name(thing.name, others))
        index = next((i for i, other in enumerate(self._own) if other.id == thing.id), None)
        if index is not None:
            self._own[index] = thing
        elif self.is_full:
            raise PresetStoreError(tr("More than {most} cannot be kept.", most=MAX_THINGS))
        else:
            self._own.insert(len(self._own) if at is None else at, thing)
        return thing

    def remove(self, thing_id: str) -> int:
        """Take away one of the person's own; where it stood, for `put`. Raises KeyError for any other."""
        index = next((i for i, thing in enumerate(self._own) if thing.id == thing_id), None)
        if index is None:
            raise KeyError(thing_id)
        del self._own[index]
        return index

    # -------------------------------------------------------------- the file

    def read(self) -> None:
        """Take those of the file; a missing or damaged one gives none, and single bad ones are left out.

        A damaged file is kept aside; one that cannot be read, or is a newer Hearth's, stays as it is and is not saved.
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
            self._keep_aside(error)
            return
        version = values.get("schema_version")
        self._newer = type(version) is int and version > self.schema_version
        if not self._newer:
            self._own = []
            for thing in self._checked(values, keep_ids=True)[0]:
                self.put(thing)

    def _keep_aside(self, fault: PresetStoreError) -> None:
        assert self._path is not None, "it was read"
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
        aside = self._path.with_name(f"{self._path.stem}-damaged-{stamp}{self._path.suffix}")
        log.info("%s It is kept as %s.", fault, aside.name)
        try:
            self._path.rename(aside)
        except OSError:
            self._newer = True  # what cannot be kept aside is not written over

    def to_json(self, things: Iterable[T] | None = None) -> dict[str, Any]:
        """All of the person's own, or the given ones, as `read` and `take_in` understand it."""
        chosen = self._own if things is None else things
        listed = [{"id": thing.id, **self.to_json_values(thing)} for thing in chosen]
        return {"hearth": self.kind, "schema_version": self.schema_version, self.kind: listed}

    def save(self, values: dict[str, Any]) -> None:
        """Write what `to_json` gave, in one atomic step; callable from any thread. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)

    def take_in(self, path: Path) -> tuple[list[T], int]:
        """Add those of a file from outside; what was added, and how many of it were left out because they make no
        sense. One that is there already, word for word, is not added again. Raises PresetStoreError."""
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

    def hand_out(self, path: Path, things: Iterable[T]) -> None:
        """Write things into a file for others. Raises OSError."""
        write_json(path, self.to_json(things))

    def _checked(self, values: Mapping[str, Any], keep_ids: bool) -> tuple[list[T], int]:
        """What of a file makes sense, and how many do not."""
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


def new_id() -> str:
    return uuid.uuid4().hex


def checked_name(name: object) -> str:
    """A name as it is shown: one line, bounded, nothing that turns or hides the words around it. Raises ValueError."""
    if not isinstance(name, str):
        raise ValueError("The name is no text.")
    plain = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in name[:1000])
    words = " ".join(plain.split())[:NAME_LENGTH].rstrip()
    if not words:
        raise ValueError("The name is empty.")
    return words


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, with a number behind it where another has it already."""
    used = {other.casefold() for other in taken}
    if name.casefold() not in used:
        return name
    number = 2
    while (tried := f"{name[: NAME_LENGTH - 5].rstrip()} {number}").casefold() in used:
        number += 1
    return tried


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file in one atomic step. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path, most_bytes: int = MAX_FILE_BYTES) -> Any:
    """What a JSON file of at most so many bytes holds. Raises OSError, and PresetStoreError with a sentence."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise PresetStoreError(tr("{name} is larger than {most} MB.", name=path.name, most=most_bytes >> 20))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PresetStoreError(tr("{name} is no JSON file.", name=path.name)) from error


def _parsed(path: Path) -> dict[str, Any]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise PresetStoreError(tr("{name} holds nothing of Hearth's.", name=path.name))
    return values
