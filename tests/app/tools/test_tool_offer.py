"""The offer of tools: when there is something to choose, and what is on after a choice."""

from __future__ import annotations

from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer

FILES = Tool("files_read", "Read a file", "", {}, source="Files")
SEARCH, CLOCK = Tool("web_search", "Web search", "", {}), Tool("clock", "Date and time", "", {}, is_local=True)
OFFER = ToolOffer((FILES, SEARCH, CLOCK), frozenset({"clock", "gone_tool"}), 420, True)


def test_there_is_nothing_to_choose_without_tools_or_a_model_that_calls_them() -> None:
    assert OFFER.is_shown
    assert not ToolOffer((), OFFER.on, None, True).is_shown
    assert not ToolOffer(OFFER.tools, OFFER.on, None, False).is_shown


def test_the_built_in_tools_come_first() -> None:
    assert OFFER.groups == [("", [SEARCH, CLOCK]), ("Files", [FILES])]


def test_a_tool_of_a_server_that_is_gone_is_not_counted_but_stays_on() -> None:
    assert OFFER.n_on == 1
    assert OFFER.picked("files_read", True) == ["files_read", "clock", "gone_tool"]
    assert OFFER.picked("clock", False) == ["gone_tool"]
