"""SentencePiece vocabularies out of GGUF metadata, against sentencepiece and transformers made from the same model."""

from __future__ import annotations

import functools
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_texts import NASTY, SENTENCES, assert_prompts_share_their_beginnings, texts

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.text.score_merges import merges_from_scores
from engine.text.tokenizer import Tokenizer

LINES = [*SENTENCES, *(" ".join(SENTENCES[i:]) for i in range(4)), "the cat and the other cats are there " * 3,
         "aaaa aaaaaaaa aaaaaaaaaaaaaaaa", "    if (x) {        return;    }", "== == ======== =="] * 4  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "like LLaMA": {"add_dummy_prefix": True, "split_digits": True},
    "like Gemma": {
        "add_dummy_prefix": False,
        "split_digits": True,
        "user_defined_symbols": ["<tool>", "\n\n", "\n\n\n"],
    },
    "across spaces": {"add_dummy_prefix": False, "split_by_whitespace": False},
    "without bytes": {"add_dummy_prefix": True, "byte_fallback": False},
}


@functools.cache
def model(variant: str) -> sentencepiece.SentencePieceProcessor:
    written = io.BytesIO()
    options = {"byte_fallback": True, "character_coverage": 0.98, **VARIANTS[variant]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, model_type="bpe", vocab_size=900,
        remove_extra_whitespaces=False, normalization_rule_name="identity", allow_whitespace_only_pieces=True,
        minloglevel=2, num_threads=1, hard_vocab_limit=False, **options,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def facts(variant: str) -> dict[str, Any]:
    """What a converter writes of the model into a GGUF file."""
    cpu = model(variant)

    def kind(i: int) -> int:
        if cpu.is_unknown(i):
            return 2
        if cpu.is_control(i):
            return 3
        if cpu.id_to_piece(i) in VARIANTS[variant].get("user_defined_symbols", ()):
            return 4
        return 6 if cpu.is_byte(i) else 5 if cpu.is_unused(i) else 1

    ids = range(cpu.get_piece_size())
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [cpu.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [cpu.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": [kind(i) for i in ids],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": VARIANTS[variant]["add_dummy_prefix"],
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }


@functools.cache
def gguf(variant: str) -> Tokenizer:
    return Tokenizer.from_gguf(facts(variant))


@functools.cache
def of_transformers(variant: str) -> Any:
    """LlamaTokenizerFast with transformers' own merges; its newer form leaves a text's own first space alone."""
    from transformers import LlamaTokenizerFast
    from transformers.tokenization_utils_base import generate_merges

    values = facts(variant)
    tokens = values["tokenizer.ggml.tokens"]
    return LlamaTokenizerFast(
        vocab={text: i for i, text in enumerate(tokens)},
        merges=generate_merges(
            {text: i for i, text in enumerate(tokens)},
            dict(zip(tokens, values["tokenizer.ggml.scores"], strict=True)),
            skip_tokens=[t for t, kind in zip(tokens, values["tokenizer.ggml.token_type"], strict=True) if kind != 1],
        ),
        add_prefix_space=VARIANTS[variant]["add_dummy_prefix"],
    )


@functools.cache
def as_published(variant: str) -> Any:
    """The same in the form of Llama 2's and Gemma's tokenizer.json: a prefix by normalization."""
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    document = json.loads(of_transformers(variant).backend_tokenizer.to_str())
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = [{"type": "Prepend", "prepend": "▁"}] if VARIANTS[variant]["add_dummy_prefix"] else []
    document |= {"normalizer": {"type": "Sequence", "normalizers": [*prefix, spaces]}, "pre_tokenizer": None}
    return PreTrainedTokenizerFast(tokenizer_object=Backend.from_str(json.dumps(document)))


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream()
    return "".join([*map(stream.push, ids), stream.flush()])


def check_against_sentencepiece(variant: str, text: str) -> None:
    ids = gguf(variant).encode(text)
    assert ids == model(variant).encode(text)
    if "without" not in variant:
        assert gguf(variant).decode(ids) == streamed(gguf(variant), ids) == text.replace("▁", " ")


def check_against_transformers(variant: str, text: str) -> None:
    ids = gguf(variant).encode(text)
    published = as_published(variant)
    assert ids == published.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert gguf(variant).decode(ids) == published.decode(ids, skip_special_tokens=True)
    if text[:1] not in (" ", "▁"):
        assert ids == of_transformers(variant).encode(text, add_special_tokens=False, split_special_tokens=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:14]))
def test_ids_are_sentencepieces(variant: str, text: str) -> None:
    check_against_sentencepiece(variant, text)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_ids_are_sentencepieces_for_any_text(variant: str, text: str) -> None:
    check_against_sentencepiece(variant, text)


@pytest.mark.parametrize("variant", ["like LLaMA", "across spaces"])
@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:14]))
def test_ids_and_texts_are_transformers(variant: str, text: str) -> None:
    check_against_transformers(variant, text)


@pytest.mark.parametrize("variant", ["like LLaMA", "across spaces"])
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_ids_and_texts_are_transformers_for_any_text(variant: str, text: str) -> None:
    check_against_transformers(variant, text)


@pytest.mark.parametrize("make", [of_transformers, as_published])
@pytest.mark.parametrize("variant", ["like LLaMA", "across spaces"])
def test_a_directory_of_the_same_model_gives_the_same(variant: str, make: Any, tmp_path: Path) -> None:
    reference = make(variant)
    reference.save_pretrained(tmp_path)
    tokenizer = Tokenizer.from_files(tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json")
    for text in NASTY:
        ids = reference.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == streamed(tokenizer, ids) == reference.decode(ids, skip_special_tokens=True)


@given(ids=st.lists(st.integers(0, 700), max_size=30))
def test_streaming_is_decoding_for_any_ids(ids: list[int]) -> None:
    tokenizer = gguf("like LLaMA")
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


def test_special_tokens_come_from_special_parsing_alone() -> None:
    tokenizer = gguf("like LLaMA")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.adds_bos) == (1, (2,), True)
    assert tokenizer.encode("<s>a</s>", special=True)[0] == 1
    assert tokenizer.encode("<s>a</s>", special=True)[-1] == 2
    assert not {0, 1, 2} & set(tokenizer.encode("<s>a</s><unk>"))
    assert tokenizer.decode(tokenizer.encode("<s>a</s><unk>")) == "<s>a</s><unk>"
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"
    assert 0 not in gguf("without bytes").encode("<unk>"), "only characters that it cannot spell are unknown"


def test_a_space_is_put_behind_every_special_token() -> None:
    """As Llama 2's own tokenizer.json and llama.cpp do."""
    tokenizer = gguf("like LLaMA")
    assert tokenizer.encode("<s>the</s>the", special=True) == [1, *tokenizer.encode("the"), 2, *tokenizer.encode("the")]


def test_phi_3s_marks_swallow_the_white_space_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = facts("like LLaMA")
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    values |= {
        "general.architecture": "phi3",
        "tokenizer.ggml.tokens": [*tokens, "<|user|>", "<|end|>"],
        "tokenizer.ggml.token_type": [*types, 3, 3],
        "tokenizer.ggml.scores": [*values["tokenizer.ggml.scores"], 0.0, 0.0],
    }
    tokenizer = Tokenizer.from_gguf(values)
    user, end = len(tokens), len(tokens) + 1
    expected = [1, *tokenizer.encode("\n"), user, *tokenizer.encode("the"), end]
    assert tokenizer.encode("<s>\n<|user|>\n\nthe<|end|>\n", special=True) == expected
    assert tokenizer.eos_token_ids == (2, end)
    monkeypatch.setattr("engine.text.tokenizer._LONG", 0)
    assert_prompts_share_their_beginnings(tokenizer, ["<|user|>", "<|end|>", "<s>"])


@pytest.mark.parametrize(("architecture", "swallows"), [("phi3", True), ("gemma", False)])
def test_an_end_of_text_that_is_no_mark_is_found_in_text(architecture: str, swallows: bool) -> None:
    """Phi-3's and Gemma's tokenizer.json add </s> as an ordinary token; Phi-3's takes the white space behind it."""
    from tokenizers import Tokenizer as Backend

    values = facts("like LLaMA")
    values["general.architecture"] = architecture
    values["tokenizer.ggml.token_type"][2] = 4
    values["tokenizer.ggml.eos_token_id"] = values["tokenizer.ggml.bos_token_id"]
    original = json.loads(as_published("like LLaMA").backend_tokenizer.to_str())
    for token in original["added_tokens"]:
        if token["content"] == "</s>":
            token |= {"special": False, "normalized": False, "rstrip": swallows}
    reference, tokenizer = Backend.from_str(json.dumps(original)), Tokenizer.from_gguf(values)
    for text in ("</s>", "the</s>", "</s> the", "the </s>\n\n the", "</s>  </s>x", "a </s"):
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.encode(text, special=True) == tokenizer.encode(text)


def test_user_defined_runs_of_spaces_are_found_in_text() -> None:
    """Gemma's converter writes them with spaces, others with the fake for a space."""
    for text in ("   ", "▁▁▁"):
        values = facts("across spaces")
        values["tokenizer.ggml.tokens"][500] = text
        values["tokenizer.ggml.token_type"][500] = 4
        tokenizer = Tokenizer.from_gguf(values)
        assert 500 in tokenizer.encode("the   cat")
        assert tokenizer.decode(tokenizer.encode("the   cat")) == "the   cat"


def test_merges_follow_the_scores_and_use_every_cut() -> None:
    tokens = ["a", "b", "ab", "ba", "aba", "x"]
    assert merges_from_scores(tokens, [0, 0, -2, -1, -3, 0], [0, 1, 2, 3, 4]) == [
        ("b", "a"), ("a", "b"), ("ab", "a"), ("a", "ba"),
    ]  # fmt: skip
    assert merges_from_scores(tokens, [0] * 6, [1, 2, 4]) == []
    assert merges_from_scores([], [], []) == []
    assert merges_from_scores(["", "a", "aa"], [0, 0, 0], [0, 1, 2]) == [("a", "a")]


@given(tokens=st.lists(st.text("ab▁é\0😀", min_size=1, max_size=7), unique=True, max_size=60))
def test_every_pair_of_pieces_that_makes_a_piece_is_a_merge(tokens: list[str]) -> None:
    scores = [-float(i) for i in range(len(tokens))]
    assert merges_from_scores(tokens, scores, list(range(len(tokens)))) == [
        (text[:cut], text[cut:])
        for text in tokens
        for cut in range(len(text) - 1, 0, -1)
        if text[:cut] in tokens and text[cut:] in tokens
    ]


def joined_by_scores(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's rule, said plainly: join the neighbours with the best score, from the left, until none join."""
    parts = list(text)
    while True:
        wholes = [(scores[whole], -i) for i in range(len(parts) - 1) if (whole := parts[i] + parts[i + 1]) in scores]
        if not wholes:
            return parts
        i = -max(wholes)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def test_any_scores_join_as_the_rule_says() -> None:
    """Also where a run of one letter can be cut in many ways."""
    rng = random.Random(0)
    for _ in range(60):
        pieces = {"a", "b", *("a" * n for n in range(1, 11) if rng.random() < 0.7)}
        while len(pieces) < 16:
            pieces.add((rng.choice(sorted(pieces)) + rng.choice(sorted(pieces)))[:9])
        listed = sorted(pieces, key=lambda piece: (len(piece) > 1, rng.random()))
        tokens = ["<unk>", "<s>", "</s>", *listed]
        tokenizer = Tokenizer.from_gguf({
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
            "tokenizer.ggml.token_type": [2, 3, 3, *[1] * len(listed)],
            "tokenizer.ggml.add_space_prefix": False,
        })  # fmt: skip
        scores = {piece: -float(i) for i, piece in enumerate(tokens) if len(piece) > 1}
        for _ in range(20):
            text = "".join(rng.choices("aaaaaab", k=rng.randint(1, 40)))
            assert [tokens[i] for i in tokenizer.encode(text)] == joined_by_scores(text, scores)


def test_an_absurd_piece_is_refused() -> None:
    values = facts("like LLaMA")
    values["tokenizer.ggml.tokens"][600] = "a" * 100_000
    with pytest.raises(ModelFormatError, match="100000 characters"):
        Tokenizer.from_gguf(values)


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "x",
    "\0",
    [],
    [1],
    ["x"],
    ["x"] * 900,
    [1.5] * 900,
    b"x",
]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_odd_value_anywhere_ends_in_a_clear_error_or_a_tokenizer(kind: str) -> None:
    good = {**facts("like LLaMA"), "tokenizer.ggml.model": kind, "tokenizer.ggml.merges": ["▁ a"]}
    good |= {"tokenizer.ggml.precompiled_charsmap": [], "tokenizer.chat_template": "x"}
    refused = 0
    for key in good:
        for value in ODD:
            try:
                tokenizer = Tokenizer.from_gguf({**good, key: value})
                tokenizer.decode(tokenizer.encode("the cat <s> é", special=True))
            except (ModelFormatError, UnsupportedModelError):
                refused += 1
    assert 50 < refused < len(good) * len(ODD)


def test_merges_in_the_place_of_scores() -> None:
    """Gemma 4's files list the pairs that the scores of older ones imply."""
    of_scores = facts("like Gemma")
    tokens, types = of_scores["tokenizer.ggml.tokens"], of_scores["tokenizer.ggml.token_type"]
    ordinary = [i for i, kind in enumerate(types) if kind == 1]
    pairs = merges_from_scores(tokens, np.array(of_scores["tokenizer.ggml.scores"]), ordinary)
    of_merges = {**of_scores, "tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": list(map(" ".join, pairs))}
    del of_merges["tokenizer.ggml.scores"]
    ours = Tokenizer.from_gguf(of_merges)
    for text in (*SENTENCES, *NASTY):
        assert ours.encode(text) == gguf("like Gemma").encode(text)
    del of_merges["tokenizer.ggml.merges"]
    with pytest.raises(ModelFormatError, match="merges is missing"):
        Tokenizer.from_gguf(of_merges)
