"""A bundle, Hearth's model folder (docs/bundle.md): write its manifest, open it, check its hashes.

engine/conversion/convert.py converts; engine/model/families lists a family's tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
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
from engine.job import CancelCheck, CountProgress, Job, Progress, never
from engine.sparsity.artifact_files import part_of, put_in_place

METADATA = "metadata.json"
ARTEFACT_KINDS = ("predictors", "statistics", "placement")

_MAX_MANIFEST_BYTES = 8 << 20
_MAX_METADATA_BYTES = 128 << 20
# Limits on commas and opening brackets in JSON: a value takes far more memory than its text.
_MAX_MANIFEST_VALUES = 1 << 19
_MAX_METADATA_VALUES = 1 << 22  # vocabularies, scores and merges
_HASH_CHUNK_BYTES = 4 << 20


class BundleSource:
    """The tensors of an open bundle: a TensorSource with views of the mapped rows.

    Quantised tensors have a codec with the suffix ".lanes": their bytes are not GGML blocks.
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
        """Return a view of the tensor's rows: u8 [n_rows, row_bytes], row_stride apart, read-only."""
        entry = self.manifest.tensors[name]
        return self._region(entry.file, entry.offset, entry.n_rows, entry.row_stride, entry.row_bytes)

    def neurons(self, layer: int) -> U8:
        """Return a view of a layer's FFN rows, gate | up | down_t: u8 [F, row_stride], read-only."""
        up = self.manifest.tensors[f"{layer}.up"]
        start, stride = neuron_row(self.manifest, str(layer))
        return self._region(up.file, start, up.n_rows, stride, stride)

    def view(self, name: str) -> U8:
        """Return the tensor's bytes without padding: u8 [n_rows x row_bytes]. A copy if rows are padded."""
        return self.rows(name).reshape(-1)

    def read_f32(self, name: str) -> F32:
        """Return the tensor decoded in its shape; a new array."""
        entry = self.manifest.tensors[name]
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, reported on load
            return decode_rows(entry.codec, self.rows(name), entry.shape[-1]).reshape(entry.shape)

    def _region(self, file: str, start: int, n_rows: int, stride: int, n_bytes: int) -> U8:
        data = self._files.get(file)
        if data is None:
            data = self._files[file] = map_file(self.path / file)
        # The slice may cut off the last row's padding, so strides are explicit.
        window = data[start : start + (n_rows - 1) * stride + n_bytes]
        return np.lib.stride_tricks.as_strided(window, (n_rows, n_bytes), (stride, 1), writeable=False)


@dataclass(frozen=True, eq=False)
class Bundle:
    """An open bundle, checked according to docs/bundle.md, section 7. No weights are read."""

    path: Path
    manifest: Manifest
    source: BundleSource


def is_bundle(path: Path) -> bool:
    """Return whether the folder has a manifest."""
    return (path / MANIFEST).is_file()


def open_bundle(path: Path) -> Bundle:
    """Open a bundle and check its manifest against its files, without reading weights.

    Finishes replacing listed artefacts after a crash.
    Raises: ModelNotFoundError if there is none, ModelFormatError for a missing file, a wrong size, damage or
    inconsistency, UnsupportedModelError for a bundle of another version.
    """
    manifest = Manifest.from_json(
        read_object(path / MANIFEST, max_bytes=_MAX_MANIFEST_BYTES, max_values=_MAX_MANIFEST_VALUES, finite=True)
    )
    for name, entry in manifest.files.items():
        if not name.startswith(f"{ARTEFACT_FOLDER}/"):  # the model runs without them: check_artefact
            _check_size(path, name, entry)
    for kind in manifest.artefacts:
        _finish_replacing(path, manifest, kind)
    if METADATA not in manifest.files:
        raise ModelFormatError(f"The bundle {path.name} lists no {METADATA}.")
    metadata = read_object(path / METADATA, max_bytes=_MAX_METADATA_BYTES, max_values=_MAX_METADATA_VALUES, finite=True)
    return Bundle(path, manifest, BundleSource(path, manifest, metadata))


def create_bundle(path: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder with complete files atomically, which makes it a bundle.

    Raises: ModelFormatError if a listed model file is missing or has another size.
    """
    for name, entry in manifest.files.items():
        if not name.startswith(f"{ARTEFACT_FOLDER}/"):  # damage in another artefact does not prevent a new one
            _check_size(path, name, entry)
    values = manifest.to_json()
    Manifest.from_json(json.loads(json.dumps(values)))
    write_json(path / MANIFEST, values)


def verify(
    bundle: Bundle,
    job: Job = Job(),
) -> None:
    """Read every file of the bundle and compare its SHA-256. Progress in bytes.

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
    """List an artefact's files in the manifest, replacing an older one; return the new manifest.

    names: file names in the artefact folder, head first. as_parts: the files still have the names of `part_of`; once
    listed they are put in place, by the next `open_bundle` if necessary.
    Raises: ArtifactMismatchError if it was made for another model, OSError (the older manifest stays).
    """
    if kind not in ARTEFACT_KINDS:
        raise ValueError(f"unknown kind of artefact {kind!r}; supported: {', '.join(ARTEFACT_KINDS)}")
    fresh = artefact_files(path / ARTEFACT_FOLDER, names, as_parts)
    manifest = open_bundle(path).manifest  # read late: another process may have listed something meanwhile
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
    """Return manifest entries of files in an artefact folder. as_parts: as in `add_artefact`. Cost: reads them."""
    found = {name: part_of(folder / name) if as_parts else folder / name for name in names}
    return {
        f"{ARTEFACT_FOLDER}/{name}": FileEntry(file.stat().st_size, hash_file(file)) for name, file in found.items()
    }


def _finish_replacing(path: Path, manifest: Manifest, kind: str) -> None:
    """Put an artefact's listed new files in place if a crash prevented it.

    The head decides, because it is replaced last and contains the hash of the numbers.
    """
    files = manifest.artefacts[kind].files
    head, listed = path / files[0], manifest.files[files[0]]
    with suppress(OSError):  # on a read-only folder the artefact is refused when used
        if _is_listed(part_of(head), listed) and not _is_listed(head, listed):
            put_in_place(*(path / name for name in reversed(files)))


def _is_listed(file: Path, entry: FileEntry) -> bool:
    if file.is_symlink() or not file.is_file() or file.stat().st_size != entry.bytes:
        return False
    return hash_file(file) == entry.sha256


def check_artefact(path: Path, manifest: Manifest, kind: str) -> None:
    """Check that an artefact's files are those in the manifest; only the size, except for the head.

    Finishes replacing files, as `open_bundle` does.
    Raises: ArtifactMismatchError if they differ or were made for another model.
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


# --- files


def shifted(progress: Progress, before: int, total: int) -> CountProgress:
    """Return a callback that reports one step's progress as part of a whole."""
    return lambda done: progress(before + done, total)


def hash_file(
    path: Path,
    progress: CountProgress = lambda done: None,
    cancelled: CancelCheck = never,
) -> str:
    """Return a file's SHA-256, read in chunks."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            if cancelled():
                raise Cancelled
            digest.update(chunk)
            done += len(chunk)
            progress(done)
    return digest.hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file atomically with these values."""
    _write_durably(path, json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1).encode())


def copy_durably(source: Path, target: Path) -> None:
    """Copy a small file, whole or not at all."""
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
