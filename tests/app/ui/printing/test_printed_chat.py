"""Chats on pages: the same text as PDF, light colours in a dark window, headings that stay with their text."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from PySide6.QtCore import QSizeF
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPageSize, QPainter
from pytestqt.qtbot import QtBot
from support.generated_messages import Maker, squeezed
from support.repetitions import slow

from app.chat.exports.outline import Scope, outline
from app.chat.store.conversation import Conversation, Message, Role, WholeChat
from app.diagrams.plain_svg import PlainSvg
from app.ui.look import theme
from app.ui.printing import printed_chat
from app.ui.printing.pdf_file import pdf, write_pdf
from app.ui.printing.printed_chat import PrintedChat, prepare

pytestmark = pytest.mark.gui
LINE = 110  # characters on a page


def chat_of(*texts: tuple[Role, str], title: str = "Title") -> WholeChat:
    made: list[Message] = []
    for role, text in texts:
        made.append(Message(role, text, parent=made[-1].id if made else ""))
    return WholeChat(Conversation(title=title, created_at=1_700_000_000.0), tuple(made))


def printed(*texts: tuple[Role, str], title: str = "Title", scope: Scope | None = None) -> PrintedChat:
    return PrintedChat(prepare(outline(chat_of(*texts, title=title), scope or Scope())))


def page_texts(data: bytes) -> list[str]:
    """The text of each page without its head and foot."""
    out = []
    pages = list(pypdfium2.PdfDocument(data))
    for number, page in enumerate(pages, 1):
        text = squeezed(page.get_textpage().get_text_bounded())
        head, foot = "Title2023-11-14", f"Page{number}of{len(pages)}"
        assert text.count(foot) == 1
        assert text.startswith(head)
        out.append(text.removeprefix(head).replace(foot, ""))
    return out


@pytest.mark.parametrize(("seed", "count"), [(1, 60), slow(2, 1000)])
def test_the_text_of_every_message_is_in_the_pdf(qtbot: QtBot, seed: int, count: int) -> None:
    maker = Maker(seed, wide=False)
    texts, wanted = [], ["Title"]
    for _ in range(count // 2):
        question, (source, text) = maker.question(), maker.answer()
        texts += [(Role.USER, question), (Role.ASSISTANT, source)]
        wanted += ["You", squeezed(question), "Answer", text]
    left = "".join(wanted)
    for text in page_texts(pdf(printed(*texts))):
        # A page may begin with the last line of the page before, clipped and so unseen: Qt draws it with its paragraph.
        unseen = next(n for n in range(len(text) + 1) if left.startswith(text[n:]))
        assert unseen <= LINE
        left = left.removeprefix(text[unseen:])
    assert left == ""


def test_pages_are_the_same_however_a_chat_is_divided(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(3, wide=False)
    texts = [(role, say()) for _ in range(15) for role, say in
             ((Role.USER, maker.question), (Role.ASSISTANT, lambda: maker.answer()[0]))]  # fmt: skip
    pages, n_documents = [], []
    for chars in (0, 3_000, 10**9):
        monkeypatch.setattr(printed_chat, "PART_CHARS", chars)
        chat = printed(*texts)
        pages.append(page_texts(pdf(chat)))
        n_documents.append(len(chat.documents))
    assert n_documents[0] == 30
    assert n_documents[0] > n_documents[1] > n_documents[2] == 1
    assert pages[0] == pages[1] == pages[2]


def test_print_is_light_in_a_dark_window(qtbot: QtBot) -> None:
    theme.apply(QGuiApplication.instance(), "dark", 1.0)  # type: ignore[arg-type]
    try:
        chat = printed(
            (Role.ASSISTANT, "Text $x^2$ and `code`\n\n```python\nx = 1  # note\n```\n\n| a | b |\n|-|-|\n| 1 | 2 |")
        )
        size = QSizeF(500, 500)
        list(chat.lay_out(size))
        image = QImage(500, 500, QImage.Format.Format_RGB32)
        image.fill(QColor("white"))
        painter = QPainter(image)
        chat.documents[0].drawContents(painter)
        painter.end()
    finally:
        theme.apply(QGuiApplication.instance(), "light", 1.0)  # type: ignore[arg-type]
    colours = {image.pixelColor(x, y).lightness() for x in range(500) for y in range(500)}
    assert min(colours) < 60  # ink
    grounds = {image.pixelColor(x, y).name().upper() for x in range(500) for y in range(500)}
    assert theme.LIGHT.sunken in grounds
    assert theme.DARK.sunken not in grounds


def test_size_of_text_on_paper_does_not_follow_the_zoom(qtbot: QtBot) -> None:
    text = (Role.ASSISTANT, "\n\n".join(["One two three four five six seven eight nine ten. " * 9] * 30))
    counts = []
    for zoom in (1.0, 1.5):
        theme.apply(QGuiApplication.instance(), "light", zoom)  # type: ignore[arg-type]
        try:
            counts.append(len(pypdfium2.PdfDocument(pdf(printed(text)))))
        finally:
            theme.apply(QGuiApplication.instance(), "light", 1.0)  # type: ignore[arg-type]
    assert counts[0] == counts[1]


def test_a_heading_is_not_left_at_the_end_of_a_page(qtbot: QtBot) -> None:
    for lines in range(20, 34):
        source = "\n\n".join(f"Line {n}" for n in range(lines)) + "\n\n## Heading\n\nBelow it"
        for text in page_texts(pdf(printed((Role.ASSISTANT, source)))):
            assert not text.endswith("Heading")


def test_code_that_is_longer_than_a_page_goes_on_on_the_next(qtbot: QtBot) -> None:
    code = "\n".join(f"line{n:03}" for n in range(200))
    pages = page_texts(pdf(printed((Role.ASSISTANT, f"```\n{code}\n```"))))
    assert len(pages) > 2
    assert "".join(pages).endswith(squeezed(code))
    assert all(text.count("line") > 20 for text in pages[:-1])


def test_a_diagram_is_drawn_on_one_page(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    box = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 3000"><text x="9" y="1500">Inside</text></svg>'
    monkeypatch.setattr(
        printed_chat, "draw", lambda source, tokens: None if source == "broken" else PlainSvg(box, 300, 3000)
    )
    lines = "\n\n".join(f"Line {n}" for n in range(12))
    text = f"{lines}\n\n```mermaid\npie\n```\n\nAfter\n\n```mermaid\nbroken\n```"
    pages = page_texts(pdf(printed((Role.ASSISTANT, text))))
    assert "".join(pages).count("Inside") == 1
    assert "pie" not in "".join(pages)
    assert "".join(pages).endswith("Afterbroken")


def test_a_file_is_written_outside_the_main_thread(qtbot: QtBot, tmp_path: Path) -> None:
    import threading

    path, failed = tmp_path / "chat.pdf", []

    def write() -> None:
        try:
            write_pdf(path, chat_of((Role.ASSISTANT, "Formula $\\frac{1}{2}$ 中文 $\\text{中}$")), Scope())
        except Exception as error:  # noqa: BLE001 - the main thread asserts on it
            failed.append(error)

    worker = threading.Thread(target=write)
    worker.start()
    qtbot.waitUntil(lambda: not worker.is_alive(), timeout=20_000)
    assert failed == []
    assert path.read_bytes().startswith(b"%PDF")
    assert list(tmp_path.iterdir()) == [path]
    width, height = pypdfium2.PdfDocument(path)[0].get_size()
    assert (round(width), round(height)) in {
        tuple(QPageSize(size).sizePoints().toTuple()) for size in (QPageSize.PageSizeId.A4, QPageSize.PageSizeId.Letter)
    }
