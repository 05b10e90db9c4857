"""What a model thought aloud before its answer, told apart from the answer while both are still being written.

Models mark their thoughts in different ways; MARKS is the table of them. It shows nothing and sends nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# How a thought begins and how it ends, in small letters.
MARKS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel|>commentary<|message|>", "<|end|>"),
    ("<|channel>thought", "<channel|>"),
)
# Says who speaks or that the answer follows; belongs to neither.
_PASSED_OVER = ("<|start|>assistant", "<|channel|>final<|message|>", "<|begin_of_solution|>")
_OPENINGS = tuple(opening for opening, _ in MARKS)
_FIRST = {mark[0] for mark in (*_OPENINGS, *_PASSED_OVER)}
_LONG = 1_000_000  # characters of a reply
_LONGEST = max(map(len, (*_OPENINGS, *_PASSED_OVER)))
# A chat template may have opened the thought itself: then only its end is in the text, on a line of its own. The
# pattern begins with what it must find: texts have 16 MB, and others are searched 20 times as slowly.
_LONE_END = re.compile(r"</[tT][hH][iI][nN][kK](?:[iI][nN][gG])?>[ \t]*(?=\n|$)")


@dataclass(frozen=True)
class Reply:
    """The two parts of what a model wrote. `is_thinking`: the thought has not ended."""

    thought: str
    answer: str
    is_thinking: bool = False


class ReplySplitter:
    """Takes a reply piece by piece. A thought counts only before the answer: later marks are words like others.

    Cost: linear in what is appended.
    """

    def __init__(self) -> None:
        self.has_thought = False
        self._held = ""  # what may become a mark
        self._end = ""  # of the thought that is open
        self._answering = False

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open."""
        return bool(self._end)

    def append(self, text: str) -> tuple[str, str]:
        """What the piece adds to the thought, and what to the answer."""
        if self._answering:
            return "", text
        self._held += text
        thought: list[str] = []
        while not self._answering and self._held:
            if self._end:
                if not self._read_thought(thought):
                    break
            elif not self._read_mark():
                break
        answer = ""
        if self._answering:
            answer, self._held = self._held, ""
        return "".join(thought), answer

    def finish(self) -> tuple[str, str]:
        """No more will come: what was held back is what it looks like."""
        held, self._held = self._held, ""
        return (held, "") if self._end else ("", held)

    def _read_thought(self, thought: list[str]) -> bool:
        """Move what surely belongs to the thought. True when it has ended."""
        place = self._held.lower().find(self._end)
        if place >= 0:
            thought.append(self._held[:place])
            self._held = self._held[place + len(self._end) :]
            self._end = ""
            return True
        keep = _overlap(self._held.lower(), self._end)
        cut = len(self._held) - keep
        thought.append(self._held[:cut])
        self._held = self._held[cut:]
        return False

    def _read_mark(self) -> bool:
        """Decide what begins here. False: more text has to tell."""
        start = self._held.lstrip()
        low = start[: _LONGEST + 1].lower()
        for opening, end in MARKS:
            if low.startswith(opening):
                self._end, self.has_thought = end, True
                self._held = start[len(opening) :]
                return True
        for mark in _PASSED_OVER:
            if low.startswith(mark):
                self._held = start[len(mark) :]
                return True
        if not low or any(mark.startswith(low) for mark in (*_OPENINGS, *_PASSED_OVER)):
            return False
        self._answering = True
        if self.has_thought:
            self._held = start
        return True


def split(text: str) -> Reply:
    """The parts of a whole reply."""
    if text.lstrip()[:1] not in _FIRST and "</" not in text:
        return Reply("", text)
    return _split_long(text) if len(text) > _LONG else _split(text)


def _split(text: str) -> Reply:
    splitter = ReplySplitter()
    thought, answer = splitter.append(text)
    rest = splitter.finish()
    thought, answer = thought + rest[0], answer + rest[1]
    if not splitter.has_thought and (end := _lone_end(answer)) and "```" not in answer[: end.start()]:
        return Reply(answer[: end.start()].strip(), answer[end.end() :].lstrip())
    return Reply(thought.strip(), answer, splitter.is_thinking)


_split_long = lru_cache(maxsize=2)(_split)  # whoever shows a reply asks several times


def _lone_end(text: str) -> re.Match[str] | None:
    """The first end of a thought that has a line to itself."""
    for end in _LONE_END.finditer(text):
        if not text[text.rfind("\n", 0, end.start()) + 1 : end.start()].strip(" \t"):
            return end
    return None


def spoken(text: str) -> str:
    """What of a reply is the answer: that much is sent back to the model in later turns."""
    return split(text).answer


def _overlap(text: str, mark: str) -> int:
    """How many characters at the text's end may be the beginning of the mark."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)


class ThoughtClock:
    """How long the thoughts of one reply took, and how many tokens, as its text comes in."""

    def __init__(self, text: str = "", seconds: float = 0.0, tokens: int = 0) -> None:
        """text: what was written before, in as many seconds and tokens."""
        self.seconds, self.tokens = seconds, tokens
        self._splitter = ReplySplitter()
        self._splitter.append(text)
        self._began: tuple[float, int] | None = None  # now, tokens

    def hear(self, text: str, now: float, tokens: int) -> None:
        """A piece of the reply. now: of a steady clock, s; tokens: of the reply so far."""
        was_thinking = self._splitter.is_thinking
        thought, _ = self._splitter.append(text)
        if self._began is None and (was_thinking or self._splitter.is_thinking or thought):
            self._began = (now, max(tokens - 1, 0))
        if not self._splitter.is_thinking:
            self.stop(now, tokens)

    def stop(self, now: float, tokens: int) -> None:
        """The thought, or the reply, has ended."""
        if self._began is not None:
            began, before = self._began
            self.seconds += now - began
            self.tokens += max(tokens - before, 0)
            self._began = None

    def figures(self) -> dict[str, float | int]:
        """For the statistics of the message; empty where it had no thought."""
        if not self._splitter.has_thought:
            return {}
        return {"thought_s": round(self.seconds, 3), "thought_tokens": self.tokens}
