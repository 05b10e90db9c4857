"""Reads the vocabulary inside a GGUF file: SentencePiece's pieces with scores, or GPT-2's with merges.

It encodes and decodes nothing (engine/tokenizer.py does), and reads no file itself: its input is the metadata. The
tokenizers library is loaded when a vocabulary is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.splitting import splitting_of
from engine.vocabulary import TURN_ENDS, Vocabulary, guarded, is_marker

ORIGIN = "The GGUF file's vocabulary"
# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_KINDS = ("llama", "gpt2")
_SPACE = "\u2581"
_MAX_PIECE_CHARS = 1024  # SentencePiece's longest has 16 by default; each is tried at every cut
# Phi-3's markers swallow the white space behind them; these do not.
_PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True)
class _Facts:
    """The parts of the metadata that both kinds share, checked."""

    tokens: list[str]
    types: list[int]
    bos: int | None
    ends: tuple[int, ...]  # the end of text first
    special: frozenset[int]


def read_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary inside a GGUF file.

    Cost: for 256,000 pieces with scores 2 to 3 s, for 32,000 about 0.3 s.
    Raises: ModelFormatError for missing or contradictory entries, UnsupportedModelError for another kind of
    vocabulary or of splitting; both name what they found.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise ModelFormatError("The GGUF file holds no vocabulary (tokenizer.ggml.model is missing).")
    if kind not in _KINDS:
        raise UnsupportedModelError(
            f"The GGUF file's vocabulary is of the kind {kind!r}; Hearth reads {' and '.join(map(repr, _KINDS))}."
        )
    return _read_pieces(metadata) if kind == "llama" else _read_byte_level(metadata)


def _read_byte_level(metadata: Mapping[str, Any]) -> Vocabulary:
    facts = _facts(metadata)
    splitting = splitting_of(metadata)
    merges = [_merge(line) for line in _strings(metadata, "tokenizer.ggml.merges")]
    vocabulary = _by_text(facts.tokens)

    def build() -> Any:
        from tokenizers import Tokenizer, decoders, models

        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=splitting.whole_words))
        normalizer, backend.pre_tokenizer = splitting.parts()
        if normalizer is not None:
            backend.normalizer = normalizer
        backend.decoder = decoders.ByteLevel()
        backend.add_tokens(_added(facts, metadata))
        return backend

    return Vocabulary(
        backend=guarded(build, ORIGIN),
        bos_token_id=facts.bos,
        eos_token_ids=facts.ends,
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", splitting.adds_bos),
        chat_template=_chat_template(metadata),
        pieces="byte-level",
        origin=ORIGIN,
    )


def _read_pieces(metadata: Mapping[str, Any]) -> Vocabulary:
    """SentencePiece's byte-pair kind: of two neighbours, those are joined whose whole has the highest score."""
    for key in ("remove_extra_whitespaces", "precompiled_charsmap"):
        value = metadata.get(f"tokenizer.ggml.{key}")
        if value is not None and value is not False and not (hasattr(value, "__len__") and len(value) == 0):
            raise UnsupportedModelError(
                f"The GGUF file's vocabulary rewrites text first ({key}), which Hearth does not."
            )
    facts = _facts(metadata)
    scores = _scores(metadata, len(facts.tokens))
    # What stands for spaces in a piece that a person's text is searched for must be spaces there, too.
    tokens = [
        text.replace(_SPACE, " ") if kind == USER_DEFINED else text
        for text, kind in zip(facts.tokens, facts.types, strict=True)
    ]
    facts = _Facts(tokens, facts.types, facts.bos, facts.ends, facts.special)
    vocabulary = _by_text(tokens)
    mergeable = [i for i, kind in enumerate(facts.types) if kind == NORMAL and i not in facts.special]
    merges = merges_from_scores(tokens, scores, mergeable)
    unknown = _gguf_id(metadata, "tokenizer.ggml.unknown_token_id", len(tokens))
    if unknown is None and UNKNOWN in facts.types:
        unknown = facts.types.index(UNKNOWN)
    has_bytes = all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    prefixed = _flag(metadata, "tokenizer.ggml.add_space_prefix", True)

    def build() -> Any:
        from tokenizers import Tokenizer, decoders, models, normalizers

        backend = Tokenizer(
            models.BPE(
                vocab=vocabulary,
                merges=merges,
                unk_token=None if unknown is None else tokens[unknown],
                fuse_unk=True,
                byte_fallback=has_bytes,
            )
        )
        spaces = normalizers.Replace(" ", _SPACE)
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefixed else spaces
        backend.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        backend.add_tokens(_added(facts, metadata))
        return backend

    return Vocabulary(
        backend=guarded(build, ORIGIN),
        bos_token_id=facts.bos,
        eos_token_ids=facts.ends,
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", True),
        chat_template=_chat_template(metadata),
        pieces="spaced",
        origin=ORIGIN,
        strips_first_space=prefixed,
    )


def merges_from_scores(tokens: list[str], scores: list[float], mergeable: list[int]) -> list[tuple[str, str]]:
    """The merges that join pieces in the order of their scores, the best first.

    A piece can be joined from several pairs; all are listed, the longest left part first: SentencePiece joins equal
    scores from the left, so that long left parts are what it leaves. Cost: O(characters of all pieces).
    """
    parts = {tokens[i] for i in mergeable}
    longest = max(map(len, parts), default=0)
    if longest > _MAX_PIECE_CHARS:
        raise ModelFormatError(f"A piece of the GGUF file's vocabulary has {longest} characters.")
    return [
        (text[:cut], text[cut:])
        for text in (tokens[i] for i in sorted(mergeable, key=lambda i: -scores[i]))
        for cut in range(len(text) - 1, 0, -1)
        if text[:cut] in parts and text[cut:] in parts
    ]


# ------------------------------------------------------------------ what both kinds share


def _facts(metadata: Mapping[str, Any]) -> _Facts:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    types = [NORMAL] * len(tokens) if types is None else types
    if not hasattr(types, "__len__") or isinstance(types, str) or len(types) != len(tokens):
        raise ModelFormatError(f"The GGUF file's tokenizer.ggml.token_type is no list of {len(tokens)} types.")
    types = list(types)
    bos = _gguf_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens))
    named = (_gguf_id(metadata, f"tokenizer.ggml.{name}_token_id", len(tokens)) for name in ("eos", "eot", "eom"))
    ends = [token for token in named if token is not None]
    # Files of 2023 call every token ordinary, and some call the marks of a chat a person's own.
    special = {
        i
        for i, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if text and (kind in (CONTROL, UNKNOWN) or (kind in (NORMAL, USER_DEFINED) and is_marker(text)))
    }
    special |= {i for i in (bos, *ends) if i is not None and len(tokens[i]) > 1}
    ends += [i for i in sorted(special) if tokens[i] in TURN_ENDS]
    return _Facts(tokens, types, bos, tuple(dict.fromkeys(ends)), frozenset(special))


def _added(facts: _Facts, metadata: Mapping[str, Any]) -> list[Any]:
    """The tokens that are found in text before anything is merged."""
    from tokenizers import AddedToken

    swallowing = metadata.get("general.architecture") == "phi3" and metadata["tokenizer.ggml.model"] == "llama"
    return [
        AddedToken(
            text,
            special=i in facts.special,
            normalized=False,
            rstrip=swallowing and i in facts.special and text not in _PHI3_PLAIN,
        )
        for i, (text, kind) in enumerate(zip(facts.tokens, facts.types, strict=True))
        if text and (i in facts.special or kind == USER_DEFINED)
    ]


def _by_text(tokens: list[str]) -> dict[str, int]:
    vocabulary = {text: i for i, text in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelFormatError(f"{len(tokens) - len(vocabulary)} of the GGUF file's tokens appear twice.")
    return vocabulary


def _chat_template(metadata: Mapping[str, Any]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) else None


def _flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(key)
    return default if value is None else bool(value)


def _scores(metadata: Mapping[str, Any], n_tokens: int) -> list[float]:
    values = metadata.get("tokenizer.ggml.scores")
    if values is None or isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != n_tokens:
        raise ModelFormatError(f"The GGUF file's tokenizer.ggml.scores is no list of {n_tokens} numbers.")
    scores = list(values)
    if not all(isinstance(score, (int, float)) and score == score for score in scores):
        raise ModelFormatError("The GGUF file's tokenizer.ggml.scores holds something that is no number.")
    return scores


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = metadata.get(key)
    if values is None or isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
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
