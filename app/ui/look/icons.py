"""Line icons and the logo: 24-unit paths with one stroke width, painted as vectors in a token's colour.

A QIcon, for menus and fields that paint icons themselves, gets pixmaps at the usual scales.
"""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPaintEvent, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui.look import theme
from engine.assets import asset_root

SCALES = (1.0, 1.25, 1.5, 2.0, 3.0)

PATHS: dict[str, str] = {
    "plus": "M12 5v14M5 12h14",
    "thinking": "M9.5 18h5M10.5 21h3M12 3a6 6 0 0 0-3.7 10.7c.7.6 1.2 1.4 1.2 2.3h5c0-.9.5-1.7 1.2-2.3A6 6 0 0 0 12 3z",
    "no_thinking": "M9.5 18h5M10.5 21h3M7 5.7a6 6 0 0 0 1.3 8c.7.6 1.2 1.4 1.2 2.3h5M9.3 3.6a6 6 0 0 1 7.6 8.9M4.5 "
    "4.5l15 15",
    "search": "M11 4.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM16 16l4 4",
    "chat": "M6 5h12a2.5 2.5 0 0 1 2.5 2.5v7A2.5 2.5 0 0 1 18 17h-6.5L7 20.5V17H6a2.5 2.5 0 0 "
    "1-2.5-2.5v-7A2.5 2.5 0 0 1 6 5z",
    "settings": "M4 7.5h8M18 7.5h2M4 16.5h2M12 16.5h8M15 5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM9 14a2.5 2.5 0 1 "
    "0 0 5 2.5 2.5 0 0 0 0-5z",
    "copy": "M10.5 9h8A1.5 1.5 0 0 1 20 10.5v8a1.5 1.5 0 0 1-1.5 1.5h-8A1.5 1.5 0 0 1 9 18.5v-8A1.5 1.5 0 0 1 "
    "10.5 9zM15 9V5.5A1.5 1.5 0 0 0 13.5 4h-8A1.5 1.5 0 0 0 4 5.5v8A1.5 1.5 0 0 0 5.5 15H9",
    "redo": "M19 8.5A8 8 0 1 0 20 13M19.5 4v4.5H15",
    "back": "M9 6L4.5 10.5 9 15M5 10.5h9a5 5 0 0 1 0 10h-3",
    "forth": "M15 6l4.5 4.5L15 15M19 10.5h-9a5 5 0 0 0 0 10h3",
    "cut": "M7 15.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM17 15.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z"
    "M8.5 16L16 4M15.5 16L8 4",
    "paste": "M9 5.5H6.5A1.5 1.5 0 0 0 5 7v12a1.5 1.5 0 0 0 1.5 1.5h11A1.5 1.5 0 0 0 19 19V7a1.5 1.5 0 0 0-1.5-1.5H15"
    "M9 4h6v4H9z",
    "down": "M7 10l5 5 5-5",
    "up": "M7 14l5-5 5 5",
    "right": "M10 7l5 5-5 5",
    "left": "M14 7l-5 5 5 5",
    "end": "M12 5v13M6 12.5l6 6 6-6",
    "eject": "M6 13.5l6-7 6 7zM6 18h12",
    "clock": "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 7.5V12l3 2",
    "check": "M5 12.5l4.5 4.5L19 7.5",
    "close": "M6.5 6.5l11 11M17.5 6.5l-11 11",
    "send": "M12 19V5.5M6 11.5l6-6 6 6",
    "panel": "M6 5h12a2.5 2.5 0 0 1 2.5 2.5v9A2.5 2.5 0 0 1 18 19H6a2.5 2.5 0 0 1-2.5-2.5v-9A2.5 2.5 0 0 1 6 "
    "5zM9.5 5v14",
    "more": "M5.5 12h.01M12 12h.01M18.5 12h.01",
    "warn": "M12 4.5l8.5 15h-17zM12 10.5v4M12 17.2h.01",
    "info": "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 11v5M12 7.9h.01",
    "question": "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM9.7 9.9a2.3 2.3 0 1 1 3.4 2c-.7.4-1.1.9-1.1 1.7M12 16.4h.01",
    "pen": "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
    "trash": "M5 7h14M9.5 7V5.2A1.2 1.2 0 0 1 10.7 4h2.6a1.2 1.2 0 0 1 1.2 1.2V7M7 7l.8 11.6A1.5 1.5 0 0 0 9.3 "
    "20h5.4a1.5 1.5 0 0 0 1.5-1.4L17 7M10.3 11v5M13.7 11v5",
    "code": "M9 7l-5 5 5 5M15 7l5 5-5 5",
    "browser": "M4 5h16v14H4zM4 9.5h16M6.5 7.25h.01M9 7.25h.01",
    "diagram": "M4 5h7v5H4zM13 14h7v5h-7zM7.5 10v6.5H13",
    "table": "M5 5h14v14H5zM5 10h14M5 14.5h14M10.5 10v9",
    "lock": "M7 11h10a1.5 1.5 0 0 1 1.5 1.5v5A1.5 1.5 0 0 1 17 19H7a1.5 1.5 0 0 1-1.5-1.5v-5A1.5 1.5 0 0 1 7 "
    "11zM8.5 11V8.5a3.5 3.5 0 0 1 7 0V11",
    "chip": "M8 6h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H8a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2zM10 3.5V6M14 3.5V6M10 "
    "18v2.5M14 18v2.5M3.5 10H6M3.5 14H6M18 10h2.5M18 14h2.5",
    "models": "M12 3.5l7.5 4.2v8.6L12 20.5l-7.5-4.2V7.7zM4.8 7.9L12 12l7.2-4.1M12 12v8.3",
    "live": "M3.5 12.5h3.5l2.5-6.5 4.5 12 2.5-5.5h4",
    "pin": "M9 4h6M10 4v5.5L7 13.5h10L14 9.5V4M12 13.5V20",
    "unpin": "M9 4h6M10 4v5.5L7 13.5h10L14 9.5V4M12 13.5V20M4.5 4.5l15 15",
    "folder-new": "M4 7.5A1.5 1.5 0 0 1 5.5 6h4l2 2.5h7A1.5 1.5 0 0 1 20 10v7a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 "
    "4 17zM12 11v5M9.5 13.5h5",
    "put": "M12 15V4M7 8.5l5-5 5 5M5 20h14",
    "get": "M12 4v11M7 10.5l5 5 5-5M5 20h14",
    "pause": "M9 6v12M15 6v12",
    "go-on": "M9 6.5l8 5.5-8 5.5z",
    "folder": "M4 7.5A1.5 1.5 0 0 1 5.5 6h4l2 2.5h7A1.5 1.5 0 0 1 20 10v7a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 "
    "4 17z",
    "file": "M7.5 4h6L18 8.5v10a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 6 18.5v-13A1.5 1.5 0 0 1 7.5 4zM13.5 4v4.5H18",
    "documents": "M9 3.5h5.5L18.5 7.5v8a1.5 1.5 0 0 1-1.5 1.5H9A1.5 1.5 0 0 1 7.5 15.5V5A1.5 1.5 0 0 1 9 3.5zM14.5 "
    "3.5v4h4M7.5 7H7a1.5 1.5 0 0 0-1.5 1.5V19A1.5 1.5 0 0 0 7 20.5h7.5a1.5 1.5 0 0 0 1.5-1.5",
    "eye": "M3 12s3.3-6 9-6 9 6 9 6-3.3 6-9 6-9-6-9-6zM12 9.3a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4z",
    "away": "M7.2 18.5h9.9a3.9 3.9 0 0 0 .7-7.73A5.9 5.9 0 0 0 6.4 10.3a4.15 4.15 0 0 0 .8 8.2z",
    "server": "M5.5 4.5h13a1.5 1.5 0 0 1 1.5 1.5v3.5a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 9.5V6a1.5 1.5 0 0 1 "
    "1.5-1.5zM5.5 13h13a1.5 1.5 0 0 1 1.5 1.5V18a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 18v-3.5A1.5 1.5 0 0 1 5.5 "
    "13zM7.5 7.7h.1M7.5 16.2h.1",
    "lines": "M5 6.5h14M5 11h14M5 15.5h8",
    "wrap": "M4 6.5h16M4 12h12.5a3 3 0 0 1 0 6H12M14.3 15.7L12 18l2.3 2.3M4 18h4",
    "tool": "M18.6 4.9l-2.7 2.7.5 1.9 1.9.5 2.7-2.7a4.7 4.7 0 0 1-6.3 5.7l-6.5 6.5a2 2 0 0 1-2.8-2.8l6.5-6.5a4.7 4.7 "
    "0 0 1 6.7-5.3z",
    "tune": "M5 7h14M7.5 12h9M10 17h4",
    "hearth": "M4.9 20v-7.6a7.1 7.1 0 0 1 14.2 0V20M12.3 8.6c.4 2.7 3.6 4.1 3.6 7.5a3.9 3.9 0 0 1-7.8 0c0-1.7.8-2.8 "
    "1.8-3.7.2.9.5 1.5 1.1 1.8-.3-2 .3-4.1 1.3-5.6z",  # for trays
    "stop": "",
}


@cache
def _renderer(name: str, colour: str) -> QSvgRenderer:
    if name == "stop":  # the only filled icon
        body = f'<rect x="7" y="7" width="10" height="10" rx="2" fill="{colour}" stroke="none"/>'
    else:
        body = f'<path d="{PATHS[name]}"/>'
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" '
        f'stroke="{colour}" stroke-width="{2.6 if name == "more" else 1.7}" stroke-linecap="round" '
        f'stroke-linejoin="round">{body}</svg>'
    )
    return QSvgRenderer(QByteArray(svg.encode()))


@cache
def _mark(bordered: bool) -> QSvgRenderer:
    svg = (asset_root() / "icons" / "hearth.svg").read_text(encoding="utf-8")
    if not bordered:  # below 24 pixels the tile's border is only a blur
        svg = svg.replace(' stroke="#45382F" stroke-width="1.25"', "")
    return QSvgRenderer(QByteArray(svg.encode()))


def paint(painter: QPainter, name: str, rect: QRectF, colour: str | QColor) -> None:
    """Paint an icon into a rectangle. "mark" is the logo, which keeps its colours; "none" paints nothing."""
    if name == "mark":
        _mark(rect.width() >= 24).render(painter, rect)
    elif name != "none":
        _renderer(name, QColor(colour).name()).render(painter, rect)


def _pixmap(name: str, colour: str, size: float, scale: float) -> QPixmap:
    side = round(size * scale)
    out = QPixmap(QSize(side, side))
    out.fill(Qt.GlobalColor.transparent)
    painter = QPainter(out)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    paint(painter, name, QRectF(0, 0, side, side), colour)
    painter.end()
    out.setDevicePixelRatio(scale)
    return out


def icon(name: str, token: str = "ink2", px: int = 17) -> QIcon:
    """Return an icon for widgets that paint icons themselves (menus, fields), at the usual scales, Normal and Disabled.

    Its colours are those of the current theme: get it again when the theme changes.
    """
    tokens = theme.current().tokens
    return _icon(name, getattr(tokens, token), tokens.ink3, theme.px(px))


@cache
def _icon(name: str, colour: str, disabled: str, size: int) -> QIcon:
    out = QIcon()
    for scale in SCALES:
        out.addPixmap(_pixmap(name, colour, size, scale), QIcon.Mode.Normal)
        out.addPixmap(_pixmap(name, disabled, size, scale), QIcon.Mode.Disabled)
    return out


def line_icon(name: str, colour: QColor, sizes: tuple[int, ...]) -> QIcon:
    """Return a line icon in one colour, at sizes in px that ignore the zoom."""
    out = QIcon()
    for size in sizes:
        out.addPixmap(_pixmap(name, colour.name(), size, 1.0))
    return out


def app_icon() -> QIcon:
    """Return the window's icon at the sizes that desktops use."""
    out = QIcon()
    for size in (16, 20, 24, 32, 48, 64, 128, 256):
        out.addPixmap(_pixmap("mark", "", size, 1.0))
    return out


class Glyph(QWidget):
    """An icon as a widget, painted as a vector, so it is sharp at any scale.

    disc: a token for a rounded tile behind it, 7 px wider on every side. It has no accessible name: the text beside it
    does.
    """

    def __init__(
        self, name: str, token: str = "ink2", px: int = 18, disc: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.name, self.token, self.px, self.disc = name, token, px, disc
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_look(self, name: str, token: str, disc: str = "") -> None:
        """Set icon, colour and tile."""
        self.name, self.token, self.disc = name, token, disc
        self._restyle()

    def _restyle(self) -> None:
        side = theme.px(self.px + (14 if self.disc else 0))
        self.setFixedSize(side, side)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.disc:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour(self.disc))
            painter.drawRoundedRect(QRectF(self.rect()), theme.px(8), theme.px(8))
        side = theme.px(self.px)
        inset = (self.width() - side) / 2
        paint(painter, self.name, QRectF(inset, inset, side, side), theme.colour(self.token))
