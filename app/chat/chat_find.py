"""Find in one chat: counts the matches in every message in bounded steps, and steps through them. No Qt.

It reads the plain text of messages (app/text/plain_text.py), so messages that the window has not built count too.
app/ui/transcript/text_find.py shows the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.chat.store.conversation import Message, Role
from app.text.plain_text import answer_pieces, fold, own_pieces
from engine.text.thoughts import split


class Match(NamedTuple):
    """One match: the message's id, the piece of the message (0: an answer's thought, then its blocks), and its number
    among the matches of the piece, from 0."""

    message: str
    piece: int
    nth: int


class Spot(NamedTuple):
    """Where a search begins: a message's id, a piece of it, and an offset in the piece's folded text."""

    message: str
    piece: int = 0
    offset: int = 0


Pieces = tuple[str, ...]


class ChatFind:
    """The matches of one text in a chat's messages."""

    def __init__(self) -> None:
        self.needle = ""  # folded
        self.total = 0
        self._messages: list[Message] = []
        self._index: dict[str, int] = {}
        self._words: dict[str, tuple[str, Pieces]] = {}  # by message: the source that was read, and its plain text
        self._counts: dict[str, tuple[int, ...]] = {}  # by message: matches in each piece
        self._reading: Iterator[Pieces | float] | None = None  # of the message at `_at`
        self._length = 0  # characters of all messages
        self._done, self._part = (
            0,
            0.0,
        )  # characters of the counted messages, and the fraction of the next one that is read
        self._from = 0  # index of the first message to count
        self._at = 0  # number of messages counted from there on

    # --- counting

    def take(self, messages: Sequence[Message]) -> None:
        """Set the messages to search. Counts of unchanged messages are kept."""
        self._messages = list(messages)
        self._index = {message.id: index for index, message in enumerate(messages)}
        texts = {message.id: message.text for message in messages}
        self._words = {one: known for one, known in self._words.items() if texts.get(one) == known[0]}
        self._counts = {one: counts for one, counts in self._counts.items() if one in self._words}
        self._length = sum(len(message.text) for message in messages)
        self._begin(self._from)

    def put(self, message: Message, pieces: Pieces) -> None:
        """Set the text so far of an answer that is being written."""
        index = self._index.get(message.id)
        if index is None:
            return
        self._messages[index] = message
        self._words[message.id] = (message.text, pieces)
        self._counts.pop(message.id, None)
        self._begin(self._from)

    def seek(self, text: str, first: str = "") -> None:
        """Search another text, beginning with the message of id `first`. Counts nothing yet."""
        self.needle = fold(text.replace("\u00a0", " ")) if text.strip() else ""
        self._counts.clear()
        self._begin(self._index.get(first, 0))

    def _begin(self, index: int) -> None:
        self._reading, self._at, self._done, self._part = None, 0, 0, 0.0
        self._from = index if index < len(self._messages) else 0
        self.total = sum(map(sum, self._counts.values()))

    def step(self) -> bool:
        """Read or count one message, or part of a long one. Return whether there is more to do."""
        while self._at < len(self._messages):
            message = self._messages[(self._from + self._at) % len(self._messages)]
            known = self._words.get(message.id)
            if known is None:
                if self._reading is None:
                    self._reading = _read(message)
                pieces = next(self._reading)
                if isinstance(pieces, float):
                    self._part = pieces
                    return True
                self._reading, self._part = None, 0.0
                self._words[message.id] = (message.text, pieces)
                return True
            self._at += 1
            self._done += len(message.text)
            if self.needle and message.id not in self._counts:
                counts = tuple(fold(piece).count(self.needle) for piece in known[1])
                self._counts[message.id] = counts
                self.total += sum(counts)
                return True
        return False

    @property
    def share(self) -> float:
        """The fraction of the chat that is counted, 0 to 1."""
        if self._at == len(self._messages):
            return 1.0
        reading = self._messages[(self._from + self._at) % len(self._messages)]
        return min((self._done + self._part * len(reading.text)) / max(self._length, 1), 0.99)

    # --- going through them

    def holds(self, match: Match) -> bool:
        """Return whether the match still exists."""
        counts = self._of(match.message)
        return match.piece < len(counts) and match.nth < counts[match.piece]

    def number(self, match: Match) -> int:
        """Return the match's number in the whole chat, from 1."""
        index = self._index.get(match.message, 0)
        before = sum(sum(self._of(message.id)) for message in self._messages[:index])
        return before + sum(self._of(match.message)[: match.piece]) + match.nth + 1

    def spot(self, match: Match) -> Spot:
        """Return where the match begins: a changed text is searched from there."""
        pieces = self._words.get(match.message, ("", ()))[1]
        words = fold(pieces[match.piece]) if match.piece < len(pieces) else ""
        offset = -1
        for _ in range(match.nth + 1):
            offset = words.find(self.needle, offset + 1 if offset < 0 else offset + len(self.needle))
            if offset < 0:
                return Spot(match.message, match.piece)
        return Spot(match.message, match.piece, offset)

    def first_from(self, spot: Spot) -> Match | None:
        """Return the first match at or after a spot, wrapping around the end; None if none is known. A message that is
        not counted yet ends the search when it comes before every match."""
        counts = self._of(spot.message)
        if spot.message in self._index and spot.message not in self._counts:
            return None
        if spot.piece < len(counts):
            words = fold(self._words[spot.message][1][spot.piece])
            nth = words.count(self.needle, 0, max(spot.offset + len(self.needle) - 1, 0))
            if nth < counts[spot.piece]:
                return Match(spot.message, spot.piece, nth)
            behind = sum(counts[: spot.piece + 1])
            if behind < sum(counts):
                return self._nth(spot.message, behind)
        here = self._index.get(spot.message, -1)
        for step in range(1, len(self._messages) + 1):
            message = self._messages[(here + step) % len(self._messages)].id
            if message not in self._counts:
                return None
            if sum(self._of(message)):
                return self._nth(message, 0)
        return None

    def beside(self, match: Match, step: int) -> Match:
        """Return the next (1) or previous (-1) match, wrapping around."""
        counts = self._of(match.message)
        flat = sum(counts[: match.piece]) + match.nth + step
        if 0 <= flat < sum(counts):
            return self._nth(match.message, flat)
        here = self._index.get(match.message, 0)
        for away in range(1, len(self._messages) + 1):
            message = self._messages[(here + away * step) % len(self._messages)].id
            if some := sum(self._of(message)):
                return self._nth(message, 0 if step > 0 else some - 1)
        return match

    def count_in(self, pieces: Sequence[str]) -> int:
        """Return the number of matches in these pieces."""
        return sum(fold(piece).count(self.needle) for piece in pieces)

    def _of(self, message: str) -> tuple[int, ...]:
        return self._counts.get(message, ())

    def _nth(self, message: str, flat: int) -> Match:
        for piece, count in enumerate(self._of(message)):
            if flat < count:
                return Match(message, piece, flat)
            flat -= count
        raise IndexError(flat)


def _read(message: Message) -> Iterator[Pieces | float]:
    """Yield the fraction that is read after each bounded step, then the message's plain text."""
    if message.role is not Role.ASSISTANT:
        return iter((own_pieces(message.text),))
    reply = split(message.text)
    return answer_pieces(reply.thought, reply.answer)
