"""Vocabularies from files: what configurations may say, another model's tokenizer, and files that lie."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starter_vocabulary import as_files, metadata, written

from engine.config import ModelConfig
from engine.errors import ModelFormatError, TokenizerMismatchError, UnsupportedModelError
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import guarded


@pytest.fixture(scope="module", params=["gguf", "files"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_gguf(metadata()) if request.param == "gguf" else as_files(tmp_path_factory.mktemp("model"))


def test_a_library_that_is_missing_is_no_damage_of_the_file() -> None:
    def build() -> None:
        raise ImportError("DLL load failed while importing tokenizers")

    with pytest.raises(ImportError, match="DLL load failed"):
        guarded(build, "model.gguf")


@pytest.mark.parametrize(
    ("config", "bos", "eos", "adds_bos"),
    [
        ({}, None, (1,), False),
        ({"bos_token": "<|begin|>", "eos_token": "<|end|>"}, 0, (1,), False),
        (
            {"bos_token": {"content": "<|begin|>", "special": True}, "eos_token": None, "add_bos_token": True},
            0,
            (1,),
            True,
        ),
        ({"bos_token": None, "add_bos_token": True}, None, (1,), False),
    ],
)
def test_tokens_are_named_in_two_ways(
    tmp_path: Path, config: dict[str, Any], bos: int | None, eos: tuple[int, ...], adds_bos: bool
) -> None:
    tokenizer = as_files(tmp_path, config=config)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.adds_bos) == (bos, eos, adds_bos)


def test_a_post_cpu_says_that_bos_is_added(tmp_path: Path) -> None:
    begin = {"SpecialToken": {"id": "<|begin|>", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [begin, sequence], "pair": [begin, sequence, sequence],
            "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [0], "tokens": ["<|begin|>"]}}}  # fmt: skip
    tokenizer = Tokenizer.from_files(written(tmp_path, post_processor=post)[0])
    assert (tokenizer.bos_token_id, tokenizer.adds_bos) == (0, True)
    assert tokenizer.encode("Hi") == [809], "only add_bos adds it"


def test_named_templates(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert as_files(tmp_path, config={"chat_template": named}).chat_template == "D"
    assert as_files(tmp_path, config={"chat_template": named[:1]}).chat_template is None


def test_a_gguf_may_have_several_ends() -> None:
    tokenizer = Tokenizer.from_gguf({**metadata(), "tokenizer.ggml.eot_token_id": 4, "tokenizer.ggml.eom_token_id": 1})
    assert tokenizer.eos_token_ids == (1, 4)


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ({"eos_token_id": [1, 4]}, (1, 4)),
        ({"eos_token_ids": [4, 2]}, (1, 4, 2)),
        ({"eog_token_ids": [2]}, (1, 2)),
        ({"eot_token_id": 4, "eom_token_id": 3}, (1, 4, 3)),
        ({"eos_token_id": None, "eot_token_id": 4}, (4, 1)),
    ],
)
def test_every_end_stops_an_answer(said: dict[str, Any], ends: tuple[int, ...]) -> None:
    tokenizer = Tokenizer.from_gguf({**metadata(), **{f"tokenizer.ggml.{key}": value for key, value in said.items()}})
    assert tokenizer.eos_token_ids == ends
    assert set(ends) <= tokenizer.stop_token_ids


def test_a_prompt_never_ends_with_the_end_of_text() -> None:
    """add_eos_token is about training texts: a chat's prompt is the beginning of an answer."""
    said = {**metadata(), "tokenizer.ggml.add_eos_token": True}
    chat = [{"role": "user", "content": "Hi"}]
    assert Tokenizer.from_gguf(said).encode_chat(chat) == Tokenizer.from_gguf(metadata()).encode_chat(chat)
    assert Tokenizer.from_gguf(said).encode("Hi", add_bos=True) == [0, 809]


def test_repeated_tokens_stand_for_the_first() -> None:
    facts = metadata()
    n = len(facts["tokenizer.ggml.tokens"])
    extra = ["Hi", "[PAD8193]", "<|end|>", "Hi", ""]
    facts["tokenizer.ggml.tokens"] += extra
    facts["tokenizer.ggml.token_type"] = [*facts["tokenizer.ggml.token_type"], 1, 5, 3, 5, 1]
    tokenizer = Tokenizer.from_gguf(facts)
    assert tokenizer.vocab_size == n + 5
    assert tokenizer.encode("Hi") == [809]
    assert tokenizer.decode([n, n + 3]) == "HiHi"
    assert tokenizer.decode([809, n + 2]) == "Hi", "it is as special as the first"
    assert tokenizer.decode([n + 2], skip_special=False) == "<|end|>"
    assert tokenizer.token_bytes(n + 1).decode() == "[PAD8193]"
    both = Tokenizer.from_gguf({**facts, "tokenizer.ggml.eos_token_id": n + 2})
    assert both.eos_token_ids == (n + 2, 1), "a model may end with either"


def test_repeated_pieces_do_not_keep_a_vocabulary_from_opening() -> None:
    facts = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "ab", "a", "[PAD8]"],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -3.0, -4.0, -1.0, -9.0, -9.0, -9.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 5],
        "tokenizer.ggml.add_space_prefix": False,
    }
    for model in ("llama", "t5"):
        tokenizer = Tokenizer.from_gguf({**facts, "tokenizer.ggml.model": model})
        assert tokenizer.encode("abab") == [5, 5]
        assert tokenizer.decode([6, 7]) == "aba"


def test_user_defined_tokens_are_ordinary_text() -> None:
    facts = metadata()
    facts["tokenizer.ggml.tokens"][5] = "<pad>"
    facts["tokenizer.ggml.token_type"] = [3, 3, 3, 3, 3, 4, *[1] * 8186]
    tokenizer = Tokenizer.from_gguf(facts)
    assert tokenizer.encode("<pad>") == [5]
    assert tokenizer.decode([5]) == "<pad>"


@pytest.mark.parametrize("kind", [1, 4])
def test_a_chats_marks_are_special_whatever_the_file_calls_them(kind: int) -> None:
    facts = metadata()
    facts["tokenizer.ggml.token_type"] = [kind] * 6 + [1] * 8186
    tokenizer = Tokenizer.from_gguf(facts)
    assert tokenizer.encode("<|user|>", special=True) == [3]
    assert 3 not in tokenizer.encode("<|user|>")
    assert tokenizer.decode([3, 809]) == "Hi"


# --- another model's tokenizer, bad files


def model_config(**changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "family": "llama", "n_layers": 1, "d_model": 8, "d_ff": 8, "n_heads": 1, "n_kv_heads": 1, "head_dim": 8,
        "vocab_size": 8192, "rope_theta": 1e4, "norm_eps": 1e-5, "activation": "relu-glu", "max_context": 64,
        "tied_embeddings": True, "bos_token_id": 0, "eos_token_ids": (1,),
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})


def test_a_model_and_its_tokenizer_agree(tokenizer: Tokenizer) -> None:
    tokenizer.check_against(model_config())
    tokenizer.check_against(model_config(vocab_size=8256))  # padded
    tokenizer.check_against(model_config(bos_token_id=None, eos_token_ids=()))
    tokenizer.check_against(model_config(eos_token_ids=(7, 1)))


def test_special_tokens_may_lie_beyond_the_embedding() -> None:
    """As Gemma 3's tokens for pictures do in its text models."""
    facts = metadata()
    facts["tokenizer.ggml.token_type"][8191] = 3
    Tokenizer.from_gguf(facts).check_against(model_config(vocab_size=8191))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 8191}, "ids up to 8191, the model only 8191"),
        ({"vocab_size": 32000}, "8192 tokens, the model 32000"),
        ({"bos_token_id": 3}, "begins text with token 0, the model with 3"),
        ({"eos_token_ids": (2, 5)}, "ends text with token 1, the model with 2 or 5"),
    ],
)
def test_another_models_tokenizer_is_refused(tokenizer: Tokenizer, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TokenizerMismatchError, match=words):
        tokenizer.check_against(model_config(**changes))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"model": {}, "decoder": {"type": "ByteLevel"}}', b"[" * 100_000],
)
def test_garbage_is_named_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"tokenizer\.json") as caught:
        Tokenizer.from_files(path)
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"tokenizer\.json cannot be read: \w+"):
        Tokenizer.from_files(tmp_path / "tokenizer.json")
    files = written(tmp_path)
    files[1].unlink()
    with pytest.raises(ModelFormatError, match=r"tokenizer_config\.json"):
        Tokenizer.from_files(*files)


def test_spoilt_copies_of_a_good_file_end_in_a_clear_error_or_a_tokenizer(tmp_path: Path) -> None:
    good = written(tmp_path, model={"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
                   added_tokens=[])[0].read_bytes()  # fmt: skip
    rng = random.Random(7)
    path = tmp_path / "spoilt.json"
    outcomes = set()
    for _ in range(300):
        spoilt = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(spoilt))
            spoilt[at : at + rng.randint(0, 9)] = bytes(
                rng.choices(b'{}[]",:0123456789abnull\xff', k=rng.randint(0, 5))
            )
        path.write_bytes(spoilt)
        try:
            Tokenizer.from_files(path).decode(Tokenizer.from_files(path).encode("abba"))
            outcomes.add("sound")
        except (ModelFormatError, UnsupportedModelError):
            outcomes.add("refused")
    assert outcomes == {"sound", "refused"}


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"bos_token": "<s>"}, TokenizerMismatchError, "bos_token '<s>' is not in the vocabulary"),
        ({"eos_token": 2}, ModelFormatError, "eos_token is int"),
        ({"chat_template": 7}, ModelFormatError, "chat_template is int"),
    ],
)
def test_a_lying_configuration(tmp_path: Path, config: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_files(tmp_path, config=config)


def test_an_unknown_decoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="CTC"):
        as_files(tmp_path, decoder={"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True})


def spoil(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(facts: dict[str, Any]) -> None:
        for name, value in changes.items():
            key = f"tokenizer.ggml.{name}"
            facts.pop(key, None) if value is None else facts.update({key: value})

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (spoil(model=None), ModelFormatError, "tokenizer.ggml.model is missing"),
        (spoil(model="wordlevel"), UnsupportedModelError, "'wordlevel'"),
        (spoil(pre="klingon"), UnsupportedModelError, "'klingon'"),
        (spoil(pre=7), UnsupportedModelError, "splits text as 7"),
        (spoil(model="llama"), ModelFormatError, "scores is not a list of 8192"),
        (spoil(model="llama", scores=["x"] * 8192), ModelFormatError, "not a number"),
        (spoil(model="llama", scores=[float("nan")] * 8192), ModelFormatError, "not a number"),
        (spoil(model="llama", scores=[0.0] * 8192, precompiled_charsmap=[1, 2]), ModelFormatError, "damaged"),
        (spoil(model="llama", scores=[0.0] * 8192, precompiled_charsmap="x"), ModelFormatError, "not a list of bytes"),
        (
            spoil(model="llama", scores=[0.0] * 8192, precompiled_charsmap=[1.5]),
            ModelFormatError,
            "not a list of bytes",
        ),
        (spoil(model="llama", scores=[10**400] * 8192), ModelFormatError, "absurd size"),
        (spoil(model="t5", scores=[float("inf")] * 8192), ModelFormatError, "infinite"),
        (spoil(tokens=None), ModelFormatError, "tokens is missing"),
        (spoil(tokens=[1, 2]), ModelFormatError, "not text"),
        (spoil(tokens="abc"), ModelFormatError, "missing"),
        (
            spoil(tokens=[], merges=[], token_type=[], bos_token_id=None, eos_token_id=None),
            ModelFormatError,
            "no tokens",
        ),
        (spoil(merges=["ab"]), ModelFormatError, "not two pieces"),
        (spoil(merges=["nonsense here"]), ModelFormatError, "damaged"),
        (spoil(token_type=[1, 2, 3]), ModelFormatError, "8192 types"),
        (spoil(token_type=7), ModelFormatError, "8192 types"),
        (spoil(eos_token_id=8192), ModelFormatError, "8192"),
        (spoil(bos_token_id="x"), ModelFormatError, "bos_token_id is 'x'"),
        (spoil(bos_token_id=-1), ModelFormatError, "-1"),
    ],
)
def test_a_lying_gguf_vocabulary(change: Callable[[dict[str, Any]], None], error: type[Exception], words: str) -> None:
    facts = metadata()
    change(facts)
    with pytest.raises(error, match=words):
        Tokenizer.from_gguf(facts)


@pytest.mark.parametrize("pre", [None, "", "gpt-2", "default"])
def test_splittings_of_gpt2(pre: str | None) -> None:
    facts = {**metadata(), "tokenizer.ggml.pre": pre}
    assert Tokenizer.from_gguf(facts).encode("Hi") == [809]
