"""Every family: its tokens on GPU and CPU are those of the CPU's own program."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from fakes.prefill import NumpyPrefillOps
from family_cover import COVER, WITH_EXPERTS, of_cover
from family_models import CASES, VOCAB, Reference
from samples.predictors import predictor_of
from samples.tiny_model import byte_letters
from support.gpu_tokens import CONTEXT, OnGpu, by_cpu, logits_of, put_on_gpu, some_experts, some_hot
from support.repetitions import slow
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from engine.config import EngineConfig, Mode, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import Cancelled
from engine.executor.dense import DenseExecutor
from engine.gpu.prefill.prefill import GpuPrefill
from engine.gpu.prefill.prefill_memory import sizes_for
from engine.gpu.token.transformer import GpuTransformer
from engine.model.graph import graph_of
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import tokens_together
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.runtime.driver import Stream
from native_kernels.reference import ReferenceOperators

CLOSE = 2e-4  # only the order of additions differs; logits of up to some ten
CLOSE_DELTA = (
    8e-4  # what a head of a delta net returns is normed, however small it is: one ulp of products becomes 1e-4
)
# Float32 where the file has it: for one family with each kind of router, and with a shared expert.
MAPPED = {"mixtral-window", "qwen2-moe", "glm4-moe-air", "gpt-oss", "smallthinker-window", "qwen3.5-moe"}
RUNS = [(name, hold) for name in WITH_EXPERTS for hold in ("f32", "mapped") if hold == "f32" or name in MAPPED]


@pytest.mark.parametrize("name", of_cover(name for name in CASES if name not in WITH_EXPERTS))
def test_a_family_runs_on_both(any_gpu: Gpu, name: str, references: Callable[[str], Reference]) -> None:
    """Its first layer on the GPU with some hot neurons, then one on the CPU; half of all the others. Layers that share
    keys and values are all on one side.
    """
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    n_tokens = 36 if config.rope_scaling is not None or config.windows else 5
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, n_tokens).tolist()
    graph = graph_of(config)
    skips: Mode = "exact" if config.has_some_zeros else "dense"
    others: list[tuple[Mode, str, Collection[int]]] = [("sparse", "cpu", {1})]
    if graph.tied_from < config.n_layers:
        others = [("dense", "cpu", range(graph.tied_from)), (skips, "gpu", ())]
    on_cpu = range(graph.tied_from, config.n_layers) or {1}
    for mode, head, there in [(skips, "gpu", on_cpu), *others]:
        hot = [ids if i not in there else ids[:0] for i, ids in enumerate(some_hot(config, "random"))]
        attention = ["cpu" if i in there else "gpu" for i in range(config.n_layers)]
        predictor = predictor_of(config, weights, "low_rank", reads="residual") if mode == "sparse" else None
        wanted, counted = by_cpu(config, weights, mode, tokens, predictor)
        ours = put_on_gpu(any_gpu, config, weights, mode, hot, predictor, attention=attention, head=head,
                           execution="token" if head == "cpu" else "segments")  # fmt: skip
        found = logits_of(ours.decoder.step, ours.cache(), tokens)
        np.testing.assert_allclose(found, wanted, atol=CLOSE, rtol=1e-4)
        np.testing.assert_array_equal(ours.counters.layers, counted.layers)
        np.testing.assert_array_equal(together(ours, tokens), found)
        ours.close()


def together(ours: OnGpu, tokens: Sequence[int]) -> Any:
    """The logits behind every token, of runs with as many of them as can be."""
    cache, found = ours.cache(), []
    ours.decoder.lay_out(cache)
    assert ours.decoder.most_tokens(cache) == tokens_together(ours.config)
    while len(found) < len(tokens):
        n = min(ours.decoder.most_tokens(cache), len(tokens) - len(found))
        found += list(ours.decoder.steps(tokens[len(found) : len(found) + n], cache))
    return np.stack(found)


@pytest.mark.parametrize(("name", "hold"), [one if one[0] in COVER else slow(*one) for one in RUNS])
def test_a_family_with_experts_runs_on_both(
    any_gpu: Gpu, name: str, hold: str, references: Callable[[str], Reference]
) -> None:
    """Some experts of a layer on the GPU, all of another, none of a third; and one layer on the CPU."""
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold=hold)  # type: ignore[arg-type]
    n_tokens = 14 if config.windows else 5
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, n_tokens).tolist()
    n, layers = config.n_experts, config.n_layers
    placements = [(n // 2, n, 0, 1, n), (n,) * 5]
    modes: list[Mode] = ["dense", "exact"] if config.has_zeros else ["dense"]
    for i, counts in enumerate(placements):
        attention = ["cpu" if i == layer == 0 else "gpu" for layer in range(layers)]
        hot = some_experts(config, [n * (home == "gpu") for n, home in zip(counts, attention, strict=False)])
        for mode in modes[i:] or modes:
            wanted, counted = by_cpu(config, weights, mode, tokens)
            ours = put_on_gpu(any_gpu, config, weights, mode, hot, attention=attention, head="gpu" if i else "cpu")
            if ours.loaded.expert_slots is not None:
                ours.loaded.expert_slots.is_adapting = False  # the two sides add in different orders
            found = logits_of(ours.decoder.step, ours.cache(), tokens)
            close = CLOSE if config.delta is None else CLOSE_DELTA
            np.testing.assert_allclose(found, wanted, atol=close, rtol=1e-4)
            np.testing.assert_array_equal(ours.counters.layers, counted.layers)
            np.testing.assert_array_equal(together(ours, tokens), found)
            np.testing.assert_array_equal(ours.counters.layers, 2 * counted.layers)
            ours.close()


@pytest.mark.parametrize("name", ["phi3-longrope", "llama-dynamic", "phimoe"])
def test_positions_that_turn_by_the_length_of_the_sequence(
    any_gpu: Gpu, name: str, references: Callable[[str], Reference]
) -> None:
    """A prompt across the border: every position of it turns as in the whole; one token more, and all is new."""
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, CONTEXT)
    ops = ReferenceOperators()
    reference = Transformer(config, weights, DenseExecutor(config, weights, ops), ops)
    hot = some_experts(config, [1, 0, 6]) if config.n_experts else some_hot(config, "uneven")
    ours = put_on_gpu(any_gpu, config, weights, "dense", hot, head="cpu")
    model = GpuTransformer(config, weights, reference.executor, ops, ours.decoder)
    cache, theirs = ours.cache(), KVCache(config, CONTEXT)
    for start, stop, ahead in ((0, 20, 0), (20, 23, 2), (23, 30, 0), (30, CONTEXT, 0)):
        found = model.forward(tokens[start:stop], cache, ahead)
        wanted = reference.forward(tokens[start:stop], theirs, ahead)
        np.testing.assert_allclose(model.logits(found), reference.logits(wanted), atol=CLOSE, rtol=1e-4)
        assert model.cache_serves(cache, stop + 1) == reference.cache_serves(theirs, stop + 1)
    ours.close()


@pytest.mark.parametrize("name", [
    "qwen3.5", "qwen3.5-moe", "gemma4-e", "gemma3n", "lfm2", "granite-hybrid", "nemotron-h", "nemotron-h-moe",
])  # fmt: skip
def test_a_conversation_of_a_loaded_model(
    name: str, references: Callable[[str], Reference], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded model answers twice, the second time behind a part of the first prompt, as it does on the CPU."""
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    folder = shutil.copytree(references(name).folder, tmp_path / "model")
    tokenizer = Tokenizer(BPE({letter: i for i, letter in enumerate(byte_letters()[:VOCAB])}, []))
    tokenizer.decoder = ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    greedy = SamplingConfig().changed({"temperature": 0, "max_tokens": 12})
    prompts = [1, 5, 9, 40, 7, 3], [1, 5, 9, 40, 7, 3, 11, 2]
    answers = []
    for load in (machine.load, lambda path: LoadedModel.load(path, EngineConfig(device="cpu", threads=1))):
        model = load(folder)
        session = ChatSession(model)
        answers.append([[event.token_id for event in session.generate(prompt, greedy)] for prompt in prompts])
        if model.gpu is not None:
            placed, loaded = model.gpu.placement.vram_parts_bytes, model.gpu.part_bytes
            assert model.gpu.placement.attention == ("gpu",) * model.opened.config.n_layers
            assert loaded["kv_cache"] == placed["kv_cache"]
            weights = [sum(parts[part] for part in ("attention", "hot", "head")) for parts in (loaded, placed)]
            assert weights[0] <= weights[1] <= weights[0] + (64 << 10)
        model.close()
    assert answers[0] == answers[1]
    for gpu in machine.gpus:
        gpu.close()


def test_several_streams_with_rounded_weights(
    any_gpu: Gpu, references: Callable[[str], Reference], tmp_path: Path
) -> None:
    """Vectors of 8 bits are rounded again at both ends of the GPU's part, and where streams are corrected."""
    opened = open_model(convert(references("gemma3n").folder, tmp_path / "bundle", "q8_0").bundle)
    config, weights = opened.config, load_weights(opened, hold="mapped")
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 12).tolist()
    wanted, _ = by_cpu(config, weights, "dense", tokens)
    for n_on_cpu in (0, 1):
        attention = ["cpu" if i < n_on_cpu else "gpu" for i in range(config.n_layers)]
        hot = [ids[: len(ids) * (i >= n_on_cpu)] for i, ids in enumerate(some_hot(config, "full"))]
        ours = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=attention)
        found = logits_of(ours.decoder.step, ours.cache(), tokens)
        assert np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()) < 0.03
        ours.close()


@pytest.mark.parametrize("name", ["gemma4", "gemma4-e", "gemma4-moe", "gemma3n", "deepseek-v3", "llama4", "phimoe"])
def test_prompts_through_layers_of_different_shapes(
    any_gpu: Gpu, name: str, references: Callable[[str], Reference]
) -> None:
    """In chunks, with all layers on the GPU, and with the first of them on the CPU; then tokens one by one."""
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, CONTEXT)
    ops = ReferenceOperators()
    reference = Transformer(config, weights, DenseExecutor(config, weights, ops), ops)
    wanted = reference.forward(tokens, KVCache(config, CONTEXT))
    for n_on_cpu in (0, 1):
        attention = ["cpu" if i < n_on_cpu else "gpu" for i in range(config.n_layers)]
        hot = some_experts(config, [config.n_experts // 2] * config.n_layers) if config.n_experts else []
        kind = "full" if config.gate_cutoffs else "random"
        hot = [ids[: len(ids) * (i >= n_on_cpu)] for i, ids in enumerate(hot or some_hot(config, kind))]
        ours = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=attention)
        on_device = prompt_ops(any_gpu)
        sizes = sizes_for(config, [w.ffns[0] for w in weights.layers], CONTEXT)
        prefill = GpuPrefill(reference, ours.loaded.model, on_device, ours.pool, sizes)
        cache, found = ours.cache(), []
        cache.claim_region()
        for start, stop in ((0, 21), (21, 22), (22, 36)):
            found.append(prefill.run(tokens[start:stop], cache, CONTEXT))
            cache.advance(stop - start)
        error = np.sqrt(
            np.square(np.concatenate(found) - wanted[:36]).mean(axis=1) / np.square(wanted[:36]).mean(axis=1)
        )
        # Weights become halves. Norms of per-layer embeddings, and routers near a tie, make more of that.
        near = 1e-2 if config.n_experts or config.layer_embedding_dim else 4e-3
        assert np.sort(error)[-5 if config.n_experts else -1] < near, error.tolist()
        for i in range(36, CONTEXT):
            logits = ours.decoder.step(int(tokens[i]), cache)
            np.testing.assert_allclose(logits, reference.logits(wanted[i : i + 1])[0], atol=0.1)
        prefill.close()
        on_device.close()
        ours.close()


@pytest.mark.parametrize("on_cpu", [None, 0])
def test_a_stopped_prompt_of_a_model_with_a_state_keeps_whole_chunks(
    any_gpu: Gpu, references: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch, on_cpu: int | None
) -> None:
    """With that of the stop if it can be finished in time, and the snapshot within them."""
    opened = open_model(references("qwen3.5").folder)
    config, weights, ops = opened.config, load_weights(opened, hold="f32"), ReferenceOperators()
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 30)
    reference = Transformer(config, weights, DenseExecutor(config, weights, ops), ops)
    homes = ["cpu" if i == on_cpu else "gpu" for i in range(config.n_layers)]
    hot = [ids[: len(ids) * (home == "gpu")] for ids, home in zip(some_hot(config, "full"), homes, strict=True)]
    ours, on_device = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=homes), prompt_ops(any_gpu)
    sizes = replace(sizes_for(config, [w.ffns[0] for w in weights.layers], CONTEXT), positions=8)
    prefill = GpuPrefill(reference, ours.loaded.model, on_device, ours.pool, sizes)

    class Prompts:
        least_tokens, chunk_tokens = 2, 8
        n_kept = property(lambda self: prefill.n_kept)

        def run(self, *given: Any) -> Any:
            return prefill.run(*given[:4], copy=given[4] if len(given) > 4 else None)

    def stop(share: float) -> None:
        if share > 0.5:  # within the second chunk
            raise Cancelled

    model: Any = GpuTransformer(config, weights, reference.executor, ops, ours.decoder, Prompts())
    wanted = model.prefill(tokens, ours.cache())
    for limit_s in (0.0, 60.0):
        monkeypatch.setattr("engine.gpu.prefill.prefill.MOST_FINISH_S", limit_s)
        cache = ours.cache()
        with pytest.raises(Cancelled):
            model.prefill(tokens[:24], cache, 0, stop, remembered=12)
        assert (cache.length, list(cache.snapshots)) == ((16, [12]) if limit_s else (0, []))
        for start in (16, 12) if limit_s else (0,):
            cache.truncate(start)
            np.testing.assert_allclose(model.prefill(tokens[start:], cache), wanted[start:], atol=1e-3)
    for one in (prefill, on_device, ours):
        one.close()


def prompt_ops(gpu: Gpu) -> Any:
    """The operators of prompts on that GPU, or on its fake."""
    return GpuPrefillOps(gpu.device, gpu.stream, Stream(gpu.device)) if isinstance(gpu, CudaGpu) else NumpyPrefillOps()
