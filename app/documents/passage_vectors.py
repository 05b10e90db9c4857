"""Vectors for the passages of documents and for questions, made by a model in the engine while it is idle."""

from __future__ import annotations

import base64
import binascii
import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.store.operations import Operations
from app.documents.index_file import IndexFile
from app.documents.search import Asked

if TYPE_CHECKING:
    from app.documents.index_file import F32
    from engine.service.protocol import EmbedResult

log = logging.getLogger(__name__)

AT_ONCE = 8  # passages in one request
WITHIN_MS = 6_000  # for a question's vector; its words are searched without one afterwards
AGAIN_MS = 60_000  # after a failure


class EmbeddingEngine(Protocol):
    """The engine's client."""

    def embed(
        self, texts: Sequence[str], model: str, then: Callable[[EmbedResult | None], None], role: str = ""
    ) -> None:
        """Call back with the vectors of texts, or None if that failed. role: as of protocol.Embed."""


class PassageVectors(QObject):
    """Computes and stores the vectors of an index. changed: the number of passages with a vector, or `is_waiting`."""

    changed = Signal()

    def __init__(self, index: IndexFile, engine: EmbeddingEngine, work: Operations, parent: QObject) -> None:
        """work: the thread in which the index is searched."""
        super().__init__(parent)
        self._index, self._engine, self._work = index, engine, work
        self.model = ""  # id of an installed model; "": words alone are searched
        self.n_left: int | None = None  # passages without a vector; None: unknown
        self._at_once = AT_ONCE
        self._unreadable: set[int] = set()  # passages for which the model failed; until another one is chosen
        self._paused = False
        self._busy = self._closed = False
        self._again = QTimer(self, singleShot=True, interval=AGAIN_MS)
        self._again.timeout.connect(self.go_on)

    def set_model(self, model: str) -> None:
        """Use this model; "" for none."""
        if model != self.model:
            self.model, self.n_left = model, None
            self._at_once, self._unreadable = AT_ONCE, set()
            self._again.stop()
            self.go_on()
            self.changed.emit()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self.go_on()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits after a failure, to try again."""
        return self._again.isActive()

    def close(self) -> None:
        """Ask for no more vectors, and drop those that still come. Questions are not called back."""
        self._closed = self._paused = True
        self._again.stop()

    def go_on(self) -> None:
        """Give vectors to the passages that have none; call it when passages were added."""
        if self.model and not self._paused and not self._busy:
            self._busy = True
            self._work.run(
                "find passages without a vector", partial(self._missing, self.model), self._ask, self._failed
            )

    def _missing(self, model: str) -> tuple[str, list[tuple[int, str]], int]:
        self._index.open()
        rows = self._index.without_vector(model, AT_ONCE + len(self._unreadable))
        left = self._index.n_without_vector(model) if rows else 0
        rows = [row for row in rows if row[0] not in self._unreadable][: self._at_once]
        return model, rows, left if rows else 0

    def _ask(self, found: tuple[str, list[tuple[int, str]], int]) -> None:
        model, rows, self.n_left = found
        self.changed.emit()
        if not rows or model != self.model:
            self._ended(goes_on=model != self.model)
            return
        keys = [key for key, _ in rows]
        self._engine.embed([text for _, text in rows], model, partial(self._have, model, keys), "passage")

    def _have(self, model: str, keys: list[int], result: EmbedResult | None) -> None:
        if self._closed:
            return
        if result is None or len(result.vectors) != len(keys):
            self._unreadable |= set(keys) if len(keys) == 1 else set()
            self._at_once = 1  # until one succeeds, so that a single passage does not hold up the others
            self._failed(None)
            return
        self._at_once = AT_ONCE
        vectors = list(zip(keys, result.vectors, strict=True))
        self._work.run("keep vectors", partial(self._keep, model, vectors), self._kept, self._failed)

    def _keep(self, model: str, vectors: list[tuple[int, str]]) -> None:
        import numpy as np

        self._index.put_vectors(model, [(key, _numbers(one).astype(np.float16).tobytes()) for key, one in vectors])

    def _kept(self, nothing: None) -> None:
        self._ended(goes_on=not self._paused)

    def _ended(self, goes_on: bool) -> None:
        self._busy = False
        if goes_on:
            self.go_on()

    def _failed(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, sqlite3.Error | OSError | ValueError):
            raise error
        if error is not None:
            log.warning("Passages of documents get no vectors: %s", error)
        self._busy = False
        self._again.start()
        self.changed.emit()

    # --- questions

    def of_question(self, question: str, then: Callable[[Asked | None], None]) -> None:
        """Call back with a question's vector; None without a model, or if it takes too long."""
        if not self.model:
            then(None)
            return
        _Asking(self, self._engine, self.model, question, lambda asked: None if self._closed else then(asked))


class _Asking(QObject):
    """Waits for a question's vector, but not for long."""

    def __init__(
        self, parent: QObject, engine: EmbeddingEngine, model: str, question: str, then: Callable[[Asked | None], None]
    ) -> None:
        super().__init__(parent)
        self._model, self._then = model, then
        self._done = False
        QTimer.singleShot(WITHIN_MS, self, lambda: self._end(None))
        engine.embed([question], model, self._have, "query")

    def _have(self, result: EmbedResult | None) -> None:
        try:
            self._end(Asked(_numbers(result.vectors[0]), self._model) if result is not None else None)
        except (ValueError, IndexError):
            self._end(None)

    def _end(self, asked: Asked | None) -> None:
        if not self._done:
            self._done = True
            self._then(asked)
            self.deleteLater()


def _numbers(vector: str) -> F32:
    """Return a vector [d] of the protocol. Raises: ValueError."""
    import numpy as np

    try:
        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
    except binascii.Error as error:
        raise ValueError(str(error)) from error
