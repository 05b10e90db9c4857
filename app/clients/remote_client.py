"""Servers for the answer queue: one answer at a time, one status.

The library's process talks to the server. A request is sent only with the place that its chat chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.clients.answer_request import Answered, AnswerRequest
from app.clients.engine_status import EngineStatus, Phase
from app.clients.library_client import Library, Values
from app.clients.servers import Place

if TYPE_CHECKING:
    from engine.service import protocol


class RemoteClient(QObject):
    """All methods return at once; events are signals on the main thread."""

    status_changed = Signal(EngineStatus)
    ready = Signal()  # the next answer may be requested
    text = Signal(str)
    answered = Signal(object)  # Answered, without a result
    failed = Signal(object)  # protocol.Failed

    def __init__(self, library: Library, key_for: Callable[[Place], str] = lambda place: "") -> None:
        """key_for: the server's key if no keyring has it; empty: none."""
        super().__init__()
        self._library, self._key_for = library, key_for
        self._request = ""
        self._number = 0  # of the answer; later events of another number are ignored
        self.status = EngineStatus(phase=Phase.READY)

    @property
    def is_ready(self) -> bool:
        return not self._request

    def ask(self, request: AnswerRequest) -> None:
        """Start an answer; only if `is_ready` and the request has a place."""
        place = request.place
        assert place is not None, "what names no server is answered on this PC"
        self._number += 1
        number = self._number
        key = self._key_for(place)
        self._set(phase=Phase.THINKING, model=place.model, server=place.server.name, host=place.server.host,
                  server_here=place.server.is_here)  # fmt: skip
        self._request = self._library.ask(
            "server_chat",
            {"address": place.server.address, "name": place.server.name, "model": place.model,
             "messages": request.with_summary, "sampling": dict(request.sampling), **({"key": key} if key else {})},
            lambda result: self._finished(number, result),
            lambda failed: self._failed(number, failed),
            said=lambda token: self._said(number, token),
        )  # fmt: skip

    def stop(self) -> None:
        """Stop the running answer. It ends as cancelled."""
        if self._request:
            self._set(phase=Phase.STOPPING)
            self._library.cancel(self._request)

    def leave(self) -> None:
        """Abandon the running answer silently."""
        if self._request:
            self._library.cancel(self._request)
            self._rest()

    # --- events

    def _said(self, number: int, token: protocol.Token) -> None:
        if number == self._number and self._request:
            if self.status.phase is not Phase.STOPPING:
                self._set(phase=Phase.WRITING)
            self.text.emit(token.text)

    def _finished(self, number: int, result: Values) -> None:
        if number != self._number or not self._request:
            return
        # A request that was cancelled before it was sent has no other figures.
        figures = {"finish_reason": "cancelled"} if result.get("cancelled") else result
        self._rest()
        known = {k: v for k, v in figures.items() if k != "text" and v is not None}
        self.answered.emit(Answered(known.get("finish_reason", ""), known))
        self.ready.emit()

    def _failed(self, number: int, failed: protocol.Failed) -> None:
        if number != self._number or not self._request:
            return
        self._rest()
        self.failed.emit(failed)
        self.ready.emit()

    def _rest(self) -> None:
        """Mark the client idle."""
        self._request = ""
        self._number += 1
        self._set(phase=Phase.READY)

    def _set(self, **values: Any) -> None:
        status = replace(self.status, **values)
        if status != self.status:
            self.status = status
            self.status_changed.emit(status)
