"""Check and normalise a server address that the user typed. Sends nothing."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from engine.errors import InvalidRequestError

MAX_CHARACTERS = 500
_HINT = "Write it like https://example.org/v1 or http://192.168.1.20:8000/v1."
_ENDINGS = ("/chat/completions", "/completions", "/models")  # often copied along with an address
_OWN_NETWORK = (".local", ".lan", ".internal", ".home.arpa", ".localhost")


def checked_address(text: str) -> str:
    """Return the base of requests: scheme, host, port and path, without a trailing slash.

    Plain http is allowed only for this PC and its own network, because others could read the traffic elsewhere.
    Raises: InvalidRequestError.
    """
    text = text.strip()
    if not text or len(text) > MAX_CHARACTERS or any(not 33 <= ord(letter) < 127 for letter in text):
        raise InvalidRequestError("That is not a server's address.", _HINT)
    if "://" not in text:
        host = urlsplit(f"//{text}").hostname or ""
        text = f"{'http' if is_near(host) else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidRequestError("That is not a server's address.", _HINT) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidRequestError("That is not a server's address.", _HINT)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidRequestError("An address must not contain a name, password or question mark.", _HINT)
    if parts.scheme == "http" and not is_near(host):
        raise InvalidRequestError(
            "That server is not in this PC's own network, and http is not encrypted.", "Use its address with https."
        )
    path = parts.path.rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending)
    return f"{parts.scheme}://{_netloc(host, port, parts.scheme)}{path or '/v1'}"


def origin_of(address: str) -> str:
    """Return scheme, host and port, to which a key belongs."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def is_near(host: str) -> bool:
    """Return whether it is this PC, or a host in its own network by address or name."""
    address = _ip_address(host)
    if address is None:
        return "." not in host or host.lower().endswith(_OWN_NETWORK)
    return address.is_loopback or address.is_private or address.is_link_local


def is_this_pc(host: str) -> bool:
    """Return whether requests to this host reach a program on this PC and nothing else.

    True for every spelling of a loopback address (127.0.0.0/8, ::1, ::ffff:127.0.0.1, 127.1, 0x7f000001), for the
    unspecified addresses 0.0.0.0 and ::, which connect to this PC, and for the name localhost. Every other name is
    resolved by DNS, *.localhost included on some systems, and so may be anywhere.
    """
    address = _ip_address(host)
    if address is None:
        return host.lower() in ("localhost", "localhost.")
    return address.is_loopback or address.is_unspecified


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that the system connects to for this spelling, or None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:  # short, octal and hexadecimal spellings, which the resolver accepts too
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _netloc(host: str, port: int | None, scheme: str) -> str:
    name = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[scheme]
    return name if port is None or port == usual else f"{name}:{port}"
