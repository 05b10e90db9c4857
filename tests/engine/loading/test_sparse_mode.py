"""Sparse mode from end to end: PowerInfer's files and folders in sessions, host and command line; auto's choice."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples.predictors import predictor_of
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_model
from support.shown_text import numbers_in

from engine.bundle import artefacts
from engine.commands import cli
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import ArtifactMismatchError, ModelFormatError, UnsupportedModelError
from engine.evaluation import bench
from engine.evaluation.evaluate import last_logits, perplexity
from engine.loading.modes import SparseCost, choose_mode, measure_sparse_cost, read_predictors
from engine.model.kv_cache import KVCache
from engine.model.model_files import open_model
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_one_token
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import Budget, MeasuredText

TOKENS = np.random.default_rng(0).integers(6, 256, 40).tolist()
GREEDY = SamplingConfig(temperature=0, max_tokens=8)


def load(path: Path, mode: Any = "auto") -> LoadedModel:
    """Keys and values are not rounded: in float16 (11 bits) they move logits of up to 20 by some 5e-3."""
    return LoadedModel.load(path, EngineConfig(mode=mode, threads=1, kv_cache="f32"))


@pytest.fixture(autouse=True)
def memory_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench need not measure the RAM again: only bytes and shares are compared here."""
    monkeypatch.setattr("native_kernels.cpu.products.bandwidth.read_bytes_per_s", lambda *_: 2e10)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_powerinfer(tmp_path_factory.mktemp("powerinfer") / "m.gguf", rank=8)


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path, "sparse")


def write_folder(folder: Path, d_model: int = 32, d_ff: int = 64) -> Path:
    folder.mkdir(parents=True)
    for i in range(2):
        torch.manual_seed(i)
        parts = {"fc1.weight": torch.randn(4 + i, d_model), "fc2.weight": torch.randn(d_ff, 4 + i)}
        torch.save(parts, folder / f"model_{i}.pt")
    return folder


# --- what it does


def test_a_powerinfer_file_answers_in_sparse_mode(model: LoadedModel) -> None:
    assert model.mode == "sparse"
    assert "predictors" in model.mode_reason
    assert [layer.rank for layer in model.modes.predictor.layers] == [8, 16]
    last = list(ChatSession(model).generate(TOKENS[:10], GREEDY))[-1]
    assert 0.1 < (last.stats.fired_share or 0) < (last.stats.active_share or 0) < 0.9


def test_the_predicted_neurons_alone_are_computed(model: LoadedModel) -> None:
    """Against the whole graph in NumPy's plainest words for the first position: attention of one position is v."""
    config, weights, predictor = model.opened.config, model.weights, model.modes.predictor

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x) + config.norm_eps) * weight

    x = weights.embedding.data[TOKENS[0]].astype(np.float64)
    for w, part in zip(weights.layers, predictor.layers, strict=True):
        v = w.qkv[2].data @ norm(x, w.attention_norm)
        heads = np.repeat(v.reshape(config.n_kv_heads, -1), config.n_heads // config.n_kv_heads, axis=0)
        x = x + w.o.data @ heads.ravel()
        fc1, fc2 = part.low_rank.a.data.astype(np.float64), part.low_rank.b.data.astype(np.float64)
        expected = fc2 @ np.maximum(fc1 @ x, 0) >= 0.25
        normed = norm(x, w.ffn_norm)
        x = x + (np.maximum(w.gate.data @ normed, 0) * (w.up.data @ normed) * expected) @ w.down_t.data
    wanted = weights.head.data @ norm(x, weights.final_norm)
    np.testing.assert_allclose(last_logits(model, TOKENS[:1]), wanted, atol=2e-4)
    assert np.abs(last_logits(model, TOKENS[:1], mode="exact") - wanted).max() > 0.05


def test_every_position_of_a_text_is_masked_as_decode_masks_it(model: LoadedModel) -> None:
    at_once = last_logits(model, TOKENS, every=True)
    transformer, cache = model.transformer(), KVCache(model.opened.config, len(TOKENS))
    one_by_one = [transformer.logits(transformer.forward(np.array([token]), cache))[0] for token in TOKENS]
    np.testing.assert_allclose(at_once, one_by_one, atol=2e-3)
    found = perplexity(model, TOKENS, context=41, against="exact")
    counters = transformer.executor.counters
    assert found.active_share == pytest.approx(counters.active_share, rel=0.05)  # BOS stands before the text there
    assert (found.top1_agreement or 0) < 1
    assert (found.kl_divergence or 0) > 1e-3
    assert 0 < (found.recall or 0) < 1
    assert found.precision == pytest.approx((found.fired_share or 0) / (found.active_share or 1))
    assert perplexity(model, TOKENS, 41, against="sparse").kl_divergence == 0


def test_bench_counts_the_predictors_and_the_neurons_they_expect(model: LoadedModel) -> None:
    result = bench.run(model, prompt_tokens=8, gen_tokens=8, repeat=1)
    exact = bench.run(model, prompt_tokens=8, gen_tokens=8, repeat=1, mode="exact")
    dense = bench.run(model, prompt_tokens=8, gen_tokens=8, repeat=1, mode="dense")
    assert [found.mode for found in (result, exact, dense)] == ["sparse", "exact", "dense"]
    matrix = 4 * 2 * 64 * 32  # one of the FFN's three, over both layers
    predictors = 2 * (8 + 16) * (32 + 64)

    def ffn(found: bench.BenchResult) -> float:
        return found.bytes_per_token["cpu"] - dense.bytes_per_token["cpu"] + 3 * matrix

    active, fired = result.active_share or 0, result.fired_share or 0
    assert ffn(result) == pytest.approx(predictors + matrix * (active + 2 * fired), abs=1)
    assert ffn(exact) == pytest.approx(matrix * (1 + 2 * (exact.fired_share or 0)), abs=1)
    assert 0.1 < fired < active < 0.9


@pytest.mark.parametrize("loaded_as", ["exact", "sparse"])
def test_the_host_takes_the_mode_per_request(path: Path, loaded_as: str) -> None:
    events: list[Any] = []
    host = EngineHost(events.append)
    hello = [{"role": "user", "content": "the"}]
    host.submit(protocol.Load("0", str(path), {"mode": loaded_as, "threads": 1}))
    asked = ["sparse", None, "dense", "auto", "sparse"]
    for number, mode in enumerate(asked, 1):
        host.submit(protocol.Generate(str(number), hello, {"temperature": 0, "max_tokens": 4}, mode=mode))
    host.run_pending()
    ends = {event.id: event.result for event in events if isinstance(event, protocol.Finished)}
    assert ends["0"]["mode"] == loaded_as
    assert ends["0"]["has_predictors"]
    assert [ends[str(i)]["mode"] for i in range(1, 6)] == ["sparse", loaded_as, "dense", "sparse", "sparse"]
    assert ends["3"]["active_share"] == 1.0
    assert ends["1"]["active_share"] == ends["5"]["active_share"] < 1.0
    host.close()


def test_the_command_line_runs_it(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def values(*argv: str) -> dict[str, Any]:
        assert cli.main([*argv, "--mode", "sparse", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    text = tmp_path / "text.txt"
    text.write_text("in the a the or ll o " * 3, encoding="utf-8")
    scores = values("eval", str(path), "--text", str(text), "--against", "exact")
    assert 0 < scores["fired_share"] < scores["active_share"] < 1
    stats = values("generate", str(path), "--prompt", "the", "--raw", "--max-tokens", "4", "--temperature", "0")[
        "stats"
    ]
    assert 0 < stats["fired_share"] < stats["active_share"] < 1
    out = tmp_path / "logits.npz"
    values("logits", str(path), "--tokens", "7,8,9", "--out", str(out), "--all")
    assert np.load(out)["logits"].shape == (3, 270)
    moved = values("bench", str(path), "--prompt-tokens", "4", "--gen-tokens", "4", "--repeat", "1")
    assert moved["bytes_per_token"]["cpu"] > 0


# --- where predictors come from


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_folder_of_predictors_beside_a_hugging_face_model(tmp_path: Path, activation: str) -> None:
    folder = make_tiny_model(tmp_path / "m", activation=activation)
    write_folder(folder / "predictors")
    model = load(folder, "sparse")
    last = list(ChatSession(model).generate(TOKENS[:10], GREEDY))[-1]
    active, fired = last.stats.active_share or 0, last.stats.fired_share or 0
    assert 0.2 < active < 0.9
    assert fired < active if activation == "relu" else fired == active
    assert load(folder).mode == ("sparse" if activation == "relu" else "dense")


def test_predictors_of_another_model_are_refused_and_auto_does_without_them(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    write_folder(folder / "predictors", d_ff=96)
    with pytest.raises(ArtifactMismatchError, match=r"\b96 neurons.*\b64 neurons"):
        load(folder, "sparse")
    model = load(folder)
    assert model.mode == "exact"
    assert "96 neurons" in model.mode_reason
    (folder / "predictors" / "model_1.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelFormatError):
        load(folder, "exact").transformer("sparse")


def test_sparse_without_predictors_is_refused_with_a_way_out(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    with pytest.raises(UnsupportedModelError, match="no predictors") as caught:
        load(folder, "sparse")
    assert "--mode exact" in caught.value.hint
    with pytest.raises(UnsupportedModelError, match="no predictors") as caught:
        load(make_tiny_model(tmp_path / "silu", activation="silu"), "sparse")
    assert "exact" not in caught.value.hint, "which is dense there"
    assert "silu-glu" in caught.value.hint
    with pytest.raises(UnsupportedModelError, match="no predictors"):
        read_predictors(load(folder).opened)


# --- what auto makes of them


def test_auto_takes_sparse_where_it_reads_less(path: Path, tmp_path: Path) -> None:
    model = load(path)
    found = re.search(r"(\d+)% .*\b(\d\.\d+) MB", model.mode_reason)
    assert model.mode == "sparse"
    assert found
    gates, predictors = 4 * 2 * 64 * 32, 2 * (8 + 16) * (32 + 64)
    assert float(found[2]) == pytest.approx(((1 - int(found[1]) / 100) * gates - predictors) / 1e6, abs=1e-4)

    everything = load(make_tiny_powerinfer(tmp_path / "all.gguf", rank=8, threshold=-1e9))
    assert everything.mode == "exact"
    assert numbers_in(everything.mode_reason) == ["100%", "0.00461 MB"]
    large = load(make_tiny_powerinfer(tmp_path / "large.gguf", rank=64))
    assert large.mode == "exact"
    assert numbers_in(large.mode_reason) == ["0.0205 MB"]
    assert last_logits(large, TOKENS, mode="sparse").shape == (270,)


def with_kinds(folder: Path, *kinds: Any, budget: Budget | None = None) -> LoadedModel:
    """A tiny model with predictors of its own of these kinds, kept as its artefact, in mode auto."""
    source = make_tiny_model(folder / "m", d_model=256, d_ff=256)
    bundle = convert(source, folder / "b", "f16").bundle
    model = load(bundle, "exact")
    predictor = predictor_of(model.opened.config, model.weights, *kinds)
    artefacts.save_predictor(model.opened, dataclasses.replace(predictor, budget=budget))
    return load(bundle)


def test_auto_takes_no_predictors_that_missed_their_budget(tmp_path: Path) -> None:
    measured = (MeasuredText("dialogue", 0.004, 0.98), MeasuredText("prose", 0.023, 0.95))
    for budget, mode, words in (
        (None, "sparse", "which reads"),
        (Budget(0.01, measured[:1], True, 0.99), "sparse", "which reads"),
        (Budget(0.01, measured, False, 0.99), "exact",
         "did not hold their error budget: perplexity may rise by 1 %, and rose by 2.3 % on prose"),
        (Budget(0.01, (), False, 0.99), "exact", "did not hold their error budget: perplexity may rise by 1 %"),
    ):  # fmt: skip
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        model = with_kinds(folder, "gate_copy", budget=budget)
        assert model.mode == mode
        assert words in model.mode_reason
    assert model.resolve_mode("sparse") == "sparse"  # asked for by name, it runs


def test_auto_counts_what_each_kind_reads(tmp_path: Path) -> None:
    model = with_kinds(tmp_path, "cascade", "true_gate")
    found = bench.run(model, prompt_tokens=8, gen_tokens=16, repeat=1, mode="sparse")
    exact = bench.run(model, prompt_tokens=8, gen_tokens=16, repeat=1, mode="exact")
    predictor = model.modes.predictor
    assert found.predictor_kinds == predictor.kinds == {"cascade": 1, "true_gate": 1}
    cascade, matrix = predictor.layers[0], 2 * 256 * 256
    low_rank = 4 * 8 * (256 + 256) + 4 * (8 + 256)
    assert low_rank < found.predictor_bytes_per_token < cascade.n_bytes == low_rank + 256 * (4 * 24 + 2)
    assert matrix < found.ffn_bytes_per_token < exact.ffn_bytes_per_token < 6 * matrix
    assert exact.predictor_bytes_per_token == 0
    assert exact.predictor_kinds is None
    stages = {stage for stage, seconds in found.timings.items() if seconds > 0}
    assert {"predictor", "ffn", "attention", "head"} <= stages
    assert sum(found.timings.values()) == pytest.approx(1 / found.decode_tok_s, rel=0.2)
    cost = measure_sparse_cost(model.opened, model.weights, predictor, TOKENS, model.backend.operators, "f32")
    assert matrix < cost.first_bytes_read < cost.first_bytes == 2 * matrix
    assert low_rank < cost.predictor_bytes < cascade.n_bytes


def test_only_true_gates_are_exact_mode(tmp_path: Path) -> None:
    model = with_kinds(tmp_path, "true_gate")
    assert model.mode == "exact"
    found, exact = (
        bench.run(model, prompt_tokens=8, gen_tokens=8, repeat=1, mode=mode) for mode in ("sparse", "exact")
    )
    assert found.bytes_per_token == exact.bytes_per_token
    assert (found.active_share, found.fired_share) == (exact.active_share, exact.fired_share)


def test_prompt_and_decode_of_every_kind_compute_the_same(tmp_path: Path) -> None:
    """At most one neuron in thousands falls to the other side: attention of a prompt adds up in another order."""
    model = with_kinds(tmp_path, "cascade", "gate_copy")
    for mode in ("sparse",):
        at_once = last_logits(model, TOKENS, mode=mode, every=True)
        transformer, cache = model.transformer(mode), model.new_cache(64)
        one_by_one = [decode_one_token(transformer, token, cache) for token in TOKENS]
        np.testing.assert_allclose(at_once, one_by_one, atol=0.03 * np.abs(at_once).max())


def test_inspect_says_the_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = with_kinds(tmp_path, "cascade", "gate_copy")
    capsys.readouterr()
    assert cli.main(["inspect", str(model.opened.files.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictor_kinds"] == {"cascade": 1, "gate_copy": 1}
    assert cli.main(["inspect", str(model.opened.files.path)]) == 0
    assert re.search(r"cascade in 1 .*gate_copy in 1 ", capsys.readouterr().out)
    again = convert(model.opened.files.path, tmp_path / "c", "q4_0")
    assert again.warnings == ()
    carried = read_predictors(open_model(again.bundle))
    assert carried.kinds == {"cascade": 1, "gate_copy": 1}
    for mine, theirs in zip(model.modes.predictor.layers, carried.layers, strict=True):
        np.testing.assert_array_equal(mine.copy.matrix.data, theirs.copy.matrix.data)
    plain = make_tiny_model(tmp_path / "plain")
    assert cli.main(["inspect", str(plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictor_kinds"] is None


def test_auto_is_only_measured_where_it_depends_on_it(model: LoadedModel) -> None:
    def never() -> SparseCost:
        raise AssertionError("nothing depends on it")

    silu = dataclasses.replace(model.opened, config=dataclasses.replace(model.opened.config, activation="silu-glu"))
    assert choose_mode(silu, "auto", never)[0] == "dense"
    assert choose_mode(silu, "sparse", never)[0] == "sparse"
    for wanted in ("exact", "dense", "sparse"):
        assert choose_mode(model.opened, wanted, never)[0] == wanted
    assert choose_mode(model.opened, "auto")[0] == "exact"


# --- a model of PowerInfer's own proportions

GENERATOR = Path(__file__).resolve().parents[4] / "shared" / "tools" / "make_synthetic_gguf.py"


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[float]]]:
    """Per codec, made once: a generated file, and the share of each layer's neurons that its generator expects."""
    folder = tmp_path_factory.mktemp("synthetic")

    @cache
    def of(codec: str) -> tuple[Path, list[float]]:
        def tool(*argv: str) -> str:
            done = subprocess.run(
                [sys.executable, str(GENERATOR), *argv, "--dims", "tiny", "--rank", "64", "--type", codec],
                capture_output=True, text=True, check=True, timeout=600,
            )  # fmt: skip
            return done.stdout

        tool("powerinfer", "--out", str(folder / f"{codec}.gguf"), "--threads", "2")
        shares = re.findall(r"active ([\d.]+) %", tool("probe"))
        return folder / f"{codec}.gguf", [float(share) / 100 for share in shares]

    return of


@pytest.mark.skipif(not GENERATOR.is_file(), reason="the generator of synthetic models is not beside the repository")
@pytest.mark.parametrize(
    ("codec", "has_room", "backend", "held"),
    [
        ("f16", True, "reference", "f16"),
        ("q4_0", True, "reference", "f32"),
        ("q4_0", False, "reference", "q4_0"),
        ("q4_0", True, "kernels", "q4_0.lanes"),
    ],
)
def test_a_synthetic_powerinfer_model_expects_what_its_generator_says(
    synthetic: Callable[[str], tuple[Path, list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str,
    has_room: bool, backend: Any, held: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("engine.loading.modes._fits_in_ram", lambda n_bytes: has_room)
    made, wanted = synthetic(codec)
    file = shutil.copy(made, tmp_path)
    assert len(wanted) == 2
    model = LoadedModel.load(file, EngineConfig(mode="sparse", context=128, backend=backend, kv_cache="f32"))
    assert model.opened.format == "powerinfer-gguf"
    layer = model.modes.predictor.layers[0].low_rank
    assert (layer.a.codec, layer.b.codec) == (held.removesuffix(".lanes"), held)
    tokens = np.random.default_rng(0).integers(300, 32000, 48).tolist()
    transformer = model.transformer()
    transformer.forward(np.array(tokens), KVCache(model.opened.config, 48))
    assert transformer.executor.counters.active_share == pytest.approx(np.mean(wanted), abs=0.02)
