"""A drawn diagram, as wide as it needs and at most as wide as its column."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.translation import tr
from app.ui.look import diagrams, theme

if TYPE_CHECKING:
    from app.diagrams.plain_svg import PlainSvg

MOST_HIGH = 1400  # px at zoom 1: a higher one is scaled down
_numbers = count()


class DiagramView(QWidget):
    """A diagram. drawn: whether it could be drawn, when that is known."""

    drawn = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.source = ""
        self._drawing: PlainSvg | None = None
        self._number = next(_numbers)
        self._picture = QImage()  # painted once for a size, so that scrolling is fast
        self._asked = QSize()  # of the picture that was asked for
        self.setAccessibleName(tr("Diagram"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        diagrams.current().arrived.connect(self._take)
        diagrams.current().painted.connect(self._take_picture, Qt.ConnectionType.QueuedConnection)
        theme.current().changed.connect(self._draw)
        self.setFixedHeight(0)

    def show_source(self, source: str) -> None:
        """Draw this diagram; `drawn` follows, at once if it is known."""
        if source != self.source:
            self.source = source
            self._draw()

    @property
    def is_drawn(self) -> bool:
        """Whether there is a drawing to show."""
        return self._drawing is not None

    def _draw(self) -> None:
        if diagrams.current().known(self.source):
            self._take(self.source)
        elif self.source:
            diagrams.current().request(self.source)

    def _take(self, source: str) -> None:
        if source != self.source:
            return
        self._drawing, self._asked = diagrams.current().drawing(source), QSize()
        self._fit()
        self.update()
        self.drawn.emit(self.is_drawn)

    def _ask(self) -> None:
        """Have the diagram painted in the current size."""
        size = (self._place().size() * self.devicePixelRatioF()).toSize()
        if self._drawing is not None and not size.isEmpty() and size != self._asked:
            self._asked = size
            diagrams.current().paint(self._drawing, size, self._number)

    def _take_picture(self, number: int, picture: QImage) -> None:
        if number == self._number:
            self._picture = picture
            self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()
        super().resizeEvent(event)

    def _fit(self) -> None:
        height = round(self._place().height())
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)

    def sizeHint(self) -> QSize:
        return QSize(0, self.height())

    def _place(self) -> QRectF:
        """Return where the diagram is painted: in the middle, at the zoom of the text if there is space."""
        if self._drawing is None or not self.width():
            return QRectF()
        zoom, most = theme.current().zoom, theme.px(MOST_HIGH)
        scale = min(zoom, self.width() / self._drawing.width, most / self._drawing.height)
        width, height = self._drawing.width * scale, self._drawing.height * scale
        return QRectF((self.width() - width) / 2, 0, width, height)

    def paintEvent(self, event: QPaintEvent) -> None:
        self._ask()
        if self._drawing is not None and not self._picture.isNull():
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)  # one of another size, until the next
            painter.drawImage(self._place(), self._picture)
