"""How often each FFN neuron fired: NeuronStats, their reading and writing. It counts nothing itself.

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
_MAX_COUNT = 1 << 40  # so that the sum over 4 million neurons still fits into 64 bits
_MAX_LAYERS = 1024
_MAX_NEURONS = 1 << 20  # of a layer
_ACTIVATION_FILE = re.compile(r"activation_(0|[1-9]\d{0,5})\.pt")


class Coverage(NamedTuple):
    """Neurons that suffice for a share of the activations."""

    per_layer: NDArray[np.int64]  # [L]: the fewest of each layer for that share of the layer's own activations
    whole_model: int  # the fewest of all layers together for that share of all activations


@dataclass(frozen=True, eq=False)
class NeuronStats:
    """Activation counts of a model.

    counts: i64 [L, F], how often each neuron fired. tokens: positions they were counted over; None where the publisher
    did not say. source: measured here, or shipped beside the model. corpus: fingerprint of the text, or who published
    them. text: its kind, "self-written" or "given"; "" where unknown. model: fingerprint of the model, "" where
    unknown. activation: what decided whether a neuron fired, as `ModelConfig.activation_text`; None where the publisher
    did not say.
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
        """[L]: the share of the neurons that fired for a token, mean over tokens; None where tokens is unknown."""
        return None if self.tokens is None else self.counts.mean(axis=1) / self.tokens

    def coverage(self, share: float) -> Coverage:
        """How few neurons make up `share` (0 to 1) of the activations, the busiest taken first."""
        if not 0 <= share <= 1:
            raise InvalidRequestError(f"The share {share} lies outside 0 to 1.")
        per_layer = np.array([_fewest(layer, share) for layer in self.counts], np.int64)
        return Coverage(per_layer, _fewest(self.counts.reshape(-1), share))

    def check_against(self, n_layers: int, d_ff: int) -> None:
        """Raises ArtifactMismatchError unless they are of a model of that shape."""
        if self.counts.shape != (n_layers, d_ff):
            mine = "{} layers and {} neurons".format(*self.counts.shape)
            raise ArtifactMismatchError(
                f"The statistics are of {mine}; the model has {n_layers} layers and {d_ff} neurons."
            )

    def save(self, folder: Path, listing: Listing | None = None) -> Path:
        """Writes neuron_stats.json and .safetensors into the folder; the former's path back. As `save_artifact`."""
        n_layers, n_neurons = self.counts.shape
        values = {"tokens": self.tokens, "source": self.source, "corpus": self.corpus, "model": self.model,
                  "activation": self.activation, "text": self.text,
                  "layers": n_layers, "neurons": n_neurons}  # fmt: skip
        tensors = {"counts": self.counts}
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, tensors, listing=listing)

    @classmethod
    def load(cls, folder: Path, model: str | None = None, activation: str | None = None) -> NeuronStats:
        """What `save` wrote. model, activation: what they must have been made from, None for any.

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
        text = values.get("text", "")  # older ones do not say it
        if not isinstance(text, str):
            raise ModelFormatError(f"{ARTIFACT_NAME}.json in {folder} says a kind of text that is none.")
        counts = source.view("counts").view("<i8").reshape(info.shape).astype(np.int64)
        return cls(counts, tokens, kind, str(corpus), str(made_from), values.get("activation"), text)


def activation_files(folder: Path) -> dict[int, Path]:
    """Layer -> activation_N.pt of a folder of PowerInfer's; empty where the folder is none."""
    return {int(match[1]): path for path in folder.glob("activation_*.pt")
            if (match := _ACTIVATION_FILE.fullmatch(path.name))}  # fmt: skip


def read_activation_folder(folder: Path, n_layers: int | None = None, d_ff: int | None = None) -> NeuronStats:
    """The statistics that PowerInfer ships: one tensor of counts a layer, activation_0.pt, activation_1.pt ...

    The layers are put in the order of the numbers: as texts, 10 would come before 2. How many tokens were counted is
    not known; published files seem to count a fixed number of neurons a token, not all that fired.
    n_layers, d_ff: the shape that they must have, None for any; another one is refused before room is made for it.
    Raises: ModelNotFoundError where there are none or a layer is missing, ModelFormatError for damage,
    ArtifactMismatchError for those of another shape.
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
    with np.errstate(invalid="ignore"):  # what is no number differs from whatever it is cast to
        counts: NDArray[np.int64] = values.astype(np.int64)
    if not np.array_equal(counts, values):
        raise ModelFormatError(f"{path.name} holds values that are no counts.")
    return counts


def _fewest(counts: NDArray[np.int64], share: float) -> int:
    """How many of the largest counts sum up to at least that share of all."""
    running = np.cumsum(np.sort(counts)[::-1])
    # Rounding of share * total must not ask for one neuron more than all of them.
    wanted = min(share * float(running[-1]), float(running[-1]))
    return 0 if wanted <= 0 else int(np.searchsorted(running, wanted)) + 1
