"""Runs long work of the GUI thread in slices of a few ms per event loop turn; visible widgets go first."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from app.ui.look import theme

SLICE_S = 0.008
AT_ONCE_S = 0.02  # for visible widgets, before the window is painted again


class _Slices(QObject):
    """The remaining work, one step function per widget."""

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self.work: dict[QWidget, Callable[[], bool]] = {}
        self.at_once_until = 0.0  # perf_counter() until which `soon` may work in this turn; 0: a new turn
        self.timer = QTimer(self, singleShot=True, interval=0)
        self.timer.timeout.connect(self._run)

    def _run(self) -> None:
        self.at_once_until = 0.0
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


def _current() -> _Slices:
    global _slices
    if _slices is None or not isValid(_slices):
        _slices = _Slices(QApplication.instance())
    return _slices


def later(widget: QWidget, step: Callable[[], bool]) -> None:
    """Call `step` in idle time until it returns False or the widget is deleted. A widget has at most one step."""
    slices = _current()
    slices.work[widget] = step
    slices.timer.start()


def soon(widget: QWidget, step: Callable[[], bool]) -> None:
    """Call `step` now, or later if the widget is scrolled out of view or this turn's time is used up.

    In a change of theme, widgets in view have their step before the window is painted.
    """
    slices, now = _current(), time.perf_counter()
    is_in_view = not widget.visibleRegion().isEmpty()
    if widget.isVisible() and (not is_in_view or now > (slices.at_once_until or now)):
        if not is_in_view or not theme.current().before_painting(partial(_now, widget, step)):
            later(widget, step)
        return
    _now(widget, step)


def _now(widget: QWidget, step: Callable[[], bool]) -> None:
    if not isValid(widget):
        return
    slices = _current()
    slices.work.pop(widget, None)
    slices.at_once_until = slices.at_once_until or time.perf_counter() + AT_ONCE_S
    slices.timer.start()
    if step():
        later(widget, step)


def is_working() -> bool:
    return _slices is not None and isValid(_slices) and any(isValid(widget) for widget in _slices.work)
