"""Painted indicators: dot, share bar, memory bar, progress bar, ring. Each sets an accessible name with its value."""

from __future__ import annotations

import time

from PySide6.QtCore import QRectF, Qt, QTimerEvent
from PySide6.QtGui import QColor, QHideEvent, QPainter, QPainterPath, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QWidget

from app.translation import figure, tr
from app.ui.look import theme
from app.ui.look.painting import antialiased, block, say_changed


class Dot(QWidget):
    """A state dot, 7 px, with a halo that pulses while the machine works and the dot is visible."""

    PERIOD_MS, TICK_MS = 1600, 100

    def __init__(self, token: str = "ok", working: bool = False, name: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.token, self.working = token, working
        self._painted_at = 0.0  # time.monotonic()
        self.setAccessibleName(name)
        self._timer = 0
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_state(self, token: str, working: bool = False) -> None:
        """Set the colour; `working` shows the halo.

        Setting the same state again while working repaints the halo together with what else changes, instead of on its
        own timer.
        """
        if (token, working) != (self.token, self.working):
            self.token, self.working = token, working
            self._run()
            self.update()
        elif working:
            self.update()

    def _restyle(self) -> None:
        self.setFixedSize(theme.px(14), theme.px(14))
        self.update()

    def _run(self) -> None:
        beats = self.working and self.isVisible()
        if beats and not self._timer:
            self._timer = self.startTimer(self.TICK_MS)
        elif not beats and self._timer:
            self.killTimer(self._timer)
            self._timer = 0

    @property
    def breathing(self) -> bool:
        """Whether the halo is animated now."""
        return self._timer != 0

    def timerEvent(self, event: QTimerEvent) -> None:
        if time.monotonic() - self._painted_at > self.TICK_MS / 2000:
            self.update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._run()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._run()

    def paintEvent(self, event: QPaintEvent) -> None:
        self._painted_at = time.monotonic()
        phase = 1000 * self._painted_at / self.PERIOD_MS % 1.0
        paint_dot(antialiased(self), QRectF(self.rect()), theme.colour(self.token), self.working, phase)


def paint_dot(painter: QPainter, rect: QRectF, colour: QColor, halo: bool, phase: float = 0.35) -> None:
    """Paint a dot in the middle of a square, half its width, with the halo at a phase of its pulse (0 to 1)."""
    side = rect.width()
    if halo:
        depth = 1 - abs(2 * phase - 1)
        block(painter, rect, theme.alpha(colour, 0.10 + 0.20 * depth), side / 2)
    block(painter, rect.adjusted(side / 4, side / 4, -side / 4, -side / 4), colour, side / 4)


class ShareBar(QWidget):
    """A bar with the GPU's share (ember) and the CPU's (slate) of what is used; the rest is empty."""

    def __init__(
        self, share: float = 0.0, width: int = 0, height: int = 4, rest: float = 0.0, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.wide, self.high = width, height
        theme.current().changed.connect(self._restyle)
        self.set_share(share, rest)
        self._restyle()

    def set_share(self, share: float, rest: float = 0.0) -> None:
        """Set the shares. share: the GPU's of what is used, 0 to 1; rest: the empty part of the bar."""
        self.share, self.rest = min(max(share, 0.0), 1.0), min(max(rest, 0.0), 1.0)
        self.setAccessibleName(tr("Share on the GPU, {share} percent", share=figure(100 * self.share, ".0f")))
        say_changed(self)
        self.update()

    def _restyle(self) -> None:
        if self.wide:
            self.setFixedWidth(theme.px(self.wide))
        self.setFixedHeight(theme.px(self.high))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_share(antialiased(self), QRectF(self.rect()), self.share, self.rest)


def paint_share(painter: QPainter, rect: QRectF, share: float, rest: float, leftwards: bool = False) -> None:
    """Paint a share bar: ember for the GPU, slate for the CPU, the track for the rest."""
    height = rect.height()
    block(painter, rect, theme.colour("bubble"), height / 2)
    used = rect.width() * (1 - rest)
    hot = used * share
    gap = 1.0 if 0 < share < 1 else 0.0

    def at(x: float, width: float) -> QRectF:
        return QRectF(rect.right() - x - width if leftwards else rect.x() + x, rect.y(), max(width, 0.0), height)

    path = QPainterPath()
    path.addRoundedRect(at(0.0, used), height / 2, height / 2)
    painter.save()
    painter.setClipPath(path)
    painter.fillRect(at(0.0, hot - gap), theme.colour("hot_fill"))
    painter.fillRect(at(hot + gap, used - hot - gap), theme.colour("cold_fill"))
    painter.restore()


class MemoryBar(QWidget):
    """A GPU's memory, 4 px high: Hearth's in ember, other programs' in grey, the rest empty."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ours, self.used = 0.0, 0.0
        theme.current().changed.connect(self._restyle)
        self.set_parts(0.0, 0.0)
        self._restyle()

    def set_parts(self, ours: float, used: float) -> None:
        """Set the used memory, 0 to 1. ours: Hearth's; used: all programs', including Hearth's."""
        parts = min(max(ours, 0.0), 1.0), min(max(used, ours, 0.0), 1.0)
        name = tr(
            "GPU memory: {ours} percent Hearth, {others} percent other programs",
            ours=figure(100 * parts[0], ".0f"),
            others=figure(100 * (parts[1] - parts[0]), ".0f"),
        )
        if (parts, name) == ((self.ours, self.used), self.accessibleName()):
            return
        self.ours, self.used = parts
        self.setAccessibleName(name)
        say_changed(self)
        self.update()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(4))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, width, height = antialiased(self), float(self.width()), float(self.height())
        path = QPainterPath()
        path.addRoundedRect(QRectF(self.rect()), height / 2, height / 2)
        painter.setClipPath(path)
        painter.fillRect(self.rect(), theme.colour("bubble"))
        ours, used = width * self.ours, width * self.used
        gap = 1.0 if ours and used > ours else 0.0
        if self.isRightToLeft():
            painter.fillRect(QRectF(width - ours + gap, 0, ours - gap, height), theme.colour("hot_fill"))
            painter.fillRect(QRectF(width - used, 0, used - ours - gap, height), theme.colour("control"))
        else:
            painter.fillRect(QRectF(0, 0, ours - gap, height), theme.colour("hot_fill"))
            painter.fillRect(QRectF(ours + gap, 0, used - ours - gap, height), theme.colour("control"))


class Progress(QWidget):
    """A progress bar. Its accessible name includes the percentage."""

    def __init__(self, name: str, height: int = 6, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name, self.high, self.done = name, height, 0.0
        theme.current().changed.connect(self._restyle)
        self.set_done(0.0)
        self._restyle()

    def set_done(self, done: float) -> None:
        """Set the progress, 0 to 1."""
        self.done = min(max(done, 0.0), 1.0)
        self.setAccessibleName(tr("{name}, {done} percent", name=self.name, done=figure(100 * self.done, ".0f")))
        self.update()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(self.high))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, rect = antialiased(self), QRectF(self.rect())
        radius = rect.height() / 2
        block(painter, rect, theme.colour("bubble"), radius)
        if self.done > 0:
            # At least as wide as high, else the rounded ends would be lost.
            width = max(rect.width() * self.done, rect.height())
            block(painter, QRectF(0, 0, width, rect.height()), theme.colour("hot_fill"), radius)


def paint_ring(painter: QPainter, rect: QRectF, share: float) -> None:
    """Paint a ring closed by `share` (0 to 1); ember above 90 %."""
    inset, width = theme.px(2), 2.4 * theme.current().zoom
    ring = rect.adjusted(inset, inset, -inset, -inset)
    painter.setPen(QPen(theme.colour("edge"), width))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawEllipse(ring)
    if share > 0:
        ink = theme.colour("hot_fill" if share > 0.9 else "ink2")
        painter.setPen(QPen(ink, width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawArc(ring, 90 * 16, round(-360 * 16 * share))
