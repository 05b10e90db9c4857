"""Load a model's weights into the operators' layout.

Foreign names end here: families/ plans the tensors, model_files.py has checked them. This module repacks matrices, or
uses them mapped (mapped_weights.py) if RAM is too small.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from engine.config import ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError, ModelFormatError, UnsupportedModelError
from engine.job import Job
from engine.machine.cpu_and_ram import memory_limits, read_ram
from engine.model.families import PlannedTensor, split_expert_name
from engine.model.finite_check import ask_for_sample, check_numbers
from engine.model.mapped_weights import DownCopies, as_stored, copied_bytes, is_row_wise_down
from engine.model.mapped_weights import StoredKernels as StoredKernels
from engine.model.model_files import ModelFiles as ModelFiles
from engine.model.model_files import OpenedModel as OpenedModel
from engine.model.model_files import find_model_files as find_model_files
from engine.model.model_files import open_model as open_model
from engine.model.tensor_tiles import TiledTensor
from native_kernels.backend import F32, DeltaWeights, PackedMatrix

if TYPE_CHECKING:
    from engine.model.expert_reads import ExpertReads

# Free RAM for the KV cache, the window and other programs.
MARGIN_BYTES = 512 << 20

# How matrices are stored: unpacked in RAM in one of two widths, or mapped in the file's codec.
Hold = Literal["f32", "f16", "mapped"]
_REASONS: dict[Hold, str] = {
    "f32": "32-bit numbers fit into the free RAM, and nothing is unpacked on use",
    "f16": "32-bit numbers do not fit into the free RAM, 16-bit numbers do",
    "mapped": "unpacked weights do not fit into the free RAM, so they stay in the file and are unpacked on use",
}
_ZERO_PIECE = 1 << 20
_ASKED_AHEAD = 128  # matrices whose samples the disk may be reading at once


@dataclass(frozen=True, eq=False)
class FfnWeights:
    """One FFN: a layer's only one, or one expert's."""

    up: PackedMatrix  # [F, D]
    gate: PackedMatrix | None = None  # [F, D]
    down_t: PackedMatrix | None = None  # [F, D]: neuron-major, so that a neuron's column of down is one row
    down: PackedMatrix | None = None  # [D, F]: instead of down_t if it cannot be transposed losslessly
    gate_bias: F32 | None = None  # [F]
    up_bias: F32 | None = None  # [F]
    down_bias: F32 | None = None  # [D]

    @property
    def matrices(self) -> list[PackedMatrix]:
        return [one for one in (self.gate, self.up, self.down_t, self.down) if one is not None]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer; None for what a family lacks. H_q = H x head_dim, H_kv = H_kv x head_dim.

    A gated delta net or Mamba-2 has q and k of its key heads, v of its value heads, and o from them; V = value_heads x
    value_dim. A short convolution has v for its values, k for the gate before it and q for the gate behind it, [D, D].
    A layer without attention and state has q and o without rows.
    Latent attention has q [H x (key_dim + R), query_rank or D] for R rotated numbers, k [rank + R, D],
    v [H x value_dim, rank], o [D, H x value_dim], and norms q_norm [query_rank] and k_norm [rank].
    With experts, use `ffns`, which covers both cases.
    """

    attention_norm: F32 | None  # [D]
    q: PackedMatrix  # [H_q, D]
    o: PackedMatrix  # [D, H_q]
    k: PackedMatrix | None = None  # [H_kv, D]; None: it reads another layer's keys and values
    v: PackedMatrix | None = None  # [H_kv, D]; None also if v is k
    q_down: PackedMatrix | None = None  # [query_rank, D], of latent attention, as k_up
    k_up: PackedMatrix | None = None  # [H x rank, key_dim]
    attention_gate: PackedMatrix | None = None  # [H_q, D], of a gated delta net [V, D]
    alpha: PackedMatrix | None = None  # [value_heads, D], of a gated delta net or Mamba-2, as all up to skip
    beta: PackedMatrix | None = None  # [value_heads, D]; None in Mamba-2
    alpha_bias: F32 | None = None  # [value_heads]
    decay: F32 | None = None  # [value_heads]
    conv: F32 | None = None  # [channels x conv_width], also of a short convolution
    head_norm: F32 | None = None  # [DeltaSpec.norm_size]
    conv_bias: F32 | None = None  # [channels]
    skip: F32 | None = None  # [value_heads], of Mamba-2
    up: PackedMatrix | None = None  # [F, D]
    ffn_norm: F32 | None = None  # [D]
    gate: PackedMatrix | None = None  # [F, D]
    down_t: PackedMatrix | None = None  # [F, D]: neuron-major
    down: PackedMatrix | None = None  # [D, F]: instead of down_t
    router: PackedMatrix | None = None  # [E, D]
    router_bias: F32 | None = None  # [E]
    selection_bias: F32 | None = None  # [E]
    shared_gate: F32 | None = None  # [D]
    expert_scale: F32 | None = None  # [E]
    router_norm: F32 | None = None  # [D], where a shared expert is apart, like the next three
    experts_norm: F32 | None = None  # [D]
    post_experts_norm: F32 | None = None  # [D]
    post_shared_norm: F32 | None = None  # [D]
    experts: tuple[FfnWeights, ...] = ()  # [E], then the shared expert; without a router the layer's only FFN
    attention_norm_bias: F32 | None = None  # [D]
    ffn_norm_bias: F32 | None = None  # [D]
    post_attention_norm: F32 | None = None  # [D]
    post_ffn_norm: F32 | None = None  # [D]
    embedding_gate: PackedMatrix | None = None  # [P, D], of per-layer embeddings, like the next two
    embedding_projection: PackedMatrix | None = None  # [D, P]
    post_embedding_norm: F32 | None = None  # [D]
    layer_scale: F32 | None = None  # [1]
    stream_router_norm: F32 | None = None  # [D], of several streams, like the next four; N streams
    stream_router: PackedMatrix | None = None  # [N, D]
    stream_prediction: PackedMatrix | None = None  # [N N, N]
    stream_correction: PackedMatrix | None = None  # [N, N]
    stream_scale: F32 | None = None  # [D]
    laurel_left: PackedMatrix | None = None  # [R, D], of a residual of rank R
    laurel_right: PackedMatrix | None = None  # [D, R]
    laurel_norm: F32 | None = None  # [D]
    q_norm: F32 | None = None  # [head_dim], or [H_q] over all heads
    k_norm: F32 | None = None  # [head_dim] or [H_kv]
    sinks: F32 | None = None  # [H]: an extra attention score per head
    q_bias: F32 | None = None  # [H_q]
    k_bias: F32 | None = None  # [H_kv]
    v_bias: F32 | None = None  # [H_kv]
    o_bias: F32 | None = None  # [D]
    gate_bias: F32 | None = None  # [F]
    up_bias: F32 | None = None  # [F]
    down_bias: F32 | None = None  # [D]

    @property
    def attention_matrices(self) -> list[PackedMatrix]:
        others = (self.k, self.v, self.q_down, self.k_up, self.attention_gate, self.alpha, self.beta)
        return [one for one in (self.q, self.o, *others) if one is not None and one.n_rows]

    @property
    def qkv(self) -> tuple[PackedMatrix, PackedMatrix, PackedMatrix]:
        """The projections to q, k and v of a layer that has all three."""
        assert self.k is not None
        assert self.v is not None
        return self.q, self.k, self.v

    @cached_property
    def by_head(self) -> tuple[tuple[PackedMatrix, ...], tuple[PackedMatrix, ...]]:
        """Each head's part of k_up [rank, key_dim], and of v [value_dim, rank], of latent attention."""
        assert self.k_up is not None, "latent attention has key matrices"
        values = self.qkv[2]
        n_heads = self.k_up.n_rows // values.n_cols
        return self.k_up.split(n_heads), values.split(n_heads)

    @property
    def delta_projections(self) -> list[PackedMatrix]:
        """The projections of a gated delta net or Mamba-2 besides q, k and v, in the order of DeltaInput."""
        found = [one for one in (self.attention_gate, self.alpha, self.beta) if one is not None]
        assert len(found) >= 2, "the layer has a gate and alpha"
        return found

    def delta(self, epsilon: float) -> DeltaWeights:
        """Return the weights of such a layer besides its projections. epsilon: of the model's norms."""
        assert self.conv is not None
        assert self.decay is not None
        assert self.alpha_bias is not None
        assert self.head_norm is not None
        return DeltaWeights(self.conv, self.decay, self.alpha_bias, self.head_norm, epsilon, self.conv_bias, self.skip)

    @cached_property
    def ffns(self) -> tuple[FfnWeights, ...]:
        """The layer's FFNs: one per expert, or the only one; one without neurons if the layer has none."""
        if self.experts:
            return self.experts
        if self.up is None:
            nothing = no_rows(self.o.n_rows)
            return (FfnWeights(up=nothing, down_t=nothing),)
        own = {field.name: getattr(self, field.name) for field in fields(FfnWeights) if field.name != "up"}
        return (FfnWeights(up=self.up, **own),)

    @property
    def routed(self) -> tuple[FfnWeights, ...]:
        """The experts that the router selects from; empty without a router."""
        return self.experts[: 0 if self.router is None else self.router.n_rows]

    @property
    def shared(self) -> FfnWeights | None:
        """The expert that every token uses, which is the only FFN of a layer without a router; None without experts."""
        return next(iter(self.experts[len(self.routed) :]), None)


@dataclass(frozen=True, eq=False)
class DraftInput:
    """What makes the input of a layer that drafts tokens: project [norm of an embedding, norm of the hidden state]."""

    project: PackedMatrix  # [D, 2 D]
    embedding_norm: F32  # [D]
    hidden_norm: F32  # [D]


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """All weights, in RAM or mapped. With tied embeddings `head` is `embedding`. E = embedding_dim, mostly D.

    n_bytes: of all weights; ram_bytes: of those in RAM outside the page cache.
    """

    embedding: PackedMatrix  # [V, E]
    layers: list[LayerWeights]
    final_norm: F32 | None  # [D]
    head: PackedMatrix  # [V, E]
    hold: Hold
    hold_reason: str  # the reason, half a sentence
    n_bytes: int
    ram_bytes: int
    final_norm_bias: F32 | None = None  # [D]
    head_bias: F32 | None = None  # [V]
    positions: PackedMatrix | None = None  # [max_context + position_offset, D]
    token_types: PackedMatrix | None = None  # [token_types, D]
    input_norm: F32 | None = None  # [D]
    input_norm_bias: F32 | None = None  # [D]
    project_in: PackedMatrix | None = None  # [D, E]
    project_out: PackedMatrix | None = None  # [E, D]
    rope_factors: F32 | None = None  # [rotated / 2]
    rope_factors_long: F32 | None = None  # [rotated / 2], of LongRoPE; its short ones likewise
    rope_factors_short: F32 | None = None
    layer_embeddings: PackedMatrix | None = None  # [V, L P]: each token's embeddings for all layers
    layer_projection: PackedMatrix | None = None  # [L P, D]
    layer_projection_norm: F32 | None = None  # [P]
    streams_in: tuple[PackedMatrix, ...] = ()  # [D, D] each: from the first of several streams to the others
    streams_out: tuple[PackedMatrix, ...] = ()  # [D, D] each: back from the others
    expert_reads: ExpertReads | None = None  # if the RAM cannot hold the experts
    draft_input: DraftInput | None = None  # of a layer that drafts tokens, which is read as a model of one layer

    def layer_projection_norm_of(self, config: ModelConfig) -> tuple[F32, float]:
        """Return weight and epsilon of the norm that follows layer_projection.

        Before it, the projection is divided by the root of D, and after it by that of 2: both are folded in.
        """
        assert self.layer_projection_norm is not None
        return self.layer_projection_norm * np.float32(0.5**0.5), config.norm_eps * config.d_model

    @property
    def down_is_row_wise(self) -> bool:
        """Whether down is always computed whole, because a neuron's weights in it are scattered."""
        return any(ffn.down is not None for layer in self.layers for ffn in layer.ffns)


def load_weights(
    opened: OpenedModel,
    job: Job = Job(),
    extra_bytes: int = 0,
    mapped_bytes: int = 0,
    hold: Hold | Literal["auto"] = "auto",
    kernels: StoredKernels | None = None,
    reads_experts: bool = False,
    drafts_of: ModelWeights | None = None,
) -> ModelWeights:
    """Read, check and repack every tensor: as float32 if that fits in free RAM, otherwise as float16.

    If neither fits, matrices stay `mapped` in the file. Large mapped matrices are checked by sample (finite_check.py);
    other damage shows only in the logits (and the reference reads a non-finite float16 as a large number). Norms and
    biases are always checked whole.
    kernels: that read stored codecs; with them `auto` means mapped, and they may copy a row-wise down by neuron, if the
    free RAM holds the copy.
    Units: progress in file bytes. extra_bytes: RAM that the caller needs beside the weights. mapped_bytes: bytes read
    per token that can stay in their file; unpacked weights leave RAM for them, but they never cause a refusal.
    reads_experts: experts are read from the disk as they are chosen. drafts_of: the weights of the model for which this
    one, a layer, drafts tokens; it shares what the layer lacks.
    Raises: HostMemoryError with need and free bytes before anything is read, ModelFormatError for values that are not
    finite or an all-zero norm or embedding, Cancelled between two tensors.
    """
    chosen, reason = _choose_hold(opened, extra_bytes, mapped_bytes, hold, "" if kernels is None else kernels.reason)
    plan = opened.plan
    copied = sum(copied_bytes(opened, tensor) for tensor in plan)
    copies = None
    if kernels is not None and kernels.transpose is not None and chosen == "mapped" and hold == "auto":
        copies = DownCopies(opened, kernels.transpose)
        if copies.needed_bytes + copied + extra_bytes + MARGIN_BYTES > _free_ram():
            copies = None
    total = sum(_file_bytes(opened, tensor) for tensor in plan)
    done = 0
    vectors: dict[str, F32] = {}
    matrices: dict[str, PackedMatrix] = {}
    unchecked: deque[tuple[PackedMatrix, PlannedTensor]] = deque()
    for tensor in plan:
        job.stop_if_cancelled()
        try:
            if tensor.is_vector:
                vectors[tensor.name] = _read(opened, tensor)
            elif chosen == "mapped":
                name, matrix = as_stored(opened, tensor)
                if copies is not None and is_row_wise_down(opened, tensor):
                    matrices[tensor.name] = copies.of(tensor, matrix)
                else:
                    matrices[name] = matrix
                ask_for_sample(matrix)
                unchecked.append((matrix, tensor))
                if len(unchecked) > _ASKED_AHEAD:
                    _check(*unchecked.popleft())
            else:
                codec = "f32" if tensor.is_exact else chosen
                matrices[tensor.name] = _pack(_read(opened, tensor), tensor, codec)
        except MemoryError as error:
            raise HostMemoryError(f"The memory ran out while loading {tensor.foreign_name}.") from error
        done += _file_bytes(opened, tensor)
        job.progress(done, total)
    for matrix, tensor in unchecked:
        job.stop_if_cancelled()
        _check(matrix, tensor)
    n_bytes = sum(matrix.n_bytes for matrix in matrices.values()) + sum(v.nbytes for v in vectors.values())
    ram_bytes = copied if chosen == "mapped" else n_bytes
    if copies is not None:
        reason, ram_bytes = reason + copies.reason, ram_bytes + copies.ram_bytes
    parts = _assemble(opened.config, vectors, matrices, drafts_of)
    reads = None
    if reads_experts and chosen == "mapped":
        from engine.model.expert_reads import ExpertReads

        reads = ExpertReads(parts["layers"])
    return ModelWeights(
        **parts, hold=chosen, hold_reason=reason, n_bytes=n_bytes, ram_bytes=ram_bytes, expert_reads=reads
    )


def _file_bytes(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """Return the tensor's bytes in the file; for a fused tensor, its share."""
    return opened.source.tensors[tensor.foreign_name].n_bytes * tensor.n_elements // math.prod(tensor.shape)


def _choose_hold(
    opened: OpenedModel, extra_bytes: int, mapped_bytes: int, wanted: str, mapped_reason: str
) -> tuple[Hold, str]:
    """Return float32 if it fits with a margin, because nothing is then unpacked on use; then float16, then mapped.

    An explicit choice must fit in free RAM too.
    """
    if wanted != "auto" and wanted not in get_args(Hold):
        raise InvalidRequestError(f"Unknown way {wanted!r} to hold weights; supported: auto, f32, f16 and mapped.")
    have = _free_ram()
    plan = opened.plan
    parameters = sum(tensor.n_elements for tensor in plan)
    rest = extra_bytes + MARGIN_BYTES
    # While a tensor is repacked, it is in RAM twice as float32.
    repacking = 2 * 4 * max(tensor.n_elements if tensor.of_expert else math.prod(tensor.shape) for tensor in plan)
    needs: dict[Hold, int] = {
        "f32": parameters * 4 + repacking + mapped_bytes + rest,
        "f16": parameters * 2 + repacking + mapped_bytes + rest,
        "mapped": sum(copied_bytes(opened, tensor) for tensor in plan) + rest,
    }
    if wanted == "auto" and mapped_reason and needs["mapped"] <= have:
        return "mapped", mapped_reason
    for hold, need in needs.items():
        if need <= have and wanted in ("auto", hold):
            return hold, _REASONS[hold] if wanted == "auto" else "as requested"
    need = next((need for hold, need in needs.items() if hold == wanted), needs["mapped"])
    raise HostMemoryError(f"The model needs {need / 2**30:.1f} GiB of free RAM; {have / 2**30:.1f} GiB are free.")


def _free_ram() -> int:
    """Return free RAM; a container may limit it."""
    import psutil

    return read_ram(psutil, memory_limits()).free_bytes


def _read(opened: OpenedModel, tensor: PlannedTensor) -> F32:
    if tensor.of_expert or tensor.treatment == "transposed by head":  # reads one expert instead of all of them
        tiled = TiledTensor.of(opened, tensor)
        values = tiled.read_f32(0, tiled.n_rows)
        return values[0] if tensor.is_vector else values
    values = opened.source.read_f32(tensor.foreign_name)
    if tensor.expert is not None:
        values = values[tensor.expert]
    # Weights are too small to overflow the sum, so it is finite if all values are; one fast pass.
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total):
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds values that are not numbers.")
    if _must_not_be_zero(tensor) and not values.any():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds nothing but zeros: the file is incomplete.")
    if tensor.name.startswith("rope_factors") and not (values > 0).all():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds divisors that are not positive.")
    if tensor.part is not None:
        groups = values[: tensor.part.n_grouped].reshape(tensor.part.groups, -1, *values.shape[1:])
        values = groups[:, tensor.part.start : tensor.part.stop].reshape(-1, *values.shape[1:])
    values = tensor.treated(values.reshape(-1) if tensor.is_vector else values)
    values = values.reshape(tensor.matrix_shape) if values.ndim == 3 else values
    if tensor.name.endswith(".decay") and not (values < 0).all():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} makes a state grow, so the file is damaged.")
    return values


def _check(matrix: PackedMatrix, tensor: PlannedTensor) -> None:
    """Check a mapped matrix. Raises: ModelFormatError."""
    # With sigmoid scores, an expert of such a router is never chosen, and the answer is wrong without a sign of it.
    check_numbers(matrix, tensor.foreign_name, whole=tensor.name.endswith(".router"))
    if _must_not_be_zero(tensor):
        _refuse_zero_bytes(matrix, tensor)


def _refuse_zero_bytes(matrix: PackedMatrix, tensor: PlannedTensor) -> None:
    """Raise if all bytes are zero; for sound files the first bytes suffice."""
    rows = max(1, _ZERO_PIECE // max(1, matrix.row_bytes))
    if not any(matrix.data[start : start + rows].any() for start in range(0, matrix.n_rows, rows)):
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds nothing but zeros: the file is incomplete.")


def _must_not_be_zero(tensor: PlannedTensor) -> bool:
    """Return whether all zeros mean an incomplete file.

    True for norms and the embedding; biases, sinks, logarithms, and norms stored minus one, may be zero.
    """
    if tensor.name == "embedding":
        return True
    return tensor.is_vector and tensor.treatment in ("as is", "flat") and not tensor.name.endswith(("_bias", ".sinks"))


def _pack(values: F32, tensor: PlannedTensor, codec: str) -> PackedMatrix:
    if codec == "f16" and float(np.abs(values).max()) > float(np.finfo(np.float16).max):
        raise UnsupportedModelError(
            f"Tensor {tensor.foreign_name} holds values beyond 16 bits, and for 32 bits the free RAM is too small."
        )
    return PackedMatrix.pack(values, codec)


def _assemble(
    config: ModelConfig, vectors: dict[str, F32], matrices: dict[str, PackedMatrix], drafts_of: ModelWeights | None
) -> dict[str, Any]:
    """Return the weight fields of ModelWeights. drafts_of: as in `load_weights`."""
    if drafts_of is not None:
        matrices = {"embedding": drafts_of.embedding, "head": drafts_of.head, **matrices}
        shared = {"final_norm": drafts_of.final_norm, "rope_factors": drafts_of.rope_factors}
        vectors = {**{name: one for name, one in shared.items() if one is not None}, **vectors}
    tensors: dict[str, Any] = {**vectors, **matrices}
    nothing = no_rows(config.d_model)
    per_layer: list[dict[str, Any]] = [
        {"attention_norm": None, "q": nothing, "o": nothing} for _ in range(config.n_layers)
    ]
    n_ffns = config.n_experts + (config.n_experts > 0)
    experts: list[list[dict[str, Any]]] = [[{} for _ in range(n_ffns)] for _ in per_layer]
    for name, values in tensors.items():
        layer, dot, field = name.partition(".")
        if ".experts." in name:
            _, expert, part = split_expert_name(name)
            experts[int(layer)][expert][part] = values
        elif dot:
            per_layer[int(layer)][field] = values
    for layer_fields, of_layer in zip(per_layer, experts, strict=True):
        layer_fields["experts"] = tuple(FfnWeights(**parts) for parts in of_layer if parts)
    return {
        "embedding": matrices["embedding"],
        "layers": [LayerWeights(**fields) for fields in per_layer],
        "final_norm": _scaled(vectors.get("final_norm"), config.logit_scale),
        "head": matrices.get("head", matrices["embedding"]),
        "final_norm_bias": _scaled(vectors.get("final_norm_bias"), config.logit_scale),
        "head_bias": vectors.get("head_bias"),
        "positions": matrices.get("positions"),
        "token_types": matrices.get("token_types"),
        "input_norm": vectors.get("input_norm"),
        "input_norm_bias": vectors.get("input_norm_bias"),
        "project_in": matrices.get("project_in"),
        "project_out": matrices.get("project_out"),
        "layer_embeddings": matrices.get("layer_embeddings"),
        "layer_projection": matrices.get("layer_projection"),
        "layer_projection_norm": vectors.get("layer_projection_norm"),
        **{
            f"streams_{way}": tuple(matrices[f"stream_{way}_{i}"] for i in range(1, config.n_streams))
            for way in ("in", "out")
        },
        **{name: vectors.get(name) for name in ("rope_factors", "rope_factors_long", "rope_factors_short")},
        "draft_input": None if drafts_of is None else DraftInput(
            matrices["draft_project"], vectors["draft_embedding_norm"], vectors["draft_hidden_norm"]
        ),
    }  # fmt: skip


def no_rows(n_cols: int) -> PackedMatrix:
    """Return a matrix without rows, for what a layer lacks."""
    return PackedMatrix(0, n_cols, "f32", np.zeros((1, n_cols), np.float32)[:0])


def _scaled(vector: F32 | None, scale: float) -> F32 | None:
    return vector if vector is None or scale == 1.0 else vector * np.float32(scale)
