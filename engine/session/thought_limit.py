"""End a model's thought after a number of tokens by writing its end mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.session.sampling import Sampler, forced_tokens
from engine.text.thoughts import ReplySplitter

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer


def limit_thought(
    sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int], most: int | None, must_call: bool = False
) -> Sampler:
    """Return a sampler for one answer that ends the thought after `most` tokens; None: no limit.

    must_call: a call of a tool follows the thought, not an answer.

    At the limit, the sampler ignores the logits and returns the tokens of the end mark. A thought that the prompt has
    begun is limited only if nothing but white space follows its opening mark.
    """
    return sampler if most is None else _Limited(sampler, tokenizer, prompt, most, must_call)


class _Limited:
    def __init__(
        self, sampler: Sampler, tokenizer: Tokenizer, prompt: Sequence[int], most: int, must_call: bool
    ) -> None:  # fmt: skip
        self._must_call = must_call
        self._sampler, self._tokenizer, self._left = sampler, tokenizer, most
        self._text = tokenizer.raw_stream()
        self._reply = ReplySplitter()
        self._reply.append(tokenizer.opened_thought(prompt))
        self._is_ended = False  # once is enough, whatever the tokens of the mark look like
        self._end: list[int] = []  # remaining tokens of the end mark

    def __call__(self, logits: NDArray[np.float32], history: Sequence[int]) -> int:
        if self._reply.is_thinking and self._left == 0 and not self._is_ended:
            self._is_ended = True
            self._end = self._tokenizer.end_of_thought(self._reply.end_mark, not self._must_call)
        if self._end:
            return self._write(self._end.pop(0))
        token = self._sampler(logits, history)
        if self._reply.is_answering:
            return token
        if self._reply.is_thinking and self._left:
            self._left -= 1
        return self._write(token)

    def forced(self, history: Sequence[int]) -> list[int]:
        return list(self._end) or forced_tokens(self._sampler, history)

    def _write(self, token: int) -> int:
        self._reply.append(self._text.push(token))
        return token
