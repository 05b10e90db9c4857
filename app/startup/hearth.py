"""Create and connect all objects of the app; the only place of wiring.

app/chat/chats.py creates those of the chats, app/clients/clients.py the clients of engine and library.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.chat.chats import ChatFileAccess, Chats
from app.chat.store.operations import Operations
from app.clients.clients import Clients
from app.desktop.crash_notes import LastRun
from app.desktop.single_instance import LaunchRequest, SingleInstance
from app.models.model_choices import ModelChoices
from app.models.models_controller import ModelsController
from app.servers.local_server import LocalServer
from app.servers.server_book import ServerBook
from app.servers.servers_controller import ServersController
from app.settings import AppPaths, AppSettings, save_settings
from app.ui.chat_tools import ChatTools
from app.ui.first_paint import FirstPaint
from app.ui.main_window import MainWindow
from app.user_messages import UserMessage, describe

if TYPE_CHECKING:
    from app.clients.engine_worker import MakeHost
    from app.clients.library_client import Library
    from app.desktop.desktop_integration import DesktopIntegration
    from app.desktop.erasing import Erasing
    from app.desktop.updates import Updates
    from app.startup.all_tools import AllTools

log = logging.getLogger(__name__)

THREADS_END_WITHIN_S = 5.0


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
        """Create what the first paint needs; read and start nothing. makers, library: fakes instead of real ones."""
        super().__init__()
        self._places = places
        self._closed = False
        self._ended = True
        self._has_unsaved_settings = False
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
        files = ChatFileAccess(self.saves, self.reads, self._save_small)
        options_for = self.choices.engine_options
        chats = self._chats = Chats(places, settings, clients, files, book.place, options_for, model or "")
        self.memory, self.controller, self.setup = chats.memory, chats.controller, chats.setup
        self.folders, self.titles, self.consents = chats.folders, chats.titles, chats.consents
        self.servers = ServersController(self.library, self.controller, book, self._save_small)
        self.local_server = LocalServer(self.engine, self.library, settings)
        self.local_server.connect_chat(self.controller)
        self.models = ModelsController(
            self.library, self.controller, self.choices, self._save_choices, offer=not settings.offer_dismissed
        )
        self.tools: AllTools | None = None  # created after the first paint
        self.desktop: DesktopIntegration | None = None  # the same
        self.erasing: Erasing | None = None  # the same
        self.updates: Updates | None = None  # the same
        self.window = MainWindow(settings, places)
        self.memory.solved.connect(self._save_settings_again)
        self.window.connect_controller(self.controller)
        self.window.connect_answers(self.setup)
        self.window.connect_folders(self.folders)
        self.window.connect_context(self.controller, self.engine, self.memory)
        self.window.connect_models(self.models)
        self.window.connect_servers(self.servers)
        self._chat_tools = ChatTools(self.window, self.controller, self.setup, chats.box, self.servers)
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
        self.window.settings_changed.connect(lambda changed: chats.kept_chats.set_quota(changed.kept_chats_gb))
        self.monitor.described.connect(self.window.show_machine)
        self.monitor.sampled.connect(self.window.show_sample)
        self.engine.process_started.connect(self.monitor.watch)

    def show(self) -> None:
        """Show the window; everything else starts after its first paint."""
        self._first_paint = FirstPaint(self.window, self.start)
        self.window.show()
        self.window.page.focus_composer()

    def start(self) -> None:
        """Read small files and create the rest; start chats, engine and machine monitor, each in its own thread."""
        self.painted.emit()
        self.worker.start()
        self.choices.read()  # a small file; the model is loaded with these choices
        self.servers.read()  # before any chat is opened
        self.setup.read()  # small files; the first answer needs them
        self.consents.read()  # the same
        self.folders.read_projects()  # the same
        self._start_tools()
        self.controller.start()
        self.models.start()
        self.monitor.start()
        self.monitor.set_visible(self.window.isVisible())
        from app.desktop.desktop_integration import DesktopIntegration  # not needed for the first paint
        from app.desktop.erasing import Erasing
        from app.desktop.updates import Updates

        self.desktop = DesktopIntegration(
            self.window, self.engine, self.controller, self.memory, self.models, self.folders, self.reads, self._places
        )
        self.remote.status_changed.connect(self.desktop.take_server_status)
        self.erasing = Erasing(self.window, self.library, self.servers, self.reads, self._places)
        self.updates = Updates(self.window, self.library)
        self.updates.found.connect(lambda message: self.controller.problems.report("update", message))
        self.window.settings_changed.connect(self.updates.take_settings)
        self.updates.take_settings(self.window.settings)

    def _start_tools(self) -> None:
        """Create the tools, read their small files, and connect them with window and chats."""
        from app.startup.all_tools import AllTools
        from app.ui.projects.chat_projects import ChatProjects

        places, book = self._places, self.servers.book
        tools = AllTools(places, self._chats.box, lambda: self.window.settings, book.key_of, self._save_small)
        self.tools, documents = tools, tools.documents
        self._chats.use_documents(documents)
        documents.use_engine(self.engine)
        self._chat_tools.connect_tool_servers(tools.controller)
        self._chat_projects = ChatProjects(
            self.window, self.controller, self.setup, self.folders, self.models, book, places.projects_folder, documents
        )
        self._chat_tools.connect_documents(documents, self.models)
        tools.read()

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
        self.folders.imports.close()
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
        if self.tools is not None:
            self.tools.close()
        self._ended = self._clients.close(THREADS_END_WITHIN_S)
        for operations in (self.saves, self.reads):
            if left := operations.close():
                log.error("not done at the end: %s", ", ".join(left))
        self.memory.close()
        log.info("closed in %.0f ms", 1000 * (time.perf_counter() - began))
        return self._ended

    def _keep_model(self, model: str) -> None:
        """Keep the chosen model for the next start, unless it came from a flag, a program asked for it, or it is
        loaded for one answer of a comparison."""
        if model in (self._flagged_model, self.local_server.loaded_for[0]) or self.setup.side_by_side.is_running:
            return
        self._set_setting(model=self.controller.switch.to_keep(model))

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
            on_success=lambda _: self._settings_saved(),
            on_failure=self._settings_not_saved,
        )

    def _settings_saved(self) -> None:
        if self._has_unsaved_settings:
            self._has_unsaved_settings = False
            self.controller.problems.solve("settings")

    def _settings_not_saved(self, error: BaseException) -> None:
        self._has_unsaved_settings = True
        if not self.memory.is_stalled:  # else that matters more, and has the same cause
            self.controller.problems.report("settings", describe(error))

    def _save_settings_again(self) -> None:
        if self._has_unsaved_settings and not self._closed:
            self._save_settings(self.window.settings)


def _log_failure(error: BaseException) -> None:
    log.warning("not done: %s", error)
