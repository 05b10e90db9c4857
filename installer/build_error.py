"""Errors of a build of Hearth: one sentence and the remedy."""

from __future__ import annotations


class BuildError(Exception):
    """The build cannot continue; `act` says what the person can do."""

    def __init__(self, what: str, act: str) -> None:
        super().__init__(f"{what}\n  What to do: {act}" if act else what)
        self.what = what
        self.act = act
