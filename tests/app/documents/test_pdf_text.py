"""The text of PDF pages, and pictures of them with the lines of a passage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pdf_files import pdf_drawn, pdf_with, shown, stream
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QImage

from app.documents.reading.document import Part, ReadError
from app.documents.reading.pdf import _Line, _paragraphs
from app.documents.reading.reader import DocumentReader

PICTURE = stream(
    "\x80", "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8"
)
SCAN = "q 612 0 0 792 0 0 cm /I Do Q"


@pytest.fixture(scope="module")
def documents() -> Iterator[DocumentReader]:
    reader = DocumentReader()
    yield reader
    reader.close()


def column(lines: list[str], x: float = 72, top: float = 700, step: float = 14) -> str:
    return "".join(shown(line, x, top - step * at) for at, line in enumerate(lines))


def text_of(documents: DocumentReader, content: str) -> str:
    return documents.read_data(pdf_drawn([content]), "a.pdf").parts[0].text


def test_pages_and_their_numbers(documents: DocumentReader) -> None:
    read = documents.read_data(pdf_with(["Heat pumps (air to water)", "", "Page three"]), "a.pdf")
    assert (read.kind, read.n_parts, read.n_scanned, read.cut) == ("pdf", 3, 0, False)
    assert read.parts == (Part("Heat pumps (air to water)", 1), Part("Page three", 3))


def test_scanned_pages_are_counted_and_a_scan_is_refused(documents: DocumentReader) -> None:
    with_picture = "/XObject << /I 4 0 R >>"
    read = documents.read_data(pdf_drawn([shown("Text", 72, 700), SCAN, "", SCAN], with_picture, [PICTURE]), "a.pdf")
    assert (read.n_parts, read.n_scanned, len(read.parts)) == (4, 2, 1)
    with pytest.raises(ReadError) as caught:
        documents.read_data(pdf_drawn([SCAN, SCAN], with_picture, [PICTURE]), "a.pdf")
    assert caught.value.reason == "scan"
    with pytest.raises(ReadError) as caught:
        documents.read_data(pdf_with(["", ""]), "a.pdf")
    assert caught.value.reason == "empty"


LONG = ["This is a line of a paragraph that is long enough", "to be prose, and it goes on in the next line of text"]


def test_lines_become_paragraphs(documents: DocumentReader) -> None:
    content = column([*LONG, "and ends here.", "Another one begins."]) + column(LONG, top=700 - 14 * 3 - 40)
    first, second = text_of(documents, content).split("\n\n")
    assert first == f"{LONG[0]} {LONG[1]} and ends here.\nAnother one begins."
    assert second == f"{LONG[0]} {LONG[1]}"


def test_an_indent_another_size_and_another_column_begin_paragraphs(documents: DocumentReader) -> None:
    indented = column([LONG[1], LONG[1]]) + column([LONG[0]], x=90, top=700 - 28) + column([LONG[1]], top=700 - 42)
    assert text_of(documents, indented) == f"{LONG[1]} {LONG[1]}\n\n{LONG[0]} {LONG[1]}"
    heading = shown("A heading that is about as wide as text", 72, 714, 18) + column(LONG)
    assert text_of(documents, heading).split("\n\n")[1:] == [" ".join(LONG)]
    columns = column(["Left column of the text, long."] * 2) + column(["Right column of the text, long."] * 2, x=330)
    assert text_of(documents, columns).split("\n\n") == [
        "Left column of the text, long. Left column of the text, long.",
        "Right column of the text, long. Right column of the text, long.",
    ]


def test_rows_of_a_table_stay_lines(documents: DocumentReader) -> None:
    assert (
        text_of(documents, column(["gnu stuffed 92.50", "emu stuffed 33.33"])) == "gnu stuffed 92.50\nemu stuffed 33.33"
    )


def test_words_divided_at_the_end_of_a_line_are_joined(documents: DocumentReader) -> None:
    content = column(
        [
            "It says that the process is confi-",
            "ned, as long as the files last 2019-",
            "2020 in the Anglo-",
            "Saxon world.",
        ]
    )
    assert " ".join(text_of(documents, content).split()) == (
        "It says that the process is confined, as long as the files last 2019-2020 in the Anglo-Saxon world."
    )


def test_ligatures_become_letters_and_other_marks_stay(documents: DocumentReader) -> None:
    encoding = "/Encoding << /Type /Encoding /Differences [1 /fi /ffi /onehalf /twosuperior] >>"
    font = f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica {encoding} >>"
    content = "BT /F2 12 Tf 72 700 Td (\\001nd o\\002ce \\003 m\\004) Tj ET"
    read = documents.read_data(pdf_drawn([content], "/Font << /F1 3 0 R /F2 4 0 R >>", [font]), "a.pdf")
    assert read.parts[0].text == "find office ½ m²"


def test_chinese_and_japanese_lines_are_joined_without_a_space() -> None:
    lines = [_Line("人人生而自由在尊严和权利上一律平等", 72, 300, 700 - 14 * at, 12) for at in range(3)]
    assert _paragraphs(lines) == "人人生而自由在尊严和权利上一律平等" * 3


# --- pictures


def test_a_picture_of_a_page_has_the_lines_of_a_passage(documents: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(
        pdf_drawn(["", column(["Before it.", "The passage is here and goes", "on in this line.", "After it."])])
    )
    picture = documents.page_picture(path, 2, "The passage is here  and\ngoes on in this line", 306)
    image = QImage.fromData(QByteArray(picture.png), "PNG")
    assert (image.width(), image.height()) == (306, 396)
    assert len(picture.boxes) == 2
    for at, (x, y, width, height) in enumerate(picture.boxes):
        assert x == pytest.approx(72 / 612, abs=0.01)
        assert y + height == pytest.approx(1 - (686 - 14 * at) / 792, abs=0.01)
        assert 0.005 < height < 0.02
        box = image.copy(int(x * 306), int(y * 396), int(width * 306), int(height * 396) + 1)
        tones = {
            box.pixelColor(across, down).lightness() for across in range(box.width()) for down in range(box.height())
        }
        assert min(tones) < 128 < max(tones), "black letters on white"
    assert picture.boxes[0][2] > picture.boxes[1][2]


def test_a_passage_that_is_only_in_part_on_the_page(documents: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_drawn([column(["unrelated beginning of this page", *LONG])]))
    before = "This sentence stands on the page before and is quite a bit longer than needed."
    assert len(documents.page_picture(path, 1, f"{' '.join(LONG)} {before}", 200).boxes) == 2
    assert documents.page_picture(path, 1, before, 200).boxes == ()
    assert documents.page_picture(path, 1, "", 200).boxes == ()


def test_a_page_that_does_not_exist_has_no_picture(documents: DocumentReader, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_with(["one"]))
    for number in (0, 2, -1):
        with pytest.raises(ReadError):
            documents.page_picture(path, number, "", 200)
