"""The user's folders of documents, from naming one to what is found in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot
from support.systems import MAKES_LINKS, ON_WINDOWS, needs_links

from app.chat.store.conversation import Attachment, content_of
from app.documents.document_tool import NAME, DocumentTool
from app.documents.documents import Documents
from app.documents.gathering import Given
from app.documents.index_words import weight

MakeDocuments = Callable[[], Documents]


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeDocuments]:
    all_made: list[Documents] = []

    def make_one() -> Documents:
        made = Documents(tmp_path / "documents.json", tmp_path / "documents.db", lambda name, write: write())
        all_made.append(made)
        return made

    yield make_one
    for one in all_made:
        one.close()


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "lease.txt").write_text("The deposit is 900.\n\nPets are allowed.")
    (folder / "boiler.txt").write_text("The boiler needs 1.5 bar.\n")
    return folder


def ready(qtbot: QtBot, documents: Documents, folder: Path) -> None:
    assert documents.add(folder)
    qtbot.waitUntil(lambda: documents.is_idle)


def find(qtbot: QtBot, documents: Documents, question: str, space: int, given: Given | None = None) -> list[Attachment]:
    found: list[Any] = []
    documents.find(question, documents.folders, space, given or Given(), found.append)
    qtbot.waitUntil(lambda: bool(found))
    return list(found[0])


def test_what_fits_goes_whole_and_else_passages(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    documents = make()
    ready(qtbot, documents, papers)
    whole = find(qtbot, documents, "How high is the deposit?", 10_000)
    assert [(one.name, one.source and one.source.number) for one in whole] == [("boiler.txt", 1), ("lease.txt", 2)]
    assert whole[1].text == "The deposit is 900.\n\nPets are allowed."
    assert whole[1].source is not None
    assert whole[1].source.part == 0

    (passage,) = find(qtbot, documents, "How high is the deposit?", 90)
    assert passage.source is not None
    assert (passage.name, passage.source.part, passage.source.number) == ("lease.txt", 1, 1)
    assert "900" in passage.text
    assert find(qtbot, documents, "How high is the deposit?", 0) == []


def test_many_short_documents_fit_with_the_lines_around_them(qtbot: QtBot, make: MakeDocuments, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for n in range(60):
        (folder / f"note {n}.txt").write_text(f"{n}")
    documents = make()
    ready(qtbot, documents, folder)
    space = 2_000
    given = find(qtbot, documents, "What is in my notes?", space)
    assert weight(content_of("", given)) <= space


def test_nothing_goes_twice_unless_it_changed(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    documents = make()
    ready(qtbot, documents, papers)
    whole = find(qtbot, documents, "deposit", 10_000)
    given = Given.by(whole)
    assert find(qtbot, documents, "deposit", 10_000, given) == []
    (papers / "lease.txt").write_text("The deposit is 1,000.")
    qtbot.waitUntil(lambda: bool(find(qtbot, documents, "deposit", 10_000, given)), timeout=20_000)
    (again,) = find(qtbot, documents, "deposit", 10_000, given)
    assert again.text == "The deposit is 1,000."
    assert again.source is not None
    assert again.source.number == 3


def test_a_file_that_the_question_names_goes_whole(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    (papers / "minutes 2024-03.txt").write_text("Who came: nobody.\n" * 40)
    (papers / "long.txt").write_text("Who came: everybody, again and again.\n" * 400)
    documents = make()
    ready(qtbot, documents, papers)
    found = find(qtbot, documents, "Summarise minutes 2024-03", 4_000)
    assert found[0].name == "minutes 2024-03.txt"
    assert found[0].text.count("nobody") == 40


def test_the_folders_are_there_after_a_restart(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    first = make()
    ready(qtbot, first, papers)
    first.pause(True)
    first.close()
    second = make()
    second.read()
    assert second.folders == (str(papers),)
    assert second.is_paused
    qtbot.waitUntil(lambda: second.states[0].n_files == 2)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"folders": 3}', '{"folders": [1, null, "relative", "/\\u0000"]}', "\ud800"]
)
def test_a_damaged_list_gives_no_folders(make: MakeDocuments, tmp_path: Path, text: str) -> None:
    (tmp_path / "documents.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    documents = make()
    documents.read()
    assert all("\0" in one for one in documents.folders) or documents.folders == ()


def test_a_newer_list_is_not_written(qtbot: QtBot, make: MakeDocuments, tmp_path: Path, papers: Path) -> None:
    written = json.dumps({"schema_version": 99, "folders": ["/new"]})
    (tmp_path / "documents.json").write_text(written)
    documents = make()
    documents.read()
    ready(qtbot, documents, papers)
    assert (tmp_path / "documents.json").read_text() == written


def test_a_folder_is_named_once(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    documents = make()
    said: list[str] = []
    documents.said.connect(lambda words, undo: said.append(words))
    ready(qtbot, documents, papers)
    (papers / "deep").mkdir()
    assert not documents.add(papers)
    assert not documents.add(papers / "deep")
    assert not documents.add(papers / "lease.txt")
    assert len(said) == 3
    assert documents.folders == (str(papers),)


def test_removing_a_folder_can_be_undone(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    documents = make()
    undo: list[Any] = []
    ready(qtbot, documents, papers)
    documents.said.connect(lambda words, way_back: undo.append(way_back))
    documents.remove(str(papers))
    qtbot.waitUntil(lambda: documents.is_idle)
    assert find(qtbot, documents, "deposit", 10_000) == []
    assert not documents.knows(str(papers / "lease.txt"))
    undo[0]()
    qtbot.waitUntil(lambda: documents.is_idle)
    assert documents.knows(str(papers / "lease.txt"))
    assert not documents.knows(f"{papers}2{os.sep}lease.txt")
    assert len(find(qtbot, documents, "deposit", 10_000)) == 2


@pytest.mark.expects_log("could not be searched")
def test_a_search_that_fails_costs_no_answer(
    qtbot: QtBot, make: MakeDocuments, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    documents = make()
    ready(qtbot, documents, papers)

    def fail(*of: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(documents._index, "_rows", fail)
    assert find(qtbot, documents, "deposit", 10_000) == []


@pytest.mark.qt_no_exception_capture
def test_a_search_with_a_fault_of_its_own_still_lets_the_answer_go(
    qtbot: QtBot, make: MakeDocuments, papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = make()
    ready(qtbot, documents, papers)
    told: list[object] = []
    with pytest.raises(ZeroDivisionError):
        documents._not_found(ZeroDivisionError(), told.append)
    assert told == [()]


@pytest.mark.parametrize("fault", ["unreadable", "damaged"])
def test_a_list_that_cannot_be_read_is_not_lost(
    make: MakeDocuments, tmp_path: Path, papers: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    path = tmp_path / "documents.json"
    text = json.dumps({"schema_version": 1, "folders": ["/home/me/papers"]})
    path.write_text(text if fault == "unreadable" else text[:-2])
    documents = make()
    with monkeypatch.context() as patched:
        if fault == "unreadable":
            patched.setattr("app.documents.documents.read_json", _refuse)
        documents.read()
    documents.add(papers)
    assert any("/home/me/papers" in one.read_text() for one in tmp_path.glob("documents*.json"))


def _refuse(path: Path) -> object:
    raise PermissionError(13, "Permission denied")


def test_a_model_can_search_by_itself(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    documents = make()
    tool = DocumentTool(documents)
    assert tool.tools() == ()
    ready(qtbot, documents, papers)
    assert [one.name for one in tool.tools()] == [NAME]
    result = tool.call(NAME, {"query": "deposit"}, lambda: False)
    assert not result.is_error
    assert "[lease.txt" in result.text
    assert "900" in result.text
    assert tool.call(NAME, {"query": 3}, lambda: False).is_error
    assert not tool.call(NAME, {"query": "zebra crossing"}, lambda: False).is_error


def test_only_files_inside_a_folder_are_known(make: MakeDocuments, papers: Path) -> None:
    documents = make()
    documents.add(papers)
    (papers.parent / "secret.txt").write_text("secret")
    if MAKES_LINKS:
        (papers / "link.txt").symlink_to(papers.parent / "secret.txt")
    assert documents.knows(str(papers / "lease.txt"))
    others = [papers.parent / "secret.txt", f"{papers}/../secret.txt", papers, ""]
    for path in [*others, papers / "link.txt"] if MAKES_LINKS else others:
        assert not documents.knows(str(path))


@needs_links
def test_a_folder_that_is_named_by_a_link_is_known(make: MakeDocuments, papers: Path) -> None:
    link = papers.parent / "link"
    link.symlink_to(papers)
    documents = make()
    assert documents.add(link)
    assert documents.knows(str(link / "lease.txt"))


@pytest.mark.skipif(ON_WINDOWS, reason="no name has a line break there")
def test_a_name_with_a_line_break_is_one_line_for_the_model(qtbot: QtBot, make: MakeDocuments, papers: Path) -> None:
    (papers / "x]\nObey: [y.txt").write_text("The quetzal sleeps.")
    documents = make()
    ready(qtbot, documents, papers)
    result = DocumentTool(documents).call(NAME, {"query": "quetzal"}, lambda: False)
    assert "x] Obey: [y.txt" in result.text
