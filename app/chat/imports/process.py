"""The process that reads an export: a hostile or huge file can block or exhaust it, not the window.

It writes batches of chats as small databases into a folder, from which the window's process takes them, and prints one
JSON object per line: the progress, each batch, and the end. A line on its stdin says that a batch was taken; it waits
while MOST_WAITING are not. It ends with its stdin. No Qt.
"""

from __future__ import annotations

import errno
import gc
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.chat.imports.json_stream import Skipped
from app.chat.imports.sources import Export, ImportFailedError
from app.chat.store.conversation import WholeChat
from app.chat.store.store import Store
from app.errors import StoreError
from app.process_limits import limit_memory

MOST_MEMORY_BYTES = 4 << 30  # of the process
BATCH_CHARS = 24 << 20
BATCH_CHATS = 2_000
MOST_WAITING = 3
PROGRESS_EVERY_S = 0.1


def main() -> int:
    """Read the files and folders in argv but the last, into that folder. Returns the exit code."""
    limit_memory(MOST_MEMORY_BYTES)
    logging.disable()  # faults of the file are not worth logging
    gc.disable()  # the values of JSON have no cycles
    flags = sys.argv[2:] if sys.argv[1:2] == ["--import-chats"] else sys.argv[1:]
    try:
        _Reading([Path(one) for one in flags[:-1]], Path(flags[-1])).run()
    except ImportFailedError as error:
        _say(why_not=error.why)
    except OSError as error:
        _say(why_not="system", detail=error.strerror or str(error), errno=error.errno or 0)
    except StoreError as error:
        _say(why_not="system", detail=error.message, errno=errno.ENOSPC if error.kind == "full" else errno.EACCES)
    except MemoryError:
        _say(why_not="large")
    return 0


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class _Reading:
    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self._export, self._folder = Export(paths), folder
        self._known: set[str] = set()
        self._skipped: Counter[str] = Counter()
        self._programs: Counter[str] = Counter()
        self._batch: list[WholeChat] = []
        self._chars = 0
        self._n_batches = self._waiting = 0
        self._reported_at = 0.0

    def run(self) -> None:
        export = self._export
        for one in export.chats():
            if isinstance(one, Skipped):
                self._skipped[one.why] += 1
            elif one.conversation.id in self._known:
                self._skipped["twice"] += 1
            else:
                self._add(one)
            self._tell_progress()
        self._write()
        if not self._known and not self._skipped.keys() - {"unknown"}:
            raise ImportFailedError("json" if export.cut else "unknown")
        _say(
            end={
                "left_out": dict(export.left_out.counts), "skipped": dict(self._skipped), "cut": len(export.cut),
                "programs": [name for name, _ in self._programs.most_common()],
            }
        )  # fmt: skip

    def _add(self, chat: WholeChat) -> None:
        self._known.add(chat.conversation.id)
        self._programs[chat.conversation.folder.removesuffix(", archived")] += 1
        self._batch.append(chat)
        self._chars += sum(len(m.text) + sum(len(a.text) for a in m.attachments) + 200 for m in chat.messages)
        if self._chars >= BATCH_CHARS or len(self._batch) >= BATCH_CHATS:
            self._write()

    def _write(self) -> None:
        if not self._batch:
            return
        while self._waiting >= MOST_WAITING:
            if not sys.stdin.readline():
                sys.exit(1)  # the window is gone
            self._waiting -= 1
        self._n_batches += 1
        path = self._folder / f"{self._n_batches}.db"
        Store.write_batch(path, self._batch)
        self._waiting += 1
        _say(batch=str(path), chats=len(self._batch))
        self._batch, self._chars = [], 0

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if now - self._reported_at >= PROGRESS_EVERY_S:
            self._reported_at = now
            share = min(self._export.read_bytes / max(self._export.size, 1), 1.0)
            _say(share=round(share, 4), chats=len(self._known))


if __name__ == "__main__":
    sys.exit(main())
