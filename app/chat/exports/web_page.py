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
_STYLE = """
:root { color-scheme: light dark; LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
@media print { :root { LIGHT } body { max-width: none } pre, tr, h1, h2, h3 { break-inside: avoid } }
body { max-width: 46rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 } h2 { font-size: 1rem; margin: 0 0 .5rem }
h3 { font-size: 1.25rem } h4 { font-size: 1.1rem } h5, h6 { font-size: 1rem }
.meta { color: var(--ink3); font-size: .85rem; margin: .25rem 0 0 }
.meta span, .meta a { margin-right: .75rem }
article { margin: 2rem 0 0 } .own { background: var(--bubble); border-radius: .75rem; padding: .9rem 1.1rem }
.own p, .thought p { unicode-bidi: plaintext } .own p:last-child { margin-bottom: 0 }
section.branch { margin-top: 3rem; border-top: 1px solid var(--edge); padding-top: 1rem }
section.branch > h2 { font-size: 1.15rem }
.thought { color: var(--ink2); font-size: .9rem; margin: 0 0 1rem }
pre { background: var(--sunken); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem;
  white-space: pre-wrap; direction: ltr; text-align: left }
code { font: .87em/1.5 ui-monospace, monospace; white-space: pre-wrap }
p code, li code, td code { background: var(--bubble); border-radius: .25rem; padding: 0 .25em }
a { color: var(--cold) } blockquote { margin: .75rem 0; padding-left: 1rem; border-left: 2px solid var(--edge);
  color: var(--ink2) }
table { border-collapse: collapse } th, td { padding: .4rem 1rem .4rem 0; border-bottom: 1px solid var(--line);
  text-align: start; vertical-align: top } [align=right] { text-align: right } [align=center] { text-align: center }
li.task { list-style: none } p, li, h1, h2, h3, h4, h5, h6, td, th { unicode-bidi: plaintext }
.formula { fill: currentColor; max-width: 100% } p.math { margin-left: 1.75rem; overflow-x: auto }
figure.diagram { margin: 1rem 0; padding: 1rem; border-radius: .5rem; background: #F3F0EB; color: #5A524A }
figure.diagram > svg { max-width: 100%; height: auto; display: block; margin: 0 auto }
figure.diagram text { font-family: system-ui, sans-serif } figure.diagram details { font-size: .8rem }
figure.diagram pre { color: var(--ink) }
.in1 { margin-left: 1.75rem } .in2 { margin-left: 3.5rem } .in3 { margin-left: 5.25rem } .in4 { margin-left: 7rem }
.in5 { margin-left: 8.75rem } .in6 { margin-left: 10.5rem }
"""


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
    return _STYLE.replace("LIGHT", light).replace("DARK", dark) + code + "pre .ink3 { color: var(--ink3) }\n"


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
