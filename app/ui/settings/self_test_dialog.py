"""The dialog that tests this PC: the self-report as it is made, to copy. It sends nothing."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QProcess, Qt
from PySide6.QtGui import QGuiApplication, QTextOption
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.clients.engine_process import app_command, environment_of_programs
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Button
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.indicators import Dot

SHARE = 0.5  # of the window's height, at most


class SelfTestDialog(Dialog):
    """Runs `command`, which prints the report. Closing the dialog ends it."""

    def __init__(self, parent: QWidget, command: list[str]) -> None:
        super().__init__(
            parent, tr("Test this PC"),
            tr("Hearth tests each of its parts, which takes up to some minutes. The report contains no text of yours, "
               "and nothing is sent."), wide_px=640,
        )  # fmt: skip
        self._window = parent.window()
        self.text = QPlainTextEdit()
        self.text.setProperty("kind", "field")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(tr("Report"))
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.body.addWidget(self.text)
        self.dot = Dot("hot_fill", True, tr("Progress"))
        self.body.addWidget(self.dot, 0, Qt.AlignmentFlag.AlignLeft)
        self.copy = self.add_button(Button(tr("Copy")))
        self.copy.setEnabled(False)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        self.add_close()
        self.process = QProcess(self)
        self.process.setProcessEnvironment(environment_of_programs())
        self.process.readyReadStandardOutput.connect(self._read)
        self.process.finished.connect(self._ended)
        self.process.errorOccurred.connect(self._ended)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.process.start(command[0], command[1:])

    @classmethod
    def of(cls, parent: QWidget, data_folder: Path) -> SelfTestDialog:
        """Return the dialog for this program with this data folder."""
        return cls(parent, app_command("--data-dir", str(data_folder), "--self-report"))

    def _read(self) -> None:
        self.text.appendPlainText(
            bytes(self.process.readAllStandardOutput().data()).decode("utf-8", "replace").rstrip()
        )

    def _ended(self) -> None:
        self.copy.setEnabled(True)
        self.dot.hide()
        self.fit()
        if not self.text.toPlainText():
            self.text.setPlainText(tr("The test could not be started."))

    def _restyle(self) -> None:
        self.text.setFont(theme.font("code"))
        self.text.setFixedHeight(min(theme.px(360), int(SHARE * self._window.height())))
        self.fit()

    def done(self, result: int) -> None:
        for signal in (self.process.readyReadStandardOutput, self.process.finished, self.process.errorOccurred):
            signal.disconnect()
        self.process.kill()
        self.process.waitForFinished(1000)
        super().done(result)
