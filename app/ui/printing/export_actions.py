"""Prints chats and messages, and exports them as PDF files and web pages: asks what goes along, and where to."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMarginsF, QObject, Qt, QTimer
from PySide6.QtGui import QColor, QPageLayout, QPageSize
from PySide6.QtWidgets import QDialog, QFileDialog, QGraphicsView, QHBoxLayout, QVBoxLayout, QWidget

from app.chat.exports.outline import Scope, outline
from app.chat.exports.web_page import write_web_page
from app.chat.store.chat_files import file_name
from app.chat.store.conversation import Conversation, WholeChat
from app.diagrams.process import draw
from app.translation import figure, tr
from app.ui.look import formulas, theme
from app.ui.printing.export_dialog import ExportDialog, Form
from app.ui.printing.pdf_file import page_size, write_pdf
from app.ui.printing.printed_chat import LAYOUT_SHARE, MARGIN_MM, Prepared, PrintedChat, prepare
from app.ui.widgets.controls import Button, Label, Progress
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import resize_within_screen

if TYPE_CHECKING:
    from PySide6.QtPrintSupport import QPrinter

    from app.chat.chat_folders import ChatFolders


SLICE_S, SHOWN_AFTER_MS = 0.01, 300
MOST_PREVIEWED = 12  # pages


class ExportActions(QObject):
    """Prints and exports for one window. The chats' folders read and write."""

    def __init__(self, window: QWidget, folders: ChatFolders, documents: Path) -> None:
        super().__init__(window)
        self._window, self._folders, self._documents = window, folders, documents
        formulas.current()  # belongs to this thread; files are written in another

    def ask(self, chat: Conversation, form: Form, message_id: str = "") -> ExportDialog:
        dialog = ExportDialog(self._window, form, message_id)
        dialog.chosen.connect(partial(self._go, chat))
        dialog.previewed.connect(lambda scope: self._read(chat, scope, self._show_preview))
        dialog.open()
        return dialog

    def _go(self, chat: Conversation, form: Form, scope: Scope) -> None:
        if form == "print":
            self._read(chat, scope, self._print)
            return
        ending, kind = ("pdf", tr("PDF (*.pdf)")) if form == "pdf" else ("html", tr("Web page (*.html)"))
        suggested = str(self._documents / f"{file_name(chat.title)}.{ending}")
        title = tr("Export this message") if scope.message_id else tr("Export this chat")
        path, _ = QFileDialog.getSaveFileName(self._window, title, suggested, kind)
        if path:
            self.write(Path(path), chat.id, form, scope)

    def write(self, path: Path, chat_id: str, form: Form, scope: Scope) -> None:
        """Write a chat to a PDF file or a web page, in the background."""
        words = formulas.current().words
        if form == "pdf":
            write = partial(write_pdf, scope=scope)
        else:
            write = partial(write_web_page, scope=scope, words=words, diagram=light_diagram)
        ending = ".pdf" if form == "pdf" else ".html"
        if path.suffix.lower() != ending:
            path = path.with_name(path.name + ending)
        self._folders.export_chats(path, [chat_id], write)

    def _read(self, chat: Conversation, scope: Scope, then: Callable[[Prepared], None]) -> None:
        def make(whole: WholeChat) -> Prepared:
            return prepare(outline(whole, scope))

        self._folders.read_chat(chat.id, make, then)

    def _print(self, prepared: Prepared) -> None:
        from PySide6.QtPrintSupport import QPrintDialog  # imported with the first use: it loads the printing system

        printer = _printer(prepared.title)
        dialog = QPrintDialog(printer, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self._paint(PrintedChat(prepared), printer))
        dialog.show()

    def _paint(self, chat: PrintedChat, printer: QPrinter) -> None:
        # From the first page on, the job cannot be taken back: Qt's engine for CUPS has no abort.
        StepsDialog(self._window, tr("Printing"), chat.paint_steps(printer, *_range(printer)), LAYOUT_SHARE).begin()

    def _show_preview(self, prepared: Prepared) -> None:
        chat, printer = PrintedChat(prepared), _printer(prepared.title)

        def show() -> None:
            preview = Preview(chat, printer, self._window)
            preview.accepted.connect(lambda: self._print(prepared))
            preview.open()

        work = StepsDialog(self._window, tr("Laying out the pages"), chat.lay_out_for(printer))
        work.accepted.connect(show)
        work.begin()


class StepsDialog(Dialog):
    """Takes steps of at most SLICE_S between the window's events, and shows progress with Cancel if that takes long.
    accepted: all steps are done. rejected: cancelled.
    """

    def __init__(
        self, parent: QWidget, title: str, steps: Generator[float, None, object], cancel_until: float = 1.0
    ) -> None:
        """steps: yields the share that is done. cancel_until: the share up to which the user can cancel."""
        super().__init__(parent, title, "", 360)
        self._steps, self._cancel_until = steps, cancel_until
        self.progress = Progress(title)
        self.body.addWidget(self.progress)
        self.cancel = self.add_close(tr("Cancel"))
        self._timer, self._late = QTimer(self, interval=0), QTimer(self, interval=SHOWN_AFTER_MS, singleShot=True)
        self._timer.timeout.connect(self._go_on)
        self._late.timeout.connect(self.open)

    def begin(self) -> None:
        """Begin; returns at once."""
        self._timer.start()
        self._late.start()

    def _go_on(self) -> None:
        end = time.perf_counter() + SLICE_S
        try:
            while time.perf_counter() < end:
                share = next(self._steps)
                self.cancel.setEnabled(share <= self._cancel_until)
                self.progress.set_done(share)
        except StopIteration:
            self.accept()

    def reject(self) -> None:
        if self.cancel.isEnabled():
            super().reject()

    def done(self, result: int) -> None:
        self._timer.stop()
        self._late.stop()
        self._steps.close()
        super().done(result)
        self.deleteLater()


class Preview(QDialog):
    """The first MOST_PREVIEWED pages of a chat. accepted: print all of them."""

    def __init__(self, chat: PrintedChat, printer: QPrinter, parent: QWidget) -> None:
        """chat: laid out for the printer, so that painting these pages takes a moment."""
        from PySide6.QtPrintSupport import QPrintPreviewWidget

        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Preview: {title}", title=chat.title))
        self._chat, self._printer = chat, printer  # the widget keeps neither
        pages = QPrintPreviewWidget(self._printer)
        for part in (pages, *pages.findChildren(QWidget)):
            part.setAccessibleName(tr("Pages"))
        pages.paintRequested.connect(lambda device: self._chat.paint(device, last=MOST_PREVIEWED))
        pages.fitToWidth()
        for view in pages.findChildren(QGraphicsView):
            view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            view.setBackgroundBrush(QColor(theme.current().tokens.bubble))
        column, row = QVBoxLayout(self), QHBoxLayout()
        close, go = Button(tr("Close")), Button(tr("Print"), "primary")
        close.clicked.connect(self.reject)
        go.clicked.connect(self.accept)
        if chat.n_pages > MOST_PREVIEWED:
            words = tr("The first {n} of {total} pages", n=figure(MOST_PREVIEWED), total=figure(chat.n_pages))
            row.addWidget(Label(words, "small"))
        row.addStretch(1)
        row.addWidget(close)
        row.addWidget(go)
        column.addWidget(pages, 1)
        column.addLayout(row)
        resize_within_screen(self, theme.px(780), theme.px(1000))


def light_diagram(source: str) -> str | None:
    """Draw a diagram in light colours, in any thread. None: it cannot be drawn."""
    drawing = draw(source, vars(theme.LIGHT))
    return drawing.text if drawing is not None else None


def _printer(title: str) -> QPrinter:
    from PySide6.QtPrintSupport import QPrinter

    printer = QPrinter(QPrinter.PrinterMode.HighResolution)
    printer.setDocName(title)
    printer.setCreator("Hearth")
    if not printer.printerName():  # no printer: a page size of the user's country for the preview
        printer.setPageSize(QPageSize(page_size()))
    printer.setPageMargins(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM), QPageLayout.Unit.Millimeter)
    return printer


def _range(printer: QPrinter) -> tuple[int, int]:
    """Return the first and the last page to print; 0: no limit."""
    return printer.fromPage(), printer.toPage()
