"""Vectors for the window: of the loaded model, or of one beside it; answers go between two texts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.tiny_model import make_tiny_model

from engine.errors import HostMemoryError
from engine.service import embedder, protocol
from engine.service.host import EngineHost


class Heard:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.host = EngineHost(self.events.append)

    def run(self, *requests: protocol.Request) -> None:
        for request in requests:
            self.host.submit(request)
        self.host.run_pending()

    def ends(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, protocol.Finished | protocol.Failed)]

    def result(self, name: str) -> dict[str, Any]:
        (end,) = [e for e in self.events if isinstance(e, protocol.Finished | protocol.Failed) and e.id == name]
        assert isinstance(end, protocol.Finished), end
        return end.result


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.host.close()
    made.host.run_pending()


def vectors(result: dict[str, Any]) -> np.ndarray:
    return np.stack([np.frombuffer(base64.b64decode(one), "<f4") for one in result["vectors"]])


def test_a_model_is_loaded_beside_the_chats_and_goes_after_its_time(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_model(tmp_path / "m")
    heard.run(protocol.Embed("e", ["the cat", "the cat", "a dog"], str(path), 16))
    found = vectors(heard.result("e"))
    assert found.shape == (3, 16)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.array_equal(found[0], found[1])
    assert not np.allclose(found[0], found[2], atol=1e-3)
    assert heard.result("e")["tokens"] > 0
    wait = heard.host._idle()
    assert wait is not None
    monkeypatch.setattr(embedder, "KEPT_S", 0)
    assert heard.host._idle() is None
    assert heard.host._embedder._model is None


def test_answers_go_between_two_texts(heard: Heard, tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    heard.run(protocol.Load("load", str(path), {"device": "cpu", "threads": 1}))
    ask = protocol.Generate("g", [{"role": "user", "content": "the cat"}], {"max_tokens": 3})
    heard.host.submit(protocol.Embed("e", ["the cat", "a dog"], ""))
    heard.host.submit(ask)
    heard.host.run_pending()
    assert heard.ends() == ["load", "g", "e"]


@pytest.mark.parametrize("texts", [[], ["x"] * 257, ["good", ""], ["good", 3]])
def test_what_cannot_be_embedded_is_refused(heard: Heard, tmp_path: Path, texts: list[Any]) -> None:
    heard.run(protocol.Embed("e", texts, str(make_tiny_model(tmp_path / "m"))))
    (end,) = [event for event in heard.events if isinstance(event, protocol.Failed)]
    assert end.error == "InvalidRequestError"


def test_a_role_that_is_unknown_is_refused(heard: Heard, tmp_path: Path) -> None:
    heard.run(protocol.Embed("e", ["x"], str(make_tiny_model(tmp_path / "m")), role="title"))
    assert heard.events[-1].error == "InvalidRequestError"


def test_without_a_model_the_reason_is_given(heard: Heard) -> None:
    heard.run(protocol.Embed("e", ["x"]))
    assert heard.events[-1].error == "InvalidRequestError"
    heard.run(protocol.Embed("f", ["x"], "/nowhere/model.gguf"))
    assert heard.events[-1].error == "ModelNotFoundError"


def test_a_model_that_does_not_fit_is_not_loaded(heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "_LEAST_FREE", 1e9)
    heard.run(protocol.Embed("e", ["x"], str(make_tiny_model(tmp_path / "m"))))
    assert heard.events[-1].error == HostMemoryError.__name__


def test_a_request_can_be_cancelled(heard: Heard, tmp_path: Path) -> None:
    heard.host.submit(protocol.Embed("e", ["x", "y"], str(make_tiny_model(tmp_path / "m"))))
    heard.host.submit(protocol.Cancel("c", "e"))
    heard.host.run_pending()
    assert heard.result("e") == {"cancelled": True}
