"""Requests to a hub: search, list a repository, read files by Range. Writes no files.

It uses the HTTP session and data classes of the hub's own client, for its proxies and certificates. It does not use
that client's functions, because they retry for half a minute before reporting that a server is down, make extra
requests, and cannot resume a file of another process. A token is sent only to the hub's own host. Nothing is requested
before a method is called.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from engine.errors import (
    EngineError,
    GatedModelError,
    HubError,
    InvalidRequestError,
    OfflineError,
    RepositoryNotFoundError,
)
from engine.library.hub.credentials import Credentials
from engine.library.hub.hub_failures import Passing, cause_of, network_failures, printable
from engine.library.hub.hub_names import check_readable_name, is_model_id, parse_repository
from engine.library.hub.variants import variants_of
from engine.library.records import HubFile, HubModel, Listing

if TYPE_CHECKING:
    import httpx2

Sort = Literal["downloads", "likes", "updated"]
_client_lock = threading.Lock()
_client_is_ready = False

PUBLIC_HUB = "https://huggingface.co"
STALL_S = 30.0  # without a byte, then the connection counts as lost
CONNECT_S = 10.0
ANSWER_S = 30.0  # of a search or a list
MAX_REDIRECTS = 5
MAX_FILES = 20_000  # of a repository
MAX_PAGES = 500  # of a list
MAX_ANSWER_BYTES = 16 << 20  # of a page
MAX_ANSWER_CONTAINERS = 500_000  # lists and objects in it: each takes 64 bytes or more in memory
MAX_ANSWER_S = 120.0  # for a whole page, however steadily it trickles
MAX_COUNT = 2**63
MAX_READ_BYTES = 64 << 20  # of a head that is read without keeping it
# The client reads these on import. Its transfer engine cannot be stopped, its progress bars write to a terminal, and
# its telemetry names the calling program.
_CLIENT_ENVIRONMENT = (
    "HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_UPDATE_CHECK",
)  # fmt: skip
_SORTS = {"downloads": "downloads", "likes": "likes", "updated": "lastModified"}


class Answer:
    """A file being received. start: its first byte in this answer; total: its length, None if unknown."""

    def __init__(self, response: httpx2.Response, what: str, start: int, total: int | None) -> None:
        self._response = response
        self._what = what
        self.start = start
        self.total = total
        tag = response.headers.get("etag", "")
        self.tag = tag if tag.startswith('"') else ""  # a weak one names no bytes

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive. Raises: HubError, which may pass, if the connection is lost."""
        with network_failures(self._what):
            yield from self._response.iter_raw()

    def abort(self) -> None:
        """Abort from another thread; `blocks` then raises at once."""
        stream = self._response.extensions.get("network_stream")
        connection = None if stream is None else stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # closed already; and of the plain socket: TLS is closed by the thread that reads
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            if sys.platform == "win32":  # shutdown ends no read in progress there
                socket.socket.close(connection)


class Hub:
    """One hub. Thread-safe. endpoint: its address; None: from the environment."""

    def __init__(
        self, credentials: Credentials | None = None, endpoint: str | None = None, stall_s: float = STALL_S
    ) -> None:
        self._credentials = credentials if credentials is not None else Credentials()
        self._stall_s = stall_s
        self.endpoint = (endpoint or os.environ.get("HF_ENDPOINT", "").strip() or PUBLIC_HUB).rstrip("/")
        if not _is_web_address(self.endpoint):
            raise InvalidRequestError(f"HF_ENDPOINT is {self.endpoint[:200]!r}, which is not a web address.")

    def page_of(self, repo: str) -> str:
        """Return the address of a model's page, for a browser."""
        return f"{self.endpoint}/{repo}"

    # --- metadata

    def search(self, query: str, sort: Sort = "downloads", limit: int = 30) -> list[HubModel]:
        """Return models whose name contains these words. Raises: OfflineError, HubError, InvalidRequestError for the
        sort.
        """
        if sort not in _SORTS:
            raise InvalidRequestError(f"The hub's models cannot be sorted by {sort!r}; supported: {', '.join(_SORTS)}.")
        wanted = [("expand", field) for field in ("downloads", "likes", "gated", "lastModified", "tags")]
        query = urlencode([("search", query.strip()), ("sort", _SORTS[sort]), ("limit", str(limit)), *wanted])
        read = _client().ModelInfo
        found, _ = self._ask(f"/api/models?{query}", "the search", "")
        with self._strange_answers():
            return [_model(read(**values)) for values in found[:limit] if is_model_id(values["id"])]

    def listing(self, repo: str, revision: str = "") -> Listing:
        """Return what a repository offers, by its id or the address of its page, with its revision pinned to a commit.

        Raises: RepositoryNotFoundError, GatedModelError, OfflineError, HubError, InvalidRequestError.
        """
        name, named = parse_repository(repo, self.endpoint)
        model, commit, files = self.files(name, revision or named or "main")
        return Listing(model, commit, variants_of(files))

    def files(self, repo: str, revision: str = "main") -> tuple[HubModel, str, tuple[HubFile, ...]]:
        """Return (the repository's head, the revision's current commit, all its files)."""
        client = _client()
        at = f"/api/models/{quote(repo)}"
        values, _ = self._ask(f"{at}/revision/{quote(revision, safe='')}", repo, repo)
        with self._strange_answers():
            model, commit = _model(client.ModelInfo(**values)), str(values["sha"])
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise HubError(f"The hub states no commit for {repo}.")
        files: list[HubFile] = []
        page, pages = f"{at}/tree/{commit}?recursive=true", 0
        while page:
            pages += 1
            entries, page = self._ask(page, repo, repo)
            with self._strange_answers():
                files += [_file(client.RepoFile(**entry)) for entry in entries if entry["type"] == "file"]
            for file in files:
                check_readable_name(file.name)
            if len(files) > MAX_FILES or pages > MAX_PAGES:
                raise HubError(f"{repo} has more than {MAX_FILES} files.", "Choose another model.")
        return model, commit, tuple(files)

    def _ask(self, place: str, what: str, repo: str) -> tuple[Any, str]:
        """Return (the hub's answer, the address of the next page or "")."""
        with self._network(what):
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            response = self._follow(self.endpoint + place, headers, what)
            try:
                if response.status_code >= 400:
                    raise self._refusal(response, what, repo, at_hub=True)
                body = _body_of(response, what)
            finally:
                response.close()
        if body.count(b"[") + body.count(b"{") > MAX_ANSWER_CONTAINERS:
            raise HubError(f"The hub answers {what} with more data than expected.")
        with self._strange_answers():
            values = json.loads(body)
            following = str(response.links.get("next", {}).get("url", ""))
        if following and not following.startswith(self.endpoint + "/"):
            raise HubError(f"The hub redirects elsewhere for {what}.")
        return values, following.removeprefix(self.endpoint)

    # --- files

    @contextmanager
    def open(self, repo: str, revision: str, name: str, start: int = 0, end: int | None = None,
             tag: str = "") -> Iterator[Answer]:  # fmt: skip
        """Receive a file from byte `start` on, up to `end`. tag: the entity tag of the bytes on the disk.

        The answer may begin at 0 instead, if the server does not support ranges or the file's tag has changed. Raises:
        RepositoryNotFoundError, GatedModelError, OfflineError, HubError; `passing` tells which may pass.
        """
        what = f"{name} of {repo}"
        headers = {"Accept-Encoding": "identity"}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
            if start and tag:
                headers["If-Range"] = tag
        url = f"{self.endpoint}/{quote(repo)}/resolve/{quote(revision, safe='')}/{quote(name)}"
        with self._network(what):
            response = self._follow(url, headers, what)
        try:
            if response.status_code >= 400:
                raise self._refusal(response, what, repo, at_hub=self._is_hub(str(response.url)))
            yield Answer(response, what, *_range_of(response, what))
        finally:
            response.close()

    def read(self, repo: str, revision: str, name: str, start: int, n_bytes: int) -> bytes:
        """Return some bytes of a file, fewer at its end: for headers and configurations. At most 64 MiB."""
        if not 0 < n_bytes <= MAX_READ_BYTES:
            raise InvalidRequestError(f"{n_bytes} bytes of a file cannot be read without keeping it.")
        got = bytearray()
        with self.open(repo, revision, name, start, start + n_bytes) as answer:
            skip = start - answer.start
            if skip < 0:
                raise HubError(f"The hub sends other bytes of {name} than were asked for.")
            for block in answer.blocks():
                got += block[skip:]
                skip = max(0, skip - len(block))
                if len(got) >= n_bytes:
                    break
        return bytes(got[:n_bytes])

    def _follow(self, url: str, headers: dict[str, str], what: str) -> httpx2.Response:
        """Return the answer after redirects, its body unread. The token is sent only to the hub's host."""
        import httpx2

        session = _session()
        timeout = httpx2.Timeout(self._stall_s, connect=min(CONNECT_S, self._stall_s))
        for _ in range(MAX_REDIRECTS + 1):
            own = {"User-Agent": "hearth", **headers}
            if self._is_hub(url) and (token := self._credentials.token()):
                own["Authorization"] = f"Bearer {token}"
            try:
                request = session.build_request("GET", url, headers=own, timeout=timeout)
                response = session.send(request, stream=True, follow_redirects=False)
            except UnicodeError as error:  # the host of the address is none
                raise HubError(f"The hub redirects to an invalid address for {what}.") from error
            if not response.has_redirect_location:
                return response
            response.close()
            target = str(response.url.join(response.headers["location"]))
            if not _is_web_address(target) or (url.startswith("https:") and not target.startswith("https:")):
                raise HubError(f"The hub redirects to an unsafe address for {what}.")
            url = target
        raise HubError(f"The hub redirects too often for {what}.")

    def _is_hub(self, url: str) -> bool:
        ours, theirs = urlsplit(self.endpoint), urlsplit(url)
        return (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)

    # --- the client, and what it raises

    @contextmanager
    def _strange_answers(self) -> Iterator[None]:
        """Handle answers that are not a hub's, such as the login page of a hotel's network."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
            raise HubError(
                f"{self.endpoint} answers in another way than a hub does.",
                "Check whether this network requires a login in a browser, and check HF_ENDPOINT.",
            ) from error

    @contextmanager
    def _network(self, what: str) -> Iterator[None]:
        if _is_offline():
            raise OfflineError(
                "HF_HUB_OFFLINE forbids requests to hubs.",
                "Unset HF_HUB_OFFLINE, or import a model from this PC.",
            )
        with network_failures(what):
            yield

    def _refusal(self, response: Any, what: str, repo: str, at_hub: bool) -> EngineError:
        """Return the error for a status of 400 or more. Its cause tells whether it may pass."""
        status, headers = response.status_code, response.headers
        code, said = headers.get("x-error-code", ""), printable(headers.get("x-error-message", ""))
        page = self.page_of(repo)
        error: EngineError
        if not at_hub:  # addresses of the store behind the hub hold for a while only
            error = HubError(f"The hub's store refuses {what} ({status}).")
        elif "invalid credentials" in said.lower():
            error = GatedModelError("The hub does not accept the access token.", "Enter another one, or remove it.")
        elif code == "GatedRepo" and self._credentials.token():
            error = GatedModelError(
                f"The access token does not open {repo}: its terms are not accepted, or access is not granted yet.",
                f"Accept the terms on {page} with the same account, and wait until access is granted.",
            )
        elif code == "GatedRepo":
            error = GatedModelError(
                f"{repo} is available only after you accept its terms.",
                f"Accept the terms on {page}, then enter an access token.",
            )
        elif code in ("RevisionNotFound", "EntryNotFound"):
            error = RepositoryNotFoundError(f"The hub no longer has {what}.", "See the model's page: " + page)
        elif code == "RepoNotFound" or status == 404 or (status == 401 and repo):
            error = RepositoryNotFoundError(f"The hub has no model called {repo or what}, or hides it.")
        elif status == 407:
            error = HubError("The proxy asks for a name and a password.", "Put them into HTTPS_PROXY.")
        elif status == 429:
            error = HubError("The hub asks to wait: there were too many requests.", "Try again in some minutes.")
        else:
            words = f": {said}" if said else ""
            error = HubError(f"The hub answers {what} with a failure ({status}{words}).")
        error.__cause__ = cause_of(response) if at_hub or status != 404 else None
        if not at_hub and status in (400, 401, 403):
            error.__cause__ = Passing()
        return error


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and parts.port != 0  # asking for the port checks it
    except ValueError:
        return False


def _body_of(response: httpx2.Response, what: str) -> bytearray:
    """The whole answer as it is sent: unpacked, 1 KB can become gigabytes. Raises: HubError."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise HubError(f"The hub compresses {what}, against the request.")
    body, until = bytearray(), time.monotonic() + MAX_ANSWER_S
    for block in response.iter_raw():
        body += block
        if len(body) > MAX_ANSWER_BYTES:
            raise HubError(f"The hub answers {what} with more than {MAX_ANSWER_BYTES >> 20} MiB.")
        if time.monotonic() > until:
            raise OfflineError(f"The hub is too slow with {what}.") from Passing(is_network=True)
    return body


def _count(value: Any) -> int:
    """A number of something. Raises: ValueError, OverflowError, TypeError."""
    number = int(value or 0)
    if number >= MAX_COUNT:
        raise ValueError("too large")
    return max(0, number)


def _range_of(response: httpx2.Response, what: str) -> tuple[int, int | None]:
    """(first byte that comes, length of the whole file). Raises: HubError."""
    if response.status_code == 206:
        kind, _, rest = response.headers.get("content-range", "").partition(" ")
        place, _, total = rest.partition("/")
        first = _number(place.partition("-")[0])
        if kind == "bytes" and first is not None:
            return first, _number(total)
        raise HubError(f"The hub sends a part of {what} and does not say which.")
    if response.status_code != 200:
        raise HubError(f"The hub answers {what} in a way that is not understood ({response.status_code}).")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise HubError(f"The hub compresses {what}, against the request.")
    return 0, _number(response.headers.get("content-length", ""))


def _number(text: str) -> int | None:
    """A count of bytes as HTTP writes it; None for anything else, such as digits of other scripts."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _client() -> Any:
    """Return the hub's own client, configured, with a session that gives up on a silent hub."""
    global _client_is_ready
    for variable in _CLIENT_ENVIRONMENT:
        os.environ[variable] = "1"
    import huggingface_hub

    with _client_lock:
        if not _client_is_ready:
            huggingface_hub.set_client_factory(_make_session)
            _client_is_ready = True
    return huggingface_hub


def _make_session() -> httpx2.Client:
    """Proxies and certificates are the environment's."""
    import httpx2

    return httpx2.Client(event_hooks={"request": [_check_offline]}, follow_redirects=True, timeout=ANSWER_S)


def _session() -> httpx2.Client:
    session: httpx2.Client = _client().get_session()
    return session


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _check_offline(request: httpx2.Request) -> None:
    if _is_offline():
        from huggingface_hub.errors import OfflineModeIsEnabled

        raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")


def _model(info: Any) -> HubModel:
    if not is_model_id(info.id):
        raise ValueError("no model's id")
    tags = tuple(printable(str(tag)) for tag in info.tags or ())
    licence = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    updated = info.last_modified.isoformat() if info.last_modified is not None else ""
    return HubModel(str(info.id), _count(info.downloads), _count(info.likes), licence, bool(info.gated), tags, updated)


def _file(entry: Any) -> HubFile:
    sha256 = str(entry.lfs.sha256) if entry.lfs is not None else ""
    return HubFile(str(entry.path), _count(entry.size), sha256.lower(), str(entry.blob_id or "").lower())
