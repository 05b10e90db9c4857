"""The catalogue: what the file must say, what is made of it for a machine, and the command that lists it."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.repetitions import slow, some_daily

from engine.assets import asset_root
from engine.commands import cli
from engine.config import parse_activation
from engine.errors import DeviceMemoryError, ModelFormatError, ModelNotFoundError
from engine.library.estimate import catalogue
from engine.library.estimate.catalogue import (
    FLUENT_TOK_S,
    READING_TOK_S,
    Catalogue,
    Estimated,
    Estimates,
    load_catalogue,
    recommended,
    what_would_fit,
)
from engine.library.estimate.estimates import estimate_shape
from engine.library.estimate.machines import known_machine
from engine.library.estimate.shapes import config_of, file_bytes, parameters_of
from engine.library.records import CatalogueEntry, from_json, to_json
from engine.machine.measured_hardware import load_profile, profile_names
from engine.text.chat_templates import TEMPLATE_NAMES

ENTRIES = load_catalogue().entries
VOCABULARY_BYTES = 18_500_000  # beside a file's weights: the largest, XLM-RoBERTa's tokenizer.json, takes 17.1 MB
WANTED = {
    # PowerInfer's files, the originals with their predictors, TurboSparse, OPT, dense favourites
    "bamboo-dpo-7b", "bamboo-base-7b", "prosparse-llama-2-7b", "prosparse-llama-2-13b", "relullama-7b",
    "relullama-13b", "relullama-70b", "relufalcon-40b",
    "bamboo-dpo-7b-original", "bamboo-base-7b-original", "prosparse-llama-2-7b-original",
    "prosparse-llama-2-13b-original", "relullama-7b-original", "relullama-13b-original", "relullama-70b-original",
    "turbosparse-mistral-7b",
    "opt-125m", "opt-350m", "opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-66b",
    "qwen2.5-1.5b-instruct", "llama-3.1-8b-instruct", "qwen2.5-32b-instruct", "llama-3.3-70b-instruct",
    # what people look for today, of the families that run
    "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen3-30b-a3b",
    "gemma-3-270m", "gemma-3-1b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b",
    "smollm2-135m", "smollm2-360m", "smollm2-1.7b", "llama-3.2-1b-instruct", "mistral-small-3.2-24b", "phi-4-mini",
    "gpt-oss-20b", "gpt-oss-120b", "qwen3-4b-instruct-2507", "qwen3-4b-thinking-2507", "qwen3-30b-a3b-instruct-2507",
    "qwen3-30b-a3b-thinking-2507", "qwen3-coder-30b-a3b", "glm-4-9b", "glm-4-32b", "glm-4.5-air", "seed-oss-36b",
    "smollm3-3b", "granite-4.1-8b", "olmo-3-7b-instruct", "ernie-4.5-0.3b", "exaone-4.0-1.2b", "minimax-m2",
    # of this year
    "qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-122b-a10b", "qwen3.6-27b", "qwen3.6-35b-a3b",
    "qwen3.8-27b", "qwen3-next-80b-a3b-instruct", "qwen3-coder-next", "gemma-3n-e4b", "gemma-4-e2b", "gemma-4-e4b",
    "gemma-4-12b", "gemma-4-26b-a4b", "gemma-4-31b", "ministral-3-3b", "ministral-3-8b", "ministral-3-14b",
    "devstral-small-2-24b", "glm-4.7-flash", "nemotron-3-nano-30b-a3b", "nemotron-nano-9b-v2", "granite-4.0-h-micro",
    "granite-4.0-h-tiny", "granite-4.0-h-small", "granite-4.1-30b", "lfm2.5-1.2b", "lfm2.5-2.6b", "lfm2.5-8b-a1b",
    "lfm2-24b-a2b", "phi-3.5-moe", "deepseek-v2-lite-chat", "llama-4-scout", "hunyuan-7b", "hy-mt-1.5-1.8b",
    "olmo-3.1-32b-instruct",
}  # fmt: skip


OnMachine = Callable[..., tuple[Estimated, ...]]


def every(entry: CatalogueEntry) -> str:
    return entry.id


ESTIMATED_DAILY = ("laptop-4060-8gb", "no-gpu", "pc-high", "rtx-3060-12gb")  # each takes some seconds


@pytest.fixture(scope="session")
def estimated(whole_run: Path) -> OnMachine:
    """The catalogue's estimates for a machine, made by the first worker that asks."""

    @cache
    def of(name: str, budget: float | None = None) -> tuple[Estimated, ...]:
        file = whole_run / f"estimates-{name}-{budget}"
        with FileLock(f"{file}.lock"):
            if not file.exists():
                made = Estimates(load_catalogue()).all(known_machine(load_profile(name)), budget)
                file.write_bytes(pickle.dumps(made))
            found: tuple[Estimated, ...] = pickle.loads(file.read_bytes())
        return found

    return of


# --- what it says


def test_the_models_that_people_look_for_are_there() -> None:
    assert {entry.id for entry in ENTRIES} >= WANTED
    assert not any("starter" in entry.id or entry.name == "Pip" for entry in ENTRIES)
    assert {entry.kind for entry in ENTRIES} == {"chat", "base", "embedding"}


@pytest.mark.parametrize("entry", ENTRIES, ids=every)
def test_an_entry_hangs_together(entry: CatalogueEntry) -> None:
    config, sparsity = config_of(entry.shape), entry.sparsity
    assert len(entry.summary) <= 90
    assert entry.summary.endswith(".")
    first = entry.files[0]
    assert first.endswith(".gguf") == (entry.format != "safetensors")
    assert not any(fnmatchcase(name, one) for one in entry.files for name in ("pytorch_model.bin", "model.pt", "a.py"))
    assert (entry.format == "powerinfer-gguf") == ("activation/*.pt" in entry.files)
    if config.has_zeros and config.activation != "relu2":  # nothing is published for the square of ReLU
        assert len(sparsity.coverage) == 20
        assert re.search(r"\d", sparsity.source_note)
    else:
        assert sparsity.coverage == ()
    if entry.predictor_repo:
        assert sparsity.predictor_share > 0
    if entry.kind == "chat":
        assert entry.template in TEMPLATE_NAMES or entry.format == "gguf"  # ordinary files bring their own
    if entry.family == "ProSparse" and entry.format == "powerinfer-gguf":  # its files do not say the threshold
        assert parse_activation(entry.activation) == ("fatrelu", 0.01)
    assert from_json(CatalogueEntry, json.loads(json.dumps(to_json(entry))), "an entry") == entry


@pytest.mark.parametrize("entry", ENTRIES, ids=every)
def test_sizes_are_those_of_the_shape(entry: CatalogueEntry) -> None:
    from_shape = file_bytes(entry.shape, entry.codec, entry.format, entry.n_draft_layers)
    share = entry.sparsity.predictor_share if entry.format == "powerinfer-gguf" else 0.0
    assert entry.n_bytes == pytest.approx(from_shape * (1 + share), rel=0.005, abs=VOCABULARY_BYTES)
    assert entry.parameters == parameters_of(entry.shape)
    if entry.n_bytes_source == "published":
        assert entry.n_bytes % 10**6 == 0  # three or four digits are published, not more


@pytest.mark.parametrize(
    ("family", "licence"),
    [
        ("Bamboo", "Apache 2.0"),
        ("TurboSparse", "Apache 2.0"),
        ("ReluFalcon", "Apache 2.0"),
        ("ReluLLaMA", "Llama 2 licence"),
        ("ProSparse", "Llama 2 licence"),
        ("OPT", "OPT licence, research only"),
        ("Gemma", "Gemma licence"),  # up to Gemma 3n
        ("Gemma 4", "Apache 2.0"),
        ("Qwen", "Apache 2.0"),
        ("SmolLM", "Apache 2.0"),
        ("Mistral", "Apache 2.0"),
        ("Phi", "MIT"),
        ("gpt-oss", "Apache 2.0"),
        ("GLM", "MIT"),
        ("Seed-OSS", "Apache 2.0"),
        ("Granite", "Apache 2.0"),
        ("OLMo", "Apache 2.0"),
        ("ERNIE", "Apache 2.0"),
        ("EXAONE", "EXAONE licence, non-commercial"),
        ("MiniMax", "Modified MIT"),
        ("Nemotron", "NVIDIA Open Model licence"),
        ("LFM", "LFM Open licence, free for small companies"),
        ("Hunyuan", "Tencent Hunyuan licence, not for the EU, UK, South Korea"),
        ("DeepSeek", "DeepSeek licence"),
    ],
)
def test_licences_are_those_of_the_families(family: str, licence: str) -> None:
    found = {"Gemma 4" if entry.name.startswith("Gemma 4 ") else entry.family: set[str]() for entry in ENTRIES}
    for entry in ENTRIES:
        found["Gemma 4" if entry.name.startswith("Gemma 4 ") else entry.family].add(entry.licence)
    assert found[family] == {licence}


def test_only_models_to_talk_with_are_called_chat() -> None:
    chat = {entry.family for entry in ENTRIES if entry.kind == "chat"}
    assert chat == {
        "Bamboo", "TurboSparse", "Qwen", "Llama", "Gemma", "SmolLM", "Mistral", "Phi", "gpt-oss", "GLM", "Seed-OSS",
        "Granite", "OLMo", "ERNIE", "EXAONE", "MiniMax", "Nemotron", "LFM", "Hunyuan", "DeepSeek",
    }  # fmt: skip
    assert {entry.template for entry in ENTRIES if entry.id.startswith("bamboo-dpo")} == {"vicuna"}
    assert load_catalogue().get("turbosparse-mistral-7b").template == "chatml"


def test_what_is_made_for_measuring_is_marked_as_research() -> None:
    marked = {entry.id for entry in ENTRIES if entry.research}
    assert marked == {entry.id for entry in ENTRIES if entry.family == "OPT" or entry.id.endswith("-original")}


def test_the_file_has_one_line_for_each_model() -> None:
    lines = (asset_root() / "catalogue.json").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if '"id":' in line]
    assert len(named) == len(ENTRIES)
    assert all(json.loads(line.strip().rstrip(",")).keys() >= {"id", "repo", "shape"} for line in named)


def test_an_entry_says_only_what_its_files_and_shape_do_not(tmp_path: Path) -> None:
    line = {
        "id": "qwen3-8b", "name": "Qwen3 8B", "maker": "Alibaba", "family": "Qwen", "summary": "A model.",
        "repo": "Qwen/Qwen3-8B-GGUF", "files": ["Qwen3-8B-Q4_K_M.gguf"], "n_bytes": 5030000000, "licence": "Apache 2.0",
        "shape": {"family": "qwen3", "activation": "silu-glu", "n_layers": 36, "d_model": 4096, "d_ff": 12288,
                  "n_heads": 32, "n_kv_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_context": 40960},
    }  # fmt: skip
    assert {"codec", "format", "kind", "parameters", "sparsity", "n_bytes_source"}.isdisjoint(line)
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps({"schema_version": 1, "models": [line]}), encoding="utf-8")
    entry = load_catalogue(file).get("qwen3-8b")
    assert (entry.codec, entry.format, entry.kind, entry.parameters) == ("q4_k_m", "gguf", "chat", 8190735360)
    assert (entry.n_bytes_source, entry.sparsity.source, entry.sparsity.active_share) == (
        "published",
        "published",
        None,
    )


def test_published_curves_pass_through_what_is_published() -> None:
    entry = load_catalogue().get("relullama-70b")
    assert [entry.sparsity.coverage[i] for i in (15, 17, 18)] == [0.63, 0.78, 0.865]
    assert load_catalogue().get("relullama-7b").sparsity.source == "published"


# --- a file that says something else


def shipped() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((asset_root() / "catalogue.json").read_text(encoding="utf-8"))
    return values


def bamboo(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in values["models"] if one["id"] == "bamboo-dpo-7b")
    return found


def changed(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda values: bamboo(values).update(fields)


def of_sparsity(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda values: bamboo(values)["sparsity"].update(fields)


def of_shape(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda values: bamboo(values)["shape"].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        changed(id="Bamboo DPO"),
        changed(id="../x"),
        changed(repo="https://example.org/x"),
        changed(repo="owner/name/more"),
        changed(predictor_repo="nobody"),
        changed(name=""),
        changed(licence=" "),
        changed(revision=""),
        changed(files=[]),
        changed(files=["../x.gguf"]),
        changed(files=["/x.gguf"]),
        changed(files=["model.bin"]),
        changed(files=["predictor/model.pt"]),
        changed(files="x.gguf"),
        changed(kind="talk"),
        changed(format="pickle"),
        changed(codec="q9_9"),
        changed(n_bytes=0),
        changed(n_bytes=4.68e9),
        changed(parameters=-1),
        changed(template="no such one"),
        changed(activation="fatrelu"),
        changed(surprise=1),
        of_sparsity(active_share=None),
        of_sparsity(active_share=1.5),
        of_sparsity(coverage="no such curve"),
        of_sparsity(coverage=[0.5, 1.0]),
        of_sparsity(source="guess"),
        of_sparsity(source_note=""),
        of_sparsity(predictor_share=0.9),
        of_shape(family="gpt-9"),
        of_shape(n_layers=0),
        of_shape(d_ff="wide"),
        of_shape(n_dense_layers=1, dense_d_ff=64),
        changed(n_draft_layers=-1),
        lambda values: values["models"].append(values["models"][0]),
        lambda values: values["models"][0].pop("licence"),
        lambda values: values.update(schema_version=2),
        lambda values: values.update(models={}),
        lambda values: values.update(curves=[]),
        lambda values: values["models"].append("a model"),
    ],
)
def test_a_wrong_catalogue_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = shipped()
    change(values)
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelFormatError):
        load_catalogue(file)


def test_a_catalogue_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        load_catalogue(tmp_path / "none.json")


def test_entries_are_found_by_id_and_by_words() -> None:
    known = load_catalogue()
    assert known.get("opt-6.7b").repo == "facebook/opt-6.7b"
    assert known.find("opt-6.8b") is None
    with pytest.raises(ModelNotFoundError):
        known.get("opt-6.8b")
    assert {entry.id for entry in known.matching("bamboo CHAT")} == {
        "bamboo-dpo-7b", "bamboo-dpo-7b-f16", "bamboo-dpo-7b-original",
    }  # fmt: skip
    assert known.matching("nothing of the kind") == ()
    assert known.matching("") == known.entries


# --- for a machine


@pytest.mark.parametrize("name", some_daily(profile_names(), ESTIMATED_DAILY))
def test_every_entry_has_a_sound_estimate_on_every_machine(estimated: OnMachine, name: str) -> None:
    for one in estimated(name):
        estimate = one.estimate
        if estimate.fits == "no":
            assert estimate.predicted_tok_s is None
            assert estimate.short_bytes > 0
            continue
        assert (estimate.fits == "disk") == (estimate.disk_bytes > 0)
        if estimate.fits == "disk":  # at what rate, nobody measured on that machine
            assert one.entry.shape.n_experts
            assert estimate.low_tok_s is estimate.predicted_tok_s is estimate.high_tok_s is None
        else:
            assert estimate.low_tok_s is not None
            assert estimate.predicted_tok_s is not None
            assert estimate.high_tok_s is not None
            assert 0 < estimate.low_tok_s <= estimate.predicted_tok_s <= estimate.high_tok_s < 5000
        assert estimate.vram_bytes <= estimate.vram_budget_bytes
        assert estimate.ram_bytes <= estimate.ram_budget_bytes
        assert 512 <= estimate.context <= one.entry.shape.max_context
        if one.entry.sparsity.source == "published":
            assert estimate.low_tok_s == estimate.high_tok_s


def test_an_entry_is_estimated_once_for_each_machine_and_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    here, some = known_machine(load_profile("pc-high")), Estimates(Catalogue(ENTRIES[::9]))
    first, other = some.all(here), some.all(here, 4.0)
    monkeypatch.setattr(catalogue, "solve_estimate", None)
    assert some.all(known_machine(load_profile("pc-high"))) == first
    assert [one.estimate for one in other] != [one.estimate for one in first]
    assert all(one.estimate.vram_bytes <= 4 << 30 for one in other)


def test_a_budget_beyond_the_gpu_is_refused() -> None:
    with pytest.raises(DeviceMemoryError):
        Estimates(load_catalogue()).all(known_machine(load_profile("pc-low")), 64.0)


@pytest.mark.parametrize("name", some_daily(profile_names(), ESTIMATED_DAILY))
def test_what_is_recommended_fits_and_can_be_talked_with(estimated: OnMachine, name: str) -> None:
    found = recommended(estimated(name))
    assert found is not None
    assert found.entry.kind == "chat"
    assert found.estimate.fits != "no"
    assert not found.entry.gated
    assert (found.estimate.low_tok_s or 0) >= READING_TOK_S
    assert recommended(()) is None


@pytest.mark.parametrize(
    ("name", "budget"), [("laptop-4060-8gb", None), ("rtx-3060-12gb", None), ("pc-high", None), slow("pc-high", 15.0)]
)
def test_what_is_recommended_for_a_gpu_uses_it_and_answers_fluently(
    estimated: OnMachine, name: str, budget: float | None
) -> None:
    found = recommended(estimated(name, budget))
    assert found is not None
    assert found.estimate.fits in ("gpu", "hybrid")
    assert (found.estimate.low_tok_s or 0) >= FLUENT_TOK_S


def test_a_model_that_leaves_the_gpu_unused_is_recommended_after_those_that_use_it(estimated: OnMachine) -> None:
    by_id = {one.entry.id: one for one in estimated("laptop-4060-8gb")}
    unused, used = by_id["lfm2.5-8b-a1b"], by_id["qwen3-8b"]
    unused = replace(unused, estimate=replace(unused.estimate, fits="cpu"))
    assert unused.estimate.leaves_gpu_unused
    assert unused.entry.rank < used.entry.rank
    assert recommended([unused, used]) == used
    assert recommended([unused]) == unused
    without = {one.entry.id: one for one in estimated("no-gpu")}
    assert recommended([without[one.entry.id] for one in (unused, used)]) == without["lfm2.5-8b-a1b"]


def test_a_fluent_model_is_recommended_before_a_better_one_unless_it_is_tiny(estimated: OnMachine) -> None:
    by_id = {one.entry.id: one for one in estimated("no-gpu")}
    halting, fluent, tiny = by_id["qwen3.5-4b"], by_id["lfm2.5-8b-a1b"], by_id["qwen3.5-0.8b"]
    assert recommended([halting, fluent, tiny]) == fluent
    assert recommended([halting, tiny]) == halting


def test_models_without_gpu_kernels_are_estimated_on_the_cpu_and_say_so(estimated: OnMachine) -> None:
    alone = {one.entry.id for one in estimated("pc-high") if any("CPU alone" in note for note in one.estimate.notes)}
    assert {one.entry.id for one in estimated("pc-high") if one.estimate.fits == "cpu"} <= alone
    assert not {
        "gemma-4-e4b", "glm-4.7-flash", "phi-3.5-moe", "lfm2.5-1.2b", "llama-4-scout", "nemotron-3-nano-30b-a3b",
        "granite-4.0-h-small",
    } & alone  # fmt: skip
    [entry] = [one for one in ENTRIES if one.id == "glm-4.7-flash"]
    assert entry.shape.latent is not None
    wide = replace(entry.shape, latent=replace(entry.shape.latent, rank=640), head_dim=704)
    for machine in ("pc-high", "no-gpu"):
        found = estimate_shape(wide, "q4_0", "gguf", known_machine(load_profile(machine)))
        assert any("CPU alone" in note for note in found.notes) == (machine == "pc-high")
        assert found.vram_bytes == 0


def test_what_the_disk_does_not_hold_is_not_recommended(estimated: OnMachine) -> None:
    models = estimated("pc-high")
    large, small = recommended(models, 100 * 10**9), recommended(models, 5 * 10**9)
    assert large is not None
    assert large.entry.id == "qwen3.8-27b"
    assert small is not None
    assert small.entry.n_bytes <= 3 * 10**9
    assert recommended(models, 10**9) is None


def test_the_fastest_is_recommended_where_all_are_slow(estimated: OnMachine) -> None:
    slow = [one for one in estimated("no-gpu") if (one.estimate.low_tok_s or 0) < READING_TOK_S]
    found = recommended(slow)
    assert found is not None
    rates = [one.estimate.predicted_tok_s or 0 for one in slow if one.entry.kind == "chat"]
    assert found.estimate.predicted_tok_s == max(rates)


def test_experts_on_the_disk_are_recommended_only_if_nothing_else_fits(estimated: OnMachine) -> None:
    models = [one for one in estimated("rtx-3060-12gb") if one.entry.kind == "chat" and not one.entry.gated]
    on_disk = [replace(one, estimate=replace(one.estimate, predicted_tok_s=90.0, low_tok_s=90.0))
               for one in models if one.estimate.fits == "disk"]  # fmt: skip
    assert on_disk
    slowest = min((one for one in models if one.estimate.predicted_tok_s), key=lambda one: one.estimate.predicted_tok_s)
    assert recommended([*on_disk, slowest]) == slowest
    assert recommended(on_disk) in on_disk
    assert what_would_fit([*on_disk, slowest])[0] == slowest


def test_what_would_fit_in_place_of_one_that_does_not(estimated: OnMachine) -> None:
    models, known = estimated("rtx-3060-12gb"), load_catalogue()
    large = next(one for one in models if one.entry.id == "relullama-70b-original")
    assert large.estimate.fits == "no"
    others = what_would_fit(models, large.entry)
    assert 1 <= len(others) <= 3
    assert all(one.estimate.fits != "no" and one.entry.kind == "base" for one in others)
    assert others[0].entry.family == "ReluLLaMA"
    chat = what_would_fit(models, known.get("llama-3.3-70b-instruct"), limit=1)
    assert chat[0].entry.kind == "chat"
    assert what_would_fit((), large.entry) == ()
    assert all(one.entry.kind == "chat" for one in what_would_fit(models))


# --- the command

FIELDS = {"id", "repo", "name", "bytes", "parameters", "family", "active_share", "licence", "fits",
          "predicted_tok_s", "predicted_from"}  # fmt: skip


def test_the_command_prints_an_object_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"qwen2.5-7b-instruct", "relullama-7b", "opt-66b", "opt-125m", "qwen3-0.6b"}
    some = tuple(entry for i, entry in enumerate(ENTRIES) if i % 4 == 0 or entry.id in named)
    monkeypatch.setattr(catalogue, "load_catalogue", lambda: Catalogue(some))
    assert cli.main(["catalogue", "--json", "--hardware", "pc-low"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    values = [json.loads(line) for line in captured.out.splitlines()]
    assert [one["id"] for one in values] == [entry.id for entry in some]
    assert all(one.keys() >= FIELDS for one in values)
    assert {one["fits"] for one in values} == {"gpu", "cpu", "hybrid", "disk", "no"}
    by_id = {one["id"]: one for one in values}
    assert by_id["qwen2.5-7b-instruct"]["active_share"] is None
    assert by_id["relullama-7b"]["predicted_from"] == "published"
    assert by_id["opt-66b"]["predicted_tok_s"] is None
    assert by_id["opt-125m"]["research"] is True
    assert by_id["qwen3-0.6b"]["research"] is False
    assert all(isinstance(entry["once_prepared"], bool) for entry in values)


def test_the_command_speaks_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalogue", "--query", "relullama", "--hardware", "rtx-3060-12gb", "--vram-budget", "6"]) == 0
    text = capsys.readouterr().out
    assert "relullama-7b " in text
    assert "GPU + CPU" in text
    assert "GB too big" in text
    assert "6 models" in text
    assert "GeForce RTX 3060" in text


def test_the_command_refuses_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["catalogue", "--hardware", "no such machine"]) == 1
    assert cli.main(["catalogue", "--hardware", "pc-low", "--vram-budget", "99"]) == 1
    assert "99 GiB" in capsys.readouterr().err
    assert cli.main(["catalogue", "--query", "nothing of the kind", "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_a_catalogue_can_be_a_part_of_one() -> None:
    few = Catalogue(ENTRIES[:2])
    assert len(Estimates(few).all(known_machine(load_profile("no-gpu")))) == 2


def test_a_pasted_repository_is_found_with_what_the_catalogue_knows_of_it() -> None:
    known = load_catalogue()
    one = known.of_repository("powerinfer/bamboo-dpo-v0.1-gguf", "q4_0")
    assert one is not None
    assert one.id == "bamboo-dpo-7b"
    assert known.of_repository(one.repo) is None, "two files lie there"
    assert known.of_repository("nobody/nothing") is None


@pytest.mark.parametrize("missing", [0, 1, 40_000_000, 400_000_000, 2_900_000_000, 5_000_000_000])
def test_no_model_is_zero_gigabytes_too_big(missing: int) -> None:
    from types import SimpleNamespace

    from engine.commands.catalogue import too_big

    said = float(too_big(SimpleNamespace(short_bytes=missing)).split()[0])  # type: ignore[arg-type]
    assert said > 0
    assert missing <= said * 1e9 < missing + 1.1e9
