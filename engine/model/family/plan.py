"""List the tensors that a configuration needs, under their names in a file format. Reads no tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from engine.config import EXACT_MATRICES, ModelConfig
from engine.errors import UnsupportedModelError
from engine.model.family.recurrent_plan import add_recurrent
from engine.model.graph import AttentionSpec, graph_of
from native_kernels.backend import F32
from native_kernels.specs import LatentSpec

# How a foreign tensor is converted. "plus one": a norm stored as its weight minus one. "flat": any shape, to a vector.
# "minus exp": stored as the logarithm of the negative. "over root", "over size": a norm to divide by
# the root of its size, or by its size.
# "transposed by head": the rows of each group of the part become columns. Rows of q and k keep the file's order:
# ModelConfig.rope_order.
Treatment = Literal["as is", "transposed", "plus one", "flat", "minus exp", "over root", "over size",
                    "transposed by head"]  # fmt: skip
Kind = Literal["safetensors", "gguf", "bundle"]


@dataclass(frozen=True)
class RowPart:
    """Rows of a fused matrix: rows start to stop of each of `groups` equal groups. Of a transposed one: columns.

    n_grouped: the first rows, which the groups are; None: all rows.
    """

    groups: int
    start: int
    stop: int
    n_grouped: int | None = None


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor that the configuration needs: our name, foreign name and shape, and the conversion.

    A fused tensor appears once for each of its parts.
    """

    name: str  # "<layer>.<field of LayerWeights>" or a field of ModelWeights
    foreign_name: str
    shape: tuple[int, ...]  # in the file; the whole shape of a fused tensor
    treatment: Treatment = "as is"
    part: RowPart | None = None
    expert: int | None = None  # index into a 3D tensor with one matrix per expert

    @property
    def n_elements(self) -> int:
        """Number of its elements that we use."""
        if self.part is None:
            return math.prod(self.matrix_shape)
        others = self.matrix_shape[:-1] if self.treatment == "transposed" else self.matrix_shape[1:]
        return self.part.groups * (self.part.stop - self.part.start) * math.prod(others)

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape without the expert dimension; matrices of heads, one below the other."""
        if self.expert is not None:
            return self.shape[1:]
        if len(self.shape) == 3 and self.treatment == "as is":
            return self.shape[0] * self.shape[1], self.shape[2]
        return self.shape

    @property
    def is_vector(self) -> bool:
        return len(self.matrix_shape) == 1 or self.treatment == "flat"

    def treated(self, values: F32) -> F32:
        """Return the tensor's values as we use them."""
        match self.treatment:
            case "transposed":
                return values.T
            case "plus one":
                return values + np.float32(1)
            case "minus exp":
                return -np.exp(values)
            case "over root":
                return values * np.float32(values.size**-0.5)
            case "over size":
                return values * np.float32(1 / values.size)
            case _:
                return values

    @property
    def of_expert(self) -> bool:
        """Whether it is one expert's matrix. Some files, and ours, store all experts in one tensor."""
        return ".experts." in self.name

    @property
    def is_exact(self) -> bool:
        """Whether it is never rounded: a small error of a router may select another expert, and one of a gated delta
        net's alpha and beta adds up over all positions.
        """
        return self.name.endswith(EXACT_MATRICES)


@dataclass(frozen=True)
class Layout:
    """How a file format stores a family's tensors.

    names: our name -> foreign name, with "{}" for the layer. "qkv" and "gate_up" name fused matrices; beside "q", the
    names in the file decide. "shared_norm" is the only norm of parallel blocks with one norm. A bias has the name of
    its weight with "bias" for "weight".

    Experts: "experts.gate" names one tensor for all experts of a layer, "expert.gate" one per expert ("{}" for layer
    and expert); if a format has both, the names in the file decide. "experts.gate_up columns" names a tensor whose
    columns are the neurons of gate and up in turn, "experts.gate_up halves" one with those of gate before those of up;
    "experts.down_t" is neuron-major then. "shared.gate" etc. belong to
    the shared expert, and "shared_gate" is the vector of its weight ("shared_gate row": a matrix with one row).
    "experts.gate_up" and "shared.gate_up" name one tensor with gate's rows before up's.

    Gated attention: without "attention_gate", the rows of "q" are each head's query, then its gate. A gated delta net's
    names begin with "delta."; "delta.qkv", "delta.qkvz" (z: its gate) and "delta.ba" name fused matrices, of which the
    last two are grouped by key head. "delta.in" names the rows of Mamba-2's gate, value, key, query and alpha; of a
    short convolution, those of the gate before it, the gate behind it, and the values.

    Latent attention: "q_up" names the queries' matrix if "q_down" comes before it, "q" if not. "kv_up" names a matrix
    with the rows of each head's keys, then values; "k_up by head" and "v by head" the same apart, with one more
    dimension, the keys' transposed. If a format has both, the names in the file decide.

    drafts: the names of what the layer that drafts tokens (MTP) has beside an ordinary layer; empty: the family has
    none that Hearth runs. draft_layers: what its tensors' names begin with instead of "model.layers."; empty: it
    follows the model's layers.
    """

    names: Mapping[str, str]
    rope_pairs: bool = False  # rotated pairs of q and k are neighbours: ModelConfig.rope_order
    plus_one: bool = False  # norms are stored as weight minus one
    qkv_by_kv_head: bool = False  # fused rows are grouped by key-value head (queries, key, value), not q, k, v
    as_trained: bool = False  # a gated delta net's decay is stored as a logarithm, its convolution in three dimensions
    mamba_columns: bool = False  # of Mamba-2, decay and skip are stored as columns, its norm as a row per group
    drafts: Mapping[str, str] = field(default_factory=dict)
    draft_layers: str = ""

    def of_drafts(self, n_layers: int, present: Collection[str]) -> Layout:
        """Return the layout of a model of one layer, the one that drafts tokens. n_layers: before it in the files."""
        names, number = {**_as_stored(self.names, present), **self.drafts}, str(n_layers)
        if self.draft_layers:
            number = "0"
            names = {key: re.sub(r"^model\.(language_model\.)?layers\.", self.draft_layers, name)
                     for key, name in names.items()}  # fmt: skip
        # A name's further braces are for the expert, the second argument of `format`.
        names = {key: name.replace("{}", number, 1).replace("{}", "{1}") for key, name in names.items()}
        return replace(self, names=names)


_OWN_NAMES = ("token_types", "input_norm",
              "embedding", "positions", "project_in", "rope_factors", "rope_factors_long", "rope_factors_short",
              "attention_norm", "shared_norm", "q", "k", "v", "q_down", "k_up", "q_norm", "k_norm", "sinks",
              "attention_gate", "alpha", "beta", "alpha_bias", "decay", "conv", "head_norm", "skip",
              "o", "post_attention_norm",
              "ffn_norm", "router", "selection_bias", "shared_gate", "gate", "up", "down_t", "post_ffn_norm",
              "final_norm", "project_out", "head", "layer_embeddings", "layer_projection", "layer_projection_norm",
              "embedding_gate", "embedding_projection", "post_embedding_norm", "layer_scale", "expert_scale",
              "router_norm", "experts_norm", "post_experts_norm", "post_shared_norm",
              "stream_in", "stream_out", "stream_router_norm", "stream_router", "stream_prediction",
              "stream_correction", "stream_scale", "laurel_left", "laurel_right", "laurel_norm")  # fmt: skip
_OWN_EXPERTS = {f"{kind}.{part}": f"{{}}.{part}" for kind in ("expert", "shared") for part in ("gate", "up", "down_t")}
_OWN_DRAFTS = ("project", "embedding_norm", "hidden_norm", "final_norm", "embedding", "head")
OWN_LAYOUT = Layout(
    {name: f"{name}.weight" for name in _OWN_NAMES} | _OWN_EXPERTS,
    drafts={f"draft.{name}": f"mtp.{name}" for name in _OWN_DRAFTS},
)


def own_draft_name(name: str) -> str:
    """Return a bundle's name of a tensor of the layer that drafts tokens: docs/bundle.md, section 3."""
    return "mtp." + name.removeprefix("0.").removeprefix("draft_")


def in_own_terms(tensor: PlannedTensor, config: ModelConfig) -> PlannedTensor:
    """Convert a tensor of OWN_LAYOUT to our layout: all experts' neurons of a layer in one matrix."""
    shape = tensor.matrix_shape[::-1] if tensor.treatment == "transposed" else tensor.matrix_shape
    shape = (tensor.n_elements,) if tensor.treatment == "flat" else shape
    if not tensor.of_expert:
        return PlannedTensor(tensor.name, tensor.name, shape)
    layer, expert, part = split_expert_name(tensor.name)
    if config.is_dense(layer):
        return PlannedTensor(tensor.name, f"{layer}.{part}", shape)
    if tensor.is_vector:
        return PlannedTensor(tensor.name, f"{layer}.{part}", (config.n_experts, *shape), expert=expert)
    first = expert * config.d_ff
    rows = RowPart(1, first, first + shape[0])
    return PlannedTensor(tensor.name, f"{layer}.{part}", (config.n_neurons, shape[1]), part=rows)


def split_expert_name(name: str) -> tuple[int, int, str]:
    """Split an expert matrix's name into (layer, expert, field of FfnWeights). The shared expert is last."""
    layer, _, expert, part = name.split(".")
    return int(layer), int(expert), part


def plan_tensors(
    config: ModelConfig, layout: Layout, present: Collection[str], one_expert: bool = False
) -> list[PlannedTensor]:
    """Return all tensors that the configuration needs, in graph order. present: names in the file.

    one_expert: of the experts that a router selects, which are all alike, list the first of each layer.
    """
    plan = Plan(config, layout, present, range(1 if one_expert else config.n_experts))
    d, e = config.d_model, config.embedding_dim or config.d_model
    plan.add("embedding", (config.vocab_size, e))
    if config.positions == "learned":
        plan.add("positions", (config.max_context + config.position_offset, d))
    if config.token_types:
        plan.add("token_types", (config.token_types, d))
    if config.input_norm:
        plan.add_norm("input_norm")
    if e != d:
        plan.add("project_in", (d, e))
    if extra := config.layer_embedding_dim:
        plan.add("layer_embeddings", (config.layer_vocab_size or config.vocab_size, config.n_layers * extra))
        plan.add("layer_projection", (config.n_layers * extra, d))
        plan.add_norm("layer_projection_norm", extra)
    if config.rope_factors:
        plan.add("rope_factors", (config.rotated // 2,))
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "longrope" and not scaling.long_factors:
        plan.add("rope_factors_long", (config.rotated // 2,))
        plan.add("rope_factors_short", (config.rotated // 2,))
    plan.add_streams()
    for layer in range(config.n_layers):
        plan.add_layer(layer)
    if config.final_norm:
        plan.add_norm("final_norm")
    if e != d:
        plan.add("project_out", (e, d))
    if not config.tied_embeddings:
        plan.add("head", (config.vocab_size, e))
    if "head" in config.biases:
        plan.add("head_bias", (config.vocab_size,))
    return plan.tensors


def plan_drafts(config: ModelConfig, layout: Layout, n_layers: int, present: Collection[str]) -> list[PlannedTensor]:
    """Return the tensors of the layer that drafts tokens, the first behind n_layers; empty if the file has none.

    config: of the layer, as a model of one layer. Its embedding and its head are planned where the file has them;
    otherwise they are the model's, and so may be its final norm, "final_norm".
    """
    layout = layout.of_drafts(n_layers, present)
    names, d = layout.names, config.d_model
    if names.get("draft.project") not in present:
        return []
    plan = Plan(config, layout, present, range(config.n_experts))
    for name, key in (("embedding", "draft.embedding"), ("head", "draft.head")):
        if names.get(key) in present:
            plan.add(name, (config.vocab_size, d), key=key)
    plan.add("draft_project", (d, 2 * d), key="draft.project")
    for norm in ("embedding", "hidden"):
        plan.add_norm(f"draft_{norm}_norm", key=f"draft.{norm}_norm")
    plan.add_layer(0)
    if names["draft.final_norm"] in present:
        plan.add_norm("final_norm", key="draft.final_norm")
    return plan.tensors


def _bias_of(foreign: str) -> str:
    name = foreign.removesuffix(".weight")
    return f"{name}.bias" if name != foreign else f"{foreign}_bias"


def _as_stored(names: Mapping[str, str], present: Collection[str]) -> Mapping[str, str]:
    """Return the names with the outer modules that the file has: some omit one, those with pictures have one more."""
    embedding = names["embedding"]
    if f"language_model.{embedding}" in present:
        return {key: f"language_model.{name}" for key, name in names.items()}
    outer = embedding.partition(".")[0] + "."
    for other in ("", f"{outer}language_model."):
        if present and embedding not in present and other + embedding.removeprefix(outer) in present:
            return {key: re.sub(f"^{re.escape(outer)}", other, name) for key, name in names.items()}
    return names


class Plan:
    """The plan under construction. experts: the routed experts to list."""

    def __init__(self, config: ModelConfig, layout: Layout, present: Collection[str], experts: range) -> None:
        self.config, self.experts = config, experts
        self.layout = replace(layout, names=_as_stored(layout.names, present))
        self.tensors: list[PlannedTensor] = []
        self.present = present
        # PowerInfer stores down neuron-major under this name.
        self._down_t = "blk.0.ffn_down_t.weight" in present

    def add(self, name: str, shape: tuple[int, ...], *, layer: int | None = None, key: str = "",
            treatment: Treatment = "as is", part: RowPart | None = None) -> None:  # fmt: skip
        key = key or name.removesuffix("_bias")
        if key not in self.layout.names:
            raise UnsupportedModelError(
                f"{self.config.family} models with {name} are not supported in this file format."
            )
        foreign = self.layout.names[key]
        if name.endswith("_bias"):
            foreign = _bias_of(foreign)
        if layer is not None:
            name, foreign = f"{layer}.{name}", foreign.format(layer)
        self.tensors.append(PlannedTensor(name, foreign, shape, treatment, part))

    def add_norm(self, name: str, size: int | None = None, *, layer: int | None = None, key: str = "") -> None:
        shape = (self.config.d_model if size is None else size,)
        self.add(name, shape, layer=layer, key=key, treatment="plus one" if self.layout.plus_one else "as is")
        if "norm" in self.config.biases:
            self.add(f"{name}_bias", shape, layer=layer, key=key)

    def add_streams(self) -> None:
        """Add the matrices between the first stream and the others, which a format may have in one tensor."""
        n, d = self.config.n_streams, self.config.d_model
        for way in ("stream_in", "stream_out"):
            for i in range(1, n):
                if (stack := self.layout.names.get(f"{way} stack")) is not None:
                    self.tensors.append(PlannedTensor(f"{way}_{i}", stack, (n - 1, d, d), expert=i - 1))
                elif way in self.layout.names:
                    self.tensors.append(PlannedTensor(f"{way}_{i}", self.layout.names[way].format(i - 1), (d, d)))
                else:
                    raise UnsupportedModelError("Several residual streams are not supported in this file format.")

    def _add_stream_parts(self, layer: int) -> None:
        n, d, rank = self.config.n_streams, self.config.d_model, self.config.laurel_rank
        if n > 1:
            self.add("stream_router_norm", (d,), layer=layer, treatment="over size")
            for name, shape in (("router", (n, d)), ("prediction", (n * n, n)), ("correction", (n, n))):
                self.add(f"stream_{name}", shape, layer=layer)
            self.add("stream_scale", (d,), layer=layer)
        if rank:
            self.add("laurel_left", (rank, d), layer=layer)
            self.add("laurel_right", (d, rank), layer=layer)
            self.add_norm("laurel_norm", layer=layer)

    def add_layer(self, layer: int) -> None:
        config, behind = self.config, self.config.norms in ("both", "output")
        before = config.norms != "output"
        if layer in config.ffn_only_layers:
            self.add_norm("ffn_norm", layer=layer)
            self._add_block(layer)
            return
        if before:
            self.add_norm("attention_norm", layer=layer, key="shared_norm" if config.shared_norm else "")
        if layer in config.delta_layers:
            add_recurrent(self, layer)
        elif config.latent is not None:
            self._add_latent(layer, config.latent)
        else:
            self._add_attention(layer)
        if layer in config.mixer_only_layers:
            return
        if behind:
            self.add_norm("post_attention_norm", layer=layer)
        if before and not config.shared_norm:
            self.add_norm("ffn_norm", layer=layer)
        self._add_block(layer)
        if behind:
            self.add_norm("post_ffn_norm", layer=layer)
        self._add_stream_parts(layer)
        if extra := config.layer_embedding_dim:
            self.add("embedding_gate", (extra, config.d_model), layer=layer)
            self.add("embedding_projection", (config.d_model, extra), layer=layer)
            self.add_norm("post_embedding_norm", layer=layer)
        if config.layer_scale:
            self.add("layer_scale", (1,), layer=layer)

    def _add_block(self, layer: int) -> None:
        """Add the layer's FFN or experts."""
        if self.config.is_dense(layer):
            self._add_expert_of_all(layer, "", self.config.dense_d_ff)
        elif self.config.n_experts:
            self._add_experts(layer)
        else:
            self._add_ffn(layer)

    def _add_attention(self, layer: int) -> None:
        config, spec = self.config, graph_of(self.config).attention(layer)
        self._add_qkv(layer, spec)
        if config.qk_norm and not config.qk_norm_plain:
            whole = config.qk_norm_whole
            self.add_norm("q_norm", spec.q_width if whole else spec.head_dim, layer=layer)
            if spec.kv_from is None:
                self.add_norm("k_norm", spec.kv_width if whole else spec.head_dim, layer=layer)
        if config.attention_sinks:
            self.add("sinks", (config.n_heads,), layer=layer)
        self._add_matrix("o", (config.d_model, spec.q_width), layer)

    def _add_latent(self, layer: int, spec: LatentSpec) -> None:
        config, names, d = self.config, self.layout.names, self.config.d_model
        h, rank = config.n_heads, spec.rank
        if spec.query_rank:
            self.add("q_down", (spec.query_rank, d), layer=layer)
            self.add_norm("q_norm", spec.query_rank, layer=layer)
        key = "q_up" if spec.query_rank and "q_up" in names else "q"
        self.add("q", (h * (spec.key_dim + config.rotated), spec.query_rank or d), layer=layer, key=key)
        self.add("k", (config.head_dim, d), layer=layer)
        self.add_norm("k_norm", rank, layer=layer)
        fused = names.get("kv_up", "").format(layer)
        if fused and (fused in self.present or "k_up by head" not in names):
            of_head = spec.key_dim + spec.value_dim
            keys, values = RowPart(h, 0, spec.key_dim), RowPart(h, spec.key_dim, of_head)
            shape = (h * of_head, rank)
            self.add("k_up", shape, layer=layer, key="kv_up", treatment="transposed by head", part=keys)
            self.add("v", shape, layer=layer, key="kv_up", part=values)
        else:
            for name, rows, cols in (("k_up", rank, spec.key_dim), ("v", spec.value_dim, rank)):
                by_head = f"{name} by head"
                if by_head in names:
                    self.add(name, (h, rows, cols), layer=layer, key=by_head)
                else:
                    self.add(name, (h * rows, cols), layer=layer)
        self.add("o", (d, h * spec.value_dim), layer=layer)

    def add_fused(self, layer: int, key: str, rows: Mapping[str, int], groups: int) -> None:
        """Add the parts of a fused matrix, and of its bias. rows: of each part, in the order in each group."""
        parts, start = dict[str, RowPart](), 0
        for name, n in rows.items():
            parts[name] = RowPart(groups, start, start := start + n // groups)
        self._add_parts(layer, key, parts, sum(rows.values()))

    def _add_parts(self, layer: int, key: str, parts: Mapping[str, RowPart], n_rows: int) -> None:
        for name, part in parts.items():
            self.add(name, (n_rows, self.config.d_model), layer=layer, key=key, part=part)
            if name in self.config.biases:
                self.add(f"{name}_bias", (n_rows,), layer=layer, key=key, part=part)

    def _add_experts(self, layer: int) -> None:
        config, names = self.config, self.layout.names
        e, f, d = config.n_experts, config.d_ff, config.d_model
        self._add_matrix("router", (e, d), layer)
        if config.selection_bias:
            foreign = names["selection_bias"].format(layer)
            self.tensors.append(PlannedTensor(f"{layer}.selection_bias", foreign, (e,)))
        if config.shared_apart:
            self.add("expert_scale", (e,), layer=layer)
            self.add("router_norm", (d,), layer=layer, treatment="over root")
            for norm in ("experts_norm", "post_experts_norm", "post_shared_norm"):
                self.add_norm(norm, layer=layer)
        if "experts.gate_up columns" in names:
            self._add_column_experts(layer, "experts.gate_up columns", [RowPart(f, n, n + 1) for n in range(2)])
            return
        if "experts.gate_up halves" in names:
            self._add_column_experts(layer, "experts.gate_up halves", [RowPart(1, 0, f), RowPart(1, f, 2 * f)])
            self._add_shared_expert(layer)
            return
        both = names.get("experts.gate_up", "").format(layer)
        for part in ("gate", "up", "down_t") if config.gated else ("up", "down_t"):
            treatment: Treatment = "transposed" if part == "down_t" else "as is"
            shape = (d, f) if part == "down_t" else (f, d)
            fused = both in self.present or not {f"experts.{part}", f"expert.{part}"} & names.keys()
            if both and fused and part != "down_t":
                start = f if part == "up" else 0
                self._add_stack(layer, part, both, (2 * f, d), rows=RowPart(1, start, start + f))
                continue
            together, alone = names.get(f"experts.{part}"), names.get(f"expert.{part}")
            if together is None and alone is None:
                raise UnsupportedModelError(
                    f"{config.family} models with experts are not supported in this file format."
                )
            if together is not None and (alone is None or alone.format(layer, 0) not in self.present):
                self._add_stack(layer, part, together.format(layer), shape, treatment)
                continue
            assert alone is not None
            for n in self.experts:
                name = f"{layer}.experts.{n}.{part}"
                self.tensors.append(PlannedTensor(name, alone.format(layer, n), shape, treatment))
                bias = part.removesuffix("_t")
                if bias in config.biases:
                    foreign = _bias_of(alone.format(layer, n))
                    self.tensors.append(PlannedTensor(f"{layer}.experts.{n}.{bias}_bias", foreign, shape[:1]))

        if config.shared_d_ff:
            self._add_shared_expert(layer)

    def _add_stack(
        self, layer: int, part: str, foreign: str, shape: tuple[int, int], treatment: Treatment = "as is",
        rows: RowPart | None = None,
    ) -> None:  # fmt: skip
        """Add a tensor with all experts' matrices, and one with their biases. rows: of a fused tensor."""
        e = self.config.n_experts
        for n in self.experts:
            name = f"{layer}.experts.{n}.{part}"
            self.tensors.append(PlannedTensor(name, foreign, (e, *shape), treatment, rows, n))
        bias = part.removesuffix("_t")
        if bias in self.config.biases:
            size = shape[1] if (part == "down_t" and treatment == "as is") or rows is not None else shape[0]
            for n in self.experts:
                name = f"{layer}.experts.{n}.{bias}_bias"
                self.tensors.append(PlannedTensor(name, _bias_of(foreign), (e, size), part=rows, expert=n))

    def _add_column_experts(self, layer: int, key: str, parts: list[RowPart]) -> None:
        """Add experts whose neurons are columns of one tensor. parts: the columns of gate and of up."""
        names, d, f = self.layout.names, self.config.d_model, self.config.d_ff
        for part, columns in zip(("gate", "up"), parts, strict=True):
            self._add_stack(layer, part, names[key].format(layer), (d, 2 * f), "transposed", columns)
        self._add_stack(layer, "down_t", names["experts.down_t"].format(layer), (f, d))

    def _add_shared_expert(self, layer: int) -> None:
        config, d = self.config, self.config.d_model
        if "shared_gate row" in self.layout.names:
            foreign = self.layout.names["shared_gate row"].format(layer)
            self.tensors.append(PlannedTensor(f"{layer}.shared_gate", foreign, (1, d), expert=0))
        elif config.shared_gated:
            self.add("shared_gate", (d,), layer=layer)
        self._add_expert_of_all(layer, "shared.", config.shared_d_ff)

    def _add_expert_of_all(self, layer: int, prefix: str, f: int) -> None:
        """Add the matrices of the FFN that every token uses, which is counted behind the experts."""
        config, d = self.config, self.config.d_model
        for part in ("gate", "up", "down_t") if config.gated else ("up", "down_t"):
            name = f"experts.{config.n_experts}.{part}"
            if part != "down_t" and f"{prefix}gate_up" in self.layout.names:
                rows = RowPart(1, 0, f) if part == "gate" else RowPart(1, f, 2 * f)
                self.add(name, (2 * f, d), layer=layer, key=f"{prefix}gate_up", part=rows)
            elif part == "down_t":
                self.add(name, (d, f), layer=layer, key=f"{prefix}down_t", treatment="transposed")
            else:
                self.add(name, (f, d), layer=layer, key=f"{prefix}{part}")

    def _add_ffn(self, layer: int) -> None:
        config, d, f = self.config, self.config.d_model, self.config.ffn_width(layer)
        if config.gated and "gate_up" in self.layout.names:
            for number, name in enumerate(("gate", "up")):
                part = RowPart(1, number * f, (number + 1) * f)
                self.add(name, (2 * f, d), layer=layer, key="gate_up", part=part)
        else:
            for name in ("gate", "up") if config.gated else ("up",):
                self._add_matrix(name, (f, d), layer)
        if self._down_t:
            self.add("down_t", (f, d), layer=layer, key="down_t already")
        else:
            self.add("down_t", (d, f), layer=layer, treatment="transposed")
        if "down" in config.biases:
            self.add("down_bias", (d,), layer=layer, key="down_t already" if self._down_t else "down_t")

    def _add_matrix(self, name: str, shape: tuple[int, int], layer: int) -> None:
        self.add(name, shape, layer=layer)
        if name in self.config.biases:
            self.add(f"{name}_bias", shape[:1], layer=layer)

    def _add_qkv(self, layer: int, spec: AttentionSpec) -> None:
        config, layout, d = self.config, self.layout, self.config.d_model
        rows = {"q": spec.q_width}
        if spec.kv_from is None:
            rows |= {"k": spec.kv_width} if spec.v_is_k else {"k": spec.kv_width, "v": spec.kv_width}
        together = layout.names.get("qkv", "").format(layer)
        is_fused = together and (together in self.present or "q" not in layout.names)
        if is_fused and config.gated_attention:
            n, of_head, kv = 2 * spec.q_width, spec.head_dim, spec.kv_width
            gates = {"q": (0, of_head), "attention_gate": (of_head, 2 * of_head)}
            parts = {name: RowPart(config.n_heads, *rows, n_grouped=n) for name, rows in gates.items()}
            parts |= {"k": RowPart(1, n, n + kv), "v": RowPart(1, n + kv, n + 2 * kv)}
            self._add_parts(layer, "qkv", parts, n + 2 * kv)
            return
        if is_fused:
            self.add_fused(layer, "qkv", rows, config.n_kv_heads if layout.qkv_by_kv_head else 1)
            return
        if config.gated_attention and "attention_gate" not in layout.names:
            n = rows.pop("q")
            self.add_fused(layer, "q", {"q": n, "attention_gate": n}, config.n_heads)
        elif config.gated_attention:
            rows["attention_gate"] = rows["q"]
        for name, n in rows.items():
            self._add_matrix(name, (n, d), layer)
