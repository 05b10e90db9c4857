"""What the engine is asked for an answer: the conversation as the model is to see it, and how it is to answer.

Plain data and pure functions; app/chat/answers/answer_queue.py sends it when its turn has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.chat.answers.thinking import spoken
from app.chat.attachments import content_of
from app.chat.conversation import Message, Role
from app.clients.answer_request import AnswerRequest
from app.clients.servers import Place

OVERFLOWS = ("roll", "middle", "stop")


@dataclass(frozen=True)
class AnswerSettings:
    """How a chat wants to be answered, whatever is said in it."""

    system_prompt: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # what differs from the model's own defaults
    mode: str | None = None  # sparse, exact or dense; None: as the model was loaded
    overflow: str = "roll"  # where the chat is too long for the context: "roll", "middle" or "stop"
    place: Place | None = None  # the server it is sent to; None: it is answered on this PC


def overflow_of(choices: Mapping[str, Any]) -> str:
    """What a chat chose for when its context is full; the oldest go where it chose nothing that there is."""
    chosen = choices.get("overflow")
    return chosen if chosen in OVERFLOWS else "roll"


def history(
    messages: Sequence[Message],
    question_id: str,
    system_prompt: str,
) -> list[dict[str, str]]:
    """What the model is to see for a question: instructions, the complete turns before it, the question.

    A turn without words in its answer is left out as a whole; of several answers to one question the last counts.
    What a model thought before it answered is not sent back. Attached texts are.
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


def request_for(messages: Sequence[Message], question_id: str, settings: AnswerSettings) -> AnswerRequest:
    """The request for an answer to a question, of a branch that leads to it."""
    said = history(messages, question_id, settings.system_prompt)
    return AnswerRequest(said, settings.sampling, settings.mode, settings.overflow, place=settings.place)
