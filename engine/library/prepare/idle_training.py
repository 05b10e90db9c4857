"""Train predictors while the machine is idle, for models whose user chose predictors without training for now.

The owner of the library tells when the machine is idle (`allow`). Training stops within a second and continues the next
time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from engine.errors import Cancelled, EngineError
from engine.job import CancelCheck

log = logging.getLogger(__name__)

Pending = Callable[[], Sequence[str]]
Train = Callable[[str, CancelCheck], None]

STOPS_WITHIN_S = 3.0


class IdleTraining:
    """pending: ids of models to train. train: trains one, until it is done or stopped.

    changed: called when `running` changes, from the training thread. Thread-safe.
    """

    def __init__(self, pending: Pending, train: Train, changed: Callable[[], None]) -> None:
        self._pending = pending
        self._train = train
        self._changed = changed
        self._lock = threading.Lock()
        self._allowed = False
        self._held = 0  # by preparing that the user requested, which has priority
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failed: set[str] = set()  # not tried again by this process
        self.running = ""  # id of the model that is trained just now

    def allow(self, on: bool) -> list[str]:
        """Set whether the machine is idle; return the ids of models still to train."""
        with self._lock:
            self._allowed = on
        waiting = list(self._pending())
        if on:
            self._begin()
        else:
            self._stop.set()
        return waiting

    def hold(self) -> None:
        """Stop until `release`, because something else prepares a model. Cost: at most STOPS_WITHIN_S."""
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
        """Stop for good; returns at once."""
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
        except Exception:  # background work must not end anything else
            log.exception("%s is not trained in idle time", model)
            self._failed.add(model)
        else:
            if model in self._pending():  # it says that it is done, and is not
                self._failed.add(model)

    def _tell(self, model: str) -> None:
        self.running = model
        self._changed()
