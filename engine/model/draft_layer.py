"""Layers that draft tokens (multi-token prediction, MTP, "nextn"), which some files have behind the model's layers.

Such a layer is read as a model of one layer. Its token at position p is the model's at p + 1. Its input combines the
embedding of that token with the model's hidden state at p, as it enters the head. Its logits are those of the token at
p + 2. Its own hidden state then stands for the model's at the next position, so that it drafts several tokens.
A draft is only a guess: the model computes every token itself.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2. The report does not say whether the hidden state is taken before or
after the final norm; vLLM, SGLang and llama.cpp (#24025, for Qwen3.5) take it after, and measured that more drafts are
accepted then, also from the layer to its next draft.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import EngineError, HostMemoryError
from engine.job import Job
from engine.model.down_layout import fit_down
from engine.model.families import PlannedTensor, draft_config, is_draft, planned_drafts
from engine.model.kv_cache import KVCache
from engine.model.model_files import OpenedModel, check_plan
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, load_weights
from native_kernels.backend import F32, I64

log = logging.getLogger(__name__)

# Positions of the text before a draft that the layer reads at most when it begins. The rest of a long prompt is not
# read: a small model would take several tokens' time for it, and with 8 positions nearly as many drafts were right as
# with 256 (tests/benchmarks/drafts_small.py).
FIRST_POSITIONS = 32
CAPACITY = 4096  # positions in the layer's cache; it is emptied when full
MOST_DRAFTS = 15  # that follow each other


@dataclass(frozen=True)
class OpenedDrafts(OpenedModel):
    """The layer that drafts tokens, as a model of one layer: some of the tensors of the files that hold both."""

    tensors: tuple[PlannedTensor, ...] = ()

    @property
    def plan(self) -> list[PlannedTensor]:
        return list(self.tensors)


def open_drafts(opened: OpenedModel) -> OpenedDrafts | None:
    """Return the layer that drafts tokens; None if the files have none that Hearth runs.

    Raises: ModelFormatError, UnsupportedModelError as `check_plan`.
    """
    kind, source = opened.files.kind, opened.source
    config, plan = planned_drafts(opened.config, kind, source.tensors)
    plan = fit_down(plan, source.tensors)
    if not plan:
        return None
    check_plan(plan, source, kind)
    own = {field: getattr(opened, field) for field in OpenedModel.__dataclass_fields__}
    parameters = sum(tensor.n_elements for tensor in plan)
    return OpenedDrafts(**{**own, "config": config, "parameters": parameters}, tensors=tuple(plan))


@dataclass(frozen=True, eq=False)
class DraftLayer:
    """The layer in memory, with the model's embedding and head where it has none of its own."""

    opened: OpenedDrafts
    weights: ModelWeights

    def shares_head(self, weights: ModelWeights) -> bool:
        return self.weights.head is weights.head

    def new_trail(self, context: int, codec: KvCodec) -> Trail:
        """Return an empty trail for a conversation of this many tokens. Raises: HostMemoryError."""
        return Trail(KVCache(self.opened.config, _positions(context), codec))


def trail_bytes(config: ModelConfig, context: int, codec: KvCodec) -> int:
    """Return the bytes of a trail for a conversation of this many tokens. config: of the model."""
    return KVCache.bytes_for(draft_config(config), _positions(context), codec)


def _positions(context: int) -> int:
    return min(context, CAPACITY) + MOST_DRAFTS


def load_drafts(
    opened: OpenedModel, weights: ModelWeights, job: Job = Job(), extra_bytes: int = 0, fits: bool = True
) -> tuple[DraftLayer | None, str]:
    """Return the layer that drafts tokens for the loaded model, and what became of it, in sentences.

    None, and an empty text, if the files have none. A layer that is damaged, or that the free RAM cannot hold, is left
    out: it only makes answers faster.
    extra_bytes: RAM that the caller needs beside the weights. fits: whether the memory plan has the layer.
    Raises: Cancelled.
    """
    try:
        drafts = open_drafts(opened)
        if drafts is not None and not fits:
            raise HostMemoryError("There is not enough memory for them and the model.")
        if drafts is not None:
            weights = load_weights(drafts, job, extra_bytes, hold=weights.hold, drafts_of=weights)
            return DraftLayer(drafts, weights), _described(drafts)
        note = describe_drafts(opened)
    except EngineError as error:
        note = _left_out(opened, error.message)
    if note:
        log.info("%s", note)
    return None, note


def describe_drafts(opened: OpenedModel) -> str:
    """Return what the files have of layers that draft tokens, in sentences; empty if they have none."""
    try:
        drafts = open_drafts(opened)
    except EngineError as error:
        return _left_out(opened, error.message)
    if drafts is not None:
        return _described(drafts)
    return _left_out(opened, "Hearth does not run them.") if _n_tensors(opened) else ""


def _described(drafts: OpenedDrafts) -> str:
    return f"A layer of {drafts.parameters / 1e6:.3g} million parameters drafts tokens (MTP)."


def _left_out(opened: OpenedModel, reason: str) -> str:
    n = _n_tensors(opened)
    return f"The {n} tensors of the model's layers that draft tokens (MTP) are left out. {reason}"


def _n_tensors(opened: OpenedModel) -> int:
    return sum(is_draft(opened.config, name) for name in opened.source.tensors)


class Drafter(Protocol):
    def fill(self, tokens: I64, hidden: F32, cache: KVCache) -> None:
        """Append positions to the layer's cache: tokens [T], and the model's hidden state before each, [T, D]."""

    def step(self, token: int, hidden: F32, cache: KVCache) -> tuple[F32, F32]:
        """Append a position; return the logits [V] of the token after it, and the hidden state for the next, [D]."""


class DraftTransformer(Transformer):
    """A Drafter on the CPU: a Transformer of one layer, with its program if the decoder is one."""

    _hidden: F32
    _far_head: Callable[[F32], F32] | None = None

    def use_head(self, far_head: Callable[[F32], F32] | None) -> None:
        """Set what computes logits [T, V] of hidden states [T, D]: the model's head on a GPU; None: the CPU."""
        self._far_head = far_head

    def fill(self, tokens: I64, hidden: F32, cache: KVCache) -> None:
        self._run_after(tokens, hidden, cache)

    def step(self, token: int, hidden: F32, cache: KVCache) -> tuple[F32, F32]:
        program = self.decoder if self.decoder is not None and self.decoder.accepts(cache) else None
        if program is not None and self._far_head is None:
            return program.step_after(hidden, token, cache)  # type: ignore[attr-defined, no-any-return]
        if program is not None:
            own = program.hidden_after(hidden, token, cache)[None]  # type: ignore[attr-defined]
        else:
            own = self._run_after(np.array([token], np.int64), hidden[None], cache)
        return (self._far_head or self.logits)(own)[0], own[0]

    def _run_after(self, tokens: I64, hidden: F32, cache: KVCache) -> F32:
        self._hidden = hidden
        return self.forward(tokens, cache)

    def embed(self, tokens: I64, positions: I64, all_streams: bool = True) -> F32:
        """Return the layer's input [T, D]."""
        weights = self.weights.draft_input
        assert weights is not None, "the layer drafts tokens"
        embedding = super().embed(tokens, positions, all_streams)
        parts = self.norm(embedding, weights.embedding_norm), self.norm(self._hidden, weights.hidden_norm)
        return self.operators.matmul(np.concatenate(parts, axis=-1), weights.project)


class Trail:
    """The state of a conversation for a layer that drafts tokens: its cache, and the model's latest hidden states.

    The cache's first position is the conversation's `origin`. It may begin anywhere: what it lacks makes drafts worse,
    and no result wrong. Where positions are missing between it and the hidden states, it begins again.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._origin = 0
        self._read = 0  # positions in the cache that were read with the model's hidden states, not after drafts
        self._first = 0  # position of the first hidden state
        self._hidden: deque[F32] = deque(maxlen=FIRST_POSITIONS)

    @property
    def most_positions(self) -> int:
        """Hidden states that it keeps."""
        return self._hidden.maxlen or 0

    def add(self, first: int, hidden: F32) -> None:
        """Note the model's hidden states [n, D] at the positions from `first` on."""
        if not self._first <= first <= self._first + len(self._hidden):
            self._hidden.clear()
        self.cut(first)
        if not self._hidden:
            self._first = first
        end = first + len(hidden)
        self._hidden.extend(hidden[-FIRST_POSITIONS:].copy())
        self._first = end - len(self._hidden)

    def cut(self, length: int) -> None:
        """Forget the positions from `length` on."""
        while self._hidden and self._first + len(self._hidden) > length:
            self._hidden.pop()
        self._read = min(self._read, max(0, length - self._origin))
        self._cache.truncate(self._read)

    def behind(self, text: Sequence[int], most: int = FIRST_POSITIONS) -> int:
        """Return how many positions the layer has yet to read before it can draft what follows the text; 0: it cannot.

        Its cache is cut to what it has of this text. If more than `most` positions are missing, it begins with these.
        """
        end = len(text) - 1  # the last token was not read by the model yet
        self.cut(end)
        if not self._hidden or self._first + len(self._hidden) != end:
            return 0
        if self._read and self._cache.tokens[self._read - 1] != text[self._origin + self._read]:
            self._read -= 1  # the conversation was cut between its position and its token
        at = min(self._origin + self._read, end - 1)  # the last position is computed again
        if (
            at < max(self._first, self._origin)
            or end - at > most
            or end - self._origin + MOST_DRAFTS > self._cache.capacity
        ):
            at = self._origin = max(self._first, end - most)
        self._read = at - self._origin
        self._cache.truncate(self._read)
        return end - at

    def fill(self, text: Sequence[int], drafter: Drafter) -> None:
        """Let the layer read all but the last of the positions that `behind` counted."""
        n = len(text) - 2 - self._origin - self._read
        if n > 0:
            tokens = np.asarray(text[-1 - n : -1], np.int64)
            drafter.fill(tokens, np.stack(list(self._hidden)[-1 - n : -1]), self._cache)
            self._read += n

    def catch_up(self, text: Sequence[int], drafter: Drafter) -> tuple[F32, F32]:
        """Let the layer read what it has not read of the text; call `behind` before.

        Returns the logits [V] of the next token, and the hidden state [D] for `follow`.
        """
        self.fill(text, drafter)
        found = drafter.step(text[-1], self._hidden[-1], self._cache)
        self._read += 1
        return found

    def follow(self, token: int, hidden: F32, drafter: Drafter) -> tuple[F32, F32]:
        """Let the layer read a draft; return as `catch_up`."""
        return drafter.step(token, hidden, self._cache)
