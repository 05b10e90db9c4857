"""Files that lie about their experts: each is refused at once, before room is made for what they claim.

Numbers that are not finite are refused on loading, or named where they begin: nothing wrong is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.batch_operators import FakeBatchOps
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from limits import refused
from samples.experts_gguf import N_EXPERTS, make_tiny_mixtral

from engine.config import EngineConfig, SamplingConfig
from engine.errors import EngineError, ModelFormatError, UnsupportedModelError
from engine.gpu import loaded_part
from engine.model import weights as weights_module
from engine.model.finite_check import WHOLE_BYTES
from engine.model.weights import load_weights, open_model
from engine.session.batch import OneByOne, open_batch
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_batch
from engine.session.loaded_model import LoadedModel
from engine.session.sampling import BrokenLogitsError
from native_kernels.backend import PackedMatrix

D, F = 32, 64
ROUTER = "blk.1.ffn_gate_inp.weight"

CASES: dict[str, tuple[dict[str, object], type[EngineError], str]] = {
    "more experts than the file has": ({"llama.expert_count": 5}, ModelFormatError, r"has the shape \[4, 32\]"),
    "the most that there may be": ({"llama.expert_count": 1024}, ModelFormatError, "has the shape"),
    "more than there may be": ({"llama.expert_count": 1025}, ModelFormatError, "n_experts is 1025; up to 1024"),
    "absurdly many": ({"llama.expert_count": (1 << 32) - 1}, ModelFormatError, "n_experts is 4294967295"),
    "as many in absurdly many layers": (
        {"llama.expert_count": 1024, "llama.block_count": 1024}, ModelFormatError, "1024 experts in each of 1024"),
    "as many as may be in all": (
        {"llama.expert_count": 16, "llama.block_count": 1024}, ModelFormatError, "lack blk"),
    "none used": ({"llama.expert_used_count": 0}, ModelFormatError, "0 of the 4 experts"),
    "more used than there are": ({"llama.expert_used_count": 5}, ModelFormatError, "5 of the 4 experts"),
    "wider experts": ({"llama.expert_feed_forward_length": 65}, ModelFormatError, "calls for"),
    "another router": ({"llama.expert_gating_func": 2}, UnsupportedModelError, "expert_gating_func is 2"),
    "an unknown router": ({"llama.expert_gating_func": 77}, UnsupportedModelError, "expert_gating_func is 77"),
    "shared experts": ({"llama.expert_shared_count": 1}, UnsupportedModelError, r"names llama\.expert_shared_count"),
    "experts that are none": ({"llama.expert_count": 0}, ModelFormatError, r"lack blk\.0\.ffn_gate\.weight"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hostile_experts(tmp_path: Path, name: str) -> None:
    metadata, kind, words = CASES[name]
    path = make_tiny_mixtral(tmp_path / "m.gguf", **metadata)
    refused(lambda: load_weights(open_model(path)), words, kind)


@pytest.mark.parametrize("tensor", ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_inp"])
def test_a_file_without_some_of_its_experts_tensors(tmp_path: Path, tensor: str) -> None:
    path = make_tiny_mixtral(tmp_path / "m.gguf", without=f"blk.1.{tensor}.weight")
    refused(lambda: load_weights(open_model(path)), rf"lack blk\.1\.{tensor}", ModelFormatError)


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        (ROUTER, (N_EXPERTS + 1, D)),
        (ROUTER, (N_EXPERTS - 1, D)),
        (ROUTER, (N_EXPERTS, D + 32)),
        ("blk.1.ffn_gate_exps.weight", (N_EXPERTS - 1, F, D)),
        ("blk.1.ffn_up_exps.weight", (N_EXPERTS + 1, F, D)),
        ("blk.1.ffn_down_exps.weight", (N_EXPERTS - 1, D, F)),
        ("blk.0.ffn_down_exps.weight", (N_EXPERTS, D, F + 32)),
    ],
)
def test_router_and_experts_of_other_numbers(tmp_path: Path, tensor: str, shape: tuple[int, ...]) -> None:
    """A router's ids would be out of range: no such file is opened."""
    path = make_tiny_mixtral(tmp_path / "m.gguf", tensors={tensor: np.ones(shape, np.float32)})
    refused(lambda: load_weights(open_model(path)), tensor.replace(".", r"\."), ModelFormatError)


def router_with(value: float) -> dict[str, Any]:
    router = np.ones((N_EXPERTS, D), np.float32)
    router[2, 7] = value
    return {ROUTER: router}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("hold", ["f32", "mapped"])
def test_a_router_that_holds_no_numbers(tmp_path: Path, hold: Any, value: float) -> None:
    path = make_tiny_mixtral(tmp_path / "m.gguf", tensors=router_with(value))
    refused(lambda: load_weights(open_model(path), hold=hold), r"blk\.1\.ffn_gate_inp", ModelFormatError)


def test_a_large_router_is_checked_whole(tmp_path: Path) -> None:
    """With scores by sigmoid, an expert of such a row is never chosen, and nothing shows it."""
    router = np.ones((1 + WHOLE_BYTES // (4 * D), D), np.float32)
    router[len(router) // 3 + 1, 5] = np.nan
    plan = open_model(make_tiny_mixtral(tmp_path / "m.gguf")).plan
    with pytest.raises(ModelFormatError):
        weights_module._check(PackedMatrix.pack(router, "f32"), next(one for one in plan if ".router" in one.name))


@pytest.fixture
def unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose router is damaged, as if that had happened after the check."""
    monkeypatch.setattr(weights_module, "check_numbers", lambda *_, **__: None)
    monkeypatch.setattr(weights_module, "_choose_hold", lambda *_: ("mapped", ""))  # others are read whole
    return make_tiny_mixtral(tmp_path / "m.gguf", tensors=router_with(np.nan))


def load(path: Path, device: str, folder: Path, patch: pytest.MonkeyPatch, **changes: Any) -> LoadedModel:
    """On the CPU, or on the GPU of NumPy."""
    if device != "cuda":
        return LoadedModel.load(path, EngineConfig(device="cpu", threads=1, context=64, **changes))
    same_scratch_for_every_budget(patch)
    patch.setattr(loaded_part, "batch_ops", FakeBatchOps)
    model = FakeGpuMachine(folder, patch).load(path, context=64, **changes)
    assert model.device == "cuda"
    return model


@pytest.mark.parametrize("n_prompt", [1, 5, 50])
@pytest.mark.parametrize("device", ["cpu", "eager", "cuda"])
def test_a_broken_router_is_named(
    unchecked: Path, device: str, n_prompt: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is emptied: neither the next answer nor the disk gets such numbers."""
    model = load(unchecked, device, tmp_path, monkeypatch)
    session = ChatSession(model)
    if device == "eager":
        session._transformer.decoder = None
    with pytest.raises(BrokenLogitsError, match="the router of layer 1 ") as caught:
        list(session.generate([1 + i % 200 for i in range(n_prompt)], SamplingConfig(temperature=0, max_tokens=4)))
    assert "quantisation" in caught.value.hint
    assert session.cache.length == 0
    model.close()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_broken_router_shows_in_every_row_of_a_batch(
    unchecked: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(unchecked, device, tmp_path, monkeypatch, mode="dense", sequences=2)
    batch = open_batch(model, 2)
    assert not isinstance(batch, OneByOne)
    rows = decode_batch(batch, [5, 9], [model.new_cache() for _ in range(2)])
    assert not np.isfinite(rows).any()
    model.close()


def test_numbers_that_only_the_gpu_makes_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU computes the tokens again and finds nothing, so that the file is not blamed."""
    model = load(make_tiny_mixtral(tmp_path / "m.gguf"), "cuda", tmp_path, monkeypatch)
    session = ChatSession(model)
    decoder: Any = session._transformer.decoder
    step = decoder.step
    monkeypatch.setattr(decoder, "step", lambda *args: step(*args) * np.float32(np.nan))
    with pytest.raises(BrokenLogitsError, match="the CPU computes finite") as caught:
        list(session.generate([5, 9, 4], SamplingConfig(temperature=0, max_tokens=4)))
    assert "16 bits" in caught.value.hint
    model.close()
