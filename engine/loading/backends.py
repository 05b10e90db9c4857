"""Choose the CPU backend: compiled kernels, or the NumPy reference with the reason that the kernels cannot run.

Nothing is compiled before a model needs it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.config import BackendName, KvCodec, Mode, ModelConfig
from engine.errors import Cancelled, KernelUnavailableError
from engine.executor.sparse import SparseExecutor
from engine.job import CancelCheck, Job, never, run_cancellable
from engine.model.counters import FfnCounters
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, OpenedModel
from native_kernels.backend import Operators, PackedMatrix
from native_kernels.kv_blocks import KvLayout
from native_kernels.reference import ReferenceOperators

if TYPE_CHECKING:
    from engine.decode.decode_program import DecodeProgram
    from engine.sparsity.predictor import Predictor
    from native_kernels.cpu.operators import CpuOperators
    from native_kernels.cpu.runtime.jit import Kernel

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Backend:
    """The CPU backend and the reason for it. kernels: the compiled operators; None: the reference computes."""

    reason: str
    kernels: CpuOperators | None = None
    _reference: ReferenceOperators = field(default_factory=ReferenceOperators)

    @property
    def name(self) -> str:
        if self.kernels is None:
            return "reference"
        from native_kernels.cpu.runtime import isa

        return f"CPU kernels ({isa.chosen().name})"

    @property
    def operators(self) -> Operators:
        return self._reference if self.kernels is None else self.kernels

    @property
    def kv_codec(self) -> KvCodec:
        """Default codec of the KV cache.

        float16 changes logits by 3e-4 of their root mean square (starter model), forty times less than rounding the
        inputs of products with quantised weights, and halves the bytes that a long conversation reads. The reference
        gains nothing.
        """
        return "f32" if self.kernels is None else "f16"

    def reads_all_of(self, opened: OpenedModel) -> bool:
        """Return whether kernels exist for every codec of the model's matrices in their file."""
        if self.kernels is None:
            return False
        codecs = {opened.source.tensors[one.foreign_name].codec for one in opened.plan if not one.is_vector}
        return all(self.kernels.reads(codec) for codec in codecs)

    def transposed(self, matrix: PackedMatrix) -> PackedMatrix:
        """Return a copy by columns: native_kernels/cpu/products/transposed.py. Needs the kernels."""
        from native_kernels.cpu.products.transposed import transposed

        assert self.kernels is not None, "the reference reads no stored matrices"
        return transposed(matrix, self.kernels.pool)

    def decoder(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        mode: Mode,
        counters: FfnCounters,
        predictor: Predictor | None,
    ) -> DecodeProgram | None:
        """Return the program of a token; None if the operators compute layer by layer instead."""
        if self.kernels is None:
            return None
        from engine.decode.decode_program import DecodeProgram, why_not

        if reasons := why_not(config, weights, mode, predictor):
            log.info("No program for a token: %s", " ".join(reasons))
            return None
        return DecodeProgram(config, weights, mode, counters, self.kernels.pool, predictor)

    def prepare_operators(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        layout: KvLayout,
        predictor: Predictor | None,
        job: Job,
    ) -> None:
        """Compile the kernels of the model's layers before the first one runs.

        Compilation on first use could not be cancelled. Progress and Raises: as `prepare`.
        """
        if self.kernels is not None:
            _compile(self._of_operators(self.kernels, config, weights, layout, predictor), job)

    def _of_operators(
        self, kernels: CpuOperators, config: ModelConfig, weights: ModelWeights, layout: KvLayout,
        predictor: Predictor | None,
    ) -> list[Kernel]:  # fmt: skip
        from native_kernels.cpu.runtime.pool import OWN_KERNELS

        blocks = [block for layer in weights.layers for block in (layer, *layer.ffns)]
        matrices = [matrix for block in blocks for matrix in vars(block).values() if isinstance(matrix, PackedMatrix)]
        if predictor is not None:
            matrices += [one for layer in predictor.layers for one in layer.matrices]
        codecs = {matrix.codec for matrix in (weights.head, weights.embedding, *matrices)}
        wanted = [*OWN_KERNELS, *kernels.kernels(codecs), *kernels.attention_kernels(layout)]
        if config.n_experts:
            wanted += kernels.expert_kernels()
        if config.delta is not None or config.gated_attention:
            wanted += kernels.delta_kernels()
        if config.short_conv is not None:
            wanted += kernels.short_conv_kernels()
        return wanted + kernels.vector_kernels(config.kernel_activation, rotates=config.positions == "rope")

    def prepare(
        self,
        model: Transformer,
        layout: KvLayout,
        job: Job,
    ) -> None:
        """Compile this model's kernels or load them from the cache. Progress counts kernels; none if all exist.

        Raises: Cancelled between two kernels.
        """
        if self.kernels is None:
            return
        predictor = model.executor.predictor if isinstance(model.executor, SparseExecutor) else None
        wanted = self._of_operators(self.kernels, model.config, model.weights, layout, predictor)
        if model.decoder is not None:
            wanted += run_cancellable(job.cancelled, functools.partial(model.decoder.kernels, layout), "compiler")
        _compile(wanted, job)


def _compile(wanted: Sequence[Kernel], job: Job) -> None:
    """Compile missing kernels. Raises: Cancelled; the current kernel is still compiled in the background."""
    missing = [kernel for kernel in dict.fromkeys(wanted) if not kernel.is_ready]
    for done, kernel in enumerate(missing):
        job.progress(done, len(missing))
        run_cancellable(job.cancelled, functools.partial(getattr, kernel, "address"), "compiler")
    for kernel in wanted:
        _ = kernel.address
    if missing:
        job.progress(len(missing), len(missing))


def multiplies(operators: Operators, codec: str) -> bool:
    """Return whether these operators multiply stored matrices of this codec without unpacking them on every use."""
    return operators.name != ReferenceOperators.name and operators.reads(codec)  # type: ignore[attr-defined]


def choose_backend(
    wanted: BackendName, threads: int, cancelled: CancelCheck = never
) -> Backend:  # fmt: skip
    """Return the kernels with this many threads if they can run, otherwise the reference and the reason.

    Raises: KernelUnavailableError if the kernels were requested and cannot run; Cancelled.
    """
    if wanted == "reference":
        return Backend("As requested")
    try:
        from native_kernels.cpu.operators import CpuOperators
        from native_kernels.cpu.runtime.pool import OWN_KERNELS, Pool

        _compile(OWN_KERNELS, Job(cancelled))
        kernels = CpuOperators(Pool(threads))
        run_cancellable(cancelled, lambda: self_test(kernels), "trial of the kernels")
    except Cancelled:
        raise
    except Exception as error:
        reason = f"The CPU kernels cannot run: {error or 'no reason given'}".split("\n")[0]
        if wanted == "kernels":
            raise KernelUnavailableError(f"{reason}.", "Run without asking for the kernels.") from error
        log.info("%s", reason, exc_info=True)
        return Backend(reason)
    missing = kernels.why_unavailable()
    return Backend(" ".join(["Compiled for this CPU.", *missing]), kernels)


def self_test(kernels: CpuOperators) -> None:
    """Run a small operation on all threads. Raises: errors of compiler or threads; ArithmeticError if it is wrong."""
    import numpy as np

    x = np.linspace(-1, 1, 77, dtype=np.float32)
    if not np.allclose(kernels.rms_norm(x[None], x, 1e-5), ReferenceOperators().rms_norm(x[None], x, 1e-5), atol=1e-5):
        raise ArithmeticError("a compiled kernel computes other numbers than the reference")
