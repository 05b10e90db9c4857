"""Choose whether a model runs sparse, exact or dense, with the reason in words, and load its predictors.

The executors compute. This module only runs a sample text to measure the predictors' cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.config import KvCodec, Mode
from engine.errors import EngineError, HostMemoryError, InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.ffn_bytes import first_bytes, first_bytes_read, predictor_bytes
from engine.executor.sparse import SparseExecutor
from engine.job import ShareProgress
from engine.machine.cpu_and_ram import memory_limits, read_ram
from engine.model.kv_cache import KVCache
from engine.model.model_artefacts import no_predictors, predictor_sizes, read_predictor
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import MARGIN_BYTES, ModelWeights, OpenedModel
from engine.sparsity.predictor import Budget, Predictor
from engine.sparsity.predictor_layout import laid_out_by_lanes
from native_kernels.backend import Operators
from native_kernels.codecs import COPY_CODECS
from native_kernels.reference import ReferenceOperators

# Sample text for measuring how many neurons predictors select: as short as a brief question, to keep loading fast.
SAMPLE_TEXT = "The ferry left at seven. Half of the passengers slept, and the others watched the coast grow dark."


@dataclass(frozen=True)
class SparseCost:
    """Bytes per token, over all layers, that sparse mode reads instead of every neuron's first matrix.

    Both sparse and exact mode read up and down of active neurons. Exact mode reads more of them because predictors miss
    some; that is not counted as a saving.
    """

    predictor_bytes: float  # of a cascade: the rows of its low-bit copy that the sample read
    active_share: float | None  # selected on the sample; None if the predictors alone are too expensive
    first_bytes: int  # gate, or up without a gate
    first_bytes_read: float  # of these, read on the sample

    @property
    def bytes_saved(self) -> float:
        """Bytes that sparse mode saves over exact mode; negative if it reads more."""
        return self.first_bytes - self.first_bytes_read - self.predictor_bytes


class ModeChooser:
    """The modes of a loaded model. Predictors are read, and their cost measured, on first use.

    sample: token ids for measuring the predictors' cost with these operators and this KV codec.
    """

    def __init__(
        self,
        opened: OpenedModel,
        weights: ModelWeights,
        sample: Sequence[int],
        operators: Operators | None = None,
        kv_codec: KvCodec = "f32",
        progress: ShareProgress = lambda share: None,
    ) -> None:
        """progress: called regularly while the sample runs; an exception it raises cancels the run."""
        self._progress = progress
        self._kv_codec: KvCodec = kv_codec
        self._operators = operators or ReferenceOperators()
        self._opened = opened
        self._weights = weights
        self._sample = sample

    @property
    def sample(self) -> Sequence[int]:
        """The tokens of a short text."""
        return self._sample

    def choose(self, wanted: str) -> tuple[Mode, str]:
        """Return sparse, exact or dense, and why. Raises: as `choose_mode`; for sparse, `read_predictors`."""
        mode, reason = choose_mode(self._opened, wanted, lambda: self._sparse_cost, lambda: self.predictor.budget)
        if mode == "sparse":
            _ = self.predictor  # report its problems before an answer begins
        return mode, reason

    def executor(self, mode: Mode, operators: Operators) -> FfnExecutor:
        """Return the FFN executor of a mode from `choose`."""
        config = self._opened.config
        if mode == "sparse":
            return SparseExecutor(config, self._weights, self.predictor, operators)
        return (ExactExecutor if mode == "exact" else DenseExecutor)(config, self._weights, operators)

    def possible_predictor(self, wanted: str) -> Predictor | None:
        """Return the predictor that `choose` may use; None if there is none or it is unusable."""
        if wanted not in ("auto", "sparse") or not (self._opened.has_predictors and self._opened.config.has_zeros):
            return None
        try:
            return self.predictor
        except EngineError:  # `choose` meets it again and reports it
            return None

    @cached_property
    def stored_predictor(self) -> Predictor:
        """The model's predictor as stored. Raises: as `read_predictors`."""
        from engine.loading.backends import multiplies

        return read_predictors(self._opened, lambda codec: multiplies(self._operators, codec))

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor in the layout for computing. Raises: as `read_predictors`."""
        from engine.loading.backends import multiplies

        predictor = self.stored_predictor
        if multiplies(self._operators, "q4_0.lanes"):
            predictor = laid_out_by_lanes(predictor)
        return replace(predictor, operators=self._operators)

    @cached_property
    def _sparse_cost(self) -> SparseCost:
        return measure_sparse_cost(
            self._opened, self._weights, self.predictor, self._sample, self._operators, self._kv_codec, self._progress
        )


def choose_mode(
    opened: OpenedModel,
    wanted: str,
    sparse_cost: Callable[[], SparseCost] | None = None,
    budget: Callable[[], Budget | None] = lambda: None,
) -> tuple[Mode, str]:
    """Resolve `auto` and return the mode and the reason.

    Sparse needs predictors; exact needs an activation that makes zeros. sparse_cost: called if `auto` depends on it;
    without it `auto` never chooses sparse. budget: the predictors' error budget, checked first; if it was not held,
    `auto` does not choose sparse.
    Raises: UnsupportedModelError for sparse without predictors, InvalidRequestError for an unknown mode.
    """
    if wanted == "sparse":
        if not opened.has_predictors:
            raise no_predictors(opened)
        return "sparse", "Only the neurons that the predictors expect are computed, as requested"
    if wanted == "dense":
        return "dense", "Every neuron is computed, as requested"
    if wanted not in ("auto", "exact"):
        raise InvalidRequestError(f"Unknown mode {wanted!r}; supported: auto, sparse, exact and dense.")
    if not opened.config.has_some_zeros:
        return "dense", f"The activation {opened.config.activation} makes no zeros, so exact is dense"
    reason = "Neurons that do not fire are skipped; the result is the same"
    if wanted == "exact" or not opened.has_predictors or sparse_cost is None:
        return "exact", reason
    try:
        error_budget = budget()
        if error_budget is not None and not error_budget.held:
            return "exact", f"{reason}. The model's predictors did not hold their error budget{_missed(error_budget)}"
        cost = sparse_cost()
    except EngineError as error:  # unusable predictors must not prevent answers
        return "exact", f"{reason}. The model's predictors cannot be used: {error.message}"
    megabytes = f"{abs(cost.bytes_saved) / 1e6:.3g} MB a token"
    if cost.active_share is None:
        return "exact", f"{reason}. The predictors alone take {megabytes} more than the work that they could spare"
    share = f"the predictors expect {cost.active_share:.0%} of the neurons"
    if cost.bytes_saved > 0:
        return "sparse", f"In a sample text {share}, which reads {megabytes} less than exact mode"
    return "exact", f"{reason}. In a sample text {share}, and sparse mode would read {megabytes} more"


def _missed(budget: Budget) -> str:
    """Return by how much the budget was missed, if measured."""
    wanted = f": perplexity may rise by {100 * budget.perplexity_rise:.3g} %"
    if not budget.measured:
        return wanted
    worst = max(budget.measured, key=lambda text: text.perplexity_rise)
    return f"{wanted}, and rose by {100 * worst.perplexity_rise:.3g} % on {worst.text[:40]}"


def read_predictors(opened: OpenedModel, reads: Callable[[str], bool] = lambda codec: False) -> Predictor:
    """Return the model's predictors, checked against its configuration. See model_artefacts.py for precedence.

    Packed predictors are unpacked if free RAM allows, because that is faster. They stay mapped if RAM is short, or if
    the operators multiply their codec directly.
    Raises: UnsupportedModelError if there are none, ModelFormatError for damage, ArtifactMismatchError for those of
    another model, HostMemoryError if they can neither be mapped nor copied to RAM.
    """
    sizes = predictor_sizes(opened)
    if sizes.copied and not _fits_in_ram(sizes.copied):
        raise HostMemoryError(
            f"The predictors of {opened.name} are stored by column. Loading them needs {sizes.copied / 2**30:.2f} GiB "
            "of free RAM, and less is free."
        )
    predictor = read_predictor(opened, as_stored=True)
    packed = {matrix.codec for layer in predictor.layers for matrix in layer.matrices} - {"f32", "f16", *COPY_CODECS}
    if all(reads(codec) for codec in packed) or not _fits_in_ram(sizes.copied + sizes.unpacked):
        return predictor
    return read_predictor(opened, as_stored=False)


def predictor_ram(opened: OpenedModel, wanted: str) -> tuple[int, int]:
    """Return (RAM that predictors need beside the weights, RAM or page cache that they should have).

    Only an explicit sparse mode requires them; auto runs without them if memory is short or they are unusable.
    Raises: for sparse, as `read_predictors`, as far as headers tell.
    """
    if wanted == "sparse":
        sizes = predictor_sizes(opened)
        return sizes.copied, sizes.held_bytes - sizes.copied
    if wanted != "auto" or not opened.config.has_zeros:
        return 0, 0
    try:
        return 0, predictor_sizes(opened).held_bytes
    except EngineError:  # `choose_mode` meets it again and reports it
        return 0, 0


def _fits_in_ram(n_bytes: int) -> bool:
    """Return whether this much RAM is free beside the loader's margin."""
    import psutil

    return n_bytes + MARGIN_BYTES <= read_ram(psutil, memory_limits()).free_bytes


def measure_sparse_cost(
    opened: OpenedModel,
    weights: ModelWeights,
    predictor: Predictor,
    tokens: Sequence[int],
    operators: Operators,
    kv_codec: KvCodec,
    progress: ShareProgress = lambda share: None,
) -> SparseCost:
    """Measure what the predictors read and select over these tokens.

    Cost: one pass over the tokens, skipped if the predictors are too expensive anyway.
    """
    reached = opened.config.routed_share
    first = round(reached * first_bytes(weights))
    least = predictor_bytes(predictor, [0.0 if layer.kind == "cascade" else 1.0 for layer in predictor.layers])
    if least >= first:
        return SparseCost(least, None, first, 0.0)
    executor = SparseExecutor(opened.config, weights, predictor, operators, predicts_prompts=True)
    cache = KVCache(opened.config, len(tokens), kv_codec)
    Transformer(opened.config, weights, executor, operators).forward(np.asarray(tokens, np.int64), cache, 0, progress)
    share, shares = executor.counters.active_share, executor.counters.layer_shares
    assert share is not None, "a pass over tokens counts them"
    share /= reached
    read = first_bytes_read(weights, predictor, shares, reached)
    return SparseCost(predictor_bytes(predictor, shares[:, 3]), share, first, read)
