"""Records of models in library.json and in receipts, with validation. Touches no files."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from engine.errors import LibraryError, ModelFormatError
from engine.library.records import InstalledFile, ModelKind, Origin
from engine.plain_config import from_plain

_MAX_FILES = 1 << 14
_MAX_BYTES = 1 << 53
_SHA256 = re.compile(r"[0-9a-f]{64}|")
_NO_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')  # what no file can be called on some system
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class Remarks:
    """Facts about a model that is not listed itself; fields of StoredModel."""

    prepared: str = ""
    measured_tok_s: float | None = None
    still_needed: str | None = None

    def check(self, id: str) -> None:
        """Raise ModelFormatError for invalid values."""
        _check_path(id, "prepared", self.prepared)
        _check_rate(id, self.measured_tok_s)


@dataclass(frozen=True)
class FoundModel:
    """A possible model in the folder of another program, or in the hub's cache.

    id: "owner/name", not cleaned yet. name: for the user. path: the file to open, below the folder; empty: the folder
    itself. names: all its files, below the folder.
    """

    origin: Origin
    id: str
    name: str
    folder: Path
    path: str
    names: tuple[str, ...]
    repo: str = ""
    revision: str = ""


@dataclass(frozen=True)
class StoredModel:
    """A listed model.

    folder, prepared: absolute here; in the file, relative to the models folder if they are in it. path: the file to
    open, below the folder; empty: the folder itself. still_needed: what preparing would improve, according to the last
    run; empty: nothing; None: never prepared.
    """

    id: str
    name: str
    folder: str
    files: tuple[InstalledFile, ...]
    owned: bool = True
    origin: Origin = "download"
    path: str = ""
    repo: str = ""
    revision: str = ""
    catalogue_id: str = ""
    activation: str = ""
    template: str = ""
    licence: str = ""
    kind: ModelKind | Literal[""] = ""
    added: str = ""
    prepared: str = ""
    measured_tok_s: float | None = None
    still_needed: str | None = None

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    def check(self) -> None:
        """Raise ModelFormatError with the field's name for invalid values."""
        if not is_id(self.id):
            raise ModelFormatError(f"{self.id[:80]!r} is not an id of a model.")
        _check_path(self.id, "folder", self.folder)
        _check_path(self.id, "prepared", self.prepared)
        if not self.folder:
            raise ModelFormatError(f"{self.id} has no folder.")
        if len(self.files) > _MAX_FILES:
            raise ModelFormatError(f"{self.id} lists {len(self.files)} files.")
        names = [file.name for file in self.files]
        for file in self.files:
            if not is_file_name(file.name):
                raise ModelFormatError(
                    f"{self.id} lists {file.name[:80]!r}, which is not a name of a file in its folder."
                )
            if not 0 <= file.n_bytes < _MAX_BYTES or not _SHA256.fullmatch(file.sha256):
                raise ModelFormatError(f"The size or the SHA-256 of {file.name[:80]} of {self.id} is invalid.")
        if len({name.casefold() for name in names}) < len(names):
            raise ModelFormatError(f"{self.id} lists a file twice.")
        if self.path and self.path not in names:
            raise ModelFormatError(f"{self.id} is opened by {self.path[:80]!r}, which is not one of its files.")
        _check_rate(self.id, self.measured_tok_s)


def to_plain(model: StoredModel, root: Path) -> dict[str, Any]:
    """Return the model as stored, with paths below `root` relative to it."""
    return {**asdict(model), "folder": _shortened(model.folder, root), "prepared": _shortened(model.prepared, root)}


def from_plain_model(values: object, root: Path, where: str) -> StoredModel:
    """Return the model of stored values. Raises: ModelFormatError for invalid ones."""
    model: StoredModel = from_plain(StoredModel, values, where)
    model = replace(model, folder=_lengthened(model.folder, root), prepared=_lengthened(model.prepared, root))
    model.check()
    return model


def is_file_name(name: str) -> bool:
    """Return whether it names a file below a folder: no way out, no drive. Files in place may have any other name."""
    parts = name.split("/")
    if len(name) > 4096 or "\0" in name or any(part in ("", ".", "..") for part in parts):
        return False
    return sys.platform != "win32" or not re.search(r"[\\:]", name)


def is_part(part: str) -> bool:
    """Return whether every system allows this name for a file or a folder."""
    if not part or part in (".", "..") or part != part.rstrip(". ") or _NO_NAME.search(part) or _DEVICE.fullmatch(part):
        return False
    return len(os.fsencode(part)) <= _MAX_NAME_BYTES if _encodable(part) else False


def is_id(id: str) -> bool:
    """Return whether it is "owner/name" with valid folder names. Names with a leading dot are reserved."""
    parts = id.split("/")
    return len(parts) == 2 and len(id) <= 400 and all(is_part(part) and not part.startswith(".") for part in parts)


def checked_id(id: str) -> str:
    """Return the id. Raises: LibraryError if it is invalid."""
    if not isinstance(id, str) or not is_id(id):
        raise LibraryError(f"{str(id)[:80]!r} is not an id of a model.", "Ids are written as owner/name.")
    return id


def as_part(text: str, fallback: str) -> str:
    """Return a recognisable folder name for the text: its letters and digits in lower case, joined by "-"."""
    words = "".join(letter if letter.isalnum() or letter in "._" else " " for letter in text.lower()).split()
    part = "-".join(words).strip("._-")
    while len(part.encode("utf-8", "replace")) > 96:
        part = part[:-1].rstrip("._-")
    return part if is_part(part) and not part.startswith(".") else fallback


def as_line(text: str) -> str:
    """Return a name as one line that is safe to show, without control characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:1000])
    return " ".join(shown.split())[:200]


def file_below(folder: Path, name: str) -> Path:
    return folder.joinpath(*PurePosixPath(name).parts)


def with_remarks(model: StoredModel, remarks: Remarks | None) -> StoredModel:
    return model if remarks is None else replace(model, **asdict(remarks))


def _check_path(id: str, word: str, path: str) -> None:
    if "\0" in path or len(path) > 32767 or (path and not os.path.isabs(path)):
        raise ModelFormatError(f"The {word} of {id} is {path[:80]!r}, which is not an absolute path.")


def _check_rate(id: str, tok_s: float | None) -> None:
    if tok_s is not None and not 0 <= tok_s < 1e9:
        raise ModelFormatError(f"The rate of {id} is {tok_s!r}.")


def _encodable(part: str) -> bool:
    try:
        os.fsencode(part)
    except UnicodeEncodeError:
        return False
    return True


def _shortened(path: str, root: Path) -> str:
    if not path:
        return ""
    try:
        return Path(path).relative_to(root).as_posix()
    except ValueError:
        return path


def _lengthened(path: str, root: Path) -> str:
    if not path or os.path.isabs(path):
        return path
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise ModelFormatError(f"{path[:80]!r} leads out of the models folder.")
    return str(root / path)
