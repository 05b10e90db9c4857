"""Reduces the SVG of a diagram to what QtSvg draws and what is safe in a web page.

Styles become attributes, rows of text become positioned texts, and only known elements and attributes stay: no style
sheet, no script, no link, no address. `is_plain` checks the result of another process against the same grammar. No Qt.
"""

from __future__ import annotations

import colorsys
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from typing import Any, NamedTuple

MOST_CHARACTERS, MOST_TAGS = 300_000, 8_000  # of a plain SVG; 150 nodes of a flowchart have 83,000 and 1,900
MOST_SIDE = 20_000.0  # width and height
MOST_DEPTH = 60
TEXT_SCALE = 0.94  # the window's font is wider than the one that the diagram was measured with
_XLINK = "{http://www.w3.org/1999/xlink}href"
_SHAPES = {"path", "rect", "circle", "ellipse", "line", "polyline", "polygon"}
_GROUPS = {"g", "defs", "marker", "linearGradient", "stop"}
_GEOMETRY = (
    "x", "y", "width", "height", "rx", "ry", "cx", "cy", "r", "x1", "y1", "x2", "y2", "points", "d", "transform",
    "viewBox", "id", "refX", "refY", "markerWidth", "markerHeight", "markerUnits", "orient", "offset", "gradientUnits",
    "gradientTransform",
)  # fmt: skip
_PAINT = (
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
    "fill-opacity", "stroke-opacity", "stop-color", "stop-opacity", "marker-start", "marker-mid", "marker-end",
    "font-size", "font-weight", "font-style", "text-anchor", "fill-rule",
)  # fmt: skip
_READ = {*_PAINT, "display", "visibility", "dominant-baseline", "alignment-baseline", "color"}
_INHERITED = ("font-size", "fill", "font-weight", "font-style", "text-anchor", "dominant-baseline", "color")
_BASELINES = {  # in em below the alphabetic baseline
    "middle": 0.35, "central": 0.35, "mathematical": 0.35, "hanging": 0.75, "text-before-edge": 0.85,
    "text-after-edge": -0.2, "before-edge": 0.85,
}  # fmt: skip
DARK_INK, LIGHT_INK, MIDDLE_LIGHT = "#221d19", "#ffffff", 140  # of 255
_DARK_NAMES = {
    "black", "navy", "blue", "green", "red", "purple", "maroon", "brown", "indigo", "teal", "crimson", "olive",
}  # fmt: skip
_WHITE = ("white", "#fff", "#ffffff")
_NAME = r"[A-Za-z][\w-]*"
_VALUE = r"[\w#%.,;:()+\- *]*"
_PLAIN_TAG = re.compile(
    rf'<(?:/?(?:{"|".join(sorted({*_SHAPES, *_GROUPS, "svg", "text"}))})|svg xmlns="http://www\.w3\.org/2000/svg")'
    rf'(?: (?:{"|".join((*_GEOMETRY, *_PAINT, "font-family"))})="{_VALUE}")* ?/?>'
)
_TEXT_NODE = re.compile(r"[^<>]*")
_FORBIDDEN_VALUE = re.compile(r"url\((?!#)|javascript|expression|:")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SIMPLE = re.compile(
    rf'({_NAME}|\*)|#({_NAME})|\.({_NAME})|\[({_NAME})(?:="?([^"\]]*)"?)?\]|:not\(([^()]*)\)|(:+[\w-]+(?:\([^()]*\))?)'
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)


class PlainSvg(NamedTuple):
    """A diagram, and its natural size in px."""

    text: str
    width: float
    height: float


class _Part(NamedTuple):
    """A compound selector: what one element must be. child: directly inside the part before it."""

    tag: str
    id: str
    classes: frozenset[str]
    attributes: tuple[tuple[str, str | None], ...]
    excluded: frozenset[str]  # classes
    child: bool


class _Rule(NamedTuple):
    weight: tuple[int, int, int, int]  # important, ids, classes, tags
    parts: tuple[_Part, ...]
    values: dict[str, str]


def plain(svg: str, family: str, tokens: Mapping[str, Any]) -> PlainSvg:
    """Return an SVG as plain SVG with the given font. tokens: the theme's colours. Raises ValueError and ParseError."""
    root = ET.fromstring(svg)
    numbers = [float(one) for one in _NUMBER.findall(root.get("viewBox", ""))]
    if len(numbers) != 4 or not (0 < numbers[2] <= MOST_SIDE and 0 < numbers[3] <= MOST_SIDE):
        raise ValueError("A diagram without a size, or one that is too large.")
    rules = [rule for style in root.iter() if _tag(style) == "style" for rule in _rules(style.text or "")]
    rules.sort(key=lambda rule: rule.weight)
    writer = _Writer(rules, {element.get("id", ""): element for element in root.iter()}, tokens)
    writer.write_root(root)
    box = " ".join(f"{number:g}" for number in numbers)
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{numbers[2]:g}" height="{numbers[3]:g}" '
        f'font-family="{family}">{"".join(writer.out)}</svg>'
    )
    if not is_plain(text):
        raise ValueError("The diagram has parts that cannot be drawn.")
    return PlainSvg(text, numbers[2], numbers[3])


def is_plain(svg: str) -> bool:
    """Return whether a text is SVG of known elements and attributes alone, within bounds."""
    if len(svg) > MOST_CHARACTERS or svg.count("<") > MOST_TAGS or not svg.startswith("<svg "):
        return False
    at = 0
    while at < len(svg):
        found = (_PLAIN_TAG if svg[at] == "<" else _TEXT_NODE).match(svg, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return not any(_FORBIDDEN_VALUE.search(value) for value in re.findall(r'="([^"]*)"', svg)[1:])


class _Writer:
    def __init__(self, rules: list[_Rule], by_id: dict[str, ET.Element], tokens: Mapping[str, Any]) -> None:
        self.out: list[str] = []
        self._by_id, self._tokens = by_id, tokens
        self._ink = str(tokens["ink"])
        self._rules: dict[str, list[tuple[int, _Rule]]] = {}  # by the id, class or tag that its last part needs
        for place, rule in enumerate(rules):
            last = rule.parts[-1]
            key = f"#{last.id}" if last.id else f".{min(last.classes)}" if last.classes else last.tag
            self._rules.setdefault(key, []).append((place, rule))
        parts = [part for rule in rules for part in rule.parts]
        self._ids = {part.id for part in parts}
        self._attributes = tuple({name for part in parts for name, _ in part.attributes})
        # Elements that no rule tells apart match the same rules: with 150 nodes, a third of the time.
        self._matching: dict[int, list[_Rule]] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}  # of such elements, by that of their parent and `_match_key`
        self._likes: dict[ET.Element, int] = {}  # the number of each element in the way to the one that is written

    def write_root(self, root: ET.Element) -> None:
        style = self._style(root, [root])
        above = {"font-size": "16", "fill": self._ink, "color": self._ink}
        above |= {name: style[name] for name in _INHERITED if name in style}
        above["font-size"] = f"{_length(above['font-size'], 16):g}"
        self.out.append(f"<g{_painted({name: above[name] for name in _INHERITED[:2]}, above)}>")
        self.write_children(root, above, [root])
        self.out.append("</g>")

    def write_children(self, element: ET.Element, above: dict[str, str], chain: list[ET.Element]) -> None:
        for child in element:
            self._write(child, above, [*chain, child])

    def _write(self, element: ET.Element, above: dict[str, str], chain: list[ET.Element]) -> None:
        tag = _tag(element)
        style = self._style(element, chain)
        if style.get("display") == "none" or style.get("visibility") == "hidden":
            return
        below = above | {name: style[name] for name in _INHERITED if name in style}
        if "font-size" in style:
            below["font-size"] = style["font-size"] = f"{_length(style['font-size'], float(above['font-size'])):g}"
        if "foreignobject-fallback" in element.get("class", ""):  # text that was HTML lost its colour
            on_strong = "section-root" in element.get("data-merman-source-classes", "")
            style["fill"] = below["fill"] = str(self._tokens["on_ink"]) if on_strong else self._ink
        if style.get("fill", "").lower() in _WHITE and any(_tag(one) == "marker" for one in chain):
            style["fill"] = str(self._tokens["sunken"])
        elif tag == "marker":
            style.setdefault("fill", self._ink)
        if tag == "g" and (ink := _ink_on(element)):
            below["on"] = ink
        if tag == "text":
            self._write_text(element, style, below, chain)
        elif tag == "use":
            found = self._by_id.get((element.get("href") or element.get(_XLINK) or "").removeprefix("#"))
            if found is not None and found not in chain and len(chain) < MOST_DEPTH:
                x, y = _length(element.get("x", "0"), 16), _length(element.get("y", "0"), 16)
                there = f"{element.get('transform', '')} translate({x:g},{y:g})".strip()
                self.out.append(f'<g transform="{escape(there)}"{_painted(style, below)}>')
                self._write(found, below, [*chain, found])
                self.out.append("</g>")
        elif tag == "defs":
            for child in element:
                if _tag(child) in ("marker", "linearGradient"):  # what `use` needs is written there
                    self._write(child, below, [*chain, child])
        elif tag == "svg":
            self.out.append(f"<g{_placed(element)}{_painted(style, below)}>")
            self.write_children(element, below, chain)
            self.out.append("</g>")
        elif tag in _SHAPES or tag in _GROUPS:
            self.out.append(f"<{tag}{_attributes(element, style, below)}>")
            if tag in _GROUPS:
                self.write_children(element, below, chain)
            self.out.append(f"</{tag}>")
        elif tag in ("switch", "a"):
            self.write_children(element, below, chain)

    def _style(self, element: ET.Element, chain: list[ET.Element]) -> dict[str, str]:
        style = {name: value for name, value in element.attrib.items() if name in _READ}
        important: dict[str, str] = {}
        above = self._likes[chain[-2]] if len(chain) > 1 else 0
        like = self._numbers.setdefault((above, *self._match_key(element)), len(self._numbers) + 1)
        self._likes[element] = like
        if (matching := self._matching.get(like)) is None:
            keys = [f".{one}" for one in set(element.get("class", "").split())]
            keys += [f"#{element.get('id')}", _tag(element), ""]
            found = sorted((rule for key in keys for rule in self._rules.get(key, ())), key=lambda one: one[0])
            matching = self._matching[like] = [rule for _, rule in found if _matches(rule.parts, chain)]
        for rule in matching:
            (important if rule.weight[0] else style).update(rule.values)
        inline, important_inline = _declarations(element.get("style", ""))
        return style | inline | important | important_inline

    def _match_key(self, element: ET.Element) -> tuple[Any, ...]:
        """Return all of an element that rules look at."""
        name = element.get("id")
        return (element.tag, element.get("class"), name if name in self._ids else "",
                *(element.get(one) for one in self._attributes))  # fmt: skip

    def _write_text(
        self, element: ET.Element, style: dict[str, str], below: dict[str, str], chain: list[ET.Element]
    ) -> None:
        """Write one text per row: QtSvg places tspans at the end of the row before."""
        size = float(below["font-size"])
        x, y = _length(element.get("x", "0"), size), _length(element.get("y", "0"), size)
        x, y = x + _length(element.get("dx", "0"), size), y + _length(element.get("dy", "0"), size)
        beside = chain[-2][0]
        if "background" in beside.get("class", "").split() and below.get("text-anchor") == "middle":
            x = _length(beside.get("x", "0"), size) + _length(beside.get("width", "0"), size) / 2
        centre = x if beside is not element and x else None
        rows: list[tuple[float, float, dict[str, str], list[str]]] = [(x, y, below, [element.text or ""])]
        transform = f' transform="{escape(element.get("transform", ""))}"' if element.get("transform") else ""

        def walk(parent: ET.Element, above: dict[str, str], way: list[ET.Element]) -> None:
            nonlocal x, y
            for child in parent:
                way_there = [*way, child]
                own = self._style(child, way_there)
                here = above | {name: own[name] for name in _INHERITED if name in own}
                here["font-size"] = f"{_length(here['font-size'], float(above['font-size'])):g}"
                em = float(here["font-size"])
                if any(child.get(name) is not None for name in ("x", "y", "dy")):
                    x = centre or _length(child.get("x", str(x)), em) + _length(child.get("dx", "0"), em)
                    y = _length(child.get("y", str(y)), em) + _length(child.get("dy", "0"), em)
                    rows.append((x, y, here, []))
                elif not any(part.strip() for part in rows[-1][3]):
                    rows[-1] = (*rows[-1][:2], here, rows[-1][3])
                rows[-1][3].append(child.text or "")
                walk(child, here, way_there)
                rows[-1][3].append(child.tail or "")

        walk(element, below, chain)
        opacity = {name: style[name] for name in ("opacity", "fill-opacity") if name in style}
        for left, top, look, parts in rows:
            words = " ".join("".join(parts).split())
            if words:
                em = float(look["font-size"])
                look = look | {"font-size": f"{em * TEXT_SCALE:g}"}
                if "on" in look:
                    look["fill"] = look["on"]
                top += _BASELINES.get(look.get("dominant-baseline", ""), 0.0) * em
                named = {name: look[name] for name in _INHERITED[:5] if name in look} | opacity
                place = f'x="{left:g}" y="{top:g}"{transform}{_painted(named, look)}'
                self.out.append(f"<text {place}>{escape(words, quote=False)}</text>")


def _ink_on(node: ET.Element) -> str:
    """Return the colour of text on a node whose fill the diagram chose; "" if the theme chose it, or the text's too."""
    if "node" not in node.get("class", "").split():
        return ""
    fill = ""
    for part in node.iter():
        usual, important = _declarations(part.get("style", ""))
        own = usual | important
        if _tag(part) in ("text", "tspan") and ("fill" in own or "color" in own):
            return ""
        if _tag(part) in _SHAPES and not fill:
            fill = _colour(own.get("fill", ""))[0]
    if fill in ("", "none"):
        return ""
    digits = fill[1:] if len(fill) == 7 else "".join(2 * digit for digit in fill[1:4])
    if re.fullmatch("[0-9a-f]{6}", digits):
        red, green, blue = (int(digits[place : place + 2], 16) for place in (0, 2, 4))
        is_light = 0.3 * red + 0.59 * green + 0.11 * blue > MIDDLE_LIGHT
    else:
        is_light = fill not in _DARK_NAMES
    return DARK_INK if is_light else LIGHT_INK


def _placed(element: ET.Element) -> str:
    """Return the transform of an SVG inside another, which QtSvg does not draw."""
    x, y = _length(element.get("x", "0"), 16), _length(element.get("y", "0"), 16)
    box = [float(one) for one in _NUMBER.findall(element.get("viewBox", ""))]
    width, height = (_length(element.get(name, "0"), 16) for name in ("width", "height"))
    scale = min(width / box[2], height / box[3]) if len(box) == 4 and min(*box[2:], width, height) > 0 else 1.0
    left, top = (box[0] * scale, box[1] * scale) if len(box) == 4 else (0.0, 0.0)
    return f' transform="translate({x - left:g},{y - top:g}) scale({scale:g})"'


def _attributes(element: ET.Element, style: dict[str, str], below: dict[str, str]) -> str:
    geometry = "".join(
        f' {name}="{escape(" ".join(element.attrib[name].split()))}"' for name in _GEOMETRY if element.attrib.get(name)
    )
    return geometry + _painted(style, below)


def _painted(style: dict[str, str], below: dict[str, str]) -> str:
    size, ink = below["font-size"], below.get("color", "#000000")
    return "".join([_paint(name, style[name].strip(), size, ink) for name in _PAINT if name in style])


@lru_cache(1024)
def _paint(name: str, value: str, size: str, ink: str) -> str:
    """Return one attribute, or none. size, ink: of text around it."""
    more = ""
    if name in ("fill", "stroke", "stop-color"):
        value, clear = _colour(value, ink)
        if clear is not None:
            more = f' {name.replace("color", "opacity") if name == "stop-color" else f"{name}-opacity"}="{clear:g}"'
    elif name in ("stroke-width", "opacity", "fill-opacity", "stroke-opacity", "font-size") and value:
        value = f"{_length(value, float(size)):g}"
    elif name == "stroke-dasharray" and set(value) <= set("0 ,."):
        value = ""  # no dashes
    elif name == "font-weight" and value in ("bolder", "600", "700"):
        value = "bold"
    if value and re.fullmatch(_VALUE, value) and not _FORBIDDEN_VALUE.search(value):
        return f'{more} {name}="{value}"'
    return more


def _colour(value: str, ink: str = "#000000") -> tuple[str, float | None]:
    """Return a colour that QtSvg knows, and its opacity if it has one."""
    if value.startswith("url("):
        return value, None
    value = value.strip().lower()
    if value in ("transparent", "none"):
        return "none", None
    if value == "currentcolor":
        return _colour(ink)
    kind = re.fullmatch(r"(rgba?|hsla?)\(([^()]*)\)", value)
    if kind is None:
        return value, None
    numbers = [float(one) for one in _NUMBER.findall(kind[2])]
    if len(numbers) < 3:
        return "", None
    clear = numbers[3] if len(numbers) > 3 else None
    if kind[1].startswith("hsl"):
        red, green, blue = colorsys.hls_to_rgb(numbers[0] % 360 / 360, numbers[2] / 100, numbers[1] / 100)
        numbers = [red * 255, green * 255, blue * 255]
    return "#" + "".join(f"{min(max(round(one), 0), 255):02x}" for one in numbers[:3]), clear


def _length(value: str, em: float) -> float:
    found = _NUMBER.match(value.strip())
    if found is None:
        return 0.0
    unit = value.strip()[found.end() :].strip().split(" ")[0].split(",")[0]
    return float(found[0]) * {"em": em, "rem": 16.0, "ex": em / 2, "%": em / 100, "pt": 4 / 3}.get(unit, 1.0)


def _tag(element: ET.Element) -> str:
    return _local(element.tag)


@lru_cache(256)
def _local(tag: object) -> str:
    return str(tag).rpartition("}")[2]


# --- style sheets


def _rules(sheet: str) -> Iterable[_Rule]:
    sheet = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)
    sheet = re.sub(r"@[^{};]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", "", sheet)
    for selectors, body in _RULE.findall(sheet):
        usual, important = _declarations(body)
        for selector in re.split(r",(?![^(]*\))", selectors):
            parts = _parts(selector)
            if parts is None:
                continue
            ids, classes = sum(bool(p.id) for p in parts), sum(len(p.classes) + len(p.attributes) for p in parts)
            weight = (ids, classes, sum(bool(p.tag) for p in parts))
            for rank, values in ((0, usual), (1, important)):
                if values:
                    yield _Rule((rank, *weight), parts, values)


@lru_cache(1024)
def _declarations(body: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of a block, and those that are important."""
    usual: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in body.split(";"):
        name, _, value = declaration.partition(":")
        value = value.strip()
        if name.strip() in _READ and value:
            stripped = value.removesuffix("!important").strip()
            (important if stripped != value else usual)[name.strip()] = stripped
    return usual, important


def _parts(selector: str) -> tuple[_Part, ...] | None:
    """Return the compounds of a selector; None if it has something unknown."""
    out: list[_Part] = []
    child = False
    for word in selector.replace(">", " > ").split():
        if word == ">":
            child = True
            continue
        tag = name = ""
        classes: set[str] = set()
        attributes: list[tuple[str, str | None]] = []
        excluded: set[str] = set()
        at = 0
        while at < len(word):
            found = _SIMPLE.match(word, at)
            if found is None or found[7] or (found[6] is not None and not re.fullmatch(rf"\.{_NAME}", found[6])):
                return None
            tag, name = found[1] or tag, found[2] or name
            if found[3]:
                classes.add(found[3])
            if found[4]:
                attributes.append((found[4], found[5]))
            if found[6]:
                excluded.add(found[6][1:])
            at = found.end()
        out.append(
            _Part("" if tag == "*" else tag, name, frozenset(classes), tuple(attributes), frozenset(excluded), child)
        )
        child = False
    return tuple(out) or None


def _matches(parts: tuple[_Part, ...], chain: list[ET.Element]) -> bool:
    """Return whether the last element of a chain of nested elements matches."""
    if not _is(parts[-1], chain[-1]):
        return False
    at = len(chain) - 2
    for place in range(len(parts) - 2, -1, -1):
        directly = parts[place + 1].child
        while at >= 0 and not _is(parts[place], chain[at]):
            if directly:
                return False
            at -= 1
        if at < 0:
            return False
        at -= 1
    return True


def _is(part: _Part, element: ET.Element) -> bool:
    if part.tag and part.tag != _tag(element):
        return False
    if part.id and part.id != element.get("id"):
        return False
    if part.classes or part.excluded:
        own = set(element.get("class", "").split())
        if not part.classes <= own or part.excluded & own:
            return False
    return all(
        element.get(name) is not None if value is None else element.get(name) == value
        for name, value in part.attributes
    )
