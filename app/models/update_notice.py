"""Tells that there is a newer Hearth, if the user allowed the check. Checks once a run; installs nothing.

The library's process makes the request. A failed check is not reported.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.clients.library_client import Library, Values
from app.settings import AppSettings
from app.user_messages import UserMessage, describe_newer_release
from engine.library.hub import release


class UpdateNotice(QObject):
    """found: the message for a newer version."""

    found = Signal(UserMessage)

    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library
        self._asked = False

    def take_settings(self, settings: AppSettings) -> None:
        """Check if it is allowed and was not done before."""
        if settings.look_for_updates and not self._asked and release.feed():
            self._asked = True
            self._library.ask("newer_release", {}, self._came, lambda failed: None)

    def _came(self, values: Values) -> None:
        if values.get("version"):
            self.found.emit(describe_newer_release(values["version"], values["page"]))
