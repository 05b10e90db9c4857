"""Files that are made to break their reader end in a ReadError, and the reader reads the next file."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Iterator

import office_files as made
import pytest
from office_files import paragraph
from pdf_files import pdf_drawn, pdf_of, pdf_with, shown, stream

from app.documents.reading import package
from app.documents.reading.document import Limits, Unreadable
from app.documents.reading.package import Package
from app.documents.reading.reader import DocumentReader, ReadError

WORD = made.docx(paragraph("Hello there"))
RELATIONSHIPS = made.related("", officeDocument="word/document.xml")


@pytest.fixture(scope="module")
def documents() -> Iterator[DocumentReader]:
    reader = DocumentReader(Limits(seconds=20))
    yield reader
    reader.close()


@pytest.fixture(autouse=True)
def _next_file_is_read(documents: DocumentReader) -> Iterator[None]:
    yield
    assert documents.read_data(b"next", "a.txt").parts[0].text == "next"


def reason_of(documents: DocumentReader, data: bytes, name: str = "a.docx") -> str:
    with pytest.raises(ReadError) as caught:
        documents.read_data(data, name)
    return caught.value.reason


# --- packages


def with_sizes(data: bytes, size: int) -> bytes:
    """A package that says of each part that it unpacks to `size` bytes."""
    out = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            out[at + offset : at + offset + 4] = struct.pack("<I", size)
    return bytes(out)


def test_a_package_that_unpacks_to_too_much(documents: DocumentReader) -> None:
    bomb = made.zipped({**RELATIONSHIPS, "word/document.xml": bytes(100 << 20)})
    assert len(bomb) < 1 << 20
    assert reason_of(documents, bomb) == "too-large"


def test_a_package_that_hides_how_much_it_unpacks_to(documents: DocumentReader) -> None:
    bomb = made.zipped({**RELATIONSHIPS, "word/document.xml": bytes(100 << 20)})
    assert reason_of(documents, with_sizes(bomb, 200)) == "damaged"
    with pytest.raises(Unreadable, match="damaged"):
        Package(with_sizes(bomb, 200)).read("word/document.xml")


def test_a_package_with_parts_that_overlap(documents: DocumentReader) -> None:
    data = made.zipped({**RELATIONSHIPS, "a": bytes(100), "b": bytes(100)})
    second = struct.pack("<I", data.find(b"PK\x03\x04", 4))
    last = data.rfind(b"PK\x01\x02")
    out = data[: last + 42] + second + data[last + 46 :]
    assert reason_of(documents, out) == "damaged"


def test_a_package_with_very_many_parts(documents: DocumentReader) -> None:
    assert reason_of(documents, made.zipped({str(n): b"" for n in range(package.MOST_ENTRIES + 1)})) == "too-large"


def test_a_package_in_a_package_is_not_unpacked(documents: DocumentReader) -> None:
    assert reason_of(documents, made.zipped({"r.zip": made.zipped({"r.zip": WORD})}), "r.zip") == "unsupported"


def test_encrypted_files(documents: DocumentReader) -> None:
    flagged = bytearray(WORD)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := WORD.find(mark, at + 1)) >= 0:
            flagged[at + offset] |= 1
    assert reason_of(documents, bytes(flagged)) == "locked"
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert reason_of(documents, old + "EncryptedPackage".encode("utf-16-le")) == "locked"
    assert reason_of(documents, old, "a.doc") == "unsupported"
    assert reason_of(documents, made.opendocument("text", "", manifest="<m:encryption-data/>")) == "locked"
    protected = '<e xmlns:x="http://www.w3.org/2001/04/xmlenc#"><x:EncryptionMethod Algorithm="{}"/></e>'
    book = made.epub({"a.xhtml": "<p>a</p>"}, {}, more=protected.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc"))
    assert reason_of(documents, book) == "locked"
    fonts = made.epub({"a.xhtml": "<p>a</p>"}, {}, more=protected.format("http://www.idpf.org/2008/embedding"))
    assert documents.read_data(fonts, "a.epub").parts[0].text == "a"


# --- XML


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><a>&b;</a>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        "<!DOCTYPE a [<!ELEMENT a ANY>]><a/>",
        "<a>&unknown;</a>",
        "<a>" * 300 + "</a>" * 300,
        "<a" + "".join(f' x{n}=""' for n in range(10)),
        "<a></b>",
        '<?xml version="1.0" encoding="no-such"?><a/>',
        "",
    ],
)
def test_xml_that_is_refused(documents: DocumentReader, document: str) -> None:
    assert reason_of(documents, made.zipped({**RELATIONSHIPS, "word/document.xml": document})) == "damaged"


def test_nothing_outside_is_read(documents: DocumentReader) -> None:
    relationships = made.related("", officeDocument="../../../../etc/passwd")
    assert reason_of(documents, made.zipped(relationships)) == "unsupported"
    outside = {name: text.replace("Target=", 'TargetMode="External" Target=') for name, text in RELATIONSHIPS.items()}
    assert reason_of(documents, made.zipped({**outside, "word/document.xml": "<a/>"})) == "unsupported"
    book = made.epub({"a.xhtml": "<p>a</p>", "../../etc/passwd": "<p>b</p>"}, {"http://example.org/a.xhtml": "x"})
    assert [part.text for part in documents.read_data(book, "a.epub").parts] == ["a"]


def test_a_few_texts_that_are_repeated_without_end_are_cut(documents: DocumentReader) -> None:
    rows = "<row>" + '<c t="s"><v>0</v></c>' * 20 + "</row>"
    data = made.xlsx({"a": rows * 10, "b": rows}, texts=f"<si><t>{'x' * 100_000}</t></si>")
    read = documents.read_data(data, "a.xlsx")
    assert read.cut
    assert sum(len(part.text) for part in read.parts) == 4_000_000
    repeated = (
        '<table:table table:name="a"><table:table-row table:number-rows-repeated="99999999"><table:table-cell '
        f'table:number-columns-repeated="99999999"><text:p>{"y" * 900}</text:p></table:table-cell></table:table-row>'
        "</table:table>"
    )
    assert documents.read_data(made.opendocument("spreadsheet", repeated), "a.ods").cut


def test_lists_and_styles_that_refer_to_themselves(documents: DocumentReader) -> None:
    styles = (
        '<w:style w:styleId="A"><w:name w:val="a"/><w:basedOn w:val="B"/></w:style>'
        '<w:style w:styleId="B"><w:name w:val="b"/><w:basedOn w:val="A"/></w:style>'
    )
    read = documents.read_data(made.docx(paragraph("text", '<w:pStyle w:val="A"/>'), styles), "a.docx")
    assert read.parts[0].text == "text"


def test_html_of_very_many_open_elements(documents: DocumentReader) -> None:
    read = documents.read_data(b"<div><table><tr><td>" * 100_000 + b"text", "a.html")
    assert "text" in read.parts[0].text


# --- PDF


def test_pdf_files_that_are_locked_or_damaged(documents: DocumentReader) -> None:
    locked = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O ({0}) /U ({0}) >> /ID [(a) (a)]".format("x" * 32)
    assert reason_of(documents, pdf_drawn([shown("secret", 72, 700)], trailer=locked)) == "locked"
    assert reason_of(documents, b"%PDF-1.7\nnothing of use") == "damaged"


def test_a_pdf_of_very_many_pages_is_cut(documents: DocumentReader) -> None:
    kids = " ".join(["3 0 R"] * 100_000)
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    data = pdf_of(["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count 100000 >>", page])
    assert reason_of(documents, data) in ("empty", "damaged")
    claimed = pdf_with(["one"]).replace(b"/Count 1 ", b"/Count 2000000000 ")
    assert documents.read_data(claimed, "a.pdf").parts[0].text == "one"


def test_pdf_pages_that_are_their_own_parents(documents: DocumentReader) -> None:
    loop = pdf_of(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"])
    assert reason_of(documents, loop) in ("damaged", "empty")


def test_a_pdf_whose_drawings_never_end() -> None:
    """Each drawing draws the next one ten times: 10 to the power of 15 words."""
    forms = [
        stream(
            f"/X{n + 1} Do " * 10,
            f"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X{n + 1} {n + 5} 0 R >> >>",
        )
        for n in range(15)
    ]
    last = stream(
        shown("x", 0, 0), "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /F1 3 0 R >> >>"
    )
    reader = DocumentReader(Limits(seconds=1))
    data = pdf_drawn(["/X0 Do"], "/XObject << /X0 4 0 R >>", [*forms, last])
    assert reason_of(reader, data, "a.pdf") in ("too-long", "too-large", "damaged", "empty")
    assert reader.read_data(b"next", "a.txt").parts[0].text == "next"
    reader.close()


# --- any kind


def every_kind() -> dict[str, bytes]:
    return {
        "a.docx": WORD,
        "a.xlsx": made.xlsx({"One": "<row><c><v>1</v></c></row>"}),
        "a.pptx": made.pptx({"s1": made.shape("Title", "title")}, ("s1",), {"s1": made.shape("notes", "body")}),
        "a.odt": made.opendocument("text", "<text:p>text</text:p>"),
        "a.epub": made.epub({"a.xhtml": "<p>a</p>"}, {"a.xhtml": "A"}),
        "a.pdf": pdf_with(["one", "two"]),
    }


@pytest.mark.parametrize("name", every_kind())
def test_files_that_are_cut_off_or_changed(documents: DocumentReader, name: str) -> None:
    data, chance = every_kind()[name], random.Random(name)
    assert documents.read_data(data, name).parts
    refused = 0
    for _ in range(60):
        changed = bytearray(data[: chance.randrange(len(data))] if chance.random() < 0.4 else data)
        for _ in range(chance.randrange(8)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            documents.read_data(bytes(changed), name)
        except ReadError:
            refused += 1
    assert refused > 10


def test_a_wrong_name_and_a_wrong_beginning(documents: DocumentReader) -> None:
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w", zipfile.ZIP_BZIP2) as file:
        for name, text in {**RELATIONSHIPS, "word/document.xml": "<a/>"}.items():
            file.writestr(name, text)
    assert reason_of(documents, plain.getvalue()) == "damaged"
    assert reason_of(documents, b"PK\x03\x04" + bytes(100)) == "damaged"
    assert reason_of(documents, b"\x00\x01\x02" * 100, "a.txt") == "unsupported"
    assert reason_of(documents, made.zipped({"a.txt": "x"}), "a.docx") == "unsupported"
