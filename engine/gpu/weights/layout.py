"""Lay out a model on the GPU: addresses, and the uploads to them.

uploads.py uploads, loading.py owns the memory. The layout is deterministic, so a first pass at address 0 gives the
sizes to allocate, and a second pass gives the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, ModelConfig
from engine.gpu.weights.layers import (
    GpuConvolution,
    GpuCopy,
    GpuDeltaNet,
    GpuExpertFfn,
    GpuInjection,
    GpuLatentMatrices,
    GpuLayer,
    GpuLayerInputs,
    GpuLowRank,
    GpuLowRankResidual,
    GpuMixing,
    GpuModel,
    GpuPredictor,
    GpuRowWiseFfn,
)
from engine.gpu.weights.uploads import Numbers, Rows, Upload
from engine.model.graph import graph_of
from engine.model.weights import FfnWeights, LayerWeights, ModelWeights
from engine.placement.gpu_bytes import SCALE_GROUP, aligned
from engine.sparsity.placement import Placement
from engine.sparsity.predictor import Predictor
from engine.sparsity.predictor_kinds import LayerPredictor
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.gpu import GpuBlock, GpuDelta, GpuExperts, GpuKv, GpuMatrix, GpuNorm, GpuShortConv, Norm
from native_kernels.cuda.layouts import GPU_CODECS, gpu_codec, plane_row_bytes
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import DeltaSpec, ShortConvSpec

_KV_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


class Region:
    """Consecutive addresses from `base` on, aligned to 256 bytes, and the uploads (`jobs`) to them."""

    def __init__(self, base: int) -> None:
        self._base = base
        self.n_bytes = 0
        self.jobs: list[Upload] = []

    def take(self, n_bytes: int) -> int:
        address = self._base + self.n_bytes
        self.n_bytes += aligned(n_bytes)
        return address

    def matrix(self, source: PackedMatrix, ids: I32 | None = None) -> GpuMatrix:
        matrix = self._empty(source.n_rows if ids is None else len(ids), source)
        self.jobs.append(Rows(source, matrix, ids))
        return matrix

    def optional(self, source: PackedMatrix | None) -> GpuMatrix | None:
        return None if source is None else self.matrix(source)

    def experts(self, blocks: Sequence[FfnWeights]) -> GpuExperts | None:
        """Lay out experts in slots, in this order; return None without any."""
        if not blocks:
            return None
        first = blocks[0]
        is_transposed = first.down is None

        def stacked(name: str) -> GpuMatrix | None:
            one = getattr(first, name)
            return None if one is None else self._empty(len(blocks) * one.n_rows, one)

        def biases(name: str) -> int:
            one = getattr(first, name)
            return 0 if one is None else self.take(len(blocks) * one.nbytes)

        up, down = stacked("up"), stacked("down_t" if is_transposed else "down")
        assert up is not None, "an expert has up"
        assert down is not None, "an expert has down"
        found = GpuExperts(
            n_slots=len(blocks), width=first.up.n_rows, gate=stacked("gate"), up=up, down=down,
            down_is_transposed=is_transposed, gate_bias=biases("gate_bias"), up_bias=biases("up_bias"),
            down_bias=biases("down_bias"),
        )  # fmt: skip
        for slot, block in enumerate(blocks):
            self.jobs += expert_uploads(block, found, slot)
        return found

    def _empty(self, n_rows: int, like: PackedMatrix) -> GpuMatrix:
        """Lay out a matrix of n_rows rows, with the columns and codec of `like`."""
        codec = gpu_codec(like.codec)
        planes = tuple(self.take(n_rows * width) for width in plane_row_bytes(codec, like.n_cols))
        return GpuMatrix(n_rows, like.n_cols, codec, planes)

    def vector(self, values: F32 | None) -> int:
        return 0 if values is None else self.numbers(np.ascontiguousarray(values, np.float32))

    def numbers(self, values: NDArray[Any]) -> int:
        address = self.take(values.nbytes)
        self.jobs.append(Numbers(values, address))
        return address

    def norm(self, weight: F32 | None, bias: F32 | None, kind: Norm, eps: float) -> GpuNorm | None:
        if weight is None:
            return None
        return GpuNorm(kind, self.vector(weight), self.vector(bias), eps)


class GpuLayout:
    """The layout of a model without its predictors.

    model: its GPU addresses. jobs: its uploads. part_bytes: bytes by the placement's parts.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        placement: Placement,
        hot: Sequence[I32],
        cache: tuple[int, int, int],
        kv_codec: KvCodec,
        bases: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """hot: [L], each layer's neurons in the order of their slots: first as many in VRAM as the placement has hot
        neurons, the rest zero-copy. cache: positions in layers without a window, positions in those with one, and
        states in a layer that has states. bases: addresses of weights, of the KV cache, of zero-copy neurons.
        """
        self._config, self._source = config, weights
        self._weights, self._kv, self._reached = (Region(base) for base in bases)
        *self._positions, self._n_states = cache
        self._kv_codec = kv_codec
        self.part_bytes = dict.fromkeys(("attention", "kv_cache", "head", "hot"), 0)
        layers: list[GpuLayer | None] = []
        self._layers = layers  # so far
        tied = set(placement.attention[graph_of(config).tied_from :])
        assert len(tied) < 2, "layers that share keys and values have one device"
        for i, layer in enumerate(weights.layers):
            if placement.attention[i] != "gpu":
                layers.append(None)
                continue
            layers.append(self._layer(i, layer, hot[i], len(placement.hot[i])))
        inputs = self._inputs() if None not in layers else None
        before = self._weights.n_bytes
        on_gpu = placement.head == "gpu"
        self.model = GpuModel(
            layers=tuple(layers),
            head=self._weights.matrix(weights.head) if on_gpu else None,
            final_norm=self._norm(weights.final_norm, weights.final_norm_bias) if on_gpu else None,
            project_out=self._weights.optional(weights.project_out) if on_gpu else None,
            inputs=inputs,
            streams_out=tuple(self._weights.matrix(one) for one in weights.streams_out) if on_gpu else (),
            head_bias=self._weights.vector(weights.head_bias) if on_gpu else 0,
        )
        self.part_bytes["head"] = self._weights.n_bytes - before

    @property
    def jobs(self) -> list[Upload]:
        return self._weights.jobs + self._reached.jobs

    @property
    def n_bytes(self) -> tuple[int, int, int]:
        """Bytes of weights, of the KV cache, and of pinned memory."""
        return self._weights.n_bytes, self._kv.n_bytes, self._reached.n_bytes

    # --- layers

    def _layer(self, i: int, w: LayerWeights, hot: I32, n_hot: int) -> GpuLayer:
        if w.experts:
            before = self._weights.n_bytes
            ffn = self._experts(w, experts_of(hot, self._config.d_ff))
            self.part_bytes["hot"] += self._weights.n_bytes - before
            n_resident = 0 if ffn.resident is None else ffn.resident.n_slots
            return self._with_attention(i, w, experts=ffn, has_cold=n_resident < len(w.routed))
        return self._with_neurons(i, w, hot, n_hot)

    def _with_neurons(self, i: int, w: LayerWeights, hot: I32, n_hot: int) -> GpuLayer:
        ffn, d_ff = w.ffns[0], self._config.ffn_width(i)
        is_whole = ffn.down is not None and len(hot) == d_ff
        some = hot if ffn.down is None else hot[:0]
        assert len(some) in (0, d_ff) or not graph_of(self._config).ffn(i).spec.cutoff, "a cut-off needs all gates"
        before = self._weights.n_bytes
        block = self._block(ffn, some[:n_hot], self._weights)
        reached = self._block(ffn, some[n_hot:], self._reached)
        hot_bits = self._weights.numbers(bits_of(some, d_ff)) if len(some) else 0
        whole = self._row_wise(ffn) if is_whole else None
        self.part_bytes["hot"] += self._weights.n_bytes - before
        return self._with_attention(
            i, w, block=block, zero_copy=reached, hot_bits=hot_bits, whole=whole,
            has_cold=not is_whole and len(some) < d_ff,
        )  # fmt: skip

    def _with_attention(self, i: int, w: LayerWeights, **ffn: Any) -> GpuLayer:
        """Lay out attention and norms. ffn: the other fields of GpuLayer."""
        before, put = self._weights.n_bytes, self._weights
        fields = {"block": None, "hot_bits": 0, "whole": None, **ffn}
        q, k, v = put.matrix(w.q), put.optional(w.k), put.optional(w.v)
        recurs, latent = w.conv is not None, self._config.latent
        eps = self._config.norm_eps if latent is None else latent.epsilon
        layer = GpuLayer(
            q=q, k=k, v=v, o=put.matrix(w.o),
            q_bias=put.vector(w.q_bias), k_bias=put.vector(w.k_bias), v_bias=put.vector(w.v_bias),
            o_bias=put.vector(w.o_bias),
            attention_norm=self._norm(w.attention_norm, w.attention_norm_bias),
            post_attention_norm=self._norm(w.post_attention_norm),
            ffn_norm=self._norm(w.ffn_norm, w.ffn_norm_bias),
            post_ffn_norm=self._norm(w.post_ffn_norm),
            q_norm=put.norm(w.q_norm, None, "rms", eps), k_norm=put.norm(w.k_norm, None, "rms", eps),
            kv=None if recurs or not w.q.n_rows else self._keys_and_values(i), predictor=None,
            down_bias=put.vector(w.down_bias),
            sinks=put.vector(w.sinks), attention_gate=None if recurs else put.optional(w.attention_gate),
            delta=None if w.alpha is None else self._delta_net(w), convolution=self._convolution(w),
            latent=None if w.k_up is None else GpuLatentMatrices(put.optional(w.q_down), put.matrix(w.k_up)),
            scale=1.0 if w.layer_scale is None else float(w.layer_scale[0]),
            router_norm=self._norm(w.router_norm), experts_norm=self._norm(w.experts_norm),
            post_experts_norm=self._norm(w.post_experts_norm), post_shared_norm=self._norm(w.post_shared_norm),
            injection=self._injection(w), mixing=self._mixing(w), laurel=self._laurel(w), **fields,
        )  # fmt: skip
        self.part_bytes["attention"] += self._weights.n_bytes - before
        return layer

    def _injection(self, w: LayerWeights) -> GpuInjection | None:
        if w.embedding_gate is None or w.embedding_projection is None:
            return None
        gate, projection = self._weights.matrix(w.embedding_gate), self._weights.matrix(w.embedding_projection)
        return GpuInjection(gate, projection, self._norm(w.post_embedding_norm))

    def _mixing(self, w: LayerWeights) -> GpuMixing | None:
        if w.stream_router is None or w.stream_prediction is None or w.stream_correction is None:
            return None
        norm, put = self._norm(w.stream_router_norm), self._weights
        assert norm is not None, "the router has one"
        tables = (ReferenceOperators().rows(one, np.arange(one.n_rows)) for one in (w.stream_prediction,
                                                                                   w.stream_correction))  # fmt: skip
        mixture, shares = (put.vector(one) for one in tables)
        return GpuMixing(norm, put.matrix(w.stream_router), mixture, shares, put.vector(w.stream_scale))

    def _laurel(self, w: LayerWeights) -> GpuLowRankResidual | None:
        if w.laurel_left is None or w.laurel_right is None:
            return None
        left, right = self._weights.matrix(w.laurel_left), self._weights.matrix(w.laurel_right)
        return GpuLowRankResidual(left, right, self._norm(w.laurel_norm))

    def _inputs(self) -> GpuLayerInputs | None:
        """Lay out what computes the layers' inputs; None for a model without, or in a codec that only the CPU reads."""
        projection, before, streams = self._source.layer_projection, self._weights.n_bytes, self._source.streams_in
        if projection is None or any(gpu_codec(one.codec) not in GPU_CODECS for one in (projection, *streams)):
            return None
        weight, epsilon = self._source.layer_projection_norm_of(self._config)
        norm = self._weights.norm(weight, None, "rms", epsilon)
        assert norm is not None, "it has a weight"
        matrices = [self._weights.matrix(one) for one in (projection, *streams)]
        found = GpuLayerInputs(matrices[0], norm, tuple(matrices[1:]))
        self.part_bytes["attention"] += self._weights.n_bytes - before
        return found

    def _block(self, ffn: FfnWeights, hot: I32, matrices: Region) -> GpuBlock | None:
        """Lay out neurons with their matrices in the region `matrices`; biases and ids are always in VRAM."""
        if not len(hot):
            return None
        assert ffn.down_t is not None, "neurons are split only if down is transposed"
        return GpuBlock(
            gate=None if ffn.gate is None else matrices.matrix(ffn.gate, hot),
            up=matrices.matrix(ffn.up, hot),
            down_t=matrices.matrix(ffn.down_t, hot),
            gate_bias=0 if ffn.gate_bias is None else self._weights.vector(ffn.gate_bias[hot]),
            up_bias=0 if ffn.up_bias is None else self._weights.vector(ffn.up_bias[hot]),
            neuron_in=self._weights.numbers(hot),
            fired=self._weights.numbers(np.zeros(len(hot), np.uint32)),
        )

    def _experts(self, w: LayerWeights, ids: I32) -> GpuExpertFfn:
        """Lay out the router, the experts `ids` in slots, and the shared expert."""
        put, config = self._weights, self._config
        ids = ids if w.routed else ids[:0]
        gate = None if w.shared_gate is None else PackedMatrix(1, len(w.shared_gate), "f32", w.shared_gate[None])
        return GpuExpertFfn(
            router=put.optional(w.router),
            router_bias=put.vector(w.router_bias),
            selection_bias=put.vector(w.selection_bias),
            scale=put.vector(w.expert_scale),
            slot_of=put.numbers(slots_of(ids, config.n_experts)),
            resident=put.experts([w.experts[i] for i in ids.tolist()]),
            shared=put.experts([] if w.shared is None else [w.shared]),
            shared_gate=put.optional(gate),
            shared_weight=0 if w.routed else put.numbers(np.ones(1, np.float32)),
        )

    def _row_wise(self, ffn: FfnWeights) -> GpuRowWiseFfn:
        assert ffn.down is not None, "down is row-wise"
        return GpuRowWiseFfn(
            gate=self._weights.optional(ffn.gate),
            up=self._weights.matrix(ffn.up),
            down=self._weights.matrix(ffn.down),
            gate_bias=self._weights.vector(ffn.gate_bias),
            up_bias=self._weights.vector(ffn.up_bias),
        )

    def _norm(self, weight: F32 | None, bias: F32 | None = None, kind: Norm | None = None) -> GpuNorm | None:
        return self._weights.norm(weight, bias, kind or self._config.norm, self._config.norm_eps)

    def _delta_net(self, w: LayerWeights) -> GpuDeltaNet:
        spec, put = self._config.delta, self._weights
        assert spec is not None, "the layer has a state"
        projections = tuple(put.matrix(one) for one in w.delta_projections)
        of = w.delta(spec.epsilon or self._config.norm_eps)
        conv, decay, alpha_bias, norm, conv_bias, skip = (
            put.vector(one) for one in (of.conv, of.decay, of.alpha_bias, of.norm, of.conv_bias, of.skip)
        )
        done = put.numbers(np.zeros(done_bytes(spec), np.uint8)) if spec.mamba else 0
        delta = GpuDelta(spec, conv, decay, alpha_bias, norm, of.epsilon, conv_bias, skip, done)
        return GpuDeltaNet(projections, delta, self._states(spec))

    def _convolution(self, w: LayerWeights) -> GpuConvolution | None:
        spec = self._config.short_conv
        if spec is None or w.conv is None:
            return None
        return GpuConvolution(GpuShortConv(spec, self._weights.vector(w.conv)), self._states(spec))

    def _states(self, spec: DeltaSpec | ShortConvSpec) -> tuple[int, ...]:
        before = self._kv.n_bytes
        states = tuple(self._kv.take(4 * spec.state_size) for _ in range(self._n_states))
        self.part_bytes["kv_cache"] += self._kv.n_bytes - before
        return states

    def _keys_and_values(self, layer: int) -> GpuKv:
        spec, codec = graph_of(self._config).attention(layer), self._kv_codec
        if spec.kv_from is not None:
            source = self._layers[spec.kv_from]
            assert source is not None, "layers that share keys and values have one device"
            assert source.kv is not None, "the layer has keys and values"
            return source.kv
        positions = self._positions[spec.local]
        rows = spec.n_kv_heads * positions
        n_bytes = rows * spec.head_dim * _KV_BYTES[codec]
        scales = rows * -(-spec.head_dim // SCALE_GROUP) * 2 if codec == "q8_0" else 0
        before = self._kv.n_bytes
        keys, key_scales = values, value_scales = self._kv.take(n_bytes), self._kv.take(scales) if scales else 0
        if self._config.latent is None:
            values, value_scales = self._kv.take(n_bytes), self._kv.take(scales) if scales else 0
        self.part_bytes["kv_cache"] += self._kv.n_bytes - before
        return GpuKv(codec, keys, values, key_scales, value_scales, spec.n_kv_heads, spec.head_dim, positions)


def lay_out_predictors(predictor: Predictor, weights: ModelWeights, model: GpuModel, region: Region) -> GpuModel:
    """Return the model with predictors for its GPU layers, except those with row-wise down."""
    layers: list[GpuLayer | None] = []
    for layer, w, of_layer in zip(model.layers, weights.layers, predictor.layers, strict=True):
        uses = layer is not None and w.ffns[0].down is None
        layers.append(replace(layer, predictor=_predictor(of_layer, region)) if layer is not None and uses else layer)
    return replace(model, layers=tuple(layers))


def _predictor(predictor: LayerPredictor, region: Region) -> GpuPredictor:
    low_rank, copy = predictor.low_rank, predictor.copy
    return GpuPredictor(
        low_rank=None
        if low_rank is None
        else GpuLowRank(
            a=region.matrix(low_rank.a),
            b=region.matrix(low_rank.b),
            a_bias=region.vector(low_rank.a_bias),
            b_bias=region.vector(low_rank.b_bias),
            threshold=low_rank.threshold,
        ),
        copy=None
        if copy is None
        else GpuCopy(region.matrix(copy.matrix), region.vector(copy.bias), copy.threshold, copy.signed_input),
        reads_residual=predictor.input == "residual",
    )


def experts_of(neurons: I32, width: int) -> I32:
    """Return the experts of these neurons, which must form whole consecutive experts."""
    return np.ascontiguousarray(neurons[::width] // width, np.int32)


def slots_of(experts: I32, n_experts: int) -> I32:
    """Return i32 [E], the slot of each expert; -1: none. experts: in the order of slots, negative: an empty slot."""
    found = np.full(n_experts, -1, np.int32)
    slots = np.flatnonzero(experts >= 0)
    found[experts[slots]] = slots
    return found


def expert_uploads(block: FfnWeights, to: GpuExperts, slot: int) -> list[Upload]:
    """Return the uploads that move an expert into a slot."""
    uploads: list[Upload] = []
    for source, matrix in ((block.gate, to.gate), (block.up, to.up), (block.down or block.down_t, to.down)):
        if source is not None and matrix is not None:
            widths = plane_row_bytes(matrix.codec, matrix.n_cols)
            first = slot * source.n_rows
            planes = tuple(at + first * width for at, width in zip(matrix.planes, widths, strict=True))
            uploads.append(Rows(source, replace(matrix, n_rows=source.n_rows, planes=planes)))
    for bias, at in ((block.gate_bias, to.gate_bias), (block.up_bias, to.up_bias), (block.down_bias, to.down_bias)):
        if bias is not None:
            uploads.append(Numbers(np.ascontiguousarray(bias, np.float32), at + slot * bias.nbytes))
    return uploads


def bits_of(neurons: I32, n_neurons: int) -> NDArray[np.uint32]:
    """Return u32 [F / 32 rounded up] with a bit set for each of the neurons."""
    mask = np.zeros(-(-n_neurons // 32) * 32, np.bool_)
    mask[neurons] = True
    return np.packbits(mask, bitorder="little").view("<u4").astype(np.uint32)
