"""Painting helpers: filled and outlined rounded rectangles."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, Qt
from PySide6.QtGui import QAccessible, QAccessibleEvent, QColor, QPainter, QPen
from PySide6.QtWidgets import QWidget

Index = QModelIndex | QPersistentModelIndex  # of a row, as Qt passes it to models and delegates


def block(painter: QPainter, rect: QRectF, colour: str | QColor, radius: float) -> None:
    """Fill a rounded rectangle."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(colour))
    painter.drawRoundedRect(rect, radius, radius)


def outline(painter: QPainter, rect: QRectF, colour: str | QColor, radius: float) -> None:
    """Draw a hairline just inside a rounded rectangle, at half pixels so that it stays one pixel wide."""
    painter.setPen(QPen(QColor(colour), 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius - 0.5, radius - 0.5)


def antialiased(widget: QWidget) -> QPainter:
    """Return an antialiasing painter for a paint event."""
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    return painter


def say_changed(widget: QWidget) -> None:
    """Notify screen readers that a painted value has changed."""
    QAccessible.updateAccessibility(QAccessibleEvent(widget, QAccessible.Event.NameChanged))
