"""The command pull: download, verify and list a model in the foreground. engine/library does the work."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands.console import ProgressBar
from engine.commands.output import print_json
from engine.errors import EngineError, HubError

if TYPE_CHECKING:
    from engine.library.hub.download import RemoteFile
    from engine.library.hub.download_job import JobCallbacks
    from engine.library.hub.download_request import DownloadRequest, ModelStore
    from engine.library.records import InstalledModel

REPORT_EVERY_S = 0.2


def pull(arguments: argparse.Namespace) -> int:
    from engine.library.hub.download import RetryPolicy, Stop
    from engine.library.hub.download_job import DownloadJob, staging_folder
    from engine.library.hub.hub import Hub
    from engine.library.owned.installed import Library

    with ProgressBar("Downloading") as bar:
        teller = _Teller(arguments.json, bar)
        try:
            hub, library = Hub(), Library()
            wanted = _wanted(arguments.model, arguments.file, library, hub.endpoint)
            staging = Path(staging_folder(library.folder, wanted))
            job = DownloadJob(wanted, None, hub, library, staging, RetryPolicy(), Stop(), teller.telling())
            model = job.run(lambda resolved: teller.settled(resolved.n_bytes))
        except EngineError as error:
            if arguments.json:
                name = type(error).__name__
                print_json({"event": "failed", "error": name, "message": error.message, "hint": error.hint})
            raise
        except KeyboardInterrupt:
            bar.clear()
            print("Stopped. The same command continues from here.", file=sys.stderr)
            return 130
    teller.installed(model)
    return 0


def _wanted(named: str, file: str | None, library: ModelStore, endpoint: str) -> DownloadRequest:
    """Resolve a catalogue id, or a repository's id or address."""
    from engine.library.estimate.catalogue import load_catalogue
    from engine.library.hub.download_request import of_entry, of_variant
    from engine.library.hub.hub_names import parse_repository

    catalogue = load_catalogue()
    if "/" not in named:
        entry = catalogue.get(named)
        wanted = of_entry(entry, library)
        return wanted if file is None else replace(wanted, patterns=(file,))
    repo, revision = parse_repository(named, endpoint)
    known = catalogue.of_repository(repo)
    if known is not None and file is None and not revision:
        return of_entry(known, library)
    return of_variant(named, file or "", library, endpoint)


class _Teller:
    """Reports progress: one JSON object per line, or a progress bar."""

    def __init__(self, as_json: bool, bar: ProgressBar) -> None:
        self._json, self._bar = as_json, bar
        self._total = self._done = 0
        self._file, self._state, self._waiting = "", "downloading", ""
        self._reported_at = 0.0

    def telling(self) -> JobCallbacks:
        from engine.library.hub.download_job import JobCallbacks

        return JobCallbacks(self._doing, self._at, lambda n_bytes: None, self._wait, self._proven)

    def settled(self, n_bytes: int) -> None:
        self._total = n_bytes

    def installed(self, model: InstalledModel) -> None:
        if self._json:
            self._say("installed", model=model.id, name=model.name, path=model.path, revision=model.revision)
        else:
            print(f"{model.name} is installed as {model.id}: {model.n_bytes / 1e9:.2f} GB in {model.folder}")

    def _doing(self, what: str, file: str) -> None:
        self._state, self._file = what, file
        self._progress(always=True)

    def _at(self, n_bytes: int) -> None:
        self._done = n_bytes
        self._progress()

    def _wait(self, file: str, error: HubError | None) -> None:
        words = error.message if error is not None else ""
        if words and words != self._waiting:
            self._bar.clear()
            print(f"{words} It is tried again.", file=sys.stderr)
        if words != self._waiting:
            self._waiting, self._state = words, "waiting" if words else "downloading"
            self._progress(always=True)

    def _proven(self, file: RemoteFile) -> None:
        if self._json:
            self._say("verified", file=file.place, sha256=file.sha256, file_bytes=file.n_bytes)

    def _progress(self, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self._reported_at < REPORT_EVERY_S:
            return
        self._reported_at = now
        if self._json:
            self._say("progress", state=self._state, file=self._file)
        else:
            self._bar(self._done, self._total)

    def _say(self, event: str, **more: Any) -> None:
        print_json({"event": event, "bytes": self._done, "total_bytes": self._total, **more})
