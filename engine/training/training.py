"""Train a model's predictors: write text, walk through the model layer by layer, fit, choose and measure.

low_rank.py and gate_copies.py fit a layer's predictors, choosing.py chooses one, error_budget.py limits the loss on
held-out text. This module runs them in order. Paper: PowerInfer, section 5.1.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from engine.bundle import artefacts
from engine.errors import DeviceUnavailableError, InvalidRequestError, UnsupportedModelError
from engine.executor.feed_forward import first_matrix
from engine.job import Job
from engine.sparsity.predictor import LayerPredictor, LowRank, MeasuredText, Predictor
from engine.training.calibration import PORTION_TOKENS, write_portion
from engine.training.choosing import (
    Candidate,
    HeldOutLayer,
    LayerCost,
    MachineCost,
    choose_layer,
    copy_candidate,
    layer_candidates,
    low_rank_candidate,
)
from engine.training.error_budget import Goal, HeldOutText, hold_budget, measure_masked, measure_reference
from engine.training.gate_copies import CopyFit, CopyMaker
from engine.training.given_text import text_sequences
from engine.training.layer_walk import ModelParts, check_walk, walk_layers
from engine.training.low_rank import GateCuts, LowRankFitter, LowRankMap, Recipe
from engine.training.sign_copy import sign_candidate
from engine.training.thresholds import LEVELS
from engine.training.training_data import LayerSamples, SampleKeeper, TrainingTexts, split_texts, spread, unpacked
from engine.training.training_records import LayerRecord

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

Wanted = Literal["auto", "low_rank", "gate_copy", "cascade", "sign"]
WANTED: tuple[Wanted, ...] = get_args(Wanted)

DEFAULT_TOKENS = 49152
LEAST_TOKENS = 1024
COPY_BITS = (2, 3)
LOWEST_RANK_SHARE, HIGHEST_RANK_SHARE = 32, 4  # of the width: it over these
RANK_STEP = 32  # a block of the codecs that b's rows are stored in
GROWING_LEVEL = 0.99  # of recall, at which a larger rank must pay
EPOCHS = 8  # at most: positions are seen so often
_CHATS = ("questions", "dialogue")  # kinds of calibration text that are chats where the model has a template
# A desktop's memory bandwidth, the share of it for gathered rows (tests/benchmarks/cpu_kernels.py), and the time to
# switch between stages of a token's program.
_USUAL_BYTES_PER_S, _GATHERED, _STAGE_S = 20e9, 0.75, 5e-7
# Progress in thousandths, by the durations of the stages on the starter model with two threads.
_WHOLE, _WRITTEN, _FITTED = 1000, 150, 800
_VERSION = 2  # of the files kept between runs


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training. tokens: of text in all, half the user's and half the model's own."""

    kind: Wanted = "auto"
    tokens: int = DEFAULT_TOKENS
    goal: Goal = field(default_factory=Goal)
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in WANTED:
            raise InvalidRequestError(f"Unknown kind of predictor {self.kind!r}; supported: {', '.join(WANTED)}.")
        if self.tokens < LEAST_TOKENS:
            raise InvalidRequestError(
                f"{self.tokens} tokens were asked for; predictors need at least {LEAST_TOKENS} to be trained on."
            )
        if not 0 < self.goal.perplexity_rise < 1:
            raise InvalidRequestError(
                f"The budget is {100 * self.goal.perplexity_rise:g} %; it must be above 0 and below 100."
            )


@dataclass(frozen=True, eq=False)
class Trained:
    """file: the artefact's head. Layers that `exact` computes faster than any predictor have the kind true_gate."""

    predictor: Predictor
    file: Path
    seconds: float
    device: str

    def values(self) -> dict[str, Any]:
        """Return the values for the command's JSON and the window's job."""
        predictor = self.predictor
        return {
            "layers": [
                {
                    "kind": layer.kind,
                    "rank": layer.rank,
                    "bits": None if layer.copy is None else layer.copy.bits,
                    "recall": layer.recall,
                    "precision": layer.precision,
                    "active_share": layer.active_share,
                    "bytes": layer.n_bytes,
                }
                for layer in predictor.layers
            ],
            "bytes": predictor.n_bytes,
            "seconds": self.seconds,
            "budget": None if predictor.budget is None else predictor.budget.to_json(),
            "device": self.device,
            "file": str(self.file),
        }


def train(
    model: LoadedModel,
    text: str | None = None,
    options: TrainingOptions | None = None,
    device: str = "auto",
    job: Job = Job(),
) -> Trained:
    """Train predictors of all layers, and store them as the model's own in place of older ones.

    text: the user's, in addition to what the model writes. Finished layers are kept until all are done: after an
    interruption the same call continues, with the same result. Units: progress reports thousandths. Cost: one layer's
    positions at a time, N (D + F) halves, in a file if there are many. Raises: InvalidRequestError,
    UnsupportedModelError for a model without zeros, DeviceUnavailableError, DeviceMemoryError,
    HostMemoryError, DiskSpaceError, Cancelled.
    """
    started = time.perf_counter()
    options = options or TrainingOptions()
    config = model.opened.config
    if not config.has_zeros:
        raise UnsupportedModelError(
            f"{model.opened.name} has the activation {config.activation}, which makes no zeros to predict.",
            "Run it without predictors.",
        )
    if config.n_experts and (options.kind not in ("auto", "low_rank") or config.weighed_inputs):
        raise UnsupportedModelError("In experts, only predictors of low rank are supported.", "Train those.")
    check_walk(config)
    device = training_device(device)
    texts, held_out, source = _texts(model, text, options, job.part(0, _WRITTEN, _WHOLE))
    with _threads(model.threads):
        trainer = _Trainer(model, texts, options, device)
        trainer.fit_layers(job.part(_WRITTEN, _FITTED, _WHOLE))
        chosen = trainer.choose(held_out, job.part(_FITTED, _WHOLE, _WHOLE))
    made = replace(chosen, text=source)
    file = artefacts.save_predictor(model.opened, made, cancelled=job.cancelled)
    trainer.clear()
    job.progress(_WHOLE, _WHOLE)
    return Trained(made, file, time.perf_counter() - started, device)


def training_device(wanted: str) -> str:
    """Return cuda or cpu. Raises: DeviceUnavailableError if a GPU was requested and there is none."""
    import torch

    if wanted == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise DeviceUnavailableError("The GPU cannot be used for training: PyTorch finds none.")
    return "cpu"


def ranks_for(d_model: int) -> list[int]:
    """Return the ranks to try: doubled from the width over 32 up to the width over 4, in whole blocks."""
    lowest = max(RANK_STEP, d_model // LOWEST_RANK_SHARE // RANK_STEP * RANK_STEP)
    ranks = [lowest]
    while 2 * ranks[-1] <= d_model // HIGHEST_RANK_SHARE:
        ranks.append(2 * ranks[-1])
    return ranks


class _Trainer:
    """A training: its finished layers and their files."""

    def __init__(self, model: LoadedModel, texts: TrainingTexts, options: TrainingOptions, device: str) -> None:
        self._model = model
        self._parts = ModelParts.of(model)
        self._texts = texts
        self._options = options
        self._device = device
        self._machine = MachineCost(_USUAL_BYTES_PER_S, _GATHERED, _STAGE_S)
        self._folder = _saved_in(model, texts, options, device)
        self._records: dict[int, LayerRecord] = {}
        for layer in range(model.opened.config.n_layers):
            if (record := LayerRecord.load(self._file(layer))) is not None:
                self._records[layer] = record

    def _file(self, layer: int) -> Path:
        return self._folder / f"layer-{layer:03d}.npz"

    def clear(self) -> None:
        """Delete the files for continuing."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def fit_layers(self, job: Job) -> None:
        n_layers = self._model.opened.config.n_layers
        if len(self._records) == sum(map(self._predicts, range(n_layers))):
            return

        def hand_over(samples: LayerSamples) -> None:
            walked = samples.layer * _WHOLE

            def report(done: int, total: int) -> None:
                job.progress(walked + _WHOLE // 5 + 4 * _WHOLE // 5 * done // total, n_layers * _WHOLE)

            record = self._fit(samples, job.reporting(report))
            record.save(self._file(samples.layer))
            self._records[samples.layer] = record

        def walked(done: int, total: int) -> None:
            layer, rest = divmod(n_layers * done, total)
            job.progress(layer * _WHOLE + _WHOLE // 5 * rest // total, n_layers * _WHOLE)

        keeper = SampleKeeper(
            self._parts, self._texts, hand_over, lambda layer: self._predicts(layer) and layer not in self._records
        )
        try:
            walk_layers(self._parts, self._texts.walked, keeper, job=job.reporting(walked)).close()
        finally:
            keeper.close()

    def _predicts(self, layer: int) -> bool:
        """Return whether the layer has a predictor: not the layers without experts of a model that has some."""
        return not self._parts.config.n_experts or bool(self._parts.weights.layers[layer].routed)

    def _fit(self, samples: LayerSamples, job: Job) -> LayerRecord:
        """Fit all candidate predictors of a layer."""
        kind = self._options.kind
        config, layer = self._parts.config, self._parts.weights.layers[samples.layer]
        w, *others = layer.routed or layer.ffns[:1]
        bias = first_matrix(w)[1]
        gate = np.concatenate([unpacked(first_matrix(one)[0]) for one in (w, *others)])
        inputs, contribution = samples.calibration()
        # With experts only copies, which they do not have, would need the activation's input.
        first = np.zeros((0, len(gate)), np.float32) if others else inputs @ gate.T
        held_out = HeldOutLayer(
            inputs, first if bias is None else first + bias, contribution, config.activation_threshold
        )
        cost = LayerCost.of(w, held_out.fired_share, max(1, config.n_experts_used))
        if kind == "sign":
            return LayerRecord([sign_candidate(gate, bias, held_out)], cost)
        mean, second_moment = samples.moments()
        fits: list[CopyFit] = []
        if kind != "low_rank" and not others:
            maker = CopyMaker(gate, bias, mean, second_moment, self._device)
            fits = [maker.fit(bits, job=Job(job.cancelled)) for bits in COPY_BITS]
        if kind == "gate_copy":
            found = [copy_candidate(fit, held_out, cost, self._machine) for fit in fits]
            return LayerRecord(found, cost)
        low_ranks = self._low_ranks(samples, GateCuts(gate, bias, mean, second_moment, self._device), fits, held_out,
                                    cost, job)  # fmt: skip
        if kind == "low_rank":
            found = [low_rank_candidate(one, held_out) for one in low_ranks]
        elif kind == "cascade":
            found = [copy_candidate(fit, held_out, cost, self._machine, one) for fit in fits for one in low_ranks]
        else:
            found = layer_candidates(fits, low_ranks, held_out, cost, self._machine)
        return LayerRecord(found, cost)

    def _low_ranks(
        self,
        samples: LayerSamples,
        cuts: GateCuts,
        fits: Sequence[CopyFit],
        held_out: HeldOutLayer,
        cost: LayerCost,
        job: Job,
    ) -> list[LowRank]:
        """Return predictors of increasing rank, until a larger one no longer pays."""
        recipe = replace(self._options.recipe, seed=self._options.seed * 1009 + samples.layer)
        recipe = replace(recipe, steps=min(recipe.steps, max(1, EPOCHS * samples.n_train // recipe.batch)))
        ranks = ranks_for(len(held_out.x[0]))
        fitter = LowRankFitter(*samples.training(), self._device)
        config = self._parts.config
        read_share = config.n_experts_used / config.n_experts if config.n_experts else 1.0
        made: list[LowRank] = []
        least = float("inf")
        for number, rank in enumerate(ranks):

            def report(done: int, total: int, number: int = number) -> None:
                job.progress(number * total + done, len(ranks) * total)

            start = cuts.cut(rank, "q4_0")
            both = [
                replace(as_low_rank(one), read_share=read_share)
                for one in (start, fitter.fit(start, recipe, job.reporting(report)))
            ]
            made.append(min(both, key=lambda one: low_rank_candidate(one, held_out, (GROWING_LEVEL,)).points[0].active))
            with_it = [low_rank_candidate(made[-1], held_out, (GROWING_LEVEL,))]
            with_it += [
                copy_candidate(fit, held_out, cost, self._machine, made[-1], (GROWING_LEVEL,)) for fit in fits[:1]
            ]
            best = min(one.seconds(one.points[0], cost, self._machine) for one in with_it)
            if best >= least:
                break
            least = min(least, best)
        return made

    def choose(self, texts: Sequence[HeldOutText], job: Job) -> Predictor:
        """Return the kinds of all layers, and the common level of recall that meets the error budget."""
        model = self._model.opened
        passes, most = 0, 2 + 2 * len(LEVELS).bit_length()

        def of_pass(done: int, total: int) -> None:
            job.progress(passes * total + done, most * total)

        reference = measure_reference(self._parts, texts, job.reporting(of_pass))

        def build(level: float) -> Predictor:
            layers = tuple(self._layer(layer, level) for layer in range(model.config.n_layers))
            return Predictor(layers, model.fingerprint, model.config.activation_text)

        def measure(predictor: Predictor) -> tuple[MeasuredText, ...]:
            nonlocal passes
            passes = min(passes + 1, most - 1)
            return measure_masked(self._parts, texts, predictor, reference, job.reporting(of_pass))

        return hold_budget(build, measure, texts, self._options.goal)

    def _layer(self, layer: int, level: float) -> LayerPredictor:
        if not self._predicts(layer):
            return LayerPredictor()
        record = self._records[layer]
        chosen = choose_layer(record.candidates, level, record.cost, self._machine)
        if chosen is None and self._options.kind != "auto":
            chosen = min(record.candidates, key=lambda one: self._seconds(one, level, record))
        return LayerPredictor() if chosen is None else chosen.at(level)

    def _seconds(self, candidate: Candidate, level: float, record: LayerRecord) -> float:
        return candidate.seconds(candidate.point(level), record.cost, self._machine)


def as_low_rank(fitted: LowRankMap) -> LowRank:
    """Return the predictor without its threshold, which is set later."""
    a, b = fitted.packed()
    return LowRank(a, b, fitted.a_bias, fitted.b_bias)


def _texts(
    model: LoadedModel, text: str | None, options: TrainingOptions, job: Job
) -> tuple[TrainingTexts, list[HeldOutText], str]:
    """Return the training text, the held-out text, and a description of the source."""
    kinds: dict[str, list[list[int]]] = {}
    given = [] if text is None else text_sequences(model, text)
    n_given = sum(map(len, given))
    if text is not None:
        if n_given < LEAST_TOKENS // 2:
            raise InvalidRequestError(
                f"The text has {n_given} tokens; at least {LEAST_TOKENS // 2} are needed.",
                "Give a longer text, or none: the model then writes all of it.",
            )
        given = spread(given, options.tokens // 2)
        kinds["the text given"] = given
    n_own = options.tokens - sum(map(len, given))
    chats = model.tokenizer.chat_template is not None
    for number in range(-(-n_own // PORTION_TOKENS)):
        before = number * PORTION_TOKENS

        def report(done: int, total: int, before: int = before) -> None:
            job.progress(before + done, n_own)

        size = min(PORTION_TOKENS, n_own - before)
        portion = write_portion(model, number, options.seed, size, job=job.reporting(report))
        for kind, sequences in portion.items():
            name = "self-written chat" if chats and kind in _CHATS else "self-written prose"
            kinds.setdefault(name, []).extend(sequences)
    texts = split_texts(kinds)
    held_out = [
        HeldOutText(name, sequences, prose=name != "self-written chat") for name, sequences in texts.held_out.items()
    ]
    source = "written by the model itself" + ("" if text is None else ", and a text given")
    return texts, held_out, f"{sum(map(len, texts.train))} positions {source}"


def _saved_in(model: LoadedModel, texts: TrainingTexts, options: TrainingOptions, device: str) -> Path:
    """Return the folder of finished layers; its name contains everything that determines its contents."""
    import platformdirs

    made_of = "\n".join([model.opened.fingerprint, model.opened.config.activation_text, texts.fingerprint, options.kind,
                         repr(astuple(options.recipe)), str(options.seed), device, model.backend.name, model.kv_codec,
                         repr((COPY_BITS, LEVELS)), str(_VERSION)])  # fmt: skip
    key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
    return Path(platformdirs.user_cache_dir("Hearth", appauthor=False)) / "training" / key


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Limit torch to the engine's number of threads during training."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
