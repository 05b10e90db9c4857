"""Many tokens through experts as one program, against plain NumPy: every codec, both forms of down, any number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from product_checks import NAMES, block_size, matrix, random
from support.repetitions import slow

from native_kernels.backend import Activation, ExpertBatch, PackedMatrix
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool

N_EXPERTS, N_USED = 7, 3
CLOSE = {"f32": 1e-5, "f16": 1e-5, "bf16": 1e-5}  # of the largest; others may be multiplied with bytes
POOLS = {n: Pool(n) for n in (1, 3)}


class Experts:
    """The matrices of one layer, as kernels read them and as numbers [E, N, D]."""

    def __init__(self, codec: str, gated: bool, transposed: bool, biased: bool = False) -> None:
        size = block_size(codec)
        self.width, self.d = max(size, 48 // size * size), max(size, 96 // size * size)
        shapes = {"gate": (self.width, self.d), "up": (self.width, self.d)} if gated else {"up": (self.width, self.d)}
        shapes |= {"down_t": (self.width, self.d)} if transposed else {"down": (self.d, self.width)}
        self.packed: dict[str, list[PackedMatrix]] = {}
        self.numbers: dict[str, Any] = {}
        for at, (name, shape) in enumerate(shapes.items()):
            made = [matrix(codec, *shape, seed=N_EXPERTS * at + expert) for expert in range(N_EXPERTS)]
            self.packed[name] = [w for w, _ in made]
            self.numbers[name] = [values for _, values in made]
        sizes = {"gate_bias": self.width, "up_bias": self.width, "down_bias": self.d} if biased else {}
        self.biases = {name: list(random(N_EXPERTS, size, seed=size)) for name, size in sizes.items()}

    def bias(self, name: str, expert: int) -> Any:
        return self.biases[name][expert] if name in self.biases else 0

    def hidden(self, expert: int, x: Any, relu_on_up: bool) -> Any:
        up = x @ self.numbers["up"][expert].T + self.bias("up_bias", expert)
        if "gate" not in self.numbers:
            return np.maximum(up, 0)
        gate = np.maximum(x @ self.numbers["gate"][expert].T + self.bias("gate_bias", expert), 0)
        return gate * (np.maximum(up, 0) if relu_on_up else up)

    def out(self, x: Any, ids: Any, weights: Any, relu_on_up: bool) -> Any:
        total = np.zeros_like(x)
        for token, expert in np.ndindex(ids.shape):
            h = self.hidden(ids[token, expert], x[token], relu_on_up)
            down = self.numbers["down_t"] if "down_t" in self.numbers else [w.T for w in self.numbers["down"]]
            said = h @ down[ids[token, expert]] + self.bias("down_bias", ids[token, expert])
            total[token] += weights[token, expert] * said
        return total


def batch_of(
    layers: list[Experts], pool: Pool, activation: Activation, threshold: float, relu_on_up: bool
) -> ExpertBatch:
    batch = CpuOperators(pool).expert_batch(activation, threshold, relu_on_up)
    assert batch is not None
    assert all(batch.takes(layer, one.packed, one.biases) for layer, one in enumerate(layers))
    return batch


def check(out: Any, wanted: Any, codec: str = "f32") -> None:
    assert np.abs(out - wanted).max() <= CLOSE.get(codec, 0.03) * np.abs(wanted).max()


def choices(n_tokens: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(N_EXPERTS)[:N_USED] for _ in range(n_tokens)])
    return rng, ids, rng.random((n_tokens, N_USED)).astype(np.float32)


# The products of each codec are gemm's, which has tests of its own.
DAILY = [("f32", False), ("f32", True), ("q4_0", False), ("f16", True)]
CODECS = [(name, transposed) for name in NAMES if name in UNPACKERS for transposed in (False, True)]


@pytest.mark.parametrize(("codec", "transposed"), [one if one in DAILY else slow(*one) for one in CODECS])
def test_outputs_are_the_weighted_sums_of_each_token_s_experts(codec: str, transposed: bool) -> None:
    experts = Experts(codec, gated=True, transposed=transposed)
    batch = batch_of([experts], POOLS[3], "relu", 0.0, False)
    for n_tokens in (1, 2, 5, 40, 150, 3):
        _, ids, weights = choices(n_tokens)
        x = random(n_tokens, experts.d)
        out, _ = batch.run(0, x, ids, weights)
        check(out, experts.out(x, ids, weights, False), codec)


@pytest.mark.parametrize(("gated", "relu_on_up"), [(False, False), (True, False), (True, True)])
def test_hidden_values_come_with_their_experts_and_counts(gated: bool, relu_on_up: bool) -> None:
    experts = Experts("f32", gated, transposed=True)
    batch = batch_of([experts], POOLS[3], "drelu" if relu_on_up else "relu", 0.0, relu_on_up)
    _, ids, weights = choices(20)
    x = random(20, experts.d)
    out, found = batch.run(0, x, ids, weights)
    check(out, experts.out(x, ids, weights, relu_on_up))
    assert found.experts.tolist() == sorted(set(ids.ravel().tolist()))
    fired = 0
    for expert, first in zip(found.experts, found.first, strict=True):
        tokens = np.nonzero((ids == expert).any(axis=1))[0]
        wanted = experts.hidden(expert, x[tokens], relu_on_up)
        check(found.values[first : first + len(tokens)], wanted)
        fired += np.count_nonzero(wanted)
    assert found.fired == fired
    assert found.opened > fired if relu_on_up else found.opened == fired


def test_the_result_depends_neither_on_the_threads_nor_on_earlier_runs() -> None:
    experts = Experts("q4_0", gated=True, transposed=False)
    _, ids, weights = choices(33)
    x = random(33, experts.d)
    found = []
    for pool in POOLS.values():
        batch = batch_of([experts], pool, "silu", 0.0, False)
        found.append(batch.run(0, x, ids, weights)[0])
        batch.run(0, random(90, experts.d, seed=2), *choices(90, seed=3)[1:])
        found.append(batch.run(0, x, ids, weights)[0])
    assert all(np.array_equal(found[0], one) for one in found[1:])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("codec", ["f32", "f16", "bf16", "q4_0", "mxfp4"])
def test_no_result_depends_on_how_tokens_are_split(codec: str, transposed: bool) -> None:
    experts = Experts(codec, gated=True, transposed=transposed)
    batch = batch_of([experts], POOLS[1], "silu", 0.0, False)
    _, ids, weights = choices(150)
    x = random(150, experts.d)
    whole = batch.run(0, x, ids, weights)[0]
    for first, n_tokens in ((0, 1), (1, 2), (5, 30), (40, 70)):
        rows = slice(first, first + n_tokens)
        np.testing.assert_array_equal(batch.run(0, x[rows], ids[rows], weights[rows])[0], whole[rows])


def test_one_expert_may_take_all_tokens_and_others_none() -> None:
    experts = Experts("f32", gated=True, transposed=False)
    batch = batch_of([experts], POOLS[3], "relu", 0.0, False)
    ids, weights, x = np.full((70, 1), 4), np.full((70, 1), 0.5, np.float32), random(70, experts.d)
    out, found = batch.run(0, x, ids, weights)
    check(out, experts.out(x, ids, weights, False))
    assert found.experts.tolist() == [4]


def test_layers_of_other_codecs_share_one_batch() -> None:
    layers = [Experts("f32", True, False), Experts("f32", True, True), Experts("f16", True, False)]
    batch = batch_of(layers, POOLS[3], "relu", 0.0, False)
    _, ids, weights = choices(9)
    x = random(9, layers[0].d)
    for layer in (0, 1, 2, 0, 2):
        out, _ = batch.run(layer, x, ids, weights)
        check(out, layers[layer].out(x, ids, weights, False))


@pytest.mark.parametrize("transposed", [False, True])
def test_each_expert_has_its_own_biases(transposed: bool) -> None:
    experts = Experts("f32", gated=True, transposed=transposed, biased=True)
    batch = batch_of([experts], POOLS[3], "relu", 0.0, False)
    for n_tokens in (1, 30):
        _, ids, weights = choices(n_tokens)
        x = random(n_tokens, experts.d)
        check(batch.run(0, x, ids, weights)[0], experts.out(x, ids, weights, False))


@pytest.mark.parametrize("what", ["mixed codecs", "no down", "other names"])
def test_what_it_cannot_compute_is_refused(what: str) -> None:
    experts = Experts("f32", gated=True, transposed=False).packed
    batch = CpuOperators(POOLS[1]).expert_batch("relu", 0.0, False)
    assert batch is not None
    if what == "mixed codecs":
        experts["up"][2] = PackedMatrix.pack(np.zeros((48, 96), np.float32), "f16")
    elif what == "no down":
        del experts["down"]
    elif what == "other names":
        experts["router"] = experts["up"]
    assert not batch.takes(0, experts, {})
