"""Requests of the local API that name other models on this PC: the window is asked to load them, and they wait."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from samples.tiny_encoder import make_tiny_encoder
from samples.tiny_model import make_tiny_model
from support.serving import KEY, PATIENCE_S, QUESTION, Serving, is_end

from engine.errors import Cancelled, HostMemoryError
from engine.library.owned.installed import Library
from engine.local_api import served
from engine.local_api.turns import Line
from engine.service import host as engine_host
from engine.service import protocol
from engine.session import resolve_model
from engine.session.loaded_model import LoadedModel

CPU = {"device": "cpu", "threads": 1}
SHORT: dict[str, Any] = {"prompt": "the cat", "max_tokens": 3, "temperature": 0}


class Owner:
    """The window: loads and unloads what the engine asks for. asked: every news of that kind."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.obeys = True
        serving.on_event = self.hear

    def hear(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.News) and event.topic in ("load_wanted", "unload_wanted"):
            self.asked.append((event.topic, event.values))
            number = len(self.asked)
            if self.obeys and event.topic == "load_wanted":
                self.serving.host.submit(protocol.Load(f"load-{number}", event.values["model"], CPU))
            elif self.obeys:
                self.serving.host.submit(protocol.Unload(f"unload-{number}"))

    @property
    def loads(self) -> list[str]:
        return [values["model"] for topic, values in self.asked if topic == "load_wanted"]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setattr("engine.library.owned.installed._own_home", lambda: tmp_path / "home")
    found = Library()
    for name in ("One", "Two"):
        found.add(make_tiny_model(tmp_path / name.lower()), name=name)
    return found


@pytest.fixture
def serving(library: Library) -> Iterator[Serving]:
    made = Serving()
    yield made
    made.close()


@pytest.fixture
def owner(serving: Serving) -> Owner:
    return Owner(serving)


def serve(serving: Serving, **how: Any) -> openai.OpenAI:
    end = serving.end_of(protocol.Serve(f"on-{how}", True, 0, KEY, **{"loads": True, **how}))
    assert isinstance(end, protocol.Finished), end
    return openai.OpenAI(base_url=end.result["address"], api_key=KEY, max_retries=0, timeout=PATIENCE_S)


def loaded(serving: Serving) -> str:
    session = serving.host.session
    return "" if session is None else session.model.name


def test_a_request_loads_the_model_that_it_names(serving: Serving, owner: Owner) -> None:
    with serve(serving) as client:
        for name, model in (("one", "One"), ("local/two", "Two"), ("local/two", "Two"), ("ONE", "One")):
            reply = client.completions.create(model=name, **SHORT)
            assert (reply.model, reply.usage.completion_tokens) == (model, 3)
            assert loaded(serving) == model
    assert owner.loads == ["local/one", "local/two", "local/one"]
    assert owner.asked[0][1]["client"].startswith("OpenAI")


def test_models_are_listed_with_what_they_can(serving: Serving, owner: Owner, tmp_path: Path) -> None:
    pooling = tmp_path / "two" / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    with serve(serving) as client:
        listed = {model.id: model for model in client.models.list()}
        assert listed.keys() == {"Pip", "One", "Two"}
        assert not any(model.loaded for model in listed.values())
        client.completions.create(model="Two", **SHORT)
        first = client.models.list().data[0]
        assert (first.id, first.loaded, first.context_length) == ("Two", True, 64)
        assert [model.id for model in client.models.list() if model.loaded] == ["Two"]
        one = client.models.retrieve("one")
        assert (one.id, one.loaded, one.context_length, one.size_bytes > 0) == ("One", False, 64, True)
        assert {**one.abilities, "thinking": []} == {
            "tools": False, "thinking": [], "schema": True, "embeddings": False
        }  # fmt: skip
        assert first.abilities["embeddings"] is True
    with serve(serving, loads=False) as client:
        assert [model.id for model in client.models.list()] == ["Two"]


def test_a_model_is_opened_again_only_after_its_files_have_changed(
    serving: Serving, owner: Owner, tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = resolve_model.open_named

    def counted(name: str) -> Any:
        opened.append(name)
        return real(name)

    def lists() -> dict[str, Any]:
        """List the models as a process that has just started."""
        opened.clear()
        assert serving.host._api is not None
        monkeypatch.setattr(serving.host._api.models, "_facts", served._KnownFacts())
        return {model.id: model for model in client.models.list()}

    monkeypatch.setattr(resolve_model, "open_named", counted)
    with serve(serving) as client:
        first = lists()
        assert sorted(opened)[:2] == ["local/one", "local/two"]
        assert lists() == first
        assert opened == []
        os.utime(tmp_path / "two" / "config.json", (1, 1))
        lists()
        assert opened == ["local/two"]
        (file,) = own_folders.rglob("listed-models.json")
        for damaged in ("{", "[]", json.dumps(dict.fromkeys(json.loads(file.read_text()), 5))):
            file.write_text(damaged)
            assert {one.id: one.abilities for one in lists().values()} == {
                one.id: one.abilities for one in first.values()
            }
            assert len(opened) == len(first)


def test_requests_at_the_same_time_open_each_model_once(
    serving: Serving, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = resolve_model.open_named

    def slow(name: str) -> Any:
        opened.append(name)
        time.sleep(0.1)
        return real(name)

    with serve(serving) as client:
        assert serving.host._api is not None
        monkeypatch.setattr(serving.host._api.models, "_facts", served._KnownFacts())
        monkeypatch.setattr(resolve_model, "open_named", slow)
        listing = [threading.Thread(target=client.models.list) for _ in range(4)]
        for one in listing:
            one.start()
        for one in listing:
            one.join(PATIENCE_S)
        client.models.list()
    assert len(opened) == len(set(opened)) >= 2


def test_vectors_of_another_model_leave_the_loaded_one(serving: Serving, owner: Owner) -> None:
    with serve(serving) as client:
        client.completions.create(model="One", **SHORT)
        beside = client.embeddings.create(model="Two", input="the cat").data[0].embedding
        assert (loaded(serving), owner.loads) == ("One", ["local/one"])
        client.completions.create(model="Two", **SHORT)
        assert client.embeddings.create(model="Two", input="the cat").data[0].embedding == pytest.approx(
            beside, abs=1e-6
        )


def test_a_count_of_tokens_loads_the_model_too(serving: Serving, owner: Owner) -> None:
    body = {"model": "pip", "messages": QUESTION}
    with serve(serving) as client:
        counted: Any = client.post("/messages/count_tokens", cast_to=object, body=body)
        assert counted["input_tokens"] > 3
        assert owner.loads == ["starter-chat"]
        assert client.post("/messages/count_tokens", cast_to=object, body=body) == counted


def test_what_cannot_be_loaded_is_refused_and_the_next_request_goes_on(
    serving: Serving, owner: Owner, library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serve(serving) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.completions.create(model="three", **SHORT)
        assert unknown.value.code == "model_not_found"
        assert owner.loads == []
        weights = tmp_path / "two" / "model.safetensors"
        kept = weights.read_bytes()
        weights.unlink()
        with pytest.raises(openai.NotFoundError) as broken:
            client.completions.create(model="two", **SHORT)
        assert broken.value.code == "model_not_found"
        weights.write_bytes(kept)
        load, full = LoadedModel.load, HostMemoryError("It takes 9.0 GB, and 2.0 GB are free.")

        def loads(model: Any, *others: Any) -> Any:
            if str(model) == "local/two":
                raise full
            return load(model, *others)

        monkeypatch.setattr(LoadedModel, "load", loads)
        with pytest.raises(openai.InternalServerError) as failed:
            client.completions.create(model="two", **SHORT)
        assert (failed.value.status_code, failed.value.code) == (503, "out_of_memory")
        assert client.completions.create(model="one", **SHORT).model == "One"
        assert owner.loads == ["local/two", "local/one"]


def test_a_cancelled_load_ends_the_request_unless_another_follows(
    serving: Serving, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, cancelled = LoadedModel.load, [1, 2]

    def loads(*given: Any) -> Any:
        if cancelled:
            if cancelled.pop() == 2:
                serving.host.submit(protocol.Load("again", "local/one", CPU))
            raise Cancelled
        return load(*given)

    monkeypatch.setattr(LoadedModel, "load", loads)
    with serve(serving) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            client.completions.create(model="one", **SHORT)
        assert (failed.value.code, cancelled) == ("interrupted", [])
        assert client.completions.create(model="one", **SHORT).model == "One"


def test_a_request_whose_model_is_replaced_twice_gives_up(serving: Serving, owner: Owner) -> None:
    owner.obeys = False
    loads = iter(("first", "second"))

    def load_another(event: protocol.Event) -> None:
        owner.hear(event)
        if isinstance(event, protocol.News) and event.topic == "load_wanted":
            serving.host.submit(protocol.Load(next(loads), "local/two", CPU))

    serving.on_event = load_another
    with serve(serving) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            client.completions.create(model="one", **SHORT)
        assert failed.value.code == "interrupted"
        assert client.completions.create(model="two", **SHORT).model == "Two"
    assert owner.loads == ["local/one"] * 2


def test_a_client_that_leaves_its_load_lets_the_others_go_on(
    serving: Serving, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(serving) as client:
        client.completions.create(model="one", **SHORT)
        owner.obeys = False
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.3).completions.create(model="two", **SHORT)
        assert client.completions.create(model="one", **SHORT).model == "One"
        replies: list[str] = []
        patient = threading.Thread(target=lambda: replies.append(client.completions.create(model="one", **SHORT).model))
        joined = Line.join

        def join(line: Line, turn: Any) -> None:
            joined(line, turn)
            if turn.target.name == "Two":
                patient.start()

        monkeypatch.setattr(Line, "join", join)
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).completions.create(model="two", **SHORT)
        patient.join(PATIENCE_S)
        assert replies == ["One"]


def test_an_unused_model_is_to_be_unloaded_and_comes_back_on_request(
    serving: Serving, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_host, "IDLE_AFTER_S", 0.01)
    with serve(serving, unload_after_s=0.05) as client:
        client.completions.create(model="one", **SHORT)
        serving.until(lambda event: is_end(event, "unload-2"))
        assert loaded(serving) == ""
        assert client.completions.create(model="one", **SHORT).model == "One"
        serving.until(lambda event: is_end(event, "unload-4"))
    assert [topic for topic, _ in owner.asked] == ["load_wanted", "unload_wanted"] * 2


def test_a_model_that_is_used_stays(serving: Serving, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_host, "IDLE_AFTER_S", 0.01)
    with serve(serving, unload_after_s=1000.0) as client:
        client.completions.create(model="one", **SHORT)
        time.sleep(0.1)
        assert [topic for topic, _ in owner.asked] == ["load_wanted"]
    end = serving.end_of(protocol.Serve("wrong", True, 0, KEY, True, 0.0))
    assert end.error == "InvalidRequestError"


def test_a_model_outside_the_library_can_be_loaded_again_by_its_name(
    serving: Serving, owner: Owner, tmp_path: Path
) -> None:
    path = make_tiny_model(tmp_path / "elsewhere")
    serving.end_of(protocol.Load("path", str(path), CPU))
    with serve(serving) as client:
        serving.end_of(protocol.Unload("off"))
        assert "elsewhere" in {model.id for model in client.models.list()}
        assert client.completions.create(model="elsewhere", **SHORT).model == "elsewhere"
        client.completions.create(model="one", **SHORT)
        assert client.completions.create(model="elsewhere", **SHORT).model == "elsewhere"
    assert owner.loads == [str(path), "local/one", str(path)]


def test_an_encoder_gives_vectors_and_is_not_loaded_for_an_answer(
    serving: Serving, owner: Owner, library: Library, tmp_path: Path
) -> None:
    make_tiny_encoder(tmp_path / "words")
    library.add(tmp_path / "words", name="Words")
    with serve(serving) as client:
        client.completions.create(model="One", **SHORT)
        for ask in (
            lambda: client.completions.create(model="Words", **SHORT),
            lambda: client.chat.completions.create(model="Words", messages=[{"role": "user", "content": "the cat"}]),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                ask()
            assert caught.value.code == "unsupported_model"
        texts = ["The cat sat.", "a dog"]
        found = np.array([one.embedding for one in client.embeddings.create(model="words", input=texts).data])
        short = np.array([one.embedding for one in client.embeddings.create(
            model="words", input=[[2, 5, 6, 8, 13, 3], [2, 11, 7, 3]], dimensions=8, encoding_format="float").data
        ])  # fmt: skip
        assert np.allclose(short, found[:, :8] / np.linalg.norm(found[:, :8], axis=1, keepdims=True), atol=1e-6)
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="words", input="the " * 100)
        assert caught.value.code == "context_length_exceeded"
        assert loaded(serving) == "One"
    assert owner.loads == ["local/one"]
