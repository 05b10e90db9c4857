"""Close the window on Ctrl+C and SIGTERM."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

from PySide6.QtCore import QObject, QSocketNotifier


class QuitOnSignals(QObject):
    """Closes the window on Ctrl+C and SIGTERM without a timer that would keep waking Python."""

    def __init__(self, quit_: Callable[[], None]) -> None:
        super().__init__()
        self._ours, self._pythons = socket.socketpair()
        for end in (self._ours, self._pythons):
            end.setblocking(False)
        signal.set_wakeup_fd(self._pythons.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._notifier = QSocketNotifier(self._ours.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(lambda *_: quit_())

    def close(self) -> None:
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(-1)
        self._ours.close()
        self._pythons.close()
