"""All tools of the window in one box."""

from __future__ import annotations

from collections.abc import Callable

from app.settings import AppSettings
from app.tools.built_in import BuiltInTools
from app.tools.tool_box import ToolBox
from app.tools.web_search import BRAVE_ADDRESS, chosen_service


def all_tools(settings: Callable[[], AppSettings], key_of: Callable[[str], str]) -> ToolBox:
    """Return the box. settings: the current ones. key_of: the key for an address if no keyring has it; else ""."""
    return ToolBox((BuiltInTools.of(lambda: chosen_service(settings(), key_of(BRAVE_ADDRESS))),))
