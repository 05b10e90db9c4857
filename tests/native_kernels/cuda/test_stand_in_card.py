"""The tests' card keeps rows bit by bit, runs in order and apart from its caller, and says what went wrong."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from stand_in_card import StandInCard

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.card import CardMatrix, CardVector
from native_kernels.cuda.layouts import card_codec, plane_row_bytes
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError


@pytest.fixture
def card() -> Iterator[StandInCard]:
    found = StandInCard(1 << 20)
    yield found
    found.close()


@pytest.mark.parametrize("codec", ["f32", "f16", "bf16", "q8_0", "q4_0", "q8_0.lanes", "q4_0.lanes"])
def test_rows_lie_in_planes_and_are_multiplied_from_there(card: StandInCard, codec: str) -> None:
    rng = np.random.default_rng(0)
    packed = PackedMatrix.pack(rng.standard_normal((5, 64)).astype(np.float32), codec)
    raw = np.ascontiguousarray(packed.data).view(np.uint8)
    kept = card_codec(codec)
    planes = tuple(card.allocate(5 * size).address for size in plane_row_bytes(kept, 64))
    matrix, at = CardMatrix(5, 64, kept, planes), card.allocate(raw.nbytes)
    card.upload(at.address, raw.ctypes.data, raw.nbytes)
    card.unpack_rows(at.address, packed.row_bytes, 5, matrix, codec)
    x = CardVector(64, card.allocate(256).address, card.allocate(64).address, card.allocate(16).address)
    out = card.allocate(20)
    values = rng.standard_normal(64).astype(np.float32)
    card.upload(x.values, values.ctypes.data, 256)
    card.quantise(x)
    card.multiply([matrix], x, [out.address])
    card.synchronize()
    wanted = ROW_CODECS[codec].decode(raw.reshape(5, -1))[:, :64] @ values
    np.testing.assert_allclose(card.array(out.address, 5), wanted, atol=0.2 if matrix.reads_bytes else 1e-5)


def test_captured_work_runs_when_its_address_is_called_and_while_the_caller_goes_on(card: StandInCard) -> None:
    ones, to = card.pin(16), card.allocate(16)
    ones.as_array(np.float32, 4)[:] = 1
    work = card.captured(lambda: card.copy(ones.device_address, to.address, 4))
    gate = threading.Event()
    card.between(lambda: gate.wait() and None)
    launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(card.launch_function)
    assert launch(work.handle, card.stream_handle) == 0
    assert np.isnan(to.as_array(np.float32, 4)).all()
    gate.set()
    card.synchronize()
    assert (to.as_array(np.float32, 4) == 1).all()
    work.close()
    assert launch(work.handle, card.stream_handle) != 0


def test_an_address_that_is_not_the_cards_and_memory_that_is_not_there(card: StandInCard) -> None:
    host = np.zeros(4, np.float32)
    card.copy(host.ctypes.data, card.allocate(16).address, 4)
    with pytest.raises(CudaError, match="not the card's"):
        card.synchronize()
    card.synchronize()
    with pytest.raises(CudaOutOfMemoryError):
        card.allocate(1 << 21)
