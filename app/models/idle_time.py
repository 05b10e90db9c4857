"""Tells when the engine has been idle for a while, and when it works again."""

from __future__ import annotations

from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.engine_status import EngineStatus

IDLE_AFTER_S = 120.0


class Watched(Protocol):
    """The needed part of the chat controller."""

    status_changed: Any  # Signal(EngineStatus)

    @property
    def status(self) -> EngineStatus: ...


class IdleTime(QObject):
    """Idle from `after_s` after the engine's last work until its next."""

    changed = Signal(bool)

    def __init__(self, chat: Watched, after_s: float = IDLE_AFTER_S) -> None:
        super().__init__()
        self._chat = chat
        self.is_idle = False
        self._timer = QTimer(self, singleShot=True, interval=int(after_s * 1000))
        self._timer.timeout.connect(self._begin)
        chat.status_changed.connect(self._update)
        self._update()

    @Slot()
    def _update(self, *_: object) -> None:
        if self._chat.status.working:
            self._timer.stop()
            if self.is_idle:
                self.is_idle = False
                self.changed.emit(False)
        elif not self.is_idle and not self._timer.isActive():
            self._timer.start()

    @Slot()
    def _begin(self) -> None:
        self.is_idle = True
        self.changed.emit(True)

    def close(self) -> None:
        self._timer.stop()
