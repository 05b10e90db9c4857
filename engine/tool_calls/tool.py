"""Tools that a client offers to the model, and whether the model must call one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Choice = Literal["none", "auto", "required"]


@dataclass(frozen=True)
class Tool:
    """One tool. parameters: JSON schema of its arguments, an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """Return the tool as chat templates take it."""
        parameters = {"properties": {}, **self.parameters}  # which many templates read
        about = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": about}


@dataclass(frozen=True)
class ToolUse:
    """The tools of one request. allowed: names of those that may be called. is_parallel: whether an answer may have
    several calls.
    """

    tools: tuple[Tool, ...] = ()
    choice: Choice = "auto"
    allowed: frozenset[str] = frozenset()
    is_parallel: bool = True

    @property
    def callable(self) -> tuple[Tool, ...]:
        return () if self.choice == "none" else tuple(tool for tool in self.tools if tool.name in self.allowed)


NO_TOOLS = ToolUse()
