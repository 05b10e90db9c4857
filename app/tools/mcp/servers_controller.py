"""Turns the user's actions on MCP servers into changes of the list, and into work in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.tools.mcp.client import Content, ListedTool, McpTools, ServerState, ToolState
from app.tools.mcp.server_list import MAX_SERVERS, Definition, Proposal, ToolServer, ToolServerError, ToolServerList
from app.translation import tr

if TYPE_CHECKING:
    from app.tools.mcp.results import Prompt, Template

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background
_Found = TypeVar("_Found")


class ToolServersController(QObject):
    """Adds, changes, inspects and removes MCP servers without blocking. Methods that can fail return a sentence for the
    user.

    changed: the list of servers, or what is known of one. looked: a server's id, and its tools or why they are unknown.
    """

    changed = Signal()
    looked = Signal(str, object)  # tuple[ListedTool, ...] | str
    _done = Signal(object)  # a callable for the main thread

    def __init__(self, servers: ToolServerList, tools: McpTools, save: Save) -> None:
        """Read nothing. tools: of the same list. save: writes a small file in the background."""
        super().__init__()
        self.servers, self._tools, self._save = servers, tools, save
        self._looking: dict[str, threading.Event] = {}  # by server; set: cancelled
        self._shown: object = None  # what `changed` was emitted for last
        self._contents: dict[str, Content] = {}
        self._done.connect(self._call, Qt.ConnectionType.QueuedConnection)

    @property
    def is_full(self) -> bool:
        return len(self.servers.servers) >= MAX_SERVERS

    def state(self, server_id: str) -> ServerState:
        return self._tools.state(server_id)

    def listed(self, server_id: str) -> tuple[ListedTool, ...]:
        """Return the tools that a server listed last, and those of it that are approved."""
        return self._tools.listed(server_id)

    def has_changed_tools(self, server_id: str) -> bool:
        """Return whether an approved tool is off because its server changed or dropped it."""
        return any(one.state in (ToolState.CHANGED, ToolState.GONE) for one in self.listed(server_id))

    @Slot()
    def refresh(self) -> None:
        """Emit `changed` if a list or a state has changed since."""
        now = [(one, self.listed(one.id), self.state(one.id)) for one in self.servers.servers]
        if now != self._shown:
            self._shown = now
            self.changed.emit()

    # --- changing

    def faults(self, server: ToolServer) -> dict[str, str]:
        """Return what is wrong with a server's fields: a sentence by the name of each wrong one."""
        is_program = server.kind == "stdio"
        name = server.name.strip() or tr("This server")
        plain = replace(server, name=name, args=(), folders=(), variables={}, headers={}, approved=())
        found = {}
        for field in ("command", "args", "folders", "variables") if is_program else ("address", "headers"):
            # the other fields are right, so that the sentence is about this one
            rest = replace(plain, command="a", address="https://example.org")
            try:
                self.servers.check(replace(rest, **{field: getattr(server, field)}))
            except ToolServerError as error:
                found[field] = error.message
        return found

    def put(self, server: ToolServer) -> ToolServer | str:
        """Add or change a server. A running one that was changed ends. Returns it as it is stored, or why it is not."""
        before = self.servers.get(server.id)
        try:
            stored = self.servers.put(server)
        except ToolServerError as error:
            return error.message
        if before is not None and stored != replace(
            before, name=stored.name, is_on=stored.is_on, approved=stored.approved
        ):
            self.stop_looking(server.id)
            self._tools.stop(server.id)
            self._contents.pop(server.id, None)
        self._keep()
        return stored

    def set_on(self, server_id: str, is_on: bool) -> str:
        """Switch a server on or off. It starts when one of its tools is called. Returns "" or why it is as before."""
        server = self.servers.get(server_id)
        if server is None:
            return ""
        stored = self.put(replace(server, is_on=is_on))
        if isinstance(stored, str):
            return stored
        if not is_on:
            self._tools.stop(server_id)
        return ""

    def approve(self, server_id: str, definitions: tuple[Definition, ...]) -> str:
        """Make these the approved definitions of a server, as the user saw them. Returns "" or why they are not."""
        try:
            self._tools.approve(server_id, definitions)
        except ToolServerError as error:
            return error.message
        self._keep()
        return ""

    def remove(self, server_id: str) -> None:
        """Remove a server, end it, and delete its private folder in the background."""
        self.stop_looking(server_id)
        self.servers.remove(server_id)
        self._keep()

        def discard() -> None:
            with suppress(ToolServerError):  # the window is closing, which ends it
                self._tools.discard(server_id)

        threading.Thread(target=discard, name="mcp-remove", daemon=True).start()

    def propose(self, file: Path) -> Proposal | str:
        """Read a file of another program. Adds nothing. Returns why it cannot be used, if so."""
        try:
            return self.servers.proposal(file)
        except ToolServerError as error:
            return error.message

    def _keep(self) -> None:
        values = self.servers.to_json()
        self._save("save the MCP servers", lambda: self.servers.save(values))
        self.refresh()

    # --- looking

    def look(self, server_id: str) -> None:
        """Start a server and ask for its tools. `looked` follows, unless it is stopped."""
        self.stop_looking(server_id)

        def take(found: tuple[ListedTool, ...] | ToolServerError) -> None:
            del self._looking[server_id]
            self.refresh()
            self.looked.emit(server_id, found.message if isinstance(found, ToolServerError) else found)

        self._looking[server_id] = self._begin(partial(self._tools.look, server_id), take)

    def stop_looking(self, server_id: str) -> None:
        """Cancel `look`, and end the server if it has not started yet."""
        stopped = self._looking.pop(server_id, None)
        if stopped is not None:
            stopped.set()
            if not self.state(server_id).is_running:
                self._tools.stop(server_id)

    # --- prompts and resources

    def known_content(self, server_id: str) -> Content | None:
        """Return the prompts and resources that a server listed last; None: it was not asked yet."""
        return self._contents.get(server_id)

    def list_content(self, server_id: str, then: Callable[[Content | ToolServerError], None]) -> threading.Event:
        """Start a server that is on, and ask for its prompts and resources. `then` gets them, or why there are none, on
        the main thread. Set the event to cancel, here and below."""

        def keep(found: Content | ToolServerError) -> None:
            if isinstance(found, Content):
                self._contents[server_id] = found
                self.changed.emit()
            then(found)

        return self._begin(partial(self._tools.content, server_id), keep)

    def fill_prompt(
        self, server_id: str, name: str, arguments: dict[str, str], then: Callable[[str | ToolServerError], None]
    ) -> threading.Event:
        """Ask for a prompt with these arguments. `then` gets its text, which is foreign."""

        def work(is_cancelled: Callable[[], bool]) -> str:
            messages = self._tools.prompt(server_id, name, arguments, is_cancelled)
            is_plain = all(role == "user" for role, _ in messages)
            return "\n\n".join(text if is_plain else f"{role}: {text}" for role, text in messages)

        return self._begin(work, then)

    def read_resource(
        self, server_id: str, address: str, then: Callable[[str | ToolServerError], None]
    ) -> threading.Event:
        """Read a resource. `then` gets its text, which is foreign."""
        return self._begin(partial(self._tools.read_resource, server_id, address), then)

    def complete(
        self,
        server_id: str,
        offer: Prompt | Template,
        argument: str,
        begun: str,
        given: Mapping[str, str],
        then: Callable[[tuple[str, ...] | ToolServerError], None],
    ) -> threading.Event:
        """Ask for proposals for an argument of a prompt or template. `then` gets them, which are foreign."""
        return self._begin(partial(self._tools.complete, server_id, offer, argument, begun, given), then)

    def _begin(
        self, work: Callable[[Callable[[], bool]], _Found], then: Callable[[_Found | ToolServerError], None]
    ) -> threading.Event:
        cancelled = threading.Event()

        def run() -> None:
            found: _Found | ToolServerError
            try:
                found = work(cancelled.is_set)
            except ToolServerError as error:
                found = error
            with suppress(RuntimeError):  # the window has closed
                self._done.emit(lambda: None if cancelled.is_set() else then(found))

        threading.Thread(target=run, name="mcp-content", daemon=True).start()
        return cancelled

    @Slot(object)
    def _call(self, ending: Callable[[], None]) -> None:
        ending()
