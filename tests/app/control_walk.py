"""Walks what a window shows and says what is wrong with it for somebody who cannot see it well or has no mouse.

Every rule takes the widget that holds a place (a window, a dialog, a menu) and gives one line for each fault, none when
all is well. It knows no page: which places there are is in places_of_chats.py and places_beside_chats.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from PySide6.QtCore import QAbstractAnimation, QEvent, QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QColor, QFontMetrics, QKeySequence, QPalette, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QScrollBar,
    QTabBar,
    QTextEdit,
    QWidget,
)
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.transcript.text import slices
from app.ui.widgets.card_frame import CardFrame
from app.ui.widgets.controls import Button, Chip, Label
from app.ui.widgets.floating import Toast
from app.ui.widgets.popover import Popover

MOST_STOPS = 400
SMALLEST_TARGET_PX = 22  # a switch, which has a row of its own around it
TEXT_CONTRAST, SIGN_CONTRAST = 4.5, 3.0
_CONTROLS = (
    QAbstractButton, QLineEdit, QTextEdit, QPlainTextEdit, QAbstractSlider, QAbstractItemView, QComboBox,
    QAbstractSpinBox, QTabBar,
)  # fmt: skip
# The ground that a frame's kind stands for in the style sheet.
_GROUNDS = {
    "page": "page", "side": "side", "bar": "page", "strip": "page", "card": "card", "composer": "card",
    "bubble": "bubble", "code": "sunken", "banner": "card",
}  # fmt: skip
_MOUSE = ("mousePressEvent", "mouseReleaseEvent", "mouseDoubleClickEvent")
# What answers to the mouse without having the focus, and what a keyboard does instead.
WITHOUT_A_MOUSE = {
    "_Overlay": "Esc closes what lies above it",
    "StatLine": "the figures of an answer are in its menu too",
    "ToolRow": "a click beside a switch moves it, where Tab goes too",
    "Composer": "a click beside the text goes into the text, where Tab goes too",
}


def settle(rounds: int = 3) -> None:
    """Until layouts have come to rest, and what glides has arrived."""
    for _ in range(rounds):
        QApplication.processEvents()
        QTest.qWait(5)


def come_to_rest(window: QWidget) -> None:
    """Until what glides or fades has arrived and long work is done; what goes round and round is left alone."""
    until = time.monotonic() + 60
    settle()
    while slices.is_working() or any(
        one.state() is QAbstractAnimation.State.Running and one.loopCount() > 0
        for one in window.findChildren(QAbstractAnimation)
    ):
        assert time.monotonic() < until, "it never comes to rest"
        QTest.qWait(10)
    settle()


def visible(root: QWidget) -> Iterator[QWidget]:
    """What can be seen of a place, without what belongs to a window above it and without Qt's own inner parts."""
    for widget in root.findChildren(QWidget):
        if widget.isVisible() and widget.window() is root.window() and not widget.objectName().startswith("qt_"):
            yield widget


def is_ours(widget: QWidget) -> bool:
    """Whether its class is one of the product's."""
    return type(widget).__module__.startswith("app.")


def name_of(widget: QWidget) -> str:
    """What a screen reader says of it. A placeholder is no name: it goes away with the first letter."""
    if isinstance(widget, QLineEdit | QTextEdit | QPlainTextEdit):
        return widget.accessibleName()
    interface = QAccessible.queryAccessibleInterface(widget)
    return interface.text(QAccessible.Text.Name) if interface is not None else widget.accessibleName()


def label_of(widget: QWidget) -> str:
    """How a fault names a widget."""
    words = name_of(widget) or getattr(widget, "words", "") or ""
    return f"{type(widget).__name__} {words[:50]!r} at {widget.mapTo(widget.window(), QPoint(0, 0)).toTuple()}"


def controls(root: QWidget) -> list[QWidget]:
    """Everything that can be pressed, typed in or moved, and whatever else Tab stops at."""
    return [
        widget
        for widget in visible(root)
        if not isinstance(widget, QScrollBar)
        and not _is_inner(widget)
        and (isinstance(widget, _CONTROLS) or widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
    ]


def _is_inner(widget: QWidget) -> bool:
    """A part of one of Qt's own composite widgets: the field of a spin box, a text that nobody types in."""
    if isinstance(widget, QTextEdit | QPlainTextEdit) and widget.isReadOnly():
        return not widget.focusPolicy() & Qt.FocusPolicy.TabFocus
    return isinstance(widget.parentWidget(), QAbstractSpinBox | QComboBox | QLineEdit)


# --- named


def without_a_name(root: QWidget) -> list[str]:
    """Controls without a name, lists with rows without words, icons without a tooltip, menus with silent rows."""
    out = [f"{label_of(widget)} has no name" for widget in controls(root) if not name_of(widget).strip()]
    for widget in visible(root):
        if isinstance(widget, Button) and not widget.text() and not widget.toolTip():
            out.append(f"{label_of(widget)} is an icon without a tooltip")
        if isinstance(widget, QAbstractItemView):
            out += _silent_rows(widget)
        if _is_painted_sign(widget) and not widget.accessibleName():
            out.append(f"{label_of(widget)} is painted and says nothing")
    if isinstance(root, QMenu):
        if not root.accessibleName():
            out.append("the menu has no name")
        out += [
            f"row {n} has no words" for n, act in enumerate(root.actions()) if not act.isSeparator() and not act.text()
        ]
    elif root.isWindow() and not (root.accessibleName() or root.windowTitle()):
        out.append(f"{type(root).__name__} has no name")
    return out


def _silent_rows(view: QAbstractItemView) -> list[str]:
    model = view.model()
    rows = (model.index(row, 0) for row in range(min(model.rowCount(), 50)))
    return [
        f"row {index.row()} of {label_of(view)} has no words"
        for index in rows
        if not (index.data(Qt.ItemDataRole.AccessibleTextRole) or index.data(Qt.ItemDataRole.DisplayRole))
    ]


# Painted by hand and only decoration, or said by the words beside it.
DECORATION = {"Rule", "Glyph", "_Overlay", "FocusRing", "DropOverlay", "Dot"}


def _is_painted_sign(widget: QWidget) -> bool:
    """A widget of ours that is drawn by hand, holds nothing and is no control: a bar, a graph, a map."""
    kind = type(widget)
    return (
        is_ours(widget)
        and kind.__name__ not in DECORATION
        and "paintEvent" in vars(kind)
        and not isinstance(widget, (*_CONTROLS, QLabel, QAbstractScrollArea))
        and not any(isinstance(child, QWidget) for child in widget.children())
    )


# --- reachable


def by_tab(root: QWidget) -> list[QWidget]:
    """Where Tab leads, beginning where the focus is, until it comes round. Empty: nothing takes the focus."""
    root.window().activateWindow()
    settle(1)
    focus = QApplication.focusWidget()
    if focus is None or not (root is focus or root.isAncestorOf(focus)):
        if not root.focusNextChild():
            return []
        focus = QApplication.focusWidget()
    seen: list[QWidget] = []
    for _ in range(MOST_STOPS):
        if focus is None or (focus in seen and focus is not seen[-1]):
            break
        if focus not in seen:  # Tab stays in a text for each of its links
            seen.append(focus)
        QTest.keyClick(focus, Qt.Key.Key_Tab)
        focus = QApplication.focusWidget()
    return seen


def out_of_reach(root: QWidget) -> list[str]:
    """Controls that no key leads to, places where Tab stays, and parts that answer to the mouse alone."""
    if isinstance(root, QMenu):
        return []  # the arrow keys go through every menu
    if found := _unreached(root):
        settle(10)  # something may have come or gone in between, as what is told by another thread does
        found = _unreached(root)
    return found


def _unreached(root: QWidget) -> list[str]:
    wanted = [widget for widget in controls(root) if widget.isEnabled()]
    stops = by_tab(root)
    faults = [f"Tab does not go on from {label_of(stops[-1])}"] if len(stops) == 1 and len(wanted) > 1 else []
    groups = {_group(stop) for stop in stops} - {None}
    for widget in wanted:
        proxy = widget.focusProxy()
        reached = widget in stops or (proxy is not None and proxy in stops) or _group(widget) in groups
        if not reached and not _has_a_shortcut(widget):
            faults.append(
                f"{label_of(widget)} cannot be reached by Tab and its tooltip names no shortcut that is bound"
            )
    return faults + [f"{label_of(widget)} answers to the mouse alone" for widget in _for_the_mouse_alone(root, stops)]


def _group(widget: QWidget) -> tuple[int, str] | None:
    """Radio buttons of one choice: Tab comes to one of them, and arrow keys to the others."""
    if isinstance(widget, QAbstractButton) and widget.autoExclusive():
        return id(widget.parentWidget()), type(widget).__name__
    return None


def _has_a_shortcut(widget: QWidget) -> bool:
    said = re.search(r"\(([^()]+)\)\s*$", widget.toolTip())
    if said is None:
        return False
    bound = {shortcut.key().toString() for shortcut in widget.window().findChildren(QShortcut)}
    return QKeySequence(said[1]).toString() in bound


def _for_the_mouse_alone(root: QWidget, stops: Iterable[QWidget]) -> list[QWidget]:
    stops = list(stops)
    return [
        widget
        for widget in visible(root)
        if is_ours(widget)
        and type(widget).__name__ not in WITHOUT_A_MOUSE
        and not isinstance(widget, (*_CONTROLS, QLabel))
        and any(
            event in vars(kind)
            for kind in type(widget).__mro__
            if kind.__module__.startswith("app.")
            for event in _MOUSE
        )
        and not any(widget is stop or widget.isAncestorOf(stop) for stop in stops)
    ]


# --- not cut


def german(words: str) -> str:
    """Words as long as a translation may be: short ones nearly double, long ones gain a third, as one compound."""
    gain = max(6, int(len(words) * (0.8 if len(words) <= 12 else 0.35)))
    return words + ("ungsvorrichtungseinstellungsmöglichkeiten" * 8)[: min(gain, 24)] + _more(gain - 24)


def _more(n: int) -> str:
    return (" und noch einige Wörter mehr" * 40)[: max(n, 0)].rstrip()


@contextmanager
def lengthened(root: QWidget) -> Iterator[None]:
    """Every word of the interface as long as in a longer language, for as long as this holds."""
    before: list[tuple[Callable[[str], None], QWidget, str, str]] = []
    for widget in visible(root):
        words = (
            widget.words if isinstance(widget, Label) else widget.text() if isinstance(widget, Button | Chip) else ""
        )
        if words.strip() and isinstance(words, str):
            tip = widget.toolTip()
            before.append((widget.setText, widget, words, tip))
            widget.setText(german(words))
            widget.setToolTip(tip.replace(words, german(words)))  # a name that is cut is whole there
            widget.updateGeometry()
    _lay_out_anew(root)
    try:
        yield
    finally:
        for put, widget, words, tip in before:
            if isValid(widget):
                put(words)
                widget.setToolTip(tip)
        if not isinstance(root, QDialog | Popover):  # which is closed next
            _lay_out_anew(root)


def _lay_out_anew(root: QWidget) -> None:
    """As if the words had been so from the start: what is placed by hand is placed when the theme changes."""
    theme.current().changed.emit()
    settle(1)
    for adjust in ("fit", "place"):
        if callable(act := getattr(root, adjust, None)):
            act()
    settle(2)


def cut(root: QWidget) -> list[str]:
    """Words that have not the room they need, that reach out of what holds them, or lie on each other."""
    for _ in range(3):  # a layout may wait for its turn, behind words that have just come; layouts ask for others
        QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
    if isinstance(root, QMenu):
        return [] if root.height() <= root.screen().availableSize().height() else ["the menu is higher than the screen"]
    texts = [widget for widget in visible(root) if isinstance(widget, QLabel | QAbstractButton) and _is_shown(widget)]
    out = [f"{label_of(widget)} is cut: {why}" for widget in texts if (why := _lacks_room(widget))]
    shown = [*texts, *(widget for widget in controls(root) if widget not in texts)]
    out += [f"{label_of(widget)} reaches out of {why}" for widget in shown if (why := _reaches_out(widget))]
    return out + _on_each_other(texts)


# Rows of a list of what people have named: an ellipsis at the end, as in the list of chats.
ROWS_OF_NAMES = {"PickRow"}


def _is_shown(widget: QWidget) -> bool:
    return widget.width() > 0 and widget.height() > 0


def _lacks_room(widget: QWidget) -> str:
    if isinstance(widget, QLabel):
        words = getattr(widget, "words", widget.text())
        if not words or getattr(widget, "elides", False):
            return ""  # a name or a title: shown whole by its tooltip
        if widget.wordWrap():
            needs = widget.heightForWidth(widget.width())
            return f"needs {needs} px of height, has {widget.height()}" if needs > widget.height() else ""
        needs = max(QFontMetrics(widget.font()).horizontalAdvance(line) for line in words.splitlines() or [""])
        has = widget.contentsRect().width()
        return f"needs {needs} px, has {has}" if needs > has + 1 else ""
    if isinstance(widget, QAbstractButton) and widget.text() and type(widget).__name__ not in ROWS_OF_NAMES:
        needs, has = widget.sizeHint().width(), widget.width()
        return f"needs {needs} px, has {has}" if needs > has + 1 and widget.text() not in widget.toolTip() else ""
    return ""


def _reaches_out(widget: QWidget) -> str:
    """The first thing around a widget that does not hold all of it. What scrolls may hold it further down."""
    parent, rect, vertical = widget.parentWidget(), widget.geometry(), True
    while parent is not None and not widget.isWindow():
        area = parent.parentWidget()
        room = QRect(parent.rect())
        if isinstance(area, QAbstractScrollArea) and area.viewport() is parent:
            vertical = False
            if area.horizontalScrollBar().maximum() > 0:
                return ""
        if not vertical:
            room.setTop(min(room.top(), rect.top()))
            room.setBottom(max(room.bottom(), rect.bottom()))
        if not room.contains(rect):
            return f"{type(parent).__name__} {parent.accessibleName()!r}: {rect.getRect()} in {room.getRect()}"
        if parent.isWindow():
            return ""
        rect = rect.translated(parent.pos())
        parent = area
    return ""


def _on_each_other(texts: list[QWidget]) -> list[str]:
    by_parent: dict[QWidget | None, list[QWidget]] = {}
    for widget in texts:
        by_parent.setdefault(widget.parentWidget(), []).append(widget)
    out = []
    for parent, group in by_parent.items():
        layout = parent.layout() if parent is not None else None
        if layout is None:
            continue  # placed by hand, one above the other on purpose
        ordered = sorted((w for w in group if layout.indexOf(w) >= 0), key=lambda w: (w.y(), w.x()))
        for first, second in pairwise(ordered):
            if first.geometry().adjusted(0, 0, -1, -1).intersects(second.geometry().adjusted(1, 1, 0, 0)):
                out.append(f"{label_of(second)} lies on {label_of(first)}")
    return out


# --- legible


def ground_of(widget: QWidget) -> str:
    """The colour that lies behind a widget, as the theme has it."""
    tokens, at = theme.current().tokens, widget.parentWidget()
    while at is not None:
        kind = at.property("kind")
        if isinstance(at, Popover | CardFrame | Toast) or (isinstance(at, QDialog) and kind is None):
            return tokens.card
        if kind in _GROUNDS:
            return str(getattr(tokens, _GROUNDS[kind]))
        at = at.parentWidget()
    return tokens.page


def _over(colour: QColor, ground: str) -> str:
    return theme.mix(ground, colour.name(), colour.alphaF())


def illegible(root: QWidget) -> list[str]:
    """Words below a contrast of 4.5 with what lies behind them, and icons below 3, in the theme in force."""
    out = []
    for widget in visible(root):
        ground, least = ground_of(widget), TEXT_CONTRAST
        if isinstance(widget, Chip):
            tokens = theme.current().tokens
            ink = getattr(tokens, widget.tone or "ink2")
            ground = getattr(tokens, f"{widget.tone}_soft" if widget.tone else "sunken")
        elif isinstance(widget, QLabel):
            if not widget.text():
                continue
            ink = widget.palette().color(QPalette.ColorRole.WindowText).name()
        elif isinstance(widget, Button):
            under, _, text = widget.colours()
            ground = _over(under, ground)
            ink = text.name()
            if not widget.text():
                ink, least = widget.glyph_colour(text).name(), SIGN_CONTRAST
        else:
            continue
        if (found := theme.contrast(ink, ground)) < least:
            out.append(f"{label_of(widget)}: {ink} on {ground} is {found:.2f}, {least} is the least")
    return out


def too_small(root: QWidget) -> list[str]:
    """Buttons that a finger or a trembling hand misses."""
    least = SMALLEST_TARGET_PX
    return [
        f"{label_of(widget)} is {widget.width()} x {widget.height()}"
        for widget in visible(root)
        if isinstance(widget, QAbstractButton)
        and is_ours(widget)
        and _is_shown(widget)
        and min(widget.width(), widget.height()) < least
    ]
