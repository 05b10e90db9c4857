"""What Hearth owes the desktop around it, wired: awake while it works, a word when an answer is there, a tray, one
window, a report after a crash. Each part by itself is a file of its own.
"""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, QUrl, qVersion
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

_AT_WORK = frozenset({"queued", "downloading", "checking"})  # states of a download that goes on by itself
_MODEL_FILES = frozenset({".gguf", ".safetensors"})


class DesktopIntegration(QObject):
    """Made once the window is painted."""

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
        self._crash: crash_notes.LastRun | None = None  # to be told once the chats are open
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
        window.settings_changed.connect(self.take_settings)
        self.take_settings(window.settings)
        self._take_status(engine.status)

    def _wire_sleep_and_notices(self) -> None:
        self._engine.status_changed.connect(self._take_status)
        self._models.rows_changed.connect(self._look_at_models)
        self._controller.running_changed.connect(self.notices.set_running)
        self._engine.failed.connect(self.notices.set_failed)
        self._engine.died.connect(self.notices.set_failed)
        self.notices.wanted.connect(self._show_chat)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.applicationStateChanged.connect(self.notices.come_to_front)
        app.commitDataRequest.connect(self._leave_session)

    def _wire_tray(self) -> None:
        self.tray.opened.connect(self._window.come_forward)
        self.tray.new_chat.connect(self._window.come_forward)
        self.tray.new_chat.connect(self._window.sidebar.new_chat)
        self.tray.stop.connect(self._controller.stop)
        self.tray.quit.connect(self._window.quit)

    def take_settings(self, settings: AppSettings) -> None:
        """Do as the person wants it from now on."""
        self.sleep.set_allowed(settings.stay_awake)
        self.notices.allowed = settings.notify
        self.tray.set_there(settings.tray)
        self._window.stays_in_tray = self.tray.is_wanted
        QApplication.setQuitOnLastWindowClosed(not self.tray.is_wanted)
        self._window.set_note(
            "tray", tr("This desktop has no tray.") if settings.tray and not self.tray.can_be() else ""
        )
        theme.set_still(settings.motion == "reduced")
        if settings.motion == "system":
            self.motion.ask(theme.set_still)

    def close(self) -> None:
        """Let the PC sleep and leave nothing of Hearth on the desktop."""
        QApplication.setQuitOnLastWindowClosed(True)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.applicationStateChanged.disconnect(self.notices.come_to_front)
        app.commitDataRequest.disconnect(self._leave_session)
        self.sleep.close()
        self.poster.withdraw()
        self.tray.close()
        self.motion.close()
        if isinstance(self.poster, DesktopPoster):
            self.poster.close()

    # -------------------------------------------------------------- work

    def _take_status(self, status: EngineStatus) -> None:
        self.sleep.set_reason(noted("answering"), status.answering)
        self.notices.set_status(status)
        self.tray.set_status(status)

    def take_elsewhere(self, status: EngineStatus) -> None:
        """What a server elsewhere does that a chat is sent to."""
        self.sleep.set_reason(noted("hearing an answer"), status.answering)
        self.notices.set_status(status)

    def _look_at_models(self, *_: object) -> None:
        known = self._models.known
        self.sleep.set_reason(noted("downloading"), any(download.state in _AT_WORK for download in known.downloads))
        self.sleep.set_reason(noted("preparing a model"), known.preparing is not None)

    def _leave_session(self, *_: object) -> None:
        """The person logs out: closing the window must end Hearth now, or it would hold up the desktop."""
        self._window.stays_in_tray = False

    # -------------------------------------------------------------- other starts

    def take_request(self, request: LaunchRequest) -> None:
        """Another start of Hearth was asked for: this window comes forward with what that one was given."""
        take_activation(request)
        self._window.come_forward()
        if request.model:
            self._controller.use_model(request.model)
        self.open_files(list(request.files))

    def listen(self, instance: SingleInstance) -> None:
        """Hear of other starts from now on."""
        instance.requested.connect(self.take_request)
        instance.listen()

    def open_files(self, files: list[str]) -> None:
        """Each as what it is: a model is taken in where it lies, chats are taken in, and the text of anything else goes
        along with the message that is being written."""
        texts: list[str] = []
        for file in files:
            path = Path(file)
            if path.is_dir() or path.suffix.lower() in _MODEL_FILES:
                self._window.show_models()
                self._models.import_path(str(path.parent if path.suffix.lower() == ".safetensors" else path), False)
            elif path.suffix.lower() == ".json":
                self._folders.import_chats(path)
            else:
                texts.append(file)
        if texts:
            self._window.show_chat()
            self._window.page.composer.attach(texts)

    def _show_chat(self, chat: str) -> None:
        self._window.come_forward()
        self._window.show_chat()
        self._controller.open(chat)

    # -------------------------------------------------------------- help

    def tell_crash(self, last: crash_notes.LastRun) -> None:
        """Show what is known of how the last run ended, once it is known whether the chats are whole."""
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
        self._reads.run("read what is known of a crash", lambda: diagnostics.shown_at_a_crash(self._places.log),
                        lambda lines: self._show_crash(lines, last.stacks), _log_failure)  # fmt: skip

    def _show_crash(self, lines: list[str], has_stacks: bool) -> None:
        from app.ui.settings.crash_dialog import CrashDialog

        dialog = CrashDialog(self._window, lines, has_stacks, self._memory.is_sound is True)
        dialog.report_wanted.connect(self.save_report)
        dialog.log_wanted.connect(self.show_log)
        dialog.open()

    def save_report(self) -> None:
        """Ask where, and write the report there in the background."""
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        suggested = Path(documents) / diagnostics.suggested_name(datetime.now().astimezone())
        parent = QApplication.activeModalWidget() or self._window
        chosen, _ = QFileDialog.getSaveFileName(parent, tr("Save a report"), str(suggested), tr("Report (*.zip)"))
        if chosen:
            self.write_report(Path(chosen))

    def write_report(self, target: Path) -> None:
        """Write the report in the background, and say so."""
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
            lambda error: self._window.show_toast(tr("The report was not saved: {why}", why=_reason(error)), None),
        )  # fmt: skip

    def show_log(self) -> None:
        """Open the folder of the whole log, which is for this person's eyes."""
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._places.log)))


def _reason(error: BaseException) -> str:
    reason = (error.strerror if isinstance(error, OSError) else "") or tr("something unforeseen; the log says more")
    return reason[:1].lower() + reason[1:]


def _log_failure(error: BaseException) -> None:
    log.warning("not done: %s", error)


def say_that_it_is_open() -> None:
    """Another Hearth has the lock and does not answer: said in a window of its own, or nobody would know."""
    from PySide6.QtWidgets import QMessageBox

    sentence = tr("It does not answer right now. Wait a moment and start it again, or end it first.")
    sys.stderr.write(f"{tr('Hearth is already open.')} {sentence}\n")
    box = QMessageBox(QMessageBox.Icon.Information, "Hearth", tr("Hearth is already open"))
    box.setInformativeText(sentence)
    box.exec()
