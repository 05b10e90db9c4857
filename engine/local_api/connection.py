"""A connection to the local API. Clients that are silent in a request's head, or keep sending after a refusal, are cut
off.

The server library limits a head's size and the time between requests, but not the duration of a head or the data after
its answer. If all connections are in use, those without the key are closed for new ones.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.local_api.access import LET_IN

HEAD_S = 10.0
MOST_CONNECTIONS = 256
MOST_UNREAD_BYTES = 32 << 20  # of a body after its request was answered: a smaller one lets the client read the answer


class Connection(H11Protocol):
    _head_timer: asyncio.TimerHandle | None = None
    _opened_at = 0.0
    _unread_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._opened_at = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            others = (cast(Connection, one) for one in self.connections)
            without_key = [one for one in others if not one._is_let_in and one is not self]
            oldest = min(without_key, key=lambda one: one._opened_at, default=self)
            oldest.transport.abort()
            if oldest is self:
                return
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests and self._head_timer is None:
            self._wait_for_head()
        if self._between_requests and self.conn.their_state is h11.SEND_BODY:
            self._unread_bytes += len(data)
            if self._unread_bytes > MOST_UNREAD_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        if not self._between_requests:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_let_in(self) -> bool:
        """Return whether a request with the key is in progress."""
        return not self._between_requests and bool(self.cycle.scope.get(LET_IN))

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
