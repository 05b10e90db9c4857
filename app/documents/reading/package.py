"""ZIP files that hold a document's parts, and their XML. A hostile file cannot unpack to more than the limits here.

Nothing outside the package is read: external references are not followed, and a document type with entities or other
declarations of its own is refused. Runs in the child process (reading_process.py).
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from xml.parsers import expat

from app.documents.reading.document import Unreadable

MOST_ENTRIES = 20_000
MOST_PART_BYTES = 256 << 20  # unpacked
MOST_BYTES = 1 << 30  # unpacked, of all parts
MOST_RATIO = 250  # of unpacked to packed bytes, for packages that unpack to more than FREE_BYTES
FREE_BYTES = 64 << 20
MOST_DEPTH = 256  # of elements

# What a namespace's address contains or is, and the prefix that it has here.
_NAMESPACES = (
    ("wordprocessingml", "w"), ("spreadsheetml", "s"), ("presentationml", "p"), ("officeDocument/2006/math", "m"),
    ("officeDocument/math", "m"), ("officeDocument/2006/relationships", "r"), ("officeDocument/relationships", "r"),
    ("package/2006/relationships", "rel"), ("markup-compatibility", "mc"), ("drawingml/2006/main", "a"),
    ("drawingml/main", "a"), ("xmlns:text:", "text"), ("xmlns:office:", "office"), ("xmlns:table:", "table"),
    ("xmlns:drawing:", "draw"), ("xmlns:presentation:", "presentation"), ("xmlns:manifest:", "manifest"),
    ("xmlns:container", "container"), ("idpf.org/2007/opf", "opf"), ("daisy.org/z3986/2005/ncx", "ncx"),
    ("1999/xhtml", "html"), ("idpf.org/2007/ops", "epub"), ("04/xmlenc", "enc"), ("xmlns:style:", "style"),
)  # fmt: skip

Start = Callable[[Mapping[str, str]], None]  # with the element's attributes
End = Callable[[], None]


class Package:
    """The parts of a ZIP file by name. Raises Unreadable."""

    def __init__(self, data: bytes) -> None:
        try:
            self._file = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):  # of a ZIP version not known
            raise Unreadable("damaged") from None
        entries = self._file.infolist()
        total = sum(entry.file_size for entry in entries)
        if len(entries) > MOST_ENTRIES or total > MOST_BYTES or total > max(FREE_BYTES, MOST_RATIO * len(data)):
            raise Unreadable("too-large")
        places = sorted((entry.header_offset, entry.compress_size) for entry in entries)
        if any(place + 30 + size > following for (place, size), (following, _) in pairwise(places)):
            raise Unreadable("damaged")  # entries that overlap
        self._entries = {entry.filename.replace("\\", "/").lstrip("/"): entry for entry in entries}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> Iterable[str]:
        return self._entries

    def read(self, name: str) -> bytes:
        """Return a part's bytes. Raises Unreadable."""
        entry = self._entries.get(name)
        if entry is None or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable("damaged")
        if entry.flag_bits & 1:
            raise Unreadable("locked")
        if entry.file_size > MOST_PART_BYTES:
            raise Unreadable("too-large")
        try:
            with self._file.open(entry) as file:
                data = file.read(entry.file_size)  # not read(): that unpacks what the size hides
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError):
            raise Unreadable("damaged") from None
        if len(data) != entry.file_size:
            raise Unreadable("damaged")
        return data

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the parts that an Office part refers to: by id, the last word of their type and their name."""
        folder, _, own = name.rpartition("/")
        source = posixpath.join(folder, "_rels", f"{own}.rels")
        found: dict[str, tuple[str, str]] = {}

        def start(values: Mapping[str, str]) -> None:
            if values.get("TargetMode") != "External":
                kind = values.get("Type", "").rpartition("/")[2]
                found[values.get("Id", "")] = kind, inside(folder, values.get("Target", ""))

        if source in self:
            parse(self.read(source), {"rel:Relationship": start})
        return found

    def first_related(self, name: str, kind: str) -> str:
        """Return the first part of a kind that a part refers to, or ""."""
        return next((part for found, part in self.related(name).values() if found == kind and part in self), "")


def inside(folder: str, target: str) -> str:
    """Return the name of a part that is given relative to a folder, or from the package's root."""
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def parse(
    data: bytes,
    starts: Mapping[str, Start],
    ends: Mapping[str, End] | None = None,
    text: Callable[[str], None] | None = None,
    skipped: Iterable[str] = (),
) -> None:
    """Call back for the elements of an XML part, by "prefix:name", and for its text. Nothing inside `skipped` counts.

    Raises Unreadable if it is damaged, too deep, or has declarations of its own.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    names: dict[str, str] = {}
    left_out, ends = frozenset(skipped), ends or {}
    depth = skipped_at = 0

    def named(full: str) -> str:
        name = names.get(full)
        if name is None:
            name = names[full] = _short(full)
        return name

    def start(full: str, values: dict[str, str]) -> None:
        nonlocal depth, skipped_at
        depth += 1
        if depth > MOST_DEPTH:
            raise Unreadable("damaged")
        if skipped_at:
            return
        name = named(full)
        if name in left_out:
            skipped_at = depth
        elif (call := starts.get(name)) is not None:
            call({named(key): value for key, value in values.items()})

    def end(full: str) -> None:
        nonlocal depth, skipped_at
        if not skipped_at and (call := ends.get(named(full))) is not None:
            call()
        if depth == skipped_at:
            skipped_at = 0
        depth -= 1

    def characters(found: str) -> None:
        if text is not None and not skipped_at:
            text(found)

    def doctype(name: str, system: str | None, public: str | None, has_declarations: int) -> None:
        if has_declarations:
            raise Unreadable("damaged")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, doctype
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError):
        raise Unreadable("damaged") from None


def _short(full: str) -> str:
    address, _, name = full.rpartition(" ")
    prefix = next((short for part, short in _NAMESPACES if part in address), "") if address else ""
    return f"{prefix}:{name}" if prefix else name
