"""The drawn diagrams of the window: drawn and painted on a worker thread, kept for the theme in use.

Painting a large one takes 45 ms, in which the window would stand still.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QObject, QSize, Qt, Signal
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from app.later import Later
from app.text.web_html import DIAGRAM
from app.ui.look import theme

if TYPE_CHECKING:
    from app.diagrams import process
    from app.diagrams.plain_svg import PlainSvg
else:
    process = Later("app.diagrams.process")

MOST_CACHED = 200  # drawings, of about 10 KB each


class Diagrams(QObject):
    """Diagrams by source, in the colours of the theme. arrived: the source of one that was drawn or refused. painted:
    for whom, and the image.
    """

    arrived = Signal(str)
    painted = Signal(int, QImage)
    _done = Signal(str, object, object)  # source, tokens, drawing

    def __init__(self) -> None:
        super().__init__()
        self._cached: dict[str, PlainSvg | None] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._sizes: dict[int, tuple[PlainSvg, QSize]] = {}  # to be painted, the last wish of each
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done.connect(self._take, Qt.ConnectionType.QueuedConnection)
        theme.current().changing.connect(self._cached.clear)

    def known(self, source: str) -> bool:
        """Return whether the diagram was drawn or refused."""
        return source in self._cached

    def drawing(self, source: str) -> PlainSvg | None:
        """Return a drawn diagram; None while it is being drawn, or if it was refused."""
        return self._cached.get(source)

    def request(self, source: str) -> None:
        """Draw a diagram; `arrived` follows, unless it is known."""
        if source not in self._cached:
            self._run(partial(self._draw, source, theme.current().tokens))

    def paint(self, drawing: PlainSvg, size: QSize, to: int) -> None:
        """Paint a drawing; `painted` follows for `to`, unless it asks for another one before."""
        self._sizes[to] = drawing, size
        self._run(partial(self._paint, to))

    def warm(self) -> None:
        """Start the process that draws: a diagram is being written."""
        self._run(process.warm)

    def _run(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="diagrams", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
            job()

    def _draw(self, source: str, tokens: theme.Tokens) -> None:
        drawing = process.draw(source, vars(tokens))
        is_valid = drawing is not None and QSvgRenderer(QByteArray(drawing.text.encode())).isValid()
        self._done.emit(source, tokens, drawing if is_valid else None)

    def _paint(self, to: int) -> None:
        drawing, size = self._sizes.pop(to, (None, QSize()))
        if drawing is not None:
            image = QImage(size, QImage.Format.Format_ARGB32_Premultiplied)
            image.fill(Qt.GlobalColor.transparent)
            painter = QPainter(image)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            QSvgRenderer(QByteArray(drawing.text.encode())).render(painter)
            painter.end()
            self.painted.emit(to, image)

    def _take(self, source: str, tokens: theme.Tokens, drawing: PlainSvg | None) -> None:
        if tokens != theme.current().tokens:  # the theme has changed since, and the view has asked again
            return
        while len(self._cached) >= MOST_CACHED:
            del self._cached[next(iter(self._cached))]
        self._cached[source] = drawing
        self.arrived.emit(source)


@cache
def current() -> Diagrams:
    return Diagrams()


def can_draw(language: str) -> bool:
    """Return whether code of this language is a diagram that can be drawn on this system."""
    return language == DIAGRAM and process.can_draw()
