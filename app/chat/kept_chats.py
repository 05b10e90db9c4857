"""Tell the engine which chats it may keep in the prompt cache: those that exist and are not in the bin."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject

from app.chat.chat_memory import ChatMemory
from app.clients.engine_client import EngineClient


class KeptChats(QObject):
    """The connection from the chats to the engine's prompt cache.

    When a chat is deleted, the engine deletes its files at once. At the start, as soon as the chats are known, it
    deletes the files of chats that were deleted in earlier runs.
    """

    def __init__(self, engine: EngineClient, memory: ChatMemory, folder: Path, quota_gb: float) -> None:
        """quota_gb: of all files in `folder`; 0 keeps none."""
        super().__init__()
        self._engine, self._memory, self._folder, self._quota_gb = engine, memory, folder, quota_gb
        self._known: set[str] | None = None  # chats that exist; None: not read yet
        memory.opened.connect(self._tell)
        memory.changed.connect(self._chats_changed)

    def set_quota(self, quota_gb: float) -> None:
        if quota_gb != self._quota_gb:
            self._quota_gb = quota_gb
            if self._known is not None:
                self._tell()

    def _chats_changed(self) -> None:
        if self._known is None:
            return
        before, self._known = self._known, self._ids()
        if not before <= self._known:
            self._tell()

    def _tell(self) -> None:
        self._known = self._ids()
        self._engine.store_prompts(self._folder, sorted(self._known), int(self._quota_gb * 1e9))

    def _ids(self) -> set[str]:
        return {chat.id for chat in self._memory.conversations()}
