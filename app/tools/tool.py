"""A tool as data, and what a source of tools must offer. No Qt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

LONGEST_RESULT = 100_000  # characters; a source cuts longer results and says so in the text


@dataclass(frozen=True)
class Tool:
    """A tool that can be offered to a model.

    name: for the model, unique, of letters, digits, "_" and "-", at most 64. title: for the user, translated if it is
    built in. description: for the model. parameters: JSON schema of the arguments, an object. source: name of the
    server that offers it; "" if it is built in. is_local: whether it neither sends nor changes anything, and so needs
    no consent. digest: of the definition that the user approved, for tools of servers.
    """

    name: str
    title: str
    description: str
    parameters: Mapping[str, Any]
    source: str = ""
    is_local: bool = False
    digest: str = ""

    @property
    def definition(self) -> dict[str, Any]:
        """The definition for the engine: name, description and parameters."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Scope:
    """The calls that a lasting consent covers. key: compared with later calls. label: for the user, such as the name of
    a site or a tool.
    """

    key: str
    label: str


@dataclass(frozen=True)
class ToolResult:
    """The result of a call, as text for the model. is_error: whether the call failed; the text then says why."""

    text: str
    is_error: bool = False


class ToolSource(Protocol):
    """Offers tools and runs their calls. All but `call` is called on the main thread and returns at once."""

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that can be called now."""

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        """Return what a lasting consent to this call would cover."""

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        """Run a call in a thread of its own until it has ended, failed or is cancelled. Raises nothing."""
