"""The user's lasting consents to tool calls, by folder of chats, in a small JSON file in the config folder. No Qt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.chat.store.preset_store import VersionedFile

SCHEMA_VERSION = 1
MOST_FOLDERS, MOST_SCOPES = 2_000, 1_000
LONGEST = 1_000  # characters of a name or a scope


class FolderConsents(VersionedFile):
    """The scopes (app/tools/tool.py) that need no question in the chats of a folder. A renamed folder has none."""

    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps them in memory."""
        super().__init__(path, SCHEMA_VERSION)
        self._folders: dict[str, list[str]] = {}

    def read(self) -> None:
        """Read the file; what is invalid is skipped, so that it asks again."""
        folders = self.values().get("folders")
        if not isinstance(folders, dict):
            return
        for name, scopes in list(folders.items())[:MOST_FOLDERS]:
            if isinstance(scopes, list):
                good = [one for one in scopes[:MOST_SCOPES] if isinstance(one, str) and len(one) <= LONGEST]
                if good and len(name) <= LONGEST:
                    self._folders[name] = good

    @property
    def folders(self) -> frozenset[str]:
        return frozenset(self._folders)

    def of(self, folder: str) -> tuple[str, ...]:
        """Return the scopes of a folder; "" is none."""
        return tuple(self._folders.get(folder, ())) if folder else ()

    def add(self, folder: str, scope: str) -> None:
        if folder and scope not in self.of(folder):
            self._folders.setdefault(folder, []).append(scope)

    def drop(self, folder: str) -> None:
        """Ask again for everything in a folder."""
        self._folders.pop(folder, None)

    def to_json(self) -> dict[str, Any]:
        """Return what `save` writes."""
        return {"schema_version": SCHEMA_VERSION, "folders": {name: list(v) for name, v in self._folders.items()}}
