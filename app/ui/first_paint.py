"""Tells when a window was painted for the first time, so that the rest of the start can follow."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QTimer

from app.later import import_next
from app.ui.look import theme
from app.ui.main_window import MainWindow

IMPORT_EVERY_MS = 100


class FirstPaint(QObject):
    """Calls back once, after the window was painted for the first time. Then loads what no click should wait for."""

    def __init__(self, window: MainWindow, then: Callable[[], None]) -> None:
        super().__init__(window)
        self._then: Callable[[], None] | None = then
        self._later = QTimer(self, interval=IMPORT_EVERY_MS)
        self._later.timeout.connect(self._import_next)
        window.ground.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and self._then is not None:
            then, self._then = self._then, None
            watched.removeEventFilter(self)
            QTimer.singleShot(0, lambda: self._follow(then))  # after this paint, not within it
        return False

    def _follow(self, then: Callable[[], None]) -> None:
        then()
        theme.load_fonts("italic")
        self._later.start()

    def _import_next(self) -> None:
        if not import_next():
            self._later.stop()
