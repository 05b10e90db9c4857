"""The queue of downloads: from start to end, order, pause, cancel, a restart in between, and what is told of it."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.download_places import (
    QUICK,
    SMALL,
    PlainShelf,
    downloading_process,
    downloads_in,
    parts_in,
    same,
    the,
    wait_for,
)
from fakes.hub import Content, FakeHub
from samples.raw_gguf import gguf_file, value

from engine.errors import InvalidRequestError, LibraryError, ModelFormatError, UnsupportedModelError
from engine.library.hub import download_job
from engine.library.hub.downloads import Downloads
from engine.library.hub.hub import Hub
from engine.library.records import CatalogueEntry, Download, ModelShape, Sparsity


def entry(repo: str, files: tuple[str, ...], **more: Any) -> CatalogueEntry:
    shape = ModelShape("llama", "relu-glu", 2, 64, 256, 4, 4, 16, 100, 512)
    values: dict[str, Any] = {
        "id": "tiny", "name": "Tiny", "maker": "maker", "family": "Tiny", "kind": "chat", "summary": "", "repo": repo,
        "files": files, "format": "safetensors", "codec": "f16", "parameters": 1, "n_bytes": 999,
        "n_bytes_source": "family", "licence": "MIT", "shape": shape, "sparsity": Sparsity(), **more,
    }  # fmt: skip
    return CatalogueEntry(**values)


# --- from start to end


def files_in(folder: Path) -> list[str]:
    """The names of all files below; os.walk, unlike glob, passes over folders that are being deleted."""
    return [name for _, _, names in os.walk(folder) for name in names]


def test_a_model_is_fetched_proven_and_listed(hub: FakeHub, tmp_path: Path) -> None:
    done: list[str] = []
    told: list[list[Download]] = []
    downloads, shelf = downloads_in(tmp_path, on_done=lambda model: done.append(model.id), on_change=told.append)
    assert downloads.add_variant("maker/small-gguf").state in ("queued", "downloading")
    wait_for(lambda: done)
    model = shelf.listed[done[0]]
    assert (model.repo, model.revision) == ("maker/small-gguf", hub.repositories["maker/small-gguf"].head)
    assert [(file.name, file.n_bytes, file.sha256) for file in model.files] == [
        ("small-q4_0.gguf", len(SMALL), hashlib.sha256(SMALL).hexdigest())
    ]
    assert same(model.path, SMALL)
    assert model.licence == "apache-2.0"
    (last,) = downloads.list()
    assert (last.state, last.done_bytes, last.total_bytes, last.eta_s) == ("done", len(SMALL), len(SMALL), None)
    wait_for(lambda: told and told[-1][0].state == "done")
    assert hub.sent_bytes("small-q4_0.gguf") == len(SMALL)
    assert not (tmp_path / "models" / ".downloads" / last.id).exists()
    assert not downloads.is_busy
    downloads.remove(last.id)
    assert downloads.list() == []
    assert Path(model.path).exists()
    downloads.close()


def test_an_entry_of_the_catalogue_comes_with_its_predictors(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/tiny", {"model.safetensors": SMALL, "config.json": b"{}", "tokenizer.json": b"[]", "x.bin": b"no"})
    hub.add("maker/tiny-predictor", {"model_0.pt": b"zero", "model_1.pt": b"one", "config.json": b'{"t": 1}'})
    downloads, shelf = downloads_in(tmp_path)
    wanted = entry("maker/tiny", ("*.safetensors", "*.json"), predictor_repo="maker/tiny-predictor", template="chatml")
    first = downloads.add(wanted)
    assert (first.total_bytes, first.name, first.catalogue_id) == (999, "Tiny", "tiny")
    wait_for(lambda: the(downloads, "done"))
    model = shelf.listed["maker/tiny"]
    assert sorted(file.name for file in model.files) == [
        "config.json", "model.safetensors", "predictors/config.json", "predictors/model_0.pt", "predictors/model_1.pt",
        "tokenizer.json",
    ]  # fmt: skip
    assert (model.catalogue_id, model.template, model.licence, model.kind) == ("tiny", "chatml", "MIT", "chat")
    assert (Path(model.folder) / "predictors" / "model_1.pt").read_bytes() == b"one"
    assert Path(model.path) == Path(model.folder)
    (Path(model.folder) / "predictors" / "model_1.pt").write_bytes(b"eno")
    downloads.repair(model, ["predictors/model_1.pt"], wanted)
    wait_for(lambda: the(downloads, "done"))
    assert (Path(model.folder) / "predictors" / "model_1.pt").read_bytes() == b"one"
    assert hub.sent_bytes("model.safetensors") == len(SMALL)
    downloads.close()


def test_a_model_in_several_parts_comes_with_its_activation_counts(hub: FakeHub, tmp_path: Path) -> None:
    parts = {f"big-q4_0-0000{i}-of-00002.gguf": SMALL[i:] for i in (1, 2)}
    hub.add("maker/split-gguf", {**parts, "activation/activation_0.pt": b"counts", "activation/activation_1.pt": b"c"})
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/split-gguf")
    wait_for(lambda: the(downloads, "done"))
    model = shelf.listed["maker/split-gguf"]
    assert len(model.files) == 4
    assert Path(model.path).name == "big-q4_0-00001-of-00002.gguf"
    downloads.close()


def test_of_a_catalogue_entry_the_first_file_must_be_there(hub: FakeHub, tmp_path: Path) -> None:
    files = {"model.safetensors": SMALL, "config.json": b"{}", "extra/x.safetensors": b"x", "activation/junk.pt": b"x"}
    hub.add("maker/tiny", files)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add(entry("maker/tiny", ("*.safetensors", "config.json", "vocab.json", "activation/*.pt")))
    wait_for(lambda: the(downloads, "done"))
    assert [file.name for file in shelf.listed["maker/tiny"].files] == ["model.safetensors", "config.json"]
    downloads.remove(downloads.list()[0].id)
    downloads.add(entry("maker/small-gguf", ("gone.gguf", "*.md"), format="gguf"))
    failed = wait_for(lambda: the(downloads, "failed"))
    assert failed.error == "RepositoryNotFoundError"
    assert "gone.gguf" in failed.message
    downloads.close()


def test_a_repository_with_several_variants_asks_which(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/many", {"many-q4_0.gguf": SMALL, "many-q8_0.gguf": SMALL[1:]})
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/many").id
    failed = wait_for(lambda: the(downloads, "failed"))
    assert (failed.error, "q4_0, q8_0" in failed.message) == ("InvalidRequestError", False)
    assert "q8_0" in failed.message
    downloads.cancel(id)
    downloads.add_variant("maker/many", "q8_0")
    wait_for(lambda: the(downloads, "done"))
    assert [file.name for file in shelf.listed["maker/many-q8_0"].files] == ["many-q8_0.gguf"]
    downloads.close()


def test_a_model_that_cannot_be_listed_leaves_nothing_behind(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModelError("It is of a family that Hearth does not read.")

    monkeypatch.setattr(PlainShelf, "register", refuse)
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    assert wait_for(lambda: the(downloads, "failed")).error == "UnsupportedModelError"
    downloads.cancel(id)
    wait_for(lambda: not [name for name in files_in(tmp_path / "models") if name.endswith((".whole", ".gguf"))])
    assert not (tmp_path / "models" / "maker" / "small-gguf").exists()
    downloads.close()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("big-q4_0.gguf", b"<!DOCTYPE html>"),
        ("big-q4_0.gguf", gguf_file((value("general.architecture", "unheard-of"),))),
        ("big-q4_0.gguf", gguf_file((value("general.architecture", "llama"),))),
        ("config.json", b'{"model_type": "unheard-of"}'),
    ],
)
def test_what_hearth_does_not_read_is_refused_before_it_is_fetched(
    hub: FakeHub, tmp_path: Path, name: str, head: bytes
) -> None:
    weights = Content.after(head, 3 << 30)
    beside = {"config.json": head, "tokenizer.json": b"{}", "model.safetensors": weights}
    hub.add("maker/big", {name: weights} if name.endswith("gguf") else beside)
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/big").id
    failed = wait_for(lambda: the(downloads, "failed"))
    assert failed.error in ("ModelFormatError", "UnsupportedModelError")
    assert failed.hint
    assert hub.sent_bytes() < 100 << 20
    downloads.cancel(id)
    wait_for(lambda: not downloads.list())
    downloads.close()


def test_files_that_prove_to_be_no_model_are_deleted_and_fetched_anew(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = PlainShelf.register

    def refuse(*_: object, **__: object) -> None:
        raise ModelFormatError("It is damaged.")

    monkeypatch.setattr(PlainShelf, "register", refuse)
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    assert "damaged" in wait_for(lambda: the(downloads, "failed")).message
    assert not [path for path in (tmp_path / "models").rglob("*") if path.suffix in (".whole", ".gguf")]
    hub.add("maker/small-gguf", {"small-q4_0.gguf": SMALL[::-1]})
    monkeypatch.setattr(PlainShelf, "register", register)
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    (model,) = shelf.listed.values()
    assert same(model.path, SMALL[::-1])
    downloads.close()


# --- order, pause, cancel


def test_two_at_once_and_the_others_in_their_order(hub: FakeHub, tmp_path: Path) -> None:
    for number in range(5):
        hub.add(f"maker/m{number}-gguf", {f"m{number}.gguf": SMALL[number:]})
    hub.bytes_per_s = 6 << 20
    downloads, shelf = downloads_in(tmp_path)
    for number in range(5):
        downloads.add_variant(f"maker/m{number}-gguf")
    most = 0
    while len(shelf.listed) < 5:
        states = [found.state for found in downloads.list()]
        assert "failed" not in states
        assert states == sorted(states, key=lambda state: state == "queued"), "those that wait are the last ones"
        most = max(most, sum(state in ("downloading", "waiting", "checking") for state in states))
        time.sleep(0.01)
    assert most == 2
    downloads.close()


def test_pause_waits_for_no_silent_hub_and_keeps_what_came(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("*.gguf", stall_after=2 << 20)
    downloads, _ = downloads_in(tmp_path, stall_s=600.0)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes == 2 << 20)
    started = time.monotonic()
    downloads.pause(id)
    paused = the(downloads, "paused")
    assert paused is not None
    assert paused.bytes_per_s is None
    assert time.monotonic() - started < 20
    time.sleep(0.2)
    assert the(downloads, "paused") is not None, "what the stopped run says is not heard"
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert [asked.start for asked in hub.of_file("small-q4_0.gguf")] == [0, 2 << 20]
    downloads.close()


def test_a_paused_one_lets_the_next_go(hub: FakeHub, tmp_path: Path) -> None:
    for number in range(3):
        hub.add(f"maker/m{number}-gguf", {f"m{number}.gguf": SMALL[number:]})
    hub.fail("m0.gguf", stall_after=0)
    hub.fail("m1.gguf", stall_after=0)
    downloads, _ = downloads_in(tmp_path, stall_s=600.0)
    ids = [downloads.add_variant(f"maker/m{number}-gguf").id for number in range(3)]
    assert [d.state for d in downloads.list()][2] == "queued"
    downloads.pause(ids[0])
    wait_for(lambda: downloads.list()[2].state == "done")
    assert [d.state for d in downloads.list()] == ["paused", "downloading", "done"]
    downloads.close()


def test_cancel_deletes_what_came(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 1 << 20
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes > 1 << 19)
    downloads.cancel(id)
    assert downloads.list() == []
    wait_for(lambda: not [name for name in files_in(tmp_path / "models") if name.endswith((".part", ".log", ".whole"))])
    with pytest.raises(InvalidRequestError):
        downloads.resume(id)
    hub.bytes_per_s = 0
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


def test_a_cancel_that_the_end_of_the_process_cut_short_is_carried_out(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 1 << 20
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: parts_in(tmp_path) and downloads.list()[0].done_bytes > 1 << 19)
    downloads.close()
    queue = tmp_path / "queue" / "queue.json"
    kept = json.loads(queue.read_text())
    kept["downloads"][0]["cancelled"] = True
    queue.write_text(json.dumps(kept))
    downloads, _ = downloads_in(tmp_path)
    assert downloads.list() == []
    wait_for(lambda: not parts_in(tmp_path))
    wait_for(lambda: json.loads(queue.read_text())["downloads"] == [])
    downloads.close()


def test_asking_twice_is_asking_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 3 << 20
    downloads, _ = downloads_in(tmp_path)
    assert downloads.add_variant("maker/small-gguf").id == downloads.add_variant(hub.url + "/maker/small-gguf").id
    wait_for(lambda: the(downloads, "done"))
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert hub.sent_bytes("small-q4_0.gguf") == len(SMALL), "it lies there, and is right"
    downloads.close()


# --- a restart in between


def test_the_queue_outlasts_the_process(hub: FakeHub, tmp_path: Path) -> None:
    for number in range(4):
        hub.add(f"maker/m{number}-gguf", {f"m{number}.gguf": SMALL[number:]})
    hub.bytes_per_s = 1 << 20
    downloads, _ = downloads_in(tmp_path)
    ids = [downloads.add_variant(f"maker/m{number}-gguf").id for number in range(4)]
    wait_for(lambda: downloads.list()[0].done_bytes > 1 << 19)
    downloads.pause(ids[0])
    wait_for(lambda: downloads.list()[2].state == "downloading")
    downloads.close()

    downloads, shelf = downloads_in(tmp_path)
    again = downloads.list()
    assert [found.id for found in again] == ids
    assert again[0].state == "paused"
    assert again[0].done_bytes > 0
    assert [found.state for found in again].count("queued") == 1, "those that ran run, and one waits its turn"
    hub.bytes_per_s = 0
    downloads.resume(ids[0])
    wait_for(lambda: all(found.state == "done" for found in downloads.list()))
    assert len(shelf.listed) == 4
    downloads.close()


def test_a_second_process_of_hearth_is_told_so(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.library.hub.downloads.LOCK_WAIT_S", 0.1)
    downloads, _ = downloads_in(tmp_path)
    with pytest.raises(LibraryError, match="Another Hearth"):
        downloads_in(tmp_path)
    downloads.close()
    downloads_in(tmp_path)[0].close()


def test_two_processes_that_want_the_same_model_fetch_it_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 1 << 18  # until the second one has been told
    child = downloading_process(tmp_path, ["maker/small-gguf"])
    wait_for(lambda: hub.sent_bytes("small-q4_0.gguf") > 1 << 17)
    shelf = PlainShelf(tmp_path / "models")
    downloads = Downloads(shelf, Hub(), home=tmp_path / "another queue", retry_policy=QUICK)
    downloads.add_variant("maker/small-gguf")
    assert "Another Hearth" in wait_for(lambda: the(downloads, "waiting")).message
    hub.bytes_per_s = 0
    assert "'done'" in child.communicate(timeout=60)[0].splitlines()[-1]
    wait_for(lambda: the(downloads, "done"))
    assert hub.sent_bytes("small-q4_0.gguf") == len(SMALL)
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    downloads.close()


def test_models_that_were_moved_meanwhile_are_put_where_they_belong_now(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 2 << 20
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes > 1 << 20)
    downloads.pause(id)
    downloads.close()
    hub.bytes_per_s = 0
    shelf = PlainShelf(tmp_path / "moved")
    downloads = Downloads(shelf, Hub(), home=tmp_path / "queue", retry_policy=QUICK)
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert Path(shelf.listed["maker/small-gguf"].path).is_relative_to(tmp_path / "moved")
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    assert hub.of_file("small-q4_0.gguf")[-1].start > 0
    downloads.close()


def test_a_move_to_another_disk_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replace(source: Path, goal: Path) -> None:
        if Path(source).parent != Path(goal).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, goal)

    monkeypatch.setattr(os, "replace", replace)
    source, goal = tmp_path / "a" / "x.whole", tmp_path / "b" / "model.gguf"
    for folder in (source.parent, goal.parent):
        folder.mkdir()
    source.write_bytes(SMALL)
    with pytest.raises(LibraryError, match="differs from the original"):
        download_job._move(source, goal, "0" * 64)
    assert source.exists()
    assert not list(goal.parent.iterdir())
    download_job._move(source, goal, hashlib.sha256(SMALL).hexdigest())
    assert same(goal, SMALL)
    assert not source.exists()


@pytest.mark.expects_log("the queue of downloads cannot be read")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1, "downloads": [{"id": 3}]}', "\0" * 9])
def test_a_damaged_queue_is_kept_aside(hub: FakeHub, tmp_path: Path, text: str) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "queue.json").write_text(text)
    downloads, _ = downloads_in(tmp_path)
    assert downloads.list() == []
    assert (tmp_path / "queue" / "queue.json.damaged").read_text() == text
    downloads.close()


def test_a_repository_that_changes_meanwhile_is_fetched_as_it_was(hub: FakeHub, tmp_path: Path) -> None:
    before = hub.repositories["maker/small-gguf"].head
    hub.fail("*.gguf", cut_after=1 << 20)
    hub.fail("*.gguf", status=500, times=4)
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: the(downloads, "failed"))
    hub.add("maker/small-gguf", {"small-q4_0.gguf": b"newer"})
    hub.faults.clear()
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert shelf.listed["maker/small-gguf"].revision == before
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    downloads.close()


def test_a_commit_that_is_gone_is_asked_for_anew(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("*.gguf", cut_after=1 << 20)
    hub.fail("*.gguf", status=500, times=4)
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: the(downloads, "failed"))
    repository = hub.add("maker/small-gguf", {"small-q4_0.gguf": SMALL, "new.md": b"new"})
    del repository.commits[next(iter(repository.commits))]
    hub.faults.clear()
    downloads.resume(id)
    assert wait_for(lambda: the(downloads, "failed")).error == "RepositoryNotFoundError"
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert shelf.listed["maker/small-gguf"].revision == repository.head
    assert hub.of_file("small-q4_0.gguf")[-1].start == 1 << 20, "what came is of the same content"
    downloads.close()


# --- reports


def test_news_come_at_most_five_times_a_second(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 1 << 20
    times: list[float] = []
    shown: list[Download] = []

    def change(found: list[Download]) -> None:
        times.append(time.monotonic())
        shown.extend(found)

    downloads, _ = downloads_in(tmp_path, on_change=change)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    time.sleep(0.3)
    downloads.close()
    assert len(times) >= 4
    assert min(b - a for a, b in itertools.pairwise(times)) >= 0.19
    last = [found for found in shown if found.bytes_per_s][-1]
    assert last.bytes_per_s == pytest.approx(1 << 20, rel=0.5)
    assert last.eta_s == pytest.approx((last.total_bytes - last.done_bytes) / (last.bytes_per_s or 1), rel=0.01)
    assert shown[-1].state == "done"


def test_a_gated_model_says_where_to_go(hub: FakeHub, tmp_path: Path) -> None:
    repository = hub.add("maker/gated-gguf", {"gated.gguf": SMALL}, gated=True)
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/gated-gguf").id
    failed = wait_for(lambda: the(downloads, "failed"))
    assert failed.error == "GatedModelError"
    assert f"{hub.url}/maker/gated-gguf" in failed.hint
    downloads._hub._credentials.set("hf_abc")
    downloads.resume(id)
    failed = wait_for(lambda: the(downloads, "failed"))
    assert "does not open" in failed.message
    repository.granted.add("hf_abc")
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


@pytest.mark.parametrize("where", ["hub", "store"])
@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_in_trouble_is_asked_again(hub: FakeHub, tmp_path: Path, where: str, status: int) -> None:
    hub.fail("*.gguf", times=2, status=status, of=where, retry_after="1" if status == 429 else "")
    started = time.monotonic()
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert time.monotonic() - started >= (2.0 if status == 429 else 0.0)
    downloads.close()


def test_a_list_that_fails_for_a_while_is_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("/maker/small-gguf", times=3, status=502)
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


def test_an_address_of_the_store_that_has_expired_is_asked_for_anew(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("*.gguf", status=403, of="store")
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


def test_a_hub_in_trouble_for_good_fails_the_download_and_no_other(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/other-gguf", {"other.gguf": SMALL[5:]})
    hub.fail("small-q4_0.gguf", status=500, times=99)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    downloads.add_variant("maker/other-gguf")
    wait_for(lambda: [found.state for found in downloads.list()] == ["failed", "done"])
    assert len(hub.of_file("small-q4_0.gguf")) == QUICK.tries
    assert list(shelf.listed) == ["maker/other-gguf"]
    downloads.close()


@pytest.mark.parametrize(
    "name", ["../evil.gguf", "a/../../evil.gguf", "con.gguf", "x/nul/a.gguf", "a\\b.gguf", "c:.gguf", "a./b.gguf"]
)
def test_names_that_leave_the_folder_are_refused(hub: FakeHub, tmp_path: Path, name: str) -> None:
    hub.add("maker/evil-gguf", {name: SMALL})
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/evil-gguf")
    assert "written safely" in wait_for(lambda: the(downloads, "failed")).message
    assert hub.sent_bytes(".gguf") == 0
    downloads.close()


def test_pickles_are_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/pickled", {"pytorch_model.bin": SMALL, "config.json": b"{}"})
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/pickled").id
    assert wait_for(lambda: the(downloads, "failed")).error == "UnsupportedModelError"
    downloads.cancel(id)
    downloads.add(entry("maker/pickled", ("*.bin", "config.json")))
    assert wait_for(lambda: the(downloads, "failed")).error == "UnsupportedModelError"
    assert hub.sent_bytes() == 0
    downloads.close()


def test_the_token_stays_out_of_logs_and_queue(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    caplog.set_level(logging.DEBUG)
    hub.add("maker/gated-gguf", {"gated.gguf": SMALL}, gated=True, granted={"hf_verysecret"})
    hub.fail("*.gguf", cut_after=1000)
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/gated-gguf")
    downloads.add_variant("maker/none-gguf")
    wait_for(lambda: [found.state for found in downloads.list()] == ["done", "failed"])
    downloads.close()
    assert "gated" in caplog.text
    assert "verysecret" not in caplog.text + repr(downloads.__dict__)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"verysecret" not in path.read_bytes()
    at_hub = [asked for asked in hub.asked if not asked.at_store]
    assert all(asked.headers["authorization"] == "Bearer hf_verysecret" for asked in at_hub)
    assert not any("authorization" in asked.headers for asked in hub.asked if asked.at_store)
