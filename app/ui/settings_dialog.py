"""The settings, built from their own descriptions. Every change applies at once; the dialog writes no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QCloseEvent, QColor, QPaintEvent
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.settings import AppSettings, described
from app.ui import focus_ring, icons, tab_order, theme
from app.ui.about_dialog import AboutDialog
from app.ui.controls import Button, Label, Rule
from app.ui.floating import resize_within_screen
from app.ui.painting import antialiased, block
from app.ui.setting_rows import ROW_PX, SettingRow, SliderRow, TextRow, row_for
from engine import __version__

COLUMN_PX = 720


class Group(QFrame):
    """A head and, under it, a card with rows parted by hairlines."""

    def __init__(self, title: str, rows: list[QWidget], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(0)
        self.title = Label(title, "metastrong")
        self._column.addWidget(self.title)
        card = QFrame()
        card.setProperty("kind", "card")
        inside = QVBoxLayout(card)
        inside.setContentsMargins(1, 1, 1, 1)
        inside.setSpacing(0)
        for i, row in enumerate(rows):
            if i:
                inside.addWidget(Rule())
            inside.addWidget(row)
        self._column.addWidget(card)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._column.setContentsMargins(0, 0, 0, theme.px(18))
        self.title.setContentsMargins(theme.px(4), 0, 0, theme.px(6))


class LinkRow(Button):
    """A row that opens something: words at the left, a figure and a chevron at the right."""

    def __init__(self, words: str, line: str, parent: QWidget | None = None) -> None:
        super().__init__(words, "quiet", parent=parent)
        self.line = line
        self.height_px, self.radius_px = ROW_PX, 11
        self.setAccessibleDescription(line)
        self._restyle()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        ground, _, _ = self.colours()
        if ground.alpha():
            block(painter, QRectF(self.rect()), QColor(ground), theme.px(self.radius_px))
        inset, side = theme.px(16), theme.px(17)
        box = self.rect().adjusted(inset, 0, -inset, 0)
        painter.setFont(theme.font("label"))
        painter.setPen(theme.colour("ink"))
        painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.setFont(theme.font("small"))
        painter.setPen(theme.colour("ink2"))
        beside = box.adjusted(0, 0, -side - theme.px(6), 0)
        painter.drawText(beside, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, self.line)
        mark = QRectF(box.right() - side + 4, box.center().y() - side / 2 + 0.5, side, side)
        icons.paint(painter, "right", mark, theme.colour("ink2"))


class SettingsDialog(QDialog):
    """All settings that people can change. `changed` gives the whole, valid settings after every change.

    `automatic` names what None stands for at present (the model's own sampling), for the fields where that is known,
    and `notes` what has become of some of them with the model that is loaded, in a sentence.
    """

    changed = Signal(object)

    def __init__(
        self,
        settings: AppSettings,
        parent: QWidget | None = None,
        automatic: Mapping[str, Any] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.setAccessibleName("Settings")
        self.setProperty("kind", "page")
        self.settings = settings
        self.rows: dict[str, SettingRow] = {}
        known = dict(automatic or {})
        groups: dict[str, list[QWidget]] = {}
        for setting in described():
            if not setting.group:
                continue
            row = row_for(setting, known.get(setting.name))
            row.show_value(getattr(settings, setting.name))
            row.set_note((notes or {}).get(setting.name, ""))
            row.edited.connect(lambda value, name=setting.name: self._edit(name, value))
            self.rows[setting.name] = row
            groups.setdefault(setting.group, []).append(row)
        self.about = LinkRow("About Hearth", f"Version {__version__}")
        self.about.clicked.connect(self._open_about)
        groups["About"] = [self.about]
        self._build(groups)
        focus_ring.install(self)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        resize_within_screen(self, theme.px(COLUMN_PX) + 2 * theme.px(24) + theme.px(12), theme.px(680))

    def _build(self, groups: dict[str, list[QWidget]]) -> None:
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        self.area = QScrollArea()
        self.area.setProperty("kind", "plain")
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.viewport().setAutoFillBackground(False)
        page = QFrame()
        page.setAutoFillBackground(False)
        self._centre = QHBoxLayout(page)
        self._column_host = QFrame()
        self._column = QVBoxLayout(self._column_host)
        self._column.setSpacing(0)
        self._title = Label("Settings", "title")
        self._column.addWidget(self._title)
        for title, rows in groups.items():
            self._column.addWidget(Group(title, rows))
        self._column.addStretch(1)
        self._centre.addStretch(1)
        self._centre.addWidget(self._column_host, 1000)
        self._centre.addStretch(1)
        self.area.setWidget(page)
        whole.addWidget(self.area)

    def _restyle(self) -> None:
        self._column_host.setMaximumWidth(theme.px(COLUMN_PX))
        self._column.setContentsMargins(0, theme.px(20), 0, theme.px(6))
        self._centre.setContentsMargins(theme.px(24), 0, theme.px(24), 0)
        self._title.setContentsMargins(0, 0, 0, theme.px(16))
        self.setMinimumSize(theme.px(560), theme.px(360))

    def set_settings(self, settings: AppSettings) -> None:
        """Show settings that were changed elsewhere (Ctrl and +), without telling of them."""
        self.settings = settings
        for name, row in self.rows.items():
            row.show_value(getattr(settings, name))

    def show_model(self, automatic: Mapping[str, Any], notes: Mapping[str, str]) -> None:
        """Show what None stands for, and what the settings have become, with the model that is loaded now."""
        for name, row in self.rows.items():
            row.set_note(notes.get(name, ""))
            if isinstance(row, SliderRow):
                row.set_automatic(automatic.get(name), getattr(self.settings, name))

    def reveal(self, name: str) -> None:
        """Bring a setting into view, with the keyboard on it."""
        row = self.rows.get(name)
        if row is None:
            return
        self.area.ensureWidgetVisible(row)
        if stops := tab_order.stops(row):
            stops[0].setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _edit(self, name: str, value: Any) -> None:
        self.settings = replace(self.settings, **{name: value})
        self.changed.emit(self.settings)

    def _open_about(self) -> None:
        dialog = AboutDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def _flush(self) -> None:
        for row in self.rows.values():
            if isinstance(row, TextRow):
                row.flush()

    def done(self, result: int) -> None:
        self._flush()
        super().done(result)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._flush()
        super().closeEvent(event)
