"""Bytes of a model's parts for the solver: per layer, per neuron, per token of context.

Reads the tensor table, not the weights. engine/placement/solver.py decides the placement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, ModelConfig
from engine.errors import EngineError
from engine.model.draft_layer import open_drafts, trail_bytes
from engine.model.families import PlannedTensor, split_expert_name
from engine.model.kv_cache import read_cache_bytes, state_bytes, stored_kv_bytes, turn_bytes, within_bytes
from engine.model.mapped_weights import copied_bytes
from engine.model.model_files import OpenedModel
from engine.model.weights import Hold, ModelWeights
from engine.placement.gpu_bytes import SLOT_BYTES, GpuBytes, predictor_bytes
from engine.sparsity.predictor import Predictor
from native_kernels.codecs import ROW_CODECS, codec_by_columns
from native_kernels.cuda.layouts import gpu_codec, n_gpu_bytes

I64 = NDArray[np.int64]

# Share of the experts outside the GPU that must fit in RAM; the others may be read from the disk when they are chosen.
# The busiest tenth gets about half of the choices (activity.py).
LEAST_RESIDENT = 0.1

# Cascade: rows of the copy read per neuron that it selects in the end.
_COPIED_TO_ACTIVE = 2.0


@dataclass(frozen=True, eq=False)
class PredictorBytes:
    """Bytes and expected activity of a model's predictors.

    held, read: i64 [L], bytes stored and bytes read per token. on_gpu i64 [L]: bytes on a GPU, -1 without GPU kernels;
    None if not counted.
    active_share [L]: share of neurons selected; None if not measured. expected_to_fired: neurons selected per active
    neuron in decoded tokens, for layers without active_share; None if unknown.
    codecs [L]: codec of the largest matrix. is_true_gate bool [L]: the FFN's own first matrix decides, and no predictor
    is stored.
    """

    held: I64
    read: I64
    codecs: tuple[str, ...]
    active_share: tuple[float | None, ...]
    is_true_gate: NDArray[np.bool_]
    on_gpu: I64 | None = None
    expected_to_fired: float | None = None

    @cached_property
    def gpu_bytes(self) -> I64:
        """on_gpu, or the bytes in the files if not counted."""
        return self.held if self.on_gpu is None else self.on_gpu

    @classmethod
    def of(cls, predictor: Predictor, model: ModelBytes) -> PredictorBytes:
        """Count the bytes of a model's predictors in their stored codecs."""
        held, read, codecs, on_gpu = [], [], [], []
        for i, layer in enumerate(predictor.layers):
            copied = min(1.0, _COPIED_TO_ACTIVE * (layer.active_share or 1.0)) if layer.kind == "cascade" else 1.0
            held.append(layer.n_bytes)
            read.append(round(layer.bytes_read(copied)))
            shapes = [(matrix.codec, matrix.n_rows, matrix.n_cols) for matrix in layer.matrices]
            n_bytes = predictor_bytes(shapes, [len(bias) for bias in layer.biases])
            on_gpu.append(-1 if n_bytes is None else n_bytes)
            largest = max(layer.matrices, key=lambda matrix: matrix.n_bytes, default=None)
            codecs.append(model.first_codecs[i] if largest is None else largest.codec)
        return cls(
            held=np.array(held, np.int64),
            read=np.array(read, np.int64),
            codecs=tuple(codecs),
            active_share=tuple(layer.active_share for layer in predictor.layers),
            is_true_gate=np.array([layer.kind == "true_gate" for layer in predictor.layers]),
            on_gpu=np.array(on_gpu, np.int64),
        )


@dataclass(frozen=True, eq=False)
class ModelBytes:
    """Bytes of a model's parts.

    attention i64 [L]: a layer without its FFN matrices: projections, norms, biases, routers, shared experts.
    first, second, down i64 [L]: one neuron's row of the deciding matrix (gate, or up without a gate), of up beside a
    gate (else 0), and of down.
    embedding: with positions and related tensors. head: with the final norm. A tied head counts in both, and `shared`
    is its bytes.
    Codecs: of attention, the first matrix and down per layer [L], and of the head.
    down_is_row_wise: a token reads all of down, however few neurons are active. on_gpu: None if not counted.
    experts_in_file: whether the CPU multiplies experts in the mapped file, so that they may stay on the disk.
    drafts: of the layer that drafts tokens (MTP), without what it shares with the model; 0 without one. `total` is
    without it, because a load may leave it out.
    """

    config: ModelConfig
    attention: I64
    first: I64
    second: I64
    down: I64
    embedding: int
    head: int
    attention_codecs: tuple[str, ...]
    first_codecs: tuple[str, ...]
    down_codecs: tuple[str, ...]
    head_codec: str
    down_is_row_wise: bool = False
    shared: int = 0
    on_gpu: GpuBytes | None = None
    experts_in_file: bool = False
    drafts: int = 0

    @cached_property
    def gpu_bytes(self) -> GpuBytes:
        """Bytes on a GPU, or the bytes in the files if not counted."""
        nothing, everywhere = np.zeros(self.n_layers, np.int64), np.ones(self.n_layers, np.bool_)
        return self.on_gpu or GpuBytes(self.attention, self.neuron, nothing, self.head, everywhere, True)

    @property
    def n_layers(self) -> int:
        return len(self.attention)

    @property
    def neurons(self) -> int:
        """Neurons per layer that are placed: over all experts, without the shared one's."""
        return self.config.n_placed_neurons

    @property
    def ffn_is_whole(self) -> bool:
        """Whether a layer's FFN is on one device completely.

        No part of down belongs to a few neurons, layers have different numbers of them, which are placed alike, or the
        cut-off of gates needs all of them.
        """
        whole = self.down_is_row_wise or bool(self.config.d_ff_by_layer) or bool(self.config.gate_cutoffs)
        return whole and not self.config.n_experts

    @property
    def unit(self) -> int | None:
        """Neurons that are placed together: an expert's; None: any."""
        return self.config.d_ff if self.config.n_experts else None

    @property
    def neuron(self) -> I64:
        """i64 [L]: bytes of one neuron."""
        return self.first + self.second + self.down

    @property
    def disk_neuron(self) -> I64:
        """i64 [L]: bytes of one neuron that may stay on the disk, on average over the experts that are not on a GPU."""
        possible = self.experts_in_file and self.config.n_experts > 0
        return np.asarray(self.neuron * (1 - LEAST_RESIDENT) * possible, np.int64)

    @property
    def head_in_ram(self) -> int:
        """Bytes of the head beside the embedding."""
        return self.head - self.shared

    @property
    def total(self) -> int:
        return int(self.attention.sum()) + self.neurons * int(self.neuron.sum()) + self.embedding + self.head_in_ram

    def drafts_in_ram(self, context: int, codec: KvCodec) -> int:
        """Return the bytes of the layer that drafts tokens, with its cache for a conversation; 0 without one."""
        return self.drafts + trail_bytes(self.config, context, codec) if self.drafts else 0

    @cached_property
    def with_down_copied(self) -> ModelBytes | None:
        """The model with its row-wise downs copied by neuron, as a load can do; None if it has none to copy."""
        config, gpu = self.config, self.on_gpu
        if not self.down_is_row_wise or config.n_experts:
            return None
        codecs = tuple(codec_by_columns(codec) for codec in self.down_codecs)
        down, neuron = self.down.copy(), None if gpu is None else gpu.neuron.copy()
        for i in np.flatnonzero(self.down).tolist():
            old, new, width = self.down_codecs[i], codecs[i], config.ffn_width(i)
            down[i] = -(-width * ROW_CODECS[new].n_bytes(config.d_model) // config.d_ff)
            if gpu is not None and neuron is not None and gpu.possible[i]:
                neuron[i] -= -(-n_gpu_bytes(gpu_codec(old), config.d_model, width) // config.d_ff)
                neuron[i] += -(-n_gpu_bytes(gpu_codec(new), width, config.d_model) // config.d_ff) + SLOT_BYTES
        on_gpu = None if gpu is None or neuron is None else replace(gpu, neuron=neuron)
        return replace(self, down=down, down_codecs=codecs, down_is_row_wise=False, on_gpu=on_gpu)

    def kv_of_layer(self, context: int, codec: KvCodec, sequences: int = 1) -> I64:
        """Return the bytes of each layer's cache, [L], for sequences with this many positions in all.

        Keys and values of attention, `kept_in_ram`, and the states within a run, which a GPU has in its own memory.
        """
        found = np.array(stored_kv_bytes(self.config, context, codec, sequences), np.int64)
        if layers := list(self.config.delta_layers):
            found[layers] += sequences * within_bytes(self.config) // len(layers)
        return found + self.kept_in_ram(context, codec, sequences)

    def kept_in_ram(self, context: int, codec: KvCodec, sequences: int = 1) -> I64:
        """Return the bytes in RAM of each layer's cache, [L], of a layer on the GPU too.

        States with their snapshots, and what layers with a window keep to be cut back. Arguments as in `kv_of_layer`.
        """
        layers = self.config.delta_layers
        found = sequences * np.array(turn_bytes(self.config, context // sequences, codec), np.int64)
        if layers:
            found[list(layers)] = sequences * state_bytes(self.config) // len(layers)
        return found

    def kv_read(self, position: int, codec: KvCodec) -> I64:
        """Return the bytes of each layer's cache, [L], that a token at this position reads, and writes of a state."""
        return np.array(read_cache_bytes(self.config, position, codec), np.int64)

    @classmethod
    def of(cls, opened: OpenedModel, weights: ModelWeights | None = None) -> ModelBytes:
        """Count a model's bytes in its files' codecs; on the GPU, and of a copied down, in those of the `weights`."""
        config = opened.config
        row_wise, is_copied = opened.down_is_row_wise, False
        hold: Hold = "mapped"
        if weights is not None:
            hold, is_copied = weights.hold, row_wise and weights.hold == "mapped" and not weights.down_is_row_wise
            row_wise = is_copied or weights.down_is_row_wise
        shape = (config.n_layers,)
        sums = {part: np.zeros(shape, np.int64) for part in ("attention", "first", "second", "down")}
        codecs: dict[str, list[dict[str, int]]] = {part: [{} for _ in range(config.n_layers)] for part in sums}
        ends = {"embedding": 0, "head": 0}
        embedding, head_codec = 0, "f32"
        for tensor in opened.plan:
            n_bytes = stored_bytes(opened, tensor)
            codec = opened.source.tensors[tensor.foreign_name].codec
            layer, dot, name = tensor.name.partition(".")
            if not dot:
                ends["head" if tensor.name in _OF_HEAD else "embedding"] += n_bytes
                if tensor.name == "embedding":
                    embedding = n_bytes
                if tensor.name in ("head", "embedding"):  # an untied head comes last and wins
                    head_codec = codec
                continue
            part = part_of(name, tensor, config)
            sums[part][int(layer)] += n_bytes
            if not tensor.is_vector:
                of_part = codecs[part][int(layer)]
                of_part[codec] = of_part.get(codec, 0) + n_bytes
        if config.tied_embeddings:
            ends["head"] += embedding
        per_neuron = {part: -(-sums[part] // config.n_placed_neurons) for part in ("first", "second", "down")}
        found = cls(
            config=config,
            attention=sums["attention"],
            first=per_neuron["first"],
            second=per_neuron["second"],
            down=per_neuron["down"],
            embedding=ends["embedding"],
            head=ends["head"],
            attention_codecs=largest_codecs(codecs["attention"]),
            first_codecs=largest_codecs(codecs["first"]),
            down_codecs=largest_codecs(codecs["down"]),
            head_codec=head_codec,
            down_is_row_wise=row_wise,
            shared=embedding if config.tied_embeddings else 0,
            on_gpu=GpuBytes.of(opened, hold, row_wise),
            experts_in_file=hold == "mapped" and _are_experts_in_file(opened),
            drafts=_draft_bytes(opened),
        )
        return (found.with_down_copied or found) if is_copied else found


_OF_HEAD = ("head", "head_bias", "final_norm", "final_norm_bias", "project_out")


def part_of(name: str, tensor: PlannedTensor, config: ModelConfig) -> str:
    """Return the part of a layer that a tensor belongs to: first, second, down, or attention with all that is not
    placed by neuron.
    """
    if ".experts." in tensor.name:
        _, expert, name = split_expert_name(tensor.name)
        if expert == config.n_experts:
            return "attention"
    match name:
        case "gate":
            return "first"
        case "up":
            return "second" if config.gated else "first"
        case "down" | "down_t":
            return "down"
        case _:
            return "attention"


def _are_experts_in_file(opened: OpenedModel) -> bool:
    """Return whether no expert's matrix is copied to RAM. The CPU kernels multiply all codecs of files."""
    experts = [tensor for tensor in opened.plan if tensor.of_expert and not tensor.is_vector]
    routed = [tensor for tensor in experts if split_expert_name(tensor.name)[1] < opened.config.n_experts]
    return bool(routed) and not any(copied_bytes(opened, tensor) for tensor in routed)


def _draft_bytes(opened: OpenedModel) -> int:
    """Return the bytes of the layer that drafts tokens; 0 without one that Hearth can run."""
    try:
        drafts = open_drafts(opened)
    except EngineError:
        return 0
    return 0 if drafts is None else sum(stored_bytes(opened, tensor) for tensor in drafts.plan)


def stored_bytes(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """Return the tensor's bytes in its file; for a fused tensor, its share."""
    return opened.source.tensors[tensor.foreign_name].n_bytes * tensor.n_elements // math.prod(tensor.shape)


def largest_codecs(found: list[dict[str, int]]) -> tuple[str, ...]:
    """Return the codec with the most bytes in each layer. found: bytes by codec, for each layer."""
    return tuple(max(layer, key=lambda codec: (layer[codec], codec), default="f32") for layer in found)
