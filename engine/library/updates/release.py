"""Look for a newer version of Hearth and download it, when called.

A build offers updates if it has an address (release.json) and a public key (assets/update-keys.txt). A checkout has no
address. Requests contain nothing about the user and go over HTTPS, or to this PC. Nothing that an address answers is
believed before it is verified: the manifest by its signature, a file by the size and hash in the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import __version__
from engine.assets import asset_root
from engine.errors import Cancelled, UpdateError
from engine.job import Job
from engine.library.owned.disk_space import check_free_space
from engine.library.updates import installed
from engine.library.updates.manifest import MAX_BYTES, Manifest, UpdateFile, numbers, verified

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

ANSWER_S = 20.0  # without a byte
LIST_S = 60.0  # for the whole manifest
SEEN = "seen.json"  # the newest manifest that was accepted: an older one is refused from then on
UNPACKED = 6  # times the size of a download; the tarball is unpacked and then copied


def feed() -> str:
    """Return the address of this build's manifest; "" if it offers no updates."""
    try:
        address = json.loads((asset_root() / "release.json").read_text(encoding="utf-8"))["feed"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return address if isinstance(address, str) and public_keys() else ""


def public_keys() -> list[bytes]:
    """Return the keys of assets/update-keys.txt: 64 hex digits in a line; # begins a comment."""
    try:
        lines = (asset_root() / "update-keys.txt").read_text(encoding="utf-8").splitlines()
        keys = [bytes.fromhex(line.partition("#")[0]) for line in lines]
    except (OSError, ValueError):
        return []
    return [key for key in keys if len(key) == 32]


def look(folder: Path, own: str = __version__, today: date | None = None, job: Job | None = None) -> Manifest:
    """Return the newest release, which may be this version. folder: keeps what was seen before.

    Raises: UpdateError; "rollback" for a version older than `own` or than one seen before; OSError, Cancelled.
    """
    address = feed()
    if not address:
        raise UpdateError.of("none", "This build offers no updates.", "Get new versions where you got this one.")
    data, job, began = b"", job or Job(), time.monotonic()
    with _answer(address) as blocks:
        for block in blocks:
            job.stop_if_cancelled()
            if time.monotonic() - began > LIST_S:
                raise UpdateError.of("unreachable", "The update server answers too slowly.", "Try again later.")
            data += block
            if len(data) > MAX_BYTES:
                raise UpdateError.of("size", f"The list of updates is longer than {MAX_BYTES >> 10} KB.")
    found = verified(data, public_keys())
    if found.expires < (today or datetime.now(UTC).date()):
        raise UpdateError.of(
            "expired", f"The list of updates expired on {found.expires}.",
            "Check the date of this PC. If it is right, get new versions where you got this one.",
        )  # fmt: skip
    seen_version, seen_day = _seen(folder / SEEN)
    newest = max(own, seen_version, key=numbers)
    if numbers(found.version) < numbers(newest) or found.released < seen_day:
        raise UpdateError.of(
            "rollback", f"The list of updates names version {found.version} of {found.released}; "
            f"this PC knows version {newest} already.", "Try again later: someone may be offering an old version.",
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SEEN, json.dumps({"version": found.version, "released": found.released.isoformat()}).encode())
    return found


def download(folder: Path, version: str, own: str = __version__, job: Job | None = None) -> tuple[Path, UpdateFile]:
    """Download the file for this platform into `folder`, and verify it. Earlier downloads there are deleted.

    job.progress: bytes. version: that the user agreed to. Raises: UpdateError, DiskSpaceError, Cancelled.
    """
    job = job or Job()
    found = look(folder, own, job=job)
    file = found.file_for(installed.platform())
    if numbers(found.version) <= numbers(own) or found.version != version:
        raise UpdateError.of("rollback", f"Version {version} is no longer offered; the newest is {found.version}.")
    if file is None:
        raise UpdateError.of(
            "platform", f"Version {found.version} has no file for this system.", "Look at its web page."
        )
    with installed.alone_in(folder):
        return _fetched(folder, file, job), file


def _fetched(folder: Path, file: UpdateFile, job: Job) -> Path:
    for old in folder.iterdir():
        if old.is_dir():  # an installation was killed
            shutil.rmtree(old, ignore_errors=True)
        elif old.name != SEEN:
            old.unlink()
    check_free_space(folder, UNPACKED * file.size)
    part, target = folder / f"{file.name}.part", folder / file.name
    try:
        digest, done = hashlib.sha256(), 0
        with _answer(file.url) as blocks, part.open("xb") as to:
            for block in blocks:
                job.stop_if_cancelled()
                done += len(block)
                if done > file.size:
                    raise UpdateError.of(
                        "size", f"{file.name} is longer than the {file.size} bytes that it should have."
                    )
                digest.update(block)
                to.write(block)
                job.progress(done, file.size)
        if done < file.size:
            raise UpdateError.of("cut off", f"The download ended after {done} of {file.size} bytes.", "Try again.")
        if digest.hexdigest() != file.sha256:
            raise UpdateError.of("hash", f"{file.name} is not the file that was released.", "Try again later.")
        part.replace(target)
    except OSError as error:
        raise UpdateError.of("disk", f"{file.name} could not be written: {error.strerror or error}.", "") from error
    finally:
        part.unlink(missing_ok=True)
    return target


def _seen(path: Path) -> tuple[str, date]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        numbers(values["version"])
        return values["version"], date.fromisoformat(values["released"])
    except (OSError, ValueError, KeyError, TypeError):
        return "0.0", date.min


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    new.replace(path)


@contextlib.contextmanager
def _answer(address: str) -> Iterator[Iterator[bytes]]:
    """Request an address and yield the blocks of its answer. Raises: UpdateError, also for each redirect."""
    import httpx2

    headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "Hearth"}
    hooks: dict[str, list[Any]] = {"request": [_refuse_plain]}
    try:
        with (
            httpx2.Client(timeout=ANSWER_S, follow_redirects=True, max_redirects=5, headers=headers,
                          event_hooks=hooks) as client,
            client.stream("GET", address) as response,
        ):  # fmt: skip
            response.raise_for_status()
            if response.headers.get("content-encoding", "identity") != "identity":
                raise UpdateError.of("size", "The answer is compressed.")  # 1 KB can become gigabytes
            yield response.iter_raw()
    except (Cancelled, UpdateError):
        raise
    except httpx2.RemoteProtocolError as error:
        raise UpdateError.of("cut off", "The connection ended too early.", "Try again.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        log.info("no update could be fetched: %s", type(error).__name__)
        raise UpdateError.of("unreachable", "The update server does not answer.", "Try again later.") from error


def _refuse_plain(request: httpx2.Request) -> None:
    if request.url.scheme != "https" and request.url.host not in ("127.0.0.1", "localhost", "::1"):
        raise UpdateError.of("address", f"The address {request.url.host} is not protected by HTTPS.")
