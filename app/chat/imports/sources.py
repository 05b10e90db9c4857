"""Finds the files of an export in a file, a folder or a ZIP file, and yields their chats.

Nothing is extracted: files in a ZIP file are read as streams, so their path names mean nothing. Symbolic links in
folders are not followed.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from app.chat.imports import chatgpt, claude, gpt4all, jan, lm_studio, open_webui
from app.chat.imports.building import LeftOut, SkippedChatError, dated
from app.chat.imports.json_stream import JsonStream, NotJsonError, Skipped
from app.chat.store.conversation import WholeChat

MOST_FILES = 100_000
DEEPEST_FOLDER = 6
MOST_SMALL_BYTES = 256 << 20  # of a file that is read whole
MOST_LINES = 400_000
MOST_INFLATED = 200  # times the size of a ZIP file; the text of real exports is 5 to 20 times as large
_SMALL_ZIP_BYTES = 64 << 20  # which may always come out of one
_WANTED = re.compile(
    r"(?:conversations(?:-\d+)?|.*\.conversation|(?:all-)?chats?-export.*|thread)\.json|.*\.chat", re.IGNORECASE
)
_JSON_READERS = (chatgpt, claude, open_webui, lm_studio)


class ImportFailedError(Exception):
    """Nothing can be imported. why: "json", "unknown", "zip", "zip-bomb", "locked", "many"; detail: for the log."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why


@dataclass(frozen=True)
class _File:
    """A file of an export. name: its path inside the export."""

    name: str
    size: int
    changed_at: float
    open: Callable[[], BinaryIO]

    def read(self) -> bytes:
        with self.open() as stream:
            # Python allocates all bytes that are asked for. Under Wine, 256 MiB take 0.7 s.
            data = stream.read(min(self.size, MOST_SMALL_BYTES) + 1)
            if len(data) > self.size:  # it has grown
                data += stream.read(MOST_SMALL_BYTES + 1 - len(data))
        if len(data) > MOST_SMALL_BYTES:
            raise SkippedChatError("large")
        return data


class Export:
    """The chats of an export. cut: names of files that end too early.

    Raises ImportFailedError and OSError.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.left_out = LeftOut()
        self.cut: list[str] = []
        self.read_bytes = 0
        self._found: dict[str, _File] = {}
        for at, path in enumerate(paths):
            self._find(path, str(at))
        self._files = [one for one in self._found.values() if PurePosixPath(one.name).name != "messages.jsonl"]
        if not self._files:
            raise ImportFailedError("unknown", "no file of a known name")
        self.size = sum(one.size for one in self._found.values())

    def chats(self) -> Iterator[WholeChat | Skipped]:
        """Yield the chats. Raises ImportFailedError if the only file is none of an export."""
        for file in self._files:
            try:
                yield from self._chats_of(file)
            except NotJsonError:
                if len(self._files) == 1:
                    raise ImportFailedError("json", file.name) from None
                yield Skipped("damaged")
            except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:  # in a ZIP file
                if "encrypted" in str(error):
                    raise ImportFailedError("locked", file.name) from None
                self.cut.append(file.name)

    def _chats_of(self, file: _File) -> Iterator[WholeChat | Skipped]:
        name = PurePosixPath(file.name).name.lower()
        if name.endswith(".chat"):
            yield self._made(lambda: gpt4all.chat(self._counted(file), file.changed_at, self.left_out), file)
            return
        if name == "thread.json":
            yield self._made(lambda: self._jan_chat(file), file)
            return
        with file.open() as stream:
            if file.size and stream.peek(4)[:4] == gpt4all.MAGIC.to_bytes(4, "big"):  # type: ignore[attr-defined]
                yield self._made(lambda: gpt4all.chat(self._counted(file), file.changed_at, self.left_out), file)
                return
            values = JsonStream(stream, self._count)
            for value in values.values():
                yield value if isinstance(value, Skipped) else self._json_chat(value, file)
            if values.is_cut:
                self.cut.append(file.name)

    def _json_chat(self, value: Any, file: _File) -> WholeChat | Skipped:
        if not isinstance(value, dict):
            return Skipped("unknown")
        reader = next((one for one in _JSON_READERS if one.is_chat(value)), None)
        return Skipped("unknown") if reader is None else self._made(lambda: reader.chat(value, self.left_out), file)

    def _jan_chat(self, file: _File) -> WholeChat:
        beside = self._found.get(str(PurePosixPath(file.name).with_name("messages.jsonl")))
        thread = _object(self._counted(file))
        if beside is None:
            raise SkippedChatError("empty" if "assistants" in thread else "unknown")
        lines = self._counted(beside).split(b"\n")
        if len(lines) > MOST_LINES:
            raise SkippedChatError("large")
        return jan.chat(thread, [_object(line) for line in lines if line.strip()], self.left_out)

    def _made(self, make: Callable[[], WholeChat], file: _File) -> WholeChat | Skipped:
        """Return a chat, or why it is skipped. Its left-out parts count only if it is not."""
        before = self.left_out.counts.copy()
        try:
            return dated(make(), file.changed_at)
        except SkippedChatError as skipped:
            self.left_out.counts = before
            return Skipped(skipped.why)
        except MemoryError:
            self.left_out.counts = before
            return Skipped("large")
        except Exception:  # noqa: BLE001 - whatever a stranger's file does to its reader, the reason is the file
            self.left_out.counts = before
            return Skipped("damaged")

    def _counted(self, file: _File) -> bytes:
        data = file.read()
        self._count(len(data))
        return data

    def _count(self, n: int) -> None:
        self.read_bytes += n

    # --- finding files

    def _find(self, path: Path, key: str) -> None:
        """Add the files of a path. key: makes their names unique."""
        if path.is_dir():
            self._find_in_folder(path, key)
        elif not path.is_file():
            path.stat()  # raises what is wrong with it
            raise ImportFailedError("unknown", "no regular file")
        elif zipfile.is_zipfile(path):
            self._find_in_zip(path, key)
        elif path.name in ("thread.json", "messages.jsonl"):
            for name in ("thread.json", "messages.jsonl"):
                self._add(_file_at(path.with_name(name), f"{key}/{name}"))
        else:
            self._add(_file_at(path, f"{key}/{path.name}"))

    def _add(self, file: _File) -> None:
        self._found[file.name] = file
        if len(self._found) > MOST_FILES:
            raise ImportFailedError("many")

    def _find_in_folder(self, folder: Path, key: str) -> None:
        waiting = [(folder, 0)]
        while waiting:
            at, depth = waiting.pop()
            with os.scandir(at) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST_FOLDER:
                            waiting.append((Path(entry.path), depth + 1))
                    elif entry.is_file(follow_symlinks=False) and _is_wanted(entry.name):
                        path = Path(entry.path)
                        self._add(_file_at(path, f"{key}/{path.relative_to(folder).as_posix()}"))

    def _find_in_zip(self, path: Path, key: str) -> None:
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:  # of an unknown compression, too
            raise ImportFailedError("zip", str(error)) from None
        wanted = [one for one in archive.infolist() if not one.is_dir() and _is_wanted(one.filename)]
        if sum(one.file_size for one in wanted) > max(MOST_INFLATED * path.stat().st_size, _SMALL_ZIP_BYTES):
            raise ImportFailedError("zip-bomb")
        changed_at = path.stat().st_mtime
        for one in wanted:
            self._add(_File(f"{key}/{one.filename}", one.file_size, changed_at, _opener(archive, one)))


def _opener(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Callable[[], BinaryIO]:
    return lambda: io.BufferedReader(archive.open(entry))  # type: ignore[type-var]  # it reads bytes


def _is_wanted(name: str) -> bool:
    last = PurePosixPath(name.replace("\\", "/")).name
    return last == "messages.jsonl" or _WANTED.fullmatch(last) is not None


def _file_at(path: Path, name: str) -> _File:
    about = path.stat()
    return _File(name, about.st_size, about.st_mtime, lambda: path.open("rb"))


def _object(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises SkippedChatError if it is none."""
    try:
        value = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        raise SkippedChatError("damaged") from None
    if not isinstance(value, dict):
        raise SkippedChatError("damaged")
    return value
