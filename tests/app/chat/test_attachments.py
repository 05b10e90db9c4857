"""What files and pastes say: every usual encoding, PDF files, and everything that is not text or too much of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pdf_files import pdf_with
from support.shown_text import numbers_in

from app.chat.store.conversation import Attachment, content_of
from app.documents import attachment_texts as texts
from app.documents.attachment_texts import AttachmentError
from app.documents.reading.reader import display_name

GERMAN = "Die Wärmepumpe läuft für 5 €, sagte Jürgen. Größe und Übung genügen. " * 30
RUSSIAN = "Тепловой насос работает зимой и летом, и он стоит недорого. " * 30
JAPANESE = "日本語の文章です。ヒートポンプは冬でも夏でも動きます。" * 30
CHINESE = "热泵在冬天和夏天都能工作,而且价格不高。我们喜欢它。" * 30


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "utf-8"), (GERMAN, "utf-8-sig"), (GERMAN, "utf-16"), (GERMAN, "utf-16-le"), (GERMAN, "utf-16-be"),
        (GERMAN, "utf-32"), (GERMAN, "cp1252"), (RUSSIAN, "utf-8"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"),
        (JAPANESE, "utf-8"), (JAPANESE, "utf-16"), (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"),
        (CHINESE, "gb18030"), (CHINESE, "big5hkscs"), ("plain\r\nlines\rof text", "ascii"),
    ],
)  # fmt: skip
def test_text_of_every_usual_encoding_is_read(tmp_path: Path, text: str, encoding: str) -> None:
    if encoding == "big5hkscs":
        text = "熱泵在冬天和夏天都能工作,而且價格不高。我們喜歡它。" * 30
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode(encoding))
    read = texts.read(path)
    assert (read.name, read.kind) == ("text.txt", "text")
    assert read.text == text.replace("\r\n", "\n").replace("\r", "\n").strip(" ")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40),
        ("empty.txt", b""),
        ("blank.txt", b" \n\t\n"),
        ("broken.pdf", b"%PDF-1.7\nnothing of use"),
        ("white.pdf", pdf_with(["", ""])),
    ],
)
def test_what_holds_no_text_is_refused_with_its_name(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(AttachmentError, match=name):
        texts.read(path)


def test_a_huge_file_is_refused_and_a_long_text_is_bounded(tmp_path: Path) -> None:
    huge = tmp_path / "huge.log"
    with huge.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(AttachmentError, match=r"67\u202fMB.*up to 67"):
        texts.read(huge)
    long_one = tmp_path / "long.txt"
    long_one.write_text("words" * 300_000)
    assert len(texts.read(long_one).text) == texts.MOST_CHARS
    assert len(texts.pasted("x" * 3_000_000).text) == texts.MOST_CHARS


def test_names_are_one_line_whatever_the_file_is_called() -> None:
    assert display_name(Path("/tmp/a\nb.txt")) == "a b.txt"
    assert display_name(Path("/tmp/caf\udcff.txt")) == "caf\ufffd.txt"


def test_the_text_of_a_pdf_is_read_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pypdfium2", raising=False)  # other tests use it
    path = tmp_path / "report.pdf"
    path.write_bytes(pdf_with(["Heat pumps (air to water)", "", "Page three"]))
    read = texts.read(path)
    assert (read.kind, read.n_pages) == ("pdf", 3)
    assert read.text == "Heat pumps (air to water)\n\nPage three"
    assert content_of("", (read,)).startswith("[report.pdf, 3 pages]\n")
    assert "pypdfium2" not in sys.modules, "the window never loads it"


def test_what_the_model_reads_names_every_text_and_ends_with_the_question() -> None:
    one = Attachment("a.txt", "first", "text")
    two = Attachment("b.pdf", "second", "pdf", 2)
    content = content_of("What?", (one, two))
    assert content == "[a.txt]\nfirst\n[End of a.txt]\n\n[b.pdf, 2 pages]\nsecond\n[End of b.pdf]\n\nWhat?"
    assert content_of("Hello", ()) == "Hello"
    assert content_of(" ", (one,)) == "[a.txt]\nfirst\n[End of a.txt]"


def test_a_text_that_was_cut_says_so_and_how_much_of_it_there_is() -> None:
    whole = Attachment("a.txt", "one two three four", "text")
    assert texts.cut(whole, 18, 4, 4) is whole
    assert texts.kept_of(whole) is None
    part = texts.cut(whole, 8, 1_200, 51_000)
    assert part.text.startswith("one two\n[")
    assert numbers_in(part.text) == ["1,200", "51,000"]
    assert texts.kept_of(part) == (1_200, 51_000)
