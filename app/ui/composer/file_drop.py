"""Sends files dropped anywhere on a page to its composer."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from app.ui.composer.composer import Composer
from app.ui.composer.message_field import files_in


class FileDrop(QObject):
    """An event filter on the page. It ignores dragged text."""

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
        # drag enter and drag move events are also QDropEvents
        if isinstance(event, QDropEvent) and files_in(event.mimeData()):
            if isinstance(event, QDragEnterEvent):
                composer.dragEnterEvent(event)
            elif isinstance(event, QDragMoveEvent):
                composer.dragMoveEvent(event)
            else:
                composer.dropEvent(event)
            return True
        return False
