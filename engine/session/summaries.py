"""Replace the oldest messages of a chat with a summary that the model writes, when they no longer fit the context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import SamplingConfig
from engine.errors import ContextOverflowError
from engine.job import Job
from engine.session.chat_session import ChatSession
from engine.text.context_fit import ChatMessage, instructions, with_summary
from engine.text.thoughts import spoken
from engine.thinking_level import Level
from engine.tool_calls.tool import Tool

SHARE = 1 / 16  # of the context, at most, for a summary
FEWEST_TOKENS, MOST_TOKENS = 64, 1024
TEMPLATE_RESERVE = 48  # tokens around REQUEST
WORDS_PER_TOKEN = 0.6  # fewer than in most texts, so that a summary is not cut
REQUEST = (
    "Summarise our conversation so far, including any earlier summary, in at most {words} words and in its own "
    "language: what I asked, what you answered, names, numbers, decisions, and what is still open. Write the summary "
    "alone."
)


@dataclass(frozen=True)
class Summarised:
    """The result of `summarise_if_needed`.

    messages: those to answer, with the summary in the instructions. replaced: number of further messages that the
    summary now replaces; 0 if it is unchanged.
    """

    messages: list[ChatMessage]
    summary: str
    replaced: int = 0


def summarise_if_needed(
    session: ChatSession,
    messages: Sequence[ChatMessage],
    sampling: SamplingConfig,
    summary: str,
    job: Job = Job(),
    tools: Sequence[Tool] = (),
) -> Summarised:
    """Return messages that fit the context: if they do not, the oldest are replaced by a summary.

    sampling, tools: of the answer. summary: of what was said before the messages; "": nothing. It is written in at most
    SHARE of the context, from the beginning of the last prompt, whose keys and values are still there (without tools).
    A chat that never fitted is summarised in several steps. If the model writes nothing, or the job is cancelled,
    nothing is replaced.
    """
    messages = list(messages)
    thinking = sampling.thinking
    fitted = session.count(with_summary(messages, summary), sampling.max_tokens, thinking=thinking, tools=tools).fitted
    if not fitted.dropped:
        return Summarised(with_summary(messages, summary), summary)
    first = instructions(messages)
    rules, rest = messages[:first], messages[first + fitted.dropped :]
    old = without_calls(messages[first : first + fitted.dropped])
    written = summary
    while old:
        some = _some(session, rules, old, written)
        written = _written(session, with_summary([*rules, *some], written), thinking, job)
        if not written:
            return Summarised(with_summary(messages, summary), summary)
        old = old[len(some) :]
    return Summarised(with_summary([*rules, *rest], written), written, fitted.dropped)


def without_calls(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with calls and their results as texts of the assistant's."""
    merged: list[ChatMessage] = []
    for message in messages:
        role = "assistant" if message["role"] == "tool" else message["role"]
        parts = [f"[Result of {message['name']}: {message['content']}]"] if message["role"] == "tool" else []
        parts += [message["content"]] if message["role"] != "tool" and message["content"] else []
        parts += [f"[Called {call.name}: {json.dumps(dict(call.arguments))}]" for call in message.get("calls", ())]
        if merged and role == merged[-1]["role"] == "assistant":
            parts.insert(0, merged.pop()["content"])
        merged.append({"role": role, "content": "\n".join(parts)})
    return merged


def _some(session: ChatSession, rules: list[ChatMessage], old: list[ChatMessage], summary: str) -> list[ChatMessage]:
    """Return as many of the oldest messages as can be read at once; of a longer one its beginning."""
    tokenizer = session.model.tokenizer
    room = session.context_total - _most_tokens(session) - len(tokenizer.encode(REQUEST)) - TEMPLATE_RESERVE

    def fits(n: int) -> bool:
        return len(tokenizer.encode_chat(with_summary([*rules, *old[:n]], summary))) <= room

    n = len(old)
    while n > 1 and not fits(n):
        n = n // 2
    if fits(n):
        return old[:n]
    return [{**old[0], "content": old[0]["content"][:room]}]  # a token has more than one character in most texts


def _most_tokens(session: ChatSession) -> int:
    return min(max(int(session.context_total * SHARE), FEWEST_TOKENS), MOST_TOKENS)


def _written(session: ChatSession, messages: list[ChatMessage], thinking: Level | None, job: Job) -> str:
    most = _most_tokens(session)
    request = {"role": "user", "content": REQUEST.format(words=int(most * WORDS_PER_TOKEN))}
    if messages[-1]["role"] == "user":  # templates want turns to alternate
        request = {"role": "user", "content": f"{messages.pop()['content']}\n\n{request['content']}"}
    tokenizer, model = session.model.tokenizer, session.model
    prompt = tokenizer.encode_chat([*messages, request], thinking)  # as in the answers, so that it begins the same
    sampling = model.chat_sampling(SamplingConfig(temperature=0.0, max_tokens=most, thought_tokens=0))
    try:
        events = list(session.generate(prompt, sampling, job))
    except ContextOverflowError:
        return ""
    if events[-1].finish_reason == "cancelled":
        return ""
    return spoken("".join(event.text for event in events)).strip()
