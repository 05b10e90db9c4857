"""The two ways to an MCP server, for the SDK's client: a program's stdin and stdout, and streamable HTTP.

Both are bounded: the longest message, and of a program's stderr only the end is kept. Definitions of results are
dropped: the SDK would check each result against the regular expressions in them, which can take forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter

from app.tools.mcp.confined import GRACE_S, Plan, launch_command
from engine.remote_servers.address import is_near

MAX_MESSAGE_BYTES = 32 << 20
MAX_STDERR_BYTES = 8192
CONNECT_S = 15.0


class Program:
    """A transport to a program that runs behind confined.py. Enter it once.

    ended: set when the program has closed its stdout, as it does when it ends. exit_code: None while it runs.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stderr = b""
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        self.is_endless = False  # it sent a message without end

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def last_lines(self) -> str:
        """The end of what it wrote to stderr, and of what it wrote to stdout that is not a message."""
        return self._stderr.decode(errors="replace").strip()

    async def __aenter__(self) -> Any:
        options: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x08000000}
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *launch_command(), stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_MESSAGE_BYTES, **options
        )
        assert self._process.stdin is not None
        self._process.stdin.write(self._plan.to_line())
        self._received, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, self._to_send = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (self._received, received, sent, self._to_send)
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._write(), self._read_stderr())]
        return received, sent

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if not await self._exits_within(GRACE_S + 1.0):
            self.kill()
            await self._exits_within(2.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in self._streams:
            stream.close()
        self._process._transport.close()  # type: ignore[attr-defined]  # else a pipe that another process holds warns later

    def kill(self) -> None:
        """End the program at once, with all that it started."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                self._process.send_signal(signal.SIGTERM)

    async def _exits_within(self, limit_s: float) -> bool:
        """Wait for the exit code, not for the pipes as `wait` does: a process that escaped may hold them."""
        assert self._process is not None
        until = asyncio.get_running_loop().time() + limit_s
        while self._process.returncode is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        return self._process.returncode is not None

    async def exit_code_within(self, limit_s: float) -> int | None:
        """Return the exit code once it is known; None if the program still runs then."""
        await self._exits_within(limit_s)
        return self.exit_code

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._keep(line)
                    continue
                await self._received.send(SessionMessage(without_output_schemas(message)))
        except ValueError:  # of readline
            self.is_endless = True
            self.kill()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            pass  # the session has ended
        finally:
            self.ended.set()
            self._received.close()

    async def _write(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for sent in self._to_send:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(text.encode() + b"\n")
                await self._process.stdin.drain()

    async def _read_stderr(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._stderr = (self._stderr + data[-MAX_STDERR_BYTES:])[-MAX_STDERR_BYTES:]


class WebAddress:
    """A transport over streamable HTTP. status: of the last response if it was an error, else 0."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = headers
        self._stack = contextlib.AsyncExitStack()
        self.status = 0

    async def __aenter__(self) -> Any:
        host = urlsplit(self._address).hostname or ""
        client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **self._headers},
            timeout=httpx2.Timeout(CONNECT_S, read=None),  # each request has its own time limit
            trust_env=not is_near(host),  # no proxy on the way to this PC and its network
            event_hooks={"response": [self._bound]},
        )
        await self._stack.enter_async_context(client)
        streams = streamable_http_client(
            self._address, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES, terminate_on_close=True
        )
        received, sent = await self._stack.enter_async_context(streams)
        return _Filtered(received), sent

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _bound(self, response: httpx2.Response) -> None:
        self.status = response.status_code if response.status_code >= 400 else 0
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise httpx2.DecodingError("The server compressed its answer, which Hearth did not ask for.")
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Limited(response.stream)


class _Limited(httpx2.AsyncByteStream):
    """A response's body that fails beyond MAX_MESSAGE_BYTES."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_MESSAGE_BYTES
        async for data in self._stream:
            left -= len(data)
            if left < 0:
                raise httpx2.StreamError(f"more than {MAX_MESSAGE_BYTES >> 20} MB")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Filtered:
    """The stream of received messages, without the definitions of results."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._passed(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        self._stream.close()

    def __aiter__(self) -> _Filtered:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._passed(await self._stream.__anext__())

    async def __aenter__(self) -> _Filtered:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *given: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*given)
        return ended

    @staticmethod
    def _passed(received: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(received, SessionMessage):
            received.message = without_output_schemas(received.message)
        return received


def without_output_schemas(message: JSONRPCMessage) -> JSONRPCMessage:
    """Return a message in which listed tools do not say what their results look like."""
    if isinstance(message, JSONRPCResponse) and isinstance(tools := message.result.get("tools"), list):
        for tool in tools:
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
    return message
