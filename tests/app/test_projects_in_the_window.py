"""Projects in the real window: settings in the dialog, inherited by chats, notes added with the mouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_library import FakeLibrary, installed
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.projects.project import Project
from app.chat.store.conversation import CallState
from app.clients.servers import Server
from app.settings import AppSettings
from app.tools.propose_note import PROPOSE_NOTE
from app.ui.look import theme
from app.ui.projects.project_dialog import ProjectDialog
from app.ui.projects.text_dialogs import AddNoteDialog, InstructionsDialog
from app.ui.sidebar.chat_model import ChatRow, FolderRow
from app.ui.sidebar.folder_dialog import FolderDialog
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.own_message import OwnMessage
from app.ui.widgets.floating import ConfirmDialog

pytestmark = pytest.mark.gui

ROOT = Path(__file__).parents[2]


def opened(person: Person, kind: type[Any]) -> Any:
    person.wait(lambda: isinstance(QApplication.activeModalWidget(), kind))
    return QApplication.activeModalWidget()


def click(widget: QWidget) -> None:
    assert widget.isVisible()
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton)


def menu_act(menu: Any, words: str) -> None:
    next(action for action in menu.actions() if action.text() == words).trigger()
    menu.close()


def of_folder(person: Person, folder: str, words: str) -> None:
    """Choose an entry of a folder's menu."""
    chats = person.window.sidebar.panel.list
    row = next(row for row in chats.chats.rows if isinstance(row, FolderRow) and row.name == folder)
    menu_act(chats.menu_for(row), words)


def new_project(person: Person, name: str) -> ProjectDialog:
    person.window.commands.run("new_project")
    dialog = opened(person, FolderDialog)
    QTest.keyClicks(dialog.field, name)
    click(dialog.confirm)
    found = opened(person, ProjectDialog)
    assert isinstance(found, ProjectDialog)
    return found


def rows_of(person: Person) -> list[str]:
    rows = person.window.sidebar.panel.list.chats.rows
    return [
        row.name if isinstance(row, FolderRow) else row.title for row in rows if isinstance(row, FolderRow | ChatRow)
    ]


def system_of(person: Person) -> str:
    """The instructions that the next message would be sent with."""
    sent = person.hearth.controller.next_request("x").messages
    return str(sent[0]["content"]) if sent[0]["role"] == "system" else ""


def line_of(person: Person) -> str:
    button = person.page.composer.inherited.project
    return button.text() if button.isVisible() else ""


def take_pictures(person: Person, name: str, root: QWidget | None = None) -> None:
    """Pictures in light and dark, to tests/output."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    choices: tuple[theme.Choice, ...] = ("light", "dark")
    for choice in choices:
        theme.apply(app, choice, 1.0)
        person.page.transcript.flush()
        person.qtbot.wait(60)
        folder = ROOT / "tests" / "output"
        folder.mkdir(exist_ok=True)
        assert (root or person.window).grab().save(str(folder / f"{name}-{choice}.png"))
    theme.apply(app, "light", 1.0)


def test_a_project_is_made_and_its_chats_inherit_it(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    dialog = new_project(person, "Thesis")
    QTest.keyClicks(dialog.instructions, "Be short.")
    click(dialog.sets_tools)
    click(next(row.toggle for row in dialog.tools if row.tool.name == "calculate"))
    click(dialog.has_notes)
    take_pictures(person, "project-settings", dialog)
    click(dialog.keep)
    person.wait(lambda: rows_of(person) == ["Thesis"])
    assert person.window.sidebar.panel.list.isVisible(), "a project without a chat is listed"
    notes = person.places.projects_folder / "Thesis" / "Notes.md"
    assert notes.read_bytes() == b""
    notes.write_text("- The cat is called Mia\n", encoding="utf-8")
    of_folder(person, "Thesis", "New chat here")
    person.wait(lambda: "Thesis" in line_of(person))
    assert system_of(person).startswith("Be short.")
    assert "Mia" in system_of(person)
    answer = person.ask("Hello")
    take_pictures(person, "project-chat")
    chat = person.hearth.controller.open_conversation
    assert chat is not None
    assert person.hearth.memory.conversation(chat).folder == "Thesis"  # type: ignore[union-attr]
    assert person.hearth.memory.conversation(chat).choices == {}  # type: ignore[union-attr]
    assert person.hearth.setup.tool_offer.on == {"calculate"}
    assert answer.text
    assert rows_of(person)[0] == "Thesis"
    person.hearth.controller.new_chat()
    assert line_of(person) == ""
    assert system_of(person) == ""


def test_the_settings_are_there_after_a_restart_and_open_from_the_line(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    dialog = new_project(person, "Thesis")
    QTest.keyClicks(dialog.instructions, "Be short.")
    click(dialog.keep)
    of_folder(person, "Thesis", "New chat here")
    person.ask("Hello")
    chat = person.hearth.controller.open_conversation
    person.saved()
    person.leave()
    again = arrive("in-thread", settings=AppSettings(last_conversation=chat or ""))
    again.wait_ready()
    again.wait(lambda: "Thesis" in line_of(again))
    click(again.page.composer.inherited.project)
    dialog = opened(again, ProjectDialog)
    assert dialog.instructions.toPlainText() == "Be short."
    dialog.reject()


def test_a_chat_moves_out_and_in_by_its_menu_and_inherits_accordingly(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.hearth.folders.set_project("Thesis", Project("Be short."))
    of_folder(person, "Thesis", "New chat here")
    person.ask("Hello")
    chat = person.hearth.controller.open_conversation or ""
    place = person.window.sidebar.panel.list.placed
    place.emit(chat, False, "")
    assert system_of(person) == ""
    assert line_of(person) == ""
    place.emit(chat, False, "Thesis")
    assert system_of(person) == "Be short."
    assert not isinstance(QApplication.activeModalWidget(), ConfirmDialog), "nothing is sent elsewhere"


def test_renaming_keeps_the_settings_and_removing_can_be_undone(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    projects = person.hearth.folders.projects
    person.hearth.folders.set_project("Thesis", Project("Be short."))
    of_folder(person, "Thesis", "New chat here")
    person.ask("Hello")
    person.window.sidebar.panel.list.folder_renamed.emit("Thesis", "Paper")
    assert (projects.of("Thesis"), projects.of("Paper")) == (None, Project("Be short."))
    assert "Paper" in line_of(person)
    undone: list[Any] = []
    person.hearth.folders.toast.connect(lambda words, undo: undone.append(undo))
    of_folder(person, "Paper", "Remove folder, keep chats")
    assert projects.folders == []
    assert line_of(person) == ""
    undone[-1]()
    assert projects.of("Paper") == Project("Be short.")
    assert system_of(person) == "Be short."


def test_a_message_is_added_to_the_notes_from_its_menu(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    notes = tmp_path / "mine.md"
    notes.write_bytes(b"# Mine\r\n")
    person.hearth.folders.set_project("Thesis", Project(notes=str(notes)))
    of_folder(person, "Thesis", "New chat here")
    person.ask("Hello")
    person.page.transcript.flush()
    own, answer = person.page.transcript.views
    assert isinstance(own, OwnMessage)
    assert isinstance(answer, AnswerView)
    menu_act(answer.make_menu(), "Add to notes…")
    dialog = opened(person, AddNoteDialog)
    take_pictures(person, "add-note", dialog)
    dialog.field.setPlainText("")
    assert not dialog.keep.isEnabled()
    QTest.keyClicks(dialog.field, "Mia is a cat")
    notes.write_bytes(b"# Mine, edited\r\n")
    click(dialog.keep)
    assert notes.read_bytes() == b"# Mine, edited\r\n\r\n- Mia is a cat\r\n"
    assert "Mia is a cat" in system_of(person)
    menu_act(own.make_menu(), "Add to notes…")
    dialog = opened(person, AddNoteDialog)
    assert dialog.field.toPlainText() == "Hello"
    dialog.reject()
    person.hearth.folders.set_project("Thesis", Project("x"))
    assert all(action.text() != "Add to notes…" for action in own.make_menu().actions())


def test_notes_that_are_missing_are_told_in_the_line(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.hearth.folders.set_project("Thesis", Project("x", notes=str(tmp_path / "gone.md")))
    of_folder(person, "Thesis", "New chat here")
    assert "gone.md" in line_of(person)
    assert person.page.composer.inherited.project.glyph_token == "warn"


def test_a_proposed_note_is_written_only_after_accept(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    notes = tmp_path / "mine.md"
    notes.write_bytes(b"- one\n")
    person.hearth.folders.set_project("Thesis", Project(notes=str(notes), proposes=True))
    of_folder(person, "Thesis", "New chat here")
    person.send(f'call [["{PROPOSE_NOTE}", {{"note": "Mia is a cat"}}], ["{PROPOSE_NOTE}", {{"note": "No"}}]]')
    person.wait(
        lambda: len(person.shown) == 2 and [one.state for one in person.shown[1].calls] == [CallState.ASKING] * 2
    )
    view = person.page.transcript.views[1]
    assert isinstance(view, AnswerView)
    assert view.calls is not None
    take_pictures(person, "proposed-note")
    first, second = view.calls.views
    assert not first.details.in_chat.isVisible()
    assert not first.details.in_folder.isVisible()
    click(second.details.refuse)
    QTest.qWait(QApplication.doubleClickInterval() + 50)
    assert notes.read_bytes() == b"- one\n"
    click(first.details.once)
    person.wait(lambda: len(person.finished) == 2)
    assert notes.read_bytes() == b"- one\n- Mia is a cat\n"
    assert [one.state for one in person.shown[1].calls] == [CallState.DONE, CallState.REFUSED]
    assert not person.hearth.controller.has_tool_consents


def test_a_new_chat_follows_its_renamed_folder(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.hearth.folders.set_project("Thesis", Project("Be short."))
    of_folder(person, "Thesis", "New chat here")
    person.window.sidebar.panel.list.folder_renamed.emit("Thesis", "Paper")
    assert "Paper" in line_of(person)
    person.ask("Hello")
    assert rows_of(person)[0] == "Paper"
    assert "Thesis" not in rows_of(person)


def test_notes_that_do_not_fit_are_told_in_the_line(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    notes = tmp_path / "long.md"
    notes.write_text("A line of notes.\n" * 200, encoding="utf-8")
    person.hearth.folders.set_project("Thesis", Project("x", notes=str(notes)))
    of_folder(person, "Thesis", "New chat here")
    n_kept = system_of(person).count("A line of notes.")
    assert 0 < n_kept < 200, "the fake's context has 512 tokens"
    assert "3,399" in line_of(person)
    take_pictures(person, "notes-cut")


def test_a_server_of_a_project_is_shown_as_where_its_chats_go(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.hearth.servers.book.put(Server("one", "Elsewhere", "https://example.org/v1", ("big",)))
    dialog = new_project(person, "Thesis")
    assert not dialog.sends.isVisible()
    away = ("", "one", "big")
    dialog.model.chosen.emit(away)
    assert dialog.model.value == away
    assert dialog.sends.isVisible()
    take_pictures(person, "project-server", dialog)
    click(dialog.keep)
    of_folder(person, "Thesis", "New chat here")
    composer = person.page.composer
    person.wait(lambda: "Elsewhere" in composer.destination.words())
    assert "big" in line_of(person)
    take_pictures(person, "project-server-chat")
    click(composer.destination.back)
    person.wait(lambda: not composer.destination.words())
    assert "big" not in line_of(person)
    person.ask("Hello")
    assert "server" not in (person.shown[1].stats or {})


def test_instructions_for_one_chat(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.window.commands.run("chat_instructions")
    dialog = opened(person, InstructionsDialog)
    QTest.keyClicks(dialog.field, "Rhyme.")
    click(dialog.keep)
    assert system_of(person) == "Rhyme."
    button = person.page.composer.inherited.instructions
    assert button.isVisible()
    person.ask("Hello")
    assert system_of(person) == "Rhyme.", "the new chat keeps them"
    click(button)
    dialog = opened(person, InstructionsDialog)
    assert dialog.field.toPlainText() == "Rhyme."
    QTest.keyClick(dialog.field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(dialog.field, Qt.Key.Key_Delete)
    click(dialog.keep)
    assert system_of(person) == ""
    assert not button.isVisible()


def test_chats_of_a_project_are_answered_from_its_documents(arrive: Arrive, tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "lease.txt").write_text("The deposit is 900.")
    person = arrive(location="in-thread")
    person.wait_ready()
    documents = person.hearth.tools.documents
    assert documents.add(papers)
    person.wait(lambda: documents.is_idle)
    dialog = new_project(person, "Flat")
    click(dialog.sets_documents)
    (row,) = dialog.documents
    click(row.toggle)
    click(dialog.keep)
    of_folder(person, "Flat", "New chat here")
    assert person.hearth.setup.chosen.documents == (str(papers),)
    assert "1 folder of documents" in person.page.composer.inherited.project.text()
    person.ask("How high is the deposit?")
    question = person.hearth.memory.branch_of(person.hearth.controller.open_conversation or "") or []
    assert [one.name for one in question[0].attachments] == ["lease.txt"]


def test_an_embedding_model_is_no_choice_for_a_project(arrive: Arrive) -> None:
    library = FakeLibrary()
    library.models += [installed("Answers"), installed("Vectors", kind="embedding")]
    person = arrive("in-thread", library=library)
    person.wait_ready()
    models = person.hearth.models
    models.refresh()
    person.wait(lambda: len([row for row in models.rows if row.installed]) == 3)
    names = [name for _, name in new_project(person, "Thesis")._choices.models]
    assert "Answers" in names
    assert "Vectors" not in names


def test_escape_does_not_discard_a_written_text_without_a_question(arrive: Arrive) -> None:
    person = arrive()
    dialog = new_project(person, "Rome")
    QTest.keyClicks(dialog.instructions, "Answer in rhymes")
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    click(opened(person, ConfirmDialog).safe)
    person.wait(lambda: QApplication.activeModalWidget() is dialog)
    assert dialog.instructions.toPlainText() == "Answer in rhymes"
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    click(opened(person, ConfirmDialog).danger)
    person.wait(lambda: QApplication.activeModalWidget() is None)
    person.window.commands.run("new_project")
    QTest.keyClicks(opened(person, FolderDialog).field, "Empty")
    click(opened(person, FolderDialog).confirm)
    QTest.keyClick(opened(person, ProjectDialog), Qt.Key.Key_Escape)
    person.wait(lambda: QApplication.activeModalWidget() is None)
