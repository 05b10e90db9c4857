"""The local API: switched on and off, served from its own thread, its state emitted as news.

The engine's thread answers (answering.py), the network thread takes requests (routes.py); a line of requests connects
them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.errors import Cancelled, InvalidRequestError, ServerError
from engine.local_api.access import Access
from engine.local_api.answering import ApiAnswers, Window
from engine.local_api.failures import failure_of as api_failure_of
from engine.local_api.failures import interrupted
from engine.local_api.keys import KeyCheck
from engine.local_api.served import ServedModels
from engine.local_api.turns import Line
from engine.service import protocol
from engine.service.request_events import Emit, failure_of

if TYPE_CHECKING:
    from engine.local_api.failures import ApiError

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
NEWS_EVERY_S = 0.25
LAST_WORDS_S = 1.0  # for connections still sending when it is switched off
KEEP_ALIVE_S = 30.0


class LocalApi:
    """Call `switch`, `changed` and `close` from any thread, `answer_waiting` and `clear` from the engine's.

    wake: called when a request waits.
    """

    def __init__(self, emit: Emit, window: Window, wake: Callable[[], None]) -> None:
        self._emit, self._wake = emit, wake
        self.models = ServedModels(lambda: None if window.session is None else window.session.model)
        self.unload_after_s: float | None = None
        self._line = Line(wake, self.changed)
        self._answers = ApiAnswers(self._line, window)
        self._lock = threading.Lock()  # one switch at a time
        self._running: RunningServer | None = None
        self._refused = 0
        self._last_error = ""

    def switch(self, request: protocol.Serve) -> None:
        """Run the request and emit its end. Takes about a second at worst: do not call in the engine's thread."""
        try:
            with self._lock:
                self._switch(request)
            end: protocol.Event = protocol.Finished(request.id, asdict(self.state()))
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            end = failure_of(request, error)
        self._emit(end)
        self._tell()
        self._wake()  # the time to unload may have changed

    def close(self) -> None:
        """Switch it off for good."""
        with self._lock:
            self._stop("Hearth is closing.")

    def answer_waiting(self) -> bool:
        return self._answers.answer_waiting()

    def load_ended(self, load: str, error: Exception | None = None) -> None:
        """Note the end of a Load with this model. error: why it failed, or Cancelled."""
        if isinstance(error, Cancelled):
            self._answers.load_ended(load, interrupted("The load of the model was cancelled in Hearth."))
        else:
            self._answers.load_ended(load, None if error is None else api_failure_of(error))
        self._wake()
        self.changed()

    def clear(self) -> None:
        """Drop the model, as ApiAnswers."""
        self._answers.clear()

    def changed(self) -> None:
        """Report the state soon, if it is on."""
        if (running := self._running) is not None:
            running.tell_soon()

    def state(self) -> protocol.ServerState:
        running, loaded, talking = self._running, self.models.loaded(), self._line.described()
        active = sum(one["state"] == "answering" for one in talking)
        return protocol.ServerState(
            on=running is not None,
            address="" if running is None else f"http://{HOST}:{running.port}/v1",
            model="" if loaded is None else loaded.name,
            active=active,
            waiting=len(talking) - active,
            answered=self._line.answered,
            refused=self._refused,
            last_error=self._last_error,
            talking=talking,
        )

    # --- internals

    def _switch(self, request: protocol.Serve) -> None:
        if not request.on:
            self.unload_after_s = None
            self._stop("The server was switched off.")
            return
        key = KeyCheck(request.key)
        if not 0 <= request.port <= 65535:
            raise InvalidRequestError(f"The port is {request.port}; it must be between 0 and 65535.")
        if request.unload_after_s is not None and not request.unload_after_s > 0:
            raise InvalidRequestError(f"A model cannot be unloaded after {request.unload_after_s} seconds.")
        self.models.loads, self.unload_after_s = request.loads, request.unload_after_s
        running = self._running
        if running is not None and request.port in (0, running.port):
            running.access.key = key
            return
        listening = listen_on(request.port)  # first, so that the running server stays on if this fails
        self._stop("The server moved to another port.")
        from engine.local_api.routes import Routes

        app = Routes(self._line, self.models, self._refuse).application()
        port = listening.getsockname()[1]
        self._refused, self._last_error = 0, ""
        self._line.open()
        self._running = RunningServer(listening, Access(app, key, port, self._refuse), self._tell)

    def _stop(self, why: str) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._line.close(why)
            running.stop()

    def _refuse(self, failure: ApiError) -> None:
        self._refused += 1
        self._last_error = failure.message
        self.changed()

    def _tell(self) -> None:
        self._emit(protocol.News("server", asdict(self.state())))


def listen_on(port: int) -> socket.socket:
    """Return a listening loopback socket. Raises: ServerError."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":  # otherwise two programs could share the port there
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ServerError(f"The port {port} is in use by another program.") from error
        if error.errno == errno.EACCES:
            raise ServerError(f"The system does not let Hearth use the port {port}.") from error
        raise ServerError(f"The port {port} cannot be opened: {error.strerror or error}.") from error
    listening.setblocking(False)
    return listening


class RunningServer:
    """Serves from its own thread until `stop`. tell: called in it, at most every NEWS_EVERY_S."""

    def __init__(self, listening: socket.socket, access: Access, tell: Callable[[], None]) -> None:
        import uvicorn

        from engine.local_api.connection import Connection

        self.access = access
        self.port: int = listening.getsockname()[1]
        self._listening, self._tell = listening, tell
        self._server = uvicorn.Server(
            uvicorn.Config(
                access, http=Connection, ws="none", lifespan="off", loop="asyncio", interface="asgi3",
                access_log=False, log_config=None, log_level="critical", server_header=False, proxy_headers=False,
                timeout_keep_alive=int(KEEP_ALIVE_S), timeout_graceful_shutdown=int(LAST_WORDS_S),
            )
        )  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="local-api", daemon=True)
        self._thread.start()

    def tell_soon(self) -> None:
        """Request a report from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            log.debug("The server has ended meanwhile")

    def stop(self) -> None:
        """Stop, and return when the port is free. Not from the server's own thread."""
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:
            log.exception("The local API ended by itself")
        finally:
            self._loop.close()
            self._listening.close()

    async def _serve(self) -> None:
        telling = asyncio.create_task(self._tell_news())
        try:
            await self._server.serve([self._listening])
        finally:
            telling.cancel()

    async def _tell_news(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._tell()
            await asyncio.sleep(NEWS_EVERY_S)
