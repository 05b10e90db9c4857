"""The commands of one window: their keys are bound here, and whoever lists them finds here what can be done now.

What a command does is told by the part that can do it; one that nobody can do has no keys and is listed nowhere.
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
    """One a window."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._acts: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {}

    def bind(self, act: str, do: Callable[[], object], can: Callable[[], bool] = always) -> None:
        """Have a command of the table done by `do`, while `can` says that it can be."""
        known = command(act)
        if act in self._acts:
            raise ValueError(f"The command {act!r} is bound already.")
        self._acts[act] = (do, can)
        if known.where:  # that part of the window hears the keys itself
            return
        for keys in known.keys:
            QShortcut(QKeySequence(keys), self._window).activated.connect(lambda: self.run(act))

    def run(self, act: str) -> None:
        """Do it, if it can be done now."""
        do, can = self._acts[act]
        if can():
            do()

    def knows(self, act: str) -> bool:
        """Whether anybody can do it, now or at another time."""
        return act in self._acts

    def can(self, act: str) -> bool:
        """Whether somebody could do it now."""
        return act in self._acts and self._acts[act][1]()

    def listed(self) -> list[Command]:
        """What can be done now, in the order of the table."""
        return [known for known in COMMANDS if self.can(known.act)]
