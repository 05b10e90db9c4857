"""Newer versions of Hearth: looks for them, downloads and installs one when the user clicks, and goes back.

The library's process makes the requests and verifies what comes (engine/library/updates). At a start it is asked only
if the user allowed that in the settings, and only the signed manifest is fetched then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from app.clients.library_client import Library, Values
from app.settings import AppSettings
from app.ui.main_window import MainWindow
from app.ui.settings.updates_dialog import UpdatesDialog, UpdateState
from app.user_messages import UserMessage, describe, describe_newer_release
from engine import __version__
from engine.errors import UpdateError
from engine.library.updates import installed, release
from engine.library.updates.manifest import numbers
from engine.service import protocol

log = logging.getLogger(__name__)


class Updates(QObject):
    """found: the message for a newer version, at a start. starts_again: Hearth is to be restarted once it has ended."""

    found = Signal(UserMessage)
    changed = Signal(UpdateState)

    def __init__(self, window: MainWindow, library: Library) -> None:
        super().__init__()
        self._window, self._library = window, library
        self._asked_at_start = False
        self._request = ""
        self._file: Values = {}
        self.starts_again = False
        way = installed.platform().rpartition("-")[2]
        self.state = UpdateState(offered=bool(release.feed()), way=way, previous=installed.previous())
        window.updates_wanted.connect(self.show)

    def take_settings(self, settings: AppSettings) -> None:
        """Look for a newer version if that is allowed and was not done in this run. A failure is not reported."""
        if settings.look_for_updates and self.state.offered and not self._asked_at_start:
            self._asked_at_start = True
            self._library.ask("update_look", {}, self._looked_at_start, lambda failed: None)

    def _looked_at_start(self, values: Values) -> None:
        if self.state.phase in ("idle", "newest"):
            self._looked(values)
            if numbers(values.get("version", "")) > numbers(__version__):
                self.found.emit(describe_newer_release(values["version"]))

    # --- the dialog

    def show(self) -> None:
        """Show the stored result of the last check. Makes no request."""
        dialog = UpdatesDialog(self._window, self.state)
        self.changed.connect(dialog.show_state)
        for signal, act in (
            (dialog.look, self._look), (dialog.download, self._download), (dialog.stop, self._stop),
            (dialog.install, self._install), (dialog.page, self._open_page), (dialog.go_back, self._go_back),
        ):  # fmt: skip
            signal.connect(act)
        dialog.open()

    def _take(self, **values: object) -> None:
        self.state = replace(self.state, **values)  # type: ignore[arg-type]
        self.changed.emit(self.state)

    def _look(self) -> None:
        self._take(phase="looking", failure=None)
        self._request = self._library.ask("update_look", {}, self._looked, self._failed("update_look", "idle"))

    def _looked(self, values: Values) -> None:
        if values.get("cancelled"):
            self._take(phase="idle")
            return
        newer = numbers(values["version"]) > numbers(__version__)
        self._take(phase="found" if newer else "newest", **values)

    def _download(self) -> None:
        self._take(phase="downloading", failure=None, done=0)
        self._request = self._library.ask(
            "update_download", {"version": self.state.version}, self._downloaded,
            self._failed("update_download", "found"), lambda at: self._take(done=at.done),
        )  # fmt: skip

    def _downloaded(self, values: Values) -> None:
        self._file = values
        self._take(phase="found" if values.get("cancelled") else "ready")

    def _stop(self) -> None:
        self._library.cancel(self._request)

    def _install(self) -> None:
        """Install the verified file: by its own script and with a restart, or hand a .deb over to the system."""
        if self.state.way == "deb":
            if not QDesktopServices.openUrl(QUrl.fromLocalFile(self._file["path"])):
                QDesktopServices.openUrl(QUrl.fromLocalFile(self._file["path"].rpartition("/")[0]))
            return
        self._take(phase="installing", failure=None)
        self._request = self._library.ask(
            "update_install", self._file, self._installed, self._failed("update_install", "found")
        )

    def _installed(self, values: Values) -> None:
        if values.get("cancelled"):
            self._take(phase="ready")
        else:
            self._restart()

    def _go_back(self) -> None:
        try:
            installed.go_back(self.state.previous)
        except UpdateError as error:
            self._take(failure=describe(error, during="update_install"))
        else:
            self._restart()

    def _restart(self) -> None:
        self.starts_again = True
        self._window.quit()

    def _open_page(self) -> None:
        QDesktopServices.openUrl(QUrl(self.state.page))

    def _failed(self, job: str, phase: str) -> Callable[[protocol.Failed], None]:
        def fail(failed: protocol.Failed) -> None:
            log.info("%s failed", job)
            self._take(phase=phase, failure=describe(failed, during=job))

        return fail
