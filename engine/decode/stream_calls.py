"""Lay out the steps between several residual streams of one token (AltUp) as kernel calls. Runs nothing.

EagerLayer of engine/model/transformer.py is the specification.
"""

from __future__ import annotations

from engine.config import ModelConfig
from engine.model.transformer import LEAST_SQUARE
from engine.model.weights import LayerWeights, ModelWeights
from native_kernels.backend import F32
from native_kernels.cpu.attention.norms import RowNorm, norm_calls
from native_kernels.cpu.ffn.elementwise import softcap_calls
from native_kernels.cpu.ffn.streams import correct_calls, predict_calls, scale_alike_calls
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.runtime.call import Call, aligned_empty


class StreamCalls:
    """The N residual streams of one token, and the calls over them.

    Shapes: streams [N, D]. normed [D]: the router's input, written by the caller. scaled [D]: the first stream times
    weights of the layer, after `correct`.
    """

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, products: Products, streams: F32 | None = None
    ) -> None:
        """streams: memory for them [N D]; default: allocate it."""
        n, d = config.n_streams, config.d_model
        self.streams: F32 = aligned_empty((n, d)) if streams is None else streams.reshape(n, d)
        self.normed, self.scaled = Vector(aligned_empty(d)), Vector(aligned_empty(d))
        self._weights, self._products = weights, products
        self._predicted: F32 = aligned_empty((n, d))
        self._modalities = Vector(aligned_empty(n))
        self._mixture: F32 = aligned_empty(n * n)
        self._shares: F32 = aligned_empty(n)

    def start(self) -> list[Call]:
        """Return the calls that make the other streams from the first one; none if it is the only one."""
        calls: list[Call] = []
        for w, stream in zip(self._weights.streams_in, self.streams[1:], strict=True):
            calls += self._products.calls(w, Vector(self.streams[0]), stream, "embedding")
        if self._weights.streams_in:
            calls += scale_alike_calls(self.streams[1:], self.streams[0], LEAST_SQUARE, "embedding")
        return calls

    def predict(self, w: LayerWeights) -> list[Call]:
        """Return the calls that predict all streams, given the normed first one."""
        assert w.stream_prediction is not None, "the layer has several streams"
        calls = self._modalities_of(w)
        calls += self._products.calls(w.stream_prediction, self._modalities, self._mixture, "norms")
        return calls + predict_calls(self.streams, self._mixture, self._predicted)

    def correct(self, w: LayerWeights) -> list[Call]:
        """Return the calls that correct all streams, given the normed first one after the layer's other steps."""
        assert w.stream_correction is not None, "the layer has several streams"
        assert w.stream_scale is not None, "as above"
        calls = self._modalities_of(w)
        calls += self._products.calls(w.stream_correction, self._modalities, self._shares, "norms")
        self.scaled.renew()
        return calls + correct_calls(self.streams, self._shares, self._predicted, w.stream_scale, self.scaled.values)

    def add_beside(self, added: F32, norm: RowNorm) -> list[Call]:
        """Return the calls that norm `added` [D] in place and add it to all streams but the first."""
        calls = norm_calls(added, added, norm)
        for i, stream in enumerate(self.streams[1:], 2):
            calls += norm_calls(stream, stream, None, added=(added,), barrier=i == len(self.streams))
        return calls

    def back(self) -> tuple[list[Call], list[F32]]:
        """Return the calls that bring the other streams back to the first one's space and size, and their rows."""
        rows, calls = self._predicted[1:], []
        for w, stream, out in zip(self._weights.streams_out, self.streams[1:], rows, strict=True):
            calls += self._products.calls(w, Vector(stream), out, "norms")
        return calls + scale_alike_calls(rows, self.streams[0], LEAST_SQUARE, "norms"), list(rows)

    def _modalities_of(self, w: LayerWeights) -> list[Call]:
        assert w.stream_router is not None, "the layer has several streams"
        values = self._modalities.values
        calls = self._products.calls(w.stream_router, self.normed, values, "norms")
        self._modalities.renew()
        return calls + softcap_calls(values, values, 1.0, "norms")
