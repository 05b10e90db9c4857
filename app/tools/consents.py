"""What the user allowed tools to do in a folder of chats, in a small JSON file in the config folder. No Qt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.chat.store.preset_store import PresetStoreError, read_json, write_json

SCHEMA_VERSION = 1
MOST_FOLDERS, MOST_SCOPES = 2_000, 1_000
LONGEST = 1_000  # characters of a name or a scope


class FolderConsents:
    """The scopes (app/tools/tool.py) that need no question in the chats of a folder. A renamed folder has none."""

    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps them in memory."""
        self._path = path
        self._folders: dict[str, list[str]] = {}
        self._newer = False  # the file belongs to a newer version and is not written

    def read(self) -> None:
        """Read the file; what is invalid is skipped, so that it asks again."""
        if self._path is None:
            return
        try:
            values = read_json(self._path)
        except (OSError, PresetStoreError):
            return
        if not isinstance(values, dict):
            return
        version, folders = values.get("schema_version"), values.get("folders")
        self._newer = type(version) is int and version > SCHEMA_VERSION
        if self._newer or not isinstance(folders, dict):
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

    def save(self, values: dict[str, Any]) -> None:
        """Write the values of `to_json`. Thread-safe. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)
