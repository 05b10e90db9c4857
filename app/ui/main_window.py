"""The main window: sidebar and pages side by side, and the commands that work everywhere.

It places and connects widgets; the controllers decide what actions do.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QCloseEvent, QDesktopServices, QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QMainWindow, QStackedWidget

from app.clients.engine_status import EngineStatus, Phase, machine_line, sentence, short_name, why_there
from app.clients.live_figures import LiveFigures
from app.settings import AppPaths, AppSettings, description_of, paths
from app.translation import tr
from app.ui.chat.chat_page import ChatPage
from app.ui.keyboard import palette_entries
from app.ui.keyboard.commands import Commands
from app.ui.keyboard.finder import Finder
from app.ui.keyboard.typing_focus import TypingFocus
from app.ui.look import theme
from app.ui.sidebar.sidebar import Sidebar
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.field_menu import FieldMenus
from app.ui.widgets.floating import DimWhileBlocked, Toast
from app.user_messages import Action, UserMessage, plain_figures

if TYPE_CHECKING:
    from app.chat.answers.answer_setup import AnswerSetup
    from app.chat.chat_controller import ChatController
    from app.chat.chat_folders import ChatFolders
    from app.chat.chat_memory import ChatMemory
    from app.chat.conversation import Conversation, Message
    from app.clients.engine_client import EngineClient
    from app.models.model_rows import ModelRow
    from app.models.models_controller import ModelsController
    from app.servers.local_server import LocalServer
    from app.servers.servers_controller import ServersController
    from app.ui.chat.answer_menus import AnswerMenus
    from app.ui.live.live_page import LivePage
    from app.ui.models.chat_models import ChatModels
    from app.ui.models.model_actions import ModelActions
    from app.ui.models.models_page import ModelsPage
    from app.ui.models.server_actions import ServerActions
    from app.ui.sidebar.chat_actions import ChatActions
    from engine.machine.hardware import MachineFacts
    from engine.machine.monitor import MachineSample
    from engine.service.protocol import GenerationResult, Live, LoadedModelInfo

FIRST_SIZE = (1280, 832)
SMALLEST = (720, 520)


class MainWindow(QMainWindow):
    """The main window. visible_changed: whether the window can be seen. settings_changed: new settings, to be saved."""

    visible_changed = Signal(bool)
    settings_changed = Signal(AppSettings)
    watching_changed = Signal(bool)  # whether the Live page is visible
    closing = Signal()
    report_wanted = Signal()  # save a report on this PC
    log_wanted = Signal()  # open the log folder
    erase_wanted = Signal()  # show and delete what Hearth stores
    _model_changed = Signal(object, object)  # to open settings: automatic values, and notes

    def __init__(self, settings: AppSettings, places: AppPaths) -> None:
        super().__init__()
        self.settings = settings
        self._paths = places
        self._conversation: Conversation | None = None
        self._status = EngineStatus()
        self._automatic: dict[str, Any] = {}  # the values of settings that are left to the model
        self._notes: dict[str, str] = {}  # setting name: a note on its effect
        self.stays_in_tray = False  # closing hides the window; only `quit` ends the program
        self._seen = False
        self._title = ""  # of the chat
        self.models_page: ModelsPage | None = None  # built on first use
        self._models: ModelsController | None = None
        self._chat: ChatController | None = None
        self.chat_models: ChatModels | None = None
        self.answer_menus: AnswerMenus | None = None
        self.server_actions: ServerActions | None = None
        self.local_server: LocalServer | None = None
        self._model_actions: ModelActions | None = None
        self.live_page: LivePage | None = None  # built on first use
        self._figures = LiveFigures()
        self._answered = ""  # id of the chat that is being answered
        self._chat_actions: ChatActions | None = None
        self.commands = Commands(self)
        self.setWindowTitle("Hearth")
        self.setMinimumSize(*SMALLEST)
        self.sidebar, self.page = Sidebar(), ChatPage()
        self.ground = QFrame()
        self.ground.setProperty("kind", "page")
        row = QHBoxLayout(self.ground)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.sidebar)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.page)
        row.addWidget(self.pages, 1)
        self.setCentralWidget(self.ground)
        TypingFocus(
            self,
            self.ground,
            focus_ring.install(self),
            lambda: self.page.composer.field if self.pages.currentWidget() is self.page else None,
        )
        DimWhileBlocked(self)
        FieldMenus(self)
        self.sidebar.set_collapsed(not settings.sidebar_open)
        self.sidebar.collapsed_changed.connect(lambda collapsed: self._set(sidebar_open=not collapsed))
        folders = self.sidebar.panel.list
        folders.chats.set_closed(settings.closed_folders.splitlines())
        folders.closed_changed.connect(lambda names: self._set(closed_folders="\n".join(names)[:20_000]))
        self.sidebar.chat_requested.connect(self.show_chat)
        self.sidebar.new_chat.connect(self.show_chat)
        self.sidebar.conversation_selected.connect(lambda _: self.show_chat())
        self.sidebar.hit_selected.connect(lambda *_: self.show_chat())
        self.sidebar.models_requested.connect(self.show_models)
        self.sidebar.live_requested.connect(self.show_live)
        self.sidebar.set_page("chat")
        self.sidebar.settings_requested.connect(self.open_settings)
        self.sidebar.about_requested.connect(self.open_about)
        self.page.copied.connect(lambda words: self.show_toast(words, None))
        self.page.title_menu.connect(self._title_menu)
        self._bind_commands()
        self._restore_geometry()

    def _bind_commands(self) -> None:
        page, bind = self.page, self.commands.bind
        for act, do in {
            "new_chat": lambda: self.sidebar.new_chat.emit(),
            "find": self._find,
            "search_chats": self.sidebar.open_search,
            "live": self.show_live,
            "settings": self.open_settings,
            "about": self.open_about,
            "privacy": lambda: self.open_about("privacy"),
            "report": self.report_wanted.emit,
            "log": self.log_wanted.emit,
            "delete_everything": self.erase_wanted.emit,
            "data_folder": lambda: self._window_action(Action.OPEN_DATA_FOLDER),
            "sidebar": self.sidebar.toggle,
            "zoom_in": lambda: self._resize_text(1),
            "zoom_out": lambda: self._resize_text(-1),
            "zoom_reset": lambda: self._resize_text(None),
            "theme_light": lambda: self._set(theme="light"),
            "theme_dark": lambda: self._set(theme="dark"),
            "theme_system": lambda: self._set(theme="system"),
            "quit": self.quit,
        }.items():
            bind(act, do)
        self.finder = Finder(
            self, self.commands, self.sidebar, lambda: self.shown_chat, lambda: self.settings, self.open_settings
        )
        bind("stop", page.stop_requested.emit, lambda: self._status.answering or page.status.answering)
        for act, step in (("find_next", 1), ("find_previous", -1)):
            bind(act, partial(page.step_find, step), self._shows_messages)
        bind("copy_answer", page.copy_last_answer, lambda: bool(self.shown_chat))
        bind("copy_chat", page.copy_chat, lambda: bool(self.shown_chat))

    def _shows_messages(self) -> bool:
        return self.pages.currentWidget() is self.page and not self.page.is_empty

    def _find(self) -> None:
        """Open the search of the visible page; if it has none, search all chats."""
        if self._shows_messages():
            self.page.open_find()
        elif self.models_page is not None and self.pages.currentWidget() is self.models_page:
            self.models_page.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        else:
            self.sidebar.open_search()

    @property
    def shown_chat(self) -> str:
        """The id of the visible chat; empty if none is visible."""
        chat = self._conversation if self.pages.currentWidget() is self.page else None
        return chat.id if chat else ""

    def connect_controller(self, controller: ChatController) -> None:
        """Connect the chat controller's signals with the widgets, and the user's actions with the controller."""
        self._chat = controller
        page, sidebar = self.page, self.sidebar
        controller.conversations_changed.connect(sidebar.set_conversations)
        controller.search_results.connect(sidebar.set_search_hits)
        controller.running_changed.connect(sidebar.set_running)
        controller.running_changed.connect(self._show_answered)
        controller.status_changed.connect(self._show_status)
        controller.conversation_opened.connect(self._show_conversation)
        controller.chat_status_changed.connect(page.set_status)
        controller.message_added.connect(page.add_message)
        controller.message_resumed.connect(page.resume_message)
        controller.branch_changed.connect(page.show_branch)
        controller.versions_changed.connect(page.set_versions)
        controller.message_wanted.connect(page.show_message)
        page.acted.connect(controller.act)
        controller.text_appended.connect(page.append_text)
        controller.message_finished.connect(page.finish_message)
        controller.messages_dropped.connect(page.set_dropped)
        controller.problem.connect(page.show_banner)
        controller.problem_solved.connect(page.clear_banner)
        page.banner.closed.connect(controller.problems.close)
        controller.toast.connect(self.show_toast)
        controller.title_changed.connect(self._set_title)
        waiting, row = controller.next, page.composer.next
        waiting.shown.connect(row.show_message)
        waiting.returned.connect(page.give_back)
        row.edit_asked.connect(waiting.take_back)
        row.remove_asked.connect(waiting.remove)
        controller.window_action.connect(self._window_action)
        controller.model_loaded.connect(self._take_model)
        page.submitted.connect(controller.send)
        page.queued.connect(controller.send_next)
        page.prompt_chosen.connect(controller.send)
        page.stop_requested.connect(controller.stop)
        page.remedy.connect(controller.remedy)
        page.composer.load_asked.connect(controller.load_last)
        for part in (page.composer, sidebar.panel.engine):
            part.load_stop_asked.connect(controller.cancel_load)
        sidebar.new_chat.connect(controller.new_chat)
        sidebar.conversation_selected.connect(controller.open)
        sidebar.hit_selected.connect(controller.open_at)
        sidebar.rename_requested.connect(controller.rename)
        sidebar.delete_requested.connect(controller.delete)
        sidebar.search_changed.connect(controller.search)
        self.settings_changed.connect(controller.settings_changed)
        bind, none = self.commands.bind, (Phase.OFF, Phase.FAILED)
        bind("unload", controller.unload, lambda: controller.status.phase not in (*none, Phase.LOADING))
        bind("load_last", controller.load_last, lambda: controller.status.phase in none)
        bind("stop_loading", controller.cancel_load, lambda: controller.status.phase is Phase.LOADING)
        bind("answer_again", partial(page.act_on_last, "regenerate"), partial(page.can_act_on_last, "regenerate"))
        bind("continue_answer", partial(page.act_on_last, "continue"), partial(page.can_act_on_last, "continue"))

    def connect_folders(self, folders: ChatFolders) -> None:
        """Connect the chat folders: pins, folders, import and export."""
        from app.ui.sidebar.chat_actions import ChatActions

        folders.toast.connect(self.show_toast)
        if self._chat is not None:
            folders.problem.connect(self._chat.problems.report)
            folders.solved.connect(self._chat.problems.solve)
        self._chat_actions = ChatActions(self, self.sidebar, lambda: self.shown_chat, folders)
        self._chat_actions.bind(self.commands)
        self.page.menu_asked.connect(self._chat_actions.add_rows)

    def connect_context(self, controller: ChatController, engine: EngineClient, memory: ChatMemory) -> None:
        """Connect what the next prompt needs: attachments, token count, drafts."""
        from app.ui.chat.chat_context import ChatContext

        self.chat_context = ChatContext(self, self.page, controller, engine, memory)
        self.settings_changed.connect(self.chat_context.counter.begin_anew)
        self.chat_context.popup.size_asked.connect(lambda: self.open_settings("context"))
        self.commands.bind("attach", self.page.composer.choose_files)
        self.commands.bind("context", self.chat_context.show_context)

    def connect_models(self, controller: ModelsController) -> None:
        """Connect the models controller with the Models page and the chat's model menu. After `connect_controller`."""
        from app.ui.models.chat_models import ChatModels

        self.connect_models_page(controller)
        assert self._chat is not None, "the chat comes first"
        self.chat_models = models = ChatModels(self, self.page, self.sidebar, self._chat, controller)
        self.chat_models.models_page_asked.connect(self.show_models)
        self.commands.bind("model_menu", self.chat_models.open_menu)
        self.commands.bind(
            "answer_other_model",
            partial(self.page.act_on_last, "other_model"),
            partial(self.page.can_act_on_last, "regenerate"),
        )
        self.commands.bind("placement", models.open_placement_here, lambda: models.is_placed)
        self.finder.add(lambda: palette_entries.of_models(controller.rows, models.use))

    def connect_answers(self, setup: AnswerSetup) -> None:
        """Connect how chats are answered: preset, persona, mode, comparison."""
        from app.ui.chat.answer_menus import AnswerMenus

        self.answer_menus = menus = AnswerMenus(self, self.page, setup)
        setup.said.connect(self.show_toast)
        self.page.menu_asked.connect(
            lambda menu: menu.add(tr("System prompt and persona"), "chat", menus.open_personas)
        )
        self.settings_changed.connect(lambda _: setup.settings_changed())
        self._setup = setup
        setup.changed.connect(self._show_cost_note)  # a method, so that Qt disconnects it with the window
        for act, do in menus.commands.items():
            self.commands.bind(act, do)

    def _show_cost_note(self) -> None:
        self.set_note("mode", self._setup.cost_note)

    def connect_servers(self, servers: ServersController) -> None:
        """Connect the servers that chats can use. After `connect_models`."""
        from app.ui.models.server_actions import ServerActions

        assert self._chat is not None, "the chat comes first"
        assert self.chat_models is not None, "and its menu of models"
        self.server_actions = ServerActions(self, self.page, self.chat_models.menu, self._chat, servers)
        self.server_actions.chat_wanted.connect(self.show_chat)
        self.commands.bind("add_server", self.server_actions.add, lambda: not servers.book.is_full)
        send = self.server_actions.send_there
        self.finder.add(lambda: palette_entries.of_places(servers.book.places, send))
        servers.toast.connect(self.show_toast)

    def connect_local_server(self, server: LocalServer) -> None:
        """Connect the local server, which the settings switch on and off."""
        self.local_server = server
        self.commands.bind("local_server", lambda: self.open_settings("serve"))
        self.settings_changed.connect(server.take_settings)
        server.toast.connect(self.show_toast)
        server.changed.connect(self._update_local_server_note)

    def _update_local_server_note(self) -> None:
        from app.ui.settings.local_server_rows import state_text

        if self.local_server is not None:
            self.set_note("serve", state_text(self.local_server))

    def connect_models_page(self, controller: ModelsController) -> None:
        """Connect the Models page alone, without the chat's model menu."""
        self._models = controller
        self.commands.bind("models", self.show_models)
        for act, name in {
            "add_model_file": "pick_file", "add_model_folder": "pick_folder", "access_token": "ask_token",
            "move_models": "pick_models_folder",
        }.items():  # fmt: skip
            self.commands.bind(act, partial(self._do_on_models_page, name))
        self.commands.bind("refresh_models", controller.refresh)
        controller.toast.connect(self.show_toast)
        controller.problem.connect(self._show_models_problem)
        controller.rows_changed.connect(self._show_models_work)

    # -------------------------------------------------------------- pages

    def show_chat(self) -> None:
        """Show the open chat and focus its composer."""
        self.pages.setCurrentWidget(self.page)
        self.sidebar.set_page("chat")
        self.sidebar.set_current(self._conversation.id if self._conversation else None)
        self._show_title()
        self.page.focus_composer()

    def show_models(self) -> None:
        """Show the Models page."""
        if self._models is None:
            return
        if self.models_page is None:
            from app.ui.models.model_actions import ModelActions
            from app.ui.models.models_page import ModelsPage

            self.models_page = ModelsPage()
            self.models_page.set_status(self._status)
            self.pages.addWidget(self.models_page)
            self._model_actions = ModelActions(self.models_page, self._models)
            self._model_actions.chat_wanted.connect(self.show_chat)
            self._model_actions.remedy_wanted.connect(self.page.remedy)
            if self.server_actions is not None:
                self.server_actions.connect_page(self.models_page)
        self.pages.setCurrentWidget(self.models_page)
        self.sidebar.set_page("models")
        self.sidebar.set_current(None)  # only the page's row is marked
        self._show_title()
        self.models_page.search.setFocus(Qt.FocusReason.OtherFocusReason)

    def _do_on_models_page(self, name: str) -> None:
        """Open the Models page and call a method of its ModelActions."""
        self.show_models()
        getattr(self._model_actions, name)()

    def show_live(self) -> None:
        """Show the Live page."""
        if self.live_page is None:
            from app.ui.live.live_page import LivePage

            self.live_page = LivePage(self._figures)
            self.live_page.watching.connect(self.watching_changed)
            self.live_page.set_seen(self._seen)
            self.live_page.set_chat(self._chat_in_answer())
            if self.answer_menus is not None:
                self.answer_menus.serve(self.live_page)
            self.pages.addWidget(self.live_page)
        self.pages.setCurrentWidget(self.live_page)
        self.sidebar.set_page("live")
        self.sidebar.set_current(None)
        self._show_title()
        self.live_page.neurons.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_live_event(self, live: Live) -> None:
        """Show live figures of the model."""
        self._figures.take_live(live)
        if self.live_page is not None:
            self.live_page.set_live(live)

    def take_result(self, result: GenerationResult) -> None:
        """Record the figures of a finished answer."""
        self._figures.take_result(result)

    def _show_answered(self, conversation_id: str | None) -> None:
        self._answered = conversation_id or ""
        if self.live_page is not None:
            self.live_page.set_chat(self._chat_in_answer())

    def _chat_in_answer(self) -> str:
        """Return the title of the open chat if it is being answered, else an empty text."""
        is_open = self._conversation is not None and self._conversation.id == self._answered
        return self._title if is_open else ""

    def _show_models_problem(self, message: UserMessage) -> None:
        page = self.models_page
        if page is not None and self.pages.currentWidget() is page:
            page.show_banner(message)
        elif self._chat is not None:
            self._chat.problems.report("models", message)

    def _show_models_work(self, rows: list[ModelRow]) -> None:
        from app.models.model_selection import is_working, work_figure

        self.sidebar.set_models_work(work_figure(rows), is_working(rows))

    # -------------------------------------------------------------- showing state

    def _show_conversation(self, conversation: Conversation | None, messages: list[Message]) -> None:
        self._conversation = conversation
        self.page.show_conversation(conversation, messages)
        for toast in self.page.findChildren(Toast, options=Qt.FindChildOption.FindDirectChildrenOnly):
            toast.settle()
        if self.pages.currentWidget() is self.page:
            self.sidebar.set_current(conversation.id if conversation else None)
        self._set_title(conversation.title if conversation else "")

    def _set_title(self, title: str) -> None:
        self._title = title
        self.page.set_title(title)
        self._show_title()

    def _show_title(self) -> None:
        page = self.pages.currentWidget()
        title = self._title if page is self.page else tr("Live") if page is self.live_page else tr("Models")
        self.setWindowTitle(f"{title} – Hearth" if title else "Hearth")

    def _show_status(self, status: EngineStatus) -> None:
        self._status = status
        self._figures.take_status(status)
        self.sidebar.set_status(status)
        if self.live_page is not None:
            self.live_page.set_status()
        if self.models_page is not None:
            self.models_page.set_status(status)

    def show_machine(self, facts: MachineFacts) -> None:
        """Show what this PC has."""
        self.page.set_machine_line(machine_line(facts), bool(facts.gpu))

    def show_sample(self, sample: MachineSample) -> None:
        """Show a sample of the machine."""
        self.sidebar.set_sample(sample)
        self._figures.take_sample(sample, time.monotonic())
        if self.live_page is not None:
            self.live_page.show_machine()

    def show_toast(self, words: str, undo: Callable[[], None] | None) -> None:
        page = self.pages.currentWidget()
        if page is not None and page is not self.page:
            Toast.show_on(page, words, undo)
        else:
            # Place it in the title bar: there it covers no answer, no figures and nothing above the composer.
            Toast.show_on(self.page, words, undo, lambda: 24 if self.page.is_empty else None)

    def _take_model(self, info: LoadedModelInfo) -> None:
        self._automatic = {**info.sampling, "threads": info.threads, "context": info.context}
        self.set_note("device", where_it_runs(info))

    # -------------------------------------------------------------- user actions

    def _title_menu(self, action: str) -> None:
        if self._conversation is not None and self._chat_actions is not None:
            self._chat_actions.do(f"{action}_chat", self._conversation.id)

    def _window_action(self, action: str) -> None:
        if action == Action.OPEN_SETTINGS:
            self.open_settings()
        elif action == Action.ENTER_KEY and self.server_actions is not None:
            self.server_actions.enter_key()
        elif action in (Action.OPEN_MODELS, Action.ENTER_TOKEN):
            self.show_models()
            if self._model_actions is not None and action == Action.ENTER_TOKEN:
                self._model_actions.ask_token()
        elif action in (Action.USE_CPU, Action.USE_ANY):
            if self._chat is not None:
                self._chat.problems.solve("engine")
            self._set(device="cpu" if action == Action.USE_CPU else "auto")
        elif action == Action.OPEN_DATA_FOLDER:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._paths.data)))

    def open_settings(self, name: str = "") -> None:
        """Open the settings, at the named one."""
        from app.ui.settings.settings_dialog import SettingsDialog

        dialog = SettingsDialog(self.settings, self, self._automatic, self._notes)
        self._model_changed.connect(dialog.show_model)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.changed.connect(self.take_settings)
        if self.answer_menus is not None:
            self.answer_menus.add_to(dialog)
        if self.local_server is not None:
            self._update_local_server_note()
            dialog.add_local_server(self.local_server)
        dialog.act_wanted.connect(self.commands.run)
        known = self._models.known.folder if self._models is not None else ""
        dialog.show_folders(str(self._paths.data), known or str(paths().data / "models"))
        dialog.report_wanted.connect(self.report_wanted)
        dialog.log_wanted.connect(self.log_wanted)
        dialog.open()
        if name:
            dialog.reveal(name)

    def open_about(self, page: str = "model") -> None:
        """Open the About dialog at one of its pages."""
        from app.ui.settings.about_dialog import AboutDialog

        dialog = AboutDialog(self)
        dialog.show_page(page)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def set_note(self, name: str, words: str) -> None:
        """Set the note of a setting in the settings dialog; an empty text removes it."""
        self._notes = {**self._notes, name: words}
        self._model_changed.emit(self._automatic, self._notes)

    def _resize_text(self, step: int | None) -> None:
        """Change the text size by `step` px; None restores the default."""
        size = description_of("text_px")
        assert size.low is not None
        assert size.high is not None
        px = size.default if step is None else min(max(self.settings.text_px + step, int(size.low)), int(size.high))
        self._set(text_px=px)

    def _set(self, **values: object) -> None:
        self.take_settings(replace(self.settings, **values))  # type: ignore[arg-type]

    def take_settings(self, settings: AppSettings) -> None:
        """Apply settings changed in this window."""
        before, self.settings = self.settings, settings
        if any(getattr(settings, name) != getattr(before, name) for name in ("theme", "text_px", "contrast")):
            apply_look(settings)
        self.settings_changed.emit(settings)

    # -------------------------------------------------------------- geometry and closing

    def keyPressEvent(self, event: QKeyEvent) -> None:
        answering = self._status.answering or self.page.status.answering
        if event.key() == Qt.Key.Key_Escape and answering:  # no focused widget wanted it
            self.page.stop_requested.emit()
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)

    def _restore_geometry(self) -> None:
        try:
            saved = base64.b64decode(self.settings.window_geometry, validate=True)
        except ValueError:
            saved = b""
        if not saved or not self.restoreGeometry(QByteArray(saved)):
            self.resize(*FIRST_SIZE)

    def geometry_to_keep(self) -> str:
        return base64.b64encode(self.saveGeometry().data()).decode()

    def _tell_visible(self) -> None:
        seen = self.isVisible() and not self.isMinimized()
        if seen != self._seen:
            self._seen = seen
            if self.live_page is not None:
                self.live_page.set_seen(seen)
            self.visible_changed.emit(seen)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._tell_visible()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._tell_visible()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self._tell_visible()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.stays_in_tray:
            event.ignore()
            self.hide()
            return
        super().closeEvent(event)
        if event.isAccepted():
            self.closing.emit()

    def quit(self) -> None:
        """Quit, even if closing would only hide the window in the tray."""
        self.stays_in_tray = False
        if self.isVisible():
            QApplication.setQuitOnLastWindowClosed(True)
            self.close()
        else:
            QApplication.quit()

    def come_forward(self) -> None:
        """Restore the window and bring it to the front."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()


def apply_look(settings: AppSettings) -> None:
    """Apply the look of the settings."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    zoom = settings.text_px / theme.BODY_PX
    theme.apply(app, settings.theme, zoom, settings.contrast == "high")  # type: ignore[arg-type]


def where_it_runs(info: LoadedModelInfo) -> str:
    """Return where the model runs, and why."""
    if info.device == "cpu":
        now = tr("Now on the CPU")
    elif info.gpu:
        now = tr("Now on {card} and the CPU", card=short_name(info.gpu))
    else:
        now = tr("Now on the GPU and the CPU")
    return plain_figures(sentence(now, why_there(info.device_reason), *info.gpu_notes))


class FirstPaint(QObject):
    """Calls back once, after the window was painted for the first time."""

    def __init__(self, window: MainWindow, then: Callable[[], None]) -> None:
        super().__init__(window)
        self._then: Callable[[], None] | None = then
        window.ground.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and self._then is not None:
            then, self._then = self._then, None
            watched.removeEventFilter(self)
            QTimer.singleShot(0, then)  # after this paint, not within it
        return False
