"""Two published models follow tools and schemas through the local API, with a thought before the answer and without."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import openai
import pytest
from support.published_models import PACKAGES, installed
from support.random_schemas import follows, schema_of
from support.serving import KEY, Serving
from test_api_tools import streamed, whole

from engine.service import protocol
from engine.session.sampling import Sampler, make_sampler
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import HERMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
N_CALLS, N_SCHEMAS, PER_PROMPT = 250, 200, 25
THINKS = "{% if add_generation_prompt and enable_thinking %}{{ '<think>\\n' }}{% endif %}"
TEMPERATURES = (0.0, 1.0, 2.0)
OPENING = "Let me see.\n" + HERMES.mark


@pytest.fixture(scope="module", params=PACKAGES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    model, serving = installed(PACKAGES[request.param], tmp_path_factory.mktemp("model")), Serving()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("support.serving.PATIENCE_S", 600)  # kernels may be compiled
        end = serving.end_of(protocol.Load("load", str(model), {"context": 4096, "device": "cpu"}))
    assert isinstance(end, protocol.Finished), end
    assert serving.host.session is not None
    tokenizer = serving.host.session.model.tokenizer
    assert tokenizer.template is not None
    given = tokenizer.template
    tokenizer.template = ChatTemplate(given.source + THINKS, name=given.name, stops=given.stops)
    yield serving
    serving.close()


@pytest.fixture
def client(loaded: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=loaded.serve("on").address, api_key=KEY, max_retries=0, timeout=900) as made:
        yield made


class Begun:
    """A sampler that begins an answer with these tokens, as far as they may be, and leaves the rest to the model."""

    def __init__(self, tokens: Sequence[int], sampler: Sampler) -> None:
        self._tokens, self._sampler, self._begin = tokens, sampler, -1

    def __call__(self, logits: np.ndarray, history: Sequence[int]) -> int:
        self._begin = len(history) if self._begin < 0 else self._begin
        at = len(history) - self._begin
        if at < len(self._tokens) and logits[self._tokens[at]] > -1e29:
            return self._tokens[at]
        return self._sampler(logits, history)


def test_calls_are_well_formed_and_never_text(
    client: openai.OpenAI, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = list[int]()
    begun = lambda sampling: Begun(opening, make_sampler(sampling))  # noqa: E731
    monkeypatch.setattr("engine.session.chat_session.make_sampler", begun)
    found, model = Counter[str](), client.models.list().data[0].id
    for i in range(N_CALLS):
        schemas = {f"t{one}": schema_of(3 * (i // PER_PROMPT) + one) for one in range(3)}
        tools = [
            {"type": "function", "function": {"name": name, "description": "Of a fox.", "parameters": schema}}
            for name, schema in schemas.items()
        ]
        choice = ("required", "auto", {"type": "function", "function": {"name": "t1"}}, "auto")[i % 4]
        opening[:] = tokenizer.encode(OPENING) if i % 4 == 1 else []
        text, calls, reason = (whole, streamed)[i % 2](
            client, model=model, messages=[{"role": "user", "content": f"Use a tool for fox {i}."}],
            tools=tools, tool_choice=choice, temperature=TEMPERATURES[i % 3],
            max_tokens=300 if choice != "auto" or opening else 40,
            parallel_tool_calls=i % 15 == 0, extra_body={"enable_thinking": i % 7 < 3, "thinking_budget": 9},
        )  # fmt: skip
        assert HERMES.mark not in text
        found[reason] += 1
        if reason == "tool_calls":
            assert calls
            assert choice == "auto" or not text
            for call in calls:
                assert follows(json.loads(call["arguments"]), schemas[call["name"]]), call
            found["calls"] += len(calls)
        else:
            assert choice == "auto" or reason == "length"
    print(dict(found))
    assert found["calls"] >= N_CALLS / 2


def test_answers_follow_their_schemas(client: openai.OpenAI) -> None:
    found, model = Counter[str](), client.models.list().data[0].id
    for i in range(2 * N_SCHEMAS):
        schema = schema_of(i // 2)
        text, _, reason = (whole, streamed)[i // 2 % 2](
            client, model=model, messages=[{"role": "user", "content": "Describe a fox."}],
            tools=openai.omit, max_tokens=600,
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
            temperature=TEMPERATURES[i % 3], extra_body={"enable_thinking": i % 2 == 1, "thinking_budget": 9},
        )  # fmt: skip
        assert text
        found[reason] += 1
        assert reason == "stop"
        assert follows(json.loads(text), schema), text
    print(dict(found))
