"""The text of each kind of file: order, headings, lists, tables, notes, names, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import office_files as made
import pytest
from office_files import paragraph

from app.documents import attachment_texts as texts
from app.documents.reading.document import Document, Part
from app.documents.reading.reader import SUFFIXES, DocumentReader


@pytest.fixture(scope="module")
def documents() -> Iterator[DocumentReader]:
    reader = DocumentReader()
    yield reader
    reader.close()


def lines(document: Document) -> list[str]:
    return [line for part in document.parts for line in part.text.split("\n")]


# --- Word


STYLES = (
    '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
    '<w:style w:styleId="H2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="H2"/></w:style>'
    '<w:style w:styleId="N"><w:name w:val="N"/><w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr></w:style>'
)
NUMBERING = (
    '<w:abstractNum w:abstractNumId="8"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="x"/></w:lvl>'
    '</w:abstractNum><w:abstractNum w:abstractNumId="9">'
    '<w:lvl w:ilvl="0"><w:start w:val="3"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
    '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl>'
    '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="8"/></w:num>'
    '<w:num w:numId="2"><w:abstractNumId w:val="9"/></w:num>'
)


def listed(text: str, list_id: int, level: int = 0) -> str:
    return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_id}"/></w:numPr>')


def test_word_headings_and_numbers_of_lists(documents: DocumentReader) -> None:
    body = (
        paragraph("Report", '<w:pStyle w:val="T"/>')
        + paragraph("Mine", '<w:pStyle w:val="Mine"/>')
        + paragraph("Direct", '<w:outlineLvl w:val="2"/>')
        + listed("point", 1)
        + paragraph("three", '<w:pStyle w:val="N"/>')
        + listed("a", 2, 1)
        + listed("b", 2, 1)
        + listed("four", 2)
        + listed("a again", 2, 1)
        + paragraph("Text")
    )
    read = documents.read_data(made.docx(body, STYLES, NUMBERING), "a.docx")
    assert (read.kind, read.n_parts) == ("docx", 1)
    assert read.parts[0].text == (
        "# Report\n\n## Mine\n\n### Direct\n\n- point\n3. three\n  3.a) a\n  3.b) b\n4. four\n  4.a) a again\n\nText"
    )


def test_word_leaves_out_what_was_deleted_and_keeps_the_rest(documents: DocumentReader) -> None:
    body = (
        "<w:p><w:r><w:t>kept</w:t></w:r><w:del><w:r><w:delText>gone</w:delText><w:t>gone</w:t></w:r></w:del>"
        "<w:ins><w:r><w:t> new</w:t></w:r></w:ins><w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>"
        "<w:r><w:tab/><w:t>x</w:t><w:br/><w:t>y</w:t><w:noBreakHyphen/><w:instrText>PAGE</w:instrText></w:r>"
        '<w:r><w:footnoteReference w:id="7"/></w:r></w:p>'
    )
    notes = (
        f'<w:footnote w:id="0">{paragraph("line")}</w:footnote><w:footnote w:id="7">{paragraph("Note.")}</w:footnote>'
    )
    read = documents.read_data(made.docx(body, footnotes=notes), "a.docx")
    assert read.parts[0].text == "kept new\tx\ny-[^1]\n\n[^1]: Note."


def test_word_tables_and_boxes(documents: DocumentReader) -> None:
    def table(*rows: tuple[str, ...]) -> str:
        cells = ("".join(f"<w:tc>{cell}</w:tc>" for cell in row) for row in rows)
        return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"

    inner = table((paragraph("in"), paragraph("side")))
    body = table((paragraph("a|b"), paragraph("c") + paragraph("d")), (inner, paragraph("e"))) + (
        '<w:p><w:r><w:t>outer</w:t><mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-'
        f'compatibility/2006"><mc:Choice>{paragraph("box")}</mc:Choice><mc:Fallback>{paragraph("box")}</mc:Fallback>'
        "</mc:AlternateContent></w:r></w:p>"
    )
    read = documents.read_data(made.docx(body), "a.docx")
    assert read.parts[0].text == "a\\|b | c d\nin \\| side | e\n\nbox\n\nouter"


# --- Excel


def test_excel_values_dates_and_names(documents: DocumentReader) -> None:
    rows = (
        '<row><c r="A1" t="s"><v>1</v></c><c r="C1" t="inlineStr"><is><t>in</t><t>line</t></is></c></row>'
        '<row><c r="A3" s="1"><v>45413</v></c><c r="B3" s="2"><v>45413.5625</v></c><c s="3"><v>0.125</v></c></row>'
        '<row><c t="b"><v>1</v></c><c t="e"><v>#REF!</v></c><c t="str"><f>A1&amp;"x"</f><v>cached</v></c>'
        "<c><v>0.30000000000000004</v></c></row><row/>"
    )
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="[Red]yyyy\\-mm\\-dd hh:mm"/><numFmt numFmtId="165" '
        'formatCode="0.0%"/></numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs><xf numFmtId="0"/>'
        '<xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs>'
    )
    shared = "<si><t>zero</t></si><si><r><t>Größe</t></r><r><t> a|b</t></r><rPh><t>gross</t></rPh></si>"
    read = documents.read_data(made.xlsx({"Zahlen": rows, "Empty": "", "2nd": "<row><c/></row>"}, shared, styles), "")
    assert (read.kind, read.n_parts) == ("xlsx", 3)
    assert [(part.number, part.name) for part in read.parts] == [(1, "Zahlen")]
    assert read.parts[0].text.split("\n") == [
        "Größe a\\|b |  | inline",
        "2024-05-01 | 2024-05-01 13:30:00 | 12.5%",
        "TRUE | #REF! | cached | 0.3",
    ]


def test_excel_dates_since_1904_and_before_march_1900(documents: DocumentReader) -> None:
    styles = '<cellXfs><xf numFmtId="14"/><xf numFmtId="21"/></cellXfs>'
    rows = '<row><c s="0"><v>59</v></c><c s="0"><v>61</v></c><c s="1"><v>0.5</v></c><c s="0"><v>9e9</v></c></row>'
    old = documents.read_data(made.xlsx({"a": rows}, styles=styles), "")
    assert lines(old) == ["1900-02-28 | 1900-03-01 | 12:00:00 | 9000000000"]
    new = documents.read_data(made.xlsx({"a": rows}, styles=styles, properties='<workbookPr date1904="1"/>'), "")
    assert lines(new)[0].startswith("1904-02-29 | 1904-03-02")


def test_excel_cells_far_to_the_right_make_no_wide_row(documents: DocumentReader) -> None:
    rows = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    assert documents.read_data(made.xlsx({"a": rows}), "").parts[0].text.strip(" |") == "1"
    assert len(documents.read_data(made.xlsx({"a": rows}), "").parts[0].text) < 200


# --- PowerPoint


def test_powerpoint_slides_in_order_with_notes(documents: DocumentReader) -> None:
    table = (
        "<p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>a</a:t></a:r></a:p></a:txBody></a:tc>"
        "<a:tc><a:txBody><a:p><a:r><a:t>b</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>"
    )
    data = made.pptx(
        {
            "s1": made.shape("Last", "title") + made.shape("7", "sldNum"),
            "s2": made.shape("one\ntwo", "body") + made.shape("First", "ctrTitle") + made.shape("free") + table,
            "s3": "",
        },
        ("s2", "s3", "s1"),
        {"s2": made.shape("Say this.", "body") + made.shape("9", "sldNum")},
    )
    read = documents.read_data(data, "a.pptx")
    assert (read.kind, read.n_parts) == ("pptx", 3)
    assert read.parts == (
        Part("# First\n\n- one\n- two\n\nfree\n\na | b\n\nNotes: Say this.", 1, "First"),
        Part("# Last", 3, "Last"),
    )


# --- OpenDocument


def test_opendocument_texts(documents: DocumentReader) -> None:
    styles = (
        '<style:style style:name="P1" style:parent-style-name="Title"/><text:list-style style:name="L1">'
        '<text:list-level-style-number text:level="1"/></text:list-style>'
    )
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:p text:style-name="P1">Report</text:p><text:h text:outline-level="2">Part</text:h>'
        '<text:p>a<text:s text:c="2"/>b<text:tab/>c<text:line-break/>d\n   e<office:annotation><text:p>comment</text:p>'
        "</office:annotation><text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>Note.</text:p>"
        "</text:note-body></text:note></text:p>"
        '<text:list text:style-name="L1"><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>in'
        "</text:p></text:list-item></text:list></text:list-item><text:list-item><text:p>two</text:p></text:list-item>"
        "</text:list><table:table><table:table-row><table:table-cell><text:p>x</text:p><text:p>y</text:p>"
        "</table:table-cell><table:table-cell><text:p>z</text:p></table:table-cell></table:table-row></table:table>"
    )
    read = documents.read_data(made.opendocument("text", body, styles), "a.odt")
    assert (read.kind, read.n_parts) == ("odt", 1)
    assert read.parts[0].text == (
        "# Report\n\n## Part\n\na  b\tc\nd e[^1]\n\n1. one\n  - in\n2. two\n\nx y | z\n\n[^1]: Note."
    )


def test_opendocument_sheets(documents: DocumentReader) -> None:
    def cell(text: str, more: str = "") -> str:
        return f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"

    body = (
        '<table:table table:name="One"><table:table-row table:number-rows-repeated="2">'
        + cell("a", 'table:number-columns-repeated="2"')
        + cell("1. Mai", 'office:value-type="date" office:date-value="2024-05-01T10:00:00"')
        + '<table:table-cell table:number-columns-repeated="16381"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1048574"><table:table-cell/></table:table-row></table:table>'
        f'<table:table table:name="Two"><table:table-row>{cell("b")}</table:table-row></table:table>'
    )
    read = documents.read_data(made.opendocument("spreadsheet", body), "a.ods")
    assert read.parts == (
        Part("a | a | 2024-05-01 10:00:00\na | a | 2024-05-01 10:00:00", 1, "One"),
        Part("b", 2, "Two"),
    )


def test_opendocument_slides(documents: DocumentReader) -> None:
    body = (
        '<draw:page draw:name="page1"><draw:frame presentation:class="title"><draw:text-box><text:p>Title</text:p>'
        "</draw:text-box></draw:frame><draw:frame><draw:text-box><text:p>text</text:p></draw:text-box></draw:frame>"
        "<presentation:notes><draw:frame><text:p>say</text:p></draw:frame></presentation:notes></draw:page>"
        '<draw:page draw:name="page2"/>'
    )
    read = documents.read_data(made.opendocument("presentation", body), "a.odp")
    assert read.n_parts == 2
    assert read.parts == (Part("# Title\n\ntext\n\nNotes: say", 1, "Title"),)


# --- books and pages


@pytest.mark.parametrize("is_old", [False, True])
def test_books_are_read_in_the_order_of_their_spine(documents: DocumentReader, is_old: bool) -> None:
    chapters = {"z one.xhtml": "<h1>1</h1><p>Erster</p>", "cover.xhtml": "", "b.xhtml": "<h2>Second</h2><p>text</p>"}
    data = made.epub(chapters, {"z%20one.xhtml#top": "Kapitel eins", "z%20one.xhtml#more": "More"}, is_old)
    read = documents.read_data(data, "a.epub")
    assert (read.kind, read.n_parts) == ("epub", 3)
    assert read.parts == (Part("# 1\n\nErster", 1, "Kapitel eins"), Part("## Second\n\ntext", 3, "Second"))


def test_an_html_file_is_its_text(documents: DocumentReader) -> None:
    data = '<meta charset="iso-8859-1"><title>Größe</title><h1>A</h1><script>x</script><p>für'.encode("latin-1")
    read = documents.read_data(data, "page.HTM")
    assert (read.kind, read.parts) == ("html", (Part("# A\n\nfür", 1, "Größe"),))
    assert documents.read_data(data, "page.txt").kind == "text"


def test_the_content_decides_and_not_the_name(documents: DocumentReader) -> None:
    assert documents.read_data(made.docx(paragraph("a")), "a.txt").kind == "docx"
    assert documents.read_data(b"plain", "a.docx").kind == "text"
    assert {".pdf", ".docx", ".epub", ".md", ".py"} <= SUFFIXES


# --- attachments


def test_an_attached_workbook_has_the_names_of_its_sheets(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(made.xlsx({"One": "<row><c><v>1</v></c></row>", "Two": "<row><c><v>2</v></c></row>"}))
    read = texts.read(path)
    assert (read.kind, read.n_pages, read.text) == ("text", 0, "# One\n\n1\n\n# Two\n\n2")
