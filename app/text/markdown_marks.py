"""Markdown-it rules for GitHub's Markdown besides tables: bare addresses, task lists, footnotes. And for the numbers of
an answer's sources, such as [1].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

LONGEST_ADDRESS = 2000
# Scripts written without spaces, and their punctuation, end an address.
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9_/@.-])(?:https?://|www\.)"
    r"[^\s<>\"`\u0000-\u001f\u2018-\u201f\u2026\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]"
    rf"{{1,{LONGEST_ADDRESS}}}",
    re.IGNORECASE,
)
_BEHIND = ".,;:!?'*_~|"  # of the sentence, not of the address
_PAIRS = {")": "(", "]": "[", "}": "{"}
_REFERENCE = re.compile(r"\[\^([^\]\s]{1,60})\]")
_NOTE = re.compile(_REFERENCE.pattern + r":[ \t]*")
_TASK = re.compile(r"\[([ xX])\](?:\s+|$)")
_SOURCES = re.compile(r"\[(\d{1,5}(?:, ?\d{1,5}){0,20})\]")
_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1|\Z)|(`+)[^\n]*?\2", re.MULTILINE | re.DOTALL)


def add_to(md: MarkdownIt) -> None:
    """Add bare addresses, task lists (list items with the class `checked` or `unchecked`) and footnotes to a parser.

    `notes` in the environment maps the labels of known notes to their numbers (0: not used yet). `sources` holds the
    numbers that become links to sources; without it, there are none.
    """
    alternatives = ["paragraph", "reference", "blockquote", "list"]
    md.block.ruler.before("reference", "footnote", _find_note, {"alt": alternatives})
    md.inline.ruler.before("link", "footnote_ref", _find_reference)
    md.core.ruler.push("bare_links", _link_addresses)
    md.core.ruler.push("tasks", _mark_tasks)
    md.core.ruler.before("inline", "source_numbers", _keep_numbers)
    md.core.ruler.push("sources", _link_sources)


def note_number(env: MutableMapping[str, Any], label: str) -> int:
    """Return a note's number: notes are numbered by first use."""
    notes: dict[str, int] = env.setdefault("notes", {})
    if not notes.get(label):
        notes[label] = max(notes.values(), default=0) + 1
    return notes[label]


def _find_note(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Match the text of a note: [^label]: text, up to an empty line or the next note."""
    begin, stop = state.bMarks[start] + state.tShift[start], state.eMarks[start]
    found = _NOTE.match(state.src, begin, stop)
    if found is None or state.is_code_block(start):
        return False
    if silent:
        return True
    lines, number = [state.src[found.end() : stop]], start + 1
    while number < end and not state.isEmpty(number) and state.sCount[number] >= state.blkIndent:
        line = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
        if _NOTE.match(line):
            break
        lines.append(line)
        number += 1
    state.env.setdefault("notes", {}).setdefault(found[1].lower(), 0)
    opening = state.push("footnote_open", "p", 1)
    words = state.push("inline", "", 0)
    closing = state.push("footnote_close", "p", -1)
    opening.map = words.map = [start, number]
    opening.meta["label"] = closing.meta["label"] = found[1].lower()
    words.content, words.children = "\n".join(lines).strip(), []
    state.line = number
    return True


def _find_reference(state: StateInline, silent: bool) -> bool:
    found = _REFERENCE.match(state.src, state.pos, state.posMax)
    if found is None or found[1].lower() not in state.env.get("notes", {}):
        return False
    if not silent:
        label = found[1].lower()
        state.push("footnote_ref", "", 0).meta["number"] = note_number(state.env, label)
    state.pos = found.end()
    return True


def address_end(text: str) -> int:
    """Return the end of the address that the characters begin with: before punctuation, and before a bracket that was
    opened in front of it."""
    end = len(text)
    while end:
        last = text[end - 1]
        opening = _PAIRS.get(last)
        if last not in _BEHIND and (opening is None or text.count(last, 0, end) <= text.count(opening, 0, end)):
            break
        end -= 1
    return end


def _link_addresses(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline" and ("://" in token.content or "www." in token.content.lower()):
            _change_texts(token, _with_links)


def _change_texts(token: Token, change: Callable[[Token], list[Token]]) -> None:
    """Replace each text of an inline token that is in no link."""
    out: list[Token] = []
    depth = 0
    for child in token.children or ():
        depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        out += change(child) if child.type == "text" and not depth else [child]
    token.children = out


def _with_links(token: Token) -> list[Token]:
    out: list[Token] = []
    place, text = 0, token.content
    for found in _ADDRESS.finditer(text):
        end = found.start() + address_end(found[0])
        address = text[found.start() : end]
        bare = address.lower().removeprefix("https://").removeprefix("http://").removeprefix("www.")
        if (not bare[:1].isalnum() and bare[:1] != "[") or (address[:4].lower() == "www." and "." not in bare):
            continue
        href = address if "://" in address[:8] else f"https://{address}"
        out += [_text(text[place : found.start()]), Token("link_open", "a", 1, {"href": href}), _text(address)]
        out.append(Token("link_close", "a", -1))
        place = end
    return [*out, _text(text[place:])] if out else [token]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


# --- sources


def cited(text: str, known: Collection[int]) -> list[int]:
    """Return the numbers of known sources that an answer names outside of code, in the order of their first use."""
    numbers = (int(one) for found in _SOURCES.finditer(_CODE.sub("", text)) for one in found[1].split(","))
    return list(dict.fromkeys(number for number in numbers if number in known))


def _keep_numbers(state: StateCore) -> None:
    """Forget link definitions with the number of a source as their label, so that the number stays a number."""
    for number in state.env.get("sources", ()):
        state.env.get("references", {}).pop(str(number), None)


def _link_sources(state: StateCore) -> None:
    known = state.env.get("sources")
    if not known:
        return
    for token in state.tokens:
        if token.type == "inline" and "[" in token.content:
            _change_texts(token, lambda text: list(_with_sources(text, known)))


def _with_sources(token: Token, known: Collection[int]) -> Iterator[Token]:
    """Yield a text with its numbers as tokens: [1] as one, in [1, 2] each number."""
    place, text = 0, token.content
    for found in _SOURCES.finditer(text):
        numbers = re.finditer(r"\d+", found[0])
        marks = [found] if "," not in found[1] else [one for one in numbers if int(one[0]) in known]
        for mark in marks:
            number, shift = int(mark[0].strip("[]")), 0 if mark is found else found.start()
            if number in known:
                yield _text(text[place : mark.start() + shift])
                yield Token("source_ref", "", 0, content=mark[0], meta={"number": number})
                place = mark.end() + shift
    yield _text(text[place:])


def _mark_tasks(state: StateCore) -> None:
    """Move the box from a task's text to its list item."""
    tokens = state.tokens
    for index, token in enumerate(tokens[2:], start=2):
        if token.type != "inline" or tokens[index - 2].type != "list_item_open" or not token.children:
            continue
        first = token.children[0]
        if first.type == "text" and (box := _TASK.match(first.content)):
            first.content = first.content[box.end() :]
            tokens[index - 2].attrSet("class", "unchecked" if box[1] == " " else "checked")
