"""Determine the files of a model on this PC, and copy files with verification. installed.py uses both."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.bundle import artefacts
from engine.bundle.bundle import BundleSource
from engine.bundle.bundle_manifest import ARTEFACT_FOLDER, MANIFEST
from engine.errors import Cancelled, DiskSpaceError, LibraryError
from engine.files import spelled
from engine.job import CancelCheck, CountProgress
from engine.library.owned.library_file import flush_folder
from engine.library.owned.stored_models import file_below
from engine.library.records import InstalledFile
from engine.loading import embedding_models
from engine.loading.opening import read_tokenizer
from engine.model.model_files import OpenedModel, open_model
from engine.sparsity.artifact_files import DISK_FULL
from engine.sparsity.powerinfer_predictors import predictor_files
from engine.sparsity.stats import activation_files

_CHUNK_BYTES = 8 << 20
_FLUSHED_CHUNKS = 32  # as many are on their way to the disk at most: a stop takes effect soon, and memory stays free
# Besides configuration and weights: files that tokenizers need, and licences that must be passed on.
_BESIDE = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt",
    "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "LICENSE", "LICENSE.md", "LICENSE.txt",
    "LICENSE.pdf", "NOTICE", "NOTICE.md", "USE_POLICY.md", "README.md", *embedding_models.FILES,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Survey:
    """A model that Hearth can read. path: the file to open, below the folder; empty: the folder itself.

    hashes: SHA-256 by name, if a bundle states it.
    """

    opened: OpenedModel
    folder: Path
    path: str
    sizes: dict[str, int]
    hashes: Mapping[str, str]

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def files(self) -> tuple[InstalledFile, ...]:
        return tuple(InstalledFile(name, size, self.hashes.get(name, "")) for name, size in self.sizes.items())


def survey(path: Path, activation: str = "") -> Survey:
    """Open the header and tokenizer of a model, and list its files.

    Raises: ModelNotFoundError, ModelFormatError, UnsupportedModelError if Hearth cannot read it; LibraryError if a file
    is inaccessible.
    """
    opened = open_model(spelled(path), activation or None)
    read_tokenizer(opened)
    folder, first, names = _listed(opened)
    hashes: dict[str, str] = {}
    if isinstance(opened.source, BundleSource):
        hashes = {name: entry.sha256 for name, entry in opened.source.manifest.files.items() if is_fixed(name)}
    try:
        sizes = {name: file_below(folder, name).stat().st_size for name in names}
    except OSError as error:
        raise LibraryError(f"{error.filename} cannot be read: {error.strerror or error}.") from error
    return Survey(opened, folder, first, sizes, hashes)


def is_fixed(name: str) -> bool:
    """Return whether a bundle's file never changes. Preparing adds artefacts and lists them in the manifest."""
    return name != MANIFEST and not name.startswith(f"{ARTEFACT_FOLDER}/")


def _listed(opened: OpenedModel) -> tuple[Path, str, list[str]]:
    """Return the model's folder, what to open in it, and the names of its files."""
    files, source = opened.files, opened.source
    if isinstance(source, BundleSource):
        return source.path, "", [MANIFEST, *source.manifest.files]
    if files.kind == "safetensors":
        folder, first = files.path, ""
        paths = [path for path in (files.config, files.index) if path is not None]
        paths += [folder / name for name in _BESIDE if (folder / name).is_file()]
    else:
        folder, first = files.weights[0].parent, files.weights[0].name
        paths = []
    paths += [*files.weights, *_companions(opened)]
    names = list(dict.fromkeys(path.relative_to(folder).as_posix() for path in paths))
    return folder, first, names


def _companions(opened: OpenedModel) -> Iterator[Path]:
    """Yield predictors, statistics and artefacts next to the weights."""
    files = opened.files
    if files.predictors is not None:
        yield from predictor_files(files.predictors).values()
        if (config := files.predictors / "config.json").is_file():
            yield config
    if files.stats is not None:
        yield from activation_files(files.stats).values()
    for kind in artefacts.NAMES:
        beside = artefacts.folder_beside(opened)
        if artefacts.find(opened, kind) == beside:
            yield from (beside / name for name in artefacts.file_names(kind) if (beside / name).is_file())


# --- copies


def copy_checked(
    source: Path,
    target: Path,
    copied: CountProgress,
    checked: CountProgress,
    cancelled: CancelCheck,
) -> str:
    """Copy a file so that the target is complete or absent, read it back and compare; return its SHA-256.

    copied, checked: called with bytes of this file. Raises: LibraryError if the copy differs or a file cannot be read
    or written, DiskSpaceError, Cancelled.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as reading, part.open("wb") as writing:
            wanted = _pump(reading.read, _Flushing(writing).write, copied, cancelled)
            _flush(writing)
        with part.open("rb") as reading:
            found = _pump(reading.read, lambda chunk: None, checked, cancelled)
        if found != wanted:
            raise LibraryError(f"{target} differs from {source}.", "Check the disk, and try again.")
        os.replace(part, target)
        flush_folder(target.parent)
    except BaseException as error:
        _drop(part)
        if isinstance(error, OSError):
            raise disk_refused(error, target) from error
        raise
    return wanted


def file_hash(path: Path, progress: CountProgress, cancelled: CancelCheck) -> str:
    """Return the SHA-256 of a file. Raises: OSError, Cancelled."""
    with path.open("rb") as reading:
        return _pump(reading.read, lambda chunk: None, progress, cancelled)


def disk_refused(error: OSError, path: Path) -> DiskSpaceError | LibraryError:
    if error.errno in DISK_FULL:
        return DiskSpaceError(f"The disk accepted no more data while {path} was written: {error.strerror}.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LibraryError(f"{error.filename or path} may not be changed: {error.strerror}.", "Choose another folder.")
    return LibraryError(f"{error.filename or path}: {error.strerror or error}.", "Check the disk, and try again.")


class _Flushing:
    """Write a file with periodic syncs to the disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._chunks = file, 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._chunks += 1
        if self._chunks % _FLUSHED_CHUNKS == 0:
            _flush(self._file)


def _flush(file: IO[bytes]) -> None:
    """Sync the file and drop it from the page cache, so that reading it back reads the disk."""
    file.flush()
    os.fsync(file.fileno())
    if sys.platform == "linux":
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _pump(
    read: Callable[[int], bytes],
    write: Callable[[bytes], object],
    progress: CountProgress,
    cancelled: CancelCheck,
) -> str:
    digest, done = hashlib.sha256(), 0
    while True:
        if cancelled():
            raise Cancelled
        chunk = read(_CHUNK_BYTES)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)
        write(chunk)
        done += len(chunk)
        progress(done)


def _drop(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is swept with its folder
        path.unlink(missing_ok=True)
