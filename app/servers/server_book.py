"""The servers that the user entered, elsewhere or other programs on this PC, in a small JSON file.

The file holds names, addresses and models, never a key. A chat is sent to a server only where its own choices name one
of these. Knows no Qt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.chat.preset_store import PresetStoreError, free_name, read_json, write_json
from app.clients.servers import CHOICE, MAX_MODELS, NAME_LENGTH, Place, Server
from engine.errors import InvalidRequestError
from engine.remote.address import checked_address, origin_of
from engine.remote.wire import is_name

SCHEMA_VERSION = 1
MAX_SERVERS = 50


class ServerBook:
    """The servers of one person, in the order in which they came."""

    def __init__(self, path: Path | None = None) -> None:
        """Nothing is read here. path: None keeps them in memory."""
        self._path = path
        self._servers: dict[str, Server] = {}
        self.keys: dict[str, str] = {}  # by origin: keys that no keyring has (yet); never written to the file
        self._newer = False  # the file belongs to a newer Hearth and stays as it is

    @property
    def servers(self) -> list[Server]:
        return list(self._servers.values())

    @property
    def places(self) -> list[Place]:
        """Every model that was picked, of every server."""
        return [Place(server, model) for server in self.servers for model in server.models]

    @property
    def is_full(self) -> bool:
        return len(self._servers) >= MAX_SERVERS

    def get(self, server_id: str) -> Server | None:
        return self._servers.get(server_id)

    def put(self, server: Server) -> Server:
        """Add a server, or put it in place of the one with its id; its name is one that no other has."""
        others = [other.name for other in self.servers if other.id != server.id]
        name = " ".join(server.name.split())[:NAME_LENGTH] or server.host
        kept = replace(server, name=free_name(name, others), models=server.models[:MAX_MODELS])
        self._servers[server.id] = kept
        return kept

    def remove(self, server_id: str) -> None:
        self._servers.pop(server_id, None)

    def place(self, choices: Mapping[str, Any]) -> Place | None:
        """Where a chat with these choices is sent; None: nowhere, it is answered on this PC."""
        chosen = choices.get(CHOICE)
        if not isinstance(chosen, dict) or not is_name(chosen.get("model")):
            return None
        server = self._servers.get(str(chosen.get("id")))
        return None if server is None else Place(server, chosen["model"])

    def key_for(self, place: Place) -> str:
        """Return the key of a server that no keyring has; empty: none."""
        return self.keys.get(origin_of(place.server.address), "")

    # -------------------------------------------------------------- the file

    def read(self) -> None:
        """Take those of the file; a missing or damaged one gives none, and single bad ones are left out."""
        if self._path is None:
            return
        try:
            values = read_json(self._path)
        except (OSError, PresetStoreError):
            return
        if not isinstance(values, dict):
            return
        version, listed = values.get("schema_version"), values.get("servers")
        self._newer = type(version) is int and version > SCHEMA_VERSION
        if self._newer or not isinstance(listed, list):
            return
        for one in listed[:MAX_SERVERS]:
            if isinstance(one, dict) and (server := _checked(one)) is not None:
                self.put(server)

    def to_json(self) -> dict[str, Any]:
        """All of them. No key is among it: there is none here."""
        servers = [
            {"id": s.id, "name": s.name, "address": s.address, "models": list(s.models), "has_key": s.has_key}
            for s in self.servers
        ]
        return {"schema_version": SCHEMA_VERSION, "servers": servers}

    def save(self, values: dict[str, Any]) -> None:
        """Write what `to_json` gave; callable from any thread. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)


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
