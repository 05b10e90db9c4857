"""The prompt cache behind the protocol: what the window says is kept, and answers after a restart go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.service import protocol
from engine.service.host import EngineHost

STORY = [{"role": "user", "content": "Tell me of the sea, its tides and all its ships. " * 12}]
SAMPLING = {"temperature": 0.0, "max_tokens": 8}


class Start:
    """One start of the engine with the starter model."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.host = EngineHost(self.events.append)
        self.run(protocol.Load("load", "starter-chat", {"device": "cpu"}))

    def run(self, request: protocol.Request) -> dict[str, Any]:
        self.host.submit(request)
        self.host.run_pending()
        (end,) = [event for event in self.events if isinstance(event, protocol.Finished) and event.id == request.id]
        self.events.clear()
        return end.result

    def keep(self, folder: Path, *chats: str, quota_bytes: int = 1 << 30) -> None:
        self.run(protocol.StorePrompts("keep", str(folder), list(chats), quota_bytes))

    def ask(self, messages: list[dict[str, str]] = STORY, **more: Any) -> dict[str, Any]:
        return self.run(protocol.Generate("ask", messages, SAMPLING, **{"chat": "a", **more}))

    def end(self) -> None:
        self.run(protocol.Shutdown("end"))
        self.host.run_pending(block=True)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.kv"))


def test_a_chat_goes_on_after_a_restart(tmp_path: Path) -> None:
    first = Start()
    first.keep(tmp_path / "prompts", "a")
    cold = first.ask()
    assert cold["restored_tokens"] == 0
    first.end()
    second = Start()
    second.keep(tmp_path / "prompts", "a")
    more = [*STORY, {"role": "assistant", "content": cold["text"]}, {"role": "user", "content": "And then?"}]
    warm = second.ask(more)
    assert warm["restored_tokens"] >= cold["prompt_tokens"]
    assert second.ask(more, fresh=True)["text"] == warm["text"]
    second.end()


def test_idle_time_keeps_the_chat_while_the_engine_runs(tmp_path: Path) -> None:
    start = Start()
    start.keep(tmp_path / "prompts", "a")
    start.ask()
    while start.host._idle() == 0.0:
        pass
    assert start.host._prompts is not None
    start.host._prompts.flush()
    assert files(tmp_path / "prompts")
    start.end()


@pytest.mark.parametrize("told", [[], [("a", 0)], [("b", 1 << 30)]])
def test_nothing_is_kept_that_was_not_asked_for(tmp_path: Path, told: list[tuple[str, int]]) -> None:
    start = Start()
    start.keep(tmp_path / "prompts", "a")
    start.ask(chat="")
    start.ask(fresh=True)
    for chat, quota_bytes in told:
        start.ask()
        start.keep(tmp_path / "prompts", chat, quota_bytes=quota_bytes)
    start.end()
    assert not files(tmp_path / "prompts")


def test_new_chats_of_a_project_share_its_instructions_and_notes(tmp_path: Path) -> None:
    """Right after another chat of the project, after an answer elsewhere, and after a restart."""
    notes = "\n".join(
        f"- Note {n}: the ship number {n} leaves at noon and comes back with the tide." for n in range(12)
    )
    system = {"role": "system", "content": f"Answer in one sentence.\n\n<notes>\n{notes}\n</notes>"}

    def first_message(words: str) -> list[dict[str, str]]:
        return [system, {"role": "user", "content": words}]

    start = Start()
    start.keep(tmp_path / "prompts", "a", "b", "c", "d", "other")
    cold = start.ask(first_message("When does ship 3 leave?"), chat="a")
    n_shared = cold["prompt_tokens"] - 16  # the question, and what the template writes around it
    assert cold["reused_tokens"] == 0
    assert n_shared > 250
    assert start.ask(first_message("Who is at sea?"), chat="b")["reused_tokens"] >= n_shared
    start.ask(STORY, chat="other")
    assert start.ask(first_message("What of ship 7?"), chat="c")["restored_tokens"] >= n_shared
    start.end()
    again = Start()
    again.keep(tmp_path / "prompts", "a", "b", "c", "d", "other")
    assert again.ask(first_message("Is there a tide?"), chat="d")["restored_tokens"] >= n_shared
    again.end()
