"""A draft: a smaller model with the same vocabulary that guesses the next tokens of an answer.

It computes in the thread of the answer, between two runs of the model, and proposes the token that it finds most
likely. How often that is right is counted by how likely the draft finds it. Its own KV cache follows the text.
drafting.py finds, loads and closes the draft.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.decode.decode_program import MOST_TOKENS
from engine.errors import Cancelled
from engine.job import CancelCheck, Job, never
from engine.prompt_cache.stored_prompts import shared_length
from engine.session.generate import SMALLEST_CHUNK_TOKENS, decode_one_token, prefill
from engine.session.guesses import LEAST_GAIN, StepTimes, best_number

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

_CLASSES = 8  # of a guess, by the draft's probability of it
# Weight of the assumed chance in observations, and that chance: high, so that a draft is tried. A wrong trial costs
# little (guesses.py), but one that is never tried never gains.
_PRIOR, _FIRST_CHANCE = 4.0, 0.8
_FADE = 0.995  # of the observations, with each token of the text: another text is easier or harder to guess
_ENOUGH = 24.0  # observations from which on the measured gain counts
_LONGEST_LAG = MOST_TOKENS  # tokens of the text that the draft may have to compute before its first guess
# The share of an answer's time for computing text that the draft lacks, such as a prompt: while its gain is unknown, if
# there is none, and the most if it gains. The gain of an answer of usual length must be larger.
_UNKNOWN_SHARE, _LEAST_SHARE, _MOST_SHARE = 0.01, 0.002, 0.15
_MOST_CATCH_UP = 256  # tokens at once
_WEIGHT = 0.3  # of a new measurement of the time of a prompt's token


class Draft:
    """A Guesser by a smaller model. One answer at a time; not thread-safe. `close` unloads the model."""

    name = "draft"

    def __init__(self, model: LoadedModel, n_vocabulary: int) -> None:
        """model: owned by this object from now on. n_vocabulary: of the model whose answers it guesses.

        Cost: some tokens, to measure the times. Raises: the errors of computing; the model is then closed.
        """
        self.model, self.has_failed = model, False
        self._n_vocabulary = min(n_vocabulary, model.opened.config.vocab_size)
        self._own, self._times = StepTimes(), StepTimes()
        self._prompt_token_s = 0.0
        self._right, self._seen = np.zeros(_CLASSES), np.zeros(_CLASSES)
        self._text: Sequence[int] = ()
        self._followed = 0  # tokens of the text that `read` has seen
        self._sure = 0  # first tokens of the cache that equal the text
        self._guessed: list[tuple[int, int]] = []  # tokens and classes, from position _followed on
        self._began_at, self._spent_s = time.perf_counter(), 0.0
        try:
            model.reserve(model.context)
            self._transformer, self._cache = model.transformer(), model.new_cache()
            self._generation = model.generation
            self._measure()
        except BaseException:
            model.close()
            raise

    def close(self) -> None:
        self.has_failed = True
        self.model.close()

    def begin(self, times: StepTimes) -> None:
        """Begin an answer, whose text may be any. times: of the model that answers, as they change."""
        self._times, self._text, self._followed, self._sure = times, (), 0, 0
        self._guessed, self._spent_s, self._began_at = [], 0.0, time.perf_counter()

    @property
    def chance(self) -> float:
        """The expected chance of a guess to be right."""
        return float((self._right.sum() + _PRIOR * _FIRST_CHANCE) / (self._seen.sum() + _PRIOR))

    @property
    def gain(self) -> float | None:
        """Expected tokens/s relative to no guesses; None while it may gain, but too few guesses were compared."""
        gain = self._expected_gain()
        return None if not self._times.one_s or (gain >= LEAST_GAIN and self._seen.sum() < _ENOUGH) else gain

    # --- as Guesser

    def read(self, text: Sequence[int]) -> None:
        new = len(text) - self._followed if self._text else 0
        for token in text[self._followed :] if new else ():
            if self._guessed:
                guess, kind = self._guessed.pop(0)
                self._seen[kind] += 1
                self._right[kind] += guess == token
                if guess != token:
                    self._guessed = []
        self._seen *= _FADE**new
        self._right *= _FADE**new
        self._text, self._followed = text, len(text)

    def prepare(self) -> None:
        """As Guesser.prepare: compute some of a text that the draft lacks, in a small share of the answer's time."""
        if not self._has_room(1):
            return
        lag = len(self._text) - self._length()
        if lag > _LONGEST_LAG:
            left_s = self._share() * (time.perf_counter() - self._began_at) - self._spent_s
            most = min(lag - 1, _MOST_CATCH_UP, int(left_s / self._prompt_token_s))
            if most >= min(lag - 1, SMALLEST_CHUNK_TOKENS):
                self._catch_up(most)

    def chances(self, most: int) -> list[float]:
        if not self._has_room(most) or len(self._text) - self._length() > _LONGEST_LAG:
            return []
        return [self.chance] * most

    def seconds(self, n_guesses: int) -> float:
        lag = max(1, len(self._text) - self._length())
        return self._own.of(lag) + (n_guesses - 1) * self._own.one_s if n_guesses else 0.0

    def guess(self) -> Iterator[tuple[int, float]]:
        """As Guesser.guess. A draft that fails is not used any more."""
        self._guessed = []
        try:
            tokens = self._text[self._cut() :]
            while self._cache.length + len(tokens) <= self._cache.capacity:
                began = time.perf_counter()
                logits = prefill(self._transformer, tokens, self._cache)[: self._n_vocabulary]
                if not self._guessed:
                    self._cache.remember()  # so that wrong guesses can be cut off
                token = int(np.argmax(logits))
                kind = int(_CLASSES * min(0.999, 1 / float(np.exp(logits - logits[token]).sum())))
                self._own.add(len(tokens), time.perf_counter() - began)
                self._guessed.append((token, kind))
                yield token, self._chance_of(kind)
                tokens = [token]
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - the answer continues without it
            self._fail(error)

    def computed(self, n_tokens: int, accepted: int) -> None:
        """As Guesser.computed: `read` compares the guesses with the text."""

    # --- while the engine is idle

    def follow(self, text: Sequence[int], cancelled: CancelCheck = never) -> bool:
        """Compute some of the text that the draft lacks; return whether there is more.

        Cost: up to _MOST_CATCH_UP tokens, unless cancelled between two layers.
        """
        self.begin(self._times)
        self._text, self._followed = text, len(text)
        if not self._has_room(1) or (lag := len(text) - self._length()) <= 1:
            return False
        self._catch_up(min(lag - 1, _MOST_CATCH_UP), Job(cancelled))
        return self._sure < len(text) - 1 and not self.has_failed

    # --- helpers

    def _measure(self) -> None:
        """Measure a prompt's token and a token. The second of each counts: the first may compile or allocate."""
        for _ in range(2):
            began = time.perf_counter()
            prefill(self._transformer, [1] * (SMALLEST_CHUNK_TOKENS + 1), self._cache)
            self._prompt_token_s = (time.perf_counter() - began) / (SMALLEST_CHUNK_TOKENS + 1)
            self._cache.truncate(0)
        prefill(self._transformer, [1], self._cache)
        for _ in range(3):
            began = time.perf_counter()
            decode_one_token(self._transformer, 1, self._cache)
            self._own.one_s = min(self._own.one_s or 1e9, time.perf_counter() - began)
        self._cache.truncate(0)

    def _has_room(self, n_guesses: int) -> bool:
        """Return whether it can guess this many tokens after the text."""
        if self.has_failed or not self._text:
            return False
        n = len(self._text) + n_guesses
        is_valid = not self._cache.length or self._transformer.cache_serves(self._cache, n)
        return n <= self._cache.capacity and is_valid and self._generation == self.model.generation

    def _length(self) -> int:
        """Return how many tokens of the text the cache has and can be cut to; at most all but the last."""
        most = min(self._cache.length, len(self._text) - 1)
        if self._sure < most:
            cached = self._cache.tokens[self._sure : most].tolist()
            self._sure += shared_length(cached, self._text[self._sure : most])
        return self._cache.reusable(min(self._sure, most))

    def _cut(self) -> int:
        """Cut the cache to what the text shares with it, and return that length."""
        self._cache.truncate(self._length())
        self._sure = self._cache.length
        return self._sure

    def _catch_up(self, n_tokens: int, job: Job = Job()) -> None:
        """Compute this many tokens that it lacks, or the first of them if it is cancelled."""
        began, is_whole = time.perf_counter(), True
        try:
            length = self._cut()
            prefill(self._transformer, self._text[length : length + n_tokens], self._cache, job)
            self._cache.remember()
        except Cancelled:
            is_whole = False
        except Exception as error:  # noqa: BLE001 - the answer continues without it
            self._fail(error)
        seconds = time.perf_counter() - began
        self._sure = self._cache.length
        self._spent_s += seconds
        if is_whole:
            self._prompt_token_s += _WEIGHT * (seconds / n_tokens - self._prompt_token_s)

    def _share(self) -> float:
        """Return the share of an answer's time for computing the text so far."""
        gain = self._expected_gain()
        if gain < LEAST_GAIN:
            return _LEAST_SHARE
        return min(_MOST_SHARE, (gain - 1) / 2) if self._seen.sum() >= _ENOUGH else _UNKNOWN_SHARE

    def _expected_gain(self) -> float:
        return best_number(self._times, [self.chance] * (MOST_TOKENS - 1), lambda n: n * self._own.one_s)[1]

    def _chance_of(self, kind: int) -> float:
        prior = (kind + 0.5) / _CLASSES
        return float((self._right[kind] + _PRIOR * prior) / (self._seen[kind] + _PRIOR))

    def _fail(self, error: Exception) -> None:
        log.warning("%s guesses no more: %s", self.model.name, error)
        self.has_failed = True
