"""What downloads stand on in tests: a shelf instead of the library, a process that downloads and can be killed, and
waiting for what is to happen."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.files import matching
from engine.library.hub.download import RetryPolicy
from engine.library.hub.downloads import Downloads
from engine.library.hub.hub import Hub
from engine.library.owned.stored_models import StoredModel
from engine.library.records import Download, InstalledModel

DATA = random.Random(7).randbytes(40 << 20)
SMALL = DATA[: 3 << 20]
BLOCK = 8 << 20
ROOT = Path(__file__).resolve().parents[2]
QUICK = RetryPolicy(first_wait_s=0.02, longest_wait_s=0.1, tries=4)


class PlainShelf:
    """Lists models in memory, their files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed: dict[str, InstalledModel] = {}

    def folder_for(self, id: str) -> Path:
        return self.folder.joinpath(*id.split("/"))

    def id_for(self, repo: str, variant: str = "") -> str:
        return f"{repo}-{variant}" if variant else repo

    def register(self, model: StoredModel) -> InstalledModel:
        folder = Path(model.folder)
        for file in model.files:
            assert (folder / file.name).stat().st_size == file.n_bytes
        self.listed[model.id] = InstalledModel(
            id=model.id, name=model.name, folder=model.folder, path=str(folder / model.path), files=model.files,
            n_bytes=model.n_bytes, state="ready", origin=model.origin, owned=model.owned, repo=model.repo,
            revision=model.revision, catalogue_id=model.catalogue_id, activation=model.activation,
            template=model.template, licence=model.licence, kind=model.kind,
        )  # fmt: skip
        return self.listed[model.id]


def downloads_in(folder: Path, **more: Any) -> tuple[Downloads, PlainShelf]:
    """A queue over `folder`, with a hub that gives up on silence after `stall_s`."""
    shelf = PlainShelf(folder / "models")
    hub = more.pop("hub", None) or Hub(stall_s=more.pop("stall_s", 30.0))
    more.setdefault("retry_policy", QUICK)
    return Downloads(shelf, hub, home=folder / "queue", **more), shelf


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What it gives as soon as that is something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError(f"nothing after {seconds} s")


def the(downloads: Downloads, *states: str) -> Download | None:
    """The only download, when it is in one of these states."""
    (found,) = downloads.list()
    return found if found.state in states else None


CHILD = """
import json, sys, time
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from fakes.download_places import downloads_in
downloads, shelf = downloads_in(Path(sys.argv[2]))
for repo in json.loads(sys.argv[3]):
    downloads.add_variant(repo)
while downloads.is_busy:
    time.sleep(0.01)
    (first, *_) = downloads.list()
    print(first.state, first.done_bytes, flush=True)
print("ended", [(d.state, d.error, d.message) for d in downloads.list()], flush=True)
downloads.close()
"""


def downloading_process(folder: Path, repos: list[str]) -> subprocess.Popen[str]:
    """A process of its own that downloads into `folder`, and says how far it is."""
    paths = [str(ROOT), str(ROOT / "tests")]
    command = [sys.executable, "-c", CHILD, json.dumps(paths), str(folder), json.dumps(repos)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ), cwd=folder)


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def give_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """From now on every disk has so many bytes free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Usage(10**13, 10**13 - free, free))


def same(path: str | Path, data: bytes) -> bool:
    return hashlib.sha256(Path(path).read_bytes()).digest() == hashlib.sha256(data).digest()


def parts_in(folder: Path, suffix: str = ".part") -> list[Path]:
    return matching(folder, f"models/.downloads/*/*{suffix}")
