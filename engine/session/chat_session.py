"""ChatSession: a conversation with a loaded model. Its KV cache is reused as far as the next prompt matches.

engine/session/generate.py computes the answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine.config import SamplingConfig
from engine.errors import Cancelled, ContextOverflowError, DeviceFailedError, HostMemoryError, InvalidRequestError
from engine.executor.adaptation import Adaptation
from engine.job import CancelCheck, Job
from engine.model.transformer import Transformer
from engine.prompt_cache.stored_prompts import FEWEST_TOKENS, StoredPrompts, shared_length
from engine.session.generate import (
    GenerationStats,
    Grown,
    Savings,
    StopRules,
    TokenEvent,
    Turns,
    generate,
    most_at_once,
)
from engine.session.guesses import Guesses, StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.mtp import MtpRecord, own_sources
from engine.session.sampling import Sampler, make_sampler
from engine.session.thought_limit import limit_thought
from engine.text.attached_texts import AttachedTexts, Portion
from engine.text.context_fit import (
    KEPT_SHARE_AFTER_DROP,
    ChatMessage,
    ContextWindow,
    Encode,
    Fitted,
    Overflow,
    instructions,
)
from engine.thinking_level import Level
from engine.tool_calls.call_style import call_style
from engine.tool_calls.chat_encoder import chat_encoder
from engine.tool_calls.tool import NO_TOOLS, Tool, ToolUse
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

if TYPE_CHECKING:
    from engine.model.kv_cache import KVCache
    from engine.session.drafting import Drafting
    from engine.session.grammar import Grammar
    from engine.text.text_stream import TextStream

log = logging.getLogger(__name__)

MakeSampler = Callable[[SamplingConfig], Sampler]
MakeStream = Callable[[], "TextStream"]

WAIT_FOR_DISK_S = 0.1  # before a block is offered to the prompt cache again
ANSWER_TOKENS = 1024  # of an answer for which the GPU's KV cache has space at its beginning
_TRIES = 3  # attempts if the GPU runs out of memory before the first token


@dataclass(frozen=True)
class Begun:
    """A prompt that ends with the first n_answer tokens of its answer."""

    prompt: list[int]
    n_answer: int

    @property
    def answer(self) -> list[int]:
        return self.prompt[len(self.prompt) - self.n_answer :]


@dataclass(frozen=True)
class Count:
    """Size of the next answer's prompt."""

    fitted: Fitted
    fits: bool  # whether the engine would answer it
    most_tokens: int  # longest prompt, if messages must be dropped
    portions: list[Portion]  # of the given texts


class ChatSession:
    """A conversation with one KV cache. Not thread-safe: one answer at a time.

    The part of a prompt that the cache already has is not computed again.
    """

    def __init__(
        self,
        model: LoadedModel,
        mode: str | None = None,
        adaptation: Adaptation | None = None,
        prompts: StoredPrompts | None = None,
    ) -> None:
        """adaptation: learns from the answers; None: hot neurons never change. prompts: None: no prompt is stored."""
        self.model = model
        self.prompts = prompts
        self.mode = mode
        self.adaptation = adaptation
        self.drafting: Drafting | None = None  # None: no smaller model guesses
        self.turns = Turns()  # of its answers with those of other sessions
        self._times = StepTimes()
        self._transformer = self._transformer_for(mode)
        self._cache = self._new_cache()
        self._generation = model.generation
        self._tokens: list[int] = []  # tokens in the cache
        self._chat = ""  # the chat that they belong to; "" for none that is stored
        self._computed_in: str | None = None  # the mode that computed them; None for several
        self._saving: Iterator[bool] | None = None  # keeps them step by step
        self._room = ContextWindow(self._cache.context)
        self._texts = AttachedTexts(model.tokenizer.encode)

    @property
    def transformer(self) -> Transformer:
        return self._transformer

    @property
    def cache(self) -> KVCache:
        """The KV cache of the current answer."""
        return self._cache

    @property
    def gpu_neuron_load(self) -> float | None:
        """Share of computed neurons that the GPU computed in the current or last answer; None without."""
        return self._transformer.executor.counters.gpu_neuron_load

    @property
    def context_used(self) -> int:
        """Tokens in the KV cache."""
        return self._cache.length

    @property
    def context_total(self) -> int:
        return self._cache.context

    def set_mode(self, mode: str | None) -> None:
        """Compute the next answer in another mode; the cache stays valid."""
        if mode != self.mode:
            self.mode, self._transformer = mode, self._transformer_for(mode)

    def n_shared(self, prompt: Sequence[int]) -> int:
        """Return how many first tokens of a prompt the cache has."""
        return shared_length(self._tokens, prompt)

    def clear(self) -> None:
        """Compute the next prompt from its first token."""
        self._save_all()
        self._tokens, self._chat = [], ""

    def drop_chats_except(self, chats: Collection[str]) -> None:
        """Keep nothing of the current chat in the prompt cache unless it is one of these."""
        if self._chat not in chats:
            self._chat, self._saving = "", None

    def save_step(self) -> float | None:
        """Keep some of the tokens in the prompt cache; return the seconds to the next step, None for nothing to do."""
        done = None if self._saving is None else next(self._saving, None)
        if done is None:
            self._saving = None
            return None
        return 0.0 if done else WAIT_FOR_DISK_S

    def _save_all(self) -> None:
        """Keep all of the tokens that there is room for."""
        try:
            while self.save_step() == 0.0:
                pass
        except (CudaError, HostMemoryError) as error:
            log.info("The chat is not stored: %s", error)
        self._saving = None

    def _keep_up(self) -> None:
        """Renew transformer and cache if the model was placed again."""
        if self.model.residency is not None:
            self.model.residency.make_room()
        if self._generation != self.model.generation:
            self._transformer, self._cache, self._tokens = self._transformer_for(self.mode), self._new_cache(), []
            self._generation, self._saving = self.model.generation, None

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingConfig,
        job: Job = Job(),
        stream: MakeStream | None = None,
        make: MakeSampler | None = None,
        chat: str = "",
        n_instructions: int = 0,
    ) -> Generator[TokenEvent]:
        """Return the answer to a prompt of token ids.

        stream: creates the decoder of the answer's text; None: Tokenizer.stream. make: creates the sampler; None:
        `sampler_for`. chat: id of the chat that it belongs to, for the prompt cache; "": of none. n_instructions:
        tokens at the beginning with which other chats begin too.
        Raises: ContextOverflowError if the prompt alone is too long.
        """
        if not prompt:
            raise InvalidRequestError("The prompt is empty.", "Give at least one token.")
        if len(prompt) >= self.context_total:
            raise ContextOverflowError(
                f"The prompt has {len(prompt)} tokens and the context holds {self.context_total}."
            )
        vocabulary = self.model.opened.config.vocab_size
        if bad := next((token for token in prompt if not 0 <= token < vocabulary), None):
            raise InvalidRequestError(f"Token {bad} is outside the vocabulary of {vocabulary}.")
        stream = self.model.tokenizer.stream if stream is None else stream
        return self._generate(list(prompt), sampling, job, stream, make, chat, n_instructions)

    def _generate(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        job: Job,
        stream: Callable[[], TextStream],
        make: MakeSampler | None,
        chat: str,
        n_instructions: int,
    ) -> Generator[TokenEvent]:
        for attempt in range(_TRIES):
            has_begun = False
            try:
                for event in self._answer(prompt, sampling, job, stream, make, chat, n_instructions):
                    has_begun = has_begun or event.token_id is not None
                    yield event
                return
            except DeviceFailedError as error:
                if self.model.residency is None:
                    raise
                self.model.residency.after_failure(error)
                # If memory ran out before the first token, retry silently.
                ran_out = isinstance(error.__cause__, CudaOutOfMemoryError)
                if has_begun or not ran_out or attempt == _TRIES - 1:
                    raise
                log.info("The answer is begun again: %s", error.message)

    def _answer(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        job: Job,
        stream: Callable[[], TextStream],
        make: MakeSampler | None,
        chat: str,
        n_instructions: int,
    ) -> Iterator[TokenEvent]:
        self._keep_up()
        n_answer = ANSWER_TOKENS if sampling.max_tokens is None else min(ANSWER_TOKENS, sampling.max_tokens)
        ready = self._make_ready(prompt, n_answer, chat, job)
        grow = None if self.model.gpu is None else partial(self._grow, job=job)
        savings = Savings(*ready, self._guesses(), n_instructions, self._keep_windows, self.turns, grow)
        tokens = list(prompt)
        events = generate(
            self._transformer,
            self._cache,
            prompt,
            self.sampler_for(prompt, sampling) if make is None else make(sampling),
            stream(),
            StopRules(self.model.stop_token_ids, sampling.stop, sampling.max_tokens),
            job,
            savings,
        )
        stats: GenerationStats | None = None
        try:
            with closing(events), self.model.undisturbed():
                for event in events:
                    stats = event.stats
                    if event.token_id is not None:
                        tokens.append(event.token_id)
                    yield event
        finally:
            # Also if the consumer stopped early or a step failed: the cache's length is the truth.
            self._tokens = tokens[: self._cache.length]
            if self.prompts is not None and self._computed_in is not None:
                if stats is not None and len(prompt) - stats.reused_tokens >= FEWEST_TOKENS and stats.prefill_tok_s:
                    self.prompts.token_s = 1 / stats.prefill_tok_s
                self._saving = self.prompts.save(
                    self._cache, self._tokens, self._chat, self._computed_in, n_instructions
                )
            if self.adaptation is not None:
                self.adaptation.learn(self._transformer.executor.counters)

    def _grow(self, n_tokens: int, job: Job) -> Grown:
        self._place_for(min(self.context_total, n_tokens + ANSWER_TOKENS), job)
        return Grown(self._transformer, self._cache, self._guesses())

    def _place_for(self, n_tokens: int, job: Job) -> None:
        """Place the model again for a conversation of this length. The cache goes along, if memory suffices.

        Raises: Cancelled, with nothing changed.
        """
        residency, copy = self.model.residency, None
        assert residency is not None, "the caller has checked it"
        try:
            copy = self._cache.copied()
        except (CudaError, HostMemoryError) as error:
            log.info("The conversation is computed again: %s", error)
        if self.adaptation is not None:
            self.adaptation.learn(self._transformer.executor.counters)
            self.adaptation.keep(self.model.hot_blocks)  # for the new placement
        residency.place_for(n_tokens, job.cancelled)
        self._transformer, self._cache = self._transformer_for(self.mode), self._new_cache()
        self._generation = self.model.generation
        try:
            if copy is not None and not self._cache.put_copy(copy):
                log.warning("The cache of %d tokens does not fit the model that was placed again", len(copy.tokens))
        except CudaError as error:  # the answer meets it again, and deals with it
            log.info("The conversation is computed again: %s", error)
            self._cache.drop_run()

    def _keep_windows(self) -> None:
        """Keep what layers with a window need after the instructions, which are in the cache."""
        if self.prompts is not None and self._computed_in is not None:
            tokens = self._cache.tokens[: self._cache.length].tolist()
            self.prompts.save_windows(self._cache, tokens, self._chat, self._computed_in)

    def _guesses(self) -> Guesses:
        sources = own_sources(self.model, self._transformer, self._cache, self._record)
        if self.drafting is not None and (draft := self.drafting.draft) is not None:
            draft.begin(self._times)
            sources.append(draft)
        return Guesses(self._times, sources)

    def _new_cache(self) -> KVCache:
        """Return an empty cache, with a trail for the layer that drafts tokens if memory suffices."""
        cache, model = self.model.new_cache(), self.model
        if model.drafts is not None:
            try:
                cache.trail = model.drafts.new_trail(cache.capacity, model.kv_codec)
            except HostMemoryError as error:
                log.info("No tokens are drafted: %s", error.message)
        return cache

    def sampler_for(self, prompt: Sequence[int], sampling: SamplingConfig, grammar: Grammar | None = None) -> Sampler:
        """Return the sampler of an answer to the prompt: with a limited thought, and within a grammar, if any."""
        sampler, tokenizer = make_sampler(sampling), self.model.tokenizer
        if grammar is not None:
            sampler = grammar.constrain(sampler, tokenizer, prompt)
        must_call = grammar is not None and grammar.must_call
        return limit_thought(sampler, tokenizer, prompt, sampling.thought_tokens, must_call)

    def _make_ready(self, prompt: list[int], n_answer: int, chat: str, job: Job) -> tuple[int, float]:
        """Cut the cache to what the prompt shares with it, and read more of the prompt from the prompt cache.

        If the KV cache is too small for prompt and n_answer tokens, or much too large, the model is placed again. If
        that is cancelled, so is the answer, before it computes anything.
        Returns the tokens read, and the seconds that all took. What is cut off is stored first.
        """
        began, mode = time.perf_counter(), self.model.resolve_mode(self.mode)
        have = self._cache.reusable(min(shared_length(self._tokens, prompt), len(prompt) - 1))
        if have < self._cache.length:
            self._save_all()
        self._saving, self._chat = None, chat
        self._cache.truncate(have)
        if have == 0 or self._computed_in != mode:
            self._computed_in = mode if have == 0 else None
        residency = self.model.residency
        if residency is not None and residency.should_place_for(len(prompt), n_answer):
            with contextlib.suppress(Cancelled):
                self._place_for(len(prompt) + n_answer, job)
            if len(prompt) >= self._cache.capacity:
                return 0, time.perf_counter() - began
            have = self._cache.length
            self._computed_in = self._computed_in if have else mode
        if self.prompts is None or not chat or self._computed_in is None:
            return 0, time.perf_counter() - began
        try:
            read = self.prompts.restore(self._cache, have, prompt, mode, job)
        except CudaError as error:  # the answer meets it again, and deals with it
            log.info("The stored prompt cannot be used: %s", error)
            self._cache.drop_run()
            read = 0
        return read, time.perf_counter() - began

    def adapt(self) -> float | None:
        """Do one step of idle work, as Adaptation.adapt; None: nothing to do."""
        if self._transformer.decoder is not None:
            self._transformer.decoder.lay_out(self._cache)
        if self.adaptation is not None:
            return self.adaptation.adapt(self.model.hot_blocks)
        return None if self.model.on_gpu is None else self.model.on_gpu.placed.save_heat(at_once=False)

    def draft_step(self, cancelled: CancelCheck) -> float | None:
        """Do one step of idle work for the smaller model that guesses, as Drafting.step."""
        if self.drafting is None:
            return None
        has_use = bool(self._times.one_s) and most_at_once(self._transformer, self._cache) > 1
        if self._times.one_s and not has_use:
            self.drafting.has_no_use()
        return self.drafting.step(self._tokens, has_use, cancelled)

    def close(self) -> None:
        """Unload what only this session uses. The model stays."""
        if self.drafting is not None:
            self.drafting.close()

    def keep(self) -> None:
        """Save what was learned, and the current chat, before the model is unloaded."""
        self._save_all()
        if self.adaptation is not None:
            self.adaptation.keep(self.model.hot_blocks)
        elif self.model.on_gpu is not None:
            self.model.on_gpu.placed.save_heat()

    def _transformer_for(self, mode: str | None) -> Transformer:
        self.model.make_ready(mode)
        self._times, self._record = StepTimes(), MtpRecord()
        transformer = self.model.transformer(mode)
        if self.adaptation is not None:
            transformer.executor.counters.record_per_neuron()
        return transformer

    def chat(
        self,
        messages: Sequence[ChatMessage],
        sampling: SamplingConfig,
        job: Job = Job(),
        overflow: Overflow = "roll",
        continues: bool = False,
        chat: str = "",
        use: ToolUse = NO_TOOLS,
        begun: Begun | None = None,
    ) -> tuple[Fitted, Generator[TokenEvent]]:
        """Return what fitted of a conversation, and the answer.

        continues: the last message is the model's own and is continued; the answer is the addition. chat: as in
        `generate`. use: the tools that the answer may call, in the model's own format, which CallReader reads. begun:
        the tokens to continue, instead of those of the messages.
        """
        first: Sequence[int] = ()
        if begun is None:
            fitted = self.fit(messages, sampling.max_tokens, overflow, continues, sampling.thinking, use.tools)
        else:
            fitted, first = Fitted(begun.prompt), begun.answer
        sampling = self.model.chat_sampling(sampling)
        make, shown = None, ""
        if use.tools and (template := self.model.tokenizer.template) is not None:
            from engine.session.grammar import ToolGrammar

            call_format = call_style(template).format
            grammar = ToolGrammar(call_format, use, self.model.tokenizer, self.model.vocabulary)
            make, shown = partial(self.sampler_for, fitted.prompt, grammar=grammar), call_format.texts
        said = self._instructions_of(
            fitted.prompt, messages, chat_encoder(self.model.tokenizer, use.tools, sampling.thinking)
        )
        stream, prefix = partial(self.model.tokenizer.stream, continues, shown), ""
        if not continues:
            prefix = self.model.tokenizer.opened_thought(fitted.prompt[: len(fitted.prompt) - len(first)])
        if first:
            prefix += "".join(map(stream().push, first))
            stream = partial(_after, stream, first)
        events = self.generate(fitted.prompt, sampling, job, stream, make, chat, said)
        return fitted, _with_prefix(prefix, events) if prefix else events

    def _instructions_of(self, prompt: list[int], messages: Sequence[ChatMessage], encode: Encode) -> int:
        """Return how many tokens of a prompt are instructions, with which another chat would begin too.

        0 for a model without recurrent state or windows, which can be cut anywhere.
        """
        n_messages = instructions(messages)
        if not n_messages or not (self._cache.recurs or self._cache.forgets):
            return 0
        return shared_length(prompt, encode([*messages[:n_messages], {"role": "user", "content": "?"}]))

    def fit(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        overflow: Overflow = "roll",
        continues: bool = False,
        thinking: Level | None = None,
        tools: Sequence[Tool] = (),
    ) -> Fitted:
        """Return what fits the context window, as ContextWindow.fit."""
        encode = chat_encoder(self.model.tokenizer, tools, thinking, continues)
        return self._context_window().fit(messages, max_tokens, encode, overflow)

    def count(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        overflow: Overflow = "roll",
        texts: Sequence[str] = (),
        thinking: Level | None = None,
        tools: Sequence[Tool] = (),
    ) -> Count:
        """Return what `fit` would return now, and how much of the texts fits in the last message."""
        room, encode = self._context_window(), chat_encoder(self.model.tokenizer, tools, thinking)
        fitted = room.look(messages, max_tokens, encode, overflow)
        most = room.most_tokens(max_tokens)
        if not texts:
            return Count(fitted, not room.is_too_long(fitted), most, [])
        if overflow == "stop":
            left = most - len(fitted.prompt)
        else:  # other messages may be dropped, but the next turns should still have this one
            system = [m for m in messages[:1] if m["role"] == "system" and len(messages) > 1]
            left = int(most * KEPT_SHARE_AFTER_DROP) - len(encode([*system, messages[-1]]))
        return Count(fitted, not room.is_too_long(fitted), most, self._texts.portions(texts, left))

    def tool_tokens(self, messages: Sequence[ChatMessage], thinking: Level | None, tools: Sequence[Tool]) -> int:
        """Return the number of tokens by which these tools lengthen every prompt of the chat.

        Only the system message matters: a template may write one of its own if there is none.
        """
        begun = [*(m for m in messages[:1] if m["role"] == "system"), {"role": "user", "content": "Hi"}]
        with_tools, without = (chat_encoder(self.model.tokenizer, given, thinking) for given in (tools, ()))
        return len(with_tools(begun)) - len(without(begun))

    def _context_window(self) -> ContextWindow:
        self._room.capacity = self.context_total
        return self._room


def _after(make: MakeStream, tokens: Sequence[int]) -> TextStream:
    """Return a decoder that has decoded these tokens."""
    stream = make()
    for token in tokens:
        stream.push(token)
    return stream


def _with_prefix(prefix: str, events: Generator[TokenEvent]) -> Generator[TokenEvent]:
    """Put `prefix` before the answer: a mark that opens a thought, if the prompt ends with one, and the text of tokens
    that begin the answer.

    The window finds thoughts by their marks in the text.
    """
    with closing(events):
        for event in events:
            yield dataclasses.replace(event, text=prefix + event.text) if prefix else event
            prefix = ""
