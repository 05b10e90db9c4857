"""Vocabularies made to hurt: tokenizer.model, two-file directories, scores, tables and merges that lie."""

from __future__ import annotations

import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import little_memory, refused

from engine.errors import EngineError, ModelFormatError, UnsupportedModelError
from engine.text import sentencepiece_model
from engine.text.score_merges import merges_from_scores
from engine.text.sentencepiece_model import MAX_FILE_BYTES, parse_sentencepiece
from engine.text.tokenizer import Tokenizer


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def part(number: int, data: bytes, size: int | None = None) -> bytes:
    return varint(number << 3 | 2) + varint(len(data) if size is None else size) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def piece(text: bytes = b"a", score: float = 0.0, kind: int = 1) -> bytes:
    return part(1, part(1, text) + b"\x15" + struct.pack("<f", score) + number(3, kind))


BPE = part(2, number(3, 2))
SOUND = piece(b"<unk>", kind=2) + piece(b"<s>", kind=3) + piece(b"</s>", kind=3) + piece() + piece(b"b", -1) + BPE
NESTED = b"\x0a\x00"
for _ in range(2000):
    NESTED = part(1, NESTED)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no pieces"),
    "no pieces": (BPE, "no pieces"),
    "a stretch of 2^60 bytes": (SOUND + part(4, b"", 1 << 60), "a field of 1152921504606846976 bytes"),
    "a piece of 4 GB": (part(1, b"", 0xFFFFFFFF) + SOUND, "a field of 4294967295 bytes"),
    "a text of 4 GB in a piece": (part(1, part(1, b"", 0xFFFFFFFF)), "a field of 4294967295 bytes"),
    "a table of 4 GB": (SOUND + part(3, part(2, b"", 0xFFFFFFFF)), "a field of 4294967295 bytes"),
    "an endless number": (SOUND + b"\xff" * 4000, "more than ten bytes"),
    "an endless length": (SOUND + b"\x0a" + b"\xff" * 4000, "more than ten bytes"),
    "a group": (SOUND + b"\x0b", "unknown kind 3"),
    "an unknown kind": (SOUND + b"\x0f", "unknown kind 7"),
    "field 0": (SOUND + b"\x00\x00", "a field is 0"),
    "a score behind the end": (part(1, b"\x15\x00"), "behind the end"),
    "a number for a piece": (SOUND + number(1, 5), "should be bytes"),
    "a number for a table": (SOUND + number(3, 5), "should be bytes"),
    "a number for a text": (part(1, number(1, 5)), "should be bytes"),
    "no UTF-8": (piece(b"\xff\xfe"), "not text"),
    "a type of its own": (piece(kind=9), "unknown type 9"),
    "a huge type": (piece(kind=1 << 62), "unknown type"),
    "millions of fields": (SOUND + b"\x20\x00" * 4_000_000, "more than 256 parts"),
    "millions of fields in a piece": (part(1, b"\x20\x00" * 4_000_000), "more than 16 parts"),
    "millions of fields in the trainer": (SOUND + part(2, b"\x08\x00" * 4_000_000), "more than 256 parts"),
    "nested without end": (part(1, NESTED), "not text|unknown type|behind|bytes"),
    "a charsmap that writes 100,000 letters for one": (
        SOUND + part(3, part(2, b"\x04\x00\x00\x00" + bytes(4) + b"a" * 100_000)),
        "long texts",
    ),
    "a charsmap of noise": (SOUND + part(3, part(2, b"\x08\x00\x00\x00" + b"\xff" * 500)), "damaged"),
    "a charsmap that is cut off": (SOUND + part(3, part(2, b"\xff\xff\xff\xff")), "damaged"),
    "a piece of 100,000 characters": (SOUND + piece(b"a" * 100_000), "100000 characters"),
}


def opened(folder: Path, data: bytes) -> Tokenizer:
    path = folder / "tokenizer.model"
    path.write_bytes(data)
    return Tokenizer.from_sentencepiece(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_model_is_refused(name: str, tmp_path: Path) -> None:
    data, words = HOSTILE[name]
    refused(lambda: opened(tmp_path, data), words)


def test_the_sound_one_opens(tmp_path: Path) -> None:
    assert opened(tmp_path, SOUND).encode("ab")[-2:] == [3, 4]


def test_too_many_pieces_are_refused_when_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentencepiece_model, "MAX_PIECES", 400)
    data = b"\x0a\x00" * 401
    refused(lambda: parse_sentencepiece(data, "x"), "more than 400 pieces")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    refused(lambda: Tokenizer.from_sentencepiece(path), "at most")


def test_every_truncation_is_refused_or_read(tmp_path: Path) -> None:
    outcomes = set()
    for n in range(len(SOUND)):
        try:
            opened(tmp_path, SOUND[:n]).encode("ab")
            outcomes.add("read")
        except ModelFormatError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_spoilt_bytes_raise_nothing_else(tmp_path: Path) -> None:
    rng = random.Random(0)
    outcomes = set()
    for _ in range(400):
        data = bytearray(SOUND)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            tokenizer = opened(tmp_path, bytes(data))
            tokenizer.decode(tokenizer.encode("ab <s> é", special=True))
            outcomes.add("read")
        except EngineError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_noise_raises_nothing_else(data: bytes) -> None:
    try:
        parse_sentencepiece(data, "x")
    except (ModelFormatError, UnsupportedModelError):
        return


def test_a_spoilt_charsmap_raises_nothing_else() -> None:
    """Neither when it is read nor when text is rewritten by it."""
    rng = random.Random(0)
    table = charsmap()
    outcomes = set()
    for _ in range(60):
        spoilt = bytearray(table)
        for _ in range(rng.choice((1, 5, 200))):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        try:
            tokenizer = Tokenizer.from_gguf(facts(precompiled_charsmap=bytes(spoilt)))
            tokenizer.encode("abc ﬁne ½ １２３ ㍿ é 日本語 \ufdfa")
            outcomes.add("read")
        except ModelFormatError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def charsmap() -> bytes:
    """SentencePiece's usual table, out of a model that it trains."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"]), model_writer=written, model_type="bpe", vocab_size=8, minloglevel=2,
        hard_vocab_limit=False, normalization_rule_name="nmt_nfkc", num_threads=1,
    )  # fmt: skip
    return parse_sentencepiece(written.getvalue(), "x").charsmap


def test_an_id_far_out_makes_no_padding(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text(json.dumps({"x": 10**9}), encoding="utf-8")
    refused(lambda: opened(tmp_path, SOUND), "an id is not a number below")


# --- tokenizer.json, and the files beside it


def added(count: int) -> bytes:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
    return json.dumps({"added_tokens": [{"id": i, "content": f"x{i}", **flags} for i in range(count)]}).encode()


def replacing(*contents: str) -> bytes:
    steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": content} for content in contents]
    return json.dumps({"normalizer": {"type": "Sequence", "normalizers": steps}}).encode()


TOKENIZER_JSON: dict[str, tuple[bytes, str]] = {
    "millions of numbers": (b'{"a": [' + b"1," * 3_000_000 + b"1]}", "more than 2097152 values"),
    "millions of objects": (b'{"a": [' + b"{}," * 1_000_000 + b"1]}", "lists more than"),
    "larger than any": (b" " * (50 << 20), "52428800 bytes"),
    "one name twice": (b'{"model": 1, "model": 2}', "'model' appears twice"),
    "deeply nested": (b"[" * 700_000, "recursion"),
    "no object": (b"[1]", "no JSON object"),
    "tokens added without end": (added(20_000), "adds 20000 tokens; at most 16384"),
    "a long text before every other": (
        json.dumps({"normalizer": {"type": "Prepend", "prepend": "a" * 100_000}}).encode(),
        "more than 64 times",
    ),
    "one letter that grows without end": (replacing("a" * 10, "a" * 10, "a" * 10), "more than 64 times"),
    "one letter that becomes a book": (replacing("b" * 100_000), "more than 64 times"),
}


@pytest.mark.parametrize("name", TOKENIZER_JSON)
def test_a_hostile_tokenizer_json_is_refused(name: str, tmp_path: Path) -> None:
    data, words = TOKENIZER_JSON[name]
    (tmp_path / "tokenizer.json").write_bytes(data)
    refused(lambda: Tokenizer.from_files(tmp_path / "tokenizer.json"), words)


def test_what_lies_beside_a_vocabulary_is_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    files = {
        "merges.txt": (b"a b\n" * 1_100_000, "1100000 lines"),
        "tokenizer_config.json": (b'{"a": [' + b"[]," * 1_000_000 + b"1]}", "lists more than"),
        "added_tokens.json": (b'{"x": 400000}', "an id is not a number below 400000"),
        "vocab.json": (b'{"a": 0, "a": 1}', "'a' appears twice"),
    }
    for name, (data, words) in files.items():
        (tmp_path / "merges.txt").write_bytes(b"")
        (tmp_path / "tokenizer_config.json").write_bytes(b"{}")
        (tmp_path / name).write_bytes(data)
        paths = [tmp_path / each for each in ("vocab.json", "merges.txt", "tokenizer_config.json")]
        refused(lambda paths=paths: Tokenizer.from_pair(*paths), words)  # type: ignore[misc]


def test_a_chat_template_of_megabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"a" * (2 << 20))
    refused(lambda: opened(tmp_path, SOUND), "2097152 bytes; at most 1048576")


# --- the same in GGUF's metadata


def facts(**changes: Any) -> dict[str, Any]:
    values = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", "a", "b"], "scores": [0.0] * 5,
              "token_type": [2, 3, 3, 1, 1], **changes}  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (facts(tokens=["<unk>", "<s>", "</s>", "a" * 2_000_000, "b"]), "2000000 characters"),
        (facts(precompiled_charsmap=[255] * 2_000), "damaged"),
        (facts(precompiled_charsmap=[-1, 300, "x"]), "not a list of bytes"),
        (facts(precompiled_charsmap=range(1 << 40)), "not a list of bytes"),
        (facts(model="t5", scores=[float("-inf")] * 5), "infinite"),
        (facts(model="t5", scores=[0.0] * 4), "not a list of 5"),
        (facts(model="t5", tokens=["", "a" * 5000, "b", "c", "d"]), "more than 1024 characters"),
        (facts(eos_token_ids=[1, 2, 99]), "99"),
        (facts(eos_token_id=[[1]]), r"\[1\]"),
        (facts(eot_token_id=["x"]), "'x'"),
    ],
)
def test_a_hostile_gguf_vocabulary_is_refused(values: dict[str, Any], words: str) -> None:
    refused(lambda: Tokenizer.from_gguf(values), words)


def test_two_hundred_thousand_times_the_same_token() -> None:
    """Nothing is quadratic in repeated tokens; they stand for the first."""
    n = 200_000
    tokenizer = Tokenizer.from_gguf(facts(tokens=["<unk>", *["a"] * (n - 1)], scores=[0.0] * n, token_type=[2] * n))
    assert tokenizer.vocab_size == n
    assert tokenizer.token_bytes(n - 1).decode() == "a"


def test_pieces_of_one_letter_that_can_be_cut_everywhere_take_bounded_memory() -> None:
    """1,024 runs have half a million merges, and no more can be asked for by one letter."""
    with little_memory():
        runs = ["a" * n for n in range(1, 600)]
        assert len(merges_from_scores(runs, [0.0] * len(runs), list(range(len(runs))))) == 599 * 598 // 2


def test_pieces_whose_sums_repeat_are_told_apart() -> None:
    """Thue and Morse's words collide in hashes by powers modulo 2**64, whatever the base: then the file is refused or
    read rightly, never wrongly."""
    word = "a"
    for _ in range(10):
        word += word.translate(str.maketrans("ab", "ba"))
    other = word.translate(str.maketrans("ab", "ba"))
    tokens = ["<unk>", "<s>", "</s>", "a", "b", word[:1024], other[:1024], "ab", "ba"]
    values = facts(tokens=tokens, scores=[-float(i) for i in range(9)], token_type=[2, 3, 3, 1, 1, 1, 1, 1, 1])
    tokenizer = Tokenizer.from_gguf({**values, "tokenizer.ggml.add_space_prefix": False})
    assert tokenizer.encode("abba") == [7, 8]
