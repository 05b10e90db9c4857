"""Experts in slots: moved there in every codec, chosen as the router says, multiplied as NumPy has it, exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.batch_operators import FakeExpertBatchOps
from samples.random_blocks import weights as random_weights
from support.repetitions import some_daily

from engine.gpu.weights.layout import Region, slots_of
from engine.gpu.weights.uploads import Numbers, Uploader
from engine.model.graph import graph_of
from engine.model.router import chosen_of, route
from engine.model.weights import FfnWeights
from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.expert_batch import ExpertPairs, GpuExpertBatchOps
from native_kernels.cuda.gpu import Gpu, GpuChoice, GpuExperts, GpuVector, Memory
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import ONE_GROUP, ExpertGroups, Weighing
from tests.engine.placement.test_activity import a_config

OPS = ReferenceOperators()
D, F, RESIDENT, CHOSEN = 512, 256, (4, 1, 2), (1, 0, 4)
WEIGHTS = np.array([0.5, 0.25, 0.75, 0.6], np.float32)


class OnGpu:
    """Arrays on a GPU, given back at the end."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.pool, self._held = gpu, Pool(1), list[Memory]()

    def room(self, n_bytes: int) -> int:
        self._held.append(self.gpu.allocate(n_bytes))
        self.gpu.fill(self._held[-1].address, 0xFF, n_bytes)
        return self._held[-1].address

    def put(self, values: np.ndarray) -> int:
        at = self.room(max(4, values.nbytes))
        with Uploader(self.gpu, self.pool, 1 << 20) as uploader:
            uploader.run([Numbers(values, at)])
        return at

    def get(self, at: int, *shape: int) -> F32:
        out = np.empty(shape, np.float32)
        self.gpu.download(out.ctypes.data, at, out.nbytes)
        self.gpu.synchronize()
        return out

    def vector(self, values: F32) -> GpuVector:
        found = GpuVector(len(values), self.put(values), self.room(len(values)), self.room(8 * len(values) // 32))
        self.gpu.quantise(found)
        return found

    def experts(self, blocks: list[FfnWeights]) -> GpuExperts:
        sizes = Region(0)
        sizes.experts(blocks)
        region = Region(self.room(sizes.n_bytes))
        found = region.experts(blocks)
        assert found is not None
        with Uploader(self.gpu, self.pool, 1 << 18) as uploader:
            uploader.run(region.jobs)
        return found

    def choice(self, slots: tuple[int, ...]) -> GpuChoice:
        words = self.room(4 * 10)
        self.gpu.synchronize()
        chosen = GpuChoice(3, words, words + 12, words + 28)
        whole = np.concatenate([np.array(CHOSEN, np.int32).view(np.float32), WEIGHTS,
                                np.array(slots, np.int32).view(np.float32)])  # fmt: skip
        with Uploader(self.gpu, self.pool, 1 << 18) as uploader:
            uploader.run([Numbers(whole, words)])
        return chosen

    def close(self) -> None:
        for memory in self._held:
            memory.free()
        self.pool.close()


@pytest.fixture
def on_gpu(any_gpu: Gpu) -> Iterator[OnGpu]:
    found = OnGpu(any_gpu)
    yield found
    found.close()


def expert(codec: str, seed: int, by_neuron: bool) -> FfnWeights:
    rng = np.random.default_rng(seed)

    def matrix(n_rows: int, n_cols: int, place: int) -> PackedMatrix:
        if codec in ("f32", "f16", "bf16"):
            return PackedMatrix.pack(rng.standard_normal((n_rows, n_cols)).astype(np.float32), codec)
        data = random_weights(codec, n_rows, n_cols, 10 * seed + place)
        return PackedMatrix.view(data.reshape(-1), n_rows, n_cols, codec)

    down: dict[str, Any] = {"down_t": matrix(F, D, 3)} if by_neuron else {"down": matrix(D, F, 3)}
    sizes = {"gate_bias": F, "up_bias": F, "down_bias": D}
    biases = {name: rng.standard_normal(n).astype(np.float32) for name, n in sizes.items()}
    return FfnWeights(up=matrix(F, D, 1), gate=matrix(F, D, 2), **down, **biases)


def values_of(matrix: PackedMatrix | None) -> F32:
    assert matrix is not None
    return OPS.rows(matrix, np.arange(matrix.n_rows))


def near(found: F32, wanted: F32, terms: F32) -> bool:
    """terms: the largest sum of magnitudes that was added up."""
    return bool(np.abs(found - wanted).max() <= 2e-5 * terms.max())


SOME_CODECS = some_daily(UNIT_COLUMNS, ("f32", "f16", "q8_0", "q4_0", "q4_k", "mxfp4"))


@pytest.mark.parametrize("by_neuron", [False, True])
@pytest.mark.parametrize("codec", SOME_CODECS)
def test_chosen_experts_as_numpy_has_them(on_gpu: OnGpu, codec: str, by_neuron: bool) -> None:
    gpu, rng = on_gpu.gpu, np.random.default_rng(1)
    blocks = [expert(codec, seed, by_neuron) for seed in range(5)]
    experts = on_gpu.experts([blocks[i] for i in RESIDENT])
    slots = tuple(int(slots_of(np.array(RESIDENT, np.int32), 5)[i]) for i in CHOSEN)
    assert slots == (1, -1, 0)
    choice, x = on_gpu.choice(slots), on_gpu.vector(rng.standard_normal(D).astype(np.float32))
    first, up = on_gpu.room(4 * 3 * F), on_gpu.room(4 * 3 * F)
    gpu.expert_products(experts, x, choice, first, up)
    read = x if experts.up.reads_bytes else None
    inputs = rounded(on_gpu, x) if read else on_gpu.get(x.values, D)
    for at, name in ((first, "gate"), (up, "up")):
        found = on_gpu.get(at, 3, F)
        assert not found[1].any()
        for row, i in ((0, 1), (2, 4)):
            matrix = values_of(getattr(blocks[i], name))
            wanted = matrix @ inputs + getattr(blocks[i], f"{name}_bias")
            assert near(found[row], wanted, np.abs(matrix) @ np.abs(inputs))
    gates, ups = (on_gpu.get(at, 3, F) for at in (first, up))
    gpu.expert_products(experts, x, choice, first, up, weighed=True)
    np.testing.assert_allclose(on_gpu.get(first, 3, F), gates * WEIGHTS[:3, None], rtol=1e-6)
    np.testing.assert_array_equal(on_gpu.get(up, 3, F), ups)
    h = on_gpu.vector(rng.standard_normal(3 * F).astype(np.float32) * (rng.random(3 * F) < 0.5))
    n = gpu.expert_parts(experts, 3)
    parts = on_gpu.room(4 * n * D)
    gpu.expert_down(experts, h, choice, parts)
    found = on_gpu.get(parts, n, D).sum(axis=0)
    hidden = rounded(on_gpu, h) if experts.down.reads_bytes and not by_neuron else on_gpu.get(h.values, 3 * F)
    wanted, terms = np.zeros(D, np.float32), np.zeros(D, np.float32)
    for row, i in ((0, 1), (2, 4)):
        block = blocks[i]
        matrix = values_of(block.down_t).T if by_neuron else values_of(block.down)
        assert block.down_bias is not None
        wanted += WEIGHTS[row] * (matrix @ hidden[F * row : F * row + F] + block.down_bias)
        terms += np.abs(matrix) @ np.abs(hidden[F * row : F * row + F])
    assert near(found, wanted, terms)


def part(x: GpuVector, n: int, i: int) -> GpuVector:
    """The i-th n numbers of x."""
    return GpuVector(n, x.values + 4 * n * i, x.bytes + n * i, x.scales + n * i // 4)


@pytest.mark.parametrize("by_neuron", [False, True])
@pytest.mark.parametrize("codec", SOME_CODECS)
def test_several_positions_get_what_each_gets_alone(on_gpu: OnGpu, codec: str, by_neuron: bool) -> None:
    """Eleven positions, all of which use expert 4; expert 0 is used, too, but not resident. Gates may be weighed."""
    gpu, rng, n, k = on_gpu.gpu, np.random.default_rng(2), 11, 3
    blocks = {i: expert(codec, i, by_neuron) for i in RESIDENT}
    experts = on_gpu.experts([blocks[i] for i in RESIDENT])
    table = slots_of(np.array(RESIDENT, np.int32), 5)
    ids = np.stack([rng.permutation([4, *rng.permutation([0, 1, 2, 3])[: k - 1]]) for _ in range(n)]).astype(np.int32)
    weights = rng.random((n, k + 1)).astype(np.float32)
    at_weights, at_slots = on_gpu.put(weights), on_gpu.put(table[ids])
    pairs = ExpertPairs(n, k, 4, on_gpu.room(4 * n * k), on_gpu.room(8 * 5), at_weights, k + 1)
    ops: Any = GpuExpertBatchOps(gpu.device, gpu.stream) if isinstance(gpu, CudaGpu) else FakeExpertBatchOps(gpu)
    ops.group(on_gpu.put(ids), on_gpu.put(table), pairs)
    x = on_gpu.vector(rng.standard_normal(n * D).astype(np.float32))
    h = on_gpu.vector((rng.standard_normal(n * k * F) * (rng.random(n * k * F) < 0.5)).astype(np.float32))
    first, up = on_gpu.room(4 * n * k * F), on_gpu.room(4 * n * k * F)
    ops.products(experts, x, pairs, first, up, by_neuron)
    n_parts = ops.parts(experts, pairs)
    parts = on_gpu.room(4 * n_parts * n * D)
    ops.down(experts, h, pairs, parts)
    found = [on_gpu.get(at, n, k, F) for at in (first, up)] + [on_gpu.get(parts, n_parts, n, D).sum(axis=0)]
    one, other, few = on_gpu.room(4 * k * F), on_gpu.room(4 * k * F), on_gpu.room(4 * D * gpu.expert_parts(experts, k))
    for t in range(n):
        choice = GpuChoice(k, 0, at_weights + 4 * (k + 1) * t, at_slots + 4 * k * t)
        gpu.expert_products(experts, part(x, D, t), choice, one, other, by_neuron)
        gpu.expert_down(experts, part(h, k * F, t), choice, few)
        alone = [on_gpu.get(at, k, F) for at in (one, other)]
        alone.append(on_gpu.get(few, gpu.expert_parts(experts, k), D).sum(axis=0))
        for several, wanted in zip(found, alone, strict=True):
            assert np.abs(several[t] - wanted).max() <= 1e-5 * np.abs(wanted).max() + 1e-6
        assert not found[0][t][ids[t] == 0].any()
    ops.close()


def rounded(on_gpu: OnGpu, x: GpuVector) -> F32:
    n = x.n // 32
    scales = on_gpu.get(x.scales, n, 2)[:, :1]
    held = on_gpu.get(x.bytes, x.n // 4).view(np.int8).reshape(n, 32)
    return (held * scales).reshape(-1).astype(np.float32)


@pytest.mark.parametrize(("n_experts", "n_used"), [(4, 2), (128, 8), (512, 10), (1000, 32)])
@pytest.mark.parametrize(("router", "normed"), [("softmax", True), ("softmax", False), ("sigmoid", True)])
def test_the_choice_is_the_router_s(on_gpu: OnGpu, n_experts: int, n_used: int, router: Any, normed: bool) -> None:
    gpu, rng = on_gpu.gpu, np.random.default_rng(n_experts)
    slot_of = rng.permutation(n_experts).astype(np.int32) - n_experts // 2
    config = a_config(n_experts=n_experts, n_experts_used=n_used, d_ff=8, router=router, normed_routing=normed)
    matrix = PackedMatrix.pack(np.eye(n_experts, dtype=np.float32), "f32")
    rows = [rng.standard_normal(n_experts), np.round(rng.standard_normal(n_experts)), np.zeros(n_experts)]
    words = on_gpu.room(4 * (3 * n_used + 1))
    choice = GpuChoice(n_used, words, words + 4 * n_used, words + 4 * (2 * n_used + 1))
    for values in rows:
        scores = values.astype(np.float32)
        routing = graph_of(config).ffn(0).spec.routing
        assert routing is not None
        gpu.choose(on_gpu.put(scores), n_experts, on_gpu.put(slot_of), choice, routing.weighing, routing.groups,
                   on_gpu.put(np.ones(1, np.float32)))  # fmt: skip
        wanted = route(routing, matrix, scores[None], OPS)
        ids = on_gpu.get(choice.ids, n_used).view(np.int32)
        np.testing.assert_array_equal(ids, wanted.experts[0])
        np.testing.assert_array_equal(on_gpu.get(choice.slots, n_used).view(np.int32), slot_of[ids])
        np.testing.assert_allclose(on_gpu.get(choice.weights, n_used), wanted.weights[0], rtol=2e-5)
        assert on_gpu.get(choice.weights + 4 * n_used, 1)[0] == pytest.approx(1 / (1 + np.exp(-1)), rel=1e-5)


def test_scores_that_are_no_numbers_are_chosen_last(on_gpu: OnGpu) -> None:
    gpu = on_gpu.gpu
    words = on_gpu.room(40)
    choice = GpuChoice(3, words, words + 12, words + 28)
    slots = on_gpu.put(np.arange(5, dtype=np.int32))
    for scores, wanted in (([np.nan, 1, np.nan, 2, np.nan], [3, 1, 0]), ([np.nan] * 5, [0, 1, 2])):
        gpu.choose(on_gpu.put(np.array(scores, np.float32)), 5, slots, choice, Weighing("softmax", True))
        assert on_gpu.get(choice.ids, 3).view(np.int32).tolist() == wanted


@pytest.mark.parametrize(
    ("n_experts", "n_used", "groups"),
    [(256, 8, (8, 4)), (160, 6, (8, 3)), (24, 3, (4, 2)), (10, 2, (5, 1)), (1000, 32, (500, 16))],
)
@pytest.mark.parametrize("biased", [False, True])
def test_the_choice_among_the_best_groups(
    on_gpu: OnGpu, n_experts: int, n_used: int, groups: tuple[int, int], biased: bool
) -> None:
    """As DeepSeek-V2 chooses and, with a bias, as V3 does; of equal groups the first."""
    gpu, rng, words = on_gpu.gpu, np.random.default_rng(n_experts), on_gpu.room(4 * (3 * n_used + 1))
    choice = GpuChoice(n_used, words, words + 4 * n_used, words + 4 * (2 * n_used + 1))
    bias = np.round(rng.standard_normal(n_experts).astype(np.float32)) if biased else None
    if bias is not None:
        choice = replace(choice, bias=on_gpu.put(bias))
    weighing, of = Weighing("sigmoid" if biased else "softmax", biased), ExpertGroups(*groups, by_two=biased)
    slots = on_gpu.put(np.zeros(n_experts, np.int32))
    # With the same score, a bias of whole numbers makes ties that no rounding decides.
    for scores in (rng.standard_normal(n_experts), np.zeros(n_experts), rng.integers(-2, 2, n_experts) * (not biased)):
        scores = scores.astype(np.float32)
        gpu.choose(on_gpu.put(scores), n_experts, slots, choice, weighing, of)
        [ids], [weights] = chosen_of(scores[None], n_used, weighing, of, bias)
        assert on_gpu.get(choice.ids, n_used).view(np.int32).tolist() == ids.tolist()
        np.testing.assert_allclose(on_gpu.get(choice.weights, n_used), weights, rtol=2e-5)


@pytest.mark.parametrize("margin", [0.02, 0.6, 1.9])
@pytest.mark.parametrize(("n_experts", "n_used"), [(3, 2), (16, 2), (100, 5)])
def test_shares_of_the_experts_near_the_chosen_one(on_gpu: OnGpu, n_experts: int, n_used: int, margin: float) -> None:
    gpu, rng, words = on_gpu.gpu, np.random.default_rng(n_experts), on_gpu.room(4 * (3 * n_used + 1))
    choice = GpuChoice(n_used, words, words + 4 * n_used, words + 4 * (2 * n_used + 1))
    slots, weighing = on_gpu.put(np.zeros(n_experts, np.int32)), Weighing("softmax", False, margin)
    for scores in (2 * rng.standard_normal(n_experts) - 1, np.zeros(n_experts)):
        scores = scores.astype(np.float32)
        gpu.choose(on_gpu.put(scores), n_experts, slots, choice, weighing)
        [ids], [weights] = chosen_of(scores[None], n_used, weighing, ONE_GROUP)
        assert on_gpu.get(choice.ids, n_used).view(np.int32).tolist() == ids.tolist()
        np.testing.assert_allclose(on_gpu.get(choice.weights, n_used), weights, rtol=2e-5)
