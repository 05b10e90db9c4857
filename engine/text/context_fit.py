"""Choose which messages of a conversation fit the context window, and which are left out.

Four policies: "roll" leaves out the oldest, "middle" keeps the first exchange and leaves out what follows it, "stop"
refuses, and "summarise" leaves out the oldest too, after engine/session/summaries.py has replaced them by a summary.
The caller provides the encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from engine.errors import ContextOverflowError, InvalidRequestError

Overflow = Literal["roll", "middle", "stop", "summarise"]
ChatMessage = dict[str, Any]  # {"role": ..., "content": ...}; with tools, what a template takes
Encode = Callable[[list[ChatMessage]], list[int]]

SUMMARY_HEADING = "What was said before, in short:"
SMALLEST_ANSWER_TOKENS = 16  # a prompt that leaves less is too long
ANSWER_RESERVE_SHARE = 0.25  # of the context, kept free for the answer when old messages must go
KEPT_SHARE_AFTER_DROP = 0.75  # drop to this share of the room, so that the next turns find their prefix again
HEAD_SHARE = 0.5  # of what is then kept, the largest share of a kept beginning
_LIKELY_CHARS = 2  # characters per token, or more, in most texts: a shorter conversation is tried whole first
_MOST_CHARS = 64  # a token, in any text: what has more is too long without being read


def checked_overflow(name: str) -> Overflow:
    """Return the policy with this name. Raises: InvalidRequestError."""
    for policy in get_args(Overflow):
        if name == policy:
            return policy  # type: ignore[no-any-return]
    raise InvalidRequestError(f"There is no overflow policy {name!r}.", f"Use one of {', '.join(get_args(Overflow))}.")


def most_chars(capacity: int) -> int:
    """Return the number of characters that can never fit into a context of this capacity."""
    return capacity * _MOST_CHARS


@dataclass(frozen=True)
class Fitted:
    """A prompt that fits. dropped: messages left out; dropped_at: messages before them, without instructions; 0 if none
    were left out.
    """

    prompt: list[int]
    dropped: int = 0
    dropped_at: int = 0


@dataclass
class _LeftOut:
    """The messages left out of a prompt. The next prompt omits them too, so that both begin the same."""

    at: int = 0
    messages: list[ChatMessage] = field(default_factory=list)

    def still(self, turns: list[ChatMessage], at: int) -> int:
        """Return how many of the turns after `at` were left out last time too."""
        end = at + len(self.messages)
        return len(self.messages) if at == self.at and turns[at:end] == self.messages else 0


class ContextWindow:
    """Fits conversations into one context window. Remembers what it left out of the last prompt."""

    def __init__(self, capacity: int) -> None:
        """capacity: tokens of the context, including the answer."""
        self.capacity = capacity
        self._left_out = _LeftOut()

    def most_tokens(self, max_tokens: int | None) -> int:
        """Return the longest prompt once messages must be left out, in tokens; the rest is for the answer."""
        reserve = min(max_tokens or self.capacity, int(self.capacity * ANSWER_RESERVE_SHARE))
        return self.capacity - max(reserve, SMALLEST_ANSWER_TOKENS)

    def fit(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        encode: Encode,
        overflow: Overflow = "roll",
    ) -> Fitted:
        """Return the token ids of as many of the newest messages as leave room for an answer.

        The system message stays. Messages left out of the last prompt stay out, so that the prefix stays the same; if
        more must go, enough go to leave room for several turns. Raises: ContextOverflowError if the last message alone
        is too long, or with "stop" all of them together.
        """
        fitted = self.look(messages, max_tokens, encode, overflow)
        if self.is_too_long(fitted):
            raise ContextOverflowError(
                f"The {'chat' if overflow == 'stop' else 'message'} has {len(fitted.prompt)} tokens and the context "
                f"holds {self.capacity}, the answer included."
                + (" This chat leaves nothing out." if overflow == "stop" else ""),
                "Start a new chat, or let older messages of this one be left out." if overflow == "stop" else None,
            )
        turns, at = messages[instructions(messages) :], fitted.dropped_at
        self._left_out = _LeftOut(at, list(turns[at : at + fitted.dropped]))
        return fitted

    def look(
        self, messages: Sequence[ChatMessage], max_tokens: int | None, encode: Encode, overflow: Overflow = "roll"
    ) -> Fitted:
        """Return what `fit` would return now, even if it is too long; remember nothing."""
        if overflow == "stop":
            return Fitted(encode(self._readable(messages)))
        system, turns = list(messages[: instructions(messages)]), list(messages[instructions(messages) :])
        room = self.most_tokens(max_tokens)
        head = self._head(system, turns, encode, room) if overflow == "middle" else 0
        fitted = self._fit_behind(head, system, turns, room, encode)
        return self._fit_behind(0, system, turns, room, encode) if head and self.is_too_long(fitted) else fitted

    def is_too_long(self, fitted: Fitted) -> bool:
        """Return whether it leaves no room even for a short answer."""
        return len(fitted.prompt) > self.capacity - SMALLEST_ANSWER_TOKENS

    def _readable(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the newest messages that can matter: if there are more, these alone are too long."""
        chars, kept = 0, []
        for message in reversed(messages):
            if chars > most_chars(self.capacity):
                break
            chars += len(message["content"] or "")
            kept.append(message)
        return kept[::-1]

    def _fit_behind(
        self, head: int, system: list[ChatMessage], turns: list[ChatMessage], room: int, encode: Encode
    ) -> Fitted:
        """Return the first `head` turns, and as many of the newest as fit."""
        start = min(head + self._left_out.still(turns, head), max(0, len(turns) - 1))
        # A kept conversation begins with a user's message, and so does what follows a kept beginning.
        starts = [start, *(i for i in range(start + 1, len(turns)) if turns[i]["role"] == "user")]

        def encode_from(at: int) -> list[int]:
            return encode([*system, *turns[:head], *turns[starts[at] :]])

        likely = sum(len(m["content"]) for m in [*system, *turns]) <= room * _LIKELY_CHARS
        target = int(room * KEPT_SHARE_AFTER_DROP)
        at, prompt = earliest_that_fits(encode_from, len(starts), room, target, likely)
        dropped = starts[at] - head
        return Fitted(prompt, dropped, head if dropped else 0)

    def _head(self, system: list[ChatMessage], turns: list[ChatMessage], encode: Encode, room: int) -> int:
        """Return how many turns of the beginning stay: the first question and its answer. None if they leave no room
        for others.
        """
        head = next((i for i in range(1, len(turns)) if turns[i]["role"] == "user"), 0)
        most = room * KEPT_SHARE_AFTER_DROP * HEAD_SHARE
        beginning = [*system, *turns[:head]]
        if not head or sum(len(m["content"]) for m in beginning) > most * _MOST_CHARS:
            return 0
        return head if len(encode(beginning)) <= most else 0


def with_summary(messages: Sequence[ChatMessage], summary: str) -> list[ChatMessage]:
    """Return the messages with a summary of what was said before them, which is added to the instructions."""
    if not summary:
        return list(messages)
    first = instructions(messages)
    before = f"{messages[0]['content']}\n\n" if first else ""
    first_message = {"role": "system", "content": f"{before}{SUMMARY_HEADING}\n{summary}"}
    return [first_message, *messages[first:]]


def instructions(messages: Sequence[ChatMessage]) -> int:
    """Return how many messages at the beginning are instructions: one or none."""
    return int(bool(messages) and messages[0]["role"] == "system")


def earliest_that_fits(
    encode_from: Callable[[int], list[int]], count: int, room: int, target: int, likely: bool = False
) -> tuple[int, list[int]]:
    """Return the first of `count` starting points from which the prompt has at most `room` tokens, and that prompt.

    If not everything fits, the first with at most `target` tokens, or the last one. likely: everything probably fits,
    so try that first. Cost: encodes about four times `room` tokens for any length of conversation, because it starts at
    the end; once everything, if that is likely to fit and does.
    """
    if likely and len(everything := encode_from(0)) <= room:
        return 0, everything
    last = at = count - 1
    newest = prompt = encode_from(last)
    too_long, step = -1, 1
    while at > 0 and too_long < 0:
        earlier = max(0, at - step)
        step *= 2
        longer = encode_from(earlier)
        if len(longer) <= room:
            at, prompt = earlier, longer
        else:
            too_long = earlier
    if at == 0:
        return at, prompt
    at, prompt = last, newest
    while at - too_long > 1:
        middle = (at + too_long) // 2
        longer = encode_from(middle)
        if len(longer) <= target:
            at, prompt = middle, longer
        else:
            too_long = middle
    return at, prompt
