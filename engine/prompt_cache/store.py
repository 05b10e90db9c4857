"""Manage the files of the prompt cache: an index in memory, recent blocks in RAM, a writer thread, and a quota.

Each chat has a list of the blocks that it uses, so that they can be deleted with it. When the files exceed the quota,
the store deletes the least recently used ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import shutil
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from engine.prompt_cache.block_file import INSTRUCTIONS, Header, read_block, read_header, write_block
from native_kernels.backend import U8

log = logging.getLogger(__name__)

MOST_STATES = 3  # of a chat on disk, the newest, and one after its instructions; each may have 150 MB
FREE_DISK_BYTES = 2 << 30  # that stay free
_ENDING = ".kv"
_LISTS = "chats"


def ram_bytes_for_blocks() -> int:
    """Return the bytes of RAM that blocks of prompts may use: a sixteenth of all, at most 1 GiB."""
    return min(1 << 30, psutil.virtual_memory().total // 16)


@dataclass(frozen=True, eq=False)
class Block:
    """A block of one chat. header, data: as in block_file.py. chat: ID of the chat."""

    header: Header
    data: U8
    chat: str = ""


@dataclass
class _Files:
    """An index of the known files: names by parent key, each with its header, None until that is read."""

    by_parent: dict[str, dict[str, Header | None]] = field(default_factory=dict)

    def add(self, name: str, header: Header | None = None) -> None:
        self.by_parent.setdefault(name.partition("-")[0], {})[name] = header

    def drop(self, name: str) -> None:
        self.by_parent.get(name.partition("-")[0], {}).pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self.by_parent.get(name.partition("-")[0], {})


class PromptStore:
    """The blocks of all chats, on disk and in RAM. Thread-safe.

    Disk errors are not raised: the store logs a failed write, and then writes nothing more. root: folder of the files,
    created with the first one. quota_bytes: limit for all files. ram_bytes: limit for the blocks in RAM, which are
    those that wait to be written and the most recent others.
    """

    def __init__(self, root: Path, quota_bytes: int, ram_bytes: int) -> None:
        self.root = root
        self.quota_bytes = quota_bytes
        self._ram_bytes = ram_bytes
        self._lock = threading.Lock()
        self._disk = threading.Lock()  # held while files are written or deleted; taken before `_lock`
        self._files = _Files()
        self._recent: OrderedDict[str, Block] = OrderedDict()
        self._waiting: queue.Queue[Block | tuple[str, str] | None] = queue.Queue()  # tuple: a block's name, and a chat
        self._shared: set[tuple[str, str]] = set()  # that waited, of this start
        self._unwritten: set[str] = set()
        self._erased: set[str] = set()  # lists of chats that were deleted while their blocks waited
        self._broken = False
        for path in _block_paths(root):
            self._files.add(path.stem)
        self._thread = threading.Thread(target=self._write_waiting, name="prompt-cache", daemon=True)
        self._thread.start()

    def has(self, name: str) -> bool:
        with self._lock:
            return name in self._recent or name in self._files

    def after(self, parent: str) -> list[Header]:
        """Return the headers of all blocks after these tokens. Cost: reads each file's header once."""
        with self._lock:
            names = dict(self._files.by_parent.get(parent, {}))
            found = {name: block.header for name, block in self._recent.items() if block.header.parent == parent}
        for name, header in names.items():
            if name in found:
                continue
            header = header or read_header(self._path(name))
            with self._lock:
                if header is None:
                    self._files.drop(name)
                else:
                    self._files.add(name, header)
            if header is not None:
                found[name] = header
        return list(found.values())

    def read(self, name: str) -> tuple[Header, U8] | None:
        """Return a block that is whole and undamaged; None if there is none. A damaged file is deleted."""
        with self._lock:
            if name in self._recent:
                self._recent.move_to_end(name)
                block = self._recent[name]
                return block.header, block.data
        path, found = self._path(name), None
        try:
            found = read_block(path)
            if found is None:
                log.warning("A damaged file of the prompt cache is deleted: %s", path.name)
                path.unlink()
            else:
                os.utime(path)  # used last now
        except OSError as error:
            log.info("A file of the prompt cache is not used: %s", error)
        if found is None:
            with self._lock:
                self._files.drop(name)
        return found

    def has_room(self, n_bytes: int, chat: str) -> bool:
        """Return whether `put` would take a block of that size now: what waits to be written fits into RAM with it."""
        with self._lock:
            return n_bytes <= self._ram_bytes - self._needed(chat)

    @property
    def is_writing(self) -> bool:
        """Whether blocks wait to be written, so that there will be room."""
        with self._lock:
            return bool(self._unwritten)

    def put(self, block: Block) -> bool:
        """Keep a block in RAM and have it written; written blocks make room for it. Returns whether there is room."""
        name, size = block.header.name, block.data.nbytes
        with self._lock:
            if size > self._ram_bytes - self._needed(block.chat):
                return False
            self._recent[name] = block
            if self.quota_bytes:
                self._unwritten.add(name)
            for old in [one for one in self._recent if self._may_go(one, block.chat)]:
                if sum(one.data.nbytes for one in self._recent.values()) <= self._ram_bytes:
                    break
                del self._recent[old]
        self._waiting.put(block)
        return True

    def share(self, name: str, chat: str) -> None:
        """Have a block that is there already belong to this chat too, so that it stays if the other one is deleted."""
        with self._lock:
            is_new = (name, chat) not in self._shared
            self._shared.add((name, chat))
        if is_new:
            self._waiting.put((name, chat))

    def _needed(self, chat: str) -> int:
        return sum(one.data.nbytes for name, one in self._recent.items() if not self._may_go(name, chat))

    def _may_go(self, name: str, chat: str) -> bool:
        """Return whether a block may leave RAM for one of this chat: it is on disk, or of another chat without one."""
        return name not in self._unwritten and (name in self._files or self._recent[name].chat != chat)

    def keep_only(self, chats: Collection[str]) -> None:
        """Delete what only other chats used, on disk and in RAM."""
        with self._lock:
            kept = {_list_name(chat) for chat in chats}
            owners = {name: _list_name(one.chat) for name, one in self._recent.items()}
            gone = {name: owner for name, owner in owners.items() if owner not in kept}
            self._erased = self._erased - kept | set(gone.values())
            self._erased |= {_list_name(chat) for _, chat in self._shared} - kept
            self._shared.clear()
            for name in gone:
                del self._recent[name]
                self._unwritten.discard(name)
        with self._disk:
            for name in keep_only(self.root, chats):
                with self._lock:
                    self._files.drop(name)

    def set_quota(self, quota_bytes: int) -> None:
        """Change the quota, and delete what is beyond it."""
        self.quota_bytes = quota_bytes
        with self._disk:
            self._shrink()

    def flush(self) -> None:
        """Wait until all blocks are written."""
        self._waiting.join()

    def close(self, timeout_s: float) -> None:
        """End the thread after the blocks that wait, or after this time."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    # --- writing

    def _path(self, name: str) -> Path:
        return self.root / f"{name}{_ENDING}"

    def _write_waiting(self) -> None:
        while True:
            item = self._waiting.get()
            try:
                if item is None:
                    return
                with self._disk:
                    if isinstance(item, Block) and not self._broken:
                        self._write(item)
                    elif isinstance(item, tuple) and not self._broken:
                        self._write_shared(*item)
            except OSError as error:
                self._broken = True
                log.warning("The prompt cache is not written any more: %s", error)
            finally:
                if isinstance(item, Block):
                    with self._lock:
                        self._unwritten.discard(item.header.name)
                self._waiting.task_done()

    def _write(self, block: Block) -> None:
        name, size = block.header.name, block.data.nbytes
        chat = _list_name(block.chat)
        with self._lock:
            if name not in self._recent or chat in self._erased:
                return
        if size > self.quota_bytes:
            return
        _make_private(self.root)
        if shutil.disk_usage(self.root).free < FREE_DISK_BYTES + size:
            return
        own = self.root / _LISTS / chat
        names = _names_in(own)
        replaced = self._replaced(block.header, names)
        _append(own, name)  # first, so that no file lacks an owner
        write_block(self._path(name), block.header, block.data)
        with self._lock:
            self._files.add(name, block.header)
        others = _used(self.root, {chat}) if replaced else set()
        for old in replaced:
            if old not in others:
                self._delete(old)
        self._shrink()

    def _write_shared(self, name: str, chat: str) -> None:
        own = self.root / _LISTS / _list_name(chat)
        if self._path(name).exists() and own.name not in self._erased and name not in _names_in(own):
            _append(own, name)

    def _replaced(self, new: Header, names: list[str]) -> list[str]:
        """Return the chat's blocks that the new one makes superfluous: shorter ones, and states beyond the newest."""
        found = []
        if new.kind == "kv":
            for header in self.after(new.parent):
                shorter = header.kind == "kv" and len(header.tokens) < len(new.tokens)
                shorter = shorter and ("-" not in new.forms or "-" in header.forms)  # what layers with a window need
                if shorter and new.tokens[: len(header.tokens)] == header.tokens and header.name in names:
                    found.append(header.name)
            return found
        most = 1 if new.forms == INSTRUCTIONS else MOST_STATES
        states = [name for name in dict.fromkeys(names) if self._is_state(name, new.forms)]
        return [name for name in states if name != new.name][: max(0, len(states) + 1 - most)]

    def _is_state(self, name: str, forms: str) -> bool:
        with self._lock:
            header = self._files.by_parent.get(name.partition("-")[0], {}).get(name)
        header = header or read_header(self._path(name))
        return header is not None and (header.kind, header.forms) == ("state", forms)

    def _delete(self, name: str) -> None:
        with self._lock:
            self._files.drop(name)
            self._recent.pop(name, None)
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def _shrink(self) -> None:
        """Delete the least recently used files until all are within the quota."""
        for name in _beyond_quota(self.root, self.quota_bytes):
            self._delete(name)


def keep_only(root: Path, chats: Collection[str]) -> list[str]:
    """Delete the files that only other chats used; return their names. Also removes what no chat uses."""
    kept = {_list_name(chat) for chat in chats}
    with contextlib.suppress(OSError):
        for path in (root / _LISTS).iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
    used, gone = _used(root, set()), []
    for path in [*_block_paths(root), *root.glob("*.part")]:
        if path.stem not in used:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            gone.append(path.stem)
    return gone


def _beyond_quota(root: Path, quota_bytes: int) -> list[str]:
    files = []
    for path in _block_paths(root):
        with contextlib.suppress(OSError):
            about = path.stat()
            files.append((about.st_mtime_ns, about.st_size, path.stem))
    files.sort(reverse=True)
    total, gone = 0, []
    for _, size, name in files:
        total += size
        if total > quota_bytes:
            gone.append(name)
    return gone


def _make_private(root: Path) -> None:
    for folder in (root.parent, root, root / _LISTS):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _list_name(chat: str) -> str:
    return hashlib.blake2b(chat.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _append(path: Path, name: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="ascii") as file:
        file.write(f"{name}\n")


def _names_in(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _used(root: Path, without: set[str]) -> set[str]:
    """Return the names in all chats' lists but these."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for path in (root / _LISTS).iterdir():
            if path.name not in without:
                found.update(_names_in(path))
    return found


def _block_paths(root: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(root.glob(f"*{_ENDING}"))
