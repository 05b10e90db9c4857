"""The dialog that tests this PC: the self-report as it is made, to copy. It sends nothing."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QProcess
from PySide6.QtGui import QGuiApplication, QTextOption
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QWidget

from app.clients.engine_process import app_command, environment_of_programs
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.indicators import Dot

END_MS = 1000
SHARE = 0.5  # of the window's height, at most


class SelfTestDialog(Dialog):
    """Runs `command`, which prints the report. Closing the dialog ends it."""

    def __init__(self, parent: QWidget, command: list[str]) -> None:
        super().__init__(
            parent, tr("Test this PC"),
            tr("Hearth tests each of its parts. This can take a few minutes. The report contains none of your text, "
               "and nothing is sent."), wide_px=640,
        )  # fmt: skip
        self.text = QPlainTextEdit()
        self.text.setProperty("kind", "field")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(tr("Report"))
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.body.addWidget(self.text)
        self.state = QWidget()
        across = QHBoxLayout(self.state)
        across.setContentsMargins(0, 0, 0, 0)
        across.addWidget(Dot("hot_fill", True, tr("Progress")))
        across.addWidget(Label(tr("Testing"), "small"), 1)
        self.body.addWidget(self.state)
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
        theme.application().aboutToQuit.connect(self.reject)
        self.process.start(command[0], command[1:])

    @classmethod
    def of(cls, parent: QWidget, data_folder: Path) -> SelfTestDialog:
        return cls(parent, app_command("--data-dir", str(data_folder), "--self-report"))

    def _read(self) -> None:
        is_over = self.process.state() is QProcess.ProcessState.NotRunning
        while self.process.canReadLine() or (is_over and self.process.bytesAvailable()):
            self.text.appendPlainText(bytes(self.process.readLine().data()).decode("utf-8", "replace").rstrip("\r\n"))

    def _ended(self) -> None:
        self._read()
        self.copy.setEnabled(True)
        self.state.hide()
        self.fit()
        if self.process.error() is QProcess.ProcessError.FailedToStart:
            self.text.setPlainText(tr("The test could not be started."))
        elif self.process.exitStatus() is QProcess.ExitStatus.CrashExit:
            self.text.appendPlainText(tr("The test ended before it was complete."))

    def _restyle(self) -> None:
        owner = self.parentWidget()
        assert owner is not None
        self.text.setFont(theme.font("code"))
        self.text.setFixedHeight(min(theme.px(360), int(SHARE * owner.window().height())))
        self.fit()

    def done(self, result: int) -> None:
        for signal in (self.process.readyReadStandardOutput, self.process.finished, self.process.errorOccurred):
            signal.disconnect()
        self.process.terminate()  # so that it ends the engine's process too
        if not self.process.waitForFinished(END_MS):
            self.process.kill()
            self.process.waitForFinished(END_MS)
        super().done(result)
