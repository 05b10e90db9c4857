"""A connection to the local API: who falls silent in the middle of a request's head is cut off.

The server itself bounds a head in size, and the time between two requests, but not the time that a head may take.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
MOST_CONNECTIONS = 256


class Connection(H11Protocol):
    """Of one client."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) > MOST_CONNECTIONS:
            self.transport.close()
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests and self._head_timer is None:
            self._wait_for_head()
        super().data_received(data)
        if not self._between_requests:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
