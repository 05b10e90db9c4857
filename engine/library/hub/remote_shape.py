"""Determine the shape of a model on a hub from the first bytes of one of its files. Stores nothing on the disk.

Reads all of config.json of a repository in Hugging Face's format, or as much of a GGUF file's header as needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.job import CancelCheck, never
from engine.library.records import Listing, ModelShape, Variant

if TYPE_CHECKING:
    from engine.formats.gguf_header import Header

_FIRST_BYTES = 1 << 20
_MOST_BYTES = 64 << 20  # the largest vocabularies take 20 MiB
_GROWTH = 4
_MAX_CONFIG_BYTES = 4 << 20


class Reader(Protocol):
    """The part of a hub that is needed, as in engine/library/hub/hub.py."""

    def read(self, repo: str, revision: str, name: str, start: int, n_bytes: int) -> bytes: ...


class RemoteName(Protocol):
    @property
    def repo(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def n_bytes(self) -> int: ...


def check_readable(hub: Reader, files: Sequence[RemoteName], cancelled: CancelCheck = never) -> None:
    """Check the header of a model before it is downloaded, if its format has one.

    Cost: reads up to 20 MiB of a GGUF file, config.json of others. Raises: UnsupportedModelError and ModelFormatError
    if Hearth cannot read it, and the errors of `hub.read`.
    """
    from engine.formats.gguf import tensor_table
    from engine.model.families import config_from_gguf, config_from_hf

    ggufs = sorted((file for file in files if file.name.lower().endswith(".gguf")), key=lambda file: file.name)
    if ggufs:
        first = ggufs[0]

        def read(start: int, n_bytes: int) -> bytes:
            return hub.read(first.repo, first.revision, first.name, start, n_bytes)

        header = _head_of_gguf(read, first.name, first.n_bytes, cancelled)
        tensor_table(first.name, first.n_bytes, header)
        try:
            config_from_gguf(header.metadata, {tensor.name for tensor in header.tensors})
        except ModelFormatError:
            if len(ggufs) == 1:  # the first of several need not hold the tensors that complete it
                raise
        return
    for file in files:
        if file.name.rpartition("/")[2] == "config.json" and 0 < file.n_bytes <= _MAX_CONFIG_BYTES:
            config_from_hf(_values_of(hub.read(file.repo, file.revision, file.name, 0, file.n_bytes)), {})
            return


def shape_on_hub(
    hub: Reader, listing: Listing, variant: Variant, cancelled: CancelCheck = never
) -> tuple[ModelShape, int]:
    """Return the shape, and the number of layers that draft tokens, according to the variant's own files.

    Raises: UnsupportedModelError and ModelFormatError if Hearth cannot read it, and the errors of `hub.read`.
    """
    repo, revision = listing.model.repo, listing.revision
    if variant.format in ("gguf", "powerinfer-gguf"):
        first = min((file for file in variant.files if file.name.endswith(".gguf")), key=lambda file: file.name)
        return _of_gguf(lambda start, n_bytes: hub.read(repo, revision, first.name, start, n_bytes),
                        first.name, first.n_bytes, cancelled)  # fmt: skip
    config = next((file for file in variant.files if file.name.rpartition("/")[2] == "config.json"), None)
    if config is None:
        raise UnsupportedModelError("The repository has no config.json, which says what the model is.")
    if config.n_bytes > _MAX_CONFIG_BYTES:
        raise ModelFormatError(f"config.json has {config.n_bytes} bytes; at most {_MAX_CONFIG_BYTES} are read.")
    return _of_config(hub.read(repo, revision, config.name, 0, config.n_bytes))


def _of_config(data: bytes) -> tuple[ModelShape, int]:
    from engine.library.estimate.shapes import shape_of
    from engine.model.families import config_from_hf, n_draft_layers

    values = _values_of(data)
    config = config_from_hf(values, {})
    return shape_of(config), n_draft_layers(config, values)


def _values_of(data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError("config.json is damaged: it is not JSON.") from error
    if not isinstance(values, dict):
        raise ModelFormatError("config.json is damaged: it is not a JSON object.")
    return values


def _of_gguf(
    read: Callable[[int, int], bytes], name: str, file_bytes: int, cancelled: CancelCheck
) -> tuple[ModelShape, int]:
    from engine.library.estimate.shapes import shape_of
    from engine.model.families import config_from_gguf, n_draft_layers

    header = _head_of_gguf(read, name, file_bytes, cancelled)
    config = config_from_gguf(header.metadata, {tensor.name for tensor in header.tensors})
    return shape_of(config), n_draft_layers(config, header.metadata)


def _head_of_gguf(read: Callable[[int, int], bytes], name: str, file_bytes: int, cancelled: CancelCheck) -> Header:
    """Read more and more of the file's beginning until its header is complete."""
    from engine.formats.gguf_header import Budget, read_header

    data = b""
    wanted = min(_FIRST_BYTES, file_bytes)
    while True:
        data += read(len(data), wanted - len(data))
        try:
            return read_header(name, np.frombuffer(data, dtype=np.uint8), Budget())
        except ModelFormatError:
            if len(data) < wanted or wanted >= min(file_bytes, _MOST_BYTES) or cancelled():
                raise
            wanted = min(wanted * _GROWTH, file_bytes, _MOST_BYTES)
