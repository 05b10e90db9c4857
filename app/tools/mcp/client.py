"""The tools of the user's MCP servers, as a source of tools for chats.

One background thread serves all servers. A server starts when one of its tools is called, or when the user looks at its
tools; never with Hearth. It ends when it was not used for a while, and with Hearth. No Qt.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.later import Later
from app.tools.call_text import unhidden
from app.tools.mcp.server_list import Definition, ToolServer, ToolServerError, ToolServerList
from app.tools.tool import Scope, Tool, ToolResult
from app.translation import tr

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures

    from mcp import Client

    from app.tools.mcp.connection import Ask, Connection, Limits
    from app.tools.mcp.results import Prompt, Resource, Template
else:
    asyncio, futures = Later("asyncio"), Later("concurrent.futures")

LONGEST_NAME = 64  # of a tool, for the model
LOOK_EVERY_S = 0.05  # whether a call is cancelled
CLOSE_S = 5.0

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_Work = Callable[["Client"], Awaitable[_Answer]]


class ToolState(StrEnum):
    """The approval of a tool. Only an APPROVED tool can be called."""

    APPROVED = "approved"
    NEW = "new"  # not approved yet
    CHANGED = "changed"  # its definition is not the approved one
    GONE = "gone"  # approved, but the server offers it no longer


@dataclass(frozen=True)
class ListedTool:
    """A tool of a server and its state. approved: the definition that the user approved, to compare a changed one."""

    definition: Definition
    state: ToolState
    approved: Definition | None = None


@dataclass(frozen=True)
class ServerState:
    """sentence: why it ended, if not as requested. is_confined: whether the system keeps it out of the user's other
    files; None if it has not been started, or runs elsewhere. last_lines: of its stderr.
    """

    is_running: bool = False
    sentence: str = ""
    is_confined: bool | None = None
    last_lines: str = ""


@dataclass(frozen=True)
class Content:
    """The offers of a server beside its tools. completes: whether it proposes values for arguments."""

    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[Template, ...] = ()
    completes: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.prompts or self.resources or self.templates)


class McpTools:
    """Offers the approved tools of the servers that are on (a ToolSource).

    servers: changed on the main thread only, and saved by the caller. folder: in which each program gets a private
    folder. ask: see Connection. changed: called in the background thread when a list or a state has changed.
    """

    def __init__(
        self,
        servers: ToolServerList,
        folder: Path,
        limits: Limits | None = None,
        ask: Ask | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.servers = servers
        self._folder = folder
        self._limits = limits
        self._ask = ask
        self._changed = changed
        self._lock = threading.Lock()  # of the thread's start and end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._connections: dict[str, Connection] = {}  # by server; the loop's own
        self._states: dict[str, ServerState] = {}
        self._listed: dict[str, tuple[Definition, ...]] = {}  # what each server listed last

    # --- the source of tools

    def tools(self) -> tuple[Tool, ...]:
        return tuple(
            Tool(
                name=name,
                title=definition.label,
                description=definition.description,
                parameters=definition.parameters,
                source=server.name,
                digest=definition.digest,
            )
            for name, (server, definition) in self._offered().items()
        )

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        """Return the server, the tool and its definition: a consent lasts until one of them changes."""
        found = self._offered().get(name)
        if found is None:
            return Scope(f"mcp:{name}:gone", name)
        server, definition = found
        key = f"mcp:{server.id}:{server.target}:{definition.name}:{definition.digest}"
        return Scope(key, tr("{tool} of {server}", tool=definition.label, server=server.name))

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        found = self._offered().get(name)
        if found is None:
            return ToolResult(tr("The tool {name} is not available.", name=name), is_error=True)
        server, definition = found
        try:
            return self._result(self._called(server, definition, dict(arguments)), is_cancelled)
        except ToolServerError as error:
            return ToolResult(error.message, is_error=True)

    # --- what the user does with a server

    def look(self, server_id: str, is_cancelled: Callable[[], bool] = lambda: False) -> tuple[ListedTool, ...]:
        """Start a server, even one that is off, and return its tools. Blocks. Raises ToolServerError."""
        self._result(self._started(server_id), is_cancelled)
        return self.listed(server_id)

    def content(self, server_id: str, is_cancelled: Callable[[], bool] = lambda: False) -> Content:
        """Start a server that is on, and return its prompts and resources. Blocks. Raises ToolServerError, as the next
        three do."""
        from app.tools.mcp.results import prompts_of, resources_of, templates_of

        async def all_of(client: Client) -> Content:
            completes = client.server_capabilities.completions is not None
            return Content(await prompts_of(client), await resources_of(client), await templates_of(client), completes)

        return self._result(self._asked(server_id, all_of), is_cancelled)

    def complete(
        self,
        server_id: str,
        offer: Prompt | Template,
        argument: str,
        begun: str,
        given: Mapping[str, str],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[str, ...]:
        """Return proposals for an argument, as completions_of. Blocks."""
        from app.tools.mcp.results import completions_of

        work = self._asked(server_id, lambda client: completions_of(client, offer, argument, begun, given))
        return self._result(work, is_cancelled)

    def read_resource(self, server_id: str, address: str, is_cancelled: Callable[[], bool] = lambda: False) -> str:
        """Return a resource as text, which is foreign. Blocks."""
        from app.tools.mcp.results import cut, text_of

        answer = self._result(self._asked(server_id, lambda client: client.read_resource(address)), is_cancelled)
        return cut(unhidden(text_of(answer.contents)))

    def prompt(
        self,
        server_id: str,
        name: str,
        arguments: Mapping[str, str],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[tuple[str, str], ...]:
        """Return a filled-in prompt as messages: "user" or "assistant", and untrusted text. Blocks."""
        from app.tools.mcp.results import cut, text_of

        work = self._asked(server_id, lambda client: client.get_prompt(name, dict(arguments)))
        answer = self._result(work, is_cancelled)
        return tuple((message.role, cut(unhidden(text_of([message.content])))) for message in answer.messages)

    def listed(self, server_id: str) -> tuple[ListedTool, ...]:
        """Return the tools that a server listed last, and those of it that are approved. Returns at once."""
        server = self.servers.get(server_id)
        if server is None:
            return ()
        approved = {one.name: one for one in server.approved}
        listed = self._listed.get(server_id)
        if listed is None:
            return tuple(ListedTool(one, ToolState.APPROVED, one) for one in server.approved)
        found = [ListedTool(one, _state(one, approved.get(one.name)), approved.get(one.name)) for one in listed]
        names = {one.name for one in listed}
        return (*found, *(ListedTool(one, ToolState.GONE, one) for one in server.approved if one.name not in names))

    def approve(self, server_id: str, definitions: tuple[Definition, ...]) -> ToolServer:
        """Make these the approved definitions of a server, as the user saw them. Raises ToolServerError."""
        server = self.servers.get(server_id)
        if server is None:
            raise ToolServerError(tr("That MCP server was removed or switched off."))
        return self.servers.put(replace(server, approved=definitions))

    def state(self, server_id: str) -> ServerState:
        return self._states.get(server_id, ServerState())

    def stop(self, server_id: str) -> None:
        """End a server. Returns at once; `changed` follows."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(lambda: self._stop(server_id))

    def discard(self, server_id: str) -> None:
        """End a server that was removed from the list, and delete its private folder. Blocks for a second or two."""
        if self._loop is not None:
            self._result(self._stopped(server_id), lambda: False)
        self._listed.pop(server_id, None)
        self._states.pop(server_id, None)
        shutil.rmtree(self._folder / server_id, ignore_errors=True)

    def close(self) -> None:
        """End all servers at once, for good. Blocks for at most CLOSE_S."""
        with self._lock:
            self._is_closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._close(), loop)
        try:
            closing.result(CLOSE_S)
        except (futures.TimeoutError, futures.CancelledError):
            log.info("not all MCP servers ended in time")
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)

    # --- within

    def _offered(self) -> dict[str, tuple[ToolServer, Definition]]:
        """Return the tools that can be called, by their names for the model."""
        pairs = []
        for server in self.servers.servers:
            listed = self._listed.get(server.id)
            now = None if listed is None else {one.name: one.digest for one in listed}
            for definition in server.approved if server.is_on else ():
                if now is None or now.get(definition.name) == definition.digest:
                    pairs.append((server, definition))
        return named(pairs)

    def _result(self, work: Coroutine[Any, Any, _Answer], is_cancelled: Callable[[], bool]) -> _Answer:
        """Run a coroutine in the background thread. Raises ToolServerError."""
        try:
            loop = self._running_loop()
        except ToolServerError:
            work.close()
            raise
        running = asyncio.run_coroutine_threadsafe(work, loop)
        while not futures.wait([running], LOOK_EVERY_S).done:
            if is_cancelled() or self._is_closed:
                running.cancel()
                raise ToolServerError(tr("The call was cancelled."))
        try:
            return running.result()
        except futures.CancelledError:
            raise ToolServerError(tr("The call was cancelled.")) from None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise ToolServerError(tr("The call was cancelled."))
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="mcp", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        for name in ("mcp", "client", "httpx2"):  # they quote what servers send, and addresses, which may hold keys
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    # In the loop from here on.

    async def _called(self, server: ToolServer, definition: Definition, arguments: dict[str, Any]) -> ToolResult:
        from app.tools.mcp.results import result_of

        def checked(connection: Connection) -> None:
            self._check(connection, server, definition)

        answer = await self._asked(server.id, lambda client: client.call_tool(definition.name, arguments), checked)
        return result_of(answer)

    @staticmethod
    def _check(connection: Connection, server: ToolServer, definition: Definition) -> None:
        """Raise ToolServerError unless the running server defines the tool as the user approved it."""
        now = connection.definitions.get(definition.name)
        if now is None:
            raise ToolServerError(
                tr("{server} no longer offers the tool {tool}.", server=server.name, tool=definition.name)
            )
        if now.digest != definition.digest:
            raise ToolServerError(
                tr(
                    "{server} changed the tool {tool} since you approved it. Look at its tools and approve it again.",
                    server=server.name,
                    tool=definition.name,
                )
            )

    async def _asked(
        self, server_id: str, work: _Work[_Answer], check: Callable[[Connection], None] = lambda _: None
    ) -> _Answer:
        """Let a server do some work, and once more if it has forgotten the session, as it does when it restarts."""
        from app.tools.mcp.connection import SessionLostError

        for is_last in (False, True):
            server = self.servers.get(server_id)
            if server is None or not server.is_on:
                break
            connection = await self._started(server_id)
            check(connection)
            try:
                return await connection.request(work)
            except SessionLostError:
                if is_last:
                    raise
            finally:
                self._note(server_id)
        raise ToolServerError(tr("That MCP server was removed or switched off."))

    async def _started(self, server_id: str) -> Connection:
        from app.tools.mcp.connection import Connection, Limits

        server = self.servers.get(server_id)
        if server is None:
            raise ToolServerError(tr("That MCP server was removed or switched off."))
        connection = self._connections.get(server_id)
        if connection is not None and not _runs_as(connection.server, server):
            await self._stopped(server_id)
            connection = None
        if connection is None or connection.has_ended:
            if connection is not None:
                await asyncio.wait({connection.task})
            connection = self._connections.get(server_id)
            if connection is None or connection.has_ended:  # nobody else started it meanwhile
                limits, private = self._limits or Limits(), self._folder / server_id
                connection = Connection(server, private, limits, self._ask, lambda found: self._keep(server_id, found))
                self._connections[server_id] = connection
                connection.task.add_done_callback(lambda _: self._note(server_id))
        await connection.ready()
        self._note(server_id)
        return connection

    def _keep(self, server_id: str, found: tuple[Definition, ...]) -> None:
        self._listed[server_id] = found
        self._changed()

    def _note(self, server_id: str) -> None:
        connection = self._connections.get(server_id)
        if connection is None:
            return
        confined = connection.is_confined if connection.server.kind == "stdio" else None
        state = ServerState(connection.is_ready, connection.fault, confined, connection.last_lines)
        if self._states.get(server_id) != state:
            self._states[server_id] = state
            self._changed()

    def _stop(self, server_id: str) -> None:
        if (connection := self._connections.get(server_id)) is not None:
            connection.stop()

    async def _stopped(self, server_id: str) -> None:
        connection = self._connections.get(server_id)
        if connection is not None:
            connection.stop()
            await asyncio.wait({connection.task})

    async def _close(self) -> None:
        for connection in self._connections.values():
            connection.stop(at_once=True)
        if self._connections:
            await asyncio.wait({connection.task for connection in self._connections.values()})


def named(tools: list[tuple[ToolServer, Definition]]) -> dict[str, tuple[ToolServer, Definition]]:
    """Give tools unique names that models accept. Names that would be equal or too long get a part of a digest."""
    plain = [re.sub(r"[^A-Za-z0-9_-]+", "_", f"{server.name}_{definition.name}") for server, definition in tools]
    counts = Counter(plain)
    found = {}
    for name, (server, definition) in zip(plain, tools, strict=True):
        if len(name) > LONGEST_NAME or counts[name] > 1:
            digest = hashlib.sha256(f"{server.id}:{definition.name}".encode()).hexdigest()[:8]
            name = f"{name[: LONGEST_NAME - 9]}_{digest}"
        found[name] = (server, definition)
    return found


def _state(now: Definition, approved: Definition | None) -> ToolState:
    if approved is None:
        return ToolState.NEW
    return ToolState.APPROVED if now.digest == approved.digest else ToolState.CHANGED


def _runs_as(running: ToolServer, wanted: ToolServer) -> bool:
    """Return whether a running server has all the settings that its start depends on."""
    same = ToolServer(name="", kind=running.kind, id=running.id)
    return all(
        getattr(running, name) == getattr(wanted, name)
        for name in vars(same)
        if name not in ("name", "is_on", "approved")
    )
