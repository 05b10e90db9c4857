"""Download one model: list its files, check the disk space, download and verify every file, move them and register the
model.

Finished files stay finished, however often it is interrupted. Files are written to a staging folder and move to the
model's folder once all of them are verified. engine/library/hub/downloads.py has the queue and reports progress.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import filelock

from engine.errors import (
    EngineError,
    HubError,
    InvalidRequestError,
    LibraryError,
    ModelFormatError,
    RepositoryNotFoundError,
    UnsupportedModelError,
)
from engine.files import spelled
from engine.library.hub.download import (
    READ_BYTES,
    FetchCallbacks,
    RemoteFile,
    RetryPolicy,
    Stop,
    fetch,
    prove,
    retrying,
)
from engine.library.hub.download_request import DownloadRequest, ModelStore
from engine.library.hub.hub import Hub
from engine.library.hub.hub_names import check_file_names
from engine.library.hub.part_file import safe_length, sync_folder
from engine.library.hub.remote_shape import check_readable
from engine.library.hub.variants import PREDICTOR_FOLDER, is_pickled, matching, variants_of
from engine.library.owned import disk_space
from engine.library.owned.stored_models import StoredModel
from engine.library.records import HubFile, InstalledFile, InstalledModel, ModelKind, Variant

log = logging.getLogger(__name__)

NO_MODEL = (ModelFormatError, UnsupportedModelError)  # what its files are, however often they are fetched
_LOCK_POLL_S = 0.2
_LOOK_FIRST_BYTES = 256 << 20  # a smaller model is fetched as soon as its head is read


@dataclass(frozen=True)
class Resolved:
    """The files of a download, all at one commit, resolved once."""

    revision: str
    licence: str
    files: tuple[RemoteFile, ...]

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)


@dataclass(frozen=True)
class JobCallbacks:
    """Callbacks of a job: the file and its activity, the model's bytes that count, bytes received, why nothing arrives
    (None: it continues), a verified file; and the bytes that other downloads have yet to write to the same disk.
    """

    doing: Callable[[str, str], None]  # "downloading" or "checking", file
    done: Callable[[int], None]
    came: Callable[[int], None]
    waiting: Callable[[str, HubError | None], None]
    proven: Callable[[RemoteFile], None] = lambda file: None
    others: Callable[[], int] = lambda: 0


def resolve(hub: Hub, wanted: DownloadRequest) -> Resolved:
    """Return the model's files as they are now. Raises: HubError and its kinds, UnsupportedModelError."""
    head, commit, there = hub.files(wanted.repo, wanted.revision)
    files = [_remote(wanted.repo, commit, file, file.name) for file in _chosen(wanted, there)]
    if wanted.predictor_repo:
        _, theirs, others = hub.files(wanted.predictor_repo)
        found = matching(others, ("model_*.pt", "config.json"))
        if not any(file.name.endswith(".pt") for file in found):
            raise RepositoryNotFoundError(f"{wanted.predictor_repo} has no predictors.", "Choose another model.")
        files += [_remote(wanted.predictor_repo, theirs, f, f"{PREDICTOR_FOLDER}/{f.name}") for f in found]
    check_file_names(file.place for file in files)
    for file in files:
        if is_pickled(file.name):
            raise UnsupportedModelError(
                f"{file.name} is a pickle, which can run code when it is opened.", "Choose a GGUF or safetensors file."
            )
        if not file.sha256 and not file.git_oid:
            raise HubError(f"The hub states no hash of {file.name}, so it could not be checked.")
    return Resolved(commit, head.licence, tuple(files))


def staging_folder(models: Path, wanted: DownloadRequest) -> Path:
    """Return the folder for the model's files until they are verified; always the same one for a model."""
    name = hashlib.sha256(f"{wanted.repo} {wanted.model}".encode()).hexdigest()[:24]
    return spelled(models / disk_space.DOWNLOADS / name)


class DownloadJob:
    """The download of one model. run() can be repeated after any failure, also by another process."""

    def __init__(self, wanted: DownloadRequest, resolved: Resolved | None, hub: Hub, store: ModelStore, staging: Path,
                 retry_policy: RetryPolicy, stop: Stop, telling: JobCallbacks) -> None:  # fmt: skip
        self.wanted, self.resolved = wanted, resolved
        self._hub, self._store, self._staging = hub, store, staging
        self._patience, self._stop, self._telling = retry_policy, stop, telling
        self._counts: dict[str, int] = {}  # key -> bytes that count
        self._proven: dict[str, Path] = {}  # key -> path

    def run(self, on_resolved: Callable[[Resolved], None]) -> InstalledModel:
        """Download the model. on_resolved: called with the resolved files.

        Raises: EngineError, Cancelled; DiskSpaceError if the disk is too small.
        """
        try:
            self._staging.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self._staging, self._stop, self._telling):
                self._staging.mkdir(exist_ok=True)
                if self.resolved is None:
                    self.resolved = retrying(
                        lambda: resolve(self._hub, self.wanted), self._patience, self._stop,
                        FetchCallbacks(waiting=lambda error: self._telling.waiting("", error)),
                    )  # fmt: skip
                on_resolved(self.resolved)
                self._telling.doing("downloading", "")
                self._count_existing(self.resolved)
                self._check_readable(self.resolved)
                disk_space.check_free_space(self._staging, self.resolved.n_bytes - self._sum(), self._telling.others())
                if self._staging.parent.parent != spelled(self._store.folder):  # models have been moved since
                    disk_space.check_free_space(self._store.folder, self.resolved.n_bytes, self._telling.others())
                for file in self.resolved.files:
                    self._one(file)
                model = self._put(self.resolved)
        except OSError as error:
            if disk_space.is_full(error):
                raise disk_space.full_disk(self._staging) from error
            raise LibraryError(
                f"{error.filename or self._staging} cannot be written: {error.strerror or error}.",
                "Check the models folder, then resume the download.",
            ) from error
        shutil.rmtree(self._staging, ignore_errors=True)
        return model

    # --- steps

    def _part(self, file: RemoteFile) -> Path:
        return self._staging / f"{file.key}.part"

    def _whole(self, file: RemoteFile) -> Path:
        return self._staging / f"{file.key}.whole"

    def _goal(self, file: RemoteFile) -> Path:
        return spelled(self._store.folder_for(self.wanted.model).joinpath(*file.place.split("/")))

    def _count_existing(self, resolved: Resolved) -> None:
        """Count what exists: finished files, parts, and files in their place that are still correct."""
        wanted = {file.key for file in resolved.files}
        for left in self._staging.iterdir():  # of another commit of the same model
            if left.name.partition(".")[0] not in wanted and left.suffix in (".part", ".log", ".whole"):
                left.unlink()
        for file in resolved.files:
            for place in (self._whole(file), self._goal(file)):
                if not place.is_file() or place.stat().st_size != file.n_bytes:
                    continue
                trusted = place == self._goal(file) and file.place in self.wanted.trusted
                self._telling.doing("checking", file.name)
                if trusted or prove(file, place, self._stop):
                    self._keep(file, place)
                    break
                if place == self._whole(file):
                    place.unlink()
            else:
                self._count(file, safe_length(self._part(file)))

    def _check_readable(self, resolved: Resolved) -> None:
        """Read the header of a large model before downloading it. Raises: as check_readable, Cancelled."""
        if self._sum() or resolved.n_bytes < _LOOK_FIRST_BYTES:
            return
        mine = [file for file in resolved.files if file.repo == self.wanted.repo]
        telling = FetchCallbacks(waiting=lambda error: self._telling.waiting("", error))
        try:
            retrying(
                lambda: check_readable(self._hub, mine, lambda: self._stop.wished), self._patience, self._stop, telling
            )
        except NO_MODEL as error:
            self._stop.check()
            error.hint = "Nothing was downloaded. Choose another model."
            raise

    def _one(self, file: RemoteFile) -> None:
        if file.key in self._proven:
            return
        self._telling.doing("downloading", file.name)
        part = self._part(file)

        def waiting(error: HubError | None) -> None:
            self._telling.waiting(file.name, error)

        telling = FetchCallbacks(
            self._telling.came, lambda n: self._count(file, n), waiting,
            lambda: self._telling.doing("checking", file.name),
        )  # fmt: skip
        fetch(self._hub, file, part, self._patience, self._stop, telling)
        os.replace(part, self._whole(file))
        sync_folder(self._staging)  # before the log goes: a part without one counts as empty
        part.with_name(part.name + ".log").unlink(missing_ok=True)
        self._keep(file, self._whole(file))

    def _keep(self, file: RemoteFile, place: Path) -> None:
        self._proven[file.key] = place
        self._count(file, file.n_bytes)
        self._telling.proven(file)

    def _put(self, resolved: Resolved) -> InstalledModel:
        """Move the verified files to the model's folder and register the model. Moves them back if that fails."""
        self._stop.check()
        self._telling.doing("checking", "")
        installed = []
        for file in resolved.files:
            goal = self._goal(file)
            sha256 = file.sha256 or _sha256(self._proven[file.key])
            if self._proven[file.key] != goal:
                goal.parent.mkdir(parents=True, exist_ok=True)
                _move(self._proven[file.key], goal, sha256)
                sync_folder(goal.parent)
                self._proven[file.key] = goal
            installed.append(InstalledFile(file.place, file.n_bytes, sha256))
        wanted = self.wanted
        try:
            model = StoredModel(
                wanted.model, wanted.name, str(self._store.folder_for(wanted.model)), tuple(installed),
                path=next((f.place for f in resolved.files if f.place.lower().endswith(".gguf")), ""),
                repo=wanted.repo, revision=resolved.revision, catalogue_id=wanted.catalogue_id,
                activation=wanted.activation, template=wanted.template, licence=wanted.licence or resolved.licence,
                kind=next((kind for kind in get_args(ModelKind) if kind == wanted.kind), ""),
            )  # fmt: skip
            return self._store.register(model)
        except EngineError as error:
            _clear_frames(error)
            self._take_back(resolved)
            if isinstance(error, NO_MODEL):  # these very bytes will never be one
                for file in resolved.files:
                    self._whole(file).unlink(missing_ok=True)
                error.hint = (
                    "Its files were deleted. Try again once its maker has repaired them, or choose another model."
                )
            raise

    def _take_back(self, resolved: Resolved) -> None:
        """Move unregistered files back to where cancelling deletes them."""
        folder = self._store.folder_for(self.wanted.model)
        for file in resolved.files:
            goal = self._goal(file)
            if goal.is_file():
                _move(goal, self._whole(file), file.sha256 or _sha256(goal))
            for place in goal.parents:
                if place != folder and folder not in place.parents:
                    break
                with suppress(OSError):  # not empty
                    place.rmdir()

    def _count(self, file: RemoteFile, n_bytes: int) -> None:
        self._counts[file.key] = n_bytes
        self._telling.done(self._sum())

    def _sum(self) -> int:
        return sum(self._counts.values())


def _clear_frames(error: BaseException | None) -> None:
    """Release what the failed calls held: Windows moves no file that is mapped."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def fetched_bytes(staging: Path, resolved: Resolved) -> int:
    """Return the model's bytes in its folder, unverified."""
    found = 0
    for file in resolved.files:
        whole = staging / f"{file.key}.whole"
        found += file.n_bytes if whole.is_file() else safe_length(staging / f"{file.key}.part")
    return found


def delete_parts(staging: Path) -> None:
    """Delete the parts of a cancelled download, unless another Hearth process is downloading it."""
    if not staging.is_dir():
        return
    lock = filelock.FileLock(staging.with_name(staging.name + ".lock"))
    try:
        with lock.acquire(timeout=0):
            shutil.rmtree(staging, ignore_errors=True)
    except (filelock.Timeout, OSError):
        log.info("what was fetched stays: %s is in use", staging)


class _locked:  # noqa: N801 - reads as what it does
    """Lock a folder for one download, across threads and processes. Waits for the other one to end."""

    def __init__(self, staging: Path, stop: Stop, telling: JobCallbacks) -> None:
        self._lock = filelock.FileLock(staging.with_name(staging.name + ".lock"))
        self._stop, self._telling = stop, telling

    def __enter__(self) -> None:
        was_reported = False
        while True:
            try:
                self._lock.acquire(timeout=0)
                break
            except filelock.Timeout:
                if not was_reported:
                    was_reported = True
                    self._telling.waiting("", HubError("Another Hearth is downloading this model."))
                self._stop.sleep(_LOCK_POLL_S)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _chosen(wanted: DownloadRequest, there: tuple[HubFile, ...]) -> tuple[HubFile, ...]:
    if wanted.patterns:
        first = matching(there, wanted.patterns[:1])  # the others are optional
        if not first:
            raise RepositoryNotFoundError(
                f"{wanted.repo} has no file {wanted.patterns[0]} any more.", "Choose another model."
            )
        found = matching(there, wanted.patterns)
        # ignore pickles that match a pattern by chance; refuse those that the model consists of, with a reason
        return tuple(file for file in found if file in first or not is_pickled(file.name))
    offered = variants_of(there)
    if wanted.variant:
        return _usable(_named(wanted, offered)).files
    usable = [variant for variant in offered if not variant.refused]
    if len(usable) > 1:
        names = ", ".join(variant.name for variant in usable[:12])
        raise InvalidRequestError(f"{wanted.repo} offers several variants: {names}.", "Name the one that you want.")
    return _usable(usable[0] if usable else offered[0]).files


def _named(wanted: DownloadRequest, offered: tuple[Variant, ...]) -> Variant:
    for variant in offered:
        if wanted.variant == variant.name or wanted.variant in [file.name for file in variant.files]:
            return variant
    names = ", ".join(variant.name for variant in offered[:12])
    raise RepositoryNotFoundError(f"{wanted.repo} has no {wanted.variant}; there are {names}.", "Name one of them.")


def _usable(variant: Variant) -> Variant:
    if variant.refused:
        raise UnsupportedModelError(variant.refused, "Choose a repository with GGUF or safetensors files.")
    return variant


def _remote(repo: str, commit: str, file: HubFile, place: str) -> RemoteFile:
    return RemoteFile(repo, commit, file.name, place, file.n_bytes, file.sha256, file.git_oid)


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(READ_BYTES):
            found.update(block)
    return found.hexdigest()


def _move(source: Path, goal: Path, sha256: str) -> None:
    """Move the file. Across disks, it is copied and verified before the source is deleted."""
    try:
        os.replace(source, goal)
        return
    except OSError as error:
        if error.errno != errno.EXDEV and getattr(error, "winerror", None) != 17:
            raise
    copy = goal.with_name(goal.name + ".copy")
    shutil.copyfile(source, copy)
    with open(copy, "rb+") as file:
        os.fsync(file.fileno())
    if _sha256(copy) != sha256:
        copy.unlink()
        raise LibraryError(f"The copy of {goal.name} differs from the original.", "Check the disk, then resume.")
    os.replace(copy, goal)
    source.unlink()
