"""Files that lie about their experts: each is refused at once, before room is made for what they claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from limits import refused
from samples.experts_gguf import make_tiny_mixtral

from engine.errors import EngineError, ModelFormatError, UnsupportedModelError
from engine.model.weights import load_weights, open_model

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
