"""Sets the spaces of a formula as TeX does, on MathML: ziamath's table of operators is too small."""

from __future__ import annotations

import xml.etree.ElementTree as ET

_BINARY = frozenset("+−±∓×÷·∗∘•∪∩∖⊕⊖⊗⊙∧∨⊎⊓⊔⋆")
_RELATIONS = frozenset(
    "=≠<>≤≥≪≫≈≡≅≃∼≁≔≐∝∈∉∋⊂⊃⊆⊇⊊⊄⊈∣∥⊥⊢⊨≺≻⪯⪰≲≳:→←↔⇒⇐⇔↦⟶⟵⟷⟹⟸⟺⟼⇌⇋⇀↪↠"
)  # fmt: skip
_TIGHT = frozenset("!∂∇¬")  # all but the last are operands
_LARGE = frozenset("∑∏∐∫∬∭∮∯⋃⋂⨁⨂⋀⋁")
_OPENING = frozenset("([{⟨⌊⌈")
_ROWS = frozenset(["math", "mrow", "mtd", "mstyle"])
_SCRIPTED = frozenset(["msub", "msup", "msubsup", "munder", "mover", "munderover"])
_MEANT = {"~": "∼", "\\": "∖", "-": "−"}  # latex2mathml's output for \sim, \setminus and minus
_LONGER = {"→": "⟶", "←": "⟵", "↔": "⟷", "⇒": "⟹", "⇐": "⟸"}  # arrows do not grow below text
_PRESENTATION = ("mathcolor", "mathbackground", "style", "href", "class")  # a formula has the colour of its text


class FormulaError(Exception):
    """A formula that takes too much work or cannot be drawn."""


def set_spaces(element: ET.Element) -> None:
    """Set the spaces of an element and its descendants. Raises FormulaError for an unknown command."""
    text = element.text or ""
    if text.startswith("\\") and len(text) > 1:
        raise FormulaError(text)
    for name in _PRESENTATION:
        element.attrib.pop(name, None)
    if text in _LARGE:
        element.set("stretchy", "false")  # otherwise fences around it are too low
    if element.tag == "mover":
        _set_accent(element)
    if element.tag in _SCRIPTED and len(element) and element[0].text in _TIGHT:
        element[0].attrib.update(lspace="0em", rspace="0em")
    if element.tag == "mtable":
        element.attrib.setdefault("columnspacing", "0.8em")
        if element.get("displaystyle") == "true":
            element.set("rowspacing", "0.5em")
    for child in element:
        set_spaces(child)
    if element.tag == "menclose":
        element[:] = [_space("0.3em"), *element, _space("0.3em")]
    if element.tag in _ROWS and len(element) > 1:
        element[:] = _row(list(element))


def _set_accent(element: ET.Element) -> None:
    """Distinguish a hat over one letter from a wide one, and lengthen arrows with text above."""
    base, accent = element[0], element[-1]
    text = "".join(base.itertext())
    if accent.tag == "mo" and accent.text == "^":
        wide = len(text) > 1
        accent.text = "\u0302" if wide else "ˆ"
        accent.set("stretchy", "true" if wide else "false")
    elif accent.tag == "mo" and accent.text == "~" and accent.get("stretchy") is None:
        accent.text = "\u0303"
    elif text in _LONGER and base.tag != "mi":
        for inner in base.iter():
            inner.text = _LONGER.get(inner.text or "", inner.text)


def _row(children: list[ET.Element]) -> list[ET.Element]:
    """Return the children of a row with their spaces: attributes of operators, or elements between them."""
    row: list[ET.Element] = []
    operand = False  # whether the element before can be the left operand
    for index, child in enumerate(children):
        sign = _sign(child)
        follows = _sign(children[index + 1]) if index + 1 < len(children) else None
        fence = child.get("form") in ("prefix", "postfix")
        if child.tag == "mtable":
            row += [_space("0.12em"), child, _space("0.12em")]
            operand = True
        elif child.tag in _SCRIPTED and sign in _RELATIONS:
            row += [_space("thickmathspace"), child, _space("thickmathspace")]
            operand = False
        elif child.tag in ("mo", "mi") and not fence and sign in _RELATIONS | _BINARY | _TIGHT | {",", ";"}:
            width = _width(sign, operand, follows is not None)
            child.tag, child.text = "mo", sign
            child.attrib.update(lspace="0em" if sign in ",;" else width, rspace=width)
            row.append(child)
            operand = sign in "!∂∇"
        else:
            row.append(child)
            named = child.tag != "mtext" and len(sign) > 1 and sign.isalpha()
            spaced = child.tag == "mi"  # ziamath sets thin spaces around names of several letters itself
            if named and not spaced and follows is not None and follows not in _OPENING | _RELATIONS | _BINARY:
                row.append(_space("thinmathspace"))
            operand = not (child.tag == "mspace" and not operand) and not named and not _opens(child, sign)
    return row


def _width(sign: str, operand: bool, follows: bool) -> str:
    if sign in _TIGHT:
        return "0em"
    if sign in _RELATIONS:
        return "thickmathspace"
    return "mediummathspace" if sign in ",;" or (operand and follows) else "0em"


def _opens(child: ET.Element, sign: str) -> bool:
    return child.tag == "mo" and (sign in _OPENING or child.get("form") == "prefix")


def _sign(element: ET.Element) -> str:
    """Return the operator of an element, or of the base of its scripts."""
    if element.tag in _SCRIPTED and len(element):
        element = element[0]
    while element.tag in ("mrow", "mstyle") and len(element) == 1:
        element = element[0]
    text = (element.text or "").strip() if element.tag in ("mi", "mo") else ""
    return _MEANT.get(text, text)


def _space(width: str) -> ET.Element:
    return ET.Element("mspace", width=width)
