"""Dragging a chat within the list, or files onto it: where they can be dropped, and what the drop means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QPoint, QRectF, Qt
from PySide6.QtGui import QDrag, QPainter, QPixmap

from app.translation import tr
from app.ui.look import theme
from app.ui.look.painting import block, outline
from app.ui.sidebar.chat_model import FOLDERS, PINNED, ChatModel, ChatRow, FolderRow
from app.ui.widgets.marked_line import paint_line

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

MIME = "application/x-hearth-chat"
WIDE_PX, HIGH_PX = 200, 34


@dataclass(frozen=True)
class Place:
    """The target of a drop: pinned, a folder, or neither."""

    pinned: bool = False
    folder: str = ""


def place_of(model: ChatModel, row: int) -> Place | None:
    """Return what a drop on a row means; None if nothing can be dropped there."""
    if model.searching or not 0 <= row < len(model.rows):
        return None
    found = model.rows[row]
    if isinstance(found, FolderRow):
        return Place(folder=found.name)
    if isinstance(found, ChatRow):
        return Place(found.conversation.pinned, found.folder)
    return None if found == tr(FOLDERS) else Place(pinned=found == tr(PINNED))


def rows_of(model: ChatModel, place: Place) -> frozenset[int]:
    """Return the rows to highlight for a target."""
    if place.folder:
        return frozenset(
            i for i, row in enumerate(model.rows)
            if (isinstance(row, FolderRow) and row.name == place.folder)
            or (isinstance(row, ChatRow) and row.folder == place.folder)
        )  # fmt: skip
    return frozenset(
        i for i, row in enumerate(model.rows)
        if isinstance(row, ChatRow) and not row.folder and row.conversation.pinned == place.pinned
    )  # fmt: skip


def files_in(data: QMimeData) -> list[Path]:
    """Return the local files and folders that are dragged from another program."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile() and url.toLocalFile()]


def carried(data: QMimeData) -> str:
    """Return the id of the dragged chat; empty for anything else."""
    return bytes(data.data(MIME).data()).decode("utf-8", "replace") if data.hasFormat(MIME) else ""


def start(source: QWidget, row: ChatRow) -> None:
    """Drag a chat until the mouse button is released."""
    drag, data = QDrag(source), QMimeData()
    data.setData(MIME, row.conversation.id.encode())
    drag.setMimeData(data)
    scale = source.devicePixelRatioF()
    picture = QPixmap(round(theme.px(WIDE_PX) * scale), round(theme.px(HIGH_PX) * scale))
    picture.setDevicePixelRatio(scale)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    card = QRectF(0, 0, theme.px(WIDE_PX), theme.px(HIGH_PX))
    block(painter, card, theme.colour("card"), theme.px(8))
    outline(painter, card, theme.colour("edge"), theme.px(8))
    inset = theme.px(10)
    room = card.toRect().adjusted(inset, 0, -inset, 0)
    paint_line(painter, room, row.title, "row", theme.colour("ink"), (), source.isRightToLeft())
    painter.end()
    drag.setPixmap(picture)
    drag.setHotSpot(QPoint(theme.px(18), theme.px(HIGH_PX // 2)))
    drag.exec(Qt.DropAction.MoveAction)
