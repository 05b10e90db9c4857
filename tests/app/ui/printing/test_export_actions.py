"""Printing and exporting from the window: from the dialog to a file, of a chat and of one message."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pypdfium2
import pytest
from PySide6.QtCore import QTimer
from PySide6.QtPrintSupport import QPrinter, QPrintPreviewWidget
from PySide6.QtWidgets import QDialog, QFileDialog, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import ChatMemory
from app.chat.exports.outline import Scope, outline
from app.chat.store.conversation import Conversation, Message, Role, WholeChat
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.settings import AppSettings
from app.ui.printing import export_actions
from app.ui.printing.export_actions import ExportActions, StepsDialog
from app.ui.printing.export_dialog import ExportDialog
from app.ui.printing.printed_chat import LAYOUT_SHARE, Prepared, PrintedChat, prepare
from app.ui.widgets.controls import Label

pytestmark = pytest.mark.gui

ASKED = Message(Role.USER, "Ask about herons")
FIRST = Message(Role.ASSISTANT, "<think>Hidden idea</think>Herons **wade**", parent=ASKED.id)
SECOND = Message(Role.ASSISTANT, "Herons fly", parent=ASKED.id)


def page_texts(path: Path) -> list[str]:
    """The text of each page without spaces, of which Qt's PDF files have others."""
    return ["".join(page.get_textpage().get_text_bounded().split()) for page in pypdfium2.PdfDocument(path)]


class Room:
    """A chat in a store, and the actions of a window."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.saves, self.reads = Operations(retry_s=0.01), Operations()
        self.memory = ChatMemory(lambda: Store.rescue(folder / "chats.db"), self.saves, self.reads)
        self.folders = ChatFolders(self.memory, AnswerPolicy(AppSettings()))
        self.problems: list[str] = []
        self.folders.problem.connect(lambda kind, _: self.problems.append(kind))
        with qtbot.waitSignal(self.memory.opened):
            self.memory.open()
        self.chat = Conversation(title="Herons", leaf=FIRST.id)
        self.memory.add(self.chat)
        for message in (ASKED, FIRST, SECOND):
            self.memory.append(self.chat.id, message)
        self.window = QWidget()
        qtbot.addWidget(self.window)
        self.window.resize(800, 600)
        self.actions = ExportActions(self.window, self.folders, folder)

    def end(self) -> None:
        self.memory.end()
        assert self.saves.close() == self.reads.close() == []
        self.memory.close()


@pytest.fixture
def room(qtbot: QtBot, tmp_path: Path) -> Iterator[Room]:
    made = Room(qtbot, tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize(("form", "ending"), [("web", "html"), ("pdf", "pdf")])
def test_the_dialog_leads_to_a_file(
    room: Room, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, ending: str
) -> None:
    offered: list[str] = []

    def save(parent: object, title: str, path: str, kind: str) -> tuple[str, str]:
        offered.append(Path(path).name)
        return str(tmp_path / "out"), kind

    monkeypatch.setattr(QFileDialog, "getSaveFileName", save)
    dialog = room.actions.ask(room.chat, "print")
    dialog.form.buttons[form].click()
    assert dialog.preview.isVisible() == (form == "pdf")
    dialog.thoughts.click()
    dialog.branches.click()
    dialog.confirm.click()
    path = tmp_path / f"out.{ending}"
    qtbot.waitUntil(path.is_file)
    assert offered == [f"Herons.{ending}"]
    text = "".join(path.read_text("utf-8").split() if form == "web" else page_texts(path))
    assert all(words.replace(" ", "") in text for words in ("Ask about herons", "Hidden idea", "Herons fly"))
    assert "wade" in text


def test_one_message_goes_alone_without_a_choice_of_versions(room: Room, qtbot: QtBot, tmp_path: Path) -> None:
    dialog = room.actions.ask(room.chat, "web", SECOND.id)
    assert not dialog.branches.isVisible()
    assert dialog.scope == Scope(message_id=SECOND.id)
    dialog.reject()
    room.actions.write(tmp_path / "one.html", room.chat.id, "web", Scope(message_id=SECOND.id))
    qtbot.waitUntil((tmp_path / "one.html").is_file)
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert "Herons fly" in text
    assert "Ask about herons" not in text


def test_a_file_that_cannot_be_written_is_a_problem(room: Room, qtbot: QtBot, tmp_path: Path) -> None:
    room.actions.write(tmp_path / "missing" / "x.pdf", room.chat.id, "pdf", Scope())
    qtbot.waitUntil(lambda: room.problems == ["export"])


def test_a_preview_shows_the_pages_and_leads_to_print(
    room: Room, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Prepared] = []
    monkeypatch.setattr(room.actions, "_print", printed.append)
    dialog = room.actions.ask(room.chat, "print")
    assert isinstance(dialog, ExportDialog)
    dialog.preview.click()

    def preview() -> QWidget | None:
        return next((one for one in room.window.findChildren(QWidget) if type(one).__name__ == "Preview"), None)

    qtbot.waitUntil(lambda: preview() is not None)
    shown = preview()
    assert shown is not None
    shown.accept()  # type: ignore[attr-defined]
    assert [one.title for one in printed] == ["Herons"]
    dialog.reject()


def long_chat() -> PrintedChat:
    made = [Message(Role.ASSISTANT, f"Message {number}\n\n" + "Words of it. " * 80) for number in range(60)]
    linked = [replace(one, parent=made[n - 1].id if n else "") for n, one in enumerate(made)]
    return PrintedChat(prepare(outline(WholeChat(Conversation(title="Long"), tuple(linked)), Scope())))


def pdf_printer(path: Path) -> QPrinter:
    printer = QPrinter(QPrinter.PrinterMode.HighResolution)
    printer.setOutputFormat(QPrinter.OutputFormat.PdfFormat)
    printer.setOutputFileName(str(path))
    return printer


def test_a_long_chat_is_printed_between_the_events_of_the_window(room: Room, qtbot: QtBot, tmp_path: Path) -> None:
    chat, printer, ticks = long_chat(), pdf_printer(tmp_path / "long.pdf"), list[int]()
    beat = QTimer(interval=0)
    beat.timeout.connect(lambda: ticks.append(1))
    beat.start()
    work = StepsDialog(room.window, "Printing", chat.paint_steps(printer))
    with qtbot.waitSignal(work.accepted, timeout=20_000):
        work.begin()
    assert len(ticks) > 3
    text = "".join(page_texts(tmp_path / "long.pdf"))
    assert all(f"Message{number}Words" in text for number in range(60))


@pytest.mark.parametrize("paints", [False, True])
def test_a_printing_is_cancelled_until_the_first_page(room: Room, qtbot: QtBot, tmp_path: Path, paints: bool) -> None:
    chat, printer = long_chat(), pdf_printer(tmp_path / "long.pdf")
    done, ended, looked = [0.0], list[int](), list[bool]()
    enough = LAYOUT_SHARE if paints else 0

    def steps() -> Generator[float, None, object]:
        for share in chat.paint_steps(printer):
            done.append(share)
            yield share
            while share > enough and not looked:
                yield share

    work = StepsDialog(room.window, "Printing", steps(), LAYOUT_SHARE)
    work.finished.connect(ended.append)
    work.begin()
    qtbot.waitUntil(lambda: done[-1] > enough)
    assert work.cancel.isEnabled() is not paints
    work.reject()
    looked.append(True)
    qtbot.waitUntil(lambda: bool(ended))
    assert ended == [QDialog.DialogCode.Accepted if paints else QDialog.DialogCode.Rejected]
    assert (tmp_path / "long.pdf").exists() is paints


def test_a_preview_of_a_long_chat_has_its_first_pages(
    qtbot: QtBot, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_actions, "MOST_PREVIEWED", 3)
    chat, printer = long_chat(), QPrinter(QPrinter.PrinterMode.HighResolution)
    list(chat.lay_out_for(printer))
    preview = export_actions.Preview(chat, printer, room.window)
    pages = preview.findChild(QPrintPreviewWidget)
    preview.open()
    qtbot.waitUntil(lambda: pages.pageCount() == 3)  # type: ignore[union-attr]
    assert [numbers_in(label.words) for label in preview.findChildren(Label)] == [["3", str(chat.n_pages)]]
    preview.reject()


def test_a_range_of_pages_is_printed(qtbot: QtBot, tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number}" for number in range(200))
    chat = WholeChat(Conversation(title="Long"), (Message(Role.ASSISTANT, text),))
    printer = pdf_printer(tmp_path / "range.pdf")
    assert PrintedChat(prepare(outline(chat, Scope()))).paint(printer, 2, 3)
    pages = page_texts(tmp_path / "range.pdf")
    assert len(pages) == 2
    assert "Page2of6" in pages[0]
