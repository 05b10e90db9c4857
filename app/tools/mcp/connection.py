"""One connection to one MCP server, from its start to its end. Runs in the event loop of client.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

import engine
from app.tools.mcp.plans import plan_of
from app.tools.mcp.server_list import MAX_DEPTH, MAX_ENTRY_CHARS, MAX_TOOLS, Definition, ToolServer, ToolServerError
from app.tools.mcp.transports import Program, WebAddress
from app.tools.questions import Question, Reply
from app.translation import figure, tr
from engine.plain_config import is_deep

MAX_PAGES = 50
MAX_SHOWN_CHARS = 600  # of what a server wrote, in a sentence
LAST_LINES = 8
EXIT_CODE_S = 3.0  # time for a program to end after it closed its stdout
MOST_OPEN_QUESTIONS, MOST_QUESTIONS = 3, 20  # at once, and during calls that overlap; the rest are cancelled
RELIST_S = 1.0  # least time between two lists, however often a server says that they changed

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds. start_s: until a server has listed its tools; the first start may download it. call_s: of
    a call, without the time that the user takes to answer a server's question. idle_s: without a call; then it ends.
    """

    start_s: float = 90.0
    call_s: float = 120.0
    idle_s: float = 300.0


class SessionLostError(ToolServerError):
    """An HTTP server does not know the session, and did nothing. The connection ends."""


Ask = Callable[[Question], Reply]


class Connection:
    """A connection that has been started. listed: called with the server's tools, at first and whenever they change.

    ask: called in a thread of its own; returns the user's reply. None: the server learns that Hearth asks nothing.
    """

    def __init__(
        self,
        server: ToolServer,
        private: Path,
        limits: Limits,
        ask: Ask | None,
        listed: Callable[[tuple[Definition, ...]], None],
    ) -> None:
        self.server = server
        self.is_confined = False
        self.definitions: dict[str, Definition] = {}
        self.fault = ""  # why it ended, as a sentence; "": it was stopped
        self._private = private
        self._limits = limits
        self._ask = ask
        self._listed = listed
        self._transport: Program | WebAddress | None = None
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()
        self._stopping = False
        self._list_changed = False
        self._n_busy = 0
        self._used = self._now()
        self._deadlines: set[asyncio.Timeout] = set()
        self._n_open = self._n_asked = 0  # questions to the user: now, and since calls run
        self.task = asyncio.create_task(self._run())

    @property
    def has_ended(self) -> bool:
        return self._stopping or self.task.done()

    @property
    def is_ready(self) -> bool:
        return self._ready.done() and not self.has_ended

    @property
    def last_lines(self) -> str:
        return self._transport.last_lines if isinstance(self._transport, Program) else ""

    def stop(self, at_once: bool = False) -> None:
        """Begin to end the server. at_once: do not give it the time to end by itself."""
        self._stopping = True
        self._wake.set()
        if at_once and isinstance(self._transport, Program):
            self._transport.kill()
        if at_once and not (self._ready.done() and isinstance(self._transport, Program)):
            self.task.cancel()

    async def ready(self) -> None:
        """Wait until the server has listed its tools. Raises ToolServerError."""
        waiting: list[asyncio.Future[Any]] = [self.task, self._ready]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self.has_ended:
            raise ToolServerError(self.fault or tr("{name} was stopped.", name=self.server.name))

    async def request(self, work: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        """Return what the work with the SDK's client gives, within the time of a call. Raises ToolServerError."""
        await self.ready()
        client = self._ready.result()
        if not self._n_busy:
            self._n_asked = 0
        self._n_busy += 1
        working = asyncio.ensure_future(work(client))
        deadline = asyncio.timeout(self._limits.call_s)
        try:
            async with deadline:
                self._deadlines.add(deadline)
                await asyncio.wait({working, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ToolServerError(self.fault or tr("{name} was stopped.", name=self.server.name))
            return working.result()
        except TimeoutError:
            raise ToolServerError(self._no_answer(self._limits.call_s)) from None
        except ToolServerError:
            raise
        except Exception as error:
            sentence = await self._reason(_first(error))
            if isinstance(self._transport, WebAddress) and self._transport.status == 404:
                self.stop()
                raise SessionLostError(sentence) from error
            if isinstance(self._transport, Program) and self._transport.ended.is_set():
                await asyncio.wait({self.task}, timeout=EXIT_CODE_S)  # its state is known when the call has ended
            raise ToolServerError(sentence) from error
        finally:
            self._deadlines.discard(deadline)
            self._n_busy -= 1
            self._used = self._now()
            if not working.done():
                working.cancel()
                await asyncio.wait({working}, timeout=1.0)
            if working.done() and not working.cancelled():
                working.exception()  # seen: no warning of asyncio's

    # --- the task

    async def _run(self) -> None:
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._limits.start_s) as starting:
                transport = self._opened()
                async with Client(
                    transport,
                    cache=None,
                    client_info=types.Implementation(name="hearth", version=engine.__version__),
                    message_handler=self._on_message,
                    elicitation_callback=None if self._ask is None else self._on_question,
                ) as client:
                    await self._list(client)
                    starting.deadline = math.inf
                    self._used = self._now()
                    self._ready.set_result(client)
                    await self._serve(client)
            if starting.cancelled_caught:
                self.fault = self._no_answer(self._limits.start_s)
        except asyncio.CancelledError:
            self.fault = self.fault or tr("{name} was stopped.", name=self.server.name)
        except BaseException as error:  # noqa: BLE001 - whatever a server does to the SDK, the reason is the server
            self.fault = self.fault or await self._reason(_first(error))
        finally:
            self._ready.cancel()

    def _opened(self) -> Program | WebAddress:
        if self.server.kind == "http":
            self._transport = WebAddress(self.server.address, self.server.headers)
        else:
            self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
            plan = plan_of(self.server, self._private)
            self.is_confined = plan.is_confined
            self._transport = Program(plan)
        return self._transport

    async def _serve(self, client: Client) -> None:
        """Wait until the server ends, is stopped or was not used for a while; list its tools when they change."""
        others = [asyncio.create_task(self._follow(client))]
        if isinstance(self._transport, Program):
            others.append(asyncio.create_task(self._watch(self._transport)))
        try:
            may_list = 0.0
            while not self._stopping:
                now = self._now()
                ends = (now if self._n_busy else self._used) + self._limits.idle_s
                if ends <= now:
                    return
                if self._list_changed and may_list <= now:
                    self._list_changed = False
                    with anyio.fail_after(self._limits.start_s):
                        await self._list(client)
                    may_list = self._now() + RELIST_S
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(ends, may_list) if self._list_changed else ends):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._stopping = True
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _watch(self, program: Program) -> None:
        await program.ended.wait()
        self.fault = self.fault or await self._end_of(program)
        self._stopping = True
        self._wake.set()

    async def _follow(self, client: Client) -> None:
        """In the newer protocol, subscribe to changes of the list; in the older one they come by themselves."""
        can = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or can is None or not can.list_changed:
            return
        with contextlib.suppress(MCPError, RuntimeError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._relist()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._relist()

    def _relist(self) -> None:
        self._list_changed = True
        self._wake.set()

    async def _list(self, client: Client) -> None:
        found: dict[str, Definition] = {}
        n_chars, cursor = 0, None
        if client.server_capabilities.tools is not None:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                for tool in page.tools:
                    definition = _definition(tool)
                    n_chars += len(json.dumps(definition.to_json()))
                    if (
                        len(found) >= MAX_TOOLS
                        or n_chars > MAX_ENTRY_CHARS // 2
                        or is_deep(definition.parameters, MAX_DEPTH)
                    ):
                        raise ToolServerError(
                            tr(
                                "{name} defines too many tools, or too long ones: more than {n} or {chars} characters.",
                                name=self.server.name,
                                n=MAX_TOOLS,
                                chars=figure(MAX_ENTRY_CHARS // 2, ",d"),
                            )
                        )
                    found.setdefault(definition.name, definition)
                cursor = page.next_cursor
                if cursor is None:
                    break
        self.definitions = found
        self._listed(tuple(found.values()))

    async def _on_question(self, context: Any, params: Any) -> types.ElicitResult | types.ErrorData:
        """Put a server's question to the user, if a call of it runs. Pages that it wants to open are declined."""
        if self._ask is None or not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline")
        is_flood = self._n_open >= MOST_OPEN_QUESTIONS or self._n_asked >= MOST_QUESTIONS
        if is_flood or not self._n_busy or _is_large(params.requested_schema):
            return types.ElicitResult(action="cancel")
        self._n_open += 1
        self._n_asked += 1
        for deadline in self._deadlines:
            deadline.reschedule(None)
        question = Question(self.server.name, params.message[:MAX_ENTRY_CHARS], params.requested_schema)
        try:
            reply = await _in_thread(self._ask, question)
        finally:
            self._n_open -= 1
            for deadline in () if self._n_open else tuple(self._deadlines):
                if deadline.when() is None:
                    deadline.reschedule(self._now() + self._limits.call_s)
        content = dict(reply.values) if reply.action == "accept" else None
        return types.ElicitResult(action=reply.action, content=content)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # --- sentences

    async def _reason(self, error: BaseException) -> str:
        if isinstance(error, ToolServerError):
            return error.message
        if isinstance(error, MCPError):
            return await self._refusal(error)
        if isinstance(error, httpx2.TransportError) and self.server.kind == "http":
            host = urlsplit(self.server.address).netloc
            why = str(error)[:MAX_SHOWN_CHARS] or tr("no reason was given")
            return tr("{name} could not be reached at {host}: {why}.", name=self.server.name, host=host, why=why)
        if isinstance(self._transport, Program) and self._transport.ended.is_set():
            return await self._end_of(self._transport)
        if isinstance(error, OSError) and self.server.kind == "stdio":
            why = error.strerror or str(error)
            return tr("{name} could not be started: {why}.", name=self.server.name, why=why)
        return self._broken(error)

    async def _refusal(self, error: MCPError) -> str:
        """Return the sentence for an error that came in place of an answer."""
        name, transport = self.server.name, self._transport
        if isinstance(transport, Program) and (transport.ended.is_set() or error.code == types.CONNECTION_CLOSED):
            return await self._end_of(transport)
        if error.code == types.CONNECTION_CLOSED and asyncio.current_task() is not self.task:
            await asyncio.wait({self.task}, timeout=EXIT_CODE_S)  # it knows why
            if self.fault:
                return self.fault
        if isinstance(transport, WebAddress) and transport.status in (401, 403):
            return tr(
                "{name} answered with HTTP status {status}: it requires a key. Enter it as a header of the server.",
                name=name,
                status=transport.status,
            )
        if isinstance(transport, WebAddress) and transport.status:
            return tr("{name} answered with HTTP status {status}.", name=name, status=transport.status)
        why = error.message[:MAX_SHOWN_CHARS]
        return tr("{name} answered with an error: {why}", name=name, why=why)

    async def _end_of(self, program: Program) -> str:
        code = await program.exit_code_within(EXIT_CODE_S)
        if program.is_endless:
            sentence = tr("{name} sent a message without end and was stopped.", name=self.server.name)
        elif code is None:
            sentence = tr("{name} closed its output and was stopped.", name=self.server.name)
        else:
            sentence = tr("{name} ended with code {code}.", name=self.server.name, code=code)
        return sentence + self._quoted()

    def _no_answer(self, limit_s: float) -> str:
        seconds = figure(limit_s, ".3g")
        return tr("{name} did not answer within {n}\u202fs.", name=self.server.name, n=seconds) + self._quoted()

    def _broken(self, error: BaseException) -> str:
        why = str(error)[:MAX_SHOWN_CHARS] or tr("no reason was given")
        return tr("{name} violated the protocol: {why}", name=self.server.name, why=why)

    def _quoted(self) -> str:
        lines = [line.strip() for line in self.last_lines.splitlines() if line.strip()][-LAST_LINES:]
        shown = "\n".join(lines)[-MAX_SHOWN_CHARS:]
        return " " + tr("Its last lines:") + "\n" + shown if shown else ""


async def _in_thread(ask: Ask, question: Question) -> Reply:
    """Run a callback that may wait for the user. Its thread does not keep Hearth from ending."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Reply] = loop.create_future()

    def put(answer: Reply) -> None:
        if not answered.done():
            answered.set_result(answer)

    def run() -> None:
        answer = Reply("cancel")
        try:
            answer = ask(question)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(put, answer)

    threading.Thread(target=run, name="mcp-question", daemon=True).start()
    return await answered


def _is_large(schema: Any) -> bool:
    try:
        return is_deep(schema, MAX_DEPTH) or len(json.dumps(schema)) > MAX_ENTRY_CHARS
    except (ValueError, RecursionError):  # a number of thousands of digits
        return True


def _definition(tool: types.Tool) -> Definition:
    annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else {}
    return Definition(tool.name, tool.title or "", tool.description or "", tool.input_schema, annotations)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
