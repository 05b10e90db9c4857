"""Tells that there is a newer Hearth, where the person allowed to look for one. It looks once a run, installs nothing.

The library's process asks, as it does for everything from the network; that nobody answers is no news.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.clients.library_client import Library, Values
from app.settings import AppSettings
from app.user_messages import UserMessage, describe_newer_release
from engine.library.hub import release


class UpdateNotice(QObject):
    """found: the words for a newer version."""

    found = Signal(UserMessage)

    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library
        self._asked = False

    def take_settings(self, settings: AppSettings) -> None:
        """Look if that is allowed now, and was not done before."""
        if settings.look_for_updates and not self._asked and release.feed():
            self._asked = True
            self._library.ask("newer_release", {}, self._came, lambda failed: None)

    def _came(self, values: Values) -> None:
        if values.get("version"):
            self.found.emit(describe_newer_release(values["version"], values["page"]))
