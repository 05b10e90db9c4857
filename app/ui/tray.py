"""Hearth's tray icon: the engine's state as its tooltip, and a short menu.

It also shows notifications on desktops that have no other way.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction, QColor, QIcon
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from app.clients.engine_status import EngineStatus
from app.translation import tr
from app.ui.look import icons, theme


class Tray(QObject):
    """The tray icon, hidden until `set_there`. opened: show the window."""

    opened = Signal()
    new_chat = Signal()
    stop = Signal()
    quit = Signal()
    clicked = Signal()  # the last notification was clicked

    def __init__(self) -> None:
        super().__init__()
        self._icon: QSystemTrayIcon | None = None
        self._menu: QMenu | None = None
        self._stop: QAction | None = None
        self._status = EngineStatus()
        self.is_wanted = False

    @staticmethod
    def can_be() -> bool:
        return QSystemTrayIcon.isSystemTrayAvailable()

    def set_there(self, there: bool) -> None:
        self.is_wanted = there and self.can_be()
        if self.is_wanted:
            self._made().show()
        elif self._icon is not None:
            self._icon.hide()

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status."""
        self._status = status
        if self._icon is not None:
            words = f"Hearth: {status.word}" if status.working else "Hearth"
            if words != self._icon.toolTip():
                self._icon.setToolTip(words)
        if self._stop is not None:
            self._stop.setEnabled(status.answering)

    def show(self, title: str, sentence: str) -> None:
        """Show a notification. The icon is shown for that time even if it is not wanted."""
        if self.can_be():
            icon = self._made()
            icon.show()
            icon.showMessage(title, sentence, icons.app_icon())

    def withdraw(self) -> None:
        """Hide the icon if it was shown only for the notification, which a tray cannot withdraw."""
        if self._icon is not None and not self.is_wanted:
            self._icon.hide()

    def close(self) -> None:
        if self._icon is not None:
            self._icon.hide()

    def _made(self) -> QSystemTrayIcon:
        if self._icon is None:
            self._menu = menu = QMenu()
            menu.addAction(tr("Open Hearth"), self.opened.emit)
            menu.addAction(tr("New chat"), self.new_chat.emit)
            self._stop = menu.addAction(tr("Stop the answer"), self.stop.emit)
            menu.addSeparator()
            menu.addAction(tr("Quit"), self.quit.emit)
            self._icon = QSystemTrayIcon(tray_icon(), self)
            self._icon.setContextMenu(menu)
            self._icon.activated.connect(self._activated)
            self._icon.messageClicked.connect(self.clicked)
            theme.current().changed.connect(self._restyle)
            self.set_status(self._status)
        return self._icon

    def _restyle(self) -> None:
        if self._icon is not None:
            self._icon.setIcon(tray_icon())

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason in (QSystemTrayIcon.ActivationReason.Trigger, QSystemTrayIcon.ActivationReason.DoubleClick):
            self.opened.emit()


def tray_icon() -> QIcon:
    """Return the arch and flame as one stroke, in the ink of the desktop's theme, not Hearth's."""
    tokens = theme.DARK if theme.desktop_is_dark() else theme.LIGHT
    out = icons.line_icon("hearth", QColor(tokens.ink), (16, 20, 22, 24, 32, 44, 48))
    out.setIsMask(True)
    return out
