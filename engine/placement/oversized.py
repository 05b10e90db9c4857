"""Check whether a model fits this machine's memory, and find alternatives if it does not.

Runs before weights are read or allocated; it needs only the headers of the model's files. engine/placement/solver.py
decides the placement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from engine.config import KvCodec
from engine.errors import HostMemoryError
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.model.graph import graph_of
from engine.model.weights import MARGIN_BYTES
from engine.placement import memory_plan
from engine.placement.gpu_bytes import gpu_cache_bytes
from engine.placement.memory_plan import Budgets
from engine.placement.model_bytes import I64, ModelBytes
from native_kernels.codecs import CODECS

LEAST_CONTEXT = 512
_NARROW_CODEC = "q4_0"  # convert writes it; CPU and GPU compute it
_PIP_BYTES = 256 << 20  # upper estimate for the bundled model, without the process


@dataclass(frozen=True)
class MemoryLimits:
    """The memory available to a model.

    gpu: the GPU that computes. other_gpu: a usable GPU that the options exclude.
    """

    profile: HardwareProfile
    gpu: GpuInfo | None
    budgets: Budgets
    other_gpu: GpuInfo | None = None

    @property
    def vram_bytes(self) -> int:
        """Bytes of VRAM available; 0 without a GPU."""
        return self.budgets.vram_bytes if self.gpu is not None else 0

    @property
    def ram_bytes(self) -> int:
        """Free RAM less the loader's margin. A load that needs more is refused."""
        return max(0, self.profile.ram.free_bytes - MARGIN_BYTES)

    @property
    def sure_ram_bytes(self) -> int:
        """The solver's RAM budget, which includes the process. Every suggested alternative fits in it."""
        return self.budgets.ram_bytes


@dataclass(frozen=True)
class Alternative:
    """A change that makes the model fit this machine.

    value: tokens for a context, GiB for a budget or a size. words: one sentence in the imperative.
    """

    kind: Literal["context", "budget", "device", "codec", "smaller", "free"]
    value: float
    words: str  # a sentence in the imperative


def fitting_context(
    model: ModelBytes,
    limits: MemoryLimits,
    context: int,
    kv_codec: KvCodec,
    *,
    sequences: int = 1,
    is_given: bool = False,
    must_bytes: int = 0,
    why: str = "",
) -> int:
    """Return the context, halved until the model fits unless the user chose it.

    sequences: number of sequences, each with this context. must_bytes: bytes of predictors that the mode requires. why:
    reason that the GPU does not help, for the error message.
    Raises: HostMemoryError with the bytes needed, the bytes free, and an alternative that fits.
    """
    case = Case(model, kv_codec, sequences, must_bytes)
    wanted = context
    while case.least_ram(context, limits) > limits.ram_bytes:
        if is_given or context <= LEAST_CONTEXT:
            raise _too_large(case, limits, wanted, why)
        context = max(LEAST_CONTEXT, context // 2)
    return context


def with_drafts_that_fit(case: Case, context: int, limits: MemoryLimits) -> ModelBytes:
    """Return the model, without its layer that drafts tokens if memory cannot surely hold both.

    The layer only makes answers faster: no context is shortened for it, and no expert stays on the disk.
    """
    model = case.model
    if not model.drafts:
        return model
    whole = replace(case, model=replace(model, experts_in_file=False))
    beside = replace(limits.budgets, ram_bytes=limits.budgets.ram_bytes - model.drafts_in_ram(context, case.kv_codec))
    fits = whole.surely_fits(context, replace(limits, budgets=beside))
    return model if fits else replace(model, drafts=0)


def _too_large(case: Case, limits: MemoryLimits, context: int, why: str) -> HostMemoryError:
    have = f"{_gib(limits.ram_bytes)} of RAM"
    if limits.gpu is not None and limits.vram_bytes:
        have += f" and {_gib(limits.vram_bytes)} of graphics memory"
    need = _gib(case.least_in_ram(context))
    words = f"The model needs {need} of memory with a context of {context} tokens; {have} may be used."
    if case.on_disk:
        words = (
            f"The model needs {need} of memory with a context of {context} tokens, even if most of its experts are "
            f"read from the disk; {have} may be used."
        )
    if why:
        words += f" The GPU does not help: {why.rstrip('.')}."
    return HostMemoryError(words, alternatives(case, limits, context)[0].words)


def alternatives(case: Case, limits: MemoryLimits, context: int) -> list[Alternative]:
    """Return the alternatives that fit this machine, nearest to the request first. Never empty."""
    return list(_alternatives(case, limits, context))


def _alternatives(case: Case, limits: MemoryLimits, context: int) -> Iterator[Alternative]:
    shorter = context // 2
    while shorter >= LEAST_CONTEXT:
        if case.surely_fits(shorter, limits):
            yield Alternative("context", shorter, f"Use a context of {shorter} tokens: it fits then.")
            break
        shorter //= 2
    if limits.gpu is not None and limits.budgets.vram_is_explicit:
        own = memory_plan.budgets_of(limits.profile, limits.gpu, None)
        if case.surely_fits(context, replace(limits, budgets=own)):
            words = "Let Hearth choose how much graphics memory it takes: it fits then."
            yield Alternative("budget", own.vram_bytes / 2**30, words)
    if limits.other_gpu is not None:
        own = memory_plan.budgets_of(limits.profile, limits.other_gpu, None)
        if case.surely_fits(context, replace(limits, gpu=limits.other_gpu, budgets=own)):
            words = "Let the GPU compute with the CPU: it fits then."
            yield Alternative("device", 0, words)
    narrow = case.narrower()
    if narrow is not None and (found := narrow.longest_that_surely_fits(context, limits)):
        size = narrow.model.total / 2**30
        with_context = "" if found == context else f" with a context of {found} tokens"
        words = f"Use the model with 4-bit weights, which take {size:.1f} GiB: it fits{with_context}."
        yield Alternative("codec", size, words)
    most = limits.sure_ram_bytes - memory_plan.PROCESS_BYTES - _PIP_BYTES
    if most > 0:
        words = f"Choose a model whose files take at most {_gib(most)}, or close other programs."
        yield Alternative("smaller", most / 2**30, words)
    else:
        least = memory_plan.PROCESS_BYTES + 2 * _PIP_BYTES + memory_plan.RAM_MARGIN_BYTES
        least += memory_plan.BUDGET_STEP_BYTES
        words = f"Close other programs until {_gib(least)} of RAM are free, and choose the model that came with Hearth."
        yield Alternative("free", least / 2**30, words)


@dataclass(frozen=True, eq=False)
class Case:
    """A model with its KV codec, number of sequences and required predictor bytes."""

    model: ModelBytes
    kv_codec: KvCodec
    sequences: int = 1
    must_bytes: int = 0

    def in_ram(self, context: int) -> int:
        """Return the bytes of weights, KV cache and predictors with nothing on a GPU.

        The process and its buffers are not counted: the free margin covers them.
        """
        kv = int(self.model.kv_of_layer(self.sequences * context, self.kv_codec, self.sequences).sum())
        return self.model.total + kv + self.must_bytes

    @property
    def on_disk(self) -> int:
        """Bytes of experts that may stay on the disk with nothing on a GPU."""
        return self.model.neurons * int(self.model.disk_neuron.sum())

    def least_in_ram(self, context: int) -> int:
        """Return the same as `in_ram`, without the experts that may stay on the disk."""
        return self.in_ram(context) - self.on_disk

    def reads_from_disk(self, context: int, limits: MemoryLimits) -> bool:
        """Return whether some experts may stay on the disk: not for sure can RAM and GPU hold all of them."""
        whole = replace(self, model=replace(self.model, experts_in_file=False))
        return self.on_disk > 0 and not whole.surely_fits(context, limits)

    def least_ram(self, context: int, limits: MemoryLimits) -> int:
        """Return a lower bound on RAM over all placements, in bytes."""
        freed, taken = self._of_layers(context)
        free = self._left_on_gpu(context, limits)
        worth = max([1.0, *(freed / np.maximum(taken, 1)).tolist()])
        head = self.model.head_in_ram if self.model.gpu_bytes.head_possible else 0
        all_of_it = int(freed.sum()) + head
        return self.least_in_ram(context) - int(min(all_of_it, worth * free))

    def fits_gpu(self, context: int, limits: MemoryLimits) -> bool:
        """Return whether the GPU can hold the whole model, with head and KV cache."""
        gpu = self.model.gpu_bytes
        needed = int(self._of_layers(context)[1].sum()) + gpu.head
        return bool(gpu.possible.all() and gpu.head_possible) and needed <= self._left_on_gpu(context, limits)

    def surely_fits(self, context: int, limits: MemoryLimits) -> bool:
        """Return whether a placement of whole layers on the GPU fits. The solver can always choose such a placement."""
        if context > self.model.config.max_context:
            return False
        freed, taken = self._of_layers(context)
        free, in_ram = self._left_on_gpu(context, limits), self.least_in_ram(context) + memory_plan.PROCESS_BYTES
        in_ram += memory_plan.scratch_bytes(self.model, self.sequences * context)
        for layer in np.argsort(taken, kind="stable").tolist():
            if not taken[layer] or taken[layer] > free:
                continue
            free -= int(taken[layer])
            in_ram -= int(freed[layer])
        return in_ram <= limits.sure_ram_bytes

    def longest_that_surely_fits(self, context: int, limits: MemoryLimits) -> int | None:
        """Return the context, halved until it fits; None if the shortest context does not fit."""
        while not self.surely_fits(context, limits):
            if context <= LEAST_CONTEXT:
                return None
            context = max(LEAST_CONTEXT, context // 2)
        return context

    def narrower(self) -> Case | None:
        """Return the model with its weights at 4 bits, estimated 2 % high; None if that saves less than 30 %."""
        model, narrow = self.model, _bits(_NARROW_CODEC)
        ratio = np.array([1.02 * min(1.0, narrow / _bits(codec)) for codec in model.first_codecs])
        ends = 1.02 * min(1.0, narrow / _bits(model.head_codec))
        if float(ratio.mean()) > 0.7:
            return None

        def times(values: I64) -> I64:
            return np.asarray(np.ceil(values * ratio), np.int64)

        gpu = model.gpu_bytes
        smaller = replace(
            model,
            attention=times(model.attention), first=times(model.first), second=times(model.second),
            down=times(model.down), embedding=int(model.embedding * ends), head=int(model.head * ends),
            shared=int(model.shared * ends),
            on_gpu=replace(gpu, attention=times(gpu.attention), neuron=times(gpu.neuron),
                            head=int(gpu.head * ends)),
        )  # fmt: skip
        return replace(self, model=smaller)

    def _of_layers(self, context: int) -> tuple[I64, I64]:
        """Return (freed, taken), i64 [L]: RAM bytes saved and VRAM bytes used by a whole layer on the GPU.

        Both are 0 for layers that the GPU cannot compute. Layers that must be on one device count as one.
        """
        model, gpu, tokens = self.model, self.model.gpu_bytes, self.sequences * context
        kv_ram, kept = (
            of_layer(tokens, self.kv_codec, self.sequences) for of_layer in (model.kv_of_layer, model.kept_in_ram)
        )
        kv_gpu = gpu_cache_bytes(model.config, tokens, self.kv_codec, self.sequences)
        freed = model.attention + model.neurons * (model.neuron - model.disk_neuron) + kv_ram - kept
        taken = gpu.attention + model.neurons * gpu.neuron + gpu.block + kv_gpu
        freed, taken = (np.where(gpu.possible, one, 0) for one in (freed, taken))
        tied = slice(graph_of(model.config).tied_from, None)
        together = gpu.possible[tied].all()
        for one in (freed, taken):
            total = one[tied].sum() * together
            one[tied] = 0
            one[tied][:1] = total
        return freed, taken

    def _left_on_gpu(self, context: int, limits: MemoryLimits) -> int:
        """Return the VRAM left for weights and KV cache after the CUDA context and scratch."""
        if limits.gpu is None:
            return 0
        tokens = self.sequences * context
        scratch = memory_plan.gpu_scratch_bytes(self.model, tokens, limits.gpu, limits.vram_bytes, self.sequences)
        return max(0, limits.vram_bytes - memory_plan.context_bytes(limits.gpu) - scratch)


def _bits(codec: str) -> float:
    return CODECS[codec.partition(".")[0]].n_bytes(256) / 32


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 100 << 20 else f"{n_bytes / 2**20:.1f} MiB"
