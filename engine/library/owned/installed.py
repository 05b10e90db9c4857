"""The models on this PC: list, find, import, remove and move them.

library_file.py writes the list; imports.py determines a model's files. This module downloads nothing and loads no
weights. Every call reads the list again if it changed, so that the window and the command line see each other's
changes. Thread-safe.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from engine.errors import LibraryError, ModelNotFoundError
from engine.files import spelled
from engine.job import Job, StagedJob
from engine.library.owned import moving, staging_folder, trash
from engine.library.owned.disk_space import check_free_space
from engine.library.owned.heads import Heads
from engine.library.owned.imports import Survey, copy_checked, file_hash, survey
from engine.library.owned.library_file import Contents, LibraryFile, write_receipt
from engine.library.owned.listing import elsewhere, free_id, named, stored, unlisted
from engine.library.owned.owned_files import PREPARED, drop_stale
from engine.library.owned.states import STARTER_ID as STARTER_ID
from engine.library.owned.states import file_problem, installed, starter
from engine.library.owned.stored_models import Remarks, StoredModel, as_line, as_part, checked_id, file_below
from engine.library.records import ELSEWHERE, InstalledFile, InstalledModel

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resolved:
    """The meaning of an installed model's name. path: what to open, the prepared bundle if there is one.

    activation, template: fields of EngineConfig that the model's own files lack; else empty.
    """

    id: str
    name: str
    path: Path
    activation: str = ""
    template: str = ""


class Library:
    """The installed models. home: the folder of library.json; None: the user's."""

    def __init__(self, home: Path | None = None) -> None:
        home = _own_home() if home is None else Path(os.path.abspath(home))
        self._file = LibraryFile(spelled(home))
        self._heads = Heads(self._file.home / "heads.json")

    # --- where

    @property
    def home(self) -> Path:
        """Return the folder of library.json, which does not move with the models."""
        return self._file.home

    @property
    def folder(self) -> Path:
        """Return the folder for new models. It may not exist yet."""
        return self._file.read().folder

    def folder_for(self, id: str) -> Path:
        """Return the folder for a model's files: `<folder>/<owner>/<name>`. It may not exist yet.

        Raises: LibraryError if the id is not "owner/name".
        """
        owner, _, name = checked_id(id).partition("/")
        return spelled(self.folder / owner / name)

    def prepared_folder(self, id: str) -> Path:
        """Return the folder for a model's prepared bundle. Its parent exists; it may not exist itself.

        Raises: LibraryError if the parent cannot be created.
        """
        owner, _, name = checked_id(id).partition("/")
        folder = spelled(self.folder / PREPARED / owner / name)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LibraryError(f"{folder.parent} cannot be made: {error.strerror or error}.") from error
        return folder

    def id_for(self, repo: str, variant: str = "") -> str:
        """Return the id of an installed variant of a repository: "owner/name", or "owner/name-variant".

        Raises: LibraryError if it is not a repository's id.
        """
        owner, slash, name = repo.partition("/")
        if not slash:  # the hub's oldest repositories have no owner
            owner, name = "hub", owner
        part = as_part(variant, "") if variant else ""
        return checked_id(f"{owner}/{name}-{part}" if part else f"{owner}/{name}")

    # --- what is there

    def models(self) -> list[InstalledModel]:
        """Return all models with their state: the bundled one first, then by name.

        Includes those in the hub's cache and of other programs. Cost: reads sizes of files, and headers of those that
        changed since the last call. Raises: LibraryError for a list from a newer version of Hearth.
        """
        with self._reading() as contents:
            others = [installed(model, self._heads) for model in contents.models.values()]
        shipped = starter(contents, self._heads)
        # other programs keep many models that Hearth cannot run; list only those it can
        found = [installed(model, self._heads) for model in elsewhere(contents)]
        others += [model for model in found if model.state != "broken"]
        self._heads.keep()
        first = [] if shipped is None else [installed(shipped, self._heads)]
        return first + sorted(others, key=lambda model: (model.name.casefold(), model.id))

    def get(self, id: str) -> InstalledModel:
        """Return the model with this id. Raises: ModelNotFoundError."""
        with self._reading() as contents:
            return installed(stored(contents, self._heads, id), self._heads)

    def resolve(self, name: str) -> Resolved:
        """Return the model that an id, a name or a catalogue id means, ignoring case.

        Raises: ModelNotFoundError if none or two match, or if it is broken.
        """
        found = self.find(name)
        if found is None:
            raise ModelNotFoundError(f"There is no installed model called {name[:200]!r}.")
        return found

    def look_up(self, name: str) -> InstalledModel | None:
        """Return the model with this id, name or catalogue id, in any state; None without one.

        Raises: ModelNotFoundError if two match.
        """
        with self._reading() as contents:
            meant = named(contents, self._heads, name)
            return None if meant is None else installed(meant, self._heads)

    def find(self, name: str) -> Resolved | None:
        """Like `resolve`, but return None if nothing matches."""
        model = self.look_up(name)
        if model is None:
            return None
        if model.state == "broken":
            raise ModelNotFoundError(f"{model.name} cannot be loaded. {model.reason}", "Repair it, or remove it.")
        if model.prepared:  # it carries its activation itself
            return Resolved(model.id, model.name, Path(model.prepared), template=model.template)
        return Resolved(model.id, model.name, Path(model.path), model.activation, model.template)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Contents]:
        """Yield the list with correct paths: no model moves during the block."""
        contents = self._file.read()
        if not contents.moving_to:
            yield contents
            return
        moving.settle_if_free(self._file)
        with self._file.locked():
            yield self._file.read()

    # --- taking in

    def register(self, model: StoredModel) -> InstalledModel:
        """Add a model whose files are in its folder to the list; it replaces one with the same id.

        owned: the files now belong to Hearth and are deleted with the model; the folder is then `<owner>/<name>` of a
        models folder. Raises: LibraryError if a file is missing or has another size, ModelFormatError and
        UnsupportedModelError if Hearth cannot read it.
        """
        folder = spelled(Path(os.path.abspath(model.folder)))
        model = replace(model, id=checked_id(model.id), folder=str(folder), added=_now())
        model.check()
        if model.owned and f"{folder.parent.name}/{folder.name}" != model.id:
            raise LibraryError(f"{folder} is not where {model.id} belongs.", "Put its files where folder_for says.")
        if problem := file_problem(model, folder):
            raise LibraryError(f"{model.name} cannot be listed. {problem}", "Download it again.")
        survey(file_below(folder, model.path) if model.path else folder, model.activation)
        return self._list(model)

    def _list(self, model: StoredModel) -> InstalledModel:
        with self._file.changing() as contents:
            before = next((old for old in contents.models.values() if old.id.casefold() == model.id.casefold()), None)
            if before is not None:
                del contents.models[before.id]
                if before.files == model.files:
                    model = replace(
                        model, prepared=before.prepared, measured_tok_s=before.measured_tok_s,
                        still_needed=before.still_needed, added=before.added,
                    )  # fmt: skip
            if model.owned:
                if before is not None and before.folder == model.folder:
                    drop_stale(before, model)
                write_receipt(model)
            contents.models[model.id] = model
        return self.get(model.id)

    def add(
        self,
        path: Path,
        copy: bool = False,
        name: str = "",
        job: StagedJob = StagedJob(),
    ) -> InstalledModel:
        """Import a GGUF file (any part of a split one), a Hugging Face folder or a bundle: in place, or copied.

        The job has the stages "copying" and "checking", in bytes. Raises: ModelNotFoundError, ModelFormatError,
        UnsupportedModelError if Hearth cannot read it, DiskSpaceError, LibraryError, Cancelled.
        """
        found = survey(Path(os.path.abspath(os.path.expanduser(path))))
        name = as_line(name) or as_line(found.opened.name) or "Model"
        if copy:
            return self._add_copied(found, name, job)
        with self._file.locked():
            contents = self._file.read()
            here = (str(found.folder), found.path)
            known = [model for model in contents.models.values() if (model.folder, model.path) == here]
            if known and known[0].owned:
                return installed(known[0], self._heads)
            id = known[0].id if known else free_id(contents, name)
            return self._list(StoredModel(id, name, *_of(found), False, "in place", found.path, added=_now()))

    def _add_copied(self, found: Survey, name: str, job: StagedJob) -> InstalledModel:
        root = self.folder
        check_free_space(root, found.n_bytes, doing="copied")
        copying, checking, done, total = job.stage("copying"), job.stage("checking"), 0, found.n_bytes
        with staging_folder.StagingFolder.open(root) as shop:
            copying(0, total)
            files = []
            for file in found.files:
                sha256 = copy_checked(
                    file_below(found.folder, file.name),
                    file_below(shop.folder, file.name),
                    lambda read, before=done: copying(before + read, total),  # type: ignore[misc]
                    lambda read, before=done: checking(before + read, total),  # type: ignore[misc]
                    job.cancelled,
                )
                copy = file_below(shop.folder, file.name)
                files.append(InstalledFile(file.name, copy.stat().st_size, sha256))
                done += file.n_bytes
            survey(file_below(shop.folder, found.path) if found.path else shop.folder)  # the list describes the copy
            with self._file.changing() as contents:
                id = free_id(contents, name, root)
                folder = file_below(root, id)
                model = StoredModel(
                    id, name, str(folder), tuple(files), True, "copied", found.path, added=_now()
                )  # fmt: skip
                write_receipt(model, shop.folder)
                shop.deliver(folder)
                contents.models[id] = model
        return self.get(id)

    # --- giving up

    def remove(self, id: str) -> str:
        """Remove a model from the list and move its files to the trash if they belong to Hearth; return a token for
        `restore`.

        Files used in place, of the hub's cache and of other programs stay. Raises: ModelNotFoundError, LibraryError for
        the bundled model.
        """
        if id == STARTER_ID:
            raise LibraryError("The starter model comes with Hearth and stays.", "Remove another model.")
        with self._file.locked():
            with self._file.changing() as contents:
                model = stored(contents, self._heads, id)
                if model.origin in ELSEWHERE:
                    contents.hidden.add(id)
                token = trash.throw_away(contents, model)
            trash.carry_out(self._file.read().removed[token])
        return token

    def restore(self, undo: str) -> InstalledModel:
        """Restore a removed model. Raises: LibraryError if it was purged or its id is in use."""
        with self._file.changing() as contents:
            id = trash.bring_back(contents, undo).id
        return self.get(id)

    def purge(self, older_than_s: float = 0.0) -> int:
        """Delete models removed at least this long ago, and clean up after interruptions; return the bytes freed.

        Also lists models that an interruption left unlisted.
        """
        contents = self._file.read()
        freed = 0
        with moving.held(self._file.home) as is_free:
            if is_free:
                moving.settle(self._file)
                for root in {contents.folder, *([Path(contents.moving_to)] if contents.moving_to else [])}:
                    if not self._file.read().moving_to:
                        moving.drop_copies(root)
                    freed += staging_folder.sweep(root)
        if not contents.removed and not any(True for _ in unlisted(self._file.read())):
            return freed
        with self._file.changing() as contents:
            for model in unlisted(contents):
                contents.models[model.id] = model
            freed += trash.empty(contents, older_than_s)
        return freed

    def undeleted(self) -> list[Path]:
        """Return the files of removed models that still exist."""
        return trash.left(self._file.read())

    # --- moving and checking

    def relocate(self, folder: Path, job: Job = Job()) -> Path:
        """Move all of Hearth's models, and set the folder for new ones; return it. Progress in bytes.

        After any interruption, every model is complete where the list says, and the same call continues. Raises:
        LibraryError, DiskSpaceError, Cancelled.
        """
        target = spelled(Path(os.path.abspath(os.path.expanduser(folder))))
        moving.move_all(self._file, target, job)
        return target

    def verify(self, id: str, job: Job = Job()) -> list[str]:
        """Return the names of files that are missing or changed since the import. Progress in bytes.

        Files without a known SHA-256 are compared by size only. Raises: ModelNotFoundError, Cancelled.
        """
        with self._reading() as contents:
            model = stored(contents, self._heads, id)
        damaged, done = [], 0
        for file in model.files:
            path = file_below(Path(model.folder), file.name)
            if file_problem(replace(model, files=(file,)), Path(model.folder)):
                damaged.append(file.name)
            elif file.sha256:
                try:
                    found = file_hash(path, lambda read, at=done: job.progress(at + read, model.n_bytes), job.cancelled)  # type: ignore[misc]
                except OSError as error:
                    log.info("%s cannot be read: %s", path, error)
                    found = ""
                if found != file.sha256:
                    damaged.append(file.name)
            done += file.n_bytes
            job.progress(done, model.n_bytes)
        return damaged

    # --- remarks

    def set_prepared(self, id: str, bundle: Path | None = None, still_needed: str = "") -> InstalledModel:
        """Record that a model was prepared.

        bundle: what to load instead, if any; one in `prepared_folder` moves with the model. still_needed: what
        preparing would still improve, in one sentence; the model's state then stays "needs preparing". Raises:
        ModelNotFoundError.
        """
        prepared = "" if bundle is None else str(spelled(Path(os.path.abspath(bundle))))
        self._remark(id, prepared=prepared, still_needed=still_needed)
        return self.get(id)

    def set_measured(self, id: str, tok_s: float) -> None:
        """Record the decode rate measured on this PC. Raises: ModelNotFoundError."""
        self._remark(id, measured_tok_s=float(tok_s))

    def _remark(self, id: str, **found: object) -> None:
        with self._file.changing() as contents:
            model = stored(contents, self._heads, id)
            if id in contents.models:
                contents.models[id] = replace(model, **found)  # type: ignore[arg-type]
                return
            remarks = replace(contents.remarks.get(id, Remarks()), **found)  # type: ignore[arg-type]
            remarks.check(id)
            contents.remarks[id] = remarks


def _own_home() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "models"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _of(found: Survey) -> tuple[str, tuple[InstalledFile, ...]]:
    return str(found.folder), found.files
