"""Opens the palette (Ctrl+K) and the list of shortcuts (F1), filled with the window's current contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.text.palette_search import Entry
from app.ui.keyboard.commands import Commands

if TYPE_CHECKING:
    from app.settings import AppSettings
    from app.ui.keyboard.command_palette import CommandPalette
    from app.ui.sidebar.sidebar import Sidebar


class Finder(QObject):
    """Opens palette and shortcuts; create one per window. shown: returns the id of the visible chat."""

    def __init__(
        self,
        window: QWidget,
        commands: Commands,
        sidebar: Sidebar,
        shown: Callable[[], str],
        settings: Callable[[], AppSettings],
        open_setting: Callable[[str], object],
    ) -> None:
        super().__init__(window)
        self._window, self._commands, self._sidebar = window, commands, sidebar
        self._shown, self._settings, self._open_setting = shown, settings, open_setting
        self._more: list[Callable[[], list[Entry]]] = []
        self.palette: CommandPalette | None = None  # built on first use
        commands.bind("palette", self.open_palette)
        commands.bind("shortcuts", self.open_shortcuts)

    def add(self, entries: Callable[[], list[Entry]]) -> None:
        """Add entries to the palette, between commands and settings. `entries` is called each time the palette
        opens."""
        self._more.append(entries)

    def open_palette(self) -> None:
        """Open the palette, or close it if it is open."""
        from app.ui.keyboard.command_palette import CommandPalette
        from app.ui.keyboard.palette_entries import in_messages

        if self.palette is None:
            search = self._sidebar.search_for
            self.palette = CommandPalette(self._window, self._entries, lambda text: in_messages(text, search))
        self.palette.toggle()

    def _entries(self) -> list[Entry]:
        from app.ui.keyboard import palette_entries

        chats = self._sidebar.panel.list.chats.conversations
        return [
            *palette_entries.of_chats(chats, self._shown(), self._sidebar.conversation_selected.emit),
            *palette_entries.of_commands(self._commands),
            *(entry for entries in self._more for entry in entries()),
            *palette_entries.of_settings(self._settings(), self._open_setting),
        ]

    def open_shortcuts(self) -> None:
        from app.ui.keyboard.shortcuts_dialog import ShortcutsDialog

        ShortcutsDialog(self._window, self._commands).open()
