r"""TeX as a line of readable text: \frac{a}{b} becomes a/b, x_i^2 becomes xᵢ², \sum_{i=1}^n becomes ∑ᵢ₌₁ⁿ.

Screen readers read this; math_typeset.py draws the formula. Unknown commands are not guessed: the caller then uses the
source. No macros; length and depth are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from app.text.math_symbols import ACCENTS, ALPHABETS, FUNCTIONS, LARGE, LOWERED, NEGATED, RAISED, RELATIONS, SYMBOLS

MOST_CHARACTERS = 4000
MOST_DEPTH = 24

_SPACES = {
    ",": "\u2009", ":": "\u2005", ";": "\u2005", "!": "", " ": " ", "quad": "\u2003", "qquad": "\u2003\u2003",
    "enspace": "\u2002", "thinspace": "\u2009", "medspace": "\u2005", "thickspace": "\u2005", "negthinspace": "",
}  # fmt: skip
_IGNORED = frozenset(
    [
        "displaystyle",
        "textstyle",
        "scriptstyle",
        "limits",
        "nolimits",
        "big",
        "Big",
        "bigg",
        "Bigg",
        "bigl",
        "bigr",
        "Bigl",
        "Bigr",
        "biggl",
        "biggr",
        "Biggl",
        "Biggr",
        "bigm",
        "Bigm",
        "middle",
        "nonumber",
        "notag",
        "allowbreak",
        "relax",
        "strut",
        "mathstrut",
        "hfill",
        "centering",
        "left",
        "right",
    ]
)
_DROPPED = frozenset(["label", "tag", "vspace", "hspace", "phantom", "hphantom", "vphantom", "color"])
_WORDS = frozenset(
    [
        "text",
        "textrm",
        "textnormal",
        "mathrm",
        "operatorname",
        "mbox",
        "hbox",
        "textsf",
        "texttt",
        "mathsf",
        "mathtt",
        "textit",
    ]
)
_THICK = frozenset(["textbf", "mathbf", "boldsymbol", "bm", "pmb"])
_FRACTIONS = frozenset(["frac", "dfrac", "tfrac", "cfrac"])
_KEPT = frozenset(
    [
        "mathit",
        "mathnormal",
        "mathop",
        "mathbin",
        "mathrel",
        "mathord",
        "mathstrut",
        "smash",
        "rm",
        "substack",
        "ensuremath",
    ]
)
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_LINES = frozenset(
    [
        "align",
        "aligned",
        "alignat",
        "gather",
        "gathered",
        "equation",
        "split",
        "multline",
        "eqnarray",
        "displaymath",
        "math",
    ]
)
_FENCED = {"matrix": "()", "smallmatrix": "()", "array": "()", "pmatrix": "()", "bmatrix": "[]", "Bmatrix": "{}",
           "vmatrix": "||", "Vmatrix": "‖‖"}  # fmt: skip
_LIMITS = frozenset(["lim", "limsup", "liminf", "max", "min", "sup", "inf", "argmax", "argmin"])
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\s+|.", re.DOTALL)
_BINARY = frozenset("+−=<>±∓×÷·≤≥≠≈→⇒∈")
_COMPOUND = re.compile(r"[\s+−=<>/±∓×·÷,√]")
# One letter or number with its scripts, or a differential: needs no brackets below a fraction bar.
_ATOM = re.compile(r"([d∂∆]?\w|\d+(\.\d+)?)[^\w\s(]*[′⁰-ₜᵢ-ᵪ¹²³\u0300-\u036f]*|\w+\([^()]*\)")


class UnknownFormulaError(Exception):
    """A formula that cannot be written as a line of text."""


def to_text(tex: str) -> str | None:
    """Return the formula as plain text; None if that is not possible.

    Cost: linear in the source, of which at most MOST_CHARACTERS are read.
    """
    if not tex.strip() or len(tex) > MOST_CHARACTERS:
        return None
    try:
        return re.sub(" +", " ", _Reader(tex).read_all()).strip()
    except (UnknownFormulaError, RecursionError):
        return None


class _Reader:
    def __init__(self, tex: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(re.sub(r"(?<!\\)%.*", "", tex))
        self._at = 0
        self._depth = 0

    def read_all(self) -> str:
        text = self._read(lambda token: False)
        if self._at < len(self._tokens):
            raise UnknownFormulaError
        return text

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise UnknownFormulaError
        self._at += 1
        return token

    def _skip_space(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _read(self, ends: Callable[[str], bool]) -> str:
        """Read up to a token that ends the text; the token stays."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise UnknownFormulaError
        parts: list[str] = []
        wide = False  # after a large symbol or limit, whose scripts come before the space
        while (token := self._peek()) and not ends(token):
            if wide and token not in {"^", "_"} and not token.isspace() and token != "\\limits":
                parts.append(" ")
                wide = False
            wide = wide or token[1:] in LARGE or token[1:] in _LIMITS
            if token in {"^", "_"}:
                self._at += 1
                base = parts.pop() if parts else ""
                parts.append(base + self._script(token))
            elif token == "'":
                self._at += 1
                parts.append("′")
            elif token in {"}", "&"}:
                raise UnknownFormulaError
            else:
                parts.append(self._one())
        self._depth -= 1
        return _tidied("".join(parts))

    def _one(self) -> str:
        """Read the next symbol, group or command with its arguments."""
        token = self._next()
        if token == "{":
            inside = self._read(lambda t: t == "}")
            self._next()
            return inside
        if token.startswith("\\"):
            return self._command(token[1:])
        if token.isspace():
            return ""  # TeX sets its own spaces, and so do we
        if token == "~":
            return "\u00a0"
        if token == "-":
            return " − "
        return f" {token} " if token in _BINARY else f"{token} " if token in {",", ";", ":"} else token

    def _argument(self) -> str:
        self._skip_space()
        return self._one().strip(" ")

    def _raw(self) -> str:
        """Read a group without interpreting it."""
        self._skip_space()
        if self._next() != "{":
            return self._tokens[self._at - 1]
        words: list[str] = []
        depth = 1
        while True:
            token = self._next()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return "".join(words)
            words.append(token)

    def _option(self) -> str:
        self._skip_space()
        if self._peek() != "[":
            return ""
        self._at += 1
        inside = self._read(lambda t: t == "]")
        self._next()
        return inside.strip()

    def _script(self, kind: str) -> str:
        """Read a super- or subscript: in Unicode's raised or lowered forms, else after ^ or _."""
        text = self._argument()
        forms = RAISED if kind == "^" else LOWERED
        tight = re.sub("[ \u2009]", "", text)
        if tight and all(char in forms for char in tight):
            return "".join(forms[char] for char in tight)
        return f"{kind}{text}" if len(text) == 1 else f"{kind}({text})"

    def _command(self, name: str) -> str:
        name = name.removesuffix("*")
        if name in SYMBOLS:
            return SYMBOLS[name]
        if name in RELATIONS:
            return f" {RELATIONS[name]} " if RELATIONS[name] != "mod" else f" (mod {self._argument()})"
        if name in LARGE:
            return f" {LARGE[name]}"
        if name in FUNCTIONS:
            near = name in _LIMITS or self._peek() in {"(", "_", "^", "{"}
            return f" {name}" + ("" if near else " ")
        if name in _SPACES:
            return _SPACES[name]
        if name in ("left", "right") and self._peek() == ".":
            self._at += 1
            return ""
        if name in _IGNORED:
            return ""
        if name in _DROPPED:
            self._raw()
            return ""
        if name in _WORDS:
            return self._raw().replace("\\ ", " ").replace("~", " ")
        if name in _THICK:
            return self._argument()
        return self._structure(name)

    def _structure(self, name: str) -> str:
        if name in _FRACTIONS:
            above, below = self._argument(), self._argument()
            return f"{_grouped(above)}/{_grouped(below, atoms_only=True)}"
        if name in {"binom", "dbinom", "tbinom"}:
            return f"C({self._argument()}, {self._argument()})"
        if name == "sqrt":
            degree, inside = self._option(), self._argument()
            sign = _ROOTS.get(degree) or "".join(RAISED.get(char, "") for char in degree) + "√"
            return sign + _grouped(inside, atoms_only=True)
        if name in ACCENTS:
            inside = self._argument()
            return "".join(char + (ACCENTS[name] if char.isalnum() else "") for char in inside)
        if name in ALPHABETS:
            return "".join(ALPHABETS[name].get(char, char) for char in self._argument())
        if name in {"overset", "stackrel", "underset"}:
            over, base = self._argument(), self._argument()
            return f" {base} " if over in {"", "?"} else f" {base}{'^' if name != 'underset' else '_'}({over}) "
        if name in {"overbrace", "underbrace", "boxed", "fbox", "cancel", "not"} | _KEPT:
            inside = self._argument()
            if name == "not":
                return f" {NEGATED[inside]} " if inside in NEGATED else _refuse()
            return inside
        if name == "begin":
            return self._environment()
        if name in {"{", "}", "%", "$", "#", "_", "&"}:
            return name
        if name == "|":
            return "‖"
        if name == "\\":
            self._option()
            return "\n"
        if name in {"bmod", "mod"}:
            return " mod "
        return _refuse()

    def _environment(self) -> str:
        name = self._raw().removesuffix("*")
        if name not in _LINES and name not in _FENCED and name != "cases":
            raise UnknownFormulaError
        if name in {"array", "alignat"}:
            self._raw()
        rows: list[list[str]] = [[]]
        while True:
            rows[-1].append(self._read(lambda t: t in {"&", "\\\\", "\\end", "\\hline"}).strip(" "))
            token = self._next()
            if token == "\\end":
                break
            if token == "\\\\":
                self._option()
                rows.append([])
        if self._raw().removesuffix("*") != name:
            raise UnknownFormulaError
        rows = [row for row in rows if any(row)]
        if name in _LINES:
            return "\n".join(" ".join(cell for cell in row if cell) for row in rows)
        if name == "cases":
            return "{ " + "; ".join(", ".join(cell.rstrip(", ") for cell in row if cell) for row in rows)
        fence = _FENCED[name]
        return fence[0] + "; ".join("\u2003".join(row) for row in rows) + fence[1]


def _refuse() -> str:
    raise UnknownFormulaError


def _grouped(text: str, atoms_only: bool = False) -> str:
    """Add brackets where a fraction bar needs them. atoms_only: also around products."""
    text = text.strip(" ")
    bare = re.sub(r"[_^](?:\([^()]*\)|.)", "", text)
    if bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:
        return text
    loose = not _ATOM.fullmatch(bare) if atoms_only else _COMPOUND.search(bare)
    return f"({text})" if loose else text


def _tidied(text: str) -> str:
    """Attach an initial sign to its operand: −x, but a − x. No spaces inside brackets."""
    text = re.sub(" +", " ", text)
    text = re.sub(r"^ ([−+±]) ", r"\1", text)
    text = re.sub(
        r"([(\[{,;=<>≤≥+−·×±/]) ?([−+±]) (?=\S)", lambda m: f"{m[1]}{'' if m[1] in '([{/' else ' '}{m[2]}", text
    )
    return re.sub(r"(?<=[(\[]) +| +(?=[)\],;.])", "", text)
