"""The selected part of one message: as plain text, and as Markdown with the source of what is selected whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QTextDocument

from app.block_parser import parse, sources
from app.conversation import Message, Role
from app.markdown_blocks import Block, CodeBlock, TableBlock
from app.selected_text import FAR, Cut, Passage, Place, Selection, cut, markdown_of, quoted
from app.thinking import spoken
from app.ui.copied_text import running_text, table_text

if TYPE_CHECKING:
    from app.ui.message_view import MessageView


def block_text(block: Block) -> str:
    """Return what is copied of a whole block; nothing is laid out for it."""
    if isinstance(block, CodeBlock):
        return block.code
    document = QTextDocument()
    document.setHtml(block.html)
    copied = table_text if isinstance(block, TableBlock) else running_text
    return copied(document, 0, document.characterCount() - 1)


def passage_of(message: Message, view: MessageView | None, index: int, selection: Selection) -> Passage:
    """Return what is selected of the message with that index. view: the widget that shows it, if it is built."""
    own = message.role is not Role.ASSISTANT
    if view is None:
        if selection.start < Place(index, 0, 0) and selection.end > Place(index, FAR, 0):
            return _whole(message, own)
        from app.ui.turn_column import make_view  # selection -> passages -> turn_column -> transcript's parts

        view = make_view(message)
        try:
            return passage_of(message, view, index, selection)
        finally:
            view.deleteLater()
    parts: dict[int, tuple[int, int]] = {}  # number of a text: what is selected of it
    whole = True
    for number, text in enumerate(view.texts()):
        if text is None:
            continue
        within = selection.within(index, number)
        if within is None:
            whole = whole and not text.length
            continue
        parts[number] = (within[0], min(within[1], text.length))
        whole = whole and parts[number] == (0, text.length)
    texts = view.texts()
    plain = {n: text.plain(*part) for n, part in parts.items() if (text := texts[n]) is not None}
    joined = "\n\n".join(words for words in plain.values() if words)
    if own:
        return Passage(joined, joined, True)
    thought = quoted(plain.pop(0)) if plain.get(0) else ""
    source = view.source if whole else _markdown(view, parts, plain)
    return Passage(joined, "\n\n".join(words for words in (thought, source) if words))


def _whole(message: Message, own: bool) -> Passage:
    if own:
        return Passage(message.text, message.text, True)
    source = spoken(message.text).strip("\n")
    return Passage("\n\n".join(block_text(block) for block in parse(source)), source)


def _markdown(view: MessageView, parts: dict[int, tuple[int, int]], plain: dict[int, str]) -> str:
    """The Markdown of an answer of which a part is selected."""
    cuts: list[Cut] = []
    for number, text in enumerate(view.texts()):
        blocks = view.blocks_in(number)
        part = parts.get(number)
        if part is None or text is None:
            cuts += [Cut("", False)] * len(blocks)
            continue
        full = text.plain()
        start = len(text.plain(0, part[0])) if part[0] else 0
        end = len(full) if part[1] >= text.length else len(text.plain(0, part[1]))
        found = cut([full] if len(blocks) == 1 else [block_text(block) for block in blocks], full, start, end)
        if found is None:
            return "\n\n".join(plain.values())
        if len(plain) > 1 and isinstance(blocks[0], CodeBlock) and not found[0].whole and found[0].text:
            found = [Cut(f"```{blocks[0].language}\n{found[0].text.strip(chr(10))}\n```", False)]
        cuts += found
    written = markdown_of(sources(view.source), cuts)
    return "\n\n".join(plain.values()) if written is None else written
