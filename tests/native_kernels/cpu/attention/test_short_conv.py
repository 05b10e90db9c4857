"""The kernel of gated short convolutions equals the reference, and that the sum in float64."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import ShortConvInput
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import ShortConvSpec

CLOSE = 1e-6  # the kernel adds with one rounding less


@pytest.mark.parametrize("spec", [ShortConvSpec(70, 3), ShortConvSpec(5, 4), ShortConvSpec(128, 1)], ids=str)
def test_the_reference_is_the_sum_and_the_kernel_the_reference(spec: ShortConvSpec) -> None:
    random = np.random.default_rng(3)

    def numbers(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    x = ShortConvInput(*(numbers(9, spec.channels) for _ in range(3)))
    conv, before = numbers(spec.channels * spec.conv_width), numbers(spec.state_size)
    kept, after = before.copy(), np.full_like(before, np.nan)
    wanted = ReferenceOperators().short_conv(x, conv, spec, before, after)
    earlier = before.reshape(spec.conv_width - 1, spec.channels).astype(np.float64)
    seen = np.concatenate([earlier, x.values.astype(np.float64) * x.gate_in])
    for t in range(9):
        mixed = sum(seen[t + j] * conv.reshape(spec.channels, -1)[:, j] for j in range(spec.conv_width))
        np.testing.assert_allclose(wanted[t], mixed * x.gate[t], atol=1e-5)
    np.testing.assert_allclose(after, seen[9:].reshape(-1), atol=CLOSE)
    outputs = []
    for n_threads in (1, 3):
        pool, ours = Pool(n_threads), np.full_like(before, np.nan)
        operators = CpuOperators(pool)
        outputs.append(operators.short_conv(x, conv, spec, before, ours))
        np.testing.assert_allclose(outputs[-1], wanted, atol=10 * CLOSE)
        np.testing.assert_allclose(ours, after, atol=CLOSE)
        state, rows = before, []
        for t in range(9):
            state, last = np.full_like(before, np.nan), state
            rows.append(operators.short_conv(x.rows(slice(t, t + 1)), conv, spec, last, state))
        pool.close()
        np.testing.assert_array_equal(np.concatenate(rows), outputs[-1])
        np.testing.assert_array_equal(state, ours)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(before, kept)
