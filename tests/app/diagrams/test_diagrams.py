"""Mermaid diagrams: every kind becomes plain SVG that QtSvg draws; hostile and endless ones end as code."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import psutil
import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
from pytestqt.qtbot import QtBot

from app.diagrams import process
from app.diagrams.plain_svg import MOST_CHARACTERS, MOST_TAGS, is_plain, plain
from app.ui.look import theme

needs_merman = pytest.mark.skipif(not process.can_draw(), reason="merman has no build for this system")
LIGHT: dict[str, Any] = vars(theme.LIGHT)
KINDS = {
    "flowchart": "flowchart TD\n A[Ask] --> B{Known?}\n B -- yes --> C[(Store)]\n B -.->|no| D((End))",
    "sequence": "sequenceDiagram\n A->>B: Hello\n activate B\n B-->>A: Hi\n deactivate B\n loop L\n A-xB: x\n end",
    "class": "classDiagram\n Animal <|-- Duck\n Duck *-- Wing : has\n class Duck{\n +swim() bool\n }",
    "state": "stateDiagram-v2\n [*] --> Idle\n Idle --> Run : start\n state Run {\n [*] --> Work\n }\n Run --> [*]",
    "er": "erDiagram\n CUSTOMER ||--o{ ORDER : places\n CUSTOMER {\n string name PK\n }",
    "gantt": "gantt\n title Plan\n section A\n Design :done, a1, 2024-01-01, 10d\n Code :crit, after a1, 9d",
    "pie": 'pie title Pets\n "Dogs" : 386\n "Cats" : 85',
    "mindmap": "mindmap\n root((Middle))\n  One\n   Two\n  Three",
    "timeline": "timeline\n title History\n 2002 : LinkedIn\n 2004 : Facebook : Google",
    "journey": "journey\n title Day\n section Work\n Tea: 5: Me\n Code: 3: Me, Cat",
    "git": "gitGraph\n commit\n branch develop\n commit\n checkout main\n merge develop",
    "quadrant": "quadrantChart\n title Reach\n x-axis Low --> High\n quadrant-1 Expand\n A: [0.3, 0.6]",
    "xy": 'xychart-beta\n title "Sales"\n x-axis [jan, feb]\n y-axis "Money" 0 --> 100\n bar [20, 50]\n line [10, 40]',
    "sankey": "sankey-beta\n Coal,Power,30\n Power,Home,25\n Power,Loss,5",
    "requirement": "requirementDiagram\n requirement r1 {\n id: 1\n text: must\n risk: high\n verifymethod: test\n }",
    "block": 'block-beta\n columns 2\n a["One"] b["Two"]\n a --> b',
}  # fmt: skip
REFUSED = ["", "no diagram", "flowchart TD\n A[ --> B", "x" * 30_000, "graph TD\n" + "A-->B\n" * 3000]
WORDS = {"flowchart": "Known?",
         "sequence": "Hello", "class": "swim", "state": "Idle", "er": "CUSTOMER", "gantt": "Design",
         "pie": "Cats", "mindmap": "Middle", "timeline": "Facebook", "journey": "Code", "git": "develop",
         "quadrant": "Expand", "xy": "Sales", "sankey": "Power", "requirement": "must", "block": "Two"}  # fmt: skip


def painted(svg: str, ground: str) -> set[str]:
    """The colours of a drawing, painted by QtSvg at its own size."""
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    assert renderer.isValid()
    size = renderer.defaultSize()
    image = QImage(size, QImage.Format.Format_RGB32)
    image.fill(QColor(ground))
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return {image.pixelColor(x, y).name() for x in range(size.width()) for y in range(0, size.height(), 2)}


@needs_merman
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_in_the_colours_of_the_theme(qtbot: QtBot, kind: str) -> None:
    for tokens in (theme.LIGHT, theme.DARK):
        drawing = process.draw(KINDS[kind], vars(tokens))
        assert drawing is not None
        texts = "".join(part.text or "" for part in ET.fromstring(drawing.text).iter())
        assert WORDS[kind] in texts
        colours = painted(drawing.text, tokens.sunken)
        assert len(colours) > 5
        assert min(drawing.width, drawing.height) > 20
        if tokens.dark and kind not in ("sankey", "journey"):  # sankey has colours of its own, journey white faces
            assert "#ffffff" not in colours


@needs_merman
def test_a_colour_of_the_diagram_gets_text_that_can_be_read() -> None:
    source = "flowchart TD\n A[Pale] --> B[Deep]\n style A fill:#ffe0e0\n style B fill:#202060"
    drawing = process.draw(source, vars(theme.DARK))
    assert drawing is not None
    fills = {part.text: part.get("fill") for part in ET.fromstring(drawing.text).iter() if part.text}
    assert fills == {"Pale": "#221d19", "Deep": "#ffffff"}


@needs_merman
def test_markup_in_labels_is_left_out_or_text() -> None:
    drawing = process.draw('flowchart TD\n A["<b>bold</b><br/>two"] --> B["#lt;script#gt;alert(1)"]', LIGHT)
    assert drawing is not None
    words = [part.text for part in ET.fromstring(drawing.text).iter() if part.text]
    assert words[:2] == ["bold", "two"]
    assert is_plain(drawing.text)


@needs_merman
@pytest.mark.parametrize(
    "source", ["", "no diagram", "flowchart TD\n A[ --> B", "x" * 30_000, "graph TD\n" + "A-->B\n" * 3000]
)
def test_what_cannot_be_drawn_is_refused(source: str) -> None:
    assert process.draw(source, LIGHT) is None


@needs_merman
def test_a_slow_diagram_ends_with_its_process_and_the_next_one_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process.draw(KINDS["pie"], LIGHT) is not None
    running = process._process._process
    assert running is not None
    psutil.Process(running.pid).suspend()
    monkeypatch.setattr(process, "WITHIN_S", 0.2)
    assert process.draw(KINDS["pie"] + "\n%% slow", LIGHT) is None
    assert running.poll() is not None
    monkeypatch.undo()
    assert process.draw(KINDS["pie"] + "\n%% again", LIGHT) is not None


@needs_merman
@pytest.mark.parametrize("answer", [{"svg": "<svg/>"}, {"svg": "<svg/>", "width": None, "height": 1}, [], {"svg": 3}])
def test_a_malformed_answer_costs_one_diagram(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "is_plain", lambda svg: svg == "<svg/>")
    monkeypatch.setattr(process._Process, "_ask", lambda *_: answer)
    assert process._Process().draw("pie", {}) is None


def test_a_killed_process_costs_one_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process.draw(KINDS["er"], LIGHT) is not None
    running = process._process._process
    assert running is not None
    running.kill()
    running.wait()
    assert process.draw(KINDS["er"] + "\n%% again", LIGHT) is not None
    process.end()
    assert process._process._process is None


@pytest.mark.parametrize(
    "body",
    [
        "<script>alert(1)</script>",
        '<image href="http://192.0.2.1/x"/>', '<a href="javascript:alert(1)"><text>x</text></a>',
        '<rect onload="alert(1)" width="1" height="1"/>',
        '<rect style="fill:url(http://192.0.2.1/x)" width="1" height="1"/>',
        '<foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject>', "<style>@import 'http://x';</style>",
        '<rect fill="url(http://192.0.2.1/x)" width="1" height="1"/>', '<use href="http://192.0.2.1/x#y"/>',
        '<animate attributeName="x" values="1;2"/>', '<use id="a" href="#a"/>', '<text x="1">&lt;script&gt;</text>',
    ],
)  # fmt: skip
def test_only_known_parts_of_an_svg_stay(body: str) -> None:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="3"/>{body}</svg>'
    drawing = plain(svg, "Inter", LIGHT)
    assert is_plain(drawing.text)
    assert "<circle" in drawing.text
    for word in ("script>", "192.0.2", "javascript", "onload", "style", "href", "animate", "foreign"):
        assert word not in drawing.text


@pytest.mark.parametrize(
    "svg",
    [
        "", "<svg", "<html></html>", '<svg xmlns="http://www.w3.org/2000/svg"><script></script></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg"><g onload="x"></g></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg"><!-- x --></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg"><g fill="url(http://x)"></g></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg"><g id="a" fill="x&quot;"></g></svg>',
        '<svg xmlns="http://www.w3.org/2000/svg">' + "<g></g>" * (MOST_TAGS // 2) + "</svg>",
        f'<svg xmlns="http://www.w3.org/2000/svg"><text>{"x" * MOST_CHARACTERS}</text></svg>',
    ],
)  # fmt: skip
def test_an_answer_that_is_not_plain_is_refused(svg: str) -> None:
    assert not is_plain(svg)


def test_styles_become_attributes_by_weight() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" id="m" viewBox="0 0 9 9" style="font-size:10px"><style>'
        "#m rect{fill:red;stroke:#111!important} #m .a > rect{fill:rgba(0,128,255,.5)} rect{fill:blue}"
        "@keyframes x{from{fill:red}} .b:hover rect{fill:green} .c:not(.d) text{fill:#123456}</style>"
        '<g class="a"><rect width="1" height="1" style="stroke:#222"/></g><g class="c"><text x="1" y="2">one'
        '<tspan x="1" dy="1em">two</tspan></text></g></svg>'
    )
    parts = list(ET.fromstring(plain(svg, "Inter", LIGHT).text).iter())
    rect = next(part for part in parts if part.tag.endswith("rect"))
    assert (rect.get("fill"), rect.get("fill-opacity"), rect.get("stroke")) == ("#0080ff", "0.5", "#111")
    rows = [(part.text, part.get("y"), part.get("fill")) for part in parts if part.tag.endswith("text")]
    assert rows == [("one", "2", "#123456"), ("two", "12", "#123456")]
