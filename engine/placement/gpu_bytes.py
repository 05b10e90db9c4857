"""Bytes of a model's parts on a GPU, where rows are padded and buffers are aligned to 256 bytes.

Computed from shapes and codecs. engine/gpu/weights/loading.py must use the same sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, ModelConfig
from engine.model.families import split_expert_name
from engine.model.graph import graph_of
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor
from engine.model.window_memory import window_positions
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.delta_net import why_not as why_no_delta
from native_kernels.cuda.latent import why_not as why_no_latent
from native_kernels.cuda.layouts import GPU_CODECS, gpu_codec, n_gpu_bytes, plane_row_bytes

I64 = NDArray[np.int64]

ALIGNMENT = 256
SCALE_GROUP = 32  # dimensions of a key or value per scale
_OF_HEAD = ("head", "final_norm", "final_norm_bias", "project_out", "stream_out_")
_OF_NEURONS = ("gate", "up", "down", "down_t", "gate_bias", "up_bias")
_OF_STREAMS = ("stream_prediction", "stream_correction")  # small tables, f32 on the GPU
SLOT_BYTES = 8  # neuron id and activity count
# The most tokens that run at once on a GPU, and with layers that keep a state, which then have one for each token. A
# state takes 1.3 % of the bytes of such a layer (27 billion parameters in 4 bits).
TOKENS_TOGETHER, STATES_TOGETHER = 8, 4
WIDTH_MULTIPLE = 32  # of an expert's neurons, whose hidden values are rounded in groups


@dataclass(frozen=True, eq=False)
class GpuBytes:
    """Bytes of a model's parts on a GPU.

    i64 [L]: attention, a layer without its placed neurons; neuron, one neuron in a slot, as if every layer had as
    many as the widest; block, the overhead of a layer's hot neurons besides their slots. possible [L]: whether the GPU
    has kernels for the whole layer; head_possible likewise.
    """

    attention: I64
    neuron: I64
    block: I64
    head: int
    possible: NDArray[np.bool_]
    head_possible: bool

    @classmethod
    def of(cls, opened: OpenedModel, hold: Literal["f32", "f16", "mapped"], down_is_row_wise: bool) -> GpuBytes:
        """Count the bytes. hold: matrices stay in their files' codecs ("mapped") or are widened to f32 or f16."""
        config = opened.config
        attention, neuron = np.zeros(config.n_layers, np.int64), np.zeros(config.n_layers, np.int64)
        of_experts = np.zeros(config.n_layers, np.int64)
        possible = np.full(config.n_layers, why_not_on_gpu(config) == "", np.bool_)
        head, head_possible, inputs = 0, bool(possible.all()), 0
        for tensor in opened.plan:
            layer, dot, name = tensor.name.partition(".")
            tiled = TiledTensor.of(opened, tensor)
            widened = "f32" if tensor.is_exact else hold
            codec = "f32" if tensor.is_vector else widened if hold != "mapped" else gpu_codec(tiled.codec)
            codec = "f32" if name in _OF_STREAMS else codec
            if not dot:
                if tensor.name.startswith(_OF_HEAD) or (tensor.name == "embedding" and config.tied_embeddings):
                    head_possible &= codec in GPU_CODECS
                    head += _bytes(codec, tiled.n_rows, tiled.n_cols)
                if tensor.name.startswith(("layer_projection", "stream_in_")):
                    inputs += _bytes(codec, tiled.n_rows, tiled.n_cols)
                continue
            index = int(layer)
            possible[index] &= codec in GPU_CODECS
            if not possible[index]:
                continue
            if tensor.of_expert:
                _, expert, part = split_expert_name(tensor.name)
                rows, cols = tiled.n_rows, tiled.n_cols
                if part == "down_t" and down_is_row_wise:
                    rows, cols = cols, rows
                if expert < config.n_experts:
                    of_experts[index] += n_gpu_bytes(codec, rows, cols)
                else:
                    attention[index] += matrix_bytes(codec, rows, cols)
            elif name not in _OF_NEURONS:
                attention[index] += _bytes(codec, tiled.n_rows, tiled.n_cols)
            elif tensor.is_vector:
                neuron[index] += 4
            elif name == "down_t" and down_is_row_wise:
                neuron[index] += -(-n_gpu_bytes(codec, tiled.n_cols, tiled.n_rows) // config.d_ff)
            else:
                neuron[index] += -(-tiled.n_rows * sum(plane_row_bytes(codec, tiled.n_cols)) // config.d_ff)
        if config.n_experts:
            neuron = -(-of_experts // config.n_placed_neurons)
            dense = np.array([config.is_dense(layer) for layer in range(config.n_layers)])
            widths = np.where(dense, config.dense_d_ff, math.gcd(config.d_ff, config.shared_d_ff))
            possible &= widths % WIDTH_MULTIPLE == 0
        else:
            neuron += 0 if down_is_row_wise else SLOT_BYTES
        attention += -(-inputs // config.n_layers)  # each layer counts its part of what computes all layers' inputs
        if config.delta is not None:
            attention[list(config.delta_layers)] += aligned(done_bytes(config.delta))
        # All buffers are aligned to 256 bytes: at most four planes of three matrices, biases, slots and counts.
        block = np.full(config.n_layers, 16 * ALIGNMENT + aligned(-(-config.d_ff // 32) * 4), np.int64)
        for of_neurons in (neuron, block):
            of_neurons[list(config.mixer_only_layers)] = 0
        return cls(attention, neuron, block, head, possible, head_possible)


def why_not_on_gpu(config: ModelConfig) -> str:
    """Return in one sentence why no part of such a model can be on a GPU; "" if nothing speaks against it.

    A model of which only FFNs were on the GPU would wait for the CPU twice a layer.
    """
    if config.delta is not None and (reason := why_no_delta(config.delta)):
        return reason
    if config.latent is not None and (reason := why_no_latent(config.latent, config.rotated)):
        return reason
    return "" if config.causal else "A model that turns texts into vectors is computed on the CPU"


def aligned(n_bytes: int) -> int:
    """Round up to the alignment."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def matrix_bytes(codec: str, n_rows: int, n_cols: int) -> int:
    """Return the bytes of a matrix with aligned planes. Raises: KeyError for a codec without GPU kernels."""
    return sum(aligned(n_rows * width) for width in plane_row_bytes(codec, n_cols))


def predictor_bytes(shapes: Iterable[tuple[str, int, int]], biases: Iterable[int]) -> int | None:
    """Return a predictor's bytes for matrices (codec, rows, columns) and biases of these lengths.

    None if the GPU has no kernels for one of the codecs.
    """
    matrices = [(gpu_codec(codec), n_rows, n_cols) for codec, n_rows, n_cols in shapes]
    if any(codec not in GPU_CODECS for codec, _, _ in matrices):
        return None
    return sum(matrix_bytes(*one) for one in matrices) + sum(aligned(4 * n) for n in biases)


def kv_layer_bytes(config: ModelConfig, context: int, codec: KvCodec, local: bool = False) -> int:
    """Return the bytes of one layer's KV cache for this many positions. local: with heads of layers with a window."""
    n_heads, head_dim = config.head_shapes[-1 if local else 0]
    rows = n_heads * context
    numbers = aligned(rows * head_dim * {"f32": 4, "f16": 2, "q8_0": 1}[codec])
    scales = aligned(rows * -(-head_dim // SCALE_GROUP) * 2) if codec == "q8_0" else 0
    return (numbers + scales) * (1 if config.latent is not None else 2)


def tokens_together(config: ModelConfig) -> int:
    """Return the most tokens of a sequence that run at once on a GPU.

    Of layers with a state, only gated delta nets keep one for each token.
    """
    if config.delta_layers and (config.delta is None or config.delta.mamba):
        return 1
    return STATES_TOGETHER if config.delta_layers else TOKENS_TOGETHER


def n_states(config: ModelConfig, sequences: int = 1) -> int:
    """Return the states of a layer on the GPU: for tokens that run together, or two for each sequence."""
    together = tokens_together(config)
    return max(2 + (together if together > 1 else 0), 2 * sequences)


def gpu_cache_bytes(config: ModelConfig, context: int, codec: KvCodec, sequences: int = 1) -> I64:
    """Return the bytes of each layer's cache on the GPU, [L]: keys and values, or the states of a layer.

    context: tokens of all sequences together. 0 for a layer that reads another layer's, and for one with an FFN alone.
    """
    graph, positions = graph_of(config), (context, window_positions(config, context, sequences))
    by_kind = [kv_layer_bytes(config, positions[local], codec, local) for local in (False, True)]
    found = np.array([by_kind[graph.is_local(i)] for i in range(config.n_layers)], np.int64)
    found[config.n_layers - config.n_shared_kv_layers :] = 0
    found[list(config.ffn_only_layers)] = 0
    if config.recurrence is not None:
        found[list(config.delta_layers)] = n_states(config, sequences) * aligned(4 * config.recurrence.state_size)
    return found


def input_width(config: ModelConfig) -> int:
    """Return the numbers of a position that attention or a state works with, before its heads are mixed."""
    if (latent := config.latent) is not None:
        of_head = latent.key_dim + config.rotated + max(config.head_dim, latent.value_dim)
        return config.n_heads * of_head + config.head_dim + latent.query_rank
    of_attention = config.q_width * (2 if config.gated_attention else 1) + 2 * config.kv_width
    delta, conv = config.delta, config.short_conv
    of_state = 0 if delta is None else delta.channels + delta.value_width + 2 * delta.value_heads
    return max(of_attention, of_state, 0 if conv is None else 3 * conv.channels)


def mixed_width(config: ModelConfig) -> int:
    """Return the numbers of a position that attention or a state returns, before they are projected."""
    if (latent := config.latent) is not None:
        of_head = max(config.head_dim, latent.key_dim + config.rotated, latent.value_dim)
        return max(config.n_heads * of_head, latent.query_rank)
    conv = 0 if config.short_conv is None else config.short_conv.channels
    return max(config.q_width, conv, 0 if config.delta is None else config.delta.value_width)


def _bytes(codec: str, n_rows: int, n_cols: int) -> int:
    return matrix_bytes(codec, n_rows, n_cols) if codec in GPU_CODECS else 0
