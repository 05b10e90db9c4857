"""A request for one answer and its end, as plain data: what engine_client.py and remote_client.py send and emit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.clients.servers import Place
from engine.text.context_fit import with_summary

if TYPE_CHECKING:
    from engine.service.protocol import GenerationResult, Inspected


@dataclass(frozen=True)
class AnswerRequest:
    """A request for one answer. continues: the last message is the model's own and is continued. place: the server that
    answers; None: this PC. chat: its id, so that what is computed can be kept for it; "": nothing is kept.

    summary: of `summarised` messages that were said before these. said: ids of all messages in the chat up to the
    question, those included, without instructions. fresh: without the KV cache of earlier answers. messages, tools,
    inspect, prompt, n_begun: as protocol.Generate has them.
    """

    messages: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)
    mode: str | None = None
    overflow: str = "roll"
    continues: bool = False
    place: Place | None = None
    chat: str = ""
    summary: str = ""
    summarised: int = 0
    said: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    inspect: bool = False
    prompt: tuple[int, ...] = ()
    n_begun: int = 0
    fresh: bool = False

    def n_of_chat(self, at: int, count: int) -> int:
        """Return how many messages of the chat `count` sent ones are, of which `at` come before them."""
        ids = self.said[self.summarised + at :][:count]
        return count - (len(ids) - len(set(ids)))

    @property
    def with_summary(self) -> list[dict[str, Any]]:
        """The messages as the model reads them: with the summary."""
        return with_summary(self.messages, self.summary)


@dataclass(frozen=True)
class Answered:
    """The end of an answer. finish_reason: "stop", "length", "cancelled" or "tool_calls". figures: the known fields of
    GenerationResult, without the text. result: the engine's full record; None from a server. inspected: if it was
    asked for."""

    finish_reason: str
    figures: dict[str, Any]
    result: GenerationResult | None = None
    inspected: Inspected | None = None
