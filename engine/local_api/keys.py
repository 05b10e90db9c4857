"""The key of the local API: create, read, check, and compare it in constant time.

The window decides where to store it; here it is only in memory.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from engine.errors import InvalidRequestError

KEY_VARIABLE = "HEARTH_API_KEY"
SHORTEST_KEY, LONGEST_KEY = 8, 200  # characters
_MOST_FILE_BYTES = 4096


def make_key() -> str:
    """Return a new random key of 256 bits."""
    return "hearth-" + secrets.token_urlsafe(32)


def check_key(key: str) -> str:
    """Return the key. Raises: InvalidRequestError if it is not valid in a header, or easily guessed."""
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY or not all("!" <= char <= "~" for char in key):
        raise InvalidRequestError(
            f"The key has {len(key)} characters; it needs {SHORTEST_KEY} to {LONGEST_KEY} letters, digits or signs of "
            "ASCII, without spaces.",
            "Choose another key, or let Hearth make one.",
        )
    return key


def find_key(key: str | None, key_file: str | None) -> tuple[str, bool]:
    """Return the key (as given, or from the file or the environment, or a new one), and whether it is new.

    Raises: InvalidRequestError for a file that cannot be read, and as check_key.
    """
    if key is not None:
        return check_key(key), False
    if key_file is not None:
        return check_key(_read(Path(key_file))), False
    if (given := os.environ.get(KEY_VARIABLE)) is not None:
        return check_key(given.strip()), False
    return make_key(), True


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_FILE_BYTES).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidRequestError(f"The key cannot be read from {file}: {why}.", "Name another file.") from error


class KeyCheck:
    """Compares keys in constant time by their digests."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(check_key(key).encode("ascii"))

    def fits(self, given: bytes) -> bool:
        return hmac.compare_digest(self._digest, _digest(given))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
