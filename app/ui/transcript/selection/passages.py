"""The selected part of one message: as plain text, and as Markdown, with the source of fully selected blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.chat.store.conversation import Message, Role
from app.text.block_parser import parse
from app.text.markdown_blocks import CodeBlock, ProseBlock
from app.text.selected_text import FAR, Cut, Passage, Place, Selection, cut, markdown_of, quoted
from app.ui.transcript.selection.copied_text import block_text
from engine.text.thoughts import spoken

if TYPE_CHECKING:
    from app.ui.transcript.message_view import MessageView


def passage_of(
    message: Message,
    view: MessageView | None,
    make_view: Callable[[Message], MessageView],
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
        return Passage(words, words, True)
    unshown = [block_text(block) for block in parse(rest)] if rest else []
    joined = "\n\n".join(words for words in (*plain.values(), *unshown) if words)
    if not with_markdown:
        return Passage(joined, "")
    thought = quoted(plain.pop(0)) if 0 in plain else ""
    source = view.source if _is_whole(view, parts) else _markdown(view, parts, plain)
    return Passage(joined, "\n\n".join(words for words in (thought, source, rest.strip("\n")) if words))


def spoken_or_own(message: Message) -> str:
    """Return a message's text without a thought."""
    return spoken(message.text).strip("\n") if message.role is Role.ASSISTANT else message.text


def _whole(source: str, message: Message) -> Passage:
    if message.role is not Role.ASSISTANT:
        return Passage(source, source, True)
    return Passage("\n\n".join(block_text(block) for block in parse(source)), source)


def _is_whole(view: MessageView, parts: dict[int, tuple[int, int]]) -> bool:
    """Return whether all texts of the answer are fully selected."""
    for number, text in enumerate(view.texts()):
        if text is not None and number > 0 and text.length:
            start, end = parts.get(number, (FAR, 0))
            if start > 0 or end < text.length:
                return False
    return view.shows_all


def _plain(view: MessageView, number: int, part: tuple[int, int]) -> str:
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


def _markdown(view: MessageView, parts: dict[int, tuple[int, int]], plain: dict[int, str]) -> str:
    """Return the Markdown of a partly selected answer."""
    cuts: list[Cut] = []
    for number, text in enumerate(view.texts()):
        blocks = view.blocks_in(number)
        if number not in plain or text is None:
            cuts += [Cut("", False)] * len(blocks)
            continue
        start, end = parts[number]
        if len(blocks) == 1:
            part = Cut(plain[number], start == 0 and end >= text.length)
            if len(plain) > 1 and isinstance(blocks[0], CodeBlock) and not part.whole:
                part = Cut(f"```{blocks[0].language}\n{part.text.strip(chr(10))}\n```", False)
            cuts.append(part)
            continue
        full = text.plain()
        first = len(text.plain(0, start)) if start else 0
        last = len(full) if end >= text.length else len(text.plain(0, end))
        found = cut([block_text(block) for block in blocks], full, first, last)
        if found is None:
            return "\n\n".join(plain.values())
        cuts += found
    known, shown = [], 0
    for source, count in view.sources():
        shown += count
        if shown <= len(cuts):
            known.append((source, count))
    written = markdown_of(known, cuts)
    return "\n\n".join(plain.values()) if written is None else written
