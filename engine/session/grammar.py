"""Constrain answers to a schema, regular expression or grammar, or to text and well-formed calls of tools.

Before each token, the llguidance library computes which tokens are allowed. A thought before the answer is not
constrained. The size and depth of a constraint and its work for each token are limited.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.config import MOST_ANSWERS
from engine.errors import InvalidRequestError
from engine.session.constraint import STYLE, Constraint, check_size
from engine.session.sampling import Sampler
from engine.text.thoughts import ReplySplitter, opened_thought
from engine.tool_calls.call_format import HARMONY, CallFormat
from engine.tool_calls.call_grammar import CallGrammar
from engine.tool_calls.tool import ToolUse

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from engine.text.tokenizer import Tokenizer

_EXCLUDED = np.float32(-1e30)  # finite, because samplers reject infinite logits
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_MOST = np.where(_BITS, np.float32(np.inf), _EXCLUDED)  # [256, 8]: of the eight tokens of each byte of a mask
_BEFORE = "\n"
_STACK_BYTES, _STACK_LOCK = 64 << 20, threading.Lock()
_MOST_BLANK = 2  # white-space tokens allowed between a thought and the answer


class Vocabulary:
    """A model's vocabulary for llguidance. Cost: about 2 us for each token."""

    def __init__(self, tokenizer: Tokenizer, n_tokens: int, stops: Collection[int]) -> None:
        """n_tokens: number of logits. stops: tokens that end an answer. Raises: InvalidRequestError without stops."""
        import llguidance

        if not stops:
            raise InvalidRequestError(
                "This model cannot follow a schema or grammar: its vocabulary has no token that ends an answer.",
                "Use a chat model.",
            )
        self.stops, self.size = sorted(stops), n_tokens
        self.pool = ThreadPoolExecutor(MOST_ANSWERS, "token masks")
        self.made: LLTokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Wrapped(tokenizer, n_tokens, self.stops)), n_tokens, self.stops
        )


class _Wrapped:
    """An adapter from Tokenizer to the interface that llguidance.TokenizerWrapper reads."""

    def __init__(self, tokenizer: Tokenizer, n_tokens: int, stops: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = stops[0], tokenizer.bos_token_id
        self.tokens = [tokenizer.token_bytes(i) for i in range(n_tokens)]
        self.special_token_ids = [i for i in range(n_tokens) if tokenizer.is_special(i)]

    def __call__(self, text: bytes) -> list[int]:
        """Return the tokens of a text within an answer: some tokenizers put a space before the first one."""
        before = self._tokenizer.encode(_BEFORE)
        tokens = self._tokenizer.encode(_BEFORE + text.decode("utf-8", "replace"))
        return tokens[len(before) :] if tokens[: len(before)] == before else []


class Grammar:
    """A compiled grammar for one model. `constrain` can be called for several answers.

    begins_freely: whether the answer may begin with any text. covers_thoughts: whether the grammar includes thoughts,
    so that it applies from the first token on. must_call: whether the answer must be a call of a tool.
    """

    begins_freely = covers_thoughts = must_call = False

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary, covers_thoughts: bool = False) -> None:
        """Raises: InvalidRequestError if the constraint is invalid or exceeds a limit."""
        constraint.check()
        self._vocabulary, self._name, self.covers_thoughts = vocabulary, constraint.name, covers_thoughts
        self._compile(constraint.lark)

    def _compile(self, text: str) -> None:
        """Raises: InvalidRequestError."""
        import llguidance

        try:
            compiled = llguidance.LLMatcher.grammar_from_lark(text)
        except UnicodeEncodeError:
            raise InvalidRequestError(
                f"The {self._name} cannot be used: it contains half of a surrogate pair."
            ) from None
        self._first = _with_large_stack(lambda: llguidance.LLMatcher(self._vocabulary.made, compiled, log_level=0))
        self._raise_error(self._first)

    def constrain(self, sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int]) -> Sampler:
        """Return a sampler for one answer to the prompt that chooses only tokens that the constraint allows.

        Raises: the sampler raises InvalidRequestError if the constraint needs too much work for a token.
        """
        return _Constrained(self, sampler, tokenizer, prompt)

    def begin(self) -> LLMatcher:
        return self._first.deep_copy()

    def most(self, matcher: LLMatcher) -> NDArray[np.float32]:
        """Return the largest logits that the constraint leaves to the next token, float32 [V]: infinity, or very small.

        Cost: 0.05 ms to a few ms for 150,000 tokens, mostly without the lock of Python. `take` needs a twentieth of the
        time of unpacking the bits and choosing by them.
        """
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        self._raise_error(matcher)
        return _MOST.take(bits, axis=0).reshape(-1)[: self._vocabulary.size]

    def begin_most(self, matcher: LLMatcher) -> Future[NDArray[np.float32]]:
        """Compute `most` in another thread. The matcher must not be used before the result is there."""
        return self._vocabulary.pool.submit(self.most, matcher)

    def without_stops(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a copy of the logits that excludes the tokens that end an answer."""
        found = logits.copy()
        found[self._vocabulary.stops] = _EXCLUDED
        return found

    def _raise_error(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            why = " ".join(matcher.get_error().partition("<state>")[0].split())[:300]
            raise InvalidRequestError(f"The {self._name} cannot be used: {why}.", f"Simplify the {self._name}.")


class ToolGrammar(Grammar):
    """The grammar of an answer that may call tools, in the format of the model.

    constraint: of an answer that is not a call; None: any text.
    """

    def __init__(
        self,
        call_format: CallFormat,
        use: ToolUse,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        constraint: Constraint | None = None,
    ) -> None:
        """Raises: InvalidRequestError if a schema is invalid or exceeds a limit."""
        for tool in use.callable:
            check_size(tool.parameters)
        if constraint is not None:
            constraint.check()
        self._vocabulary = vocabulary
        self._name = "JSON schema" if constraint is None else constraint.name
        self.must_call = use.choice == "required"
        self.begins_freely = constraint is None and not self.must_call
        self.covers_thoughts = call_format is HARMONY
        answer = None if constraint is None else constraint.part
        self._compile(CallGrammar(call_format, use, tokenizer.special_ids, STYLE, answer).text)


def _with_large_stack(make: Callable[[], LLMatcher]) -> LLMatcher:
    """Call a function in a thread with a stack of 64 MB.

    llguidance follows references of schemas recursively: a chain of 300 overflows a stack of 2 MB and ends the process.
    """
    with _STACK_LOCK:
        before = threading.stack_size(_STACK_BYTES)
        try:
            pool = ThreadPoolExecutor(1, "grammar")
            made = pool.submit(make)
        finally:
            threading.stack_size(before)
    with pool:
        return made.result()


class _Constrained:
    def __init__(self, grammar: Grammar, sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._grammar, self._sampler, self._tokenizer = grammar, sampler, tokenizer
        self._seen, self._blank = len(prompt), 0
        self._text, self._reply, self._begins = tokenizer.raw_stream(), ReplySplitter(), ""
        self._reply.append(tokenizer.opened_thought(prompt))
        if (header := tokenizer.answer_header) and tokenizer.decode(prompt[-12:], skip_special=False).endswith(header):
            self._begins = header
        self._matcher = grammar.begin() if grammar.covers_thoughts else None  # None until the answer begins
        self._undecided: list[int] = []  # tokens that may begin a thought or the answer
        self._next, self._known = list[int](), -1  # the forced tokens after a history of this length
        self._computed: Future[NDArray[np.float32]] | None = None  # for the next token

    def __call__(self, logits: NDArray[np.float32], history: Sequence[int]) -> int:
        if forced := self._forced(history):
            return forced[0]
        if self._matcher is None:
            token = self._sampler(self._grammar.without_stops(logits), history)
            if self._is_free(token):
                return token
            self._matcher = self._grammar.begin()
            if self._grammar.begins_freely and not self._tokenizer.answer_header:
                self._matcher.try_consume_tokens(self._undecided)
        computed, self._computed = self._computed, None
        most = self._grammar.most(self._matcher) if computed is None else computed.result()
        return self._sampler(np.minimum(logits, most, out=most), history)

    def forced(self, history: Sequence[int]) -> list[int]:
        """As sampling.forced_tokens: where the constraint leaves no choice, as in the names of properties.

        Where it leaves one, the mask is computed in another thread until the model has computed the logits.
        """
        forced = self._forced(history)
        if not forced and self._matcher is not None and self._computed is None:
            self._computed = self._grammar.begin_most(self._matcher)
        return forced

    def _forced(self, history: Sequence[int]) -> list[int]:
        if len(history) == self._known:  # the matcher may be in use by another thread
            return self._next
        if self._computed is not None:
            wait([self._computed])
            self._computed = None
        for token in history[self._seen :]:
            self._take(token)
        self._seen = self._known = len(history)
        tokens = [] if self._matcher is None else self._matcher.compute_ff_tokens()
        self._next = tokens[: self._matcher.validate_tokens(tokens)] if self._matcher and tokens else []
        return self._next

    def _take(self, token: int) -> None:
        if self._matcher is not None:
            self._matcher.consume_token(token)
            return
        text = self._text.push(token)
        if not self._reply.is_thinking and not text.strip():
            self._blank += 1
        self._begins += text
        was_thinking = self._reply.is_thinking
        self._reply.append(text)
        self._undecided = [] if was_thinking or self._reply.is_thinking else [*self._undecided, token]

    def _is_free(self, token: int) -> bool:
        """Return whether a token precedes the answer: opens a thought, is part of one, or is white space after one."""
        if header := self._tokenizer.answer_header:
            return not self._begins.endswith(header)
        if self._reply.is_thinking:
            return True
        text = self._tokenizer.token_bytes(token).decode("utf-8", "replace")
        if self._grammar.begins_freely:
            after = copy.copy(self._reply)
            after.append(text)
            return not after.is_answering
        if self._reply.has_thought:
            return not text.strip() and self._blank < _MOST_BLANK
        return bool(opened_thought(text)) and not self._begins.strip()
