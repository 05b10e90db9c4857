"""Guesses change how fast an answer is, and nothing else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.decode.decode_program import MOST_TOKENS
from engine.errors import Cancelled, HostMemoryError
from engine.job import Job
from engine.model.kv_cache import KVCache
from engine.session.chat_session import ChatSession
from engine.session.generate import (
    Savings,
    StopRules,
    TokenEvent,
    decode_one_token,
    decode_tokens,
    generate,
    most_at_once,
    prefill,
)
from engine.session.guesses import Guesser, Guesses, StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.lookup import Lookup
from engine.session.sampling import make_sampler

PROMPT = 20  # tokens


class FreeRuns(StepTimes):
    """Further tokens cost nothing: every guess is worth it."""

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Do not learn."""

    def of(self, n_tokens: int) -> float:
        return 1.0


def by_lookup(times: StepTimes) -> Guesses:
    return Guesses(times, [Lookup()])


class Letters:
    def push(self, token: int) -> str:
        return chr(97 + token % 26)

    def flush(self) -> str:
        return ""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_tiny_model(tmp_path_factory.mktemp("model") / "m", max_context=256, tied=False)
    return LoadedModel.load(folder, EngineConfig(context=128, device="cpu"))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_recurrent_model(tmp_path_factory.mktemp("model") / "m")
    return LoadedModel.load(folder, EngineConfig(context=128, device="cpu"))


def prompt_for(model: LoadedModel) -> list[int]:
    found: list[int] = np.random.default_rng(5).integers(0, model.opened.config.vocab_size, PROMPT).tolist()
    return found


def answer(
    model: LoadedModel,
    guesses: Guesses | None,
    sampling: SamplingConfig,
    cache: Any = None,
    rules: StopRules | None = None,
    job: Job = Job(),
) -> Generator[TokenEvent]:
    return generate(
        model.transformer(), cache or model.new_cache(), prompt_for(model), make_sampler(sampling), Letters(),
        rules or StopRules(max_tokens=sampling.max_tokens), job, savings=Savings(guesses=guesses),
    )  # type: ignore[arg-type]  # fmt: skip


def tokens_of(events: Iterable[TokenEvent]) -> list[int]:
    return [event.token_id for event in events if event.token_id is not None]


GREEDY = SamplingConfig(temperature=0, max_tokens=100)


@pytest.fixture(scope="module")
def said(model: LoadedModel) -> list[int]:
    """The greedy answer without guesses, which repeats itself in the end."""
    found = tokens_of(answer(model, None, GREEDY))
    assert len(set(found[-30:])) < 20
    return found


def test_a_greedy_answer_is_the_same_and_takes_fewer_runs(
    model: LoadedModel, said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, cache = runs_of(model, monkeypatch), model.new_cache()
    events = list(answer(model, by_lookup(FreeRuns()), GREEDY, cache))
    assert tokens_of(events) == said
    assert "".join(event.text for event in events) == "".join(map(Letters().push, said))
    stats = events[-1].stats
    assert 30 < stats.accepted_tokens <= stats.guessed_tokens
    assert (stats.tokens, stats.decode_steps) == (100, 99)
    assert len(runs) == 1 + 99 - stats.accepted_tokens  # the first is the prompt's last token
    assert sum(runs) == len(runs) + stats.guessed_tokens
    assert max(runs) == MOST_TOKENS
    assert list(answer(model, None, GREEDY))[-1].stats.guessed_tokens == 0


def test_runs_are_shorter_where_long_ones_take_longer_than_a_prompt(model: LoadedModel, tmp_path: Path) -> None:
    in_q8 = LoadedModel.load(make_tiny_gguf(tmp_path / "m.gguf", max_context=256), EngineConfig("cpu"))
    assert [most_at_once(one.transformer(), one.new_cache()) for one in (model, in_q8)] == [MOST_TOKENS, 8]


def runs_of(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of tokens of each run after the prompt."""
    runs: list[int] = []

    def counted(tokens_model: Any, tokens: list[int], *rest: Any) -> Any:
        runs.append(len(tokens))
        return decode_tokens(tokens_model, tokens, *rest)

    def counted_one(tokens_model: Any, token: int, *rest: Any) -> Any:
        runs.append(1)
        return decode_one_token(tokens_model, token, *rest)

    monkeypatch.setattr("engine.session.generate.decode_tokens", counted)
    monkeypatch.setattr("engine.session.generate.decode_one_token", counted_one)
    return runs


def test_sampled_answers_are_the_same_for_each_seed(model: LoadedModel) -> None:
    """That is more than the same distribution. At this temperature many guesses are right, and many wrong."""
    accepted = guessed = 0
    for seed in range(40):
        sampling = SamplingConfig(temperature=0.3, top_k=20, repeat_penalty=1.02, seed=seed, max_tokens=60)
        events = list(answer(model, by_lookup(FreeRuns()), sampling))
        assert tokens_of(events) == tokens_of(answer(model, None, sampling))
        accepted += events[-1].stats.accepted_tokens
        guessed += events[-1].stats.guessed_tokens
    assert 200 < accepted < guessed - 200


class Informed(Guesses):
    """Knows the answer, and is wrong about each seventh token of it."""

    def __init__(self, known: Sequence[int]) -> None:
        super().__init__(FreeRuns(), [])
        self._known = [(token + 1) % 100 if i % 7 == 3 else token for i, token in enumerate(known)]

    def next(self, text: Sequence[int], most: int) -> list[int]:
        return self._known[len(text) - PROMPT :][:most]


def test_a_recurrent_state_goes_back_to_the_last_right_guess(recurrent: LoadedModel) -> None:
    for seed in range(3):
        sampling = SamplingConfig(temperature=0.8, seed=seed, max_tokens=60)
        plain = tokens_of(answer(recurrent, None, sampling))
        events = list(answer(recurrent, Informed(plain), sampling))
        assert tokens_of(events) == plain
        stats = events[-1].stats
        assert 30 < stats.accepted_tokens < stats.guessed_tokens - 10


ENDS: dict[str, Callable[[list[int]], StopRules]] = {
    "a stop token": lambda said: StopRules(frozenset({said[90]})),
    "a stop text": lambda said: StopRules(texts=("".join(map(Letters().push, said[70:75])),)),
    "a limit": lambda said: StopRules(max_tokens=73),
    "a full context": lambda said: StopRules(),
}


@pytest.mark.parametrize("way", [*ENDS, "closed", "cancelled"])
def test_no_guess_stays_in_the_cache(model: LoadedModel, said: list[int], way: str) -> None:
    cache, asked = model.new_cache(), itertools.count()
    job = Job(lambda: way == "cancelled" and next(asked) > 50)
    rules = ENDS[way](said) if way in ENDS else StopRules()
    events = answer(model, by_lookup(FreeRuns()), GREEDY, cache, rules, job)
    found = tokens_of(itertools.islice(events, 70) if way == "closed" else events)
    events.close()
    assert found[:100] == said[: len(found)]
    assert cache.length in (PROMPT + len(found), PROMPT + len(found) - 1)
    assert cache.tokens[: cache.length].tolist() == [*prompt_for(model), *found][: cache.length]


@pytest.mark.parametrize("way", ["closed", "a stop token", "a stop text"])
def test_a_wrong_guess_does_not_stay_wherever_the_answer_ends(model: LoadedModel, said: list[int], way: str) -> None:
    for n in range(1, 25):
        cache, rules = model.new_cache(), StopRules()
        if way == "a stop token":
            rules = StopRules(frozenset({said[n]}))
        if way == "a stop text":
            rules = StopRules(texts=("".join(map(Letters().push, said[max(0, n - 4) : n])),))
        events = answer(model, Informed(said), GREEDY, cache, rules)
        found = tokens_of(itertools.islice(events, n) if way == "closed" else events)
        events.close()
        assert found == said[: len(found)]
        assert cache.tokens[: cache.length].tolist() == [*prompt_for(model), *found][: cache.length]
        assert cache.length >= PROMPT + len(found) - 1


def test_a_stop_within_a_run_leaves_the_cache_as_it_was(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, cache = model.transformer().decoder, model.new_cache()
    assert decoder is not None
    decoder.step(5, cache, lambda: False)
    wanted = decoder.steps([6, 7, 8], cache, lambda: False)
    cache.truncate(1)
    monkeypatch.setattr("native_kernels.cpu.runtime.pool.SLICE_S", 0.0)  # asked after every call
    model.backend.kernels.pool.close()  # new threads read it
    with pytest.raises(Cancelled):
        decoder.steps([6, 7, 8], cache, lambda: True)
    assert cache.length == 1
    np.testing.assert_array_equal(decoder.steps([6, 7, 8], cache, lambda: False), wanted)
    model.backend.kernels.pool.close()


def test_short_memory_costs_speed_alone(recurrent: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """States of a run that find no RAM are done without, in the answer and in a short prompt."""
    plain = tokens_of(answer(recurrent, None, GREEDY))
    states_of_run = KVCache.states_of_run

    def short(cache: KVCache, n_tokens: int) -> Any:
        if n_tokens > 1:
            raise HostMemoryError("There is no free RAM.")
        return states_of_run(cache, n_tokens)

    monkeypatch.setattr(KVCache, "states_of_run", short)
    events = list(answer(recurrent, Informed(plain), GREEDY))
    assert tokens_of(events) == plain
    assert events[-1].stats.guessed_tokens == 0
    prefill(recurrent.transformer(), [5, 6, 7], cache := recurrent.new_cache())
    assert cache.length == 3


def test_a_session_guesses_and_goes_on_with_its_cache(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.session.chat_session.StepTimes", FreeRuns)
    prompt, session = prompt_for(model), ChatSession(model)
    events = list(session.generate(prompt, replace(GREEDY, max_tokens=80)))
    assert events[-1].stats.accepted_tokens > 10
    further, short = [*prompt, *tokens_of(events), 3], replace(GREEDY, max_tokens=5)
    again = list(session.generate(further, short))
    assert again[-1].stats.reused_tokens >= len(further) - 2
    assert tokens_of(again) == tokens_of(ChatSession(model).generate(further, short))


def test_idle_work_builds_the_program_of_several_tokens(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ChatSession(model)
    session.adapt()
    monkeypatch.setattr("engine.decode.decode_program.side_by_side", None)  # from here on none can be built
    decoder = session.transformer.decoder
    assert decoder is not None
    assert decoder.steps([5, 6], model.new_cache(), lambda: False).shape[0] == 2


# --- what is worth computing


def play(
    text: Sequence[int],
    start: int,
    further: float,
    one_s: float = 1.0,
    sources: Sequence[Guesser] | None = None,
    times: StepTimes | None = None,
) -> tuple[float, float, int]:
    """Answer with text[start:], in runs whose further tokens take a share of the first. sources: None: by lookup.

    Returns the seconds, with those that a Knowing source takes, the seconds without guesses, and the number of runs.
    """
    sources = [Lookup()] if sources is None else sources
    guesses, at, seconds, runs = Guesses(times or StepTimes(), sources), start, 0.0, 0
    while at < len(text):
        guess = guesses.next(text[:at], min(MOST_TOKENS - 1, len(text) - at))
        took = one_s * (1 + further * len(guess))
        follows = text[at : at + len(guess)]
        accepted = next((i for i, token in enumerate(guess) if follows[i : i + 1] != [token]), len(guess))
        guesses.computed(1 + len(guess), took, accepted)
        seconds, runs, at = seconds + took, runs + 1, at + 1 + accepted
    seconds += sum(source.spent_s for source in sources if isinstance(source, Knowing))
    return seconds, one_s * (len(text) - start), runs


def random_text(n: int, seed: int, words: int = 50_000) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(0, words, n).tolist()
    return found


def edits(seed: int, n_removed: int = 1, n_added: int = 1) -> list[int]:
    """A text, and the text again with each twentieth token replaced, or so many removed and added there."""
    text, changes = random_text(800, seed), random_text(800, seed + 1)
    parts = [text[at + n_removed if at else 0 : at + 20] + changes[at : at + n_added] for at in range(0, 800, 20)]
    return text + list(itertools.chain(*parts))


@pytest.mark.parametrize(
    ("text", "further", "least"),
    [
        (lambda: random_text(400, 1) * 2, 0.1, 3.5),
        (lambda: random_text(400, 1) * 2, 0.5, 1.5),
        (lambda: edits(3), 0.1, 2.8),
        (lambda: edits(3), 0.3, 1.9),
        (lambda: edits(3), 0.45, 1.63),
        (lambda: edits(3, 0, 1), 0.3, 2.0),
        (lambda: edits(3, 2, 0), 0.3, 1.95),
        (lambda: random_text(1500, 5), 0.5, 1.0),  # nothing to guess
    ],
)
def test_quotes_and_edits_gain(text: Callable[[], list[int]], further: float, least: float) -> None:
    tokens = text()
    seconds, plain, _ = play(tokens, len(tokens) // 2, further)
    assert plain / seconds >= least


@pytest.mark.parametrize("further", [0.05, 0.3, 0.6, 0.95, 1.0, 1.5])
@pytest.mark.parametrize("words", [2, 4, 8, 30])
def test_hardly_anything_is_lost_where_guesses_are_mostly_wrong(further: float, words: int) -> None:
    """Texts of a few words at random: keys repeat all the time, and tell nothing."""
    tokens = random_text(2000, words, words)
    seconds, plain, _ = play(tokens, 200, further)
    assert plain / seconds >= 0.98


def test_right_guesses_are_computed_again_after_wrong_ones_lost_too_much() -> None:
    times = StepTimes()
    times.lost_s = 15.0
    tokens = random_text(400, 1) * 2
    seconds, plain, _ = play(tokens, 400, 0.5, times=times)
    assert plain / seconds >= 1.5


def test_an_interrupted_run_of_right_guesses_is_no_reason_against_them() -> None:
    times, text = StepTimes(), random_text(60, 1) * 2
    for _ in range(3):
        times.add(1, 1.0)
    guesses = by_lookup(times)
    guess = guesses.next(text[:65], 7)
    guesses.computed(1 + len(guess), 50.0, len(guess))
    assert guesses.next(text[: 66 + len(guess)], 1) == text[66 + len(guess) :][:1]


def test_where_a_run_of_several_costs_as_much_as_its_tokens_nothing_is_guessed() -> None:
    tokens = random_text(300, 9) * 3
    _, plain, runs = play(tokens, 300, 1.0)
    assert plain - runs <= 4 * MOST_TOKENS, "a few runs, until that is known"


def test_the_longest_place_in_common_is_chosen_and_the_latest_of_equals() -> None:
    times = FreeRuns()
    text = [1, 2, 3, 4, 10, 9, 2, 3, 4, 11, 1, 2, 3, 4]
    assert by_lookup(times).next(text, 1) == [10]
    text = [1, 2, 3, 10, 9, 1, 2, 3, 11, 8, 1, 2, 3]
    assert by_lookup(times).next(text, 3) == [11, 8, 1]
    assert by_lookup(times).next([7, 1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1], "a repetition goes on"
    assert by_lookup(times).next([1, 2, 3, 4], 3) == []
    assert by_lookup(times).next([1, 2], 3) == []
    assert by_lookup(times).next(text, 0) == []


class Knowing:
    """A source that knows the text, is right with some chance, and takes so many seconds for each guess."""

    _read_s = _prepare_s = 0.0

    def __init__(self, text: Sequence[int], chance: float, each_s: float, supposed: float | None = None) -> None:
        self.name = f"{chance:g} in {each_s:g} s"
        self._text, self._each_s, self._at, self.spent_s = text, each_s, 0, 0.0
        self._supposed = chance if supposed is None else supposed
        self._is_right = np.random.default_rng(1).random(len(text)) < chance

    def read(self, text: Sequence[int]) -> None:
        self._at = len(text)
        self.spent_s += self._read_s

    def prepare(self) -> None:
        self.spent_s += self._prepare_s

    def chances(self, most: int) -> list[float]:
        return [self._supposed] * most

    def seconds(self, n_guesses: int) -> float:
        return n_guesses * self._each_s

    def guess(self) -> Iterator[tuple[int, float]]:
        for at in range(self._at, len(self._text)):
            self.spent_s += self._each_s
            yield self._text[at] if self._is_right[at] else -1, self._supposed

    def computed(self, n_tokens: int, accepted: int) -> None:
        assert accepted < n_tokens


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Knowing]:
    """The sources whose time counts as passed while guesses are made."""
    timed: list[Knowing] = []
    monkeypatch.setattr(time, "perf_counter", lambda: sum(source.spent_s for source in timed))
    return timed


def test_the_source_with_the_most_expected_tokens_a_second_is_taken(clock: list[Knowing]) -> None:
    """A slow source that is always right loses to a fast one that is mostly right, and wins once it is fast."""
    text = random_text(300, 4)
    for each_s, better in [(0.5, "fast"), (0.01, "slow")]:
        slow, fast = Knowing(text, 1.0, each_s), Knowing(text, 0.8, 0.02)
        clock[:] = [slow, fast]
        seconds, plain, _ = play(text, 20, 0.1, sources=[slow, fast])
        assert plain / seconds > 2
        assert (fast.spent_s > slow.spent_s) == (better == "fast")


def test_a_source_that_takes_too_long_is_not_asked(clock: list[Knowing]) -> None:
    text = random_text(300, 4)
    clock[:] = [Knowing(text, 1.0, 1.0)]
    assert play(text, 20, 0.1, sources=clock)[2] == 280
    assert clock[0].spent_s == 0


@pytest.mark.parametrize("each_s", [0.01, 0.1, 0.3])
def test_hardly_anything_is_lost_with_a_source_that_is_wrong_about_itself(clock: list[Knowing], each_s: float) -> None:
    text = random_text(2000, 4)
    clock[:] = [Knowing(text, 0.0, each_s, supposed=0.9)]
    seconds, plain, _ = play(text, 20, 0.1, sources=clock)
    assert clock[0].spent_s > 0
    assert plain / seconds >= 0.98


@pytest.mark.parametrize("read_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_hardly_anything_is_lost_where_following_the_text_takes_long(
    clock: list[Knowing], read_s: float, chance: float
) -> None:
    text = random_text(2000, 4)
    source = Knowing(text, chance, 0.6)
    source._read_s = read_s
    clock[:] = [source]
    seconds, plain, _ = play(text, 20, 0.1, sources=clock)
    assert source.spent_s > 0
    assert plain / seconds >= 0.98


def test_what_a_source_prepares_is_its_own_to_limit(clock: list[Knowing]) -> None:
    text = random_text(500, 4)
    source = Knowing(text, 1.0, 0.1)
    source._prepare_s = 0.5
    clock[:] = [source]
    assert play(text, 20, 0.1, sources=clock)[2] < 200


def test_a_slow_first_run_and_a_slower_text_are_no_reason_to_guess() -> None:
    times = StepTimes()
    for seconds in (9.0, 1.1, 1.0):
        times.add(1, seconds)
    assert times.one_s == 1.0
    times.add(1, 100.0)
    assert times.one_s < 1.2, "one interruption"


def test_slow_first_runs_are_soon_corrected(clock: list[Knowing]) -> None:
    text, runs = random_text(400, 4), list[int]()
    clock[:] = [Knowing(text, 0.0, 0.0, supposed=0.8)]
    times, at = StepTimes(), 20
    guesses = Guesses(times, clock)
    while at < 300:
        runs.append(n := len(guesses.next(text[:at], 1)))
        guesses.computed(1 + n, 1.0 + 0.9 * n if len(runs) > 3 else 3.0, 0)
        at += 1
    assert times.one_s < 1.1
    assert sum(runs) < 15


def test_a_slow_first_run_of_several_tokens_does_not_end_the_guesses(clock: list[Knowing]) -> None:
    text, runs, at = random_text(400, 4), list[int](), 20
    clock[:] = [Knowing(text, 1.0, 0.05)]
    guesses = Guesses(StepTimes(), clock)
    while at < 380:
        runs.append(n := len(guesses.next(text[:at], 4)))
        guesses.computed(1 + n, 1.0 + 0.1 * n if any(runs[:-1]) or not n else 30.0, n)
        at += 1 + n
    assert len(runs) < 90


def test_the_time_of_a_token_is_measured_again_while_all_guesses_are_right(clock: list[Knowing]) -> None:
    """Else guesses would be compared with what a token took long ago."""
    text, runs = random_text(2000, 4), list[int]()
    clock[:] = [Knowing(text, 1.0, 0.0)]
    guesses, at = Guesses(StepTimes(), clock), 20
    while at < 1900:
        runs.append(n := len(guesses.next(text[:at], 7)))
        guesses.computed(1 + n, 1.0, n)
        at += 1 + n
    alone = [i for i, n in enumerate(runs) if n == 0]
    assert alone[:3] == [0, 1, 2]
    assert len(alone) > 5
    assert max(np.diff(alone)) <= 65


@pytest.mark.parametrize("seed", range(8))
def test_a_source_that_is_mostly_right_gains_although_it_begins_wrong(clock: list[Knowing], seed: int) -> None:
    text = random_text(220, seed)
    source = Knowing(text, 0.7, 0.1, supposed=0.7)
    source._is_right = np.random.default_rng(seed).random(len(text)) < 0.7
    source._is_right[:23] = False
    clock[:] = [source]
    seconds, plain, _ = play(text, 20, 0.1, sources=clock)
    assert plain / seconds >= 1.1


def test_a_guess_that_turns_out_unlikely_ends_the_guesses(clock: list[Knowing]) -> None:
    class Doubting(Knowing):
        def guess(self) -> Iterator[tuple[int, float]]:
            for n, (token, _) in enumerate(super().guess()):
                yield token, 0.9 if n < 2 else 0.05

    text = random_text(100, 4)
    source = Doubting(text, 1.0, 0.05, supposed=0.9)
    clock[:] = [source]
    guesses = Guesses(FreeRuns(), [source])
    assert guesses.next(text[:20], 7) == text[20:23], "a row that costs nothing is worth a chance of 5 %"
    assert source.spent_s == pytest.approx(3 * 0.05), "but further guesses are not"
