"""Tab moves through a window in reading order.

Qt's order is that of creation, and a chat is built from its end. This module decides only where Tab goes next, not
which widgets accept the focus.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget


def stops(root: QWidget) -> list[QWidget]:
    """Return the tab stops below `root`, from the top, and within a line from the leading edge."""
    found: list[QWidget] = []
    parts = [
        child
        for child in root.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly)
        if child.isVisible() and not child.isWindow()
    ]
    mirrored = root.isRightToLeft()
    for part in sorted(parts, key=lambda part: (part.y(), -part.x() if mirrored else part.x())):
        takes = part.focusPolicy() & Qt.FocusPolicy.TabFocus
        if takes and part.isEnabled() and part.focusProxy() is None:
            found.append(part)
        found += stops(part)
    return found


def move_on(window: QWidget, forward: bool) -> bool:
    """Focus the next or previous tab stop of a window. Return whether there is one."""
    order, focus = stops(window), QApplication.focusWidget()
    if not order:
        return False
    step = 1 if forward else -1
    index = order.index(focus) if focus in order else min(-step, 0)
    target = order[(index + step) % len(order)]
    target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    inside: QWidget | None = target.parentWidget()
    while inside is not None:
        if isinstance(inside, QScrollArea):
            inside.ensureWidgetVisible(target)
        inside = inside.parentWidget()
    return True
