"""Cache facts from the headers of models until their files change. Reading a header takes up to a second."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from engine.bundle import artefacts
from engine.bundle.bundle import BundleSource
from engine.errors import EngineError
from engine.formats.json_text import read_object
from engine.library.owned.library_file import write_durably
from engine.library.records import ModelKind
from engine.loading.embedding_models import pooling_of
from engine.loading.opening import read_tokenizer, vocabulary_fingerprint
from engine.model.model_files import OpenedModel, open_model
from engine.plain_config import from_plain
from engine.sparsity.powerinfer_predictors import has_own_predictors

log = logging.getLogger(__name__)

_VERSION = 4
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Head:
    """reason: why Hearth cannot read the model, else empty. parted: computing its neurons separately pays off, because
    some are inactive. predicted: it includes predictors. fingerprint: identifies the folder of its artefacts; empty if
    it has none. kind: what it was trained for; empty: unknown. vocabulary: its `vocabulary_fingerprint`;
    empty if it cannot be read.
    """

    reason: str
    name: str = ""
    format: str = ""
    parted: bool = False
    predicted: bool = False
    fingerprint: str = ""
    kind: ModelKind | Literal[""] = ""
    vocabulary: str = ""


class Heads:
    """Cached headers, stored in a file. Thread-safe. A damaged file costs only time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._heads: dict[str, Head] | None = None
        self._changed = False

    def get(self, path: Path, activation: str, files: tuple[Path, ...]) -> Head:
        """Return the header of the model at `path`, which consists of these files.

        Cost: reads their sizes and times; opens the model if they changed.
        """
        key = _key(path, activation, files)
        with self._lock:
            if self._heads is None:
                self._heads = self._read()
            found = self._heads.get(key)
        if found is None:
            found = read_head(path, activation)
            with self._lock:
                self._heads[key] = found
                self._changed = True
        return found

    def keep(self, limit: int = 2000) -> None:
        """Write the newest `limit` headers to the file."""
        with self._lock:
            if not self._changed or self._heads is None:
                return
            self._heads = dict(list(self._heads.items())[-limit:])
            values = {"version": _VERSION, "heads": {key: asdict(head) for key, head in self._heads.items()}}
            self._changed = False
        try:
            if self._file.parent.is_dir():
                write_durably(self._file, json.dumps(values).encode())
        except OSError as error:
            log.debug("%s is not kept: %s", self._file, error)

    def _read(self) -> dict[str, Head]:
        try:
            values = read_object(self._file, max_bytes=_MAX_BYTES, max_values=1 << 17)
            if values.get("version") != _VERSION:
                return {}
            found: Any = from_plain(dict[str, Head], values.get("heads"), "heads")
        except EngineError:
            return {}
        return dict(found)


def read_head(path: Path, activation: str) -> Head:
    """Open the model and return its header. Cost: its metadata; 128 KiB per tensor if it could be prepared."""
    try:
        opened = open_model(path, activation or None)
        config = opened.config
        parted = config.predicts_neurons
        is_bundle = isinstance(opened.source, BundleSource)
        beside = opened.files.predictors is not None or has_own_predictors(opened.source)
        if parted and not beside:  # in a bundle, or come along
            found = artefacts.find(opened, "predictors")
            beside = found is not None and (is_bundle or found == artefacts.folder_beside(opened))
        predicted = parted and beside
        fingerprint = opened.fingerprint if parted and not predicted and not is_bundle else ""
    except EngineError as error:
        return Head(error.message)
    except Exception as error:  # noqa: BLE001 - one strange file must not hide all other models
        log.warning("%s cannot be opened: %r", path, error)
        return Head("Hearth cannot read it: its head is damaged.")
    return Head("", opened.name, opened.format, parted, predicted, fingerprint, _kind(opened), _vocabulary(opened))


def _kind(opened: OpenedModel) -> ModelKind | Literal[""]:
    """Return what the model was trained for. Cost: builds its vocabulary if the header has no template."""
    if pooling_of(opened) is not None:
        return "embedding"
    if opened.metadata.get("tokenizer.chat_template"):
        return "chat"
    try:
        return read_tokenizer(opened).kind
    except Exception as error:  # noqa: BLE001 - loading the model says what is wrong with its vocabulary
        log.debug("%s: its vocabulary does not say what it was trained for: %r", opened.name, error)
        return ""


def _vocabulary(opened: OpenedModel) -> str:
    try:
        return vocabulary_fingerprint(opened)
    except Exception as error:  # noqa: BLE001 - loading the model says what is wrong with its vocabulary
        log.debug("%s: its vocabulary cannot be compared with others: %r", opened.name, error)
        return ""


def _key(path: Path, activation: str, files: tuple[Path, ...]) -> str:
    seen: list[object] = [str(path), activation]
    for file in files:
        try:
            found = file.stat()
            seen.append([str(file), found.st_size, found.st_mtime_ns])
        except OSError:
            seen.append([str(file), None])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()
