"""Chats of a model whose layers forget what is before their window: answers are those of a model that keeps all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.errors import Cancelled
from engine.job import Job
from engine.model import window_memory
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.window_memory import STORED_TOKENS
from engine.prompt_cache.store import PromptStore
from engine.prompt_cache.stored_prompts import StoredPrompts
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaError

WINDOW, CONTEXT = 70, 1024
Load = Callable[..., LoadedModel]


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_memory, "SLACK", 64)
    monkeypatch.setattr(window_memory, "REWIND", 32)


@pytest.fixture(scope="module", params=[WINDOW])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    config = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": request.param,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
    made = tmp_path_factory.mktemp("windowed")
    return make_tiny_model(made / "m", activation="silu", n_layers=3, max_context=CONTEXT, config=config)


@pytest.fixture(params=["cpu", "gpu"])
def load(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    made: list[LoadedModel] = []

    def one(device: str = request.param) -> LoadedModel:
        if device == "cpu":
            made.append(LoadedModel.load(folder, EngineConfig(device="cpu", threads=2)))
        else:
            made.append(FakeGpuMachine(tmp_path, monkeypatch).load(folder))
        return made[-1]

    yield one
    for model in made:
        model.close()


def tokens(n: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(6, 90, n)]


def ask(session: ChatSession, prompt: list[int], n: int = 8, **more: Any) -> tuple[list[int | None], int]:
    """Return the answer's tokens, and how many of the prompt were not computed."""
    events = list(session.generate(prompt, SamplingConfig(temperature=0, max_tokens=n), **more))
    assert events[-1].stats is not None
    return [event.token_id for event in events], events[-1].stats.reused_tokens


def answers(load: Load, asked: list[tuple[list[int], int]]) -> list[list[int | None]]:
    """What a model says that keeps all, each time from the beginning: on the CPU, which reads prompts at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_memory, "SLACK", CONTEXT)
        model = load("cpu")
        return [ask(ChatSession(model), prompt, n)[0] for prompt, n in asked]


def test_turns_again_without_a_thought_and_branches(load: Load) -> None:
    prompt = tokens(300)
    asked = [(prompt, 120), (prompt, 8), ([*prompt, *tokens(40, 2)], 8), ([*prompt[:100], *tokens(30, 3)], 8)]
    wanted, session = answers(load, asked), ChatSession(load())
    assert session.cache.local_capacity < 300
    found = [ask(session, *asked[0])]
    turn = session.cache._turn
    assert turn is not None
    assert 0 < sum(n for _, n, _ in turn.copies) <= session.cache.local_first - turn.first, "only what was forgotten"
    found += [ask(session, *one) for one in asked[1:]]
    assert [ids for ids, _ in found] == wanted
    reused = [n for _, n in found]
    assert reused[:2] == [0, len(prompt) - 1], "what an answer let layers forget comes back"
    assert len(prompt) <= reused[2] + 1 <= len(prompt) + 1
    assert reused[3] == 0, "so far back, it is computed again"
    assert session.cache.n_bytes <= KVCache.bytes_for(session.model.opened.config, CONTEXT, session.model.kv_codec)


def test_a_stopped_prompt(load: Load) -> None:
    prompt, seen = tokens(600), [0]

    def stop() -> bool:
        seen[0] += 1
        return seen[0] > 9

    session = ChatSession(load())
    first, (second,) = ask(session, prompt[:400], 4)[0], answers(load, [(prompt, 8)])
    assert first
    list(session.generate(prompt, SamplingConfig(temperature=0, max_tokens=8), Job(stop)))
    assert ask(session, prompt)[0] == second


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_stopped_prompt_continues_where_it_was(load: Load, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(window_memory, "SLACK", 128)
    monkeypatch.setattr(Transformer, "largest_chunk_tokens", 128)  # as 512 and 512 are
    prompt, done = tokens(700), [0]

    def progress(n: int, n_all: int) -> None:
        done[0] = n

    session = ChatSession(load())
    job = Job(lambda: done[0] > share * len(prompt), progress)
    list(session.generate(prompt, SamplingConfig(temperature=0, max_tokens=8), job))
    ids, reused = ask(session, prompt)
    assert reused > done[0] - 129 > 0
    assert [ids] == answers(load, [(prompt, 8)])


@pytest.fixture
def prompts(tmp_path: Path) -> Iterator[Callable[[LoadedModel], ChatSession]]:
    stores: list[PromptStore] = []

    def session(model: LoadedModel) -> ChatSession:
        stores.append(PromptStore(tmp_path / "prompts", 1 << 30, 64 << 20))
        return ChatSession(model, prompts=StoredPrompts(stores[-1], model.opened, model.kv_codec))

    yield session
    for store in stores:
        store.close(10)


def test_a_chat_from_the_disk(
    load: Load, prompts: Callable[[LoadedModel], ChatSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_memory, "SLACK", STORED_TOKENS + 32)
    prompt = tokens(700)
    asked = [([*prompt, *tokens(30, 4)], 8), ([*prompt[:300], *tokens(30, 5)], 8)]
    wanted, model = answers(load, asked), load()
    session = prompts(model)
    for n in (200, 460, 700):
        ask(session, prompt[:n], 4, chat="a")
        session.keep()
    session.prompts._store.flush()  # type: ignore[union-attr]
    for reader in (load("cpu"), load("gpu")):
        for (given, n), expected in zip(asked, wanted, strict=True):
            ids, reused = ask(prompts(reader), given, n, chat="a")
            assert ids == expected
            assert reused >= (690 if len(given) > 700 else 0)
        with monkeypatch.context() as patch:
            patch.setattr(KVCache, "put_positions", Mock(side_effect=CudaError("cuMemcpy2D", 1, "a fault that passes")))
            assert ask(prompts(reader), asked[0][0], chat="a") == (wanted[0], 0)


def test_what_was_kept_without_windows_is_kept_with_them_later(
    load: Load, prompts: Callable[[LoadedModel], ChatSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_memory, "SLACK", STORED_TOKENS + 32)
    said, model, found = tokens(300), load(), []
    for number, rest in enumerate((400, 30, 31)):
        session = prompts(model)
        found.append(ask(session, [*said, *tokens(rest, number + 4)], chat=str(number))[1])
        session.keep()
        session.prompts._store.flush()  # type: ignore[union-attr]
    assert found[:2] == [0, 0], "the first chat forgot it before it was kept"
    assert found[2] >= STORED_TOKENS


@pytest.mark.parametrize("folder", [256], indirect=True)
@pytest.mark.parametrize("n_said", [600, 0])
def test_another_chat_with_the_same_instructions(
    load: Load, prompts: Callable[[LoadedModel], ChatSession], monkeypatch: pytest.MonkeyPatch, n_said: int
) -> None:
    monkeypatch.setattr(window_memory, "SLACK", 320)
    said = tokens(600)
    asked = [([*said, *tokens(40, 2)], 300), ([*said, *tokens(40, 3)], 8)]
    wanted, session = answers(load, asked), prompts(load())
    for number, (given, n) in enumerate(asked):
        ids, reused = ask(session, given, n, chat=str(number), n_instructions=n_said)
        assert ids == wanted[number]
        while (pause := session.keep()) is not None and pause == 0:
            pass
        session.clear()
    assert (reused >= 512) == (n_said > 0), "long before the end of the first chat"


def test_the_plan_counts_what_is_allocated(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sequences in (2, 3):  # placements for one are kept
        model = FakeGpuMachine(tmp_path, monkeypatch).load(folder, sequences=sequences)
        assert model.gpu is not None
        planned = model.gpu.placement.vram_parts_bytes["kv_cache"]
        assert model.gpu.part_bytes["kv_cache"] == planned
        monkeypatch.setattr(window_memory, "SLACK", CONTEXT)
        whole = FakeGpuMachine(tmp_path, monkeypatch).load(folder, sequences=sequences)
        assert whole.gpu is not None
        assert planned < 0.6 * whole.gpu.placement.vram_parts_bytes["kv_cache"]
        monkeypatch.setattr(window_memory, "SLACK", 64)
        for one in (model, whole):
            one.close()


def test_a_dropped_run_is_noticed(folder: Path) -> None:
    """A run that is longer than the memory of windows, and is cancelled: nothing is read that it wrote over."""
    model = LoadedModel.load(folder, EngineConfig(device="cpu", threads=1))
    transformer, cache = model.transformer(), model.new_cache()
    transformer.forward(np.array(tokens(50)), cache)

    def stop(share: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        transformer.forward(np.array(tokens(400)), cache, progress=stop)
    assert cache.length == 0
    wanted = transformer.forward(np.array(tokens(90)), model.new_cache())
    np.testing.assert_allclose(transformer.forward(np.array(tokens(90)), cache), wanted, atol=1e-5)
