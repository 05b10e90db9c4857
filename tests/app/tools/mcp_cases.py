"""What tests of MCP servers share: the user's acts, and waiting for processes."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from app.tools.mcp.client import McpTools, ToolState
from app.tools.mcp.server_list import Definition, ToolServer

Make = Callable[..., McpTools]
WINDOWS_VARIABLES = ("SYSTEMROOT", "PATHEXT", "COMSPEC", "SYSTEMDRIVE", "PROGRAMFILES", "PROCESSOR_ARCHITECTURE",
                     "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP")  # fmt: skip


def never() -> bool:
    return False


def only(tools: McpTools) -> ToolServer:
    (server,) = tools.servers.servers
    return server


def approve_all(tools: McpTools) -> dict[str, Definition]:
    """Approve all tools of the only server. Returns their definitions by name."""
    found = tuple(one.definition for one in tools.look(only(tools).id))
    tools.approve(only(tools).id, found)
    return {one.name: one for one in found}


def states(tools: McpTools) -> dict[str, ToolState]:
    return {one.definition.name: one.state for one in tools.listed(only(tools).id)}


def waited_for(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def left_of(processes: set[int]) -> set[int]:
    """Wait until the processes have ended. Returns those that do not end."""
    until = time.monotonic() + 30
    left = processes
    while left and time.monotonic() < until:
        left = set(filter(runs, left))
        time.sleep(0.01)
    return left


def runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
