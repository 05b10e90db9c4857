"""Places of the chat page, the sidebar and the palette, for walks: each by its name, and how it is opened."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import control_walk as walk
from control_room import ANSWER, STATS, Room
from PySide6.QtPrintSupport import QPrinter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu, QWidget

from app.chat.answers.inspection import Inspection
from app.chat.exports.outline import Scope, outline
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
from app.clients.servers import Place
from app.tools.propose_note import PROPOSE_NOTE
from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer
from app.ui.chat.answer_columns import AnswerColumns
from app.ui.chat.votes_dialog import VotesDialog, open_votes
from app.ui.composer.persona_menu import PersonaMenu
from app.ui.composer.preset_menu import PresetMenu
from app.ui.composer.sampling_popup import SamplingPopup
from app.ui.composer.tools_button import ToolsMenu
from app.ui.documents.source_dialog import SourceDialog
from app.ui.inspector.inspector_dialog import InspectorDialog
from app.ui.look import diagrams
from app.ui.printing.export_actions import Preview, StepsDialog
from app.ui.printing.export_dialog import ExportDialog
from app.ui.printing.printed_chat import PrintedChat, prepare
from app.ui.projects.project_dialog import ProjectDialog
from app.ui.projects.text_dialogs import AddNoteDialog
from app.ui.sidebar.bin_dialog import BinDialog
from app.ui.sidebar.chat_model import ChatRow, FolderRow
from app.ui.transcript.answer_figures import AnswerFigures
from app.ui.transcript.answer_view import AnswerView
from app.user_messages import UserMessage
from engine.evaluation.comparison import Answer, Choice, ComparisonFile
from engine.service.protocol import CountResult

DISK_FULL = UserMessage(
    "ProSparse 13B does not fit right now", "It needs 13.4 GB and 9.1 GB is free. Close other programs.", "Try again",
    "need 13400000000\nfree 9100000000", "bad", "retry", ("Choose another model", "open-models"),
)  # fmt: skip


def _with_a_banner(room: Room) -> QWidget:
    room.page.show_banner(DISK_FULL)
    walk.settle()
    return room.window


def _searching(room: Room) -> QWidget:
    room.window.sidebar.open_search()
    found = room.hearth.controller.search_results
    with room.qtbot.waitSignal(found, check_params_cb=lambda text, _: text == "Chat"):
        QTest.keyClicks(room.window.sidebar.panel.field, "Chat")
    walk.come_to_rest(room.window)  # in a narrow window the sidebar glides in
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


def _list_menu(room: Room, kind: type) -> QWidget:
    """The menu of the first row of that kind in the list of chats; that of the list where it has none."""
    view = room.window.sidebar.panel.list
    found = next((one for one in view.chats.rows if isinstance(one, kind)), None)
    return room.opened(lambda: view.menu_for(found).popup(view.mapToGlobal(view.rect().center())), QMenu)


def open_palette(room: Room, typed: str) -> QWidget:
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
    return room.opened(lambda: room.page.note_requested.emit("A fact of this chat."), AddNoteDialog)


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
    room.new_chat()  # else `reset` takes what is shown for the chat
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


def _attached(room: Room) -> QWidget:
    from app.documents.draft_attachments import Attached, Measure

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


def _inspected(room: Room) -> QWidget:
    top = [[n, 0.4 - 0.05 * n] for n in range(8)]
    known = {"us": 1500, "run": 1, "bytes": 5_000_000, "fired": [1, 4, 2], "active": "AQ8D", "hot": 0, "computed": 10,
             "on_gpu": 4}  # fmt: skip
    rows = [{"id": 1, "p": 0.35, "top": top, **known, "experts": [[1, 5], None, [0, 2]], "missed": [1, 2, 0]}] * 60
    texts = {str(n): f"Donaudampf{n}\n" if n == 1 else f" {n}" for n in range(8)}
    dialog = InspectorDialog(room.window)
    dialog.show_record(
        Inspection([1, 2, 3], rows, texts, 8, "A model of mine with a name that has no end", hot=["Dw8P"])
    )
    return room.opened(dialog.open, InspectorDialog)


def _not_inspected(room: Room) -> QWidget:
    answer = (room.hearth.memory.messages(room.talk.id) or [])[-1]
    dialog = room.opened(lambda: room.window.chat_context.inspector.open(answer.id), InspectorDialog)
    room.wait(lambda: not dialog.empty.isHidden())
    return dialog


def _asked(room: Room, act: str) -> QWidget:
    """What a command of the menus around answers opens."""
    menus = room.window.answer_menus
    assert menus is not None
    kinds = {"presets": PresetMenu, "personas": PersonaMenu, "sampling": SamplingPopup}
    if act in kinds:
        return room.popover(kinds[act], menus.commands[act])
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


def sent_elsewhere(room: Room) -> QWidget:
    """A chat that is sent to a server, of which the menu knows two models."""
    servers = room.hearth.servers
    entered = servers.add("Das Rechenzentrum im Keller", "http://192.168.1.20:8000/v1", "", ["gpt-oss-120b", "small"])
    servers.choose(Place(entered, "gpt-oss-120b"))
    walk.settle()
    return room.window


def _elsewhere_menu(room: Room) -> QWidget:
    sent_elsewhere(room)
    return _model_menu(room)


def _tools(room: Room) -> QWidget:
    """The menu of tools: some built in, one of a server."""
    tools = [Tool(name, title, "What it does", {}) for name, title in (("web_search", "Web search"), ("clock", "Time"))]
    tools.append(Tool("create", "create_an_issue_in_the_tracker_of_the_team", "", {}, source="Das Ticketsystem"))
    composer = room.page.composer
    composer.set_tools(ToolOffer(tuple(tools), frozenset({"clock", "create"}), 1_420, True))
    walk.settle()
    return room.popover(ToolsMenu, composer.tools_button.open_menu)


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
    printed, printer = PrintedChat(prepare(outline(chat, Scope()))), QPrinter(QPrinter.PrinterMode.HighResolution)
    list(printed.lay_out_for(printer))
    return room.opened(lambda: Preview(printed, printer, room.window).open(), Preview)


PLACES: dict[str, Callable[[Room], QWidget]] = {
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
    "the progress of a print": lambda room: room.opened(
        StepsDialog(room.window, "Printing", (0.5 for _ in range(9))).open, StepsDialog
    ),
    "diagrams and pages in an answer": _diagrams,
    "the bin": lambda room: _bin(room),
    "a message that waits": lambda room: _waiting(room),
    "menu: to a folder": lambda room: room.opened(lambda: room.window.commands.run("move_chat"), QMenu),
    "the palette": lambda room: open_palette(room, ""),
    "the palette, something typed": lambda room: open_palette(room, "chat"),
    "shortcuts": lambda room: room.opened(lambda: room.window.commands.run("shortcuts")),
    "a new folder": _new_folder,
    "a new project": lambda room: room.opened(lambda: room.window.commands.run("new_project")),
    "settings of a project": _project,
    "instructions for a chat": lambda room: room.opened(lambda: room.window.commands.run("chat_instructions")),
    "a note is added": _add_note,
    "a chat of a project": _chat_of_project,
    "prompts behind a slash": _slash,
    "a note is proposed": _proposed_note,
    "menu: an answer": lambda room: room.opened(lambda: _answer(room).make_menu().popup(room.window.pos()), QMenu),
    "tokens of an answer": _inspected,
    "tokens of an answer, none recorded": _not_inspected,
    "figures of an answer": lambda room: room.popover(AnswerFigures, _answer(room).show_figures),
    "menu: presets": lambda room: _asked(room, "presets"),
    "menu: personas": lambda room: _asked(room, "personas"),
    "how words are chosen": lambda room: _asked(room, "sampling"),
    "models to compare": lambda room: _asked(room, "compare_models"),
    "answers side by side": _side_by_side,
    "blind votes": _votes,
    "results of blind votes": lambda room: _votes(room, "left"),
    "personas": lambda room: _asked(room, "edit_personas"),
    "presets": lambda room: _asked(room, "edit_presets"),
    "prompts": lambda room: _asked(room, "edit_prompts"),
    "a chat sent elsewhere": sent_elsewhere,
    "menu: models, some elsewhere": _elsewhere_menu,
    "tools of a chat": _tools,
    "calls of tools": _calls,
    "an answer with sources": _with_sources,
    "a source": _source_dialog,
}
