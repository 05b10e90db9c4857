"""How often each FFN neuron is active: NeuronStats and its file format. Counts nothing itself.

Paper: PowerInfer, section 6.1 (neuron impact).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, InvalidRequestError, ModelFormatError, ModelNotFoundError
from engine.formats.torch_pickle import read_torch
from engine.sparsity.artifact_files import Listing, load_artifact, save_artifact

Source = Literal["measured", "shipped"]

SCHEMA_VERSION = 1
ARTIFACT_NAME = "neuron_stats"
_MAX_COUNT = 1 << 40  # the sum over 4 million neurons fits in 64 bits
_MAX_LAYERS = 1024
_MAX_NEURONS = 1 << 20  # of a layer
_ACTIVATION_FILE = re.compile(r"activation_(0|[1-9]\d{0,5})\.pt")


class Coverage(NamedTuple):
    """The fewest neurons for a share of the activity."""

    per_layer: NDArray[np.int64]  # [L]: for that share of the layer's own activity
    whole_model: int  # over all layers, for that share of all activity


@dataclass(frozen=True, eq=False)
class NeuronStats:
    """Activity counts of a model.

    counts i64 [L, F]: how often each neuron was active. tokens: positions counted; None if the publisher did not state
    it. source: measured here, or shipped with the model. corpus: fingerprint of the text, or the publisher. text: its
    kind, "self-written" or "given"; "" if unknown. model: the model's fingerprint, "" if unknown. activation: as
    `ModelConfig.activation_text`; None if the publisher did not state it.
    """

    counts: NDArray[np.int64]
    tokens: int | None
    source: Source
    corpus: str
    model: str = ""
    activation: str | None = None
    text: str = ""

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.dtype != np.int64 or not self.counts.size:
            raise ModelFormatError(
                f"Neuron statistics are i64 [L, F]; these are {self.counts.dtype} {self.counts.shape}."
            )
        low, high = int(self.counts.min()), int(self.counts.max())
        if low < 0 or high > _MAX_COUNT:
            raise ModelFormatError(f"Neuron statistics count from {low} to {high}; possible is 0 to {_MAX_COUNT}.")
        if self.tokens is not None and (self.tokens < 1 or high > self.tokens):
            raise ModelFormatError(f"Neuron statistics over {self.tokens} tokens cannot count up to {high}.")

    @property
    def fired_share(self) -> NDArray[np.float64] | None:
        """[L]: share of neurons active for a token, mean over tokens; None without tokens."""
        return None if self.tokens is None else self.counts.mean(axis=1) / self.tokens

    def coverage(self, share: float) -> Coverage:
        """Return how few neurons make up `share` (0 to 1) of the activity, most active first."""
        if not 0 <= share <= 1:
            raise InvalidRequestError(f"The share {share} is outside 0 to 1.")
        per_layer = np.array([_fewest(layer, share) for layer in self.counts], np.int64)
        return Coverage(per_layer, _fewest(self.counts.reshape(-1), share))

    def check_against(self, n_layers: int, d_ff: int) -> None:
        """Raise ArtifactMismatchError unless they are of a model of that shape."""
        if self.counts.shape != (n_layers, d_ff):
            mine = "{} layers and {} neurons".format(*self.counts.shape)
            raise ArtifactMismatchError(
                f"The statistics are of {mine}; the model has {n_layers} layers and {d_ff} neurons."
            )

    def save(self, folder: Path, listing: Listing | None = None) -> Path:
        """Write neuron_stats.json and .safetensors; return the former's path. Otherwise as `save_artifact`."""
        n_layers, n_neurons = self.counts.shape
        values = {"tokens": self.tokens, "source": self.source, "corpus": self.corpus, "model": self.model,
                  "activation": self.activation, "text": self.text,
                  "layers": n_layers, "neurons": n_neurons}  # fmt: skip
        tensors = {"counts": self.counts}
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, tensors, listing=listing)

    @classmethod
    def load(cls, folder: Path, model: str | None = None, activation: str | None = None) -> NeuronStats:
        """Read what `save` wrote. model, activation: required origins, None for any.

        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, model, activation)
        info = source.tensors.get("counts")
        if info is None or info.codec != "i64" or list(info.shape) != [values.get("layers"), values.get("neurons")]:
            raise ArtifactMismatchError(f"The counts in {folder} are not those that {ARTIFACT_NAME}.json describes.")
        tokens, kind, corpus, made_from = (values.get(key) for key in ("tokens", "source", "corpus", "model"))
        texts = isinstance(corpus, str) and isinstance(made_from, str)
        if (tokens is not None and type(tokens) is not int) or kind not in ("measured", "shipped") or not texts:
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} lacks tokens, source, corpus or model.")
        text = values.get("text", "")  # missing in older files
        if not isinstance(text, str):
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} says a kind of text that is none.")
        counts = source.view("counts").view("<i8").reshape(info.shape).astype(np.int64)
        return cls(counts, tokens, kind, str(corpus), str(made_from), values.get("activation"), text)


def activation_files(folder: Path) -> dict[int, Path]:
    """Return layer -> activation_N.pt of a PowerInfer folder; empty for other folders."""
    return {int(match[1]): path for path in folder.glob("activation_*.pt")
            if (match := _ACTIVATION_FILE.fullmatch(path.name))}  # fmt: skip


def read_activation_folder(folder: Path, n_layers: int | None = None, d_ff: int | None = None) -> NeuronStats:
    """Read PowerInfer's statistics: a tensor of counts per layer, activation_0.pt, activation_1.pt, ...

    Layers are sorted as numbers (as text, 10 precedes 2). The number of tokens is unknown; published files seem to
    count a fixed number of neurons per token rather than all active ones. n_layers, d_ff: required shape, None for any,
    checked before memory is allocated.
    Raises: ModelNotFoundError if there are none or a layer is missing, ModelFormatError for damage,
    ArtifactMismatchError for another shape.
    """
    files = activation_files(folder)
    if not files:
        raise ModelNotFoundError(f"There is no activation_0.pt in {folder}.")
    if len(files) > _MAX_LAYERS:
        raise ModelFormatError(
            f"{folder} has the activations of {len(files)} layers; at most {_MAX_LAYERS} are accepted."
        )
    for layer in range(len(files)):
        if layer not in files:
            raise ModelNotFoundError(f"activation_{layer}.pt is missing in {folder}, which goes up to {max(files)}.",
                                     "Download the folder again.")  # fmt: skip
    if n_layers not in (None, len(files)):
        raise ArtifactMismatchError(f"The statistics are of {len(files)} layers; the model has {n_layers}.")
    layers: list[NDArray[np.int64]] = []
    for layer in range(len(files)):
        counts = _read_counts(files[layer])
        if layers and len(counts) != len(layers[0]):
            raise ModelFormatError(
                f"{files[layer].name} counts {len(counts)} neurons; {files[0].name} {len(layers[0])}."
            )
        if d_ff not in (None, len(counts)):
            raise ArtifactMismatchError(f"The statistics are of {len(counts)} neurons; the model has {d_ff}.")
        layers.append(counts)
    return NeuronStats(np.stack(layers), None, "shipped", "PowerInfer activation files")


def _read_counts(path: Path) -> NDArray[np.int64]:
    tensors = list(read_torch(path).values())
    if len(tensors) != 1 or tensors[0].ndim != 1 or not tensors[0].size:
        raise ModelFormatError(f"{path.name} is not one row of counts.")
    values = tensors[0]
    if len(values) > _MAX_NEURONS:
        raise ModelFormatError(f"{path.name} counts {len(values)} neurons; at most {_MAX_NEURONS} are accepted.")
    with np.errstate(invalid="ignore"):  # NaN differs from its cast
        counts: NDArray[np.int64] = values.astype(np.int64)
    if not np.array_equal(counts, values):
        raise ModelFormatError(f"{path.name} holds values that are not counts.")
    return counts


def _fewest(counts: NDArray[np.int64], share: float) -> int:
    """Return how many of the largest counts sum to at least that share."""
    running = np.cumsum(np.sort(counts)[::-1])
    # Rounding of share * total must not require more than all neurons.
    wanted = min(share * float(running[-1]), float(running[-1]))
    return 0 if wanted <= 0 else int(np.searchsorted(running, wanted)) + 1
