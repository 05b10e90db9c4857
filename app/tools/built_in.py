"""The tools that Hearth brings along, as one source. No Qt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.tools.calculate import Calculator
from app.tools.tool import Scope, Tool, ToolResult, ToolSource
from app.tools.tool_error import ToolError, result_of
from app.tools.web_page import WebPages
from app.tools.web_search import SearchService, WebSearch


class BuiltInTools:
    """A ToolSource that passes each call to the source of its tool."""

    def __init__(self, sources: tuple[ToolSource, ...]) -> None:
        """sources: their tools have different names, and stay the same, though not all can be called at all times."""
        self._sources = sources

    @classmethod
    def of(cls, search: Callable[[], SearchService | None]) -> BuiltInTools:
        """Return the calculator, the reader of web pages, and the search with a service, while there is one."""
        return cls((Calculator(), WebPages(), WebSearch(search)))

    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for source in self._sources for tool in source.tools())

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        source = self._source(name)
        return Scope(f"none:{name}", name) if source is None else source.scope(name, arguments)

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        def run() -> ToolResult:
            source = self._source(name)
            if source is None:
                names = ", ".join(tool.name for tool in self.tools())
                raise ToolError(f"There is no tool of this name now. There are: {names}.")
            return source.call(name, arguments, is_cancelled)

        return result_of(name[:64], run)

    def _source(self, name: str) -> ToolSource | None:
        return next((one for one in self._sources if any(tool.name == name for tool in one.tools())), None)
