"""The dialog at the first start after a crash: whether the chats are safe, and a report to save.

The details are folded. It sends nothing.
"""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.translation import noted, tr
from app.ui.look import theme
from app.ui.widgets.controls import Button
from app.ui.widgets.dialog import Dialog

SAFE = noted("Your chats are safe")
TITLE = noted("Hearth ended unexpectedly last time")
SENTENCE = noted("You can save a report and show it to others. It contains no text of yours, and nothing is sent.")
SHARE = 0.36  # of the window's height, at most
WITHOUT_STACKS = noted("Another program or the system ended it, or it stopped answering.")


class CrashDialog(Dialog):
    """report_wanted: save a report. log_wanted: open the log folder."""

    report_wanted = Signal()
    log_wanted = Signal()

    def __init__(self, parent: QWidget, lines: list[str], has_stacks: bool, is_safe: bool = False) -> None:
        """Build the dialog. is_safe: the chat database was opened and checked."""
        why = [] if has_stacks else [tr(WITHOUT_STACKS)]
        if is_safe:
            super().__init__(parent, tr(SAFE), " ".join((f"{tr(TITLE)}.", *why, tr(SENTENCE))), wide_px=560)
        else:
            super().__init__(parent, tr(TITLE), " ".join((*why, tr(SENTENCE))), wide_px=560)
        self._window = parent.window()
        self.text = QPlainTextEdit()
        self.text.setProperty("kind", "field")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(tr("What is known"))
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.text.setPlainText("\n".join(lines) or tr("Nothing was recorded."))
        self.text.verticalScrollBar().setValue(0 if has_stacks else self.text.verticalScrollBar().maximum())
        self.text.hide()
        self.body.addWidget(self.text)
        self.details = self.add_button(Button(tr("Details"), "quiet"), at_start=True)
        self.details.clicked.connect(self._toggle_details)
        self.log = self.add_button(Button(tr("Show the log"), "quiet"), at_start=True)
        self.log.hide()
        self.log.clicked.connect(self.log_wanted)
        self.report = self.add_button(Button(tr("Save a report")))
        self.report.clicked.connect(self.report_wanted)
        self.close_button = self.add_close()
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _toggle_details(self) -> None:
        shown = self.text.isHidden()
        self.text.setVisible(shown)
        self.log.setVisible(shown)
        self.details.setText(tr("Hide details") if shown else tr("Details"))
        self.fit()

    def _restyle(self) -> None:
        self.text.setFont(theme.font("code"))
        # At large text sizes the dialog itself must not scroll too.
        self.text.setFixedHeight(min(theme.px(260), int(SHARE * self._window.height())))
        self.fit()
