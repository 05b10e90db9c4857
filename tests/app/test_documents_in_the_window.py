"""Documents in the real window: a folder is named and switched on, a question is asked, and a source is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pdf_files import pdf_with
from person import Arrive, Person
from PySide6.QtCore import QMimeData, QPoint, QPointF, QRect, Qt, QUrl
from PySide6.QtGui import QColor, QDesktopServices, QDropEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog
from support.systems import MAKES_LINKS, needs_links

from app.chat.store.conversation import Attachment, Message, Role, Source
from app.settings import AppSettings
from app.ui.composer.documents_button import DocumentsMenu
from app.ui.composer.file_drop import FileDrop
from app.ui.documents.documents_dialog import DocumentsDialog
from app.ui.documents.source_dialog import SourceDialog
from app.ui.look import theme
from app.ui.transcript.answer_sources import AnswerSources
from app.ui.transcript.answer_view import AnswerView
from app.ui.widgets.floating import ConfirmDialog, Toast

pytestmark = pytest.mark.gui

ROOT = Path(__file__).parents[2]
FILLER = "\n\n".join(f"Paragraph {n} tells of the weather in the valley, where it rains often." for n in range(40))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, which together are too long to go along whole, and a PDF."""
    place = tmp_path / "Contracts"
    place.mkdir()
    (place / "lease.md").write_text(f"{FILLER}\n\nThe deposit is three monthly rents.\n\n{FILLER}", encoding="utf-8")
    (place / "plan.pdf").write_bytes(pdf_with(["The boiler room is below the kitchen.", "The garage has two doors."]))
    return place


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the system was asked to open."""
    urls: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: urls.append(str(Path(url.toLocalFile()))) or True)
    return urls


def menu_of(person: Person) -> DocumentsMenu:
    """The open menu of documents."""
    button = person.page.composer.documents_button
    if not button.menu_of_documents.is_open:
        click(person, button)
    person.wait(lambda: button.menu_of_documents.is_open)
    return button.menu_of_documents


def click(person: Person, widget: Any) -> None:
    assert widget.isVisible()
    person.qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


def dialog_of(person: Person, kind: type) -> Any:
    """The open dialog of a kind."""
    person.wait(lambda: any(isinstance(one, kind) and one.isVisible() for one in QApplication.topLevelWidgets()))
    return next(one for one in QApplication.topLevelWidgets() if isinstance(one, kind) and one.isVisible())


def add(person: Person, folder: Path) -> None:
    """Add a folder by the menu's row and the file dialog, and wait until it was read."""
    click(person, menu_of(person).add)
    files = dialog_of(person, QFileDialog)
    files.filesSelected.emit([str(folder)])
    files.close()
    person.wait(lambda: person.hearth.tools.documents.is_idle)


def on_in_chat(person: Person) -> list[str]:
    return list(person.hearth.setup.chosen.documents)


def answer_of(person: Person) -> AnswerView:
    view = person.page.transcript.views[-1]
    assert isinstance(view, AnswerView)
    return view


def row_of(person: Person) -> AnswerSources:
    person.wait(lambda: answer_of(person)._source_row is not None)
    row = answer_of(person)._source_row
    assert row is not None
    return row


@pytest.fixture
def person(arrive: Arrive) -> Iterator[Person]:
    person = arrive("in-thread", settings=AppSettings(context=2048))
    person.wait_ready()
    yield person
    for one in QApplication.topLevelWidgets():
        if isinstance(one, SourceDialog | DocumentsDialog) and one.isVisible():
            one.close()


def test_a_folder_added_in_a_chat_is_searched_for_its_questions(person: Person, folder: Path) -> None:
    add(person, folder)
    assert on_in_chat(person) == [str(folder)]
    assert person.page.composer.documents_button.text() == "1"
    row = menu_of(person).rows()[0]
    assert (row.key, row.toggle.isChecked()) == (str(folder), True)
    person.wait(lambda: row.line.words.startswith("2 "))
    menu_of(person).dismiss()
    person.ask("How high is the deposit?")
    question, answer = person.shown
    found = [one.source for one in question.attachments if one.source is not None]
    assert str(folder / "lease.md") in {one.path for one in found}
    assert "three monthly rents" in answer.text
    row_of(person)
    own = person.page.transcript.views[0]
    assert own._attached is None, "the question shows no tiles of what was found"  # type: ignore[attr-defined]
    click(person, menu_of(person).rows()[0].toggle)
    menu_of(person).dismiss()
    assert on_in_chat(person) == []
    person.ask("And how high is the rent?")
    assert person.shown[2].attachments == ()
    person.hearth.controller.new_chat()
    assert on_in_chat(person) == [], "a new chat uses no documents"


def test_a_cited_number_opens_the_place_in_the_document(person: Person, folder: Path) -> None:
    (folder / "bottles.txt").write_text("The deposit for a bottle is 25 cents.", encoding="utf-8")
    add(person, folder)
    person.ask("How high is the deposit?")
    row = row_of(person)
    cited = [button.accessibleName() for button in row.buttons]
    assert cited, "the answer repeats [1]"
    assert cited[0].startswith("[1] ")
    assert not row.is_open
    click(person, row.more)
    assert len(row.buttons) == len(person.shown[0].attachments)
    lease = next(one for one in person.shown[0].attachments if one.name == "lease.md")
    answer_of(person)._parts.source_asked.emit(lease.source.number)  # type: ignore[union-attr]
    dialog = dialog_of(person, SourceDialog)
    person.wait(lambda: not dialog.is_looking)
    assert dialog.text.passage.strip() == lease.text.strip()
    assert dialog.text._excerpt.first_line > 0, "a text file has line numbers"
    assert dialog.text.verticalScrollBar().value() > 0, "it is scrolled to the passage"
    assert dialog.note.isHidden()
    click(person, dialog.copy)
    assert QGuiApplication.clipboard().text() == lease.text


def test_the_link_of_a_number_is_followed_with_the_keyboard(person: Person, folder: Path) -> None:
    add(person, folder)
    person.ask("How high is the deposit?")
    part = answer_of(person).parts()[0]
    assert 'href="#source-1"' in part._html  # type: ignore[union-attr]
    part.setFocus()
    person.qtbot.keyClick(part, Qt.Key.Key_Tab)
    person.qtbot.keyClick(part, Qt.Key.Key_Return)
    dialog = dialog_of(person, SourceDialog)
    person.qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    person.wait(lambda: not dialog.isVisible())


def test_a_page_of_a_pdf_is_shown_with_the_passage_marked(person: Person, folder: Path, opened: list[str]) -> None:
    person.hearth.tools.documents.add(folder)
    path = folder / "plan.pdf"
    place = Source(1, str(path), 2, 1, "page 2")
    source = Attachment("plan.pdf", "The garage has two doors.", "document", source=place)
    person.page.transcript.source_asked.emit(source)
    dialog = dialog_of(person, SourceDialog)
    person.wait(lambda: not dialog.is_looking)
    assert dialog.stack.currentWidget() is dialog.area
    marks = dialog.page.marks()
    assert len(marks) == 1
    assert 0.05 < marks[0].center().y() / dialog.page.height() < 0.15, "the line is near the top of the page"
    click(person, dialog.views.buttons["text"])
    assert dialog.text.toPlainText() == source.text
    click(person, dialog.open_file)
    click(person, dialog.open_folder)
    assert opened == [str(path), str(folder)]


def test_a_file_that_changed_or_is_gone_is_told_of(person: Person, folder: Path) -> None:
    person.hearth.tools.documents.add(folder)
    path = folder / "lease.md"
    source = Attachment("lease.md", "The deposit is three", "document", source=Source(1, str(path), 1, 80, "line 80"))
    path.write_text("Something else", encoding="utf-8")
    person.page.transcript.source_asked.emit(source)
    dialog = dialog_of(person, SourceDialog)
    person.wait(lambda: not dialog.is_looking and dialog.note.isVisible())
    assert dialog.text.toPlainText() == source.text
    dialog.close()
    path.unlink()
    person.wait(lambda: not path.exists())  # older Windows deletes it when its reader closes it
    person.page.transcript.source_asked.emit(source)
    dialog = dialog_of(person, SourceDialog)
    person.wait(lambda: not dialog.is_looking and dialog.note.isVisible())
    assert dialog.text.toPlainText() == source.text
    assert not dialog.open_file.isVisible()


@pytest.mark.parametrize("way", ["elsewhere", "above", pytest.param("link", marks=needs_links)])
def test_no_file_outside_the_folders_is_read(person: Person, folder: Path, way: str, opened: list[str]) -> None:
    person.hearth.tools.documents.add(folder)
    secret = folder.parent / "secret.txt"
    secret.write_text("before The secret after", encoding="utf-8")
    if MAKES_LINKS:
        (folder / "link").symlink_to(folder.parent)
    path = {
        "elsewhere": str(secret), "above": f"{folder}/../secret.txt", "link": str(folder / "link" / "secret.txt")
    }[way]  # fmt: skip
    source = Attachment("secret.txt", "The secret", "document", source=Source(1, path, 1, 1, "line 1"))
    person.page.transcript.source_asked.emit(source)
    dialog = dialog_of(person, SourceDialog)
    assert dialog._operations is None, "nothing is read"
    assert dialog.text.toPlainText() == "The secret"
    assert dialog.note.isVisible()
    assert dialog.open_file.isHidden()
    assert dialog.open_folder.isHidden()
    dialog._open(path)
    assert opened == []


def test_a_script_is_shown_and_not_run(person: Person, folder: Path) -> None:
    script = folder / "clean.bat"
    script.write_text("rem hello\ndel *.*\n", encoding="utf-8")
    person.hearth.tools.documents.add(folder)
    source = Attachment("clean.bat", "del *.*", "document", source=Source(1, str(script), 1, 2, "line 2"))
    person.page.transcript.source_asked.emit(source)
    dialog = dialog_of(person, SourceDialog)
    person.wait(lambda: not dialog.is_looking)
    assert dialog.text.passage == "del *.*"
    assert dialog.open_file.isHidden()
    assert dialog.open_folder.isVisible()


def test_folders_are_managed_in_the_dialog(person: Person, folder: Path, opened: list[str]) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing more")
    person.window.commands.run("documents")
    dialog = dialog_of(person, DocumentsDialog)
    assert dialog.empty.isVisible()
    assert not dialog.pause.isVisible()
    click(person, dialog.add)
    files = dialog_of(person, QFileDialog)
    files.filesSelected.emit([str(folder)])
    files.close()
    documents = person.hearth.tools.documents
    person.wait(lambda: documents.is_idle and dialog.lines[str(folder)].failed.isVisible())
    assert on_in_chat(person) == [], "the dialog names a folder and switches nothing on"
    line = dialog.lines[str(folder)]
    person.wait(lambda: line.state.words.startswith("2 "))  # what was read last may still stand there
    click(person, line.failed)
    assert "broken.pdf" in {label.words for label in line._list.findChildren(type(line.name))}
    click(person, line.open)
    assert opened == [str(folder)]
    click(person, line.remove)
    assert documents.folders == ()
    assert dialog.empty.isVisible()
    toast = dialog.findChild(Toast)
    click(person, toast.button)
    assert documents.folders == (str(folder),)


def test_reading_is_paused_and_goes_on(person: Person, folder: Path) -> None:
    documents = person.hearth.tools.documents
    documents.pause(True)
    documents.add(folder)
    person.window.commands.run("documents")
    dialog = dialog_of(person, DocumentsDialog)
    person.wait(lambda: documents.states[0].n_waiting == 2)
    person.wait(lambda: dialog.lines[str(folder)].progress.isVisible())
    assert documents.states[0].n_files == 0
    click(person, dialog.pause)
    person.wait(lambda: documents.states[0].n_files == 2 and not dialog.lines[str(folder)].progress.isVisible())
    assert not documents.is_paused


@pytest.mark.parametrize("accepts", [True, False])
def test_a_dropped_folder_is_offered_as_documents(person: Person, folder: Path, accepts: bool) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(folder))])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    drop = QDropEvent(QPointF(50, 300), copy, data, left, Qt.KeyboardModifier.NoModifier)
    assert person.page.findChild(FileDrop).eventFilter(person.page, drop)
    dialog = dialog_of(person, ConfirmDialog)
    assert person.page.composer.draft.items == []
    click(person, dialog.danger if accepts else dialog.safe)
    assert on_in_chat(person) == ([str(folder)] if accepts else [])
    assert person.hearth.tools.documents.folders == ((str(folder),) if accepts else ())


def test_the_menu_works_with_the_keyboard_alone(person: Person, folder: Path) -> None:
    person.hearth.tools.documents.add(folder)
    button = person.page.composer.documents_button
    person.wait(lambda: button._offer.folders)
    button.setFocus()
    person.qtbot.keyClick(button, Qt.Key.Key_Return)
    person.wait(lambda: button.menu_of_documents.is_open)
    toggle = button.menu_of_documents.rows()[0].toggle
    assert person.window.focusWidget() is toggle
    person.qtbot.keyClick(toggle, Qt.Key.Key_Return)
    assert on_in_chat(person) == [str(folder)]
    person.qtbot.keyClick(toggle, Qt.Key.Key_Down)
    assert person.window.focusWidget() is button.menu_of_documents.add
    person.qtbot.keyClick(button.menu_of_documents, Qt.Key.Key_Escape)
    assert not button.menu_of_documents.is_open


def test_whole_documents_and_sources_of_earlier_questions_are_named(person: Person) -> None:
    def found(number: int, part: int) -> Attachment:
        return Attachment(f"{number}.pdf", "Text", "document", source=Source(number, f"/d/{number}.pdf", part, 1))

    first = Message(Role.USER, "One?", attachments=(found(1, 0), found(2, 0), Attachment("own.txt", "Mine", "text")))
    answers = [Message(Role.ASSISTANT, text) for text in ("See [2], not `[1]` or [3].", "As in [3] and [1]. [2]")]
    second = Message(Role.USER, "Two?", attachments=(found(3, 7), found(4, 8)))
    person.page.show_conversation(None, [first, answers[0], second, answers[1]])
    views = [view for view in person.page.transcript.views if isinstance(view, AnswerView)]
    rows = [view._source_row for view in views]
    assert all(row is not None for row in rows)
    names = [[button.accessibleName()[:9] for button in row.buttons] for row in rows if row is not None]
    assert names == [["[2] 2.pdf"], ["[3] 3.pdf", "[1] 1.pdf", "[2] 2.pdf"]]
    assert [row.whole.isVisible() for row in rows if row is not None] == [True, False]
    assert [row.more.text()[:1] for row in rows if row is not None] == ["1", "1"]
    assert "#source-3" not in "".join(part._html for part in views[0].parts()), "it came later"  # type: ignore[union-attr]
    person.page.show_conversation(None, [first, Message(Role.ASSISTANT, "No number.")])
    row = answer_of(person)._source_row
    assert row is not None
    assert (row.more.text()[:1], "more" in row.more.text()) == ("2", False), "none is shown besides"
    person.page.show_conversation(None, [Message(Role.USER, "One?"), answers[0]])
    assert answer_of(person)._source_row is None
    assert "#source" not in "".join(part._html for part in answer_of(person).parts())  # type: ignore[union-attr]


ANSWER = """The deposit is **three monthly rents** [1]. You can pay it in three parts [1, 2].

- The landlord keeps it in an account of its own [1].
- You get it back within six months [3].
"""


def test_an_answer_with_its_sources_in_light_and_dark(person: Person, tmp_path: Path) -> None:
    """Pictures go to tests/output, and the light one to docs if HEARTH_UPDATE_SCREENSHOTS=1 is set."""
    folders = [tmp_path / name for name in ("Contracts", "Manuals of the house")]
    for one in folders:
        one.mkdir()
        (one / "a.txt").write_text("A text", encoding="utf-8")
        person.hearth.tools.documents.add(one)
    person.hearth.setup.pick_documents([str(folders[0])])
    person.wait(lambda: all(one.n_files for one in person.page.composer.documents_button._offer.folders))
    places = [("lease.pdf", 3), ("lease.pdf", 4), ("letter.pdf", 1), ("costs.pdf", 2)]
    found = tuple(
        Attachment(name, "Text", "document", source=Source(n, f"/d/{name}", part, 1, f"page {part}"))
        for n, (name, part) in enumerate(places, start=1)
    )
    asked = Message(Role.USER, "How high is the deposit of my flat, and when do I get it back?", attachments=found)
    person.page.show_conversation(None, [asked, Message(Role.ASSISTANT, ANSWER)])
    person.page.set_title("The deposit")
    person.window.resize(1120, 620)
    click(person, row_of(person).more)
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    choices: tuple[theme.Choice, ...] = ("dark", "light")
    for choice in choices:
        theme.apply(app, choice, 1.0)
        menu_of(person)
        person.qtbot.wait(60)
        assert [button.isVisible() for button in row_of(person).buttons] == [True] * 4
        image = person.window.grab().toImage()
        assert image.pixelColor(4, 500) == QColor(theme.current().tokens.side)
        places_for = [ROOT / "tests" / "output" / f"documents-{choice}.png"]
        if choice == "light" and os.environ.get("HEARTH_UPDATE_SCREENSHOTS") == "1":
            places_for.append(ROOT / "docs" / "screenshots" / "documents.png")
        corner = person.page.mapTo(person.window, QPoint(0, 0))
        for place in places_for:
            place.parent.mkdir(exist_ok=True)
            assert image.copy(QRect(corner, person.page.size())).save(str(place))
