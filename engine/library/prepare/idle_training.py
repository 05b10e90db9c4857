"""Trains predictors while nobody waits for anything: of models whose owner chose those that need no training, for now.

Who uses the library says when that is (`allow`). It is stopped within a second and goes on where it was the next time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from engine.errors import Cancelled, EngineError

log = logging.getLogger(__name__)

Pending = Callable[[], Sequence[str]]
Train = Callable[[str, Callable[[], bool]], None]

STOPS_WITHIN_S = 3.0


class IdleTraining:
    """pending: ids of the models that are to be trained. train: trains one, until it is done or told to stop.

    changed: called when `running` is another one, from the thread that trains. All methods may be called from any
    thread.
    """

    def __init__(self, pending: Pending, train: Train, changed: Callable[[], None]) -> None:
        self._pending = pending
        self._train = train
        self._changed = changed
        self._lock = threading.Lock()
        self._allowed = False
        self._held = 0  # by preparing that somebody asked for, which goes first
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failed: set[str] = set()  # not tried again by this process
        self.running = ""  # id of the model that is trained just now

    def allow(self, on: bool) -> list[str]:
        """Nobody waits for anything from now on, or somebody does; the ids of models that are still to be trained."""
        with self._lock:
            self._allowed = on
        waiting = list(self._pending())
        if on:
            self._begin()
        else:
            self._stop.set()
        return waiting

    def hold(self) -> None:
        """Something else prepares a model: stop until `release`. Cost: at most STOPS_WITHIN_S."""
        with self._lock:
            self._held += 1
            thread = self._thread
        self._stop.set()
        if thread is not None:
            thread.join(STOPS_WITHIN_S)

    def release(self) -> None:
        with self._lock:
            self._held -= 1
        self._begin()

    def close(self) -> None:
        """Stop for good; comes back at once."""
        with self._lock:
            self._allowed = False
        self._stop.set()

    def _begin(self) -> None:
        with self._lock:
            if not self._allowed or self._held:
                return
            if self._thread is not None and self._thread.is_alive():
                if not self._stop.is_set():
                    return
                self._thread.join(STOPS_WITHIN_S)  # it is on its way out
                if self._thread.is_alive():
                    return
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._work, args=(self._stop,), name="idle-training", daemon=True)
            self._thread.start()

    def _work(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                waiting = [model for model in self._pending() if model not in self._failed]
                if not waiting:
                    return
                self._tell(waiting[0])
                self._one(waiting[0], stop)
        except (EngineError, OSError) as error:
            log.info("Nothing is trained in idle time: %s", error)
        finally:
            self._tell("")

    def _one(self, model: str, stop: threading.Event) -> None:
        try:
            self._train(model, stop.is_set)
        except Cancelled:
            return
        except Exception:  # nobody asked for this, and it is no reason to end anything
            log.exception("%s is not trained in idle time", model)
            self._failed.add(model)
        else:
            if model in self._pending():  # it says that it is done, and is not
                self._failed.add(model)

    def _tell(self, model: str) -> None:
        self.running = model
        self._changed()
