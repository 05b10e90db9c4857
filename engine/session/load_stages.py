"""The stages of loading a model: resolve the files, choose the device, fit the context, read the weights, prepare.

Each stage takes what the stages before it found. engine/gpu/trial/choice.py chooses the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.config import EngineConfig, KvCodec
from engine.gpu.residency import GpuResidency, load_residency
from engine.gpu.trial import choice
from engine.job import Job, Progress, run_cancellable
from engine.loading.backends import Backend, choose_backend
from engine.loading.embedding_models import check_answers
from engine.loading.load_context import LoadContext
from engine.loading.modes import SAMPLE_TEXT, ModeChooser, choose_mode, predictor_ram
from engine.loading.opening import choose_context, read_tokenizer
from engine.machine.cpu_and_ram import lies_in_ram
from engine.machine.hardware import HardwareProfile, choose_gpu, choose_threads, probe
from engine.machine.measured_hardware import load_profile, remember_disk
from engine.model.kv_cache import KVCache
from engine.model.weights import OpenedModel, StoredKernels, load_weights, open_model
from engine.placement.down_copy import as_loaded, fired_share
from engine.placement.machine_figures import discard_hasty
from engine.placement.memory_plan import budgets_of
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Case, MemoryLimits, fitting_context, with_drafts_that_fit
from engine.session.resolve_model import find_model

if TYPE_CHECKING:
    from engine.load_steps import LoadSteps
    from engine.machine.graphics import GpuInfo
    from engine.text.tokenizer import Tokenizer

_READ_AS_STORED = "the CPU kernels multiply matrices as the file stores them"


@dataclass(frozen=True, eq=False)
class Source:
    """The requested model's files, opened and checked. name: its name in the list of models, else empty."""

    opened: OpenedModel
    tokenizer: Tokenizer
    name: str


@dataclass(frozen=True, eq=False)
class Device:
    """The CPU with its threads and backend, and the GPU to try.

    gpu: None if none can be used. gpu_reason: why this GPU, or why none.
    """

    hardware: HardwareProfile
    threads: int
    threads_reason: str
    backend: Backend
    gpu: GpuInfo | None
    gpu_reason: str


@dataclass(frozen=True, eq=False)
class Memory:
    """The context in tokens and the KV codec that fit.

    sizes: include down's copy by neuron if the load makes one.
    predictor_bytes: of the mode's predictors, (bytes that must be in RAM, bytes that can stay in the file).
    reads_experts: whether experts are read from the disk when they are chosen, if no GPU helps: RAM cannot hold all.
    """

    context: int
    kv_codec: KvCodec
    sizes: ModelBytes
    predictor_bytes: tuple[int, int]
    reads_experts: bool


def resolve(model: str, engine: EngineConfig, steps: LoadSteps, job: Job, for_vectors: bool = False) -> Source:
    """Raises: UnsupportedModelError for an encoder, unless the model is wanted for vectors."""
    steps.begin("opening")
    found = find_model(model)
    activation, template = engine.activation or found.activation or None, engine.template or found.template or None
    opened = run_cancellable(job.cancelled, lambda: open_model(found.path, activation), "opening")
    if not for_vectors:
        check_answers(opened)
    steps.begin("tokenizer")
    tokenizer = run_cancellable(job.cancelled, lambda: read_tokenizer(opened, template), "tokenizer")
    return Source(opened, tokenizer, found.name)


def choose_device(
    opened: OpenedModel, engine: EngineConfig, steps: LoadSteps, job: Job, backend: Backend | None = None
) -> Device:
    """Choose the threads, the CPU kernels and the GPU to try. `prepare` places the model on the GPU.

    backend: another model's, whose threads this one shares.

    Raises: as choose_mode, for a mode that the model cannot run in: here, before gigabytes are read.
    """
    from threadpoolctl import threadpool_limits

    steps.begin("machine")
    discard_hasty()
    hardware = load_profile(engine.hardware_file) if engine.hardware_file else probe()
    choose_mode(opened, engine.mode)
    threads, threads_reason = choose_threads(hardware, engine.threads)
    threadpool_limits(limits=threads, user_api="blas")
    backend = backend or choose_backend(engine.backend, threads, job.cancelled)
    job.stop_if_cancelled()
    gpu, gpu_reason = choice.candidate(engine, opened, hardware, backend)
    return Device(hardware, threads, threads_reason, backend, gpu, gpu_reason)


def fit_memory(opened: OpenedModel, device: Device, engine: EngineConfig) -> Memory:
    """Fit the context. Raises: HostMemoryError if the model does not fit with the shortest context."""
    hardware, gpu = device.hardware, device.gpu
    kv_codec = engine.kv_cache or device.backend.kv_codec
    budgets = budgets_of(hardware, gpu, engine.vram_budget_gib)
    available = min(hardware.ram.free_bytes, budgets.vram_bytes or hardware.ram.free_bytes)
    context = choose_context(opened, engine.context, available // engine.sequences, kv_codec)
    other = choose_gpu(hardware)[0] if engine.device == "cpu" else None
    sizes, predictor_bytes = ModelBytes.of(opened), predictor_ram(opened, engine.mode)
    reads_all = device.backend.reads_all_of(opened)
    if not reads_all:
        sizes = replace(sizes, experts_in_file=False)
    limits = MemoryLimits(hardware, gpu, budgets, other)
    context = fitting_context(
        sizes, limits, context, kv_codec,
        sequences=engine.sequences, is_given=engine.context is not None, must_bytes=predictor_bytes[0],
    )  # fmt: skip
    sizes = with_drafts_that_fit(Case(sizes, kv_codec, engine.sequences, predictor_bytes[0]), context, limits)
    alone = MemoryLimits(hardware, None, budgets)
    reads = Case(sizes, kv_codec, engine.sequences, predictor_bytes[0]).reads_from_disk(context, alone)
    if reads_all and sizes.down_is_row_wise:
        case = Case(sizes, kv_codec, engine.sequences, sum(predictor_bytes))
        sizes = as_loaded(case, context, limits, fired_share(opened, engine.mode), device.threads)
    return Memory(context, kv_codec, sizes, predictor_bytes, reads)


def read(
    source: Source, device: Device, memory: Memory, engine: EngineConfig, steps: LoadSteps, job: Job,
) -> LoadContext:  # fmt: skip
    opened, backend = source.opened, device.backend
    steps.begin("weights")
    trail_bytes = memory.sizes.drafts_in_ram(memory.context, memory.kv_codec) - memory.sizes.drafts
    must, may = memory.predictor_bytes
    extra_bytes = engine.sequences * KVCache.bytes_for(opened.config, memory.context, memory.kv_codec) + must
    transpose = backend.transposed if opened.down_is_row_wise and not memory.sizes.down_is_row_wise else None
    weights = load_weights(
        opened,
        job,
        extra_bytes=extra_bytes,
        mapped_bytes=may,
        kernels=StoredKernels(_READ_AS_STORED, transpose) if backend.reads_all_of(opened) else None,
        reads_experts=memory.reads_experts and not lies_in_ram(opened.files.path),
    )
    reads = weights.expert_reads
    if reads is not None and (rate := reads.measure_disk(device.threads)) is not None:
        remember_disk(rate)
    job.stop_if_cancelled()
    steps.begin("kernels")
    sample = source.tokenizer.encode(SAMPLE_TEXT, add_bos=True)[: memory.context]
    modes = ModeChooser(
        opened, weights, sample, backend.operators, memory.kv_codec, lambda share: job.stop_if_cancelled()
    )
    return LoadContext(
        opened=opened, weights=weights, modes=modes, backend=backend, engine=engine, context=memory.context,
        kv_codec=memory.kv_codec, ram=device.hardware.ram, tokenizer=source.tokenizer,
        chosen=device.gpu_reason, steps=steps,
    ).with_drafts(Job(job.cancelled), extra_bytes + trail_bytes, memory.sizes.drafts > 0)  # fmt: skip


def prepare(
    context: LoadContext, device: Device, memory: Memory, preparing: Progress, job: Job,
) -> tuple[GpuResidency | None, str]:  # fmt: skip
    """Compile the CPU's kernels, then place the model and load its part on the GPU; without one, return why.

    engine/gpu/placed_model.py asks engine/placement/solving.py what belongs on the GPU.
    """
    engine, hardware = context.engine, device.hardware
    predictor = context.modes.possible_predictor(engine.mode) if device.gpu is None else None
    config = context.opened.config
    context.backend.prepare_operators(config, context.weights, context.kv_layout, predictor, job.reporting(preparing))
    job.stop_if_cancelled()
    if device.gpu is None:
        return None, device.gpu_reason
    part, why_not = load_residency(device.gpu, hardware, device.threads, context, job)
    if part is None or not part.placed.is_usable:  # without a GPU everything must fit in RAM
        fitting_context(
            memory.sizes, MemoryLimits(hardware, None, budgets_of(hardware, None, None)),
            context.context, context.kv_codec,
            sequences=engine.sequences, is_given=True, must_bytes=memory.predictor_bytes[0], why=why_not,
        )  # fmt: skip
    return part, why_not
