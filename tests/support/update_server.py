"""A server of updates on this PC, the keys of a release, and a build that trusts them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine.library.updates import release
from engine.library.updates.manifest import Manifest, UpdateFile, signed

PLATFORM = "linux-x86_64-tarball"
TODAY = date(2026, 6, 1)
KEY, OFFLINE, STRANGER = (bytes([number]) * 32 for number in (1, 2, 3))


class UpdateServer:
    """answers: by path, the body, or a pair of status and headers. asked: (path, headers) of each request."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.answers: dict[str, bytes | tuple[int, dict[str, str]]] = {}
        self.claimed: dict[str, int] = {}  # a Content-Length that the body does not have
        self.asked: list[tuple[str, dict[str, str]]] = []

    def offer(self, version: str = "2.0", body: bytes = b"program", key: bytes = KEY, **changed: object) -> Manifest:
        """Serve a signed manifest with one file. changed: other values of the manifest."""
        url = f"{self.base}/hearth.tar.xz"
        file = UpdateFile(PLATFORM, "hearth.tar.xz", url, len(body), hashlib.sha256(body).hexdigest())
        values = {"released": TODAY, "expires": date(2099, 1, 1), "notes": "News", "page": "", "files": (file,)}
        manifest = Manifest(version, **{**values, **changed})  # type: ignore[arg-type]
        self.answers["/manifest"] = signed(manifest, [key])
        self.answers["/hearth.tar.xz"] = body
        return manifest


@contextmanager
def serving(assets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UpdateServer]:
    """Serve updates to a build whose assets are in `assets`. It trusts KEY and OFFLINE."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            answer = place.answers[self.path]
            status, headers = (200, {}) if isinstance(answer, bytes) else answer
            body = answer if isinstance(answer, bytes) else b""
            self.send_response(status)
            for name, value in {"Content-Length": str(place.claimed.get(self.path, len(body))), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        place = UpdateServer(f"http://127.0.0.1:{server.server_port}")
        trusted = [Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw() for key in (KEY, OFFLINE)]
        (assets / "release.json").write_text(json.dumps({"feed": f"{place.base}/manifest"}))
        (assets / "update-keys.txt").write_text("# keys\n" + "".join(f"{key.hex()}  # one\n" for key in trusted))
        monkeypatch.setattr(release, "asset_root", lambda: assets)
        monkeypatch.setattr("engine.library.updates.installed.platform", lambda: PLATFORM)
        yield place
        server.shutdown()
        thread.join()
