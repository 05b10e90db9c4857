"""The tools that a chat can use, as the composer shows them. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from app.tools.tool import Tool


@dataclass(frozen=True)
class ToolOffer:
    """The tools that can be called now, and those that are on for the open chat.

    on: their names; may hold tools of a server that is not connected now. tokens: what the definitions of the tools
    that are on take of the context; None: unknown. can_call: whether the chat's model can call tools.
    has_consents: whether some calls of the chat run without a question.
    """

    tools: tuple[Tool, ...] = ()
    on: frozenset[str] = frozenset()
    tokens: int | None = None
    can_call: bool = False
    has_consents: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether there is anything to choose."""
        return self.can_call and bool(self.tools)

    @property
    def n_on(self) -> int:
        """The number of tools that are on and can be called now."""
        return sum(tool.name in self.on for tool in self.tools)

    @property
    def groups(self) -> list[tuple[str, list[Tool]]]:
        """The tools by source in the order of `tools`, the built-in ones first."""
        sources = sorted(dict.fromkeys(tool.source for tool in self.tools), key=bool)
        return [(source, [tool for tool in self.tools if tool.source == source]) for source in sources]

    def picked(self, name: str, is_on: bool) -> list[str]:
        """Return the names of the tools that are on after one was switched, in the order of `tools`."""
        on = self.on | {name} if is_on else self.on - {name}
        known = [tool.name for tool in self.tools if tool.name in on]
        return known + sorted(on.difference(known))
