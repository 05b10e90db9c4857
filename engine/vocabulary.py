"""Reads a model's vocabulary from tokenizer.json or out of a GGUF file, and says what is wrong with a bad one.

It encodes and decodes nothing (engine/tokenizer.py does). The tokenizers library is loaded when a file is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from engine.errors import ModelFormatError, TokenizerMismatchError, UnsupportedModelError

_MAX_FILE_BYTES = 256 << 20  # the largest tokenizer.json in use has 33 MB
_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
_GPT2_SPLITTING = (None, "", "gpt-2", "gpt2", "default")

_T = TypeVar("_T")
Pieces = Literal["byte-level", "spaced"]  # how a token's text spells bytes: GPT-2's alphabet, or ▁ for a space


@dataclass(frozen=True)
class Vocabulary:
    """What a model's files say about its tokens."""

    backend: Any  # tokenizers.Tokenizer
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    adds_bos: bool
    chat_template: str | None
    pieces: Pieces
    origin: str  # for messages


def read_files(tokenizer_json: Path, tokenizer_config: Path | None) -> Vocabulary:
    """The vocabulary of a Hugging Face model directory.

    Raises: ModelFormatError for a missing or damaged file, UnsupportedModelError for a kind of vocabulary that
    Hearth does not decode.
    """
    text = _read_text(tokenizer_json)
    document = _json_object(text, tokenizer_json)
    config = {} if tokenizer_config is None else _json_object(_read_text(tokenizer_config), tokenizer_config)
    pieces = _pieces_of(document, str(tokenizer_json))

    def build() -> Any:
        import tokenizers

        backend = tokenizers.Tokenizer.from_str(text)
        backend.no_truncation()
        backend.no_padding()
        return backend

    backend = guarded(build, str(tokenizer_json))
    bos, eos = (_named_id(backend, config, key, str(tokenizer_config)) for key in ("bos_token", "eos_token"))
    first = guarded(lambda: backend.encode("", add_special_tokens=True).ids[:1], str(tokenizer_json))
    if bos is None and "bos_token" not in config and first:
        bos = int(first[0])
    adds_bos = config.get("add_bos_token")
    return Vocabulary(
        backend=backend,
        bos_token_id=bos,
        eos_token_ids=() if eos is None else (eos,),
        adds_bos=adds_bos if isinstance(adds_bos, bool) else bos is not None and first == [bos],
        chat_template=_chat_template_of(config, str(tokenizer_config)),
        pieces=pieces,
        origin=str(tokenizer_json),
    )


def read_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary inside a GGUF file, for vocabularies of GPT-2's kind.

    Raises: ModelFormatError for missing or contradictory entries, UnsupportedModelError for another kind of
    vocabulary or of splitting; both name what they found.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise ModelFormatError("The GGUF file holds no vocabulary (tokenizer.ggml.model is missing).")
    if kind != "gpt2":
        raise UnsupportedModelError(f"The GGUF file's vocabulary is of the kind {kind!r}; Hearth reads 'gpt2'.")
    splitting = metadata.get("tokenizer.ggml.pre")
    if splitting not in _GPT2_SPLITTING:
        raise UnsupportedModelError(f"The GGUF file's vocabulary splits text as {splitting!r}; Hearth does 'gpt-2'.")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = [_merge(line) for line in _strings(metadata, "tokenizer.ggml.merges")]
    types = metadata.get("tokenizer.ggml.token_type")
    types = [1] * len(tokens) if types is None else types
    if not isinstance(types, Sequence) or len(types) != len(tokens):
        raise ModelFormatError(f"The GGUF file's tokenizer.ggml.token_type is no list of {len(tokens)} types.")
    vocabulary = {text: i for i, text in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelFormatError(f"{len(tokens) - len(vocabulary)} of the GGUF file's tokens appear twice.")

    def build() -> Any:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.decoder = decoders.ByteLevel()
        backend.add_tokens(
            [
                AddedToken(text, special=kind == _CONTROL, normalized=False)
                for text, kind in zip(tokens, types, strict=True)
                if kind in (_CONTROL, _USER_DEFINED) and text
            ]
        )
        return backend

    eos = (_gguf_id(metadata, f"tokenizer.ggml.{name}_token_id", len(tokens)) for name in ("eos", "eot", "eom"))
    template = metadata.get("tokenizer.chat_template")
    return Vocabulary(
        backend=guarded(build, "The GGUF file's vocabulary"),
        bos_token_id=_gguf_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens)),
        eos_token_ids=tuple(dict.fromkeys(token for token in eos if token is not None)),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        chat_template=template if isinstance(template, str) else None,
        pieces="byte-level",
        origin="The GGUF file's vocabulary",
    )


def guarded(build: Callable[[], _T], origin: str) -> _T:
    """Whatever the tokenizers library says of a file, as a ModelFormatError; its panics are no Exceptions."""
    try:
        return build()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ModelFormatError(f"{origin} is damaged: {' '.join(str(error).split())[:300]}") from error
        raise


def _read_text(path: Path) -> str:
    try:
        n_bytes = path.stat().st_size
        if n_bytes > _MAX_FILE_BYTES:
            raise ModelFormatError(f"{path} has {n_bytes} bytes; a tokenizer's file has at most {_MAX_FILE_BYTES}.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path} is not text (byte {error.start}).") from error


def _json_object(text: str, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON: {str(error)[:200]}.") from error
    if not isinstance(document, dict):
        raise ModelFormatError(f"{path} holds {type(document).__name__}; a JSON object is needed.")
    return document


def _pieces_of(document: Mapping[str, Any], path: str) -> Pieces:
    """How tokens spell bytes, from the decoder that the file names."""
    found: list[str] = []

    def collect(part: object, depth: int = 0) -> None:
        if isinstance(part, dict) and depth < 8:
            found.append(str(part.get("type")))
            for inner in part.get("decoders") or part.get("pretokenizers") or []:
                collect(inner, depth + 1)

    collect(document.get("decoder") or document.get("pre_tokenizer"))
    if "ByteLevel" in found:
        return "byte-level"
    if {"ByteFallback", "Metaspace"} & set(found):
        return "spaced"
    raise UnsupportedModelError(
        f"{path} decodes by {', '.join(found) or 'nothing'}; ByteLevel or ByteFallback is needed."
    )


def _token_text_of(value: object, key: str, path: str) -> str | None:
    """tokenizer_config.json names a token by its text, or by an object with its text as `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    if value is None or isinstance(value, str):
        return value
    raise ModelFormatError(f"{path}: {key} is {type(value).__name__}; a text is needed.")


def _named_id(backend: Any, config: Mapping[str, Any], key: str, path: str) -> int | None:
    text = _token_text_of(config.get(key), key, path)
    if not text:
        return None
    token_id: int | None = backend.token_to_id(text)
    if token_id is None:
        raise TokenizerMismatchError(f"{path}: the {key} {text!r} is not in the vocabulary.")
    return token_id


def _chat_template_of(config: Mapping[str, Any], path: str) -> str | None:
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if template is None or isinstance(template, str):
        return template
    raise ModelFormatError(f"{path}: chat_template is {type(template).__name__}; a text is needed.")


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = metadata.get(key)
    if values is None or isinstance(values, (str, bytes)):
        raise ModelFormatError(f"The GGUF file's {key} is missing.")
    strings = list(values)
    if not all(isinstance(value, str) for value in strings):
        raise ModelFormatError(f"The GGUF file's {key} holds something that is no text.")
    return strings


def _merge(line: str) -> tuple[str, str]:
    left, space, right = line.partition(" ")
    if not (left and space and right):
        raise ModelFormatError(f"The GGUF file's merge {line[:80]!r} is not two pieces.")
    return left, right


def _gguf_id(metadata: Mapping[str, Any], key: str, n_tokens: int) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_tokens:
        raise ModelFormatError(f"The GGUF file's {key} is {value!r}; its vocabulary has {n_tokens} tokens.")
    return value
