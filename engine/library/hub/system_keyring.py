"""The system's keyring: secrets under a name, asked with patience and never waited for without an end.

It says why it cannot be used and keeps nothing itself. What is kept there is never logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

SERVICE = "Hearth"
NO_KEYRING = "this system has no keyring"
WAIT_S = 20.0  # a person may have to unlock it; a broken one may never answer

Value = TypeVar("Value")


class SystemKeyring:
    """note: why the last asking failed, as the end of a sentence without its period, or ""."""

    def __init__(self) -> None:
        self.note = ""

    def get(self, name: str) -> str:
        """The secret of that name; "" where there is none."""
        return self._ask(lambda keyring: keyring.get_password(SERVICE, name)) or ""

    def keep(self, name: str, secret: str) -> bool:
        """Whether it is kept there now."""
        return bool(self._ask(lambda keyring: (keyring.set_password(SERVICE, name, secret), True)[1]))

    def forget(self, name: str) -> bool:
        """Delete a secret; return whether the keyring holds none of that name now. `note` says why it may."""
        if self._ask(lambda keyring: (keyring.delete_password(SERVICE, name), True)[1], quiet=True):
            return True
        # A keyring raises for what it does not hold, too.
        return not self.get(name) and self.note in ("", NO_KEYRING)

    def _ask(self, ask: Callable[[Any], Value], quiet: bool = False) -> Value | None:
        """What the keyring answers, None where there is none, it refuses, or does not answer in time."""
        answers: list[Value] = []
        failures: list[str] = []

        def run() -> None:
            try:
                import keyring

                answers.append(ask(keyring))
            except Exception as error:  # noqa: BLE001 - backends raise what their systems raise
                name = type(error).__name__  # its words may hold what was to be kept
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
