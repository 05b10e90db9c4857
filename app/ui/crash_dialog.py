"""At the start after a crash: what is known of it, and a report that can be saved. It sends nothing."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.translation import noted, tr
from app.ui import theme
from app.ui.controls import Button
from app.ui.sheet import Sheet

TITLE = noted("Hearth ended unexpectedly last time")
SENTENCE = noted(
    "Your chats are safe, up to the last second. Below is what a report would hold: no text of yours. Nothing is sent."
)
SHARE = 0.36  # of the window's height, at most
WITHOUT_STACKS = noted("It was ended from outside, or stopped answering.")


class CrashDialog(Sheet):
    """report_wanted: a report is to be saved. log_wanted: the folder of the whole log is to be opened."""

    report_wanted = Signal()
    log_wanted = Signal()

    def __init__(self, parent: QWidget, lines: list[str], has_stacks: bool) -> None:
        sentence = tr(SENTENCE) if has_stacks else f"{tr(WITHOUT_STACKS)} {tr(SENTENCE)}"
        super().__init__(parent, tr(TITLE), sentence, wide_px=640)
        self._window = parent.window()
        self.text = QPlainTextEdit()
        self.text.setProperty("kind", "field")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(tr("What is known of it"))
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.text.setPlainText("\n".join(lines) or tr("Nothing was written down."))
        self.text.verticalScrollBar().setValue(0 if has_stacks else self.text.verticalScrollBar().maximum())
        self.body.addWidget(self.text)
        self.log = self.add_button(Button(tr("Show the log"), "quiet"), at_start=True)
        self.log.clicked.connect(self.log_wanted)
        self.report = self.add_button(Button(tr("Save a report")))
        self.report.clicked.connect(self.report_wanted)
        self.close_button = self.add_close()
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.text.setFont(theme.font("code"))
        # At large text sizes the dialog itself must not scroll besides.
        self.text.setFixedHeight(min(theme.px(260), int(SHARE * self._window.height())))
        self.fit()
