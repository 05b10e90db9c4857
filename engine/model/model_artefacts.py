"""Find a model's predictors and statistics: its own artefacts, or other forms that came with the weights.

docs/bundle.md, section 6, defines the precedence. This module loads and checks them; engine/loading/modes.py uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.bundle import artefacts
from engine.errors import UnsupportedModelError
from engine.model.model_files import OpenedModel
from engine.sparsity.powerinfer_predictors import (
    folder_sizes,
    gguf_sizes,
    has_own_predictors,
    predictor_from_gguf,
    read_predictor_folder,
)
from engine.sparsity.predictor import Predictor, stored_kinds, stored_sizes
from engine.sparsity.stats import NeuronStats, read_activation_folder

# "artefact": made for this model by Hearth; "file": in the weights' file; "folder": beside it.
Place = Literal["artefact", "file", "folder"]


@dataclass(frozen=True)
class PredictorSizes:
    """Bytes of a model's predictors.

    stored: in their files. unpacked: RAM of packed predictors once unpacked. copied: RAM of those that cannot stay
    mapped.
    """

    stored: int
    unpacked: int = 0
    copied: int = 0

    @property
    def held_bytes(self) -> int:
        """Bytes read per token if everything fits in memory."""
        return self.stored + self.unpacked + self.copied


def predictor_place(opened: OpenedModel) -> Place | None:
    """Return where the model's predictors are; None without predictors."""
    if artefacts.find(opened, "predictors") is not None:
        return "artefact"
    if has_own_predictors(opened.source):
        return "file"
    return None if opened.files.predictors is None else "folder"


def predictor_sizes(opened: OpenedModel) -> PredictorSizes:
    """Return the predictors' sizes, 0 without predictors. Reads headers only. Raises as `read_predictor`."""
    match predictor_place(opened):
        case "artefact":
            return PredictorSizes(*stored_sizes(*artefacts.check(opened, "predictors")))
        case "file":
            return PredictorSizes(*gguf_sizes(opened.source))
        case "folder" if opened.files.predictors is not None:
            return PredictorSizes(*folder_sizes(opened.files.predictors))
    return PredictorSizes(0)


def predictor_kinds(opened: OpenedModel) -> dict[str, int]:
    """Return kind -> number of layers; empty without predictors. Cost and errors: as `predictor_sizes`."""
    match predictor_place(opened):
        case "artefact":
            return stored_kinds(*artefacts.check(opened, "predictors"))
        case None:
            return {}
    return {"low_rank": opened.config.n_layers}  # PowerInfer's are of this kind


def read_predictor(opened: OpenedModel, as_stored: bool) -> Predictor:
    """Load the predictors and check them against the model's configuration.

    as_stored: packed ones stay mapped and are unpacked on use.
    Raises: UnsupportedModelError without predictors, ModelFormatError for damage, ArtifactMismatchError for predictors
    of another model.
    """
    match predictor_place(opened):
        case "artefact":
            predictor = artefacts.load_predictor(opened, as_stored)
        case "file":
            predictor = predictor_from_gguf(opened.source, as_stored)
        case "folder" if opened.files.predictors is not None:
            predictor = read_predictor_folder(opened.files.predictors, as_stored)
        case _:
            raise no_predictors(opened)
    predictor.check_against(opened.config.n_layers, opened.config.d_model, opened.config.n_placed_neurons)
    return predictor


def no_predictors(opened: OpenedModel) -> UnsupportedModelError:
    """Return the error for sparse mode with a model that has no predictors."""
    return UnsupportedModelError(
        f"{opened.name} has no predictors, and sparse mode computes only what they expect.",
        "Use --mode exact: it computes every neuron that fires, without prediction."
        if opened.config.has_zeros
        else f"Leave --mode out: every neuron of this model is active ({opened.config.activation} makes no zeros), so "
        "none can be skipped in any mode.",
    )


def read_stats(opened: OpenedModel) -> NeuronStats | None:
    """Load the statistics and check them against the model's configuration; None without statistics.

    Raises: ModelFormatError for damage, ArtifactMismatchError for statistics of another model.
    """
    if artefacts.find(opened, "statistics") is not None:
        stats = artefacts.load_stats(opened)
    elif opened.files.stats is not None:
        stats = read_activation_folder(opened.files.stats, opened.config.n_layers, opened.config.d_ff)
    else:
        return None
    stats.check_against(opened.config.n_layers, opened.config.n_neurons)
    return stats
