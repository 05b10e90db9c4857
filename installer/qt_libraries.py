"""Finds the system libraries that Qt needs and this Linux lacks, and the packages that hold them; installs nothing.

Wheels of PySide6 bring Qt itself, but not X11's, OpenGL's and the font libraries below it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# What ldd names for the offscreen platform: enough for the tests and for pictures without a screen.
OFFSCREEN: dict[str, tuple[str, str]] = {
    # soname: (Debian's and Ubuntu's package, Arch's package)
    "libEGL.so.1": ("libegl1", "libglvnd"),
    "libGL.so.1": ("libgl1", "libglvnd"),
    "libX11.so.6": ("libx11-6", "libx11"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig"),
    "libfreetype.so.6": ("libfreetype6", "freetype2"),
    "libglib-2.0.so.0": ("libglib2.0-0", "glib2"),
    "libgthread-2.0.so.0": ("libglib2.0-0", "glib2"),
    "libxcb.so.1": ("libxcb1", "libxcb"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon"),
    "libz.so.1": ("zlib1g", "zlib"),
    "libzstd.so.1": ("libzstd1", "zstd"),
}
# What a window on X11 needs besides.
DISPLAY: dict[str, tuple[str, str]] = {
    "libX11-xcb.so.1": ("libx11-xcb1", "libx11"),
    "libxcb-cursor.so.0": ("libxcb-cursor0", "xcb-util-cursor"),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm"),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image"),
    "libxcb-keysyms.so.1": ("libxcb-keysyms1", "xcb-util-keysyms"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb"),
    "libxcb-render-util.so.0": ("libxcb-render-util0", "xcb-util-renderutil"),
    "libxcb-render.so.0": ("libxcb-render0", "libxcb"),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb"),
    "libxcb-shm.so.0": ("libxcb-shm0", "libxcb"),
    "libxcb-sync.so.1": ("libxcb-sync1", "libxcb"),
    "libxcb-util.so.1": ("libxcb-util1", "xcb-util"),
    "libxcb-xfixes.so.0": ("libxcb-xfixes0", "libxcb"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb"),
    "libxkbcommon-x11.so.0": ("libxkbcommon-x11-0", "libxkbcommon-x11"),
}
# Asked of ldd only under Wayland, where Qt falls back to X11 without them.
WAYLAND: dict[str, tuple[str, str]] = {
    "libwayland-client.so.0": ("libwayland-client0", "wayland"),
    "libwayland-cursor.so.0": ("libwayland-cursor0", "wayland"),
}
_PACKAGES = {**OFFSCREEN, **DISPLAY, **WAYLAND}
_OFFSCREEN_FILES = ("Qt/plugins/platforms/libqoffscreen.so", "QtWidgets.abi3.so", "QtSvg.abi3.so", "QtTest.abi3.so")
_DISPLAY_FILES = ("Qt/plugins/platforms/libqxcb.so",)
_WAYLAND_FILES = ("Qt/plugins/platforms/libqwayland.so",)


def missing_for_offscreen(pyside: Path) -> list[str]:
    """Sonames without which Qt does not start at all."""
    return _missing(pyside, _OFFSCREEN_FILES, tuple(OFFSCREEN))


def missing_for_display(pyside: Path) -> list[str]:
    """Sonames without which no window opens."""
    files, sonames = [*_DISPLAY_FILES], [*OFFSCREEN, *DISPLAY]
    if os.environ.get("WAYLAND_DISPLAY"):
        files += _WAYLAND_FILES
        sonames += WAYLAND
    return _missing(pyside, files, sonames)


def parse_ldd(output: str) -> list[str]:
    """The sonames that ldd could not find, each once, Qt's own left out."""
    missing = {line.split("=>")[0].strip() for line in output.splitlines() if line.rstrip().endswith("=> not found")}
    return sorted(name for name in missing if not name.startswith(("libQt6", "libpyside6", "libshiboken6")))


def packages_for(sonames: Sequence[str], manager: str) -> tuple[list[str], list[str]]:
    """The packages that hold the libraries, and the sonames of which no package is known."""
    if manager in ("dnf", "zypper"):  # these find a library by its name
        return [f"{name}()(64bit)" for name in sonames], []
    column = {"apt": 0, "pacman": 1}.get(manager)
    if column is None:
        return [], list(sonames)
    known = [_PACKAGES[name][column] for name in sonames if name in _PACKAGES]
    return sorted(set(known)), [name for name in sonames if name not in _PACKAGES]


def _missing(pyside: Path, files: Sequence[str], sonames: Sequence[str]) -> list[str]:
    ldd = shutil.which("ldd")
    paths = [str(pyside / name) for name in files if (pyside / name).is_file()]
    output = _ldd(ldd, paths) if ldd and paths else None
    if output is not None:
        return parse_ldd(output)
    return sorted(name for name in sonames if not _loads(name))


def _ldd(ldd: str, paths: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [ldd, *paths],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = done.stdout.decode("utf-8", "replace")
    return output if "=>" in output else None


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True
