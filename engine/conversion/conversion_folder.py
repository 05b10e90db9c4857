"""The folder in which a bundle is made: finished files, their receipts, and its lock.

docs/bundle.md, section 8 has the rules. Converts nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from engine.bundle.artefacts import file_names
from engine.bundle.bundle import hash_file, is_bundle, write_json
from engine.bundle.bundle_manifest import ARTEFACT_FOLDER, ArtefactEntry, FileEntry, TensorEntry
from engine.conversion.bundle_layout import Layout, Part
from engine.conversion.carried_artefacts import Carried
from engine.errors import DiskSpaceError, EngineError, InvalidRequestError
from engine.job import CancelCheck, CountProgress
from engine.model.model_files import OpenedModel
from engine.plain_config import from_plain

log = logging.getLogger(__name__)

_JOB_FORMAT = "hearth-conversion"


@dataclass(frozen=True)
class Receipt:
    """A finished weight file."""

    bytes: int
    sha256: str
    tensors: dict[str, TensorEntry]


@dataclass(frozen=True)
class ArtefactReceipt:
    """A finished artefact. origin: identifies its source."""

    origin: str
    files: dict[str, FileEntry]
    entry: ArtefactEntry


@dataclass(frozen=True, eq=False)
class ConversionFolder:
    """DST.partial: the files so far, and the receipts that tell a later run what is finished."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "bundle"

    @property
    def _progress(self) -> Path:
        return self.root / "progress"

    @classmethod
    @contextlib.contextmanager
    def open(cls, destination: Path, opened: OpenedModel, codec: str, layout: Layout) -> Iterator[ConversionFolder]:
        """Create or resume the workshop of this conversion, locked against other processes."""
        workshop = cls(destination.with_name(destination.name + ".partial"))
        if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
            workshop._sweep()
            what = "holds a bundle already" if is_bundle(destination) else "exists already"
            raise InvalidRequestError(f"{destination} {what}.", "Choose another destination, or remove it first.")
        job = {"format": _JOB_FORMAT, "source": opened.fingerprint, "codec": codec, "layout": layout.digest}
        with disk_errors(destination.parent):
            workshop._claim(job)
            with (workshop._progress / "lock").open("wb") as lock:
                _lock(lock, workshop.root)
                yield workshop
            workshop._sweep()  # Windows deletes no open file, and the lock is one

    def _sweep(self) -> None:
        """Remove the receipts of a complete bundle."""
        note = _read_json(self._progress / "conversion.json")
        if isinstance(note, dict) and note.get("format") == _JOB_FORMAT and not self.folder.exists():
            shutil.rmtree(self.root, ignore_errors=True)

    def _claim(self, job: dict[str, str]) -> None:
        """Create the folder, or check that it belongs to this conversion. Touches no other files."""
        note = self._progress / "conversion.json"
        found = _read_json(note)
        if found == job:
            self.folder.mkdir(exist_ok=True)
            return
        hint = "Remove it to start over, or choose another destination."
        if isinstance(found, dict) and found.get("format") == job["format"]:
            raise InvalidRequestError(f"{self.root} holds an unfinished conversion of another model or codec.", hint)
        leftover = {path.relative_to(self.root).as_posix() for path in self.root.rglob("*")}
        if self.root.exists() and not leftover <= {"progress", "progress/conversion.json.writing", "progress/lock"}:
            raise InvalidRequestError(f"{self.root} exists and is not an unfinished conversion.", hint)
        self._progress.mkdir(parents=True, exist_ok=True)
        write_json(note, job)  # before the first file: everything beside it is ours from here on
        self.folder.mkdir(exist_ok=True)

    def claimed(self, layout: Layout, carried: Sequence[Carried]) -> dict[str, Receipt | ArtefactReceipt]:
        """Return receipts of finished files that may be unchanged, by weight file or kind of artefact.

        `is_sound` must read them to be certain. Everything else in the folder is deleted.
        """
        claims: dict[str, Receipt | ArtefactReceipt] = {}
        kept: set[str] = set()
        for part in layout.parts:
            receipt = self._receipt(part)
            if receipt and _has_size(self.folder / part.file, receipt.bytes) and receipt.bytes == part.n_bytes:
                claims[part.file] = receipt
                kept.add(part.file)
        for artefact in carried:
            noted = self._artefact_receipt(artefact)
            if noted and all(_has_size(self.folder / name, entry.bytes) for name, entry in noted.files.items()):
                claims[artefact.kind] = noted
                kept.update(noted.files)
        for file in sorted(self.folder.rglob("*")):
            if not file.is_dir() and file.relative_to(self.folder).as_posix() not in kept:
                file.unlink()
        return claims

    def is_sound(
        self,
        claim: Receipt | ArtefactReceipt,
        file: str,
        progress: CountProgress,
        cancelled: CancelCheck,
    ) -> bool:
        """Return whether the files of a receipt are unchanged. Units: progress in bytes read."""
        hashes = {file: claim.sha256} if isinstance(claim, Receipt) else {
            name: entry.sha256 for name, entry in claim.files.items()
        }  # fmt: skip
        done = 0
        for name, sha256 in hashes.items():
            path = self.folder / name
            if hash_file(path, lambda read, before=done: progress(before + read), cancelled) != sha256:  # type: ignore[misc]
                log.info("%s was changed since it was written: it is written again", name)
                return False
            done += path.stat().st_size
        return True

    def _receipt(self, part: Part) -> Receipt | None:
        try:
            found: Receipt = from_plain(Receipt, _read_json(self._progress / f"{part.file}.json"), part.file)
        except EngineError:
            return None
        planned = {tensor.name: entry for region in part.regions for tensor, entry in region.tensors}
        without_errors = {name: replace(entry, relative_error=0.0) for name, entry in found.tensors.items()}
        return found if without_errors == planned else None

    def _artefact_receipt(self, carried: Carried) -> ArtefactReceipt | None:
        try:
            note = _read_json(self._progress / f"artefact-{carried.kind}.json")
            found: ArtefactReceipt = from_plain(ArtefactReceipt, note, carried.kind)
        except EngineError:
            return None
        made_same = (found.origin, found.entry.schema_version) == (carried.origin, carried.schema_version)
        names = tuple(f"{ARTEFACT_FOLDER}/{name}" for name in file_names(carried.kind))
        return found if made_same and names == found.entry.files == tuple(found.files) else None

    def keep_receipt(self, name: str, receipt: Receipt | ArtefactReceipt) -> None:
        """Store a receipt. name: the weight file, or the artefact's kind."""
        prefix = "artefact-" if isinstance(receipt, ArtefactReceipt) else ""
        write_json(self._progress / f"{prefix}{name}.json", asdict(receipt))

    def deliver(self, destination: Path) -> None:
        """Rename the finished folder to the bundle."""
        if destination.exists():
            destination.rmdir()  # fails unless empty
        flush_folder(self.folder)
        self.folder.rename(destination)
        flush_folder(destination.parent)


def _has_size(file: Path, n_bytes: int) -> bool:
    return file.is_file() and not file.is_symlink() and file.stat().st_size == n_bytes


def _read_json(path: Path) -> Any:
    """Return the content of one of our files; None if missing or damaged, so that its work is repeated."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _lock(file: IO[bytes], folder: Path) -> None:
    """Lock the folder for this process while the file is open."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InvalidRequestError(f"Another conversion is running in {folder}.", "Wait until it has ended.") from error


def flush_folder(folder: Path) -> None:
    """Make renames in the folder survive a power cut, if the system can."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def conversion_of(root: Path) -> tuple[str, str] | None:
    """Return (source's fingerprint, codec) of the unfinished conversion in that folder; None if there is none."""
    note = _read_json(root / "progress" / "conversion.json")
    if not isinstance(note, dict) or note.get("format") != _JOB_FORMAT:
        return None
    return str(note.get("source")), str(note.get("codec"))


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert disk errors to exceptions for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise DiskSpaceError(
                f"The disk accepted no more data while the bundle was written in {folder}: {error.strerror}.",
                "Free some space there and run the same command again: what is finished is kept.",
            ) from error
        raise InvalidRequestError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}.", "Choose another destination."
        ) from error
