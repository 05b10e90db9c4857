"""The access token for a hub, from the environment, the system's keyring, memory, or a file that the user agreed to.

Tokens never appear in logs, error messages or reprs. Nothing is read before it is needed, because a keyring may ask the
user to unlock it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import platformdirs

from engine.errors import InvalidRequestError, LibraryError
from engine.library.hub.system_keyring import SystemKeyring

USER = "model hub"
ENVIRONMENT = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_REMEDY = "A token is kept only until Hearth ends. To keep it, install a keyring such as GNOME Keyring or KWallet."
MAX_TOKEN_CHARACTERS = 4096


class Credentials:
    """The token of one process. Thread-safe.

    file: stores the token if no keyring can.
    """

    def __init__(self, file: Path | None = None) -> None:
        config = platformdirs.user_config_dir("Hearth", appauthor=False)
        self._file = file if file is not None else Path(config) / "hub-token"
        self._lock = threading.RLock()
        self._memory = ""
        self._from_keyring: str | None = None  # None: not asked yet
        self._keyring = SystemKeyring()

    def __repr__(self) -> str:
        return "Credentials(...)"

    def token(self) -> str | None:
        """Return the token for requests to the hub, or None."""
        return self._found()[0] or None

    def state(self) -> dict[str, Any]:
        """Return {"has_token", "where": environment, memory, keyring, file or "", "note": one sentence or ""}."""
        token, where, note = self._found()
        return {"has_token": bool(token), "where": where, "note": note}

    def set(self, token: str, allow_file: bool = False) -> dict[str, Any]:
        """Store a token in the keyring, or remove it everywhere if it is empty; return the new state.

        Without a keyring, `allow_file` means that the user agreed to a file that only they can read; otherwise the
        token stays in memory until Hearth ends. Raises: InvalidRequestError if it is not a token, LibraryError if the
        file cannot be written.
        """
        token = token.strip()
        if len(token) > MAX_TOKEN_CHARACTERS or any(not 33 <= ord(letter) < 127 for letter in token):
            raise InvalidRequestError("That is not an access token: it has other characters than letters and digits.")
        with self._lock:
            self._delete_file()
            self._memory = ""
            kept = self._keep_in_keyring(token)
            if token and not kept:
                if allow_file:
                    self._write_file(token)
                else:
                    self._memory = token
        return self.state()

    # --- places

    def _found(self) -> tuple[str, str, str]:
        """Return (token, where, note)."""
        for variable in ENVIRONMENT:
            if token := os.environ.get(variable, "").strip():
                return token, "environment", f"The environment sets {variable}, which takes precedence."
        with self._lock:
            if self._memory:
                return self._memory, "memory", self._because("It is forgotten when Hearth ends.")
            if self._from_keyring is None:
                self._from_keyring = self._keyring.get(USER)
            if self._from_keyring:
                return self._from_keyring, "keyring", ""
            if token := _read_token(self._file):
                return token, "file", self._because(f"It is in {self._file}.")
            theirs = _client_token_file()
            if token := _read_token(theirs):
                return token, "file", f"It was left in {theirs} by another program's login to the hub."
            if not self._keyring.note:
                return "", "", ""
            return "", "", f"Access token can't be stored: {self._keyring.note}. {_REMEDY}"

    def _because(self, what: str) -> str:
        """Return a sentence about the token, preceded by the reason why no keyring holds it."""
        why = self._keyring.note
        return f"{why[:1].upper()}{why[1:]}. {what}" if why else what

    def _keep_in_keyring(self, token: str) -> bool:
        self._from_keyring = ""
        if token:
            kept = self._keyring.keep(USER, token)
            self._from_keyring = token if kept else ""
            return kept
        if not self._keyring.delete(USER):
            self._from_keyring = None  # the state must not say that it is gone
        return False

    def _write_file(self, token: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(token)
            self._file.chmod(0o600)
        except OSError as error:
            raise LibraryError(f"Couldn't store the access token in {self._file}: {error.strerror or error}.") from None

    def _delete_file(self) -> None:
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            raise LibraryError(f"{self._file} cannot be deleted: {error.strerror or error}.", "Delete it.") from None


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return token if 0 < len(token) <= MAX_TOKEN_CHARACTERS and token.isprintable() and " " not in token else ""


def _client_token_file() -> Path:
    """Return the file in which the hub's own client keeps a login, according to the environment."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    home = os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")
    return Path(os.path.expanduser(os.path.expandvars(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token"))))
