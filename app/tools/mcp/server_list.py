"""The MCP servers that the user added, in a small JSON file. Starts nothing and asks nobody. No Qt.

A server is off until the user switches it on, and each of its tools until the user approves its definition. Files of
other programs are read as a proposal: the servers in them are off and have no approved tools.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from app.chat.store.preset_store import NAME_LENGTH, PresetStoreError, VersionedFile, free_name, read_json
from app.settings import AppPaths, paths
from app.translation import tr
from engine.plain_config import is_deep
from engine.remote_servers.address import is_near

SCHEMA_VERSION = 1
MAX_SERVERS = 50
MAX_TOOLS = 200  # of one server
MAX_ENTRY_CHARS = 200_000  # of one server in the file, with its approved definitions: about 50,000 tokens
MAX_TEXT = 8192  # characters of a command, an argument, a path or a value
MAX_DEPTH = 40  # levels of a JSON schema
MAX_ITEMS = 64  # arguments, folders, variables or headers
MAX_FILE_BYTES = 2 * MAX_SERVERS * MAX_ENTRY_CHARS

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it names a folder
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LATIN = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class ToolServerError(Exception):
    """A server that cannot be used or stored as it is. The message is a sentence for users."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class Definition:
    """A tool as its server defines it. parameters: JSON schema. annotations: the server's hints, which Hearth shows but
    does not trust.
    """

    name: str
    title: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The server's display name for the tool."""
        hint = self.annotations.get("title")
        return self.title or (hint if isinstance(hint, str) else "") or self.name

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that the user saw when they approved it."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "description": self.description,
            "parameters": dict(self.parameters), "annotations": dict(self.annotations),
        }  # fmt: skip


@dataclass(frozen=True)
class ToolServer:
    """An MCP server.

    kind: "stdio" is a program that Hearth starts with `command` and `args`; "http" is reached at `address`. folders:
    which the program may read and change. variables: its environment, besides PATH, HOME, LANG and TMPDIR. headers: of
    each request to `address`. is_confined: whether the system keeps the program out of all other folders, where it can.
    approved: the definitions that the user approved; tools defined in another way are off.
    """

    name: str
    kind: Literal["stdio", "http"]
    command: str = ""
    args: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_on: bool = False
    is_confined: bool = True
    approved: tuple[Definition, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def target(self) -> str:
        """Digest of what answers: another program or address is another server, whatever its name."""
        what = [self.kind, self.command, *self.args] if self.kind == "stdio" else [self.kind, self.address]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "name": self.name, "kind": self.kind, "command": self.command, "args": list(self.args),
            "folders": list(self.folders), "variables": dict(self.variables), "address": self.address,
            "headers": dict(self.headers), "is_on": self.is_on, "is_confined": self.is_confined,
            "approved": [one.to_json() for one in self.approved],
        }  # fmt: skip


@dataclass(frozen=True)
class Proposal:
    """The servers in a file of another program. servers: all off. refused: names, and why each cannot be used."""

    servers: tuple[ToolServer, ...]
    refused: tuple[tuple[str, str], ...] = ()


class ToolServerList(VersionedFile):
    """The user's MCP servers, in the order in which they were added."""

    def __init__(self, path: Path | None = None, places: AppPaths | None = None) -> None:
        """Read nothing. path: None keeps them in memory. places: Hearth's folders, which no server may change."""
        super().__init__(path, SCHEMA_VERSION)
        self._places = places or paths()
        self._servers: dict[str, ToolServer] = {}

    @property
    def servers(self) -> list[ToolServer]:
        return list(self._servers.values())

    def get(self, server_id: str) -> ToolServer | None:
        return self._servers.get(server_id)

    def put(self, server: ToolServer) -> ToolServer:
        """Add a server or replace the one with its id. Returns it with a unique name.

        Approvals do not carry over to another program or address. Raises ToolServerError.
        """
        before = self._servers.get(server.id)
        if before is None and len(self._servers) >= MAX_SERVERS:
            raise ToolServerError(tr("Hearth keeps at most {n} MCP servers. Remove one first.", n=MAX_SERVERS))
        name = " ".join(server.name.split())[:NAME_LENGTH] or tr("MCP server")
        name = free_name(name, [other.name for other in self.servers if other.id != server.id])
        approved = server.approved if before is None or before.target == server.target else ()
        stored = checked(replace(server, name=name, approved=approved), self._places)
        self._servers[server.id] = stored
        return stored

    def check(self, server: ToolServer) -> None:
        """Raise ToolServerError if the server cannot be used. Changes nothing."""
        checked(server, self._places)

    def remove(self, server_id: str) -> None:
        self._servers.pop(server_id, None)

    # --- the file

    def read(self) -> None:
        """Read the file; a missing or damaged one gives nothing, and bad entries are skipped."""
        values = self.values(MAX_FILE_BYTES)
        version, listed = values.get("schema_version"), values.get("servers")
        if type(version) is not int or not isinstance(listed, list):
            return
        for one in listed[:MAX_SERVERS]:
            with contextlib.suppress(ToolServerError):
                self.put(_parsed(one))

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "servers": [one.to_json() for one in self.servers]}

    def save(self, values: Mapping[str, Any]) -> None:
        """Write the values of `to_json` to a file that only this user can read. Thread-safe. Raises OSError."""
        super().save(values)
        if self._path is not None and not self._newer:
            self._path.chmod(0o600)  # variables and headers may hold keys

    # --- other programs

    def proposal(self, file: Path) -> Proposal:
        """Read `mcp.json` or `claude_desktop_config.json` of another program. Adds nothing. Raises ToolServerError."""
        try:
            values = read_json(file)
        except OSError as error:
            why = error.strerror or str(error)
            raise ToolServerError(tr("Couldn't read {name}: {why}.", name=file.name, why=why)) from error
        except PresetStoreError as error:
            raise ToolServerError(str(error)) from error
        listed = values.get("mcpServers", values.get("servers")) if isinstance(values, dict) else None
        if not isinstance(listed, dict):
            raise ToolServerError(tr("{name} lists no MCP servers.", name=file.name))
        servers: list[ToolServer] = []
        refused: list[tuple[str, str]] = []
        for name, entry in list(listed.items())[:MAX_SERVERS]:
            shown = " ".join(name.split())[:NAME_LENGTH] or tr("MCP server")
            try:
                servers.append(checked(_proposed(shown, entry), self._places))
            except ToolServerError as error:
                refused.append((shown, error.message))
        return Proposal(tuple(servers), tuple(refused))


def checked(server: ToolServer, places: AppPaths) -> ToolServer:
    """Return the server with a normalised address and folders. Raises ToolServerError if it cannot be used."""
    if server.kind not in ("stdio", "http") or not _ID.fullmatch(server.id):
        raise ToolServerError(tr("{name} is not an MCP server that Hearth can use.", name=server.name))
    texts = [server.command, *server.args, *server.folders, server.address]
    texts += [text for pairs in (server.variables, server.headers) for pair in pairs.items() for text in pair]
    groups = (server.args, server.folders, server.variables, server.headers)
    if (
        any(not isinstance(text, str) or len(text) > MAX_TEXT or "\0" in text or not _is_text(text) for text in texts)
        or any(len(group) > MAX_ITEMS for group in groups)
        or len(server.approved) > MAX_TOOLS
        or any(is_deep(one.parameters, MAX_DEPTH) or is_deep(one.annotations, MAX_DEPTH) for one in server.approved)
        or len(json.dumps(server.to_json())) > MAX_ENTRY_CHARS
    ):
        raise ToolServerError(tr("The entry of {name} is too long or damaged.", name=server.name))
    if any(not _VARIABLE.fullmatch(name) for name in server.variables):
        raise ToolServerError(
            tr("{name} has a variable whose name is not made of letters, digits and _.", name=server.name)
        )
    if any(not _HEADER.fullmatch(key) or not _LATIN.fullmatch(value) for key, value in server.headers.items()):
        raise ToolServerError(tr("{name} has a header that HTTP does not allow.", name=server.name))
    if server.kind == "http":
        return replace(server, address=checked_endpoint(server.address), command="", args=(), folders=(), variables={})
    if not server.command.strip():
        raise ToolServerError(tr("{name} has no command.", name=server.name))
    folders = tuple(_checked_folder(folder, places) for folder in server.folders)
    return replace(server, folders=folders, address="", headers={})


def checked_endpoint(text: str) -> str:
    """Return the address of an HTTP server. Plain http is allowed for this PC and its own network only.

    Raises ToolServerError.
    """
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or any(not 33 <= ord(one) < 127 for one in text.strip()):
        raise ToolServerError(tr("That is not the address of an MCP server. Write it like https://example.org/mcp."))
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ToolServerError(tr("An address must not contain a name or password. Enter a header instead."))
    if parts.scheme == "http" and not is_near(host):
        raise ToolServerError(
            tr("{host} is not in this PC's own network, and http is not encrypted. Use https.", host=host)
        )
    return parts._replace(path=parts.path if parts.path.strip("/") else "/mcp").geturl()


def _checked_folder(text: str, places: AppPaths) -> str:
    folder = Path(text).expanduser()
    if not folder.is_absolute():
        raise ToolServerError(tr("{folder} is not the full path of a folder.", folder=text))
    real = folder.resolve()
    own = [place.resolve() for place in (places.data, places.config, places.cache, places.log)]
    # A program that can write there could change what Hearth and other programs start.
    if any(place.is_relative_to(real) for place in (Path.home().resolve(), *own)) or any(map(real.is_relative_to, own)):
        raise ToolServerError(
            tr("{folder} contains Hearth's own files or all of yours. Choose a folder inside it.", folder=text)
        )
    return str(folder)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ToolServerError(tr("The entry is damaged."))
    return tuple(value)


def _pairs(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ToolServerError(tr("The entry is damaged."))
    return dict(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ToolServerError(tr("The entry is damaged."))
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ToolServerError(tr("The entry is damaged."))
    return value


def _parsed(values: Any) -> ToolServer:
    """Parse an entry of the file. Raises ToolServerError."""
    values = _object(values)
    kind = _text(values.get("kind"))
    listed = values.get("approved", [])
    if kind not in ("stdio", "http") or not isinstance(listed, list):
        raise ToolServerError(tr("The entry is damaged."))
    return ToolServer(
        id=_text(values.get("id")), name=_text(values.get("name")), kind="stdio" if kind == "stdio" else "http",
        command=_text(values.get("command", "")), args=_texts(values.get("args")),
        folders=_texts(values.get("folders")), variables=_pairs(values.get("variables")),
        address=_text(values.get("address", "")), headers=_pairs(values.get("headers")),
        is_on=values.get("is_on") is True, is_confined=values.get("is_confined") is not False,
        approved=tuple(_definitions(listed)),
    )  # fmt: skip


def _definitions(listed: Iterable[Any]) -> Iterable[Definition]:
    for one in listed:
        one = _object(one)
        yield Definition(
            _text(one.get("name")), _text(one.get("title")), _text(one.get("description")),
            _object(one.get("parameters")), _object(one.get("annotations")),
        )  # fmt: skip


def _proposed(name: str, entry: Any) -> ToolServer:
    """Parse an entry of another program's file. Raises ToolServerError."""
    entry = _object(entry)
    address = entry.get("url", entry.get("serverUrl"))
    if isinstance(entry.get("command"), str):
        return ToolServer(
            name, "stdio", command=entry["command"], args=_texts(entry.get("args")), variables=_pairs(entry.get("env"))
        )
    if isinstance(address, str):
        if entry.get("type") == "sse":
            raise ToolServerError(tr("{name} uses the old SSE transport, which Hearth does not support.", name=name))
        return ToolServer(name, "http", address=address, headers=_pairs(entry.get("headers")))
    raise ToolServerError(tr("{name} has neither a command nor an address.", name=name))
