"""Writes a chat as a PDF file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QEventLoop, QIODevice, QLocale, QMarginsF
from PySide6.QtGui import QPageLayout, QPageSize, QPdfWriter

from app.chat.exports.outline import Scope, outline
from app.chat.store.chat_files import replacing
from app.chat.store.conversation import WholeChat
from app.ui.printing.printed_chat import MARGIN_MM, PrintedChat, prepare


def write_pdf(path: Path, chat: WholeChat, scope: Scope) -> None:
    """Write a chat as a PDF file, in any thread. Raises OSError.

    Cost: 9 s for 1,000 messages on two busy CPU cores, during which the main thread waits at most 0.2 s at a time.
    """
    waiting = QEventLoop()  # gives this thread the event dispatcher that the layout expects
    data = pdf(PrintedChat(prepare(outline(chat, scope))))
    del waiting
    with replacing(path, "wb") as file:
        file.write(data)


def pdf(chat: PrintedChat) -> bytes:
    """Return a laid out chat as PDF, on the paper of the user's country."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setCreator("Hearth")
    writer.setTitle(chat.title)
    writer.setPageSize(QPageSize(page_size()))
    writer.setPageMargins(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM), QPageLayout.Unit.Millimeter)
    chat.paint(writer)
    return bytes(buffer.data().data())


def page_size() -> QPageSize.PageSizeId:
    """Return Letter where it is in use, else A4."""
    is_american = QLocale.system().measurementSystem() is QLocale.MeasurementSystem.ImperialUSSystem
    return QPageSize.PageSizeId.Letter if is_american else QPageSize.PageSizeId.A4
