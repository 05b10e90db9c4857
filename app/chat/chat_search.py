"""Searches all chats in the store, and updates its search index in idle time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.chat.store.conversation import SearchHit
from app.chat.store.operations import Operations

if TYPE_CHECKING:
    from app.chat.store.store import Store

log = logging.getLogger(__name__)

INDEX_AFTER_MS = 4000  # idle time before the search index is updated
INDEX_STEP_MS = 100  # pause between its steps


class ChatSearch(QObject):
    """The search of the store, in the queue of reads."""

    def __init__(
        self, reads: Operations, store: Callable[[], Store | None], failed: Callable[[BaseException], None]
    ) -> None:
        """store: returns None until the store is open and while the window closes. failed: gets a StoreError."""
        super().__init__()
        self._reads, self._store, self._failed = reads, store, failed
        self._early: Callable[[], None] | None = None  # the search that came before the store was open
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._grow)

    def search(self, text: str, then: Callable[[list[SearchHit]], None]) -> None:
        """Search for a text; `then` gets the hits. Before the store is open, the last search waits for it."""
        store = self._store()
        self._early = None if store is not None else lambda: self.search(text, then)
        if store is not None:
            self._reads.run("search the chats", lambda: store.search(text), then, self._failed)

    def store_is_open(self) -> None:
        """Run the search that came too early, and update the index."""
        if self._early is not None:
            self._early()
        self.grow_soon()

    def grow_soon(self) -> None:
        """Update the index after some idle time, because there is new text."""
        self._timer.start(INDEX_AFTER_MS)

    def stop(self) -> None:
        """Leave the rest of the index to the next start."""
        self._timer.stop()

    def _grow(self) -> None:
        store = self._store()
        if store is None:
            return

        def next_step(there_is_more: bool) -> None:
            if there_is_more and not self._timer.isActive() and self._store() is not None:
                self._timer.start(INDEX_STEP_MS)

        def leave_it(error: BaseException) -> None:  # the search is only slower; the next answer tries again
            log.info("the search index was not updated: %s", error)

        self._reads.run("index text for search", store.grow_index, next_step, leave_it)
