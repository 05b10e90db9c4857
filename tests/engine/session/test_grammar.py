"""Answers follow their JSON schema whatever the logits are, with and without a thought before the answer."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from support.random_schemas import follows, schema_of
from support.repetitions import slow, some_daily

from engine.config import SamplingConfig
from engine.errors import InvalidRequestError
from engine.model.transformer import Transformer
from engine.session import generate
from engine.session.chat_session import ChatSession
from engine.session.constraint import MOST_CHARS, MOST_DEPTH, MOST_RULES, Constraint, Kind, check_size
from engine.session.generate import TokenEvent
from engine.session.grammar import Grammar, Vocabulary
from engine.session.guesses import StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.lookup import Lookup
from engine.text.chat_template import ChatTemplate
from engine.text.thoughts import split
from engine.text.tokenizer import Tokenizer

QUESTION = [{"role": "user", "content": "Tell me about a fox."}]
N_SCHEMAS = 30
N_DAILY = 6  # the first five hold every kind of value, and lists and objects with and without what may be missing


def answer(model: LoadedModel, given: dict[str, Any] | Constraint, **sampling: Any) -> str:
    """Return the model's answer under the schema or other constraint."""
    return "".join(event.text for event in events_of(model, given, **sampling))


def events_of(model: LoadedModel, given: dict[str, Any] | Constraint, **sampling: Any) -> list[TokenEvent]:
    constraint = given if isinstance(given, Constraint) else Constraint("json_schema", given)
    grammar, session = Grammar(constraint, model.vocabulary), ChatSession(model)
    prompt = session.fit(QUESTION, None).prompt

    config = SamplingConfig(**{"max_tokens": 400, "seed": 1, "temperature": 1.0, **sampling})
    events = list(session.generate(prompt, config, make=partial(session.sampler_for, prompt, grammar=grammar)))
    assert events[-1].finish_reason == "stop"
    return events


@pytest.mark.parametrize("seed", some_daily(range(N_SCHEMAS), range(N_DAILY)))
def test_any_answer_follows_its_schema(starter: LoadedModel, seed: int) -> None:
    schema = schema_of(seed)
    for temperature in (0.0, 2.0):
        text = answer(starter, schema, seed=seed, temperature=temperature)
        assert follows(json.loads(text), schema), text


# Constraints, each with an expression of Python that matches the same texts.
TEXTS: list[tuple[Kind, Any, str]] = [
    ("regex", r"[A-Z]{2}-\d{4}", r"[A-Z]{2}-\d{4}"),
    ("regex", r"^(yes|no|maybe/never)$", r"yes|no|maybe/never"),
    ("regex", r"(?i)fox\n[^a-z]{3}", r"(?i)fox\n[^a-z]{3}"),
    ("regex", r"\(\d{1,3}\) [a-zäöü]{2,9}\.", r"\(\d{1,3}\) [a-zäöü]{2,9}\."),
    ("choice", ['a "fox"', "ein Füchslein", "🦊\n"], 'a "fox"|ein Füchslein|🦊\n'),
    ("grammar", 'root ::= [a-z]{1,4} "a" ("!" | "a!")', "[a-z]{1,4}a(!|a!)"),
    ("grammar", 'root ::= "a" "bd" | "ab" "c" # one\n', "abd|abc"),
    ("grammar", r"root ::= [a\-c-e]{4} [-x] [^\x00-y]", r"[a\-c-e]{4}[-x][^\x00-y]"),
    ("grammar", 'root ::= "(" (\n root |\n [^()"\\\\\\]-] )\n ")" ws\nws ::= | " "', None),
    (
        "grammar",
        r'root ::= "\u00e9\x41\\" [\u4e00-\u4e05]{2,3} . my-Rule{0,1}' '\nmy-Rule ::= "-"',
        r"éA\\[一-丅]{2,3}(?s:.)-?",
    ),
    ("grammar", 'root ::= start start\nstart ::= "x"{1,9} "x" "y"', "(x{2,10}y){2}"),
    ("grammar", 'start: "It is " PLACE "."\nPLACE: /[A-Z][a-z]{1,8}/ | "here"', "It is ([A-Z][a-z]{1,8}|here)\\."),
    ("grammar", 'start: a{2}\na: %json {"type": "boolean"} "\\n"', "((true|false)\\n){2}"),
    ("grammar", '%llguidance {}\nstart: "(" start ")" | "f"', None),
    ("grammar", 'start: A B\nA: /[a-f]{3}/ & /.*e.*/ // &\nB: "' + "&" * 20 + '"', "(?=.*e)[a-f]{3}&{20}"),
]  # fmt: skip


def matches(text: str, pattern: str | None) -> bool:
    if pattern is not None:
        return re.fullmatch(pattern, text) is not None
    inner = re.fullmatch(r"(\(*)[^()\"\\\]-]((\) ?)*)", text)  # in equally many brackets
    return inner is not None and len(inner[1]) == inner[2].count(")")


# What an answer begins with does not depend on its expression: one of each kind thinks every day.
THOUGHTFUL = {kind: (kind, source) for kind, source, _ in TEXTS}.values()


@pytest.mark.parametrize(
    ("kind", "source", "pattern", "thinks"),
    [(*text, thinks) if not thinks or text[:2] in THOUGHTFUL else slow(*text, thinks)
     for text in TEXTS for thinks in (False, True)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_any_answer_matches_its_expression_or_grammar(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch, kind: Kind, source: Any, pattern: str | None, thinks: bool
) -> None:
    if thinks:
        template = "{% for m in messages %}{{ m.content }} {% endfor %}{{ '<think>\\n' }}"
        monkeypatch.setattr(starter.tokenizer, "template", ChatTemplate(template))
    for seed, temperature in ((0, 0.0), (1, 1.0), (2, 3.0)):
        text = answer(starter, Constraint(kind, source), seed=seed, temperature=temperature, thought_tokens=9)
        found = split("<think>" + text).answer if thinks else text
        assert matches(found, pattern), found


COMBINED = {"allOf": [{"pattern": f".*{i}.*"} for i in range(22)]}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", "("), ("regex", "(?=a)b"), ("regex", r"(a)\1"), ("regex", "(" * 9000 + ")" * 9000),
        ("regex", "a" * (MOST_CHARS + 1)), ("choice", ["\ud800"]), ("grammar", "start: a"), ("grammar", "a"),
        ("grammar", "root ::= a"), ("grammar", 'a ::= "x"'), ("grammar", 'root ::= "x'), ("grammar", "root ::= (("),
        ("grammar", 'root ::= "x"\nroot ::= "y"'), ("grammar", 'root ::= "x"{3,2}'), ("grammar", "root ::= <x>"),
        ("grammar", r'root ::= "\ud800"'), ("grammar", "root ::= " + "(" * 9000), ("grammar", "start: /\ud800/"),
        ("grammar", "root ::= [z-a]"), ("grammar", "root ::= root"), ("grammar", "start: A\nA: A"),
        ("grammar", "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(MOST_RULES))),
        ("grammar", "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1}\n" for i in range(MOST_RULES)) + 'a256 ::= "x"'),
        ("grammar", f"start: %json {json.dumps(COMBINED)}"), ("regex", "\ud800"),
        ("grammar", f"start: %json {json.dumps({'title': '%json', **COMBINED})}"),
        ("grammar", "start: A\nA: " + " & ".join(f"/.*x{i}.*/" for i in range(30))),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_constraint_that_makes_no_sense_is_refused(starter: LoadedModel, kind: Kind, source: Any) -> None:
    with pytest.raises(InvalidRequestError):
        Grammar(Constraint(kind, source), starter.vocabulary).constrain(first_of_the_largest, starter.tokenizer, [])(
            np.zeros(starter.opened.config.vocab_size, np.float32), []
        )


@pytest.mark.parametrize("most", [0, 7])
def test_a_thought_comes_before_and_is_free(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:  # fmt: skip
    source = "{% for m in messages %}{{ m.content }} {% endfor %}{{ '<think>\\n' }}"
    monkeypatch.setattr(starter.tokenizer, "template", ChatTemplate(source))
    schema = schema_of(3)
    found = split("<think>" + answer(starter, schema, thought_tokens=most))
    assert not found.is_thinking
    assert bool(found.thought) == bool(most)
    assert follows(json.loads(found.answer), schema)


@pytest.mark.parametrize("forced", [True, False])
def test_several_tokens_in_one_run_change_nothing(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    """Forced tokens, or guesses in their place."""
    schema = {"type": "array", "items": {"type": "string", "enum": ["a little fox", "a little cat"]}, "minItems": 6,
              "maxItems": 6}  # fmt: skip
    real, runs = generate.decode_tokens, list[int]()

    def counted(model: Transformer, tokens: Sequence[int], *arguments: Any) -> Any:
        runs.append(len(tokens))
        return real(model, tokens, *arguments)

    monkeypatch.setattr(generate, "decode_tokens", counted)
    monkeypatch.setattr("engine.session.chat_session.StepTimes", Free)
    monkeypatch.setattr(Lookup, "_chance", lambda self, in_common: 1.0)
    with monkeypatch.context() as changed:
        changed.setattr(generate, "most_at_once", lambda model, cache: 1)
        plain = answer(starter, schema, temperature=0.0)
        assert not runs
    if not forced:
        monkeypatch.setattr(generate, "forced_tokens", lambda sampler, history: [])
    events = events_of(starter, schema, temperature=0.0)
    assert "".join(event.text for event in events) == plain
    stats = events[-1].stats
    assert len(runs) >= 3
    assert sum(runs) > 15
    assert (stats.guessed_tokens > 0) == (not forced)
    assert stats.accepted_tokens <= stats.guessed_tokens
    assert len(json.loads(plain)) == 6


def test_masks_are_computed_while_the_model_computes(starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, here = list[int](), list[int]()
    begin, compute = Grammar.begin_most, Grammar.most

    def counted_begin(self: Grammar, matcher: Any) -> Any:
        begun.append(1)
        return begin(self, matcher)

    def counted(self: Grammar, matcher: Any) -> Any:
        here.extend([1] if threading.current_thread() is threading.main_thread() else [])
        return compute(self, matcher)

    monkeypatch.setattr(Grammar, "begin_most", counted_begin)
    monkeypatch.setattr(Grammar, "most", counted)
    constraint = Constraint("regex", "[a-z]{2}(x|y)[0-9 ]{2,9}!")
    text = answer(starter, constraint, temperature=0.0)
    assert len(here) == 1, "of the first token alone"
    assert len(begun) >= 3
    monkeypatch.setattr(generate, "forced_tokens", lambda sampler, history: [])
    assert answer(starter, constraint, temperature=0.0) == text


class Free(StepTimes):
    """A run of several tokens takes no longer than one."""

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        pass

    def of(self, n_tokens: int) -> float:
        return 1.0


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"}, {"$ref": "https://example.org/schema.json"}, {"$ref": "#/nowhere"},
        {"type": "string", "pattern": "("}, {"type": "object", "properties": 5},
        {"const": "\ud800"}, {"const": 10**4000}, COMBINED,
        {"type": "integer", "multipleOf": 9999991}, {"multipleOf": 0.009999991}, {"multipleOf": 1e-320},
        {"anyOf": [{"type": "integer", "multipleOf": prime} for prime in (997, 991, 983, 977)]},
        {"enum": ["x" * MOST_CHARS]}, deep(MOST_DEPTH), {"type": "integer", "minimum": 5, "maximum": 2},
    ],
    ids=lambda schema: str(schema)[:30],
)  # fmt: skip
def test_a_schema_that_makes_no_sense_is_refused(starter: LoadedModel, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="schema"):
        Grammar(Constraint("json_schema", schema), starter.vocabulary)


def long_rules(text: str) -> str:
    return "root ::= a0\n" + "".join(text.replace("X", str(i)).replace("Y", str(i + 1)) + "\n" for i in range(200))


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", "(((a{1,1000}){1,1000}){1,1000})"), ("regex", r"(.*a.{40}){3}"),
        ("regex", r"\w{1,9999}\p{L}{1,9999}"),
        ("regex", "(a|aa)+(a|aa)+(a|aa)+"), ("choice", [str(i) for i in range(9000)]),
        ("grammar", 'root ::= (((("a"{1,1000}){1,1000}){1,1000}){1,1000})'), ("grammar", 'root ::= "x"{1,1000000000}'),
        ("grammar", 'root ::= root root | "a" |'), ("grammar", "start: A\nA: " + " & ".join(["/.*a.*b.*/"] * 400)),
        ("grammar", "root ::= " + "|".join(f'"{i}"' for i in range(9000))),
        ("grammar", "root ::= [^" + "a-z" * 20000 + "]"),
        ("grammar", long_rules("aX ::= (aY | aY)? (aY aY)*") + 'a200 ::= "x"'),
        ("grammar", 'root ::= "' + "x" * 60000 + '"'), ("grammar", "root ::= " + " " * 60000 + "{"),
        ("grammar", "#" * 60000), ("grammar", "a" * 60000), ("grammar", "{" + "1 ," * 20000),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_a_constraint_that_would_take_long_is_refused_or_works_in_bounded_time(
    starter: LoadedModel, kind: Kind, source: Any
) -> None:
    _works_in_bounded_time(starter, Constraint(kind, source))


CHAIN = {f"n{i}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}}] * 9} for i in range(40)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a|aa)+(a|aa)+(a|aa)+$"},
        {"type": "string", "pattern": "^(.{1,9999}x){1,9999}$"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
        deep(MOST_DEPTH - 2),
        {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "$ref": "#/$defs/n"},
        {"$defs": {**CHAIN, "n40": {"type": "null"}}, "$ref": "#/$defs/n0"},
        {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 9999} for i in range(1500)}},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_a_schema_that_would_take_long_is_refused_or_works_in_bounded_time(
    starter: LoadedModel, schema: dict[str, Any]
) -> None:
    _works_in_bounded_time(starter, Constraint("json_schema", schema))


def _works_in_bounded_time(starter: LoadedModel, constraint: Constraint) -> None:
    began = time.process_time()
    try:
        sampler = Grammar(constraint, starter.vocabulary).constrain(first_of_the_largest, starter.tokenizer, [])
        history: list[int] = []
        for _ in range(30):
            history.append(sampler(np.zeros(starter.opened.config.vocab_size, np.float32), history))
    except InvalidRequestError:
        pass
    assert time.process_time() - began < 20


def first_of_the_largest(logits: np.ndarray, history: Sequence[int]) -> int:
    return int(np.argmax(logits))


def test_checking_the_size_of_a_schema_takes_any_object() -> None:
    steps = [{"multipleOf": step} for step in (0, -5, 0.25, 0.01, 1e9, True, 150, {"multipleOf": "x"})]
    for schema in ({}, {"type": "object"}, {"enum": [1, [2, {"x": None}]]}, {"anyOf": steps}):
        check_size(schema)
    itself: dict[str, Any] = {}
    itself["again"] = itself
    with pytest.raises(InvalidRequestError):
        check_size(itself)


def test_a_model_without_an_end_cannot_follow_a_schema(starter: LoadedModel) -> None:
    with pytest.raises(InvalidRequestError, match="ends an answer"):
        Vocabulary(starter.tokenizer, 10, frozenset())


def test_a_word_of_harmony_is_free_until_the_answers_header(starter: LoadedModel) -> None:
    """The answer begins after its header. Tokens before the header are not constrained, but cannot end the answer."""
    tokenizer, free = starter.tokenizer, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    script = tokenizer.encode(free + "<|channel|>final<|message|>Hello!")
    preferred = partial(next, iter([*script, *[0] * 500]))
    grammar = Grammar(Constraint("json_schema", {"type": "boolean"}), starter.vocabulary)

    def sample(logits: np.ndarray, history: Sequence[int]) -> int:
        wanted = preferred()
        return wanted if logits[wanted] > -1e29 else int(np.argmax(logits))

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(type(tokenizer), "answer_header", "<|channel|>final<|message|>")
        sampler = grammar.constrain(sample, tokenizer, [])
        history: list[int] = []
        while not history or history[-1] not in starter.stop_token_ids:
            history.append(sampler(np.zeros(starter.opened.config.vocab_size, np.float32), history))
            assert len(history) < 200
    before, header, after = tokenizer.decode(history).partition("<|channel|>final<|message|>")
    assert before == free
    assert header
    assert json.loads(after) in (True, False)


@pytest.mark.parametrize("way", ["normalizer", "pre_tokenizer"])
def test_a_tokenizer_that_puts_a_space_before_a_text(way: str, tmp_path: Path) -> None:
    letters = {letter: i for i, letter in enumerate(["<unk>", "</s>", "\u2581", "\n", *map(chr, range(33, 127))])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(letters, [], unk_token="<unk>"))
    backend.add_special_tokens(["</s>"])
    if way == "normalizer":
        backend.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")]
        )
    else:
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = tokenizers.decoders.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_files(tmp_path / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode("name")) == "name"
    assert tokenizer.token_bytes(tokenizer.encode("name")[0]) == b" "
    schema = {"type": "object", "properties": {"name_of": {"type": "boolean"}}, "required": ["name_of"],
              "additionalProperties": False}  # fmt: skip
    sampler = Grammar(Constraint("json_schema", schema), Vocabulary(tokenizer, len(letters), [1])).constrain(
        first_of_the_largest, tokenizer, []
    )
    history: list[int] = []
    while not history or history[-1] != 1:
        history.append(sampler(np.zeros(len(letters), np.float32), history))
        assert len(history) < 60
    text = b"".join(tokenizer.token_bytes(i) for i in history[:-1])
    assert json.loads(text).keys() == {"name_of"}
