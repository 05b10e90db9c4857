"""Everything that the library's jobs share, created on first use: library, catalogue, hub, queue.

One of each per process, shared by all job threads. library_jobs.py uses them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.job import CancelCheck
from engine.library.prepare.idle_training import IdleTraining

if TYPE_CHECKING:
    from engine.library.estimate.catalogue import Catalogue, Estimates
    from engine.library.estimate.machines import KnownMachine
    from engine.library.estimate.preview import Previews
    from engine.library.hub.credentials import Credentials
    from engine.library.hub.downloads import Downloads
    from engine.library.hub.hub import Hub
    from engine.library.owned.installed import Library
    from engine.library.records import InstalledModel, Sparsity
    from engine.remote_servers.keys import ServerKeys

log = logging.getLogger(__name__)

Made = TypeVar("Made")

MACHINE_HOLDS_S = 10.0  # a slider that is dragged asks ten times a second, and asking the machine takes 0.1 s
UNDO_S = 600.0  # seconds during which a removal can be undone


class Services:
    """home: the folder of library.json; None: the user's.

    changed: called with "library", "downloads" or "work", from any thread; must return at once.
    """

    def __init__(self, home: Path | None = None, changed: Callable[[str], None] = lambda topic: None) -> None:
        self._home = home
        self._changed = changed
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._machine: tuple[float, tuple[int, int], KnownMachine] | None = None
        self._downloads: Downloads | None = None
        self._closed = False

    def tell(self, topic: str) -> None:
        self._changed(topic)

    @property
    def library(self) -> Library:
        from engine.library.owned.installed import Library

        return self._once("library", lambda: Library(self._home))

    @property
    def catalogue(self) -> Catalogue:
        from engine.library.estimate.catalogue import load_catalogue

        return self._once("catalogue", load_catalogue)

    @property
    def estimates(self) -> Estimates:
        from engine.library.estimate.catalogue import Estimates

        return self._once("estimates", lambda: Estimates(self.catalogue))

    @property
    def previews(self) -> Previews:
        from engine.library.estimate.preview import Previews

        return self._once("previews", Previews)

    @property
    def credentials(self) -> Credentials:
        from engine.library.hub.credentials import Credentials

        return self._once("credentials", Credentials)

    @property
    def hub(self) -> Hub:
        from engine.library.hub.hub import Hub

        return self._once("hub", lambda: Hub(self.credentials))

    @property
    def server_keys(self) -> ServerKeys:
        from engine.remote_servers.keys import ServerKeys

        return self._once("server keys", ServerKeys)

    def _once(self, name: str, make: Callable[[], Made]) -> Made:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            made: Made = self._made[name]
            return made

    @property
    def training(self) -> IdleTraining:
        return self._once("training", lambda: IdleTraining(self._pending, self._train, lambda: self.tell("work")))

    def _pending(self) -> list[str]:
        from engine.library.prepare.preparing import pending_training

        return pending_training(self.library)

    def _train(self, model: str, cancelled: CancelCheck) -> None:
        from engine.library.prepare.preparing import PrepareJob, prepare

        prepare(self.library, model, "train", PrepareJob(cancelled=cancelled), sparsity=self.sparsity_of(model))
        self.prepared(self.library.get(model))

    def prepared(self, model: InstalledModel) -> None:
        """Forget what was known of a model's placement, because it was prepared."""
        previews: Previews | None = self._made.get("previews")
        if previews is not None:
            previews.discard(model.path)
            if model.prepared:
                previews.discard(model.prepared)
        self.tell("library")

    def sparsity_of(self, model: str) -> Sparsity | None:
        """Return the catalogue's statistics of how often an installed model's neurons are active."""
        entry = self.catalogue.find(self.library.get(model).catalogue_id)
        return None if entry is None else entry.sparsity

    @property
    def downloads(self) -> Downloads:
        """Return the queue. The first call resumes downloads that ran when the process ended."""
        with self._lock:
            if self._downloads is None:
                from engine.errors import Cancelled
                from engine.library.hub.downloads import Downloads

                if self._closed:
                    raise Cancelled("The process ends.")
                self._downloads = Downloads(
                    self.library,
                    self.hub,
                    on_change=lambda downloads: self.tell("downloads"),
                    on_done=lambda model: self.tell("library"),
                )
            return self._downloads

    def machine(self, own_vram_bytes: int = 0, engine_pid: int = 0) -> KnownMachine:
        """Return this machine, at most MACHINE_HOLDS_S old.

        The loaded model's memory counts as free: own_vram_bytes on the GPU, and the private RAM of the process
        engine_pid.
        """
        from engine.library.estimate.machines import known_machine

        own = (own_vram_bytes, engine_pid)
        with self._lock:
            kept = self._machine
            if kept is None or kept[1] != own or time.monotonic() - kept[0] > MACHINE_HOLDS_S:
                machine = known_machine(None, own_vram_bytes, _private_bytes(engine_pid))
                kept = self._machine = (time.monotonic(), own, machine)
            return kept[2]

    def close(self) -> None:
        """Stop background work. Cost: up to a second."""
        with self._lock:
            self._closed = True
            downloads, self._downloads = self._downloads, None
            training = self._made.get("training")
        if training is not None:
            training.close()
        if downloads is not None:
            downloads.close()

    # --- the reported state

    def news(self, topic: str) -> dict[str, Any]:
        """Return the whole state of a topic as JSON."""
        from engine.library.records import to_json

        if topic == "downloads":
            return {"downloads": [to_json(download) for download in self.downloads.list()]}
        return {"models": [to_json(model) for model in self.library.models()], "folder": str(self.library.folder)}


def _private_bytes(pid: int) -> int:
    """Return a process's private RAM; 0 if unknown. Mapped files are not counted, because the system can reclaim them
    and already counts them as free.
    """
    import psutil

    if pid <= 0:
        return 0
    try:
        memory = psutil.Process(pid).memory_info()
    except (psutil.Error, OSError):
        return 0
    private = getattr(memory, "private", None)  # Windows
    return int(private if private is not None else max(0, memory.rss - getattr(memory, "shared", 0)))
