"""Run a service as a child process of the window: requests on stdin, events on stdout, the log on stderr.

Services are the engine (host.py) and the library. This module transports messages and ensures that no process outlives
its window.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from engine import __version__
from engine.machine.cpu_and_ram import process_ram_bytes, share_heaps
from engine.service import protocol
from engine.service.host import EngineHost
from engine.service.request_events import Emit

log = logging.getLogger(__name__)

HEARTBEAT_EVERY_S = 1.0
_READ_TRIES, _BETWEEN_READS_S = 5, 0.05  # a pipe may refuse one read while its other end is being set up
LAST_BREATH_S = 1.5  # for the running request after the window closed


class Service(Protocol):
    """A service that can run as a process: EngineHost, or the library's."""

    def submit(self, request: protocol.Request) -> None: ...

    def run_pending(self, block: bool = False) -> None: ...

    def close(self) -> None: ...


def serve_stdio(make_service: Callable[[Emit], Service] = EngineHost) -> int:
    """Run a service on stdin and stdout until stdin closes or a shutdown request; return the exit code."""
    share_heaps()
    out = _private_stdout()
    write_lock = threading.Lock()
    host: Service

    def emit(message: protocol.Event | protocol.Hello) -> None:
        line = protocol.encode(message)
        with write_lock:
            try:
                out.write(line)
                out.flush()
            except (OSError, ValueError):  # the window is gone
                host.close()

    host = make_service(emit)
    emit(protocol.Hello(app_version=__version__, pid=os.getpid()))
    # Own reader: at exit the interpreter waits for sys.stdin's lock, which a blocked reader never releases.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    first = _line(requests, protocol.MAX_LINE_BYTES)
    if not first:
        return 0
    try:
        greeting = protocol.decode(first)
        if not isinstance(greeting, protocol.Hello) or greeting.version != protocol.PROTOCOL_VERSION:
            raise protocol.ProtocolError(
                f"The window speaks {first[:80]!r}, this engine protocol version {protocol.PROTOCOL_VERSION}."
            )
    except protocol.ProtocolError as error:
        emit(protocol.Failed("", type(error).__name__, error.message, error.hint))
        return 1
    threading.Thread(target=_read_requests, args=(requests, host, emit), name="requests", daemon=True).start()
    threading.Thread(target=_beat, args=(emit,), name="heartbeat", daemon=True).start()
    host.run_pending(block=True)
    return 0


def _private_stdout() -> BinaryIO:
    """Return the real stdout for the protocol; anything that libraries print goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def _read_requests(requests: BinaryIO, host: Service, emit: Emit) -> None:
    for line in _lines(requests, protocol.MAX_LINE_BYTES):
        try:
            message = protocol.decode(line)
            if not isinstance(message, protocol.Request):
                raise protocol.ProtocolError(f"A {message.type} message is not a request.")
        except protocol.ProtocolError as error:
            emit(protocol.Failed("", type(error).__name__, error.message, error.hint))
        else:
            host.submit(message)
    host.close()
    # A long native call must not keep the process alive without its window.
    time.sleep(LAST_BREATH_S)
    os._exit(0)


def _lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield the stream's lines; of a line that is too long only the first `most_bytes`."""
    while line := _line(stream, most_bytes):
        yield line
        while len(line) == most_bytes and not line.endswith(b"\n"):
            line = _line(stream, most_bytes)


def _line(stream: BinaryIO, most_bytes: int) -> bytes:
    """Return the stream's next line; b"" at its end, and if it stays unreadable: the window is lost in both cases."""
    for _ in range(_READ_TRIES):
        try:
            return stream.readline(most_bytes)
        except OSError as error:
            log.info("stdin could not be read: %s", error)
            time.sleep(_BETWEEN_READS_S)
    return b""


def _beat(emit: Emit) -> None:
    while True:
        emit(protocol.Heartbeat(ram_bytes=process_ram_bytes()))
        time.sleep(HEARTBEAT_EVERY_S)
