"""Vocabularies of model directories without tokenizer.json: SentencePiece's tokenizer.model, or vocab.json with
merges.txt.

Returns their contents as the metadata of a GGUF file, as converters do; gguf_vocabulary.py builds the vocabulary. Added
tokens are in tokenizer_config.json or added_tokens.json next to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import ModelFormatError, TokenizerMismatchError, UnsupportedModelError
from engine.text.gguf_vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, read_gguf
from engine.text.sentencepiece_model import MAX_FILE_BYTES, parse_sentencepiece
from engine.text.vocabulary import Vocabulary, chat_template_of, is_marker, read_json_object, read_text, token_text_of

_MAX_TOKENS = 400_000  # as of SentencePiece's; the largest in use have 262,144
_MAX_MERGES = 1 << 20
_NAMED_TOKENS = ("bos", "eos", "unk", "pad")
# GPT-2's kind: the tokenizer's class -> its splitting rule, by the names of tokenizer.ggml.pre.
_SPLITTING_OF_CLASS = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}


def read_sentencepiece(tokenizer_model: Path, tokenizer_config: Path | None) -> Vocabulary:
    """Return the vocabulary of a directory with SentencePiece's own file.

    Raises: ModelFormatError for a missing or damaged file, UnsupportedModelError for an unsupported kind,
    TokenizerMismatchError if the configuration names tokens that the file lacks.
    """
    model = parse_sentencepiece(_read_bytes(tokenizer_model), str(tokenizer_model))
    config = _config(tokenizer_config)
    tokens, types = model.tokens, model.types
    swallowing = _overlay(tokens, types, tokenizer_model, config)
    scores = model.scores + [0.0] * (len(tokens) - len(model.scores))
    ids = {"bos": model.bos, "eos": model.eos, "unk": model.unknown}
    prefix = config.get("add_prefix_space")
    facts: dict[str, Any] = {
        "tokenizer.ggml.model": "llama" if model.kind == "bpe" else "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": model.unknown if 0 <= model.unknown < len(tokens) else None,
        "tokenizer.ggml.add_space_prefix": prefix if isinstance(prefix, bool) else model.adds_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": model.collapses_spaces,
        "tokenizer.ggml.precompiled_charsmap": model.charsmap,
        # As the classes of transformers that read such files.
        "tokenizer.ggml.add_bos_token": model.kind == "bpe",
        **_ids_of(tokens, tokenizer_model, config, ids, str(tokenizer_config)),
    }
    return read_gguf(facts, str(tokenizer_model), swallowing)


def read_pair(vocab_json: Path, merges_txt: Path, tokenizer_config: Path | None) -> Vocabulary:
    """Return the vocabulary of an older directory, such as GPT-2's and OPT's, in two files.

    Raises: as read_sentencepiece.
    """
    config = _config(tokenizer_config)
    kind = config.get("tokenizer_class") or "GPT2Tokenizer"
    pre = _SPLITTING_OF_CLASS.get(str(kind).removesuffix("Fast"))
    if pre is None:
        raise UnsupportedModelError(
            f"{vocab_json.parent} holds a {str(kind)[:60]} without its tokenizer.json.",
            "Download the model's tokenizer.json into the same folder.",
        )
    entries = read_json_object(vocab_json)
    tokens: list[str] = []
    types: list[int] = []
    for text, token_id in sorted(_ids_by_text(entries, vocab_json).items(), key=lambda entry: entry[1]):
        _extend(tokens, types, token_id)
        tokens[token_id], types[token_id] = text, NORMAL
    swallowing = _overlay(tokens, types, vocab_json, config)
    for name in _NAMED_TOKENS:
        named = token_text_of(config.get(f"{name}_token"), f"{name}_token", str(tokenizer_config))
        if named in entries:
            types[entries[named]] = CONTROL
    # Split at line feeds only: a token may contain other line separators.
    listed = read_text(merges_txt)
    if (count := listed.count("\n")) > _MAX_MERGES:
        raise ModelFormatError(f"{merges_txt} has {count} lines; at most {_MAX_MERGES} are accepted.")
    merges = [line for line in listed.split("\n") if line.strip() and not line.startswith("#version")]
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.add_bos_token": False,
        **_ids_of(tokens, vocab_json, config, {}, str(tokenizer_config)),
    }
    return read_gguf(facts, str(vocab_json), swallowing)


def _config(path: Path | None) -> dict[str, Any]:
    return {} if path is None else read_json_object(path)


def _read_bytes(path: Path) -> bytes:
    try:
        n_bytes = path.stat().st_size
        if n_bytes > MAX_FILE_BYTES:
            raise ModelFormatError(f"{path} has {n_bytes} bytes; a tokenizer.model has at most {MAX_FILE_BYTES}.")
        return path.read_bytes()
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}.") from error


def _ids_of(
    tokens: list[str], path: Path, config: Mapping[str, Any], ids: Mapping[str, int], config_path: str
) -> dict[str, Any]:
    """Return the entries that name tokens, and the chat template; `ids` are those of the vocabulary's own file."""
    by_text = {text: i for i, text in reversed(list(enumerate(tokens)))}
    found: dict[str, Any] = {}
    for name in ("bos", "eos"):
        key, token_id = f"{name}_token", ids.get(name, -1)
        if key in config:
            text = token_text_of(config[key], key, config_path)
            if text and text not in by_text:
                raise TokenizerMismatchError(f"{config_path}: the {key} {text!r} is not in the vocabulary.")
            if text != "":  # which the first conversions of LLaMA write where they mean the file's own
                token_id = -1 if text is None else by_text[text]
        found[f"tokenizer.ggml.{name}_token_id"] = token_id if 0 <= token_id < len(tokens) else None
    if isinstance(adds_bos := config.get("add_bos_token"), bool):
        found["tokenizer.ggml.add_bos_token"] = adds_bos
    found["tokenizer.chat_template"] = chat_template_of(config, path, config_path)
    return found


def _overlay(tokens: list[str], types: list[int], path: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """Insert the tokens that were added later; return those that consume the white space after them."""
    swallowing = set()
    beside = path.with_name("added_tokens.json")
    if beside.is_file():
        for text, token_id in _ids_by_text(read_json_object(beside), beside).items():
            _place(tokens, types, token_id, text, is_marker(text))
    listed = config.get("added_tokens_decoder")
    for key, token in (listed if isinstance(listed, dict) else {}).items():
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str) or not key.isascii() or not key.isdigit() or int(key[:9]) >= _MAX_TOKENS:
            raise ModelFormatError(f"The tokens added beside {path} are invalid: {key[:60]!r}.")
        _place(tokens, types, int(key[:9]), content, token.get("special") is True)
        if token.get("rstrip") is True:
            swallowing.add(int(key[:9]))
    return frozenset(swallowing)


def _place(tokens: list[str], types: list[int], token_id: int, text: str, special: bool) -> None:
    _extend(tokens, types, token_id)
    if tokens[token_id] != text or types[token_id] in (NORMAL, UNUSED):
        types[token_id] = CONTROL if special else USER_DEFINED
    tokens[token_id] = text


def _extend(tokens: list[str], types: list[int], token_id: int) -> None:
    """Fill unnamed rows with padding."""
    for i in range(len(tokens), token_id + 1):
        tokens.append(f"[PAD{i}]")
        types.append(UNUSED)


def _ids_by_text(entries: Mapping[str, Any], path: Path) -> dict[str, int]:
    if not all(type(i) is int and 0 <= i < _MAX_TOKENS for i in entries.values()):
        raise ModelFormatError(f"{path} is damaged: an id is not a number below {_MAX_TOKENS}.")
    return dict(entries)
