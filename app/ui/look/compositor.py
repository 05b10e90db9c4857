"""Whether windows can have transparent corners: an X server without a compositor paints them black."""

from __future__ import annotations

import ctypes
from functools import cache

from PySide6.QtGui import QGuiApplication


@cache
def see_through() -> bool:
    """Return False only on an X server without a compositor (many remote desktops)."""
    return QGuiApplication.platformName() != "xcb" or _x_is_composed()


def _x_is_composed() -> bool:
    """Return whether a compositor owns the selection _NET_WM_CM_S<screen>. Qt does not report it."""
    try:
        x = ctypes.CDLL("libX11.so.6")
    except OSError:
        return True
    x.XOpenDisplay.restype = x.XInternAtom.restype = x.XGetSelectionOwner.restype = ctypes.c_void_p
    x.XOpenDisplay.argtypes = [ctypes.c_char_p]
    x.XDefaultScreen.argtypes = x.XCloseDisplay.argtypes = [ctypes.c_void_p]
    x.XInternAtom.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    x.XGetSelectionOwner.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    display = x.XOpenDisplay(None)
    if not display:
        return True
    try:
        atom = x.XInternAtom(display, b"_NET_WM_CM_S%d" % x.XDefaultScreen(display), 0)
        return bool(x.XGetSelectionOwner(display, atom))
    finally:
        x.XCloseDisplay(display)
