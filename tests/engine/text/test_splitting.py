"""Byte-level vocabularies of every family: GGUF against tokenizer.json and transformers, for each way of splitting."""

from __future__ import annotations

import functools
import json
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_texts import NASTY, SENTENCES, texts
from samples.tiny_model import make_tiny_model
from support.repetitions import some_daily

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.loading.opening import read_tokenizer
from engine.model.weights import open_model
from engine.text.splitting import _CASED, _NAMED
from engine.text.tokenizer import Tokenizer

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {**BYTES, "use_regex": True}
LLAMA3 = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
QWEN35 = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
TEKKEN = (
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
GPT4O = (
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)


def cut_by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTES]}


def cut_in_turn(*patterns: str, then: dict[str, Any] | None = None) -> dict[str, Any]:
    steps = [cut_by(pattern)["pretokenizers"][0] for pattern in patterns]
    return {"type": "Sequence", "pretokenizers": [*steps, *([then] if then else []), BYTES]}


EACH_DIGIT = {"type": "Digits", "individual_digits": True}
EAST_ASIAN = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_V3 = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
FALCON = {"type": "Sequence", "pretokenizers": [
    {"type": "Punctuation", "behavior": "Contiguous"},
    GPT2,
    {"type": "Digits", "individual_digits": False},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False},
]}  # fmt: skip
SMOLLM = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]}
# What GGUF says -> the pre-tokenizer of the family's own tokenizer.json, its normalizer, whether merges are ignored.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None, bool]] = {
    "gpt-2": ({"pre": "gpt-2"}, GPT2, None, False),
    "mpt": ({"pre": "mpt"}, GPT2, {"type": "NFC"}, False),
    "olmo": ({"pre": "olmo"}, GPT2, {"type": "NFC"}, False),
    "GPT-NeoX of 2023": ({"pre": None, "architecture": "gptneox"}, GPT2, {"type": "NFC"}, False),
    "OPT of 2023": ({"pre": None, "architecture": "opt"}, GPT2, None, False),
    "falcon": ({"pre": "falcon"}, FALCON, None, False),
    "Falcon of 2023": ({"pre": None, "architecture": "falcon"}, FALCON, None, False),
    "llama-bpe": ({"pre": "llama-bpe"}, cut_by(LLAMA3), None, True),
    "dbrx": ({"pre": "dbrx"}, cut_by(LLAMA3), None, False),
    "qwen2": ({"pre": "qwen2"}, cut_by(LLAMA3.replace("{1,3}", "")), {"type": "NFC"}, False),
    "qwen35": ({"pre": "qwen35"}, cut_by(QWEN35), {"type": "NFC"}, False),
    "smollm": ({"pre": "smollm"}, SMOLLM, None, False),
    "tekken": ({"pre": "tekken"}, cut_by(TEKKEN), None, True),
    "gpt-4o": ({"pre": "gpt-4o"}, cut_by(GPT4O), None, False),
    "refact": ({"pre": "refact"}, SMOLLM, None, False),
    "starcoder": ({"pre": "starcoder"}, SMOLLM, None, False),
    "chatglm-bpe": ({"pre": "chatglm-bpe"}, cut_by(LLAMA3), None, False),
    "stablelm2": ({"pre": "stablelm2"}, cut_by(LLAMA3.replace("{1,3}", "")), None, False),
    "deepseek-coder": (
        {"pre": "deepseek-coder"},
        cut_in_turn("[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN, then=EACH_DIGIT),
        None,
        False,
    ),
    "deepseek-v3": (
        {"pre": "deepseek-v3"},
        cut_in_turn("\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3),
        None,
        False,
    ),
    "bloom": ({"pre": "bloom"}, cut_by(BLOOM), None, False),
    "viking": ({"pre": "viking"}, cut_in_turn(BLOOM, then=EACH_DIGIT), None, False),
    "seed-coder": (
        {"pre": "seed-coder"},
        cut_by(LLAMA3.replace("{1,3}", "{1}").replace("[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "[^\\s\\p{L}\\p{N}\r\n]+")),
        None,
        False,
    ),
    "unnamed": (
        {"pre": None, "architecture": "unheard-of"},
        cut_in_turn(
            "[\\p{P}\\$\\+<=>\\^~\\|]+",
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
            "\\p{N}+",
            "[0-9][0-9][0-9]",
        ),
        None,
        False,
    ),
}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@functools.cache
def document(family: str) -> dict[str, Any]:
    """A small vocabulary trained with the family's splitting, as its tokenizer.json would be."""
    from tokenizers import AddedToken, Tokenizer as Backend, models, pre_tokenizers, trainers  # noqa: I001 - one alias

    _, splitting, normalizer, ignores_merges = FAMILIES[family]
    empty = json.loads(Backend(models.BPE()).to_str())
    decoder = {**BYTES, "use_regex": True}
    backend = Backend.from_str(
        json.dumps({**empty, "pre_tokenizer": splitting, "normalizer": normalizer, "decoder": decoder})
    )
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*SENTENCES, "a" * 40, " " * 30, "x     y", "12345 678"] * 3, trainer)
    trained: dict[str, Any] = json.loads(backend.to_str())
    trained["model"]["ignore_merges"] = ignores_merges
    return trained


def metadata(family: str) -> dict[str, Any]:
    said, *_ = FAMILIES[family]
    trained = document(family)
    tokens = sorted(trained["model"]["vocab"], key=trained["model"]["vocab"].__getitem__)
    facts = {
        "general.architecture": said.get("architecture", "llama"),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if text in SPECIALS else 1 for text in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in trained["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }
    return facts if said["pre"] is None else {**facts, "tokenizer.ggml.pre": said["pre"]}


@functools.cache
def tokenizers_of(family: str) -> tuple[Tokenizer, Tokenizer, Any]:
    """(by GGUF, by tokenizer.json, transformers')."""
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    text = json.dumps(document(family))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(text, encoding="utf-8")
        files = Tokenizer.from_files(path)
    reference = PreTrainedTokenizerFast(tokenizer_object=Backend.from_str(text), clean_up_tokenization_spaces=False)
    return Tokenizer.from_gguf(metadata(family)), files, reference


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream()
    return "".join([*map(stream.push, ids), stream.flush()])


def check(family: str, text: str) -> None:
    gguf, files, reference = tokenizers_of(family)
    ids = reference.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert gguf.encode(text) == ids
    assert files.encode(text) == ids
    assert gguf.encode(text, special=True) == files.encode(text, special=True) == reference.encode(text)
    said = reference.decode(ids, skip_special_tokens=True)
    assert gguf.decode(ids) == streamed(gguf, ids) == streamed(files, ids) == said


@pytest.mark.parametrize("family", FAMILIES)
def test_every_route_gives_transformers_ids(family: str) -> None:
    for text in NASTY:
        check(family, text)


@pytest.mark.parametrize("family", some_daily(FAMILIES, [*FAMILIES][::4]))
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_every_route_gives_transformers_ids_for_any_text(family: str, text: str) -> None:
    check(family, text)


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 799), max_size=30))
def test_any_ids_decode_as_transformers_decodes_them(ids: list[int]) -> None:
    gguf, files, reference = tokenizers_of("llama-bpe")
    said = reference.decode([i for i in ids if i > 2])
    assert gguf.decode(ids) == streamed(gguf, ids) == files.decode(ids) == said


def test_transformers_own_classes_agree() -> None:
    """Qwen2's and GPT-2's tokenizers, whose splitting is written in transformers itself."""
    from transformers import GPT2Tokenizer, Qwen2Tokenizer

    for family, cls in (("qwen2", Qwen2Tokenizer), ("gpt-2", GPT2Tokenizer)):
        model = document(family)["model"]
        reference = cls(vocab=dict(model["vocab"]), merges=[tuple(pair) for pair in model["merges"]])
        gguf = tokenizers_of(family)[0]
        for text in NASTY:
            if "<|endoftext|>" not in text:
                assert gguf.encode(text) == reference.encode(text, add_special_tokens=False), text


def test_gpt_neox_runs_of_spaces_are_tokens_of_their_own() -> None:
    """GPT-NeoX's tokenizer.json composes letters first, and adds tokens of two to twenty-four spaces."""
    from tokenizers import Tokenizer as Backend

    runs = [" " * n for n in range(24, 1, -1)]
    original, facts = json.loads(json.dumps(document("olmo"))), metadata("olmo")
    first = len(facts["tokenizer.ggml.tokens"])
    original["added_tokens"] += [
        {"id": first + i, "content": run, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True,
         "special": False}
        for i, run in enumerate(runs)
    ]  # fmt: skip
    facts["tokenizer.ggml.tokens"] += runs
    facts["tokenizer.ggml.token_type"] += [4] * len(runs)
    reference, tokenizer = Backend.from_str(json.dumps(original)), Tokenizer.from_gguf(facts)
    shapes = ("{}x", "a{}", "a{}b", "{}\n", "e\u0301{}e\u0301", "{}\u0301x")
    for text in [*NASTY, *(shape.format(" " * n) for n in range(60) for shape in shapes)]:
        if not any(mark in text for mark in SPECIALS):
            assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids, text


def test_families_split_differently() -> None:
    """The comparison above could not fail if the texts told no two rules apart."""
    seen = {}
    for family in ("gpt-2", "olmo", "falcon", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o"):
        gguf = Tokenizer.from_gguf({**metadata("gpt-2"), "tokenizer.ggml.pre": family})
        seen[family] = tuple(tuple(gguf.encode(text)) for text in NASTY)
    assert len(set(seen.values())) == len(seen)


def test_whether_bos_is_added_where_the_file_is_silent() -> None:
    said = {family: Tokenizer.from_gguf(metadata(family)).adds_bos for family in FAMILIES}
    assert {family for family, adds in said.items() if adds} == {"OPT of 2023", "llama-bpe", "tekken"}
    silent = metadata("llama-bpe")
    assert not Tokenizer.from_gguf({**silent, "tokenizer.ggml.add_bos_token": False}).adds_bos


def test_a_llama_3_of_early_2024_names_no_splitting() -> None:
    facts = metadata("llama-bpe")
    facts["tokenizer.ggml.tokens"][0] = "<|begin_of_text|>"
    del facts["tokenizer.ggml.pre"]
    gguf = Tokenizer.from_gguf(facts)
    assert gguf.encode("I'LL 12345") == tokenizers_of("llama-bpe")[0].encode("I'LL 12345")
    assert gguf.adds_bos


def test_the_letters_of_deepseeks_first_models() -> None:
    """Those with an upper and a lower case, as Unicode knew them: alphabets in use are in it whole."""
    letters = {chr(i) for a, b in re.findall(r"\\x\{(\w+)\}-\\x\{(\w+)\}", _CASED)
               for i in range(int(a, 16), int(b, 16) + 1)}  # fmt: skip
    cased = {chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) in ("Lu", "Ll", "Lt")}
    assert letters <= cased | set("\u2c7b\ua770")
    assert {char for char in cased if ord(char) < 0x530} <= letters
    assert len(letters) > 1900


def test_deepseeks_first_models_cut_as_their_patterns_say() -> None:
    gguf = Tokenizer.from_gguf({**metadata("gpt-2"), "tokenizer.ggml.pre": "deepseek-llm"})
    cut = gguf._backend.pre_tokenizer.pre_tokenize_str
    words = [text[a:b] for text in ["Ab 12, ёж\n\n日本 x  "] for _, (a, b) in cut(text)]
    assert words == ["Ab", " ", "12", ",", " ёж", "\n", "\n", "日本", " x", "  "]


def test_han_characters_are_words_of_their_own_in_kimis() -> None:
    gguf = Tokenizer.from_gguf({**metadata("gpt-2"), "tokenizer.ggml.pre": "kimi-k2"})
    cut = gguf._backend.pre_tokenizer.pre_tokenize_str
    for text, words in (
        ("中文English混合", ["中文", "English", "混合"]), ("汉字abc", ["汉字", "abc"]),
        ("北京市 Pascal", ["北京市", " Pascal"]),
        ("I'll 1234, okÉt/", ["I'll", " ", "123", "4", ",", " ok", "Ét", "/"]),
        ("ひらがなと漢字\n/x", ["ひらがなと", "漢字", "\n", "/x"]),
    ):  # fmt: skip
        assert [text[a:b] for _, (a, b) in cut(text)] == words


def test_a_guess_is_told_to_the_person() -> None:
    facts = metadata("unnamed")
    assert len(Tokenizer.from_gguf(facts).notes) == 1
    assert Tokenizer.from_gguf({**facts, "tokenizer.ggml.pre": "gpt-2"}).notes == ()
    assert Tokenizer.from_gguf({**facts, "general.architecture": "gpt2"}).notes == ()


def test_every_name_makes_a_tokenizer() -> None:
    for name in _NAMED:
        tokenizer = Tokenizer.from_gguf({**metadata("gpt-2"), "tokenizer.ggml.pre": name})
        for text in NASTY:
            assert (
                tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
                or tokenizer.decode(tokenizer.encode(text)) == text
            )


@pytest.mark.parametrize("eos", [SPECIALS[0], SPECIALS[2], None])
def test_the_end_of_a_turn_ends_the_answer_from_every_source(tmp_path: Path, eos: str | None) -> None:
    """SmolLM2's end is <|im_end|>, and its <|endoftext|> ends an answer as well."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(document("qwen2")), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}), encoding="utf-8")
    files = Tokenizer.from_files(tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json")
    stated = None if eos is None else SPECIALS.index(eos)
    gguf = Tokenizer.from_gguf({**metadata("qwen2"), "tokenizer.ggml.eos_token_id": stated})
    assert gguf.eos_token_ids == files.eos_token_ids
    assert gguf.stop_token_ids == files.stop_token_ids == {0, 2}


def older_directory(folder: Path, **config: Any) -> tuple[Path, Path, Path]:
    model = document("gpt-2")["model"]
    paths = folder / "vocab.json", folder / "merges.txt", folder / "tokenizer_config.json"
    paths[0].write_text(json.dumps(model["vocab"]), encoding="utf-8")
    paths[1].write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])) + "\n", encoding="utf-8")
    values = {"bos_token": {"content": SPECIALS[0]}, "eos_token": SPECIALS[0], "add_bos_token": True, **config}
    paths[2].write_text(json.dumps(values), encoding="utf-8")
    return paths


def test_an_older_directory_gives_the_same(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_pair(*older_directory(tmp_path, tokenizer_class="GPT2Tokenizer"))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.adds_bos) == (0, (0, 2), True)
    assert 0 not in tokenizer.encode(SPECIALS[0])
    for text in NASTY:
        assert tokenizer.encode(text) == tokenizers_of("gpt-2")[0].encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_older_directory_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"BlenderbotTokenizer .*tokenizer\.json"):
        Tokenizer.from_pair(*older_directory(tmp_path, tokenizer_class="BlenderbotTokenizer"))


def test_a_damaged_older_directory_is_named(tmp_path: Path) -> None:
    paths = older_directory(tmp_path)
    paths[1].write_text("nonsense here\n", encoding="utf-8")
    with pytest.raises(ModelFormatError, match=r"vocab\.json"):
        Tokenizer.from_pair(*paths)


def test_a_model_without_tokenizer_json_is_opened_by_its_older_files(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "older")
    kept = Tokenizer.from_files(folder / "tokenizer.json", folder / "tokenizer_config.json")
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(map(" ".join, model["merges"])), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["tokenizer_class"] = "GPT2Tokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    assert read_tokenizer(open_model(folder)).encode("the hello in") == kept.encode("the hello in")
