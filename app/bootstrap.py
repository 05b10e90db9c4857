"""Starts and ends the window. The only place that creates and connects objects: chats in app/chat/chats.py, clients of
engine and library in app/clients/clients.py, the rest here.

Before the first paint only the settings are read from disk, and the engine is not started.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QObject, QSocketNotifier, Qt, QTimer, Signal
from PySide6.QtWidgets import QApplication

import engine
from app.chat.chats import Chats
from app.chat.store.operations import Operations
from app.clients.clients import Clients
from app.desktop import crash_notes
from app.desktop.crash_notes import LastRun
from app.desktop.single_instance import LaunchRequest, SingleInstance, request_of_this_start
from app.models.model_choices import ModelChoices
from app.models.model_switch import STARTER
from app.models.models_controller import ModelsController
from app.servers.local_server import LocalServer
from app.servers.server_book import ServerBook
from app.servers.servers_controller import ServersController
from app.settings import AppPaths, AppSettings, load_settings, make_private, paths, save_settings
from app.ui.first_paint import FirstPaint
from app.ui.look import icons, language
from app.ui.main_window import MainWindow
from app.ui.settings.window_settings import apply_look
from app.user_messages import UserMessage, describe, describe_settings_problem

if TYPE_CHECKING:
    from app.clients.engine_worker import MakeHost
    from app.clients.library_client import Library
    from app.desktop.desktop_integration import DesktopIntegration
    from app.desktop.erasing import Erasing

log = logging.getLogger(__name__)

THREADS_END_WITHIN_S = 5.0


def run(
    location: str | None = None,
    model: str | None = None,
    data_folder: Path | None = None,
    files: Sequence[str] = (),
) -> int:
    """Open the window, run until it is closed, and return the exit code.

    location: "process" or "in-thread"; overrides the setting. data_folder: keeps everything in this folder. files: to
    open once the window is shown.
    """
    # 0. One Hearth for each user and folder: a later start hands its request to the running one.
    began = time.perf_counter()
    places = paths() if data_folder is None else folders_in(data_folder)
    make_private(places)
    instance, request = SingleInstance(places.data), request_of_this_start(list(files), model or "")
    if not instance.claim():
        return hand_over(instance, request, places)

    # 1. The log. First, find out how the last run ended.
    last_run = crash_notes.look_back(places.log)
    log_problem = crash_notes.open_log(places.log_file)
    crash_notes.mark_running(places.log)

    # 2. The settings: the only file that is read before the window is shown.
    settings, settings_problem = load_settings(places.settings_file)

    # 3. Qt.
    app = QApplication(sys.argv[:1])
    app.setOrganizationName("Hearth")
    app.setOrganizationDomain("io.github.hearth")
    app.setApplicationName("Hearth")
    app.setApplicationVersion(engine.__version__)
    app.setDesktopFileName("io.github.hearth.Hearth")
    app.setWindowIcon(icons.app_icon())

    # 4. Language and theme.
    language.use_language(settings.language)
    apply_look(settings)

    # 5. The window, painted.
    hearth = Hearth(places, settings, location, model)
    crash_notes.catch_faults(places.log, hearth.tell_fault)
    signals = QuitOnSignals(hearth.window.quit)
    hearth.painted.connect(lambda: hearth.greet(instance, request, last_run))
    hearth.show()
    log.info("window shown after %.0f ms", 1000 * (time.perf_counter() - began))

    # 6. After the first paint, in the background: chats, engine, machine. See Hearth.start.
    if settings_problem is not None:
        hearth.controller.problems.report("settings", describe_settings_problem(settings_problem))
    if log_problem is not None:
        log.info("the log cannot be written: %s", log_problem)

    # 7. Run until the window is closed, then save everything.
    code = app.exec()
    erasing, starts_again = hearth.erasing, False
    if erasing is not None and erasing.names:  # of what is stored
        ended, starts_again = erasing.finish(hearth.close)
    else:
        ended = hearth.close()
    signals.close()
    instance.close()
    crash_notes.mark_ended()
    logging.shutdown()
    if starts_again:
        from app.desktop.erasing import command_of_a_start, start_again

        start_again(command_of_a_start(location, data_folder))
    if not ended:  # a thread that is still computing must neither keep the program alive nor crash it
        os._exit(code)
    return code


def hand_over(instance: SingleInstance, request: LaunchRequest, places: AppPaths) -> int:
    """Hand this start's request to the running Hearth, tell the user, and return the exit code."""
    taken = instance.hand_over(request)
    app = QCoreApplication(sys.argv[:1]) if taken else QApplication(sys.argv[:1])
    app.setApplicationName("Hearth")
    language.use_language(load_settings(places.settings_file)[0].language)
    from app.desktop.desktop_integration import report_no_answer, report_running

    if taken:
        report_running()
        return 0
    report_no_answer()
    return 1


def folders_in(folder: Path) -> AppPaths:
    """Return paths that keep all of Hearth's files in one folder."""
    folder = folder.expanduser().resolve()
    return AppPaths(folder, folder, folder / "cache", folder / "logs")


class Hearth(QObject):
    """The window and everything behind it."""

    painted = Signal()
    _faulted = Signal(object)  # UserMessage, from any thread

    def __init__(
        self,
        places: AppPaths,
        settings: AppSettings,
        location: str | None = None,
        model: str | None = None,
        makers: dict[str, MakeHost] | None = None,
        library: Library | None = None,
    ) -> None:
        """Create all objects; read and start nothing. makers, library: fakes in place of the real ones."""
        super().__init__()
        self._places = places
        self._closed = False
        self._ended = True
        # A flag counts for this run only and is not written to the settings.
        self._kept_location = settings.engine_location
        if location is not None:
            settings = replace(settings, engine_location=location)
        self.saves, self.reads = Operations(self), Operations(self)
        self._flagged_model = model
        book = ServerBook(places.servers_file)
        clients = self._clients = Clients(settings.engine_location, places.log, book.key_for, makers, library)
        self.worker, self.engine, self.library = clients.worker, clients.engine, clients.library
        self.remote, self.monitor = clients.remote, clients.monitor
        self.choices = ModelChoices(places.choices_file)
        chats = Chats(
            places, settings, clients, self.saves, self.reads, self._save_small, book.place,
            self.choices.engine_options, model or "",
        )  # fmt: skip
        self.memory, self.controller, self.setup = chats.memory, chats.controller, chats.setup
        self.folders, self.titles = chats.folders, chats.titles
        self.servers = ServersController(self.library, self.controller, book, self._save_small)
        self.local_server = LocalServer(self.engine, self.library, settings)
        self.models = ModelsController(
            self.library, self.controller, self.choices, self._save_choices, offer=not settings.offer_dismissed
        )
        self.desktop: DesktopIntegration | None = None  # created after the first paint
        self.erasing: Erasing | None = None  # the same
        self.window = MainWindow(settings, places)
        self.window.connect_controller(self.controller)
        self.window.connect_answers(self.setup)
        self.window.connect_folders(self.folders)
        self.window.connect_context(self.controller, self.engine, self.memory)
        self.window.connect_models(self.models)
        self.window.connect_servers(self.servers)
        self.window.connect_local_server(self.local_server)
        self._faulted.connect(self._show_fault)
        self.controller.window_action.connect(self.models.remedy)
        self.controller.model_changed.connect(self._keep_model)
        self.models.offer_dismissed.connect(lambda: self._set_setting(offer_dismissed=True))
        self.engine.answered.connect(lambda end: self.window.pages.take_result(end.result))
        self.engine.lived.connect(self.window.pages.show_live_event)
        self.window.watching_changed.connect(self.engine.watch)
        self.setup.usual_answer.connect(self.models.take_rate)
        self.engine.process_started.connect(self.models.set_engine_pid)
        self.window.visible_changed.connect(self.monitor.set_visible)
        self.window.settings_changed.connect(self._save_settings)
        self.monitor.described.connect(self.window.show_machine)
        self.monitor.sampled.connect(self.window.show_sample)
        self.engine.process_started.connect(self.monitor.watch)

    def show(self) -> None:
        """Show the window; everything else starts after its first paint."""
        self._first_paint = FirstPaint(self.window, self.start)
        self.window.show()
        self.window.page.focus_composer()

    def start(self) -> None:
        """Start chats, engine and machine monitor, each in its own thread."""
        self.painted.emit()
        self.worker.start()
        self.choices.read()  # a small file; the model is loaded with these choices
        self.servers.read()  # before any chat is opened
        self.setup.read()  # small files; the first answer needs them
        self.controller.start()
        self.models.start()
        self.monitor.start()
        self.monitor.set_visible(self.window.isVisible())
        from app.desktop.desktop_integration import DesktopIntegration  # not needed for the first paint
        from app.desktop.erasing import Erasing
        from app.models.update_notice import UpdateNotice

        self.desktop = DesktopIntegration(
            self.window, self.engine, self.controller, self.memory, self.models, self.folders, self.reads, self._places
        )
        self.remote.status_changed.connect(self.desktop.take_server_status)
        self.erasing = Erasing(self.window, self.library, self.servers, self.reads, self._places)
        self.updates = UpdateNotice(self.library)
        self.updates.found.connect(lambda message: self.controller.problems.report("update", message))
        self.window.settings_changed.connect(self.updates.take_settings)
        self.updates.take_settings(self.window.settings)

    def greet(self, instance: SingleInstance, request: LaunchRequest, last_run: LastRun | None) -> None:
        """Accept the requests of later starts and report a crash of the last run once everything is started. Open this
        start's files once the chats are open."""
        self.memory.opened.connect(lambda: self._open(request), Qt.ConnectionType.SingleShotConnection)
        QTimer.singleShot(0, lambda: self._greet(instance, last_run))

    def _open(self, request: LaunchRequest) -> None:
        if self.desktop is not None:
            self.desktop.open_files(list(request.files))

    def _greet(self, instance: SingleInstance, last_run: LastRun | None) -> None:
        if self.desktop is None:  # closed in the meantime
            return
        self.desktop.listen(instance)
        if last_run is not None:
            self.desktop.tell_crash(last_run)

    def tell_fault(self, error: BaseException) -> None:
        """Show a bug of our own to the user. Thread-safe."""
        self._faulted.emit(describe(error))

    def _show_fault(self, message: UserMessage) -> None:
        self.controller.problems.report("fault", message)

    def close(self) -> bool:
        """Save everything and end every thread. Returns whether all ended in time."""
        if self._closed:
            return self._ended
        self._closed = True
        began = time.perf_counter()
        self.controller.close()
        self._save_settings(
            replace(
                self.window.settings,
                window_geometry=self.window.geometry_to_keep(),
                last_conversation=self.controller.open_conversation or "",
            )
        )
        self.window.hide()
        if self.desktop is not None:
            self.desktop.close()
        self.models.close()
        self._ended = self._clients.close(THREADS_END_WITHIN_S)
        for operations in (self.saves, self.reads):
            if left := operations.close():
                log.error("not done at the end: %s", ", ".join(left))
        self.memory.close()
        log.info("closed in %.0f ms", 1000 * (time.perf_counter() - began))
        return self._ended

    def _keep_model(self, model: str) -> None:
        """Keep the chosen model for the next start, unless it came from a flag."""
        if model == self._flagged_model:
            return
        self._set_setting(model="" if model == STARTER else model)

    def _set_setting(self, **values: Any) -> None:
        self.window.take_settings(replace(self.window.settings, **values))

    def _save_small(self, name: str, save: Callable[[], object]) -> None:
        if not self._closed:  # the window is closing: nothing more is saved
            self.reads.run(name, save, on_failure=_log_failure)

    def _save_choices(self, values: dict[str, Any]) -> None:
        self.reads.run("save the choices for models", lambda: self.choices.save(values), on_failure=_log_failure)

    def _save_settings(self, settings: AppSettings) -> None:
        if settings.engine_location == self.worker.location != self._kept_location:
            settings = replace(settings, engine_location=self._kept_location)
        self.reads.run(
            "save the settings",
            lambda: save_settings(self._places.settings_file, settings),
            on_failure=lambda error: self.controller.problems.report("settings", describe(error)),
        )


def _log_failure(error: BaseException) -> None:
    log.warning("not done: %s", error)


class QuitOnSignals(QObject):
    """Closes the window on Ctrl+C and SIGTERM without a timer that would keep waking Python."""

    def __init__(self, quit_: Callable[[], None]) -> None:
        super().__init__()
        self._ours, self._pythons = socket.socketpair()
        for end in (self._ours, self._pythons):
            end.setblocking(False)
        signal.set_wakeup_fd(self._pythons.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._notifier = QSocketNotifier(self._ours.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(lambda *_: quit_())

    def close(self) -> None:
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(-1)
        self._ours.close()
        self._pythons.close()
