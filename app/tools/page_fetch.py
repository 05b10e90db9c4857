"""Fetches a page of the public web, and nothing of this PC's own network. No Qt.

A host's name is resolved once, every address is checked, and the connection goes to a checked address, so that a name
that changes its address in between changes nothing. Redirects are followed within a site and checked in the same way.
There are no cookies, no referrer, no proxy and no compression.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from app.later import Later
from app.tools.tool_error import ToolError
from engine import __version__
from engine.errors import Cancelled

if TYPE_CHECKING:
    import http.client as http_client
    import ssl
else:
    http_client, ssl = Later("http.client"), Later("ssl")

MAX_BYTES = 4 << 20
MAX_REDIRECTS = 5
LONGEST_URL = 2_000
USER_AGENT = f"Hearth/{__version__} (desktop chat; reads a page when its user allows it)"
_ACCEPTED = (
    "text/html, application/xhtml+xml, text/plain, text/markdown, application/json, application/xml, application/pdf"
)
_CONNECT_S = 5.0  # to one of the host's addresses
_MOST_ADDRESSES = 4  # that are tried
_BLOCK_BYTES = 64 << 10
_LOOK_EVERY_S = 0.03
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_UNQUOTED = "/%:@!$&'()*+,;=~-._?[]"
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses, on networks that have IPv6 alone


@dataclass(frozen=True)
class WebAddress:
    """A checked address of the web. host: in ASCII, lower case. path: with the query, without a fragment."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def netloc(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.scheme == "https" else 80) else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"

    @property
    def site(self) -> str:
        """The host without "www."."""
        return self.host.removeprefix("www.")

    def may_lead_to(self, other: WebAddress) -> bool:
        """Return whether a redirect stays within the site, and is not less protected."""
        return self.site == other.site and (self.scheme, other.scheme) != ("https", "http")


@dataclass(frozen=True)
class Fetched:
    """A page's bytes. kind: its media type, or "". charset: as its header names it, or "". is_whole: False if there was
    more than MAX_BYTES, or the connection ended early.
    """

    address: WebAddress
    kind: str
    charset: str
    data: bytes
    is_whole: bool


@dataclass(frozen=True)
class Network:
    """How hosts are found and reached. resolve: host and port to addresses. connect: address, port and time limit."""

    resolve: Callable[[str, int], Sequence[str]]
    connect: Callable[[str, int, float], socket.socket]
    trust: Callable[[], ssl.SSLContext]


def _resolve(host: str, port: int) -> Sequence[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _connect(address: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((address, port), timeout)


def _trust() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


SYSTEM = Network(_resolve, _connect, _trust)


def web_address(text: str) -> WebAddress:
    """Return an address from its text. Raises ToolError with what is allowed. Resolves and sends nothing."""
    text = text.strip()
    if "://" not in text and re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?([/?#]|$)", text):
        text = f"https://{text}"
    if len(text) > LONGEST_URL:
        raise ToolError(f"The address has {len(text):,} characters; at most {LONGEST_URL:,} are allowed.")
    if "\\" in text or any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ToolError("The address contains a character that no address can have.")
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise ToolError("That is not an address. Write it like https://example.org/page.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ToolError("Only addresses that begin with https:// or http:// can be read.")
    if parts.username is not None or parts.password is not None:
        raise ToolError("An address with a user name or a password is not read. Leave them out.")
    port = port if port is not None else 443 if parts.scheme == "https" else 80
    if port not in (80, 443) and not 1024 <= port <= 65535:
        raise ToolError(f"Port {port} is not one of the web. Leave it out.")
    query = f"?{quote(parts.query, _UNQUOTED)}" if parts.query else ""
    return WebAddress(parts.scheme, _ascii_host(host), port, (quote(parts.path, _UNQUOTED) or "/") + query)


def _ascii_host(host: str) -> str:
    if ":" in host and "%" not in host:  # no address of a single network interface
        with suppress(ValueError):
            return str(ipaddress.IPv6Address(host))
    elif len(host) <= 253:
        with suppress(UnicodeError):
            if _HOST.fullmatch(name := host.encode("idna").decode().lower()):
                return name
    raise ToolError("The address names no host. Write it like https://example.org/page.")


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # with the name of a network interface
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        if found not in _GLOBAL_UNICAST:
            return False
        if found.sixtofour is not None:  # Python 3.13 calls none of them global
            return is_public(str(found.sixtofour))
    return found.is_global and not found.is_multicast and not found.is_reserved


def fetch(
    address: WebAddress, within_s: float, network: Network = SYSTEM, is_cancelled: Callable[[], bool] = lambda: False
) -> Fetched | WebAddress:
    """Return a page, or the address on another site to which it redirects. within_s: time limit in seconds.

    Raises ToolError with what went wrong, and Cancelled. Returns at once when it is cancelled.
    """
    until = time.monotonic() + within_s
    run = _Fetching(address, network, within_s)
    threading.Thread(target=run.work, name="web-page", daemon=True).start()
    while not run.done.wait(_LOOK_EVERY_S):
        if is_cancelled():
            run.stop()
            raise Cancelled
        if time.monotonic() > until:
            run.stop()
            raise ToolError(f"{address.host} did not send the page within {within_s:.0f} s.")
    if run.result is None:
        raise run.error or Cancelled
    return run.result


class _Fetching:
    """One fetch, in a thread of its own, which a silent host cannot hold up for the caller."""

    def __init__(self, address: WebAddress, network: Network, within_s: float) -> None:
        self._address, self._network, self._within_s = address, network, within_s
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self.done = threading.Event()
        self.result: Fetched | WebAddress | None = None
        self.error: Exception | None = None

    def stop(self) -> None:
        """End the connection, from another thread."""
        self._stopped.set()
        if (current := self._socket) is not None:
            with suppress(OSError):  # closed already; without TLS's goodbye, which the other thread may be sending
                socket.socket.shutdown(current, socket.SHUT_RDWR)

    def work(self) -> None:
        """Fetch, and set `done` with `result` or `error`."""
        try:
            self.result = self._followed(self._address)
        except ssl.SSLCertVerificationError:
            self.error = ToolError(f"The certificate of {self._address.host} is not trusted, so nothing was read.")
        except TimeoutError:
            self.error = ToolError(f"{self._address.host} does not answer.")
        except (OSError, http_client.HTTPException):
            self.error = ToolError(f"The connection to {self._address.host} failed or was lost.")
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        finally:
            self.done.set()

    def _followed(self, address: WebAddress) -> Fetched | WebAddress:
        for _ in range(MAX_REDIRECTS + 1):
            self._address = address
            with self._connected(address) as connection:
                self._socket = connection
                if self._stopped.is_set():
                    raise Cancelled
                response = self._response(address, connection)
                with response:
                    if response.status not in (301, 302, 303, 307, 308):
                        return self._read(address, response)
                    target = self._target(address, response.headers.get("Location", ""))
            if not address.may_lead_to(target):
                return target
            address = target
        raise ToolError(f"{address.host} redirects more than {MAX_REDIRECTS} times, so nothing was read.")

    def _target(self, address: WebAddress, location: str) -> WebAddress:
        try:
            return web_address(urljoin(address.url, location))
        except (ToolError, ValueError):
            raise ToolError(f"{address.host} redirects to something that is not an address of the web.") from None

    def _connected(self, address: WebAddress) -> socket.socket:
        """Return a connection to one of the host's addresses, all of which are public."""
        try:
            found = list(dict.fromkeys(self._network.resolve(address.host, address.port)))
        except (OSError, UnicodeError):
            raise ToolError(f"The host {address.host} was not found. Check the address.") from None
        if not found or not all(is_public(one) for one in found):
            raise ToolError(
                f"{address.host} is not on the public internet: it belongs to this PC or a private network, which is "
                "never read."
            )
        failed: OSError | None = None
        for one in found[:_MOST_ADDRESSES]:
            if self._stopped.is_set():
                raise Cancelled
            try:
                connection = self._network.connect(one, address.port, _CONNECT_S)
            except OSError as error:
                failed = error
                continue
            return self._protected(address, connection)
        assert failed is not None
        raise failed

    def _protected(self, address: WebAddress, connection: socket.socket) -> socket.socket:
        """Return the connection with TLS if the address asks for it. The certificate must be the host's."""
        connection.settimeout(self._within_s)
        if address.scheme == "http":
            return connection
        try:
            protected = self._network.trust().wrap_socket(
                connection, server_hostname=address.host, do_handshake_on_connect=False
            )
        except BaseException:
            connection.close()
            raise
        self._socket = protected
        try:
            protected.do_handshake()
        except BaseException:
            protected.close()
            raise
        return protected

    def _response(self, address: WebAddress, connection: socket.socket) -> http_client.HTTPResponse:
        talk = http_client.HTTPConnection(address.host, address.port)
        talk.auto_open = 0  # it must never connect by itself, to an address that was not checked
        talk.sock = connection
        talk.putrequest("GET", address.path, skip_host=True, skip_accept_encoding=True)
        headers = {"Host": address.netloc, "User-Agent": USER_AGENT, "Accept": _ACCEPTED,
                   "Accept-Encoding": "identity", "Connection": "close"}  # fmt: skip
        for name, value in headers.items():
            talk.putheader(name, value)
        talk.endheaders()
        return talk.getresponse()

    def _read(self, address: WebAddress, response: http_client.HTTPResponse) -> Fetched:
        if response.status >= 300 or response.status < 200:
            raise ToolError(_refusal(address.host, response.status))
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise ToolError(f"{address.host} sends only compressed pages, which are not read.")
        kind, _, rest = response.headers.get("Content-Type", "").partition(";")
        charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", rest, re.IGNORECASE)
        kind = kind.strip().lower()[:80]
        if not is_readable(kind):
            raise ToolError(f"{address.host} sends {kind!a}. Only text, HTML, JSON, XML and PDF can be read.")
        blocks: list[bytes] = []
        n_bytes = 0
        while n_bytes <= MAX_BYTES and (block := response.read1(_BLOCK_BYTES)):
            if self._stopped.is_set():
                raise Cancelled
            blocks.append(block)
            n_bytes += len(block)
        is_whole = n_bytes <= MAX_BYTES and not response.length
        return Fetched(address, kind, charset[1] if charset else "", b"".join(blocks)[:MAX_BYTES], is_whole)


def is_readable(kind: str) -> bool:
    """Return whether pages of this media type have a text. "": unknown, which their bytes decide."""
    return (kind.endswith(("+json", "+xml")) and kind.startswith(("application/", "text/"))) or kind in (
        "", "text/html", "application/xhtml+xml", "text/plain", "text/markdown", "text/x-markdown", "text/csv",
        "text/xml", "application/xml", "application/json", "text/json", "application/pdf",
    )  # fmt: skip


def _refusal(host: str, status: int) -> str:
    phrase = http_client.responses.get(status, "")
    why = f"{host} answered {status}{f' ({phrase})' if phrase else ''}, so nothing was read."
    if status in (404, 410):
        return f"{why} The page does not exist. Check the address."
    if status in (401, 402, 403, 407, 451):
        return f"{why} The page is not open to everyone."
    if status == 429:
        return f"{why} It allows no more requests for now."
    return f"{why} Its server failed; it may work later." if status >= 500 else why
