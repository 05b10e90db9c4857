"""A server that the user entered, and a model of it, as plain data. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.remote_servers.address import is_this_pc

MAX_MODELS = 50  # of one server, in the menu
NAME_LENGTH = 40
CHOICE = "server"  # key in a chat's choices


@dataclass(frozen=True)
class Server:
    """address: normalized. models: picked by the user. has_key: whether a key was entered."""

    id: str
    name: str
    address: str
    models: tuple[str, ...] = ()
    has_key: bool = False

    @property
    def host(self) -> str:
        """Host and port for display."""
        return urlsplit(self.address).netloc

    @property
    def is_here(self) -> bool:
        """Whether it is another program on this PC, by its address."""
        return is_this_pc(urlsplit(self.address).hostname or "")


@dataclass(frozen=True)
class Place:
    """A model of a server: where a chat's messages go."""

    server: Server
    model: str

    @property
    def figures(self) -> dict[str, Any]:
        """The server's part of an answer's figures."""
        here = {"server_here": True} if self.server.is_here else {}
        return {"model": self.model, "server": self.server.name, **here}

    @property
    def choice(self) -> dict[str, str]:
        """The value that a chat's choices store."""
        return {"id": self.server.id, "model": self.model}
