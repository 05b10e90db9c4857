"""One request to a server, whose response is read by its own thread.

A cancel never waits for the network, and silent or very slow servers time out. Certificates are checked, redirects are
not followed, and nothing is decompressed.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.errors import Cancelled, RemoteServerError, RemoteUnreachableError
from engine.job import CancelCheck, never
from engine.remote_servers.address import is_this_pc

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 10.0
FIRST_S = 300.0  # until the first byte: a busy server queues requests
STALL_S = 120.0  # between two blocks
WHOLE_S = 3600.0
MAX_BYTES = 64 << 20
LOOK_EVERY_S = 0.03
_PIECES_AHEAD = 64


class Connection:
    """A single-use connection; close it afterwards. name: of the server, for messages."""

    def __init__(self, name: str, cancelled: CancelCheck = never) -> None:
        self._name = name
        self._cancelled = cancelled
        self._came: queue.Queue[Any] = queue.Queue(_PIECES_AHEAD)
        self._gone = threading.Event()
        self._stream: Any = None  # network stream, once connected
        self._began = time.monotonic()

    # --- for the caller

    def open(self, method: str, url: str, headers: dict[str, str], body: Any = None) -> httpx2.Response:
        """Return the response's head. Raises: Cancelled, RemoteUnreachableError, RemoteServerError."""
        threading.Thread(
            target=self._read, args=(method, url, headers, body), daemon=True, name="remote-server"
        ).start()
        for came in self._pieces():
            if came is not None:
                return came  # type: ignore[no-any-return]
        raise AssertionError("the head comes first")

    def blocks(self) -> Iterator[bytes | None]:
        """Yield bytes as they arrive, at most MAX_BYTES; None whenever nothing arrived for a moment.

        Raises: as `open`.
        """
        n_bytes = 0
        for came in self._pieces():
            if came is not None:
                n_bytes += len(came)
                if n_bytes > MAX_BYTES:
                    raise RemoteServerError(f"{self._name} sends more than an answer can be long.")
            yield came

    def close(self) -> None:
        """End the connection, from any thread. The server sees that it was closed."""
        self._gone.set()
        stream = self._stream
        connection = None if stream is None else stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # may be closed already; plain socket only, because the reading thread closes TLS
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _pieces(self) -> Iterator[Any]:
        """Yield what the thread delivers until it is done, and None for every moment without data."""
        last = time.monotonic()
        patience = FIRST_S
        while True:
            if self._cancelled():
                raise Cancelled
            try:
                came = self._came.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                if time.monotonic() - last > patience:
                    raise RemoteUnreachableError(f"{self._name} went silent.") from None
                yield None
                continue
            if time.monotonic() - self._began > WHOLE_S:
                raise RemoteServerError(f"{self._name} did not end within an hour.")
            if isinstance(came, BaseException):
                raise came
            if came is None:
                return
            last, patience = time.monotonic(), STALL_S if isinstance(came, bytes) else FIRST_S
            yield came

    # --- the thread that reads

    def _read(self, method: str, url: str, headers: dict[str, str], body: Any) -> None:
        import httpx2

        timeout = httpx2.Timeout(FIRST_S, connect=CONNECT_S)
        # Requests to this PC never use a proxy, whatever the environment says.
        near = is_this_pc(urlsplit(url).hostname or "")
        try:
            with (
                httpx2.Client(follow_redirects=False, timeout=timeout, trust_env=not near) as client,
                client.stream(
                    method, url, headers={"User-Agent": "hearth", "Accept-Encoding": "identity", **headers},
                    json=body, extensions={"trace": self._trace},
                ) as response,
            ):  # fmt: skip
                self._hand_over(response)
                for block in response.iter_raw():
                    self._hand_over(block)
                    if self._gone.is_set():
                        return
            self._hand_over(None)
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            self._hand_over(self._in_words(error))

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        stream = info.get("return_value")
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")) and stream is not None:
            self._stream = stream
            if self._gone.is_set():
                self.close()

    def _hand_over(self, piece: Any) -> None:
        while not self._gone.is_set():
            with suppress(queue.Full):
                self._came.put(piece, timeout=0.2)
                return

    def _in_words(self, error: Exception) -> Exception:
        import httpx2

        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                return RemoteServerError(
                    f"The certificate of {self._name} is not trusted, so nothing was sent.",
                    "Check this PC's clock and the server's address.",
                )
            return RemoteUnreachableError(f"{self._name} cannot be reached.")
        if isinstance(error, httpx2.TimeoutException):
            return RemoteUnreachableError(f"{self._name} went silent.")
        if isinstance(error, httpx2.TransportError | httpx2.StreamError):
            return RemoteUnreachableError(f"The connection to {self._name} was lost.")
        if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | ValueError):
            return RemoteServerError(f"{self._name} answers in another way than such servers do.")
        return error
