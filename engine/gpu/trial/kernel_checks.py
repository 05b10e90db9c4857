"""Check every family of GPU kernels against NumPy on small cases, with this GPU and driver.

Each check returns the failure in words, or "". Speed is not checked, and edge cases are left to the tests. Results
from rounded numbers are compared by the GPU's own rounded numbers, which are checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.gpu.trial.trial import GpuTrial
from engine.model.router import chosen_of
from native_kernels.backend import F32, DeltaInput, DeltaWeights, Scoring, ShortConvInput
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.gpu import (
    Gpu,
    GpuAngles,
    GpuBlock,
    GpuChoice,
    GpuDelta,
    GpuDeltaInput,
    GpuHeads,
    GpuKv,
    GpuLatent,
    GpuNorm,
    GpuScoring,
    GpuShortConv,
    GpuStates,
    GpuStreams,
    GpuVector,
)
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import ONE_GROUP, DeltaSpec, ExpertGroups, LatentSpec, ShortConvSpec, Weighing

_OPS = ReferenceOperators()
_WIDTH = 512  # columns: two superblocks
_ROWS = 70  # not a multiple of anything
_CODECS = tuple(codec for codec in UNIT_COLUMNS if codec not in ("f32", "bf16"))
_HALVES = {  # offsets of the float16 scales in blocks of codecs that cannot be encoded
    "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "iq4_nl": (0,), "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2),
    "q5_k": (0, 2), "q6_k": (208,), "iq4_xs": (0,),
}  # fmt: skip
_CLOSE = 2e-5  # relative to the summed magnitudes; thirty times the rounding of float32
_SOFT = 2e-3  # for values computed with the GPU's exponential


def check_products(trial: GpuTrial) -> str:
    """Check rounding, products and predictor bits in every codec."""
    x = trial.numbers(_WIDTH)
    vector = trial.vector(x)
    trial.gpu.quantise(vector)
    if wrong := _rounded_wrongly(trial, vector, x):
        return wrong
    for codec in _CODECS:
        rows = _rows_of(trial, codec, _ROWS, _WIDTH)
        matrix = trial.matrix(rows, codec, _WIDTH)
        weights = ROW_CODECS[codec].decode(rows)
        seen = trial.as_multiplied(vector, matrix)
        bias = trial.numbers(_ROWS)
        out = trial.room(4 * _ROWS)
        trial.gpu.multiply([matrix], vector, [out], [trial.put(bias)])
        wanted = weights.astype(np.float64) @ seen + bias
        size = np.abs(weights) @ np.abs(seen) + np.abs(bias)
        if _differs(trial.take(out, _ROWS), wanted, size, _CLOSE):
            return f"products of {codec} rows are wrong"
        bits = trial.room(4 * _words(_ROWS))
        trial.gpu.expect(matrix, vector, 0, 0.0, bits)
        product = weights.astype(np.float64) @ seen
        unsure = np.abs(product) < _CLOSE * size
        if np.any((_bits(trial.take(bits, _words(_ROWS), np.uint32), _ROWS) != (product >= 0)) & ~unsure):
            return f"expectations from {codec} rows are wrong"
    return ""


def check_neurons(trial: GpuTrial) -> str:
    """Check hidden values of selected neurons, their counts, and the sum of their rows of down."""
    slots, neurons = 40, 64
    for codec in ("f16", "q4_0"):
        gate, up, down = (_rows_of(trial, codec, slots, _WIDTH) for _ in range(3))
        places = trial.random.permutation(neurons)[:slots].astype(np.int32)
        fired, counts, h = trial.room(4 * slots), trial.room(12), trial.room(4 * slots)
        block = GpuBlock(
            trial.matrix(gate, codec, _WIDTH), trial.matrix(up, codec, _WIDTH), trial.matrix(down, codec, _WIDTH),
            0, 0, trial.put(places), fired,
        )  # fmt: skip
        wanted_bits = trial.random.integers(0, 1 << 32, _words(neurons), dtype=np.uint32)
        asked = _bits(wanted_bits, neurons)[places]
        vector = trial.vector(trial.numbers(_WIDTH))
        trial.gpu.quantise(vector)
        assert block.gate is not None
        seen = trial.as_multiplied(vector, block.gate)
        first = np.where(asked, ROW_CODECS[codec].decode(gate).astype(np.float64) @ seen, 0.0)
        second = ROW_CODECS[codec].decode(up).astype(np.float64) @ seen
        hidden = np.where(first > 0, first * second, 0.0)
        bits = trial.put(wanted_bits)
        for gate_first in (False, True):
            trial.gpu.fill(counts, 0, 12)
            trial.gpu.fill(fired, 0, 4 * slots)
            trial.gpu.hidden(block, vector, bits, "relu", 0.0, h, counts, gate_first)
            found = trial.take(h, slots)
            if _differs(found, hidden, 1 + np.abs(hidden), 1e-3):
                return f"neurons of {codec} rows are wrong"
            gate_active = np.count_nonzero(first > 0)
            if trial.take(counts, 3, np.uint32).tolist() != [np.count_nonzero(asked), gate_active, gate_active]:
                return f"neurons of {codec} rows are counted wrong"
        n_parts = trial.gpu.down_parts(block)
        parts, stream = trial.room(4 * n_parts * _WIDTH), trial.put(np.zeros(_WIDTH, np.float32))
        trial.gpu.down(block, h, parts)
        trial.gpu.advance(stream, _WIDTH, parts, n_parts)
        rows = ROW_CODECS[codec].decode(down)
        if _differs(trial.take(stream, _WIDTH), found @ rows.astype(np.float64), np.abs(found) @ np.abs(rows), _CLOSE):
            return f"sums over neurons of {codec} rows are wrong"
    return ""


def check_stream(trial: GpuTrial) -> str:
    """Check sums into the residual stream, norms, activations and softcap."""
    x, parts, other = trial.numbers(_WIDTH), trial.numbers(3 * _WIDTH), trial.numbers(_WIDTH)
    weight = trial.numbers(_WIDTH)
    stream, to = trial.put(x), trial.vector(np.zeros(_WIDTH, np.float32))
    norm = GpuNorm("rms", trial.put(weight), 0, 1e-5)
    trial.gpu.advance(stream, _WIDTH, trial.put(parts), 3, [trial.put(other)], norm, to)
    wanted = x + parts.reshape(3, -1).sum(axis=0) + other
    if _differs(trial.take(stream, _WIDTH), wanted, 1 + np.abs(wanted), _CLOSE):
        return "sums of the layers are wrong"
    normed = _OPS.rms_norm(wanted, weight, 1e-5)
    if _differs(trial.take(to.values, _WIDTH), normed, 1 + np.abs(normed), 1e-4):
        return "norms are wrong"
    if wrong := _rounded_wrongly(trial, to, trial.take(to.values, _WIDTH)):
        return wrong
    first, up, counts = trial.put(x), trial.put(other), trial.put(np.zeros(3, np.uint32))
    trial.gpu.activate(first, up, _WIDTH, "silu", 0.0, to, counts)
    hidden = _OPS.silu(x) * other
    if _differs(trial.take(to.values, _WIDTH), hidden, 1 + np.abs(hidden), _SOFT):
        return "activations are wrong"
    trial.gpu.softcap(first, _WIDTH, 2.0)
    if _differs(trial.take(first, _WIDTH), _OPS.softcap(x, 2.0), np.ones(_WIDTH), _SOFT):
        return "capped numbers are wrong"
    return ""


def check_attention(trial: GpuTrial) -> str:
    """Check RoPE, the KV cache and attention over some positions in sequence."""
    heads, kv_heads, size, capacity, positions = 4, 2, 64, 16, 6
    angles, frequencies = trial.room(4 * size), 10000.0 ** -(np.arange(size // 2) / (size / 2))
    turns = trial.put(frequencies)
    kv = GpuKv(
        "f16", trial.room(2 * kv_heads * capacity * size), trial.room(2 * kv_heads * capacity * size), 0, 0,
        kv_heads, size, capacity,
    )  # fmt: skip
    kept: list[list[F32]] = [[], []]
    to = trial.vector(np.zeros(heads * size, np.float32))
    for position in range(positions):
        state = trial.put(np.array([position], np.int32))
        qkv = trial.numbers((heads + 2 * kv_heads) * size)
        at = trial.put(qkv)
        trial.gpu.angles(state, turns, 1.0, size // 2, angles)
        trial.gpu.rotate_and_store(at, GpuHeads(heads), kv, state, GpuAngles(angles, size // 2, "halves"))
        found = []
        for scoring in (GpuScoring(size**-0.5), GpuScoring(size**-0.5, window=4, chunked=True)):
            trial.gpu.attend(at, heads, kv, state, to, scoring)
            found.append(trial.take(to.values, heads * size))
        rows = qkv.reshape(1, -1, size)
        angle = position * frequencies
        cosines, sines = (part(angle).astype(np.float32)[None] for part in (np.cos, np.sin))
        q = _OPS.rope(rows[:, :heads], cosines, sines)
        kept[0].append(_half(_OPS.rope(rows[:, heads : heads + kv_heads], cosines, sines)))
        kept[1].append(_half(rows[:, heads + kv_heads :]))
        keys, values = (np.ascontiguousarray(np.concatenate(part)) for part in kept)
        wanted = [_OPS.attention(q, keys, values, Scoring(window=n, chunked=True)).reshape(-1) for n in (None, 4)]
        if any(_differs(*both, np.full(heads * size, 4.0), _SOFT) for both in zip(found, wanted, strict=True)):
            return f"attention over {position + 1} positions is wrong"
    return ""


def check_latent(trial: GpuTrial) -> str:
    """Check latent attention, whose heads are wide, over some positions in sequence."""
    spec, heads, rotated, capacity = LatentSpec(rank=256, key_dim=64, value_dim=32), 3, 32, 16
    width, turns = spec.rank + rotated, 10000.0 ** -(np.arange(rotated // 2) / (rotated / 2))
    frequencies, weight, keys_at = trial.put(turns), trial.numbers(spec.rank), trial.room(2 * capacity * width)
    kv = GpuKv("f16", keys_at, keys_at, 0, 0, 1, width, capacity)
    up, down = (
        _rows_of(trial, "f16", heads * n, m) for n, m in ((spec.rank, spec.key_dim), (spec.value_dim, spec.rank))
    )
    k_up, v = trial.matrix(up, "f16", spec.key_dim), trial.matrix(down, "f16", spec.rank)
    of_keys, of_values = (
        ROW_CODECS["f16"].decode(rows).reshape(heads, -1, n) for rows, n in ((up, spec.key_dim), (down, spec.rank))
    )
    plain, mixed = (trial.vector(np.zeros(heads * n, np.float32)) for n in (spec.key_dim, spec.rank))
    norm, queries = GpuNorm("rms", trial.put(weight), 0, 1e-6), trial.room(4 * heads * width)
    angles, out, scale = trial.room(4 * rotated), trial.room(4 * heads * spec.value_dim), 0.1 * width**-0.5
    kept: list[F32] = []
    for position in range(3):
        q, k = trial.numbers(heads * (spec.key_dim + rotated)), trial.numbers(width)
        state = trial.put(np.array([position], np.int32))
        trial.gpu.angles(state, frequencies, 1.0, rotated // 2, angles)
        numbers = GpuLatent(spec, heads, rotated, trial.put(q), trial.put(k), queries, norm)
        trial.gpu.place_latent(numbers, plain, kv, state, GpuAngles(angles, rotated // 2, "halves"))
        trial.gpu.multiply_each(k_up, heads, plain, queries, width)
        trial.gpu.attend(queries, heads, kv, state, mixed, GpuScoring(scale))
        trial.gpu.multiply_each(v, heads, mixed, out, spec.value_dim)
        cosines, sines = (part(position * turns).astype(np.float32)[None] for part in (np.cos, np.sin))
        of_query, of_key = q.reshape(1, heads, -1), k.reshape(1, 1, -1)
        roped = [_OPS.rope(x[..., -rotated:], cosines, sines) for x in (of_query, of_key)]
        kept.append(_half(np.concatenate([_OPS.rms_norm(of_key[..., : spec.rank], weight, 1e-6), roped[1]], axis=-1)))
        absorbed = np.einsum("hrk,thk->thr", of_keys, of_query[..., : spec.key_dim]).astype(np.float32)
        keys = np.concatenate(kept)
        how = Scoring(scale, None, None, None)
        seen = _OPS.attention(np.concatenate([absorbed, roped[0]], axis=-1), keys, keys, how)[0, :, : spec.rank]
        wanted = np.einsum("hvr,hr->hv", of_values, seen).reshape(-1)
        size = np.einsum("hvr,hr->hv", np.abs(of_values), np.abs(seen)).reshape(-1) + 1
        if _differs(trial.take(out, len(wanted)), wanted, size, _SOFT):
            return f"latent attention over {position + 1} positions is wrong"
    return ""


def check_delta_net(trial: GpuTrial) -> str:
    """Check a gated delta net and a Mamba-2, for one position and then for several."""
    spec = DeltaSpec(key_heads=2, value_heads=4, key_dim=32, value_dim=64, conv_width=4)
    return _recurs_wrongly(trial, spec) or _recurs_wrongly(trial, replace(spec, mamba=True, norm_groups=2))


def _recurs_wrongly(trial: GpuTrial, spec: DeltaSpec) -> str:
    sizes = spec.channels * spec.conv_width, spec.value_heads, spec.value_heads, spec.norm_size, spec.value_heads
    conv, decay, alpha_bias, norm, skip = (trial.numbers(n) for n in sizes)
    weights = DeltaWeights(conv, -np.exp(decay), alpha_bias, norm, 1e-5, None, skip if spec.mamba else None)
    at = [trial.put(one) for one in weights[:4]]
    done = trial.put(np.zeros(max(1, done_bytes(spec)), np.uint8))
    of_gpu = GpuDelta(spec, at[0], at[1], at[2], at[3], weights.epsilon, 0, trial.put(skip), done)
    state, after = (np.zeros(spec.state_size, np.float32) for _ in range(2))
    first, second = trial.put(state), trial.put(state)
    for n in (1, 5):
        widths = spec.channels, spec.value_width, spec.value_heads, 0 if spec.mamba else spec.value_heads
        inputs = DeltaInput(*(trial.numbers(n * width).reshape(n, width) for width in widths))
        prepared = trial.room(4 * n * spec.prepared_width)
        to = trial.vector(np.zeros(n * spec.value_width, np.float32))
        qkv, gate, alpha = (trial.put(one) for one in inputs[:3])
        beta = trial.put(inputs.beta) if inputs.beta.size else alpha
        given = GpuDeltaInput(qkv, gate, alpha, beta, n)
        trial.gpu.gated_delta(given, of_gpu, GpuStates(first, second), prepared, to)
        wanted = _OPS.gated_delta(inputs, weights, spec, state, after).reshape(-1)
        found = trial.take(to.values, len(wanted)), trial.take(second, spec.state_size)
        if any(
            _differs(one, right, 1 + np.abs(right), _SOFT) for one, right in zip(found, (wanted, after), strict=True)
        ):
            return f"layers with a state are wrong over {n} positions"
        if spec.mamba and n == 1 and (wrong := _rounded_wrongly(trial, to, found[0])):
            return wrong
        state, after, first, second = after, state, second, first
    return ""


def check_short_conv(trial: GpuTrial) -> str:
    """Check a gated short convolution, for one position and then for several."""
    spec = ShortConvSpec(channels=_ROWS, conv_width=4)
    conv, state, after = trial.numbers(4 * _ROWS), *(np.zeros(spec.state_size, np.float32) for _ in range(2))
    first, second, weights = trial.put(state), trial.put(state), GpuShortConv(spec, trial.put(conv))
    for n in (1, 5):
        x, to = trial.numbers(3 * n * _ROWS).reshape(n, 3, _ROWS), trial.room(4 * n * _ROWS)
        trial.gpu.short_conv(trial.put(x), weights, GpuStates(first, second), to, n)
        gate, gate_in, values = x.swapaxes(0, 1)
        wanted = _OPS.short_conv(ShortConvInput(values, gate_in, gate), conv, spec, state, after).reshape(-1)
        found = trial.take(to, len(wanted)), trial.take(second, spec.state_size)
        if any(
            _differs(one, right, 9 + np.abs(right), _CLOSE) for one, right in zip(found, (wanted, after), strict=True)
        ):
            return f"short convolutions are wrong over {n} positions"
        state, after, first, second = after, state, second, first
    return ""


def check_several_streams(trial: GpuTrial) -> str:
    """Check what predicts and corrects several residual streams, and the cut-off of gates."""
    n, d = 4, _WIDTH
    values, scores, added, scale = trial.numbers(n * d).reshape(n, d), *(trial.numbers(m) for m in (n, d, d))
    mixture, shares = (trial.numbers(m * n).reshape(m, n) for m in (n * n, n))
    x, at, more = GpuStreams(n, d, trial.put(values), trial.room(4 * n * d), d), trial.put(scores), trial.put(added)
    trial.gpu.predict_streams(x, at, trial.put(mixture))
    values = values + (mixture @ np.tanh(scores)).reshape(n, n) @ values
    if _differs(trial.take(x.predicted, n * d), values.reshape(-1), 9.0 * np.ones(n * d), _SOFT):
        return "predictions of streams are wrong"
    trial.gpu.advance(x.values, d, others=[more])
    scaled = trial.vector(np.zeros(d, np.float32))
    trial.gpu.correct_streams(x, at, trial.put(shares), trial.put(scale), scaled)
    values = values + (1 + shares @ np.tanh(scores))[:, None] * added
    found = trial.take(x.values, n * d)
    if _differs(found, values.reshape(-1), 9.0 * np.ones(n * d), _SOFT):
        return "corrections of streams are wrong"
    if _differs(trial.take(scaled.values, d), found[:d] * scale, 1 + np.abs(found[:d] * scale), _CLOSE):
        return "corrections of streams are wrong"
    if wrong := _rounded_wrongly(trial, scaled, trial.take(scaled.values, d)):
        return wrong
    trial.gpu.add_beside(x, more)
    trial.gpu.scale_alike(x, x.values + 4 * d, 1e-5)
    others = found.reshape(n, d)[1:] + added
    size = np.sqrt(np.square(found[:d]).mean() / np.square(others).mean(axis=1))
    wanted = (others * size[:, None]).reshape(-1)
    if _differs(trial.take(x.values + 4 * d, (n - 1) * d), wanted, 1 + np.abs(wanted), 1e-4):
        return "sizes of streams are wrong"
    gates = trial.put(added)
    trial.gpu.cut_off(gates, d, 0.5)
    wanted = np.maximum(added - (added.mean() + np.float32(0.5) * added.std()), 0)
    return "cut-offs are wrong" if _differs(trial.take(gates, d), wanted, 1 + wanted, 1e-4) else ""


def check_router(trial: GpuTrial) -> str:
    """Check the choice of experts, among the best groups and without groups."""
    n_experts, n_used, factor = 24, 3, 2.5
    slot_of, bias = trial.random.permutation(n_experts).astype(np.int32) - 8, trial.numbers(n_experts)
    words, slots, biases = trial.room(4 * (3 * n_used + 1)), trial.put(slot_of), trial.put(bias)
    for weighing, groups in (
        (Weighing("softmax", True), ONE_GROUP), (Weighing("sigmoid", True), ExpertGroups(4, 2, by_two=True)),
        (Weighing("softmax", False, 0.5), ONE_GROUP),
    ):  # fmt: skip
        scores, biased = trial.numbers(n_experts), groups.by_two
        choice = GpuChoice(
            n_used, words, words + 4 * n_used, words + 4 * (2 * n_used + 1), biases if biased else 0, factor
        )
        trial.gpu.choose(trial.put(scores), n_experts, slots, choice, weighing, groups)
        [ids], [weights] = chosen_of(scores[None], n_used, weighing, groups, bias if biased else None)
        found = [trial.take(at, n_used, np.int32) for at in (choice.ids, choice.slots)]
        if not np.array_equal(found, [ids, slot_of[ids]]):
            return "the choice of experts is wrong"
        if _differs(trial.take(choice.weights, n_used), factor * weights, np.full(n_used, factor), _SOFT):
            return "the weights of experts are wrong"
    return ""


CHECKS: tuple[Callable[[GpuTrial], str], ...] = (
    check_products, check_neurons, check_stream, check_attention, check_latent, check_delta_net, check_several_streams,
    check_router, check_short_conv,
)  # fmt: skip


def failures_of(gpu: Gpu, checks: Sequence[Callable[[GpuTrial], str]] = CHECKS) -> tuple[str, ...]:
    """Return the failed checks, in words.

    Cost: some ms, and once per driver up to some seconds to compile kernels.
    Raises: CudaError, NoMachineCodeError, SlowGpuError.
    """
    with GpuTrial(gpu) as trial:
        return tuple(wrong for check in checks if (wrong := check(trial)))


def _rounded_wrongly(trial: GpuTrial, vector: GpuVector, x: F32) -> str:
    """Check that the 8-bit form is x within half a step, with correct sums; return the failure in words, or ""."""
    rounded, scales, sums = trial.eight_bits(vector)
    back = rounded.reshape(-1, 32) * scales[:, None]
    half = 0.51 * scales[:, None] + 1e-9
    if not np.all(np.abs(back - x.reshape(-1, 32)) <= half):
        return "numbers are rounded wrong"
    if not np.allclose(sums, back.sum(axis=1), rtol=1e-4, atol=1e-5):
        return "sums of rounded numbers are wrong"
    return ""


def _differs(found: NDArray[Any], wanted: NDArray[Any], size: NDArray[Any], share: float) -> bool:
    """Return whether any number is off by more than that share of `size`, or NaN."""
    return not bool(np.all(np.abs(found - wanted) <= share * size))


def _rows_of(trial: GpuTrial, codec: str, n_rows: int, n_cols: int) -> NDArray[np.uint8]:
    """Return rows u8 [n_rows, row bytes] that decode to numbers of moderate size."""
    kind = ROW_CODECS[codec]
    if kind.can_encode:
        return kind.encode(trial.numbers(n_rows * n_cols).reshape(n_rows, n_cols))
    rows = trial.random.integers(0, 256, (n_rows, kind.n_bytes(n_cols)), dtype=np.uint8)
    blocks = rows.reshape(-1, kind.type_size)
    if codec == "mxfp4":
        blocks[:, 0] = trial.random.integers(122, 126, len(blocks))
        return rows
    for at in _HALVES[codec]:
        scales = trial.random.uniform(1e-4, 1e-3, (len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return rows


def _half(values: F32) -> F32:
    return values.astype(np.float16).astype(np.float32)


def _words(n: int) -> int:
    return -(-n // 32)


def _bits(words: NDArray[np.uint32], n: int) -> NDArray[np.bool_]:
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:n].astype(np.bool_)
