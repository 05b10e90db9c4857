"""Copy a model's predictors and statistics into a bundle.

engine/conversion/convert.py decides when, and what is kept of an interrupted conversion.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from engine.bundle import artefacts
from engine.errors import EngineError
from engine.job import CancelCheck, CountProgress, never
from engine.model.model_artefacts import predictor_place, predictor_sizes, read_predictor, read_stats
from engine.model.model_files import OpenedModel
from engine.sparsity import predictor as predictors
from engine.sparsity import stats as statistics
from engine.sparsity.artifact_files import head_file


@dataclass(frozen=True)
class Carried:
    """An artefact to write. n_bytes: an estimate. origin: identifies its source."""

    kind: artefacts.Kind
    n_bytes: int
    origin: str
    of_experts: bool = False

    @property
    def schema_version(self) -> int:
        of_predictors = predictors.VERSION_OF_EXPERTS if self.of_experts else predictors.SCHEMA_VERSION
        return of_predictors if self.kind == "predictors" else statistics.SCHEMA_VERSION


def plan_carried(opened: OpenedModel) -> tuple[Carried, ...]:
    """Return the artefacts to copy. Unreadable ones fail only when written."""
    found = []
    if (place := predictor_place(opened)) is not None:
        try:
            n_bytes = predictor_sizes(opened).stored
        except EngineError:  # reported as a warning when it is written
            n_bytes = 0
        folder = opened.files.predictors if place == "folder" else None
        origin = "weights" if place == "file" else _origin(opened, "predictors", folder)
        found.append(Carried("predictors", n_bytes, origin, opened.config.n_experts > 0))
    if opened.has_stats:
        n_bytes = 8 * opened.config.n_layers * opened.config.d_ff
        found.append(Carried("statistics", n_bytes, _origin(opened, "statistics", opened.files.stats)))
    return tuple(found)


def write_carried(
    opened: OpenedModel,
    carried: Carried,
    folder: Path,
    progress: CountProgress = lambda done: None,
    cancelled: CancelCheck = never,
) -> None:
    """Write the artefact's files into the folder, stamped with the model's fingerprint and its old activation.

    Raises: as `read_predictor` and `read_stats`, DiskSpaceError, InvalidRequestError, Cancelled.
    """
    if carried.kind == "predictors":
        predictor = read_predictor(opened, as_stored=True)
        replace(predictor, model=opened.fingerprint).save(folder, progress, cancelled)
        return
    stats = read_stats(opened)
    assert stats is not None, "it is planned only where there are some"
    replace(stats, model=opened.fingerprint).save(folder)


def _origin(opened: OpenedModel, kind: artefacts.Kind, folder: Path | None) -> str:
    """Identify an artefact's source without reading all of it: a head, or names, sizes and times of files."""
    own = artefacts.find(opened, kind)
    digest = hashlib.sha256()
    if own is not None:
        head = head_file(own, artefacts.NAMES[kind])
        digest.update(head.read_bytes() if head.is_file() else b"")
        digest.update(opened.config.activation_text.encode())  # another activation may leave it behind
    elif folder is not None:
        for file in sorted(folder.iterdir()):
            about = file.stat()
            digest.update(f"{file.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()
