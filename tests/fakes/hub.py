"""A hub for tests, on this PC's loopback alone: search, metadata, trees, files by Range, redirects to a second port
that plays the store behind the hub, gates, and every fault that a network has. It records what it was asked.

    with FakeHub() as hub:
        hub.add("maker/model-gguf", {"model-q4_0.gguf": data, "README.md": b"..."})
        hub.connect(monkeypatch, tmp_path)  # from now on `Hub()` and child processes ask this one

It also answers as an HTTP proxy: a request for http://any.host/path is answered as one for /path.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

LARGE_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".model")  # kept apart by the hub, which states their SHA-256
BLOCK = 64 << 10


@dataclass(frozen=True)
class Content:
    """A file's bytes, which may be made as they are read: read(offset, n) -> bytes. sha256: what the hub states."""

    n_bytes: int
    read: Callable[[int, int], bytes]
    sha256: str
    git_oid: str

    @staticmethod
    def of(data: bytes) -> Content:
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        return Content(len(data), lambda at, n: data[at : at + n], hashlib.sha256(data).hexdigest(), blob)

    @staticmethod
    def zeros(n_bytes: int) -> Content:
        """So many zeros, with a SHA-256 that is not theirs: for files too large to be fetched whole in a test."""
        return Content.after(b"", n_bytes)

    @staticmethod
    def after(head: bytes, n_bytes: int) -> Content:
        """As `zeros`, but that it begins with `head`."""

        def read(at: int, n: int) -> bytes:
            return (head[at : at + n] + bytes(n))[: min(n, n_bytes - at)]

        return Content(n_bytes, read, "0" * 64, "0" * 40)


@dataclass
class Fault:
    """Something that goes wrong with the files whose name matches `name`, `times` times (then no more).

    status: answered instead of the file (with retry_after in its header). cut_after, stall_after: bytes of an answer
    after which the connection is cut, or nothing more comes. flip_at: offset in the file of a byte that comes wrong.
    from_offset: only for requests that begin at or after this byte. of: where it happens, at the hub or at its store.
    """

    name: str = "*"
    times: int = 1
    status: int = 0
    retry_after: str = ""
    cut_after: int | None = None
    stall_after: int | None = None
    flip_at: int | None = None
    from_offset: int = 0
    of: Literal["any", "hub", "store"] = "any"
    stall_s: float = 3600.0


@dataclass
class Repository:
    """commits: revision -> name -> content, the last one the head."""

    name: str
    commits: dict[str, dict[str, Content]] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)  # "refs/pr/1" -> revision
    granted: set[str] = field(default_factory=set)  # tokens that may fetch it
    licence: str = "apache-2.0"
    tags: tuple[str, ...] = ()
    downloads: int = 10
    likes: int = 1
    updated: str = "2026-01-02T03:04:05.000Z"

    @property
    def head(self) -> str:
        return next(reversed(self.commits))


@dataclass
class Asked:
    """A request as it came. sent: bytes of a file that were written for it, so far."""

    method: str
    target: str  # as sent: absolute where a proxy was meant
    path: str
    headers: dict[str, str]  # names in lower case
    at_store: bool
    query: dict[str, list[str]] = field(default_factory=dict)
    status: int = 0
    sent: int = 0

    @property
    def start(self) -> int:
        """First byte that was asked for."""
        found = re.match(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(found[1]) if found else 0


class FakeHub:
    """bytes_per_s: the pace of each answer, 0 as fast as it goes. redirects: whether large files lie at the store.
    ignore_range: answers whole files whatever was asked. state_sizes: whether files come with their length."""

    def __init__(self, *, bytes_per_s: int = 0, redirects: bool = True, ignore_range: bool = False) -> None:
        self.bytes_per_s, self.redirects, self.ignore_range = bytes_per_s, redirects, ignore_range
        self.page_size = 1000  # entries of a tree in one answer
        self.state_sizes = True
        self.renamed: dict[str, str] = {}  # old name -> new name
        self.known_tokens: set[str] | None = None  # None: every token is somebody's
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.down = False  # every connection is closed at once
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = self._listen(at_store=False)
        self._store = self._listen(at_store=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.store_url = f"http://127.0.0.1:{self._store.server_port}"

    def __enter__(self) -> FakeHub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        for server in (self._server, self._store):
            server.shutdown()
            server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """What a process needs in its environment so that it asks this hub, and nobody else."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home / "hf-home"), "HF_HUB_OFFLINE": "", "NO_PROXY": "*"}

    def connect(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """Makes `Hub()` of this process, and of child processes, ask this hub; home: a folder for its cache."""
        for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in self.environment(home).items():
            monkeypatch.setenv(variable, value)

    # --- what it holds

    def add(self, repo: str, files: Mapping[str, bytes | Content], **about: Any) -> Repository:
        """A repository, or one more commit of it."""
        found = self.repositories.setdefault(repo, Repository(repo))
        for key, value in about.items():
            setattr(found, key, value)
        contents = {name: data if isinstance(data, Content) else Content.of(data) for name, data in files.items()}
        said = json.dumps([repo, len(found.commits), sorted((n, c.git_oid) for n, c in contents.items())])
        found.commits[hashlib.sha1(said.encode()).hexdigest()] = contents
        return found

    def fail(self, name: str = "*", **how: Any) -> Fault:
        fault = Fault(name, **how)
        with self._lock:
            self.faults.append(fault)
        return fault

    # --- what it was asked

    def of_file(self, name: str, method: str = "GET") -> list[Asked]:
        """The requests that sent or would have sent this file's bytes."""
        found = [a for a in list(self.asked) if a.method == method and a.path.endswith("/" + name)]
        return [a for a in found if a.status not in (301, 302, 307, 308)]

    def sent_bytes(self, name: str = "") -> int:
        return sum(a.sent for a in list(self.asked) if a.path.endswith(name))

    # --- answering

    def _listen(self, at_store: bool) -> ThreadingHTTPServer:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub, Handler.at_store = hub, at_store
        server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True, name="hub fake").start()
        return server

    def take_fault(self, name: str, at_store: bool, start: int) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                here = fault.of == "any" or (fault.of == "store") == at_store
                if fault.times > 0 and here and fnmatch(name, fault.name) and start >= fault.from_offset:
                    fault.times -= 1
                    return fault
        return None

    def sleep(self, seconds: float) -> None:
        self._closing.wait(seconds)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:  # a client that left is what half of the tests are about
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub
    at_store: bool
    asked: Asked

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.route()

    def do_HEAD(self) -> None:
        self.route()

    def route(self) -> None:
        if self.hub.down:
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.asked = Asked(self.command, self.path, path, headers, self.at_store, parse_qs(parts.query))
        self.hub.asked.append(self.asked)
        if self.at_store:
            self.from_store(path)
        elif path == "/api/models":
            self.search()
        elif found := re.fullmatch(r"(/api/models)?/([^/]+/[^/]+)(/.*)?", parts.path):  # of which slashes are quoted
            name = unquote(found[2])
            if name in self.hub.renamed:
                query = f"?{parts.query}" if parts.query else ""
                location = f"{found[1] or ''}/{quote(self.hub.renamed[name])}{found[3] or ''}{query}"
                self.begin(307, {"Location": location, "Content-Length": "0"})
            else:
                self.of_repository(bool(found[1]), name, found[3] or "")
        else:
            self.say({"error": "no such route"}, 404)

    def of_repository(self, is_api: bool, name: str, rest: str) -> None:
        if is_api and (found := re.fullmatch(r"/tree/([^/]+)", rest)):
            self.tree(name, unquote(found[1]))
        elif is_api and (found := re.fullmatch(r"(?:/revision/([^/]+))?", rest)):
            self.about(name, unquote(found[1] or "main"))
        elif not is_api and (found := re.fullmatch(r"/resolve/([^/]+)/(.+)", rest)):
            self.resolve(name, unquote(found[1]), unquote(found[2]))
        else:
            self.say({"error": "no such route"}, 404)

    # --- words

    def say(self, values: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(values).encode()
        self.begin(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.asked.status = status
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def refuse(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        said = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}
        self.say({"error": message}, status, said)

    def token(self) -> str:
        return self.asked.headers.get("authorization", "").removeprefix("Bearer ")

    def repository(self, name: str, revision: str) -> tuple[Repository, str, dict[str, Content]] | None:
        """None: answered with the reason why not."""
        fault = self.hub.take_fault("/" + name, False, 0) if not self.path.count("/resolve/") else None
        if fault is not None and fault.status:
            self.refuse(fault.status, "", "as told", {"Retry-After": fault.retry_after} if fault.retry_after else None)
            return None
        if self.token() and self.hub.known_tokens is not None and self.token() not in self.hub.known_tokens:
            self.refuse(401, "", "Invalid credentials in Authorization header")
            return None
        found = self.hub.repositories.get(name)
        if found is None or (found.private and self.token() not in found.granted):
            if self.token():
                self.refuse(404, "RepoNotFound", "Repository not found")
            else:
                self.refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        revision = found.head if revision == "main" else found.refs.get(revision, revision)
        commit = next((c for c in found.commits if c.startswith(revision)), "")
        if not commit:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return found, commit, found.commits[commit]

    # --- metadata

    def facts(self, found: Repository, commit: str) -> dict[str, Any]:
        gated: bool | str = "manual" if found.gated else False
        return {
            "_id": "0", "id": found.name, "modelId": found.name, "author": found.name.split("/")[0], "sha": commit,
            "lastModified": found.updated, "private": found.private, "gated": gated, "disabled": False,
            "downloads": found.downloads, "likes": found.likes,
            "tags": [f"license:{found.licence}", *found.tags], "gpuData": {"license": found.licence},
            "siblings": [{"rfilename": name} for name in found.commits[commit]],
        }  # fmt: skip

    def search(self) -> None:
        fault = self.hub.take_fault("/search", False, 0)
        if fault is not None and fault.status:
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else None
            self.refuse(fault.status, "", "as told", headers)
            return
        query = self.asked.query
        words = query.get("search", [""])[0].lower()
        tags = set(query.get("filter", []))
        hits = [r for r in self.hub.repositories.values() if words in r.name.lower() and tags <= set(r.tags)]
        keys: dict[str, Callable[[Repository], Any]] = {
            "downloads": lambda r: r.downloads, "likes": lambda r: r.likes, "lastModified": lambda r: r.updated,
        }  # fmt: skip
        hits.sort(key=keys.get(query.get("sort", ["downloads"])[0], keys["downloads"]), reverse=True)
        limit = int(query.get("limit", ["1000"])[0])
        self.say([self.facts(r, r.head) for r in hits[:limit] if not r.private])

    def about(self, name: str, revision: str) -> None:
        if found := self.repository(name, revision):
            self.say(self.facts(found[0], found[1]))

    def tree(self, name: str, revision: str) -> None:
        found = self.repository(name, revision)
        if not found:
            return
        entries = []
        for path, content in found[2].items():
            entry: dict[str, Any] = {"type": "file", "path": path, "size": content.n_bytes, "oid": content.git_oid}
            if path.endswith(LARGE_FILES):
                entry["lfs"] = {"oid": content.sha256, "size": content.n_bytes, "pointerSize": 134}
            entries.append(entry)
        first = int(self.asked.query.get("cursor", ["0"])[0])
        last = first + self.hub.page_size
        following = f"{self.hub.url}/api/models/{name}/tree/{revision}?recursive=true&cursor={last}"
        headers = {"Link": f'<{following}>; rel="next"'} if last < len(entries) else None
        self.say(entries[first:last], headers=headers)

    # --- files

    def resolve(self, name: str, revision: str, path: str) -> None:
        found = self.repository(name, revision)
        if not found:
            return
        repository, commit, files = found
        if repository.gated and self.token() not in repository.granted:
            message = f"Access to model {name} is restricted."
            self.refuse(403 if self.token() else 401, "GatedRepo", message)
            return
        content = files.get(path)
        if content is None:
            self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        large = path.endswith(LARGE_FILES)
        tag = content.sha256 if large else content.git_oid
        headers = {"X-Repo-Commit": commit, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
        if large:
            headers |= {"X-Linked-Size": str(content.n_bytes), "X-Linked-Etag": f'"{tag}"'}
        if large and self.hub.redirects:
            fault = self.hub.take_fault(path, False, self.asked.start) if self._has_hub_fault(path) else None
            if fault is not None and fault.status:
                said = {"Retry-After": fault.retry_after} if fault.retry_after else None
                self.refuse(fault.status, "", "as told", said)
                return
            location = f"{self.hub.store_url}/{quote(name)}/{commit}/{quote(path)}"
            self.begin(302, {**headers, "Location": location, "Content-Length": "0"})
            return
        self.send_file(path, content, tag, headers)

    def _has_hub_fault(self, path: str) -> bool:
        return any(f.of == "hub" and fnmatch(path, f.name) for f in self.hub.faults)

    def from_store(self, path: str) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path)
        content = self.hub.repositories[found[1]].commits[found[2]].get(found[3]) if found else None
        if found is None or content is None:
            self.say({"error": "no such object"}, 404)
            return
        if "authorization" in self.asked.headers:  # the store refuses a second kind of signature, as the real one does
            self.say({"error": "only one auth mechanism allowed"}, 400)
            return
        # The real store's ETag is its own, not the hub's; it stays the same for the same content.
        tag = hashlib.md5(content.sha256.encode(), usedforsecurity=False).hexdigest()
        self.send_file(found[3], content, tag, {"ETag": f'"{tag}"', "Accept-Ranges": "bytes"})

    def send_file(self, name: str, content: Content, tag: str, headers: Mapping[str, str]) -> None:
        size = content.n_bytes
        fault = self.hub.take_fault(name, self.at_store, self.asked.start) if self.command == "GET" else None
        if fault is not None and fault.status:
            said = {"Retry-After": fault.retry_after} if fault.retry_after else None
            self.refuse(fault.status, "", "as told", said)
            return
        start, end, status = 0, size, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.asked.headers.get("range", ""))
        condition = self.asked.headers.get("if-range", "").strip('"')
        if wanted and not self.hub.ignore_range and condition in ("", tag):
            start, end = int(wanted[1]), min(int(wanted[2]) + 1 if wanted[2] else size, size)
            if start >= size:
                self.begin(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
                return
            status = 206
        said = dict(headers)
        if self.hub.state_sizes:
            said["Content-Length"] = str(end - start)
        else:
            said["Connection"] = "close"
            self.close_connection = True
        if status == 206:
            said["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self.begin(status, said)
        if self.command != "HEAD":
            self.write_body(content, start, end, fault)

    def write_body(self, content: Content, start: int, end: int, fault: Fault | None) -> None:
        at, began = start, time.monotonic()
        while at < end and not self.hub.is_closing:
            n = min(BLOCK, end - at)
            if fault is not None:
                limit = fault.cut_after if fault.cut_after is not None else fault.stall_after
                if limit is not None and at - start >= limit:
                    if fault.cut_after is None:
                        self.hub.sleep(fault.stall_s)
                    self.cut()
                    return
                if limit is not None:
                    n = min(n, limit - (at - start))
            data = content.read(at, n)
            if fault is not None and fault.flip_at is not None and at <= fault.flip_at < at + n:
                flipped = bytearray(data)
                flipped[fault.flip_at - at] ^= 1
                data = bytes(flipped)
            if self.hub.down:
                self.cut()
                return
            try:
                self.wfile.write(data)
            except OSError:
                self.close_connection = True
                return
            at += n
            self.asked.sent += n
            if self.hub.bytes_per_s:
                self.hub.sleep(max(0.0, (at - start) / self.hub.bytes_per_s - (time.monotonic() - began)))

    def cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
