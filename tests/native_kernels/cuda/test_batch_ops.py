"""Which sequences need which neurons, on the GPU against NumPy; and slots of keys and values, anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fakes.rows import to_planes
from gpu_planes import decoded, some_rows
from on_gpu import OnGpu

from native_kernels.cuda.batch_ops import MOST_STAGED_SLOTS, GpuBatchOps
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import GpuMatrix, GpuNorm
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, driver

N, SLOTS = 1003, 300


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaGpu]:
    try:
        if driver().n_devices == 0:
            pytest.skip("the NVIDIA driver sees no GPU")
        found = CudaGpu(Device(0))
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    yield found
    found.close()


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 2, 8, 9, 16, 31, 32])
@pytest.mark.parametrize(("n_rows", "n_cols"), [(5, 8), (129, 768), (300, 5120), (48, 1003)])
def test_products_of_few_rows(gpu: CudaGpu, batch: int, n_rows: int, n_cols: int) -> None:
    rng = np.random.default_rng(batch + n_rows)
    step = -(-n_cols // 8) * 8
    weights = [np.zeros((n_rows, step), np.float16) for _ in range(2)]
    for one in weights:
        one[:, :n_cols] = rng.standard_normal((n_rows, n_cols))
    x = np.full((batch, step), np.nan, np.float16)  # what lies behind a row does not matter
    x[:, :n_cols] = rng.standard_normal((batch, n_cols))
    factors, bias = (rng.standard_normal(n).astype(np.float32) for n in (batch, n_rows))
    before = rng.standard_normal((batch, n_rows + 3)).astype(np.float32)
    arrays = {"w": weights[0], "v": weights[1], "x": x, "factors": factors, "bias": bias, "out": before, "two": before}
    at, n_bytes = {}, 0
    for name, array in arrays.items():
        at[name] = n_bytes
        n_bytes += -(-array.nbytes // 256) * 256
    memory = gpu.allocate(n_bytes)
    places = {name: memory.address + start for name, start in at.items()}
    for name, array in arrays.items():
        gpu.upload(places[name], array.ctypes.data, array.nbytes)
    ops = GpuBatchOps(gpu)
    one, two = (GpuMatrix(n_rows, n_cols, "f16", (places[name],)) for name in "wv")
    rows, tile = RoundedRows(places["x"], step, places["factors"]), Tile(0, 0)
    ops.multiply(one, rows, batch, Rows(places["out"], n_rows + 3), tile, places["bias"], True)
    first = _taken(gpu, places["out"], before)
    ops.multiply_two((one, two), rows, batch, (Rows(places["out"], n_rows + 3), Rows(places["two"], n_rows + 3)), tile)
    wanted = [x[:, :n_cols].astype(np.float64) @ w[:, :n_cols].T.astype(np.float64) for w in weights]
    wanted = [one * factors[:, None] for one in wanted]
    close = 2e-6 * n_cols * np.abs(factors).max() + 1e-5
    assert np.abs(first[:, :n_rows] - (before[:, :n_rows] + wanted[0] + bias)).max() < close
    assert (first[:, n_rows:] == before[:, n_rows:]).all()
    for name, value in zip(("out", "two"), wanted, strict=True):
        found = _taken(gpu, places[name], before)
        assert np.abs(found[:, :n_rows] - value).max() < close
        assert (found[:, n_rows:] == before[:, n_rows:]).all()
    ops.close()
    memory.free()


def _taken(gpu: CudaGpu, address: int, like: np.ndarray) -> np.ndarray:
    found = np.empty_like(like)
    gpu.download(found.ctypes.data, address, found.nbytes)
    gpu.synchronize()
    return found


MIXED = [("f16", "f16", "f16"), ("f16", "q8_0", "q8_0"), ("q4_0", "q4_0", "q6_k"), ("mxfp4", "mxfp4", "q5_k")]


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [2, 9, 32])
@pytest.mark.parametrize("codecs", [*MIXED, *[(codec,) * 3 for codec in UNIT_COLUMNS]])
@pytest.mark.parametrize("n_cols", [512, 2304])
def test_products_of_few_rows_with_every_codec(
    gpu: CudaGpu, batch: int, codecs: tuple[str, str, str], n_cols: int
) -> None:
    rng, heights = np.random.default_rng(batch), (300, 40, 35)
    x = rng.standard_normal((batch, n_cols)).astype(np.float16)
    on_gpu, ops, step = OnGpu(gpu), GpuBatchOps(gpu), sum(heights)
    rows = RoundedRows(on_gpu.put(x), n_cols, on_gpu.put(np.ones(batch, np.float32)))
    bias = rng.standard_normal(step).astype(np.float32)
    matrices, outs, biases, wanted, at = [], [], [], [], 0
    out, biases_at = on_gpu.room(4 * batch * step), on_gpu.put(bias)
    for seed, (codec, n) in enumerate(zip(codecs, heights, strict=True)):
        packed = some_rows(codec, n, n_cols, seed)
        planes = tuple(on_gpu.put(plane) for plane in to_planes(packed, codec, n_cols))
        matrices.append(GpuMatrix(n, n_cols, codec, planes))
        outs.append(Rows(out + 4 * at, step))
        biases.append(biases_at + 4 * at)
        wanted.append(x.astype(np.float64) @ decoded(codec, packed, n_cols).T.astype(np.float64))
        at += n
    tile = Tile(0, 0)  # nothing is converted there
    ops.multiply_three(tuple(matrices), rows, batch, tuple(outs), tile, tuple(biases))  # type: ignore[arg-type]
    found, whole = on_gpu.get(out, (batch, step)), np.concatenate(wanted, axis=1)
    assert np.abs(found - (whole + bias)).max() < 1e-3 * np.abs(whole).max()
    ops.multiply(matrices[0], rows, batch, outs[0], tile, adds=True, rows=range(100, 300))
    whole[:, :200] += wanted[0][:, 100:]
    assert np.abs(on_gpu.get(out, (batch, step)) - (whole + bias)).max() < 1e-3 * np.abs(whole).max()
    ops.close()
    on_gpu.free()


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 5, 32])
def test_words_and_what_they_leave(gpu: CudaGpu, batch: int) -> None:
    rng = np.random.default_rng(batch)
    logits = rng.standard_normal((batch, N)).astype(np.float32)
    hot = rng.random(N) < 0.4
    neuron_in = rng.permutation(N)[:SLOTS].astype(np.int32)
    neuron_in[::7] = -1
    first = rng.standard_normal((batch, SLOTS)).astype(np.float32)
    bits = np.zeros(-(-N // 32) * 4, np.uint8)
    bits[: -(-N // 8)] = np.packbits(hot, bitorder="little")
    memory = gpu.allocate(1 << 20)
    places = {"logits": 0, "first": 1 << 18, "bits": 1 << 19, "slots": (1 << 19) + (1 << 16)}
    words, cold, computed = ((1 << 19) + (i << 16) for i in (2, 3, 4))
    at = memory.address
    gpu.fill(at, 0, 1 << 20)
    for name, array in (("logits", logits), ("first", first), ("bits", bits), ("slots", neuron_in)):
        gpu.upload(at + places[name], array.ctypes.data, array.nbytes)
    ops = GpuBatchOps(gpu)
    ops.needed(Rows(at, N), batch, N, 0.5, at + places["bits"], at + words, at + cold)
    ops.keep(
        Rows(at + places["first"], SLOTS), batch, SLOTS, at + places["slots"], at + words, at + computed
    )  # fmt: skip
    got = {"words": np.zeros(N, np.uint32), "cold": np.zeros(N, np.uint32), "n": np.zeros(1, np.uint32)}
    kept = np.zeros_like(first)
    for to, source in ((got["words"], words), (got["cold"], cold), (got["n"], computed), (kept, places["first"])):
        gpu.download(to.ctypes.data, at + source, to.nbytes)
    gpu.synchronize()
    needed = logits >= 0.5
    wanted = (needed.astype(np.uint32) << np.arange(batch, dtype=np.uint32)[:, None]).sum(0, dtype=np.uint32)
    np.testing.assert_array_equal(got["words"], wanted)
    np.testing.assert_array_equal(got["cold"], np.where(hot, 0, wanted))
    stays = needed[:, neuron_in] & (neuron_in >= 0)
    np.testing.assert_array_equal(kept, np.where(stays, first, 0))
    assert got["n"][0] == stays.sum()
    ops.close()
    memory.free()


@pytest.mark.gpu
@pytest.mark.parametrize("codec", list(UNIT_COLUMNS))
@pytest.mark.parametrize(("n_slots", "n_cols", "share"), [(300, 768, 0.3), (2500, 512, 0.02), (33, 5120, 0.9)])
def test_rows_that_are_needed_come_from_the_host_s_memory(
    gpu: CudaGpu, codec: str, n_slots: int, n_cols: int, share: float
) -> None:
    """Twice into each half, so that what was there before, here no numbers, is seen to be cleared."""
    rng = np.random.default_rng(n_slots)
    n_neurons = 2 * n_slots
    neuron_in = rng.permutation(n_neurons)[:n_slots].astype(np.int32)
    neuron_in[::11] = -1
    on_gpu, ops = OnGpu(gpu), GpuBatchOps(gpu)
    kinds = (codec, "f16", codec)
    planes = [to_planes(some_rows(kind, n_slots, n_cols, seed), kind, n_cols) for seed, kind in enumerate(kinds)]
    pinned = [[on_gpu.pin(plane.nbytes) for plane in of_matrix] for of_matrix in planes]
    for arrays, memories in zip(planes, pinned, strict=True):
        for array, memory in zip(arrays, memories, strict=True):
            memory.as_array(np.uint8, array.nbytes)[:] = array.reshape(-1)
    sources = [
        GpuMatrix(n_slots, n_cols, kind, tuple(one.device_address for one in memories))
        for kind, memories in zip(kinds, pinned, strict=True)
    ]
    slots = on_gpu.put(neuron_in)
    for half in (0, 1, 1):
        to = [
            GpuMatrix(n_slots, n_cols, kind, tuple(on_gpu.room(array.nbytes) for array in arrays))
            for kind, arrays in zip(kinds, planes, strict=True)
        ]
        for share_now in (share, 1.0, 0.0):
            words = np.where(rng.random(n_neurons) < share_now, rng.integers(1, 1 << 32, n_neurons), 0)
            asked = 0 if share_now == 1.0 else on_gpu.put(words.astype(np.uint32))
            count = on_gpu.put(np.array([7], np.uint32))
            ops.hold_staging()
            ops.stage(list(zip(sources, to, strict=True)), slots, asked, count, half)
            ops.await_staging(half)
            needed = (neuron_in >= 0) & (words[neuron_in] != 0 if asked else True)
            assert on_gpu.get(count, 1, np.uint32)[0] == 7 + needed.sum()
            for matrix, arrays in zip(to, planes, strict=True):
                for at, array in zip(matrix.planes, arrays, strict=True):
                    found = on_gpu.get(at, array.shape, np.uint8)
                    np.testing.assert_array_equal(found, np.where(needed[:, None], array, 0))
    ops.close()
    on_gpu.free()


@pytest.mark.gpu
def test_staging_goes_on_beside_and_in_captured_work(gpu: CudaGpu) -> None:
    n_slots, n_cols = 200, 256
    rows = some_rows("f16", n_slots, n_cols)
    on_gpu, ops = OnGpu(gpu), GpuBatchOps(gpu)
    memory = on_gpu.pin(rows.nbytes)
    memory.as_array(np.uint8, rows.nbytes)[:] = rows.reshape(-1)
    source = GpuMatrix(n_slots, n_cols, "f16", (memory.device_address,))
    halves = [GpuMatrix(n_slots, n_cols, "f16", (on_gpu.room(rows.nbytes),)) for _ in range(2)]
    slots = on_gpu.put(np.arange(n_slots, dtype=np.int32))
    count, words = on_gpu.put(np.zeros(1, np.uint32)), on_gpu.put(np.zeros(n_slots, np.uint32))
    outs = [on_gpu.room(rows.nbytes) for _ in range(4)]

    def step() -> None:
        ops.hold_staging()
        for half in (0, 1):
            ops.stage([(source, halves[half])], slots, words, count, half)
        for turn, out in enumerate(outs):
            ops.await_staging(turn % 2)
            gpu.copy(halves[turn % 2].planes[0], out, rows.nbytes // 4)
            if turn + 2 < len(outs):
                ops.hold_staging()
                ops.stage([(source, halves[turn % 2])], slots, 0, count, turn % 2)

    work = gpu.captured(step)
    for times in (1, 2, 3):
        gpu.launch(work)
        for out, wanted in zip(outs, (0 * rows, 0 * rows, rows, rows), strict=True):
            np.testing.assert_array_equal(on_gpu.get(out, rows.shape, np.uint8), wanted)
        assert on_gpu.get(count, 1, np.uint32)[0] == 2 * n_slots * times
    work.close()
    ops.close()
    on_gpu.free()


@pytest.mark.gpu
def test_what_cannot_be_staged_is_refused(gpu: CudaGpu) -> None:
    ops = GpuBatchOps(gpu)
    one = GpuMatrix(8, 64, "f16", (256,))
    for pair in (
        (one, GpuMatrix(9, 64, "f16", (256,))),
        (GpuMatrix(MOST_STAGED_SLOTS + 1, 64, "f16", (256,)),) * 2,
        (GpuMatrix(0, 64, "f16", (256,)),) * 2,
    ):
        with pytest.raises(ValueError, match="staged"):
            ops.stage([pair], 256, 0, 256, 0)
    ops.close()


@pytest.mark.gpu
@pytest.mark.parametrize("n", [8, 1003, 5120])
def test_few_rows_are_rounded_and_activated_as_many(gpu: CudaGpu, n: int) -> None:
    rng, n_tokens, step = np.random.default_rng(n), 3, -(-n // 8) * 8
    x, up = rng.standard_normal((2, n_tokens, n)).astype(np.float32)
    on_gpu = OnGpu(gpu)
    norm = GpuNorm("layer", *(on_gpu.put(one) for one in rng.standard_normal((2, n)).astype(np.float32)), 1e-5)
    found = []
    for ops in (GpuBatchOps(gpu), GpuPrefillOps(gpu.device, gpu.stream, gpu.stream)):
        at, out, counts = on_gpu.put(x), on_gpu.put(x), on_gpu.put(np.zeros((n_tokens, 2), np.uint32))
        to = [RoundedRows(on_gpu.room(2 * n_tokens * step), step, on_gpu.room(4 * n_tokens)) for _ in range(2)]
        ops.round(Rows(at, n), n_tokens, n, to[0])
        ops.round(Rows(at, n), n_tokens, n, None, norm, Rows(out, n))
        ops.activate(Rows(at, n), Rows(on_gpu.put(up), n), n_tokens, n, "relu", 0.0, to[1], counts)
        rounded = [on_gpu.get(one.address, (n_tokens, step), np.uint16)[:, :n] for one in to]
        factors = [on_gpu.get(one.factors, n_tokens) for one in to]
        found.append((*rounded, *factors, on_gpu.get(counts, (n_tokens, 2), np.uint32), on_gpu.get(out, x.shape)))
        ops.close()
    for one, other in zip(found[0][:-1], found[1][:-1], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found[0][-1], found[1][-1], atol=2e-5)
    assert found[0][-2].any()
    on_gpu.free()


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 5, 32])
def test_neurons_that_any_sequence_uses_are_counted(gpu: CudaGpu, batch: int) -> None:
    rng = np.random.default_rng(batch)
    h = np.where(rng.random((batch, SLOTS + 4)) < 0.1, rng.standard_normal((batch, SLOTS + 4)), 0).astype(np.float32)
    on_gpu, ops = OnGpu(gpu), GpuBatchOps(gpu)
    used = on_gpu.put(np.array([3], np.uint32))
    ops.count_used(Rows(on_gpu.put(h), SLOTS + 4), batch, SLOTS, used)
    assert on_gpu.get(used, 1, np.uint32)[0] == 3 + np.count_nonzero(h[:, :SLOTS].any(axis=0))
    ops.close()
    on_gpu.free()
