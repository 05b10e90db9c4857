"""The drawn diagrams of the window: drawn on a worker thread, kept for the theme in use."""

from __future__ import annotations

import threading
from collections import deque
from functools import cache

from PySide6.QtCore import QObject, Qt, Signal

from app.diagrams import process
from app.diagrams.plain_svg import PlainSvg
from app.text.web_html import DIAGRAM
from app.ui.look import theme

MOST_KEPT = 200  # drawings, of about 10 KB each


class Diagrams(QObject):
    """Diagrams by source, in the colours of the theme. arrived: the source of one that was drawn or refused."""

    arrived = Signal(str)
    _done = Signal(str, object, object)  # source, tokens, drawing

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, PlainSvg | None] = {}
        self._waiting: deque[tuple[str, theme.Tokens]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done.connect(self._take, Qt.ConnectionType.QueuedConnection)
        theme.current().changing.connect(self._kept.clear)

    def known(self, source: str) -> bool:
        """Return whether the diagram was drawn or refused."""
        return source in self._kept

    def drawing(self, source: str) -> PlainSvg | None:
        """Return a drawn diagram; None while it is being drawn, or if it was refused."""
        return self._kept.get(source)

    def request(self, source: str) -> None:
        """Draw a diagram; `arrived` follows, unless it is known."""
        if source in self._kept:
            return
        with self._lock:
            self._waiting.append((source, theme.current().tokens))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="diagrams", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                source, tokens = self._waiting.popleft()
            self._done.emit(source, tokens, process.draw(source, vars(tokens)))

    def _take(self, source: str, tokens: theme.Tokens, drawing: PlainSvg | None) -> None:
        if tokens != theme.current().tokens:  # the theme has changed since, and the view has asked again
            return
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[source] = drawing
        self.arrived.emit(source)


@cache
def current() -> Diagrams:
    """Return the diagrams of this process."""
    return Diagrams()


def can_draw(language: str) -> bool:
    """Return whether code of this language is a diagram that can be drawn on this system."""
    return language == DIAGRAM and process.can_draw()
