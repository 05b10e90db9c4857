"""How the command line gets on with the terminal: streams that cannot fail on a letter, a progress bar, Ctrl-C.

It knows nothing of commands (engine/cli.py, engine/commands) or models.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def make_streams_safe() -> None:
    """A closed stream leads nowhere; a character that a terminal's encoding lacks becomes a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - stays open to the end
        elif isinstance(stream, io.TextIOWrapper) and name != "stderr":  # which shows such characters as escapes
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """What is still buffered goes nowhere: at its end the interpreter would try to write it again, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interrupt_as_wish() -> Iterator[Callable[[], bool]]:
    """Ctrl-C as a wish to be looked up between two steps, so that what is there can be shown; a second one interrupts.

    Where interrupts are ignored or handled already, they stay so.
    """
    wished = threading.Event()

    def wish(signal_number: int, frame: object) -> None:
        if wished.is_set():
            raise KeyboardInterrupt
        wished.set()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield wished.is_set
        return
    signal.signal(signal.SIGINT, wish)
    try:
        yield wished.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class ProgressBar:
    """A line on stderr that shows done of total, gone at the end of the block; silent where stderr is no terminal."""

    WIDTH = 24

    def __init__(self, word: str) -> None:
        self._word = word
        self._shown = False
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
        self._show(f"\r{self._word} {bar} {100 * done // total:3d}%")
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._show("\r" + " " * (len(self._word) + self.WIDTH + 7) + "\r")
            self._shown = False

    @staticmethod
    def _show(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()
