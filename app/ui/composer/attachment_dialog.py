"""The dialog that shows an attachment's text, to read and to copy."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from app.chat.store.conversation import Attachment
from app.text.text_pages import broken, page_end
from app.translation import tr
from app.ui.composer.attachment_chip import size_of
from app.ui.look import theme
from app.ui.widgets.controls import Button
from app.ui.widgets.dialog import Dialog

MOST_SHOWN, MOST_LINES = 100_000, 5000  # characters and lines
ROWS = 18


class AttachmentDialog(Dialog):
    """The text as the model reads it. put_back: moves it into the message; None for a sent message."""

    def __init__(
        self, parent: QWidget, attachment: Attachment, put_back: Callable[[], None] | None = None, facts: str = ""
    ) -> None:
        super().__init__(parent, attachment.name, facts or size_of(attachment), wide_px=640)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setFont(theme.font("code"))
        self.text.setAccessibleName(tr("Text of {name}", name=attachment.name))
        end = page_end(attachment.text, 0, MOST_SHOWN, MOST_LINES)
        shown = broken(attachment.text[:end])
        self.text.setPlainText(shown if end == len(attachment.text) else f"{shown}\n…")
        self.text.document().setDocumentMargin(0)
        self.text.setFixedHeight(ROWS * theme.line_height("small"))
        self.body.addWidget(self.text)
        if put_back is not None:
            into = self.add_button(Button(tr("Put into the message")), at_start=True)
            into.clicked.connect(self.accept)
            into.clicked.connect(put_back)
        copy = self.add_button(Button(tr("Copy")))
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(attachment.text))
        self.add_close()
