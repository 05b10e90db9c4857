"""An artefact on disk: one JSON file, the head, and the safetensors file that it describes.

The head has the schema version, the model's fingerprint and the hash of the tensors, so that mixed files are detected.
A new artefact is written completely beside the older one; a single rename then makes it valid. The remaining renames
are finished by a later reader if the process crashed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, Cancelled, DiskSpaceError, InvalidRequestError, ModelFormatError
from engine.formats.json_text import read_object
from engine.formats.mapped import MappedSource
from engine.formats.safetensors import open_safetensors
from engine.job import CancelCheck, CountProgress, never

Listing = Callable[[], None]

log = logging.getLogger(__name__)

_IN_USE = (5, 32, 1224)  # of Windows: access denied, sharing violation, user-mapped file
# Error codes for a full disk, an exceeded quota or a file that is too large.
DISK_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_MAX_JSON_BYTES = 4 << 20
_CHUNK_BYTES = 4 << 20
_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "uint8": "U8"}


def head_file(folder: Path, name: str) -> Path:
    """Return the JSON file of the artefact of that name."""
    return folder / f"{name}.json"


def tensors_file(folder: Path, name: str) -> Path:
    """Return the safetensors file of the artefact of that name."""
    return folder / f"{name}.safetensors"


def part_of(file: Path) -> Path:
    """Return the path of the new version of a file before it replaces the file."""
    return file.with_name(f"{file.name}.part")


def put_in_place(*files: Path) -> None:
    """Replace each file by its part, in order. Another process may have done so already."""
    for file in files:
        with suppress(FileNotFoundError):
            os.replace(part_of(file), file)


def save_artifact(
    folder: Path,
    name: str,
    version: int,
    values: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    progress: CountProgress = lambda done: None,
    cancelled: CancelCheck = never,
    listing: Listing | None = None,
) -> Path:
    """Write NAME.safetensors and NAME.json into the folder, replacing older ones; return the latter's path.

    Tensors may be mapped and larger than memory; they are written in chunks. After a crash or failure, either the
    complete old or the complete new artefact exists.
    Windows replaces no file that is mapped; then the next reader that can puts the new ones in place.
    listing: called when both files are complete beside the older ones (`part_of`); it makes them valid atomically, or
    raises and changes nothing. Readers of what it wrote call `put_in_place` after a crash. None: renaming the head
    makes them valid, and `read_head` finishes the rest.
    Units: progress in bytes. Cost: a few MiB of memory.
    Raises: InvalidRequestError if the folder cannot be written, DiskSpaceError if it is full, Cancelled.
    """
    weights, head = tensors_file(folder, name), head_file(folder, name)
    fresh_weights, fresh_head = part_of(weights), part_of(head)
    keeps_parts = True  # an earlier replacement may still need them
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _finish(folder, name)
        keeps_parts = False
        with fresh_weights.open("wb") as file:
            digest = _write_tensors(file, tensors, progress, cancelled)
            _flush(file)
        written = {"schema_version": version, "tensors_sha256": digest, **values}
        with fresh_head.open("wb") as file:
            file.write(json.dumps(written, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n")
            _flush(file)
        keeps_parts = True  # before the decision: an interruption in between must not delete the new files
        try:
            if listing is None:
                os.replace(fresh_head, _decided_head(folder, name))
            else:
                listing()
        except Exception:
            keeps_parts = False
            raise
        try:
            if listing is None:
                _finish(folder, name)
            else:
                put_in_place(weights, head)
        except OSError as error:
            if getattr(error, "winerror", None) not in _IN_USE and not isinstance(error, PermissionError):
                raise
            log.info("%s is in use and is replaced when it is read next", weights)
    except BaseException as error:
        for part in () if keeps_parts else (fresh_weights, fresh_head):
            with suppress(OSError):
                part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        if error.errno in DISK_FULL:
            raise DiskSpaceError(
                f"The disk accepted no more data while {head} was written: {error.strerror}."
            ) from error
        raise InvalidRequestError(
            f"{head} cannot be written: {error.strerror or error}.", "Choose another folder."
        ) from error
    return head


def _decided_head(folder: Path, name: str) -> Path:
    """Return the path of the new head between the decision and its final rename."""
    return folder / f"{name}.json.next"


def _finish(folder: Path, name: str) -> None:
    """Finish a decided replacement without a listing."""
    decided = _decided_head(folder, name)
    if decided.is_file():
        put_in_place(tensors_file(folder, name))
        with suppress(FileNotFoundError):  # another process did it
            os.replace(decided, head_file(folder, name))


def load_artifact(
    folder: Path, name: str, version: int | Sequence[int], model: str | None, activation: str | None
) -> tuple[dict[str, Any], MappedSource]:
    """Read what `save_artifact` wrote, with the tensors mapped.

    version: accepted schema versions. model: required fingerprint, None for any. activation: the model's current one,
    None for any; an artefact without an activation fits all.
    Raises: ModelNotFoundError if there is none, ModelFormatError for damage, ArtifactMismatchError for another model,
    activation or version of Hearth.
    """
    values = read_head(folder, name, version, model, activation)
    weights, source = tensors_file(folder, name), open_tensors(folder, name)
    if values.get("tensors_sha256") != _sha256(weights):
        raise ArtifactMismatchError(f"{weights.name} in {folder} is not the file that {name}.json describes.")
    return values, source


def read_head(
    folder: Path, name: str, version: int | Sequence[int], model: str | None, activation: str | None
) -> dict[str, Any]:
    """Read the artefact's head; ignore the tensors. Raises: as `load_artifact`."""
    head = head_file(folder, name)
    with suppress(OSError):  # on a read-only folder, older files stay valid while they match
        _finish(folder, name)
    values = read_head_object(head)
    known = (version,) if isinstance(version, int) else tuple(version)
    if values.get("schema_version") not in known:
        shown, words = str(values.get("schema_version"))[:20], " and ".join(str(one) for one in known)
        raise ArtifactMismatchError(f"{head.name} is of version {shown}; this Hearth reads version {words}.")
    if model is not None and values.get("model") != model:
        raise ArtifactMismatchError(f"{head.name} in {folder} was made from another model.")
    made_under = values.get("activation")
    if made_under is not None and not isinstance(made_under, str):
        raise ModelFormatError(f"{head.name} in {folder} has an activation that is not text.")
    if None not in (made_under, activation) and made_under != activation:
        # The fingerprint identifies the files; the user may request another activation for them.
        raise ArtifactMismatchError(
            f"{head.name} in {folder} was made for the activation {str(made_under)[:60]}; "
            f"the model is run with {activation}.",
            "Run the model with the activation that it was made for (--activation), or make it again.",
        )
    return values


def read_head_object(head: Path) -> dict[str, Any]:
    """Read the JSON file of any artefact. Raises: ModelNotFoundError, ModelFormatError for damage."""
    return read_object(head, max_bytes=_MAX_JSON_BYTES, max_values=1 << 17)


def open_tensors(folder: Path, name: str) -> MappedSource:
    """Map the artefact's tensors without checking that the head describes them.

    Raises: ArtifactMismatchError if the file is missing, ModelFormatError for damage.
    """
    weights = tensors_file(folder, name)
    if not weights.is_file():
        raise ArtifactMismatchError(f"{folder} has {name}.json and no file {weights.name}.")
    return open_safetensors(weights)


def _write_tensors(
    file: IO[bytes], tensors: Mapping[str, NDArray[Any]], progress: CountProgress, cancelled: CancelCheck
) -> str:
    """Write one safetensors file; return its SHA-256. The format's library would copy every tensor to memory."""
    # Wide numbers first, which aligns all of them.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    table, at = {}, 0
    for name in names:
        values = tensors[name]
        table[name] = {
            "dtype": _TYPES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 64)
    digest, done = hashlib.sha256(), 0
    for piece in (len(header).to_bytes(8, "little"), header):
        file.write(piece)
        digest.update(piece)
    for name in names:
        values = tensors[name]
        step = max(1, _CHUNK_BYTES // max(1, values[:1].nbytes))
        for start in range(0, len(values), step):
            if cancelled():
                raise Cancelled
            data = np.ascontiguousarray(values[start : start + step]).data
            file.write(data)
            digest.update(data)
            done += data.nbytes
            progress(done)
    return digest.hexdigest()


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
