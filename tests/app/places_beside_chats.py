"""Places of models, settings, servers, documents and imports, for walks: each by its name, and how it is opened."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import control_walk as walk
from control_room import Room
from places_of_chats import sent_elsewhere
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QMenu, QWidget

from app.chat.imports.chat_import import ImportSummary
from app.chat.store.conversation import CallState, Conversation, Message, Role, Staged, ToolCall
from app.documents.documents import Documents
from app.documents.indexing import FolderState
from app.stored_data import Erased, Undeleted
from app.tools.mcp.client import Content
from app.tools.mcp.results import Prompt, Resource, Template
from app.tools.mcp.server_list import Definition, Proposal, ToolServer
from app.tools.questions import Field, OpenQuestion, Question
from app.ui.chat.server_content import ServerContentDialog, ServerQuestionDialog
from app.ui.composer.documents_button import DocumentsMenu, DocumentsOffer
from app.ui.documents.documents_dialog import DocumentsDialog
from app.ui.settings.crash_dialog import CrashDialog
from app.ui.settings.erase_dialogs import EraseDialog, ErasingDialog
from app.ui.settings.search_row import SearchRow
from app.ui.settings.self_test_dialog import SelfTestDialog
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.settings.tool_proposal_dialog import ToolProposalDialog
from app.ui.settings.tool_server_dialog import StartsProgramDialog, ToolServerDialog
from app.ui.settings.updates_dialog import UpdatesDialog, UpdateState
from app.ui.sidebar.import_dialogs import ImportDialog, ProgressDialog, SummaryDialog
from app.user_messages import UserMessage


def _hub(room: Room, query: str) -> QWidget:
    room.models()
    page = room.window.pages.models_page
    assert page is not None
    page.search.setText(query)
    QTest.keyClick(page.search, Qt.Key.Key_Return)
    walk.come_to_rest(room.window)  # the fake for the hub answers as soon as it is asked
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


def _repair(room: Room) -> QWidget:
    room.models()
    acts = room.window.pages.model_actions
    assert acts is not None
    return room.opened(lambda: acts._show_verified("PowerInfer/b", ["model-00001-of-00002.gguf"]))


def _servers(room: Room) -> QWidget:
    sent_elsewhere(room)
    room.models()
    page = room.window.pages.models_page
    assert page is not None
    page.area.ensureWidgetVisible(page.servers)
    walk.settle()
    return room.window


def _server_dialog(room: Room) -> QWidget:
    sent_elsewhere(room)
    acts = room.window.server_actions
    assert acts is not None
    return room.opened(lambda: acts.edit(acts.servers.book.servers[0].id))


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
    return room.popover(DocumentsMenu, button.open_menu)


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
        "room": {"type": "string", "enum": ["one bed", "a view of the mountains and of the lake", "a view " * 20]},
        "quiet": {"type": "boolean", "description": "Away from the street"},
        "meals": {"type": "array", "items": {"type": "string", "enum": ["breakfast", "dinner"]}},
    },
})  # fmt: skip


def _asked_by_server(room: Room) -> QWidget:
    call = ToolCall("1", "rooms_find", {}, CallState.RUNNING, source="Rooms")
    transcript = room.page.transcript
    room.new_chat()  # else `reset` takes what is shown for the chat
    transcript.show_messages([Message(Role.USER, "A room?"), Message(Role.ASSISTANT, "", calls=(call,))])
    transcript.set_tool_questions({"1": ASKED})
    walk.settle()
    return room.window


class _Offering:
    """In place of the controller of servers: one that has listed what it offers."""

    _PROMPT = Prompt("plan", "Plan a journey", "Plans.", (Field("city", "City", is_required=True), Field("x", "x")))
    _FILES = (Resource("trips://1", "A journey of last year", "Lima, two weeks"),)
    _CONTENT = Content(
        (_PROMPT, Prompt("greet")), _FILES, (Template("trips://{year}", "The journeys of a year"),), True
    )

    def list_content(self, server_id: str, then: Callable[[Content], None]) -> threading.Event:
        then(self._CONTENT)
        return threading.Event()

    def known_content(self, server_id: str) -> Content:
        return self._CONTENT

    def complete(self, *asked: Any) -> threading.Event:
        asked[-1](("Lima", "Lisbon"))
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


PLACES: dict[str, Callable[[Room], QWidget]] = {
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
    "menu: a model": _row_menu,
    "menu: order of models": _filter_menu,
    "menu: add a model": lambda room: _of_models(room, "_import_menu"),
    "menu: more of models": lambda room: _of_models(room, "_more_menu"),
    "report of a crash": lambda room: room.opened(
        lambda: CrashDialog(room.window, ["a line of the log"] * 40, True).open()
    ),
    "models: servers elsewhere": _servers,
    "a server elsewhere": _server_dialog,
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
    "MCP servers of a file": lambda room: room.opened(
        lambda: ToolProposalDialog(
            room.window, room.hearth.tools.controller, Proposal((MCP_SERVER,), (("Old", "It is old."),)), "mcp.json"
        ).open(),
        ToolProposalDialog,
    ),
}
