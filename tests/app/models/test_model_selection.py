"""Which models are shown, in which order, and what a pasted text names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_library import GB, PIP, catalogue_rows, entry, estimate, installed

from app.models.model_rows import ModelRow, Preparing, rows_of
from app.models.model_selection import Choice, families, is_working, repository, select, what_would_fit, work_figure
from engine.library.records import Download

MINE = installed("ProSparse 13B", id="SparseLLM/p", catalogue_id="prosparse-13b", measured_tok_s=99.0)


@pytest.fixture
def rows() -> list[ModelRow]:
    return rows_of(catalogue_rows(), [PIP, MINE], [], None, in_use="SparseLLM/p")


def ids(rows: list[ModelRow]) -> list[str]:
    return [row.id for row in rows]


def test_recommended_are_those_here_and_the_best_that_fit_and_chat(rows: list[ModelRow]) -> None:
    assert ids(select(rows, Choice())) == [
        "prosparse-13b", "bamboo-dpo-7b", "turbosparse-mistral-7b", "turbosparse-mixtral-47b", "hearth/starter-chat",
    ]  # fmt: skip


def test_what_is_offered_comes_first_and_what_crawls_is_not_recommended(rows: list[ModelRow]) -> None:
    found = ids(select(rows, Choice(), "turbosparse-mixtral-47b"))
    assert found[:3] == ["prosparse-13b", "turbosparse-mixtral-47b", "bamboo-dpo-7b"]
    slow = rows_of([(entry("Slow 70B"), estimate("cpu", 0.9))], [], [], None)
    assert select(slow, Choice()) == []
    assert len(select(slow, Choice(filter="all"))) == 1


def test_what_runs_well_here_is_recommended_before_what_is_slow() -> None:
    found = [
        (entry("Slow 30B", rank=1), estimate("cpu", 3.0, vram_budget_bytes=0)),
        (entry("Quick 1B", rank=2), estimate("cpu", 30.0, vram_budget_bytes=0)),
    ]
    rows = rows_of(found, [], [], None)
    assert ids(select(rows, Choice())) == ["quick-1b", "slow-30b"]
    assert ids(select(rows, Choice(filter="well"))) == ["quick-1b"]


def test_what_reads_experts_from_the_disk_is_listed_but_not_recommended() -> None:
    found = [
        (entry("From disk", rank=1), estimate("disk", 30.0, disk_bytes=11 << 30)),
        (entry("Slow 30B", rank=2), estimate("cpu", 3.0, vram_budget_bytes=0)),
    ]
    rows = rows_of(found, [], [], None)
    assert ids(select(rows, Choice())) == ["slow-30b"]
    assert ids(select(rows, Choice(filter="well"))) == []
    assert ids(select(rows, Choice(filter="all"))) == ["slow-30b", "from-disk"]


def test_recommended_are_not_a_whole_catalogue() -> None:
    many = [(entry(f"Model {i}", rank=i), estimate("gpu", 20)) for i in range(40)]
    found = select(rows_of(many, [PIP], [], None), Choice())
    assert len(found) == 13
    assert "model-11" in ids(found)
    assert "model-12" not in ids(found)
    found = select(rows_of(many, [PIP], [], None), Choice(), "model-30")
    assert (len(found), found[0].id) == (14, "model-30")


@pytest.mark.parametrize(
    ("wanted", "count"), [("here", 2), ("gpu", 1), ("well", 4), ("chat", 5), ("research", 2), ("all", 7)]
)  # fmt: skip
def test_filters(rows: list[ModelRow], wanted: str, count: int) -> None:
    assert len(select(rows, Choice(filter=wanted))) == count  # type: ignore[arg-type]


def test_models_for_measuring_stand_under_research_alone_until_they_are_looked_for_or_here() -> None:
    opt, chat = entry("OPT 6.7B", kind="base", research=True), entry("Chat 8B")
    rows = rows_of([(opt, estimate("gpu", 20)), (chat, estimate("gpu", 20))], [], [], None)
    assert ids(select(rows, Choice(filter="all"))) == ["chat-8b"]
    assert ids(select(rows, Choice(filter="research"))) == ["opt-6.7b"]
    assert ids(select(rows, Choice(filter="all", text="opt"))) == ["opt-6.7b"]
    get = Download("d", "PowerInfer/opt-6.7b", "OPT 6.7B", "x", "queued", 0, GB, catalogue_id="opt-6.7b")
    coming = rows_of([(opt, estimate("gpu", 20))], [], [get], None)
    assert ids(select(coming, Choice(filter="all"))) == ["opt-6.7b"]


def test_a_model_on_its_way_is_among_those_here() -> None:
    get = Download("d", "PowerInfer/b", "Bamboo", "PowerInfer/b", "queued", 0, GB, catalogue_id="bamboo-dpo-7b")
    assert "bamboo-dpo-7b" in ids(select(rows_of(catalogue_rows(), [], [get], None), Choice(filter="here")))


def test_sorting(rows: list[ModelRow]) -> None:
    everything = Choice(filter="all")
    by_speed = ids(select(rows, replace(everything, sort="speed")))
    assert by_speed[:3] == ["hearth/starter-chat", "prosparse-13b", "turbosparse-mistral-7b"]
    assert by_speed[-1] == "relullama-70b", "what does not fit comes last, however it is sorted by speed"
    sizes = [row.n_bytes for row in select(rows, replace(everything, sort="size"))]
    assert sizes == sorted(sizes)
    numbered = rows_of([(entry(f"OPT {n}B"), None) for n in (13, 2.7, 30, 6.7)], [], [], None)
    assert [row.name for row in select(numbered, replace(everything, sort="name"))] == [
        "OPT 2.7B", "OPT 6.7B", "OPT 13B", "OPT 30B",
    ]  # fmt: skip


def test_size_family_and_words(rows: list[ModelRow]) -> None:
    everything = Choice(filter="all")
    assert ids(select(rows, replace(everything, size="l"))) == ["turbosparse-mixtral-47b", "relullama-70b"]
    assert ids(select(rows, replace(everything, family="OPT"))) == ["opt-6.7b"]
    assert ids(select(rows, replace(everything, text="sparse  MISTRAL"))) == ["turbosparse-mistral-7b"]
    assert select(rows, replace(everything, text="nothing like it")) == []
    assert families(rows) == ["Bamboo", "OPT", "ProSparse", "ReluLLaMA", "TurboSparse"]


def test_what_would_fit_looks_in_the_family_first_then_at_the_largest() -> None:
    rows_ = [*catalogue_rows(), (entry("ReluLLaMA 7B", maker="SparseLLM", kind="base"), estimate("gpu", 40))]
    vectors = (entry("ReluLLaMA Embedding", maker="SparseLLM", kind="embedding"), estimate("cpu", 90))
    rows = rows_of([vectors, *rows_], [PIP], [], None)
    big = next(row for row in rows if row.id == "relullama-70b")
    found = what_would_fit(rows, big)
    assert ids(found)[:3] == ["relullama-7b", "turbosparse-mixtral-47b", "prosparse-13b"]
    assert all(row.estimate and row.estimate.fits != "no" for row in found)


@pytest.mark.parametrize(
    ("text", "repo"),
    [
        ("PowerInfer/ReluLLaMA-7B-PowerInfer-GGUF", "PowerInfer/ReluLLaMA-7B-PowerInfer-GGUF"),
        ("https://huggingface.co/facebook/opt-6.7b", "facebook/opt-6.7b"),
        ("  https://huggingface.co/facebook/opt-6.7b/tree/main?x=1 ", "facebook/opt-6.7b"),
        ("http://127.0.0.1:8080/owner/name/resolve/main/a.gguf", "owner/name"),
        ("https://huggingface.co/datasets/owner/name", ""),
        ("llama 7b", ""), ("llama", ""), ("../etc/passwd", ""), ("a/b/c", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_pasted_repository(text: str, repo: str) -> None:
    assert repository(text) == repo


def test_the_figure_in_the_sidebar() -> None:
    gets = [Download(f"d{i}", f"o/{i}", "n", f"o/{i}", "downloading", i * GB, 4 * GB) for i in (1, 2)]
    assert work_figure(rows_of(catalogue_rows(), [MINE], gets, None)) == "37%"
    stopped = [replace(get, state="paused") for get in gets]
    assert work_figure(rows_of(catalogue_rows(), [MINE], stopped, None)) == ""
    full = [replace(get, error="DiskSpaceError", message="The disk is full.") for get in stopped]
    assert work_figure(rows_of(catalogue_rows(), [MINE], full, None)) == "Paused", "not by the user"
    assert not is_working(rows_of(catalogue_rows(), [MINE], full, None))
    assert work_figure(rows_of(catalogue_rows(), [MINE], stopped, Preparing("SparseLLM/p", "train", 25, 40))) == "62%"


def test_nothing_works_while_everything_waits_for_the_network() -> None:
    get = Download("d", "o/1", "n", "o/1", "downloading", 0, 4 * GB)
    waiting = [replace(get, state="waiting"), replace(get, id="e", model="o/2", state="queued")]
    assert work_figure(rows_of(catalogue_rows(), [MINE], waiting, None)) == "0%"
    assert not is_working(rows_of(catalogue_rows(), [MINE], waiting, None)), "so nothing burns"
    assert is_working(rows_of(catalogue_rows(), [MINE], [get], None))
    assert is_working(rows_of(catalogue_rows(), [MINE], [], Preparing("SparseLLM/p", "train", 25, 40)))
