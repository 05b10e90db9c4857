"""Builds the request for an answer: the conversation as the model sees it, and the settings. Plain data, pure
functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.chat.store.conversation import Message, Role, content_of
from app.clients.answer_request import AnswerRequest
from app.clients.servers import Place
from engine.text.thoughts import spoken

OVERFLOWS = ("roll", "middle", "stop", "summarise")


@dataclass(frozen=True)
class AnswerSettings:
    """How a chat is answered, whatever its messages."""

    system_prompt: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # overrides of the model's defaults
    mode: str | None = None  # sparse, exact or dense; None: the loaded model's mode
    overflow: str = "roll"  # if the chat exceeds the context: one of OVERFLOWS
    place: Place | None = None  # the server that answers; None: this PC


def overflow_of(choices: Mapping[str, Any]) -> str:
    """Return what a chat does when its context is full: its valid choice, else "roll" (drop the oldest messages)."""
    chosen = choices.get("overflow")
    return chosen if chosen in OVERFLOWS else "roll"


def history(
    messages: Sequence[Message],
    question_id: str,
    system_prompt: str,
) -> list[dict[str, str]]:
    """Return what the model sees for a question: instructions, the complete turns before it, the question.

    A turn without text in its answer is left out; of several answers to a question the last one counts. Thoughts are
    not sent back; attached texts are.
    """
    return [*_instructions(system_prompt), *(one.sent for one in _said(messages, question_id))]


@dataclass(frozen=True)
class _Said:
    """A message that the model sees. id: of the chat's message."""

    id: str
    sent: dict[str, str]


def _said(messages: Sequence[Message], question_id: str) -> list[_Said]:
    turns: list[list[_Said]] = []
    for message in messages:
        if message.role is Role.USER:
            words = content_of(message.text, message.attachments)
            turns.append([_Said(message.id, {"role": "user", "content": words})])
            if message.id == question_id:
                break
        elif message.role is Role.ASSISTANT and turns and (words := spoken(message.text)).strip():
            turns[-1][1:] = [_Said(message.id, {"role": "assistant", "content": words})]
    return [one for turn in turns[:-1] if len(turn) == 2 for one in turn] + (turns[-1] if turns else [])


def _instructions(system_prompt: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system_prompt.strip()}] if system_prompt.strip() else []


def _summary(messages: Sequence[Message], said: Sequence[_Said]) -> tuple[str, int]:
    """Return the newest summary in the answers before the question, and the number of messages that it stands for.

    One whose messages were changed since is not used.
    """
    by_id = {message.id: message for message in messages}
    for one in reversed(said[:-1]):
        stats = by_id[one.id].stats or {}
        count = stats.get("summarised") or 0
        if stats.get("summary"):
            still = 0 < count < len(said) and said[count - 1].id == stats.get("summary_to")
            return (str(stats["summary"]), int(count)) if still else ("", 0)
    return "", 0


def request_for(
    messages: Sequence[Message], question_id: str, settings: AnswerSettings, chat: str = ""
) -> AnswerRequest:
    """Return the request for an answer. messages: a branch that contains the question. chat: its id."""
    said = _said(messages, question_id)
    summarises = settings.overflow == "summarise" and settings.place is None  # a server is sent the whole chat
    summary, count = _summary(messages, said) if summarises else ("", 0)
    sent = [*_instructions(settings.system_prompt), *(one.sent for one in said[count:])]
    return AnswerRequest(
        sent, settings.sampling, settings.mode, settings.overflow, place=settings.place, chat=chat,
        summary=summary, summarised=count, said=tuple(one.id for one in said),
    )  # fmt: skip
