"""The process that reads files: what it reads, what it refuses and why, and that it is usable after anything."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.documents.reading import plain_text, reader
from app.documents.reading.document import Limits, Unreadable
from app.documents.reading.reader import DocumentReader, ReadError
from app.tools.mcp.confined import can_confine
from engine.errors import Cancelled

GERMAN = "Die Wärmepumpe läuft für 5 €, sagte Jürgen. Größe und Übung genügen. " * 30
JAPANESE = "日本語の文章です。ヒートポンプは冬でも夏でも動きます。" * 30


@pytest.fixture(scope="module")
def documents() -> Iterator[DocumentReader]:
    """One reader for all tests: a file that breaks it must not change how the next one is read."""
    made = DocumentReader()
    yield made
    made.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> DocumentReader:
    """A reader whose process starts, and then never answers."""
    answer = b'{"n_bytes": 0}'
    script = f"import sys, time; sys.stdout.buffer.write({len(answer).to_bytes(4, 'big') + answer!r});"
    command = [sys.executable, "-c", script + "sys.stdout.flush(); time.sleep(3600)"]
    monkeypatch.setattr(reader, "_command", lambda: command)
    return DocumentReader(Limits(seconds=0.3))


def reason_of(documents: DocumentReader, path: Path) -> str:
    with pytest.raises(ReadError) as caught:
        documents.read(path)
    assert path.name in caught.value.message
    return caught.value.reason


# --- text files


def test_a_text_file_is_one_part(documents: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(GERMAN.encode("cp1252"))
    read = documents.read(path)
    assert (read.kind, read.n_parts, read.cut) == ("text", 1, False)
    assert [(part.number, part.text) for part in read.parts] == [(1, GERMAN.strip())]


def test_one_broken_byte_does_not_change_what_the_rest_says() -> None:
    data = JAPANESE.encode() + b"\xff" + JAPANESE.encode()
    assert plain_text.decoded(data) == f"{JAPANESE}\ufffd{JAPANESE}"
    cut = (GERMAN * 10 + "ü").encode()[:-1]
    assert plain_text.decoded(cut).startswith(GERMAN)


@pytest.mark.parametrize("head", [b"\x89PNG\r\n\x1a\n", b"PK\x05\x06", b"\xff\xd8\xff\xe0", b"\x1f\x8b\x08", b"text\0"])
def test_a_binary_file_is_no_text_however_it_goes_on(head: bytes) -> None:
    with pytest.raises(Unreadable, match="unsupported"):
        plain_text.decoded(head + "größe und länge ".encode() * 2000)


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("word " * 30)
    short = DocumentReader(Limits(characters=12))
    read = short.read(path)
    short.close()
    assert (read.parts[0].text, read.cut) == ("word word wo", True)


# --- files that are none


def test_what_is_no_file_is_refused(documents: DocumentReader, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b" \n")
    assert reason_of(documents, tmp_path / "empty.txt") == "empty"
    assert reason_of(documents, tmp_path / "nowhere.txt") == "gone"
    assert reason_of(documents, tmp_path) == "unreadable"
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        assert reason_of(documents, tmp_path / "pipe") == reason_of(documents, Path("/dev/zero")) == "unreadable"


def test_a_file_may_be_renamed_and_deleted_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"One\r\n\x1a two")
    with reader._opened(tmp_path / "a.md", "a.md") as file:
        (tmp_path / "a.md").rename(tmp_path / "b.md")
        (tmp_path / "b.md").unlink()
        assert file.read() == b"One\r\n\x1a two"


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    huge = tmp_path / "huge.log"
    with huge.open("wb") as file:
        file.truncate(2001)
    assert reason_of(DocumentReader(Limits(file_bytes=2000)), huge) == "too-large"


# --- the process


def test_one_process_reads_one_file_after_another(documents: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    documents.read(path)
    first = documents._process
    assert documents.read(path).parts[0].text == "one"
    assert documents._process is first


def test_another_process_takes_the_place_of_one_that_ended_or_read_many_files(
    documents: DocumentReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    documents.read(path)
    first = documents._process
    assert first is not None
    first.kill()
    assert documents.read(path).parts[0].text == "one"
    monkeypatch.setattr(reader, "MOST_FILES", 2)
    documents.read(path)
    assert documents._process is None
    assert documents.read(path).parts[0].text == "one"


def test_a_process_that_dies_while_it_reads_means_a_damaged_file(
    slow: DocumentReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.4")
    slow._limits = Limits(seconds=60)
    start = slow._started

    def start_and_kill(name: str) -> subprocess.Popen[bytes]:
        process = start(name)
        threading.Timer(0.2, process.kill).start()
        return process

    monkeypatch.setattr(slow, "_started", start_and_kill)
    assert reason_of(slow, path) == "damaged"


def test_reading_ends_when_it_is_cancelled_closed_or_too_long(slow: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.4" + bytes(1 << 20))
    assert reason_of(slow, path) == "too-long"
    slow._limits = Limits(seconds=60)
    with pytest.raises(Cancelled):
        slow.read(path, lambda: slow._process is not None)
    threading.Timer(0.3, slow.close).start()
    with pytest.raises(Cancelled):
        slow.read(path)
    assert slow._process is None


def test_closing_ends_a_reading_whose_process_was_not_there_yet(
    slow: DocumentReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    command = reader._command()

    def closed_meanwhile() -> list[str]:
        slow.close()
        return command

    monkeypatch.setattr(reader, "_command", closed_meanwhile)
    with pytest.raises(Cancelled):
        slow.read(path)
    assert slow._process is None


def test_a_reader_that_is_closed_while_its_process_starts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    monkeypatch.setattr(reader, "_command", lambda: [sys.executable, "-c", "import time; time.sleep(3600)"])
    silent = DocumentReader()
    threading.Timer(0.3, silent.close).start()
    with pytest.raises(Cancelled):
        silent.read(path)


def test_waiting_for_another_file_can_be_cancelled(slow: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    with slow._turn, pytest.raises(Cancelled):
        slow.read(path, lambda: True)


def test_a_process_that_does_not_start_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    for command in ([str(tmp_path / "nowhere")], [sys.executable, "-c", "print('x' * 100)"]):
        monkeypatch.setattr(reader, "_command", lambda command=command: command)
        assert reason_of(DocumentReader(), path) == "unreadable"


@pytest.mark.skipif(sys.platform == "win32", reason="reads the list of processes")
def test_the_process_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom app.documents.reading.reader import DocumentReader\n"
        "r = DocumentReader()\nr.read(Path(sys.argv[1]))\nprint(r._process.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
    until = time.monotonic() + 30
    while time.monotonic() < until and Path(f"/proc/{child}/cmdline").exists():
        if b"reading_process" not in Path(f"/proc/{child}/cmdline").read_bytes():
            break  # a zombie, or another process by now
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.skipif(not can_confine(), reason="this kernel has no Landlock of version 3 or newer")
def test_the_process_reads_no_file_of_the_user_writes_nothing_and_has_no_socket(tmp_path: Path) -> None:
    for name in ("secret", "program"):
        (tmp_path / name).write_text("text")
    script = (
        "import socket, sys\nfrom app.documents.reading import reading_process\n"
        "sys.executable = sys.argv[1].replace('secret', 'program')\nreading_process._confine()\n"
        "open(sys.executable)  # the packaged program's file holds its modules\n"
        "for act in (lambda: open(sys.argv[1]), lambda: open(sys.argv[1] + '2', 'w'), lambda: socket.socket(),\n"
        "            lambda: socket.socket(socket.AF_UNIX), lambda: open('/etc/passwd')):\n"
        "    try:\n        act()\n    except PermissionError:\n        print('denied')\n"
        "import wave\nprint('imported')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "secret")]
    done = subprocess.run(command, capture_output=True, text=True, env=reader._environment(), timeout=60)
    assert done.stdout.split() == ["denied"] * 5 + ["imported"], done.stderr
