"""A drawn diagram, as wide as it needs and at most as wide as its column."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.diagrams.plain_svg import PlainSvg
from app.translation import tr
from app.ui.look import diagrams, theme

MOST_HIGH = 1400  # px at zoom 1: a higher one is scaled down


class DiagramView(QWidget):
    """A diagram. drawn: whether it could be drawn, when that is known."""

    drawn = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.source = ""
        self._drawing: PlainSvg | None = None
        self._renderer: QSvgRenderer | None = None
        self._picture = QPixmap()  # painted once for a size, so that scrolling is fast
        self.setAccessibleName(tr("Diagram"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        diagrams.current().arrived.connect(self._take)
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
        drawing = diagrams.current().drawing(source)
        self._renderer = QSvgRenderer(QByteArray(drawing.text.encode())) if drawing is not None else None
        self._drawing = drawing if self._renderer is not None and self._renderer.isValid() else None
        self._picture = QPixmap()
        self._fit()
        self.update()
        self.drawn.emit(self.is_drawn)

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
        place, ratio = self._place(), self.devicePixelRatioF()
        if self._renderer is None or place.isEmpty():
            return
        size = (place.size() * ratio).toSize()
        if self._picture.size() != size:
            self._picture = QPixmap(size)
            self._picture.fill(Qt.GlobalColor.transparent)
            painter = QPainter(self._picture)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._renderer.render(painter)
            painter.end()
        QPainter(self).drawPixmap(place, self._picture, QRectF(self._picture.rect()))
