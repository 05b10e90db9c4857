"""Server keys in the system's keyring: one per address, and the one that this PC's own server requires.

A key belongs to scheme, host and port: no other server receives it. Without a usable keyring nothing is stored, and the
result says so; the caller then keeps the key as long as it wants.
"""

from __future__ import annotations

import threading
from typing import Any

from engine.errors import InvalidRequestError
from engine.library.hub.system_keyring import SystemKeyring
from engine.remote_servers.address import origin_of

OWN_SERVER = "local server"  # keyring name of the key for clients of this PC's server
MAX_CHARACTERS = 4096


class ServerKeys:
    """The keys; one object per process, usable from any thread. Reads the keyring on first use."""

    def __init__(self) -> None:
        self._keyring = SystemKeyring()
        self._known: dict[str, str] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return "ServerKeys(...)"

    def of_server(self, address: str) -> str:
        """Return the key for a server; "" without one."""
        return self._get(_name_of(address))

    def keep_for_server(self, address: str, key: str) -> dict[str, Any]:
        """Store a key for a server; "" deletes it. {"kept": whether stored, "note": why not}."""
        return self._keep(_name_of(address), key)

    def own(self) -> dict[str, Any]:
        """Return the key of this PC's own server: {"key", "kept", "note"}."""
        key = self._get(OWN_SERVER)
        return {"key": key, "kept": bool(key), "note": "" if key else self._keyring.note}

    def keep_own(self, key: str) -> dict[str, Any]:
        """Replace the key of this PC's own server. Returns the same as `own`."""
        return {"key": key, **self._keep(OWN_SERVER, key)}

    def _get(self, name: str) -> str:
        with self._lock:
            if name not in self._known:
                self._known[name] = self._keyring.get(name)
            return self._known[name]

    def _keep(self, name: str, key: str) -> dict[str, Any]:
        key = checked_key(key)
        with self._lock:
            self._known.pop(name, None)
            if not key:
                gone = self._keyring.delete(name)
                return {"kept": not gone, "note": "" if gone else self._keyring.note}
            kept = self._keyring.keep(name, key)
            if kept:
                self._known[name] = key
            return {"kept": kept, "note": "" if kept else self._keyring.note}


def checked_key(key: str) -> str:
    """Return the key stripped of whitespace. Raises: InvalidRequestError, which does not repeat the key."""
    key = key.strip()
    if len(key) > MAX_CHARACTERS or any(not 33 <= ord(letter) < 127 for letter in key):
        raise InvalidRequestError("That is not a key: it has other characters than letters, digits and signs.")
    return key


def _name_of(address: str) -> str:
    return f"server {origin_of(address)}"
