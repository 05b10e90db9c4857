"""The models that lie on this PC: lists them, finds one by its name, takes them in, gives them up, moves them.

What is written where is engine/library/library_file.py's; what a model's files are is engine/library/imports.py's. It
downloads nothing and loads no weights. Every call reads the list anew where it changed, so that the window and the
command line see each other's work; all may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.library.records import InstalledFile, InstalledModel, ModelKind, Origin

Progress = Callable[[int, int], None]
Stage = Callable[[str], Progress]

STARTER_ID = "hearth/starter-chat"


@dataclass(frozen=True)
class Resolved:
    """What a name of an installed model means. path: what is opened, the prepared bundle where there is one.

    activation, template: fields of EngineConfig, where the model's own files do not say them; else empty.
    """

    id: str
    name: str
    path: Path
    activation: str = ""
    template: str = ""


class Library:
    """The installed models. home: the folder of library.json; None: this person's."""

    def __init__(self, home: Path | None = None) -> None:
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """Where new models go. It may not exist yet."""
        raise NotImplementedError

    def folder_for(self, id: str) -> Path:
        """Where the files of a model of that id belong: `<folder>/<owner>/<name>`. It may not exist yet.

        Raises: LibraryError for an id that is no "owner/name".
        """
        raise NotImplementedError

    def prepared_folder(self, id: str) -> Path:
        """Where the bundle belongs that preparing makes of a model. Its parent exists; it itself may not exist yet."""
        raise NotImplementedError

    def id_for(self, repo: str, variant: str = "") -> str:
        """The id under which a variant of a hub's repository is installed: "owner/name", or "owner/name-variant"."""
        raise NotImplementedError

    def models(self) -> list[InstalledModel]:
        """All of them with their state: the one that ships first, then by name; those in the hub's cache too.

        Cost: sizes of files, and the heads of those that changed since the last call.
        Raises: LibraryError for a list that a newer Hearth wrote.
        """
        raise NotImplementedError

    def get(self, id: str) -> InstalledModel:
        """The model of that id. Raises: ModelNotFoundError."""
        raise NotImplementedError

    def resolve(self, name: str) -> Resolved:
        """What an id, a name or a catalogue id means, whatever its case.

        Raises: ModelNotFoundError where there is none, where two go by the name, and for one that is broken.
        """
        raise NotImplementedError

    def register(
        self,
        id: str,
        *,
        name: str,
        folder: Path,
        files: Sequence[InstalledFile],
        path: str = "",
        origin: Origin = "download",
        owned: bool = True,
        repo: str = "",
        revision: str = "",
        catalogue_id: str = "",
        activation: str = "",
        template: str = "",
        licence: str = "",
        kind: ModelKind | str = "",
    ) -> InstalledModel:
        """Lists a model whose files lie in `folder`, in place of one of the same id.

        path: what is opened, a name below the folder; empty: the folder itself. owned: the files are Hearth's from now
        on, and are deleted with the model.
        Raises: LibraryError where a file is missing or has another size, ModelFormatError and UnsupportedModelError for
        what Hearth does not read.
        """
        raise NotImplementedError

    def add(
        self,
        path: Path,
        copy: bool = False,
        name: str = "",
        stage: Stage = lambda name: lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> InstalledModel:
        """Takes in a GGUF file (any part of a split one), a Hugging Face folder or a bundle: in place, or copied.

        stage: gives the callback of "copying" and of "checking", in bytes.
        Raises: ModelNotFoundError, ModelFormatError, UnsupportedModelError for what Hearth does not read,
        DiskSpaceError, LibraryError, Cancelled.
        """
        raise NotImplementedError

    def remove(self, id: str) -> str:
        """Takes a model off the list, and what is Hearth's of it into the trash; the token that brings it back.

        Files in place, and the hub's cache, are left as they are.
        """
        raise NotImplementedError

    def restore(self, undo: str) -> InstalledModel:
        """Brings back what `remove` took. Raises: LibraryError where it is gone for good, or its id taken again."""
        raise NotImplementedError

    def purge(self, older_than_s: float = 0.0) -> int:
        """Deletes for good what was removed so long ago, and what an interrupted copy left; the bytes freed."""
        raise NotImplementedError

    def relocate(
        self,
        folder: Path,
        progress: Progress = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Moves all models that are Hearth's, and where new ones go; the folder. In bytes.

        Whatever interrupts it, each model is whole where the list says; the same call goes on where it was.
        Raises: LibraryError, DiskSpaceError, Cancelled.
        """
        raise NotImplementedError

    def verify(
        self,
        id: str,
        progress: Progress = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """The names of files that are missing or not what they were when they were taken in. In bytes.

        Of files whose SHA-256 was never taken only the size is looked at. Raises: Cancelled.
        """
        raise NotImplementedError

    def set_prepared(self, id: str, bundle: Path | None = None, still_needed: str = "") -> InstalledModel:
        """Remembers that a model was prepared. bundle: what is loaded instead from now on, if any; one that lies in
        `prepared_folder` goes with the model. still_needed: what preparing would bring all the same, in one sentence;
        the model's state stays "needs preparing" then."""
        raise NotImplementedError

    def set_measured(self, id: str, tok_s: float) -> None:
        """Remembers the decode rate that was measured here."""
        raise NotImplementedError
