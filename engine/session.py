"""LoadedModel (expensive, shared) and ChatSession (cheap: one KV cache with prefix reuse).

On which device a model runs is choice.py's to decide, in which mode engine/modes.py's. It computes nothing
itself: the main path is engine/generate.py.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from engine.adaptation import Adaptation
from engine.backends import Backend, choose_backend
from engine.config import EngineConfig, KvCodec, Mode, SamplingConfig
from engine.errors import Cancelled, ContextOverflowError, DeviceFailedError, InvalidRequestError
from engine.executor.hot_blocks import HotBlocks
from engine.executor.hot_side import ProcessorHotSide
from engine.executor.hybrid import HybridExecutor
from engine.generate import TokenEvent, generate
from engine.gpu.part import CardPart, load_part
from engine.gpu.placed_part import Whole
from engine.gpu.trial import choice
from engine.load_steps import LoadSteps
from engine.machine.hardware import choose_gpu, choose_threads, probe
from engine.machine.measured_hardware import load_profile
from engine.model.kv_cache import KVCache
from engine.model.read_in import ReadIn, parts_of, spans_of
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import Hold, ModelWeights, OpenedModel, load_weights, open_model
from engine.modes import SAMPLE_TEXT, ModeChooser, choose_mode, predictor_room
from engine.opening import choose_context, find_model, read_tokenizer
from engine.opening import resolve_model as resolve_model
from engine.placement.machine_figures import forget_hasty
from engine.placement.memory_plan import budgets_of
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Room, fitting_context
from engine.sampling import Sampler, make_sampler
from engine.stoppable import run_unless
from engine.text.attached_texts import AttachedTexts, Portion
from engine.text.chat_room import KEPT_SHARE_AFTER_DROP, ChatMessage, ChatRoom, Fitted, Overflow
from engine.text.tokenizer import Tokenizer
from native_kernels.backend import I32
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError
from native_kernels.kv_blocks import KvLayout

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
MakeSampler = Callable[[SamplingConfig], Sampler]

_HELD: dict[Hold, str] = {
    "f32": "Held as 32-bit numbers",
    "f16": "Held as 16-bit numbers",
    "mapped": "Run straight from the file",
}

_READ_AS_STORED = "the processor kernels multiply matrices as the file stores them"

_TRIES = 3  # of an answer whose beginning the card has no memory for


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in memory, ready to answer. Shared by any number of sessions."""

    name: str
    description: str
    opened: OpenedModel
    weights: ModelWeights
    tokenizer: Tokenizer
    sampling: SamplingConfig  # the model's own defaults
    context: int  # tokens
    kv_codec: KvCodec
    processor_reason: str  # why no card computes, where none does
    threads: int
    mode: Mode  # sparse, exact or dense
    mode_reason: str
    modes: ModeChooser
    backend: Backend
    threads_reason: str
    load_s: float
    engine: EngineConfig  # as it was asked for
    steps: LoadSteps  # what loading it took
    on_card: CardPart | None = None  # what of it a card computes
    placed_blocks: HotBlocks | None = None  # where its hot neurons are without a card; None: with all others
    reading: ReadIn | None = None  # what reads its files in where no card computes; a card's part has its own

    @classmethod
    def load(
        cls,
        model: str | Path,
        engine: EngineConfig | None = None,
        progress: Progress = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
        preparing: Progress = lambda done, total: None,
    ) -> LoadedModel:
        """Open, check and read a model; `progress` is called with bytes done and in all.

        `preparing` is called with the processor kernels compiled and in all, where some have to be compiled.

        Raises an EngineError for anything that is wrong with the files, the request or the memory, and Cancelled
        when `cancelled` turned true.
        """
        from threadpoolctl import threadpool_limits

        engine = engine or EngineConfig()
        started, steps = time.perf_counter(), LoadSteps()
        steps.begin("opening")
        found = find_model(str(model))
        activation, template = engine.activation or found.activation or None, engine.template or found.template or None
        opened = run_unless(cancelled, lambda: open_model(found.path, activation), "opening")
        steps.begin("tokenizer")
        tokenizer = run_unless(cancelled, lambda: read_tokenizer(opened, template), "tokenizer")
        steps.begin("machine")
        forget_hasty()
        hardware = load_profile(engine.hardware_file) if engine.hardware_file else probe()
        choose_mode(opened, engine.mode)  # refuses here, before gigabytes are read
        must, may = predictor_room(opened, engine.mode)  # so does this
        threads, threads_reason = choose_threads(hardware, engine.threads)
        threadpool_limits(limits=threads, user_api="blas")
        backend = choose_backend(engine.backend, threads, cancelled)
        stop_if(cancelled)
        gpu, processor_reason = choice.candidate(engine, opened, hardware, backend)
        kv_codec = engine.kv_cache or backend.kv_codec
        budgets = budgets_of(hardware, gpu, engine.vram_budget_gib)
        room = min(hardware.ram.free_bytes, budgets.vram_bytes or hardware.ram.free_bytes)
        context = choose_context(opened, engine.context, room // engine.sequences, kv_codec)
        other = choose_gpu(hardware)[0] if engine.device == "cpu" else None
        sizes, there_is = ModelBytes.of(opened), Room(hardware, gpu, budgets, other)
        context = fitting_context(
            sizes, there_is, context, kv_codec,
            sequences=engine.sequences, is_given=engine.context is not None, must_bytes=must,
        )  # fmt: skip
        steps.begin("weights")
        weights = load_weights(
            opened,
            progress,
            cancelled,
            extra_bytes=engine.sequences * KVCache.bytes_for(opened.config, context, kv_codec) + must,
            mapped_bytes=may,
            mapped_reason=_READ_AS_STORED if backend.reads_all_of(opened) else "",
        )
        stop_if(cancelled)
        steps.begin("kernels")
        sample = tokenizer.encode(SAMPLE_TEXT, add_bos=True)[:context]
        modes = ModeChooser(opened, weights, sample, backend.operators, kv_codec, lambda share: stop_if(cancelled))
        whole = Whole(
            opened, weights, modes, backend, engine, context, kv_codec, hardware.ram, processor_reason, steps
        )  # fmt: skip
        part, why_not = None, processor_reason
        layout = KvLayout(opened.config.head_dim, kv_codec)
        predictor = modes.to_be_asked(engine.mode) if gpu is None else None
        backend.prepare_operators(opened.config, weights, layout, predictor, preparing, cancelled)
        stop_if(cancelled)
        if gpu is not None:
            part, why_not = load_part(gpu, hardware, threads, whole, progress, cancelled)
            if part is None or not part.is_usable:  # all of it is the RAM's then
                fitting_context(
                    sizes, Room(hardware, None, budgets_of(hardware, None, None)), context, kv_codec,
                    sequences=engine.sequences, is_given=True, must_bytes=must, why=why_not,
                )  # fmt: skip
        steps.begin("mode")
        try:
            mode, mode_reason = (
                part.mode_and_reason() if part is not None and part.is_usable else modes.choose(engine.mode)
            )
            loaded = cls(
                name=found.name or opened.name,
                description=opened.description,
                opened=opened,
                weights=weights,
                tokenizer=tokenizer,
                sampling=SamplingConfig().changed(opened.sampling),
                context=context,
                processor_reason=why_not,
                kv_codec=kv_codec,
                threads=threads,
                mode=mode,
                mode_reason=mode_reason,
                modes=modes,
                backend=backend,
                threads_reason=threads_reason,
                load_s=time.perf_counter() - started,
                engine=engine,
                on_card=part,
                steps=steps,
            )
            steps.begin("programs")
            backend.prepare(loaded.transformer(), layout, preparing, cancelled)
            stop_if(cancelled)
            steps.tell()
        except BaseException:
            if part is not None:
                part.close()
            raise
        reading = None if loaded.card is not None else ReadIn(spans_of(parts_of(weights)), weights)
        return dataclasses.replace(loaded, load_s=time.perf_counter() - started, reading=reading)

    def close(self) -> None:
        """Gives back what of it is on a card; it is computed by the processor from then on. What is being read in the
        background is left to whoever needs it. A second time does nothing.
        In the thread that answers."""
        if self.reading is not None:
            self.reading.close()
        if self.on_card is not None:
            self.on_card.close()

    def wait_for_weights(self, seconds: float) -> bool:
        """Whether what is done in the background behind the load is over by then."""
        if self.card is not None:
            return self.card.wait_for_weights(seconds)
        return self.reading is None or self.reading.wait(seconds)

    def undisturbed(self) -> AbstractContextManager[None]:
        """Within it nothing is read or pinned in the background."""
        reading = self.reading if self.card is None else self.card.reading
        return nullcontext() if reading is None else reading.held()

    @property
    def card(self) -> CardPart | None:
        """What a card computes of it now."""
        return self.on_card if self.on_card is not None and self.on_card.is_usable else None

    @property
    def device(self) -> str:
        """cuda where a card computes, beside the processor; else cpu."""
        return "cpu" if self.card is None else "cuda"

    @property
    def device_reason(self) -> str:
        """Why it computes there, in one line."""
        return self.processor_reason if self.on_card is None else self.on_card.reason

    @property
    def vram_bytes(self) -> int:
        """What this process holds on the card for it."""
        return 0 if self.card is None else self.card.vram_bytes

    @property
    def card_notes(self) -> tuple[str, ...]:
        """What happened to its part on a card since it was loaded, one sentence each."""
        return () if self.on_card is None else tuple(self.on_card.notes)

    @property
    def is_placed_automatically(self) -> bool:
        """Whether Hearth chose how much of a card it takes."""
        return self.engine.vram_budget_gib is None

    @property
    def hot_blocks(self) -> HotBlocks | None:
        """Where its hot neurons are; None where none have a place of their own."""
        return self.placed_blocks if self.card is None else self.card.blocks

    @property
    def generation(self) -> int:
        """Counted up whenever transformers and caches of before are no longer to be used."""
        return 0 if self.on_card is None else self.on_card.generation

    @property
    def weights_reason(self) -> str:
        """How the weights are held and why, and what that means for neurons that do not fire; in one sentence."""
        words = f"{_HELD[self.weights.hold]}: {self.weights.hold_reason}"
        if self.mode != "dense" and self.weights.down_is_row_wise:
            skipping = "gate and up skip" if self.mode == "sparse" else "up skips"
            skipping = skipping if self.opened.config.gated else "nothing skips"
            words += f"; {skipping} inactive neurons, down is computed row-wise"
        return words

    @property
    def backend_reason(self) -> str:
        """Why it is computed with what it is, and with so many threads; in sentences."""
        return f"{self.backend.reason.rstrip('.')}. {self.threads_reason[0].upper()}{self.threads_reason[1:]}."

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Every token that ends an answer: the tokenizer's, the chat template's and the configuration's."""
        return self.tokenizer.stop_token_ids | frozenset(self.opened.config.eos_token_ids)

    @property
    def bos_token_id(self) -> int | None:
        """The BOS token that the tokenizer names, or the configuration where the tokenizer is silent. Whether plain
        texts begin with it: `text_bos_id`."""
        known = self.tokenizer.bos_token_id
        return self.opened.config.bos_token_id if known is None else known

    @property
    def text_bos_id(self) -> int | None:
        """The token before a plain text: BOS where the model's files say that texts begin with it, else none."""
        return self.bos_token_id if self.tokenizer.adds_bos else None

    def chat_sampling(self, sampling: SamplingConfig) -> SamplingConfig:
        """The same, with the texts by which the chat template shows that the answer is over."""
        return sampling.changed({"stop": (*sampling.stop, *self.tokenizer.stop_texts)})

    def resolve_mode(self, mode: str | None) -> Mode:
        """sparse, exact or dense for what was asked for; None is how the model was loaded."""
        if mode == "auto" and self.card is not None:
            return self.card.mode_and_reason()[0]
        return self.mode if mode is None else self.modes.choose(mode)[0]

    def make_ready(self, mode: str | None) -> None:
        """So that answers can be computed in the mode: where its predictors find no room on the card beside what is
        there, the model is placed anew, and `generation` says so. Between answers."""
        if self.card is not None:
            self.card.make_ready(self.resolve_mode(mode))

    def new_cache(self, context: int | None = None) -> KVCache:
        """An empty KV cache for so many tokens; None: as many as the model was loaded for."""
        context = context or self.context
        if self.card is not None:
            return self.card.new_cache(context)
        return KVCache(self.opened.config, context, self.kv_codec)

    def transformer(self, mode: str | None = None) -> Transformer:
        """The model's graph with the executor of `mode` (default: as loaded). Cheap: the weights are shared."""
        mode, operators, blocks = self.resolve_mode(mode), self.backend.operators, self.placed_blocks
        if self.card is not None:
            return self.card.transformer(mode)
        predictor = self.modes.predictor if mode == "sparse" else None
        config = self.opened.config
        executor: FfnExecutor
        if blocks is None:
            executor = self.modes.executor(mode, operators)
        else:
            executor = HybridExecutor(config, self.weights, predictor, blocks, operators)
        decoder = self.backend.decoder(config, self.weights, mode, executor.counters, predictor, blocks)
        return Transformer(config, self.weights, executor, operators, decoder)

    def placed(self, hot: Sequence[I32], learned: Sequence[I32] | None = None) -> LoadedModel:
        """The same model with the hot neurons of each layer on a side of their own, which here is the processor's too.

        So the two sides are tried out where there is no GPU, and nothing is gained. learned: as HotBlocks has it.
        Raises: InvalidRequestError where the neurons cannot be parted.
        """
        config, weights, operators = self.opened.config, self.weights, self.backend.further_operators()
        blocks = HotBlocks(config, weights, hot, lambda n: ProcessorHotSide(config, weights, n, operators), learned)
        return dataclasses.replace(self, placed_blocks=blocks)


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
        """What computes the answers in the mode of now."""
        return self._transformer

    @property
    def gpu_neuron_load(self) -> float | None:
        """Share of the neurons computed that a card computed, of the answer under way or the last; None without one."""
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
        """Where the model's part on the card is another than it was: its transformer, and a cache that is empty."""
        if self.model.card is not None:
            self.model.card.ease()
        if self._generation != self.model.generation:
            self._transformer, self._cache, self._tokens = self._graph(self.mode), self.model.new_cache(), []
            self._generation = self.model.generation

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingConfig,
        cancelled: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
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
        return self._generate(list(prompt), sampling, cancelled, on_progress, continues, make)

    def _generate(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        cancelled: Callable[[], bool],
        on_progress: Progress,
        continues: bool,
        make: MakeSampler,
    ) -> Generator[TokenEvent]:
        for attempt in range(_TRIES):
            has_begun = False
            try:
                for event in self._answer(prompt, sampling, cancelled, on_progress, continues, make):
                    has_begun = has_begun or event.token_id is not None
                    yield event
                return
            except DeviceFailedError as error:
                if self.model.card is None:
                    raise
                self.model.card.after_failure(error)
                # Where memory ran out before there was anything to show, nobody need notice.
                ran_out = isinstance(error.__cause__, CudaOutOfMemoryError)
                if has_begun or not ran_out or attempt == _TRIES - 1:
                    raise
                log.info("The answer is begun again: %s", error.message)

    def _answer(
        self,
        prompt: list[int],
        sampling: SamplingConfig,
        cancelled: Callable[[], bool],
        on_progress: Progress,
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
            cancelled=cancelled,
            on_progress=on_progress,
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
        cancelled: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
        overflow: Overflow = "roll",
        continues: bool = False,
    ) -> tuple[Fitted, Iterator[TokenEvent]]:
        """The answer to a conversation, and what of it fitted. continues: its last message is the model's own, which
        is written on; the answer is what is added to it."""
        fitted = self.fit(messages, sampling.max_tokens, overflow, continues)
        sampling = self.model.chat_sampling(sampling)
        events = self.generate(fitted.prompt, sampling, cancelled, on_progress, continues)
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


def stop_if(cancelled: Callable[[], bool]) -> None:
    """Raises: Cancelled, where somebody wants that."""
    if cancelled():
        raise Cancelled


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
