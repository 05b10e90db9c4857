"""Builds the request for an answer: the conversation as the model sees it, and the settings. Plain data, pure
functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from app.chat.store.conversation import CallState, Message, Role, ToolCall, content_of
from app.clients.answer_request import AnswerRequest
from app.clients.servers import Place
from app.tools import model_texts
from engine.text.thoughts import split, spoken

OVERFLOWS = ("roll", "middle", "stop", "summarise")


@dataclass(frozen=True)
class AnswerSettings:
    """How a chat is answered, whatever its messages."""

    system_prompt: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # overrides of the model's defaults
    mode: str | None = None  # sparse, exact or dense; None: the loaded model's mode
    overflow: str = "roll"  # if the chat exceeds the context: one of OVERFLOWS
    place: Place | None = None  # the server that answers; None: this PC
    tools: tuple[dict[str, Any], ...] = ()  # definitions of those that the answer may call
    inspect: bool = False  # record its tokens


def overflow_of(choices: Mapping[str, Any]) -> str:
    """Return what a chat does when its context is full: its valid choice, else "roll" (drop the oldest messages)."""
    chosen = choices.get("overflow")
    return chosen if chosen in OVERFLOWS else "roll"


def history(messages: Sequence[Message], answered_id: str, system_prompt: str) -> list[dict[str, Any]]:
    """Return what the model sees before it answers a message: instructions, the complete turns before it, and that one.

    answered_id: of a question, or of an answer whose calls have ended. A turn without text in its last answer is left
    out; of several answers to a question the last one counts. Attached texts are sent back, and so are calls of tools
    and their results; thoughts only those before the calls of the turn that is being answered.
    """
    return [*_instructions(system_prompt), *(one.sent for one in _said(messages, answered_id))]


class _Said(NamedTuple):
    """A message that the model sees. id: of the chat's message."""

    id: str
    sent: dict[str, Any]


@dataclass(slots=True)
class _Turn:
    """A question, the answers that end with calls and the results of these, and the last answer."""

    question: _Said
    rounds: list[_Said] = field(default_factory=list)
    last: _Said | None = None


def _said(messages: Sequence[Message], answered_id: str) -> list[_Said]:
    turns: list[_Turn] = []
    for message in messages:
        if message.role is Role.USER:
            words = content_of(message.text, message.attachments)
            turns.append(_Turn(_Said(message.id, {"role": "user", "content": words})))
        elif message.role is Role.ASSISTANT and turns:
            words = spoken(message.text)
            if message.calls:
                turns[-1].rounds += _round(message, words)
                turns[-1].last = None
            elif words.strip():
                turns[-1].last = _Said(message.id, {"role": "assistant", "content": words})
        if message.id == answered_id:
            break
    said: list[_Said] = []
    for turn in turns[:-1]:
        if turn.last is not None:
            said += [_unthinking(one) for one in (turn.question, *turn.rounds, turn.last)]
        elif turn.rounds:  # it was stopped: as text, so that the turns still alternate
            said += _without_calls([turn.question, *turn.rounds])
    return said + [one for turn in turns[-1:] for one in (turn.question, *turn.rounds)]


def _round(message: Message, words: str) -> list[_Said]:
    calls = [{"id": call.id, "name": call.tool, "arguments": call.arguments} for call in message.calls]
    sent = [{"role": "assistant", "content": words, "calls": calls}]
    if thought := split(message.text).thought:
        sent[0]["reasoning"] = thought
    sent += [{"role": "tool", "content": _result_of(call), "id": call.id, "name": call.tool} for call in message.calls]
    return [_Said(message.id, one) for one in sent]


def _unthinking(said: _Said) -> _Said:
    if "reasoning" not in said.sent:
        return said
    return said._replace(sent={name: value for name, value in said.sent.items() if name != "reasoning"})


def _result_of(call: ToolCall) -> str:
    match call.state:
        case CallState.REFUSED:
            return model_texts.REFUSED
        case CallState.DONE | CallState.FAILED:
            return call.result
    return model_texts.NOT_RUN


def _without_calls(said: Sequence[_Said]) -> list[_Said]:
    """Return the messages with calls and results as texts of the assistant's, for servers."""
    merged: list[_Said] = []
    for one in said:
        sent = one.sent
        is_result = sent["role"] == "tool"
        role = "assistant" if is_result else sent["role"]
        parts = [model_texts.result_of(sent["name"], sent["content"]) if is_result else sent["content"]]
        parts += [model_texts.called(call["name"], json.dumps(call["arguments"])) for call in sent.get("calls", ())]
        if merged and role == merged[-1].sent["role"] == "assistant":
            parts.insert(0, merged.pop().sent["content"])
        merged.append(_Said(one.id, {"role": role, "content": "\n".join(part for part in parts if part)}))
    return merged


def ids_sent(messages: Sequence[Message], answered_id: str) -> list[str]:
    """Return the id of the chat's message behind each message that `history` sends, without instructions: one with
    calls stands behind several.
    """
    return [one.id for one in _said(messages, answered_id)]


def _instructions(system_prompt: str) -> list[dict[str, Any]]:
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


def _without_documents(message: Message) -> Message:
    """Return a message without what was found in the user's documents, for servers."""
    calls = tuple(
        replace(call, result=model_texts.NOT_SENT)
        if (call.tool, call.source) == (model_texts.SEARCH_DOCUMENTS, "")
        else call
        for call in message.calls
    )
    return replace(message, attachments=tuple(a for a in message.attachments if a.source is None), calls=calls)


def request_for(
    messages: Sequence[Message], answered_id: str, settings: AnswerSettings, chat: str = ""
) -> AnswerRequest:
    """Return the request for an answer. messages: a branch that contains what is answered, as in `history`. chat: its
    id. A server is sent nothing that was found in the user's documents.
    """
    if settings.place is not None:
        messages = [_without_documents(message) for message in messages]
    said = _said(messages, answered_id)
    if settings.place is not None:
        n_results = next((n for n, one in enumerate(reversed(said)) if one.sent["role"] != "tool"), 0)
        results = said[len(said) - n_results :]
        said = _without_calls(said[: len(said) - n_results])
        if results:  # a server may refuse a request that ends with the assistant
            merged = "\n".join(model_texts.result_of(one.sent["name"], one.sent["content"]) for one in results)
            said.append(_Said(results[-1].id, {"role": "user", "content": merged}))
    summarises = settings.overflow == "summarise" and settings.place is None  # a server is sent the whole chat
    summary, count = _summary(messages, said) if summarises else ("", 0)
    sent = [*_instructions(settings.system_prompt), *(one.sent for one in said[count:])]
    return AnswerRequest(
        sent, settings.sampling, settings.mode, settings.overflow, place=settings.place, chat=chat,
        summary=summary, summarised=count, said=tuple(one.id for one in said),
        tools=settings.tools, inspect=settings.inspect,
    )  # fmt: skip
