"""Look for a newer version of Hearth at the address that this build was given, when called.

The request contains nothing about the user. A build without an address, such as a checkout, makes no request.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import Any

from engine import __version__
from engine.assets import asset_root

log = logging.getLogger(__name__)

ANSWER_S = 10.0
MAX_BYTES = 1 << 20
_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){1,3})")  # no trial versions
_PAGE = re.compile(r"https://[!-~]{1,300}")


@dataclass(frozen=True)
class Release:
    """An available version. page: its web page, empty if unknown."""

    version: str
    page: str


def feed() -> str:
    """Return the address that the build was given, or ""."""
    try:
        address = json.loads((asset_root() / "release.json").read_text(encoding="utf-8"))["feed"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return address if isinstance(address, str) else ""


def newer_release(own: str = __version__) -> Release | None:
    """Return a version newer than ours; None if there is none or no address answers."""
    address = feed()
    if not address:
        return None
    import httpx2

    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "Hearth"}
    try:
        with (
            httpx2.Client(timeout=ANSWER_S, follow_redirects=True, headers=headers) as client,
            client.stream("GET", address) as response,
        ):
            response.raise_for_status()
            data = b""
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ValueError("the answer is packed")  # unpacked, 1 KB can become gigabytes
            for block in response.iter_raw():
                data += block
                if len(data) > MAX_BYTES:
                    raise ValueError("the answer is too long")
        return _newer(json.loads(data), own)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
        log.info("no newer version could be looked for: %s", type(error).__name__)
        return None


def _newer(said: Any, own: str) -> Release | None:
    if not isinstance(said, dict):
        return None
    match = _VERSION.fullmatch(str(said.get("tag_name", "")))
    if match is None or _numbers(match[1]) <= _numbers(own):
        return None
    page = str(said.get("html_url", ""))
    return Release(match[1], page if _PAGE.fullmatch(page) else "")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the version as numbers; 1.2 equals 1.2.0."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return tuple(numbers + [0] * (4 - len(numbers)))
