"""The kernel of gated delta nets and Mamba-2 equals the reference, and that the recurrence in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from native_kernels.backend import DeltaInput, DeltaWeights
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import DeltaSpec

OPS = ReferenceOperators()
SPECS = [
    DeltaSpec(2, 4, 8, 12, 4), DeltaSpec(2, 6, 8, 70, 4, "tiled"), DeltaSpec(3, 3, 5, 7, 1), DeltaSpec(1, 2, 16, 64, 2),
    DeltaSpec(2, 2, 128, 128, 4), DeltaSpec(2, 4, 8, 70, 4, mamba=True, norm_groups=2, conv_bias=True),
    DeltaSpec(1, 3, 5, 6, 3, mamba=True),
]  # fmt: skip
CLOSE = 1e-5


def case(spec: DeltaSpec, n_tokens: int) -> tuple[DeltaInput, DeltaWeights, np.ndarray]:
    rng = np.random.default_rng([n_tokens, spec.value_dim])

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    heads = spec.value_heads
    widths = (spec.channels, spec.value_width, heads, 0 if spec.mamba else heads)
    decay = -np.exp(numbers(heads) * 2)
    weights = DeltaWeights(
        numbers(spec.channels * spec.conv_width), decay, numbers(heads), numbers(spec.norm_size), 1e-6,
        numbers(spec.channels) if spec.conv_bias else None, numbers(heads) if spec.mamba else None,
    )  # fmt: skip
    return DeltaInput(*(numbers(n_tokens, width) for width in widths)), weights, numbers(spec.state_size)


def by_hand(x: DeltaInput, w: DeltaWeights, spec: DeltaSpec, state: np.ndarray) -> np.ndarray:
    """Each head and position by itself, in float64."""
    matrices, last = (part.astype(float) for part in spec.parts(state))
    seen, conv = np.concatenate([last, x.qkv]), w.conv.reshape(spec.channels, spec.conv_width).astype(float)
    out = np.zeros((len(x.qkv), spec.value_heads, spec.value_dim))
    gate = x.gate.astype(float) / (1 + np.exp(-x.gate.astype(float)))
    for t in range(len(x.qkv)):
        mixed = (seen[t : t + spec.conv_width].T * conv).sum(axis=1) + (0 if w.conv_bias is None else w.conv_bias)
        mixed = mixed / (1 + np.exp(-mixed))
        for h in range(spec.value_heads):
            of = h % spec.key_heads if spec.order == "tiled" else h // (spec.value_heads // spec.key_heads)
            if spec.mamba:
                k = mixed[spec.value_width + of * spec.key_dim :][: spec.key_dim]
                q = mixed[spec.value_width + spec.key_width + of * spec.key_dim :][: spec.key_dim]
                v = mixed[h * spec.value_dim :][: spec.value_dim]
                step = math.log1p(math.exp(float(x.alpha[t, h] + w.alpha_bias[h])))
                matrices[h] = matrices[h] * math.exp(float(w.decay[h]) * step) + np.outer(k, step * v)
                out[t, h] = matrices[h].T @ q + w.skip[h] * v
                continue
            q = mixed[of * spec.key_dim :][: spec.key_dim]
            k = mixed[spec.key_width + of * spec.key_dim :][: spec.key_dim]
            v = mixed[2 * spec.key_width + h * spec.value_dim :][: spec.value_dim]
            q, k = q / math.sqrt((q * q).sum() + 1e-6) / math.sqrt(spec.key_dim), k / math.sqrt((k * k).sum() + 1e-6)
            matrices[h] *= math.exp(float(w.decay[h]) * math.log1p(math.exp(float(x.alpha[t, h] + w.alpha_bias[h]))))
            change = (v - matrices[h].T @ k) / (1 + math.exp(-float(x.beta[t, h])))
            matrices[h] += np.outer(k, change)
            read = matrices[h].T @ q
            out[t, h] = read / math.sqrt((read * read).mean() + w.epsilon) * w.norm
    gated = out.reshape(gate.shape) * gate
    if not spec.mamba:
        return gated
    groups = gated.reshape(len(gate), spec.norm_groups, -1)
    normed = groups / np.sqrt((groups * groups).mean(axis=-1, keepdims=True) + w.epsilon)
    return normed.reshape(gate.shape) * w.norm


@pytest.mark.parametrize("n_tokens", [1, 2, 9])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_reference_is_the_recurrence_and_the_kernel_the_reference(spec: DeltaSpec, n_tokens: int) -> None:
    x, w, before = case(spec, n_tokens)
    kept, after = before.copy(), np.full_like(before, np.nan)
    wanted = OPS.gated_delta(x, w, spec, before, after)
    exact = by_hand(x, w, spec, before)
    np.testing.assert_allclose(wanted, exact, atol=2e-4 * np.abs(exact).max())
    outputs = []
    for n_threads in (1, 3):
        pool, ours = Pool(n_threads), np.full_like(before, np.nan)
        outputs.append(CpuOperators(pool).gated_delta(x, w, spec, before, ours))
        pool.close()
        np.testing.assert_allclose(ours, after, atol=CLOSE * max(1, np.abs(after).max()))
        np.testing.assert_allclose(outputs[-1], wanted, atol=CLOSE * np.abs(wanted).max() + 2e-5)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(before, kept)


@pytest.mark.parametrize("mamba", [False, True])
def test_positions_at_once_are_positions_one_by_one(mamba: bool) -> None:
    spec = replace(SPECS[0], conv_width=3, mamba=mamba)
    x, w, state = case(spec, 11)
    pool = Pool(2)
    ours = CpuOperators(pool)
    after, other = np.empty_like(state), np.empty_like(state)
    wanted = ours.gated_delta(x, w, spec, state, after)
    rows = []
    for t in range(11):
        rows.append(ours.gated_delta(x.rows(slice(t, t + 1)), w, spec, state, other))
        state, other = other, np.empty_like(state)
    np.testing.assert_array_equal(np.concatenate(rows), wanted)
    np.testing.assert_array_equal(state, after)
    pool.close()


def test_a_gate_multiplies_by_its_logistic_function() -> None:
    rng = np.random.default_rng(0)
    x, gate = (rng.standard_normal((3, 701)).astype(np.float32) * 9 for _ in range(2))
    pool = Pool(2)
    np.testing.assert_allclose(CpuOperators(pool).gated(x, gate), OPS.gated(x, gate), atol=1e-5)
    np.testing.assert_allclose(OPS.gated(x, gate), x / (1 + np.exp(-gate.astype(float))), atol=1e-5)
    pool.close()
