"""Recent activity of each FFN neuron, and the hot neurons that follow from it: NeuronActivity and its file format.

engine/executor/adaptation.py counts and exchanges neurons. Of a model with experts the file holds the heat of each
expert instead, which engine/executor/learned_hot.py keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.sparsity.artifact_files import load_artifact, save_artifact
from native_kernels.backend import F32, I32, I64

SCHEMA_VERSION = 1
ARTIFACT_NAME = "neuron_activity"
# Positions after which activity counts 1 / e: about ten answers. Values from 2,000 to 8,000 fitted the hot neurons
# equally well (starter model, prose, then code).
MEMORY_TOKENS = 4096


@dataclass(eq=False)
class NeuronActivity:
    """Exponential counts: a position n positions back has the weight e^(-n / MEMORY_TOKENS).

    counts f32 [L, F]: weighted activity of each neuron. positions: sum of the weights. placement: fingerprint of the
    placement that `hot` started from, "" if nothing was placed. hot: current hot neurons per layer, in slot order.
    model, activation: as in other artefacts.
    """

    counts: F32
    positions: float = 0.0
    placement: str = ""
    hot: tuple[I32, ...] = field(default=())
    model: str = ""
    activation: str = ""

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.dtype != np.float32 or not self.counts.size:
            raise ModelFormatError(f"Activity is f32 [L, F]; this is {self.counts.dtype} {self.counts.shape}.")
        # A neuron is active at most once per position; float32 sums may exceed that by rounding.
        if not 0 <= self.positions <= 2 * MEMORY_TOKENS or not self._within(1.001 * self.positions + 1e-3):
            raise ModelFormatError("The neurons' counts are not numbers from 0 to the number of positions.")
        if self.hot and len(self.hot) != len(self.counts):
            raise ModelFormatError("The activity lists hot neurons of another number of layers than it counts.")
        for ids in self.hot:
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.counts.shape[1]:
                raise ModelFormatError("The activity lists hot neurons that the model does not have.")
            if len(np.unique(ids)) != len(ids):
                raise ModelFormatError("The activity lists a hot neuron twice.")

    @classmethod
    def empty(cls, n_layers: int, n_neurons: int) -> NeuronActivity:
        return cls(np.zeros((n_layers, n_neurons), np.float32))

    def add(self, counts: I64, positions: int) -> None:
        """Add the activity [L, F] of the next positions, all with the same weight."""
        if positions:
            kept = math.exp(-positions / MEMORY_TOKENS)
            weight = MEMORY_TOKENS / positions * (1 - kept)  # mean of their weights
            self.counts *= np.float32(kept)
            self.counts += np.float32(weight) * counts
            self.positions = self.positions * kept + positions * weight

    def save(self, folder: Path) -> Path:
        """Write neuron_activity.json and .safetensors into the folder; return the former's path.

        Raises: as `save_artifact`.
        """
        n_layers, n_neurons = self.counts.shape
        values = {"model": self.model, "activation": self.activation, "placement": self.placement,
                  "positions": self.positions, "layers": n_layers, "neurons": n_neurons,
                  "slots": [len(ids) for ids in self.hot]}  # fmt: skip
        tensors: dict[str, NDArray[Any]] = {"counts": self.counts}
        if any(len(ids) for ids in self.hot):
            tensors["hot"] = np.concatenate(self.hot).astype(np.int64)
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, tensors)

    @classmethod
    def load(cls, folder: Path, model: str | None = None, activation: str | None = None) -> NeuronActivity:
        """Read what `save` wrote. model, activation: required origins, None for any.

        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, model, activation)
        info, slots = source.tensors.get("counts"), values.get("slots")
        if info is None or info.codec != "f32" or list(info.shape) != [values.get("layers"), values.get("neurons")]:
            raise ArtifactMismatchError(f"The counts in {folder} are not those that {ARTIFACT_NAME}.json describes.")
        texts = [values.get(name) for name in ("placement", "model", "activation")]
        positions = values.get("positions")
        if not all(isinstance(text, str) for text in texts) or isinstance(positions, bool):
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} lacks placement, model or activation.")
        if not isinstance(positions, int | float) or not isinstance(slots, list):
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} lacks positions or slots.")
        if not all(type(n) is int and 0 <= n <= info.shape[1] for n in slots):
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} gives numbers of slots that are none.")
        hot = _split(source.tensors.get("hot"), source, slots, folder)
        counts = source.view("counts").view("<f4").reshape(info.shape).astype(np.float32)
        placement, made_from, made_under = (str(text) for text in texts)
        return cls(counts, float(positions), placement, hot, made_from, made_under)

    def _within(self, most: float) -> bool:
        """Return whether all counts are between 0 and `most`; NaN is not."""
        return bool(((self.counts >= 0) & (self.counts <= most)).all())


def _split(info: Any, source: Any, slots: Sequence[int], folder: Path) -> tuple[I32, ...]:
    """Split the hot neurons of all layers by layer."""
    total = sum(slots)
    if (info is None) != (total == 0) or (info is not None and (info.codec != "i64" or list(info.shape) != [total])):
        raise ArtifactMismatchError(f"The hot neurons in {folder} are not those that {ARTIFACT_NAME}.json describes.")
    ids = np.zeros(0, np.int64) if info is None else source.view("hot").view("<i8")
    if ids.size and not 0 <= ids.min() <= ids.max() < 1 << 31:
        raise ModelFormatError(f"The hot neurons in {folder} are not numbers of neurons.")
    return tuple(part.astype(np.int32) for part in np.split(ids, np.cumsum(slots)[:-1])) if slots else ()
