"""LoadedModel (expensive, shared) and ChatSession (cheap: one KV cache with prefix reuse).

Decides, with a reason in words, on which device a model runs; engine/modes.py in which mode. It computes nothing
itself: the main path is engine/generate.py.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.adaptation import Adaptation
from engine.backends import Backend, choose_backend
from engine.config import EngineConfig, KvCodec, Mode, SamplingConfig
from engine.errors import (
    Cancelled,
    ContextOverflowError,
    DeviceUnavailableError,
    InvalidRequestError,
    ModelNotFoundError,
)
from engine.executor.hot_blocks import HotBlocks
from engine.executor.hot_side import ProcessorHotSide
from engine.executor.hybrid import HybridExecutor
from engine.generate import TokenEvent, generate
from engine.hardware import choose_threads, probe
from engine.measured_hardware import load_profile
from engine.model.kv_cache import KVCache
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import Hold, ModelWeights, OpenedModel, load_weights, open_model
from engine.modes import SAMPLE_TEXT, ModeChooser, choose_mode, predictor_room
from engine.sampling import make_sampler
from engine.tokenizer import Tokenizer
from native_kernels.backend import I32
from native_kernels.kv_blocks import KvLayout

log = logging.getLogger(__name__)

ChatMessage = dict[str, str]  # {"role": ..., "content": ...}
Progress = Callable[[int, int], None]

_HELD: dict[Hold, str] = {
    "f32": "Held as 32-bit numbers",
    "f16": "Held as 16-bit numbers",
    "mapped": "Run straight from the file",
}

_READ_AS_STORED = "the processor kernels multiply matrices as the file stores them"

STARTER_NAMES = ("starter-chat", "pip")
KV_SHARE_OF_FREE_RAM = 0.25  # a default context may take no more than this
SMALLEST_ANSWER_TOKENS = 16  # a prompt that leaves less is too long
ANSWER_RESERVE_SHARE = 0.25  # of the context, kept free for the answer when old messages must go
KEPT_SHARE_AFTER_DROP = 0.75  # drop to this share of the room, so that the next turns find their prefix again


def resolve_model(name: str) -> Path:
    """The path that a MODEL argument means: a path, or the name of a model that is installed."""
    from engine.assets import starter_model

    path = Path(os.path.expanduser(name))  # Path.expanduser would raise for a person it does not know
    try:
        path.stat()
        return path
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):  # there is something, or the name is impossible
            raise ModelNotFoundError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ValueError:  # a zero byte
        pass
    if name.lower() in STARTER_NAMES:
        return starter_model()
    raise ModelNotFoundError(
        f"There is no file, folder or installed model called {name!r}.",
        "Give the path of a model, or starter-chat for the one that comes with Hearth.",
    )


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
    device: str
    device_reason: str
    threads: int
    mode: Mode  # sparse, exact or dense
    mode_reason: str
    modes: ModeChooser
    backend: Backend
    threads_reason: str
    load_s: float
    hot_blocks: HotBlocks | None = None  # where its neurons are; None: all on one device

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
        started = time.perf_counter()
        opened = open_model(resolve_model(str(model)), engine.activation)
        tokenizer = read_tokenizer(opened, engine.template)
        hardware = load_profile(engine.hardware_file) if engine.hardware_file else probe()
        device, device_reason = choose_device(engine)
        choose_mode(opened, engine.mode)  # refuses here, before gigabytes are read
        must, may = predictor_room(opened, engine.mode)  # so does this
        threads, threads_reason = choose_threads(hardware, engine.threads)
        threadpool_limits(limits=threads, user_api="blas")
        backend = choose_backend(engine.backend, threads)
        kv_codec = engine.kv_cache or backend.kv_codec
        context = choose_context(opened, engine.context, hardware.ram.free_bytes, kv_codec)
        weights = load_weights(
            opened,
            progress,
            cancelled,
            extra_bytes=KVCache.bytes_for(opened.config, context, kv_codec) + must,
            mapped_bytes=may,
            mapped_reason=_READ_AS_STORED if backend.reads_all_of(opened) else "",
        )
        if cancelled():
            raise Cancelled
        sample = tokenizer.encode(SAMPLE_TEXT, add_bos=True)[:context]
        modes = ModeChooser(opened, weights, sample, backend.operators, kv_codec)
        mode, mode_reason = modes.choose(engine.mode)
        loaded = cls(
            name=opened.name,
            description=opened.description,
            opened=opened,
            weights=weights,
            tokenizer=tokenizer,
            sampling=SamplingConfig().changed(opened.sampling),
            context=context,
            device=device,
            device_reason=device_reason,
            kv_codec=kv_codec,
            threads=threads,
            mode=mode,
            mode_reason=mode_reason,
            modes=modes,
            backend=backend,
            threads_reason=threads_reason,
            load_s=time.perf_counter() - started,
        )
        layout = KvLayout(opened.config.head_dim, kv_codec)
        backend.prepare(loaded.transformer(), layout, preparing, cancelled)
        return dataclasses.replace(loaded, load_s=time.perf_counter() - started)

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
        """What a text begins with, as the tokenizer says, or the configuration where the tokenizer is silent."""
        known = self.tokenizer.bos_token_id
        return self.opened.config.bos_token_id if known is None else known

    def chat_sampling(self, sampling: SamplingConfig) -> SamplingConfig:
        """The same, with the texts by which the chat template shows that the answer is over."""
        return sampling.changed({"stop": (*sampling.stop, *self.tokenizer.stop_texts)})

    def resolve_mode(self, mode: str | None) -> Mode:
        """sparse, exact or dense for what was asked for; None is how the model was loaded."""
        return self.mode if mode is None else self.modes.choose(mode)[0]

    def new_cache(self, context: int | None = None) -> KVCache:
        """An empty KV cache for so many tokens; None: as many as the model was loaded for."""
        return KVCache(self.opened.config, context or self.context, self.kv_codec)

    def transformer(self, mode: str | None = None) -> Transformer:
        """The model's graph with the executor of `mode` (default: as loaded). Cheap: the weights are shared."""
        mode, operators, blocks = self.resolve_mode(mode), self.backend.operators, self.hot_blocks
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
        return dataclasses.replace(self, hot_blocks=blocks)


def read_tokenizer(opened: OpenedModel, template: str | None = None) -> Tokenizer:
    """The model's tokenizer, checked against its configuration, with the chat template that suits or was asked for."""
    files = opened.files
    if files.tokenizer is not None:
        tokenizer = Tokenizer.from_files(files.tokenizer, files.tokenizer_config)
    elif "tokenizer.ggml.model" in opened.metadata or opened.files.kind == "gguf":
        tokenizer = Tokenizer.from_gguf(opened.source.metadata)
    elif (vocab := files.path / "vocab.json").is_file() and (merges := files.path / "merges.txt").is_file():
        tokenizer = Tokenizer.from_pair(vocab, merges, files.tokenizer_config)
    elif (pieces := files.path / "tokenizer.model").is_file():
        tokenizer = Tokenizer.from_sentencepiece(pieces, files.tokenizer_config)
    else:
        raise ModelNotFoundError(
            f"{files.path} holds no tokenizer: neither tokenizer.json nor tokenizer.model.",
            "Download the model's tokenizer.json into the same folder.",
        )
    for note in tokenizer.notes:
        log.info("%s: %s", opened.name, note)
    tokenizer.check_against(opened.config)
    tokenizer.use_template(opened.name, template)
    return tokenizer


def choose_device(engine: EngineConfig) -> tuple[str, str]:
    """The device and why. This version computes on the CPU; asking for the GPU is answered with the reason."""
    reason = "This version computes on the CPU"
    if engine.device == "cuda":
        raise DeviceUnavailableError(f"The GPU cannot be used: {reason[0].lower()}{reason[1:]}.")
    if engine.vram_budget_gib is not None:
        log.info("The VRAM budget has no effect: everything runs on the CPU")
    return "cpu", reason


def choose_context(opened: OpenedModel, wanted: int | None, free_bytes: int, kv_codec: KvCodec = "f32") -> int:
    """Tokens of context: as asked, else as trained, halved until its KV cache is a modest share of free RAM."""
    trained = opened.config.max_context
    if wanted is not None:
        if wanted > trained:
            raise InvalidRequestError(
                f"A context of {wanted} tokens was asked for; {opened.name} was trained with {trained}.",
                f"Ask for at most {trained}.",
            )
        return wanted
    context = trained
    while context > 512 and KVCache.bytes_for(opened.config, context, kv_codec) > KV_SHARE_OF_FREE_RAM * free_bytes:
        context //= 2
    return context


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
        self._tokens: list[int] = []  # what the cache holds
        self._dropped: list[ChatMessage] = []  # left out of the last prompt, oldest first

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

    def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingConfig,
        cancelled: Callable[[], bool] = lambda: False,
        on_progress: Progress = lambda done, total: None,
    ) -> Iterator[TokenEvent]:
        """The answer to a prompt of token ids. Raises ContextOverflowError when the prompt alone is too long."""
        if not prompt:
            raise InvalidRequestError("The prompt is empty.", "Give at least one token.")
        if len(prompt) >= self._cache.capacity:
            raise ContextOverflowError(
                f"The prompt has {len(prompt)} tokens and the context holds {self._cache.capacity}."
            )
        vocabulary = self.model.opened.config.vocab_size
        if bad := next((token for token in prompt if not 0 <= token < vocabulary), None):
            raise InvalidRequestError(f"Token {bad} lies outside the vocabulary of {vocabulary}.")
        return self._generate(list(prompt), sampling, cancelled, on_progress)

    def _generate(
        self, prompt: list[int], sampling: SamplingConfig, cancelled: Callable[[], bool], on_progress: Progress
    ) -> Iterator[TokenEvent]:
        self._cache.truncate(min(shared_prefix(self._tokens, prompt), len(prompt) - 1))
        tokens = list(prompt)
        events = generate(
            self._transformer,
            self._cache,
            prompt,
            make_sampler(sampling),
            self.model.tokenizer.stream(),
            stop_token_ids=self.model.stop_token_ids,
            stop_texts=sampling.stop,
            max_tokens=sampling.max_tokens,
            cancelled=cancelled,
            on_progress=on_progress,
        )
        try:
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
    ) -> tuple[int, Iterator[TokenEvent]]:
        """The answer to a conversation, and how many of its oldest messages did not fit and were left out."""
        prompt, dropped = self.fit(messages, sampling.max_tokens)
        return dropped, self.generate(prompt, self.model.chat_sampling(sampling), cancelled, on_progress)

    def fit(self, messages: Sequence[ChatMessage], max_tokens: int | None) -> tuple[list[int], int]:
        """Token ids of as many of the newest messages as leave room for an answer, and the number left out.

        The system message stays. What was left out for the last prompt stays out, so that the prefix stays the same
        from turn to turn; when more must go, enough goes to leave room for several turns. Raises
        ContextOverflowError when the last message alone is too long.
        """
        system = [m for m in messages[:1] if m["role"] == "system"]
        turns = list(messages[len(system) :])
        capacity = self._cache.capacity
        reserve = min(max_tokens or capacity, int(capacity * ANSWER_RESERVE_SHARE))
        room = capacity - max(reserve, SMALLEST_ANSWER_TOKENS)
        start = len(self._dropped) if turns[: len(self._dropped)] == self._dropped else 0
        start = min(start, max(0, len(turns) - 1))
        # A kept conversation begins with the person's words.
        starts = [start, *(i for i in range(start + 1, len(turns)) if turns[i]["role"] == "user")]

        def encode_from(at: int) -> list[int]:
            return self.model.tokenizer.encode_chat([*system, *turns[starts[at] :]])

        at, prompt = _earliest_that_fits(encode_from, len(starts), room, int(room * KEPT_SHARE_AFTER_DROP))
        if len(prompt) > capacity - SMALLEST_ANSWER_TOKENS:
            raise ContextOverflowError(
                f"The message has {len(prompt)} tokens and the context holds {capacity}, the answer included."
            )
        self._dropped = turns[: starts[at]]
        return prompt, starts[at]


def _earliest_that_fits(
    encode_from: Callable[[int], list[int]], count: int, room: int, target: int
) -> tuple[int, list[int]]:
    """The first of `count` places to begin at from which the prompt has at most `room` tokens, and that prompt.

    Where not everything fits, the first with at most `target` tokens; the last place where none has so few.
    Cost: encodes about four times `room` tokens however long the conversation is, because it begins at its end.
    """
    last = at = count - 1
    newest = prompt = encode_from(last)
    too_long, step = -1, 1
    while at > 0 and too_long < 0:
        earlier = max(0, at - step)
        step *= 2
        longer = encode_from(earlier)
        if len(longer) <= room:
            at, prompt = earlier, longer
        else:
            too_long = earlier
    if at == 0:
        return at, prompt
    at, prompt = last, newest
    while at - too_long > 1:
        middle = (at + too_long) // 2
        longer = encode_from(middle)
        if len(longer) <= target:
            at, prompt = middle, longer
        else:
            too_long = middle
    return at, prompt


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
