"""The built-in tools as one source: dispatch, and failures of a tool."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.tools.built_in import BuiltInTools
from app.tools.tool import Scope, Tool, ToolResult
from app.tools.web_search import SearchService

SERVICE = SearchService("searxng", "http://127.0.0.1:1")


def test_the_tools_that_there_are() -> None:
    assert [tool.name for tool in BuiltInTools.of(lambda: None).tools()] == ["calculate", "read_web_page"]
    tools = BuiltInTools.of(lambda: SERVICE).tools()
    assert [tool.name for tool in tools] == ["calculate", "read_web_page", "search_web"]
    assert [tool.is_local for tool in tools] == [True, False, False]
    for tool in tools:
        assert re.fullmatch(r"[a-z_]{1,64}", tool.name)
        assert tool.title
        assert not tool.source
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"])
        json.dumps(tool.definition)


def test_calls_reach_their_tool() -> None:
    source = BuiltInTools.of(lambda: SERVICE)
    assert source.call("calculate", {"expression": "2^5"}, lambda: False) == ToolResult("2 ** 5 = 32")
    assert source.scope("read_web_page", {"url": "https://www.example.org"}).key == "web:example.org"
    assert source.scope("search_web", {}).key == "search:127.0.0.1"
    assert source.call("read_web_page", {"url": "file:///"}, lambda: False).is_error


def test_unknown_names_and_tools_that_are_gone() -> None:
    source = BuiltInTools.of(lambda: None)
    for name in ("search_web", "nothing", ""):
        result = source.call(name, {}, lambda: False)
        assert result.is_error
        assert "calculate" in result.text
        assert not source.scope(name, {}).key.startswith(("web:", "search:"))


class Broken:
    """A source whose only tool fails."""

    def tools(self) -> tuple[Tool, ...]:
        return (Tool("broken", "Broken", "", {"type": "object"}),)

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        return Scope("", "")

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        raise RuntimeError(f"cannot bear {arguments['text']}")


@pytest.mark.expects_log("broken failed: RuntimeError")
def test_an_unexpected_failure_is_a_result_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result = BuiltInTools((Broken(),)).call("broken", {"text": "my secret"}, lambda: False)
    assert result.is_error
    assert "secret" not in result.text + caplog.text
    assert "test_built_in_tools.py" in caplog.text


def test_expected_failures_are_logged_without_their_words(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert BuiltInTools.of(lambda: None).call("calculate", {"expression": "secret"}, lambda: False).is_error
    assert "calculate" in caplog.text
    assert "secret" not in caplog.text
