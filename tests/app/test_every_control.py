"""Every page, dialog and menu: each control has a name, a key that leads to it, words that are read whole, contrast.

A new page, dialog or menu joins by one line in PLACES: its name, and how it is opened in the room; what is given back
is the widget that holds it. `test_everything_is_named_and_within_reach_of_the_keyboard` fails until the line is there.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import control_walk as walk
import pytest
from control_room import ANSWER, NARROW, STATS, Room
from patient_bot import PatientBot
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QMenu, QWidget
from pytestqt.qtbot import QtBot
from support.repetitions import slow, some_daily

import app.ui
from app.chat.answers.inspection import Inspection
from app.chat.exports.outline import Scope, outline
from app.chat.imports.chat_import import ImportSummary
from app.chat.projects.project import Project
from app.chat.side_by_side import ModelChoice
from app.chat.store.conversation import (
    Attachment,
    BinnedChat,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    Source,
    ToolCall,
    Unsent,
    WholeChat,
)
from app.chat.store.store import Staged
from app.clients.servers import Place
from app.documents.documents import Documents
from app.documents.indexing import FolderState
from app.settings import described
from app.stored_data import Erased, Undeleted
from app.tools.mcp.client import Content
from app.tools.mcp.results import Prompt, Resource
from app.tools.mcp.server_list import Definition, Proposal, ToolServer
from app.tools.propose_note import PROPOSE_NOTE
from app.tools.questions import Field, OpenQuestion, Question
from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer
from app.ui.chat.answer_columns import AnswerColumns
from app.ui.chat.inspector_dialog import InspectorDialog
from app.ui.chat.server_content import ServerContentDialog, ServerQuestionDialog
from app.ui.chat.votes_dialog import VotesDialog, open_votes
from app.ui.composer.documents_button import DocumentsMenu, DocumentsOffer
from app.ui.composer.persona_menu import PersonaMenu
from app.ui.composer.preset_menu import PresetMenu
from app.ui.composer.sampling_popup import SamplingPopup
from app.ui.composer.tools_button import ToolsMenu
from app.ui.documents.documents_dialog import DocumentsDialog
from app.ui.documents.source_dialog import SourceDialog
from app.ui.keyboard.command_palette import CommandPalette
from app.ui.look import diagrams, theme
from app.ui.printing.export_actions import Preview
from app.ui.printing.export_dialog import ExportDialog
from app.ui.printing.printed_chat import prepare
from app.ui.projects.project_dialog import ProjectDialog
from app.ui.projects.text_dialogs import AddNoteDialog
from app.ui.settings.crash_dialog import CrashDialog
from app.ui.settings.erase_dialogs import EraseDialog, ErasingDialog
from app.ui.settings.search_row import SearchRow
from app.ui.settings.self_test_dialog import SelfTestDialog
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.settings.tool_proposal_dialog import ToolProposalDialog
from app.ui.settings.tool_server_dialog import StartsProgramDialog, ToolServerDialog
from app.ui.settings.updates_dialog import UpdatesDialog, UpdateState
from app.ui.sidebar.bin_dialog import BinDialog
from app.ui.sidebar.chat_model import ChatRow, FolderRow
from app.ui.sidebar.import_dialogs import ImportDialog, ProgressDialog, SummaryDialog
from app.ui.transcript.answer_figures import AnswerFigures
from app.ui.transcript.answer_view import AnswerView
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import ConfirmDialog, Menu
from app.ui.widgets.pick_menu import PickMenu
from app.ui.widgets.popover import Popover
from app.user_messages import UserMessage
from engine.evaluation.comparison import Answer, Choice, ComparisonFile
from engine.service.protocol import CountResult

pytestmark = pytest.mark.gui

NO_ROOM = UserMessage(
    "ProSparse 13B does not fit right now", "It needs 13.4 GB and 9.1 GB is free. Close other programs.", "Try again",
    "need 13400000000\nfree 9100000000", "bad", "retry", ("Choose another model", "open-models"),
)  # fmt: skip
Open = Callable[[Room], QWidget]


def _with_a_banner(room: Room) -> QWidget:
    room.page.show_banner(NO_ROOM)
    walk.settle()
    return room.window


def _searching(room: Room) -> QWidget:
    room.window.sidebar.open_search()
    found = room.hearth.controller.search_results
    with room.qtbot.waitSignal(found, check_params_cb=lambda text, _: text == "Chat"):
        QTest.keyClicks(room.window.sidebar.panel.field, "Chat")
    walk.settle()
    return room.window


def _finding(room: Room) -> QWidget:
    room.window.commands.run("find")
    QTest.keyClicks(room.page.find_bar.field, "table")
    room.wait(lambda: "1" in room.page.find_bar.words.text())
    return room.window


def _rail(room: Room) -> QWidget:
    room.window.sidebar.set_collapsed(True)
    walk.come_to_rest(room.window)
    return room.window


def _writing(room: Room) -> QWidget:
    room.new_chat()
    room.send("words 4000 pace 0.02")
    room.wait(room.writing("word3"))
    return room.window


def _hub(room: Room, query: str) -> QWidget:
    room.models()
    page = room.window.pages.models_page
    assert page is not None
    page.search.setText(query)
    QTest.keyClick(page.search, Qt.Key.Key_Return)
    walk.come_to_rest(room.window)  # the fake for the hub answers as soon as it is asked
    return room.window


def _list_menu(room: Room, kind: type) -> QWidget:
    """The menu of the first row of that kind in the list of chats; that of the list where it has none."""
    view = room.window.sidebar.panel.list
    found = next((one for one in view.chats.rows if isinstance(one, kind)), None)
    return room.opened(lambda: view.menu_for(found).popup(view.mapToGlobal(view.rect().center())), QMenu)


def _palette(room: Room, typed: str) -> QWidget:
    room.window.finder.open_palette()
    palette = room.window.finder.palette
    assert palette is not None
    QTest.keyClicks(palette.field, typed)
    QTest.qWait(50)
    return palette


def _new_folder(room: Room) -> QWidget:
    return room.opened(lambda: room.window.sidebar.panel.list.asked.emit("new_folder", room.talk.id))


def _project(room: Room) -> QWidget:
    room.hearth.folders.set_project("Work", Project("Be short.", tools=("calculate",), notes="/notes/of/Work.md"))
    return room.opened(lambda: room.window.sidebar.panel.list.asked.emit("project", "Work"), ProjectDialog)


def _chat_of_project(room: Room) -> QWidget:
    room.hearth.folders.set_project("Work", Project("Be short.", tools=("calculate",), notes="/notes/of/Work.md"))
    room.window.sidebar.panel.list.asked.emit("new_chat_in", "Work")
    room.hearth.controller.choices.set(instructions="Rhyme.")
    walk.settle()
    return room.window


def _add_note(room: Room) -> QWidget:
    _chat_of_project(room)
    return room.opened(lambda: room.page.note_asked.emit("A fact of this chat."), AddNoteDialog)


def _slash(room: Room) -> QWidget:
    room.window.activateWindow()
    room.page.focus_composer()
    room.wait(room.page.composer.field.hasFocus)
    room.type("/")
    walk.settle()
    assert room.page.composer.prompts.is_open
    return room.window


def _proposed_note(room: Room) -> QWidget:
    call = ToolCall("1", PROPOSE_NOTE, {"note": "Mia is a cat."}, CallState.ASKING, scope="/notes/of/Work.md")
    room.page.transcript.show_messages([
        Message(Role.USER, "Note that."), Message(Role.ASSISTANT, "", calls=(call,)),
    ])  # fmt: skip
    walk.settle()
    return room.window


def _model_menu(room: Room) -> QWidget:
    assert room.window.chat_models is not None
    room.window.chat_models.open_menu()
    walk.settle()
    return room.window.chat_models.menu


def _placement(room: Room) -> QWidget:
    assert room.window.chat_models is not None
    room.window.chat_models.open_placement(room.page.composer.model_button)
    QTest.qWait(100)
    return room.window.chat_models.popup


def _toast(room: Room) -> QWidget:
    room.window.show_toast("Chat deleted", lambda: None)
    walk.come_to_rest(room.window)
    return room.window


def _bin(room: Room) -> QWidget:
    chats = [Conversation(title="A chat with a title that is longer than the dialog is wide, and more"), Conversation()]
    return room.opened(BinDialog(room.window, [BinnedChat(chat, time.time()) for chat in chats]).open)


def _waiting(room: Room) -> QWidget:
    notes = Attachment("notes.txt", "words", "text")
    words = "And in the next answer, please compare both in a table, with a column for what each of them costs. " * 3
    room.page.composer.next.show_message(Unsent(words, (notes,)))
    walk.settle()
    return room.window


def _stored(room: Room) -> QWidget:
    dialog = room.opened(lambda: room.window.commands.run("delete_everything"), EraseDialog)
    room.wait(lambda: all(label.words != "–" for label in dialog.sizes.values()))
    walk.settle()  # the last size lengthens a button, which is laid out in the next turn
    return dialog


def _deleting(room: Room) -> QWidget:
    dialog = room.opened(ErasingDialog(10, room.window).open)
    dialog.finish(Erased(5, [Undeleted("/data/settings.json", "Permission denied.")]))
    return dialog


def _after_a_crash(room: Room) -> QWidget:
    lines = ["Fatal Python error: Aborted", "    app/startup/bootstrap.py:1 run"]
    return room.opened(CrashDialog(room.window, lines, has_stacks=True).open)


def _failed_update(room: Room) -> QWidget:
    failure = UserMessage("Couldn't download the update", "The download ended early. Try again.")
    state = UpdateState(True, "tarball", "0.0.1", "found", "9.1", "Faster.", "https://example.org", 10**9, 0, failure)
    return room.opened(UpdatesDialog(room.window, state).open, UpdatesDialog)


def _of_models(room: Room, act: str) -> QWidget:
    room.models()
    return room.opened(getattr(room.window.pages.model_actions, act), QMenu if act.endswith("menu") else QDialog)


def _row_menu(room: Room) -> QWidget:
    room.models()
    acts = room.window.pages.model_actions
    assert acts is not None
    row = acts.controller.row("PowerInfer/b")
    assert row is not None
    return room.opened(lambda: acts.menu_for(row).popup(room.window.geometry().center()), QMenu)


def _filter_menu(room: Room) -> QWidget:
    room.models()
    assert room.window.pages.models_page is not None
    return room.opened(room.window.pages.models_page.filters.sort.open_menu, QMenu)


def _live(room: Room) -> QWidget:
    room.window.show_live()
    return room.window


def _attached(room: Room) -> QWidget:
    from app.chat.attachments.draft_attachments import Attached, Measure

    report = Attachment("Quartalsbericht der Wärmeversorgung.pdf", "word " * 900, "pdf", 84)
    items = [
        Attached("1", report.name, report, Measure(51_230, 2_816, 900)),
        Attached("2", "notes.txt", Attachment("notes.txt", "words", "text"), Measure(412, 0, 0)),
        Attached("3", "still being read.txt"),
    ]
    draft = room.page.composer.draft
    draft._items = {item.id: item for item in items}
    draft.changed.emit()
    walk.settle()
    return room.window


def _attachment(room: Room) -> QWidget:
    _attached(room)
    return room.opened(lambda: room.page.composer._open_attached("1"))


def _context(room: Room) -> QWidget:
    room.page.composer.set_count(CountResult(1_290, 4_096, 3_072, True, 12, 2))
    room.window.chat_context._open_popup()
    walk.settle()
    return room.window.chat_context.popup


def _answer(room: Room) -> Any:
    """The last answer that is in view."""
    return next(view for view in reversed(room.page.transcript.views) if isinstance(view, AnswerView))


def _popover(room: Room, kind: type[Popover], act: Callable[[], object]) -> QWidget:
    act()
    walk.settle()
    return next(found for found in room.window.findChildren(kind) if found.is_open)


def _inspected(room: Room) -> QWidget:
    top = [[n, 0.4 - 0.05 * n] for n in range(8)]
    known = {"us": 1500, "run": 1, "bytes": 5_000_000, "fired": [1, 4, 2], "computed": 10, "on_gpu": 4}
    rows = [{"id": 1, "p": 0.35, "top": top, **known, "experts": [[1, 5], None, [0, 2]], "missed": [1, 2, 0]}] * 60
    texts = {str(n): f"Donaudampf{n}\n" if n == 1 else f" {n}" for n in range(8)}
    dialog = InspectorDialog(room.window)
    dialog.show_record(Inspection([1, 2, 3], rows, texts, 8, "A model of mine with a name that has no end"))
    return room.opened(dialog.open, InspectorDialog)


def _not_inspected(room: Room) -> QWidget:
    answer = (room.hearth.memory.messages(room.talk.id) or [])[-1]
    dialog = room.opened(lambda: room.window.chat_context.inspector.open(answer.id), InspectorDialog)
    room.wait(lambda: not dialog.empty.isHidden())
    return dialog


def _repair(room: Room) -> QWidget:
    room.models()
    acts = room.window.pages.model_actions
    assert acts is not None
    return room.opened(lambda: acts._show_verified("PowerInfer/b", ["model-00001-of-00002.gguf"]))


def _asked(room: Room, act: str) -> QWidget:
    """What a command of the menus around answers opens."""
    menus = room.window.answer_menus
    assert menus is not None
    kinds = {"presets": PresetMenu, "personas": PersonaMenu, "sampling": SamplingPopup}
    if act in kinds:
        return _popover(room, kinds[act], menus.commands[act])
    return room.opened(menus.commands[act])


def _side_by_side(room: Room) -> QWidget:
    """Answers side by side: one in the chat, one that failed, one that is written, one that comes next."""
    figures = {**STATS, "model": "A model of mine with a name that has no end"}
    failed = {"model": "Bamboo DPO 7B", "failure": "Couldn't load Bamboo DPO 7B. There is no file of that name."}
    answers = [
        Message(Role.ASSISTANT, ANSWER, stats=figures), Message(Role.ASSISTANT, ANSWER, stats=STATS),
        Message(Role.ASSISTANT, "", state=MessageState.FAILED, stats=failed),
        Message(Role.ASSISTANT, "A be", state=MessageState.WRITING, stats={"model": "Pip", "mode": "dense"}),
    ]  # fmt: skip
    columns = AnswerColumns()
    columns.show_answers("Show me everything that you can. " * 20, answers, [ModelChoice("Pip")], answers[0].id, False)
    room.page.show_over(columns)
    walk.settle()
    return room.window


def _votes(room: Room, choice: Choice | None = None) -> QWidget:
    """A pair of answers, or the results once it has a vote."""
    path = room.places.log / f"votes-{choice}.jsonl"
    path.unlink(missing_ok=True)
    file = ComparisonFile(path, create=True)
    for model in ("Bamboo DPO 7B", "a-model-with-a-name-that-has-no-end"):
        file.add_answer(Answer(
            prompt="Show me everything that you can. " * 20, model=model, mode="sparse", seed=0, sampling={},
            name=model, ran="sparse", text=f"{model}\n\n{ANSWER}", finish_reason="stop", tokens=120,
            prompt_tokens=20, ttft_s=0.12, decode_tok_s=39.1, total_s=3.2, active_share=0.1,
        ))  # fmt: skip
    if choice is not None:
        file.add_vote(file.pairs()[0], choice)
    return room.opened(lambda: open_votes(room.window, path), VotesDialog)


def _elsewhere(room: Room) -> QWidget:
    """A chat that is sent to a server, of which the menu knows two models."""
    servers = room.hearth.servers
    entered = servers.add("Das Rechenzentrum im Keller", "http://192.168.1.20:8000/v1", "", ["gpt-oss-120b", "small"])
    servers.choose(Place(entered, "gpt-oss-120b"))
    walk.settle()
    return room.window


def _elsewhere_menu(room: Room) -> QWidget:
    _elsewhere(room)
    return _model_menu(room)


def _servers(room: Room) -> QWidget:
    _elsewhere(room)
    room.models()
    page = room.window.pages.models_page
    assert page is not None
    page.area.ensureWidgetVisible(page.servers)
    walk.settle()
    return room.window


def _server_dialog(room: Room) -> QWidget:
    _elsewhere(room)
    acts = room.window.server_actions
    assert acts is not None
    return room.opened(lambda: acts.edit(acts.servers.book.servers[0].id))


def _tools(room: Room) -> QWidget:
    """The menu of tools: some built in, one of a server."""
    tools = [Tool(name, title, "What it does", {}) for name, title in (("web_search", "Web search"), ("clock", "Time"))]
    tools.append(Tool("create", "create_an_issue_in_the_tracker_of_the_team", "", {}, source="Das Ticketsystem"))
    composer = room.page.composer
    composer.set_tools(ToolOffer(tuple(tools), frozenset({"clock", "create"}), 1_420, True))
    walk.settle()
    return _popover(room, ToolsMenu, composer.tools_button.open_menu)


def _calls(room: Room) -> QWidget:
    """Calls in every state, two of which ask."""
    room.new_chat()
    states = [*CallState, CallState.ASKING]
    calls = tuple(
        ToolCall(str(n), "read_page", {"url": "https://docs.example.org", "depth": n}, state, source="Files" * (n % 2),
                 scope="accounts.docs.example.org", result="A page", seconds=1.2)
        for n, state in enumerate(states)
    )  # fmt: skip
    messages = [Message(Role.USER, "Read it"), Message(Role.ASSISTANT, "I will.", calls=calls)]
    room.page.show_conversation(Conversation(title="Calls", folder="Work"), messages)
    view = room.page.transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.calls is not None
    view.calls.views[2].head.click()
    walk.come_to_rest(room.window)
    return room.window


def _with_documents(room: Room) -> list[FolderState]:
    """Folders of documents in every state."""
    states = [
        FolderState("/home/ann/Verträge und Rechnungen der letzten zwanzig Jahre", 412, 3),
        FolderState("/home/ann/papers", 30, 0, 382), FolderState("/media/drive/scans", is_there=False),
        FolderState("/srv/everything", 50_000, 0, 0, has_more=True),
    ]  # fmt: skip
    room.page.composer.documents_button.show_offer(DocumentsOffer(tuple(states), frozenset({"/home/ann/papers"})))
    return states


def _documents_menu(room: Room, server: str = "") -> QWidget:
    states = tuple(_with_documents(room)) if server else ()
    button = room.page.composer.documents_button
    button.show_offer(DocumentsOffer(states, frozenset(), server=server))
    return _popover(room, DocumentsMenu, button.open_menu)


class _Folders(Documents):
    """Folders that are in no file, and are not read."""

    given: list[FolderState]
    states = property(lambda self: self.given)  # type: ignore[assignment]
    is_idle = property(lambda self: False)  # type: ignore[assignment]

    def failures(self, folder: str) -> list[tuple[str, str]]:
        why = (
            "Couldn't read it: its pages are images without text, as in a scan. Run text recognition (OCR) on it first."
        )
        return [(f"{folder}/Steuern/Bescheid-{n}.pdf", why) for n in range(3)]


def _documents(room: Room) -> QWidget:
    folders = _Folders(None, None, lambda name, save: None)
    folders.given = _with_documents(room)
    dialog = DocumentsDialog(room.window, folders)
    dialog.finished.connect(folders.close)
    room.opened(dialog.open, DocumentsDialog)
    dialog.lines[folders.given[0].path].failed.click()
    walk.settle()
    return dialog


def _source(
    number: int, name: str, part: int = 1, label: str = "", text: str = "The rent is paid each month. " * 40
) -> Attachment:
    place = Source(number, f"/home/ann/papers/{name}", part, 12, label)
    return Attachment(name, text, "document", source=place)


def _with_sources(room: Room) -> QWidget:
    """An answer that cites some of its sources; the others are unfolded."""
    room.new_chat()
    names = ["contract.pdf", "Abrechnung der Heizkosten und des Wassers 2024.xlsx", "talk.pptx", "a.md", "book.epub"]
    found = [_source(n, name, n) for n, name in enumerate(names, start=1)] + [_source(6, "b.txt", 0)]
    messages = [
        Message(Role.USER, "How high is it?", attachments=tuple(found)),
        Message(Role.ASSISTANT, "So [2] [1, 6]."),
    ]
    room.page.show_conversation(Conversation(title="Sources"), messages)
    view = room.page.transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view._source_row is not None
    view._source_row.more.click()
    walk.settle()
    return room.window


def _source_dialog(room: Room) -> QWidget:
    source = _source(1, "contract.pdf", 3)
    dialog = room.opened(lambda: SourceDialog(room.window, source, lambda path: False).open(), SourceDialog)
    dialog.views.show()
    dialog.open_file.show()
    dialog.open_folder.show()
    dialog.fit()
    walk.settle()
    return dialog


def _importing(room: Room) -> QWidget:
    dialog = room.opened(lambda: ProgressDialog(room.window).open(), ProgressDialog)
    dialog.show_progress(0.4, 12_345)
    walk.settle()
    return dialog


IMPORTED = ImportSummary(
    [Conversation(title="Tea", folder="ChatGPT")], Staged(chats=1, messages=2_345, here=12, binned=1), ("ChatGPT",),
    {"damaged": 2}, {"picture": 3}, 1,
)  # fmt: skip
MCP_SERVER = ToolServer(
    "Files", "stdio", command="/usr/bin/npx", args=("-y", "files"), variables={"KEY": "1"},
    approved=(Definition("read", "Read", "Reads a file.", {"type": "object"}),),
)  # fmt: skip


def _known_tool_server(room: Room) -> QWidget:
    controller = room.hearth.tools.controller
    known = next(iter(controller.servers.servers), None) or controller.put(MCP_SERVER)
    assert isinstance(known, ToolServer)
    dialog = room.opened(lambda: ToolServerDialog(room.window, controller, known).open(), ToolServerDialog)
    dialog.rows[0].fold.click()
    walk.settle()
    return dialog


ASKED = Question("Rooms", "For which city, and with which key?", {
    "required": ["city"],
    "properties": {
        "city": {"type": "string", "title": "The city that you travel to, or another one near it that has a station"},
        "people": {"type": "integer", "minimum": 1}, "key": {"type": "string", "description": "From your profile"},
        "room": {"type": "string", "enum": ["one bed", "two beds", "a room with a view of the mountains"]},
        "quiet": {"type": "boolean", "description": "Away from the street"},
        "meals": {"type": "array", "items": {"type": "string", "enum": ["breakfast", "dinner"]}},
    },
})  # fmt: skip


def _asked_by_server(room: Room) -> QWidget:
    call = ToolCall("1", "rooms_find", {}, CallState.RUNNING, source="Rooms")
    transcript = room.page.transcript
    transcript.show_messages([Message(Role.USER, "A room?"), Message(Role.ASSISTANT, "", calls=(call,))])
    transcript.set_tool_questions({"1": ASKED})
    walk.settle()
    return room.window


class _Offering:
    """In place of the controller of servers: one that has listed what it offers."""

    def list_content(self, server_id: str, then: Callable[[Content], None]) -> threading.Event:
        prompt = Prompt("plan", "Plan a journey", "Plans.", (Field("city", "City", is_required=True), Field("x", "x")))
        then(Content((prompt, Prompt("greet")), (Resource("trips://1", "A journey of last year", "Lima, two weeks"),)))
        return threading.Event()


def _server_content(room: Room, picks: int | None = None) -> QWidget:
    controller: Any = _Offering()
    dialog = room.opened(
        lambda: ServerContentDialog(room.window, controller, MCP_SERVER, room.page.composer).open(),
        ServerContentDialog,
    )
    if picks is not None:
        dialog.rows[picks].click()
    walk.settle()
    return dialog


def _tool_settings(room: Room) -> QWidget:
    dialog = room.opened(room.window.open_settings, SettingsDialog)
    dialog.settings = replace(dialog.settings, search_has_key=True)
    dialog.add_tools()
    row = dialog.rows["search_service"]
    assert isinstance(row, SearchRow)
    row.segments.buttons["brave"].click()
    dialog.reveal("search_service")
    walk.settle()
    return dialog


def _diagrams(room: Room) -> QWidget:
    source = 'pie title Pets\n "Dogs" : 3\n "Cats" : 1'
    code = f"```mermaid\n{source}\n```\n\n```mermaid\nnothing\n```\n\n```html\n<p>Hello\n```"
    room.new_chat()
    room.page.add_message(Message(Role.ASSISTANT, code))
    room.wait(lambda: all(diagrams.current().known(one) for one in (source, "nothing")))
    walk.settle()
    return room.window


def _preview(room: Room) -> QWidget:
    chat = WholeChat(Conversation(title="Printed"), (Message(Role.USER, "Hello"),))
    prepared = prepare(outline(chat, Scope()))
    return room.opened(lambda: Preview(prepared, room.window).open(), Preview)


PLACES: dict[str, Open] = {
    "a message with attachments": _attached,
    "an attachment's text": _attachment,
    "menu: the context": _context,
    "a chat": lambda room: room.window,
    "a new chat": lambda room: room.new_chat(),
    "an answer being written": _writing,
    "a chat with a banner": _with_a_banner,
    "a toast": _toast,
    "a search in the sidebar": _searching,
    "a text found in a chat": _finding,
    "the rail": _rail,
    "models": lambda room: room.models(),
    "models: hits on the hub": lambda room: _hub(room, "relu"),
    "models: a repository": lambda room: _hub(room, "o/name"),
    "live": lambda room: _live(room),
    "settings": lambda room: room.opened(room.window.open_settings),
    "what is stored": _stored,
    "deleting what is stored": _deleting,
    "after a crash": _after_a_crash,
    "this PC is tested": lambda room: room.opened(
        SelfTestDialog(room.window, [sys.executable, "-c", "print('ok')"]).open, SelfTestDialog
    ),
    "updates": lambda room: room.opened(lambda: room.window.commands.run("updates")),
    "an update that failed": _failed_update,
    "about": lambda room: room.opened(room.window.open_about),
    "a model's details": lambda room: room.act("PowerInfer/b", "details"),
    "a model is prepared": lambda room: room.act("PowerInfer/b", "prepare"),
    "a model is repaired": lambda room: _repair(room),
    "what would fit": lambda room: room.act("relullama-70b", "fits"),
    "a model is deleted": lambda room: room.act("PowerInfer/b", "delete"),
    "a model is added": lambda room: (
        room.models(),
        room.opened(lambda: room.window.pages.model_actions.ask_import("/m/a.gguf")),  # type: ignore[union-attr]
    )[1],
    "an access token": lambda room: _of_models(room, "ask_token"),
    "a link is opened": lambda room: room.opened(lambda: room.page._ask_to_open("https://example.com/a/page")),
    "menu: models for this chat": _model_menu,
    "menu: how it runs here": _placement,
    "menu: the chat's title": lambda room: room.opened(room.page._open_menu, QMenu),
    "menu: a chat in the list": lambda room: _list_menu(room, ChatRow),
    "menu: a folder in the list": lambda room: _list_menu(room, FolderRow),
    "menu: all chats": lambda room: _list_menu(room, type(None)),
    "a chat is printed or exported": lambda room: room.opened(
        lambda: room.window.commands.run("print_chat"), ExportDialog
    ),
    "the preview of a print": _preview,
    "diagrams and pages in an answer": _diagrams,
    "the bin": lambda room: _bin(room),
    "a message that waits": lambda room: _waiting(room),
    "menu: to a folder": lambda room: room.opened(lambda: room.window.commands.run("move_chat"), QMenu),
    "the palette": lambda room: _palette(room, ""),
    "the palette, something typed": lambda room: _palette(room, "chat"),
    "shortcuts": lambda room: room.opened(lambda: room.window.commands.run("shortcuts")),
    "a new folder": _new_folder,
    "a new project": lambda room: room.opened(lambda: room.window.commands.run("new_project")),
    "settings of a project": _project,
    "instructions for a chat": lambda room: room.opened(lambda: room.window.commands.run("chat_instructions")),
    "a note is added": _add_note,
    "a chat of a project": _chat_of_project,
    "prompts behind a slash": _slash,
    "a note is proposed": _proposed_note,
    "menu: a model": _row_menu,
    "menu: order of models": _filter_menu,
    "menu: add a model": lambda room: _of_models(room, "_import_menu"),
    "menu: more of models": lambda room: _of_models(room, "_more_menu"),
    "menu: an answer": lambda room: room.opened(lambda: _answer(room).make_menu().popup(room.window.pos()), QMenu),
    "tokens of an answer": _inspected,
    "tokens of an answer, none recorded": _not_inspected,
    "figures of an answer": lambda room: _popover(room, AnswerFigures, _answer(room).show_figures),
    "menu: presets": lambda room: _asked(room, "presets"),
    "menu: personas": lambda room: _asked(room, "personas"),
    "how words are chosen": lambda room: _asked(room, "sampling"),
    "a comparison": lambda room: _asked(room, "compare"),
    "models to compare": lambda room: _asked(room, "compare_models"),
    "answers side by side": _side_by_side,
    "blind votes": _votes,
    "results of blind votes": lambda room: _votes(room, "left"),
    "personas": lambda room: _asked(room, "edit_personas"),
    "presets": lambda room: _asked(room, "edit_presets"),
    "prompts": lambda room: _asked(room, "edit_prompts"),
    "a crash is told": lambda room: room.opened(
        lambda: CrashDialog(room.window, ["a line of the log"] * 40, True).open()
    ),
    "a chat sent elsewhere": _elsewhere,
    "menu: models, some elsewhere": _elsewhere_menu,
    "models: servers elsewhere": _servers,
    "a server elsewhere": _server_dialog,
    "tools of a chat": _tools,
    "calls of tools": _calls,
    "settings of tools": _tool_settings,
    "an MCP server": lambda room: room.opened(
        lambda: ToolServerDialog(room.window, room.hearth.tools.controller).open(), ToolServerDialog
    ),
    "an MCP server that is known": _known_tool_server,
    "a question of a server at a call": _asked_by_server,
    "a question of a server": lambda room: room.opened(
        lambda: ServerQuestionDialog(room.window, OpenQuestion(ASKED)).open(), ServerQuestionDialog
    ),
    "what a server offers": _server_content,
    "arguments of a prompt": lambda room: _server_content(room, 0),
    "a program is to be started": lambda room: room.opened(
        lambda: StartsProgramDialog(room.window, MCP_SERVER, lambda: None).open(), StartsProgramDialog
    ),
    "menu: the documents": _documents_menu,
    "menu: documents of a chat that is sent": lambda room: _documents_menu(room, "Das Rechenzentrum"),
    "where chats can come from": lambda room: room.opened(lambda: ImportDialog(room.window).open(), ImportDialog),
    "an import": _importing,
    "what an import did": lambda room: room.opened(lambda: SummaryDialog(room.window, IMPORTED).open(), SummaryDialog),
    "folders of documents": _documents,
    "folders of documents, none": lambda room: room.opened(lambda: room.window.commands.run("documents")),
    "an answer with sources": _with_sources,
    "a source": _source_dialog,
    "MCP servers of a file": lambda room: room.opened(
        lambda: ToolProposalDialog(
            room.window, room.hearth.tools.controller, Proposal((MCP_SERVER,), (("Old", "It is old."),)), "mcp.json"
        ).open(),
        ToolProposalDialog,
    ),
}


def some_places(*turns: int) -> pytest.MarkDecorator:
    """Of six places in turn these every day, the others with `-m slow`. Cut words are looked for everywhere every day:
    in a small window or at the largest type."""
    daily = [place for i, place in enumerate(PLACES) if i % 6 in turns]
    return pytest.mark.parametrize("place", some_daily(PLACES, daily))


@pytest.fixture(scope="module")
def shared_room(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    room = Room(PatientBot(request), tmp_path_factory.mktemp("room"))
    yield room
    room.reset()
    room.leave()
    room.window.deleteLater()


@pytest.fixture(autouse=True)
def look_as_before() -> None:
    """The next test of this module sets the size of the type. A change takes the window 0.1 s and more."""


def used(room: Room, app: QApplication, zoom: float) -> Iterator[Room]:
    if theme.current().zoom != zoom:
        theme.apply(app, "light", zoom)
    room.reset()
    yield room
    if room.hearth.controller.status.answering:
        room.hearth.controller.stop()
        room.wait_ready()
    if theme.current().tokens is not theme.LIGHT:
        theme.apply(app, "light", zoom)


@pytest.fixture
def room(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield from used(shared_room, qapp, 1.0)


@pytest.fixture
def room_of_large_type(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield from used(shared_room, qapp, theme.MAX_ZOOM)


def faults(*found: list[str]) -> None:
    """Fails with every fault on a line of its own."""
    lines = sorted({line for rule in found for line in rule})
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_everything_is_named_and_within_reach_of_the_keyboard(room: Room) -> None:
    """In every place; and each kind of dialog and popover is in one of them."""
    for module in pkgutil.walk_packages(app.ui.__path__, "app.ui."):
        importlib.import_module(module.name)
    shown: set[type] = set()
    found: list[str] = []
    for place, show in PLACES.items():
        room.reset()
        root = show(room)
        shown |= set(type(root).__mro__)
        rules = walk.without_a_name(root), walk.out_of_reach(root), walk.too_small(root)
        found += [f"{place}: {fault}" for rule in rules for fault in rule]
        if room.hearth.controller.status.answering:
            room.hearth.controller.stop()
            room.wait_ready()
    faults(found)
    built_on = {Dialog, ConfirmDialog, Menu, PickMenu}  # others are made of these
    missing = [kind.__name__ for kind in _ours(QDialog, Popover) - shown - built_on]
    assert missing == [], "one line each in PLACES, please"


@some_places(1, 2, 4, 5)
def test_no_word_is_cut_in_a_small_window(room: Room, place: str) -> None:
    room.window.resize(*NARROW)
    walk.settle()
    root = PLACES[place](room)
    faults(walk.cut(root))
    if not isinstance(root, QMenu):
        with walk.lengthened(root):
            faults(walk.cut(root))


@some_places(0, 3)
def test_no_word_is_cut_at_the_largest_type(room_of_large_type: Room, place: str) -> None:
    room = room_of_large_type
    room.window.resize(*NARROW)
    walk.come_to_rest(room.window)  # the larger type is taken up in slices
    root = PLACES[place](room)
    walk.come_to_rest(root)
    faults(walk.cut(root))


@some_places(2)
def test_every_word_has_contrast(room: Room, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """In both themes and with a desktop that asks for more contrast, also where the theme changes while it is open."""
    theme.apply(qapp, "dark", 1.0)
    root = PLACES[place](room)
    found = [f"dark: {fault}" for fault in walk.illegible(root)]
    theme.apply(qapp, "light", 1.0)
    found += [f"light: {fault}" for fault in walk.illegible(root)]
    monkeypatch.setattr(theme, "LIGHT", theme.with_more_contrast(theme.LIGHT))
    theme.apply(qapp, "light", 1.0)
    faults(found, [f"strong: {fault}" for fault in walk.illegible(root)])


def _ours(*bases: type) -> set[type]:
    found: set[type] = set()
    for base in bases:
        for kind in base.__subclasses__():
            found |= _ours(kind) | ({kind} if kind.__module__.startswith("app.") else set())
    return found


def test_the_walk_finds_what_is_wrong(qtbot: QtBot) -> None:
    """A rule that finds nothing in a bad window is no rule."""
    from PySide6.QtWidgets import QFrame, QLineEdit, QVBoxLayout

    from app.ui.widgets.controls import Button, IconButton, Label

    class Painted(QFrame):
        def paintEvent(self, event: object) -> None:
            pass

        def mousePressEvent(self, event: object) -> None:
            pass

    Painted.__module__ = "app.ui.bad"
    frame = QFrame()
    qtbot.addWidget(frame)
    column = QVBoxLayout(frame)
    nameless, unreachable, tight, pale = QLineEdit(), IconButton("stop", "Stop"), Label("Some words"), Label("Pale")
    unreachable.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    tight.setFixedWidth(20)
    pale.set_look("body", "edge")
    narrow = Button("Read me")
    narrow.setFixedSize(30, 12)
    for widget in (nameless, unreachable, tight, pale, narrow, Painted()):
        column.addWidget(widget)
    frame.show()
    walk.settle()
    assert "QLineEdit '' at" in walk.without_a_name(frame)[0]
    assert any("painted and says nothing" in fault for fault in walk.without_a_name(frame))
    reach = walk.out_of_reach(frame)
    assert any("IconButton 'Stop'" in fault for fault in reach)
    assert any("Painted" in fault and "mouse alone" in fault for fault in reach)
    assert len(walk.cut(frame)) >= 2
    assert any("'Pale'" in fault for fault in walk.illegible(frame))
    assert any("Read me" in fault for fault in walk.too_small(frame))


@pytest.mark.skipif("QT_SCALE_FACTOR" in os.environ, reason="this is the run at another scale")
@pytest.mark.parametrize(
    ("scale", "places"),
    [
        pytest.param("2", list(PLACES)[2::12], id="2"),
        slow("2", list(PLACES), id="2-everywhere"),
        slow("1.5", list(PLACES), id="1.5-everywhere"),
    ],
)
def test_no_word_is_cut_on_a_finer_screen(tmp_path: Path, scale: str, places: list[str]) -> None:
    """The same walk in a process of its own: Qt reads the scale once. The screen has the room of 1280 x 832."""
    screen = {"name": "fine", "x": 0, "y": 0, "width": int(1280 * float(scale)), "height": int(832 * float(scale))}
    config = tmp_path / "screens.json"
    config.write_text(json.dumps({"screens": [{**screen, "logicalDpi": 96, "logicalBaseDpi": 96, "dpr": 1.0}]}))
    finer = {"QT_SCALE_FACTOR": scale, "QT_QPA_PLATFORM": f"offscreen:configfile={config}"}
    tests = [f"{__file__}::{test_no_word_is_cut_in_a_small_window.__name__}[{place}]" for place in places]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *tests]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env={**os.environ, **finer}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(places)} passed" in done.stdout


# ------------------------------------------------------------------ the palette

# What menus and pages call an act, and the command that the palette has for it.
IN_THE_PALETTE = {
    "All models": "models", "How it runs here": "placement", "Unload": "unload", "Unload Fake": "unload",
    "Copy chat as Markdown": "copy_chat", "Delete": "delete_chat", "Rename": "rename_chat", "Pin": "pin_chat",
    "Unpin": "pin_chat", "Export as Markdown": "export_markdown", "Export as JSON": "export_json",
    "Print or export": "print_chat",
    "Export all as JSON": "export_all", "Export all as Markdown": "export_all_markdown",
    "Import chats": "import_chats", "Bin": "bin", "New folder": "move_chat", "A GGUF file": "add_model_file",
    "A model folder": "add_model_folder", "A server": "add_server", "Add a server": "add_server",
    "Access token": "access_token", "Move the models folder": "move_models", "Refresh": "refresh_models",
    "Answer again": "answer_again", "Answer again with another model": "answer_other_model",
    "Copy": "copy_answer", "Inspect tokens": "inspect_answer", "Adjust sampling": "sampling",
    "Compare models": "compare_models", "Versions side by side": "side_by_side",
    "Compare with dense": "compare", "Compare": "compare", "Edit presets": "edit_presets", "Presets": "edit_presets",
    "Edit personas": "edit_personas", "Personas": "edit_personas", "System prompt and persona": "personas",
    "About Hearth": "about", "Add…": "add_tool_server",
    "Privacy": "privacy", "Open": "data_folder", "Move…": "move_models",
    "Delete everything…": "delete_everything", "Save a report": "report",
    "Show the log": "log", "Updates": "updates", "Test this PC": "self_test",
    "New chat": "new_chat",
    "Models": "models", "Live": "live", "Settings": "settings",
    "Search": "search_chats", "Hearth": "about", "Light": "theme_light", "Dark": "theme_dark",
    "System": "theme_system", "Auto": "presets", "Sparse": "presets", "Exact": "presets", "Dense": "presets",
    "Documents": "documents", "Manage documents…": "documents", "Add a folder…": "documents",
    "Drop oldest": "context", "Change its size": "context", "Keep the beginning": "context", "Stop": "context",
    "Summarise": "context", "New project…": "new_project", "Project settings…": "project_settings",
    "New chat here": "new_chat_here", "Instructions for this chat…": "chat_instructions", "Prompts": "edit_prompts",
}  # fmt: skip
# Acts on one of many things, asked at its row; and what only opens or narrows what is shown there.
AT_ITS_PLACE = {
    "Remove folder, keep chats", "Delete folder and chats",
    "Details", "Load", "Open its folder", "Open its page", "Copy the repository id",
    "Prepare for this PC", "Figures of this answer", "Why?", "Renew", "Advanced", "Add", "Recommended", "Name", "Size",
    "Speed here", "All", "Chat", "Download", "Family: any", "Fits the GPU", "Fits this PC", "On this PC", "Research",
    "Size: any", "Sort: recommended", "What would fit?", "Remove key", "Take over from a file…",
}  # fmt: skip
# Places whose rows are the things themselves (folders, personas), and values of settings, which the palette lists.
THINGS = {"Notizen und Zusammenfassungen", "Work", "Balanced", "Creative", "Precise", "Concise", "Copy editor",
          "No persona", "Patient teacher", "Programmer"}  # fmt: skip


def _acts_of(shown: QWidget) -> set[str]:
    """What can be pressed there, in its words."""
    if isinstance(shown, QMenu):
        return {re.sub(r"\t.*", "", a.text()) for a in shown.actions() if a.text() and a.menu() is None}
    return {b.text().replace("&&", "&") for b in shown.findChildren(QAbstractButton) if b.isVisible() and b.text()}


def test_every_act_of_a_menu_or_a_page_is_in_the_palette(room: Room) -> None:
    missing: dict[str, set[str]] = {}
    values = {words for setting in described() for _, words in setting.choices}
    for place in PLACES:
        if place.startswith("menu") or place in ("models", "models: servers elsewhere", "live", "settings"):
            acts = _acts_of(PLACES[place](room)) - IN_THE_PALETTE.keys() - AT_ITS_PLACE - THINGS
            missing |= {place: acts - values} if acts - values else {}
            room.reset()
    assert missing == {}, "give it a command in app/shortcuts.py, or say here where else it is reached"
    window = room.window
    assert {act for act in IN_THE_PALETTE.values() if not window.commands.knows(act)} == set()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("add", {"Add a model file", "Add a model folder", "Add a server"}),
        ("token", {"Access token"}),
        ("move models", {"Move the models folder"}),
        ("local server", {"Local server"}),
        ("system prompt", {"System prompt and persona"}),
        ("privacy", {"Privacy"}),
        ("pdf", {"Attach files", "Documents"}),
        ("find", {"Find in this chat", "Next match", "Search all chats"}),
        ("export", {"Export all chats as JSON"}),
        ("import", {"Import chats"}),
    ],
)
def test_the_palette_finds_acts_by_the_words_that_people_type(room: Room, typed: str, wanted: set[str]) -> None:
    palette = _palette(room, typed)
    assert isinstance(palette, CommandPalette)
    assert wanted <= {row.words for row in palette.entries.rows if not isinstance(row, str)}


def test_acts_of_the_models_page_run_from_the_palette(room: Room) -> None:
    dialog = room.opened(lambda: room.window.commands.run("access_token"))
    assert dialog.isVisible()
    assert room.window.pages.currentWidget() is room.window.pages.models_page
    room.reset()
    assert room.opened(lambda: room.window.commands.run("add_server")).isVisible()
    room.reset()
    dialog = room.opened(lambda: room.window.commands.run("local_server"))
    assert isinstance(dialog, SettingsDialog)
    assert dialog.rows["serve"].isAncestorOf(dialog.focusWidget() or dialog)
