"""Separate a model's thoughts from its answer during generation. MARKS lists the marks around thoughts."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import lru_cache

# Start and end marks of thoughts, in lower case.
MARKS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<|think|>", "<|end|><|begin|>assistant"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel|>commentary<|message|>", "<|end|>"),
    ("<|channel>thought", "<channel|>"),
)
# Special tokens that are marks or parts of marks, except those of Harmony, which engine/text/harmony.py reads.
MARK_TOKENS = frozenset(
    token
    for opening, end in MARKS
    if "<|message|>" not in opening
    for token in (opening.partition(">")[0] + ">" if ">" in opening else opening, end)
)
# Marks of the role and of the start of the answer. They are dropped.
_PASSED_OVER = ("<|start|>assistant", "<|channel|>final<|message|>", "<|begin_of_solution|>", "<|content|>")
# Marks around an answer that follows a thought, of Hunyuan-A13B and Granite 3.3. They are dropped.
_ANSWERS = ("<answer>", "<response>")
_OPENINGS = tuple(opening for opening, _ in MARKS)
_FIRST = {mark[0] for mark in (*_OPENINGS, *_PASSED_OVER)}
_LONG = 1_000_000  # characters; the split of a longer reply is cached
_LONGEST = max(map(len, (*_OPENINGS, *_PASSED_OVER)))
# If the chat template opened the thought, the text contains only the end mark, on a line of its own. The pattern begins
# with a literal: texts can be 16 MB long, and other patterns search them 20 times as slowly.
_LONE_END = re.compile(r"</[tT][hH][iI][nN][kK](?:[iI][nN][gG])?>[ \t]*(?=\n|$)")

_ANY_OPENING = "(" + "|".join(re.escape(opening) for opening, _ in MARKS) + ")"
_OPENED = re.compile(_ANY_OPENING + r"\s*$", re.IGNORECASE | re.ASCII)
_OPENING = re.compile(r"\s*" + _ANY_OPENING, re.IGNORECASE | re.ASCII)

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True)
class Reply:
    """The two parts of a reply. is_thinking: the thought has not ended."""

    thought: str
    answer: str
    is_thinking: bool = False


class ReplySplitter:
    """An incremental splitter of one reply. Thoughts come only before the answer; later marks are plain text.

    Cost: linear in the appended text.
    """

    def __init__(self) -> None:
        self.has_thought = False
        self.opening_mark = ""  # of the last thought, as the model wrote it
        self._held = ""  # text that may be the beginning of a mark
        self._end = ""  # end mark of the open thought
        self._answering = False
        self._answer_end = ""  # mark that may end the answer, dropped at its end

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open."""
        return bool(self._end)

    @property
    def end_mark(self) -> str:
        """The mark that ends the open thought, in lower case; "" if none is open."""
        return self._end

    @property
    def is_answering(self) -> bool:
        """Whether the answer has begun. No later text is a thought."""
        return self._answering

    def append(self, text: str) -> tuple[str, str]:
        """Append text to the reply. Return what it adds to the thought, and to the answer."""
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
            end = self._place_of_end()
            answer, self._held = self._held[:end], self._held[end:]
        return "".join(thought), answer

    def finish(self) -> tuple[str, str]:
        """End the reply. Return the text held back, for the thought and for the answer."""
        held, self._held = self._held, ""
        if self._answer_end and _lower(held.strip()) == self._answer_end:
            held = ""
        return (held, "") if self._end else ("", held)

    def _read_thought(self, thought: list[str]) -> bool:
        """Move text that certainly belongs to the thought to `thought`. Return True if the thought has ended."""
        low = _lower(self._held)
        place = low.find(self._end)
        if place >= 0:
            thought.append(self._held[:place])
            self._held = self._held[place + len(self._end) :]
            self._end = ""
            return True
        keep = _overlap(low, self._end)
        cut = len(self._held) - keep
        thought.append(self._held[:cut])
        self._held = self._held[cut:]
        return False

    def _place_of_end(self) -> int:
        """Return where the mark that ends the answer begins in `_held`, if it may be the end of it."""
        if not self._answer_end:
            return len(self._held)
        text = self._held.rstrip()
        at = text.rfind("<")
        whole = at < 0 or not self._answer_end.startswith(_lower(text[at:]))
        return len(text if whole else text[:at].rstrip())

    def _read_mark(self) -> bool:
        """Read a mark, or begin the answer if there is none. Return False if more text is needed."""
        start = self._held.lstrip()
        low = _lower(start[: _LONGEST + 1])
        for opening, end in MARKS:
            if low.startswith(opening):
                self._end, self.has_thought, self.opening_mark = end, True, start[: len(opening)]
                self._held = start[len(opening) :]
                return True
        passed_over = (*_PASSED_OVER, *_ANSWERS) if self.has_thought else _PASSED_OVER
        for mark in passed_over:
            if low.startswith(mark):
                self._held = start[len(mark) :]
                self._answer_end = f"</{mark[1:]}" if mark in _ANSWERS else ""
                return True
        if not low or any(mark.startswith(low) for mark in (*_OPENINGS, *passed_over)):
            return False
        self._answering = True
        if self.has_thought:
            self._held = start
        return True


def split(text: str) -> Reply:
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


_split_long = lru_cache(maxsize=2)(_split)  # the window splits a reply several times to show it


def _lone_end(text: str) -> re.Match[str] | None:
    """Return the first end mark on a line of its own."""
    for end in _LONE_END.finditer(text):
        if not text[text.rfind("\n", 0, end.start()) + 1 : end.start()].strip(" \t"):
            return end
    return None


def opened_thought(prompt: str) -> str:
    """Return the opening mark at the end of a prompt, with the white space after it; "" if there is none."""
    found = _OPENED.search(prompt)
    return found.group() if found else ""


def mark_spans(reply: str) -> list[tuple[int, int]]:
    """Return where the marks around thoughts begin and end in the beginning of a reply."""
    spans, at = list[tuple[int, int]](), 0
    while found := _OPENING.match(reply, at):
        spans.append(found.span(1))
        end = end_of(found[1])
        place = _lower(reply).find(end.lower(), found.end())
        if place < 0:
            break
        at = place + len(end)
        spans.append((place, at))
    return spans


def end_of(opening: str) -> str:
    """Return the end mark that belongs to an opening mark, in the same case."""
    mark = opening.strip()
    end = next(end for one, end in MARKS if one == mark.lower())
    return end.upper() if mark.isupper() else end


def spoken(text: str) -> str:
    """Return the answer without thoughts, as later requests send it to the model."""
    return split(text).answer


def _lower(text: str) -> str:
    """Return the text in lower case, with as many characters: "İ" would become two."""
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_ASCII_LOWER)


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the mark."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)
