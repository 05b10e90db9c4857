"""Creates the clients of engine, library, servers and machine, and ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.clients.engine_client import EngineClient
from app.clients.engine_worker import EngineWorker, MakeHost, default_makers
from app.clients.library_client import Library, LibraryClient, library_makers
from app.clients.machine_monitor import MachineMonitor
from app.clients.remote_client import RemoteClient
from app.clients.servers import Place


class Clients:
    """The clients of engine, library, servers and machine. `worker.start` starts the engine's process, the first
    request the library's."""

    def __init__(
        self,
        location: str,
        log_folder: Path,
        key_for: Callable[[Place], str],
        makers: dict[str, MakeHost] | None = None,
        library: Library | None = None,
    ) -> None:
        """location: where engine and library run, "process" or "in-thread". key_for: as in RemoteClient. makers,
        library: fakes in place of the real ones."""
        self.worker = EngineWorker(location, makers or default_makers(log_folder))
        self.engine = EngineClient(self.worker)
        self.library = library or LibraryClient(EngineWorker(location, library_makers(log_folder), "library"))
        self.remote = RemoteClient(self.library, key_for)
        self.monitor = MachineMonitor()

    def close(self, timeout_s: float) -> bool:
        """End all processes and threads. Returns whether each ended within `timeout_s`."""
        self.library.begin_close()
        ended = self.worker.shutdown(timeout_s) and self.monitor.close(timeout_s)
        return self.library.close(timeout_s) and ended
