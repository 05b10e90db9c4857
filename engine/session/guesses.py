"""Choose how many guesses of the next tokens are worth computing, and of which source.

A few tokens take less time in one run than one after the other (Decoder.steps), and every result up to the first wrong
guess is the same as without guessing. So guesses change how fast an answer is, and nothing else.
Sources: lookup.py, draft.py, mtp.py. Speculative decoding in general: arXiv 2211.17192.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from engine.prompt_cache.stored_prompts import shared_length

LEAST_GAIN = 1.03  # least expected tokens/s, relative to no guesses, for computing any
# What wrong guesses may have cost: a share of the decode time so far, and this many runs of one token: the first
# guesses of a good source may be wrong.
_MOST_LOSS, _FIRST_LOSS = 0.01, 3.0
_FURTHER = 0.5  # time of each further token in a run, relative to a run of one token, until measured
_WEIGHT = 0.2  # of a new measurement in the moving average
_FIRST_RUNS = 3  # runs of one token before the first guesses: the fastest counts, as the first may find nothing cached
_FREE_SHARE = 0.003  # of the time of a run of one token, for following the text while nothing is computed
_MOST_RISE = 1.5  # of a run's time over the expected one: a longer one was interrupted
_RUNS_WITHOUT = 4, 64  # runs of several tokens until one of one token is measured again: at first, doubled up to this


class Guesser(Protocol):
    """A source of guesses for one answer. Before a run: `read`, `prepare`, and maybe `guess`; after it: `computed`.

    Before some runs it is not called.
    """

    name: str  # in the figures of an answer

    def read(self, text: Sequence[int]) -> None:
        """Follow the text: all tokens so far. It only grows from call to call."""

    def prepare(self) -> None:
        """Compute what later guesses need, such as a long prompt, in a share of the time that the source limits."""

    def chances(self, most: int) -> Sequence[float]:
        """Return the expected chance of each next guess to be right if those before it are; empty: it has none now.

        Up to `most` of them. Cost: next to nothing; no guess is made yet.
        """

    def seconds(self, n_guesses: int) -> float:
        """Return the expected time to make this many guesses now, as it was measured."""

    def guess(self) -> Iterator[tuple[int, float]]:
        """Yield the next guesses with their chances, as in `chances`. Each is made when it is asked for."""

    def computed(self, n_tokens: int, accepted: int) -> None:
        """Note that a run of n_tokens has ended, of which `accepted` were right guesses, of any source or forced.

        The decoder still has the results of that run; its first 1 + accepted tokens are in the text.
        """


class StepTimes:
    """Measured times of a run of one token, and of each further token in a run; what guesses cost so far.

    decoded_s: of all runs and guesses. lost_s: the part of it that guesses cost and right ones did not win back, the
    time of following the text included. Once guesses have lost too much, it falls by what free ones would have won.
    """

    def __init__(self) -> None:
        self.one_s = self.decoded_s = self.lost_s = 0.0  # one_s: 0 until it is known
        self._further = _FURTHER  # time of a further token, as a share of one_s
        self._first: list[float] = []  # runs of one token until one_s is known
        self._n_without = 0  # runs of several tokens since the last one of one token
        self._most_without = _RUNS_WITHOUT[0]
        self.is_warm = False  # several tokens have run together; the first such run finds nothing cached

    @property
    def is_recent(self) -> bool:
        """Whether the time of a run of one token is known and recent."""
        return self.one_s > 0 and self._n_without < self._most_without

    @property
    def most_lost_s(self) -> float:
        """The most that guesses may have lost so far, if any are to be computed."""
        return _MOST_LOSS * self.decoded_s + _FIRST_LOSS * self.one_s

    @property
    def lost_too_much(self) -> bool:
        return self.lost_s > self.most_lost_s

    def add(self, n_tokens: int, seconds: float) -> None:
        if n_tokens > 1:
            self._n_without += 1
            if self.one_s:
                further = (seconds / self.one_s - 1) / (n_tokens - 1)
                self._further += _WEIGHT * (min(max(further, 0.0), 2.0) - self._further)
        elif self.one_s:
            is_early = self._most_without < _RUNS_WITHOUT[1]
            if self._n_without:
                self._n_without, self._most_without = 0, min(2 * self._most_without, _RUNS_WITHOUT[1])
            if (
                is_early and seconds * _MOST_RISE < self.one_s
            ):  # the first runs were slow, and further tokens seemed cheap
                self.one_s, self._further = seconds, _FURTHER
            self.one_s += _WEIGHT * (min(seconds, _MOST_RISE * self.one_s) - self.one_s)
        else:
            self._first.append(seconds)
            if len(self._first) == _FIRST_RUNS:
                self.one_s = min(self._first)

    def of(self, n_tokens: int) -> float:
        """Return the expected seconds of a run of n_tokens; 0 before one_s is known."""
        return self.one_s * (1 + self._further * (n_tokens - 1))


class Guesses:
    """The guesses of one answer: the best of several sources by expected tokens/s, the time of guessing included."""

    def __init__(self, times: StepTimes, sources: Sequence[Guesser]) -> None:
        """times: of the model, shared by all its answers."""
        self._times, self._sources = times, sources
        self.source = ""  # of the last guesses
        self._making_s = self._read_s = 0.0  # for reading the text and making guesses since the last run; for reading
        self._tried: list[int] = []  # guesses that are compared with the text without being computed
        self._tried_at = 0  # index in the text of the first of them

    def next(self, text: Sequence[int], most: int) -> list[int]:
        """Return the guesses of the next tokens that are worth computing now: up to `most`, often none.

        text: all tokens so far; it only grows from call to call.
        """
        if most < 1 or not self._sources or not self._times.is_recent:
            return []
        if self._times.lost_too_much:
            if self._read_s <= _FREE_SHARE * self._times.one_s:
                self._try(text, most)
            return []
        self._tried = []
        started = time.perf_counter()
        for source in self._sources:
            source.read(text)
        self._making_s = self._read_s = time.perf_counter() - started
        for source in self._sources:
            source.prepare()
        started = time.perf_counter()
        guesses = self._best(self._sources, most)
        self._making_s += time.perf_counter() - started
        return guesses

    def _try(self, text: Sequence[int], most: int) -> None:
        """Guess without computing, from free sources, and count what that would have won or lost."""
        started, times = time.perf_counter(), self._times
        if self._tried:
            n_right = shared_length(self._tried, text[self._tried_at :])
            if n_right < len(self._tried) and n_right == len(text) - self._tried_at:
                return
            lost_s = times.lost_s + times.of(1 + len(self._tried)) - (1 + n_right) * times.one_s
            times.lost_s = max(0.0, min(lost_s, max(times.lost_s, 2 * times.most_lost_s)))
        for source in self._sources:
            source.read(text)
        free = [source for source in self._sources if not source.seconds(1)]
        self._tried, self._tried_at = self._best(free, most) if free else [], len(text)
        self._making_s = self._read_s = time.perf_counter() - started

    def _best(self, sources: Sequence[Guesser], most: int) -> list[int]:
        """Return up to `most` guesses of the best source; none if they are not worth computing."""
        plans = [(*best_number(self._times, one.chances(most), one.seconds), one) for one in sources]
        n, gain, source = max(plans, key=lambda plan: plan[1])
        if gain < LEAST_GAIN:
            return []
        self.source = source.name
        return self._made(source, most) if source.seconds(n) else [token for token, _ in islice(source.guess(), n)]

    def computed(self, n_tokens: int, seconds: float, accepted: int, is_forced: bool = False) -> None:
        """Record a run of n_tokens, of which `accepted` were right guesses. is_forced: they were not guesses."""
        for source in self._sources:
            source.computed(n_tokens, accepted)
        is_cold = n_tokens > 1 and not self._times.is_warm
        self._times.is_warm |= n_tokens > 1
        if is_forced or is_cold:
            return
        own_s = min(seconds, _MOST_RISE * self._times.of(n_tokens)) if n_tokens > 1 else seconds
        gained = (1 + accepted) * self._times.one_s - own_s if n_tokens > 1 else 0.0
        self._times.lost_s = max(0.0, self._times.lost_s + self._making_s - gained)
        self._times.add(n_tokens, own_s)
        self._times.decoded_s += seconds + self._making_s
        self._making_s = 0.0

    def _made(self, source: Guesser, most: int) -> list[int]:
        """Make guesses as long as further ones are expected to pay; return those that are worth computing."""
        started, guesses, chances, best = time.perf_counter(), list[int](), list[float](), 0
        for token, chance in source.guess():
            guesses.append(token)
            chances.append(chance)
            spent_s = time.perf_counter() - started
            further = source.chances(most)[len(guesses) :]
            best, _ = best_number(self._times, [*chances, *further], source.seconds, len(guesses), spent_s)
            if best <= len(guesses) or len(guesses) == most:
                break
        return guesses[:best]


def best_number(
    times: StepTimes,
    chances: Sequence[float],
    making_s: Callable[[int], float],
    n_made: int = 0,
    spent_s: float = 0.0,
) -> tuple[int, float]:
    """Return the number of guesses with the most expected tokens/s, and this rate relative to that without guesses.

    chances, making_s: as Guesser.chances and Guesser.seconds. n_made: how many guesses exist already, which took
    spent_s. Before a run of one token was measured: 0, 0.0.
    """
    one_s, chance, tokens = times.one_s, 1.0, 1.0
    if not one_s:
        return 0, 0.0
    best, gain = 0, one_s / (one_s + spent_s)
    for n, right in enumerate(chances, start=1):
        chance *= right
        tokens += chance
        further_s = making_s(n) - making_s(n_made) if n > n_made else 0.0
        if (found := tokens * one_s / (times.of(n + 1) + spent_s + further_s)) >= gain:
            best, gain = n, found
    return best, gain
