"""Where what Hearth makes of a model (statistics, predictors, placements) is kept, and the name that a model has there.

A bundle keeps its artefacts itself. It reads no weights beyond the ends of each tensor.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.bundle import BundleSource
from engine.bundle_manifest import ARTEFACT_FOLDER
from engine.model.model_files import OpenedModel

_END_BYTES = 64 << 10


def fingerprint(opened: OpenedModel) -> str:
    """SHA-256 over the model's metadata, its tensor table and both ends of each tensor; a bundle states its own.

    The same for every copy of the files, wherever they lie. Cost: 128 KiB of reading per tensor.
    """
    if isinstance(opened.source, BundleSource):
        return opened.source.manifest.fingerprint
    table = [
        [info.name, list(info.shape), info.codec, info.n_bytes]
        for info in sorted(opened.source.tensors.values(), key=lambda info: info.name)
    ]
    digest = hashlib.sha256()
    for part in (dict(opened.metadata), table):
        text = json.dumps(part, sort_keys=True, separators=(",", ":"), default=str).encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    for name, *_ in table:
        data = opened.source.view(str(name))
        digest.update(data[:_END_BYTES].tobytes())
        digest.update(data[max(0, len(data) - _END_BYTES) :].tobytes())
    return digest.hexdigest()


def artefact_folder(opened: OpenedModel) -> Path:
    """The folder of the model's artefacts: inside a bundle, else under its fingerprint. It may not exist yet."""
    if isinstance(opened.source, BundleSource):
        return opened.source.path / ARTEFACT_FOLDER
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "artefacts" / fingerprint(opened)
