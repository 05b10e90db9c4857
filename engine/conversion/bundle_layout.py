"""Plan the files of a bundle: each tensor's codec and each row's position.

docs/bundle.md, sections 3 and 4 have the rules. Reads no weights and writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.bundle.bundle_manifest import FFN_PARTS, BundleCodec, TensorEntry
from engine.conversion.expert_stack import ExpertStack, RowSource, stacked
from engine.errors import EngineError, UnsupportedModelError
from engine.formats.packed_rows import up64
from engine.loading import embedding_models
from engine.model.draft_layer import describe_drafts, open_drafts
from engine.model.families import own_draft_name
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor
from native_kernels.codecs.lane_packing import row_bytes

DRAFT_FILE = "mtp.bin"  # of the layer that drafts tokens


@dataclass(frozen=True, eq=False)
class Region:
    """Rows stored together: one tensor, or the parts of a layer's neurons side by side."""

    tensors: tuple[tuple[RowSource, TensorEntry], ...]
    offset: int
    n_rows: int
    row_stride: int


@dataclass(frozen=True, eq=False)
class Part:
    """One file of the bundle, written as a whole."""

    file: str
    regions: tuple[Region, ...]

    @property
    def n_bytes(self) -> int:
        last = self.regions[-1]
        return last.offset + last.n_rows * last.row_stride

    @property
    def source_bytes(self) -> int:
        return sum(tensor.source_bytes for region in self.regions for tensor, _ in region.tensors)


@dataclass(frozen=True, eq=False)
class Layout:
    """All weight files in graph order, and warnings about what differs from the request."""

    parts: tuple[Part, ...]
    warnings: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def digest(self) -> str:
        """Identifies the layout: two programs with the same digest can finish each other's work."""
        entries = {
            tensor.name: [entry.file, entry.offset, list(entry.shape), entry.codec, entry.row_stride]
            for part in self.parts
            for region in part.regions
            for tensor, entry in region.tensors
        }
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def plan_layout(opened: OpenedModel, codec: BundleCodec) -> Layout:
    """Return the position of every tensor of the model in a bundle of this codec."""
    tensors = stacked([TiledTensor.of(opened, planned) for planned in opened.plan])
    drafts, left_out = _drafts(opened)
    tensors += drafts
    by_file: dict[str, list[RowSource]] = {}
    for tensor in tensors:
        by_file.setdefault(_file_of(tensor.name), []).append(tensor)
    parts = tuple(_part(file, members, codec) for file, members in by_file.items())
    return Layout(parts, (*_warnings(tensors, codec), *left_out))


def _drafts(opened: OpenedModel) -> tuple[list[RowSource], tuple[str, ...]]:
    """Return the tensors of the layer that drafts tokens, under their names in a bundle, and why they are left out."""
    try:
        drafts = open_drafts(opened)
    except EngineError:
        return [], (describe_drafts(opened),)
    found = [] if drafts is None else stacked([TiledTensor.of(drafts, planned) for planned in drafts.plan])
    return [_renamed(tensor, own_draft_name(tensor.name)) for tensor in found], ()


def _renamed(tensor: RowSource, name: str) -> RowSource:
    if isinstance(tensor, ExpertStack):
        return replace(tensor, name=name)
    return replace(tensor, planned=replace(tensor.planned, name=name))


def _file_of(name: str) -> str:
    if name.startswith("mtp."):
        return DRAFT_FILE
    layer, dot, _ = name.partition(".")
    return f"layer-{int(layer):04}.bin" if dot else f"{name}.bin"


def _part(file: str, tensors: Sequence[RowSource], codec: BundleCodec) -> Part:
    regions: list[Region] = []
    at = 0
    for members in _neighbours(tensors):
        entries, start = [], at
        lengths = [up64(row_bytes(_codec_of(tensor, codec), tensor.n_cols)) for tensor in members]
        stride = sum(lengths)
        for tensor, length in zip(members, lengths, strict=True):
            chosen = _codec_of(tensor, codec)
            n_bytes = row_bytes(chosen, tensor.n_cols)
            entries.append((tensor, TensorEntry(file, at, tensor.shape, chosen, n_bytes, stride, tensor.codec)))
            at += length
        n_rows = members[0].n_rows
        if any(tensor.n_rows != n_rows for tensor in members):
            raise UnsupportedModelError(f"The FFN of {members[0].name} has parts with different numbers of neurons.")
        at = start + n_rows * stride
        regions.append(Region(tuple(entries), start, n_rows, stride))
    return Part(file, tuple(regions))


def _neighbours(tensors: Sequence[RowSource]) -> list[list[RowSource]]:
    """Return the tensors one by one, then the FFN's matrices together."""
    ffn = {tensor.name.partition(".")[2]: tensor for tensor in tensors if _is_ffn(tensor)}
    alone: list[list[RowSource]] = [[tensor] for tensor in tensors if not _is_ffn(tensor)]
    return [*alone, [ffn[part] for part in FFN_PARTS if part in ffn]] if ffn else alone


def _is_ffn(tensor: RowSource) -> bool:
    return tensor.name.partition(".")[2] in FFN_PARTS


def _codec_of(tensor: RowSource, asked: BundleCodec) -> BundleCodec:
    if tensor.planned.is_vector or tensor.planned.is_exact:
        return "f32"
    if asked == "q4_0" and tensor.quantised_across_rows:
        return "q8_0"
    return asked


def _warnings(tensors: Sequence[RowSource], asked: BundleCodec) -> tuple[str, ...]:
    raised = [tensor for tensor in tensors if tensor.quantised_across_rows and _codec_of(tensor, asked) != asked]
    if not raised:
        return ()
    codecs = ", ".join(sorted({tensor.codec for tensor in raised}))
    return (
        f"{len(raised)} down matrices are stored as q8_0 instead of {asked}: the source quantised them ({codecs}) "
        "across neurons, and quantising them to 4 bits once more would cost quality. A source in F16 or BF16 gives "
        f"{asked} throughout.",
    )


def side_files(opened: OpenedModel) -> list[Path]:
    """Return the source's files for the bundle of its tokenizer, none if the vocabulary is in the metadata, and of its
    use for vectors.
    """
    if opened.files.kind == "gguf":
        return []
    names: tuple[str, ...] = (
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "special_tokens_map.json",
        *embedding_models.FILES,
    )
    if opened.files.tokenizer is None:
        names += ("tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json")
    found = [opened.files.path / name for name in names]
    return [file for file in found if file.is_file()]
