"""Read the vocabulary in a GGUF file: SentencePiece's pieces with scores or merges, GPT-2's merges, or BERT's words.

tokenizer.py encodes and decodes. The input is the file's metadata, or the equivalent from
engine/text/older_vocabularies.py. The tokenizers library is loaded when a vocabulary is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.text.score_merges import MAX_PIECE_CHARS, merges_from_scores
from engine.text.splitting import splitting_of
from engine.text.vocabulary import Pieces, Vocabulary, ends_of, guarded, is_marker

ORIGIN = "The GGUF file's vocabulary"
# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_KINDS = ("llama", "gpt2", "t5", "gemma4", "bert")
_SPACE = "\u2581"
_MAX_CHARSMAP_BYTES = 2 << 20  # the one in use, nmt_nfkc, has a quarter of a megabyte
_LONG_TEXT = re.compile(rb"[^\0]{129}")  # the longest in use has 33 bytes
_UNLIKELY_CHARS = 8  # a piece that must not be found in text scores worse than this many of the worst ones
# Phi-3's markers consume the white space after them, and so does its </s>, which is not a marker; these do not.
_PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True)
class _Facts:
    """The checked parts of the metadata that all kinds share."""

    tokens: list[str]
    types: list[int]
    bos: int | None
    ends: tuple[int, ...]  # the end of text first
    special: frozenset[int]
    by_text: dict[str, int]  # the first of tokens with the same text
    repeated: dict[int, int]  # the others -> that first


def read_gguf(
    metadata: Mapping[str, Any], origin: str = ORIGIN, swallowing: frozenset[int] | None = None
) -> Vocabulary:
    """Return the vocabulary in a GGUF file.

    swallowing: special tokens that consume the white space after them; None: those of the architecture.
    `tokenizer.ggml.add_eos_token` has no effect on decoders: a prompt that ends with the end of text cannot start an
    answer, and chat templates write their own ends.

    Cost: for 256,000 pieces with scores below 1 s, for 32,000 about 0.1 s: tests/benchmarks/vocabularies.py. Raises:
    ModelFormatError for missing or contradictory entries, UnsupportedModelError for another kind of vocabulary or of
    splitting; both name what they found.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise ModelFormatError("The GGUF file has no vocabulary (tokenizer.ggml.model is missing).")
    if kind not in _KINDS:
        raise UnsupportedModelError(
            f"The GGUF file's vocabulary is of the kind {kind!r}; Hearth reads {', '.join(map(repr, _KINDS))}."
        )
    if swallowing is None:
        swallowing = _swallowing_of(metadata)
    if kind == "gpt2":
        return _read_byte_level(metadata, origin, swallowing)
    if kind == "bert":
        return _read_words(metadata, origin)
    return _read_pieces(metadata, origin, swallowing)


def tokens_of(metadata: Mapping[str, Any]) -> list[tuple[int, str, bool]]:
    """Return what Tokenizer.tokens would, without building the vocabulary. Cost: 0.1 s for 150,000 tokens.

    Raises: ModelFormatError.
    """
    facts = _facts(metadata, spaced=metadata.get("tokenizer.ggml.model") != "gpt2")
    return [(i, text, i in facts.special) for i, text in enumerate(facts.tokens)]


def _read_byte_level(metadata: Mapping[str, Any], origin: str, swallowing: frozenset[int]) -> Vocabulary:
    facts = _facts(metadata)
    splitting, note = splitting_of(metadata)
    merges = _merges(_strings(metadata, "tokenizer.ggml.merges"))

    def build() -> Any:
        from tokenizers import Tokenizer, decoders, models

        backend = Tokenizer(models.BPE(vocab=facts.by_text, merges=merges, ignore_merges=splitting.whole_words))
        normalizer, backend.pre_tokenizer = splitting.parts()
        if normalizer is not None:
            backend.normalizer = normalizer
        backend.decoder = decoders.ByteLevel()
        backend.add_tokens(_added(facts, swallowing))
        return backend

    return _vocabulary(
        metadata, facts, guarded(build, origin), origin, "byte-level", adds_bos=splitting.adds_bos, note=note
    )


def _read_words(metadata: Mapping[str, Any], origin: str) -> Vocabulary:
    """Read BERT's kind (WordPiece), in which converters mark a word's beginning instead of its later parts.

    As in llama.cpp, texts are put in lower case and lose their accents: the files do not say whether they should.
    """
    texts, types = _strings(metadata, "tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    special = {i for i, kind in enumerate(types or ()) if kind in (CONTROL, UNKNOWN)}
    spelt = [
        text if i in special else text[1:] if text.startswith(_SPACE) else f"##{text}" for i, text in enumerate(texts)
    ]
    first, last = (
        next((i for key in keys if (i := _gguf_id(metadata, f"tokenizer.ggml.{key}_token_id", len(texts))) is not None),
             texts.index(text) if text in texts else None)
        for text, *keys in (("[CLS]", "cls", "bos"), ("[SEP]", "seperator", "separator", "sep", "eos"))
    )  # fmt: skip
    facts = _facts({**metadata, "tokenizer.ggml.tokens": spelt, "tokenizer.ggml.bos_token_id": first})
    unknown = _gguf_id(metadata, "tokenizer.ggml.unknown_token_id", len(texts))
    if unknown is None:
        unknown = facts.by_text.get("[UNK]")
    if first is None or last is None or unknown is None:
        raise ModelFormatError("The GGUF file's vocabulary lacks the tokens [CLS], [SEP] or [UNK].")

    def build() -> Any:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        backend = Tokenizer(models.WordPiece(facts.by_text, unk_token=spelt[unknown]))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        backend.add_tokens(_added(facts, frozenset()))
        return backend

    vocabulary = _vocabulary(metadata, facts, guarded(build, origin), origin, "words", adds_bos=True)
    return replace(vocabulary, strips_first_space=True, unknown_token_id=unknown, closing_id=last)


def _read_pieces(metadata: Mapping[str, Any], origin: str, swallowing: frozenset[int]) -> Vocabulary:
    """Read SentencePiece's kinds.

    Byte-pair: of all neighbours, the pair whose join has the highest score is joined (`llama`), or the pair that comes
    first in the list of merges (`gemma4`). Unigram (`t5`): of all ways to cut a text, the one with the highest sum of
    scores.
    """
    facts = _facts(metadata, spaced=True)
    charsmap = _charsmap(metadata)
    tokens = facts.tokens
    unknown = _gguf_id(metadata, "tokenizer.ggml.unknown_token_id", len(tokens))
    if unknown is None and UNKNOWN in facts.types:
        unknown = facts.types.index(UNKNOWN)
    has_bytes = all(f"<0x{byte:02X}>" in facts.by_text for byte in range(256))
    prefixed = _flag(metadata, "tokenizer.ggml.add_space_prefix", True)
    collapses = _flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", False)
    kind = metadata["tokenizer.ggml.model"]
    by_pairs = kind != "t5"
    mergeable = [
        i for i, kind in enumerate(facts.types) if kind == NORMAL and i not in facts.special and i not in facts.repeated
    ]
    merges, entries = [], []
    if kind == "gemma4":
        merges = _merges(_strings(metadata, "tokenizer.ggml.merges"))
    elif by_pairs:
        merges = merges_from_scores(tokens, _scores(metadata, len(tokens)), mergeable)
    else:
        entries = _unigram_entries(facts, _scores(metadata, len(tokens)), mergeable)

    def build() -> Any:
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers

        if by_pairs:
            unknown_text = None if unknown is None else tokens[unknown]
            model: Any = models.BPE(
                vocab=facts.by_text, merges=merges, unk_token=unknown_text, fuse_unk=True, byte_fallback=has_bytes
            )
        else:
            model = models.Unigram(entries, unk_id=unknown, byte_fallback=has_bytes)
        backend = Tokenizer(model)
        steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
        if collapses:
            for pattern, instead in ((r"\A +|[ ▁]+\z", ""), (" {2,}", " ")):
                steps.append(normalizers.Replace(Regex(pattern), instead))
        steps += [normalizers.Prepend(_SPACE)] if prefixed else []
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
        backend.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        backend.add_tokens(_added(facts, swallowing))
        return backend

    vocabulary = _vocabulary(metadata, facts, guarded(build, origin), origin, "spaced", adds_bos=by_pairs)
    closing = next(iter(facts.ends), None) if _flag(metadata, "tokenizer.ggml.add_eos_token", False) else None
    return replace(vocabulary, strips_first_space=prefixed, unknown_token_id=unknown, closing_id=closing)


def _unigram_entries(facts: _Facts, scores: NDArray[np.float64], ordinary: list[int]) -> list[tuple[str, float]]:
    """Return every piece with its score. Pieces that no text may be cut into score worse than their
    single characters.
    """
    if max(map(len, facts.tokens), default=0) > MAX_PIECE_CHARS:
        raise ModelFormatError(f"A piece of the vocabulary has more than {MAX_PIECE_CHARS} characters.")
    worst = float(scores[ordinary].min()) if ordinary else 0.0
    if not np.isfinite(scores).all():
        raise ModelFormatError("A score of the vocabulary is infinite.")
    found = set(ordinary)
    unlikely = _UNLIKELY_CHARS * (worst - 10.0)
    values = scores.tolist()
    texts = (f"[{i} repeats {facts.repeated[i]}]" if i in facts.repeated else t for i, t in enumerate(facts.tokens))
    return [(text, values[i] if i in found else unlikely) for i, text in enumerate(texts)]


# --- what all kinds share


def _vocabulary(
    metadata: Mapping[str, Any],
    facts: _Facts,
    backend: Any,
    origin: str,
    pieces: Pieces,
    *,
    adds_bos: bool,
    note: str = "",
) -> Vocabulary:
    return Vocabulary(
        backend=backend,
        bos_token_id=facts.bos,
        eos_token_ids=facts.ends,
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", adds_bos),
        chat_template=_chat_template(metadata),
        pieces=pieces,
        origin=origin,
        ids=range(len(facts.tokens)),
        repeated=facts.repeated,
        notes=(note,) if note else (),
    )


def _facts(metadata: Mapping[str, Any], spaced: bool = False) -> _Facts:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    types = [NORMAL] * len(tokens) if types is None else types
    if not hasattr(types, "__len__") or isinstance(types, str) or len(types) != len(tokens):
        raise ModelFormatError(f"The GGUF file's tokenizer.ggml.token_type is not a list of {len(tokens)} types.")
    types = list(types)
    if spaced and USER_DEFINED in types:
        # The substitute for spaces in a piece must be a space when a user's text is searched for it.
        tokens = [
            text.replace(_SPACE, " ") if kind == USER_DEFINED else text
            for text, kind in zip(tokens, types, strict=True)
        ]
    by_text = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    repeated: dict[int, int] = {}
    if len(by_text) < len(tokens):
        repeated = {i: by_text[text] for i, text in enumerate(tokens) if by_text[text] != i}
    bos = _gguf_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens))
    ends = _ends(metadata, len(tokens))
    # Files of 2023 mark every token as ordinary, and some mark the markers of a chat as user-defined.
    special = {
        i
        for i, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if (kind in (CONTROL, UNKNOWN) and text)
        or (text.startswith("<") and kind in (NORMAL, USER_DEFINED) and is_marker(text))
    }
    special |= {i for i in (bos, *ends) if i is not None and len(tokens[i]) > 1}
    special |= {repeated[i] for i in special if i in repeated}
    ends += [repeated[i] for i in ends if i in repeated]
    every_end = ends_of(ends, {i: tokens[i] for i in special})
    return _Facts(tokens, types, bos, every_end, frozenset(special), by_text, repeated)


def _ends(metadata: Mapping[str, Any], n_tokens: int) -> list[int]:
    """Return the tokens that end an answer, each named alone or several in a list."""
    found: list[int] = []
    for name in ("eos_token_id", "eot_token_id", "eom_token_id", "eos_token_ids", "eog_token_ids"):
        key = f"tokenizer.ggml.{name}"
        value = metadata.get(key)
        for item in value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,):
            token = _gguf_id({key: item}, key, n_tokens)
            if token is not None:
                found.append(token)
    return found


def _swallowing_of(metadata: Mapping[str, Any]) -> frozenset[int]:
    if metadata.get("general.architecture") != "phi3" or metadata["tokenizer.ggml.model"] != "llama":
        return frozenset()
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    return frozenset(i for i, text in enumerate(tokens) if text not in _PHI3_PLAIN)


def _added(facts: _Facts, swallowing: frozenset[int]) -> list[Any]:
    """Return the tokens that are found in text before any merging."""
    from tokenizers import AddedToken

    return [
        AddedToken(text, special=i in facts.special, normalized=False, rstrip=i in swallowing)
        for i, (text, kind) in enumerate(zip(facts.tokens, facts.types, strict=True))
        if text and (i in facts.special or kind == USER_DEFINED) and i not in facts.repeated
    ]


def _charsmap(metadata: Mapping[str, Any]) -> bytes:
    """Return SentencePiece's table for rewriting characters; empty if text is unchanged.

    It starts with its size and that of a search tree, followed by zero-terminated replacements. Their lengths are
    checked here, because a table could make megabytes of every character.
    """
    value = metadata.get("tokenizer.ggml.precompiled_charsmap")
    if value is None:
        return b""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > _MAX_CHARSMAP_BYTES:
        raise ModelFormatError(
            f"The vocabulary's precompiled_charsmap is not a list of bytes below {_MAX_CHARSMAP_BYTES}."
        )
    try:
        table = bytes(item & 0xFF for item in value)  # some files hold them with a sign
    except TypeError as error:
        raise ModelFormatError("The vocabulary's precompiled_charsmap is not a list of bytes.") from error
    if table and (len(table) < 4 or _LONG_TEXT.search(table, 4 + int.from_bytes(table[:4], "little"))):
        raise ModelFormatError(
            "The vocabulary's precompiled_charsmap is damaged, or writes long texts for a character."
        )
    return table


def _chat_template(metadata: Mapping[str, Any]) -> str | None:
    """Return the template for plain chats; those for tools and documents have longer keys."""
    template = metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) else None


def _flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(key)
    return default if value is None else bool(value)


def _scores(metadata: Mapping[str, Any], n_tokens: int) -> NDArray[np.float64]:
    values = metadata.get("tokenizer.ggml.scores")
    if values is None or isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != n_tokens:
        raise ModelFormatError(f"The GGUF file's tokenizer.ggml.scores is not a list of {n_tokens} numbers.")
    values = list(values)
    if not set(map(type, values)) <= {int, float}:
        raise ModelFormatError("The GGUF file's tokenizer.ggml.scores holds something that is not a number.")
    try:
        scores = np.asarray(values, np.float64)
    except OverflowError as error:
        raise ModelFormatError("The GGUF file's tokenizer.ggml.scores holds a number of absurd size.") from error
    if np.isnan(scores).any():
        raise ModelFormatError("The GGUF file's tokenizer.ggml.scores holds something that is not a number.")
    return scores


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = metadata.get(key)
    if values is None or isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise ModelFormatError(f"The GGUF file's {key} is missing.")
    strings = list(values)
    if not set(map(type, strings)) <= {str}:
        raise ModelFormatError(f"The GGUF file's {key} holds something that is not text.")
    return strings


def _merges(lines: list[str]) -> list[tuple[str, str]]:
    """Return each line's two pieces."""
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    if not all(left and right for left, right in pairs):
        wrong = next(line for line, (left, right) in zip(lines, pairs, strict=True) if not (left and right))
        raise ModelFormatError(f"The GGUF file's merge {wrong[:80]!r} is not two pieces.")
    return pairs


def _gguf_id(metadata: Mapping[str, Any], key: str, n_tokens: int) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_tokens:
        raise ModelFormatError(f"The GGUF file's {key} is {value!r}; its vocabulary has {n_tokens} tokens.")
    return value
