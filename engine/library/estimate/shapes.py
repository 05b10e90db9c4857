"""The bytes of a model of a known shape before it is downloaded: per layer, per neuron, on a GPU.

The counterpart of `ModelBytes.of` and `GpuBytes.of`, which count from files. Reads nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, get_args

import numpy as np

from engine.config import Activation, ModelConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.library.estimate.mixtures import codecs_of, fitting, is_routed, main_codec
from engine.library.records import ModelFormat, ModelShape
from engine.model.families import FAMILIES, Kind, PlannedTensor, planned_tensors
from engine.model.kv_cache import stored_kv_bytes
from engine.placement.gpu_bytes import (
    ALIGNMENT,
    SLOT_BYTES,
    WIDTH_MULTIPLE,
    GpuBytes,
    aligned,
    matrix_bytes,
    why_not_on_gpu,
)
from engine.placement.model_bytes import I64, ModelBytes, largest_codecs, part_of
from native_kernels.codecs import CODECS
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.layouts import GPU_CODECS, n_gpu_bytes, plane_row_bytes

_OF_HEAD = ("head", "head_bias", "final_norm", "final_norm_bias", "project_out")
_OF_NEURONS = ("gate", "up", "down", "down_t", "gate_bias", "up_bias")
_LAYERS_OF_A_KIND = ("delta_layers", "ffn_only_layers", "mixer_only_layers")
# Fields that a shape and a configuration have in common.
_SAME = tuple(field.name for field in fields(ModelShape) if field.name != "activation")


@dataclass(frozen=True)
class ShapeBytes:
    """Bytes of a model, and which of its layers are alike.

    kinds: i64 [L], the number of each layer's kind; first: i64 [K], the first layer of each kind.
    """

    model: ModelBytes
    kinds: I64
    first: I64


def config_of(shape: ModelShape) -> ModelConfig:
    """Return a configuration with the family's usual biases, norms and positions: for counting, not for running.

    Raises: UnsupportedModelError for an unknown family or activation, ModelFormatError for impossible sizes.
    """
    family = next((one for one in FAMILIES if one.name == shape.family), None)
    if family is None:
        raise UnsupportedModelError(f"Hearth does not run models of the family {shape.family[:60]!r}.")
    name, _, threshold = shape.activation.partition(":")
    activation: Activation | None = next((one for one in get_args(Activation) if one == name), None)
    if activation is None or activation.endswith("-glu") != family.gated:
        raise UnsupportedModelError(f"{shape.family} models have no activation {shape.activation[:60]!r}.")
    own = dict(family.features)
    if shape.family == "falcon":  # of one key-value head: one norm for attention and FFN
        own["shared_norm"] = shape.n_kv_heads == 1
    try:
        fatrelu = float(threshold) if threshold else 0.0
    except ValueError as error:
        raise ModelFormatError(f"The activation {shape.activation[:60]!r} has no sensible threshold.") from error
    return ModelConfig(
        **({name: getattr(shape, name) for name in _SAME} | own), rope_theta=1e4, norm_eps=1e-5, activation=activation,
        activation_threshold=fatrelu, bos_token_id=None, eos_token_ids=(),
        rotary_dim=None if shape.latent is None else shape.head_dim - shape.latent.rank,
        rope_theta_local=1e4 if shape.local_head_dim else None, n_groups_used=shape.n_groups,
    )  # fmt: skip


def shape_of(config: ModelConfig) -> ModelShape:
    """Return the fields of a configuration that determine bytes and speed."""
    return ModelShape(activation=config.activation_text, **{name: getattr(config, name) for name in _SAME})


@lru_cache(maxsize=256)
def bytes_of(shape: ModelShape, codec: str, layout: ModelFormat, n_draft_layers: int = 0) -> ShapeBytes:
    """Return the bytes of a model of that shape with matrices in this codec. layout: safetensors and gguf store down by
    row, powerinfer-gguf and bundle by neuron. n_draft_layers: that draft tokens, of which the engine uses the first.

    Cost: some ms. Raises: as `config_of` and `main_codec`.
    """
    config = config_of(shape)
    main_codec(codec)
    plan = planned_tensors(config, _kind(config, layout), one_expert=True)
    row_wise = any(one.treatment == "transposed" for one in plan)
    n_layers = config.n_layers
    sums = {part: np.zeros(n_layers, np.int64) for part in ("attention", "first", "second", "down")}
    codecs: dict[str, list[dict[str, int]]] = {part: [{} for _ in range(n_layers)] for part in sums}
    ends = {"embedding": 0, "head": 0}
    on_gpu, neuron_on_gpu, of_experts = (np.zeros(n_layers, np.int64) for _ in range(3))
    possible = np.full(n_layers, why_not_on_gpu(config) == "", np.bool_)
    head_possible, head_on_gpu, inputs = bool(possible.all()), 0, 0
    embedding, head_codec = 0, "f32"
    for tensor, wanted in zip(plan, codecs_of(plan, codec, config, layout), strict=True):
        rows, cols = _stored(tensor)
        stored = fitting(wanted, cols)
        routed = is_routed(tensor, config)
        alike = config.n_experts if routed else 1
        n_bytes = alike * (4 * tensor.n_elements if tensor.is_vector else rows * CODECS[stored].n_bytes(cols))
        layer, dot, name = tensor.name.partition(".")
        if not dot:
            ends["head" if tensor.name in _OF_HEAD else "embedding"] += n_bytes
            if tensor.name == "embedding":
                embedding = n_bytes
            if tensor.name in ("head", "embedding"):
                head_codec = stored
            of_head = tensor.name in _OF_HEAD or tensor.name.startswith("stream_out_")
            if of_head or (tensor.name == "embedding" and config.tied_embeddings):
                head_possible &= stored in GPU_CODECS
                head_on_gpu += _gpu_bytes(stored, rows, cols)
            if tensor.name.startswith(("layer_projection", "stream_in_")):
                inputs += _gpu_bytes(stored, rows, cols)
            continue
        index = int(layer)
        part = part_of(name, tensor, config)
        sums[part][index] += n_bytes
        if not tensor.is_vector:
            found = codecs[part][index]
            found[stored] = found.get(stored, 0) + n_bytes
        possible[index] &= stored in GPU_CODECS
        if not possible[index]:
            continue
        if routed:
            of_experts[index] += alike * n_gpu_bytes(stored, rows, cols)
        elif name not in _OF_NEURONS:
            on_gpu[index] += _gpu_bytes(stored, rows, cols)
        elif tensor.is_vector:
            neuron_on_gpu[index] += 4
        elif name == "down_t" and row_wise:
            neuron_on_gpu[index] += -(-rows * sum(plane_row_bytes(stored, cols)) // config.d_ff)
        else:  # its row on the GPU has d_model columns in any layout
            row = sum(plane_row_bytes(stored, config.d_model))
            neuron_on_gpu[index] += -(-config.ffn_width(index) * row // config.d_ff)
    if config.tied_embeddings:
        ends["head"] += embedding
    neurons = config.n_placed_neurons
    if config.n_experts:
        neuron_on_gpu = -(-of_experts // neurons)
        dense = np.array([config.is_dense(layer) for layer in range(n_layers)])
        widths = np.where(dense, config.dense_d_ff, math.gcd(config.d_ff, config.shared_d_ff))
        possible &= widths % WIDTH_MULTIPLE == 0
    elif not row_wise:
        neuron_on_gpu += SLOT_BYTES
    on_gpu += -(-inputs // n_layers)
    if config.delta is not None:
        on_gpu[list(config.delta_layers)] += aligned(done_bytes(config.delta))
    block = np.full(n_layers, 16 * ALIGNMENT + aligned(-(-config.d_ff // 32) * 4), np.int64)
    for of_neurons in (neuron_on_gpu, block):
        of_neurons[list(config.mixer_only_layers)] = 0
    model = ModelBytes(
        config=config,
        attention=sums["attention"],
        first=-(-sums["first"] // neurons),
        second=-(-sums["second"] // neurons),
        down=-(-sums["down"] // neurons),
        embedding=ends["embedding"],
        head=ends["head"],
        attention_codecs=largest_codecs(codecs["attention"]),
        first_codecs=largest_codecs(codecs["first"]),
        down_codecs=largest_codecs(codecs["down"]),
        head_codec=head_codec,
        down_is_row_wise=row_wise,
        shared=embedding if config.tied_embeddings else 0,
        on_gpu=GpuBytes(on_gpu, neuron_on_gpu, block, head_on_gpu, possible, head_possible),
        experts_in_file=layout != "safetensors",  # some families' experts have to be copied from these
        drafts=_draft_bytes(shape, codec, layout) if n_draft_layers else 0,
    )
    return ShapeBytes(model, *_kinds_of(model))


def one_layer_of_each(sizes: ShapeBytes) -> ModelBytes:
    model, first = sizes.model, sizes.first
    config, gpu = model.config, model.gpu_bytes
    n_dense = sum(config.is_dense(layer) for layer in first.tolist())
    kinds: dict[str, Any] = {
        name: tuple(i for i, layer in enumerate(first.tolist()) if layer in getattr(config, name))
        for name in _LAYERS_OF_A_KIND
    }
    by_layer: dict[str, Any] = {
        name: tuple(getattr(config, name)[i] for i in first.tolist()) if getattr(config, name) else ()
        for name in ("windows", "d_ff_by_layer")
    }
    n_shared = int((first >= config.n_layers - config.n_shared_kv_layers).sum())
    few = GpuBytes(
        gpu.attention[first], gpu.neuron[first], gpu.block[first], gpu.head, gpu.possible[first],
        gpu.head_possible,
    )  # fmt: skip
    return replace(
        model,
        config=replace(config, n_layers=len(first), n_dense_layers=n_dense, experts_every=1,
                       n_shared_kv_layers=n_shared, **kinds, **by_layer),
        attention=model.attention[first], first=model.first[first], second=model.second[first],
        down=model.down[first],
        attention_codecs=tuple(model.attention_codecs[i] for i in first),
        first_codecs=tuple(model.first_codecs[i] for i in first),
        down_codecs=tuple(model.down_codecs[i] for i in first),
        on_gpu=few,
    )  # fmt: skip


def parameters_of(shape: ModelShape) -> int:
    """Return the number of weights."""
    config = config_of(shape)
    plan = planned_tensors(config, "bundle", one_expert=True)
    return sum(tensor.n_elements * (config.n_experts if is_routed(tensor, config) else 1) for tensor in plan)


def file_bytes(shape: ModelShape, codec: str, layout: ModelFormat, n_draft_layers: int = 0) -> int:
    """Return the bytes of the weights in their files, estimated if no size is published.

    n_draft_layers: layers behind the model's that draft tokens. Layers that read the keys and values of another have
    unused matrices for their own.
    """
    found = bytes_of(replace(shape, n_shared_kv_layers=0), codec, layout).model.total
    return found + (n_draft_layers * _draft_bytes(shape, codec, layout) if n_draft_layers else 0)


def _draft_bytes(shape: ModelShape, codec: str, layout: ModelFormat) -> int:
    """Return the bytes of a layer that drafts tokens: it has a matrix from two hidden states to one, and its own
    embedding and head.
    """
    one_more = replace(shape, n_layers=shape.n_layers + 1)
    layer = bytes_of(one_more, codec, layout).model.total - bytes_of(shape, codec, layout).model.total
    d, own = shape.d_model, fitting(main_codec(codec), shape.d_model)
    return layer + CODECS[own].n_bytes(2 * d * d + 2 * shape.vocab_size * d)


def scaled(sizes: ShapeBytes, n_bytes: int) -> ShapeBytes:
    """Return the same model scaled to the known size of its files.

    Only plausible sizes count: between half and twice the estimate.
    """
    factor = n_bytes / max(1, sizes.model.total + sizes.model.drafts)
    if not 0.5 < factor < 2 or math.isclose(factor, 1, rel_tol=0.03):
        return sizes
    model, gpu = sizes.model, sizes.model.gpu_bytes

    def times(values: I64) -> I64:
        return np.asarray(np.ceil(values * factor), np.int64)

    larger = replace(
        model, attention=times(model.attention), first=times(model.first), second=times(model.second),
        down=times(model.down), embedding=int(model.embedding * factor), head=int(model.head * factor),
        shared=int(model.shared * factor),
        on_gpu=replace(gpu, attention=times(gpu.attention), neuron=times(gpu.neuron),
                        head=int(gpu.head * factor)),
    )  # fmt: skip
    return replace(sizes, model=larger)


def _kind(config: ModelConfig, layout: ModelFormat) -> Kind:
    if layout in ("powerinfer-gguf", "bundle"):
        return "bundle"
    family = next(one for one in FAMILIES if one.name == config.family)
    return "safetensors" if layout == "safetensors" or family.gguf is None else "gguf"


def _stored(tensor: PlannedTensor) -> tuple[int, int]:
    """Return the rows and columns of a tensor in the file."""
    if tensor.is_vector:
        return 1, tensor.n_elements
    cols = tensor.matrix_shape[1]
    return tensor.n_elements // cols, cols


def _gpu_bytes(codec: str, n_rows: int, n_cols: int) -> int:
    return matrix_bytes(codec, n_rows, n_cols) if codec in GPU_CODECS else 0


def _kinds_of(model: ModelBytes) -> tuple[I64, I64]:
    """Return the number of each layer's kind [L] and the first layer of each kind [K]."""
    gpu = model.gpu_bytes
    found: dict[tuple[object, ...], int] = {}
    kinds = np.zeros(model.n_layers, np.int64)
    first: list[int] = []
    of_block, windows = np.array(stored_kv_bytes(model.config, 1, "f16"), np.int64), model.config.windows
    apart = [{*getattr(model.config, name)} for name in _LAYERS_OF_A_KIND]
    numbers = np.stack([model.attention, model.first, model.second, model.down, gpu.attention, gpu.neuron, of_block])
    for layer in range(model.n_layers):
        key = (*numbers[:, layer].tolist(), model.attention_codecs[layer], model.first_codecs[layer],
               model.down_codecs[layer], bool(gpu.possible[layer]), windows[layer] if windows else 0,
               *(layer in those for those in apart))  # fmt: skip
        if key not in found:
            found[key] = len(first)
            first.append(layer)
        kinds[layer] = found[key]
    return kinds, np.array(first, np.int64)
