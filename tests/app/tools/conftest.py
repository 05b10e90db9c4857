"""MCP servers for a test, ended when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_cases import Make
from support.systems import children

from app.tools.mcp.client import McpTools
from app.tools.mcp.server_list import ToolServer, ToolServerList


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make McpTools with these servers."""
    made: list[McpTools] = []
    before = set(children())

    def one(*servers: ToolServer, **values: Any) -> McpTools:
        listed = ToolServerList()
        for server in servers:
            listed.put(server)
        made.append(McpTools(listed, tmp_path / "private", **values))
        return made[-1]

    yield one
    for tools in made:
        tools.close()
    assert not [one for one in threading.enumerate() if one.name == "mcp"]
    assert set(children()) == before
