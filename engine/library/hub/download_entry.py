"""A download of the queue as it stands: what is kept of it, what runs, how fast it is. The queue is downloads.py's."""

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
    """A download as it stands. stop: of the run that is going on; what an earlier run says is not heard any more."""

    kept: Kept
    stop: Stop | None = None
    thread: threading.Thread | None = None
    done_bytes: int = 0
    file: str = ""
    came: deque[tuple[float, int]] = field(default_factory=deque)  # (when, bytes), of late
    began: float = 0.0

    def rate(self) -> float | None:
        """Bytes/s of late; None while that would be a guess."""
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
