"""The frame of the main window: size and position, whether it can be seen, and closing to the tray."""

from __future__ import annotations

import base64
from collections.abc import Callable

from PySide6.QtCore import QByteArray, QEvent, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QMainWindow

from app.ui.widgets import tab_order

FIRST_SIZE = (1280, 832)
SMALLEST = (720, 520)


class WindowFrame(QMainWindow):
    """A top-level window. visible_changed: whether it can be seen. closing: it was closed, not hidden.

    may_close: called when the user closes it or quits; False keeps it open.
    """

    visible_changed = Signal(bool)
    closing = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.stays_in_tray = False  # closing hides the window; only `quit` ends the program
        self.may_close: Callable[[], bool] = lambda: True
        self._seen = False
        self.setMinimumSize(*SMALLEST)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)

    def restore_geometry(self, kept: str) -> None:
        """Restore size and position from `geometry_to_keep`; without them, take the first size."""
        try:
            saved = base64.b64decode(kept, validate=True)
        except ValueError:
            saved = b""
        if not saved or not self.restoreGeometry(QByteArray(saved)):
            self.resize(*FIRST_SIZE)

    def geometry_to_keep(self) -> str:
        """Return size and position as text for the settings."""
        return base64.b64encode(self.saveGeometry().data()).decode()

    def _tell_visible(self) -> None:
        seen = self.isVisible() and not self.isMinimized()
        if seen != self._seen:
            self._seen = seen
            self.visible_changed.emit(seen)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._tell_visible()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._tell_visible()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self._tell_visible()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.stays_in_tray:
            event.ignore()
            self.hide()
            return
        if not self.may_close():
            event.ignore()
            return
        super().closeEvent(event)
        if event.isAccepted():
            self.closing.emit()

    def ask_to_quit(self) -> None:
        """Quit if `may_close` agrees."""
        if self.may_close():
            self.quit()

    def quit(self) -> None:
        """Quit without a question, even if closing would only hide the window in the tray."""
        self.end_with_session()
        if self.isVisible():
            QApplication.setQuitOnLastWindowClosed(True)
            self.close()
        else:
            QApplication.quit()

    def end_with_session(self) -> None:
        """Let the next close end Hearth without a question."""
        self.stays_in_tray, self.may_close = False, lambda: True

    def come_forward(self) -> None:
        """Restore the window and bring it to the front."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
