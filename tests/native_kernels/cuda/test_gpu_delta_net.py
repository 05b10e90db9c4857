"""Gated delta nets, Mamba-2, short convolutions and gates on a GPU against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from native_kernels.backend import DeltaInput, DeltaWeights, ShortConvInput
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.gpu import GpuDelta, GpuDeltaInput, GpuShortConv, GpuStates
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import DeltaSpec, ShortConvSpec
from tests.native_kernels.cuda.on_gpu import OnGpu

pytestmark = pytest.mark.gpu
reference = ReferenceOperators()
SPECS = {
    "Qwen3.5": DeltaSpec(16, 32, 128, 128, 4, "tiled"),
    "Qwen3-Next": DeltaSpec(4, 8, 128, 128, 4),
    "small": DeltaSpec(2, 4, 12, 20, 4),
    "wide values": DeltaSpec(3, 3, 33, 100, 2, "tiled"),
    "narrow": DeltaSpec(1, 2, 1, 1, 1),
    "Nemotron-H": DeltaSpec(8, 128, 128, 64, 4, mamba=True, norm_groups=8, conv_bias=True),
    "Nemotron Nano 2": DeltaSpec(8, 128, 128, 80, 4, mamba=True, norm_groups=8, conv_bias=True),
    "Granite 4": DeltaSpec(1, 48, 128, 64, 4, mamba=True, conv_bias=True),
    "wide state": DeltaSpec(2, 4, 256, 33, 3, mamba=True, norm_groups=2),
    "small Mamba-2": DeltaSpec(3, 6, 33, 20, 2, mamba=True, norm_groups=3, conv_bias=True),
    "narrow Mamba-2": DeltaSpec(1, 2, 1, 1, 1, mamba=True),
}


@pytest.mark.parametrize("how", ["in turn", "swapped", "in place"])
@pytest.mark.parametrize(("n_sequences", "n_each"), [(1, 1), (3, 1), (1, 2), (1, 37), (2, 70)])
@pytest.mark.parametrize("shape", SPECS)
def test_a_delta_net(on_gpu: OnGpu, shape: str, n_sequences: int, n_each: int, how: str) -> None:
    spec, rng = SPECS[shape], np.random.default_rng(4)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    rows, n, size = n_sequences * n_each, spec.value_heads, spec.state_size
    x = DeltaInput(
        normal(rows, spec.channels), normal(rows, spec.value_width), normal(rows, n), normal(rows, n * (not spec.mamba))
    )
    w = DeltaWeights(
        normal(spec.channels * spec.conv_width), -np.exp(normal(n)), normal(n), normal(spec.norm_size), 1e-6,
        normal(spec.channels) if spec.conv_bias else None, normal(n) if spec.mamba else None,
    )  # fmt: skip
    before, wanted = normal(n_sequences, size), np.empty((n_sequences, size), np.float32)
    outs = [
        reference.gated_delta(x.rows(slice(s * n_each, (s + 1) * n_each)), w, spec, before[s], wanted[s])
        for s in range(n_sequences)
    ]
    gpu, put = on_gpu.gpu, on_gpu.put
    first = put(before)
    second = first if how == "in place" else put(np.full_like(before, np.nan))
    ends = (second, first) if how == "swapped" else (first, second)
    states = GpuStates(*ends, swap=put(np.ones(n_sequences, np.int32)) if how == "swapped" else 0, step=size)
    to, prepared = on_gpu.vector(rows * spec.value_width), put(np.full(rows * spec.prepared_width, np.nan, np.float32))
    inputs = GpuDeltaInput(*(put(one if one.size else x.alpha) for one in x), n_each, n_sequences)
    others = [0 if one is None else put(one) for one in (w.conv_bias, w.skip)]
    n_done = max(1, n_sequences * done_bytes(spec))
    done = put(np.zeros(n_done, np.uint8))
    net = GpuDelta(spec, put(w.conv), put(w.decay), put(w.alpha_bias), put(w.norm), w.epsilon, *others, done)
    bits = []
    for _ in range(1 if how == "in place" else 2):  # equal inputs give equal bits, and a launch leaves no trace
        gpu.gated_delta(inputs, net, states, prepared, to)
        bits.append(on_gpu.get(to.values, rows * spec.value_width).reshape(rows, -1))
        after = on_gpu.get(second, n_sequences * size).reshape(n_sequences, size)
    np.testing.assert_allclose(bits[0], np.concatenate(outs), rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(after, wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(bits[0], bits[-1])
    assert not on_gpu.get(done, n_done, np.uint8).any()
    if spec.mamba and rows == 1 and how != "in place":
        on_gpu.check_bytes(to)


@pytest.mark.parametrize("how", ["in turn", "swapped", "in place"])
@pytest.mark.parametrize(("n_sequences", "n_each"), [(1, 1), (3, 1), (1, 2), (1, 37), (2, 70)])
@pytest.mark.parametrize(("channels", "width"), [(2048, 3), (100, 4), (33, 1), (1, 2), (130, 64)])
def test_a_short_convolution(on_gpu: OnGpu, channels: int, width: int, n_sequences: int, n_each: int, how: str) -> None:
    spec, rng, gpu, put = ShortConvSpec(channels, width), np.random.default_rng(5), on_gpu.gpu, on_gpu.put
    rows, size = n_sequences * n_each, spec.state_size
    x = rng.standard_normal((n_sequences, n_each, 3, channels)).astype(np.float32)
    conv = rng.standard_normal(channels * width).astype(np.float32)
    before = rng.standard_normal((n_sequences, size)).astype(np.float32)
    after, outs = np.empty_like(before), []
    for s in range(n_sequences):
        gate, gate_in, values = x[s].swapaxes(0, 1)
        outs.append(reference.short_conv(ShortConvInput(values, gate_in, gate), conv, spec, before[s], after[s]))
    first = put(before)
    second = first if how == "in place" else put(np.full_like(before, np.nan))
    ends = (second, first) if how == "swapped" else (first, second)
    states = GpuStates(*ends, swap=put(np.ones(n_sequences, np.int32)) if how == "swapped" else 0, step=size)
    to = put(np.full(rows * channels, np.nan, np.float32))
    gpu.short_conv(put(x), GpuShortConv(spec, put(conv)), states, to, n_each, n_sequences)
    found = on_gpu.get(to, rows * channels).reshape(rows, channels)
    np.testing.assert_allclose(found, np.concatenate(outs), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(on_gpu.get(second, n_sequences * size), after.reshape(-1))


@pytest.mark.parametrize("n", [1, 31, 64, 1000, 4096])
def test_a_gate(on_gpu: OnGpu, n: int) -> None:
    rng = np.random.default_rng(n)
    values, gate = (rng.standard_normal(n).astype(np.float32) * 3 for _ in range(2))
    x = on_gpu.vector(n)
    on_gpu.gpu.copy(on_gpu.put(values), x.values, n)
    on_gpu.gpu.gated(x, on_gpu.put(gate))
    np.testing.assert_allclose(on_gpu.get(x.values, n), reference.gated(values, gate), rtol=1e-5, atol=1e-6)
    on_gpu.check_bytes(x)
