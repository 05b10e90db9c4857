"""Everything that Hearth stores on this PC, in groups: every file that it writes belongs to one. Measures and deletes
groups. No Qt; thread-safe.

tests/app/test_stored_data.py fails for a file that no group names. Files that the user put into the folders and models
used in place are not touched. Files are deleted only after Hearth's processes have ended; the library's process deletes
the keys in the keyring before that (app/desktop/erasing.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app.settings import AppPaths, paths
from app.translation import noted, tr
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.library.owned.installed import Library

log = logging.getLogger(__name__)

SERVERS, MODELS, PREPARED, DOWNLOADS = "servers", "models", "prepared", "downloads"


def _kept(*names: str) -> tuple[str, ...]:
    """Return patterns for small JSON files in the config folder, including damaged and half-written ones."""
    forms = ("{}.json", "{}-damaged-*.json", "{}.json.*.new")
    return tuple(f"config/{form.format(name)}" for name in names for form in forms)


@dataclass(frozen=True)
class Group:
    """Files that belong together. patterns: "FOLDER/GLOB"; a matching folder includes all its contents.

    FOLDER is data, config, cache or log (the window's), or engine-data or engine-cache (the engine's, which --data-dir
    does not move).
    """

    name: str
    title: str
    line: str
    patterns: tuple[str, ...]


GROUPS = (
    Group("chats", noted("Chats"), noted("All chats with their attachments and drafts, the bin, "
          "the notes of projects in Hearth's folder, and the chats kept ready to continue"),
          ("cache/prompts", "data/projects",
           "data/chats.db", "data/chats.db-wal", "data/chats.db-shm", "data/chats.db-journal", "data/chats.db.new*",
           "data/chats.db.rescued*", "data/chats-damaged-*.db*", "data/chats-*-version-*.db*")),
    Group("documents", noted("Index of documents"), noted("The list of your folders of documents, and the text of "
          "their files, to be searched. The documents themselves stay"),
          (*_kept("documents"), "data/documents.db", "data/documents.db-wal", "data/documents.db-shm",
           "data/documents.db-journal")),
    Group("settings", noted("Settings"), noted("Settings, personas, presets, saved prompts, settings of "
          "projects and choices for models"),
          _kept("settings", "models", "personas", "presets", "prompts", "projects", "answers", "consents")),
    Group(SERVERS, noted("Servers and keys"), noted("The servers that you added; keys and the access token, also in "
          "this system's keyring"),
          (*_kept("servers", "tool-servers"), "cache/tool-servers", "config/hub-token")),
    Group(MODELS, noted("Models"), noted("Downloaded and copied models. Models used in place, such as those of "
          "LM Studio or Ollama, stay"),
          ()),
    Group(PREPARED, noted("Prepared data"), noted("What preparing made for this PC, and measured speeds"),
          ("engine-data/artefacts", "engine-data/preparing", "engine-data/activity", "data/rates.json",
           "data/rates.json.*.new", "engine-cache/measured-hardware.json*", "engine-cache/listed-models.json*",
           "engine-cache/training", "engine-cache/profiles", "engine-cache/calibration")),
    Group(DOWNLOADS, noted("Unfinished downloads"), noted("Parts of models that are still being downloaded, "
          "and updates of Hearth"),
          ("engine-data/downloads", "engine-data/updates")),
    Group("logs", noted("Logs and crash notes"), noted("What Hearth did. They hold no text of a chat"),
          ("log/hearth.log*", "log/engine.log*", "log/library.log*", "log/shareable.log*", "log/crash*.txt",
           "log/running.json")),
    Group("kernels", noted("Compiled code for this PC"), noted("Hearth makes it again at the next start, in "
                                                               "about a minute"),
          ("engine-cache/kernels", "engine-cache/cuda")),
)  # fmt: skip


@dataclass(frozen=True)
class Undeleted:
    """A file that could not be deleted, and why, as a sentence."""

    what: str
    why: str


@dataclass
class Erased:
    """The result of deleting. stopped: the user ended it early."""

    n_bytes: int = 0
    undeleted: list[Undeleted] = field(default_factory=list)
    stopped: bool = False


class StoredData:
    """The stored data of one user. library: the list of models; None: this user's."""

    def __init__(self, places: AppPaths, library: Library | None = None) -> None:
        engines = paths()
        self._roots = {
            "data": places.data, "config": places.config, "cache": places.cache, "log": places.log,
            "engine-data": engines.data, "engine-cache": engines.cache,
        }  # fmt: skip
        self._given_library = library

    @property
    def folders(self) -> set[Path]:
        return set(self._roots.values())

    def files(self, group: Group) -> list[Path]:
        """Return the files of a group, except those of models. Links are not followed."""
        found = [file for pattern in group.patterns for file in self._matching(pattern)]
        if group.name == DOWNLOADS:
            from engine.library.owned.erasing import unfinished_files

            found += unfinished_files(self._library())
        return found

    def size(self, group: Group) -> int:
        """Return the size of a group's files in bytes. Raises EngineError if the list of models cannot be read."""
        from engine.library.owned.erasing import model_bytes, prepared_bytes

        total = sum(map(_length, self.files(group)))
        if group.name == MODELS:
            total += model_bytes(self._library())
        if group.name == PREPARED:
            total += prepared_bytes(self._library())
        return total

    def erase(
        self, names: Iterable[str], progress: Callable[[int], None], cancelled: Callable[[], bool] = lambda: False
    ) -> Erased:
        """Delete groups for good. progress: called with the number of bytes deleted so far.

        Files that cannot be deleted are returned; no error is raised for them.
        """
        wanted, done = set(names), Erased()

        def freed(n_bytes: int) -> None:
            done.n_bytes += n_bytes
            progress(done.n_bytes)

        models = self._models_folders() if wanted & {MODELS, PREPARED, DOWNLOADS} else ()
        # Models come last, as the list that names their folder goes with them.
        for group in sorted((one for one in GROUPS if one.name in wanted), key=lambda one: one.name == MODELS):
            if not cancelled():
                self._erase(group, freed, cancelled, done)
        done.stopped = cancelled()
        self._drop_empty(wanted, models)
        return done

    # --- within

    def _erase(self, group: Group, freed: Callable[[int], None], cancelled: Callable[[], bool], done: Erased) -> None:
        from engine.library.owned.erasing import erase_models, erase_prepared

        erase = {MODELS: erase_models, PREPARED: erase_prepared}.get(group.name)
        try:
            files = self.files(group)
            if erase is not None:
                done.undeleted += [_refused(file) for file in erase(self._library(), freed, cancelled)]
        except (EngineError, OSError) as error:
            why = error.message if isinstance(error, EngineError) else error.strerror or str(error)
            done.undeleted.append(Undeleted(tr(group.title), why))
            return
        for file in files:
            if cancelled():
                return
            size = _length(file)
            try:
                if file.is_symlink():
                    target = os.path.realpath(file)
                    done.undeleted.append(Undeleted(target, tr("Only the link to it was deleted.")))
                file.unlink(missing_ok=True)
            except OSError as error:
                done.undeleted.append(Undeleted(str(file), _why(error)))
            else:
                freed(size)

    def _models_folders(self) -> tuple[Path, ...]:
        with contextlib.suppress(EngineError, OSError):
            library = self._library()
            return library.folder, library.home
        return ()

    def _drop_empty(self, wanted: set[str], models: Iterable[Path]) -> None:
        """Remove the folders that are empty now."""
        from engine.library.owned.disk_space import DOWNLOADS as PARTS
        from engine.library.owned.erasing import drop_empty_below
        from engine.library.owned.staging_folder import INCOMING

        folders = [folder / name for folder in models for name in (PARTS, INCOMING)]
        for group in GROUPS:
            if group.name in wanted:
                parts = [pattern.partition("/") for pattern in group.patterns if "*" not in pattern]
                folders += [self._roots[root] / name for root, _, name in parts]
        for folder in folders:
            with contextlib.suppress(OSError):
                drop_empty_below(folder)
        for folder in [*models, *sorted(self.folders, key=lambda one: -len(one.parts))]:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()

    def _library(self) -> Library:
        from engine.library.owned.installed import Library

        return self._given_library or Library()

    def _matching(self, pattern: str) -> Iterator[Path]:
        root, _, name = pattern.partition("/")
        for found in sorted(self._roots[root].glob(name)):
            if found.is_dir() and not found.is_symlink():
                for at, folders, files in os.walk(found):
                    yield from (Path(at, name) for name in files)
                    yield from (Path(at, name) for name in folders if os.path.islink(os.path.join(at, name)))
            else:
                yield found


def _length(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _refused(file: Path) -> Undeleted:
    """Return why a file could not be deleted: the error of another try."""
    try:
        file.unlink()
    except OSError as error:
        return Undeleted(str(file), _why(error))
    return Undeleted(str(file), tr("It could not be deleted at first."))


def _why(error: OSError) -> str:
    return f"{error.strerror or error}."
