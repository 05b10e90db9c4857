"""Download one file of a hub into a part file until it is complete and verified, through all network failures.

It resumes at the end of the part, retries with growing pauses, and compares the hash of the bytes on the disk with the
hub's. engine/library/hub/download_job.py knows which files belong together and where they go.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from engine.errors import Cancelled, DownloadDamagedError, HubError, OfflineError
from engine.library.hub.hub import Answer, Hub
from engine.library.hub.hub_failures import Passing, passing
from engine.library.hub.part_file import PartFile
from engine.library.owned import disk_space

Value = TypeVar("Value")

READ_BYTES = 4 << 20  # bytes hashed from the disk at once
_SPACE_EVERY_BYTES = 64 << 20  # between two checks of the free disk space


@dataclass(frozen=True)
class RemoteFile:
    """A file to download. place: its name below the model's folder. revision: a commit."""

    repo: str
    revision: str
    name: str
    place: str
    n_bytes: int
    sha256: str = ""
    git_oid: str = ""

    @property
    def key(self) -> str:
        """Return a name for its content and place. A part with this name never holds bytes of another file."""
        content = self.sha256 or self.git_oid or f"{self.revision}/{self.name}"
        return hashlib.sha256(f"{content} {self.n_bytes} {self.place}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class RetryPolicy:
    """Retries after failures that may pass. Times in seconds; each wait is twice the last one, up to the longest.

    tries: attempts without a new byte, if the server reports a failure. Silence and lost networks are waited out.
    """

    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    tries: int = 10

    def wait_s(self, failures: int, retry_after_s: float | None) -> float:
        if retry_after_s is not None:
            return max(retry_after_s, 0.1)
        grown = self.first_wait_s * 2.0 ** min(failures - 1, 16)
        return min(grown, self.longest_wait_s) * random.uniform(0.8, 1.2)  # not all of the hub's guests at once


class Stop:
    """A request to stop, from any thread. It also ends a wait or a read in progress."""

    def __init__(self) -> None:
        self._wish = threading.Event()
        self._lock = threading.Lock()
        self._answer: Answer | None = None

    def now(self) -> None:
        with self._lock:
            self._wish.set()
            if self._answer is not None:
                self._answer.abort()

    @property
    def wished(self) -> bool:
        return self._wish.is_set()

    def check(self) -> None:
        """Raise Cancelled if a stop was requested."""
        if self._wish.is_set():
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        if self._wish.wait(seconds):
            raise Cancelled

    @contextmanager
    def holding(self, answer: Answer) -> Iterator[None]:
        """Abort this answer too if a stop is requested while it is read."""
        with self._lock:
            self.check()
            self._answer = answer
        try:
            yield
        finally:
            with self._lock:
                self._answer = None


@dataclass(frozen=True)
class FetchCallbacks:
    """Callbacks of a download. bytes: the number of bytes received; at: the file's bytes that count now; waiting: why
    nothing arrives, None once it continues; checking: the file's hash is being compared.
    """

    bytes: Callable[[int], None] = lambda n: None
    at: Callable[[int], None] = lambda n: None
    waiting: Callable[[HubError | None], None] = lambda error: None
    checking: Callable[[], None] = lambda: None


def retrying(work: Callable[[], Value], retry_policy: RetryPolicy, stop: Stop, telling: FetchCallbacks) -> Value:
    """Return the result of `work`, retried as long as its failures may pass. Raises: failures that cannot pass,
    Cancelled.
    """
    failures = 0
    while True:
        stop.check()
        try:
            return work()
        except HubError as error:
            failures += 1
            _wait_out(error, failures, retry_policy, stop, telling)


def fetch(
    hub: Hub, file: RemoteFile, part_path: Path, retry_policy: RetryPolicy, stop: Stop, telling: FetchCallbacks
) -> None:
    """Complete and verify the part at `part_path`. Download it again once if its bytes are wrong.

    Raises: DownloadDamagedError for repeatedly wrong bytes, DiskSpaceError, HubError if it cannot pass, OSError,
    Cancelled. All but the first keep what was downloaded.
    """
    for attempt in range(2):
        try:
            _fetch_once(hub, file, part_path, retry_policy, stop, telling)
            return
        except DownloadDamagedError:
            telling.at(0)
            if attempt:
                raise


def prove(file: RemoteFile, path: Path, stop: Stop) -> bool:
    """Return whether the file at `path` has the hub's size and hash. Cost: reads all of it."""
    try:
        if path.stat().st_size != file.n_bytes:
            return False
        proof = _Proof(file)
        proof.read_up(path, stop)
    except FileNotFoundError:
        return False
    return proof.holds()


def _fetch_once(
    hub: Hub, file: RemoteFile, path: Path, retry_policy: RetryPolicy, stop: Stop, telling: FetchCallbacks
) -> None:
    with PartFile(path) as part:
        if part.length > file.n_bytes:
            part.restart()
        telling.at(part.length)
        proof = _Proof(file)
        failures, tag = 0, ""
        while part.length < file.n_bytes:
            stop.check()
            before = part.length
            try:
                opened = hub.open(file.repo, file.revision, file.name, part.length, tag=tag)
                with opened as answer, stop.holding(answer):
                    telling.waiting(None)
                    before_tag, tag = tag, answer.tag  # known to the next try also where this answer breaks off
                    _receive(answer, file, part, before_tag, proof, stop, telling)
            except HubError as error:
                part.sync()
                failures = failures + 1 if part.length == before else 1
                _wait_out(error, failures, retry_policy, stop, telling)
        part.sync()
        telling.checking()
        proof.read_up(path, stop)
        if not proof.holds():
            part.delete()
            raise DownloadDamagedError(
                f"{file.name} of {file.repo} came with other bytes than the hub says it has.",
                "Resume the download: only this file is fetched again.",
            )


def _receive(
    answer: Answer, file: RemoteFile, part: PartFile, tag: str, proof: _Proof, stop: Stop, telling: FetchCallbacks
) -> None:
    """Append the received bytes to the part. Raises: HubError, which may pass, if the answer ends early."""
    if answer.total is not None and answer.total != file.n_bytes:
        raise DownloadDamagedError(f"The hub sends {file.name} with {answer.total} bytes, and lists {file.n_bytes}.")
    if answer.start not in (0, part.length):
        raise HubError(f"The hub sends another part of {file.name} than was asked for.") from Passing()
    skip = part.length - answer.start  # of a server that knows no ranges: bytes that are here already
    if skip and tag and answer.tag != tag:  # its file has changed
        part.restart()
        proof.restart()
        telling.at(0)
        skip = 0
    looked = part.length
    for block in answer.blocks():
        stop.check()
        new = block[skip:] if skip else block
        skip -= len(block) - len(new)
        if part.length + len(new) > file.n_bytes:
            raise DownloadDamagedError(f"The hub sends more of {file.name} than the {file.n_bytes} bytes it lists.")
        if not new:
            continue
        part.write(new)
        proof.add(new, part.length)
        telling.bytes(len(new))
        telling.at(part.length)
        if part.length - looked >= _SPACE_EVERY_BYTES:
            looked = part.length
            disk_space.check_not_full(part.path.parent)
    stop.check()
    if part.length < file.n_bytes:
        raise OfflineError(f"The connection ended before {file.name} was whole.") from Passing(is_network=True)


def _wait_out(error: HubError, failures: int, retry_policy: RetryPolicy, stop: Stop, telling: FetchCallbacks) -> None:
    """Wait until the next attempt. Raises the error if another attempt is pointless."""
    stop.check()  # a stop ends the connection, too
    may_pass = passing(error)
    if may_pass is None or (not may_pass.is_network and failures >= retry_policy.tries):
        raise error
    telling.waiting(error)
    stop.sleep(retry_policy.wait_s(failures, may_pass.retry_after_s))


class _Proof:
    """The hash of a file, from bytes as they arrive and bytes that were on the disk before."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self.restart()

    def restart(self) -> None:
        self._position = 0
        self._hash = hashlib.sha256()
        if not self._file.sha256:
            self._hash = hashlib.sha1(usedforsecurity=False)
            self._hash.update(b"blob %d\0" % self._file.n_bytes)  # as git hashes files

    def add(self, data: bytes, end: int) -> None:
        """Hash bytes that end at `end`. Skips them if earlier bytes are missing; `read_up` hashes those later."""
        if end - len(data) == self._position:
            self._hash.update(data)
            self._position = end

    def read_up(self, path: Path, stop: Stop) -> None:
        """Hash the rest from the disk."""
        if self._position == self._file.n_bytes:
            return
        with open(path, "rb") as file:
            file.seek(self._position)
            while block := file.read(READ_BYTES):
                stop.check()
                self._hash.update(block)
                self._position += len(block)

    def holds(self) -> bool:
        wanted = self._file.sha256 or self._file.git_oid
        return self._position == self._file.n_bytes and self._hash.hexdigest() == wanted
