"""Rows of models: how catalogue, library and downloads come together, and the words of their chips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_library import GB, PIP, catalogue_rows, entry, estimate, installed

from app import translation
from app.models.model_choices import Choice, ModelChoices
from app.models.model_rows import Preparing, fit_text, listed_id, recommended, rows_of
from engine.library.records import CatalogueEntry, Download, Estimate, InstalledModel

BAMBOO = entry("Bamboo DPO 7B", rank=10)
OWN = installed("Bamboo DPO 7B", id="PowerInfer/bamboo", catalogue_id=BAMBOO.id)
N = "\u202f"


def a_download(**values: object) -> Download:
    given = {"id": "d1", "model": "maker/thing-q4_0", "name": "thing q4_0", "repo": "maker/thing",
             "state": "downloading", "done_bytes": 5, "total_bytes": 10}  # fmt: skip
    return Download(**{**given, **values})  # type: ignore[arg-type]


def test_the_parts_of_a_model_become_one_row() -> None:
    download = a_download(catalogue_id=BAMBOO.id, model=OWN.id)
    (row,) = rows_of([(BAMBOO, estimate())], [OWN], [download], None)
    assert (row.id, row.entry, row.installed, row.download) == (BAMBOO.id, BAMBOO, OWN, download)
    assert (row.name, row.maker, row.rank) == ("Bamboo DPO 7B", "PowerInfer", 10)


def test_a_model_of_the_catalogue_is_described_in_the_users_language() -> None:
    translation.install(lambda text, about, count: text.upper())
    try:
        assert [row.summary for row in rows_of([(BAMBOO, None)], [], [], None)] == [BAMBOO.summary.upper()]
    finally:
        translation.install(None)


def test_what_the_catalogue_does_not_know_has_rows_of_its_own() -> None:
    mine = installed("Mine", id="local/mine", kind="")
    rows = rows_of([(BAMBOO, None)], [PIP, mine], [a_download()], None)
    assert [row.id for row in rows] == [BAMBOO.id, PIP.id, "local/mine", "maker/thing-q4_0"]
    assert [row.maker for row in rows] == ["PowerInfer", "comes with Hearth", "", "maker"]
    done = installed("thing q4_0", id="maker/thing-q4_0")
    assert rows_of([], [done], [a_download(state="done")], None)[0].id == "maker/thing-q4_0", "the row keeps its id"


def test_two_copies_of_one_model_are_two_rows_and_the_sound_one_is_the_catalogues() -> None:
    broken = replace(OWN, id="local/bamboo", state="broken", reason="model.gguf is missing.")
    rows = rows_of([(BAMBOO, None)], [broken, OWN], [], None)
    assert [(row.id, row.installed) for row in rows] == [(BAMBOO.id, OWN), ("local/bamboo", broken)]
    assert rows[1].summary == "model.gguf is missing."


@pytest.mark.parametrize(
    ("found", "words", "token"),
    [
        (estimate("gpu"), "Fits the GPU", "ok"),
        (estimate("hybrid"), "GPU + CPU", "cold"),
        (estimate("cpu"), "CPU only", "warn"),
        (estimate("cpu", vram_budget_bytes=0), "Fits this PC", "ok"),
        (estimate("cpu", None, vram_budget_bytes=0), "Fits this PC", "ok"),
        (estimate("cpu", 4.9, vram_budget_bytes=0), "Slow here", "warn"),
        (estimate("hybrid", 2.0), "Slow here", "warn"),
        (estimate("disk", 6.0, disk_bytes=11 << 30), "Partly on the disk", "warn"),
        (estimate("disk", None, disk_bytes=11 << 30), "Partly on the disk", "warn"),
        (estimate("no", None, ram=40, short=7.6), f"8{N}GB too big", "bad"),
        (None, "", ""),
    ],
)
def test_the_verdict_says_how_it_would_fit(found: Estimate | None, words: str, token: str) -> None:
    (row,) = rows_of([(BAMBOO, found)], [], [], None)
    assert (row.verdict, row.verdict_token) == (words, token) == fit_text(found)


def test_the_verdict_of_an_owned_model_says_what_is_going_on() -> None:
    def verdict(model: object = OWN, preparing: Preparing | None = None, in_use: str = "", loading: str = "",
                found: Estimate | None = None) -> tuple[str, str]:  # fmt: skip
        (row,) = rows_of([(BAMBOO, found)], [model], [], preparing, in_use, loading)  # type: ignore[list-item]
        return row.verdict, row.verdict_token

    assert verdict() == ("Ready", "ok")
    assert verdict(in_use=OWN.id) == ("In use", "hot")
    assert verdict(in_use=OWN.path) == ("In use", "hot"), "also where it was named by its path"
    assert verdict(loading=OWN.id) == ("Loading", "hot")
    assert verdict(in_use=OWN.id, preparing=Preparing(OWN.id, "train", 1, 2, 3.0)) == ("Preparing", "hot")
    assert verdict(replace(OWN, state="broken", reason="gone")) == ("Broken", "bad")
    assert verdict(replace(OWN, state="needs preparing"), found=estimate("hybrid")) == ("GPU + CPU", "cold")
    assert verdict(found=estimate("no", None, short=2)) == (f"2.0{N}GB too big", "bad")
    slow = replace(OWN, state="needs preparing", measured_tok_s=3.0)
    assert verdict(slow, found=estimate("hybrid", 40.0)) == ("Slow here", "warn"), "what was measured counts first"
    for name in ("starter-chat", "pip", PIP.id):
        (row,) = rows_of([], [PIP], [], None, in_use=name)
        assert row.in_use
        assert listed_id(name) == PIP.id


def test_two_models_are_never_called_the_same() -> None:
    def mine(path: str) -> InstalledModel:
        return installed("Pip", id=f"local/{path}", path=path)

    rows = rows_of([], [PIP, mine("/a/pip-q8.gguf")], [], None)
    assert [row.name for row in rows] == ["Pip", "Pip (pip-q8.gguf)"], "the one that comes with Hearth keeps its name"
    assert rows[1].summary == "pip-q8.gguf"
    rows = rows_of([], [mine("/a/pip.gguf"), mine("/b/pip.gguf"), mine("/b/other.gguf")], [], None)
    assert [row.name for row in rows] == ["Pip (a/pip.gguf)", "Pip (b/pip.gguf)", "Pip (other.gguf)"]
    rows = rows_of([], [mine("/x/a/pip.gguf"), mine("/y/a/pip.gguf")], [], None)
    assert len({row.name for row in rows}) == 2


def test_an_owned_models_own_estimate_counts_first() -> None:
    own = estimate("gpu", 80)
    (row,) = rows_of([(BAMBOO, estimate("cpu", 2))], [OWN], [], None, estimates={OWN.id: own})
    assert row.estimate == own


# --- the offer of a first launch


def offered(*known: tuple[CatalogueEntry, Estimate], **more: object) -> str | None:
    row = recommended(rows_of(known, [PIP], [], None), **more)  # type: ignore[arg-type]
    return row and row.id


def test_a_model_with_experts_on_the_disk_is_offered_only_if_no_other_fits() -> None:
    from_disk, slow = entry("From disk", rank=1), entry("Slow", rank=2)
    known = (from_disk, estimate("disk", 39, disk_bytes=11 << 30))
    assert offered(known, (slow, estimate("cpu", 3))) == "slow"
    assert offered(known, (slow, estimate("no", None, short=3))) == "from-disk"


def test_the_best_chat_model_that_answers_at_a_pace_to_read_along_is_offered() -> None:
    assert offered(*catalogue_rows()) == "bamboo-dpo-7b"
    slow, slower = entry("Slow", rank=1), entry("Slower", rank=2)
    assert offered((slow, estimate("cpu", 3)), (BAMBOO, estimate("hybrid", 39))) == BAMBOO.id
    assert offered((slow, estimate("cpu", 3)), (slower, estimate("cpu", 2))) == "slow", "else the fastest"
    halting, fluent = entry("Halting", rank=1), entry("Fluent", rank=2)
    assert offered((halting, estimate("hybrid", 13)), (fluent, estimate("gpu", 40))) == "fluent"
    assert offered((halting, estimate("cpu", 50)), (fluent, estimate("gpu", 40))) == "fluent", "it uses the GPU"
    assert offered((slow, estimate("no", None, short=1))) is None
    assert offered((entry("Base", kind="base"), estimate())) is None
    assert offered((entry("Gated", gated=True), estimate())) is None
    assert offered((BAMBOO, estimate("hybrid", 39)), disk_free_bytes=BAMBOO.n_bytes + GB) is None


def test_the_offer_stays_until_its_model_is_in_use_and_goes_with_any_other() -> None:
    known = [(BAMBOO, estimate("hybrid", 39))]
    fetched = a_download(catalogue_id=BAMBOO.id)
    assert recommended(rows_of(known, [PIP], [fetched], None)) is None
    for installed_models, downloads, in_use, stays in (
        ([PIP], [fetched], "", True),
        ([PIP, OWN], [], "", True),
        ([PIP, OWN], [], OWN.id, False),
        ([PIP, installed("Other", id="a/b")], [], "", False),
        ([PIP], [fetched, a_download(id="d2")], "", False),
    ):
        rows = rows_of(known, installed_models, downloads, None, in_use)
        assert (recommended(rows, None, BAMBOO.id) is not None) == stays


# --- choices


def test_choices_are_kept_by_machine_and_model(tmp_path: Path) -> None:
    file = tmp_path / "config" / "models.json"
    choices = ModelChoices(file)
    assert choices.of("a/b") == Choice()
    assert choices.change("a/b", vram_budget_gib=6.5), "chosen before the machine is known"
    choices.set_machine("desktop")
    assert choices.of("a/b").engine() == {"vram_budget_gib": 6.5}
    assert choices.change("a/b", context=2048)
    assert not choices.change("a/b", context=2048)
    choices.set_machine("laptop")
    assert choices.of("a/b") == Choice()
    choices.change("c/d", predictors="sign")
    choices.save(choices.to_json())

    again = ModelChoices(file)
    again.read()
    assert again.of("c/d").predictors == "sign", "the last machine's, until it is known which one this is"
    again.set_machine("desktop")
    assert again.of("a/b") == Choice(6.5, 2048)
    again.change("a/b", vram_budget_gib=None, context=None)
    assert "a/b" not in again.to_json()["machines"]["desktop"]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"machines": 7}', '{"machines": {"m": 3, "n": {"a": 4}}}', "[" * 100_000,
        '{"machine": "m", "machines": {"m": {"a": {"vram_budget_gib": -1, "context": "x", "predictors": "magic"}}}}',
        '{"machine": 4, "machines": {"m": {"a": {"vram_budget_gib": NaN, "context": true}}}}',
    ],
)  # fmt: skip
def test_a_damaged_file_gives_no_choices(tmp_path: Path, text: str) -> None:
    file = tmp_path / "models.json"
    file.write_text(text)
    choices = ModelChoices(file)
    choices.read()
    for machine in ("", "m"):
        choices.set_machine(machine)
        assert choices.of("a") == Choice()


def test_the_file_of_a_newer_hearth_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text('{"schema_version": 9}')
    choices = ModelChoices(file)
    choices.read()
    choices.change("a", context=8)
    choices.save(choices.to_json())
    assert file.read_text() == '{"schema_version": 9}'
