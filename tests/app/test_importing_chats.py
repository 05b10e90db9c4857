"""Importing chats of another program in the window: the choice, the progress, the summary, and the ways back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from person import Arrive, Person
from PySide6.QtCore import QMimeData, QPointF, QStandardPaths, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QFileDialog
from support.shown_text import numbers_in

from app.ui.sidebar.import_dialogs import ImportDialog, ProgressDialog, SummaryDialog

pytestmark = pytest.mark.gui

AT = 1_600_000_000.0


def export_of(path: Path, n: int, text: str = "") -> Path:
    """An export of ChatGPT with so many chats of a question and an answer."""

    def node(key: str, parent: str | None, role: str, said: str) -> dict[str, Any]:
        content = {"content_type": "multimodal_text", "parts": [said, {"content_type": "image_asset_pointer"}]}
        return {
            "id": key,
            "parent": parent,
            "children": [],
            "message": {
                "author": {"role": role},
                "create_time": AT,
                "content": content,
                "metadata": {"model_slug": "gpt-4o"},
            },
        }

    chats = [
        {"id": f"c{i}", "title": f"Chat {i}", "create_time": AT, "update_time": AT + i, "current_node": "a",
         "mapping": {"q": node("q", None, "user", f"{i} {text}"), "a": node("a", "q", "assistant", "yes")}}
        for i in range(n)
    ]  # fmt: skip
    path.write_text(json.dumps(chats))
    return path


def dialog_of(person: Person, kind: type) -> Any:
    person.wait(lambda: isinstance(QApplication.activeModalWidget(), kind))
    return QApplication.activeModalWidget()


def choose(person: Person, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(path)], ""))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(path))
    person.window.commands.run("import_chats")
    dialog = dialog_of(person, ImportDialog)
    (dialog.folder_button if path.is_dir() else dialog.file_button).click()


def test_the_file_dialog_starts_in_a_folder_that_exists(
    arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(QStandardPaths, "writableLocation", lambda _: str(tmp_path / "Downloads"))
    person = arrive()
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *given: (started.append(Path(given[2])), ([], ""))[1])
    person.window.commands.run("import_chats")
    dialog_of(person, ImportDialog).file_button.click()
    assert started == [Path.home()]


def test_chats_of_another_program_arrive_and_go_again(
    arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = arrive()
    person.wait_ready()
    choose(person, monkeypatch, export_of(tmp_path / "conversations.json", 3))
    summary = dialog_of(person, SummaryDialog)
    assert numbers_in(summary.heading.text()) == ["3"]
    values = dict(summary.rows)
    assert [numbers_in(value) for value in values.values()] == [["6"], [], ["6"]]
    memory = person.hearth.memory
    assert {chat.folder for chat in memory.conversations()} == {"ChatGPT"}
    summary.reject()
    chat = memory.conversations()[0]
    person.hearth.controller.open(chat.id)
    person.wait(lambda: memory.messages(chat.id))
    person.wait(lambda: person.hearth.controller.open_conversation == chat.id)
    choose(person, monkeypatch, tmp_path)
    again = dialog_of(person, SummaryDialog)
    assert [numbers_in(value) for _, value in again.rows][:1] == [["3"]]
    assert not again.undo_button.isVisible()
    again.reject()
    monkeypatch.undo()
    choose(person, monkeypatch, export_of(tmp_path / "more.json", 4))
    dialog_of(person, SummaryDialog).undo_button.click()
    person.wait(lambda: len(memory.conversations()) == 3)


def test_an_import_shows_its_progress_and_can_be_cancelled(
    arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = arrive()
    person.wait_ready()
    export = export_of(tmp_path / "conversations.json", 40, "word " * 300_000)
    choose(person, monkeypatch, export)
    progress = dialog_of(person, ProgressDialog)
    person.wait(lambda: progress.bar.done > 0)
    progress.cancel_button.click()
    toasts: list[str] = []
    person.hearth.folders.toast.connect(lambda words, undo: toasts.append(words))
    person.wait(lambda: not person.hearth.folders.imports.is_running)
    assert len(toasts) == 1
    assert not person.hearth.memory.conversations()
    assert QApplication.activeModalWidget() is None


def test_an_import_in_the_background_ends_with_a_note_that_undoes_it(
    arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = arrive()
    person.wait_ready()
    toasts: list[tuple[str, Any]] = []
    person.hearth.folders.toast.connect(lambda words, undo: toasts.append((words, undo)))
    choose(person, monkeypatch, export_of(tmp_path / "conversations.json", 20, "word " * 100_000))
    dialog_of(person, ProgressDialog).reject()
    assert QApplication.activeModalWidget() is None
    person.wait(lambda: toasts)
    words, undo = toasts[0]
    assert numbers_in(words) == ["20"]
    undo()
    assert not person.hearth.memory.conversations()


def test_closing_the_window_ends_an_import(arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    choose(person, monkeypatch, export_of(tmp_path / "conversations.json", 40, "word " * 300_000))
    progress = dialog_of(person, ProgressDialog)
    person.wait(lambda: progress.bar.done > 0)
    person.leave()
    after = arrive()
    after.wait_ready()
    assert not after.hearth.memory.conversations()


def test_files_dropped_on_the_list_are_imported(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    view = person.window.sidebar.panel.list
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(export_of(tmp_path / "conversations.json", 2)))])
    at, copy, left = QPointF(5, 5), Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    enter = QDragEnterEvent(at.toPoint(), copy, data, left, Qt.KeyboardModifier.NoModifier)
    view.dragEnterEvent(enter)
    assert enter.isAccepted()
    view.dropEvent(QDropEvent(at, copy, data, left, Qt.KeyboardModifier.NoModifier))
    dialog_of(person, SummaryDialog).reject()
    assert len(person.hearth.memory.conversations()) == 2


def test_an_imported_chat_keeps_its_instructions(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    chat = {"name": "x", "messages": [{"versions": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}],
            "systemPrompt": "Be kind."}  # fmt: skip
    path = tmp_path / "1.conversation.json"
    path.write_text(json.dumps(chat))
    person.hearth.folders.import_chats(path)
    dialog_of(person, SummaryDialog).reject()
    imported = person.hearth.memory.conversations()[0]
    assert person.hearth.controller.settings_for(imported).system_prompt.endswith("Be kind.")
