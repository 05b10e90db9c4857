"""Waits in tests of the window: a slow machine fails none of them, and who waits for nothing is told in the end."""

from __future__ import annotations

from typing import Any

from pytestqt.qtbot import QtBot

PATIENCE_MS = 60_000


class PatientBot(QtBot):
    """What is waited for may take a minute where the test does not say otherwise."""

    def waitUntil(self, callback: Any, *, timeout: int = PATIENCE_MS) -> None:
        super().waitUntil(callback, timeout=timeout)

    def waitSignal(self, signal: Any, *, timeout: int = PATIENCE_MS, **more: Any) -> Any:
        return super().waitSignal(signal, timeout=timeout, **more)
