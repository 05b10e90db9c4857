"""Convert any readable model to a bundle in tiles, so that the model never has to fit in memory.

Finished work survives any interruption and is resumed; docs/bundle.md, section 8 has the rules.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from engine.bundle.artefacts import file_names
from engine.bundle.bundle import (
    METADATA,
    artefact_files,
    copy_durably,
    create_bundle,
    hash_file,
    open_bundle,
    write_json,
)
from engine.bundle.bundle_manifest import (
    ARTEFACT_FOLDER,
    ArtefactEntry,
    BundleCodec,
    FileEntry,
    Manifest,
    SourceEntry,
    TensorEntry,
)
from engine.conversion.bundle_layout import DRAFT_FILE, Layout, Part, Region, plan_layout, side_files
from engine.conversion.carried_artefacts import Carried, plan_carried, write_carried
from engine.conversion.conversion_folder import ArtefactReceipt, ConversionFolder, Receipt, disk_errors, flush_folder
from engine.conversion.expert_stack import RowSource
from engine.errors import (
    ArtifactMismatchError,
    Cancelled,
    DiskSpaceError,
    InvalidRequestError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from engine.files import spelled
from engine.formats.packed_rows import F32, U8, decode_rows, encode_rows
from engine.job import CancelCheck, CountProgress, Job
from engine.model.model_files import OpenedModel, open_model
from native_kernels.codecs.lane_packing import pack_rows

CODECS: tuple[BundleCodec, ...] = tuple(codec for codec in get_args(BundleCodec) if codec != "f32")

# Numbers of one tensor unpacked at once. With copies for rounding and error, this takes about ten times as many bytes:
# 160 MiB. Smaller tiles would make a transposed read touch each source page more often.
TILE_NUMBERS = 4 << 20
DISK_MARGIN_BYTES = 256 << 20  # free disk space to keep
_GROWTH_BYTES = 1 << 20  # growth by cache-line alignment that is accepted
_BITS: dict[str, float] = {"f16": 16, "q8_0": 8.5, "q4_0": 4.5}
# Errors above this are noticeable: q8_0 has about 0.5 %, q4_0 about 10 %, which cost a model of 135 million parameters
# 8 points of perplexity.
_NOTICEABLE_ERROR = 0.03
_SMALL_PARAMETERS = 3_000_000_000


@dataclass(frozen=True)
class Conversion:
    """The result. reused_parts: weight files that an interrupted conversion had finished."""

    bundle: Path
    n_bytes: int
    seconds: float
    warnings: tuple[str, ...]
    relative_errors: dict[str, float]
    reused_parts: int
    activation_warning: str = ""
    quality: str = ""  # cost of rounding, in sentences; empty if not noticeable


def convert(
    source: Path,
    destination: Path,
    codec: str,
    job: Job = Job(),
    activation: str | None = None,
) -> Conversion:
    """Write the model at `source` as a bundle at `destination`, completely or not at all.

    activation: NAME or NAME:threshold, overrides the source; stored in the bundle.
    Units: progress in source bytes. Cost: some hundred MB of memory for any model.
    Raises: InvalidRequestError for an unknown codec, an existing destination or a bundle that would grow,
    DiskSpaceError with need and free bytes before anything is written, Cancelled. The same call resumes after the last
    two or a crash.
    """
    started = time.perf_counter()
    if codec not in CODECS:
        raise InvalidRequestError(f"Unknown codec {codec!r}; supported: {', '.join(CODECS)}.")
    opened = open_model(source, activation)
    layout, carried = plan_layout(opened, codec), plan_carried(opened)
    _check_growth(opened, codec, layout)
    destination = spelled(destination.expanduser())
    with ConversionFolder.open(destination, opened, codec, layout) as workshop:
        claims = workshop.claimed(layout, carried)
        _check_disk(workshop.folder, layout, carried, claims, _side_bytes(opened))
        work = _Work(workshop, opened, claims, job)
        work.total = sum(part.source_bytes for part in layout.parts) + sum(artefact.n_bytes for artefact in carried)
        with disk_errors(workshop.folder):
            receipts = {part.file: work.weights(part) for part in layout.parts}
            noted = {str(artefact.kind): made for artefact in carried if (made := work.artefact(artefact)) is not None}
            manifest = _finish(work, codec, layout, receipts, noted)
            workshop.deliver(destination)
    return Conversion(
        bundle=destination,
        n_bytes=sum(file.stat().st_size for file in destination.rglob("*") if file.is_file()),
        seconds=time.perf_counter() - started,
        warnings=manifest.warnings,
        relative_errors={name: entry.relative_error for name, entry in manifest.tensors.items()},
        reused_parts=work.reused_parts,
        activation_warning=opened.activation_warning,
        quality=_quality(opened, codec, max((entry.relative_error for entry in manifest.tensors.values()), default=0)),
    )


def _check_growth(opened: OpenedModel, codec: str, layout: Layout) -> None:
    """Refuse a smaller codec if the aligned rows would still make the file larger than the source.

    Models with skippable neurons gain speed from a bundle's layout; others gain nothing.
    """
    parts = [part for part in layout.parts if part.file != DRAFT_FILE]
    source_bytes, n_bytes = sum(part.source_bytes for part in parts), sum(part.n_bytes for part in parts)
    smaller = opened.parameters * _BITS[codec] / 8 < source_bytes
    if smaller and n_bytes > source_bytes + _GROWTH_BYTES and not opened.config.has_zeros:
        raise InvalidRequestError(
            f"As a bundle in {codec}, {opened.name} would grow from {source_bytes / 1e6:.0f} to "
            f"{n_bytes / 1e6:.0f} MB, and its weights would be rounded.",
            "Use the model as it is, or convert it with --codec q8_0 or f16.",
        )


def _quality(opened: OpenedModel, codec: str, worst: float) -> str:
    if worst < _NOTICEABLE_ERROR:
        return ""
    size = opened.parameters
    how = "will be noticeably worse" if size < _SMALL_PARAMETERS else "may be a little worse"
    shown = f"{size / 1e9:.1f} billion" if size >= 1e9 else f"{size / 1e6:.0f} million"
    return (
        f"Rounding to {codec} changed the weights by up to {100 * worst:.1f} %. Answers of a model with {shown} "
        f"parameters {how}. `eval` with the same text on both shows how much; --codec q8_0 keeps nearly all of it."
    )


# --- disk space


def _check_disk(
    folder: Path, layout: Layout, carried: Sequence[Carried], finished: Collection[str], side_bytes: int
) -> None:
    need = side_bytes + sum(part.n_bytes for part in layout.parts if part.file not in finished)
    need += sum(artefact.n_bytes for artefact in carried if artefact.kind not in finished)
    free = shutil.disk_usage(folder).free
    if need + DISK_MARGIN_BYTES > free:
        raise DiskSpaceError(
            f"The bundle needs {need / 1e9:.2f} GB more and {DISK_MARGIN_BYTES / 1e9:.2f} GB to spare; "
            f"{free / 1e9:.2f} GB are free in {folder.parent.parent}."
        )


def _side_bytes(opened: OpenedModel) -> int:
    """Estimate the bytes of tokenizer, metadata and manifest."""
    tokenizer = sum(file.stat().st_size for file in side_files(opened))
    vocabulary = 64 * opened.config.vocab_size if opened.files.tokenizer is None else 0
    return tokenizer + vocabulary + (4 << 20)


# --- writing


class _Work:
    """One run of a conversion: its progress, and what it found finished or left behind."""

    def __init__(
        self,
        workshop: ConversionFolder,
        opened: OpenedModel,
        claims: dict[str, Receipt | ArtefactReceipt],
        job: Job,
    ) -> None:
        self.workshop = workshop
        self.opened = opened
        self.total = 0
        self.reused_parts = 0
        self.warnings: list[str] = []
        self._claims = claims
        self._progress = job.progress
        self._cancelled = job.cancelled
        self._done = 0  # source bytes
        self._shown = -1

    def weights(self, part: Part) -> Receipt:
        """Keep or write one weight file."""
        claim = self._sound(part.file, part.file, part.n_bytes, part.source_bytes)
        if isinstance(claim, Receipt):
            self.reused_parts += 1
            receipt = claim
        else:
            receipt = _write_part(self.workshop, part, self._show, self._cancelled)
        self._end(part.source_bytes)
        return receipt

    def artefact(self, carried: Carried) -> ArtefactReceipt | None:
        """Keep or write one artefact; None, and a warning, if it cannot be read."""
        claim = self._sound(carried.kind, "", carried.n_bytes, carried.n_bytes)
        receipt = claim if isinstance(claim, ArtefactReceipt) else self._write_artefact(carried)
        self._end(carried.n_bytes)
        return receipt

    def _write_artefact(self, carried: Carried) -> ArtefactReceipt | None:
        folder = self.workshop.folder / ARTEFACT_FOLDER

        def show(written: int) -> None:
            self._show(min(written, carried.n_bytes))

        try:
            write_carried(self.opened, carried, folder, show, self._cancelled)
        except (ModelNotFoundError, ModelFormatError, UnsupportedModelError, ArtifactMismatchError) as error:
            self.warnings.append(f"The model's {carried.kind} were left behind: {error.message}")
            return None
        files = artefact_files(folder, file_names(carried.kind))
        entry = ArtefactEntry(tuple(files), carried.schema_version, self.opened.fingerprint)
        receipt = ArtefactReceipt(carried.origin, files, entry)
        flush_folder(folder)
        self.workshop.keep_receipt(carried.kind, receipt)
        return receipt

    def _sound(self, name: str, file: str, n_bytes: int, source_bytes: int) -> Receipt | ArtefactReceipt | None:
        """Return an earlier run's result after reading and verifying it."""
        claim = self._claims.get(name)

        def show(read: int) -> None:
            self._show(source_bytes * min(read, n_bytes) // max(1, n_bytes))

        if claim is not None and self.workshop.is_sound(claim, file, show, self._cancelled):
            return claim
        return None

    def _show(self, done: int) -> None:
        """Report progress, never backwards: a file read again and then rewritten shows no progress meanwhile."""
        if self._done + done > self._shown:
            self._shown = self._done + done
            self._progress(self._shown, self.total)

    def _end(self, source_bytes: int) -> None:
        self._done += source_bytes
        if self._done > self._shown:
            self._show(0)


def _write_part(workshop: ConversionFolder, part: Part, progress: CountProgress, cancelled: CancelCheck) -> Receipt:
    """Write one weight file: under a temporary name, flushed, renamed, with a receipt."""
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
    flush_folder(workshop.folder)
    receipt = Receipt(part.n_bytes, digest.hexdigest(), entries)
    workshop.keep_receipt(part.file, receipt)
    return receipt


class _Deviation:
    """Accumulates the difference between written values and the source's."""

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
    """Yield (end row, bytes [n, row_stride]) of the region, in order and in bounded tiles."""
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


def _rows(tensor: RowSource, entry: TensorEntry, deviation: _Deviation, start: int, stop: int) -> U8:
    if tensor.keeps_blocks_of(entry.codec):
        return pack_rows(entry.codec, tensor.blocks(start, stop))
    values = tensor.read_f32(start, stop)
    rows = encode_rows(entry.codec, values, tensor.planned.foreign_name)
    exact = entry.codec == "f32" or entry.codec == tensor.codec == "f16"
    if not exact:
        deviation.add(values, decode_rows(entry.codec, rows, tensor.n_cols))
    return rows


def _finish(
    work: _Work, codec: str, layout: Layout, receipts: dict[str, Receipt], noted: Mapping[str, ArtefactReceipt]
) -> Manifest:
    """Write the other files, and the manifest last."""
    from engine import __version__

    workshop, opened = work.workshop, work.opened
    try:
        metadata = {key: _plain(value) for key, value in opened.metadata.items()}
        # JSON has no infinity. Gemma 3n's activation_sparsity_scale has it, and the configuration says the same.
        finite = {key: value for key, value in metadata.items() if not (isinstance(value, list) and -math.inf in value)}
        write_json(workshop.folder / METADATA, finite)
    except ValueError as error:
        raise ModelFormatError(f"The model's metadata hold a value that is not a number: {error}.") from error
    names = [METADATA]
    for file in side_files(opened):
        name = file.relative_to(opened.files.path).as_posix()
        (workshop.folder / name).parent.mkdir(exist_ok=True)
        copy_durably(file, workshop.folder / name)
        names.append(name)
    files = {part.file: FileEntry(receipts[part.file].bytes, receipts[part.file].sha256) for part in layout.parts}
    for name in names:
        file = workshop.folder / name
        files[name] = FileEntry(file.stat().st_size, hash_file(file))
    for receipt in noted.values():
        files |= receipt.files
    manifest = Manifest(
        name=opened.name,
        codec=codec,  # type: ignore[arg-type]  # checked where it came in
        config=opened.config,
        source=SourceEntry(opened.name, opened.format, opened.fingerprint, opened.parameters),
        files=files,
        tensors={name: entry for part in layout.parts for name, entry in receipts[part.file].tensors.items()},
        description=opened.description,
        sampling=opened.sampling,
        artefacts={kind: receipt.entry for kind, receipt in noted.items()},
        warnings=(*layout.warnings, *work.warnings),
        created_by=f"hearth {__version__}",
    )
    create_bundle(workshop.folder, manifest)
    open_bundle(workshop.folder)
    return manifest


def _plain(value: Any) -> Any:
    """Convert a metadata value to JSON."""
    return value.tolist() if isinstance(value, np.ndarray) else value
