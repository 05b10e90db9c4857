"""The main window: sidebar and pages side by side, and the commands that work everywhere.

It places and connects widgets; the controllers decide what actions do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout

from app.clients.engine_status import EngineStatus, machine_line
from app.settings import AppPaths, AppSettings
from app.translation import tr
from app.ui.chat.chat_connections import bind_commands, connect_page, connect_sidebar
from app.ui.finder import Finder
from app.ui.keyboard import palette_entries, window_focus
from app.ui.keyboard.commands import Commands
from app.ui.pages import Pages
from app.ui.settings.window_settings import WindowSettings
from app.ui.sidebar.sidebar import Sidebar
from app.ui.widgets.floating import DimWhileBlocked, Toast, Undo
from app.ui.widgets.popover import dismiss_all
from app.ui.window_frame import WindowFrame
from app.user_messages import Action, UserMessage, describe

if TYPE_CHECKING:
    from app.chat.answer_setup import AnswerSetup
    from app.chat.chat_controller import ChatController
    from app.chat.chat_folders import ChatFolders
    from app.chat.chat_memory import ChatMemory
    from app.chat.store.conversation import Conversation, Message
    from app.clients.engine_client import EngineClient
    from app.models.models_controller import ModelsController
    from app.servers.local_server import LocalServer
    from app.servers.servers_controller import ServersController
    from app.ui.chat.answer_menus import AnswerMenus
    from app.ui.models.chat_models import ChatModels
    from app.ui.models.server_actions import ServerActions
    from app.ui.settings.settings_dialog import SettingsDialog
    from app.ui.sidebar.chat_actions import ChatActions
    from engine.machine.hardware import MachineFacts
    from engine.machine.monitor import MachineSample


class MainWindow(WindowFrame):
    """The main window. settings_changed: new settings, to be saved."""

    settings_changed = Signal(AppSettings)
    watching_changed = Signal(bool)  # whether the Live page is visible
    report_wanted = Signal()  # save a report on this PC
    log_wanted = Signal()  # open the log folder
    erase_wanted = Signal()  # show and delete what Hearth stores
    updates_wanted = Signal()  # show what is known of newer versions

    def __init__(self, settings: AppSettings, places: AppPaths) -> None:
        super().__init__()
        self._paths = places
        self.preferences = WindowSettings(self, settings, places)
        self.preferences.changed.connect(self.settings_changed)
        self.preferences.report_wanted.connect(self.report_wanted)
        self.preferences.log_wanted.connect(self.log_wanted)
        self._conversation: Conversation | None = None
        self._status = EngineStatus()
        self._title = ""  # of the chat
        self._chat: ChatController | None = None
        self.chat_models: ChatModels | None = None
        self.answer_menus: AnswerMenus | None = None
        self.server_actions: ServerActions | None = None
        self._answered = ""  # id of the chat that is being answered
        self._memory: ChatMemory | None = None
        self._chat_actions: ChatActions | None = None
        self.commands = Commands(self)
        self.preferences.act_wanted.connect(self.commands.run)
        self.setWindowTitle("Hearth")
        self.sidebar, self.pages = Sidebar(), Pages()
        self.page = self.pages.chat
        self.ground = QFrame()
        self.ground.setProperty("kind", "page")
        row = QHBoxLayout(self.ground)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.sidebar)
        row.addWidget(self.pages, 1)
        self.setCentralWidget(self.ground)
        window_focus.install(self, self.ground, lambda: self.page.composer.field if self.pages.shows_chat else None)
        DimWhileBlocked(self)
        self.sidebar.set_collapsed(not settings.sidebar_open)
        self.sidebar.collapsed_changed.connect(lambda collapsed: self.preferences.set(sidebar_open=not collapsed))
        folders = self.sidebar.panel.list
        folders.chats.set_closed(settings.closed_folders.splitlines())
        folders.closed_changed.connect(lambda names: self.preferences.set(closed_folders="\n".join(names)[:20_000]))
        self.sidebar.chat_requested.connect(self.show_chat)
        self.sidebar.new_chat.connect(self.show_chat)
        self.sidebar.conversation_selected.connect(lambda _: self.show_chat())
        self.sidebar.hit_selected.connect(lambda *_: self.show_chat())
        self.sidebar.models_requested.connect(self.show_models)
        self.sidebar.live_requested.connect(self.show_live)
        self.sidebar.set_page("chat")
        self.pages.shown.connect(self._page_shown)
        self.pages.watching_changed.connect(self.watching_changed)
        self.visible_changed.connect(self.pages.set_seen)
        self.sidebar.settings_requested.connect(self.open_settings)
        self.sidebar.about_requested.connect(self.open_about)
        self.page.copied.connect(lambda words: self.show_toast(words, None))
        self.page.title_menu.connect(self._title_menu)
        self._bind_commands()
        self.restore_geometry(settings.window_geometry)

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
            "updates": self.updates_wanted.emit,
            "data_folder": lambda: self._window_action(Action.OPEN_DATA_FOLDER),
            "sidebar": self.sidebar.toggle,
            "zoom_in": lambda: self.preferences.resize_text(1),
            "zoom_out": lambda: self.preferences.resize_text(-1),
            "zoom_reset": lambda: self.preferences.resize_text(None),
            "theme_light": lambda: self.preferences.set(theme="light"),
            "theme_dark": lambda: self.preferences.set(theme="dark"),
            "theme_system": lambda: self.preferences.set(theme="system"),
            "quit": self.ask_to_quit,
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

    def unsaved(self) -> str:
        lost = self._memory.unsaved if self._memory is not None else None
        return describe(lost).sentence if lost is not None else ""

    def _shows_messages(self) -> bool:
        return self.pages.shows_chat and not self.page.is_empty

    def _find(self) -> None:
        """Open the search of the visible page; if it has none, search all chats."""
        if self._shows_messages():
            self.page.open_find()
        elif self.pages.shows_models and self.pages.models_page is not None:
            self.pages.models_page.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        else:
            self.sidebar.open_search()

    @property
    def shown_chat(self) -> str:
        """The id of the visible chat; empty if none is visible."""
        chat = self._conversation if self.pages.shows_chat else None
        return chat.id if chat else ""

    def connect_controller(self, controller: ChatController) -> None:
        """Connect the chat controller with page, sidebar and commands, and with what the window itself shows."""
        self._chat = controller
        connect_page(controller, self.page)
        connect_sidebar(controller, self.sidebar)
        bind_commands(self.commands, controller, self.page)
        controller.running_changed.connect(self._show_answered)
        controller.status_changed.connect(self._show_status)
        controller.conversation_opened.connect(self._show_conversation)
        controller.toast.connect(self.show_toast)
        controller.title_changed.connect(self._set_title)
        controller.window_action.connect(self._window_action)
        controller.model_loaded.connect(self.preferences.take_model)
        self.settings_changed.connect(controller.settings_changed)

    def connect_folders(self, folders: ChatFolders) -> None:
        """Connect the chat folders: pins, folders, import and export."""
        from app.ui.sidebar.chat_actions import ChatActions

        folders.toast.connect(self.show_toast)
        if self._chat is not None:
            folders.problem.connect(self._chat.problems.report)
            folders.solved.connect(self._chat.problems.solve)
        self._chat_actions = ChatActions(self, self.sidebar, lambda: self.shown_chat, folders)
        self._chat_actions.bind(self.commands)
        self.page.menu_requested.connect(self._chat_actions.add_rows)
        self.page.exports_requested.connect(self._chat_actions.add_exports)
        self.page.print_requested.connect(self._chat_actions.print_message)

    def connect_context(self, controller: ChatController, engine: EngineClient, memory: ChatMemory) -> None:
        """Connect what the next prompt needs: attachments, token count, drafts."""
        from app.ui.chat.chat_context import ChatContext

        self._memory = memory
        self.chat_context = ChatContext(self, self.page, controller, engine, memory)
        self.settings_changed.connect(self.chat_context.counter.begin_anew)
        self.chat_context.popup.size_requested.connect(lambda: self.open_settings("context"))
        self.commands.bind("attach", self.page.composer.choose_files)
        self.commands.bind("context", self.chat_context.show_context)
        inspector, can = self.chat_context.inspector, partial(self.page.can_act_on_last, "regenerate")
        self.commands.bind("inspect_answer", partial(self.page.act_on_last, "inspect"), can)
        self.commands.bind("export_tokens", inspector.export_last, can)
        self.commands.bind("record_tokens", inspector.toggle_recording)

    def connect_models(self, controller: ModelsController) -> None:
        """Connect the models controller with the Models page and the chat's model menu. After `connect_controller`."""
        from app.ui.models.chat_models import ChatModels

        self.connect_models_page(controller)
        assert self._chat is not None, "the chat comes first"
        self.chat_models = models = ChatModels(self, self.page, self.sidebar, self._chat, controller)
        models.watch_answers()
        self.chat_models.models_page_requested.connect(self.show_models)
        models.menu.compare_requested.connect(partial(self.commands.run, "compare_models"))
        if self.answer_menus is not None:
            self.answer_menus.comparing.use_models(models.menu.models.usable)
            self.answer_menus.comparing.begun.connect(self.show_chat)
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
        self.page.answer_rows_requested.connect(
            lambda menu: menu.add(tr("System prompt and persona"), "chat", menus.open_personas)
        )
        self.settings_changed.connect(lambda _: setup.settings_changed())
        self.preferences.opening.connect(menus.add_to)
        self.pages.live_built.connect(menus.serve)
        self._setup = setup
        setup.changed.connect(self._show_cost_note)  # a method, so that Qt disconnects it with the window
        for act, do in menus.commands.items():
            self.commands.bind(act, do)

    def connect_servers(self, servers: ServersController) -> None:
        """Connect the servers that chats can use. After `connect_models`."""
        from app.ui.models.server_actions import ServerActions

        assert self._chat is not None, "the chat comes first"
        assert self.chat_models is not None, "and its menu of models"
        self.server_actions = ServerActions(self, self.page, self.chat_models.menu, self._chat, servers)
        self.server_actions.chat_wanted.connect(self.show_chat)
        self.pages.models_built.connect(self.server_actions.connect_page)
        self.commands.bind("add_server", self.server_actions.add, lambda: not servers.book.is_full)
        send = self.server_actions.send_there
        self.finder.add(lambda: palette_entries.of_places(servers.book.places, send))
        servers.toast.connect(self.show_toast)

    def connect_local_server(self, server: LocalServer) -> None:
        """Connect the local server, which the settings switch on and off."""
        self.commands.bind("local_server", lambda: self.open_settings("serve"))
        self.settings_changed.connect(server.take_settings)
        server.toast.connect(self.show_toast)
        self.preferences.connect_local_server(server)

    def connect_models_page(self, controller: ModelsController) -> None:
        """Connect the Models page alone, without the chat's model menu."""
        self.pages.connect_models(controller)
        self.preferences.opening.connect(lambda dialog: self._show_models_folder(dialog, controller.known.folder))
        self.commands.bind("models", self.show_models)
        for act, name in {
            "add_model_file": "pick_file", "add_model_folder": "pick_folder", "access_token": "ask_token",
            "move_models": "pick_models_folder",
        }.items():  # fmt: skip
            self.commands.bind(act, partial(self.pages.run_model_action, name))
        self.commands.bind("refresh_models", controller.refresh)
        controller.toast.connect(self.show_toast)
        controller.problem.connect(self._show_models_problem)
        controller.rows_changed.connect(self.sidebar.show_models_work)

    # --- pages

    def show_chat(self) -> None:
        """Show the open chat and focus its composer."""
        self.pages.show_chat()

    def show_models(self) -> None:
        self.pages.show_models()

    def show_live(self) -> None:
        self.pages.show_live()

    def _page_shown(self, name: str) -> None:
        self.sidebar.set_page(name)
        # On other pages only the page's own row is marked.
        self.sidebar.set_current(self._conversation.id if self._conversation and name == "chat" else None)
        self._show_title()

    def _show_answered(self, conversation_id: str | None) -> None:
        self._answered = conversation_id or ""
        self._tell_answered()

    def _tell_answered(self) -> None:
        is_open = self._conversation is not None and self._conversation.id == self._answered
        self.pages.set_answered_chat(self._title if is_open else "")

    def _show_models_problem(self, message: UserMessage) -> None:
        if self.pages.shows_models and self.pages.models_page is not None:
            self.pages.models_page.show_banner(message)
        elif self._chat is not None:
            self._chat.problems.report("models", message)

    # --- showing state

    def _show_conversation(self, conversation: Conversation | None, messages: list[Message]) -> None:
        before = self._conversation
        if before is not None and (conversation is None or conversation.id != before.id):
            dismiss_all(self)  # they belong to the chat that was left
        self._conversation = conversation
        self.page.show_conversation(conversation, messages)
        for toast in self.page.findChildren(Toast, options=Qt.FindChildOption.FindDirectChildrenOnly):
            toast.settle()
        if self.pages.shows_chat:
            self.sidebar.set_current(conversation.id if conversation else None)
        self._set_title(conversation.title if conversation else "")

    def _set_title(self, title: str) -> None:
        self._title = title
        self._tell_answered()
        self.page.set_title(title)
        self._show_title()

    def _show_title(self) -> None:
        title = self._title if self.pages.shows_chat else self.pages.title
        self.setWindowTitle(f"{title} – Hearth" if title else "Hearth")

    def _show_status(self, status: EngineStatus) -> None:
        self._status = status
        self.sidebar.set_status(status)
        self.pages.set_status(status)

    def show_machine(self, facts: MachineFacts) -> None:
        self.page.set_machine_line(machine_line(facts), bool(facts.gpu))

    def show_sample(self, sample: MachineSample) -> None:
        self.sidebar.set_sample(sample)
        self.pages.show_sample(sample)

    def show_toast(self, words: str, undo: Undo) -> None:
        page = self.pages.currentWidget()
        if page is not None and page is not self.page:
            Toast.show_on(page, words, undo)
        else:
            # Place it in the title bar: there it covers no answer, no figures and nothing above the composer.
            Toast.show_on(self.page, words, undo, lambda: 24 if self.page.is_empty else None)

    # --- user actions

    def _title_menu(self, action: str) -> None:
        if self._conversation is not None and self._chat_actions is not None:
            self._chat_actions.do(f"{action}_chat", self._conversation.id)

    def _window_action(self, action: str) -> None:
        if action == Action.OPEN_SETTINGS:
            self.open_settings()
        elif action == Action.OPEN_UPDATES:
            self.updates_wanted.emit()
        elif action == Action.ENTER_KEY and self.server_actions is not None:
            self.server_actions.enter_key()
        elif action in (Action.OPEN_MODELS, Action.ENTER_TOKEN):
            self.show_models()
            if action == Action.ENTER_TOKEN:
                self.pages.run_model_action("ask_token")
        elif action in (Action.USE_CPU, Action.USE_ANY):
            if self._chat is not None:
                self._chat.problems.solve("engine")
            self.preferences.set(device="cpu" if action == Action.USE_CPU else "auto")
        elif action == Action.OPEN_DATA_FOLDER:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._paths.data)))

    # --- settings

    @property
    def settings(self) -> AppSettings:
        return self.preferences.current

    def take_settings(self, settings: AppSettings) -> None:
        self.preferences.take(settings)

    def open_settings(self, name: str = "") -> None:
        self.preferences.open(name)

    def open_about(self, page: str = "model") -> None:
        self.preferences.open_about(page)

    def set_note(self, name: str, words: str) -> None:
        """Set the note of a setting in the settings dialog; an empty text removes it."""
        self.preferences.set_note(name, words)

    def _show_cost_note(self) -> None:
        self.set_note("mode", self._setup.cost_note)

    def _show_models_folder(self, dialog: SettingsDialog, folder: str) -> None:
        if folder:
            dialog.show_folders(str(self._paths.data), folder)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        answering = self._status.answering or self.page.status.answering
        if event.key() == Qt.Key.Key_Escape and answering:  # no focused widget wanted it
            self.page.stop_requested.emit()
        else:
            super().keyPressEvent(event)
