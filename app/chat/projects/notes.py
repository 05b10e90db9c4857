"""The notes of a project: a text file that belongs to the user. Hearth reads it, and only ever appends to it. No Qt.

The file is opened for appending, so that text which another program has written meanwhile stays. Its line ends and its
byte order mark stay too. A file that is not UTF-8 is not used.
"""

from __future__ import annotations

import contextlib
import os
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from app.tools import model_texts
from app.translation import figure, tr

MAX_BYTES = 1 << 20
LONGEST_ADDED = 20_000  # characters of one addition
SHARE_OF_CONTEXT = 0.5  # that the notes may take
_CHARS_PER_TOKEN = 3  # fewer than in most texts of Latin letters; in others a character may be a token
_BOM = "\ufeff"


class NotesError(Exception):
    """Notes that cannot be read or written. The message says why in one sentence."""


@dataclass(frozen=True)
class NotesText:
    """The notes as a prompt has them. text: "" without notes. n_all: characters in the file. fault: why it cannot be
    read; else "".
    """

    text: str = ""
    n_all: int = 0
    fault: str = ""

    @property
    def is_cut(self) -> bool:
        return len(self.text) < self.n_all

    @property
    def framed(self) -> str:
        """The part of the system message."""
        if not self.text.strip():
            return ""
        return model_texts.notes(self.text, self.is_cut)


class NotesFile:
    """The file at a path. Cost of reading: one `stat` while the file stays the same."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._seen: tuple[int, int, int] | None = None  # of the file that was read last
        self._text = ""

    def read(self, context_tokens: int | None = None) -> NotesText:
        """Return the notes, or their beginning that takes half of the context at most. None: no limit."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._text = self._content(found)
                self._seen = seen
        except (OSError, NotesError) as error:
            self._seen = None
            return NotesText(fault=self._why(error))
        text = self._text.replace("\r\n", "\n").strip()
        return NotesText(text if context_tokens is None else _beginning(text, context_tokens), len(text))

    def create(self) -> None:
        """Create the file if there is none. Raises NotesError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), self.path.open("x", encoding="utf-8"):
                pass
        except OSError as error:
            raise NotesError(self._why(error)) from error

    def append(self, text: str) -> None:
        """Add a text at the end: one line as an item of a list, several as a paragraph. Raises NotesError.

        What is in the file stays as it is, also if the disk is full.
        """
        added = plain(text)
        if not added:
            raise NotesError(tr("There is nothing to add."))
        if len(added) > LONGEST_ADDED:
            most = figure(LONGEST_ADDED)
            raise NotesError(tr("A note can have {most} characters at most. Shorten it.", most=most))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            data = _addition(self._content(self.path.stat()) if self.path.exists() else "", added).encode()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            handle = os.open(self.path, flags, 0o600)
            try:
                start = os.fstat(handle).st_size
                n_written = os.write(handle, data)
                if n_written < len(data):
                    if os.fstat(handle).st_size == start + n_written:  # nobody else has written meanwhile
                        os.ftruncate(handle, start)
                    raise NotesError(tr("{name} could not be written: the disk is full.", name=self.path.name))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise NotesError(self._why(error)) from error

    def _content(self, found: os.stat_result) -> str:
        """Return the text of the file with these facts. Raises OSError, NotesError."""
        name = self.path.name
        if not stat.S_ISREG(found.st_mode):
            raise NotesError(tr("{name} is not a file.", name=name))
        if found.st_size > MAX_BYTES:
            raise NotesError(tr("{name} is larger than {most} MB.", name=name, most=MAX_BYTES >> 20))
        try:
            text = self.path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotesError(tr("{name} is not a text in UTF-8. Save it as UTF-8.", name=name)) from error
        if "\0" in text:
            raise NotesError(tr("{name} is not a text in UTF-8. Save it as UTF-8.", name=name))
        return text.removeprefix(_BOM)

    def _why(self, error: Exception) -> str:
        if isinstance(error, NotesError):
            return str(error)
        if isinstance(error, FileNotFoundError):
            return tr("{name} is missing.", name=self.path.name)
        why = error.strerror if isinstance(error, OSError) else ""
        return tr("{name} could not be used: {why}.", name=self.path.name, why=why or str(error))


def plain(text: str) -> str:
    """Return a text without characters that hide or reorder text, with \\n as line ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    kept = "".join(c for c in lines if c == "\n" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co"})
    return "\n".join(line.rstrip() for line in kept.split("\n")).strip()


def _addition(before: str, added: str) -> str:
    """Return what is written behind `before`, with its line ends."""
    is_line = "\n" not in added
    lines = f"- {added.removeprefix('- ')}\n" if is_line else f"{added}\n"
    if before and not before.endswith("\n"):
        lines = f"\n{lines}"
    if before.strip() and not (is_line and before.rstrip().rpartition("\n")[2].startswith("- ")):
        lines = f"\n{lines}"  # a list continues; anything else begins after an empty line
    return lines.replace("\n", "\r\n") if before.count("\r\n") * 2 > before.count("\n") else lines


def _beginning(text: str, context_tokens: int) -> str:
    """Return the whole lines of a text that take half of a context at most, by a high estimate of their tokens. A first
    line that is too long is cut."""
    left = context_tokens * SHARE_OF_CONTEXT
    if _most_tokens(text) <= left:
        return text
    n_chars = 0
    for line in text.splitlines(keepends=True):
        tokens = _most_tokens(line)
        if tokens > left:
            return text[:n_chars].rstrip() if n_chars else line[: int(len(line) * left / tokens)]
        left -= tokens
        n_chars += len(line)
    return text


def _most_tokens(text: str) -> float:
    """Return a high estimate of a text's tokens. Cost: a millisecond for a megabyte; it is read for each message."""
    n_ascii = len(text.encode("ascii", "ignore"))
    return len(text) - n_ascii + n_ascii / _CHARS_PER_TOKEN
