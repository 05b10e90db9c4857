"""Failures of the app's own that a user can meet; user_messages.py describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

StoreErrorKind = Literal["full", "read-only", "locked", "damaged", "newer", "missing"]


class StoreError(Exception):
    """The chats could not be read or written. The message is the system's own.

    kinds: full (no free disk space), read-only (the file or its folder), locked (by another program), damaged, newer
    (written by a later version), missing (a dangling link). For `full`, free_bytes is the free disk space.
    """

    def __init__(
        self, kind: StoreErrorKind, message: str, path: Path | None = None, free_bytes: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.path = path
        self.free_bytes = free_bytes


@dataclass(frozen=True)
class RescueReport:
    """The damage found when the chats were opened, and the result of the repair."""

    error: StoreError  # its kind says what was wrong
    conversations: int  # copied
    messages: int
    kept_aside: Path | None = None  # the damaged file's new name; for a newer file, the copy from before its migration
    in_memory: bool = False  # nothing can be written: new messages are lost at the end


class ChatFileError(Exception):
    """A file of chats that cannot be read. The message is a sentence for users."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
