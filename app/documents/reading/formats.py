"""Recognizes a file's kind by its bytes, and reads it. Runs in the child process (reading_process.py)."""

from __future__ import annotations

from app.documents.reading import ebook, excel, opendocument, pdf, plain_text, powerpoint, word
from app.documents.reading.document import Document, Kind, TextLimit, Unreadable
from app.documents.reading.package import Package
from app.documents.reading.page_text import page_text
from app.documents.reading.web_text import HTML, decoded

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")  # a stream of Office files with a password
_BY_MEDIA_TYPE: dict[str, Kind] = {
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/epub+zip": "epub",
}
_BY_MAIN_PART: dict[str, Kind] = {"word": "docx", "ppt": "pptx", "xl": "xlsx"}  # the folder of an Office file's parts
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")


def read(data: bytes, suffix: str, limit: TextLimit) -> Document:
    """Return a file's text. suffix: the end of its name, in lower case. Raises Unreadable."""
    if not data.strip():
        raise Unreadable("empty")
    document = _read(data, suffix, limit)
    if not document.parts:
        raise Unreadable("empty")
    return document


def _read(data: bytes, suffix: str, limit: TextLimit) -> Document:
    if data.startswith(_ZIP):
        return _of_package(Package(data), limit)
    if b"%PDF-" in data[:1024]:
        return pdf.read(data, limit)
    if data.startswith(_OLD_OFFICE):
        raise Unreadable("locked" if _ENCRYPTED in data else "unsupported")
    if suffix in _HTML_SUFFIXES:
        return _html(data, suffix == ".xhtml", limit)
    return plain_text.read(data, limit)


def _of_package(package: Package, limit: TextLimit) -> Document:
    kind = _kind_of(package)
    if kind == "docx":
        return word.read(package, limit)
    if kind == "pptx":
        return powerpoint.read(package, limit)
    if kind == "xlsx":
        return excel.read(package, limit)
    if kind == "epub":
        return ebook.read(package, limit)
    if kind in ("odt", "odp", "ods"):
        return opendocument.read(package, limit, kind)
    raise Unreadable("unsupported")


def _kind_of(package: Package) -> Kind | None:
    if "mimetype" in package:
        media_type = package.read("mimetype")[:200].decode("ascii", "replace").strip()
        return _BY_MEDIA_TYPE.get(media_type.removesuffix("-template"))
    main = package.first_related("", "officeDocument")
    return _BY_MAIN_PART.get(main.partition("/")[0])


def _html(data: bytes, is_xhtml: bool, limit: TextLimit) -> Document:
    plain_text.refuse_binary(data)
    page = page_text(decoded(data, "", HTML), "", is_xhtml)
    parts, _ = limit.parts([(page.text, page.title)])
    return Document("html", parts, 1, cut=limit.is_reached)
