"""A bundle's manifest.json and its consistency checks (docs/bundle.md). Touches no files."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from engine.config import EXACT_MATRICES, ModelConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.formats.packed_rows import ALIGNMENT, up64
from engine.plain_config import from_plain
from native_kernels.codecs.lane_packing import row_bytes

FORMAT = "hearth-bundle"
SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
ARTEFACT_FOLDER = "artefacts"
FFN_PARTS = ("gate", "up", "down_t")  # in the order of a neuron's row

_MAX_BYTES = 1 << 62
_FILE_NAME = re.compile(r"(artefacts/|1_Pooling/)?[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

BundleCodec = Literal["f32", "f16", "q8_0", "q4_0"]


@dataclass(frozen=True)
class FileEntry:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class TensorEntry:
    """Position of a tensor: row r begins at offset + r x row_stride. A vector is one row."""

    file: str
    offset: int
    shape: tuple[int, ...]
    codec: BundleCodec
    row_bytes: int
    row_stride: int
    source_codec: str = ""
    relative_error: float = 0.0

    @property
    def n_rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1


@dataclass(frozen=True)
class SourceEntry:
    """The model that a bundle was made from."""

    name: str
    format: str
    fingerprint: str
    parameters: int


@dataclass(frozen=True)
class ArtefactEntry:
    """files: head first. fingerprint: of the model it was made for, the bundle or its source."""

    files: tuple[str, ...]
    schema_version: int
    fingerprint: str


@dataclass(frozen=True)
class Manifest:
    name: str
    codec: BundleCodec
    config: ModelConfig
    source: SourceEntry
    files: dict[str, FileEntry]
    tensors: dict[str, TensorEntry]
    description: str = ""
    sampling: dict[str, int | float] = field(default_factory=dict)
    artefacts: dict[str, ArtefactEntry] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    created_by: str = "hearth"

    @property
    def fingerprint(self) -> str:
        """Identifies configuration and weights; artefacts do not change it."""
        weights = {name: entry.sha256 for name, entry in self.files.items() if name.endswith(".bin")}
        text = json.dumps({"config": asdict(self.config), "weights": weights}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the file's content."""
        activation = {"function": self.config.activation, "threshold": firing_threshold(self.config)}
        head = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "fingerprint": self.fingerprint}
        return {**head, "activation": activation, **asdict(self)}

    @classmethod
    def from_json(cls, values: Any) -> Manifest:
        """Check types and the consistency of fields; touch no files.

        Raises: ModelFormatError for damage or inconsistency, UnsupportedModelError for a bundle of another version.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ModelFormatError(f"{MANIFEST} is not a manifest of a Hearth bundle.")
        _check_version(values.get("schema_version"))
        config = from_plain(ModelConfig, values.get("config"), "config", strict=True)
        manifest: Manifest = from_plain(cls, {**values, "config": config}, MANIFEST)
        stated = {"function": config.activation, "threshold": firing_threshold(config)}
        if values.get("activation") != stated:
            raise ModelFormatError(
                f"{MANIFEST} contradicts itself about the activation: the configuration says {stated}."
            )
        if values.get("fingerprint") != manifest.fingerprint:
            raise ModelFormatError(
                f"{MANIFEST} was changed: its fingerprint does not fit its configuration and hashes."
            )
        _check_files(manifest)
        _check_layout(manifest)
        return manifest


def firing_threshold(config: ModelConfig) -> float:
    """Return the value above which a neuron counts as active: 0, or FATReLU's t."""
    return float(getattr(config, "activation_threshold", 0.0))


# --- checks


def _check_version(version: Any) -> None:
    if type(version) is not int or version < 1:
        raise ModelFormatError(f"{MANIFEST} has the schema version {str(version)[:40]!r}; a whole number is needed.")
    if version > SCHEMA_VERSION:
        raise UnsupportedModelError(
            f"The bundle has schema version {version}; this Hearth reads version {SCHEMA_VERSION}.",
            "Use a newer Hearth, or convert the model again.",
        )


def _check_files(manifest: Manifest) -> None:
    for name, entry in manifest.files.items():
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            raise ModelFormatError(f"{MANIFEST} lists the file {name[:80]!r}, which is not a name within a bundle.")
        if not 0 <= entry.bytes < _MAX_BYTES or not _SHA256.fullmatch(entry.sha256):
            raise ModelFormatError(f"{MANIFEST} has no sound size and SHA-256 for {name}.")
    for kind, artefact in manifest.artefacts.items():
        if not artefact.files:
            raise ModelFormatError(f"The {kind[:40]} of the bundle name no file.")
        for name in artefact.files:
            if name not in manifest.files or not name.startswith(f"{ARTEFACT_FOLDER}/"):
                raise ModelFormatError(
                    f"The {kind[:40]} of the bundle name the file {name[:80]!r}, which is not listed."
                )


def _check_layout(manifest: Manifest) -> None:
    """Check that every tensor is where docs/bundle.md, sections 3 and 4 require, without overlap."""
    regions: dict[str, list[tuple[int, int, str]]] = {}
    for name, tensor in manifest.tensors.items():
        if tensor.file not in manifest.files or not tensor.file.endswith(".bin"):
            raise ModelFormatError(
                f"Tensor {name[:80]} is in the file {tensor.file[:80]!r}, which is not a listed weight file."
            )
        if len(tensor.shape) not in (1, 2) or not all(0 < size < 1 << 40 for size in tensor.shape):
            raise ModelFormatError(f"Tensor {name[:80]} has the shape {tensor.shape!r}.")
        if (tensor.codec == "f32") != (len(tensor.shape) == 1 or name.endswith((*EXACT_MATRICES, "_bias"))):
            raise ModelFormatError(f"Tensor {name[:80]} of {len(tensor.shape)} dimensions is stored as {tensor.codec}.")
        if tensor.row_bytes != row_bytes(tensor.codec, tensor.shape[-1]):
            raise ModelFormatError(f"The rows of tensor {name[:80]} claim {tensor.row_bytes} bytes.")
        if not 0 <= tensor.offset < _MAX_BYTES or tensor.offset % ALIGNMENT:
            raise ModelFormatError(
                f"Tensor {name[:80]} begins at {tensor.offset}, which is not a multiple of {ALIGNMENT}."
            )
        layer, _, part = name.partition(".")
        if part in FFN_PARTS:
            start, stride = neuron_row(manifest, layer)
            if tensor.row_stride != stride or tensor.file != manifest.tensors[f"{layer}.up"].file:
                raise ModelFormatError(f"Tensor {name[:80]} is not contiguous with the rest of its neurons.")
            name = f"{layer}.ffn"
        else:
            start, stride = tensor.offset, up64(tensor.row_bytes)
            if tensor.row_stride != stride:
                raise ModelFormatError(
                    f"Tensor {name[:80]} has rows {tensor.row_stride} bytes apart instead of {stride}."
                )
        end = start + tensor.n_rows * stride
        if end > manifest.files[tensor.file].bytes:
            raise ModelFormatError(
                f"Tensor {name[:80]} ends {end - manifest.files[tensor.file].bytes} bytes past its file."
            )
        if part not in FFN_PARTS or part == "up":
            regions.setdefault(tensor.file, []).append((start, end, name))
    for found in regions.values():
        for before, after in itertools.pairwise(sorted(found)):
            if before[1] > after[0]:
                raise ModelFormatError(f"The tensors {before[2][:80]} and {after[2][:80]} overlap.")


def neuron_row(manifest: Manifest, layer: str) -> tuple[int, int]:
    """Return (offset, stride) of a layer's FFN rows after checking that its parts agree."""
    parts = [(part, manifest.tensors.get(f"{layer}.{part}")) for part in FFN_PARTS]
    present = [(part, tensor) for part, tensor in parts if tensor is not None]
    if [part for part, _ in present] not in (["gate", "up", "down_t"], ["up", "down_t"]):
        raise ModelFormatError(f"Layer {layer[:20]} has the FFN parts {', '.join(part for part, _ in present)}.")
    start = at = present[0][1].offset
    for part, tensor in present:
        if tensor.offset != at or tensor.shape != present[0][1].shape or len(tensor.shape) != 2:
            raise ModelFormatError(f"Tensor {layer[:20]}.{part} is not contiguous with the rest of its neurons.")
        at += up64(tensor.row_bytes)
    return start, at - start
