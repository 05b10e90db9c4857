"""Embeddings through the local API, asked by OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openai
import pytest
from support.serving import QUESTION, Serving, is_end

from engine.local_api.answering import ApiAnswers
from engine.local_api.embeddings import MOST_INPUTS, read_embeddings_request
from engine.local_api.failures import ApiError
from engine.local_api.turns import Turn
from engine.service import protocol
from engine.session.embeddings import embed, tokens_of
from engine.text.tokenizer import Tokenizer

TEXTS = ["Lima is in Peru.", "A fox jumps.", "Lima is in Peru."]


def test_the_official_client_gets_vectors_of_texts_and_tokens(
    client: openai.OpenAI, serving: Serving, tokenizer: Tokenizer
) -> None:
    assert serving.host.session is not None
    model = serving.host.session.model
    wanted = np.stack(list(embed(model, TEXTS)))
    reply = client.embeddings.create(model="pip", input=TEXTS)  # asks for base64 and decodes it
    assert [one.index for one in reply.data] == [0, 1, 2]
    assert np.array_equal(np.array([one.embedding for one in reply.data], np.float32), wanted)
    n_tokens = sum(len(tokens_of(model, text)) for text in TEXTS)
    assert (reply.model, reply.usage.prompt_tokens, reply.usage.total_tokens) == ("Pip", n_tokens, n_tokens)
    (plain,) = client.embeddings.create(model="Pip", input=TEXTS[1], encoding_format="float", user="me").data
    assert np.array_equal(np.array(plain.embedding, np.float32), wanted[1])
    ids = [tokens_of(model, text) for text in TEXTS]
    for given, vectors in ((ids, wanted), (ids[0], wanted[:1])):
        found = client.embeddings.create(model="Pip", input=given).data
        assert np.array_equal(np.array([one.embedding for one in found], np.float32), vectors)
    (short,) = client.embeddings.create(model="Pip", input=TEXTS[0], dimensions=16).data
    assert np.allclose(short.embedding, wanted[0, :16] / np.linalg.norm(wanted[0, :16]), atol=1e-6)


def test_the_window_interrupts_a_text_and_its_conversation_stays(
    client: openai.OpenAI, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = client.embeddings.create(model="Pip", input=TEXTS).data
    before = serving.end_of(protocol.Generate("before-vectors", QUESTION, {"temperature": 0})).result
    model_of, times = ApiAnswers._model, []

    def interrupted(answers: Any, turn: Turn) -> Any:
        times.append(turn)
        if len(times) == 2:
            serving.host.submit(protocol.Generate("during", QUESTION, {"temperature": 0}))
        return model_of(answers, turn)

    monkeypatch.setattr(ApiAnswers, "_model", interrupted)
    assert client.embeddings.create(model="Pip", input=TEXTS).data == undisturbed
    during = serving.until(lambda event: is_end(event, "during")).result
    assert len(times) == len(TEXTS) + 1  # one text was begun twice
    assert during["reused_tokens"] == before["prompt_tokens"] - 1


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ({"input": "word " * 1200}, "context_length_exceeded", "input[0]"),
        ({"input": "x" * 2_000_000}, "context_length_exceeded", None),
        ({"input": ["good", [10**9]]}, "invalid_value", None),
        ({"input": "good", "dimensions": 1_000_000}, "invalid_value", None),
    ],
)
def test_what_the_model_cannot_embed_is_refused(client: openai.OpenAI, given: Any, code: str, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="Pip", **given)
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ({}, "missing_field", "input"),
        ({"input": {}}, "invalid_type", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": ""}, "invalid_value", "input[0]"),
        ({"input": ["x", ""]}, "invalid_value", "input[1]"),
        ({"input": ["x", 3]}, "invalid_type", "input[1]"),
        ({"input": [3, "x"]}, "invalid_type", "input[0]"),
        ({"input": [[1, True]]}, "invalid_type", "input[0]"),
        ({"input": ["x"] * (MOST_INPUTS + 1)}, "invalid_value", "input"),
        ({"input": "x", "dimensions": 0}, "invalid_value", "dimensions"),
        ({"input": "x", "dimensions": "8"}, "invalid_type", "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"input": "x", "user": 3}, "invalid_type", "user"),
    ],
)
def test_bad_fields_are_named(given: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_embeddings_request(json.dumps({"model": "Pip", **given}).encode())
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


def test_unknown_fields_are_ignored_and_named() -> None:
    body = json.dumps({"model": "Pip", "input": "x", "mood": "good", "input_type": "query"}).encode()
    assert read_embeddings_request(body).ignored == ("input_type", "mood")
    most = json.dumps({"model": "Pip", "input": ["x"] * 2048}).encode()
    assert len(read_embeddings_request(most).inputs) == 2048
