"""Tab goes through a window as it is read: Qt's own order is that in which widgets were made, and a chat is built from
its end. It decides only where Tab leads next, not what can have the focus.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget


def stops(root: QWidget) -> list[QWidget]:
    """What Tab stops at below `root`, from the top, and within a line from its leading edge."""
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
    """Give the focus to the next stop of a window, or the one before; whether there was one."""
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
