"""Keys of servers in the system's keyring: one for every address, and the one that this PC's own server asks for.

A key belongs to scheme, host and port: no other server ever gets it. Where no keyring can be used, nothing is kept
here and it is said; whoever has the key then holds it for as long as he wants.
"""

from __future__ import annotations

import threading
from typing import Any

from engine.errors import InvalidRequestError
from engine.library.hub.system_keyring import SystemKeyring
from engine.remote.address import origin_of

OWN_SERVER = "local server"  # the name in the keyring of the key that clients of this PC's server send
MAX_CHARACTERS = 4096


class ServerKeys:
    """One a process; any thread may ask. Nothing is read before it is needed."""

    def __init__(self) -> None:
        self._keyring = SystemKeyring()
        self._known: dict[str, str] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return "ServerKeys(...)"

    def of_server(self, address: str) -> str:
        """The key for a server; "" without one."""
        return self._get(_name_of(address))

    def keep_for_server(self, address: str, key: str) -> dict[str, Any]:
        """Keep a key for a server; "" takes it away. {"kept": whether the keyring has it now, "note": why not}."""
        return self._keep(_name_of(address), key)

    def own(self) -> dict[str, Any]:
        """The key of this PC's own server: {"key", "kept", "note"}."""
        key = self._get(OWN_SERVER)
        return {"key": key, "kept": bool(key), "note": "" if key else self._keyring.note}

    def keep_own(self, key: str) -> dict[str, Any]:
        """Keep another key for this PC's own server. As `own` says."""
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
                gone = self._keyring.forget(name)
                return {"kept": not gone, "note": "" if gone else self._keyring.note}
            kept = self._keyring.keep(name, key)
            if kept:
                self._known[name] = key
            return {"kept": kept, "note": "" if kept else self._keyring.note}


def checked_key(key: str) -> str:
    """A key without what came along when it was copied. Raises: InvalidRequestError, which does not repeat it."""
    key = key.strip()
    if len(key) > MAX_CHARACTERS or any(not 33 <= ord(letter) < 127 for letter in key):
        raise InvalidRequestError("That is no key: it has other characters than letters, digits and signs.")
    return key


def _name_of(address: str) -> str:
    return f"server {origin_of(address)}"
