"""Builds the request for an answer: the conversation as the model sees it, and the settings. Plain data, pure
functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.chat.store.conversation import Message, Role, content_of
from app.clients.answer_request import AnswerRequest
from app.clients.servers import Place
from app.text.thinking import spoken

OVERFLOWS = ("roll", "middle", "stop")


@dataclass(frozen=True)
class AnswerSettings:
    """How a chat is answered, whatever its messages."""

    system_prompt: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # overrides of the model's defaults
    mode: str | None = None  # sparse, exact or dense; None: the loaded model's mode
    overflow: str = "roll"  # if the chat exceeds the context: "roll", "middle" or "stop"
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
    turns: list[list[dict[str, str]]] = []
    for message in messages:
        if message.role is Role.USER:
            turns.append([{"role": "user", "content": content_of(message.text, message.attachments)}])
            if message.id == question_id:
                break
        elif message.role is Role.ASSISTANT and turns and (words := spoken(message.text)).strip():
            turns[-1][1:] = [{"role": "assistant", "content": words}]
    said = [message for turn in turns[:-1] if len(turn) == 2 for message in turn] + (turns[-1] if turns else [])
    if system_prompt.strip():
        said.insert(0, {"role": "system", "content": system_prompt.strip()})
    return said


def request_for(
    messages: Sequence[Message], question_id: str, settings: AnswerSettings, chat: str = ""
) -> AnswerRequest:
    """Return the request for an answer. messages: a branch that contains the question. chat: its id."""
    said = history(messages, question_id, settings.system_prompt)
    return AnswerRequest(said, settings.sampling, settings.mode, settings.overflow, place=settings.place, chat=chat)
