"""The gain of preparing a model on this machine, from the placement solver, before anything is converted or counted.

Each combination of "as a bundle", "with counts" and "with predictors" is a placement problem. Missing data is replaced
by what is usual for such models. Writes nothing and reads no weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.bundle.bundle import BundleSource
from engine.bundle.bundle_manifest import BundleCodec, Manifest, SourceEntry
from engine.config import EngineConfig, Mode
from engine.conversion.bundle_layout import Layout, plan_layout
from engine.errors import EngineError
from engine.library.records import Sparsity
from engine.model.model_files import ModelFiles, OpenedModel
from engine.placement.activity import activity_of, scaled_to
from engine.placement.gpu_bytes import predictor_bytes
from engine.placement.greedy import place_greedily
from engine.placement.model_bytes import ModelBytes, PredictorBytes
from engine.placement.setting import KnownInputs, Setting, read_setting
from engine.placement.solving import problem_of
from engine.sparsity.stats import NeuronStats
from engine.training import training
from engine.training.low_rank import stored_codec
from native_kernels.codecs import ROW_CODECS

F64 = NDArray[np.float64]

# Least gain in speed of a step. Conversion needs as much disk space as the model, so it must gain more.
LEAST_GAIN = {"convert": 1.1, "train": 1.05, "profile": 1.05}
# Free memory of a GPU while a model is loaded there: what it will have once this model replaces that one.
GPU_SHARE = 0.9
# Predictors that training usually chooses (the starter model's, all layers): 2-bit copies, which expect this multiple
# of the neurons whose gate is active.
TRAINED_CODEC, TRAINED_TO_OPENED = "copy2", 1.4
# Low-rank predictors, the only ones for neurons inside experts. With a rank of the width over 4, they expect this
# multiple of the neurons that fire, within the error budget (starter model, `train --kind low_rank --tokens 12288`).
EXPERT_TO_FIRED = 7.0
# Share of a layer's neurons with 80 % of its activity: figure 5 of PowerInfer, with and without a gate.
_COVERED = {True: 0.43, False: 0.26}
_TOKENS = 1 << 15  # of the counts that stand in for real ones


@dataclass(frozen=True)
class Ways:
    """A combination of preparing steps."""

    convert: bool = False
    profile: bool = False
    train: bool = False


class Gains:
    """Predicted rates of a model on this machine, for every combination of steps. Cost: about 0.3 s each, for 80
    layers.

    missing: those of the three steps that are possible and not done yet.
    """

    def __init__(
        self, opened: OpenedModel, engine: EngineConfig | None = None, sparsity: Sparsity | None = None
    ) -> None:
        self._opened = opened
        self._sparsity = sparsity
        self._setting = _setting(opened, engine or EngineConfig())
        self._known: dict[Ways, float | None] = {}

    @cached_property
    def codec(self) -> BundleCodec | None:
        """Return the codec of a bundle with negligible loss; None if a bundle would not help."""
        return (
            None if self._opened.format == "bundle" or not self._opened.config.has_zeros else kept_codec(self._opened)
        )

    @cached_property
    def layout(self) -> Layout | None:
        """Return the model's layout in that bundle."""
        return None if self.codec is None else plan_layout(self._opened, self.codec)

    @property
    def missing(self) -> Ways:
        config = self._opened.config
        # The experts on a GPU follow the router while a model answers, and nothing is predicted inside them there.
        known = not config.n_experts
        return Ways(
            convert=self.codec is not None,
            profile=config.predicts_neurons and known and self._setting.stats is None,
            train=config.predicts_neurons and (known or not self.has_gpu) and not has_lasting_predictors(self._opened),
        )

    @property
    def reads_all_of_down(self) -> bool:
        """Return whether a token reads all of down, because the file does not store it by neuron."""
        return self._setting.model.down_is_row_wise

    @property
    def has_gpu(self) -> bool:
        return self._setting.gpu is not None

    def tok_s(self, ways: Ways) -> float | None:
        """Return the predicted tokens/s; None if the model does not fit."""
        if ways not in self._known:
            self._known[ways] = _rate(self._prepared(ways))
        return self._known[ways]

    def worthwhile(self) -> Ways:
        """Return the missing steps that make a token faster."""
        ways = self.missing
        for step in ("convert", "train", "profile"):
            without = replace(ways, **{step: False})
            if getattr(ways, step) and not _pays(self.tok_s(ways), self.tok_s(without), LEAST_GAIN[step]):
                ways = without
        return ways

    def gain(self, ways: Ways, step: str) -> float | None:
        """Return the factor that a step gains, with the others done."""
        fast, slow = self.tok_s(ways), self.tok_s(replace(ways, **{step: False}))
        return None if fast is None or slow is None else fast / slow

    # --- what is not there yet

    def _prepared(self, ways: Ways) -> Setting:
        setting = self._setting
        config = setting.opened.config
        if ways.convert and self.codec is not None and self.layout is not None:
            bundle = as_bundle(self._opened, self.codec, self.layout)
            setting = replace(setting, opened=bundle, model=ModelBytes.of(bundle))
        if config.has_zeros and setting.stats is None:
            setting = replace(setting, stats=self._counts(even=not ways.profile))
        if ways.train:
            setting = replace(setting, predictors=_trained(setting))
        return setting

    def _counts(self, even: bool) -> NeuronStats:
        """Return typical statistics. even: all neurons alike, as in a placement without counts."""
        config = self._opened.config
        fired = activity_of(config, "exact").fired
        share = float(fired.mean())
        if self._sparsity is not None and self._sparsity.active_share:
            share = self._sparsity.active_share * (config.n_experts_used / config.n_experts if config.n_experts else 1)
        neurons = config.n_placed_neurons
        rates = scaled_to(fired[0], share) if even else _uneven(neurons, share, *self._curve())
        counts = np.rint(rates * _TOKENS).astype(np.int64)
        return NeuronStats(np.tile(counts, (config.n_layers, 1)), _TOKENS, "measured", "usual")

    def _curve(self) -> tuple[F64, F64]:
        """Return (share of a layer's neurons, hottest first; their share of its activity), both from 0 to 1."""
        if self._sparsity is not None and self._sparsity.coverage:
            needed = np.array([0.0, *self._sparsity.coverage])
            return needed, np.linspace(0, 1, len(needed))
        return np.array([0.0, _COVERED[self._opened.config.gated], 1.0]), np.array([0.0, 0.8, 1.0])


def kept_codec(opened: OpenedModel) -> BundleCodec:
    """Return the codec of a bundle that keeps the precision of the model's own codec."""
    main = max(opened.codecs, key=lambda codec: (opened.codecs[codec], codec))
    if main in ("f32", "f16", "bf16"):
        return "f16"
    return "q4_0" if main == "q4_0" else "q8_0"


def as_bundle(opened: OpenedModel, codec: BundleCodec, layout: Layout) -> OpenedModel:
    """Return the model as if opened from its bundle, without files: only for counting bytes."""
    entries = {
        tensor.name: entry for part in layout.parts for region in part.regions for tensor, entry in region.tensors
    }
    origin = SourceEntry(opened.name, opened.format, "", opened.parameters)
    source = BundleSource(Path(), Manifest(opened.name, codec, opened.config, origin, {}, entries), {})
    return replace(opened, source=source, format="bundle", files=ModelFiles(Path(), "bundle", []))


def has_lasting_predictors(opened: OpenedModel) -> bool:
    """Return whether it has predictors other than sign copies, which serve until others are trained."""
    return opened.has_predictors and not has_sign_predictors(opened)


def has_sign_predictors(opened: OpenedModel) -> bool:
    """Return whether its predictors need no training. Unreadable ones count as none."""
    from engine.model.model_artefacts import predictor_kinds

    if not opened.has_predictors:
        return False
    try:
        return "sign" in predictor_kinds(opened)
    except EngineError:
        return False


def _setting(opened: OpenedModel, engine: EngineConfig) -> Setting:
    """Return the solver's input, with the GPU as if none of our models were on it."""
    setting = read_setting(opened, engine)
    gpu = setting.gpu
    if gpu is None or engine.vram_budget_gib is not None:
        return setting
    could_be_free = int(GPU_SHARE * (gpu.total_bytes or 0))
    if could_be_free <= (gpu.free_bytes or 0):
        return setting
    return read_setting(opened, engine, KnownInputs(gpu=replace(gpu, free_bytes=could_be_free)))


def _rate(setting: Setting) -> float | None:
    """Return the tokens/s of the fastest greedy placement."""
    ram = setting.budgets.ram_bytes if setting.all_in_ram > setting.budgets.ram_bytes else None
    found = []
    for mode in _modes(setting):
        problem, _ = problem_of(setting, mode)
        choice = place_greedily(problem, setting.budgets.vram_bytes, ram)
        if choice is not None:
            found.append(1 / choice.seconds(problem))
    return max(found, default=None)


def _modes(setting: Setting) -> Iterator[Mode]:
    if not setting.opened.config.has_zeros:
        yield "dense"
        return
    yield "exact"
    if setting.predictors is not None:
        yield "sparse"


def _pays(fast: float | None, slow: float | None, least: float) -> bool:
    """Return whether a step pays. It does if the model fits only with it; nothing pays if the model never fits."""
    if fast is None:
        return False
    return slow is None or fast >= least * slow


def _trained(setting: Setting) -> PredictorBytes:
    """Return the bytes of the predictors that training would create."""
    config = setting.opened.config
    if config.n_experts:
        return _trained_in_experts(setting)
    n_bytes = config.d_ff * ROW_CODECS[TRAINED_CODEC].n_bytes(config.d_model) + 4 * config.d_ff
    opens = activity_of(config, "exact", setting.stats).opened.mean(axis=1)
    on_gpu = predictor_bytes([(TRAINED_CODEC, config.d_ff, config.d_model)], [config.d_ff])
    each = np.full(config.n_layers, n_bytes, np.int64)
    return PredictorBytes(
        held=each,
        read=each,
        codecs=(TRAINED_CODEC,) * config.n_layers,
        active_share=tuple(min(1.0, TRAINED_TO_OPENED * float(share)) for share in opens),
        is_true_gate=np.zeros(config.n_layers, np.bool_),
        on_gpu=np.full(config.n_layers, -1 if on_gpu is None else on_gpu, np.int64),
    )


def _trained_in_experts(setting: Setting) -> PredictorBytes:
    """Return the bytes of low-rank predictors, the only ones for neurons inside experts."""
    config = setting.opened.config
    rank = training.ranks_for(config.d_model)[-1]
    codecs = [stored_codec(n_cols, "q4_0") for n_cols in (config.d_model, rank)]
    first, each = (ROW_CODECS[codec].n_bytes(n) + 4 for codec, n in zip(codecs, (config.d_model, rank), strict=True))
    predicted = np.isin(np.arange(config.n_layers), config.expert_layers)
    held, read = (rank * first + n * config.d_ff * each for n in (config.n_experts, config.n_experts_used))
    opens = activity_of(config, "exact", setting.stats).fired.mean(axis=1) * config.n_experts / config.n_experts_used
    return PredictorBytes(
        held=np.where(predicted, held, 0),
        read=np.where(predicted, read, 0),
        codecs=(codecs[1],) * config.n_layers,
        active_share=tuple(min(1.0, EXPERT_TO_FIRED * float(share)) for share in opens),
        is_true_gate=~predicted,
    )


def _uneven(n_neurons: int, share: float, needed: F64, carried: F64) -> F64:
    """Return [F], descending: the probability that each neuron is active, matching the curve, with mean `share`."""
    edges = np.linspace(0, 1, n_neurons + 1)
    weights = np.diff(np.interp(edges, np.maximum.accumulate(needed), carried))
    return np.asarray(scaled_to(weights.astype(np.float32), share), np.float64)
