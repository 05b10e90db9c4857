"""Directories without tokenizer.json: SentencePiece's file against sentencepiece, vocab.json against transformers."""

from __future__ import annotations

import functools
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from nasty_texts import NASTY, SENTENCES, texts
from samples.tiny_model import make_tiny_model
from test_splitting import document

from engine.conversion.convert import convert
from engine.errors import ModelFormatError, TokenizerMismatchError, UnsupportedModelError
from engine.loading.opening import read_tokenizer
from engine.model.weights import open_model
from engine.text.sentencepiece_model import parse_sentencepiece
from engine.text.tokenizer import Tokenizer

LINES = [*SENTENCES, *(" ".join(SENTENCES[i:]) for i in range(4)), "the cat and the other cats are there " * 3] * 4
PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe", **PLAIN},
    "bpe without a prefix": {"model_type": "bpe", "add_dummy_prefix": False, **PLAIN},
    "bpe with single spaces": {"model_type": "bpe", "normalization_rule_name": "identity"},
    "unigram": {"model_type": "unigram", **PLAIN},
    "unigram with single spaces": {"model_type": "unigram", "normalization_rule_name": "identity"},
    "unigram without bytes": {"model_type": "unigram", "byte_fallback": False, **PLAIN},
}


@functools.cache
def trained(variant: str, **more: Any) -> bytes:
    written = io.BytesIO()
    options = {"byte_fallback": True, "character_coverage": 0.98, **VARIANTS[variant], **more}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, vocab_size=800, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, **options,
    )  # fmt: skip
    return written.getvalue()


def directory(folder: Path, data: bytes, **config: Any) -> tuple[Path, Path]:
    (folder / "tokenizer.model").write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "tokenizer.model", folder / "tokenizer_config.json"


@functools.cache
def opened(variant: str) -> tuple[Tokenizer, sentencepiece.SentencePieceProcessor]:
    with tempfile.TemporaryDirectory() as name:
        tokenizer = Tokenizer.from_sentencepiece(*directory(Path(name), trained(variant)))
    return tokenizer, sentencepiece.SentencePieceProcessor(model_proto=trained(variant))


def check(variant: str, text: str) -> None:
    tokenizer, reference = opened(variant)
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text) or equally_good(variant, ids, text)
    if "single" not in variant and "without bytes" not in variant:
        assert tokenizer.decode(ids) == text.replace("▁", " ")


def equally_good(variant: str, ids: list[int], text: str) -> bool:
    """Whether a unigram model scores both ways to cut a text alike: then either may come out, by rounding."""
    _, reference = opened(variant)
    expected = reference.encode(text)
    scores = [sum(map(reference.get_score, each)) for each in (ids, expected)]
    pieces = ["".join(map(reference.id_to_piece, each)) for each in (ids, expected)]
    return "unigram" in variant and pieces[0] == pieces[1] and abs(scores[0] - scores[1]) < 1e-6 * abs(scores[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_are_sentencepieces(variant: str) -> None:
    for text in NASTY:
        check(variant, text)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_ids_are_sentencepieces_for_any_text(variant: str, text: str) -> None:
    check(variant, text)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_characters_are_rewritten_as_the_file_says(kind: str, tmp_path: Path) -> None:
    """By SentencePiece's usual table: compatibility characters are composed, controls vanish."""
    data = trained(kind, normalization_rule_name="nmt_nfkc")
    tokenizer = Tokenizer.from_sentencepiece(*directory(tmp_path, data))
    reference = sentencepiece.SentencePieceProcessor(model_proto=data)
    for text in ("ﬁne ½ １２３ ㍿", "Grüße", "a\u00a0b\u3000c", "x\ty", "e\u0301", "日本語のテキスト"):
        assert tokenizer.encode(text) == reference.encode(text), text


def test_the_parser_sees_what_sentencepiece_sees() -> None:
    for variant in VARIANTS:
        model = parse_sentencepiece(trained(variant), "x")
        reference = sentencepiece.SentencePieceProcessor(model_proto=trained(variant))
        ids = range(reference.get_piece_size())
        assert model.tokens == [reference.id_to_piece(i) for i in ids]
        assert model.scores == [reference.get_score(i) for i in ids]
        assert (model.unknown, model.bos, model.eos) == (reference.unk_id(), reference.bos_id(), reference.eos_id())
        assert [kind == 6 for kind in model.types] == [reference.is_byte(i) for i in ids]
        assert [kind == 3 for kind in model.types] == [reference.is_control(i) for i in ids]


def test_ids_that_a_file_renames_are_kept() -> None:
    model = parse_sentencepiece(trained("bpe", bos_id=-1, pad_id=0, unk_id=2, eos_id=1), "x")
    assert (model.unknown, model.bos, model.eos) == (2, -1, 1)


def test_special_tokens_and_what_was_added_later(tmp_path: Path) -> None:
    n = len(parse_sentencepiece(trained("bpe"), "x").tokens)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": n, "<tool>": n + 1}), encoding="utf-8")
    tokenizer = Tokenizer.from_sentencepiece(
        *directory(
            tmp_path,
            trained("bpe"),
            eos_token={"content": "</s>"},
            chat_template="T",
            added_tokens_decoder={
                "1": {"content": "<s>", "special": True},
                str(n + 4): {"content": "<|user|>", "special": True, "rstrip": True},
            },
        )
    )
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.adds_bos) == (1, (2, n), True)
    assert tokenizer.vocab_size == n + 5
    assert tokenizer.chat_template == "T"
    assert tokenizer.encode("<s>the", special=True) == [1, *tokenizer.encode("the")]
    assert not {1, n, n + 4} & set(tokenizer.encode("<s><|im_end|><|user|>"))
    assert n + 1 in tokenizer.encode("a<tool>b")
    assert tokenizer.encode("<|user|>\n\nthe", special=True) == [n + 4, *tokenizer.encode("the")]
    assert tokenizer.token_bytes(n + 2).decode() == f"[PAD{n + 2}]"


@pytest.mark.parametrize(("said", "bos"), [("", 1), (None, None), ("a", None)])
def test_what_a_configuration_says_of_bos(said: str | None, bos: int | None, tmp_path: Path) -> None:
    """Early conversions of LLaMA leave the text empty and mean the file's own."""
    tokenizer = Tokenizer.from_sentencepiece(*directory(tmp_path, trained("bpe"), bos_token=said))
    assert tokenizer.bos_token_id == (opened("bpe")[1].piece_to_id("a") if said == "a" else bos)


def test_a_unigram_model_begins_without_bos_unless_asked(tmp_path: Path) -> None:
    assert not opened("unigram")[0].adds_bos
    assert Tokenizer.from_sentencepiece(*directory(tmp_path, trained("unigram"), add_bos_token=True)).adds_bos


def test_a_gguf_holds_the_same_unigram_vocabulary() -> None:
    model = parse_sentencepiece(trained("unigram"), "x")
    tokenizer = Tokenizer.from_gguf({
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": model.tokens,
        "tokenizer.ggml.scores": model.scores,
        "tokenizer.ggml.token_type": model.types,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": False,
        "tokenizer.ggml.precompiled_charsmap": [],
    })  # fmt: skip
    assert (tokenizer.eos_token_ids, tokenizer.adds_bos) == ((2,), False)
    for text in NASTY:
        assert tokenizer.encode(text) == opened("unigram")[0].encode(text)


def test_pieces_that_are_no_text_are_found_in_none(tmp_path: Path) -> None:
    tokenizer = opened("unigram")[0]
    assert tokenizer.decode(tokenizer.encode("<0x41> </s> <unk>")) == "<0x41> </s> <unk>"
    assert not {0, 1, 2} & set(tokenizer.encode("<s></s><unk>"))


def test_a_token_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerMismatchError, match="bos_token '<bos>'"):
        Tokenizer.from_sentencepiece(*directory(tmp_path, trained("bpe"), bos_token="<bos>"))


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_kinds_are_named(kind: str, tmp_path: Path) -> None:
    data = trained("bpe", model_type=kind, byte_fallback=False)
    with pytest.raises(UnsupportedModelError, match=f"by {kind}"):
        Tokenizer.from_sentencepiece(*directory(tmp_path, data))


def test_a_model_directory_opens_by_its_sentencepiece_file_and_so_does_its_bundle(tmp_path: Path) -> None:
    n = len(parse_sentencepiece(trained("bpe"), "x").tokens)
    weights = {"model.embed_tokens.weight": np.zeros((n, 32), np.float32)}
    folder = make_tiny_model(
        tmp_path / "older", config={"vocab_size": n, "bos_token_id": 1, "eos_token_id": 2}, tensors=weights
    )
    (folder / "tokenizer.json").unlink()
    directory(folder, trained("bpe"))
    opened_model = open_model(folder)
    convert(folder, tmp_path / "bundle", codec="f16")
    for model in (opened_model, open_model(tmp_path / "bundle")):
        assert read_tokenizer(model).encode("the cat") == opened("bpe")[1].encode("the cat")


# --- vocab.json with merges.txt


@pytest.mark.parametrize("family", ["gpt-2", "qwen2"])
def test_two_files_give_transformers_ids(family: str, tmp_path: Path) -> None:
    from transformers import GPT2Tokenizer, Qwen2Tokenizer

    model = document(family)["model"]
    cls = {"gpt-2": GPT2Tokenizer, "qwen2": Qwen2Tokenizer}[family]
    reference = cls(vocab=dict(model["vocab"]), merges=[tuple(pair) for pair in model["merges"]])
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "#version: 0.2\n" + "\n".join(map(" ".join, model["merges"]))
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    config = {"tokenizer_class": cls.__name__, "eos_token": "<|im_end|>", "bos_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    paths = [tmp_path / name for name in ("vocab.json", "merges.txt", "tokenizer_config.json")]
    tokenizer = Tokenizer.from_pair(*paths)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids[0]) == (None, 2)
    for text in NASTY:
        if "<|endoftext|>" not in text:
            assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("vocab.json", '{"a": "x"}', "an id is not a number"),
        ("vocab.json", '{"a": 99999999999}', "an id is not a number"),
        ("vocab.json", '{"a": -1}', "an id is not a number"),
        ("vocab.json", "[]", "JSON object"),
        ("added_tokens.json", '{"a": 1e9}', "an id is not a number"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "a"}}}', "are invalid"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"9999999999": {"content": "a"}}}',
            "beside .* are invalid",
        ),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"1": 7}}', "beside .* are invalid"),
    ],
)
def test_lies_in_two_files(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}', encoding="utf-8")
    (tmp_path / "merges.txt").write_text("", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (tmp_path / name).write_text(content, encoding="utf-8")
    paths = [tmp_path / file for file in ("vocab.json", "merges.txt", "tokenizer_config.json")]
    with pytest.raises(ModelFormatError, match=words):
        Tokenizer.from_pair(*paths)
