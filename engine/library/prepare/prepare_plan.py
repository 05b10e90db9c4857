"""Plan the preparing of a model for this PC: its stages, reasons, duration and gain, before it starts.

prepare_gains.py computes the gain, preparing.py does the work. Writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from engine.bundle.bundle import open_bundle
from engine.config import Device, EngineConfig
from engine.errors import EngineError
from engine.library.prepare.prepare_gains import Gains, has_sign_predictors
from engine.library.prepare.prepare_state import Predictors, PrepareState, read_pace
from engine.library.records import InstalledModel, PreparePlan, PrepareStage, PrepareStep, Sparsity
from engine.machine.hardware import HardwareProfile, choose_gpu, default_threads, probe
from engine.model.model_files import OpenedModel, open_model
from engine.training import calibration, training
from engine.training.low_rank import Recipe

log = logging.getLogger(__name__)

STAGES: tuple[PrepareStage, ...] = ("convert", "profile", "train", "solve")
# Count over more positions only if it is quick: for the hottest neurons, 8,192 tell nearly as much as 32,768
# (docs/calibration.md).
LONGEST_PROFILE_S = 1200.0
SIGN_TOKENS = calibration.PORTION_TOKENS
# Paces until a stage has run on this machine: starter model, one core of an EPYC. Multiply-adds per second (counting
# 2.8e10, training 3.6e10), bytes per second.
USUAL_PRODUCTS_PER_S, USUAL_CONVERT_BYTES_PER_S, USUAL_SOLVE_S = 2.8e10, 1.5e8, 4.0
LEAST_FREE_VRAM_SHARE = 0.5
# Masked passes over held-out text, about 20 % of all, to find a level of recall.
_PASSES = 8 * 0.2


@dataclass(frozen=True)
class Amounts:
    """Positions of text. None: what this machine processes in reasonable time, or the usual amount for training."""

    profile_tokens: int | None = None
    train_tokens: int = training.DEFAULT_TOKENS
    sign_tokens: int = SIGN_TOKENS

    def of_training(self, predictors: Predictors) -> int:
        return self.train_tokens if predictors == "train" else self.sign_tokens


def openable(model: InstalledModel) -> tuple[Path, str | None]:
    """Return what to load of an installed model, and its activation, which a bundle states itself. A missing or damaged
    bundle gives way to the model's own files, from which it can be created again.
    """
    if model.prepared:
        try:
            return open_bundle(Path(model.prepared)).path, None
        except EngineError as error:
            log.info("The bundle of %s cannot be used: %s", model.id, error)
    return Path(model.path), model.activation or None


@dataclass(frozen=True, eq=False)
class Outlook:
    """A plan and its inputs. opened: the model as it is loaded now."""

    model: InstalledModel
    opened: OpenedModel
    gains: Gains
    predictors: Predictors
    amounts: Amounts
    state: PrepareState | None
    machine: str
    device: Device  # where neurons are counted and predictors trained; auto: on a GPU, where torch finds one

    def pace_name(self, stage: PrepareStage) -> str:
        """Return the key of a stored pace: it depends on the device and the kind of predictor."""
        name = "sign" if stage == "train" and self.predictors == "sign" else stage
        return name if stage in ("convert", "solve") else f"{name}.{self.device}"

    @cached_property
    def stages(self) -> tuple[PrepareStage, ...]:
        """Return the stages to run, in order."""
        state, ways = self.state, self.gains.worthwhile()
        if state is not None and state.interrupted:  # finish what was begun, whatever pays today
            begun = STAGES.index(state.stage) if state.stage else 0
            missing = self.gains.missing
            ways = replace(
                ways,
                convert=ways.convert or (begun == 0 and missing.convert),
                profile=ways.profile or (begun == 1 and missing.profile),
                train=ways.train or (begun == 2 and missing.train),
            )
        train = ways.train and not (self.predictors == "sign" and not self._trains_signs)
        wanted = {"convert": ways.convert, "profile": ways.profile, "train": train}
        found = tuple(stage for stage in STAGES if wanted.get(stage))
        return (*found, "solve") if found or not self.opened.has_placement else ()

    @cached_property
    def profile_tokens(self) -> int:
        """Return the positions to count over."""
        if self.state is not None and self.state.profile_tokens:
            return self.state.profile_tokens
        if self.amounts.profile_tokens is not None:
            return self.amounts.profile_tokens
        affordable = LONGEST_PROFILE_S * self.pace("profile") / (2 * max(1, self.opened.parameters))
        portions = int(affordable // calibration.PORTION_TOKENS)
        most = calibration.DEFAULT_TOKENS // calibration.PORTION_TOKENS
        return calibration.PORTION_TOKENS * max(1, min(most, portions))

    def work(self, stage: PrepareStage) -> float:
        """Return the stage's amount of work: bytes to convert, multiply-adds to count and train, models to solve."""
        parameters, config = self.opened.parameters, self.opened.config
        match stage:
            case "convert":
                return float(sum(self.opened.codecs.values()))
            case "profile":
                return 2.0 * self.profile_tokens * parameters  # written, then counted
            case "solve":
                return 1.0
        tokens = self.amounts.of_training(self.predictors)
        written = self.profile_tokens if "profile" in self.stages else 0
        text = (max(0, tokens - written) + tokens * (1 + _PASSES)) * parameters
        if self.predictors == "sign":
            return text
        weights = float(config.n_layers * config.n_placed_neurons * config.d_model)
        copies = 0.0 if config.n_experts else (2 + 4 * 3) * len(training.COPY_BITS) * weights * config.d_model
        ranks = sum(training.ranks_for(config.d_model)) / config.d_model
        recipe = Recipe()
        steps = min(recipe.steps, training.EPOCHS * tokens // recipe.batch) * recipe.batch
        fitted = 3.0 * steps * ranks * (weights + config.n_layers * config.d_model**2)
        return text + copies + fitted

    def pace(self, stage: PrepareStage) -> float:
        """Return the work per second: the last one on this machine, or the usual one."""
        known = read_pace(self.machine, self.pace_name(stage))
        if known is not None:
            return known
        if stage == "convert":
            return USUAL_CONVERT_BYTES_PER_S
        return 1 / USUAL_SOLVE_S if stage == "solve" else USUAL_PRODUCTS_PER_S * default_threads(probe())

    def eta_s(self, stage: PrepareStage) -> float:
        """Return the expected seconds of the stage."""
        return self.work(stage) / self.pace(stage)

    @cached_property
    def plan(self) -> PreparePlan:
        stages = self.stages
        steps = tuple(PrepareStep(stage, self._why(stage), self.eta_s(stage)) for stage in stages)
        done = replace(self.gains.missing, **{stage: stage in stages for stage in STAGES if stage != "solve"})
        nothing = replace(done, convert=False, profile=False, train=False)
        etas = [step.eta_s or 0.0 for step in steps]
        return PreparePlan(
            model=self.model.id,
            steps=steps,
            now_tok_s=self.gains.tok_s(nothing),
            then_tok_s=self.gains.tok_s(done),
            eta_s=sum(etas) if steps else None,
            disk_bytes=self.disk_bytes if "convert" in stages else 0,
            can_use_sign="train" in stages and self.predictors == "train" and self._trains_signs,
            interrupted=self.state is not None and self.state.interrupted,
        )

    @property
    def _trains_signs(self) -> bool:
        """Whether sign predictors can be made and are not there yet: there are none for experts."""
        return not self.opened.config.n_experts and not has_sign_predictors(self.opened)

    @property
    def disk_bytes(self) -> int:
        return 0 if self.gains.layout is None else self.gains.layout.n_bytes

    def _why(self, stage: PrepareStage) -> str:
        if stage == "solve":
            return "Decides what is on the GPU." if self.gains.has_gpu else "Plans the memory it takes."
        gain = self.gains.gain(self.gains.worthwhile(), stage)
        faster = "" if gain is None or gain < 1.01 else f": about {gain:.1f} times as fast"
        match stage:
            case "convert":
                if self.gains.reads_all_of_down:
                    return f"The file does not keep a neuron's weights together, so that none can be skipped{faster}."
                return f"In this engine's layout, weights are read faster{faster}."
            case "profile":
                return f"Counts which neurons fire most; those go on the GPU{faster}."
        if has_sign_predictors(self.opened):
            return f"The instant predictor is in use; a trained one skips more{faster}."
        return f"Predictors estimate which neurons will fire; the others are not read{faster}."


def outlook(
    model: InstalledModel,
    predictors: Predictors = "train",
    state: PrepareState | None = None,
    engine: EngineConfig | None = None,
    sparsity: Sparsity | None = None,
    amounts: Amounts | None = None,
) -> Outlook:
    """Plan the preparing of an installed model.

    state: of an interrupted run. engine: how the model will be run. sparsity: published statistics. Cost: reads headers
    and counts; the first time on a machine, some seconds to measure it. Raises: as opening the model and reading its
    statistics.
    """
    path, activation = openable(model)
    opened = open_model(path, activation)
    engine = replace(engine or EngineConfig(), activation=activation)
    gains = Gains(opened, engine, sparsity)
    profile = probe()
    device = offline_device(profile, engine)
    return Outlook(model, opened, gains, predictors, amounts or Amounts(), state, machine_name(profile), device)


def offline_device(profile: HardwareProfile, engine: EngineConfig) -> Device:
    """Return auto if a GPU has memory left besides its current programs; a chat's model on it has priority."""
    gpu, _ = choose_gpu(profile)
    if engine.device == "cpu" or gpu is None or not gpu.total_bytes:
        return "cpu"
    return "auto" if (gpu.free_bytes or 0) >= LEAST_FREE_VRAM_SHARE * gpu.total_bytes else "cpu"


def machine_name(profile: HardwareProfile) -> str:
    """Return the name under which paces of this machine are stored."""
    facts = (profile.cpu.name, profile.cpu.cores, profile.cpu.threads, [gpu.name for gpu in profile.gpus])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
