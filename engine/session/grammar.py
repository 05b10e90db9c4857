"""Constrain answers to a JSON schema: before each token, the llguidance library tells which tokens may follow.

A thought before the answer is free. Every schema has limits in size, depth and work for each token.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidRequestError
from engine.session.sampling import Sampler
from engine.text.thoughts import ReplySplitter, opened_thought

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

    from engine.text.tokenizer import Tokenizer

MOST_CHARS = 64 << 10  # of a schema
MOST_DEPTH = 48
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# White space as json.dumps writes it. If the model could choose it, a small one might never write anything else.
_STYLE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_EXCLUDED = np.float32(-1e30)  # finite, because samplers refuse other logits
_MOST_BLANK = 2  # tokens of white space between a thought and the answer


class Vocabulary:
    """A model's tokens as llguidance reads them. Cost: about 2 us for each token."""

    def __init__(self, tokenizer: Tokenizer, n_tokens: int, stops: Collection[int]) -> None:
        """n_tokens: logits of the model. stops: tokens that end an answer. Raises: InvalidRequestError if none does."""
        import llguidance

        if not stops:
            raise InvalidRequestError(
                "This model has no token that ends an answer, so its answers cannot follow a schema.",
                "Use a model for chats.",
            )
        self.stops = sorted(stops)
        self.made: LLTokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Wrapped(tokenizer, n_tokens, self.stops)), n_tokens, self.stops
        )


class _Wrapped:
    """What llguidance.TokenizerWrapper wants."""

    def __init__(self, tokenizer: Tokenizer, n_tokens: int, stops: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = stops[0], tokenizer.bos_token_id
        self.tokens = [tokenizer.token_bytes(i) for i in range(n_tokens)]
        self.special_token_ids = [i for i in range(n_tokens) if tokenizer.is_special(i)]

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", "replace"))


class Grammar:
    """A checked schema for one model. `constrain` may be called for several answers."""

    def __init__(self, schema: Mapping[str, Any], vocabulary: Vocabulary) -> None:
        """Raises: InvalidRequestError if the schema is invalid or beyond the limits."""
        import llguidance

        check_size(schema)
        self._vocabulary = vocabulary
        text = llguidance.LLMatcher.grammar_from_json_schema(dict(schema), overrides=_STYLE)
        self._first = llguidance.LLMatcher(vocabulary.made, text, log_level=0)
        self._raise_error(self._first)

    def constrain(self, sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int]) -> Sampler:
        """Return a sampler of one answer to the prompt that chooses only tokens that the schema allows.

        Raises: InvalidRequestError, also while it is used, if the schema needs too much work.
        """
        return _Constrained(self, sampler, tokenizer, prompt)

    def begin(self) -> LLMatcher:
        return self._first.deep_copy()

    def allowed(self, matcher: LLMatcher, n_tokens: int) -> NDArray[np.bool_]:
        """Return which tokens may follow, bool [n_tokens]."""
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        self._raise_error(matcher)
        return np.unpackbits(bits, bitorder="little", count=n_tokens).view(np.bool_)

    def without_stops(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits with those of tokens that end an answer excluded."""
        found = logits.copy()
        found[self._vocabulary.stops] = _EXCLUDED
        return found

    @staticmethod
    def _raise_error(matcher: LLMatcher) -> None:
        if matcher.is_error():
            why = " ".join(matcher.get_error().split())[:300]
            raise InvalidRequestError(f"The JSON schema cannot be used: {why}.", "Simplify the schema.")


def check_size(schema: Mapping[str, Any]) -> None:
    """Raises: InvalidRequestError for a schema that is too long or nested too deeply."""
    try:
        text = json.dumps(schema)
    except (RecursionError, ValueError, TypeError) as error:
        raise InvalidRequestError(f"The JSON schema cannot be read: {error}.", "Correct the schema.") from None
    if len(text) > MOST_CHARS:
        raise InvalidRequestError(f"The JSON schema has {len(text)} characters; {MOST_CHARS} are allowed.")
    level: list[Any] = [schema]
    for _ in range(MOST_DEPTH):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [value for values in inner for value in values]
        if not level:
            return
    raise InvalidRequestError(f"The JSON schema is nested more than {MOST_DEPTH} levels deep.")


class _Constrained:
    def __init__(self, grammar: Grammar, sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._grammar, self._sampler, self._tokenizer = grammar, sampler, tokenizer
        self._seen, self._blank = len(prompt), 0
        self._text, self._reply, self._begins = tokenizer.raw_stream(), ReplySplitter(), ""
        self._reply.append(tokenizer.opened_thought(prompt))
        self._matcher: LLMatcher | None = None  # once the answer has begun

    def __call__(self, logits: NDArray[np.float32], history: Sequence[int]) -> int:
        for token in history[self._seen :]:
            self._take(token)
        self._seen = len(history)
        if self._matcher is None:
            token = self._sampler(self._grammar.without_stops(logits), history)
            if self._is_free(token):
                return token
            self._matcher = self._grammar.begin()
        allowed = self._grammar.allowed(self._matcher, logits.size)
        return self._sampler(np.where(allowed, logits, _EXCLUDED), history)

    def _take(self, token: int) -> None:
        if self._matcher is not None:
            self._matcher.consume_token(token)
            return
        text = self._text.push(token)
        if not self._reply.is_thinking and not text.strip():
            self._blank += 1
        self._begins += text
        self._reply.append(text)

    def _is_free(self, token: int) -> bool:
        """Return whether a token comes before the answer: of a thought, its mark, or blank after it."""
        if header := self._tokenizer.answer_header:
            return not self._begins.endswith(header)
        if self._reply.is_thinking:
            return True
        text = self._tokenizer.token_bytes(token).decode("utf-8", "replace")
        if self._reply.has_thought:
            return not text.strip() and self._blank < _MOST_BLANK
        return bool(opened_thought(text)) and not self._begins.strip()
