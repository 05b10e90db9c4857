"""Harmony, the answer format of gpt-oss: messages on channels, of which one is the answer.

A reply begins with its header: "<|channel|>analysis<|message|>" for a thought, "<|channel|>final<|message|>" for the
answer. All other modules read thoughts between <think> marks, as most models write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from engine.text.text_stream import TextStream

CHANNEL, MESSAGE, START, END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
TURN_ENDS = ("<|return|>", "<|call|>")  # END ends a message of the reply, not the reply
ANSWER_HEADER = f"{CHANNEL}final{MESSAGE}"
MESSAGE_BEGINS = f"{END}{START}assistant"  # after a thought
ANSWER_BEGINS = f"{MESSAGE_BEGINS}{ANSWER_HEADER}"
CALL_HEADER = "<|call|>to=functions."  # how a HarmonyStream begins a message to a tool; its name and MESSAGE follow
_MARKS = {CHANNEL, MESSAGE, START, END}
_OPEN, _CLOSE = "<think>", "</think>"
_RECIPIENT = re.compile(r"\bto=functions\.([\w-]+)")


def speaks_harmony(special: Collection[str]) -> bool:
    """Return whether a vocabulary with these special tokens uses Harmony."""
    return set(special) >= _MARKS


class HarmonyStream(TextStream):
    """A TextStream that omits message headers and puts thoughts between <think> marks.

    bytes_of: none for special tokens. mark_of: the text of a special token, "" for any other. shows_calls: whether
    messages to tools begin with CALL_HEADER; then the first token is in a header. If not, they are thoughts.
    """

    def __init__(
        self,
        bytes_of: Callable[[int], bytes],
        mark_of: Callable[[int], str],
        strip_first_space: bool,
        shows_calls: bool = False,
    ) -> None:
        super().__init__(bytes_of, strip_first_space)
        self._mark_of = mark_of
        self._shows_calls = shows_calls
        self._header: str | None = "" if shows_calls else None  # of the message that begins
        self._has_ended = False  # a message, so that the next one follows it
        self._is_thinking = False

    def push(self, token_id: int) -> str:
        mark = self._mark_of(token_id)
        if mark == MESSAGE:
            return self.flush() + self._begin()
        if mark in (START, CHANNEL):
            rest = self.flush()
            self._header = "" if mark == START or self._header is None else self._header + CHANNEL
            return rest
        if mark == END:
            self._has_ended = True
            return self.flush()
        text = super().push(token_id)
        if self._header is None:
            return text
        self._header += text
        return ""

    def flush(self) -> str:
        rest = super().flush()
        return rest if self._header is None else ""

    def _begin(self) -> str:
        """Return the text between two messages, at the end of the second one's header."""
        header, self._header = self._header or "", None
        channel = header.rpartition(CHANNEL)[2].strip().partition(" ")[0]
        followed, self._has_ended = self._has_ended, False
        if self._shows_calls and (recipient := _RECIPIENT.search(header)):
            was, self._is_thinking = self._is_thinking, False
            return f"{_CLOSE if was else ''}{CALL_HEADER}{recipient[1]}{MESSAGE}"
        was, self._is_thinking = self._is_thinking or followed, channel not in ("", "final")
        if self._is_thinking:
            return "\n\n" if was else _OPEN
        return _CLOSE if was else ""


def continued(said: str) -> list[tuple[str, bool]]:
    """Return the beginning of a HarmonyStream's reply in Harmony again: texts, and whether each is a marker."""
    if not said:
        return []
    thought, closed, answer = said.removeprefix(_OPEN).partition(_CLOSE)
    if not said.startswith(_OPEN):
        thought, closed, answer = "", "", said
    pieces = [(CHANNEL, True), ("analysis", False), (MESSAGE, True), (thought, False)] if said.startswith(_OPEN) else []
    if pieces and not closed:
        return pieces
    if pieces:
        pieces += [(END, True), (START, True), ("assistant", False)]
    return [*pieces, (CHANNEL, True), ("final", False), (MESSAGE, True), (answer, False)]
