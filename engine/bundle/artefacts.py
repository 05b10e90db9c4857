"""Find, store and load a model's artefacts: statistics, predictors, placements.

docs/bundle.md, section 6 has the rules. model_artefacts.py reads the forms that other projects ship. Nothing is
counted, trained or solved here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from engine.bundle.bundle import BundleSource, add_artefact, check_artefact, open_bundle
from engine.bundle.bundle_manifest import ARTEFACT_FOLDER
from engine.config import ModelConfig
from engine.errors import ArtifactMismatchError, ModelFormatError, ModelNotFoundError
from engine.formats import TensorSource
from engine.job import CancelCheck, CountProgress, never
from engine.sparsity import placement as placements
from engine.sparsity import predictor as predictors
from engine.sparsity import stats as statistics
from engine.sparsity.artifact_files import Listing, head_file, read_head, read_head_object, tensors_file
from engine.sparsity.placement import Placement
from engine.sparsity.predictor import Predictor
from engine.sparsity.stats import NeuronStats


class Located(Protocol):
    """Files of a model. path: the requested one."""

    @property
    def path(self) -> Path: ...


class OpenFiles(Protocol):
    """An open model, as engine.model.model_files.OpenedModel is one."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def source(self) -> TensorSource: ...
    @property
    def files(self) -> Located: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


Kind = Literal["predictors", "statistics", "placement"]

# Names of an artefact's files, wherever they are stored.
NAMES: dict[Kind, str] = {
    "predictors": predictors.ARTIFACT_NAME,
    "statistics": statistics.ARTIFACT_NAME,
    "placement": placements.ARTIFACT_NAME,
}
_END_BYTES = 64 << 10


def fingerprint(opened: OpenFiles) -> str:
    """Return SHA-256 over the metadata, the tensor table and both ends of each tensor; a bundle states its own.

    Every copy of the files has the same fingerprint. `OpenedModel.fingerprint` caches it.
    Cost: reads 128 KiB per tensor.
    """
    if isinstance(opened.source, BundleSource):
        return opened.source.manifest.fingerprint
    table = [
        [info.name, list(info.shape), info.codec, info.n_bytes]
        for info in sorted(opened.source.tensors.values(), key=lambda info: info.name)
    ]
    digest = hashlib.sha256()
    for part in (dict(opened.metadata), table):
        text = json.dumps(part, sort_keys=True, separators=(",", ":"), default=_named).encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    for name, *_ in table:
        data = opened.source.view(str(name))
        digest.update(data[:_END_BYTES].tobytes())
        digest.update(data[max(0, len(data) - _END_BYTES) :].tobytes())
    return digest.hexdigest()


def _named(value: Any) -> Any:
    """Encode a metadata value that JSON does not support. An array is represented by a hash of all its content."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    return str(value)


def artefact_folder(opened: OpenFiles) -> Path:
    """Return the folder of the model's artefacts: inside a bundle, otherwise by fingerprint. It may not exist."""
    if isinstance(opened.source, BundleSource):
        return opened.source.path / ARTEFACT_FOLDER
    return _root() / opened.fingerprint


def find(opened: OpenFiles, kind: Kind) -> Path | None:
    """Return the folder with the model's artefact of this kind, without checking that it fits; None if there is none.

    Artefacts made here precede those that came with the model. Several models may share a folder, so artefacts that
    name another model are ignored.
    Cost: as `fingerprint`, if any artefact of a model other than a bundle exists.
    Raises: ModelNotFoundError if the folder is unreadable.
    """
    source = opened.source
    if isinstance(source, BundleSource):
        return source.path / ARTEFACT_FOLDER if kind in source.manifest.artefacts else None
    root, beside = _root(), folder_beside(opened)
    try:
        if root.is_dir() and next(root.iterdir(), None) is not None:
            folder = artefact_folder(opened)
            if head_file(folder, NAMES[kind]).is_file():
                return folder
        head = head_file(beside, NAMES[kind])
        return beside if head.is_file() and _may_be_of(head, opened) else None
    except OSError as error:
        raise ModelNotFoundError(
            f"{error.filename or root} cannot be read: {error.strerror or error}.", "Make the folder readable."
        ) from error


def is_stored(fingerprint: str, kind: Kind) -> bool:
    """Return whether the artefact folder has this kind for a model that is not a bundle."""
    return head_file(_root() / fingerprint, NAMES[kind]).is_file()


def _may_be_of(head: Path, opened: OpenFiles) -> bool:
    """Return whether the artefact's head names this model. A damaged head counts; using it reports the damage."""
    try:
        return read_head_object(head).get("model") == opened.fingerprint
    except ModelFormatError:
        return True


def folder_beside(opened: OpenFiles) -> Path:
    """Return the folder of artefacts that come with a model other than a bundle: `artefacts` beside its files."""
    path = opened.files.path
    return (path if path.is_dir() else path.parent) / ARTEFACT_FOLDER


def check(opened: OpenFiles, kind: Kind) -> tuple[Path, str, str]:
    """Return the artefact's folder, and the fingerprint and activation that its head must state.

    Raises: ModelNotFoundError if there is none, ArtifactMismatchError if a bundle's files differ from its list or
    belong to another model.
    """
    folder = find(opened, kind)
    if folder is None:
        raise ModelNotFoundError(f"There are no {kind} of {opened.name} in {artefact_folder(opened)}.", "Make them.")
    if isinstance(opened.source, BundleSource):
        manifest = opened.source.manifest
        if manifest.artefacts[kind].files != tuple(f"{ARTEFACT_FOLDER}/{name}" for name in file_names(kind)):
            raise ArtifactMismatchError(f"The {kind} of the bundle {opened.name} are in other files than Hearth's.")
        check_artefact(opened.source.path, manifest, kind)
        return folder, manifest.artefacts[kind].fingerprint, opened.config.activation_text
    return folder, opened.fingerprint, opened.config.activation_text


def load_predictor(opened: OpenFiles, as_stored: bool = False) -> Predictor:
    """Load the model's own predictor; as_stored as in `Predictor.load`.

    Raises: as `check`, and ModelFormatError for damage.
    """
    return Predictor.load(*check(opened, "predictors"), as_stored)


def load_stats(opened: OpenFiles) -> NeuronStats:
    """Load the model's own statistics. Raises: as `check`, and ModelFormatError for damage."""
    folder, *made_from = check(opened, "statistics")
    stats = NeuronStats.load(folder, *made_from)
    came_along = not isinstance(opened.source, BundleSource) and folder == folder_beside(opened)
    return replace(stats, source="shipped") if came_along else stats


def check_stats(opened: OpenFiles) -> None:
    """Check the head of the model's own statistics. Raises: as `load_stats`."""
    folder, made_for, activation = check(opened, "statistics")
    read_head(folder, statistics.ARTIFACT_NAME, statistics.SCHEMA_VERSION, made_for, activation)


def load_placement(opened: OpenFiles) -> Placement:
    """Load the model's own placement. Its origins state the machine and budget.

    Raises: as `check`, and ModelFormatError for damage.
    """
    placement = Placement.load(*check(opened, "placement"))
    placement.check_against(opened.config.n_layers, opened.config.n_placed_neurons)
    return placement


def save_predictor(
    opened: OpenFiles,
    predictor: Predictor,
    progress: CountProgress = lambda done: None,
    cancelled: CancelCheck = never,
) -> Path:
    """Store a predictor as the model's own, replacing an older one; return its head's path.

    It is stamped with the model and its current activation.
    Units: progress in bytes written.
    Raises: ArtifactMismatchError for another shape, InvalidRequestError if the folder cannot be written,
    DiskSpaceError, Cancelled.
    """
    config = opened.config
    predictor.check_against(config.n_layers, config.d_model, config.n_placed_neurons)
    stamped = replace(predictor, model=opened.fingerprint, activation=config.activation_text)
    listing = _listing(opened, "predictors", predictor.version)
    return stamped.save(artefact_folder(opened), progress, cancelled, listing)


def save_stats(opened: OpenFiles, stats: NeuronStats) -> Path:
    """Store statistics as the model's own, replacing older ones; return their head's path.

    They are stamped like a predictor.
    Raises: ArtifactMismatchError for another shape, InvalidRequestError if the folder cannot be written,
    DiskSpaceError.
    """
    stats.check_against(opened.config.n_layers, opened.config.n_neurons)
    stamped = replace(stats, model=opened.fingerprint, activation=opened.config.activation_text)
    return stamped.save(artefact_folder(opened), _listing(opened, "statistics", statistics.SCHEMA_VERSION))


def save_placement(opened: OpenFiles, placement: Placement) -> Path:
    """Store a placement as the model's own, replacing an older one; return its head's path.

    Raises: ArtifactMismatchError for another shape, InvalidRequestError if the folder cannot be written,
    DiskSpaceError.
    """
    placement.check_against(opened.config.n_layers, opened.config.n_placed_neurons)
    made_for = replace(placement.origins, model=opened.fingerprint, activation=opened.config.activation_text)
    made = replace(placement, origins=made_for)
    return made.save(artefact_folder(opened), _listing(opened, "placement", placements.SCHEMA_VERSION))


def file_names(kind: Kind) -> tuple[str, str]:
    """Return the files of an artefact, head first."""
    return tuple(file(Path(), NAMES[kind]).name for file in (head_file, tensors_file))  # type: ignore[return-value]


def _listing(opened: OpenFiles, kind: Kind, schema_version: int) -> Listing | None:
    """Return the function that makes new files valid by listing them in the bundle's manifest; None otherwise."""
    source = opened.source
    if not isinstance(source, BundleSource):
        return None
    open_bundle(source.path)  # a crash may have left files to put in place; do not overwrite them

    def listing() -> None:
        names, made_for = file_names(kind), opened.fingerprint
        source.manifest = add_artefact(source.path, kind, names, schema_version, made_for, as_parts=True)

    return listing


def _root() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "artefacts"
