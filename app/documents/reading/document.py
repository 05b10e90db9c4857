"""A document as data: the text of a file by pages, slides, sheets or chapters. No Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pdf", "docx", "pptx", "xlsx", "odt", "odp", "ods", "epub", "html", "text"]
Reason = Literal[
    "locked", "scan", "damaged", "too-large", "too-long", "empty", "unsupported", "gone", "unreadable"
]  # fmt: skip

# Ends of file names, in lower case, that the document index takes. A file's content decides how it is read.
SUFFIXES = frozenset({
    ".pdf", ".docx", ".docm", ".pptx", ".pptm", ".xlsx", ".xlsm", ".odt", ".odp", ".ods", ".epub", ".html", ".htm",
    ".xhtml", ".md", ".markdown", ".txt", ".text", ".rst", ".adoc", ".org", ".tex", ".bib", ".csv", ".tsv", ".json",
    ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".xml", ".log", ".srt", ".vtt", ".py", ".pyi",
    ".ipynb", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".cu", ".cuh", ".cs", ".m", ".mm", ".rs", ".go", ".zig",
    ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".vue", ".svelte", ".java", ".kt", ".kts", ".scala", ".groovy",
    ".clj", ".swift", ".dart", ".rb", ".php", ".pl", ".pm", ".lua", ".r", ".jl", ".hs", ".ml", ".fs", ".erl", ".ex",
    ".exs", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".sql", ".css", ".scss", ".less", ".graphql", ".proto",
    ".cmake", ".gradle", ".tf", ".nix", ".vb", ".f90", ".pas", ".asm",
})  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A page, slide, sheet or chapter; a text file and a docx, odt or HTML file are one part.

    text: paragraphs divided by blank lines, rows of tables as lines "a | b | c", headings as "# ...". number: from 1.
    name: of a sheet, a chapter or a slide, or "".
    """

    text: str
    number: int
    name: str = ""


@dataclass(frozen=True)
class Document:
    """The text of a file. parts: without empty ones. n_parts: with empty ones. n_scanned: pages of a PDF that hold
    pictures and no text. cut: there was more text than the limit, and the rest was left out.
    """

    kind: Kind
    parts: tuple[Part, ...]
    n_parts: int
    n_scanned: int = 0
    cut: bool = False


@dataclass(frozen=True)
class PagePicture:
    """A picture of a PDF's page. png: the file's bytes. boxes: (x, y, width, height) of lines as shares of the page's
    width and height, from the top left.
    """

    png: bytes
    boxes: tuple[tuple[float, float, float, float], ...] = ()


@dataclass(frozen=True)
class Limits:
    """Bounds for one file. file_bytes: its size. characters: of its text. seconds: to read it."""

    file_bytes: int = 256 << 20
    characters: int = 4_000_000
    seconds: float = 60.0


class ReadError(Exception):
    """A file that could not be read. message: one sentence with its name, the reason, and what to do."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.message, self.reason = message, reason


class Unreadable(Exception):  # noqa: N818 - a finding about a file, which the reader turns into a ReadError
    """Raised in the child process: why the file cannot be read."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class TextLimit:
    """Counts the characters of a document, and says when the limit is reached."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.is_reached = False

    def take(self, text: str) -> str:
        """Return the beginning of a text that still fits."""
        if len(text) > self.left:
            self.is_reached = True
            text = text[: self.left]
        self.left -= len(text)
        return text

    def parts(self, texts: Iterable[tuple[str, str]]) -> tuple[tuple[Part, ...], int]:
        """Return the parts of (text, name) pairs without empty ones, and the number of pairs. The texts are made one
        after another, and none after the limit is reached.
        """
        found, n = [], 0
        for text, name in texts:
            n += 1
            if (text := self.take(text.strip("\n\f "))).strip():
                found.append(Part(text, n, name))
            if self.is_reached:
                break
        return tuple(found), n
