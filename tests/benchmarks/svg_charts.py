"""Small charts as SVG text: bars in groups, bars in parts, and lines. It reads no figures and writes no files.

A chart is plain text that is the same for the same figures, light enough to be kept, and readable in light and dark:
the colours follow what the reader's system prefers. Lengths are in SVG's own units, of which a chart is WIDTH wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 760
LEFT, RIGHT = 178, 64  # room for names, and for the figure behind the longest bar
TOP = 88  # title, caption and legend
BAR, GAP, BETWEEN_GROUPS = 17, 3, 15
PLOT_HEIGHT = 300  # of lines

# Light and dark: the paper, words, quieter words, the lines of the grid, and what is drawn, ours first.
LOOKS = (
    {"paper": "#fffdfa", "ink": "#2b2622", "faint": "#6b625a", "grid": "#e6e0d9",
     "0": "#c2410c", "1": "#3f6f8f", "2": "#8a8078", "3": "#a67c14"},
    {"paper": "#1d1916", "ink": "#ece6df", "faint": "#aaa197", "grid": "#3a342f",
     "0": "#f0774a", "1": "#7fb0cf", "2": "#8f867d", "3": "#d9b65c"},
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """values: one of each series; None: not measured, and no bar."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """colour: a number of LOOKS. end_name: stands at its last point; empty: it has no name of its own."""

    points: Sequence[tuple[float, float]]
    colour: int
    end_name: str = ""
    strong: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Axis:
    """What an axis goes to from zero, where its marks are, and what they say."""

    name: str
    end: float
    marks: Sequence[tuple[float, str]]


def grouped_bars(
    title: str,
    caption: str,
    series: Sequence[str],
    groups: Sequence[Group],
    decimals: int = 1,
    whole: float | None = None,
) -> str:
    """One bar for each value, in groups, with its figure behind it. whole: what takes the whole width; else the
    longest does."""
    longest = max(value for group in groups for value in group.values if value is not None)
    scale = (WIDTH - LEFT - RIGHT) / (whole or longest)
    body, y = _legend(series), float(TOP)
    for group in groups:
        bars = [(i, value) for i, value in enumerate(group.values) if value is not None]
        height = len(bars) * (BAR + GAP) - GAP
        body.append(_text(LEFT - 10, y + height / 2 + 4.5, group.name, "ink", anchor="end"))
        for number, (i, value) in enumerate(bars):
            at, wide = y + number * (BAR + GAP), value * scale
            body.append(_bar(LEFT, at, wide, i))
            strong = i == 0
            body.append(_text(LEFT + wide + 6, at + 13, f"{value:.{decimals}f}", "ink", strong=strong))
        y += height + BETWEEN_GROUPS
    return _chart(title, caption, y, body)


def parted_bars(title: str, caption: str, parts: Sequence[str], groups: Sequence[Group]) -> str:
    """One bar of full width for each group, cut into shares that add up to one, with per cent written in them."""
    across = WIDTH - LEFT - 24
    body, y = _legend(parts), float(TOP)
    for group in groups:
        body.append(_text(LEFT - 10, y + 17.5, group.name, "ink", anchor="end"))
        x = float(LEFT)
        for i, share in enumerate(value or 0.0 for value in group.values):
            if share:
                body.append(_bar(x, y, share * across, i, high=26))
            if share > 0.06:  # else the words are wider than the part
                body.append(_text(x + 8, y + 17.5, f"{100 * share:.0f} %", "paper", strong=True))
            x += share * across
        y += 26 + BETWEEN_GROUPS
    return _chart(title, caption, y, body)


def lines(title: str, caption: str, x: Axis, y: Axis, curves: Sequence[Curve]) -> str:
    left, top, right = 66, TOP, WIDTH - 110
    bottom = top + PLOT_HEIGHT

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return left + point[0] / x.end * (right - left), bottom - point[1] / y.end * (bottom - top)

    body = []
    for value, name in y.marks:
        at = place((0, value))[1]
        body.append(f'<path class="grid" d="M{left} {at:.1f}H{right}"/>')
        body.append(_text(left - 8, at + 4.5, name, "faint", anchor="end"))
    for value, name in x.marks:
        body.append(_text(place((value, 0))[0], bottom + 19, name, "faint", anchor="middle"))
    body.append(_text(left, top - 10, y.name, "faint"))
    body.append(_text(right, bottom + 38, x.name, "faint", anchor="end"))
    for curve in curves:
        placed = [place(point) for point in curve.points]
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in placed)
        wide = 3 if curve.strong else 1.4
        body.append(f'<path class="l{curve.colour}" stroke-width="{wide}" d="M{path}"/>')
        if curve.dots:
            body += [f'<circle class="s{curve.colour}" cx="{px:.1f}" cy="{py:.1f}" r="4"/>' for px, py in placed]
        if curve.end_name:
            px, py = placed[-1]
            below = 18 if len(placed) == 1 else 4.5  # a mark on another line has its words below that line
            body.append(_text(px + 8, py + below, curve.end_name, "ink", strong=curve.strong))
    return _chart(title, caption, bottom + 52, body)


def _legend(names: Sequence[str]) -> list[str]:
    body, x = [], float(LEFT)
    for i, name in enumerate(names):
        body.append(f'<rect class="s{i}" x="{x:.0f}" y="{TOP - 29}" width="11" height="11" rx="2"/>')
        body.append(_text(x + 17, TOP - 19, name, "faint"))
        x += 17 + 7.1 * len(name) + 18
    return body


def _bar(x: float, y: float, wide: float, colour: int, high: int = BAR) -> str:
    return f'<rect class="s{colour}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high}" rx="2"/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start", strong: bool = False) -> str:
    weight = ' font-weight="600"' if strong else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{colour}" x="{x:.1f}" y="{y:.1f}"{side}{weight}>{escape(words)}</text>'


def _chart(title: str, caption: str, height: float, body: Sequence[str]) -> str:
    high = round(height) + 8
    light, dark = (_colours(look) for look in LOOKS)
    fonts = "text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif}"
    fonts += ".title{font-size:16px;font-weight:600}.caption{font-size:12px}path{fill:none;stroke-linejoin:round}"
    size = f'viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>",
        f"<style>{fonts}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{high}" rx="8"/>',
        _text(20, 27, title, "ink title"),
        _text(20, 46, caption, "faint caption"),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _colours(look: dict[str, str]) -> str:
    """A class a colour: s0 fills, l0 draws."""
    styles = [f".{name}{{fill:{look[name]}}}" for name in ("paper", "ink", "faint")]
    styles += [f".s{name}{{fill:{look[name]}}}.l{name}{{stroke:{look[name]}}}" for name in "0123"]
    return "".join(styles) + f".grid{{stroke:{look['grid']}}}"
