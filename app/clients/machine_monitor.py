"""The machine in one line, and its live figures once a second while visible, from a thread of its own.

Never touches a GPU context. The figures come from engine/machine/monitor.py, the line from hardware.py beside it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QThread, QTimer, Signal, Slot

if TYPE_CHECKING:
    from engine.machine.monitor import Monitor

log = logging.getLogger(__name__)

EVERY_MS = 1000


class MachineMonitor(QObject):
    """Lives in a thread of its own. start, set_visible, watch and close are thread-safe."""

    described = Signal(object)  # engine.machine.hardware.MachineFacts, once
    sampled = Signal(object)  # engine.machine.monitor.MachineSample
    _started = Signal()
    _visible = Signal(bool)
    _watched = Signal(int)
    _closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._monitor: Monitor | None = None
        self._timer = QTimer(self, interval=EVERY_MS)
        self._timer.timeout.connect(self._sample)
        self._thread = QThread()
        self._thread.setObjectName("machine-monitor")
        self.moveToThread(self._thread)
        self._started.connect(self._start)
        self._visible.connect(self._set_visible)
        self._watched.connect(self._watch)
        self._closed.connect(self._close)

    def start(self) -> None:
        self._thread.start()
        self._started.emit()

    def set_visible(self, visible: bool) -> None:
        """Sample only while the window is visible."""
        self._visible.emit(visible)

    def watch(self, pid: int) -> None:
        """Count the engine's process with the window's."""
        self._watched.emit(pid)

    def close(self, timeout_s: float = 5.0) -> bool:
        """End the thread. Returns whether it ended in time."""
        if not self._thread.isRunning():
            return True
        self._closed.emit()
        return self._thread.wait(int(timeout_s * 1000))

    # --- in its own thread

    @Slot()
    def _start(self) -> None:
        from engine.machine.hardware import facts_of, probe
        from engine.machine.monitor import Monitor

        self._monitor = Monitor()
        self.described.emit(facts_of(probe()))

    @Slot(bool)
    def _set_visible(self, visible: bool) -> None:
        if visible and self._monitor is not None:
            if not self._timer.isActive():
                self._timer.start()
                self._sample()
        else:
            self._timer.stop()

    @Slot()
    def _sample(self) -> None:
        if self._monitor is not None:
            self.sampled.emit(self._monitor.sample())

    @Slot(int)
    def _watch(self, pid: int) -> None:
        if self._monitor is not None and pid:
            self._monitor.watch(pid)

    @Slot()
    def _close(self) -> None:
        self._timer.stop()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        self._thread.quit()
