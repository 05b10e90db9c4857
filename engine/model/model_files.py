"""Find and open a model's files: configuration, tensor table, tokenizer paths. Loads no weights."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.bundle import artefacts
from engine.bundle.bundle import is_bundle, open_bundle
from engine.config import ModelConfig, SamplingConfig
from engine.errors import InvalidRequestError, ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.files import openable
from engine.formats import TensorSource, pickle_refused
from engine.formats.gguf import is_gpu_index, open_gguf
from engine.formats.gguf_header import HeaderTooLargeError
from engine.formats.json_text import read_object
from engine.formats.quant import CODECS
from engine.formats.safetensors import open_safetensors
from engine.formats.shard_index import INDEX_NAME, INDEX_NAMES, TORCH_INDEX_NAME, indexed_files, open_indexed
from engine.formats.shards import first_shards, shard_paths
from engine.formats.torch_pickle import open_torch
from engine.model.down_layout import fit_down
from engine.model.families import (
    ActivationOrigin,
    Kind,
    PlannedTensor,
    activation_origin,
    check_architecture,
    config_from_gguf,
    config_from_hf,
    is_of_tower,
    is_surplus,
    planned_tensors,
    sampling_from_gguf,
    sampling_from_hf,
)
from engine.model.model_names import model_name
from engine.sparsity.powerinfer_predictors import has_own_predictors, is_predictor_tensor, predictor_files
from engine.sparsity.stats import activation_files

log = logging.getLogger(__name__)

_MAX_JSON_BYTES = 4 << 20
# Models whose GGUF files other converters label as plain LLaMA, which is right except for the activation.
_NAMES_OF_RELU = re.compile("relu|prosparse|bamboo|turbosparse", re.IGNORECASE)
_TORCH_WEIGHTS = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")
_PICKLES = {".bin", ".ckpt", ".pt", ".pth", ".pkl", ".pickle"}


@dataclass(frozen=True)
class ModelFiles:
    """Paths of a model's parts. None for parts that a GGUF file contains, such as configuration and tokenizer."""

    path: Path  # the requested path
    kind: Kind
    weights: list[Path]
    config: Path | None = None
    generation_config: Path | None = None
    tokenizer: Path | None = None
    tokenizer_config: Path | None = None
    index: Path | None = None  # of sharded safetensors
    predictors: Path | None = None  # a folder of PowerInfer's model_N.pt; a PowerInfer GGUF carries its own
    stats: Path | None = None  # a folder of PowerInfer's activation_N.pt
    notes: tuple[str, ...] = ()  # files found and ignored, one sentence each


@dataclass(frozen=True)
class OpenedModel:
    """A model whose files are open and whose tensors match its configuration; no weights are read yet."""

    config: ModelConfig
    source: TensorSource
    format: str  # "safetensors", "pytorch", "gguf", "powerinfer-gguf" or "bundle"
    codecs: dict[str, int]  # codec -> bytes in the file
    parameters: int
    files: ModelFiles
    metadata: Mapping[str, Any]  # of the GGUF file or config.json; a bundle has its source's
    name: str
    description: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # the model's defaults, fields of SamplingConfig
    activation_origin: ActivationOrigin = "config"  # what determined the activation
    activation_warning: str = ""  # one sentence if an override will probably spoil the answers

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the model wherever it is stored: engine/bundle/artefacts.py."""
        return artefacts.fingerprint(self)

    @property
    def has_predictors(self) -> bool:
        """Whether predictors exist: made for this model, in the weights' file, or in a folder beside it.

        Those of other publishers do not cover the neurons of experts.
        """
        beside = self.files.predictors is not None or has_own_predictors(self.source)
        return (beside and not self.config.n_experts) or artefacts.find(self, "predictors") is not None

    @property
    def has_stats(self) -> bool:
        """Whether statistics exist: made for this model, or in a folder beside the weights."""
        return self.files.stats is not None or artefacts.find(self, "statistics") is not None

    @property
    def has_placement(self) -> bool:
        """Whether a placement exists for this model."""
        return artefacts.find(self, "placement") is not None

    @property
    def down_is_row_wise(self) -> bool:
        """Whether the files store down as usual, so that a neuron's weights in it are scattered."""
        return any(tensor.treatment == "transposed" for tensor in self.plan)

    @property
    def plan(self) -> list[PlannedTensor]:
        """All tensors that the configuration needs, as this model's files name and store them."""
        return plan_for(self.config, self.source, self.files.kind)


def find_model_files(path: Path) -> ModelFiles:
    """Return the files of the model at `path`.

    path: a bundle, a Hugging Face folder, a GGUF file or any shard of one, or a folder with one GGUF model.
    Raises: ModelNotFoundError for a missing or unreadable file, UnsupportedModelError for weights of another kind.
    """
    try:
        return _find(path)
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror or error}.") from error


def _find(path: Path) -> ModelFiles:
    if path.is_file():
        if path.suffix.lower() == ".safetensors":
            index = path.parent / INDEX_NAME
            return _hf_files(path.parent, path if path.name == "model.safetensors" or not index.is_file() else index)
        if _TORCH_WEIGHTS.fullmatch(path.name) and (path.parent / "config.json").is_file():
            index = path.parent / TORCH_INDEX_NAME
            return _hf_files(path.parent, index if "-of-" in path.name and index.is_file() else path)
        return _gguf_files(path, path)  # by content: the reader checks the magic number
    if not path.is_dir():
        raise ModelNotFoundError(f"There is no model at {path}.")
    for name in ("model.safetensors", INDEX_NAME):
        if (path / name).is_file():
            return _hf_files(path, path / name)
    inside = sorted(path.iterdir())
    ggufs = [file for file in inside if file.suffix.lower() == ".gguf" and file.is_file()]
    models = first_shards(ggufs) or ggufs[:1]  # later shards only: opening the first names what is missing
    if len(models) == 1:
        return _gguf_files(path, models[0])
    if models:
        names = ", ".join(file.name for file in models[:4])
        raise ModelNotFoundError(f"{path} holds {len(models)} GGUF models ({names}).", "Name the file that you want.")
    if is_bundle(path):  # last, because another program's folder may have a file of that name
        return ModelFiles(path, "bundle", sorted(path.glob("*.bin")))
    for name in ("pytorch_model.bin", TORCH_INDEX_NAME):
        if (path / name).is_file():
            return _hf_files(path, path / name)
    if pickles := [file.name for file in inside if file.suffix.lower() in _PICKLES]:
        raise pickle_refused(pickles[0])
    if (path / "config.json").is_file():
        raise ModelNotFoundError(
            f"The weights are missing: {path} has a config.json and no model.safetensors.",
            "Download the model again, or choose another.",
        )
    raise ModelNotFoundError(f"There is no model in {path}: neither model.safetensors nor a GGUF file.")


def open_model(path: Path, activation: str | None = None) -> OpenedModel:
    """Open the model and check its tensor table against its configuration.

    activation: NAME or NAME:threshold, overrides the files, some of which cannot state it.
    Raises: ModelNotFoundError, ModelFormatError for damaged or inconsistent files, UnsupportedModelError for features
    that are not implemented, InvalidRequestError for an activation that this model cannot have.
    """
    files = find_model_files(openable(path))
    match files.kind:
        case "bundle":
            opened = _open_bundle(files)
        case "safetensors":
            opened = _open_hf(files)
        case _:
            opened = _open_gguf(files)
    if activation is not None:
        config = opened.config.with_activation(activation)
        warning = "" if _NAMES_OF_RELU.search(opened.name) else _activation_warning(opened, config)
        return replace(opened, config=config, activation_origin="override", activation_warning=warning)
    opened = replace(opened, activation_origin=activation_origin(opened.config, files.kind, opened.metadata))
    guessed = opened.activation_origin == "family" and opened.config.activation == "silu-glu"
    if guessed and _NAMES_OF_RELU.search(opened.name):
        log.warning(
            "%s is run with SiLU: its name speaks of ReLU, but its metadata does not (--activation says another)",
            opened.name[:100],
        )
    return opened


def _activation_warning(opened: OpenedModel, config: ModelConfig) -> str:
    """Return a warning if the override changes whether the activation makes zeros.

    Weights are trained for one activation; a threshold alone changes little.
    """
    if config.has_zeros == opened.config.has_zeros:
        return ""
    return (
        f"Without --activation, {opened.name} runs with {opened.config.activation}; now it runs with "
        f"{config.activation}. A model that was not trained with it answers nonsense."
    )


def plan_for(config: ModelConfig, source: TensorSource, kind: Kind) -> list[PlannedTensor]:
    """Return all tensors that the configuration needs, as this source names and stores them."""
    return fit_down(planned_tensors(config, kind, source.tensors), source.tensors)


def check_tensors(config: ModelConfig, source: TensorSource, kind: Kind) -> None:
    """Raise unless the source has exactly the tensors that the configuration needs, in their shapes."""
    plan = plan_for(config, source, kind)
    check_plan(plan, source, kind)
    if pictures := sum(is_of_tower(config, name) for name in source.tensors):
        log.info("The %d tensors of the model's towers for pictures and sound are left out.", pictures)
    planned = {tensor.foreign_name for tensor in plan}
    for name in source.tensors:
        if name not in planned and not is_surplus(config, name) and not is_predictor_tensor(name):
            raise UnsupportedModelError(f"The model has a tensor that Hearth would have to ignore: {name[:100]}.")


def check_plan(plan: list[PlannedTensor], source: TensorSource, kind: Kind) -> None:
    """Raise unless the source has these tensors, in their shapes and in codecs that Hearth reads."""
    missing = [tensor.foreign_name for tensor in plan if tensor.foreign_name not in source.tensors]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelFormatError(f"The weights lack {', '.join(missing[:3])}{more}.")
    for tensor in plan:
        found = source.tensors[tensor.foreign_name]
        if found.shape != tensor.shape and not (tensor.is_vector and _as_gguf(found.shape) == _as_gguf(tensor.shape)):
            raise ModelFormatError(
                f"Tensor {found.name} has the shape {_shape(found.shape)}; "
                f"the model's configuration calls for {_shape(tensor.shape)}."
            )
        if kind != "bundle" and found.codec not in CODECS:
            raise UnsupportedModelError(
                f"Tensor {found.name} is stored as {found.codec.upper()}; Hearth reads {', '.join(CODECS).upper()}.",
                "Choose a Q8_0 or F16 file of the same model.",
            )


def _gguf_files(path: Path, first: Path) -> ModelFiles:
    folder = first.parent
    lists = [file for file in sorted(folder.glob("*.gpuidx")) if is_gpu_index(file)]
    return ModelFiles(
        path=path,
        kind="gguf",
        weights=shard_paths(first),
        predictors=_predictor_folder(folder),
        stats=_stats_folder(folder),
        notes=tuple(f"{file.name} is PowerInfer's list of neurons for a GPU; Hearth makes its own." for file in lists),
    )


def _hf_files(folder: Path, weights: Path) -> ModelFiles:
    """Return the files. weights: the only file, or the index of several."""

    def present(name: str) -> Path | None:
        return folder / name if (folder / name).is_file() else None

    config = present("config.json")
    if config is None:
        raise ModelFormatError(f"{folder} has weights but no config.json, so their meaning is unknown.")
    is_index = weights.name in INDEX_NAMES
    return ModelFiles(
        path=folder,
        kind="safetensors",
        weights=indexed_files(weights) if is_index else [weights],
        config=config,
        generation_config=present("generation_config.json"),
        tokenizer=present("tokenizer.json"),
        tokenizer_config=present("tokenizer_config.json"),
        index=weights if is_index else None,
        predictors=_predictor_folder(folder),
        stats=_stats_folder(folder),
    )


def _open_bundle(files: ModelFiles) -> OpenedModel:
    bundle = open_bundle(files.path)
    manifest = bundle.manifest
    check_tensors(manifest.config, bundle.source, "bundle")

    def listed(name: str) -> Path | None:
        return bundle.path / name if name in manifest.files else None

    files = replace(files, tokenizer=listed("tokenizer.json"), tokenizer_config=listed("tokenizer_config.json"))
    sizes: dict[str, int] = {}
    for entry in manifest.tensors.values():
        sizes[entry.codec] = sizes.get(entry.codec, 0) + entry.n_rows * entry.row_bytes
    try:
        SamplingConfig().changed(dict(manifest.sampling))
    except (InvalidRequestError, TypeError) as error:
        raise ModelFormatError(f"The bundle's sampling defaults are wrong: {str(error)[:200]}") from error
    return OpenedModel(
        config=manifest.config,
        source=bundle.source,
        format="bundle",
        codecs=sizes,
        parameters=_parameters(manifest.config, "bundle", bundle.source),
        files=files,
        metadata=bundle.source.metadata,
        name=_as_line(manifest.name),
        description=_as_line(manifest.description),
        sampling=dict(manifest.sampling),
    )


def _predictor_folder(folder: Path) -> Path | None:
    """Return the folder with predictors: the weights' own, or `predictor` or `predictors` in it."""
    places = (folder, folder / "predictor", folder / "predictors")
    return next((place for place in places if predictor_files(place)), None)


def _stats_folder(folder: Path) -> Path | None:
    return folder / "activation" if activation_files(folder / "activation") else None


def _open_hf(files: ModelFiles) -> OpenedModel:
    raw = _read_json(files.config)
    generation = _read_json(files.generation_config)
    config = config_from_hf(raw, generation)
    is_torch = files.weights[0].suffix == ".bin"
    open_file = open_torch if is_torch else open_safetensors
    source: TensorSource = open_indexed(files.index, open_file) if files.index else open_file(files.weights[0])
    check_tensors(config, source, "safetensors")
    return OpenedModel(
        config=config,
        source=source,
        format="pytorch" if is_torch else "safetensors",
        codecs=_codecs(source),
        parameters=_parameters(config, "safetensors", source),
        files=files,
        metadata=raw,
        name=files.path.resolve().name,
        sampling=sampling_from_hf(generation),
    )


def _open_gguf(files: ModelFiles) -> OpenedModel:
    try:
        source = open_gguf(files.weights[0])
    except HeaderTooLargeError as error:
        check_architecture(error.metadata)  # an unsupported architecture is the better error
        raise
    config = config_from_gguf(source.metadata, set(source.tensors))
    check_tensors(config, source, "gguf")
    description = source.metadata.get("general.description")
    return OpenedModel(
        config=config,
        source=source,
        format="powerinfer-gguf" if source.dialect == "powerinfer" else "gguf",
        codecs=_codecs(source),
        parameters=_parameters(config, "gguf", source),
        files=files,
        metadata=source.metadata,
        name=_as_line(model_name(source.metadata, files.weights[0].stem)) or files.weights[0].stem,
        description=_as_line(description) if isinstance(description, str) else "",
        sampling=sampling_from_gguf(source.metadata),
    )


def _as_line(text: str) -> str:
    """Return a file's description as one printable line: control characters could steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[:4096]).split())[:500]


def _read_json(path: Path | None) -> dict[str, Any]:
    """Return the object in a JSON file; {} without a file."""
    return {} if path is None else read_object(path, max_bytes=_MAX_JSON_BYTES, max_values=1 << 18)


def _codecs(source: TensorSource) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for info in source.tensors.values():
        sizes[info.codec] = sizes.get(info.codec, 0) + info.n_bytes
    return sizes


def _parameters(config: ModelConfig, kind: Kind, source: TensorSource) -> int:
    return sum(tensor.n_elements for tensor in planned_tensors(config, kind, source.tensors))


def _as_gguf(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape without leading ones, which GGUF does not tell from none: converters write either."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
