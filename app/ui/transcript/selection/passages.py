"""The selected part of one message: as plain text, and as Markdown, with the source of fully selected blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.chat.store.conversation import Message, Role
from app.text.block_parser import parse
from app.text.markdown_blocks import Block, CodeBlock, ProseBlock
from app.text.selected_text import FAR, Cut, Passage, Place, Selection, cut, markdown_of, quoted
from app.text.web_html import answer_html, blocks_html, code_html, plain_html
from app.ui.transcript.selection.copied_text import block_text
from app.ui.transcript.selection.selectable import SelectableText
from engine.text.thoughts import spoken


class SelectableMessage(Protocol):
    """The widget of a message, as MessageView is one."""

    @property
    def message(self) -> Message: ...
    @property
    def source(self) -> str: ...
    @property
    def shows_all(self) -> bool: ...
    def texts(self) -> list[SelectableText | None]: ...
    def blocks_in(self, number: int, /) -> list[Block]: ...
    def sources(self) -> list[tuple[str, int]]: ...
    def unshown(self) -> str: ...
    def deleteLater(self) -> None: ...


def passage_of(
    message: Message,
    view: SelectableMessage | None,
    make_view: Callable[[Message], SelectableMessage],
    index: int,
    selection: Selection,
    with_markdown: bool = True,
) -> Passage:
    """Return the selected part of the message with that index.

    view: its widget, if it is built; otherwise make_view builds one. with_markdown: otherwise only the plain text is
    made.
    """
    from_start = selection.start <= Place(index, 0, 0)
    to_end = selection.end >= Place(index, FAR, 0)
    if from_start and to_end and (view is None or not view.shows_all):
        return _whole(view.source if view is not None else spoken_or_own(message), message)
    if view is None:
        view = make_view(message)
        try:
            return passage_of(message, view, make_view, index, selection, with_markdown)
        finally:
            view.deleteLater()
    parts = {
        number: part for number in range(len(view.texts())) if (part := selection.within(index, number)) is not None
    }
    plain = {number: words for number, part in parts.items() if (words := _plain(view, number, part))}
    rest = view.unshown() if to_end else ""
    if message.role is not Role.ASSISTANT:
        pages = [page for page in (*plain.values(), rest) if page]
        # Pages end with a space or a line end; the line end is left out of all but the first.
        words = "".join(page if page[-1].isspace() else page + "\n" for page in pages[:-1]) + "".join(pages[-1:])
        return Passage(words, words, plain_html(words), True)
    further = parse(rest) if rest else []
    unshown = [block_text(block) for block in further]
    joined = "\n\n".join(words for words in (*plain.values(), *unshown) if words)
    if not with_markdown:
        return Passage(joined, "")
    thought = plain.pop(0) if 0 in plain else ""
    if _is_whole(view, parts):
        source, html = view.source, answer_html(view.source)
    else:
        pieces = _pieces(view, parts, plain)
        source, html = _markdown(view, pieces, plain), _html(pieces, plain) + blocks_html(further)
    markdown = "\n\n".join(words for words in (quoted(thought) if thought else "", source, rest.strip("\n")) if words)
    return Passage(joined, markdown, f"<blockquote>{plain_html(thought)}</blockquote>{html}" if thought else html)


def spoken_or_own(message: Message) -> str:
    """Return a message's text without a thought."""
    return spoken(message.text).strip("\n") if message.role is Role.ASSISTANT else message.text


def _whole(source: str, message: Message) -> Passage:
    if message.role is not Role.ASSISTANT:
        return Passage(source, source, plain_html(source), True)
    blocks = parse(source)
    return Passage("\n\n".join(block_text(block) for block in blocks), source, blocks_html(blocks))


def _is_whole(view: SelectableMessage, parts: dict[int, tuple[int, int]]) -> bool:
    """Return whether all texts of the answer are fully selected."""
    for number, text in enumerate(view.texts()):
        if text is not None and number > 0 and text.length:
            start, end = parts.get(number, (FAR, 0))
            if start > 0 or end < text.length:
                return False
    return view.shows_all


def _plain(view: SelectableMessage, number: int, part: tuple[int, int]) -> str:
    """Return the copied part of one text, including what is not shown if the selection continues after it."""
    text, blocks, (start, end) = view.texts()[number], view.blocks_in(number), part
    if text is None:
        return ""
    if end == FAR and len(blocks) == 1 and not isinstance(blocks[0], ProseBlock):
        whole = block_text(blocks[0])
        shown = text.plain() if start else ""
        if whole.startswith(shown):
            return (text.plain(start) if start else "") + whole[len(shown) :]
    return text.plain(start, end)


def _pieces(
    view: SelectableMessage, parts: dict[int, tuple[int, int]], plain: dict[int, str]
) -> list[tuple[Block, Cut]] | None:
    """Return the blocks of a partly selected answer with the selected part of each. None: they cannot be told apart."""
    out: list[tuple[Block, Cut]] = []
    for number, text in enumerate(view.texts()):
        blocks = view.blocks_in(number)
        if number not in plain or text is None:
            out += [(block, Cut("", False)) for block in blocks]
            continue
        start, end = parts[number]
        if len(blocks) == 1:
            out.append((blocks[0], Cut(plain[number], start == 0 and end >= text.length)))
            continue
        full = text.plain()
        first = len(text.plain(0, start)) if start else 0
        last = len(full) if end >= text.length else len(text.plain(0, end))
        found = cut([block_text(block) for block in blocks], full, first, last)
        if found is None:
            return None
        out += zip(blocks, found, strict=True)
    return out


def _markdown(view: SelectableMessage, pieces: list[tuple[Block, Cut]] | None, plain: dict[int, str]) -> str:
    """Return the Markdown of a partly selected answer."""
    if pieces is None:
        return "\n\n".join(plain.values())
    cuts = [part for _, part in pieces]
    for place, (block, part) in enumerate(pieces):
        if len(plain) > 1 and isinstance(block, CodeBlock) and part.text and not part.whole:
            cuts[place] = Cut(f"```{block.language}\n{part.text.strip(chr(10))}\n```", False)
    known, shown = [], 0
    for source, count in view.sources():
        shown += count
        if shown <= len(cuts):
            known.append((source, count))
    written = markdown_of(known, cuts)
    return "\n\n".join(plain.values()) if written is None else written


def _html(pieces: list[tuple[Block, Cut]] | None, plain: dict[int, str]) -> str:
    """Return the HTML of a partly selected answer: whole blocks as such, parts of blocks as paragraphs or code."""
    if pieces is None:
        return "\n".join(map(plain_html, plain.values()))
    out = []
    for block, part in pieces:
        if part.whole:
            out.append(blocks_html([block]))
        elif part.text:
            out.append(code_html(part.text) if isinstance(block, CodeBlock) else plain_html(part.text))
    return "\n".join(out)
