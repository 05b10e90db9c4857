"""Previews a model's placement with another VRAM budget while a slider moves.

One request at a time; of those made meanwhile only the newest is sent.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.clients.library_client import Library, Values
from app.later import Later
from app.models.known_models import KnownModels

if TYPE_CHECKING:
    from engine.library import records
    from engine.service import protocol
else:
    records = Later("engine.library.records")

log = logging.getLogger(__name__)


class BudgetPreview(QObject):
    """All methods return at once; results are signals."""

    previewed = Signal(str, object)  # model id as requested, Estimate

    def __init__(self, library: Library, known: KnownModels) -> None:
        super().__init__()
        self._library = library
        self._known = known
        self._running = ""  # the request
        self._next: tuple[str, float | None, int | None] | None = None

    def ask(self, model: str, vram_budget_gib: float | None, context: int | None) -> None:
        """vram_budget_gib, context: None: automatic."""
        self._next = (model, vram_budget_gib, context)
        if not self._running:
            self._go_on()

    def _go_on(self) -> None:
        if self._next is None:
            return
        (model, budget, context), self._next = self._next, None
        chosen = {"model": model, "vram_budget_gib": budget, "context": context}
        arguments = {**self._known.held(), **{name: value for name, value in chosen.items() if value is not None}}
        self._running = self._library.ask("estimate", arguments, partial(self._came, model), self._missed)

    def _came(self, model: str, values: Values) -> None:
        self._running = ""
        if not values.get("cancelled") and (self._next is None or self._next[0] == model):
            self.previewed.emit(model, records.from_json(records.Estimate, values, "estimate"))
        self._go_on()

    def _missed(self, failed: protocol.Failed) -> None:
        log.info("no estimate: %s", failed.message)
        self._running = ""
        self._go_on()
