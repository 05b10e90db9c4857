"""A model on this machine's own GPU: the CPU's answers, all memory back, and never more than the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.placements import a_placement
from samples.tiny_model import make_tiny_model
from support.gpu_neighbours import Holder, OtherEngine

from engine.assets import starter_model
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import Cancelled
from engine.evaluation.evaluate import last_logits
from engine.gpu import vram_policy as sharing
from engine.gpu.placed_model import PlacedModel
from engine.gpu.prefill import prompts
from engine.gpu.token import decode_program
from engine.gpu.token.decode_program import GpuDecodeProgram
from engine.gpu.trial import budget
from engine.gpu.weights.loading import GpuContents, load_onto_gpu
from engine.job import Job
from engine.machine.hardware import choose_gpu, probe
from engine.model import weights as weights_module
from engine.model.model_files import open_model
from engine.model.weights import load_weights
from engine.placement import kv_positions, memory_plan
from engine.session import chat_session, load_stages
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_one_token, prefill
from engine.session.loaded_model import LoadedModel
from engine.session.sampling import BrokenLogitsError
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu

pytestmark = pytest.mark.gpu
GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 24})
MIB = 1 << 20


def answer(model: LoadedModel) -> tuple[list[int], float | None]:
    session = ChatSession(model)
    prompt = model.tokenizer.encode_chat([{"role": "user", "content": "What is an inn? Tell me a story."}])
    events = list(session.generate(prompt, GREEDY))
    return [one.token_id for one in events if one.token_id is not None], events[-1].stats.gpu_neuron_load


def held_bytes() -> int:
    """What this process holds on the GPU; others may compute there at the same time."""
    gpu, _ = choose_gpu(probe())
    told = None if gpu is None else budget.process_bytes(gpu.index)
    if told is None:
        pytest.skip("the driver does not tell what a process holds")
    return told


def test_the_starter_model_answers_as_on_the_cpu(own_gpu: Gpu) -> None:
    loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda", mode="exact"))
    assert loaded.device == "cuda"
    found, load = answer(loaded)
    assert load == 1
    tokens = list(range(100, 160))
    logits = last_logits(loaded, tokens, every=True)
    cpu = LoadedModel.load(starter_model(), EngineConfig(device="cpu", mode="exact"))
    theirs = last_logits(cpu, tokens, every=True)
    assert np.mean(logits.argmax(1) == theirs.argmax(1)) > 0.9  # of numbers that nobody wrote
    np.testing.assert_allclose(logits, theirs, atol=0.03 * np.abs(theirs).max())
    expected, _ = answer(cpu)
    assert found[:4] == expected[:4]
    loaded.close()


def test_all_of_it_is_given_back(own_gpu: Gpu) -> None:
    LoadedModel.load(starter_model(), EngineConfig(device="cuda")).close()
    before = held_bytes()
    for _ in range(2):
        loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda"))
        answer(loaded)
        assert held_bytes() > before + 32 * MIB
        loaded.close()
        assert held_bytes() <= before + 4 * MIB


@pytest.mark.parametrize("room", [16 * MIB, 32 * MIB, 64 * MIB])
def test_within_the_budget(room: int, own_gpu: Gpu) -> None:
    """room: beside the context and the buffers that a placement counts."""
    largest = LoadedModel.load(starter_model(), EngineConfig(device="cuda"))
    assert largest.gpu is not None
    parts = largest.gpu.placement.vram_parts_bytes
    largest.close()
    before = held_bytes()  # the tests' own context with its kernels, which a placement counts too
    wanted = (max(parts["context"], before) + parts["scratch"] + room) / (1 << 30)
    loaded = LoadedModel.load(starter_model(), EngineConfig(device="cuda", vram_budget_gib=wanted))
    assert loaded.gpu is not None
    answer(loaded)
    held = sum(loaded.gpu.part_bytes.values())
    assert held <= loaded.gpu.placement.vram_bytes <= wanted * (1 << 30)
    assert held_bytes() <= 1.02 * wanted * (1 << 30)
    loaded.close()


def test_a_chat_outgrows_its_cache_on_the_gpu(own_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before an answer and once within it, with the numbers of a model that had the whole cache at once."""
    monkeypatch.setattr(kv_positions, "_WORTH", -1.0)  # no more positions than needed
    monkeypatch.setattr(chat_session, "ANSWER_TOKENS", 8)
    tokens, found = [100 + i * i % 900 for i in range(400)], []
    for fewest in (1024, 128):
        monkeypatch.setattr(kv_positions, "FEWEST_POSITIONS", fewest)
        budget = 2.0 if fewest == 1024 else 3.0  # makes the first's placement, which is kept, invalid for the second
        engine = EngineConfig(device="cuda", mode="exact", context=1024, vram_budget_gib=budget)
        model = LoadedModel.load(starter_model(), engine)
        assert model.gpu is not None
        session, sizes = ChatSession(model), [model.gpu.placement.cached_positions]
        for n in (60, 140, 392):
            sampling = GREEDY.changed({"max_tokens": 120 if n == 392 else 4})
            *_, last = events = list(session.generate(tokens[:n], sampling))
            assert model.gpu is not None
            assert last.stats.reused_tokens >= min(n, 60) * (n > 60)
            sizes.append(model.gpu.placement.cached_positions)
            found.append([event.token_id for event in events][:4])
        assert session.context_used <= sizes[-1]
        if fewest == 1024:
            assert sizes == [1024] * 4
        else:
            assert sizes[0] < sizes[2] < sizes[3], (sizes, model.device_reason)
        model.close()
    assert found[:3] == found[3:]


def test_a_split_bundle_answers_too(tmp_path: Path, own_gpu: Gpu) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m", d_model=128, d_ff=512, n_heads=4, n_kv_heads=2), tmp_path / "b",
                     "q8_0").bundle  # fmt: skip
    opened = open_model(bundle)
    weights = load_weights(opened, hold="mapped")
    rng = np.random.default_rng(0)
    hot = [np.sort(rng.choice(512, 200, replace=False)).astype(np.int32) for _ in range(2)]
    before, pool, placement = held_bytes(), Pool(2), a_placement(hot, 512, head="gpu")
    for _ in range(3):
        loaded = load_onto_gpu(own_gpu, pool, opened.config, weights, None, GpuContents(placement, 64, "f16"))
        assert loaded.hot_side is not None
        loaded.hot_side.load(0, np.array([3, 1], np.int32), np.setdiff1d(np.arange(512), hot[0])[:2].astype(np.int32))
        assert not loaded.hot_side.take_fired(0).any()
        loaded.close()
    pool.close()
    assert held_bytes() <= before + 4 * MIB


def test_prompts_say_the_same_whichever_way_cold_neurons_come(
    tmp_path: Path, own_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m", d_model=128, d_ff=512, n_heads=4, n_kv_heads=2), tmp_path / "b",
                     "q8_0").bundle  # fmt: skip
    hot = [np.arange(i, 512, 3, dtype=np.int32) for i in range(2)]
    placement = a_placement(hot, 512, head="gpu")
    monkeypatch.setattr(PlacedModel, "_solved", lambda *of: SimpleNamespace(placement=placement, setting=None))
    monkeypatch.setattr(PlacedModel, "_timed", lambda *of: None)
    monkeypatch.setattr(prompts, "threshold", lambda speed, in_place: 2)
    monkeypatch.setattr(memory_plan, "IN_PLACE_SHARE", 0.0)  # whatever else is in this machine's RAM
    monkeypatch.setattr(memory_plan, "IN_PLACE_LEAST_SHARE", 0.0)
    monkeypatch.setattr(load_stages, "load_weights", partial(load_weights, hold="mapped"))
    model = LoadedModel.load(bundle, EngineConfig(device="cuda", mode="exact"))
    try:
        gpu, tokens = model.gpu, list(range(100, 160))
        assert gpu is not None, model.device_reason
        assert gpu._part is not None
        place = gpu._part.pinned_weights
        assert place is not None
        assert place.wait(60)
        assert place.is_all
        assert gpu.spare_ram()
        found = prefill(model.transformer(), tokens, model.new_cache())
        assert gpu.streaming_way == "in place"
        assert gpu.measure_streaming() is not None
        monkeypatch.setattr(memory_plan, "may_pin_in_place", lambda *of: False)
        model.residency.make_room()
        assert place.n_bytes == 0
        assert np.array_equal(prefill(model.transformer(), tokens, model.new_cache()), found)
        assert gpu.streaming_way == "ring"
    finally:
        model.close()


# --- among other programs


@pytest.fixture
def other_program(own_gpu: Gpu) -> Iterator[Holder]:
    """Another program on the same GPU, which holds nothing at first."""
    gpu, words = choose_gpu(probe())
    if gpu is None or gpu.uuid is None:
        pytest.skip(words or "the GPU has no UUID")
    holder = Holder(gpu.uuid)
    yield holder
    holder.close()


def test_it_gives_way_to_another_program_and_comes_back(other_program: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_EVERY_S", "TAKE_BACK_EVERY_S"):
        monkeypatch.setattr(sharing, name, 0.0)
    model = LoadedModel.load(starter_model(), EngineConfig(mode="exact"))
    try:
        first, _ = answer(model)
        assert model.gpu is not None, model.device_reason
        placed = model.gpu.placement.vram_bytes
        _, free = other_program.take(64 * MIB)
        assert free < sharing.FLOOR_BYTES
        assert model.on_gpu is not None
        model.on_gpu.balance()
        assert model.gpu is None or model.gpu.placement.vram_bytes < placed
        assert model.gpu_notes
        found, _ = answer(model)
        assert found[:4] == first[:4]
        other_program.close()
        for _ in range(3):
            model.on_gpu.balance()
        assert model.gpu is not None, model.device_reason
        assert model.gpu.placement.vram_bytes == placed
        assert answer(model)[0] == first
    finally:
        model.close()


def test_two_engines_on_one_gpu(own_gpu: Gpu) -> None:
    model = LoadedModel.load(starter_model(), EngineConfig(device="cuda"))
    other = OtherEngine(starter_model(), "cuda", model.context)
    try:
        prompt = model.tokenizer.encode_chat([{"role": "user", "content": "What is an inn? Tell me a story."}])
        other.begin(prompt=prompt, tokens=24)
        ours, _ = answer(model)
        theirs = other.answer()
        assert theirs["device"] == "cuda"
        assert theirs["tokens"] == ours
    finally:
        other.close()
        model.close()


def test_a_load_cancelled_at_any_moment_leaves_nothing(own_gpu: Gpu) -> None:
    LoadedModel.load(starter_model(), EngineConfig(device="cuda")).close()
    before = held_bytes()
    for at in range(1, 400, 30):
        asked = iter(range(at))
        try:
            LoadedModel.load(
                starter_model(), EngineConfig(device="cuda"), job=Job(lambda left=asked: next(left, None) is None)
            ).close()
        except Cancelled:
            assert held_bytes() <= before + 4 * MIB
            continue
        break
    else:
        raise AssertionError("it is never loaded")


def test_the_gpu_times_the_stages_of_a_token(own_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_program, "MARK_EVERY_S", 0.0)
    model = LoadedModel.load(starter_model(), EngineConfig(device="cuda", mode="exact"))
    try:
        graph, cache = model.transformer(), model.new_cache()
        program = graph.decoder
        assert isinstance(program, GpuDecodeProgram)
        prefill(graph, [5, 9], cache)
        plain = decode_one_token(graph, 40, cache).copy()
        cache.truncate(2)
        program.measure_stages(on_gpu=True)
        np.testing.assert_array_equal(decode_one_token(graph, 40, cache), plain)
        stages = program.gpu_seconds()
        assert {"attention", "ffn", "head"} <= set(stages)
        assert all(seconds >= 0 for seconds in stages.values())
        assert 0 < stages["attention"] + stages["ffn"] < 1
    finally:
        model.close()


@pytest.mark.parametrize("n_prompt", [1, 50])
def test_a_router_without_numbers_is_named(
    n_prompt: int, own_gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a token and in a prompt, whose kernels are others."""
    monkeypatch.setattr(weights_module, "check_numbers", lambda *_, **__: None)
    monkeypatch.setattr(weights_module, "_choose_hold", lambda *_: ("mapped", ""))
    router = np.ones((4, 32), np.float32)
    router[2, 3] = np.nan
    path = make_tiny_mixtral(tmp_path / "m.gguf", tensors={"blk.1.ffn_gate_inp.weight": router})
    real = probe()
    slow = replace(real, cpu=replace(real.cpu, bytes_per_s=1e6), sync_s=1e-6)  # else so small a model stays on the CPU
    slow.save(tmp_path / "slow.json")
    config = EngineConfig(device="cuda", context=64, hardware_file=str(tmp_path / "slow.json"))
    loaded = LoadedModel.load(path, config)
    with pytest.raises(BrokenLogitsError, match="the router of layer 1 "):
        list(ChatSession(loaded).generate([5 + i % 90 for i in range(n_prompt)], GREEDY))
    loaded.close()
