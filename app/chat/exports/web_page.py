"""Writes a chat as one self-contained web page: no scripts, nothing to load, light and dark.

Text of users and models is escaped. The page's policy allows its own style sheet and nothing else. No Qt.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from html import escape
from pathlib import Path

from app.chat.exports.outline import Entry, Outline, Scope, outline, section_title, version_words
from app.chat.store.chat_files import replacing, storable
from app.chat.store.conversation import WholeChat
from app.text.block_parser import parse
from app.text.math_typeset import Words, typeset
from app.text.web_html import Draw, DrawDiagram, blocks_html, plain_html
from app.translation import tr

_MOST_FORMULAS = 512  # drawings kept for the next use of the same formula
_DEPTH = re.compile(r'class="formula d(\d+)"')
COLOURS = (  # name, light, dark: as in the window
    ("page", "#FBFAF8", "#1B1917"), ("ink", "#221D19", "#DDD7D0"), ("ink2", "#5A524A", "#BDB5AC"),
    ("ink3", "#71685F", "#A0978D"), ("bubble", "#EFEBE5", "#2C2825"), ("line", "#E6E1DA", "#35312D"),
    ("edge", "#D2CBC1", "#4D4741"), ("cold", "#2A678F", "#86BCE0"), ("sunken", "#F3F0EB", "#141210"),
    ("code_keyword", "#9A3470", "#E39AC0"), ("code_string", "#2A7548", "#8CCBA0"),
    ("code_function", "#2A678F", "#8FC1E3"), ("code_number", "#85560A", "#E0B97A"),
)  # fmt: skip
_STYLE = Path(__file__).with_name("web_page.css")


def write_web_page(
    path: Path, chat: WholeChat, scope: Scope, words: Words | None = None, diagram: DrawDiagram | None = None
) -> None:
    """Write a chat as a web page. words: draws text that the formula font lacks. diagram: draws diagrams in light
    colours; without it they are code. Raises OSError."""
    with replacing(path) as file:
        file.write(web_page(outline(chat, scope), words, diagram))


def web_page(chat: Outline, words: Words | None = None, diagram: DrawDiagram | None = None) -> str:
    """Return the page. Cost: linear in the text; a formula takes 2 to 30 ms."""
    draw = lru_cache(_MOST_FORMULAS)(partial(typeset, words=words))
    body = str(storable("".join(_body(chat, draw, diagram))))
    depths = "".join(f".d{d} {{ vertical-align: -{int(d) / 100}em }}\n" for d in sorted(set(_DEPTH.findall(body))))
    style = _style() + depths
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(storable(chat.title))}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _style() -> str:
    code = "".join(f".{name} {{ color: var(--{name}) }}\n" for name, _, _ in COLOURS if name.startswith("code"))
    light = " ".join(f"--{name}: {colour};" for name, colour, _ in COLOURS)
    dark = " ".join(f"--{name}: {colour};" for name, _, colour in COLOURS)
    return (
        _STYLE.read_text(encoding="utf-8").replace("LIGHT", light).replace("DARK", dark)
        + code
        + "pre .ink3 { color: var(--ink3) }\n"
    )


def _body(chat: Outline, draw: Draw, diagram: DrawDiagram | None) -> Iterator[str]:
    anchors = {
        entry.id: f"m{number}"
        for number, entry in enumerate((entry for section in chat.sections for entry in section.entries), 1)
    }
    yield f'<header>\n<h1>{escape(chat.title)}</h1>\n<p class="meta">{chat.day}</p>\n</header>\n'
    for section in chat.sections:
        if not section.is_shown:
            yield f'<section class="branch">\n<h2>{escape(section_title(section))}</h2>\n'
        for entry in section.entries:
            yield from _article(entry, anchors, draw, diagram)
        if not section.is_shown:
            yield "</section>\n"


def _article(entry: Entry, anchors: dict[str, str], draw: Draw, diagram: DrawDiagram | None) -> Iterator[str]:
    anchor = anchors[entry.id]
    yield f'<article id="{anchor}"{" class=own" if entry.is_own else ""}>\n<h2>{escape(entry.speaker)}</h2>\n'
    if entry.versions[1:]:
        links = (
            f"<span>{number}</span>" if number == entry.version else f'<a href="#{anchors[one]}">{number}</a>'
            for number, one in enumerate(entry.versions, 1)
        )
        yield f'<p class="meta"><span>{escape(version_words(entry))}</span>{"".join(links)}</p>\n'
    for name in entry.attachments:
        yield f'<p class="meta">{escape(tr("Attached: {name}", name=name))}</p>\n'
    if entry.thought:
        yield (
            f'<details class="thought"><summary>{escape(tr("Thought"))}</summary>\n{plain_html(entry.thought)}\n'
            "</details>\n"
        )
    if entry.is_own:
        yield plain_html(entry.text) + "\n"
    elif entry.text:
        yield blocks_html(parse(entry.text), draw, diagram, top=3, prefix=f"{anchor}-") + "\n"
    for line in (*entry.calls, entry.note):
        if line:
            yield f'<p class="meta">{escape(line)}</p>\n'
    yield "</article>\n"
