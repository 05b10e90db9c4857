"""A vocabulary, and reading one from a model directory's tokenizer.json.

tokenizer.py encodes and decodes; gguf_vocabulary.py reads GGUF files, older_vocabularies.py directories without
tokenizer.json. The tokenizers library is loaded when a file is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from engine.errors import ModelFormatError, TokenizerMismatchError, UnsupportedModelError
from engine.formats.json_text import parse_object
from engine.text import harmony
from engine.text.pattern_cost import check_patterns
from engine.text.text_stream import SOLAR, SOLAR_ENDS

# Limits of a file: about one and a half times the most in real files (Gemma 3's tokenizer.json has 33 MB, 1.3 million
# values, half a million pairs).
_MAX_FILE_BYTES = 48 << 20
_MAX_VALUES = 2 << 20
_MAX_CONTAINERS = 800_000
_MAX_ADDED_TOKENS = 1 << 14  # Gemma 3 has 6,400
_MAX_TEMPLATE_BYTES = 1 << 20  # the largest in use have 30 thousand
_MOST_GROWTH = 64  # of a text, by a file's replacements before splitting
# Tokens after which it is the user's turn, or the text is over. An answer ends there even if the file's own end of text
# is another.
TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|end_of_text|>", "<|endoftext|>",
    "<｜end▁of▁sentence｜>", "<|EOT|>", "<EOT>", "<end_of_utterance>", "<|return|>", "<|call|>",
    "<|end_of_msg|>",
)  # fmt: skip
_MARKER = re.compile(r"<\|[^|<>\s]{1,60}\|>|<(?:start|end)_of_turn>|<｜[^｜<>\s]{1,60}｜>")

_T = TypeVar("_T")
# How a token's text spells bytes: in GPT-2's alphabet, with ▁ for a space, or as words whose later parts begin with ##.
Pieces = Literal["byte-level", "spaced", "words"]


@dataclass(frozen=True)
class Vocabulary:
    """The properties of a model's tokens according to its files."""

    backend: Any  # tokenizers.Tokenizer
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    adds_bos: bool
    chat_template: str | None
    pieces: Pieces
    origin: str  # for messages
    strips_first_space: bool = False  # a text's first token has a space that the text does not
    unknown_token_id: int | None = None  # where the backend does not name it
    ids: Sequence[int] = ()  # all of them, ascending; empty: as the backend says
    repeated: Mapping[int, int] = field(default_factory=dict)  # ids whose text is an earlier token's -> that token
    notes: tuple[str, ...] = ()  # for the user, one sentence each
    closing_id: int | None = None  # the token that an encoder reads behind each text


def read_files(tokenizer_json: Path, tokenizer_config: Path | None) -> Vocabulary:
    """Return the vocabulary of a Hugging Face model directory.

    Raises: ModelFormatError for a missing or damaged file, UnsupportedModelError for an unsupported kind of vocabulary.
    """
    text = read_text(tokenizer_json)
    document = _parsed(text, tokenizer_json)
    _check_extent(document, tokenizer_json)
    check_patterns([document.get("normalizer"), document.get("pre_tokenizer")], str(tokenizer_json))
    config = {} if tokenizer_config is None else read_json_object(tokenizer_config)
    text = _with_special_marks(document, config) or text
    return _vocabulary(text, document, config, tokenizer_json, str(tokenizer_config))


def _vocabulary(
    text: str, document: Mapping[str, Any], config: Mapping[str, Any], path: Path, config_path: str
) -> Vocabulary:
    pieces = _pieces_of(document, str(path))

    def build() -> Any:
        import tokenizers

        backend = tokenizers.Tokenizer.from_str(text)
        backend.no_truncation()
        backend.no_padding()
        return backend

    backend = guarded(build, str(path))
    bos, eos = (_named_id(backend, config, key, config_path) for key in ("bos_token", "eos_token"))
    around = guarded(lambda: backend.encode("", add_special_tokens=True).ids, str(path))
    first = around[:1]
    if bos is None and "bos_token" not in config and first:
        bos = int(first[0])
    adds_bos = config.get("add_bos_token")
    return Vocabulary(
        backend=backend,
        bos_token_id=bos,
        eos_token_ids=ends_of(() if eos is None else (eos,), _special_texts(backend)),
        adds_bos=adds_bos if isinstance(adds_bos, bool) else bos is not None and first == [bos],
        chat_template=chat_template_of(config, path, config_path),
        pieces=pieces,
        origin=str(path),
        strips_first_space=pieces == "words" or (pieces == "spaced" and _strips_first_space(document.get("decoder"))),
        unknown_token_id=_unknown_of(document, backend),
        ids=_ids_of(backend, document),
        closing_id=int(around[-1]) if len(around) > 1 else None,
    )


def _ids_of(backend: Any, document: Mapping[str, Any]) -> Sequence[int]:
    """Return all ids from the file's own list, because the library is slow for a large vocabulary."""
    model = document.get("model")
    entries = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(entries, list):  # Unigram's, with scores
        entries = {i: i for i in range(len(entries))}
    if not isinstance(entries, dict):
        return ()
    return sorted({*entries.values(), *map(int, backend.get_added_tokens_decoder())})


def _unknown_of(document: Mapping[str, Any], backend: Any) -> int | None:
    """Return Unigram's unknown token, which the library does not name."""
    model = document.get("model")
    unknown = model.get("unk_id") if isinstance(model, dict) else None
    return unknown if type(unknown) is int and backend.id_to_token(unknown) is not None else None


def is_marker(text: str) -> bool:
    """Return whether a token's text is a chat marker, such as <|im_end|>: it is special even if its file says
    otherwise.
    """
    return _MARKER.fullmatch(text) is not None


def ends_of(stated: Sequence[int], special: Mapping[int, str]) -> tuple[int, ...]:
    """Return every token that ends an answer, for any file format: those that the files state, in order, then the
    special tokens that end a turn. special: id -> text.
    """
    ends = turn_ends(special.values())
    stated = [i for i in stated if special.get(i) in (None, *ends) or special[i] not in TURN_ENDS]
    return tuple(dict.fromkeys([*stated, *(i for i in sorted(special) if special[i] in ends)]))


def turn_ends(special: Collection[str]) -> tuple[str, ...]:
    """Return the texts of special tokens that end a turn in this vocabulary."""
    if set(special) >= {*SOLAR.marks, *SOLAR_ENDS}:  # "<|end|>" ends a thought there
        return (*(end for end in TURN_ENDS if end != SOLAR.last), *SOLAR_ENDS)
    return harmony.TURN_ENDS if harmony.speaks_harmony(special) else TURN_ENDS


def _special_texts(backend: Any) -> dict[int, str]:
    added = backend.get_added_tokens_decoder()
    return {int(i): token.content for i, token in added.items() if token.special}


def guarded(build: Callable[[], _T], origin: str) -> _T:
    """Convert every error of the tokenizers library to a ModelFormatError. Its panics are not Exceptions.

    Raises: ImportError if the library itself cannot be loaded.
    """
    try:
        return build()
    except ImportError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ModelFormatError(f"{origin} is damaged: {' '.join(str(error).split())[:300].rstrip('.')}.") from error
        raise


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a tokenizer's JSON file. Raises: ModelFormatError."""
    return _parsed(read_text(path), path)


def read_text(path: Path, max_bytes: int = _MAX_FILE_BYTES) -> str:
    """Return the text of a tokenizer's file. Raises: ModelFormatError if it is missing, too long or not text."""
    try:
        n_bytes = path.stat().st_size
        if n_bytes > max_bytes:
            raise ModelFormatError(f"{path} has {n_bytes} bytes; at most {max_bytes} are accepted.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path} is not text (byte {error.start}).") from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    return parse_object(
        text.encode(), str(path), max_bytes=_MAX_FILE_BYTES, max_values=_MAX_VALUES, max_containers=_MAX_CONTAINERS
    )


def _check_extent(document: Mapping[str, Any], path: Path) -> None:
    """Raise ModelFormatError for files on which the tokenizers library would spend very much time or memory."""
    added = document.get("added_tokens")
    if isinstance(added, list) and len(added) > _MAX_ADDED_TOKENS:
        raise ModelFormatError(f"{path} adds {len(added)} tokens; at most {_MAX_ADDED_TOKENS} are accepted.")
    if _growth(document.get("normalizer")) > _MOST_GROWTH:
        raise ModelFormatError(f"{path} replaces letters so that a text may grow more than {_MOST_GROWTH} times.")


def _growth(normalizer: object, depth: int = 0) -> int:
    """Return the factor by which replacements may lengthen a text."""
    if not isinstance(normalizer, dict) or depth > 8:
        return 1
    content, pattern, growth = normalizer.get("content"), normalizer.get("pattern"), 1
    if normalizer.get("type") == "Replace" and isinstance(content, str):
        letters = pattern.get("String") if isinstance(pattern, dict) else None
        growth = max(1, len(content) // max(1, len(letters) if isinstance(letters, str) else 1))
    prepended = normalizer.get("prepend")
    if normalizer.get("type") == "Prepend" and isinstance(prepended, str):
        growth = 1 + len(prepended)  # of a text of one letter
    inner = normalizer.get("normalizers")
    for part in inner if isinstance(inner, list) else ():
        growth = min(growth * _growth(part, depth + 1), 1 << 40)
    return growth


def _pieces_of(document: Mapping[str, Any], path: str) -> Pieces:
    """Return how tokens spell bytes, according to the file's decoder."""
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
    if "WordPiece" in found:
        return "words"
    raise UnsupportedModelError(
        f"{path} decodes by {', '.join(found) or 'nothing'}; ByteLevel, ByteFallback or WordPiece is needed."
    )


def _strips_first_space(decoder: object, depth: int = 0) -> bool:
    """Return whether a decoder removes the space that encoding put at a text's beginning."""
    if not isinstance(decoder, dict) or depth > 8:
        return False
    kind, inner = decoder.get("type"), decoder.get("decoders")
    if kind == "Metaspace":
        return decoder.get("prepend_scheme", "always") != "never" and decoder.get("add_prefix_space") is not False
    if kind == "Strip":
        return decoder.get("content") == " " and bool(decoder.get("start"))
    return isinstance(inner, list) and any(_strips_first_space(part, depth + 1) for part in inner)


def _with_special_marks(document: dict[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return the file with its chat markers declared special; None if they already are."""
    ends = {value.get("content") if isinstance(value, dict) else value
            for value in (config.get("bos_token"), config.get("eos_token"))}  # fmt: skip
    changed = False
    added = document.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        text = token.get("content") if isinstance(token, dict) else None
        if isinstance(text, str) and token.get("special") is False and (is_marker(text) or text in ends):
            token["special"] = changed = True
    return json.dumps(document) if changed else None


def token_text_of(value: object, key: str, path: str) -> str | None:
    """Return the text of a token in tokenizer_config.json: a string, or an object with the text as `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    if value is None or isinstance(value, str):
        return value
    raise ModelFormatError(f"{path}: {key} is {type(value).__name__}; a text is needed.")


def _named_id(backend: Any, config: Mapping[str, Any], key: str, path: str) -> int | None:
    text = token_text_of(config.get(key), key, path)
    if not text:
        return None
    token_id: int | None = backend.token_to_id(text)
    if token_id is None:
        raise TokenizerMismatchError(f"{path}: the {key} {text!r} is not in the vocabulary.")
    return token_id


def chat_template_of(config: Mapping[str, Any], tokenizer_json: Path, path: str) -> str | None:
    """Return the model's own chat template: a file of that name next to the tokenizer, as in transformers, or the
    configuration's; of several, the one for plain chats.
    """
    template = config.get("chat_template")
    beside = tokenizer_json.with_name("chat_template.jinja")
    if beside.is_file():
        return read_text(beside, _MAX_TEMPLATE_BYTES)
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if template is None or isinstance(template, str):
        return template
    raise ModelFormatError(f"{path}: chat_template is {type(template).__name__}; a text is needed.")
