"""What determines an installed model's placement, as numbers. They are read once, and no file stays open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from engine.bundle import artefacts
from engine.config import Mode, ModelConfig
from engine.errors import EngineError
from engine.executor.adaptation import can_learn, learned_stats
from engine.executor.learned_hot import read_heat
from engine.library.estimate.coverage import stats_of, variants_of
from engine.library.estimate.shapes import shape_of
from engine.library.records import Sparsity
from engine.model.model_artefacts import predictor_sizes, read_predictor, read_stats
from engine.model.model_files import OpenedModel, open_model
from engine.placement.activity import F32, activity_of
from engine.placement.down_copy import fired_share
from engine.placement.model_bytes import ModelBytes, PredictorBytes
from engine.placement.placement_problem import Hottest
from engine.sparsity.stats import NeuronStats

# Predictors that would have to be copied to RAM for inspection: only their size is used.
_MOST_COPIED = 256 << 20


@dataclass(eq=False)
class KnownModel:
    """The numbers. stamp: of the model's files when they were read. fired_share: as a load takes it."""

    stamp: tuple[object, ...]
    config: ModelConfig
    sizes: ModelBytes
    stats: NeuronStats | None
    predictors: PredictorBytes | None
    notes: tuple[str, ...]
    heat: F32 | None
    fired_share: float = 1.0
    _hottest: dict[tuple[Mode, str], Hottest] = field(default_factory=dict)

    @property
    def modes(self) -> list[Mode]:
        """The modes that a load chooses from."""
        if not self.config.has_zeros:
            return ["dense"]
        return ["exact"] if self.predictors is None else ["exact", "sparse"]

    def hottest(self, mode: Mode, end: str) -> Hottest:
        """Return the hottest neurons. end: "taken" for counted or typical activity, else the "least" or the "most"."""
        if (mode, end) not in self._hottest:
            stats = self.stats
            if end != "taken":
                variants = variants_of(shape_of(self.config), Sparsity())
                stats = stats_of(self.config, variants[0 if end == "least" else 1])
            predictors = self.predictors if mode == "sparse" else None
            activity = activity_of(self.config, mode, stats, predictors, self.heat)
            self._hottest[mode, end] = Hottest.of(activity, self.sizes.unit)
        return self._hottest[mode, end]

    def is_of(self, path: Path) -> bool:
        """Return whether the model's files and artefacts are unchanged since they were read."""
        return _stamp(path, self.stamp[-1]) == self.stamp


def read_known_model(path: Path, activation: str) -> KnownModel:
    """Read a model's numbers. activation: as in EngineConfig; "": the model's own."""
    opened = open_model(path, activation or None)
    sizes, notes = ModelBytes.of(opened), []
    stats = read_stats(opened) if opened.config.has_zeros else None
    if can_learn(opened):
        stats = learned_stats(opened, stats)
    if stats is not None:  # its own memory: no file of the model stays open for it
        stats = replace(stats, counts=np.array(stats.counts))
    predictors = None
    if opened.has_predictors and opened.config.has_zeros:
        try:
            predictors = _predictor_bytes(opened, sizes)
        except EngineError as error:
            notes.append(f"The model's predictors cannot be used: {error.message}")
    places = (str(artefacts.artefact_folder(opened)), *_beside(path))
    return KnownModel(
        _stamp(path, places), opened.config, sizes, stats, predictors, tuple(notes), read_heat(opened),
        fired_share(opened, "auto"),
    )  # fmt: skip


def _predictor_bytes(opened: OpenedModel, sizes: ModelBytes) -> PredictorBytes | None:
    """Return None if they missed their error budget, so that a load does without them."""
    found = predictor_sizes(opened)
    if found.copied > _MOST_COPIED:
        of_layer = np.full(sizes.n_layers, found.held_bytes // sizes.n_layers, np.int64)
        unknown = (None,) * sizes.n_layers
        return PredictorBytes(of_layer, of_layer, sizes.first_codecs, unknown, np.zeros(sizes.n_layers, np.bool_))
    predictor = read_predictor(opened, as_stored=True)
    if predictor.budget is not None and not predictor.budget.held:
        return None
    return PredictorBytes.of(predictor, sizes)


def _beside(path: Path) -> tuple[str, ...]:
    """Return the folders in which artefacts of a model may appear."""
    folder = path if path.is_dir() else path.parent
    return tuple(str(folder / name) for name in ("artefacts", "activation"))


def _stamp(path: Path, places: object) -> tuple[object, ...]:
    """Return a value that changes with the model's files and artefacts."""
    assert isinstance(places, tuple)
    return (*(_times(Path(one)) for one in (path, *places)), places)


def _times(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
        inside = sorted((one.name, one.stat().st_mtime_ns) for one in path.iterdir()) if path.is_dir() else []
        return found.st_mtime_ns, found.st_size, tuple(inside)
    except OSError:
        return ()
