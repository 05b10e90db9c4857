"""Connects composer, model menu and Models page with the servers controller.

It asks before an existing chat is sent to a server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.chat.message_action import MessageAction
from app.clients.servers import Place
from app.later import Later
from app.translation import tr
from app.ui.widgets.floating import confirm
from app.user_messages import UserMessage

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController
    from app.servers.servers_controller import ServersController
    from app.ui.chat.chat_page import ChatPage
    from app.ui.models import server_dialog
    from app.ui.models.model_menu import ModelMenu
    from app.ui.models.models_page import ModelsPage
else:
    server_dialog = Later("app.ui.models.server_dialog")


class ServerActions(QObject):
    """The server actions of a window; create one per window. chat_wanted: show the chat."""

    chat_wanted = Signal()

    def __init__(
        self, window: QWidget, page: ChatPage, menu: ModelMenu, chat: ChatController, servers: ServersController
    ) -> None:
        super().__init__(window)
        self._window, self._page, self._menu, self._chat, self.servers = window, page, menu, chat, servers
        self._dialog: server_dialog.ServerDialog | None = None
        self._models: ModelsPage | None = None
        page.composer.stay_requested.connect(partial(servers.choose, None))
        menu.place_chosen.connect(lambda place: self.send_there(place, menu.again))
        servers.changed.connect(self._show)
        servers.looked.connect(self._take_looked)
        chat.chat_status_changed.connect(lambda status: menu.set_place(chat.place))
        self._show()

    def connect_page(self, page: ModelsPage) -> None:
        """Connect the Models page, which is built later."""
        self._models = page
        page.servers.chosen.connect(self.begin_there)
        page.servers.edit_requested.connect(self.edit)
        page.servers.add_requested.connect(self.add)
        self._show()

    def _show(self) -> None:
        book = self.servers.book
        self._menu.set_places(book.places)
        if self._models is not None:
            self._models.servers.set_servers(book.servers)
            self._models.servers.add.setEnabled(not book.is_full)

    # --- where a chat goes

    def send_there(self, place: Place, again: str = "") -> None:
        """Send the open chat to a server from its next message on; ask first if it has messages.

        again: id of the answer to regenerate there, if any.
        """

        def choose() -> None:
            self.servers.choose(place)
            if again:
                self._chat.act(MessageAction("regenerate", again))

        if place == self._chat.place and not again:
            return
        if place == self._chat.place or self._chat.open_conversation is None:
            choose()
            return
        server = place.server
        to = tr("{server} on this PC", server=server.name) if server.is_here else server.host
        confirm(
            self._window, tr("Send this chat to {server}?", server=place.server.name),
            tr("Your next message sends this whole chat and its attachments to {host}. "
               "Other chats stay as they are.", host=to),
            tr("Stay"), tr("Send it there"), choose,
        ).danger.set_look("secondary")  # fmt: skip

    def begin_there(self, place: Place) -> None:
        """Start a new chat that is sent there."""
        self._chat.new_chat()
        self.servers.choose(place)
        self.chat_wanted.emit()

    # --- entering

    def add(self) -> None:
        dialog = self._open(server_dialog.ServerDialog(self._window))
        dialog.entered.connect(self.servers.add)

    def edit(self, server_id: str) -> None:
        """Open a server's dialog."""
        server = self.servers.book.get(server_id)
        if server is None:
            return
        dialog = self._open(server_dialog.ServerDialog(self._window, server))
        dialog.entered.connect(lambda name, _, key, models: self.servers.change(server_id, name, key, models))
        dialog.remove_requested.connect(partial(self._ask_remove, server_id))

    def enter_key(self) -> None:
        """Open the dialog of the open chat's server, which refused its key."""
        if (place := self._chat.place) is not None:
            self.edit(place.server.id)
            if self._dialog is not None:
                self._dialog.key.setFocus()

    def _open(self, dialog: server_dialog.ServerDialog) -> server_dialog.ServerDialog:
        dialog.look_requested.connect(self.servers.look)
        dialog.finished.connect(self._closed)
        self._dialog = dialog
        dialog.open()
        return dialog

    def _closed(self) -> None:
        self._dialog = None
        self.servers.stop_looking()

    def _take_looked(self, address: str, found: list[str] | UserMessage) -> None:
        if self._dialog is not None and self._dialog.address.text().strip() == address:
            self._dialog.show_looked(found)

    def _ask_remove(self, server_id: str) -> None:
        server = self.servers.book.get(server_id)
        if server is not None:
            confirm(
                self._window, tr("Remove {server}?", server=server.name),
                tr("Its key is deleted from the keyring. Its chats stay, and this PC answers them from then on."),
                tr("Keep"), tr("Remove"), lambda: self.servers.remove(server_id),
            )  # fmt: skip
