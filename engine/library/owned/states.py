"""The state of an installed model: ready, needs preparing, or broken and why. Uses only sizes and headers."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal

from engine.assets import starter_model
from engine.bundle import artefacts
from engine.bundle.bundle import is_bundle
from engine.bundle.bundle_manifest import MANIFEST
from engine.errors import ModelNotFoundError
from engine.files import spelled
from engine.library.owned.heads import Head, Heads
from engine.library.owned.imports import is_fixed
from engine.library.owned.library_file import Contents
from engine.library.owned.stored_models import FoundModel, StoredModel, as_line, file_below, with_remarks
from engine.library.records import InstalledFile, InstalledModel, InstalledState, ModelKind

STARTER_ID = "hearth/starter-chat"
NOT_PREPARED = "Prepare it once to make it faster on this PC."  # fits a line of the model's card


def installed(model: StoredModel, heads: Heads) -> InstalledModel:
    """Return the model as it is now. Cost: as `Heads.get`."""
    folder = spelled(Path(model.folder))
    prepared = str(spelled(Path(model.prepared))) if model.prepared else ""
    prepared = prepared if prepared and is_bundle(Path(prepared)) else ""
    path = file_below(folder, model.path) if model.path else folder
    state, reason, head = _state(model, folder, path, prepared, heads)
    return InstalledModel(
        id=model.id,
        name=model.name,
        folder=str(folder),
        path=str(path),
        files=model.files,
        n_bytes=model.n_bytes,
        owned=model.owned,
        origin=model.origin,
        state=state,
        reason=reason,
        repo=model.repo,
        revision=model.revision,
        catalogue_id=model.catalogue_id,
        activation=model.activation,
        template=model.template,
        licence=model.licence,
        kind=_kind(model, state, head),
        vocabulary=head.vocabulary,
        added=model.added,
        prepared=prepared,
        measured_tok_s=model.measured_tok_s,
    )


def _kind(model: StoredModel, state: InstalledState, head: Head) -> ModelKind | Literal[""]:
    """Return the model's kind. A template that the list names makes chats of any other than an embedding model."""
    if head.kind == "embedding":
        return head.kind
    return model.kind or ("chat" if model.template and state != "broken" else head.kind)


def starter(contents: Contents, heads: Heads) -> StoredModel | None:
    """Return the bundled model; None if it is missing."""
    try:
        folder = starter_model()
    except ModelNotFoundError:
        return None
    files = [InstalledFile(path.name, path.stat().st_size, "") for path in sorted(folder.glob("*.gguf"))]
    if not files:
        return None
    head = heads.get(folder, "", tuple(folder / file.name for file in files))
    model = StoredModel(STARTER_ID, head.name or "Starter", str(folder), tuple(files), False, "shipped", kind="chat")
    return with_remarks(model, contents.remarks.get(STARTER_ID))


def from_elsewhere(found: FoundModel, id: str, contents: Contents) -> StoredModel | None:
    """Return a model of the hub's cache or of another program; None if a file vanishes meanwhile."""
    try:
        files = [InstalledFile(name, file_below(found.folder, name).stat().st_size, "") for name in found.names]
    except OSError:
        return None
    model = StoredModel(
        id, as_line(found.name), str(found.folder), tuple(files), False, found.origin,
        path=found.path, repo=found.repo, revision=found.revision,
    )  # fmt: skip
    return with_remarks(model, contents.remarks.get(id))


def file_problem(model: StoredModel, folder: Path) -> str:
    """Return the problem with the model's files, according to names and sizes; empty: none."""
    if not os.path.isdir(folder):
        return f"Its folder {folder} is not there. If it is on another disk, connect that."
    of_bundle = not model.path and any(file.name == MANIFEST for file in model.files)
    for file in model.files:
        if of_bundle and not is_fixed(file.name):  # preparing changes those
            continue
        try:
            found = file_below(folder, file.name).stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return f"Its file {file.name} is missing."
            return f"Its file {file.name} cannot be read: {error.strerror or error}."
        if found.st_size != file.n_bytes:
            return f"Its file {file.name} has {found.st_size} bytes; it had {file.n_bytes} bytes when it was imported."
    return ""


def _state(
    model: StoredModel, folder: Path, path: Path, prepared: str, heads: Heads
) -> tuple[InstalledState, str, Head]:
    needs = model.still_needed or ""
    reason = file_problem(model, folder)
    if reason:
        # the bundle is loaded instead, and it exists
        return ("ready", "", Head("")) if prepared and not needs else ("broken", reason, Head(reason))
    files = tuple(file_below(folder, file.name) for file in model.files)
    head = heads.get(path, model.activation, files)
    if head.reason:
        return "broken", head.reason, head
    never_prepared = model.still_needed is None and not prepared
    if never_prepared and head.parted and not head.predicted:
        made = head.fingerprint and artefacts.is_stored(head.fingerprint, "predictors")
        needs = "" if made else NOT_PREPARED
    return ("needs preparing", needs, head) if needs else ("ready", "", head)
