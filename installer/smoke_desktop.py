"""The desktop that the smoke test opens the built program on: finds its window, types, asks it to quit.

On Linux a screen of its own (Xvfb) with real key events (xdotool); on Windows the desktop that is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

SCREEN = "1280x832x24"
_STARTS_WITHIN_S = 30.0


class SmokeTestError(Exception):
    """A failure of the smoke test, as a sentence."""


class Desktop(Protocol):
    """A place where a program can open a window."""

    environment: dict[str, str]

    def window_of(self, pid: int) -> int | None:
        """The handle of the program's visible window; None as long as there is none."""

    def bring_forward(self, window: int) -> None:
        """Give the window the keyboard."""

    def type_line(self, window: int, text: str) -> None:
        """Type the text and Enter."""

    def ask_to_quit(self, window: int) -> None:
        """Press Ctrl Q."""


@contextlib.contextmanager
def open_desktop() -> Iterator[Desktop]:
    """The desktop for this system; it is gone afterwards where it was made. Raises: SmokeTestError."""
    if sys.platform == "win32":
        yield WindowsDesktop()
        return
    for tool in ("Xvfb", "xdotool"):
        if shutil.which(tool) is None:
            raise SmokeTestError(f"{tool} is not installed")
    read, write = os.pipe()
    with subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", SCREEN, "-nolisten", "tcp", "-noreset"],
        pass_fds=(write,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        os.close(write)
        try:
            with os.fdopen(read, "rb") as numbers:
                number = numbers.readline().strip().decode()  # ends with the server, should that fail
            if not number:
                raise SmokeTestError("Xvfb did not start")
            yield VirtualScreen(f":{number}")
        finally:
            server.terminate()


class VirtualScreen:
    """A screen of Xvfb; no window manager runs there."""

    def __init__(self, display: str) -> None:
        self.environment = {"DISPLAY": display}

    def window_of(self, pid: int) -> int | None:
        said = self._xdotool("search", "--onlyvisible", "--pid", str(pid), "--name", "Hearth", check=False)
        return int(said.split()[0]) if said.split() else None

    def bring_forward(self, window: int) -> None:
        self._xdotool("windowfocus", "--sync", str(window))

    def type_line(self, window: int, text: str) -> None:
        self._xdotool("type", "--delay", "20", text)
        self._xdotool("key", "Return")

    def ask_to_quit(self, window: int) -> None:
        self._xdotool("key", "ctrl+q")

    def _xdotool(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["xdotool", *arguments], env={**os.environ, **self.environment}, capture_output=True, text=True,
            timeout=_STARTS_WITHIN_S, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise SmokeTestError(f"xdotool {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


class WindowsDesktop:
    """The desktop of the person who is signed in; keys go to the window as messages."""

    _CHAR, _KEY_DOWN, _KEY_UP, _CLOSE, _ENTER = 0x0102, 0x0100, 0x0101, 0x0010, 0x0D

    def __init__(self) -> None:
        import ctypes

        self.environment: dict[str, str] = {}
        self._ctypes: Any = ctypes
        self._user: Any = getattr(ctypes, "windll").user32  # noqa: B009 - other systems' types do not have it

    def window_of(self, pid: int) -> int | None:
        found: list[int] = []
        ctypes, user = self._ctypes, self._user

        def look(window: int, _: int) -> bool:
            owner = ctypes.c_ulong()
            user.GetWindowThreadProcessId(window, ctypes.byref(owner))
            if owner.value == pid and user.IsWindowVisible(window) and user.GetWindowTextLengthW(window):
                found.append(window)
            return True

        user.EnumWindows(ctypes.WINFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(look), 0)
        return found[0] if found else None

    def bring_forward(self, window: int) -> None:
        self._user.SetForegroundWindow(window)

    def type_line(self, window: int, text: str) -> None:
        for letter in text:
            self._user.PostMessageW(window, self._CHAR, ord(letter), 1)
            time.sleep(0.02)
        self._user.PostMessageW(window, self._KEY_DOWN, self._ENTER, 1)
        self._user.PostMessageW(window, self._KEY_UP, self._ENTER, 0xC0000001)

    def ask_to_quit(self, window: int) -> None:
        self._user.PostMessageW(window, self._CLOSE, 0, 0)
