"""The settings dialog, built from the settings' descriptions. Every change applies at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QApplication, QDialog, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.servers.local_server import LocalServer
from app.settings import AppSettings, described, description_of, worded
from app.tools.mcp.servers_controller import ToolServersController
from app.translation import tr
from app.ui.look import theme
from app.ui.settings.about_dialog import AboutDialog
from app.ui.settings.local_server_rows import LocalServerRows
from app.ui.settings.search_row import SearchRow
from app.ui.settings.setting_groups import FindField, FolderRow, Group, LinkRow
from app.ui.settings.setting_rows import SettingRow, SliderRow, TextRow, row_for
from app.ui.settings.tool_server_rows import ToolServerRows
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.floating import resize_within_screen, set_smallest
from engine import __version__
from engine.library.updates import release

COLUMN_PX = 720
NARROW_PX = 560  # below this width, wide controls are below their texts


class SettingsDialog(QDialog):
    """All settings that users can change. changed: all settings, valid, after every change.

    automatic: what None stands for now, such as the model's own sampling, where known. notes: the effect of settings
    with the loaded model, as sentences.
    """

    changed = Signal(object)
    act_wanted = Signal(str)  # a command of app/shortcuts.py, to run after the dialog has closed
    report_wanted = Signal()  # save a report on this PC
    log_wanted = Signal()  # open the log folder
    search_changed = Signal(str, str, object)  # as SearchRow emits it; `changed` follows

    def __init__(
        self,
        settings: AppSettings,
        parent: QWidget | None = None,
        automatic: Mapping[str, Any] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings"))
        self.setAccessibleName(tr("Settings"))
        self.setProperty("kind", "page")
        self.settings = settings
        self.rows: dict[str, SettingRow] = {}
        self._groups: dict[str, Group] = {}
        self._build()
        known = dict(automatic or {})
        for setting in map(worded, described()):
            group = setting.group
            # a build without an update feed cannot look for updates
            if setting.name == "look_for_updates" and release.feed():
                group = worded(description_of("tray")).group
            if not group:
                continue
            row = row_for(setting, known.get(setting.name))
            row.show_value(getattr(settings, setting.name))
            row.set_note((notes or {}).get(setting.name, ""))
            row.edited.connect(lambda value, name=setting.name: self._edit(name, value))
            self.rows[setting.name] = row
            self.add_row(group, row, row.is_found_by)
        storage = tr("Privacy and storage")
        self.privacy = self._add_link(storage, tr("Privacy"), tr("What leaves this PC, and what does not"), "privacy")
        self._add_folders(storage)
        self.token = self._add_link(storage, tr("Access token"), tr("For models that ask for one"), "access_token")
        self.erase = self._add_link(
            storage, tr("Delete everything…"), tr("Or parts of what Hearth stores on this PC"), "delete_everything"
        )
        self.report = LinkRow(tr("Save a report"), tr("To show to others. Contains no chats and no file names."))
        self.report.clicked.connect(self.report_wanted)
        self.log = LinkRow(tr("Show the log"), tr("What Hearth did, on this PC only"))
        self.log.clicked.connect(self.log_wanted)
        self.about = LinkRow(tr("About Hearth"), tr("Version {version}", version=__version__))
        self.about.clicked.connect(self._open_about)
        for link in (self.report, self.log):
            self.add_row(tr("Help"), link, link.is_found_by)
        self.self_test = self._add_link(
            tr("Help"),
            tr("Test this PC"),
            tr("Each part with its time, in a text without private content"),
            "self_test",
        )
        self.updates = self._add_link(tr("Help"), tr("Updates"), tr("Newer versions of Hearth"), "updates")
        self.add_row(tr("Help"), self.about, self.about.is_found_by)
        self._column.removeWidget(advanced := self._groups[worded(description_of("engine_location")).group])
        self._column.insertWidget(self._column.count() - 1, advanced)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self).activated.connect(self._go_to_search)
        self.search.setFocus()
        focus_ring.install(self)
        self._set_aside: list[Group] = []  # groups hidden while a theme is applied
        self._scrolled = 0  # before that
        theme.current().changing.connect(self._set_groups_aside)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        resize_within_screen(self, theme.px(COLUMN_PX) + 2 * theme.px(24) + theme.px(12), theme.px(680))

    def _build(self) -> None:
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
        self._title = Label(tr("Settings"), "title")
        self.search = FindField()
        self.search.textChanged.connect(self._find)
        self._head = QHBoxLayout()
        self._head.addWidget(self._title, 1)
        self._head.addWidget(self.search)
        self._column.addLayout(self._head)
        self.nothing = Label("", "small", "ink3", wrap=True, align=Qt.AlignmentFlag.AlignHCenter)
        self.nothing.setVisible(False)
        self._column.addWidget(self.nothing)
        self._column.addStretch(1)
        self._centre.addStretch(1)
        self._centre.addWidget(self._column_host, 1000)
        self._centre.addStretch(1)
        self.area.setWidget(page)
        whole.addWidget(self.area)

    def _add_link(self, group: str, words: str, line: str, act: str) -> LinkRow:
        """Add a row that closes the dialog and runs a command."""
        link = LinkRow(words, line)
        link.clicked.connect(lambda: self._leave_for(act))
        self.add_row(group, link, link.is_found_by)
        return link

    def _leave_for(self, act: str) -> None:
        self.close()
        self.act_wanted.emit(act)

    def add_row(self, group: str, row: QWidget, is_found_by: Callable[[list[str]], bool]) -> None:
        """Append a row to a group, adding the group if it is new.

        is_found_by: whether the row matches lower-case search words.
        """
        if group not in self._groups:
            self._groups[group] = Group(group, folds=group == worded(description_of("engine_location")).group)
            self._column.insertWidget(self._column.count() - 1, self._groups[group])
        self._groups[group].add(row, is_found_by)

    def _add_folders(self, group: str) -> None:
        self.data_folder, self.models_folder = FolderRow(tr("Data folder")), FolderRow(tr("Models folder"))
        self.move_models = Button(tr("Move…"))
        self.move_models.setAccessibleName(tr("Move the models folder"))
        self.move_models.clicked.connect(lambda: self._leave_for("move_models"))
        self.models_folder.add(self.move_models)
        for row in (self.data_folder, self.models_folder):
            self.add_row(group, row, row.is_found_by)

    def show_folders(self, data: str, models: str) -> None:
        self.data_folder.show_folder(data)
        self.models_folder.show_folder(models)

    def add_local_server(self, server: LocalServer) -> None:
        """Add the rows of the local server below its switch."""
        self._local_server = LocalServerRows(server)
        for row in self._local_server.rows:
            self.add_row(worded(description_of("serve")).group, row, row.is_found_by)

    def add_tools(self, tool_servers: ToolServersController | None = None) -> None:
        """Add the group of tools. tool_servers: None adds no row for MCP servers."""
        row = SearchRow(self.settings.search_has_key)
        row.show_search(self.settings.search_service, self.settings.search_address)
        row.search_changed.connect(self._edit_search)
        self.rows["search_service"] = row
        self.add_row(tr("Tools"), row, row.is_found_by)
        if tool_servers is not None:
            self.tool_servers = ToolServerRows(tool_servers)
            self.add_row(tr("Tools"), self.tool_servers, self.tool_servers.is_found_by)
        self._add_link(tr("Tools"), tr("Documents"), tr("Folders that a chat can answer from"), "documents")
        self._column.removeWidget(tools := self._groups[tr("Tools")])
        answers = self._groups[worded(description_of("system_prompt")).group]
        self._column.insertWidget(self._column.indexOf(answers) + 1, tools)

    def _edit_search(self, kind: str, address: str, key: str | None) -> None:
        self.search_changed.emit(kind, address, key)
        has_key = self.settings.search_has_key if key is None else bool(key)
        self.settings = replace(self.settings, search_service=kind, search_address=address, search_has_key=has_key)
        self.changed.emit(self.settings)

    def _find(self) -> None:
        words = self.search.words()
        found = [group.show_found(words) for group in self._groups.values()]
        self.nothing.setText(tr("No settings match “{typed}”.", typed=self.search.text().strip()))
        self.nothing.setVisible(not any(found))

    def _go_to_search(self) -> None:
        self.area.verticalScrollBar().setValue(0)
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def _fit_width(self) -> None:
        narrow = self.width() < theme.px(NARROW_PX)
        side = theme.px(8 if narrow else 24)
        self._centre.setContentsMargins(side, 0, side, 0)
        for row in self.findChildren(SettingRow):
            row.set_narrow(narrow)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_width()

    def _set_groups_aside(self) -> None:
        """Hide the groups out of view: a style sheet costs twice as much for a visible widget."""
        if self._set_aside:  # the change before has not come to its end
            return
        self._scrolled = self.area.verticalScrollBar().value()
        self._set_aside = [
            group
            for group in self._groups.values()
            if group.isVisible()
            and group.visibleRegion().isEmpty()
            and self.focusWidget() not in group.findChildren(QWidget)
        ]
        for group in self._set_aside:
            group.hide()

    def _restyle(self) -> None:
        self._column_host.setMaximumWidth(theme.px(COLUMN_PX))
        self._column.setContentsMargins(0, theme.px(20), 0, theme.px(6))
        self._head.setContentsMargins(0, 0, 0, theme.px(16))
        self.nothing.setContentsMargins(0, theme.px(40), 0, theme.px(40))
        set_smallest(self, NARROW_PX, 360)
        self._fit_width()
        for group in self._set_aside:
            group.show()
        if self._set_aside:
            self._set_aside = []
            QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
            self.area.verticalScrollBar().setValue(self._scrolled)

    def show_model(self, automatic: Mapping[str, Any], notes: Mapping[str, str]) -> None:
        """Show what None stands for, and the notes, for the loaded model."""
        for name, row in self.rows.items():
            row.set_note(notes.get(name, ""))
            if isinstance(row, SliderRow):
                row.set_automatic(automatic.get(name), getattr(self.settings, name))

    def reveal(self, name: str) -> None:
        """Scroll to a setting and focus it."""
        row = self.rows.get(name)
        if row is None:
            return
        self.search.clear()
        next(group for group in self._groups.values() if group.isAncestorOf(row)).set_open(True)
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

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # groups and rows are added in another order

    def done(self, result: int) -> None:
        self._flush()
        super().done(result)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._flush()
        super().closeEvent(event)
