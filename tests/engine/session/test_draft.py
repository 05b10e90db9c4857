"""A smaller model that guesses changes how fast an answer is, and nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.errors import Cancelled, HostMemoryError, InvalidRequestError
from engine.job import Job, never
from engine.loading.opening import vocabulary_fingerprint
from engine.machine.hardware import probe
from engine.model.model_files import open_model
from engine.session import drafting
from engine.session.chat_session import ChatSession
from engine.session.draft import Draft
from engine.session.drafting import Drafting
from engine.session.generate import TokenEvent, prefill
from engine.session.guesses import Guesses, StepTimes
from engine.session.loaded_model import LoadedModel

GREEDY = SamplingConfig(temperature=0, max_tokens=60)


class FreeRuns(StepTimes):
    """Further tokens of the model cost next to nothing, and a token a second: every draft is worth it."""

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Do not learn."""

    def of(self, n_tokens: int) -> float:
        return 1.0 + 0.01 * n_tokens


@pytest.fixture(autouse=True)
def no_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong guesses never end the guessing."""
    monkeypatch.setattr("engine.session.guesses._MOST_LOSS", 1e9)
    monkeypatch.setattr("engine.session.chat_session.StepTimes", FreeRuns)


MODELS = {
    "plain": lambda folder: make_tiny_model(folder, max_context=256, tied=False),
    "another": lambda folder: make_tiny_model(folder, max_context=256, tied=False, seed=7, n_layers=1),
    "short": lambda folder: make_tiny_model(folder, max_context=48, tied=False, seed=7, n_layers=1),
    "recurrent": lambda folder: make_recurrent_model(folder),
    "recurrent another": lambda folder: make_recurrent_model(folder, seed=3),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make(folder / name.replace(" ", "-")) for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def models(paths: dict[str, Path]) -> dict[str, LoadedModel]:
    return {
        name: LoadedModel.load(paths[name], EngineConfig(context=128, device="cpu")) for name in ("plain", "recurrent")
    }


def drafting_of(model: LoadedModel, path: Path | str) -> Drafting:
    found = Drafting(dataclasses.replace(model, engine=dataclasses.replace(model.engine, draft=str(path))))
    found.load(Job())
    return found


def session_with(model: LoadedModel, path: Path) -> ChatSession:
    session = ChatSession(model)
    session.drafting = drafting_of(model, path)
    return session


def draft_of(session: ChatSession) -> Draft:
    assert session.drafting is not None
    assert session.drafting.draft is not None
    return session.drafting.draft


def prompt_for(model: LoadedModel, n: int = 6) -> list[int]:
    found: list[int] = np.random.default_rng(5).integers(0, model.opened.config.vocab_size, n).tolist()
    return found


def tokens_of(events: Generator[TokenEvent] | Iterator[TokenEvent]) -> list[int]:
    return [event.token_id for event in events if event.token_id is not None]


def without(model: LoadedModel, prompt: Sequence[int], sampling: SamplingConfig) -> list[int]:
    session = ChatSession(model)
    session._guesses = lambda: Guesses(StepTimes(), [])  # type: ignore[method-assign]
    return tokens_of(session.generate(prompt, sampling))


@pytest.mark.parametrize("name", ["plain", "recurrent"])
def test_a_draft_that_is_the_model_itself_is_always_right(
    models: dict[str, LoadedModel], paths: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.lookup.Lookup.chances", lambda self, most: [])
    model = models[name]
    session = session_with(model, paths[name])
    events = list(session.generate(prompt_for(model), GREEDY))
    assert tokens_of(iter(events)) == without(model, prompt_for(model), GREEDY)
    stats = events[-1].stats
    guessed, accepted = stats.guesses["draft"]
    assert guessed > 40
    assert accepted in (guessed, guessed - 1), "the answer may end before the last guess"
    assert (stats.guessed_tokens, stats.accepted_tokens) == (guessed, accepted)
    assert draft_of(session).chance > 0.8
    session.close()


@pytest.mark.parametrize("name", ["plain", "recurrent"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_that_is_mostly_wrong_changes_nothing(
    models: dict[str, LoadedModel], paths: dict[str, Path], name: str, temperature: float
) -> None:
    """Of each seed: more than the same distribution. The caches of both models go back to the last right guess."""
    model = models[name]
    session = session_with(model, paths["another" if name == "plain" else "recurrent another"])
    wrong = 0
    for seed in range(4 if temperature else 1):
        sampling = SamplingConfig(temperature=temperature, seed=seed, max_tokens=60)
        prompt = prompt_for(model, 5 + seed)
        events = list(session.generate(prompt, sampling))
        assert tokens_of(iter(events)) == without(model, prompt, sampling)
        guessed, accepted = events[-1].stats.guesses.get("draft", (0, 0))
        wrong += guessed - accepted
    assert wrong > 4
    assert draft_of(session).chance < 0.5
    session.close()


def test_the_draft_follows_the_chat(models: dict[str, LoadedModel], paths: dict[str, Path]) -> None:
    """A longer prompt is computed while the engine is idle, and an earlier turn that changes is computed again."""
    model = models["plain"]
    session = session_with(model, paths["plain"])
    prompt = prompt_for(model, 50)
    said = tokens_of(session.generate(prompt, dataclasses.replace(GREEDY, max_tokens=4)))
    assert session.draft_step(never) is None
    assert draft_of(session)._cache.tokens[:52].tolist() == [*prompt, *said][:52]
    changed = [*prompt[:30], 1, 2, *said, 3]
    events = list(session.generate(changed, dataclasses.replace(GREEDY, max_tokens=20)))
    assert tokens_of(iter(events)) == without(model, changed, dataclasses.replace(GREEDY, max_tokens=20))
    assert draft_of(session)._cache.tokens[:30].tolist() == changed[:30]
    session.close()


def test_a_long_prompt_is_read_within_a_share_of_the_answer(
    models: dict[str, LoadedModel], paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No guess comes of the draft before it has the text; reading that takes no more than its share of the time."""
    model = models["plain"]
    session = session_with(model, paths["plain"])
    draft = draft_of(session)
    draft.begin(FreeRuns())
    text = prompt_for(model, 90)
    now = [draft._began_at]
    monkeypatch.setattr("engine.session.draft.time.perf_counter", lambda: now[0])
    draft._prompt_token_s = 0.01
    draft.read(text)
    draft.prepare()
    assert draft._cache.length == 0
    assert draft.chances(3) == []
    now[0] += 100.0
    draft.read(text)
    draft.prepare()
    assert draft._cache.length == 89
    assert len(draft.chances(3)) == 3
    session.close()


def test_guesses_end_with_the_context_of_the_draft(models: dict[str, LoadedModel], paths: dict[str, Path]) -> None:
    model = models["plain"]
    session = session_with(model, paths["short"])
    events = list(session.generate(prompt_for(model), dataclasses.replace(GREEDY, max_tokens=90)))
    assert tokens_of(iter(events)) == without(model, prompt_for(model), dataclasses.replace(GREEDY, max_tokens=90))
    draft = draft_of(session)
    assert not draft.has_failed
    assert draft._cache.length <= 48
    session.close()


@pytest.mark.expects_log("guesses no more")
def test_an_answer_goes_on_without_a_draft_that_fails(
    models: dict[str, LoadedModel], paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    model = models["plain"]
    session = session_with(model, paths["plain"])
    plain = without(model, prompt_for(model), GREEDY)
    calls = 0

    def failing(*arguments: Any, **others: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise HostMemoryError("There is no free RAM.")
        return prefill(*arguments, **others)

    monkeypatch.setattr("engine.session.draft.prefill", failing)
    assert tokens_of(session.generate(prompt_for(model), GREEDY)) == plain
    assert len([one for one in caplog.records if "guesses no more" in one.message]) == 1
    assert session.drafting is not None
    on_cpu = draft_of(session)
    session.drafting.draft = Mock(has_failed=True, gain=None, **{"model.device": "cuda:0"})
    assert session.draft_step(never) == 0.0, "it is loaded on the CPU then"
    assert (session.drafting.draft, session.drafting.reason) == (None, "")
    session.drafting.draft = on_cpu
    session.draft_step(never)
    assert session.drafting.draft is None
    assert "failed" in session.drafting.reason
    assert tokens_of(session.generate(prompt_for(model), GREEDY)) == plain


# --- which model, and when


def test_only_the_same_tokens_make_the_same_fingerprint(paths: dict[str, Path], tmp_path: Path) -> None:
    of = {name: vocabulary_fingerprint(open_model(path)) for name, path in paths.items()}
    assert of["plain"] == of["another"] == of["recurrent"]
    folder = make_tiny_model(tmp_path / "changed")
    file = folder / "tokenizer.json"
    text = file.read_text("utf-8")
    values = json.loads(text)
    entries = values["model"]["vocab"]
    first, second, *_ = [token for token, i in entries.items() if i >= 10]
    entries[first], entries[second] = entries[second], entries[first]
    file.write_text(json.dumps(values), "utf-8")
    assert vocabulary_fingerprint(open_model(folder)) != of["plain"]
    values = json.loads(text)
    token = {**values["added_tokens"][0], "id": values["model"]["vocab"][first], "content": first, "special": True}
    values["added_tokens"].append(token)
    file.write_text(json.dumps(values), "utf-8")
    assert vocabulary_fingerprint(open_model(folder)) != of["plain"]


def test_a_model_of_another_vocabulary_is_refused(models: dict[str, LoadedModel]) -> None:
    with pytest.raises(InvalidRequestError, match="vocabulary"):
        drafting_of(models["plain"], "starter-chat")


@pytest.fixture
def listed(paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models of the library."""
    from engine.library.owned.heads import read_head
    from engine.library.records import InstalledModel

    found: list[Any] = []
    for name, n_bytes in [("plain", 80), ("another", 9), ("short", 8), ("recurrent", 11)]:
        vocabulary = read_head(paths[name], "").vocabulary
        model = InstalledModel(
            name, name, "", str(paths[name]), (), n_bytes, False, "added", "ready", vocabulary=vocabulary
        )  # type: ignore[arg-type]  # fmt: skip
        found.append(model)
    monkeypatch.setattr("engine.library.owned.installed.Library.models", lambda self: found)
    monkeypatch.setattr(
        "engine.session.drafting.open_named",
        lambda name: open_model(paths[name]),
    )
    real = LoadedModel.load
    monkeypatch.setattr(
        LoadedModel, "load", lambda name, *rest, **others: real(paths.get(str(name), name), *rest, **others)
    )
    monkeypatch.setattr(drafting, "_bytes_of_token", lambda model: 80.0)
    return found


def test_the_largest_small_enough_model_is_loaded_while_the_engine_is_idle(
    models: dict[str, LoadedModel], listed: list[Any]
) -> None:
    model = models["plain"]
    session = ChatSession(model)
    session.drafting = Drafting(model)
    session._times.one_s = 0.0
    assert session.draft_step(never) is None
    assert session.drafting.draft is None, "nothing was answered yet"
    session._times.one_s = 1.0
    assert session.draft_step(lambda: True) is None
    assert session.drafting.draft is None, "a request waits"
    assert session.draft_step(never) == 0.0
    assert draft_of(session).model.opened.files.path.name == "another"
    assert draft_of(session).model.backend is model.backend, "they share the threads"
    closed: list[bool] = []
    draft_of(session).model.__dict__["close"] = lambda: closed.append(True)
    session.close()
    assert session.drafting.draft is None
    assert closed


def test_models_made_for_vectors_do_not_guess(
    models: dict[str, LoadedModel], listed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "pooling_of", lambda opened: {"another": "mean"}.get(opened.files.path.name))
    found = Drafting(models["plain"])
    found.load(Job())
    assert found.draft is not None
    assert found.draft.model.opened.files.path.name == "short"
    found.close()


def test_a_draft_that_does_not_pay_is_unloaded(models: dict[str, LoadedModel], paths: dict[str, Path]) -> None:
    model = models["plain"]
    session = session_with(model, paths["another"])
    assert session.drafting is not None
    draft_of(session)._seen[:] = 100
    session._guesses()
    session.draft_step(never)
    assert session.drafting.draft is not None, "a chosen one stays"
    session.drafting._wanted = "auto"
    session.draft_step(never)
    assert session.drafting.draft is None
    assert "no faster" in session.drafting.reason


def test_a_draft_that_was_not_tried_yet_stays_only_if_it_can_gain(
    models: dict[str, LoadedModel], paths: dict[str, Path]
) -> None:
    session = session_with(models["plain"], paths["another"])
    draft = draft_of(session)
    assert draft.gain is None, "nothing was answered"
    draft.begin(FreeRuns())
    assert draft.gain is None
    slow = StepTimes()
    slow.one_s, slow._further = 1.0, 0.95
    draft.begin(slow)
    assert draft.gain is not None
    assert draft.gain < 1.03
    session.close()


def test_nothing_is_looked_for_if_it_is_off(models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drafting, "_find", None)
    model = models["plain"]
    off = Drafting(dataclasses.replace(model, engine=dataclasses.replace(model.engine, draft="off")))
    assert off.step([1], True, never) is None
    off.load(Job())
    assert off.draft is None


@pytest.mark.expects_log("No smaller model guesses")
def test_short_memory_keeps_the_draft_out(
    models: dict[str, LoadedModel], listed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "_FREE_SHARE", 1e12)
    found = Drafting(models["plain"])
    assert found.step([1], True, never) is None
    assert found.draft is None
    assert "RAM" in found.reason
    found._is_over = False
    with pytest.raises(HostMemoryError):
        found.load(Job())
    with pytest.raises(Cancelled):
        found.load(Job(lambda: True))


def test_a_request_interrupts_a_draft_that_reads_the_chat(
    models: dict[str, LoadedModel], paths: dict[str, Path]
) -> None:
    model = models["plain"]
    session = session_with(model, paths["plain"])
    draft, text, asked = draft_of(session), prompt_for(model, 90), itertools.count()
    assert draft.follow(text, lambda: next(asked) > 0)
    assert draft._cache.length < 89
    assert not draft.has_failed
    assert not draft.follow(text)
    assert draft._cache.tokens[: draft._cache.length].tolist() == text[:89]
    session.close()


@pytest.mark.expects_log("No smaller model guesses")
def test_a_draft_does_not_displace_the_models_mapped_weights(
    models: dict[str, LoadedModel], listed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system counts their pages in RAM as free."""
    model = models["plain"]
    monkeypatch.setattr(drafting, "lies_in_ram", lambda path: False)
    mapped = model.weights.n_bytes - model.weights.ram_bytes
    assert model.weights.hold == "mapped"
    assert mapped > 0
    for beside, fits in ((1 << 30, True), (1 << 10, False)):
        free = dataclasses.replace(probe().ram, free_bytes=mapped + beside)
        monkeypatch.setattr(drafting, "probe", lambda free=free: dataclasses.replace(probe(), ram=free))
        found = Drafting(model)
        found.step([1], True, never)
        assert (found.draft is not None) == fits
        found.close()
    assert "RAM" in found.reason


def test_the_reason_is_that_the_model_computes_one_token_at_a_time(
    models: dict[str, LoadedModel], listed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ChatSession(models["plain"])
    session.drafting = Drafting(models["plain"])
    session._times.one_s = 1.0
    monkeypatch.setattr("engine.session.chat_session.most_at_once", lambda transformer, cache: 1)
    assert session.draft_step(never) is None
    assert "one token at a time" in session.drafting.reason


def test_a_draft_without_memory_for_its_cache_is_closed(
    models: dict[str, LoadedModel], paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: LoadedModel, context: int | None = None) -> None:
        raise HostMemoryError("The memory ran out.")

    closed: list[LoadedModel] = []
    monkeypatch.setattr(LoadedModel, "new_cache", full)
    monkeypatch.setattr(LoadedModel, "close", lambda model: closed.append(model))
    with pytest.raises(HostMemoryError):
        drafting_of(models["plain"], paths["plain"])
    assert len(closed) == 1
