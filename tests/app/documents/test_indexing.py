"""Folders of documents are indexed, and the index follows every change of their files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.systems import MAKES_LINKS

from app.documents import indexing
from app.documents.index_file import IndexFile
from app.documents.indexing import Indexer


class Watched:
    """An indexer whose changes wake the test."""

    def __init__(self, file: Path) -> None:
        self.moved = threading.Condition()
        self.index = IndexFile(file)
        self.indexer = Indexer(self.index, self._tell)

    def _tell(self) -> None:
        with self.moved:
            self.moved.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        with self.moved:
            while not until():
                assert time.monotonic() < end, self.indexer.states()
                self.moved.wait(0.2)

    def wait_idle(self) -> None:
        self.wait(lambda: self.indexer.is_idle)

    def texts(self) -> dict[str, str]:
        return {
            os.path.basename(one.path): "".join(p.passage.text for p in self.index.passages(one.id))
            for one in self.index.files().values()
        }

    def close(self) -> None:
        self.indexer.close()
        self.index.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "index" / "documents.db")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "papers"
    (made / "deep" / "deeper").mkdir(parents=True)
    (made / "a.txt").write_text("first paper")
    (made / "deep" / "deeper" / "b.md").write_text("# second paper")
    return made


def test_a_folder_is_read_with_the_folders_in_it(watched: Watched, folder: Path) -> None:
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "c.txt").write_text("hidden")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "d.txt").write_text("not mine")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    if MAKES_LINKS:
        (folder / "link.txt").symlink_to(folder / "a.txt")
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    assert watched.texts() == {"a.txt": "first paper", "b.md": "# second paper"}
    (state,) = watched.indexer.states()
    assert (state.n_files, state.n_failed, state.n_waiting, state.is_there) == (2, 0, 0, True)


def test_what_cannot_be_read_is_named(watched: Watched, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    (state,) = watched.indexer.states()
    assert (state.n_files, state.n_failed) == (2, 1)
    (failed,) = [one for one in watched.indexer.files([str(folder)]) if one.why]
    assert failed.path.endswith("broken.pdf")


def test_changes_are_followed(watched: Watched, folder: Path) -> None:
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    (folder / "a.txt").write_text("changed paper")
    (folder / "new.txt").write_text("new paper")
    (folder / "deep" / "deeper" / "b.md").unlink()
    watched.wait(lambda: watched.texts() == {"a.txt": "changed paper", "new.txt": "new paper"})
    (folder / "deep").rename(folder / "moved")
    (folder / "moved" / "c.txt").write_text("c")
    watched.wait(lambda: "c.txt" in watched.texts())


def test_a_file_that_changes_while_it_is_read_is_read_again(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, path = watched.indexer._reader.read, folder / "a.txt"

    def change_after_reading(path: Path, *of: Any) -> Any:
        document = reads(path, *of)
        monkeypatch.setattr(watched.indexer._reader, "read", reads)
        path.write_text("changed paper")
        watched.indexer._have_changed({str(path)})
        return document

    monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)
    (folder / "deep" / "deeper" / "b.md").unlink()
    monkeypatch.setattr(watched.indexer._reader, "read", change_after_reading)
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    assert watched.texts() == {path.name: "changed paper"}


def test_a_file_that_always_changes_holds_up_no_other(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, path, read = watched.indexer._reader.read, folder / "a.txt", list[str]()

    def grow(one: Path, *of: Any) -> Any:
        read.append(one.name)
        if one == path and len(read) < 6:
            watched.indexer._have_changed({str(path)})
        return reads(one, *of)

    os.utime(folder / "deep" / "deeper" / "b.md", (0, 0))  # the newest is read first
    monkeypatch.setattr(indexing, "_LONGEST_REST_S", 0.0)
    monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)
    monkeypatch.setattr(watched.indexer._reader, "read", grow)
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    assert read[:3] == ["a.txt", "b.md", "a.txt"]


@pytest.mark.parametrize(("credit", "at_once"), [(0.0, 1), (250.0, 3)])
def test_a_file_that_always_changes_rests_between_readings(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch, credit: float, at_once: int
) -> None:
    reads, path, read = watched.indexer._reader.read, str(folder / "a.txt"), list[str]()

    def grow(one: Path, *of: Any) -> Any:
        read.append(one.name)
        if str(one) == path:
            watched.indexer._have_changed({path})
        return reads(one, *of)

    monkeypatch.setattr(indexing, "_REST_S", 100.0)
    monkeypatch.setattr(indexing, "_REST_CREDIT_S", credit)
    monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)
    monkeypatch.setattr(watched.indexer._reader, "read", grow)
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: len(watched.texts()) == 2)
    (folder / "c.txt").write_text("third paper")
    watched.indexer._have_changed({path, str(folder / "c.txt")})
    watched.wait(lambda: "c.txt" in watched.texts())
    watched.wait(lambda: watched.indexer._ready() is None)
    assert sorted(read) == [*["a.txt"] * at_once, "b.md", "c.txt"]
    watched.indexer._rests.clear()
    watched.indexer._have_changed({path})
    watched.wait(lambda: read.count("a.txt") > at_once)


@pytest.mark.parametrize("is_watched", [False, True])
def test_what_changes_during_a_scan_is_read_after_it(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    lists, late = indexing.documents_in, folder / "late.txt"

    def write_late(*of: Any) -> Any:
        yield from lists(*of)
        if not late.exists():
            late.write_text("late paper")
            if is_watched:
                watched.indexer._have_changed({str(late)})

    monkeypatch.setattr(indexing, "documents_in", write_late)
    if is_watched:
        monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: watched.texts().get("late.txt") == "late paper")


def test_what_changed_between_two_starts_is_read_again(tmp_path: Path, folder: Path) -> None:
    first = Watched(tmp_path / "documents.db")
    first.indexer.set_folders([str(folder)])
    first.wait_idle()
    first.close()
    (folder / "a.txt").write_text("changed while closed")
    second = Watched(tmp_path / "documents.db")
    read: list[Path] = []
    reader = second.indexer._reader
    reads = reader.read
    reader.read = lambda path, cancelled: read.append(path) or reads(path, cancelled)  # type: ignore[method-assign,func-returns-value,assignment]
    second.indexer.set_folders([str(folder)])
    second.wait_idle()
    assert [path.name for path in read] == ["a.txt"]
    assert second.texts()["a.txt"] == "changed while closed"
    second.close()


def test_a_removed_folder_leaves_nothing(watched: Watched, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "others"
    other.mkdir()
    (other / "kept.txt").write_text("kept")
    watched.indexer.set_folders([str(folder), str(other)])
    watched.wait_idle()

    def stored(word: bytes) -> bool:
        return any(word in one.read_bytes() for one in (tmp_path / "index").iterdir())

    assert stored(b"paper")
    watched.indexer.set_folders([str(other)])
    watched.wait(lambda: watched.texts() == {"kept.txt": "kept"})
    watched.wait(lambda: not stored(b"paper"))  # while the index is in use
    assert stored(b"kept")
    watched.indexer.set_folders([])
    watched.wait(lambda: watched.texts() == {} and not stored(b"kept"))


def test_a_folder_that_is_not_there_keeps_what_is_known(watched: Watched, folder: Path, tmp_path: Path) -> None:
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    folder.rename(tmp_path / "unplugged")
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: not watched.indexer.states()[0].is_there)
    assert set(watched.texts()) == {"a.txt", "b.md"}
    assert watched.indexer.is_idle


def test_a_folder_that_goes_and_returns_is_noticed(
    watched: Watched, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "_LOOK_AGAIN_S", 0.02)
    monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)  # unmounting may tell a watch nothing
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    folder.rename(tmp_path / "unplugged")
    watched.wait(lambda: not watched.indexer.states()[0].is_there)
    assert {one.path for one in watched.indexer.files([str(folder)])} == set(watched.index.files())
    assert set(watched.texts()) == {"a.txt", "b.md"}
    (tmp_path / "unplugged" / "a.txt").unlink()
    (tmp_path / "unplugged" / "new.txt").write_text("new paper")
    (tmp_path / "unplugged").rename(folder)
    watched.wait(lambda: watched.texts() == {"b.md": "# second paper", "new.txt": "new paper"})
    assert watched.indexer.states()[0].is_there


def test_a_name_that_no_folder_can_have_is_scanned_as_a_missing_one() -> None:
    unseen: set[str] = set()
    assert list(indexing.documents_in("/a\0b", unseen)) == []
    assert not unseen


@pytest.mark.parametrize("fails", ["scan", "read"])
def test_a_drive_that_goes_during_the_work_keeps_its_documents(
    watched: Watched, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(watched.indexer, "_begin_watch", lambda folders: None)
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    finds, reads = indexing.documents_in, watched.indexer._reader.read

    def find_the_first(*of: Any) -> Any:
        yield next(finds(*of))
        folder.rename(tmp_path / "unplugged")

    def read_nothing(path: Path, *of: Any) -> Any:
        folder.rename(tmp_path / "unplugged")
        return reads(path, *of)

    if fails == "scan":
        monkeypatch.setattr(indexing, "documents_in", find_the_first)
    else:
        (folder / "a.txt").write_text("changed paper")
        monkeypatch.setattr(watched.indexer._reader, "read", read_nothing)
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: not watched.indexer.states()[0].is_there)
    watched.wait_idle()
    assert watched.texts() == {"a.txt": "first paper", "b.md": "# second paper"}


@pytest.mark.parametrize("unlisted", ["", "deep"])
def test_folders_that_cannot_be_listed_keep_their_documents(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch, unlisted: str
) -> None:
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    scandir = os.scandir

    def fail(path: str) -> Any:
        if os.path.normpath(path) == os.path.normpath(folder / unlisted):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    (folder / "new.txt").write_text("new paper")
    (folder / "a.txt").unlink()
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    assert set(watched.texts()) == ({"a.txt", "b.md"} if not unlisted else {"b.md", "new.txt"})


def test_nothing_is_read_while_paused(watched: Watched, folder: Path) -> None:
    watched.indexer.pause(True)
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: bool(watched.indexer.states()[0].n_waiting))
    assert watched.texts() == {}
    watched.indexer.pause(False)
    watched.wait_idle()
    assert len(watched.texts()) == 2


@pytest.mark.expects_log("indexed again later")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT])
def test_indexing_goes_on_after_a_fault_of_the_index(
    watched: Watched, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(indexing, "_AGAIN_S", 0.5)
    put, faults = watched.index.put, [code]

    def fail_once(*of: Any) -> None:
        if faults:
            error = sqlite3.DatabaseError("a fault")
            error.sqlite_errorcode = faults.pop()
            raise error
        put(*of)

    monkeypatch.setattr(watched.index, "put", fail_once)
    watched.indexer.set_folders([str(folder)])
    watched.wait(lambda: watched.indexer.fault == "a fault")
    watched.wait_idle()
    assert watched.texts() == {"a.txt": "first paper", "b.md": "# second paper"}
    watched.wait(lambda: watched.indexer.fault == "")


@pytest.mark.skipif(os.name == "nt", reason="Windows' names are text")
def test_names_that_are_no_text_are_left_out(watched: Watched, folder: Path) -> None:
    odd = os.fsencode(folder) + b"/\xff.txt"
    try:
        with open(odd, "w") as file:
            file.write("odd")
    except OSError:
        pytest.skip("this file system refuses such names")
    watched.indexer.set_folders([str(folder)])
    watched.wait_idle()
    (folder / "new.txt").write_text("new")
    watched.wait(lambda: "new.txt" in watched.texts())
    assert set(watched.texts()) == {"a.txt", "b.md", "new.txt"}


_INDEXES = """
import sys, time
from pathlib import Path
from app.documents.index_file import IndexFile
from app.documents.indexing import Indexer
index = IndexFile(Path(sys.argv[1]))
indexer = Indexer(index, lambda: print(len(index.files()) if index._connection else 0, flush=True))
indexer.set_folders([sys.argv[2]])
while True:
    time.sleep(1)
"""


@pytest.mark.skipif(os.name == "nt", reason="the process is ended by a signal")
def test_a_kill_costs_at_most_the_file_being_read(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    for n in range(60):
        (folder / f"{n:02}.txt").write_text(f"paper number {n}\n\n" * 200)
    seen = 0
    for most in (5, 25, 45):
        command = [sys.executable, "-c", _INDEXES, str(tmp_path / "documents.db"), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                seen = int(line)
                if seen >= most:
                    break
            process.kill()
    again = Watched(tmp_path / "documents.db")
    again.index.open()
    assert len(again.index.files()) >= seen
    read: list[Path] = []
    reads = again.indexer._reader.read
    again.indexer._reader.read = lambda path, cancelled: read.append(path) or reads(path, cancelled)  # type: ignore[method-assign,func-returns-value,assignment]
    again.indexer.set_folders([str(folder)])
    again.wait_idle()
    assert len(read) <= 60 - seen
    texts = again.texts()
    assert len(texts) == 60
    assert all(text.count(f"paper number {int(name[:2])}\n") >= 199 for name, text in texts.items())
    assert len(again.index.with_words("paper 41", [one.id for one in again.index.files().values()], 500)) > 60
    again.close()
