"""The state of a queued download: what is stored, the current run, its speed. downloads.py has the queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from engine.library.hub.download import Stop
from engine.library.hub.download_queue import Kept
from engine.library.records import Download, DownloadState

RATE_OVER_S = 10.0
ACTIVE: tuple[DownloadState, ...] = ("downloading", "waiting", "checking")


@dataclass
class Entry:
    """The state of a download. stop: ends the current run; messages from earlier runs are ignored."""

    kept: Kept
    stop: Stop | None = None
    thread: threading.Thread | None = None
    done_bytes: int = 0
    file: str = ""
    came: deque[tuple[float, int]] = field(default_factory=deque)  # recent (when, bytes)
    began: float = 0.0

    def rate(self) -> float | None:
        """Return the recent bytes/s; None while it would be a guess."""
        now = time.monotonic()
        while self.came and now - self.came[0][0] > RATE_OVER_S:
            self.came.popleft()
        span = min(RATE_OVER_S, now - self.began)
        if self.kept.state != "downloading" or span < 1.0 or not self.came:
            return None
        return sum(n for _, n in self.came) / span


def total_bytes(entry: Entry) -> int:
    return entry.kept.resolved.n_bytes if entry.kept.resolved is not None else entry.kept.wanted.n_bytes


def record_of(entry: Entry) -> Download:
    kept, wanted, rate = entry.kept, entry.kept.wanted, entry.rate()
    total = total_bytes(entry)
    done = min(entry.done_bytes, total) if total else entry.done_bytes
    return Download(
        kept.id, wanted.model, wanted.name, wanted.repo, kept.state, done, total, rate,
        (total - done) / rate if rate else None, entry.file, wanted.catalogue_id, kept.error, kept.message, kept.hint,
    )  # fmt: skip
