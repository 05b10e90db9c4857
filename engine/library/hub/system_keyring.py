"""The system's keyring: secrets by name, with a time limit on every call.

It reports why it cannot be used and stores nothing itself. Its secrets are never logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

SERVICE = "Hearth"
NO_KEYRING = "this system has no keyring"
WAIT_S = 20.0  # the user may have to unlock it; a broken keyring may never answer

Value = TypeVar("Value")


class SystemKeyring:
    """note: why the last call failed, as the end of a sentence without its period, or ""."""

    def __init__(self) -> None:
        self.note = ""

    def get(self, name: str) -> str:
        """Return the secret with that name, or ""."""
        return self._ask(lambda keyring: keyring.get_password(SERVICE, name)) or ""

    def keep(self, name: str, secret: str) -> bool:
        """Store a secret; return whether the keyring holds it now."""
        return bool(self._ask(lambda keyring: (keyring.set_password(SERVICE, name, secret), True)[1]))

    def delete(self, name: str) -> bool:
        """Delete a secret; return whether it is gone. If not, `note` says why."""
        if self._ask(lambda keyring: (keyring.delete_password(SERVICE, name), True)[1], quiet=True):
            return True
        # Keyrings also raise for secrets that they do not hold.
        return not self.get(name) and self.note in ("", NO_KEYRING)

    def _ask(self, ask: Callable[[Any], Value], quiet: bool = False) -> Value | None:
        """Return the keyring's answer; None if it has none, refuses, or times out."""
        answers: list[Value] = []
        failures: list[str] = []

        def run() -> None:
            try:
                import keyring

                answers.append(ask(keyring))
            except Exception as error:  # noqa: BLE001 - backends raise what their systems raise
                name = type(error).__name__  # its message may contain the secret
                log.info("the system's keyring cannot be used: %s", name)
                failures.append(NO_KEYRING if name == "NoKeyringError" else "this system's keyring refused")

        thread = threading.Thread(target=run, daemon=True, name="keyring")
        thread.start()
        thread.join(WAIT_S)
        self.note = ""
        if answers:
            return answers[0]
        if not quiet:
            if not failures:
                log.info("the system's keyring did not answer in %.0f s", WAIT_S)
            self.note = failures[0] if failures else "this system's keyring did not answer"
        return None
