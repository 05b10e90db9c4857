"""The main path: prefill, decode one token, generate.

A prompt enters as token ids; an iterator of TokenEvent comes out. All steps of the model's own layers begin here.
engine/model describes the model, engine/executor computes its FFN. Paper: PowerInfer, section 4 (the online phase).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled, EngineError, HostMemoryError
from engine.job import CancelCheck, Job, never
from engine.prompt_cache.block_file import BLOCK_TOKENS
from engine.session.sampling import BrokenLogitsError, forced_tokens

if TYPE_CHECKING:
    from engine.model.kv_cache import KVCache
    from engine.model.transformer import Transformer
    from engine.session.batch import BatchModel
    from engine.session.guesses import Guesses
    from engine.session.sampling import Sampler
    from engine.text.tokenizer import TextStream

log = logging.getLogger(__name__)

Logits = npt.NDArray[np.float32]  # [V]
FinishReason = Literal["stop", "length", "cancelled"]

# A cancel takes effect between two layers of a prefill chunk, so a layer should take about TARGET_LAYER_S. The time per
# layer of one chunk sets the size of the next: as large as that allows, because each chunk reads all weights once. A 7B
# Q4_0 bundle on 8 threads of a Xeon prefilled 92 tokens/s in chunks of 32 (of 256 tokens), and 143 in chunks chosen
# this way (of 512). The next prompt begins with the size chosen last: as chunks of 32 and 95, 127 tokens of a mixture
# of experts took a fifth more time of two threads than in one.
SMALLEST_CHUNK_TOKENS = 32
FEWEST_CHUNK_TOKENS = 8  # of a chunk at the end of a turn; fewer may be computed as in decode, which rounds differently
TARGET_LAYER_S = 0.2
# If the cache has recurrent state, it is remembered before a prompt's last tokens.
# They cover how a template begins an answer, which the next prompt may write in another way, such as without a thought.
TURN_END_TOKENS = 16
# It is also remembered after instructions of at least this many tokens, with which other chats begin too. Fewer are not
# worth a chunk of their own.
FEWEST_INSTRUCTIONS_TOKENS = 256


@dataclass
class GenerationStats:
    """Figures of one answer in seconds and tokens/s; None if not measured."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # prompt tokens found in the KV cache, restored ones included
    restored_tokens: int = 0  # prompt tokens read from the prompt cache
    tokens: int = 0  # generated, without the stop token
    ttft_s: float | None = None  # from the call to the first token
    prefill_s: float = 0.0
    decode_s: float = 0.0  # from the first token to the last
    decode_steps: int = 0  # tokens after the first
    guessed_tokens: int = 0  # computed before it was known whether the answer has them
    accepted_tokens: int = 0  # of these, in the answer
    guesses: dict[str, tuple[int, int]] = field(default_factory=dict)  # by source: guessed and accepted tokens
    sampling_s: float = 0.0  # of the tokens after the first, in the sampler
    total_s: float = 0.0
    context_full: bool = False
    # Shares of FFN neurons, of decoded tokens; of the prompt until one is decoded. See FfnCounters.
    active_share: float | None = None  # computed
    fired_share: float | None = None  # with a nonzero activation
    gpu_neuron_load: float | None = None  # of the computed ones, on the GPU

    @property
    def prefill_tok_s(self) -> float | None:
        fresh = self.prompt_tokens - self.reused_tokens
        return fresh / self.prefill_s if fresh and self.prefill_s > 0 else None

    @property
    def decode_tok_s(self) -> float | None:
        return self.decode_steps / self.decode_s if self.decode_steps and self.decode_s > 0 else None


@dataclass(frozen=True)
class TokenEvent:
    """One step of an answer: new text in whole characters; the last one has finish reason and statistics.

    stop_text: the text that ended the answer, if one did. logits [V]: those from which the token was chosen, valid
    until the next event.
    """

    text: str
    token_id: int | None = None
    finish_reason: FinishReason | None = None
    stats: GenerationStats = field(default_factory=GenerationStats)
    stop_text: str = ""
    logits: Logits | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class StopRules:
    """The end of an answer: a token, a text, or the number of tokens; None: only the context limits it."""

    token_ids: frozenset[int] = frozenset()
    texts: tuple[str, ...] = ()
    max_tokens: int | None = None


@dataclass
class Turns:
    """How an answer shares its thread with other answers, such as those of a batch.

    chunk_s: time that a chunk of its prompt should take at most, and after each of them an event without text comes;
    None: the prompt is computed at once. logits [V]: those after the answer's last token, which a batch has added to
    the cache; the answer takes them instead of computing that token.
    """

    chunk_s: float | None = None
    logits: Logits | None = None

    def take(self) -> Logits | None:
        logits, self.logits = self.logits, None
        return logits


@dataclass(frozen=True)
class Savings:
    """Work that an answer can reuse or skip: a restored prompt, guessed tokens. The text stays the same."""

    restored_tokens: int = 0  # of the prompt, just read into the cache
    restored_s: float = 0.0  # that this took, which counts as time of the answer
    guesses: Guesses | None = None  # of this answer; None: each token is computed by itself
    instructions: int = 0  # tokens at the beginning of the prompt with which other chats begin too
    keep_windows: Callable[[], None] = lambda: None  # called once they are computed, as far as whole blocks are kept
    turns: Turns = field(default_factory=Turns)
    # Called with the number of tokens when they do not fit into the cache, but into its context. Returns what computes
    # from then on; the cache may be empty. None: the cache's capacity limits the answer. Raises: Cancelled.
    grow: Callable[[int], Grown] | None = None


@dataclass(frozen=True)
class Grown:
    """The transformer and cache of an answer whose model was placed again."""

    model: Transformer
    cache: KVCache
    guesses: Guesses | None


def prefill(
    model: Transformer,
    tokens: Sequence[int],
    cache: KVCache,
    job: Job = Job(),
    instructions: int = 0,
) -> Logits:
    """Run `tokens` through the model as `prefill_steps` does; return the logits [V] after the last one."""
    steps = prefill_steps(model, tokens, cache, job, instructions=instructions)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            logits: Logits = end.value
            return logits


def prefill_steps(
    model: Transformer,
    tokens: Sequence[int],
    cache: KVCache,
    job: Job = Job(),
    turns: Turns | None = None,
    instructions: int = 0,
    keep_windows: Callable[[], None] = lambda: None,
) -> Generator[None, None, Logits]:
    """Run `tokens` through the model, appending to `cache`; yield after each chunk but the last token.

    Returns the logits [V] after the last one. turns: its chunk_s limits the chunks; None: no limit.

    The prompt is split into chunks, so that it can be cancelled and shows progress. Near the end of
    the prompt, where a turn ends, the cache remembers its state, so that the next prompt can go back to it.
    `instructions` is the number of tokens at the beginning that other chats share: near their end, a recurrent cache
    remembers its state, too, and keep_windows is called for layers with a window.

    On the CPU, the logits do not depend on the speed of the chunks. Nor do they, on either device, on whether all
    tokens but the last are already cached from the same prompt. Prefill and decode round differently, so the last token
    is always decoded. A few positions may be computed as in decode, and AMX rounds by the number of positions. So the
    size of a chunk is a multiple of SMALLEST_CHUNK_TOKENS, except for the last one, which has at least that many tokens
    if the prompt has.
    Raises: Cancelled between two layers; the cache then has the completed chunks.
    """
    ids = np.asarray(tokens, dtype=np.int64)  # [T]
    is_limited = turns is not None and turns.chunk_s is not None
    done, chunk, n_before = 0, model.least_chunk_tokens if is_limited else model.first_chunk_tokens, len(ids) - 1
    # Layers with a window need no split of the prompt: they keep REWIND positions before the end.
    turn_end = n_before
    if cache.recurs:
        turn_end = len(ids) - TURN_END_TOKENS if len(ids) - TURN_END_TOKENS >= FEWEST_CHUNK_TOKENS else 0
    # A multiple of SMALLEST_CHUNK_TOKENS, so that the state is remembered between two chunks.
    said = min(instructions, n_before - SMALLEST_CHUNK_TOKENS) // SMALLEST_CHUNK_TOKENS * SMALLEST_CHUNK_TOKENS
    if cache.forgets:  # to whole blocks of the prompt cache
        said = (cache.length + said) // BLOCK_TOKENS * BLOCK_TOKENS - cache.length
        said = 0 if said % SMALLEST_CHUNK_TOKENS else said
    first = said if (cache.recurs or cache.forgets) and said >= FEWEST_INSTRUCTIONS_TOKENS else 0

    def after_layer(share: float) -> None:
        job.stop_if_cancelled()
        job.progress(done + int(share * chunk), len(ids))

    if 1 < len(ids) <= most_at_once(model, cache):
        cache.remember()  # all of these tokens belong to the end of the turn
        rows = _if_memory_suffices(model, tokens, cache, job.cancelled)
        if rows is not None:
            job.progress(len(ids), len(ids))
            return last_row(rows)
    while True:
        job.stop_if_cancelled()
        if done == turn_end:
            cache.remember()
        if done == n_before:
            logits = decode_one_token(model, int(ids[-1]), cache, job.cancelled)
            job.progress(len(ids), len(ids))
            return logits
        chunk = min(chunk, n_before - done)
        if 0 < (rest := n_before - done - chunk) < SMALLEST_CHUNK_TOKENS:
            chunk += rest if chunk <= SMALLEST_CHUNK_TOKENS else -SMALLEST_CHUNK_TOKENS
        chunk = min(chunk, first - done) if done < first else chunk
        started = time.perf_counter()
        ahead, remembered = len(ids) - done - chunk, max(0, turn_end - done)
        model.prefill(ids[done : done + chunk], cache, ahead, after_layer, remembered)
        layer_s = (time.perf_counter() - started) / model.config.n_layers
        done += chunk
        if done == first and cache.recurs:
            cache.remember()
        if done == first and cache.forgets:
            keep_windows()
        job.progress(done, len(ids))
        step, most = SMALLEST_CHUNK_TOKENS, model.largest_chunk_tokens
        target_s = TARGET_LAYER_S
        yield
        if turns is not None and turns.chunk_s is not None:
            target_s = min(target_s, turns.chunk_s / model.config.n_layers)
        wanted = chunk * target_s / layer_s if layer_s > 0 else most
        chunk = min(max(model.least_chunk_tokens, round(wanted / step) * step), most // step * step)
        if not model.first_chunk_is_fixed and (turns is None or turns.chunk_s is None):
            model.first_chunk_tokens = chunk


def decode_one_token(model: Transformer, token: int, cache: KVCache, cancelled: CancelCheck = never) -> Logits:
    """Append one token to the cache; return the logits [V] for the next one, valid until the next call.

    Uses one compiled program if the model has one, otherwise runs layer by layer.
    Raises: Cancelled within the token if it is a program; the cache is then unchanged.
    """
    if model.decoder is not None and model.decoder.accepts(cache):
        return model.decoder.step(token, cache, cancelled)
    hidden = model.forward(np.array([token], dtype=np.int64), cache)  # [1, D]
    return last_row(model.logits(hidden))


def most_at_once(model: Transformer, cache: KVCache) -> int:
    """Return how many tokens `decode_tokens` can append to the cache now."""
    decoder = model.decoder
    return 1 if decoder is None or not decoder.accepts(cache) else decoder.most_tokens(cache)


def decode_tokens(model: Transformer, tokens: Sequence[int], cache: KVCache, cancelled: CancelCheck = never) -> Logits:
    """Append up to `most_at_once` tokens to the cache; return the logits [n, V] after each.

    They equal those of decode_one_token to the bit. Raises: as decode_one_token, and HostMemoryError.
    """
    if len(tokens) == 1 or model.decoder is None:
        (token,) = tokens
        return decode_one_token(model, token, cache, cancelled)[None]
    return model.decoder.steps(tokens, cache, cancelled)


def _if_memory_suffices(
    model: Transformer, tokens: Sequence[int], cache: KVCache, cancelled: CancelCheck
) -> Logits | None:
    """Return what decode_tokens returns; None, with the cache unchanged, if RAM is short for a run of several tokens.

    Raises: as decode_tokens, but no HostMemoryError.
    """
    try:
        return decode_tokens(model, tokens, cache, cancelled)
    except HostMemoryError as error:
        log.info("%d tokens are not computed in one run: %s", len(tokens), error.message)
        return None


def decode_batch(model: BatchModel, tokens: Sequence[int], caches: Sequence[KVCache]) -> Logits:
    """Append one token to each cache; return the logits [B, V] for the next ones.

    Sequences may differ in length; each gets the result of decode_one_token within rounding.
    Raises: ContextOverflowError, TokenizerMismatchError; the caches are then unchanged.
    """
    return model.step(np.asarray(tokens, dtype=np.int64), caches)


def last_row(logits: Logits) -> Logits:
    """[1, V] -> [V]."""
    row: Logits = logits[-1]
    return row


def generate(
    model: Transformer,
    cache: KVCache,
    prompt: Sequence[int],
    sampler: Sampler,
    text_stream: TextStream,
    stop: StopRules = StopRules(),
    job: Job = Job(),
    savings: Savings = Savings(),
) -> Generator[TokenEvent]:
    """Yield the answer to `prompt` token by token; the last event has the finish reason and all statistics.

    `cache` may already hold the first cache.length tokens of `prompt`; the rest, at least the last token, is computed.
    Cancelling is a result, not an error: the finish reason is "cancelled" after all tokens so far.
    """
    restored = savings.restored_tokens
    if not model.cache_serves(cache, len(prompt)):
        cache.truncate(0)  # recomputed below, where it can be cancelled
        restored = 0
    stats = GenerationStats(prompt_tokens=len(prompt), reused_tokens=cache.length, restored_tokens=restored)
    counters = model.executor.counters
    counters.reset_sums()
    computing = time.perf_counter()
    started = computing - savings.restored_s
    free = (cache.capacity if savings.grow is None else cache.context) - len(prompt)  # positions left in the context
    limit = free if stop.max_tokens is None else min(stop.max_tokens, free)

    instructions = savings.instructions - cache.length
    steps = prefill_steps(model, prompt[cache.length :], cache, job, savings.turns, instructions, savings.keep_windows)
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                logits: Logits = end.value
                break
            if savings.turns.chunk_s is not None:
                yield TokenEvent("", stats=stats)
    except Cancelled:
        stats.total_s = time.perf_counter() - started
        yield TokenEvent("", finish_reason="cancelled", stats=stats)
        return
    stats.prefill_s = time.perf_counter() - computing
    stats.active_share, stats.fired_share = counters.active_share, counters.fired_share
    counters.reset_sums()

    history = list(prompt)
    scanner = StopScanner(stop.texts)
    reason: FinishReason = "length"
    decode = _Decode(model, cache, savings, job.cancelled)
    try:
        while stats.tokens < limit:
            if job.cancelled():
                reason = "cancelled"
                break
            try:
                if stats.tokens and savings.grow is not None and len(history) > cache.capacity:
                    decode.end(history)
                    grown = savings.grow(len(history))
                    model, cache, counters = grown.model, grown.cache, grown.model.executor.counters
                    counters.reset_sums()
                    decode.go_on_with(grown)
                is_cached = cache.length >= len(history) - 1
                if stats.tokens and is_cached and model.cache_serves(cache, len(history)):
                    logits = decode.after(history, limit - stats.tokens - 1, sampler)
                    stats.decode_steps += 1
                elif stats.tokens:  # the rotation changes at this length, or the cache was lost: recompute everything
                    decode.end(history)
                    savings.turns.take()
                    cache.truncate(0)
                    logits = prefill(model, history, cache, Job(job.cancelled))
            except Cancelled:
                reason = "cancelled"
                break
            computed = time.perf_counter()
            try:
                token = sampler(logits, history)
            except BrokenLogitsError as error:
                decode.end(history)
                cache.truncate(0)  # its numbers must not be used again, nor kept on the disk
                raise _located(error, model, history, job) from None
            now = time.perf_counter()
            stats.sampling_s += now - computed if stats.decode_steps else 0.0
            if stats.ttft_s is None:
                stats.ttft_s = now - started
            stats.decode_s = now - started - stats.ttft_s
            stats.total_s = now - started
            decode.tell(stats)
            if token in stop.token_ids:
                reason = "stop"
                break
            stats.tokens += 1
            history.append(token)
            forced_tokens(sampler, history)  # begins the next mask, before others that take turns compute
            yield TokenEvent(scanner.push(text_stream.push(token)), token, stats=stats, logits=logits)
            if scanner.hit:
                reason = "stop"
                break
    finally:
        decode.end(history)
    stats.context_full = reason == "length" and limit == free

    if counters.tokens:
        stats.active_share, stats.fired_share = counters.active_share, counters.fired_share
        stats.gpu_neuron_load = counters.gpu_neuron_load
    stats.total_s = time.perf_counter() - started
    rest = "" if scanner.hit else scanner.push(text_stream.flush()) + scanner.flush()
    yield TokenEvent(rest, finish_reason=reason, stats=stats, stop_text=scanner.found)


def _located(error: BrokenLogitsError, model: Transformer, history: Sequence[int], job: Job) -> BrokenLogitsError:
    """Return the error with the layer where the numbers stop being finite, if it can be found."""
    from engine.executor.broken_numbers import first_broken

    try:
        return error.located(first_broken(model, history, job))
    except (Cancelled, EngineError, MemoryError) as failure:
        log.info("The layer whose numbers are not finite was not found: %s", failure)
        return error


class _Decode:
    """Decode one answer: each run computes one token, or several if guesses are worth computing."""

    def __init__(self, model: Transformer, cache: KVCache, savings: Savings, cancelled: CancelCheck) -> None:
        self._model, self._cache, self._cancelled = model, cache, cancelled
        self._guesses, self._turns = savings.guesses, savings.turns
        self._ahead: list[tuple[int, Logits]] = []  # unchecked guesses of the last run, with the logits after each
        self._run: tuple[int, float] = (0, 0.0)  # tokens and seconds of the last run
        self._accepted = 0  # right guesses of the last run
        self._is_forced = False  # whether the last run had forced tokens instead of guesses
        self._length = 0  # tokens in the cache that are certainly in the history
        self._by_source: dict[str, list[int]] = {}  # guessed and accepted tokens

    def go_on_with(self, grown: Grown) -> None:
        """Compute with another placement of the model from now on. Call `end` before."""
        self._model, self._cache, self._guesses = grown.model, grown.cache, grown.guesses

    def tell(self, stats: GenerationStats) -> None:
        """Set the figures of the guesses so far."""
        stats.guesses = {source: (guessed, accepted) for source, (guessed, accepted) in self._by_source.items()}
        stats.guessed_tokens = sum(guessed for guessed, _ in stats.guesses.values())
        stats.accepted_tokens = sum(accepted for _, accepted in stats.guesses.values())

    def after(self, history: Sequence[int], most: int, sampler: Sampler) -> Logits:
        """Return the logits [V] after the history.

        The cache already has all tokens of the history but the last, and maybe guesses after them.
        most: how many more tokens the answer may have after the next one; this limits the guesses. Tokens that the
        sampler is forced to choose need no guess, and count as none.
        Raises: as decode_tokens.
        """
        if (logits := self._turns.take()) is not None:
            self.end(history)
            return logits
        if self._ahead and self._ahead[0][0] == history[-1]:
            self._accepted += 1
            self._count(0, 1)
            self._length += 1
            return self._ahead.pop(0)[1]
        self.end(history)
        most = min(most, most_at_once(self._model, self._cache) - 1)
        guess = forced = forced_tokens(sampler, history)[: max(most, 0)]
        if not guess and self._guesses is not None:
            guess = self._guesses.next(history, most)
        if guess and self._model.decoder is not None:
            self._model.decoder.lay_out(self._cache)  # else the first run would be measured with it
        started, rows = time.perf_counter(), None
        if guess:
            rows = _if_memory_suffices(self._model, [history[-1], *guess], self._cache, self._cancelled)
        if rows is None:
            guess, rows = [], decode_one_token(self._model, history[-1], self._cache, self._cancelled)[None]
        self._run, self._length = (len(rows), time.perf_counter() - started), len(history)
        self._ahead = list(zip(guess, rows[1:], strict=True))
        self._is_forced = bool(forced)
        self._count(len(guess), 0)
        return last_row(rows[:1])

    def _count(self, guessed: int, accepted: int) -> None:
        """Count tokens of the last run's source; forced ones are not guesses."""
        if self._guesses is not None and not self._is_forced and guessed + accepted:
            figures = self._by_source.setdefault(self._guesses.source, [0, 0])
            figures[0] += guessed
            figures[1] += accepted

    def end(self, history: Sequence[int]) -> None:
        """End the last run: report it to the guesses, and cut the guesses that are not in the history off the cache."""
        if self._guesses is not None and self._run[0]:
            self._guesses.computed(*self._run, self._accepted, self._is_forced)
        if self._ahead:
            is_right = len(history) > self._length and history[self._length] == self._ahead[0][0]
            self._cache.truncate(self._length + is_right)
        self._run, self._ahead, self._accepted = (0, 0.0), [], 0


class StopScanner:
    """Passes text on until one of `stops` appears; keeps back only what may start one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.hit = False
        self.found = ""  # the text that appeared

    def push(self, text: str) -> str:
        """Return the text so far that certainly does not start a stop text."""
        if not self._stops or self.hit:
            return "" if self.hit else text
        held = self._held + text
        found = [(at, stop) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            at, self.found = min(found)
            self.hit, self._held = True, ""
            return held[:at]
        keep = max(
            (size for stop in self._stops for size in range(1, len(stop)) if held.endswith(stop[:size])), default=0
        )
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """Return the kept text at the end of the answer."""
        held, self._held = self._held, ""
        return held
