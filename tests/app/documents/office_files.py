"""Office, OpenDocument and EPUB files with a few parts each, made by hand: no library that writes them is needed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
)
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{whole}:1.0"'
    for name, whole in (
        ("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"), ("style", "style"),
        ("presentation", "presentation"),
    )
)  # fmt: skip


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in parts.items():
            package.writestr(name, data)
    return file.getvalue()


def related(source: str, **targets: str) -> dict[str, str]:
    """The part that says which parts another one refers to: kind_id="target"."""
    folder, _, name = source.rpartition("/")
    lines = "".join(
        f'<Relationship Id="{key}" Type="{_TYPES}/{key.partition("_")[0]}" Target="{target}"/>'
        for key, target in targets.items()
    )
    where = f"{folder}/_rels/{name}.rels" if folder else f"_rels/{name}.rels"
    return {
        where: f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{lines}</Relationships>'
    }


def docx(body: str, styles: str = "", numbering: str = "", footnotes: str = "") -> bytes:
    targets = {"styles": "styles.xml", "numbering": "numbering.xml", "footnotes": "footnotes.xml"}
    return zipped({
        **related("", officeDocument="word/document.xml"),
        **related("word/document.xml", **targets),
        "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
        "word/numbering.xml": f"<w:numbering {_W}>{numbering}</w:numbering>",
        "word/footnotes.xml": f"<w:footnotes {_W}>{footnotes}</w:footnotes>",
    })  # fmt: skip


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(sheets: Mapping[str, str], texts: str = "", styles: str = "", properties: str = "") -> bytes:
    """sheets: the rows of each sheet by name."""
    names = "".join(f'<sheet name="{name}" r:id="worksheet_{at}"/>' for at, name in enumerate(sheets))
    targets = {f"worksheet_{at}": f"worksheets/sheet{at}.xml" for at, _ in enumerate(sheets)}
    parts = {
        f"xl/worksheets/sheet{at}.xml": f"<worksheet {_S}><sheetData>{rows}</sheetData></worksheet>"
        for at, rows in enumerate(sheets.values())
    }
    return zipped({
        **related("", officeDocument="xl/workbook.xml"),
        **related("xl/workbook.xml", **targets, sharedStrings="sharedStrings.xml", styles="styles.xml"),
        "xl/workbook.xml": f"<workbook {_S} {_R}>{properties}<sheets>{names}</sheets></workbook>",
        "xl/sharedStrings.xml": f"<sst {_S}>{texts}</sst>",
        "xl/styles.xml": f"<styleSheet {_S}>{styles}</styleSheet>",
        **parts,
    })  # fmt: skip


def shape(text: str, placeholder: str = "") -> str:
    paragraphs = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in text.split("\n"))
    kind = f'<p:nvPr><p:ph type="{placeholder}"/></p:nvPr>' if placeholder else ""
    return f"<p:sp>{kind}<p:txBody>{paragraphs}</p:txBody></p:sp>"


def pptx(slides: Mapping[str, str], order: tuple[str, ...], notes: Mapping[str, str]) -> bytes:
    """slides, notes: shapes by the name of a slide."""
    ids = "".join(f'<p:sldId r:id="slide_{name}"/>' for name in order)
    targets = {f"slide_{name}": f"slides/{name}.xml" for name in slides}
    parts = {
        **related("", officeDocument="ppt/presentation.xml"),
        **related("ppt/presentation.xml", **targets),
        "ppt/presentation.xml": f"<p:presentation {_P} {_R}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
    }
    for name, shapes in slides.items():
        parts[f"ppt/slides/{name}.xml"] = f"<p:sld {_P}>{shapes}</p:sld>"
    for name, shapes in notes.items():
        parts |= related(f"ppt/slides/{name}.xml", notesSlide=f"../notes/{name}.xml")
        parts[f"ppt/notes/{name}.xml"] = f"<p:notes {_P}>{shapes}</p:notes>"
    return zipped(parts)


def opendocument(kind: str, body: str, styles: str = "", manifest: str = "") -> bytes:
    """kind: text, presentation or spreadsheet."""
    return zipped({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "META-INF/manifest.xml": '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f"{manifest}</m:manifest>",
        "content.xml": f"<office:document-content {_ODF}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>",
    })  # fmt: skip


def epub(chapters: Mapping[str, str], contents: Mapping[str, str], is_old: bool = False, more: str = "") -> bytes:
    """chapters: HTML by file name, in order. contents: names by address. is_old: with an NCX file."""
    items = "".join(f'<item id="{n}" href="{n}" media-type="application/xhtml+xml"/>' for n in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    if is_old:
        items += '<item id="toc" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        points = "".join(
            f'<navPoint><navLabel><text>{name}</text></navLabel><content src="{at}"/></navPoint>'
            for at, name in contents.items()
        )
        toc = (
            '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">'
            f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'
        )
    else:
        items += '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
        links = "".join(f'<li><a href="{at}">{name}</a></li>' for at, name in contents.items())
        toc = (
            '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
            f'<nav epub:type="toc"><ol>{links}</ol></nav></body></html>'
        )
    return zipped({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        "OPS/book.opf": f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest>'
        f'<spine toc="toc">{spine}</spine></package>',
        "OPS/toc.ncx" if is_old else "OPS/nav.xhtml": toc,
        **{f"OPS/{name}": f"<html><body>{text}</body></html>" for name, text in chapters.items()},
        **({"META-INF/encryption.xml": more} if more else {}),
    })  # fmt: skip
