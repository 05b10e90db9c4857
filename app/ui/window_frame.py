"""The frame of the main window: size and position, whether it can be seen, and closing to the tray."""

from __future__ import annotations

import base64

from PySide6.QtCore import QByteArray, QEvent, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QMainWindow

from app.translation import tr
from app.ui.widgets import tab_order
from app.ui.widgets.floating import confirm, resize_within_screen

FIRST_SIZE = (1280, 832)
SMALLEST = (720, 520)


class WindowFrame(QMainWindow):
    """A top-level window. visible_changed: whether it can be seen. closing: it was closed, not hidden."""

    visible_changed = Signal(bool)
    closing = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.stays_in_tray = False  # closing hides the window; only `quit` ends the program
        self._ends_at_once = False  # without a question
        self._is_asking = False
        self._seen = False
        self.setMinimumSize(*SMALLEST)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)

    def restore_geometry(self, stored: str) -> None:
        """Restore size and position from `geometry_to_keep`; without them or on another screen, use the first size."""
        try:
            saved = base64.b64decode(stored, validate=True)
        except ValueError:
            saved = b""
        if not saved or not self.restoreGeometry(QByteArray(saved)):
            resize_within_screen(self, *FIRST_SIZE)

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
        if not self._may_close():
            event.ignore()
            return
        super().closeEvent(event)
        if event.isAccepted():
            self.closing.emit()

    def unsaved(self) -> str:
        """Why what the user wrote would be lost now, in a sentence; empty: it would not."""
        return ""

    def _may_close(self) -> bool:
        """Ask if anything would be lost. Return whether there was no need to."""
        lost = "" if self._ends_at_once else self.unsaved()
        if lost:
            self.come_forward()
        if lost and not self._is_asking:
            self._is_asking = True
            ask = tr("Close Hearth and lose what is not saved?")
            question = confirm(self, ask, lost, tr("Keep open"), tr("Close"), self.quit)
            question.finished.connect(self._is_answered)
        return not lost

    def _is_answered(self, _: int) -> None:
        self._is_asking = False

    def ask_to_quit(self) -> None:
        """Quit, but ask first if anything would be lost."""
        if self._may_close():
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
        self.stays_in_tray, self._ends_at_once = False, True

    def come_forward(self) -> None:
        """Restore the window and bring it to the front."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
