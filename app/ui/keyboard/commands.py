"""The commands of one window: binds their keys, runs them, and lists those that are available.

Each part of the window binds the commands that it implements. A command that is not bound has no keys and is not
listed.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from app.shortcuts import COMMANDS, Command, command


def always() -> bool:
    return True


class Commands(QObject):
    """The commands of a window; create one per window."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._commands: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {}

    def bind(self, act: str, do: Callable[[], object], can: Callable[[], bool] = always) -> None:
        """Bind a command of the table to `do`. can: whether it is available now."""
        known = command(act)
        if act in self._commands:
            raise ValueError(f"The command {act!r} is bound already.")
        self._commands[act] = (do, can)
        if known.where:  # that part of the window handles the keys itself
            return
        for keys in known.keys:
            QShortcut(QKeySequence(keys), self._window).activated.connect(lambda: self.run(act))

    def run(self, act: str) -> None:
        """Run a command if it is available."""
        do, can = self._commands[act]
        if can():
            do()

    def knows(self, act: str) -> bool:
        return act in self._commands

    def can(self, act: str) -> bool:
        """Return whether a command is bound and available."""
        return act in self._commands and self._commands[act][1]()

    def listed(self) -> list[Command]:
        """Return the available commands, in the order of the table."""
        return [known for known in COMMANDS if self.can(known.act)]
