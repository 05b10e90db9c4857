"""The file of notes of a project: read up to a limit, and only ever appended to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.systems import needs_links

from app.chat.projects.notes import MAX_BYTES, SHARE_OF_CONTEXT, NotesError, NotesFile, plain


def notes_in(tmp_path: Path, data: bytes | None) -> NotesFile:
    path = tmp_path / "Notes.md"
    if data is not None:
        path.write_bytes(data)
    return NotesFile(str(path))


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (None, "Deadline is in May", b"- Deadline is in May\n"),
        (b"", "a", b"- a\n"),
        (b"# Thesis\n", "a", b"# Thesis\n\n- a\n"),
        (b"# Thesis", "a", b"# Thesis\n\n- a\n"),
        (b"- one\n", "two", b"- one\n- two\n"),
        (b"- one", "- two", b"- one\n- two\n"),
        (b"- one\r\n- two\r\n", "three", b"- one\r\n- two\r\n- three\r\n"),
        (b"# A\r\ntext", "x\ny", b"# A\r\ntext\r\n\r\nx\r\ny\r\n"),
        (b"\xef\xbb\xbf# A\n", "\u00e4", b"\xef\xbb\xbf# A\n\n- \xc3\xa4\n"),
    ],
)
def test_an_addition_keeps_every_byte_before_it_and_its_line_ends(
    tmp_path: Path, before: bytes | None, added: str, after: bytes
) -> None:
    notes = notes_in(tmp_path, before)
    notes.append(added)
    assert notes.path.read_bytes() == after
    assert after.startswith(before or b"")


def test_an_edit_by_another_program_stays(tmp_path: Path) -> None:
    notes = notes_in(tmp_path, b"- one\n")
    assert notes.read().text == "- one"
    notes.path.write_bytes(b"- changed\n")
    notes.append("two")
    assert notes.path.read_bytes() == b"- changed\n- two\n"
    assert notes.read().text == "- changed\n- two"


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = notes_in(tmp_path, b"- one\n")
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:4]))
    with pytest.raises(NotesError):
        notes.append("a longer line")
    assert notes.path.read_bytes() == b"- one\n"


@pytest.mark.parametrize("data", [b"\xff\xfeN\x00", b"caf\xe9", b"a\0b", b"x" * (MAX_BYTES + 1)])
def test_a_file_that_is_no_text_is_neither_read_nor_written(tmp_path: Path, data: bytes) -> None:
    notes = notes_in(tmp_path, data)
    assert notes.read().fault
    assert notes.read().framed == ""
    with pytest.raises(NotesError):
        notes.append("a")
    assert notes.path.read_bytes() == data


def test_a_missing_file_and_a_folder_have_a_fault_and_no_text(tmp_path: Path) -> None:
    assert notes_in(tmp_path, None).read().fault
    assert NotesFile(str(tmp_path)).read().fault


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "Notes.md"
    os.mkfifo(pipe)
    assert NotesFile(str(pipe)).read().fault
    with pytest.raises(NotesError):
        NotesFile(str(pipe)).append("a")


@needs_links
def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_text("- one\n", encoding="utf-8")
    link = tmp_path / "link.md"
    link.symlink_to(real)
    NotesFile(str(link)).append("two")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "- one\n- two\n"


def test_notes_take_half_of_the_context_at_most_in_whole_lines(tmp_path: Path) -> None:
    notes = notes_in(tmp_path, b"0123456789\n" * 100)
    whole = notes.read()
    assert (len(whole.text), whole.is_cut) == (1099, False)
    cut = notes.read(100)
    assert cut.is_cut
    assert cut.n_all == 1099
    assert len(cut.text) / 3 <= 100 * SHARE_OF_CONTEXT
    assert set(cut.text.splitlines()) == {"0123456789"}
    assert cut.text in cut.framed
    assert cut.framed.count("\n") > whole.framed.count("\n") - 100


def test_one_line_that_is_too_long_is_cut(tmp_path: Path) -> None:
    notes = notes_in(tmp_path, b"x" * 3000)
    assert 100 <= len(notes.read(100).text) <= 3 * 100 * SHARE_OF_CONTEXT


def test_text_that_hides_or_reorders_text_is_not_added(tmp_path: Path) -> None:
    assert plain("a\u202eb\u200b\x07c\r\nd\te") == "abc\nd   e"
    notes = notes_in(tmp_path, b"")
    with pytest.raises(NotesError):
        notes.append("\u200b \n")
    with pytest.raises(NotesError):
        notes.append("x" * 20_001)
    assert notes.path.read_bytes() == b""


def test_creating_keeps_a_file_that_exists(tmp_path: Path) -> None:
    notes = NotesFile(str(tmp_path / "a" / "b" / "Notes.md"))
    notes.create()
    assert notes.path.read_bytes() == b""
    notes.append("x")
    notes.create()
    assert notes.path.read_bytes() == b"- x\n"
