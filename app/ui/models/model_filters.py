"""The filters of the Models page: a row of pills of which one is chosen, and menus for size, family and order.

app/models/model_selection.py applies the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QIcon, QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QRadioButton, QSizePolicy, QWidget

from app.models.model_selection import FILTERS, SIZES, SORTS, Choice, Filter
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased, block, outline
from app.ui.widgets.controls import Button
from app.ui.widgets.floating import Menu

PILL_PX, PILL_GAP = 30, 6
OUTSET_PX = 8  # the menus' text aligns with the column, so their background extends this far beyond it


class Pill(QRadioButton):
    """One filter, PILL_PX high; the chosen one has an ink background. A figure may follow its text."""

    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(words, parent)
        self.figure = ""
        self.setProperty("focusRadius", PILL_PX // 2)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(words)

    def set_figure(self, figure: str) -> None:
        """Show a figure after the text; an empty one shows none."""
        if figure != self.figure:
            self.figure = figure
            self.setAccessibleName(f"{self.text()}, {figure}" if figure else self.text())
            self.updateGeometry()
            self.update()

    def shown(self) -> str:
        """Return text and figure as painted."""
        return f"{self.text()}\u2002{self.figure}" if self.figure else self.text()

    def sizeHint(self) -> QSize:
        words = QFontMetrics(theme.font("pill")).horizontalAdvance(self.shown())
        return QSize(words + 2 * theme.px(13), theme.px(PILL_PX))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def hitButton(self, pos: QPoint) -> bool:
        return self.rect().contains(pos)

    def paintEvent(self, event: QPaintEvent) -> None:
        t, painter, rect = theme.current().tokens, antialiased(self), QRectF(self.rect())
        radius, chosen = rect.height() / 2, self.isChecked()
        if chosen:
            block(painter, rect, t.ink, radius)
        else:
            over, down = self.underMouse(), self.isDown()
            block(painter, rect, theme.mix(t.card, t.ink, 0.09 if down else 0.04 if over else 0), radius)
            outline(painter, rect, t.control if over or down else t.edge, radius)
        painter.setFont(theme.font("pill"))
        painter.setPen(QColor(t.on_ink if chosen else t.ink if self.underMouse() else t.ink2))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.shown())


class MenuButton(Button):
    """The current choice in small type with a chevron; a click opens the menu."""

    chosen = Signal(object)

    def __init__(self, title: str, parent: QWidget) -> None:
        super().__init__("", "quiet", "down", parent=parent)
        self.title, self.choices, self.value = title, list[tuple[Any, str]](), None
        self.glyph_px, self.padding_px, self.height_px = 14, 8, 30
        self.clicked.connect(self.open_menu)
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("small"))

    def set_choices(self, choices: Sequence[tuple[Any, str]], value: Any) -> None:
        self.choices, self.value = list(choices), value
        words = f"{self.title}: {dict(self.choices).get(value, '')}"
        if words != self.text():
            self.setText(words)
            self.setAccessibleName(words)
            self.updateGeometry()
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        # The chevron is after the text, unlike other buttons' icons.
        painter, rect = antialiased(self), QRectF(self.rect())
        ground, _, ink = self.colours()
        if ground.alpha():
            block(painter, rect, ground, theme.px(self.radius_px))
        side, pad = theme.px(self.glyph_px), theme.px(self.padding_px)
        words = rect.adjusted(pad, 0, -pad - side, 0)
        icon_rect = QRectF(rect.right() - pad - side, (rect.height() - side) / 2 + 0.5, side, side)
        if self.isRightToLeft():
            words, icon_rect = (
                rect.adjusted(pad + side, 0, -pad, 0),
                icon_rect.translated(2 * pad + side - rect.width(), 0),
            )
        painter.setPen(ink)
        shown = QFontMetrics(self.font()).elidedText(self.text(), Qt.TextElideMode.ElideRight, int(words.width()) + 1)
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading, shown)
        icons.paint(painter, "down", icon_rect, ink)

    def menu_of(self) -> Menu:
        """Return the menu, with a check at the current choice."""
        menu = Menu(self.title, self)
        for value, words in self.choices:
            icon = icons.icon("check", "ink2", 16) if value == self.value else QIcon()
            action = menu.addAction(icon, words[:1].upper() + words[1:])
            action.triggered.connect(lambda _=False, value=value: self.chosen.emit(value))
        return menu

    def open_menu(self) -> None:
        menu = self.menu_of()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        wide = menu.sizeHint().width()
        corner = self.rect().bottomLeft() if self.isRightToLeft() else QPoint(self.width() - wide, self.height())
        menu.popup(self.mapToGlobal(corner + QPoint(0, theme.px(4))))


class ModelFilters(QFrame):
    """The row of filters, OUTSET_PX wider than the column. On a narrow page the menus wrap to a second line."""

    changed = Signal(object)  # Choice; its text is always empty here

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Filters"))
        self.choice = Choice()
        self._before: Filter | None = None  # the filter before a search began
        self.pills: dict[Filter, Pill] = {}
        for key, words in FILTERS:
            pill = Pill(tr(words), self)
            pill.clicked.connect(lambda _=False, key=key: self._pick(key))
            self.pills[key] = pill
        self.pills["recommended"].setChecked(True)
        self.pills["well"].hide()  # until it is known that there is no GPU
        self.size_menu, self.family, self.sort = (
            MenuButton(title, self) for title in (tr("Size"), tr("Family"), tr("Sort"))
        )
        self.size_menu.set_choices([(size[0], tr(size[1])) for size in SIZES], "")
        self.sort.set_choices([(sort, tr(words)) for sort, words in SORTS], "best")
        self.set_families([])
        self.size_menu.chosen.connect(lambda value: self._set(size=value))
        self.family.chosen.connect(lambda value: self._set(family=value))
        self.sort.chosen.connect(lambda value: self._set(sort=value))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._place)

    def set_families(self, families: Sequence[str]) -> None:
        """Set the families to choose from."""
        if self.choice.family and self.choice.family not in families:
            families = [*families, self.choice.family]
        self.family.set_choices([("", tr("any")), *((family, family) for family in families)], self.choice.family)
        self._place()

    def set_gpu(self, has_gpu: bool) -> None:
        """Offer models that fit the GPU; without a GPU, those that the CPU runs at reading speed."""
        self.pills["gpu"].setVisible(has_gpu)
        self.pills["well"].setVisible(not has_gpu)
        if self.choice.filter == ("well" if has_gpu else "gpu"):
            self._pick("all")
        self._place()

    def set_here(self, count: int) -> None:
        """Show the number of models on this PC."""
        self.pills["here"].set_figure(str(count) if count else "")
        self._place()

    def set_searching(self, searching: bool) -> None:
        """Search all models while searching; afterwards restore the previous filter."""
        if searching and self._before is None:
            self._before = self.choice.filter
            self._show("all")
        elif not searching and self._before is not None:
            before, self._before = self._before, None
            self._show(before)

    def pick(self, key: Filter) -> None:
        """Choose a filter, and reset the size and family menus."""
        self._before = None
        self._show(key)
        self._set(size="", family="")

    def _pick(self, key: Filter) -> None:
        self._show(key)
        self.changed.emit(self.choice)

    def _show(self, key: Filter) -> None:
        self.choice = replace(self.choice, filter=key)
        self.pills[key].setChecked(True)

    def _set(self, **values: Any) -> None:
        self.choice = replace(self.choice, **values)
        self.size_menu.set_choices(self.size_menu.choices, self.choice.size)
        self.family.set_choices(self.family.choices, self.choice.family)
        self.sort.set_choices(self.sort.choices, self.choice.sort)
        self._place()
        self.changed.emit(self.choice)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # Arrow keys move between radio buttons, but whether they also choose depends on the desktop.
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}.get(
            Qt.Key(event.key())
        )
        order = [key for key, _ in FILTERS if not self.pills[key].isHidden()]
        if step is None or not any(pill.hasFocus() for pill in self.pills.values()):
            super().keyPressEvent(event)
            return
        key = order[(order.index(self.choice.filter) + step) % len(order)]
        self.pills[key].setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._pick(key)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        gap, width, out = theme.px(PILL_GAP), self.width(), theme.px(OUTSET_PX)
        places: list[tuple[QWidget, QRect]] = []

        def row_of(widgets: Sequence[QWidget], start: int, y: int, between: int) -> tuple[int, int]:
            x, end = start, width - start
            for widget in widgets:
                size = widget.sizeHint()
                if x > start and x + size.width() > end:
                    x, y = start, y + theme.px(PILL_PX) + gap
                places.append((widget, QRect(x, y, min(size.width(), end - start), size.height())))
                x += size.width() + between
            return x, y

        menus: list[MenuButton] = [self.size_menu, self.family, self.sort]
        x, y = row_of([pill for pill in self.pills.values() if not pill.isHidden()], out, 0, gap)
        wanted = sum(menu.sizeHint().width() for menu in menus)
        if x + wanted <= width:
            x = width - wanted
            for menu in menus:
                places.append((menu, QRect(x, y, menu.sizeHint().width(), menu.sizeHint().height())))
                x += menu.sizeHint().width()
        else:
            row_of(menus, 0, y + theme.px(PILL_PX) + gap, 0)
        for widget, rect in places:
            if self.isRightToLeft():
                rect.moveLeft(width - rect.x() - rect.width())
            widget.setGeometry(rect)
        self.setFixedHeight(max((rect.bottom() + 1 for _, rect in places), default=theme.px(PILL_PX)))


def menu_at(button: Button, name: str, entries: Sequence[tuple[str, str, Callable[[], None]]]) -> Menu:
    """Open a menu below a button, aligned with the button's end. entries: text, icon and action."""
    menu = Menu(name, button)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    for words, glyph, act in entries:
        menu.add(words, glyph, act)
    corner = QPoint(button.width() - menu.sizeHint().width(), button.height() + theme.px(4))
    menu.popup(button.mapToGlobal(corner))
    return menu
