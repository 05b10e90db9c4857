"""Serves HTML or SVG of an answer to the user's browser, closed off from the network and from other pages.

Each page has a server of its own on a free port of 127.0.0.1, with addresses that nobody can guess. The browser loads a
wrapper whose policy allows one frame, of that origin; the frame is sandboxed, so that the page has an origin of its own
and its scripts reach nothing. The wrapper's policy stops any navigation of the frame away from the origin. No Qt.

Chromium 156 ignores `webrtc 'block'`. So a script before the page's own removes WebRTC, and frames, which have it too,
from the document and from shadow trees. Nothing but `attachShadow` may make such a tree, because nothing else tells the
script of it: no declaration in HTML, no copy, and no `document.write`, which puts its text into the page as data.
What is left: bugs of the browser.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import secrets
import threading
from collections import deque
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from app.translation import tr

Kind = Literal["html", "svg"]

OPEN_S = 600.0
MOST_OPEN = 8  # pages at once; the oldest ends
REQUEST_S = 10.0
_STYLE = "html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; background: #fff }"
_SVG_STYLE = "body { margin: 0 } svg { display: block; max-width: 100vw; max-height: 100vh; margin: auto }"
_SANDBOX = "allow-scripts"
_NO_WEBRTC = """<script>{
for (const name of Object.getOwnPropertyNames(window)) if (/RTC/.test(name)) delete window[name];
const { apply } = Reflect, { remove, attachShadow } = Element.prototype, { observe } = MutationObserver.prototype;
const selects = [Document.prototype.querySelector, DocumentFragment.prototype.querySelector];
let roots = null;
const watch = new MutationObserver(() => {
  for (let at = roots, frame; at; at = at.next)
    while (frame = apply(at.select, at.root, ["iframe, frame"])) apply(remove, frame, []);
});
const look = (root, select) => {
  roots = { root, select, next: roots };
  apply(observe, watch, [root, { __proto__: null, childList: true, subtree: true }]);
};
look(document, selects[0]);
Element.prototype.attachShadow = function ({ mode, delegatesFocus, slotAssignment }) {
  const init = { __proto__: null, mode, delegatesFocus, slotAssignment, clonable: false };
  const root = apply(attachShadow, this, [init]);
  look(root, selects[1]);
  return root;
};
for (const owner of [Document, Element.prototype, ShadowRoot.prototype])
  for (const name of Object.getOwnPropertyNames(owner)) if (/Unsafe/.test(name)) delete owner[name];
const { insertAdjacentHTML } = Element.prototype;
Document.prototype.write = Document.prototype.writeln = (...parts) => {
  const at = document.currentScript;
  apply(insertAdjacentHTML, at ?? document.body, [at ? "beforebegin" : "beforeend", parts.join("")]);
};
}</script>"""
_PERMISSIONS = (
    "accelerometer", "ambient-light-sensor", "attribution-reporting", "autoplay", "bluetooth", "browsing-topics",
    "camera", "clipboard-read", "clipboard-write", "compute-pressure", "display-capture", "encrypted-media",
    "fullscreen", "gamepad", "geolocation", "gyroscope", "hid", "identity-credentials-get", "idle-detection",
    "interest-cohort", "join-ad-interest-group", "keyboard-map", "local-fonts", "magnetometer", "microphone", "midi",
    "otp-credentials", "payment", "picture-in-picture", "publickey-credentials-get", "run-ad-auction",
    "screen-wake-lock", "serial", "shared-storage", "speaker-selection", "storage-access", "sync-xhr", "usb",
    "web-share", "window-management", "xr-spatial-tracking",
)  # fmt: skip


class BrowserPage:
    """One page, served until `close`. address: for the browser. Raises OSError if no port is free."""

    def __init__(self, code: str, kind: Kind) -> None:
        page = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                page.answer(self)

            def do_HEAD(self) -> None:
                page.answer(self)

            def version_string(self) -> str:
                return "Hearth"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: addresses are secret."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._origin = f"http://127.0.0.1:{self.port}"
        self._outer, self._inner = (f"/{secrets.token_urlsafe(32)}" for _ in range(2))
        self.address = self._origin + self._outer
        self._pages = {
            self._outer: (self._wrapper(kind).encode(), self._wrapper_headers()),
            self._inner: (_document(code, kind).encode(errors="replace"), self._page_headers()),
        }
        threading.Thread(target=self._server.serve_forever, name="browser-page", daemon=True).start()
        self._end = threading.Timer(OPEN_S, self._shut_down)
        self._end.daemon = True
        self._end.start()

    def close(self) -> None:
        """Refuse all requests. A thread ends the server, which looks for its end only twice a second."""
        self._end.cancel()
        self._pages = {}
        threading.Thread(target=self._shut_down, name="browser-page-end", daemon=True).start()

    def _shut_down(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request for one of the two addresses; everything else is not found."""
        pages = self._pages
        path = next((one for one in pages if secrets.compare_digest(one, request.path)), "")
        if request.headers.get("Host") != f"127.0.0.1:{self.port}":
            self._refuse(request, 421)  # another name for this PC, such as one that an attacker's server gives out
        elif not path:
            self._refuse(request, 404)
        elif path == self._inner and request.headers.get("Sec-Fetch-Dest", "iframe") != "iframe":
            self._refuse(request, 403)  # without its frame, the page could navigate elsewhere
        else:
            body, headers = pages[path]
            self._send(request, 200, headers, body)

    def _refuse(self, request: BaseHTTPRequestHandler, status: int) -> None:
        self._send(request, status, {"Content-Security-Policy": "default-src 'none'", **_ALWAYS}, b"")

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        with contextlib.suppress(OSError):  # the browser has gone
            request.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
                request.send_header(name, value)
            request.end_headers()
            if request.command == "GET":
                request.wfile.write(body)

    def _wrapper(self, kind: Kind) -> str:
        title = tr("SVG of an answer") if kind == "svg" else tr("Page of an answer")
        return (
            f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{escape(title)} – Hearth</title>'
            f'<style>{_STYLE}</style></head><body><iframe sandbox="{_SANDBOX}" referrerpolicy="no-referrer" '
            f'src="{self._origin}{self._inner}"></iframe></body></html>'
        )

    def _wrapper_headers(self) -> dict[str, str]:
        digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; frame-src {self._origin}; style-src 'sha256-{digest}'; form-action 'none'; "
            "base-uri 'none'; frame-ancestors 'none'; webrtc 'block'"
        )
        return {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy, **_ALWAYS}

    def _page_headers(self) -> dict[str, str]:
        policy = "; ".join((*_PAGE_POLICY, f"frame-ancestors {self._origin}"))
        return {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy, **_ALWAYS}


_PAGE_POLICY = (
    f"sandbox {_SANDBOX}", "default-src 'none'", "script-src 'unsafe-inline'", "style-src 'unsafe-inline'",
    "img-src data:", "font-src data:", "media-src data:", "connect-src 'none'", "form-action 'none'",
    "base-uri 'none'", "webrtc 'block'",
)  # fmt: skip
_ALWAYS = {
    "X-DNS-Prefetch-Control": "off",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{name}=()" for name in _PERMISSIONS),
}


def _document(code: str, kind: Kind) -> str:
    code = re.sub("shadowrootmode", "data-shadow", code, flags=re.IGNORECASE)
    return f"<!DOCTYPE html>{_NO_WEBRTC}" + (code if kind == "html" else f"<style>{_SVG_STYLE}</style>{code}")


_open: deque[BrowserPage] = deque()


def serve(code: str, kind: Kind) -> str:
    """Serve a page for OPEN_S seconds, or until the program ends. Return its address. Raises OSError."""
    page = BrowserPage(code, kind)
    _open.append(page)
    while len(_open) > MOST_OPEN:
        _open.popleft().close()
    return page.address
