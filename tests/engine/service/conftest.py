"""The local API of the starter model, asked by OpenAI's own client, and what the model says."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from support.serving import KEY, PATIENCE_S, Script, Serving

from engine.service import protocol
from engine.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def loaded() -> Iterator[Serving]:
    serving = Serving()
    assert isinstance(serving.end_of(protocol.Load("load", "starter-chat")), protocol.Finished)
    yield serving
    serving.close()


@pytest.fixture
def serving(loaded: Serving) -> Serving:
    return loaded


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    state = serving.serve("on")
    with openai.OpenAI(base_url=state.address, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as made:
        yield made


@pytest.fixture
def tokenizer(loaded: Serving) -> Tokenizer:
    assert loaded.host.session is not None
    return loaded.host.session.model.tokenizer


@pytest.fixture
def script(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script(tokenizer, min(tokenizer.stop_token_ids))
    monkeypatch.setattr("engine.session.chat_session.make_sampler", made.sampler)
    return made
