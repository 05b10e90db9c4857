"""Hearth without a window: checks whether a window can be shown, and chats in the terminal otherwise.

Qt ends the whole program if it finds no display or lacks a library, so both are checked before Qt is imported.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

STARTER = "starter-chat"
_NO_SCREEN_NEEDED = {"offscreen", "minimal", "vnc", "linuxfb", "eglfs", "minimalegl", "vkkhrdisplay"}


def why_no_window() -> str | None:
    """Return why no window can be shown, as one sentence, or None. Opens no window. Cost: a few ms."""
    if not sys.platform.startswith("linux"):
        return None
    wanted = os.environ.get("QT_QPA_PLATFORM", "").partition(":")[0].partition(";")[0]
    if wanted in _NO_SCREEN_NEEDED:
        return None
    display, wayland = os.environ.get("DISPLAY"), os.environ.get("WAYLAND_DISPLAY")
    if not display and not wayland:
        return "There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set."
    reasons = []
    if wayland and wanted in ("", "wayland"):
        reason = _why_no_wayland(wayland)
        if reason is None:
            if not display or _why_no_xcb(display) is not None:
                os.environ["QT_QPA_PLATFORM"] = "wayland"  # otherwise Qt might try X11 and end the program
            return None
        reasons.append(reason)
    if display and wanted in ("", "xcb"):
        reason = _why_no_xcb(display)
        if reason is None:
            if wayland:
                os.environ["QT_QPA_PLATFORM"] = "xcb"
            return None
        reasons.append(reason)
    return " ".join(reasons) or f"QT_QPA_PLATFORM={wanted} does not fit the display of this session."


def _plugin(name: str) -> Path | None:
    spec = importlib.util.find_spec("PySide6")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = (Path(folder) / "Qt" / "plugins" / "platforms" / name for folder in folders)
    return next((path for path in found if path.is_file()), None)


def _why_not_loadable(name: str) -> str | None:
    path = _plugin(name)
    if path is None:
        return None  # a frozen program has its plugins elsewhere, with their libraries
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        library = str(error).partition(":")[0]
        return f"The system library {library} is missing. `python3 installer/bootstrap.py run` installs or names it."
    return None


def _why_no_wayland(display: str) -> str | None:
    socket = Path(os.environ.get("XDG_RUNTIME_DIR", "/"), display)  # an absolute display stays as it is
    if not socket.exists():
        return f"The Wayland display {display} does not answer."
    return _why_not_loadable("libqwayland.so")


def _why_no_xcb(display: str) -> str | None:
    if reason := _why_not_loadable("libqxcb.so"):
        return reason
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return "The system library libxcb.so.1 is missing."
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connection_has_error.argtypes = [ctypes.c_void_p]
    xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(None, None)
    failed = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return f"The display {display} does not answer." if failed else None


def chat(model: str | None) -> int:
    """Chat in the terminal and return the exit code."""
    from engine.commands.cli import main

    return main(["chat", model or STARTER])


def answer(prompt: str, model: str | None) -> int:
    """Print one answer and return the exit code."""
    from engine.commands.cli import main

    return main(["generate", model or STARTER, "--prompt", prompt])
