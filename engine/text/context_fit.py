"""Which messages of a conversation the context has room for, and which are left out where it is too long for it.

Three policies: "roll" leaves out the oldest, "middle" keeps the first exchange and leaves out what follows it, "stop"
leaves out nothing and refuses. It reads no tokens itself: whoever asks brings the encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from engine.errors import ContextOverflowError, InvalidRequestError

Overflow = Literal["roll", "middle", "stop"]
ChatMessage = dict[str, str]  # {"role": ..., "content": ...}
Encode = Callable[[list[ChatMessage]], list[int]]

SMALLEST_ANSWER_TOKENS = 16  # a prompt that leaves less is too long
ANSWER_RESERVE_SHARE = 0.25  # of the context, kept free for the answer when old messages must go
KEPT_SHARE_AFTER_DROP = 0.75  # drop to this share of the room, so that the next turns find their prefix again
HEAD_SHARE = 0.5  # of what is then kept, the most that a kept beginning may take
_LIKELY_CHARS = 2  # a token, or more, in most texts: where there are so few, everything is tried first
_MOST_CHARS = 64  # a token, in any text: what has more is too long without being read


def checked_overflow(name: str) -> Overflow:
    """The policy of that name. Raises: InvalidRequestError."""
    for policy in get_args(Overflow):
        if name == policy:
            return policy  # type: ignore[no-any-return]
    raise InvalidRequestError(f"There is no overflow policy {name!r}.", f"Use one of {', '.join(get_args(Overflow))}.")


def most_chars(capacity: int) -> int:
    """A text with more characters does not fit into a context of so many tokens, whatever it says."""
    return capacity * _MOST_CHARS


@dataclass(frozen=True)
class Fitted:
    """A prompt that fits. dropped: messages left out of it; dropped_at: messages before them, instructions not
    counted; 0 where none were left out."""

    prompt: list[int]
    dropped: int = 0
    dropped_at: int = 0


@dataclass
class _LeftOut:
    """What was left out of a prompt: it stays out of the next one, so that their beginnings are the same."""

    at: int = 0
    messages: list[ChatMessage] = field(default_factory=list)

    def still(self, turns: list[ChatMessage], at: int) -> int:
        """How many of the turns behind `at` were left out last time too."""
        end = at + len(self.messages)
        return len(self.messages) if at == self.at and turns[at:end] == self.messages else 0


class ChatRoom:
    """The room of one context for conversations. Remembers what it left out of the last prompt."""

    def __init__(self, capacity: int) -> None:
        """capacity: tokens of the context, the answer included."""
        self.capacity = capacity
        self._left_out = _LeftOut()

    def most_tokens(self, max_tokens: int | None) -> int:
        """The longest prompt once messages have to be left out, in tokens; the rest is the answer's."""
        reserve = min(max_tokens or self.capacity, int(self.capacity * ANSWER_RESERVE_SHARE))
        return self.capacity - max(reserve, SMALLEST_ANSWER_TOKENS)

    def fit(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        encode: Encode,
        overflow: Overflow = "roll",
    ) -> Fitted:
        """Token ids of as many of the newest messages as leave room for an answer.

        The system message stays. What was left out for the last prompt stays out, so that the prefix stays the same
        from turn to turn; when more must go, enough goes to leave room for several turns.
        Raises: ContextOverflowError when the last message alone is too long, or with "stop" all of them together.
        """
        fitted = self.look(messages, max_tokens, encode, overflow)
        if self.is_too_long(fitted):
            raise ContextOverflowError(
                f"The {'chat' if overflow == 'stop' else 'message'} has {len(fitted.prompt)} tokens and the context "
                f"holds {self.capacity}, the answer included."
                + (" This chat leaves nothing out." if overflow == "stop" else ""),
                "Start a new chat, or let older messages of this one be left out." if overflow == "stop" else None,
            )
        turns, at = messages[_instructions(messages) :], fitted.dropped_at
        self._left_out = _LeftOut(at, list(turns[at : at + fitted.dropped]))
        return fitted

    def look(
        self, messages: Sequence[ChatMessage], max_tokens: int | None, encode: Encode, overflow: Overflow = "roll"
    ) -> Fitted:
        """What `fit` would give now, also where it is too long; nothing is remembered."""
        if overflow == "stop":
            return Fitted(encode(self._readable(messages)))
        system, turns = list(messages[: _instructions(messages)]), list(messages[_instructions(messages) :])
        room = self.most_tokens(max_tokens)
        head = self._head(system, turns, encode, room) if overflow == "middle" else 0
        fitted = self._fit_behind(head, system, turns, room, encode)
        return self._fit_behind(0, system, turns, room, encode) if head and self.is_too_long(fitted) else fitted

    def is_too_long(self, fitted: Fitted) -> bool:
        """Whether it leaves no room even for a short answer."""
        return len(fitted.prompt) > self.capacity - SMALLEST_ANSWER_TOKENS

    def _readable(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The newest messages, as many as can matter: with those alone the chat is too long, where there are more."""
        chars, kept = 0, []
        for message in reversed(messages):
            if chars > most_chars(self.capacity):
                break
            chars += len(message["content"])
            kept.append(message)
        return kept[::-1]

    def _fit_behind(
        self, head: int, system: list[ChatMessage], turns: list[ChatMessage], room: int, encode: Encode
    ) -> Fitted:
        """The first `head` turns, and as many of the newest as there is room for."""
        start = min(head + self._left_out.still(turns, head), max(0, len(turns) - 1))
        # A kept conversation begins with the person's words, and so does what follows a kept beginning.
        starts = [start, *(i for i in range(start + 1, len(turns)) if turns[i]["role"] == "user")]

        def encode_from(at: int) -> list[int]:
            return encode([*system, *turns[:head], *turns[starts[at] :]])

        likely = sum(len(m["content"]) for m in [*system, *turns]) <= room * _LIKELY_CHARS
        target = int(room * KEPT_SHARE_AFTER_DROP)
        at, prompt = earliest_that_fits(encode_from, len(starts), room, target, likely)
        dropped = starts[at] - head
        return Fitted(prompt, dropped, head if dropped else 0)

    def _head(self, system: list[ChatMessage], turns: list[ChatMessage], encode: Encode, room: int) -> int:
        """How many turns of the beginning stay: the first question and its answer. None where they would leave the
        others no room."""
        head = next((i for i in range(1, len(turns)) if turns[i]["role"] == "user"), 0)
        most = room * KEPT_SHARE_AFTER_DROP * HEAD_SHARE
        beginning = [*system, *turns[:head]]
        if not head or sum(len(m["content"]) for m in beginning) > most * _MOST_CHARS:
            return 0
        return head if len(encode(beginning)) <= most else 0


def _instructions(messages: Sequence[ChatMessage]) -> int:
    """How many messages at the beginning are instructions: one or none."""
    return int(bool(messages) and messages[0]["role"] == "system")


def earliest_that_fits(
    encode_from: Callable[[int], list[int]], count: int, room: int, target: int, likely: bool = False
) -> tuple[int, list[int]]:
    """The first of `count` places to begin at from which the prompt has at most `room` tokens, and that prompt.

    Where not everything fits, the first with at most `target` tokens; the last place where none has so few.
    likely: everything probably fits, so that is tried first.
    Cost: encodes about four times `room` tokens however long the conversation is, because it begins at its end; once
    what there is, where that fits and is likely to.
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
