"""Calls of tools: every format is written, read, and allowed by its grammar; nothing else is."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from support.serving import Scripted

from engine.errors import InvalidRequestError
from engine.formats.gguf import open_gguf
from engine.session.constraint import Constraint
from engine.session.grammar import ToolGrammar, Vocabulary
from engine.session.loaded_model import LoadedModel
from engine.session.thought_limit import limit_thought
from engine.text import vocabulary as text_vocabulary
from engine.text.text_stream import APRIEL, KIMI_MARKS, SOLAR, SOLAR_ENDS
from engine.text.thoughts import ReplySplitter, split
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.arguments import read_value
from engine.tool_calls.call_format import FORMATS, HARMONY, HERMES, Call, CallFormat
from engine.tool_calls.call_reader import ArgumentsPart, CallPart, CallReader, Part, TextPart
from engine.tool_calls.marked_arguments import with_commas
from engine.tool_calls.tool import Choice, Tool, ToolUse

WEATHER = Tool("get_weather", "The weather.", {
    "type": "object", "additionalProperties": False, "required": ["city"],
    "properties": {"city": {"type": "string", "maxLength": 30}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                   "unit": {"enum": ["celsius", "kelvin"]}},
})  # fmt: skip
NOTE = Tool("take-note", "Keeps a note.", {
    "type": "object", "additionalProperties": False, "required": ["text", "tags"],
    "properties": {"text": {"type": ["string", "null"], "maxLength": 20}, "about": {"$ref": "#/$defs/about"},
                   "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2}},
    "$defs": {"about": {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"],
                        "additionalProperties": False}},
})  # fmt: skip
EMPTY = Tool("now", "The time.", {"type": "object", "properties": {}, "additionalProperties": False})
TOOLS = (WEATHER, NOTE, EMPTY)
CALLS = (
    Call("get_weather", {"city": "São \"Paulo\" <x>\n\\", "days": 3, "unit": "kelvin"}, "abcdefgh1"),
    Call("take-note", {"text": "  two\nlines\n", "about": {"done": True}, "tags": ["a", "b c"]}, "abcdefgh2"),
    Call("take-note", {"text": None, "tags": []}, "abcdefgh3"),
    Call("now", {}, "abcdefgh4"),
)  # fmt: skip


def use(choice: Choice = "auto", is_parallel: bool = True, tools: tuple[Tool, ...] = TOOLS) -> ToolUse:
    return ToolUse(tools, choice, frozenset(tool.name for tool in tools), is_parallel)


def read(reader: CallReader, pieces: Sequence[str]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text and the calls of an answer that arrives in these pieces."""
    parts: list[Part] = [part for piece in pieces for part in reader.append(piece)] + reader.finish()
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, CallPart):
            assert part.id.isalnum()
            assert len(part.id) == 9
            calls.append((part.name, ""))
        elif isinstance(part, ArgumentsPart):
            calls[-1] = (calls[-1][0], calls[-1][1] + part.text)
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


@pytest.mark.parametrize("call_format", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("before", ["", "Let me see.\n"])
@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_written_calls_are_read_again(call_format: CallFormat, before: str, step: int) -> None:
    before = "" if call_format.only_first else before
    several = [CALLS[:1], CALLS[3:]] if call_format.is_single else [CALLS, CALLS[:1], CALLS[2:]]
    for calls in several:
        text = before + call_format.write(calls)
        reader = CallReader(call_format, TOOLS)
        found = read(reader, [text[i : i + step] for i in range(0, len(text), step)])
        assert found == (before, [(call.name, call.arguments) for call in calls])
        assert (reader.n_calls, reader.is_complete) == (len(calls), True)


@pytest.mark.parametrize("call_format", FORMATS, ids=lambda one: one.name)
def test_a_call_that_is_cut_off_is_not_shown_as_text(call_format: CallFormat) -> None:
    text = call_format.write(CALLS[:1])
    for end in range(len(call_format.mark), len(text)):
        reader = CallReader(call_format, TOOLS)
        parts = [*reader.append(text[:end]), *reader.finish(is_cut=True)]
        assert not [part for part in parts if isinstance(part, TextPart)]
    reader = CallReader(call_format, TOOLS)
    almost = call_format.mark[:-1] + "§"
    assert read(reader, [*almost]) == (almost, [])


WRITTEN_ALONE = [one for one in FORMATS if one.parameter or one.assign]


@pytest.mark.parametrize("call_format", WRITTEN_ALONE, ids=lambda one: one.name)
def test_a_value_that_is_nested_too_deeply_fails_no_answer(call_format: CallFormat) -> None:
    tool = Tool("t", "", {"properties": {"a": {"type": "array"}}})
    written = call_format.write([Call("t", {"a": [12345]}, "abcdefgh1")])
    reader = CallReader(call_format, [tool])
    reader.append(written.replace("12345", "[" * 5000 + "]" * 5000))
    assert reader.n_calls == 1
    assert not [part for part in reader.finish() if isinstance(part, TextPart)]


class Speaker:
    """A vocabulary whose answers are chosen under grammars."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[int]) -> None:
        self.tokenizer, self.stops = tokenizer, list(stops)
        self.vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size, self.stops)

    def answer(
        self,
        call_format: CallFormat,
        of_use: ToolUse,
        script: str,
        seed: int = 0,
        most: int = 2000,
        constraint: Constraint | None = None,
        prompt: Sequence[int] = (),
    ) -> tuple[str, bool]:
        """Return an answer, and whether it ended. script: its tokens are chosen if they are allowed."""
        grammar = ToolGrammar(call_format, of_use, self.tokenizer, self.vocabulary, constraint)
        sampler = Scripted([*self.tokenizer.encode(script, special=True), self.stops[0]], seed, len(prompt))
        constrained = grammar.constrain(sampler, self.tokenizer, prompt)
        logits, history = np.zeros(self.tokenizer.vocab_size, np.float32), list(prompt)
        stream = self.tokenizer.stream(shown=call_format.texts)
        has_ended = False
        while len(history) < most + len(prompt) and not has_ended:
            token = constrained(logits, history)
            has_ended = token in self.stops
            history += [] if has_ended else [token]
        return "".join([*map(stream.push, history[len(prompt) :]), stream.flush()]), has_ended


@pytest.fixture(scope="module")
def plain(starter: LoadedModel) -> Speaker:
    """Of a model without any special tokens for calls."""
    return Speaker(starter.tokenizer, sorted(starter.stop_token_ids))


@cache
def speaker(*marks: str, template: str | None = None) -> Speaker:
    """Of a vocabulary of bytes in which the marks are special tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["</s>", *marks])
    made: Any = text_vocabulary.Vocabulary(
        backend=backend, bos_token_id=None, eos_token_ids=(backend.token_to_id("</s>"),), adds_bos=False,
        chat_template=template, pieces="byte-level", origin="here",
    )  # fmt: skip
    return Speaker(Tokenizer(made), [backend.token_to_id("</s>")])


def own(call_format: CallFormat) -> Speaker:
    """Of a model whose special tokens are the marks of this format."""
    return speaker(
        *sorted(set(re.findall(r"<[|｜][^>]+>|<\w+\|>|\[[A-Z_]+\]|\]<\]\w+\[>\[|</?tool_call>", call_format.texts)))
    )


PLAIN = [one for one in FORMATS if one is not HARMONY]


@pytest.mark.parametrize("call_format", PLAIN, ids=lambda one: one.name)
@pytest.mark.parametrize("vocabulary", ["plain", "own"])
def test_the_grammar_allows_what_the_format_writes(plain: Speaker, call_format: CallFormat, vocabulary: str) -> None:
    speaks = plain if vocabulary == "plain" else own(call_format)
    choices: tuple[Choice, ...] = ("auto", "required")
    for i, calls in enumerate([[one] for one in CALLS] + ([] if call_format.is_single else [list(CALLS)])):
        text = call_format.write(calls)
        for choice in choices if i == 0 or len(calls) > 1 else choices[i % 2 :][:1]:
            assert speaks.answer(call_format, use(choice), text) == (text, True)
        if len(calls) > 1:
            found, _ = speaks.answer(call_format, use(is_parallel=False), text, most=600)
            reader = CallReader(call_format, TOOLS)
            reader.append(found)
            assert reader.n_calls == 1


@pytest.mark.parametrize("call_format", PLAIN, ids=lambda one: one.name)
@pytest.mark.parametrize("vocabulary", ["plain", "own"])
def test_random_answers_hold_well_formed_calls_alone(plain: Speaker, call_format: CallFormat, vocabulary: str) -> None:
    speaks, ended = plain if vocabulary == "plain" else own(call_format), 0
    for seed in range(8):
        choice: Choice = "required" if seed % 2 else "auto"
        opening = "" if call_format.only_first or choice == "required" else "So: "
        mark = call_format.mark + ("now\n" if call_format.is_named else "")
        text, has_ended = speaks.answer(call_format, use(choice), opening + mark, seed, 600)
        if not has_ended:
            continue
        ended += 1
        reader = CallReader(call_format, TOOLS)
        said, calls = read(reader, [text])
        assert (said, reader.is_complete, reader.n_calls > 0) == (opening, True, True)
        for name, arguments in calls:
            check(next(tool for tool in TOOLS if tool.name == name), arguments)
    assert ended >= 3


def check(tool: Tool, arguments: dict[str, Any]) -> None:
    """Arguments follow the schema of a tool."""
    assert set(tool.parameters.get("required", [])) <= arguments.keys() <= tool.parameters["properties"].keys()
    if tool is WEATHER:
        assert isinstance(arguments["city"], str)
        assert len(arguments["city"]) <= 30
        assert arguments.get("days", 1) in range(1, 10)
        assert arguments.get("unit", "kelvin") in ("celsius", "kelvin")
    if tool is NOTE:
        assert arguments["text"] is None or len(arguments["text"]) <= 20
        assert all(isinstance(tag, str) for tag in arguments["tags"])
        assert set(arguments.get("about", {"done": True})) == {"done"}


KINDS = [
    next(one for one in FORMATS if one.name == name)
    for name in ("hermes", "qwen-coder", "glm", "gemma-4", "minimax-m3", "kimi-k3")
]
TREE = Tool("plant", "Plants a tree.", {
    "type": "object", "required": ["root"], "additionalProperties": False,
    "properties": {
        "root": {"$ref": "#/$defs/node"}, "note": {"type": "string", "pattern": "^[a-c]{1,3}$"},
        "many": {"type": "array", "items": {"enum": ["x", 1, None]}, "minItems": 1, "maxItems": 2},
        "share": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "minLength": 2,
                                                                            "maxLength": 4}]},
    },
    "$defs": {"node": {
        "type": "object", "required": ["leaf"], "additionalProperties": False,
        "properties": {"leaf": {"type": "boolean"}, "above": {"type": "array", "items": {"$ref": "#/$defs/node"},
                                                              "maxItems": 1}},
    }},
})  # fmt: skip
TREES = (
    {"root": {"leaf": True}},
    {"root": {"leaf": False, "above": [{"leaf": True, "above": []}]}, "note": "abc", "many": [None, 1], "share": "abc"},
    {"root": {"leaf": False}, "many": ["x"], "share": 0.25},
)


def is_tree(arguments: dict[str, Any]) -> bool:
    def is_node(node: Any) -> bool:
        above = node.get("above", [])
        return isinstance(node["leaf"], bool) and node.keys() <= {"leaf", "above"} and len(above) < 2 and all(
            map(is_node, above)
        )  # fmt: skip

    many, share = arguments.get("many", [1]), arguments.get("share", 0)
    return (
        is_node(arguments["root"])
        and re.fullmatch("[a-c]{1,3}", arguments.get("note", "a")) is not None
        and 1 <= len(many) <= 2
        and all(one in ("x", 1, None) for one in many)
        and (2 <= len(share) <= 4 if isinstance(share, str) else 0 <= share <= 1)
    )


@pytest.mark.parametrize("call_format", KINDS, ids=lambda one: one.name)
@pytest.mark.parametrize("vocabulary", ["plain", "own"])
def test_nested_and_recursive_arguments(plain: Speaker, call_format: CallFormat, vocabulary: str) -> None:
    speaks, of_use = plain if vocabulary == "plain" else own(call_format), use("required", False, tools=(TREE,))
    for tree in TREES:
        text = call_format.write([Call("plant", tree)])
        assert speaks.answer(call_format, of_use, text) == (text, True)
    ended = 0
    for seed in range(8):
        text, has_ended = speaks.answer(call_format, of_use, "", seed, 400)
        if has_ended:
            _, calls = read(CallReader(call_format, (TREE,)), [text])
            assert all(is_tree(arguments) for _, arguments in calls), text
            ended += 1
    assert ended


@pytest.mark.parametrize("call_format", KINDS, ids=lambda one: one.name)
def test_arguments_of_a_referenced_schema_with_a_quote_in_their_name(plain: Speaker, call_format: CallFormat) -> None:
    named = {"type": "object", "properties": {'a"b': {"type": "string"}}, "required": ['a"b']}
    tool, given = Tool("t", "", {"$ref": "#/$defs/it", "$defs": {"it": named}}), {'a"b': "1234"}
    text = call_format.write([Call("t", given)])
    assert plain.answer(call_format, use("required", tools=(tool,)), text) == (text, True)
    assert read(CallReader(call_format, (tool,)), [*text]) == ("", [("t", given)])


# MiniMax M3 writes empty objects, lists and texts alike.
@pytest.mark.parametrize("call_format", [one for one in KINDS if not one.tag_mark], ids=lambda one: one.name)
def test_arguments_of_any_kind(plain: Speaker, call_format: CallFormat) -> None:
    tool = Tool("keep", "", {"type": "object", "properties": {"it": {"type": "object"}, "them": {"type": "array"}}})
    given = {"it": {"a": {"b": [1, "two", None, True]}, "c": -2.5}, "them": [[], {}, "x"]}
    text = call_format.write([Call("keep", given)])
    found, has_ended = plain.answer(call_format, use("required", tools=(tool,)), text)
    assert (found, has_ended) == (text, True)
    assert read(CallReader(call_format, (tool,)), [*found]) == ("", [("keep", given)])


@pytest.mark.parametrize("call_format", KINDS, ids=lambda one: one.name)
def test_a_pattern_may_hold_any_character(plain: Speaker, call_format: CallFormat) -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": r"^(\/|/\\)[a-c]/?\.$"}}}
    of_use = use("required", tools=(Tool("a", "", {**schema, "required": ["p"]}),))
    for value, fits in (("/a.", True), ("/\\b/.", True), ("/d.", False), ("/a/", False)):
        text = call_format.write([Call("a", {"p": value})])
        assert (plain.answer(call_format, of_use, text, most=200)[0] == text) == fits


@pytest.mark.parametrize("call_format", KINDS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("b", "abc", "acc"), ("^b", "bcc", "abc"), ("b$", "ab", "bc"), ("^a|b$", "axx", "xax"), ("^a|b$", "xxb", "xbx"),
        ("^(a|b)$", "b", "ab"), ("^[|(]$", "(", "a"), (r"^\$$", "$", "$a"), ("^$", "", "a"),
    ],
)  # fmt: skip
def test_a_pattern_is_searched_in_a_text(
    plain: Speaker, call_format: CallFormat, pattern: str, fitting: str, other: str
) -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": pattern}}, "required": ["p"]}
    of_use = use("required", tools=(Tool("a", "", schema),))
    for value, fits in ((fitting, True), (other, False)):
        text = call_format.write([Call("a", {"p": value})])
        assert (plain.answer(call_format, of_use, text, most=200)[0] == text) == fits


@pytest.mark.parametrize("call_format", KINDS, ids=lambda one: one.name)
def test_a_schema_that_branches_widely_is_used_or_refused_in_bounded_time(
    plain: Speaker, call_format: CallFormat
) -> None:  # fmt: skip
    chain = {f"n{i}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}}] * 9} for i in range(40)}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n0"}},
        "$defs": {**chain, "n40": {"type": "null"}},
    }
    itself = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}}
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 99} for i in range(900)}}
    patterns = ("^(a|aa)+(a|aa)+(a|aa)+$", "^(.{1,9999}x){1,9999}$", 'a\\\\/ "x"\nstart: "y"', "(", "a|^b$", "[/]/\\/")
    slow = [{"type": "object", "properties": {"a": {"type": "string", "pattern": one}}, "required": ["a"]}
            for one in patterns]  # fmt: skip
    for one in (
        *slow,
        schema,
        itself,
        wide,
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"anyOf": [{}] * 999}}},
    ):
        began = time.process_time()
        with suppress(InvalidRequestError):
            plain.answer(call_format, use("required", tools=(Tool("a", "", one),)), "", most=20)
        assert time.process_time() - began < 20


def test_a_long_chain_of_references_overflows_no_stack(plain: Speaker) -> None:
    chain = {f"n{i}": {"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}} for i in range(1000)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n0"}}, "required": ["a"],
              "$defs": {**chain, "n1000": {"type": "null"}}}  # fmt: skip
    of_use, made = use("required", tools=(Tool("a", "", schema),)), list[str]()
    before = threading.stack_size(1 << 20)  # as small as a thread's may be on Windows
    thread = threading.Thread(target=lambda: made.append(plain.answer(HERMES, of_use, "", most=20)[0]))
    thread.start()
    thread.join()  # it puts back the size it found, so this has to come after it
    threading.stack_size(before)
    assert "arguments" in made[0]


@pytest.mark.parametrize("n_entries", range(8))
def test_lists_with_commas_leave_out_only_what_may_be_left_out(n_entries: int) -> None:
    for needed in itertools.product((False, True), repeat=n_entries):
        entries = [(f'"{i}"', is_needed) for i, is_needed in enumerate(needed)]
        rules = dict(rule.split(": ", 1) for rule in with_commas("r", entries, ","))
        pattern = rules["r"].replace('"', "")
        while names := re.findall(r"r_\w+", pattern):
            for name in names:
                pattern = re.sub(rf"{name}\b", f"({rules[name]})".replace('"', ""), pattern)
        for chosen in itertools.product((False, True), repeat=n_entries):
            text = ",".join(str(i) for i in range(n_entries) if chosen[i])
            allowed = all(a <= b for a, b in zip(needed, chosen, strict=True))
            assert bool(re.fullmatch(pattern.replace(" ", ""), text)) == allowed


def test_rules_for_many_entries_are_not_nested_deeply() -> None:
    rules = dict(rule.split(": ", 1) for rule in with_commas("r", [('"a"', False)] * 900, ","))

    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(one) for one in re.findall(r"r_\w+", rules[name])), default=0)

    assert depth("r") < 16


@pytest.mark.parametrize("call_format", PLAIN, ids=lambda one: one.name)
def test_without_a_choice_there_is_no_call(plain: Speaker, call_format: CallFormat) -> None:
    for speaks in (plain, own(call_format)):
        text, _ = speaks.answer(call_format, use("none"), call_format.write(CALLS[:1]), most=300)
        assert read(CallReader(call_format, TOOLS), [text])[1] == []


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("json_schema", {"type": "boolean"}), Constraint("regex", "true|false"),
        Constraint("choice", ["true", "false"]), Constraint("grammar", 'root ::= "true" | "false"'),
        Constraint("grammar", 'start: "true" | /fals[e]/ // }'),
    ],
    ids=str,
)  # fmt: skip
def test_a_call_or_an_answer_under_a_constraint(plain: Speaker, constraint: Constraint) -> None:
    call = HERMES.write(CALLS[:1])
    assert plain.answer(HERMES, use(), call, constraint=constraint) == (call, True)
    assert plain.answer(HERMES, use(), "true", constraint=constraint) == ("true", True)
    assert plain.answer(HERMES, use("none"), call, constraint=constraint)[0] in ("true", "false")


HARMONY_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>")
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
HARMONY_CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}'


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize(
    "script",
    [
        HARMONY_CALL,
        ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Rome"}',
        THOUGHT + HARMONY_CALL,
        THOUGHT + "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + HARMONY_CALL,
    ],
)
def test_harmony_calls_in_each_order_of_the_header(choice: Choice, script: str) -> None:
    text, has_ended = speaker(*HARMONY_MARKS).answer(HARMONY, use(choice), script)
    assert has_ended
    splitter = ReplySplitter()
    thought, answer = splitter.append(text)
    assert thought.startswith("Hm." if script.startswith(THOUGHT) else "")
    assert read(CallReader(HARMONY, TOOLS), [answer]) == ("", [("get_weather", {"city": "Rome"})])


def test_harmony_answers_in_the_final_channel_unless_it_must_call() -> None:
    speaks, script = speaker(*HARMONY_MARKS), THOUGHT + "<|channel|>final<|message|>Hello"
    assert speaks.answer(HARMONY, use("auto"), script) == ("<think>Hm.</think>Hello", True)
    assert speaks.answer(HARMONY, use("none"), script) == ("<think>Hm.</think>Hello", True)
    assert "Hello" not in speaks.answer(HARMONY, use("required"), script, most=300)[0]
    text, _ = speaks.answer(HARMONY, use("none"), HARMONY_CALL, most=300)
    assert read(CallReader(HARMONY, TOOLS), [text])[1] == []


def test_harmony_needs_its_special_tokens(plain: Speaker) -> None:
    with pytest.raises(InvalidRequestError, match="special tokens"):
        plain.answer(HARMONY, use(), "")


def test_another_format_in_a_vocabulary_of_harmony() -> None:
    header, call = "<|channel|>final<|message|>", HERMES.write(CALLS[:1])
    assert speaker(*HARMONY_MARKS).answer(HERMES, use(), f"{header}So: {call}") == (f"So: {call}", True)


KIMI = next(one for one in FORMATS if one.name == "kimi-k3")
KIMI_CALL = f"{KIMI.closing}{KIMI.write(CALLS[:1])}{KIMI.final}"


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize(
    ("choice", "script", "text", "calls"),
    [
        ("auto", f"So <|.{KIMI.closing}{KIMI.final}", "So <|.", []), ("auto", f"So.{KIMI_CALL}", "So.", CALLS[:1]),
        ("required", KIMI_CALL, "", CALLS[:1]), ("none", f"So.{KIMI.closing}", "So.", []),
    ],
)  # fmt: skip
def test_kimi_k3_shows_neither_the_tags_of_the_answer_nor_calls(
    thinks: bool, choice: Choice, script: str, text: str, calls: list[Call]
) -> None:
    before = "Hm.<|close|>think<|sep|><|open|>response<|sep|>" if thinks else ""
    opened = "<|open|>think<|sep|>" if thinks else "<|open|>response<|sep|>"
    speaks = speaker(*KIMI_MARKS, template=f"{{{{ messages[0].content }}}}{opened}")
    prompt = speaks.tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    answer, has_ended = speaks.answer(KIMI, use(choice), before + script, prompt=prompt)
    splitter = ReplySplitter()
    splitter.append(speaks.tokenizer.opened_thought(prompt))
    thought, answer = splitter.append(answer)
    assert (thought, has_ended) == ("Hm." if thinks else "", True)
    assert read(CallReader(KIMI, TOOLS), [*answer]) == (text, [(call.name, call.arguments) for call in calls])


@pytest.mark.parametrize(
    ("begun", "prompt"),
    [
        ("<|open|>think<|sep|>Hm", "Hi<|open|>think<|sep|>Hm"),
        ("<|open|>think<|sep|>Hm.<|close|>think<|sep|>\n\n", "Hi<|open|>think<|sep|>Hm.<|close|>think<|sep|>"),
        ("<|open|>think<|sep|>Hm.<|close|>think<|sep|>So <|sep|>",
         "Hi<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>So <|sep|>"),
        ("So", "Hi<|open|>response<|sep|>So"),
    ],
)  # fmt: skip
def test_an_answer_of_kimi_k3_is_continued_where_it_ends(begun: str, prompt: str) -> None:
    opened = "<|open|>{{ 'think' if thinking is not defined or thinking else 'response' }}<|sep|>"
    tokenizer = speaker(*KIMI_MARKS, template=f"{{{{ messages[0].content }}}}{opened}").tokenizer
    ids = tokenizer.encode_continued([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": begun}])
    assert tokenizer.decode(ids, skip_special=False) == prompt
    n_marks = prompt.removesuffix("So <|sep|>").count("<|")
    assert sum(tokenizer.is_special(i) for i in ids) == n_marks, "those of the answer are text"


SPELT = {
    # the marks, the end of the prompt, a reply, what is shown of it, and its thought and answer
    "solar": (
        (*SOLAR.marks, *SOLAR_ENDS), "<|begin|>assistant",
        "<|think|>Hm <|e.<|end|><|begin|>assistant<|content|>So.<|end|>",
        "<|think|>Hm <|e.<|end|><|begin|>assistantSo.", "Hm <|e.", "So.",
    ),
    "solar without a thought": (
        (*SOLAR.marks, *SOLAR_ENDS), "<|think|><|end|><|begin|>assistant", "<|content|>So.<|end|>", "So.", "", "So.",
    ),
    "apriel": (
        (), f"{APRIEL.opening}\n", f"Hm [BEGIN.\n{APRIEL.end}\nSo.\n[END FINAL RESPONSE]",
        "<think>\nHm [BEGIN.\n</think>\nSo.\n", "\nHm [BEGIN.\n", "So.\n",
    ),
    "apriel, which opens its thought": (
        (), "", f"{APRIEL.opening} Hm{APRIEL.end}So.", "<think> Hm</think>So.", " Hm", "So.",
    ),
    "apriel, which names its marks": (
        (), "", f"{APRIEL.opening} Hm{APRIEL.end}{APRIEL.opening} {APRIEL.end}",
        f"<think> Hm</think>{APRIEL.opening} {APRIEL.end}", " Hm", f"{APRIEL.opening} {APRIEL.end}",
    ),
    "apriel without a thought": (
        (), "", f"So. {APRIEL.opening} 1", f"So. {APRIEL.opening} 1", "", f"So. {APRIEL.opening} 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELT)
def test_thoughts_in_other_spellings(name: str) -> None:
    marks, opened, reply, shown, thought, answer = SPELT[name]
    template = f"{{{{ messages[0].content }}}}{opened}{{# {APRIEL.end if not marks else ''} #}}"
    tokenizer = speaker(*marks, template=template).tokenizer
    asked = [{"role": "user", "content": "Hi"}]
    prompt, stream, splitter = tokenizer.encode_chat(asked), tokenizer.stream(), ReplySplitter()
    ids = tokenizer.encode(reply, special=True)
    special = {i: text for text, i in tokenizer.special_ids.items()}
    ends = {special[i] for i in text_vocabulary.ends_of([i for i in special if special[i] == SOLAR.last], special)}
    assert ends == set(SOLAR_ENDS if marks else ())
    texts = [tokenizer.opened_thought(prompt), *map(stream.push, ids), stream.flush()]
    assert "".join(texts) == shown
    parts = [*map(splitter.append, texts), splitter.finish()]
    assert ("".join(one for one, _ in parts), "".join(one for _, one in parts)) == (thought, answer)
    whole = prompt + ids
    for end in (shown.index("Hm") + 2 if thought else len(shown.rstrip()), len(shown.rstrip())):
        begun = tokenizer.encode_continued([*asked, {"role": "assistant", "content": shown[:end]}])
        assert begun == whole[: len(begun)]
        assert len(begun) > len(prompt)


@pytest.mark.parametrize("name", ["solar", "apriel"])
def test_thoughts_in_other_spellings_are_limited(name: str) -> None:
    marks, opened, reply, *_ = SPELT[name]
    template = f"{{{{ messages[0].content }}}}{opened}{{# {APRIEL.end if not marks else ''} #}}"
    tokenizer = speaker(*marks, template=template).tokenizer
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    script = iter([*tokenizer.encode(reply.partition("Hm")[0], special=True), *tokenizer.encode("abc" * 20)])
    sampler, stream = limit_thought(lambda logits, history: next(script), tokenizer, prompt, 5), tokenizer.stream()
    text = tokenizer.opened_thought(prompt)
    text += "".join(stream.push(sampler(np.zeros(1, np.float32), [])) for _ in range(50))
    found = split(text)
    assert found.thought in ("abcab", "abca")
    assert "abcabc" in found.answer


@pytest.mark.parametrize(("opening", "end"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
@pytest.mark.parametrize("opened", [False, True])
def test_a_begun_thought_is_continued_with_its_special_tokens(opening: str, end: str, opened: bool) -> None:
    template = "{{ messages[0].content }}" + (opening if opened else "")
    tokenizer = speaker(opening, end, template=template).tokenizer
    for begun, n_marks in ((f"{opening}Hm", 1), (f"{opening}Hm.{end}\n\nSo {end}", 2)):
        ids = tokenizer.encode_continued([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": begun}])
        assert tokenizer.decode(ids, skip_special=False) == f"Hi{begun}"
        assert sum(tokenizer.is_special(i) for i in ids) == n_marks


def test_functionary_names_a_recipient_in_each_answer() -> None:
    functionary = next(one for one in FORMATS if one.name == "functionary-3.2")
    speaks = speaker(template="{{ messages[0].content }}{# '>>>all\n' #}>>>")
    encode, asked = speaks.tokenizer.encode_continued, [{"role": "user", "content": "Hi"}]
    said = [*asked, {"role": "assistant", "content": "So"}]
    prompts = [speaks.tokenizer.decode(encode(one, tools=tools)) for one in (asked, said) for tools in (None, [])]
    assert prompts == ["Hi>>>all\n", "Hi", "Hi>>>all\nSo", "Hi>>>all\nSo"]
    for text in ("So:\n>>> 1 + 1\n>>>get it", "", "all", "So >>>", ">>>now"):
        for calls in ([], CALLS):
            written = f">>>all\n{text}{functionary.write(calls)}"
            assert speaks.answer(functionary, use(), written) == (written, True)
            found = read(CallReader(functionary, TOOLS), [*written])
            assert found == (text, [(call.name, call.arguments) for call in calls])


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"), ({"type": "string"}, ' "a"\n', ' "a"\n'), ({"type": "integer"}, "5", 5),
        ({"type": ["string", "null"]}, "null", None), ({"type": ["string", "null"]}, "5", "5"), ({}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", 5), ({}, "five", "five"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5.5", "5.5"), ({"enum": ["1", 2]}, "1", "1"),
        ({"enum": ["1", 2]}, "2", 2), ({"$ref": "#/$defs/a"}, "[1]", [1]), ({"type": "array"}, "[1]", [1]),
        ({"type": "boolean"}, "true", True), ({"type": ["boolean", "string"]}, "1", "1"),
    ],
)  # fmt: skip
def test_a_text_without_quotes_means_what_its_schema_says(schema: Any, text: str, value: Any) -> None:
    found = read_value(text, schema, {"$defs": {"a": {"type": "array"}}})
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("call_format", [HERMES, next(one for one in FORMATS if one.parameter)])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 2}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"enum": ["x" * 70_000]}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    ],
    ids=lambda schema: str(schema)[:80],  # Windows limits what pytest puts into the environment
)
def test_a_tool_whose_schema_makes_no_sense_is_refused(plain: Speaker, call_format: CallFormat, schema: Any) -> None:
    with pytest.raises(InvalidRequestError, match="schema"):
        plain.answer(call_format, use(tools=(Tool("a", "", schema),)), "")


# Formats that models with these vocabularies write. HEARTH_LLAMA_CPP names llama.cpp's source.
FILES = Path(os.environ.get("HEARTH_LLAMA_CPP", "/nowhere"), "models")
VOCABULARIES = {
    "qwen2": "hermes", "qwen35": "qwen-coder", "llama-bpe": "llama-3", "command-r": "command", "gemma-4": "gemma-4",
    "deepseek-llm": "deepseek", "phi-3": "hermes", "llama-spm": "mistral",
}  # fmt: skip


@pytest.mark.skipif(not FILES.exists(), reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
@pytest.mark.parametrize("name", VOCABULARIES)
def test_calls_with_the_vocabularies_of_llama_cpp(name: str) -> None:
    tokenizer = Tokenizer.from_gguf(open_gguf(FILES / f"ggml-vocab-{name}.gguf").metadata)
    speaks = Speaker(tokenizer, sorted(tokenizer.stop_token_ids))
    call_format = next(one for one in FORMATS if one.name == VOCABULARIES[name])
    calls = CALLS[:1] if call_format.is_single else CALLS
    for choice, said in (("auto", "" if call_format.only_first else "I look.\n"), ("required", "")):
        text = said + call_format.write(calls)
        assert speaks.answer(call_format, use(choice), text) == (text, True)
        found = read(CallReader(call_format, TOOLS), [text])
        assert found == (said, [(call.name, call.arguments) for call in calls])
