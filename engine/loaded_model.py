"""LoadedModel: a model in memory, shared by any number of conversations; how it comes to be loaded.

Loading resolves the files, chooses the device, fits the context into the memory, reads the weights, and prepares the
kernels and the GPU's part. engine/gpu/trial/choice.py decides on which device a model runs, engine/modes.py in which
mode.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backends import Backend, choose_backend
from engine.config import EngineConfig, KvCodec, Mode, SamplingConfig
from engine.executor.hot_blocks import HotBlocks
from engine.gpu.part import GpuPart, load_part
from engine.gpu.trial import choice
from engine.job import Job, Progress, run_cancellable
from engine.load_context import LoadContext
from engine.load_steps import LoadSteps
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile, choose_gpu, choose_threads, probe
from engine.machine.measured_hardware import load_profile
from engine.model.kv_cache import KVCache
from engine.model.read_in import ReadIn, parts_of, spans_of
from engine.model.transformer import Transformer
from engine.model.weights import Hold, OpenedModel, load_weights, open_model
from engine.modes import SAMPLE_TEXT, ModeChooser, choose_mode, predictor_room
from engine.opening import choose_context, find_model, read_tokenizer
from engine.placement.machine_figures import forget_hasty
from engine.placement.memory_plan import budgets_of
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Room, fitting_context
from engine.text.tokenizer import Tokenizer

_HELD: dict[Hold, str] = {
    "f32": "Held as 32-bit numbers",
    "f16": "Held as 16-bit numbers",
    "mapped": "Run straight from the file",
}

_READ_AS_STORED = "the CPU kernels multiply matrices as the file stores them"


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedModel(LoadContext):
    """A model in memory, ready to answer. Shared by any number of sessions."""

    name: str
    description: str
    tokenizer: Tokenizer
    sampling: SamplingConfig  # the model's own defaults
    cpu_reason: str  # why no GPU computes, where none does
    threads: int
    threads_reason: str
    mode: Mode  # sparse, exact or dense
    mode_reason: str
    load_s: float
    on_gpu: GpuPart | None = None  # what of it a GPU computes
    reading: ReadIn | None = None  # what reads its files in where no GPU computes; a GPU's part has its own

    @classmethod
    def load(
        cls,
        model: str | Path,
        engine: EngineConfig | None = None,
        job: Job = Job(),
        preparing: Progress = lambda done, total: None,
    ) -> LoadedModel:
        """Open, check and read a model.

        Units: job.progress gets bytes done and in total, preparing CPU kernels compiled and in total, where
        some have to be compiled.
        Raises: an EngineError for anything that is wrong with the files, the request or the memory; Cancelled when
        the job is cancelled.
        """
        engine = engine or EngineConfig()
        started, steps = time.perf_counter(), LoadSteps()
        source = _resolve(str(model), engine, steps, job)
        device = _choose_device(source.opened, engine, steps, job)
        memory = _fit_memory(source.opened, device, engine)
        context = _read(source, device, memory, engine, steps, job)
        part, why_not = _prepare(context, device, memory, preparing, job)
        steps.begin("mode")
        try:
            on_gpu = part is not None and part.is_usable
            mode, reason = part.mode_and_reason() if part and on_gpu else context.modes.choose(engine.mode)
            loaded = cls(
                **_fields(context),
                name=source.name or source.opened.name,
                description=source.opened.description,
                tokenizer=source.tokenizer,
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
            context.backend.prepare(loaded.transformer(), context.kv_layout, job.reporting(preparing))
            job.stop_if_cancelled()
            steps.tell()
        except BaseException:
            if part is not None:
                part.close()
            raise
        reading = None if loaded.gpu is not None else ReadIn(spans_of(parts_of(context.weights)), context.weights)
        return dataclasses.replace(loaded, load_s=time.perf_counter() - started, reading=reading)

    def close(self) -> None:
        """Gives back what of it is on a GPU; it is computed by the CPU from then on. What is being read in the
        background is left to whoever needs it. A second time does nothing.
        In the thread that answers."""
        if self.reading is not None:
            self.reading.close()
        if self.on_gpu is not None:
            self.on_gpu.close()

    def wait_for_weights(self, seconds: float) -> bool:
        """Whether what is done in the background behind the load is over by then."""
        if self.gpu is not None:
            return self.gpu.wait_for_weights(seconds)
        return self.reading is None or self.reading.wait(seconds)

    def undisturbed(self) -> AbstractContextManager[None]:
        """Within it nothing is read or pinned in the background."""
        reading = self.reading if self.gpu is None else self.gpu.reading
        return nullcontext() if reading is None else reading.held()

    @property
    def gpu(self) -> GpuPart | None:
        """What a GPU computes of it now."""
        return self.on_gpu if self.on_gpu is not None and self.on_gpu.is_usable else None

    @property
    def device(self) -> str:
        """cuda where a GPU computes, beside the CPU; else cpu."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def device_reason(self) -> str:
        """Why it computes there, in one line."""
        return self.cpu_reason if self.on_gpu is None else self.on_gpu.reason

    @property
    def vram_bytes(self) -> int:
        """What this process holds on the GPU for it."""
        return 0 if self.gpu is None else self.gpu.vram_bytes

    @property
    def gpu_notes(self) -> tuple[str, ...]:
        """What happened to its part on a GPU since it was loaded, one sentence each."""
        return () if self.on_gpu is None else tuple(self.on_gpu.notes)

    @property
    def is_placed_automatically(self) -> bool:
        """Whether Hearth chose how much of a GPU it takes."""
        return self.engine.vram_budget_gib is None

    @property
    def hot_blocks(self) -> HotBlocks | None:
        """Where its hot neurons are; None where none have a place of their own."""
        return None if self.gpu is None else self.gpu.blocks

    @property
    def generation(self) -> int:
        """Counted up whenever transformers and caches of before are no longer to be used."""
        return 0 if self.on_gpu is None else self.on_gpu.generation

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
        if mode == "auto" and self.gpu is not None:
            return self.gpu.mode_and_reason()[0]
        return self.mode if mode is None else self.modes.choose(mode)[0]

    def make_ready(self, mode: str | None) -> None:
        """So that answers can be computed in the mode: where its predictors find no room on the GPU beside what is
        there, the model is placed anew, and `generation` says so. Between answers."""
        if self.gpu is not None:
            self.gpu.make_ready(self.resolve_mode(mode))

    def new_cache(self, context: int | None = None) -> KVCache:
        """An empty KV cache for so many tokens; None: as many as the model was loaded for."""
        context = context or self.context
        if self.gpu is not None:
            return self.gpu.new_cache(context)
        return KVCache(self.opened.config, context, self.kv_codec)

    def transformer(self, mode: str | None = None) -> Transformer:
        """The model's graph with the executor of `mode` (default: as loaded). Cheap: the weights are shared."""
        mode, operators = self.resolve_mode(mode), self.backend.operators
        if self.gpu is not None:
            return self.gpu.transformer(mode)
        predictor = self.modes.predictor if mode == "sparse" else None
        config, executor = self.opened.config, self.modes.executor(mode, operators)
        decoder = self.backend.decoder(config, self.weights, mode, executor.counters, predictor)
        return Transformer(config, self.weights, executor, operators, decoder)


@dataclass(frozen=True, eq=False)
class _Source:
    """What was asked for: the model's files, opened and checked. name: where it was known under one, else empty."""

    opened: OpenedModel
    tokenizer: Tokenizer
    name: str


@dataclass(frozen=True, eq=False)
class _Device:
    """What computes: the CPU with its threads and backend, and the GPU where one can. gpu None: cpu_reason says why."""

    hardware: HardwareProfile
    threads: int
    threads_reason: str
    backend: Backend
    gpu: GpuInfo | None
    cpu_reason: str


@dataclass(frozen=True, eq=False)
class _Memory:
    """What fits: the context in tokens, and how keys and values are kept. predictor_bytes: of the mode's predictors,
    those that must be in RAM, and those that can stay in their file."""

    context: int
    kv_codec: KvCodec
    sizes: ModelBytes
    predictor_bytes: tuple[int, int]


def _resolve(model: str, engine: EngineConfig, steps: LoadSteps, job: Job) -> _Source:
    steps.begin("opening")
    found = find_model(model)
    activation, template = engine.activation or found.activation or None, engine.template or found.template or None
    opened = run_cancellable(job.cancelled, lambda: open_model(found.path, activation), "opening")
    steps.begin("tokenizer")
    tokenizer = run_cancellable(job.cancelled, lambda: read_tokenizer(opened, template), "tokenizer")
    return _Source(opened, tokenizer, found.name)


def _choose_device(opened: OpenedModel, engine: EngineConfig, steps: LoadSteps, job: Job) -> _Device:
    """Raises: as load, for a mode that the model cannot run in, before gigabytes are read."""
    from threadpoolctl import threadpool_limits

    steps.begin("machine")
    forget_hasty()
    hardware = load_profile(engine.hardware_file) if engine.hardware_file else probe()
    choose_mode(opened, engine.mode)
    threads, threads_reason = choose_threads(hardware, engine.threads)
    threadpool_limits(limits=threads, user_api="blas")
    backend = choose_backend(engine.backend, threads, job.cancelled)
    job.stop_if_cancelled()
    gpu, cpu_reason = choice.candidate(engine, opened, hardware, backend)
    return _Device(hardware, threads, threads_reason, backend, gpu, cpu_reason)


def _fit_memory(opened: OpenedModel, device: _Device, engine: EngineConfig) -> _Memory:
    """Raises: HostMemoryError where the model does not fit however short the context is."""
    hardware, gpu = device.hardware, device.gpu
    kv_codec = engine.kv_cache or device.backend.kv_codec
    budgets = budgets_of(hardware, gpu, engine.vram_budget_gib)
    available = min(hardware.ram.free_bytes, budgets.vram_bytes or hardware.ram.free_bytes)
    context = choose_context(opened, engine.context, available // engine.sequences, kv_codec)
    other = choose_gpu(hardware)[0] if engine.device == "cpu" else None
    sizes, predictor_bytes = ModelBytes.of(opened), predictor_room(opened, engine.mode)
    context = fitting_context(
        sizes, Room(hardware, gpu, budgets, other), context, kv_codec,
        sequences=engine.sequences, is_given=engine.context is not None, must_bytes=predictor_bytes[0],
    )  # fmt: skip
    return _Memory(context, kv_codec, sizes, predictor_bytes)


def _read(
    source: _Source, device: _Device, memory: _Memory, engine: EngineConfig, steps: LoadSteps, job: Job,
) -> LoadContext:  # fmt: skip
    opened, backend = source.opened, device.backend
    steps.begin("weights")
    must, may = memory.predictor_bytes
    weights = load_weights(
        opened,
        job,
        extra_bytes=engine.sequences * KVCache.bytes_for(opened.config, memory.context, memory.kv_codec) + must,
        mapped_bytes=may,
        mapped_reason=_READ_AS_STORED if backend.reads_all_of(opened) else "",
    )
    job.stop_if_cancelled()
    steps.begin("kernels")
    sample = source.tokenizer.encode(SAMPLE_TEXT, add_bos=True)[: memory.context]
    modes = ModeChooser(
        opened, weights, sample, backend.operators, memory.kv_codec, lambda share: job.stop_if_cancelled()
    )
    return LoadContext(
        opened=opened, weights=weights, modes=modes, backend=backend, engine=engine, context=memory.context,
        kv_codec=memory.kv_codec, ram=device.hardware.ram, chosen=device.cpu_reason, steps=steps,
    )  # fmt: skip


def _prepare(
    context: LoadContext, device: _Device, memory: _Memory, preparing: Progress, job: Job,
) -> tuple[GpuPart | None, str]:  # fmt: skip
    """Compiles the CPU's kernels and loads the GPU's part; without one, why there is none."""
    engine, hardware = context.engine, device.hardware
    predictor = context.modes.to_be_asked(engine.mode) if device.gpu is None else None
    config = context.opened.config
    context.backend.prepare_operators(config, context.weights, context.kv_layout, predictor, job.reporting(preparing))
    job.stop_if_cancelled()
    if device.gpu is None:
        return None, device.cpu_reason
    part, why_not = load_part(device.gpu, hardware, device.threads, context, job)
    if part is None or not part.is_usable:  # all of it is the RAM's then
        fitting_context(
            memory.sizes, Room(hardware, None, budgets_of(hardware, None, None)), context.context, context.kv_codec,
            sequences=engine.sequences, is_given=True, must_bytes=memory.predictor_bytes[0], why=why_not,
        )  # fmt: skip
    return part, why_not


def _fields(context: LoadContext) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
