"""Where what Hearth makes of a model (statistics, predictors, placements) is kept, found, written and read again.

docs/bundle.md, section 6 is the rule. What a model brings along in other forms is model_artefacts.py's; nothing
is counted, trained or solved here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.bundle.bundle import BundleSource, add_artefact, check_artefact, open_bundle
from engine.bundle.bundle_manifest import ARTEFACT_FOLDER
from engine.errors import ArtifactMismatchError, ModelFormatError, ModelNotFoundError
from engine.job import never
from engine.sparsity import placement as placements
from engine.sparsity import predictor as predictors
from engine.sparsity import stats as statistics
from engine.sparsity.artifact_files import Listing, head_file, read_head, read_head_object, tensors_file
from engine.sparsity.placement import Placement
from engine.sparsity.predictor import Predictor
from engine.sparsity.stats import NeuronStats

if TYPE_CHECKING:  # model_files.py asks this module what a model has
    from engine.model.model_files import OpenedModel

Kind = Literal["predictors", "statistics", "placement"]

# What an artefact's files are called, wherever they lie.
NAMES: dict[Kind, str] = {
    "predictors": predictors.ARTIFACT_NAME,
    "statistics": statistics.ARTIFACT_NAME,
    "placement": placements.ARTIFACT_NAME,
}
_END_BYTES = 64 << 10


def fingerprint(opened: OpenedModel) -> str:
    """SHA-256 over the model's metadata, its tensor table and both ends of each tensor; a bundle states its own.

    The same for every copy of the files, wherever they lie. `OpenedModel.fingerprint` remembers it.
    Cost: 128 KiB of reading per tensor.
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
    """A metadata value that JSON does not know: an array is named by all of its content."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    return str(value)


def artefact_folder(opened: OpenedModel) -> Path:
    """The folder of the model's artefacts: inside a bundle, else under its fingerprint. It may not exist yet."""
    if isinstance(opened.source, BundleSource):
        return opened.source.path / ARTEFACT_FOLDER
    return _root() / opened.fingerprint


def find(opened: OpenedModel, kind: Kind) -> Path | None:
    """The folder that holds the model's artefact of that kind; None where there is none. Whether it fits is not said.

    What was made here counts before what came with the model; what lies beside a model and names another is none of its
    artefacts: several models may share a folder.
    Cost: as `fingerprint` where anything was ever made of a model that is no bundle.
    Raises: ModelNotFoundError where the folder may not be read.
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


def is_kept(fingerprint: str, kind: Kind) -> bool:
    """Whether an artefact of that kind was made of the model, which is no bundle, and lies in the artefacts' folder."""
    return head_file(_root() / fingerprint, NAMES[kind]).is_file()


def _may_be_of(head: Path, opened: OpenedModel) -> bool:
    """Whether the artefact's head names this model; a damaged one may, and tells what is wrong when it is used."""
    try:
        return read_head_object(head).get("model") == opened.fingerprint
    except ModelFormatError:
        return True


def folder_beside(opened: OpenedModel) -> Path:
    """Where artefacts lie that come with a model that is no bundle: `artefacts` in its folder, or in its file's."""
    path = opened.files.path
    return (path if path.is_dir() else path.parent) / ARTEFACT_FOLDER


def check(opened: OpenedModel, kind: Kind) -> tuple[Path, str, str]:
    """The folder of the artefact, and what its head must say: the fingerprint, and the activation if any.

    Raises: ModelNotFoundError where there is none, ArtifactMismatchError where a bundle's files are not those that it
    lists, or where they are another model's.
    """
    folder = find(opened, kind)
    if folder is None:
        raise ModelNotFoundError(f"There are no {kind} of {opened.name} in {artefact_folder(opened)}.", "Make them.")
    if isinstance(opened.source, BundleSource):
        manifest = opened.source.manifest
        if manifest.artefacts[kind].files != tuple(f"{ARTEFACT_FOLDER}/{name}" for name in file_names(kind)):
            raise ArtifactMismatchError(f"The {kind} of the bundle {opened.name} lie in other files than Hearth's.")
        check_artefact(opened.source.path, manifest, kind)
        return folder, manifest.artefacts[kind].fingerprint, opened.config.activation_text
    return folder, opened.fingerprint, opened.config.activation_text


def load_predictor(opened: OpenedModel, as_stored: bool = False) -> Predictor:
    """The model's own predictor artefact; as_stored as in `Predictor.load`.

    Raises: as `check` does, and ModelFormatError for damage.
    """
    return Predictor.load(*check(opened, "predictors"), as_stored)


def load_stats(opened: OpenedModel) -> NeuronStats:
    """The model's own statistics artefact. Raises: as `check` does, and ModelFormatError for damage."""
    folder, *made_from = check(opened, "statistics")
    stats = NeuronStats.load(folder, *made_from)
    came_along = not isinstance(opened.source, BundleSource) and folder == folder_beside(opened)
    return replace(stats, source="shipped") if came_along else stats


def check_stats(opened: OpenedModel) -> None:
    """Whether the model's own statistics can be used, as far as their head tells. Raises as `load_stats` does."""
    folder, made_for, activation = check(opened, "statistics")
    read_head(folder, statistics.ARTIFACT_NAME, statistics.SCHEMA_VERSION, made_for, activation)


def load_placement(opened: OpenedModel) -> Placement:
    """The model's own placement; for which machine and budget, its origins say.

    Raises: as `check` does, and ModelFormatError for damage.
    """
    placement = Placement.load(*check(opened, "placement"))
    placement.check_against(opened.config.n_layers, opened.config.n_neurons)
    return placement


def save_predictor(
    opened: OpenedModel,
    predictor: Predictor,
    progress: Callable[[int], None] = lambda done: None,
    cancelled: Callable[[], bool] = never,
) -> Path:
    """Keeps a predictor as the model's own, in place of an older one; its head's path back.

    It is stamped with the model and the activation that the model is run with.
    Units: progress reports bytes written.
    Raises: ArtifactMismatchError for one of another shape, InvalidRequestError where the folder cannot be written,
    DiskSpaceError, Cancelled.
    """
    config = opened.config
    predictor.check_against(config.n_layers, config.d_model, config.d_ff)
    stamped = replace(predictor, model=opened.fingerprint, activation=config.activation_text)
    listing = _listing(opened, "predictors", predictors.SCHEMA_VERSION)
    return stamped.save(artefact_folder(opened), progress, cancelled, listing)


def save_stats(opened: OpenedModel, stats: NeuronStats) -> Path:
    """Keeps statistics as the model's own, in place of older ones; their head's path back.

    They are stamped as a predictor is.
    Raises: ArtifactMismatchError for those of another shape, InvalidRequestError where the folder cannot be written,
    DiskSpaceError.
    """
    stats.check_against(opened.config.n_layers, opened.config.n_neurons)
    stamped = replace(stats, model=opened.fingerprint, activation=opened.config.activation_text)
    return stamped.save(artefact_folder(opened), _listing(opened, "statistics", statistics.SCHEMA_VERSION))


def save_placement(opened: OpenedModel, placement: Placement) -> Path:
    """Keeps a placement as the model's own, in place of an older one; its head's path back.

    Raises: ArtifactMismatchError for one of another shape, InvalidRequestError where the folder cannot be written,
    DiskSpaceError.
    """
    placement.check_against(opened.config.n_layers, opened.config.n_neurons)
    made_for = replace(placement.origins, model=opened.fingerprint, activation=opened.config.activation_text)
    made = replace(placement, origins=made_for)
    return made.save(artefact_folder(opened), _listing(opened, "placement", placements.SCHEMA_VERSION))


def file_names(kind: Kind) -> tuple[str, str]:
    """The files of an artefact, the head first."""
    return tuple(file(Path(), NAMES[kind]).name for file in (head_file, tensors_file))  # type: ignore[return-value]


def _listing(opened: OpenedModel, kind: Kind, schema_version: int) -> Listing | None:
    """What makes new files count that lie beside the older ones: in a bundle its manifest; None for other models."""
    source = opened.source
    if not isinstance(source, BundleSource):
        return None
    open_bundle(source.path)  # a death may have left files beside their place: these are not to be written over

    def listing() -> None:
        names, made_for = file_names(kind), opened.fingerprint
        source.manifest = add_artefact(source.path, kind, names, schema_version, made_for, as_parts=True)

    return listing


def _root() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "artefacts"
