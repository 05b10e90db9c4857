"""Whether the desktop asks for reduced motion. Qt 6.11 does not tell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject

from app.desktop.desktop_bus import DesktopBus, Place

_SETTINGS = Place(
    "org.freedesktop.portal.Desktop", "/org/freedesktop/portal/desktop", "org.freedesktop.portal.Settings"
)
# Namespace, key, and the value for reduced motion.
_ASKED = (
    ("org.gnome.desktop.interface", "enable-animations", False),
    ("org.kde.kdeglobals.KDE", "AnimationDurationFactor", "0"),
)
_GET_CLIENT_AREA_ANIMATION = 0x1042  # for SystemParametersInfo of Windows


class DesktopMotion(QObject):
    """Asked once the window is shown; later changes take effect at the next start."""

    def __init__(self, bus: DesktopBus | None = None) -> None:
        super().__init__()
        self._bus = bus or DesktopBus("SESSION")

    def ask(self, tell: Callable[[bool], None]) -> None:
        """Call back with True if the desktop asks for reduced motion; else not at all."""
        if sys.platform == "win32":
            if not _windows_moves():
                tell(True)
        elif sys.platform.startswith("linux"):
            for namespace, key, still in _ASKED:
                self._bus.call(_SETTINGS, "ReadOne", "ss", (namespace, key),
                               lambda body, still=still: self._on_answer(body, still, tell))  # type: ignore[misc]  # fmt: skip

    def close(self) -> None:
        self._bus.close()

    def _on_answer(self, body: tuple[Any, ...], still: object, tell: Callable[[bool], None]) -> None:
        if body and body[0][1] == still:  # signature and value
            tell(True)


def _windows_moves() -> bool:
    import ctypes

    moves = ctypes.c_int(1)
    ctypes.windll.user32.SystemParametersInfoW(  # type: ignore[attr-defined]
        _GET_CLIENT_AREA_ANIMATION, 0, ctypes.byref(moves), 0
    )
    return bool(moves.value)
