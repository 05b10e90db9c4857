"""LoadedModel: a model in memory, shared by any number of conversations.

engine/session/load_stages.py has the stages of loading, engine/loading/modes.py chooses the mode.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig, Mode, SamplingConfig
from engine.executor.dense import DenseExecutor
from engine.executor.hot_blocks import HotBlocks
from engine.executor.learned_hot import read_heat
from engine.gpu.placed_model import PlacedModel
from engine.gpu.residency import GpuResidency
from engine.job import Job, Progress
from engine.load_steps import LoadSteps
from engine.loading.load_context import LoadContext
from engine.model.draft_layer import DraftTransformer
from engine.model.kv_cache import KVCache
from engine.model.prefetch import Prefetch, start_prefetch
from engine.model.transformer import Transformer
from engine.model.weights import Hold
from engine.session import load_stages

if TYPE_CHECKING:
    from engine.loading.backends import Backend
    from engine.session.grammar import Vocabulary

_HELD: dict[Hold, str] = {
    "f32": "Held as 32-bit numbers",
    "f16": "Held as 16-bit numbers",
    "mapped": "Run straight from the file",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedModel(LoadContext):
    """A model in memory, ready to answer. Any number of sessions share it."""

    name: str
    description: str
    sampling: SamplingConfig  # the model's defaults
    cpu_reason: str  # why no GPU was used at the load; "" if one was
    threads: int
    threads_reason: str
    mode: Mode  # sparse, exact or dense
    mode_reason: str
    load_s: float
    on_gpu: GpuResidency | None = None  # its part on a GPU, also after that failed or was released; see `gpu`
    reading: Prefetch | None = None  # prefetches the files without a GPU; a GPU's part has its own

    @classmethod
    def load(
        cls,
        model: str | Path,
        engine: EngineConfig | None = None,
        job: Job = Job(),
        preparing: Progress = lambda done, total: None,
        backend: Backend | None = None,
        for_vectors: bool = False,
    ) -> LoadedModel:
        """Open, check and load a model.

        backend: that of another loaded model, for models that compute in turns; None: one of its own. for_vectors: it
        will not answer, so an encoder is allowed.
        Units: job.progress in bytes; preparing in CPU kernels, if some must be compiled.
        Raises: an EngineError for any problem with files, request or memory; Cancelled.
        """
        engine = engine or EngineConfig()
        started, steps = time.perf_counter(), LoadSteps()
        source = load_stages.resolve(str(model), engine, steps, job, for_vectors)
        device = load_stages.choose_device(source.opened, engine, steps, job, backend)
        memory = load_stages.fit_memory(source.opened, device, engine)
        context = load_stages.read(source, device, memory, engine, steps, job)
        part, why_not = load_stages.prepare(context, device, memory, preparing, job)
        steps.begin("mode")
        try:
            on_gpu = part is not None and part.placed.is_usable
            mode, reason = part.placed.mode_and_reason() if part and on_gpu else context.modes.choose(engine.mode)
            loaded = cls(
                **_fields(context),
                name=source.name or source.opened.name,
                description=source.opened.description,
                sampling=SamplingConfig().changed(source.opened.sampling),
                cpu_reason=why_not,
                threads=device.threads,
                threads_reason=device.threads_reason,
                mode=mode,
                mode_reason=reason,
                load_s=time.perf_counter() - started,
                on_gpu=part,
            )
            steps.begin("programs")
            for one in (loaded.transformer(), loaded.drafter):
                if one is not None:
                    context.backend.prepare(one, context.kv_layout, job.reporting(preparing))
            job.stop_if_cancelled()
            steps.tell()
        except BaseException:
            if part is not None:
                part.close()
            raise
        reading = None if loaded.gpu is not None else start_prefetch(context.weights, read_heat(context.opened))
        return dataclasses.replace(loaded, load_s=time.perf_counter() - started, reading=reading)

    def close(self) -> None:
        """Free its GPU memory; the CPU computes from then on. Stops background reads. Idempotent.

        Call it in the thread that answers.
        """
        if self.reading is not None:
            self.reading.close()
        if self.on_gpu is not None:
            self.on_gpu.close()

    def wait_for_weights(self, seconds: float) -> bool:
        """Return whether background work after the load ended within this time."""
        if self.gpu is not None:
            return self.gpu.wait_for_weights(seconds)
        return self.reading is None or self.reading.wait(seconds)

    def undisturbed(self) -> AbstractContextManager[None]:
        """Pause background reads and pinning within the context."""
        reading = self.reading if self.gpu is None else self.gpu.reading
        return nullcontext() if reading is None else reading.held()

    @property
    def gpu(self) -> PlacedModel | None:
        """Its part on a GPU if that can compute now, otherwise None."""
        return None if self.residency is None else self.residency.placed

    @property
    def residency(self) -> GpuResidency | None:
        """Moves its part on a GPU if that can compute now, otherwise None."""
        return self.on_gpu if self.on_gpu is not None and self.on_gpu.placed.is_usable else None

    @property
    def device(self) -> str:
        """ "cuda" if a GPU computes together with the CPU, otherwise "cpu"."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def device_reason(self) -> str:
        """The reason for the device, in one line."""
        return self.cpu_reason if self.on_gpu is None else self.on_gpu.placed.reason

    @property
    def vram_bytes(self) -> int:
        """VRAM that this process uses for the model."""
        return 0 if self.gpu is None else self.gpu.vram_bytes

    @property
    def gpu_notes(self) -> tuple[str, ...]:
        """The changes of its part on the GPU since the load, one sentence each."""
        return () if self.on_gpu is None else tuple(self.on_gpu.placed.notes)

    @property
    def is_placed_automatically(self) -> bool:
        """Whether Hearth chose the VRAM budget."""
        return self.engine.vram_budget_gib is None

    @property
    def hot_blocks(self) -> HotBlocks | None:
        """Its hot neurons; None without hot neurons."""
        return None if self.gpu is None else self.gpu.blocks

    @property
    def generation(self) -> int:
        """Increases whenever earlier transformers and caches become invalid."""
        return 0 if self.on_gpu is None else self.on_gpu.placed.generation

    @property
    def weights_reason(self) -> str:
        """How the weights are stored and why, and what that means for inactive neurons; one sentence."""
        words = f"{_HELD[self.weights.hold]}: {self.weights.hold_reason}"
        if self.mode != "dense" and self.weights.down_is_row_wise:
            skipping = "gate and up skip" if self.mode == "sparse" else "up skips"
            skipping = skipping if self.opened.config.gated else "nothing skips"
            words += f"; {skipping} inactive neurons, down is computed row-wise"
        return words

    @property
    def backend_reason(self) -> str:
        """The reasons for the backend and the number of threads, in sentences."""
        return f"{self.backend.reason.rstrip('.')}. {self.threads_reason[0].upper()}{self.threads_reason[1:]}."

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer: the tokenizer's, the chat template's and the configuration's."""
        return self.tokenizer.stop_token_ids | frozenset(self.opened.config.eos_token_ids)

    @property
    def bos_token_id(self) -> int | None:
        """The BOS token of the tokenizer, else of the configuration. See `text_bos_id` for plain texts."""
        known = self.tokenizer.bos_token_id
        return self.opened.config.bos_token_id if known is None else known

    @property
    def text_bos_id(self) -> int | None:
        """The token before a plain text: BOS if the model's files say so, else None."""
        return self.bos_token_id if self.tokenizer.adds_bos else None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens as grammars read them. Cost: about 2 us for each token, once."""
        from engine.session.grammar import Vocabulary

        return Vocabulary(self.tokenizer, self.opened.config.vocab_size, self.stop_token_ids)

    def chat_sampling(self, sampling: SamplingConfig) -> SamplingConfig:
        """Add the texts with which the chat template ends an answer to the stop texts."""
        return sampling.changed({"stop": (*sampling.stop, *self.tokenizer.stop_texts)})

    def resolve_mode(self, mode: str | None) -> Mode:
        """Return sparse, exact or dense for the requested mode; None: as loaded."""
        if mode == "auto" and self.gpu is not None:
            return self.gpu.mode_and_reason()[0]
        found = self.mode if mode is None else self.modes.choose(mode)[0]
        return found if self.gpu is None else self.opened.config.mode_on_gpu(found)

    def make_ready(self, mode: str | None) -> None:
        """Prepare the mode. Only between answers.

        If its predictors do not fit on the GPU, the model is placed again and `generation` increases.
        """
        if self.residency is not None:
            self.residency.make_ready(self.resolve_mode(mode))

    def reserve(self, n_tokens: int) -> None:
        """Let `new_cache` return caches that hold this many tokens. Only between answers.

        If the model is placed again for that, `generation` increases.
        """
        if self.residency is not None and not self.residency.placed.holds(n_tokens):
            self.residency.place_for(n_tokens)

    def new_cache(self, context: int | None = None) -> KVCache:
        """Return an empty KV cache for conversations of this many tokens; None: the loaded context.

        On a GPU, it holds as many tokens as were reserved.
        """
        context = context or self.context
        if self.gpu is not None:
            return self.gpu.new_cache(context)
        return KVCache(self.opened.config, context, self.kv_codec)

    def transformer(self, mode: str | None = None) -> Transformer:
        """Return a transformer for `mode` (default: as loaded). Cheap: weights are shared."""
        mode, operators = self.resolve_mode(mode), self.backend.operators
        if self.gpu is not None:
            return self.gpu.transformer(mode)
        predictor = self.modes.predictor if mode == "sparse" else None
        config, executor = self.opened.config, self.modes.executor(mode, operators)
        decoder = self.backend.decoder(config, self.weights, mode, executor.counters, predictor)
        return Transformer(config, self.weights, executor, operators, decoder)

    @cached_property
    def drafter(self) -> DraftTransformer | None:
        """Computes the layer that drafts tokens, for all conversations; None without such a layer."""
        if self.drafts is None:
            return None
        config, weights, operators = self.drafts.opened.config, self.drafts.weights, self.backend.operators
        executor = DenseExecutor(config, weights, operators)
        decoder = self.backend.decoder(config, weights, "dense", executor.counters, None)
        return DraftTransformer(config, weights, executor, operators, decoder)


def _fields(context: LoadContext) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
