"""ChatSession: a conversation with a loaded model. One KV cache, of which the next prompt reuses what it can.

It computes nothing itself: the main path is engine/generate.py.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from engine.adaptation import Adaptation
from engine.config import SamplingConfig
from engine.errors import ContextOverflowError, DeviceFailedError, InvalidRequestError
from engine.generate import TokenEvent, generate
from engine.job import Job
from engine.loaded_model import LoadedModel
from engine.model.transformer import Transformer
from engine.sampling import Sampler, make_sampler
from engine.text.attached_texts import AttachedTexts, Portion
from engine.text.chat_room import KEPT_SHARE_AFTER_DROP, ChatMessage, ChatRoom, Fitted, Overflow
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError

log = logging.getLogger(__name__)

MakeSampler = Callable[[SamplingConfig], Sampler]

_TRIES = 3  # of an answer whose beginning the GPU has no memory for


@dataclass(frozen=True)
class Count:
    """What the next answer's prompt would take."""

    fitted: Fitted
    fits: bool  # whether it would be answered
    most_tokens: int  # of a prompt, where messages have to be left out
    portions: list[Portion]  # of the texts that were asked about


class ChatSession:
    """One KV cache and what it holds. Not thread-safe: one answer at a time.

    The part of a prompt that the cache already holds is not computed again.
    """

    def __init__(self, model: LoadedModel, mode: str | None = None, adaptation: Adaptation | None = None) -> None:
        """adaptation: what learns from the answers; None: which neurons are hot stays as it is."""
        self.model = model
        self.mode = mode
        self.adaptation = adaptation
        self._transformer = self._graph(mode)
        self._cache = model.new_cache()
        self._generation = model.generation
        self._tokens: list[int] = []  # what the cache holds
        self._room = ChatRoom(self._cache.capacity)
        self._texts = AttachedTexts(model.tokenizer.encode)

    @property
    def transformer(self) -> Transformer:
        """The transformer for the current mode."""
        return self._transformer

    @property
    def gpu_neuron_load(self) -> float | None:
        """Share of the neurons computed that a GPU computed, of the answer under way or the last; None without one."""
        return self._transformer.executor.counters.gpu_neuron_load

    @property
    def context_used(self) -> int:
        """Tokens in the KV cache."""
        return self._cache.length

    @property
    def context_total(self) -> int:
        return self._cache.capacity

    def set_mode(self, mode: str | None) -> None:
        """Compute the next answer in another mode; the cache stays valid."""
        if mode != self.mode:
            self.mode, self._transformer = mode, self._graph(mode)

    def forget(self) -> None:
        """The next prompt is computed from its first token."""
        self._tokens = []

    def _keep_up(self) -> None:
        """Takes the new transformer and an empty cache where the model was placed anew on the GPU."""
        if self.model.gpu is not None:
            self.model.gpu.ease()
        if self._generation != self.model.generation:
            self._transformer, self._cache, self._tokens = self._graph(self.mode), self.model.new_cache(), []
            self._generation = self.model.generation

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingConfig,
        job: Job = Job(),
        continues: bool = False,
        make: MakeSampler = make_sampler,
    ) -> Generator[TokenEvent]:
        """The answer to a prompt of token ids. continues: the prompt ends within a text, which is written on.
        make: makes what chooses the tokens.

        Raises: ContextOverflowError when the prompt alone is too long.
        """
        if not prompt:
            raise InvalidRequestError("The prompt is empty.", "Give at least one token.")
        if len(prompt) >= self._cache.capacity:
            raise ContextOverflowError(
                f"The prompt has {len(prompt)} tokens and the context holds {self._cache.capacity}."
            )
        vocabulary = self.model.opened.config.vocab_size
        if bad := next((token for token in prompt if not 0 <= token < vocabulary), None):
            raise InvalidRequestError(f"Token {bad} lies outside the vocabulary of {vocabulary}.")
        return self._generate(list(prompt), sampling, job, continues, make)

    def _generate(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        job: Job,
        continues: bool,
        make: MakeSampler,
    ) -> Generator[TokenEvent]:
        for attempt in range(_TRIES):
            has_begun = False
            try:
                for event in self._answer(prompt, sampling, job, continues, make):
                    has_begun = has_begun or event.token_id is not None
                    yield event
                return
            except DeviceFailedError as error:
                if self.model.gpu is None:
                    raise
                self.model.gpu.after_failure(error)
                # Where memory ran out before there was anything to show, nobody need notice.
                ran_out = isinstance(error.__cause__, CudaOutOfMemoryError)
                if has_begun or not ran_out or attempt == _TRIES - 1:
                    raise
                log.info("The answer is begun again: %s", error.message)

    def _answer(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        job: Job,
        continues: bool,
        make: MakeSampler,
    ) -> Iterator[TokenEvent]:
        self._keep_up()
        self._cache.truncate(min(shared_prefix(self._tokens, prompt), len(prompt) - 1))
        tokens = list(prompt)
        events = generate(
            self._transformer,
            self._cache,
            prompt,
            make(sampling),
            self.model.tokenizer.stream(continues),
            stop_token_ids=self.model.stop_token_ids,
            stop_texts=sampling.stop,
            max_tokens=sampling.max_tokens,
            job=job,
        )
        try:
            with self.model.undisturbed():
                for event in events:
                    if event.token_id is not None:
                        tokens.append(event.token_id)
                    yield event
        finally:
            # Also when the consumer left early or a step failed: the cache's length says what it really holds.
            self._tokens = tokens[: self._cache.length]
            if self.adaptation is not None:
                self.adaptation.learn(self._transformer.executor.counters)

    def adapt(self) -> float | None:
        """A piece of what there is to do between answers, as Adaptation.adapt says; None: nothing."""
        return None if self.adaptation is None else self.adaptation.adapt(self.model.hot_blocks)

    def keep(self) -> None:
        """Writes what was learned so far: before the model goes."""
        if self.adaptation is not None:
            self.adaptation.keep(self.model.hot_blocks)

    def _graph(self, mode: str | None) -> Transformer:
        self.model.make_ready(mode)
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
    ) -> tuple[Fitted, Iterator[TokenEvent]]:
        """The answer to a conversation, and what of it fitted. continues: its last message is the model's own, which
        is written on; the answer is what is added to it."""
        fitted = self.fit(messages, sampling.max_tokens, overflow, continues)
        sampling = self.model.chat_sampling(sampling)
        events = self.generate(fitted.prompt, sampling, job, continues)
        opened = "" if continues else self.model.tokenizer.opened_thought(fitted.prompt)
        return fitted, _begun_with(opened, events) if opened else events

    def fit(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        overflow: Overflow = "roll",
        continues: bool = False,
    ) -> Fitted:
        """What of a conversation the context has room for, as ChatRoom.fit says it."""
        tokenizer = self.model.tokenizer
        encode = tokenizer.encode_continued if continues else tokenizer.encode_chat
        return self._chat_room().fit(messages, max_tokens, encode, overflow)

    def count(
        self,
        messages: Sequence[ChatMessage],
        max_tokens: int | None,
        overflow: Overflow = "roll",
        texts: Sequence[str] = (),
    ) -> Count:
        """What `fit` would give now, and how much of the texts could be put into the last message."""
        room, encode = self._chat_room(), self.model.tokenizer.encode_chat
        fitted = room.look(messages, max_tokens, encode, overflow)
        most = room.most_tokens(max_tokens)
        if not texts:
            return Count(fitted, not room.is_too_long(fitted), most, [])
        if overflow == "stop":
            left = most - len(fitted.prompt)
        else:  # the other messages may go; the next turns shall find this one still there
            system = [m for m in messages[:1] if m["role"] == "system" and len(messages) > 1]
            left = int(most * KEPT_SHARE_AFTER_DROP) - len(encode([*system, messages[-1]]))
        return Count(fitted, not room.is_too_long(fitted), most, self._texts.portions(texts, left))

    def _chat_room(self) -> ChatRoom:
        self._room.capacity = self._cache.capacity  # another one once the model was placed anew
        return self._room


def _begun_with(opened: str, events: Iterator[TokenEvent]) -> Iterator[TokenEvent]:
    """The answer with the mark before it that its prompt ended with: its text alone tells what is a thought."""
    for event in events:
        yield dataclasses.replace(event, text=opened + event.text) if opened else event
        opened = ""


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
