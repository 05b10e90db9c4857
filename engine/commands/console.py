"""The terminal: safe streams, a progress bar, Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.job import CancelCheck


def make_streams_safe(windows: bool = sys.platform == "win32") -> None:
    """Replace closed streams by the null device, and print characters that the encoding lacks as "?".

    On Windows, output to a file or pipe is UTF-8 unless PYTHONIOENCODING names another encoding, which the frozen
    program does not read: the system's default lacks most of the world's letters.
    """
    is_named = os.environ.get("PYTHONIOENCODING") and not sys.flags.ignore_environment
    utf8 = "utf-8" if windows and not is_named else None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - stays open to the end
        elif isinstance(stream, io.TextIOWrapper) and name != "stderr":  # which shows such characters as escapes
            is_output = name == "stdout" and not stream.isatty()
            stream.reconfigure(encoding=utf8 if is_output else None, errors="replace")


def drop_output() -> None:
    """Discard buffered output, which the interpreter would otherwise try to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interrupt_as_cancel() -> Iterator[CancelCheck]:
    """Treat Ctrl-C as a cancel flag, so that partial results can be shown; a second one interrupts.

    Interrupts that are already ignored or handled stay so.
    """
    cancelled = threading.Event()

    def on_interrupt(signal_number: int, frame: object) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt
        cancelled.set()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield cancelled.is_set
        return
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield cancelled.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


ETA_AFTER_S = 3.0


def duration(seconds: float) -> str:
    """Return a duration in at most two units: "42 s", "3 min", "2 h 5 min"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class ProgressBar:
    """A line on stderr with progress and remaining time; cleared at the end of the block.

    Silent if stderr is not a terminal.
    """

    WIDTH = 24

    def __init__(self, word: str) -> None:
        self._word = word
        self._shown = 0  # characters
        self._started = time.perf_counter()
        self._on = sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def __call__(self, done: int, total: int) -> None:
        if not self._on or not total:
            return
        if done >= total:
            self.clear()
            return
        filled = self.WIDTH * done // total
        bar = "█" * filled + "·" * (self.WIDTH - filled)
        line = f"{self._word} {bar} {100 * done // total:3d}%{self._left(done, total)}"
        self._show("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            self._show("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _left(self, done: int, total: int) -> str:
        """Return the estimated time left; empty while it would be a guess."""
        spent = time.perf_counter() - self._started
        if not done or spent < ETA_AFTER_S:
            return ""
        return f"  {duration(spent * (total - done) / done)} left"

    @staticmethod
    def _show(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()
