"""Files that are dropped anywhere on a page go to its composer, which shows that it would take them."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from app.ui.composer.composer import Composer
from app.ui.composer.message_field import files_in


class FileDrop(QObject):
    """Lives as long as the page. Dragged words are none of its business: they belong where they are let go."""

    def __init__(self, page: QWidget, composer: Composer) -> None:
        super().__init__(page)
        self._composer = composer
        page.setAcceptDrops(True)
        page.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        composer = self._composer
        if isinstance(event, QDragLeaveEvent):
            composer.dragLeaveEvent(event)
            return True
        if isinstance(event, QDropEvent) and files_in(event.mimeData()):  # entering and moving are of that kind too
            if isinstance(event, QDragEnterEvent):
                composer.dragEnterEvent(event)
            elif isinstance(event, QDragMoveEvent):
                composer.dragMoveEvent(event)
            else:
                composer.dropEvent(event)
            return True
        return False
