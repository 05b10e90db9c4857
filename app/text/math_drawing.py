"""Draws formulas with ziamath, within a limit of work.

Importing this module loads a font (0.3 s): app/text/math_typeset.py imports it with the first formula.
"""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ET
from math import hypot
from typing import Any

from latex2mathml.converter import convert

from app.text.math_spaces import FormulaError, set_spaces
from app.text.math_typeset import Drawing, Step, Words

with warnings.catch_warnings():  # it finds its font with a function that Python 3.11 and 3.12 call deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from ziafont.fonttypes import BBox
    from ziamath.config import config
    from ziamath.drawable import Drawable, HLine, VLine
    from ziamath.nodes.mnumber import Mtext
    from ziamath.nodes.mrow import Mrow
    from ziamath.nodes.mtable import Mtable
    from ziamath.zmath import Math, loadedfonts

MOST_ROWS = 1500  # in one formula; a formula of an answer has 10 to 150
MOST_EMS = 250.0  # in width or height

_BOX_GAP = 0.2  # above and below boxed content
_EM = 24.0  # the unit of ziamath's smallest letters
config.svg2 = False  # outlines in place, not as symbols with references
config.minsizefraction = 0.5  # of the text's size, for scripts of scripts

# What latex2mathml reads differently from TeX, or not at all.
_SOURCE = (
    (re.compile(r"\\(?:label|nonumber|notag|allowbreak|relax|centering|hfill)(?![A-Za-z])(?:\{[^{}]*\})?"), ""),
    (re.compile(r"\\tag\*?\{([^{}]*)\}"), r"\\qquad (\\text{\1})"),
    (re.compile(r"\\(begin|end)\{(?:aligned|alignedat|split|align|eqnarray)\*?\}"), r"\\\1{align*}"),
    (re.compile(r"\\(begin|end)\{(?:gathered|gather|multline)\*?\}"), r"\\\1{gather*}"),
    (re.compile(r"\\(begin|end)\{(?:equation|displaymath|math)\*?\}"), ""),
    (re.compile(r"\\mathrm\{"), r"\\mathrm {"),
    (re.compile(r"\\[lr]Vert(?![A-Za-z])"), r"\\| "),
    (re.compile(r"\\[lr]vert(?![A-Za-z])"), "| "),
    (re.compile(r"\\not\s*="), r"\\neq "),
    (re.compile(r"\\(?:textcolor|color)\{[^{}]*\}"), ""),
    (re.compile(r"\\operatorname\*?\{arg(?:\s|\\,)*(max|min)\}"), r"\\arg\\\1 "),
    (re.compile(r"\\operatorname\*\{"), r"\\operatorname{"),
    (re.compile(r"\\mathbbm?\{1\}"), "𝟙"),
)
_MATHML = (
    (">&#x02191;", ' stretchy="false">&#x02191;'),  # arrows of normal height are not fences
    (">&#x02193;", ' stretchy="false">&#x02193;'),
    ('columnspacing="0em 2em"', 'columnspacing="0em 0.3em"'),
)
_TEXT = re.compile(r"\\text(?:rm|normal)?\{([^{}$]*)\$([^{}$]*)\$([^{}]*)\}")  # formulas inside text inside formulas
_CHEMISTRY = re.compile(r"\\ce\{((?:[^{}]|\{[^{}]*\})*)\}")
_CHEMICAL = (
    (re.compile(r"<-+>|<=+>"), r" \\rightleftharpoons "),
    (re.compile(r"-+>"), r" \\rightarrow "),
    (re.compile(r"\^\{?(\d*[+-])\}?"), r"^{\1}"),
    (re.compile(r"(?<=[A-Za-z)\]])(\d+)"), r"_{\1}"),
    (re.compile(r"(?<=[A-Za-z)\]}])([+-])(?=\s|$)"), r"^{\1}"),
)
rows_laid_out = 0
_words: Words | None = None  # of the current formula


class _Row(Mrow, tag="mrow"):
    """A row of ziamath's, counted, without doubling the work at every nesting level.

    ziamath lays out each row twice, the first time to find the height of its fences. Nothing stretches in that first
    pass, so rows inside the row need none of their own.
    """

    def __init__(self, element: ET.Element, parent: Any, **kwargs: Any) -> None:
        global rows_laid_out
        rows_laid_out += 1
        if rows_laid_out > MOST_ROWS:
            raise FormulaError
        super().__init__(element, parent, **kwargs)

    def _get_height_nostretch(self, line: list[ET.Element], **kwargs: Any) -> tuple[float, float]:
        if kwargs.get("nostretch"):
            return 0.0, 0.0
        height: tuple[float, float] = super()._get_height_nostretch(line, **kwargs)
        return height


class _Table(Mtable, tag="mtable"):
    """A table with lines between columns and rows, which ziamath omits."""

    def _setup(self, **kwargs: Any) -> None:
        super()._setup(**kwargs)
        counts = [len(row) for row in self.element]
        if len(set(counts)) != 1 or not counts[0]:
            return
        pen = self.units_to_points(self.font.math.consts.fractionRuleThickness)
        box, cells = self.bbox, list(zip(self.nodexy, self.nodes, strict=True))
        for column, kind in enumerate(self.element.get("columnlines", "").split()):
            if kind == "solid" and column + 1 < counts[0]:
                right = max(x + cell.bbox.xmax for (x, _), cell in cells[column :: counts[0]])
                left = min(x + cell.bbox.xmin for (x, _), cell in cells[column + 1 :: counts[0]])
                self.nodes.append(VLine(box.ymax - box.ymin, pen, style=self.style))
                self.nodexy.append(((left + right) / 2, -box.ymax))
        for row, kind in enumerate(self.element.get("rowlines", "").split()):
            if kind == "solid" and row + 1 < len(counts):
                above, below = (cells[at * counts[0] : (at + 1) * counts[0]] for at in (row, row + 1))
                foot, head = max(y - c.bbox.ymin for (_, y), c in above), min(y - c.bbox.ymax for (_, y), c in below)
                self.nodes.append(HLine(box.xmax, pen, style=self.style))
                self.nodexy.append((0, (foot + head) / 2))


class _Text(Mtext, tag="mtext"):
    """Text in a formula. The caller of `draw` draws text for which the font has no letters."""

    def _setup(self, **kwargs: Any) -> None:
        if not _lacks(self.font, self.string):
            super()._setup(**kwargs)
        elif _words is None:
            raise FormulaError(self.string)
        else:
            shape = _Shape(_words(self.string), self.glyphsize)
            self.nodes.append(shape)
            self.nodexy.append((0, 0))
            self.bbox = shape.bbox


class _Shape(Drawable):
    """A drawing inside ziamath's, with a size in points."""

    def __init__(self, drawing: Drawing, size: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps, self._size = drawing.steps, size
        self.bbox = BBox(0, drawing.width * size, -drawing.descent * size, drawing.ascent * size)

    def draw(self, x: float, y: float, svg: ET.Element) -> tuple[float, float]:
        path = (
            name + " ".join(str(n * self._size + (y if i % 2 else x)) for i, n in enumerate(numbers))
            for name, numbers in self._steps
        )
        ET.SubElement(svg, "path", d="".join(path))
        return x + self.bbox.xmax, y


def _lacks(font: Any, text: str) -> bool:
    return any(not font.glyphindex(char) for char in text)


def draw(tex: str, display: bool, words: Words | None = None) -> Drawing:
    """Draw a formula without its delimiters. Raises FormulaError, and whatever the parsers raise. Not thread-safe."""
    global rows_laid_out, _words
    _words = words
    rows_laid_out = 0
    for pattern, replacement in _SOURCE:
        tex = pattern.sub(replacement, tex)
    tex = _CHEMISTRY.sub(_reaction, tex)
    while (divided := _TEXT.sub(_divided, tex)) != tex:
        tex = divided
    mathml = convert(tex, display="block" if display else "inline")
    for written, meant in _MATHML:
        mathml = mathml.replace(written, meant)
    root = ET.fromstring(re.sub(r' xmlns="[^"]*"', "", mathml, count=1))
    set_spaces(root)
    for element in root.iter():
        if element.tag in ("mi", "mo", "mn") and _lacks(loadedfonts["default"], element.text or ""):
            element.tag = "mtext"
    node = Math(root, size=_EM).node
    if not 0 <= node.bbox.xmax - node.bbox.xmin < MOST_EMS * _EM:
        raise FormulaError
    svg = ET.Element("svg")
    node.draw(0, 0, svg)
    steps: list[Step] = []
    for shape in svg.iter():
        steps += _outline(shape)
    return _placed(steps, node.bbox.xmin / _EM, node.bbox.xmax / _EM)


def _reaction(found: re.Match[str]) -> str:
    inside = found[1]
    for pattern, replacement in _CHEMICAL:
        inside = pattern.sub(replacement, inside)
    return rf"\mathrm {{{inside}}}"


def _divided(found: re.Match[str]) -> str:
    before, formula, after = (
        part if index == 1 or not part else rf"\text{{{part}}}" for index, part in enumerate(found.groups())
    )
    return f"{before}{{{formula}}}{after}"


def _placed(steps: list[Step], left: float, right: float) -> Drawing:
    """Move outlines to begin at 0 and measure them: ziamath's own box can be too large or too small."""
    xs = [x for _, numbers in steps for x in numbers[::2]]
    ys = [y for _, numbers in steps for y in numbers[1::2]]
    if not steps or max(ys) - min(ys) > MOST_EMS:
        raise FormulaError
    left, right = min(left, *xs), max(right, *xs)
    moved = ((name, tuple(n - left if i % 2 == 0 else n for i, n in enumerate(numbers))) for name, numbers in steps)
    return Drawing(right - left, max(-min(ys), 0.0), max(*ys, 0.0), tuple(moved))


def _outline(shape: ET.Element) -> list[Step]:
    """Return the steps of a shape that ziamath drew. Raises FormulaError for an unknown one."""
    pen = float(shape.attrib.get("stroke-width", 0)) / _EM
    if shape.tag == "path" and pen:  # \cancel
        (_, (x0, y0)), (_, (x1, y1)) = _path(shape.attrib["d"])
        across, down = pen * (y1 - y0) / hypot(x1 - x0, y1 - y0) / 2, pen * (x0 - x1) / hypot(x1 - x0, y1 - y0) / 2
        return _polygon(
            (x0 + across, y0 + down), (x1 + across, y1 + down), (x1 - across, y1 - down), (x0 - across, y0 - down)
        )
    if shape.tag == "path":
        return _path(shape.attrib["d"])
    if shape.tag == "rect":
        x, y, width, height = (float(shape.attrib[name]) / _EM for name in ("x", "y", "width", "height"))
        if not pen:
            return _polygon((x, y), (x + width, y), (x + width, y + height), (x, y + height))
        top, bottom = y - _BOX_GAP, y + height + _BOX_GAP
        return [
            *_polygon((x, top), (x + width, top), (x + width, bottom), (x, bottom)),  # and its hole
            *_polygon((x + pen, top + pen), (x + pen, bottom - pen), (x + width - pen, bottom - pen),
                      (x + width - pen, top + pen)),
        ]  # fmt: skip
    if shape.tag in ("svg", "g"):
        return []
    raise FormulaError(shape.tag)


def _polygon(first: tuple[float, float], *others: tuple[float, float]) -> list[Step]:
    return [("M", first), *(("L", corner) for corner in others), ("Z", ())]


_COMMANDS = re.compile(r"([MLQCZ])([^MLQCZ]*)")


def _path(data: str) -> list[Step]:
    return [
        (name, tuple(float(number) / _EM for number in numbers.split())) for name, numbers in _COMMANDS.findall(data)
    ]
