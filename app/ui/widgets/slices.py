"""Long work of the window's thread, done for a few ms in each turn of the event loop; what is in view comes first."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

SLICE_S = 0.008


class _Slices(QObject):
    """The work that is left, as one step function for each widget."""

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self.work: dict[QWidget, Callable[[], bool]] = {}
        self.timer = QTimer(self, singleShot=True, interval=0)
        self.timer.timeout.connect(self._run)

    def _run(self) -> None:
        until = time.perf_counter() + SLICE_S
        self.work = {widget: step for widget, step in self.work.items() if isValid(widget)}
        in_view = (w for w in self.work if w.isVisible() and not w.visibleRegion().isEmpty())
        widget = next(in_view, next(iter(self.work), None))
        while widget is not None and time.perf_counter() < until:
            if not self.work[widget]():
                del self.work[widget]
                break
        if self.work:
            self.timer.start()


_slices: _Slices | None = None


def later(widget: QWidget, step: Callable[[], bool]) -> None:
    """Call `step` in idle moments until it returns False or the widget is gone. A widget has one such work."""
    global _slices
    if _slices is None or not isValid(_slices):
        _slices = _Slices(QApplication.instance())
    _slices.work[widget] = step
    _slices.timer.start()


def is_working() -> bool:
    """Return whether work is left."""
    return _slices is not None and isValid(_slices) and any(isValid(widget) for widget in _slices.work)
