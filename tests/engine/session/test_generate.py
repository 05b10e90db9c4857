"""The main path against a model made of arithmetic: the next token is always the sum of the last two."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.job import Job
from engine.session import generate as main_path
from engine.session.generate import Savings, StopRules, StopScanner, TokenEvent, Turns, generate, prefill
from engine.session.loaded_model import LoadedModel

V = 64


class FakeCache:
    recurs = forgets = False

    def __init__(self, capacity: int = 100) -> None:
        self.capacity = capacity
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        del self.tokens[length:]

    def remember(self) -> None: ...


class FakeModel:
    """Hidden state [T, 1]: the last two tokens' sum; logits point at it."""

    def __init__(self) -> None:
        self.chunks: list[int] = []
        self.decoder = None
        self.first_chunk_tokens = self.least_chunk_tokens = 32
        self.largest_chunk_tokens, self.first_chunk_is_fixed = 512, False
        self.config = SimpleNamespace(n_layers=1)
        self.ahead: list[int] = []
        self.executor = SimpleNamespace(
            counters=SimpleNamespace(tokens=0, active_share=0.5, fired_share=0.25, reset_sums=lambda: None)
        )

    def forward(self, ids: np.ndarray, cache: FakeCache, ahead: int = 0, look: Any = None) -> np.ndarray:
        self.chunks.append(len(ids))
        self.ahead.append(ahead)
        hidden = []
        for token in ids.tolist():
            cache.tokens.append(token)
            hidden.append([sum(cache.tokens[-2:]) % V])
        return np.array(hidden, dtype=np.float32)

    def prefill(
        self, ids: np.ndarray, cache: FakeCache, ahead: int = 0, look: Any = None, remembered: int = 0
    ) -> np.ndarray:  # fmt: skip
        return self.forward(ids, cache, ahead, look)

    def cache_serves(self, cache: FakeCache, length: int) -> bool:
        return True

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return np.array([np.eye(V, dtype=np.float32)[int(row[0])] for row in hidden])


class Letters:
    """A text stream: token n is the n-th letter."""

    def push(self, token: int) -> str:
        return chr(ord("A") + token)

    def flush(self) -> str:
        return ""


def greedy(logits: np.ndarray, history: Sequence[int]) -> int:
    return int(logits.argmax())


def run(prompt: Sequence[int], cache: FakeCache | None = None, job: Job = Job(), **stop: Any) -> list[TokenEvent]:
    model, cache = FakeModel(), cache or FakeCache()
    return list(generate(model, cache, prompt, greedy, Letters(), StopRules(**stop), job))  # type: ignore[arg-type]


def tokens(events: list[TokenEvent]) -> list[int]:
    return [event.token_id for event in events if event.token_id is not None]


def test_the_answer_continues_the_prompt_and_ends_at_the_limit() -> None:
    events = run([1, 2], max_tokens=5)
    assert tokens(events) == [3, 5, 8, 13, 21]
    assert events[-1].finish_reason == "length"
    assert not events[-1].stats.context_full
    assert [event.finish_reason for event in events[:-1]] == [None] * 5


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it() -> None:
    events = run([1, 2], token_ids=frozenset({13}))
    assert tokens(events) == [3, 5, 8]
    assert events[-1].finish_reason == "stop"
    assert events[-1].stats.tokens == 3


def test_a_full_context_ends_the_answer_and_says_so() -> None:
    cache = FakeCache(capacity=6)
    events = run([1, 2], cache=cache)
    assert tokens(events) == [3, 5, 8, 13]
    assert events[-1].finish_reason == "length"
    assert events[-1].stats.context_full
    assert cache.length <= cache.capacity


def test_a_token_limit_below_the_room_is_no_full_context() -> None:
    assert not run([1, 2], cache=FakeCache(capacity=7), max_tokens=4)[-1].stats.context_full


def test_what_the_cache_holds_is_not_computed_again() -> None:
    model, cache = FakeModel(), FakeCache()
    cache.tokens = [1, 2, 3]
    events = list(generate(model, cache, [1, 2, 3, 4], greedy, Letters(), StopRules(max_tokens=2)))  # type: ignore[arg-type]
    assert model.chunks[0] == 1
    assert tokens(events) == [7, 11]
    assert events[-1].stats.reused_tokens == 3
    assert events[-1].stats.prompt_tokens == 4


def test_cancelling_between_two_tokens_keeps_what_was_written() -> None:
    calls = itertools.count()
    events = run([1, 2], job=Job(lambda: next(calls) >= 5))
    assert events[-1].finish_reason == "cancelled"
    assert tokens(events) == [3, 5, 8]  # two looks are prefill's, one comes before each token


def test_cancelling_in_prefill_yields_no_token() -> None:
    events = run(list(range(60)), job=Job(lambda: True))
    assert [event.finish_reason for event in events] == ["cancelled"]
    assert events[-1].stats.ttft_s is None


def test_prefill_in_chunks_equals_prefill_at_once_and_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_path, "SMALLEST_CHUNK_TOKENS", 7)
    model, cache, seen = FakeModel(), FakeCache(), []
    model.first_chunk_tokens, model.largest_chunk_tokens = 7, 20
    logits = prefill(model, list(range(60)), cache, job=Job(progress=lambda done, total: seen.append((done, total))))  # type: ignore[arg-type]
    whole = FakeModel().forward(np.arange(60), FakeCache())
    assert int(logits.argmax()) == int(whole[-1][0])
    assert max(model.chunks) <= 20
    assert sum(model.chunks) == 60
    assert seen[-1] == (60, 60)
    assert [done for done, _ in seen] == list(itertools.accumulate(model.chunks))
    assert model.ahead == [60 - done for done, _ in seen]


def test_the_next_prompt_begins_with_the_size_of_chunks_chosen_last() -> None:
    model = FakeModel()
    for length in (600, 600, 33):
        prefill(model, list(range(length)), FakeCache())  # type: ignore[arg-type]
    assert model.chunks == [32, 512, 55, 1, 512, 87, 1, 32, 1]
    limited = Savings(turns=Turns(chunk_s=1.0))
    list(generate(model, FakeCache(700), [1] * 600, greedy, Letters(), StopRules(max_tokens=1), savings=limited))  # type: ignore[arg-type]
    assert model.chunks[9] == 32


def test_a_prompt_begins_with_smaller_chunks_after_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_fixed in (False, True):
        model = FakeModel()
        model.first_chunk_tokens, model.first_chunk_is_fixed = 512, is_fixed
        now = itertools.count()
        monkeypatch.setattr(main_path.time, "perf_counter", lambda now=now: float(next(now)))
        prefill(model, [1] * 600, FakeCache())  # type: ignore[arg-type]
        assert (model.chunks[0], model.first_chunk_tokens) == (512, 512 if is_fixed else 32)


class Border(FakeModel):
    """What was computed for up to 5 tokens is of no use beyond."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def forward(self, ids: np.ndarray, cache: FakeCache, ahead: int = 0, look: Any = None) -> np.ndarray:
        self.length = len(cache.tokens) + len(ids) + ahead
        return super().forward(ids, cache, ahead, look)

    def cache_serves(self, cache: FakeCache, length: int) -> bool:
        return not cache.tokens or (self.length > 5) == (length > 5)


def test_a_border_beyond_which_the_cache_is_of_no_use() -> None:
    plain = [event.token_id for event in run([1, 1, 1], max_tokens=6)]
    model, cache = Border(), FakeCache()
    events = list(generate(model, cache, [1, 1, 1], greedy, Letters(), StopRules(max_tokens=6)))  # type: ignore[arg-type]
    assert [event.token_id for event in events] == plain
    assert model.chunks == [2, 1, 1, 1, 5, 1, 1, 1]  # the sixth token: all of them once more
    assert events[-1].stats.decode_steps == 4

    again = list(generate(model, cache, [1, 1, 1, 2], greedy, Letters(), StopRules(max_tokens=1)))  # type: ignore[arg-type]
    assert again[-1].stats.reused_tokens == 0
    assert model.chunks[-2:] == [3, 1]

    model, cache, asked = Border(), FakeCache(), iter([False] * 4 + [True] * 9)
    stopped = generate(model, cache, [1, 1, 1, 1, 1], greedy, Letters(), job=Job(lambda: next(asked)))  # type: ignore[arg-type]
    reasons = [event.finish_reason for event in stopped]
    assert reasons[-1] == "cancelled"
    assert reasons[:-1] == [None]  # the first token was there
    assert cache.tokens == []  # stopped before the first chunk of what is computed again


def test_stop_is_heard_between_the_layers_of_a_chunk() -> None:
    class Deep(FakeModel):
        def forward(self, ids: np.ndarray, cache: FakeCache, ahead: int = 0, look: Any = None) -> np.ndarray:
            if look is not None:
                look(0.5)
            return super().forward(ids, cache, ahead, look)

    seen: list[int] = []
    events = list(
        generate(
            Deep(), FakeCache(), [1] * 20, greedy, Letters(),
            job=Job(lambda: bool(seen), lambda done, total: seen.append(done)),
        )  # type: ignore[arg-type]
    )  # fmt: skip
    assert seen == [9, 19]
    assert [event.finish_reason for event in events] == ["cancelled"]
    asked = iter([False, True])
    cache = FakeCache()
    events = list(generate(Deep(), cache, [1] * 20, greedy, Letters(), job=Job(lambda: next(asked))))  # type: ignore[arg-type]
    assert [event.finish_reason for event in events] == ["cancelled"]
    assert cache.tokens == []


def test_a_stop_text_over_several_tokens_is_cut_off() -> None:
    events = run([1, 2], texts=("IN",))  # D F I N V
    assert "".join(event.text for event in events) == "DF"
    assert events[-1].finish_reason == "stop"


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_texts_cut_at_the_first_match_however_the_text_arrives(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    scanner, out, at = StopScanner(tuple(stops)), [], 0
    while at < len(text) and not scanner.hit:
        step = data.draw(st.integers(1, 5))
        out.append(scanner.push(text[at : at + step]))
        at += step
    if not scanner.hit:
        out.append(scanner.flush())
    first = min((text[:at].find(stop) for stop in stops if stop in text[:at]), default=None)
    assert "".join(out) == (text if first is None else text[:first])


class HalfLetters(Letters):
    """A text stream that still holds the last character when the answer ends."""

    def push(self, token: int) -> str:
        return "" if token == 13 else super().push(token)

    def flush(self) -> str:
        return "N"


@pytest.mark.parametrize(
    ("options", "text", "reason"),
    [
        ({"max_tokens": 4}, "DFIN", "length"),
        ({"token_ids": frozenset({21})}, "DFIN", "stop"),
        ({"max_tokens": 4, "texts": ("IX",)}, "DFIN", "length"),  # the I was held back for it
        ({"max_tokens": 4, "texts": ("IN",)}, "DF", "length"),
    ],
)
def test_what_the_stream_still_holds_comes_with_the_end(options: dict[str, Any], text: str, reason: str) -> None:
    model, cache = FakeModel(), FakeCache()
    events = list(generate(model, cache, [1, 2], greedy, HalfLetters(), StopRules(**options)))  # type: ignore[arg-type]
    assert "".join(event.text for event in events) == text
    assert events[-1].finish_reason == reason


def test_an_interrupted_answer_keeps_the_text_that_was_held_back() -> None:
    calls = itertools.count()
    events = run([1, 2], job=Job(lambda: next(calls) >= 5), texts=("IX",))
    assert "".join(event.text for event in events) == "DFI"


def test_the_figures_are_those_of_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ticking(FakeModel):
        def forward(self, ids: np.ndarray, cache: FakeCache, ahead: int = 0, look: Any = None) -> np.ndarray:
            clock[0] += len(ids)
            return super().forward(ids, cache, ahead, look)

    clock, resets = [100.0], []
    monkeypatch.setattr(main_path.time, "perf_counter", lambda: clock[0])
    model, cache = Ticking(), FakeCache()
    cache.tokens = [1]
    model.executor.counters.reset_sums = lambda: resets.append(len(cache.tokens))
    events = list(generate(model, cache, [1, 1, 1, 1, 1], greedy, Letters(), StopRules(max_tokens=4)))  # type: ignore[arg-type]
    stats = events[-1].stats
    assert (stats.prefill_s, stats.ttft_s, stats.decode_s, stats.total_s) == (4.0, 4.0, 3.0, 7.0)
    assert (stats.prefill_tok_s, stats.decode_tok_s) == (1.0, 1.0)
    assert resets == [1, 5]  # what was counted for the prompt is none of the answer's


def test_the_pace_of_chunks_and_what_is_cached_change_no_bit(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache, random = starter.transformer("exact"), starter.new_cache(), np.random.default_rng(1)
    prompt = random.integers(5, 1000, 230).tolist()
    wanted = prefill(model, prompt, cache).copy()
    for known in (229, 0, 0, 0):
        cache.truncate(known)
        now = itertools.accumulate(random.exponential(10.0 ** random.integers(-3, 2), 1000))
        monkeypatch.setattr(main_path.time, "perf_counter", lambda now=now: next(now))
        np.testing.assert_array_equal(prefill(model, prompt[known:], cache), wanted)
        monkeypatch.undo()


def test_chunks_grow_while_they_are_quick_and_not_when_they_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for pace_s, chunks in (
        (0.0, [32, 512, 512, 447, 1]), (1.0, [32] * 45 + [63, 1]), (0.05, [32, 128, 512, 512, 319, 1]),
    ):  # fmt: skip
        now = itertools.count(step=pace_s)
        monkeypatch.setattr(main_path.time, "perf_counter", lambda now=now: next(now))
        model = FakeModel()
        prefill(model, [1] * 1504, FakeCache(2000))  # type: ignore[arg-type]
        assert model.chunks == chunks
