"""Which predictors and statistics a model has: an artefact of its own, or what came with the weights in other forms.

Precedence is docs/bundle.md's, section 6. It loads and checks; engine/modes.py decides what becomes of them.
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

# "artefact": made for this model, in Hearth's own form; "file": in the weights' file; "folder": beside it.
Place = Literal["artefact", "file", "folder"]


@dataclass(frozen=True)
class PredictorSizes:
    """Bytes of a model's predictors.

    stored: in their files. unpacked: RAM of the packed ones among them, once unpacked. copied: RAM of those that cannot
    stay in the file.
    """

    stored: int
    unpacked: int = 0
    copied: int = 0

    @property
    def held_bytes(self) -> int:
        """What is read for a token where there is room for everything: what stays in the file, and what is unpacked."""
        return self.stored + self.unpacked + self.copied


def predictor_place(opened: OpenedModel) -> Place | None:
    """Where the predictors lie that count; None where there are none."""
    if artefacts.find(opened, "predictors") is not None:
        return "artefact"
    if has_own_predictors(opened.source):
        return "file"
    return None if opened.files.predictors is None else "folder"


def predictor_sizes(opened: OpenedModel) -> PredictorSizes:
    """What the predictors take; nothing where there are none. Cost: reads heads. Raises as `read_predictor` does."""
    match predictor_place(opened):
        case "artefact":
            return PredictorSizes(*stored_sizes(*artefacts.check(opened, "predictors")))
        case "file":
            return PredictorSizes(*gguf_sizes(opened.source))
        case "folder" if opened.files.predictors is not None:
            return PredictorSizes(*folder_sizes(opened.files.predictors))
    return PredictorSizes(0)


def predictor_kinds(opened: OpenedModel) -> dict[str, int]:
    """Kind -> number of layers predicted so; empty where there are none. Cost and errors: as `predictor_sizes`."""
    match predictor_place(opened):
        case "artefact":
            return stored_kinds(*artefacts.check(opened, "predictors"))
        case None:
            return {}
    return {"low_rank": opened.config.n_layers}  # PowerInfer's own are of this kind


def read_predictor(opened: OpenedModel, as_stored: bool) -> Predictor:
    """The predictors that count, checked against the model's configuration.

    as_stored: packed ones stay mapped, to be unpacked on use.
    Raises: UnsupportedModelError where there are none, ModelFormatError for damage, ArtifactMismatchError for those of
    another model.
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
    predictor.check_against(opened.config.n_layers, opened.config.d_model, opened.config.d_ff)
    return predictor


def no_predictors(opened: OpenedModel) -> UnsupportedModelError:
    """What asking for sparse mode of such a model is answered with."""
    return UnsupportedModelError(
        f"{opened.name} has no predictors, and sparse mode computes only what they expect.",
        "Use --mode exact: it computes every neuron that fires, without prediction."
        if opened.config.has_zeros
        else f"Leave --mode out: every neuron of this model is active ({opened.config.activation} makes no zeros), so "
        "none can be skipped in any mode.",
    )


def read_stats(opened: OpenedModel) -> NeuronStats | None:
    """The statistics that count, checked against the model's configuration; None where there are none.

    Raises: ModelFormatError for damage, ArtifactMismatchError for those of another model.
    """
    if artefacts.find(opened, "statistics") is not None:
        stats = artefacts.load_stats(opened)
    elif opened.files.stats is not None:
        stats = read_activation_folder(opened.files.stats, opened.config.n_layers, opened.config.d_ff)
    else:
        return None
    stats.check_against(opened.config.n_layers, opened.config.n_neurons)
    return stats
