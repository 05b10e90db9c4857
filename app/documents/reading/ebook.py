"""The text of EPUB files: chapters in the order of reading, named by the table of contents.

Runs in the child process (reading_process.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from app.documents.reading.document import Document, TextLimit, Unreadable
from app.documents.reading.package import Package, inside, parse
from app.documents.reading.page_text import page_text
from app.documents.reading.web_text import HTML, decoded

_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")  # ways to hide fonts alone


def read(package: Package, limit: TextLimit) -> Document:
    """Return a book by chapters. Raises Unreadable."""
    _refuse_protected(package)
    book = _Book(package)
    parts, _ = limit.parts(book.chapters())
    return Document("epub", parts, len(book.spine), cut=limit.is_reached)


def _refuse_protected(package: Package) -> None:
    def method(values: Mapping[str, str]) -> None:
        if values.get("Algorithm") not in _FONTS:
            raise Unreadable("locked")

    if "META-INF/encryption.xml" in package:
        parse(package.read("META-INF/encryption.xml"), {"enc:EncryptionMethod": method})


class _Book:
    """The list of a book's files. spine: those with its text, in order."""

    def __init__(self, package: Package) -> None:
        self._package = package
        roots: list[str] = []
        parse(
            package.read("META-INF/container.xml"),
            {"container:rootfile": lambda values: roots.append(values.get("full-path", ""))},
        )
        if not roots:
            raise Unreadable("damaged")
        self._folder = roots[0].rpartition("/")[0]
        self._files: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._contents = ""
        self.spine: list[str] = []
        starts = {"opf:item": self._item, "opf:itemref": self._reference, "opf:spine": self._spine}
        self._toc = ""
        parse(package.read(roots[0]), starts)

    def _item(self, values: Mapping[str, str]) -> None:
        key, name = values.get("id", ""), _file(self._folder, values.get("href", ""))
        self._files[key], self._kinds[key] = name, values.get("media-type", "")
        if "nav" in values.get("properties", "").split():
            self._contents = name

    def _spine(self, values: Mapping[str, str]) -> None:
        self._toc = values.get("toc", "")

    def _reference(self, values: Mapping[str, str]) -> None:
        key = values.get("idref", "")
        if self._kinds.get(key, "").endswith(("xhtml+xml", "html", "dtbook+xml")):
            self.spine.append(self._files[key])

    def chapters(self) -> Iterator[tuple[str, str]]:
        """Yield the text and name of each file of the spine."""
        names = self._names()
        for name in self.spine:
            text = ""
            if name in self._package:
                text = page_text(decoded(self._package.read(name), "", HTML), "", True).text
            yield text, names.get(name, "") or _first_heading(text)

    def _names(self) -> dict[str, str]:
        """Return the names of files by the table of contents; none if it cannot be read."""
        with suppress(Unreadable):
            if self._contents in self._package:
                return self._of_nav(self._contents)
        with suppress(Unreadable):
            if (name := self._files.get(self._toc, "")) in self._package:
                return self._of_ncx(name)
        return {}

    def _of_nav(self, name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        link, pieces = "", [""]
        folder = name.rpartition("/")[0]
        is_contents = False

        def nav(values: Mapping[str, str]) -> None:
            nonlocal is_contents
            is_contents = values.get("epub:type", "toc") == "toc"

        def begin(values: Mapping[str, str]) -> None:
            nonlocal link
            link = _file(folder, values.get("href", "")) if is_contents else ""
            pieces.clear()

        def end() -> None:
            nonlocal link
            if link:
                found.setdefault(link, " ".join("".join(pieces).split()))
            link = ""

        parse(self._package.read(name), {"html:nav": nav, "html:a": begin}, {"html:a": end}, pieces.append)
        return found

    def _of_ncx(self, name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        label, pieces = "", [""]
        folder = name.rpartition("/")[0]

        def end() -> None:
            nonlocal label
            label = " ".join("".join(pieces).split())

        def place(values: Mapping[str, str]) -> None:
            found.setdefault(_file(folder, values.get("src", "")), label)

        starts = {"ncx:text": lambda _: pieces.clear(), "ncx:content": place}
        parse(self._package.read(name), starts, {"ncx:text": end}, pieces.append)
        return found


def _file(folder: str, address: str) -> str:
    """Return the name of the file that an address leads to, or "" outside the book."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return "" if parts.scheme or parts.netloc or not parts.path else inside(folder, unquote(parts.path))


def _first_heading(text: str) -> str:
    line = text.partition("\n")[0]
    return line.lstrip("#").strip()[:200] if line.startswith("#") else ""
