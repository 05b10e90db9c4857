"""Connects Hearth to the desktop: awake while it works, notifications, tray, one window, crash reports."""

from __future__ import annotations

import contextlib
import logging
import sys
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QStandardPaths, QUrl, qVersion
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog

from app.chat.chat_controller import ChatController
from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import ChatMemory
from app.chat.store.operations import Operations
from app.clients.engine_client import EngineClient
from app.clients.engine_status import EngineStatus
from app.desktop import crash_notes, diagnostics
from app.desktop.desktop_motion import DesktopMotion
from app.desktop.notifications import AnswerNotices, DesktopPoster, poster_of_this_system
from app.desktop.single_instance import LaunchRequest, SingleInstance, take_activation
from app.desktop.sleep_inhibitor import SleepInhibitor
from app.models.models_controller import ModelsController
from app.settings import AppPaths, AppSettings
from app.translation import noted, tr
from app.ui.look import theme
from app.ui.main_window import MainWindow
from app.ui.tray import Tray

log = logging.getLogger(__name__)

_AT_WORK = frozenset({"queued", "downloading", "checking"})  # states of a download that continues by itself
_MODEL_FILES = frozenset({".gguf", ".safetensors"})
_CHAT_FILES = frozenset({".json", ".zip", ".chat"})


class DesktopIntegration(QObject):
    """Created after the first paint."""

    def __init__(
        self,
        window: MainWindow,
        engine: EngineClient,
        controller: ChatController,
        memory: ChatMemory,
        models: ModelsController,
        folders: ChatFolders,
        reads: Operations,
        places: AppPaths,
    ) -> None:
        super().__init__()
        self._crash: crash_notes.LastRun | None = None  # to report once the chats are open
        self._window, self._engine, self._controller = window, engine, controller
        self._memory, self._models, self._folders = memory, models, folders
        self._reads, self._places = reads, places
        self.sleep = SleepInhibitor()
        self.tray = Tray()
        self.poster = poster_of_this_system(self.tray)
        self.notices = AnswerNotices(self.poster)
        self.motion = DesktopMotion()
        self._wire_sleep_and_notices()
        self._wire_tray()
        window.report_wanted.connect(self.save_report)
        window.log_wanted.connect(self.show_log)
        window.commands.bind("self_test", self.test_pc)
        window.settings_changed.connect(self.take_settings)
        self.take_settings(window.settings)
        self._take_status(engine.status)

    def _wire_sleep_and_notices(self) -> None:
        self._engine.status_changed.connect(self._take_status)
        self._models.rows_changed.connect(self._take_models)
        self._controller.calls_begun.connect(self.notices.set_calls)
        self._controller.running_changed.connect(self.notices.set_running)
        self._engine.failed.connect(self.notices.set_failed)
        self._engine.died.connect(self.notices.set_failed)
        self.notices.wanted.connect(self._show_chat)
        app = theme.application()
        app.applicationStateChanged.connect(self.notices.come_to_front)
        app.commitDataRequest.connect(self._leave_session)

    def _wire_tray(self) -> None:
        self.tray.opened.connect(self._window.come_forward)
        self.tray.new_chat.connect(self._window.come_forward)
        self.tray.new_chat.connect(self._window.sidebar.new_chat)
        self.tray.stop.connect(self._controller.stop)
        self.tray.quit.connect(self._window.ask_to_quit)

    def take_settings(self, settings: AppSettings) -> None:
        self.sleep.set_allowed(settings.stay_awake)
        self.notices.allowed = settings.notify
        self.tray.set_there(settings.tray)
        self._window.stays_in_tray = self.tray.is_wanted
        QApplication.setQuitOnLastWindowClosed(not self.tray.is_wanted)
        self._window.set_note(
            "tray", tr("This desktop has no system tray.") if settings.tray and not self.tray.can_be() else ""
        )
        theme.set_still(settings.motion == "reduced")
        if settings.motion == "system":
            self.motion.ask(theme.set_still)

    def close(self) -> None:
        """Let the PC sleep, and remove tray icon and notifications."""
        QApplication.setQuitOnLastWindowClosed(True)
        app = theme.application()
        app.applicationStateChanged.disconnect(self.notices.come_to_front)
        app.commitDataRequest.disconnect(self._leave_session)
        app.removeEventFilter(self)
        self.sleep.close()
        self.poster.withdraw()
        self.tray.close()
        self.motion.close()
        if isinstance(self.poster, DesktopPoster):
            self.poster.close()

    # --- work

    def _take_status(self, status: EngineStatus) -> None:
        self.sleep.set_reason(noted("answering"), status.answering)
        self.notices.set_status(status)
        self.tray.set_status(status)

    def take_server_status(self, status: EngineStatus) -> None:
        """Take the status of the server that answers a chat."""
        self.sleep.set_reason(noted("receiving an answer"), status.answering)
        self.notices.set_status(status)

    def _take_models(self, *_: object) -> None:
        known = self._models.known
        self.sleep.set_reason(noted("downloading"), any(download.state in _AT_WORK for download in known.downloads))
        self.sleep.set_reason(noted("preparing a model"), known.preparing is not None)

    def _leave_session(self, *_: object) -> None:
        """The user logs out, but may still cancel it, of which Qt reports nothing. If not, Qt sends Quit."""
        theme.application().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802 - a name of Qt
        if event.type() == QEvent.Type.Quit:  # the window must neither ask nor hide, or it would block the logout
            self._window.end_with_session()
        elif event.type() not in (QEvent.Type.KeyPress, QEvent.Type.MouseButtonPress):  # the session continues
            return False
        theme.application().removeEventFilter(self)
        return super().eventFilter(watched, event)

    # --- other starts

    def take_request(self, request: LaunchRequest) -> None:
        """Handle the request of another start: bring the window to the front and open what it was given."""
        take_activation(request)
        self._window.come_forward()
        if request.model:
            self._controller.use_model(request.model)
        self.open_files(list(request.files))

    def listen(self, instance: SingleInstance) -> None:
        """Accept requests of later starts from now on."""
        instance.requested.connect(self.take_request)
        instance.listen()

    def open_files(self, files: list[str]) -> None:
        """Open files by type: import models in place, import chats, attach the text of all others to the draft."""
        texts: list[str] = []
        chats: list[Path] = []
        for file in files:
            path = Path(file)
            if path.is_dir() or path.suffix.lower() in _MODEL_FILES:
                self._window.show_models()
                self._models.import_path(str(path.parent if path.suffix.lower() == ".safetensors" else path), False)
            elif path.suffix.lower() in _CHAT_FILES:
                chats.append(path)
            else:
                texts.append(file)
        if chats:
            self._folders.import_chats(*chats)
        if texts:
            self._window.show_chat()
            self._window.page.composer.attach(texts)

    def _show_chat(self, chat: str) -> None:
        self._window.come_forward()
        self._window.show_chat()
        self._controller.open(chat)

    # --- help

    def tell_crash(self, last: crash_notes.LastRun) -> None:
        """Report how the last run crashed, once it is known whether the chats are intact."""
        self._crash = last
        if self._memory.is_sound is not None:
            self._tell_crash_now()
            return
        self._memory.opened.connect(self._tell_crash_now)
        self._memory.trouble.connect(lambda _: self._tell_crash_now())

    def _tell_crash_now(self) -> None:
        last, self._crash = self._crash, None
        if last is None:
            return
        self._reads.run("read the crash report", lambda: diagnostics.shown_at_a_crash(self._places.log),
                        lambda lines: self._show_crash(lines, last.stacks), _log_failure)  # fmt: skip

    def _show_crash(self, lines: list[str], has_stacks: bool) -> None:
        from app.ui.settings.crash_dialog import CrashDialog

        dialog = CrashDialog(self._window, lines, has_stacks, self._memory.is_sound is True)
        dialog.report_wanted.connect(self.save_report)
        dialog.log_wanted.connect(self.show_log)
        dialog.open()

    def save_report(self) -> None:
        """Ask for a file name and write the report in the background."""
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        suggested = Path(documents) / diagnostics.suggested_name(datetime.now().astimezone())
        parent = QApplication.activeModalWidget() or self._window
        chosen, _ = QFileDialog.getSaveFileName(parent, tr("Save a report"), str(suggested), tr("Report (*.zip)"))
        if chosen:
            self.write_report(Path(chosen))

    def write_report(self, target: Path) -> None:
        """Write the report in the background and show a toast."""
        screens = tuple(
            (screen.size().width(), screen.size().height(), screen.devicePixelRatio())
            for screen in QGuiApplication.screens()
        )
        known = self._models.known
        moment = diagnostics.Moment(
            self._window.settings, self._engine.status, len(self._memory.conversations()), tuple(known.installed),
            tuple(known.downloads), qVersion(), QGuiApplication.platformName(), screens,
        )  # fmt: skip
        self._reads.run(
            "save a report", lambda: diagnostics.save(target, self._places, moment),
            lambda _: self._window.show_toast(tr("Report saved"), None),
            lambda error: self._window.show_toast(tr("Couldn't save the report: {why}", why=_reason(error)), "warn"),
        )  # fmt: skip

    def test_pc(self) -> None:
        """Test each part of Hearth on this PC, in a dialog."""
        from app.ui.settings.self_test_dialog import SelfTestDialog

        SelfTestDialog.of(self._window, self._places.data).open()

    def show_log(self) -> None:
        """Open the folder of the full log, which is for the user only."""
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._places.log)))


def _reason(error: BaseException) -> str:
    reason = (error.strerror if isinstance(error, OSError) else "") or tr("an unexpected error; the log has details")
    return reason[:1].lower() + reason[1:]


def _log_failure(error: BaseException) -> None:
    log.warning("not done: %s", error)


def report_running() -> None:
    """Print that the running Hearth was brought to the front."""
    with contextlib.suppress(AttributeError, OSError, UnicodeError):  # started without a terminal
        sys.stdout.write(tr("Hearth is already running; its window was brought to the front.") + "\n")


def report_no_answer() -> None:
    """Show a message box: another Hearth has the lock and does not answer."""
    from PySide6.QtWidgets import QMessageBox

    sentence = tr("It does not respond. Wait a moment and try again, or close it first.")
    sys.stderr.write(f"{tr('Hearth is already open.')} {sentence}\n")
    box = QMessageBox(QMessageBox.Icon.Information, "Hearth", tr("Hearth is already open"))
    box.setInformativeText(sentence)
    box.exec()
