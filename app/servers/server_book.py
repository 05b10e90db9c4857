"""The servers that the user entered, on the network or on this PC, in a small JSON file. No Qt.

The file holds names, addresses and models, never a key. A chat is sent to a server only if its own choices name one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.chat.store.preset_store import VersionedFile, free_name
from app.clients.servers import CHOICE, MAX_MODELS, NAME_LENGTH, Place, Server
from engine.errors import InvalidRequestError
from engine.remote_servers.address import checked_address, origin_of
from engine.remote_servers.wire import is_name

SCHEMA_VERSION = 1
MAX_SERVERS = 50


class ServerBook(VersionedFile):
    """The user's servers, in the order in which they were added."""

    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps them in memory."""
        super().__init__(path, SCHEMA_VERSION)
        self._servers: dict[str, Server] = {}
        self.keys: dict[str, str] = {}  # by origin: keys not (yet) in a keyring; never written to the file

    @property
    def servers(self) -> list[Server]:
        return list(self._servers.values())

    @property
    def places(self) -> list[Place]:
        """All picked models of all servers."""
        return [Place(server, model) for server in self.servers for model in server.models]

    @property
    def is_full(self) -> bool:
        return len(self._servers) >= MAX_SERVERS

    def get(self, server_id: str) -> Server | None:
        return self._servers.get(server_id)

    def put(self, server: Server) -> Server:
        """Add a server or replace the one with its id. Returns it with a unique name."""
        others = [other.name for other in self.servers if other.id != server.id]
        name = " ".join(server.name.split())[:NAME_LENGTH] or server.host
        stored = replace(server, name=free_name(name, others), models=server.models[:MAX_MODELS])
        self._servers[server.id] = stored
        return stored

    def remove(self, server_id: str) -> None:
        self._servers.pop(server_id, None)

    def place(self, choices: Mapping[str, Any]) -> Place | None:
        """Return the place of a chat with these choices; None: this PC answers."""
        chosen = choices.get(CHOICE)
        if not isinstance(chosen, dict) or not is_name(chosen.get("model")):
            return None
        server = self._servers.get(str(chosen.get("id")))
        return None if server is None else Place(server, chosen["model"])

    def key_for(self, place: Place) -> str:
        """Return a server's key if no keyring has it; else ""."""
        return self.key_of(place.server.address)

    def key_of(self, address: str) -> str:
        """Return the key for an address if no keyring has it; else ""."""
        return self.keys.get(origin_of(address), "")

    # --- the file

    def read(self) -> None:
        """Read the file; a missing or damaged one gives nothing, and bad entries are skipped."""
        listed = self.values().get("servers")
        if not isinstance(listed, list):
            return
        for one in listed[:MAX_SERVERS]:
            if isinstance(one, dict) and (server := _checked(one)) is not None:
                self.put(server)

    def to_json(self) -> dict[str, Any]:
        """Return all servers, without keys."""
        servers = [
            {"id": s.id, "name": s.name, "address": s.address, "models": list(s.models), "has_key": s.has_key}
            for s in self.servers
        ]
        return {"schema_version": SCHEMA_VERSION, "servers": servers}


def _checked(values: dict[str, Any]) -> Server | None:
    name, server_id, models = values.get("name"), values.get("id"), values.get("models")
    if not isinstance(name, str) or not isinstance(server_id, str) or not 0 < len(server_id) <= 64:
        return None
    try:
        address = checked_address(str(values.get("address", "")))
    except InvalidRequestError:
        return None
    picked = tuple(one for one in models if is_name(one)) if isinstance(models, list) else ()
    return Server(server_id, name, address, picked, values.get("has_key") is True)
