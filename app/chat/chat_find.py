"""Find in one chat: count the places that hold a text in every message, in bounded steps, and step through them.

It reads the plain words of messages (app/text/plain_text.py), so a message that the window has not built counts like
any other. app/ui/transcript/text_find.py shows the result. It knows no Qt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.chat.answers.thinking import split
from app.chat.conversation import Message, Role
from app.text.plain_text import answer_pieces, fold, own_pieces


class Match(NamedTuple):
    """One place: the id of its message, the piece of that message (0 is an answer's thought, then come its blocks), and
    its number among the places of the piece, from 0."""

    message: str
    piece: int
    nth: int


class Spot(NamedTuple):
    """Where a search begins: the id of a message, a piece of it, and an offset in that piece's folded words."""

    message: str
    piece: int = 0
    offset: int = 0


Pieces = tuple[str, ...]


class ChatFind:
    """The places of one text in a chat's messages."""

    def __init__(self) -> None:
        self.needle = ""  # folded
        self.total = 0
        self._messages: list[Message] = []
        self._index: dict[str, int] = {}
        self._words: dict[str, tuple[str, Pieces]] = {}  # by message: the text that was read, and its plain words
        self._counts: dict[str, tuple[int, ...]] = {}  # by message: places in each piece
        self._reading: Iterator[Pieces | float] | None = None  # of the message at `_at`
        self._length = 0  # characters of all messages
        self._done, self._part = 0, 0.0  # characters of those that are counted, and the share of the next that is read
        self._from = 0  # index of the message that is counted first
        self._at = 0  # how many are counted, from there on

    # ------------------------------------------------------------------ counting

    def take(self, messages: Sequence[Message]) -> None:
        """Search these messages. What is known of those that have not changed is kept."""
        self._messages = list(messages)
        self._index = {message.id: index for index, message in enumerate(messages)}
        texts = {message.id: message.text for message in messages}
        self._words = {one: known for one, known in self._words.items() if texts.get(one) == known[0]}
        self._counts = {one: counts for one, counts in self._counts.items() if one in self._words}
        self._length = sum(len(message.text) for message in messages)
        self._begin(self._from)

    def put(self, message: Message, pieces: Pieces) -> None:
        """Take an answer that is being written, with its plain words so far."""
        index = self._index.get(message.id)
        if index is None:
            return
        self._messages[index] = message
        self._words[message.id] = (message.text, pieces)
        self._counts.pop(message.id, None)
        self._begin(self._from)

    def seek(self, text: str, first: str = "") -> None:
        """Count the places of another text, beginning with the message of that id. Nothing is counted yet."""
        self.needle = fold(text.replace("\u00a0", " ")) if text.strip() else ""
        self._counts.clear()
        self._begin(self._index.get(first, 0))

    def _begin(self, index: int) -> None:
        self._reading, self._at, self._done, self._part = None, 0, 0, 0.0
        self._from = index if index < len(self._messages) else 0
        self.total = sum(map(sum, self._counts.values()))

    def step(self) -> bool:
        """Read or count one message, of a long one a part. Return whether there is more to do."""
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
        """How much of the chat is counted, 0 to 1."""
        if self._at == len(self._messages):
            return 1.0
        reading = self._messages[(self._from + self._at) % len(self._messages)]
        return min((self._done + self._part * len(reading.text)) / max(self._length, 1), 0.99)

    # ------------------------------------------------------------------ going through them

    def holds(self, match: Match) -> bool:
        """Whether that place is still there."""
        counts = self._of(match.message)
        return match.piece < len(counts) and match.nth < counts[match.piece]

    def number(self, match: Match) -> int:
        """Which place of the whole chat it is, from 1."""
        index = self._index.get(match.message, 0)
        before = sum(sum(self._of(message.id)) for message in self._messages[:index])
        return before + sum(self._of(match.message)[: match.piece]) + match.nth + 1

    def spot(self, match: Match) -> Spot:
        """Where the place begins: there the search goes on when the text is changed."""
        pieces = self._words.get(match.message, ("", ()))[1]
        words = fold(pieces[match.piece]) if match.piece < len(pieces) else ""
        offset = -1
        for _ in range(match.nth + 1):
            offset = words.find(self.needle, offset + 1 if offset < 0 else offset + len(self.needle))
            if offset < 0:
                return Spot(match.message, match.piece)
        return Spot(match.message, match.piece, offset)

    def first_from(self, spot: Spot) -> Match | None:
        """Return the first place at a spot or behind it, over the end to what is before it; None while none is known.
        A message that is not counted yet ends the search when it comes before every place."""
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
        """Return the place after (1) or before (-1) another one, over the ends of the chat."""
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
        """Return how many places these plain words hold."""
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
    """The plain words of a message, with the share that is read after every bounded step."""
    if message.role is not Role.ASSISTANT:
        return iter((own_pieces(message.text),))
    reply = split(message.text)
    return answer_pieces(reply.thought, reply.answer)
