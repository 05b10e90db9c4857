"""A bundle: Hearth's own model directory (docs/bundle.md). Writes its manifest, opens it, checks its hashes.

Conversion is engine/conversion/convert.py; what tensors a family has is engine/model/families.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.bundle.bundle_manifest import (
    ARTEFACT_FOLDER,
    MANIFEST,
    ArtefactEntry,
    FileEntry,
    Manifest,
    TensorEntry,
    neuron_row,
)
from engine.errors import ArtifactMismatchError, Cancelled, ModelFormatError
from engine.formats import TensorInfo
from engine.formats.json_text import read_object
from engine.formats.mapped import map_file
from engine.formats.packed_rows import F32, U8, decode_rows
from engine.job import Job, Progress, never
from engine.sparsity.artifact_files import part_of, put_in_place

METADATA = "metadata.json"
ARTEFACT_KINDS = ("predictors", "statistics", "placement")

_MAX_MANIFEST_BYTES = 8 << 20
_MAX_METADATA_BYTES = 128 << 20
# What JSON may hold at most, counted as commas and as opening brackets: each value costs far more memory than its text.
_MAX_MANIFEST_VALUES = 1 << 19
_MAX_METADATA_VALUES = 1 << 22  # vocabularies, scores and merges
_HASH_PIECE_BYTES = 4 << 20


class BundleSource:
    """The tensors of an open bundle: a TensorSource, and views of rows where they lie in the mapped files.

    Quantised tensors name their codec with the suffix ".lanes": their bytes are no GGML blocks.
    """

    def __init__(self, path: Path, manifest: Manifest, metadata: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self._metadata = metadata
        self._files: dict[str, U8] = {}
        self._tensors = {
            name: TensorInfo(name, entry.shape, _stored_codec(entry), entry.offset, entry.n_rows * entry.row_bytes)
            for name, entry in manifest.tensors.items()
        }

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def rows(self, name: str) -> U8:
        """The tensor's rows where they lie: u8 [n_rows, row_bytes], row_stride apart, read-only, not copied."""
        entry = self.manifest.tensors[name]
        return self._region(entry.file, entry.offset, entry.n_rows, entry.row_stride, entry.row_bytes)

    def neurons(self, layer: int) -> U8:
        """A layer's FFN rows, gate | up | down_t: u8 [F, row_stride], read-only, not copied."""
        up = self.manifest.tensors[f"{layer}.up"]
        start, stride = neuron_row(self.manifest, str(layer))
        return self._region(up.file, start, up.n_rows, stride, stride)

    def view(self, name: str) -> U8:
        """The tensor's bytes without padding: u8 [n_rows x row_bytes]. A copy where its rows are apart."""
        return self.rows(name).reshape(-1)

    def read_f32(self, name: str) -> F32:
        """The tensor decoded, in its shape; a new array."""
        entry = self.manifest.tensors[name]
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, which loading refuses by name
            return decode_rows(entry.codec, self.rows(name), entry.shape[-1]).reshape(entry.shape)

    def _region(self, file: str, start: int, n_rows: int, stride: int, n_bytes: int) -> U8:
        data = self._files.get(file)
        if data is None:
            data = self._files[file] = map_file(self.path / file)
        # The last row's padding may be cut off by the end of the slice, so the strides are given by hand.
        window = data[start : start + (n_rows - 1) * stride + n_bytes]
        return np.lib.stride_tricks.as_strided(window, (n_rows, n_bytes), (stride, 1), writeable=False)


@dataclass(frozen=True, eq=False)
class Bundle:
    """An open bundle: checked as docs/bundle.md, section 7 says; no weight has been read."""

    path: Path
    manifest: Manifest
    source: BundleSource


def is_bundle(path: Path) -> bool:
    """Whether the directory looks like a bundle: it has a manifest."""
    return (path / MANIFEST).is_file()


def open_bundle(path: Path) -> Bundle:
    """Opens a bundle and checks its manifest against its files, without reading weights.

    Where a death left listed artefacts beside their place, they are put there.
    Raises: ModelNotFoundError where there is none, ModelFormatError for a missing file, a wrong size, damage and
    lies, UnsupportedModelError for a bundle of another version.
    """
    manifest = Manifest.from_json(
        read_object(path / MANIFEST, max_bytes=_MAX_MANIFEST_BYTES, max_values=_MAX_MANIFEST_VALUES, finite=True)
    )
    for name, entry in manifest.files.items():
        if not name.startswith(f"{ARTEFACT_FOLDER}/"):  # without those the model still runs: check_artefact
            _check_size(path, name, entry)
    for kind in manifest.artefacts:
        _finish_replacing(path, manifest, kind)
    if METADATA not in manifest.files:
        raise ModelFormatError(f"The bundle {path.name} lists no {METADATA}.")
    metadata = read_object(path / METADATA, max_bytes=_MAX_METADATA_BYTES, max_values=_MAX_METADATA_VALUES, finite=True)
    return Bundle(path, manifest, BundleSource(path, manifest, metadata))


def create_bundle(path: Path, manifest: Manifest) -> None:
    """Writes the manifest of a directory whose files are there, atomically: with it the directory is a bundle.

    Raises: ModelFormatError where a listed file of the model is missing or has another size.
    """
    for name, entry in manifest.files.items():
        if not name.startswith(f"{ARTEFACT_FOLDER}/"):  # another artefact's damage is no obstacle to a new one
            _check_size(path, name, entry)
    values = manifest.to_json()
    Manifest.from_json(json.loads(json.dumps(values)))
    write_json(path / MANIFEST, values)


def verify(
    bundle: Bundle,
    job: Job = Job(),
) -> None:
    """Reads every file of the bundle and compares its SHA-256; `progress` gets bytes done and in all.

    Raises: ModelFormatError naming the first file that differs, Cancelled.
    """
    files = bundle.manifest.files
    total, done = sum(entry.bytes for entry in files.values()), 0
    for name, entry in files.items():
        _check_size(bundle.path, name, entry)
        found = hash_file(bundle.path / name, shifted(job.progress, done, total), job.cancelled)
        if found != entry.sha256:
            raise ModelFormatError(
                f"{name} of the bundle {bundle.path.name} was changed: its SHA-256 begins with {found[:16]}, "
                f"not with {entry.sha256[:16]}.",
                "Convert the model again.",
            )
        done += entry.bytes


def add_artefact(
    path: Path, kind: str, names: Sequence[str], schema_version: int, fingerprint: str, as_parts: bool = False
) -> Manifest:
    """Lists an artefact whose files lie in the bundle's artefact folder, in place of an older one; the new manifest.

    names: of the files there, the head first. as_parts: they lie there as `part_of` names them; once they are listed
    they are to be put in place, and whoever opens the bundle does it where that was left undone.
    Raises: ArtifactMismatchError where it was made for another model, OSError where the older manifest stays.
    """
    if kind not in ARTEFACT_KINDS:
        raise ValueError(f"unknown kind of artefact {kind!r}; known are {', '.join(ARTEFACT_KINDS)}")
    fresh = artefact_files(path / ARTEFACT_FOLDER, names, as_parts)
    manifest = open_bundle(path).manifest  # only now: another process may have listed something meanwhile
    if fingerprint not in (manifest.fingerprint, manifest.source.fingerprint):
        raise ArtifactMismatchError(f"The {kind} were made for another model than {manifest.name}.")
    manifest = _without(manifest, kind)
    entry = ArtefactEntry(tuple(fresh), schema_version, fingerprint)
    changed = replace(manifest, files=manifest.files | fresh, artefacts={**manifest.artefacts, kind: entry})
    create_bundle(path, changed)
    return changed


def _without(manifest: Manifest, kind: str) -> Manifest:
    before = manifest.artefacts[kind].files if kind in manifest.artefacts else ()
    files = {name: entry for name, entry in manifest.files.items() if name not in before}
    return replace(manifest, files=files, artefacts={k: v for k, v in manifest.artefacts.items() if k != kind})


def artefact_files(folder: Path, names: Sequence[str], as_parts: bool = False) -> dict[str, FileEntry]:
    """Manifest entries of files in an artefact folder, as_parts as in `add_artefact`. Cost: reads them."""
    found = {name: part_of(folder / name) if as_parts else folder / name for name in names}
    return {
        f"{ARTEFACT_FOLDER}/{name}": FileEntry(file.stat().st_size, hash_file(file)) for name, file in found.items()
    }


def _finish_replacing(path: Path, manifest: Manifest, kind: str) -> None:
    """Puts an artefact's new files in their place where a death left them beside it after they were listed.

    The head tells, which goes last: it names the numbers by their hash.
    """
    files = manifest.artefacts[kind].files
    head, listed = path / files[0], manifest.files[files[0]]
    with suppress(OSError):  # where nothing may be changed, the artefact is refused when it is used
        if _is_listed(part_of(head), listed) and not _is_listed(head, listed):
            put_in_place(*(path / name for name in reversed(files)))


def _is_listed(file: Path, entry: FileEntry) -> bool:
    if file.is_symlink() or not file.is_file() or file.stat().st_size != entry.bytes:
        return False
    return hash_file(file) == entry.sha256


def check_artefact(path: Path, manifest: Manifest, kind: str) -> None:
    """Whether an artefact's files are those that the manifest lists; of all but the head only the size is looked at.

    What `open_bundle` puts in place is put there.
    Raises: ArtifactMismatchError where they are not, or where it was made for another model.
    """
    entry = manifest.artefacts[kind]
    if entry.fingerprint not in (manifest.fingerprint, manifest.source.fingerprint):
        raise ArtifactMismatchError(f"The {kind} in the bundle {path.name} were made for another model.")
    _finish_replacing(path, manifest, kind)
    for name in entry.files:
        try:
            _check_size(path, name, manifest.files[name])
        except ModelFormatError as error:
            raise ArtifactMismatchError(error.message) from error
    head = entry.files[0]
    if hash_file(path / head) != manifest.files[head].sha256:
        raise ArtifactMismatchError(f"{head} of the bundle {path.name} is not the file that its manifest lists.")


# ------------------------------------------------------------------ files


def shifted(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    """Progress of one piece of work as part of a whole."""
    return lambda done: progress(before + done, total)


def hash_file(
    path: Path,
    progress: Callable[[int], None] = lambda done: None,
    cancelled: Callable[[], bool] = never,
) -> str:
    """The SHA-256 of a file, read in pieces."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_HASH_PIECE_BYTES):
            if cancelled():
                raise Cancelled
            digest.update(piece)
            done += len(piece)
            progress(done)
    return digest.hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replaces the file by these values: it holds the old ones or the new ones, never a part."""
    _write_durably(path, json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1).encode())


def copy_durably(source: Path, target: Path) -> None:
    """A copy of a small file, whole or absent."""
    _write_durably(target, source.read_bytes())


def _write_durably(path: Path, data: bytes) -> None:
    writing = path.with_name(path.name + ".writing")
    with writing.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    writing.replace(path)


def _stored_codec(entry: TensorEntry) -> str:
    return f"{entry.codec}.lanes" if entry.codec in ("q8_0", "q4_0") else entry.codec


def _check_size(path: Path, name: str, entry: FileEntry) -> None:
    file = path / name
    if file.is_symlink() or not file.is_file():
        raise ModelFormatError(f"The bundle {path.name} lacks its file {name}.", "Convert the model again.")
    if (found := file.stat().st_size) != entry.bytes:
        raise ModelFormatError(
            f"{name} of the bundle {path.name} has {found} bytes; {entry.bytes} are listed.", "Convert the model again."
        )
