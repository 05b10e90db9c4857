"""The dialog that shows a source of an answer: the page of a PDF, or the text, with the passage marked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QPainter, QPaintEvent, QPixmap, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QStackedWidget, QWidget

from app.chat.store.operations import Operations
from app.documents.reading.document import Document, PagePicture, ReadError
from app.documents.reading.reader import DocumentReader
from app.translation import tr
from app.ui.documents.document_labels import place_of
from app.ui.documents.source_text import Excerpt, SourceText
from app.ui.look import theme
from app.ui.widgets.controls import Button, IconButton, Label, Segments
from app.ui.widgets.dialog import HIGHEST, Dialog
from engine.errors import Cancelled

if TYPE_CHECKING:
    from app.chat.store.conversation import Attachment

WIDE, HIGH, LEAST_HIGH, LOWEST = 700, 560, 160, 96
AROUND = 166  # px of height that the dialog's head and buttons take
_MARK = 0.38  # opacity of the marks on a page
_ENDS_S = 2.0
# Files that only a viewer or an office program opens: a program or a script would be run.
_SUFFIXES = (
    ".pdf .docx .docm .pptx .pptm .xlsx .xlsm .odt .odp .ods .epub .md .markdown .txt .text .rst .adoc .org .tex .bib "
    ".csv .tsv .log .srt .vtt"
)
_OPENED = frozenset(_SUFFIXES.split())


class PageView(QWidget):
    """A page's picture with marked lines."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._picture = QPixmap()
        self.boxes: tuple[tuple[float, float, float, float], ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def show_page(self, picture: PagePicture, scale: float) -> bool:
        """Show a picture with `scale` pixels for each of the screen's units. Return False if it is none."""
        pixmap = QPixmap()
        if not pixmap.loadFromData(picture.png):
            return False
        pixmap.setDevicePixelRatio(scale)
        self._picture, self.boxes = pixmap, picture.boxes
        self.setFixedSize(pixmap.deviceIndependentSize().toSize())
        self.update()
        return True

    def marks(self) -> list[QRectF]:
        """Return the places of the marked lines, px."""
        wide, high = self.width(), self.height()
        return [QRectF(x * wide, y * high, w * wide, h * high) for x, y, w, h in self.boxes]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._picture)
        painter.setPen(Qt.PenStyle.NoPen)
        # The page is white in every theme, so its marks are those of the light one.
        painter.setBrush(theme.alpha(theme.LIGHT.hot_fill, _MARK))
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Multiply)
        for mark in self.marks():
            painter.drawRoundedRect(mark.adjusted(-2, -1, 2, 1), 2, 2)


class SourceDialog(Dialog):
    """may_open: whether a file is one of the user's documents; others are neither read nor opened."""

    def __init__(
        self, parent: QWidget, source: Attachment, may_open: Callable[[str], bool], reader: DocumentReader | None = None
    ) -> None:
        super().__init__(parent, source.name, "", WIDE)
        place = source.source
        self._source, self._may_open = source, may_open
        self._path, self._part = (place.path, place.part) if place is not None else ("", 0)
        self._reader = reader or DocumentReader()
        self._operations: Operations | None = None
        self.is_looking = False  # the file is being read
        is_own, words = self._is_own, place_of(source)
        where = os.path.dirname(self._path) if is_own else ""
        self.sentence.setText(" · ".join(part for part in (words[:1].upper() + words[1:], where) if part))
        self.sentence.show()
        self.note = Label("", "small", "warn", wrap=True)
        self.note.hide()
        self.views = Segments([("page", tr("Page")), ("text", tr("Text"))], "text", tr("View"))
        self.views.picked.connect(self._show_view)
        self.views.hide()
        self.text = SourceText()
        self.text.setAccessibleName(tr("Text of {name}", name=source.name))
        self.page = PageView()
        self.area = QScrollArea()
        self.area.setProperty("kind", "plain")
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.area.setAccessibleName(tr("Picture of {place} of {name}", place=words, name=source.name))
        self.area.setWidget(self.page)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.text)
        self.stack.addWidget(self.area)
        for part in (self.note, self.views, self.stack):
            self.body.addWidget(part)
        self.open_folder = self.add_button(IconButton("folder", tr("Show in folder")), at_start=True)
        self.open_folder.clicked.connect(lambda: self._open(os.path.dirname(self._path)))
        self.open_file = self.add_button(Button(tr("Open file")))
        self.open_file.clicked.connect(lambda: self._open(self._path))
        self.copy = self.add_button(Button(tr("Copy"), "secondary", "copy"))
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(source.text))
        self.add_close()
        self.open_folder.setVisible(is_own)
        self.open_file.setVisible(is_own and os.path.splitext(self._path)[1].casefold() in _OPENED)
        self.text.show_excerpt(Excerpt("", source.text))
        if is_own:
            self._look_up()
        else:
            self._say(tr("This file is in none of your folders of documents, so Hearth doesn't open it. Below is the "
                         "text that went to the model."))  # fmt: skip

    @property
    def _is_own(self) -> bool:
        return bool(self._path) and self._may_open(self._path)

    def done(self, result: int) -> None:
        if self._operations is not None:
            operations, self._operations = self._operations, None
            self._reader.close()
            operations.close(_ENDS_S)
            self._reader.close()  # it may just have been starting its process
        super().done(result)

    # --- the file

    def _look_up(self) -> None:
        """Read the file in a thread, and show the place in it."""
        self._operations, self.is_looking = Operations(self), True
        path, part, passage = Path(self._path), self._part, self._source.text
        if part and path.suffix.casefold() == ".pdf":
            scale = self.devicePixelRatioF()
            width = theme.px(WIDE) - theme.px(2 * 20 + 14)
            self._operations.run(
                "show the page of a source",
                lambda: self._reader.page_picture(path, part, passage, round(width * scale)),
                lambda picture: self._show_page(picture, scale),
                self._not_read,
            )
        else:
            self._operations.run("read a source", lambda: self._reader.read(path), self._show_text, self._not_read)

    def _show_page(self, picture: PagePicture, scale: float) -> None:
        self.is_looking = False
        if self._operations is None or not self.page.show_page(picture, scale):
            return
        self.views.show()
        if picture.boxes:
            self.views.set_value("page")
            self._show_view("page")
        else:
            self._say(tr("Couldn't find the passage on this page. The file may have changed since. Below is the text "
                         "that went to the model."))  # fmt: skip
        self._fit_if_shown()

    def _show_text(self, document: Document) -> None:
        self.is_looking = False
        if self._operations is None:
            return
        source = self._source
        if not self._part:
            is_same = "\n\n".join(part.text.strip() for part in document.parts) == source.text
            excerpt = Excerpt("", source.text) if is_same else None
        else:
            part = next((one for one in document.parts if one.number == self._part), None)
            line = source.source.line if source.source is not None else 0
            has_lines = document.kind == "text"
            excerpt = Excerpt.around(part.text, source.text, line, has_lines) if part is not None else None
        if excerpt is None:
            self._say(tr("The file has changed since. Below is the text that went to the model."))
        else:
            self.text.show_excerpt(excerpt)
            self._fit_if_shown()

    def _not_read(self, error: BaseException) -> None:
        self.is_looking = False
        if self._operations is None or isinstance(error, Cancelled):
            return
        if not isinstance(error, ReadError):
            raise error
        if error.reason == "gone":
            self.open_file.hide()
            self._say(tr("The file is no longer there. Below is the text that went to the model."))
        else:
            self._say(tr("{why} Below is the text that went to the model.", why=error.message))

    def _say(self, words: str) -> None:
        self.note.setText(words)
        self.note.setVisible(bool(words))
        self._fit_if_shown()

    def _fit_if_shown(self) -> None:
        if self.isVisible():
            self.fit()

    # --- actions

    def _show_view(self, name: str) -> None:
        self.stack.setCurrentWidget(self.area if name == "page" else self.text)
        if name == "page" and (marks := self.page.marks()):
            self.area.verticalScrollBar().setValue(round(marks[0].top()) - theme.px(90))

    def fit(self) -> None:
        """Make the view as high as the window allows, or lower for a short text, so that it alone scrolls."""
        owner = self.parentWidget()
        room = round(HIGHEST * owner.window().height()) if owner is not None else theme.px(HIGH)
        room -= theme.px(AROUND)
        if not self.views.isHidden():
            room -= self.views.sizeHint().height() + self.body.spacing()
        if not self.note.isHidden():
            room -= self.note.heightForWidth(theme.px(WIDE - 40)) + self.body.spacing()
        high = min(max(room, theme.px(LEAST_HIGH)), theme.px(HIGH))
        if self.views.isHidden():
            high = min(high, max(self.text.height_for_text(), theme.px(LOWEST)))
        self.stack.setFixedHeight(high)
        super().fit()

    def showEvent(self, event: QShowEvent) -> None:
        self.text.resize(theme.px(WIDE - 40), theme.px(HIGH))  # so that its lines are known
        super().showEvent(event)
        self.text.show_passage()  # only now the lines have their height

    def _open(self, path: str) -> None:
        """Open the file or its folder in the system's program."""
        if self._is_own and not QDesktopServices.openUrl(QUrl.fromLocalFile(path)):
            self._say(tr("No program opened it. Its folder is {folder}.", folder=os.path.dirname(self._path)))
