"""Makes a bundle of any readable model: piece by piece, so that the model never has to fit into memory.

What is done survives an interruption of any kind and is taken up again; docs/bundle.md, section 8 has the rules.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, get_args

import numpy as np

from engine.bundle import METADATA, copy_durably, create_bundle, hash_file, is_bundle, open_bundle, shifted, write_json
from engine.bundle_layout import Layout, Part, Region, plan_layout, tokenizer_files
from engine.bundle_manifest import BundleCodec, FileEntry, Manifest, SourceEntry, TensorEntry
from engine.errors import Cancelled, DiskSpaceError, EngineError, InvalidRequestError, ModelFormatError
from engine.formats.packed_rows import F32, U8, decode_rows, encode_rows
from engine.model.model_files import OpenedModel, open_model
from engine.model.tensor_tiles import TiledTensor
from engine.plain_config import from_plain
from native_kernels.lane_packing import pack_rows

log = logging.getLogger(__name__)

CODECS: tuple[BundleCodec, ...] = tuple(codec for codec in get_args(BundleCodec) if codec != "f32")
Progress = Callable[[int, int], None]

# Numbers of one tensor that are unpacked at once. With copies for rounding and for the error about ten times as many
# bytes are in use: 160 MiB. Smaller pieces would make a transposed read touch each page of the source more often.
TILE_NUMBERS = 4 << 20
_JOB_FORMAT = "hearth-conversion"
DISK_MARGIN_BYTES = 256 << 20  # stays free beside the bundle


@dataclass(frozen=True)
class Conversion:
    """What was made. kept_parts: files of weights that an interrupted conversion had finished before."""

    bundle: Path
    n_bytes: int
    seconds: float
    warnings: tuple[str, ...]
    relative_errors: dict[str, float]
    kept_parts: int


def convert(
    source: Path,
    destination: Path,
    codec: str,
    progress: Progress = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Conversion:
    """Writes the model at `source` as a bundle at `destination`, which is whole afterwards or absent.

    Units: progress reports bytes of the source done and in all. Cost: some hundred MB of memory, whatever the model.
    Raises: InvalidRequestError for an unknown codec or a destination that is taken, DiskSpaceError with need and
    have before anything is written, Cancelled; after either of these, or after a crash, the same call goes on.
    """
    started = time.perf_counter()
    if codec not in CODECS:
        raise InvalidRequestError(f"Unknown codec {codec!r}; known are {', '.join(CODECS)}.")
    opened = open_model(source)
    layout = plan_layout(opened, codec)
    destination = destination.expanduser().absolute()
    with _Workshop.open(destination, opened, codec, layout) as workshop:
        kept = workshop.finished(layout, cancelled)
        _check_disk(workshop.folder, layout, kept, _side_bytes(opened))
        done, total = 0, sum(part.source_bytes for part in layout.parts)
        receipts = dict(kept)
        for part in layout.parts:
            if part.file not in receipts:
                with _disk_errors(workshop.folder):
                    receipts[part.file] = _write_part(workshop, part, shifted(progress, done, total), cancelled)
            done += part.source_bytes
            progress(done, total)
        with _disk_errors(workshop.folder):
            manifest = _finish(workshop, opened, codec, layout, receipts)
            workshop.deliver(destination)
    return Conversion(
        bundle=destination,
        n_bytes=sum(file.stat().st_size for file in destination.rglob("*") if file.is_file()),
        seconds=time.perf_counter() - started,
        warnings=manifest.warnings,
        relative_errors={name: entry.relative_error for name, entry in manifest.tensors.items()},
        kept_parts=len(kept),
    )


# ------------------------------------------------------------------ the folder where it is made


@dataclass(frozen=True)
class _Receipt:
    """A finished file of weights."""

    bytes: int
    sha256: str
    tensors: dict[str, TensorEntry]


@dataclass(frozen=True, eq=False)
class _Workshop:
    """DST.partial: the files so far, and the receipts by which a later run knows what is finished."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "bundle"

    @property
    def _progress(self) -> Path:
        return self.root / "progress"

    @classmethod
    @contextlib.contextmanager
    def open(cls, destination: Path, opened: OpenedModel, codec: str, layout: Layout) -> Iterator[_Workshop]:
        """The workshop of this very conversion, new or taken up again, locked against a second one."""
        workshop = cls(destination.with_name(destination.name + ".partial"))
        if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
            workshop._sweep()
            what = "holds a bundle already" if is_bundle(destination) else "exists already"
            raise InvalidRequestError(f"{destination} {what}.", "Choose another destination, or remove it first.")
        job = {"format": _JOB_FORMAT, "source": opened.fingerprint, "codec": codec, "layout": layout.digest}
        with _disk_errors(destination.parent):
            workshop._claim(job)
            with (workshop._progress / "lock").open("wb") as lock:
                _lock(lock, workshop.root)
                yield workshop

    def _sweep(self) -> None:
        """Removes what a death after the last rename left: receipts of a bundle that is whole."""
        note = _read_json(self._progress / "conversion.json")
        if isinstance(note, dict) and note.get("format") == _JOB_FORMAT and not self.folder.exists():
            shutil.rmtree(self.root, ignore_errors=True)

    def _claim(self, job: dict[str, str]) -> None:
        """Makes the folder, or makes sure that it is this conversion's. Nothing foreign is touched."""
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
            raise InvalidRequestError(f"{self.root} exists and is no unfinished conversion.", hint)
        self._progress.mkdir(parents=True, exist_ok=True)
        write_json(note, job)  # before the first file: what lies beside it is ours from then on
        self.folder.mkdir(exist_ok=True)

    def finished(self, layout: Layout, cancelled: Callable[[], bool]) -> dict[str, _Receipt]:
        """Receipts of the files that are finished and still what they were. Everything else is removed."""
        kept: dict[str, _Receipt] = {}
        for part in layout.parts:
            receipt = self._receipt(part)
            file = self.folder / part.file
            if receipt and file.is_file() and file.stat().st_size == receipt.bytes == part.n_bytes:
                if hash_file(file, cancelled=cancelled) == receipt.sha256:
                    kept[part.file] = receipt
                    continue
                log.info("%s was changed since it was written: it is written again", part.file)
        for file in self.folder.iterdir():
            if file.name not in kept:
                file.unlink()
        return kept

    def _receipt(self, part: Part) -> _Receipt | None:
        try:
            found: _Receipt = from_plain(_Receipt, _read_json(self._progress / f"{part.file}.json"), part.file)
        except EngineError:
            return None
        planned = {tensor.name: entry for region in part.regions for tensor, entry in region.tensors}
        told = {name: replace(entry, relative_error=0.0) for name, entry in found.tensors.items()}
        return found if told == planned else None

    def keep_receipt(self, part: Part, receipt: _Receipt) -> None:
        write_json(self._progress / f"{part.file}.json", asdict(receipt))

    def deliver(self, destination: Path) -> None:
        """The finished folder becomes the bundle, at once."""
        if destination.exists():
            destination.rmdir()  # empty, or this fails
        _flush_folder(self.folder)
        self.folder.rename(destination)
        _flush_folder(destination.parent)
        shutil.rmtree(self.root, ignore_errors=True)  # receipts; on Windows the lock keeps its file a moment longer


def _read_json(path: Path) -> Any:
    """What a file of our own holds; None where it is missing or broken, which makes its work be done again."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _lock(file: IO[bytes], folder: Path) -> None:
    """Holds the folder for this process as long as the file is open."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InvalidRequestError(f"Another conversion is at work in {folder}.", "Wait until it has ended.") from error


def _flush_folder(folder: Path) -> None:
    """Makes renames in the folder survive a power cut, where the system can."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ------------------------------------------------------------------ disk space


def _check_disk(folder: Path, layout: Layout, kept: dict[str, _Receipt], side_bytes: int) -> None:
    need = side_bytes + sum(part.n_bytes for part in layout.parts if part.file not in kept)
    free = shutil.disk_usage(folder).free
    if need + DISK_MARGIN_BYTES > free:
        raise DiskSpaceError(
            f"The bundle needs {need / 1e9:.2f} GB more and {DISK_MARGIN_BYTES / 1e9:.2f} GB to spare; "
            f"{free / 1e9:.2f} GB are free in {folder.parent.parent}."
        )


def _side_bytes(opened: OpenedModel) -> int:
    """About what tokenizer, metadata and manifest will take."""
    tokenizer = sum(file.stat().st_size for file in tokenizer_files(opened))
    vocabulary = 64 * opened.config.vocab_size if opened.files.tokenizer is None else 0
    return tokenizer + vocabulary + (4 << 20)


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """What the disk refuses, in words."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise DiskSpaceError(
                f"The disk took no more while the bundle was written in {folder}: {error.strerror}.",
                "Free some space there and run the same command again: what is finished is kept.",
            ) from error
        raise InvalidRequestError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}.", "Choose another destination."
        ) from error


# ------------------------------------------------------------------ writing


def _write_part(
    workshop: _Workshop, part: Part, progress: Callable[[int], None], cancelled: Callable[[], bool]
) -> _Receipt:
    """One file of weights: written beside its name, flushed, renamed, and its receipt kept."""
    target = workshop.folder / part.file
    writing = target.with_name(target.name + ".writing")
    digest = hashlib.sha256()
    entries: dict[str, TensorEntry] = {}
    done = 0
    with writing.open("wb") as file:
        for region in part.regions:
            deviations = [_Deviation() for _ in region.tensors]
            before = done
            for stop, rows in _tiles(region, deviations):
                if cancelled():
                    raise Cancelled
                data = rows.data
                file.write(data)
                digest.update(data)
                share = stop / region.n_rows
                done = before + int(share * sum(tensor.source_bytes for tensor, _ in region.tensors))
                progress(done)
            for (tensor, entry), deviation in zip(region.tensors, deviations, strict=True):
                entries[tensor.name] = replace(entry, relative_error=deviation.relative)
        file.flush()
        os.fsync(file.fileno())
    writing.replace(target)
    _flush_folder(workshop.folder)
    receipt = _Receipt(part.n_bytes, digest.hexdigest(), entries)
    workshop.keep_receipt(part, receipt)
    return receipt


class _Deviation:
    """Sums up how far the written values are from the source's."""

    def __init__(self) -> None:
        self._difference = self._whole = 0.0

    def add(self, source: F32, written: F32) -> None:
        difference = (written - source).ravel()
        self._difference += float(np.dot(difference, difference))
        self._whole += float(np.dot(source.ravel(), source.ravel()))

    @property
    def relative(self) -> float:
        return (self._difference / self._whole) ** 0.5 if self._whole else 0.0


def _tiles(region: Region, deviations: list[_Deviation]) -> Iterator[tuple[int, U8]]:
    """(end of the rows, their bytes [n, row_stride]) of the region, in order and in bounded pieces."""
    widest = max(tensor.n_cols for tensor, _ in region.tensors)
    multiple = max(tensor.row_step for tensor, _ in region.tensors)  # powers of two
    step = max(multiple, TILE_NUMBERS // widest // multiple * multiple)
    first = region.offset
    for start in range(0, region.n_rows, step):
        stop = min(start + step, region.n_rows)
        out = np.zeros((stop - start, region.row_stride), np.uint8)
        for (tensor, entry), deviation in zip(region.tensors, deviations, strict=True):
            at = entry.offset - first
            out[:, at : at + entry.row_bytes] = _rows(tensor, entry, deviation, start, stop)
        yield stop, out


def _rows(tensor: TiledTensor, entry: TensorEntry, deviation: _Deviation, start: int, stop: int) -> U8:
    if tensor.keeps_blocks_of(entry.codec):
        return pack_rows(entry.codec, tensor.blocks(start, stop))
    values = tensor.read_f32(start, stop)
    rows = encode_rows(entry.codec, values, tensor.planned.foreign_name)
    exact = entry.codec == "f32" or entry.codec == tensor.codec == "f16"
    if not exact:
        deviation.add(values, decode_rows(entry.codec, rows, tensor.n_cols))
    return rows


def _finish(
    workshop: _Workshop, opened: OpenedModel, codec: str, layout: Layout, receipts: dict[str, _Receipt]
) -> Manifest:
    """Writes what stands beside the weights, and the manifest last."""
    from engine import __version__

    try:
        write_json(workshop.folder / METADATA, {key: _plain(value) for key, value in opened.metadata.items()})
    except ValueError as error:
        raise ModelFormatError(f"The model's metadata hold a value that is no number: {error}.") from error
    names = [METADATA]
    for file in tokenizer_files(opened):
        copy_durably(file, workshop.folder / file.name)
        names.append(file.name)
    files = {part.file: FileEntry(receipts[part.file].bytes, receipts[part.file].sha256) for part in layout.parts}
    for name in names:
        file = workshop.folder / name
        files[name] = FileEntry(file.stat().st_size, hash_file(file))
    manifest = Manifest(
        name=opened.name,
        codec=codec,  # type: ignore[arg-type]  # checked where it came in
        config=opened.config,
        source=SourceEntry(opened.name, opened.format, opened.fingerprint, opened.parameters),
        files=files,
        tensors={name: entry for part in layout.parts for name, entry in receipts[part.file].tensors.items()},
        description=opened.description,
        sampling=opened.sampling,
        warnings=layout.warnings,
        created_by=f"hearth {__version__}",
    )
    create_bundle(workshop.folder, manifest)
    open_bundle(workshop.folder)
    return manifest


def _plain(value: Any) -> Any:
    """A metadata value as JSON can hold it."""
    return value.tolist() if isinstance(value, np.ndarray) else value
