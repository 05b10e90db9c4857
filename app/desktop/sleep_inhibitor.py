"""Keeps the PC from falling asleep while there is work.

Only automatic sleep is prevented: closing the lid or choosing Suspend still works. The screen may turn off if the
desktop distinguishes the two.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer

from app.desktop.desktop_bus import DesktopBus, Place
from app.translation import tr

log = logging.getLogger(__name__)

RELEASE_AFTER_MS = 300  # the next answer of a queue starts sooner

# The first one that works is used: the one that lets the screen turn off, then the one that every desktop has.
_SESSION = (
    Place("org.freedesktop.PowerManagement", "/org/freedesktop/PowerManagement/Inhibit",
          "org.freedesktop.PowerManagement.Inhibit"),
    Place("org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "org.freedesktop.ScreenSaver"),
)  # fmt: skip
_LOGIN = Place("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


class Hold(Protocol):
    """A way to keep a PC awake."""

    def begin(self, why: str) -> None: ...
    def end(self) -> None: ...


class SleepInhibitor(QObject):
    """Keeps the PC awake while there is a reason and the user allows it."""

    def __init__(self, hold: Hold | None = None) -> None:
        super().__init__()
        self._hold = hold if hold is not None else _hold_of_this_system()
        self._reasons: set[str] = set()
        self._allowed = True
        self._why = ""  # current reason; empty: not holding
        self._ending = QTimer(self, singleShot=True, interval=RELEASE_AFTER_MS)
        self._ending.timeout.connect(self._end)

    @property
    def holds(self) -> bool:
        return bool(self._why)

    def set_reason(self, reason: str, there: bool) -> None:
        """Add or remove a reason: "answering", "downloading"."""
        if there:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        self._update()

    def set_allowed(self, allowed: bool) -> None:
        self._allowed = allowed
        self._update()

    def close(self) -> None:
        """Let the PC sleep."""
        self._reasons.clear()
        self._ending.stop()
        self._end()

    def _update(self) -> None:
        if self._reasons and self._allowed:
            self._ending.stop()
            if not self.holds:
                self._why = tr("Hearth is {reasons}", reasons=", ".join(map(tr, sorted(self._reasons))))
                log.info("keeps the PC awake")
                self._hold.begin(self._why)
        elif self.holds and not self._ending.isActive():
            self._ending.start()

    def _end(self) -> None:
        if self.holds:
            self._why = ""
            log.info("lets the PC sleep")
            self._hold.end()


class DesktopHold:
    """By D-Bus: an inhibition of the session, or of the system's login manager for PCs without a desktop session."""

    def __init__(self) -> None:
        self._session, self._system = DesktopBus("SESSION"), DesktopBus("SYSTEM")
        self._turn = 0  # counts begins and ends: late answers to earlier calls are ignored
        self._cookie: tuple[Place, int] | None = None
        self._descriptor: Any = None

    def begin(self, why: str) -> None:
        self._turn += 1
        self._ask_session(0, why, self._turn)
        self._system.call(
            _LOGIN, "Inhibit", "ssss", ("idle", "Hearth", why, "block"),
            lambda body, turn=self._turn: self._take_descriptor(body, turn),  # type: ignore[misc]
        )  # fmt: skip

    def end(self) -> None:
        self._turn += 1
        cookie, self._cookie = self._cookie, None
        if cookie is not None:
            self._session.call(cookie[0], "UnInhibit", "u", (cookie[1],))
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def close(self) -> None:
        self._session.close()
        self._system.close()

    def _ask_session(self, index: int, why: str, turn: int) -> None:
        if index == len(_SESSION) or turn != self._turn:
            return
        place = _SESSION[index]
        self._session.call(
            place, "Inhibit", "ss", ("Hearth", why), lambda body: self._take_cookie(place, body, turn),
            lambda: self._ask_session(index + 1, why, turn),
        )  # fmt: skip

    def _take_cookie(self, place: Place, body: tuple[Any, ...], turn: int) -> None:
        if turn == self._turn:
            self._cookie = (place, body[0])
        else:
            self._session.call(place, "UnInhibit", "u", (body[0],))

    def _take_descriptor(self, body: tuple[Any, ...], turn: int) -> None:
        if turn == self._turn:
            self._descriptor = body[0]
        else:
            body[0].close()


class WindowsHold:
    """Windows counts it by thread, so call both from the same thread."""

    _CONTINUOUS, _SYSTEM_REQUIRED = 0x80000000, 0x00000001

    def begin(self, why: str) -> None:
        self._set(self._CONTINUOUS | self._SYSTEM_REQUIRED)

    def end(self) -> None:
        self._set(self._CONTINUOUS)

    def _set(self, state: int) -> None:
        import ctypes

        if not ctypes.windll.kernel32.SetThreadExecutionState(state):  # type: ignore[attr-defined]
            log.info("the system does not say how it may sleep")


class NoHold:
    """For systems without such a way."""

    def begin(self, why: str) -> None: ...
    def end(self) -> None: ...


def _hold_of_this_system() -> Hold:
    if sys.platform == "win32":
        return WindowsHold()
    return DesktopHold() if sys.platform.startswith("linux") else NoHold()
