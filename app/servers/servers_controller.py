"""Turns the user's actions on servers into requests: add, list models, choose for a chat, remove.

A server is contacted only if the user asks for it here, or sends a message in a chat that chose it. Keys go to the
library's process, which has the keyring. Without a keyring a key is kept here until Hearth ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.chat.chat_controller import ChatController
from app.chat.store.preset_store import new_id
from app.clients.library_client import Library, Values
from app.clients.servers import Place, Server
from app.servers.server_book import ServerBook
from app.translation import tr
from app.user_messages import describe
from engine.errors import InvalidRequestError
from engine.remote_servers.address import checked_address, origin_of

if TYPE_CHECKING:
    from engine.service import protocol

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background


class ServersController(QObject):
    """Adds, inspects, chooses and removes servers without blocking."""

    changed = Signal()  # the list of servers or one of them
    looked = Signal(str, object)  # address as given, list[str] of models | UserMessage
    toast = Signal(str, object)

    def __init__(self, library: Library, chat: ChatController, book: ServerBook, save: Save) -> None:
        """Read nothing. save: writes a small file in the background."""
        super().__init__()
        self._library, self._chat, self.book, self._save = library, chat, book, save
        self._looking: dict[str, str] = {}  # request ids by address

    def read(self) -> None:
        self.book.read()
        self._emit_changed(keep=False)

    def _emit_changed(self, keep: bool = True) -> None:
        if keep:
            values = self.book.to_json()
            self._save("save the servers", lambda: self.book.save(values))
        self.changed.emit()
        self._chat.check_place()

    # --- entering

    def look(self, address: str, key: str = "") -> None:
        """Ask a server for its models. `looked` follows."""
        self.stop_looking()
        try:
            found = checked_address(address)
        except InvalidRequestError as error:
            self.looked.emit(address, describe(error, during="server"))
            return
        given = {"address": found, "name": Server("", "", found).host}
        if key := key.strip() or self.book.keys.get(origin_of(found), ""):
            given["key"] = key
        self._looking[address] = self._library.ask(
            "server_models", given, partial(self._looked, address), partial(self._not_looked, address)
        )

    def stop_looking(self) -> None:
        """Cancel all requests for models."""
        for request in self._looking.values():
            self._library.cancel(request)
        self._looking.clear()

    def _looked(self, address: str, result: Values) -> None:
        if self._looking.pop(address, "") and not result.get("cancelled"):
            self.looked.emit(address, [str(model) for model in result.get("models", [])])

    def _not_looked(self, address: str, failed: protocol.Failed) -> None:
        if self._looking.pop(address, ""):
            host = Server("", "", checked_address(address)).host
            self.looked.emit(address, describe(failed, during="server", model=host))

    def add(self, name: str, address: str, key: str, models: list[str]) -> Server:
        """Add a server. Raises InvalidRequestError for an invalid address."""
        server = self.book.put(Server(new_id(), name, checked_address(address), tuple(models), bool(key.strip())))
        if key.strip():
            self.keep_key(server.address, key.strip())
        self._emit_changed()
        return server

    def change(self, server_id: str, name: str, key: str | None, models: list[str]) -> None:
        """Change a server's name, models or key ("": none; None: as before). The address stays, so that a chat is never
        sent to another server under the same name."""
        server = self.book.get(server_id)
        if server is None:
            return
        has_key = server.has_key if key is None else bool(key.strip())
        server = self.book.put(replace(server, name=name, models=tuple(models), has_key=has_key))
        if key is not None:
            self.keep_key(server.address, key.strip())
        self._emit_changed()

    def remove(self, server_id: str) -> None:
        """Remove a server and its key. This PC answers its chats from then on."""
        server = self.book.get(server_id)
        if server is None:
            return
        self.book.remove(server_id)
        if not any(origin_of(other.address) == origin_of(server.address) for other in self.book.servers):
            self.keep_key(server.address, "")
        self._emit_changed()
        self.toast.emit(tr("{name} removed", name=server.name), None)

    # --- keys

    def keep_key(self, address: str, key: str) -> None:
        """Keep the key of a server or service in the keyring, else until Hearth ends; "" deletes it."""
        origin = origin_of(address)
        self.book.keys.pop(origin, None)
        if key:
            self.book.keys[origin] = key
        self._library.ask(
            "server_key", {"address": address, "set": key}, partial(self._kept, origin, key),
            lambda failed: self.toast.emit(tr("The key is kept until Hearth is closed"), "warn"),
        )  # fmt: skip

    def _kept(self, origin: str, key: str, state: dict[str, Any]) -> None:
        if not key or self.book.keys.get(origin) != key:
            return
        if state.get("kept"):
            del self.book.keys[origin]
        else:
            self.toast.emit(tr("No keyring is available: the key is kept until Hearth is closed"), "warn")

    def delete_keys(self, then: Callable[[Server, str], None], others: Sequence[Server] = ()) -> int:
        """Delete the keys of all servers and of others. Returns their number. then: called for each with the server and
        why its key was not deleted, or ""."""
        self.book.keys.clear()
        by_origin = {origin_of(server.address): server for server in (*self.book.servers, *others) if server.has_key}
        for server in by_origin.values():
            self._library.ask(
                "server_key", {"address": server.address, "set": ""}, partial(self._deleted, server, then),
                partial(self._not_deleted, server, then),
            )  # fmt: skip
        return len(by_origin)

    @staticmethod
    def _deleted(server: Server, then: Callable[[Server, str], None], state: Values) -> None:
        then(server, str(state.get("note", "")) if state.get("kept") else "")

    @staticmethod
    def _not_deleted(server: Server, then: Callable[[Server, str], None], failed: protocol.Failed) -> None:
        then(server, failed.message)

    # --- choosing

    def choose(self, place: Place | None) -> None:
        """Send the open chat to a server from its next message on; None: to this PC."""
        self._chat.set_place(place)
