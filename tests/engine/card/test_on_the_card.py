"""A model on this machine's own card: the processor's answers, all memory back, and never more than the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import make_tiny_model

from engine.assets import starter_model
from engine.card import budget
from engine.card.loading import load_onto_card
from engine.config import EngineConfig, SamplingConfig
from engine.convert import convert
from engine.evaluate import last_logits
from engine.hardware import choose_gpu, probe
from engine.model.model_files import open_model
from engine.model.weights import load_weights
from engine.session import ChatSession, LoadedModel
from native_kernels.cpu.pool import Pool
from native_kernels.cuda.card import Card

pytestmark = pytest.mark.gpu
GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 24})
MIB = 1 << 20


def answer(model: LoadedModel) -> tuple[list[int], float | None]:
    session = ChatSession(model)
    prompt = model.tokenizer.encode_chat([{"role": "user", "content": "What is an inn? Tell me a story."}])
    events = list(session.generate(prompt, GREEDY))
    return [one.token_id for one in events if one.token_id is not None], events[-1].stats.gpu_neuron_load


def held_bytes() -> int:
    """What this process holds on the card; others may compute there at the same time."""
    gpu, _ = choose_gpu(probe())
    told = None if gpu is None else budget.process_bytes(gpu.index)
    if told is None:
        pytest.skip("the driver does not tell what a process holds")
    return told


def test_the_starter_model_answers_as_on_the_processor(own_card: Card) -> None:
    loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda", mode="exact"))
    assert loaded.device == "cuda"
    found, load = answer(loaded)
    assert load == 1
    tokens = list(range(100, 160))
    logits = last_logits(loaded, tokens, every=True)
    processor = LoadedModel.load(starter_model(), EngineConfig(device="cpu", mode="exact"))
    theirs = last_logits(processor, tokens, every=True)
    assert np.mean(logits.argmax(1) == theirs.argmax(1)) > 0.9  # of numbers that nobody wrote
    np.testing.assert_allclose(logits, theirs, atol=0.03 * np.abs(theirs).max())
    expected, _ = answer(processor)
    assert found[:4] == expected[:4]
    loaded.close()


def test_all_of_it_is_given_back(own_card: Card) -> None:
    LoadedModel.load(starter_model(), EngineConfig(device="cuda")).close()
    before = held_bytes()
    for _ in range(2):
        loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda"))
        answer(loaded)
        assert held_bytes() > before + 32 * MIB
        loaded.close()
        assert held_bytes() <= before + 4 * MIB


@pytest.mark.parametrize("room", [16 * MIB, 32 * MIB, 64 * MIB])
def test_within_the_budget(room: int, own_card: Card) -> None:
    """room: beside the context and the buffers that a placement counts."""
    largest = LoadedModel.load(starter_model(), EngineConfig(device="cuda"))
    assert largest.card is not None
    parts = largest.card.placement.vram_parts_bytes
    largest.close()
    before = held_bytes()  # the tests' own context with its kernels, which a placement counts too
    wanted = (max(parts["context"], before) + parts["scratch"] + room) / (1 << 30)
    loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda", vram_budget_gib=wanted))
    assert loaded.card is not None
    answer(loaded)
    held = sum(loaded.card.part_bytes.values())
    assert held <= loaded.card.placement.vram_bytes <= wanted * (1 << 30)
    assert held_bytes() <= 1.02 * wanted * (1 << 30)
    loaded.close()


def test_a_split_bundle_answers_too(tmp_path: Path, own_card: Card) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m", d_model=128, d_ff=512, n_heads=4, n_kv_heads=2), tmp_path / "b",
                     "q8_0").bundle  # fmt: skip
    from placements_by_hand import a_placement

    opened = open_model(bundle)
    weights = load_weights(opened, hold="mapped")
    rng = np.random.default_rng(0)
    hot = [np.sort(rng.choice(512, 200, replace=False)).astype(np.int32) for _ in range(2)]
    before, pool, placement = held_bytes(), Pool(2), a_placement(hot, 512, head="gpu")
    for _ in range(3):
        loaded = load_onto_card(own_card, pool, opened.config, weights, None, placement, 64, "f16")
        assert loaded.hot_side is not None
        loaded.hot_side.load(0, np.array([3, 1], np.int32), np.setdiff1d(np.arange(512), hot[0])[:2].astype(np.int32))
        assert not loaded.hot_side.take_fired(0).any()
        loaded.close()
    pool.close()
    assert held_bytes() <= before + 4 * MIB
