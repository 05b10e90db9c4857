"""Reports on the terminal what the set-up is doing, and for how long.

Everything goes to stderr: stdout belongs to the program that is started afterwards.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET, NORMAL, VERBOSE = 0, 1, 2


class Progress:
    """Prints one line per stage: its text, then its time. On a terminal, the line is updated while the stage runs."""

    def __init__(self, level: int = NORMAL, stream: TextIO | None = None) -> None:
        self.level = level
        self.stream = stream if stream is not None else sys.stderr
        self.live = level == NORMAL and self.stream.isatty()
        self._words = ""
        self._detail = ""
        self._began = 0.0

    @contextmanager
    def stage(self, words: str) -> Iterator[None]:
        """A piece of work that takes a while."""
        self._words, self._detail, self._began = words, "", time.monotonic()
        self._begin()
        try:
            yield
        except BaseException:
            self._end("stopped")
            raise
        self._end(f"{time.monotonic() - self._began:.1f} s")

    def detail(self, text: str) -> None:
        """Show the current step of the stage, on a terminal only. An empty text changes nothing."""
        if text:
            self._detail = text
            self.tick()

    def tick(self) -> None:
        """Draw the live line again."""
        if not self.live or not self._words:
            return
        elapsed = f"{time.monotonic() - self._began:.0f} s"
        line = f"{self._words} ... {elapsed}" + (f"  {self._detail}" if self._detail else "")
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._write("\r" + line[:width].ljust(width))

    def note(self, text: str) -> None:
        """A sentence that the person should read; not said with --quiet."""
        if self.level > QUIET:
            self._write(text + "\n")

    def raw(self, line: str) -> None:
        """A line of pip's, shown with --verbose only."""
        if self.level == VERBOSE:
            self._write(line + "\n")

    def _begin(self) -> None:
        if self.live:
            self.tick()
        elif self.level == VERBOSE:
            self._write(f"{self._words}\n")
        elif self.level == NORMAL:
            self._write(f"{self._words} ... ")

    def _end(self, result: str) -> None:
        words, self._words = self._words, ""
        if self.live:
            width = max(20, shutil.get_terminal_size().columns - 1)
            self._write("\r" + f"{words} ... {result}"[:width].ljust(width) + "\n")
        elif self.level == VERBOSE:
            self._write(f"{words} ... {result}\n")
        elif self.level == NORMAL:
            self._write(f"{result}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


_FETCHING = re.compile(
    r"^\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([^\s/]+?)(?:\.metadata)?(?: \(([^)]+)\))?\s*$"
)
_COLLECTING = re.compile(r"^\s*Collecting ([A-Za-z0-9._-]+)")
_RETRYING = re.compile(r"Retrying \(Retry\(total=(\d+)")


def pip_line_in_words(line: str) -> str:
    """Return a line of pip's output as a message for the user; "" if it says nothing to users."""
    retrying = _RETRYING.search(line)
    if retrying:
        return f"the network does not answer, trying again ({retrying.group(1)} tries left)"
    fetching = _FETCHING.match(line)
    if fetching:
        name = fetching.group(1).split("-")[0]
        return f"fetching {name}" + (f" ({fetching.group(2)})" if fetching.group(2) else "")
    collecting = _COLLECTING.match(line)
    if collecting:
        return f"looking for {collecting.group(1)}"
    if line.startswith("Installing collected packages"):
        return f"unpacking {line.count(',') + 1} packages"
    return ""
