"""Draws the icon in every size that desktops ask for, from the one drawing; run in the .venv, it needs Qt.

python installer/icons.py FOLDER     # hicolor/SIZExSIZE/apps/NAME.png, hicolor/scalable/apps/NAME.svg, hearth.ico
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

NAME = "io.github.hearth.Hearth"
DRAWING = Path(__file__).resolve().parents[1] / "assets" / "icons" / "hearth.svg"
SIZES = (16, 22, 24, 32, 48, 64, 96, 128, 256, 512)
WINDOWS_SIZES = (16, 20, 24, 32, 40, 48, 64, 256)
_BORDER = ' stroke="#45382F" stroke-width="1.25"'
_BORDER_FROM_PX = 24  # below, the tile's border would only blur it


def draw_all(folder: Path) -> None:
    """Write every icon below the folder. Raises OSError."""
    for size in SIZES:
        _write(folder / "hicolor" / f"{size}x{size}" / "apps" / f"{NAME}.png", png(size))
    _write(folder / "hicolor" / "scalable" / "apps" / f"{NAME}.svg", DRAWING.read_bytes())
    _write(folder / "hearth.ico", windows_icon([(size, png(size)) for size in WINDOWS_SIZES]))


def png(size_px: int) -> bytes:
    """The icon as a square PNG picture."""
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QRectF, Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    image = QImage(size_px, size_px, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(drawing(size_px).encode())).render(painter, QRectF(0, 0, size_px, size_px))
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the binding's types want bytes, and refuse them
    return bytes(buffer.data().data())


def drawing(size_px: int) -> str:
    text = DRAWING.read_text(encoding="utf-8")
    return text if size_px >= _BORDER_FROM_PX else text.replace(_BORDER, "")


def windows_icon(pictures: list[tuple[int, bytes]]) -> bytes:
    """An .ico file that holds the PNG pictures as they are. pictures: size in pixels, PNG."""
    head = struct.pack("<HHH", 0, 1, len(pictures))
    at = len(head) + 16 * len(pictures)
    entries = b""
    for size, data in pictures:
        entries += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(data), at)
        at += len(data)
    return head + entries + b"".join(data for _, data in pictures)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
