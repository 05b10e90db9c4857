"""A request for a download: a catalogue entry, a variant of a repository, or damaged files of an installed model.

It makes no requests and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.errors import InvalidRequestError
from engine.library.hub.hub_names import parse_repository
from engine.library.hub.variants import PREDICTOR_FOLDER
from engine.library.owned.stored_models import StoredModel
from engine.library.records import CatalogueEntry, InstalledModel


class ModelStore(Protocol):
    """Where downloads store and register models: the interface of Library in engine/library/owned/installed.py."""

    @property
    def folder(self) -> Path: ...
    def folder_for(self, id: str) -> Path: ...
    def id_for(self, repo: str, variant: str = "") -> str: ...
    def register(self, model: StoredModel) -> InstalledModel: ...


@dataclass(frozen=True)
class DownloadRequest:
    """A requested model. patterns: names or patterns of its files, of which the first must match; without patterns,
    variant: one that the repository offers, empty for its only one. trusted: names of files just verified in place.
    """

    model: str
    name: str
    repo: str
    revision: str = "main"
    patterns: tuple[str, ...] = ()
    variant: str = ""
    predictor_repo: str = ""
    catalogue_id: str = ""
    activation: str = ""
    template: str = ""
    licence: str = ""
    kind: str = ""
    n_bytes: int = 0  # as far as is known
    trusted: tuple[str, ...] = ()


def of_entry(entry: CatalogueEntry, store: ModelStore) -> DownloadRequest:
    variant = entry.codec if entry.format in ("gguf", "powerinfer-gguf") else ""
    return DownloadRequest(
        store.id_for(entry.repo, variant), entry.name, entry.repo, entry.revision, entry.files,
        predictor_repo=entry.predictor_repo, catalogue_id=entry.id, activation=entry.activation,
        template=entry.template, licence=entry.licence, kind=entry.kind, n_bytes=entry.n_bytes,
    )  # fmt: skip


def of_variant(repo: str, variant: str, store: ModelStore, endpoint: str) -> DownloadRequest:
    """Return the request for a variant of a repository, named as in engine/library/hub/variants.py or by its file;
    empty: its only one.

    repo: its id, or the address of its page. Raises: InvalidRequestError if it is not a repository.
    """
    repo, revision = parse_repository(repo, endpoint)
    called = variant.rsplit("/", 1)[-1].removesuffix(".gguf")
    id = store.id_for(repo, "" if variant == "safetensors" else called)
    name = repo.partition("/")[2] + (f" {called}" if called and variant != "safetensors" else "")
    return DownloadRequest(id, name, repo, revision or "main", variant=variant)


def of_repair(
    model: InstalledModel, damaged: Sequence[str] = (), entry: CatalogueEntry | None = None
) -> DownloadRequest:
    """Return the request for the files of an installed model that differ from the hub's.

    damaged: their names; empty: check all files. entry: the model's catalogue entry, if any. Raises:
    InvalidRequestError for a model that did not come from a hub.
    """
    if not model.repo or not model.owned:
        raise InvalidRequestError(f"{model.name} was not downloaded by Hearth.", "Import or download it again.")
    predictors = entry.predictor_repo if entry is not None else ""
    own = [f.name for f in model.files if not (predictors and f.name.startswith(PREDICTOR_FOLDER + "/"))]
    return DownloadRequest(
        model.id, model.name, model.repo, model.revision or "main", tuple(_escaped(name) for name in own),
        predictor_repo=predictors, catalogue_id=model.catalogue_id, activation=model.activation,
        template=model.template, licence=model.licence, kind=model.kind, n_bytes=model.n_bytes,
        trusted=tuple(file.name for file in model.files if damaged and file.name not in damaged),
    )  # fmt: skip


def _escaped(name: str) -> str:
    """Return a pattern that matches only this file name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
