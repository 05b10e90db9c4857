"""The Placement type, which device holds which neurons and parts of a model, and its file format.

engine/placement/solver.py solves it. Paper: PowerInfer, section 6.3 (neuron placement).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.sparsity.artifact_files import Listing, load_artifact, save_artifact
from native_kernels.backend import I32, U8

Device = Literal["gpu", "cpu"]
StatisticsSource = Literal["none", "measured", "shipped"]

SCHEMA_VERSION = 1
ARTIFACT_NAME = "placement"
VRAM_PARTS = ("attention", "predictors", "kv_cache", "scratch", "context", "head", "hot")
RAM_PARTS = ("attention", "predictors", "kv_cache", "scratch", "embedding", "head", "cold")
_MAX_LAYERS = 1024
_MAX_NEURONS = 1 << 24  # of a layer, over all experts


@dataclass(frozen=True)
class Origins:
    """The inputs of a placement. If one changes, the placement is invalid.

    model, activation: as in other artefacts. statistics, predictors, hardware: fingerprints; "" if there are none.
    vram_budget_bytes: 0 without a GPU. ram_budget_bytes: None if more RAM would change nothing. solver: version of byte
    counts and solver. down: how the load copies a row-wise down; "": not.
    """

    model: str
    activation: str
    statistics: str
    predictors: str
    hardware: str
    vram_budget_bytes: int
    ram_budget_bytes: int | None
    context: int
    kv_codec: str
    mode: str
    solver: int
    down: str = ""

    def differences(self, other: Origins) -> tuple[str, ...]:
        """Return what differs, in words."""
        return tuple(_WORDS[one.name] for one in fields(self) if getattr(self, one.name) != getattr(other, one.name))


_WORDS = {
    "model": "the model",
    "activation": "the activation",
    "statistics": "the statistics",
    "predictors": "the predictors",
    "hardware": "the machine",
    "vram_budget_bytes": "the VRAM budget",
    "ram_budget_bytes": "the RAM budget",
    "context": "the context",
    "kv_codec": "the codec of the KV cache",
    "mode": "the mode",
    "solver": "this version of Hearth",
    "down": "whether down is copied by neuron",
}


@dataclass(frozen=True, eq=False)
class Placement:
    """The device of every part of a model.

    hot [L] of i32 [K]: each layer's neurons on the GPU, ascending; numbered through a layer's experts. zero_copy [L]:
    zero-copy neurons, which the GPU computes from RAM over the bus; empty: none.
    attention [L]: with the layer's norms and KV cache. predictor [L]. neurons: per layer.
    statistics: source of the ranking; "none": all neurons were equally likely. fired_share: share of active neurons
    assumed by the solver.
    vram_parts_bytes, ram_parts_bytes: keys as VRAM_PARTS and RAM_PARTS.
    objective: predicted seconds per token at `position`. gap: upper bound on the distance from the optimum, relative.
    gpu_neuron_load: share of a token's computed neurons that the GPU computes.
    disk_bytes: of experts that neither RAM nor GPU holds; the objective is without reading them. disk_read_bytes: of
    these, read for a token.
    notes: assumptions and reasons, one sentence each. mode: sparse, exact or dense, the mode of the prediction; if the
    origins say "auto", the faster one. kv_positions: positions, of all sequences together, that layers on the GPU have
    KV cache for; None: the origins' context.
    """

    hot: tuple[I32, ...]
    attention: tuple[Device, ...]
    predictor: tuple[Device, ...]
    embedding: Device
    head: Device
    neurons: int
    statistics: StatisticsSource
    fired_share: float
    vram_parts_bytes: dict[str, int]
    ram_parts_bytes: dict[str, int]
    position: int
    objective: float
    gap: float
    gpu_neuron_load: float
    origins: Origins
    notes: tuple[str, ...] = ()
    mode: str = "exact"
    zero_copy: tuple[I32, ...] = ()
    disk_bytes: int = 0
    disk_read_bytes: int = 0
    kv_positions: int | None = None

    def __post_init__(self) -> None:
        layers = len(self.hot)
        if not 1 <= layers <= _MAX_LAYERS or not 1 <= self.neurons <= _MAX_NEURONS:
            raise ModelFormatError(f"A placement of {layers} layers with {self.neurons} neurons is none.")
        if not layers == len(self.attention) == len(self.predictor):
            raise ModelFormatError("A placement gives devices for another number of layers than it has.")
        if {*self.attention, *self.predictor, self.embedding, self.head} - set(get_args(Device)):
            raise ModelFormatError("A placement names a device that is neither gpu nor cpu.")
        if self.zero_copy and len(self.zero_copy) != layers:
            raise ModelFormatError("A placement has zero-copy neurons for another number of layers.")
        if any(len(np.intersect1d(one, other)) for one, other in zip(self.hot, self.zero_copy, strict=False)):
            raise ModelFormatError("A placement has zero-copy neurons that are on the GPU.")
        for layer, ids in enumerate((*self.hot, *self.zero_copy)):
            ascending = ids.ndim == 1 and ids.dtype == np.int32 and bool((np.diff(ids) > 0).all())
            if not ascending or (len(ids) and not 0 <= ids[0] <= ids[-1] < self.neurons):
                raise ModelFormatError(
                    f"The hot neurons of layer {layer % layers} are not ascending ids below {self.neurons}."
                )
        if set(self.vram_parts_bytes) != set(VRAM_PARTS) or set(self.ram_parts_bytes) != set(RAM_PARTS):
            raise ModelFormatError("A placement counts bytes of unknown parts.")

    @property
    def n_layers(self) -> int:
        return len(self.hot)

    @property
    def hot_counts(self) -> tuple[int, ...]:
        """[L]: number of hot neurons per layer."""
        return tuple(len(ids) for ids in self.hot)

    @property
    def hot_neurons(self) -> int:
        return sum(self.hot_counts)

    def resident_experts(self, n_experts: int) -> tuple[int, ...]:
        """[L]: number of experts on the GPU, for a model with this many experts per layer."""
        return tuple(n * n_experts // self.neurons for n in self.hot_counts)

    @property
    def in_slots(self) -> tuple[I32, ...]:
        """[L]: neurons that the GPU computes, one per slot: hot ones, then zero-copy ones."""
        if not self.zero_copy:
            return self.hot
        return tuple(np.concatenate(both) for both in zip(self.hot, self.zero_copy, strict=True))

    @property
    def cached_positions(self) -> int:
        """kv_positions, or the context."""
        return self.origins.context if self.kv_positions is None else self.kv_positions

    @property
    def hot_bytes(self) -> int:
        return self.vram_parts_bytes["hot"]

    @property
    def vram_bytes(self) -> int:
        return sum(self.vram_parts_bytes.values())

    @property
    def ram_bytes(self) -> int:
        """Bytes in RAM, mapped files included."""
        return sum(self.ram_parts_bytes.values())

    @property
    def predicted_tok_s(self) -> float:
        """Tokens/s, without the time for reading experts from the disk."""
        return 1 / self.objective

    @property
    def uses_gpu(self) -> bool:
        return self.vram_bytes > 0

    def check_against(self, n_layers: int, neurons: int) -> None:
        """Raise ArtifactMismatchError unless it is for a model of that shape."""
        if (self.n_layers, self.neurons) != (n_layers, neurons):
            raise ArtifactMismatchError(
                f"The placement is for {self.n_layers} layers of {self.neurons} neurons; the model has {n_layers} of "
                f"{neurons}.",
                "Solve it again.",
            )

    def save(self, folder: Path, listing: Listing | None = None) -> Path:
        """Write placement.json and placement.safetensors into the folder; return the former's path.

        Hot neurons take one bit each: `hot` u8 [L, F / 8 rounded up], neuron 0 in the lowest bit; `reached` likewise,
        if any. listing and errors: as in `save_artifact`.
        """
        masks = {"hot": _masks(self.hot, self.neurons)}
        if self.zero_copy:
            masks["reached"] = _masks(self.zero_copy, self.neurons)
        origins = {one.name: getattr(self.origins, one.name) for one in fields(self.origins)}
        values = {
            "model": self.origins.model,
            "activation": self.origins.activation,
            "origins": origins,
            "neurons": self.neurons,
            "attention": list(self.attention),
            "predictor": list(self.predictor),
            "notes": list(self.notes),
            **{name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS, *_COUNTS, *_PARTS)},
        }
        if self.kv_positions is not None:
            values["kv_positions"] = self.kv_positions
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, masks, listing=listing)

    @classmethod
    def load(cls, folder: Path, model: str | None = None, activation: str | None = None) -> Placement:
        """Read what `save` wrote. model, activation: required origins, None for any.

        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, model, activation)
        head = f"{ARTIFACT_NAME}.json in {folder}"
        attention, predictor, notes = (
            _texts(values.get(key), key, head) for key in ("attention", "predictor", "notes")
        )
        neurons = _whole(values.get("neurons"), "neurons", head)
        found: dict[str, tuple[I32, ...]] = {}
        for name in ("hot", *(["reached"] if "reached" in source.tensors else [])):
            info = source.tensors.get(name)
            if info is None or info.codec != "u8" or list(info.shape) != [len(attention), -(-neurons // 8)]:
                raise ArtifactMismatchError(
                    f"The hot neurons in {folder} are not those that {ARTIFACT_NAME}.json describes."
                )
            bits = np.unpackbits(source.view(name).reshape(info.shape), axis=1, bitorder="little")
            found[name] = tuple(np.flatnonzero(row).astype(np.int32) for row in bits)
        read: dict[str, Any] = {name: _text(values.get(name), name, head) for name in _TEXTS}
        read |= {name: _number(values.get(name), name, head) for name in _NUMBERS}
        read |= {name: _whole(values.get(name), name, head) for name in _COUNTS}
        read |= {name: _parts(values.get(name), name, head) for name in _PARTS}
        if "kv_positions" in values:
            read["kv_positions"] = _whole(values["kv_positions"], "kv_positions", head)
        read |= {"attention": attention, "predictor": predictor, "neurons": neurons, "notes": notes}
        return cls(
            hot=found["hot"],
            zero_copy=found.get("reached", ()),
            origins=_origins(values, head),
            **read,
        )


def _masks(ids: tuple[I32, ...], neurons: int) -> U8:
    """Return one bit per neuron and layer, [L, F / 8 rounded up]."""
    masks = np.zeros((len(ids), neurons), np.bool_)
    for mask, some in zip(masks, ids, strict=True):
        mask[some] = True
    return np.packbits(masks, axis=1, bitorder="little")


# --- reading values

_TEXTS = ("embedding", "head", "statistics", "mode")
_NUMBERS = ("fired_share", "objective", "gap", "gpu_neuron_load")
_COUNTS = ("position", "disk_bytes", "disk_read_bytes")
_PARTS = ("vram_parts_bytes", "ram_parts_bytes")


def _origins(values: dict[str, Any], head: str) -> Origins:
    given = values.get("origins")
    names = {one.name for one in fields(Origins)}
    if not isinstance(given, dict) or set(given) | {"down"} != names:
        raise ModelFormatError(f"{head} does not say what it was solved from.")
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name == "ram_budget_bytes" and value is None:
            read[name] = None
        elif name in ("vram_budget_bytes", "ram_budget_bytes", "context", "solver"):
            read[name] = _whole(value, name, head)
        else:
            read[name] = _text(value, name, head)
    return Origins(**read)


def _text(value: Any, name: str, head: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, head, value)
    return value


def _texts(value: Any, name: str, head: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(name, head, value)
    return tuple(value)


def _whole(value: Any, name: str, head: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise _wrong(name, head, value)
    return value


def _number(value: Any, name: str, head: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _wrong(name, head, value)
    return float(value)


def _parts(value: Any, name: str, head: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise _wrong(name, head, value)
    return {str(part): _whole(n_bytes, f"{name}.{part}", head) for part, n_bytes in value.items()}


def _wrong(name: str, head: str, value: Any) -> ModelFormatError:
    return ModelFormatError(f"{head} gives {str(value)[:60]!r} as {name}.", "Solve the placement again.")
