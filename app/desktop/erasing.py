"""Deletes what Hearth stores: the user chooses, Hearth stops everything, deletes, and restarts.

Keys go first, through the library's process, which has the keyring. Files go last, in a thread, when no process of
Hearth can write them any more. stored_data.py lists the files.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication
from shiboken6 import isValid

import engine
from app.chat.store.operations import Operations
from app.clients.library_client import Library, Values
from app.clients.servers import Server
from app.desktop import crash_notes
from app.servers.servers_controller import ServersController
from app.settings import AppPaths
from app.stored_data import GROUPS, MODELS, SERVERS, Erased, StoredData, Undeleted
from app.tools.web_search import BRAVE_ADDRESS, BRAVE_NAME
from app.translation import tr
from app.ui.main_window import MainWindow
from app.ui.settings.erase_dialogs import EraseDialog, ErasingDialog
from engine.library.updates.installed import start_command

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.05
KEYS_WITHIN_MS = 45_000  # a keyring may ask the user to unlock it


class Erasing(QObject):
    """Created after the first paint. `names`: the groups to delete once Hearth has ended; empty: none."""

    def __init__(
        self, window: MainWindow, library: Library, servers: ServersController, reads: Operations, places: AppPaths
    ) -> None:
        super().__init__()
        self._window, self._library, self._servers, self._reads = window, library, servers, reads
        self._stored = StoredData(places)
        self.names: list[str] = []
        self.total = 0
        self._sizes: dict[str, int] = {}
        self._chosen: list[str] = []
        self._keys_left: list[Undeleted] = []
        self._awaited = 0
        self._key_timer = QTimer(self, singleShot=True, interval=KEYS_WITHIN_MS)
        self._key_timer.timeout.connect(self._keys_never_answered)
        window.erase_wanted.connect(self.ask)

    def ask(self) -> None:
        """Show what is stored and let the user choose."""
        dialog = EraseDialog(self._window)
        dialog.chosen.connect(self.begin)

        def show(name: str, size: int | None) -> None:
            self._sizes[name] = size or 0
            if isValid(dialog):  # else it was closed meanwhile
                dialog.show_size(name, size)

        def fail(name: str, error: BaseException) -> None:
            log.warning("the size of %s is not known: %s", name, error)
            show(name, None)

        for group in GROUPS:
            self._reads.run(
                f"measure {group.name}", partial(self._stored.size, group), partial(show, group.name),
                partial(fail, group.name),
            )  # fmt: skip
        dialog.open()

    def begin(self, names: Sequence[str]) -> None:
        """Delete the keys if they were chosen, and close. `finish` does the rest."""
        self._chosen = list(names)
        if SERVERS not in names:
            self._close()
            return
        brave = Server("search", BRAVE_NAME, BRAVE_ADDRESS, has_key=self._window.settings.search_has_key)
        self._awaited = 2 + self._servers.delete_keys(self._server_key_deleted, [brave])
        self._key_timer.start()
        token, own = tr("Access token"), tr("Local server")
        self._library.ask("token", {"set": ""}, self._token_deleted, lambda failed: self._key(token, failed.message))
        self._library.ask("own_key", {"set": ""}, self._own_key_deleted, lambda failed: self._key(own, failed.message))

    def _token_deleted(self, state: Values) -> None:
        kept = state.get("has_token") and state.get("where") == "keyring"
        self._key(tr("Access token"), tr("This system's keyring did not delete it.") if kept else "")

    def _own_key_deleted(self, state: Values) -> None:
        self._key(tr("Local server"), tr("This system's keyring did not delete it.") if state.get("kept") else "")

    def _server_key_deleted(self, server: Server, why: str) -> None:
        self._key(server.name, tr("This system's keyring did not delete it.") if why else "")

    def _key(self, whose: str, why: str) -> None:
        """Count one deleted key. why: why it is still there, or ""."""
        if why:
            self._keys_left.append(Undeleted(tr("Key of {name}", name=whose), why))
        self._awaited -= 1
        if self._awaited == 0:
            self._close()

    def _keys_never_answered(self) -> None:
        self._keys_left.append(Undeleted(tr("Keys in this system's keyring"), tr("The keyring did not answer.")))
        self._close()

    def _close(self) -> None:
        if self.names:
            return
        self._key_timer.stop()
        self.names = self._chosen
        self.total = sum(self._sizes.get(name, 0) for name in self.names)
        if MODELS in self.names:  # the next start must not look for a deleted model
            self._window.take_settings(replace(self._window.settings, model=""))
        self._window.quit()

    # --- after the end

    def finish(self, close: Callable[[], bool]) -> tuple[bool, bool]:
        """End everything with `close` and delete. Returns the result of `close`, and whether to restart Hearth."""
        dialog = ErasingDialog(self.total)
        dialog.show()
        QApplication.processEvents()
        ended = close()
        crash_notes.mark_ended()
        log.info("deleting: %s", ", ".join(self.names))
        if "logs" in self.names:
            crash_notes.close_log()
        work = _Deleting(self._stored, self.names, self._keys_left)
        work.progress.connect(dialog.show_done)
        work.done.connect(dialog.finish)
        dialog.stopped.connect(work.stop.set)
        work.start()
        return ended, dialog.exec() == ErasingDialog.DialogCode.Accepted


class _Deleting(QObject):
    """Deletes in a thread of its own."""

    progress = Signal(object)  # int: bytes deleted so far
    done = Signal(object)  # Erased

    def __init__(self, stored: StoredData, names: list[str], keys_left: list[Undeleted]) -> None:
        super().__init__()
        self._stored, self._names, self._keys_left = stored, names, keys_left
        self.stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="deleting", daemon=True).start()

    def _run(self) -> None:
        last = 0.0

        def tell(n_bytes: int) -> None:
            nonlocal last
            if time.monotonic() - last >= REPORT_EVERY_S:
                last = time.monotonic()
                self.progress.emit(n_bytes)

        try:
            erased = self._stored.erase(self._names, tell, self.stop.is_set)
        except Exception as error:
            log.exception("deleting ended early")
            erased = Erased(undeleted=[Undeleted(tr("The rest"), str(error))])
        erased.undeleted[:0] = self._keys_left
        self.done.emit(erased)


def command_of_a_start(location: str | None, data_folder: Path | None) -> list[str]:
    """Return the command that restarts Hearth with the same folder and no files to open."""
    program = start_command() if getattr(sys, "frozen", False) else [sys.executable, "-P", "-m", "app"]
    engine_flag = ["--engine", location] if location else []
    return [*program, *engine_flag, *(["--data-dir", str(data_folder)] if data_folder else [])]


def start_again(command: list[str]) -> None:
    """Restart Hearth, in place of this process if the system can."""
    environment = dict(os.environ, PYINSTALLER_RESET_ENVIRONMENT="1")  # a program of its own, not this one's helper
    if not getattr(sys, "frozen", False):
        root = str(Path(engine.__file__).resolve().parents[1])
        before = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = root + (os.pathsep + before if before else "")
    if os.name == "nt":
        subprocess.Popen(command, env=environment)
    else:
        os.execve(command[0], command, environment)
