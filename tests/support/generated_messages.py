"""Messages with known text: Markdown of every kind around words that a careless export would change."""

from __future__ import annotations

import random

WORDS = (
    "alpha", "beta", "#include", "std::vector", "C++", "a_b_c", "2*3*4", "x<y", "R&D", "&amp;", "&lt;b&gt;", "don't",
    '"quoted"', "50%", "naïve", "Straße", "наука", "λόγος", "→", "…", "100€", "key=value", "@user", "~home", "^top",
    "fi", "ffl", "(c)", "--", "1.", "snake_case_name", "</script>", "<iostream>", "<!--x-->", "javascript:alert(1)",
)  # fmt: skip
WIDE = ("中文", "日本語", "한국어", "👩‍🔬", "שלום", "مرحبا", "é̂", "x\u00a0x", "\u202ereverse\u202c")
CODE = (
    "#include <iostream>", "int main() { return a < b && c > d; }", "x = [i ** 2 for i in range(10)]", "# a comment",
    "    indented = 'four spaces'", "print(f\"{x!r}\")", "**not bold** _not italic_", "| not | a table |", "",
    "</pre></code></script>", "&amp; stays &amp;", "$not a formula$", "- not a list", "<b>not bold</b>",
    "a" * 150, "if (a && b || !c) { d = e << 2; }", "%d %s\\n\\t", "`backticks`", "SELECT * FROM t WHERE a <> 'b';",
)  # fmt: skip
_ESCAPED = set("\\`*_{}#+-.!|<>~&$^:=@\"'/")
_ENTITIES = {"(": "&#40;", ")": "&#41;", "[": "&#91;", "]": "&#93;"}  # with a backslash they are marks of formulas
LANGUAGES = ("", "cpp", "python", "sql", "html", "nonsense")


def _escape(word: str) -> str:
    return "".join(f"\\{char}" if char in _ESCAPED else _ENTITIES.get(char, char) for char in word)


class Maker:
    """Makes messages from one seed. `wide`: with scripts that not every font has."""

    def __init__(self, seed: int, wide: bool = True) -> None:
        self._random = random.Random(seed)
        self._words = WORDS + WIDE if wide else WORDS

    def answer(self) -> tuple[str, str]:
        """Return Markdown, and the text that a reader sees, without spaces and line ends."""
        makers = (self._paragraph, self._heading, self._code, self._table, self._list, self._quote)
        parts = [self._random.choice(makers)() for _ in range(self._random.randint(1, 5))]
        return "\n\n".join(source for source, _ in parts), squeezed("".join(text for _, text in parts))

    def question(self) -> str:
        """Return plain text."""
        lines = [" ".join(self._some(6)) for _ in range(self._random.randint(1, 4))]
        return self._random.choice(("\n", "\n\n", "\n  ")).join(lines)

    def _some(self, most: int) -> list[str]:
        return [self._random.choice(self._words) for _ in range(self._random.randint(1, most))]

    def _inline(self) -> tuple[str, str]:
        sources, texts = [], []
        for word in self._some(8):
            mark = self._random.choice(("", "", "", "**", "*", "`"))
            if mark == "`":
                word = self._random.choice(("a  b", "<iostream>", "x & y", "**p", "&amp;", "$HOME", "\\n"))
            sources.append(f"{mark}{word if mark == '`' else _escape(word)}{mark}")
            texts.append(word)
        return " ".join(sources), "".join(texts)

    def _paragraph(self) -> tuple[str, str]:
        source, text = self._inline()
        return f"So {source}", f"So{text}"

    def _heading(self) -> tuple[str, str]:
        source, text = self._inline()
        return f"{'#' * self._random.randint(1, 4)} On {source} end", f"On{text}end"

    def _code(self) -> tuple[str, str]:
        code = "\n".join(self._random.choice(CODE) for _ in range(self._random.randint(1, 12)))
        return f"````{self._random.choice(LANGUAGES)}\n{code}\n````", code

    def _table(self) -> tuple[str, str]:
        columns = self._random.randint(2, 4)
        cells = [[self._random.choice(WORDS) for _ in range(columns)] for _ in range(self._random.randint(2, 6))]
        rows = ["| " + " | ".join(map(_escape, row)) + " |" for row in cells]
        head = "|" + self._random.choice(("---", ":--", "--:", ":-:")).join("|" * (columns + 1))[1:]
        return "\n".join((rows[0], head, *rows[1:])), "".join("".join(row) for row in cells)

    def _list(self) -> tuple[str, str]:
        items = [self._inline() for _ in range(self._random.randint(2, 5))]
        return "\n".join(f"- So {source}" for source, _ in items), "".join(f"So{text}" for _, text in items)

    def _quote(self) -> tuple[str, str]:
        source, text = self._inline()
        return f"> So {source}", f"So{text}"


def squeezed(text: str) -> str:
    """Return the text without spaces, line ends and bullets, which layouts add and move."""
    return "".join(char for char in text if not char.isspace() and char not in "•\u2060\u200b")
