"""Connects the tools of the open chat with the composer, the transcript and the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.tools.propose_note import TOOL as NOTE_TOOL
from app.translation import tr

if TYPE_CHECKING:
    from app.chat.answer_setup import AnswerSetup
    from app.chat.chat_controller import ChatController
    from app.chat.store.conversation import Conversation, Message
    from app.documents.documents import Documents
    from app.models.models_controller import ModelsController
    from app.servers.servers_controller import ServersController
    from app.tools.mcp.servers_controller import ToolServersController
    from app.tools.tool_box import ToolBox
    from app.ui.main_window import MainWindow
    from app.ui.settings.settings_dialog import SettingsDialog
    from engine.service.protocol import CountResult


class ChatTools(QObject):
    """Shows and changes the tools of the open chat. Create it after ChatContext, whose counter it listens to."""

    def __init__(
        self,
        window: MainWindow,
        chat: ChatController,
        setup: AnswerSetup,
        box: ToolBox,
        servers: ServersController,
    ) -> None:
        """servers: keeps the key of the search service."""
        super().__init__(window)
        self._chat = chat
        self._page, self._setup, self._box, self._servers = window.page, setup, box, servers
        self._window = window
        self._tool_servers: ToolServersController | None = None
        self._tokens: int | None = None  # taken by the definitions of the active tools
        composer = self._page.composer
        chat.message_updated.connect(self._updated)
        chat.conversations_changed.connect(self._show_folder)
        setup.changed.connect(self.show)
        window.chat_context.counter.counted.connect(self._counted)
        window.settings_changed.connect(box.changed)
        window.preferences.opening.connect(self._add_to_settings)
        composer.tools_picked.connect(setup.pick_tools)
        composer.tools_button.consents_dropped.connect(self._ask_again)
        composer.tools_page_wanted.connect(lambda: window.open_settings("search_service"))
        self.show()

    def connect_tool_servers(self, tool_servers: ToolServersController) -> None:
        """Offer the MCP servers in the settings, a command that adds one, and their prompts. Call once."""
        from app.ui.chat.server_content import ServerContent

        self._tool_servers = tool_servers
        tool_servers.changed.connect(self._box.changed)
        self._box.changed.connect(tool_servers.refresh)
        ServerContent(self._window, self._page.composer, tool_servers, self._chat.rounds)
        self._window.commands.bind("add_tool_server", self._add_tool_server, lambda: not tool_servers.is_full)

    def connect_documents(self, documents: Documents, models: ModelsController | None = None) -> None:
        """Connect the folders of documents. models: of which one can search them by meaning. Call once."""
        from app.ui.chat_documents import ChatDocuments

        ChatDocuments(self._window, self._chat, self._setup, documents, models)

    def _add_tool_server(self) -> None:
        from app.ui.settings.tool_server_dialog import ToolServerDialog

        if self._tool_servers is not None:
            ToolServerDialog(self._window, self._tool_servers).open()

    @Slot()
    def show(self) -> None:
        offer = replace(self._setup.tool_offer, has_consents=self._chat.has_tool_consents)
        self._page.composer.set_tools(replace(offer, tokens=self._tokens if offer.n_on else None))
        self._page.empty.set_tools_send(any(tool.name in offer.on and not tool.is_local for tool in offer.tools))
        self._page.transcript.set_tool_titles(
            {NOTE_TOOL.name: tr(NOTE_TOOL.title), **{tool.name: tool.title for tool in offer.tools}}
        )
        self._page.transcript.set_tool_questions(self._chat.tool_questions)

    @Slot(list)
    def _show_folder(self, conversations: list[Conversation]) -> None:
        """A consent can be for the folder that the open chat is in now."""
        folder = next((one.folder for one in conversations if one.id == self._chat.open_conversation), "")
        self._page.transcript.set_has_folder(bool(folder))

    @Slot(object)
    def _counted(self, count: CountResult | None) -> None:
        tokens = count.tool_tokens if count is not None else None
        if tokens != self._tokens:
            self._tokens = tokens
            self.show()

    @Slot(object)
    def _updated(self, message: Message) -> None:
        self._page.update_message(message)
        self.show()  # a consent may have been given

    def _ask_again(self) -> None:
        self._chat.drop_tool_consents()
        self.show()

    def _add_to_settings(self, dialog: SettingsDialog) -> None:
        dialog.add_tools(self._tool_servers)
        dialog.search_changed.connect(self._keep_search)

    def _keep_search(self, kind: str, address: str, key: str | None) -> None:
        from app.tools.web_search import BRAVE_ADDRESS

        if key is not None:
            self._servers.keep_key(BRAVE_ADDRESS, key)
