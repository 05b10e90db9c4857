"""Many texts written at once are those that would be written one after another."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.errors import Cancelled, ContextOverflowError, TokenizerMismatchError
from engine.job import Job
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.training import writing
from engine.training.layer_walk import ModelParts
from engine.training.writing import Task, write_texts

GREEDY = SamplingConfig(temperature=0)
RANDOM = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0)
PROMPTS = ([0], [0, 70, 80], [0, 9, 9, 9, 9, 30], [17])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return LoadedModel.load(make_tiny_model(tmp_path_factory.mktemp("m")), EngineConfig(backend="reference"))


@pytest.fixture(scope="module")
def parts(model: LoadedModel) -> ModelParts:
    return ModelParts.of(model)


def test_greedy_texts_are_those_of_the_main_path(model: LoadedModel, parts: ModelParts) -> None:
    session = ChatSession(model)
    tasks = [Task(prompt, 12, GREEDY, model.stop_token_ids) for prompt in PROMPTS]
    for prompt, text in zip(PROMPTS, write_texts(parts, tasks, 0), strict=True):
        events = session.generate(prompt, GREEDY.changed({"max_tokens": 12}))
        wanted = [event.token_id for event in events if event.token_id is not None]
        assert text[: len(prompt)] == prompt
        assert text[len(prompt) :][: len(wanted)] == wanted
        ended = len(text) < len(prompt) + 12
        assert ended == (text[-1] in model.stop_token_ids)


def test_how_many_at_once_changes_nothing(parts: ModelParts, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(PROMPTS[i % 4], 5 + i, RANDOM) for i in range(11)]
    together = write_texts(parts, tasks, 3)
    assert [len(text) for text in together] == [len(task.prompt) + task.most_tokens for task in tasks]
    assert len({tuple(text) for text in together}) == 11
    monkeypatch.setattr(writing, "MOST_AT_ONCE", 3)
    assert write_texts(parts, tasks, 3) == together
    assert write_texts(parts, tasks, 4) != together
    assert write_texts(parts, [], 0) == []


def test_the_cache_is_bounded(parts: ModelParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_CACHE_BYTES", 1)
    tasks = [Task([0], 4, RANDOM) for _ in range(5)]
    writer = writing._Writer(parts, tasks, 0)
    assert len(writer._free) == 2
    assert [len(text) for text in writer.run(Job())] == [5] * 5


def test_progress_is_whole_also_where_texts_end_early(parts: ModelParts) -> None:
    steps: list[tuple[int, int]] = []
    stops = frozenset(write_texts(parts, [Task([0], 4, RANDOM)], 0)[0][3:])
    tasks = [Task([0], 30, RANDOM, stops) for _ in range(6)]
    texts = write_texts(parts, tasks, 0, Job(progress=lambda *step: steps.append(step)))
    assert len(texts[0]) < 6
    assert texts[0][-1] in stops
    assert steps[-1] == (6 * 31, 6 * 31)
    assert steps == sorted(steps)


def test_it_stops_and_refuses(parts: ModelParts) -> None:
    with pytest.raises(Cancelled):
        write_texts(parts, [Task([0], 5, RANDOM)], 0, job=Job(lambda: True))
    with pytest.raises(TokenizerMismatchError):
        write_texts(parts, [Task([parts.config.vocab_size], 5, RANDOM)], 0)


def test_positions_that_a_model_has_learned_are_not_left(tmp_path: Path) -> None:
    from dataclasses import replace

    model = LoadedModel.load(make_tiny_model(tmp_path / "m"), EngineConfig(backend="reference"))
    learned = replace(ModelParts.of(model), config=replace(model.opened.config, positions="learned", max_context=16))
    with pytest.raises(ContextOverflowError, match="16 positions"):
        write_texts(learned, [Task([0, 1], 15, RANDOM)], 0)
