"""Tools in the real window: switched on with the mouse, called by a model, allowed or refused in the transcript."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit
from support.serving import Script
from support.systems import children

from app.chat.store.conversation import CallState, Message
from app.settings import AppSettings
from app.tools.mcp.server_list import ToolServer, ToolServerList
from app.tools.questions import Question, Reply
from app.tools.tool import Scope, Tool, ToolResult
from app.ui.chat.server_content import ServerContentDialog, ServerQuestionDialog
from app.ui.composer.tools_button import ToolRow
from app.ui.look import theme
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.settings.tool_proposal_dialog import ToolProposalDialog
from app.ui.settings.tool_server_dialog import StartsProgramDialog, ToolServerDialog
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.tool_call_view import ToolCallView
from engine.tool_calls.call_format import HERMES, Call

pytestmark = pytest.mark.gui

ROOT = Path(__file__).parents[2]


class Post:
    """A source with one tool, which sends a letter."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def tools(self) -> tuple[Tool, ...]:
        return (Tool("send_letter", "Send a letter", "Sends.", {"type": "object"}),)

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        return Scope("post", "the post")

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        self.sent.append(dict(arguments))
        return ToolResult("It is on its way.")


def click(person: Person, widget: Any) -> None:
    assert widget.isVisible()
    person.qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


def switch(person: Person, *names: str) -> None:
    """Switch tools in the composer's menu."""
    button = person.page.composer.tools_button
    click(person, button)
    person.wait(lambda: button.menu_of_tools.is_open)
    rows = {row.tool.name: row for row in button.menu_of_tools.findChildren(ToolRow)}
    for name in names:
        click(person, rows[name].toggle)
    button.menu_of_tools.dismiss()
    person.wait(lambda: not button.menu_of_tools.isVisible())


def calls_of(person: Person, nth: int) -> list[ToolCallView]:
    view = person.page.transcript.views[nth]
    assert isinstance(view, AnswerView)
    return [] if view.calls is None else list(view.calls.views)


def tools_of_chat(person: Person) -> list[str]:
    return list(person.hearth.controller.choices.values.get("tools", []))


def take_pictures(person: Person) -> None:
    """Pictures of the window in light and dark, to tests/output, and to docs if HEARTH_UPDATE_SCREENSHOTS=1 is set."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    choices: tuple[theme.Choice, ...] = ("light", "dark")
    for choice in choices:
        theme.apply(app, choice, 1.0)
        person.page.transcript.flush()
        person.qtbot.wait(50)
        image = person.window.grab().toImage()
        assert image.pixelColor(4, 500) == QColor(theme.current().tokens.side)
        folders = [ROOT / "tests" / "output"]
        folders += [ROOT / "docs" / "screenshots"] if os.environ.get("HEARTH_UPDATE_SCREENSHOTS") == "1" else []
        for folder in folders:
            folder.mkdir(exist_ok=True)
            assert image.save(str(folder / f"tools-{choice}.png"))


def states(message: Message) -> list[CallState]:
    return [call.state for call in message.calls]


def test_tools_are_switched_on_for_one_chat_and_counted(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    switch(person, "calculate", "read_web_page")
    person.send('call [["calculate", {"expression": "6*7"}]]')
    person.wait(lambda: len(person.finished) == 2)
    person.wait(lambda: states(person.shown[1]) == [CallState.DONE])
    assert tools_of_chat(person) == ["calculate", "read_web_page"]
    assert "42" in person.shown[1].calls[0].result
    assert "42" in person.shown[2].text
    person.wait(lambda: person.page.composer.tools_button._offer.tokens == 100)
    meter = person.page.composer.meter
    person.wait(lambda: "100" in meter.toolTip())
    click(person, meter)
    assert "100" in person.window.chat_context.popup.note.words
    person.window.chat_context.popup.dismiss()
    switch(person, "calculate")
    assert tools_of_chat(person) == ["read_web_page"]
    person.hearth.controller.new_chat()
    assert tools_of_chat(person) == [], "a new chat has no tool"


def test_a_call_is_allowed_and_refused_with_the_mouse(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    post = Post()
    person = arrive("in-thread")
    monkeypatch.setattr(person.hearth.tools.box, "_sources", (post,))
    person.hearth.tools.box.changed.emit()
    person.wait_ready()
    switch(person, "send_letter")
    given = {"to": "Ann", "text": "Dear Ann,\nhow are you?"}
    person.send(f"call {json.dumps([['send_letter', given], ['send_letter', {'to': 'Bob'}]])}")
    person.wait(lambda: len(person.shown) == 2 and states(person.shown[1]) == [CallState.ASKING] * 2)
    first, second = calls_of(person, 1)
    assert post.sent == []
    assert person.page.composer.field.hasFocus(), "a question does not take the focus"
    click(person, second.details.refuse)
    person.wait(lambda: states(person.shown[1]) == [CallState.ASKING, CallState.REFUSED])
    person.qtbot.wait(QApplication.doubleClickInterval() + 50)  # a double click answers one question
    click(person, first.details.once)
    person.wait(lambda: len(person.finished) == 2)
    assert post.sent == [given]
    assert "on its way" in person.shown[2].text
    assert "not allow" in person.shown[2].text


def test_a_search_service_in_the_settings_offers_the_search(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()

    def offered() -> set[str]:
        return {tool.name for tool in person.hearth.setup.tool_offer.tools}

    assert offered() == {"calculate", "read_web_page"}
    person.window.take_settings(AppSettings(search_service="searxng", search_address="http://127.0.0.1:8888"))
    assert offered() == {"calculate", "read_web_page", "search_web"}


def test_a_tool_of_an_mcp_server_is_approved_asked_for_and_run(arrive: Arrive) -> None:
    program = str(Path(__file__).parents[1] / "support" / "mcp_server.py")
    person = arrive("in-thread")
    person.wait_ready()
    tools = person.hearth.tools
    server = tools.servers.put(ToolServer("Sums", "stdio", command=sys.executable, args=(program,), is_on=True))
    (add,) = [one.definition for one in tools.mcp.look(server.id) if one.definition.name == "add"]
    assert person.hearth.setup.tool_offer.groups[1:] == [], "nothing is offered before it is approved"
    tools.mcp.approve(server.id, (add,))
    tools.box.changed.emit()
    switch(person, "Sums_add")
    person.send('call [["Sums_add", {"a": 40, "b": 2}]]')
    person.wait(lambda: len(person.shown) == 2 and states(person.shown[1]) == [CallState.ASKING])
    (call,) = calls_of(person, 1)
    assert "Sums" in call.details.receiver.text()
    click(person, call.details.in_chat)
    person.wait(lambda: len(person.finished) == 2)
    assert person.shown[1].calls[0].result == "42"
    person.send('call [["Sums_add", {"a": 1, "b": 2}]]')
    person.wait(lambda: len(person.finished) == 4)
    assert person.shown[-2].calls[0].result == "3", "allowed in this chat"
    menu = person.page.composer.tools_button.menu_of_tools
    click(person, person.page.composer.tools_button)
    person.wait(lambda: menu.is_open)
    click(person, menu.ask)
    person.send('call [["Sums_add", {"a": 1, "b": 2}]]')
    person.wait(lambda: len(person.finished) == 5)
    assert states(person.shown[-1]) == [CallState.ASKING], "asked again"
    child = children(recursive=True)
    person.leave()
    psutil.wait_procs(child, timeout=20)
    assert not [one for one in child if one.is_running()]


def modal(person: Person, kind: type[Any]) -> Any:
    person.wait(lambda: isinstance(QApplication.activeModalWidget(), kind))
    return QApplication.activeModalWidget()


def test_an_mcp_server_is_added_looked_at_and_one_of_its_tools_approved(arrive: Arrive) -> None:
    program = str(ROOT / "tests" / "support" / "mcp_server.py")
    person = arrive("in-thread")
    person.wait_ready()
    controller = person.hearth.tools.controller
    person.window.commands.run("add_tool_server")
    dialog = modal(person, ToolServerDialog)
    dialog.fields["name"].edit.setText("Sums")
    click(person, dialog.keep)
    assert controller.servers.servers == [], "a command is needed"
    assert dialog.fields["command"].edit.property("state") == "bad"
    dialog.fields["command"].edit.setText(sys.executable)
    dialog.fields["args"].edit.setPlainText(program)
    click(person, dialog.keep)
    question = modal(person, StartsProgramDialog)
    assert program in question.command.toPlainText(), "the whole command line"
    assert controller.servers.servers == []
    click(person, question.yes)
    (server,) = controller.servers.servers
    assert (server.command, server.args, server.is_on, server.approved) == (sys.executable, (program,), False, ())
    click(person, dialog.look)
    person.wait(lambda: len(dialog.rows) > 2)
    assert not any(row.toggle.isChecked() for row in dialog.rows)
    row = next(row for row in dialog.rows if row.listed.definition.name == "add")
    click(person, row.toggle)
    dialog.reject()
    assert [one.name for one in controller.servers.servers[0].approved] == ["add"]
    assert "Sums_add" not in {tool.name for tool in person.hearth.tools.box.tools()}, "the server is off"
    assert controller.set_on(server.id, True) == ""
    person.wait(lambda: "Sums_add" in {tool.name for tool in person.hearth.setup.tool_offer.tools})
    person.wait(lambda: not person.hearth.reads.waiting())
    kept = ToolServerList(person.places.tool_servers_file)
    kept.read()
    assert [(one.name, one.is_on, len(one.approved)) for one in kept.servers] == [("Sums", True, 1)]
    controller.remove(server.id)
    person.wait(lambda: "Sums_add" not in {tool.name for tool in person.hearth.setup.tool_offer.tools})


QUESTION = {
    "type": "object", "required": ["city", "people"],
    "properties": {
        "city": {"type": "string", "title": "City"},
        "people": {"type": "integer", "title": "How many people", "minimum": 1},
        "room": {"type": "string", "title": "Kind of room", "enum": ["one bed", "two beds"]},
        "quiet": {"type": "boolean", "title": "A quiet room"},
        "token": {"type": "string", "title": "Your access token", "description": "From your profile page"},
    },
}  # fmt: skip


def asking_server(person: Person, schema: dict[str, Any]) -> None:
    """Add a server that asks a question during each call, and allow its tool."""
    tool = {"name": "ask", "description": "Ask.", "inputSchema": {"type": "object"}}
    script = json.dumps({"tools": [[tool]], "schema": schema})
    arguments = (str(ROOT / "tests" / "support" / "mcp_script.py"), script)
    tools = person.hearth.tools
    server = tools.servers.put(ToolServer("Rooms", "stdio", command=sys.executable, args=arguments, is_on=True))
    tools.mcp.approve(server.id, tuple(one.definition for one in tools.mcp.look(server.id)))
    tools.box.changed.emit()
    switch(person, "Rooms_ask")


def call_that_asks(person: Person) -> ToolCallView:
    n = len(person.shown)
    person.send('call [["Rooms_ask", {}]]')
    person.wait(lambda: len(person.shown) > n + 1 and states(person.shown[n + 1]) == [CallState.ASKING])
    (call,) = calls_of(person, n + 1)
    person.qtbot.wait(QApplication.doubleClickInterval() + 50)
    click(person, call.details.once)
    person.wait(lambda: call.details.inquiry is not None)
    return call


def test_a_server_asks_the_user_at_its_call(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    asking_server(person, QUESTION)
    call = call_that_asks(person)
    inquiry = call.details.inquiry
    assert inquiry is not None
    assert "Rooms" in inquiry.title.words
    assert "password" in inquiry.note.words
    assert call.is_open
    city, people, room, _, token = inquiry.form.values
    person.qtbot.wait(QApplication.doubleClickInterval() + 50)
    click(person, inquiry.send)
    assert call.details.inquiry is inquiry, "nothing is sent while a field is missing"
    city.first.setText("Lima")  # type: ignore[attr-defined]
    people.first.setText("2")  # type: ignore[attr-defined]
    room.first.click()  # type: ignore[attr-defined]
    assert token.first.echoMode() == QLineEdit.EchoMode.Password  # type: ignore[attr-defined]
    person.qtbot.wait(QApplication.doubleClickInterval() + 50)
    click(person, inquiry.send)
    person.wait(lambda: len(person.finished) == 2)
    assert json.loads(person.shown[1].calls[0].result) == {
        "action": "accept", "content": {"city": "Lima", "people": 2, "room": "one bed", "quiet": False},
    }  # fmt: skip
    assert not call.is_asking
    for act in ("decline", "cancel"):
        call = call_that_asks(person)
        person.qtbot.wait(QApplication.doubleClickInterval() + 50)
        click(person, getattr(call.details.inquiry, act))
        person.wait(lambda: states(person.shown[-2]) == [CallState.DONE])
        assert json.loads(person.shown[-2].calls[0].result) == {"action": act}
    call_that_asks(person)
    asking = person.hearth.controller.open_conversation
    assert asking
    assert asking in person.window.sidebar.panel.list.chats.waiting
    person.hearth.controller.new_chat()
    assert person.hearth.controller.tool_questions == {}
    person.hearth.controller.open(asking)
    person.wait(lambda: 0 < len(person.shown) == len(person.page.transcript.views) and bool(calls_of(person, -1)))
    assert calls_of(person, -1)[0].details.inquiry is not None
    person.hearth.controller.stop()
    assert states(person.shown[-1]) == [CallState.NOT_RUN]
    assert person.hearth.controller.tool_questions == {}
    assert not person.window.sidebar.panel.list.chats.waiting
    person.leave()


def test_a_question_outside_of_a_call_is_a_dialog(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    ask, replies = person.hearth.tools.box.ask, list[Reply]()
    for kind, act in (("string", "send"), ("object", "decline"), ("string", "")):  # no field can hold an object
        question = Question("Rooms", "Which city?", {"properties": {"city": {"type": kind}}})
        threading.Thread(target=lambda: replies.append(ask(question)), daemon=True).start()  # noqa: B023
        dialog = modal(person, ServerQuestionDialog)
        assert dialog.question.send.isHidden() == (kind == "object")
        if kind == "string":
            dialog.question.form.values[0].first.setText("Lima")
        getattr(dialog.question, act).click() if act else dialog.reject()
        person.wait(lambda: QApplication.activeModalWidget() is None)
    person.wait(lambda: len(replies) == 3)
    assert replies == [Reply("accept", {"city": "Lima"}), Reply("decline"), Reply("cancel")]


def test_prompts_and_files_of_a_server_are_chosen_behind_a_slash(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    tools, composer = person.hearth.tools, person.page.composer
    program = str(ROOT / "tests" / "support" / "mcp_server.py")
    server = tools.servers.put(ToolServer("Notes", "stdio", command=sys.executable, args=(program,), is_on=True))
    tools.controller.refresh()

    def pick(name: str) -> ServerContentDialog:
        person.wait(lambda: QApplication.activeModalWidget() is None)
        person.window.activateWindow()
        composer.field.setFocus()
        person.wait(composer.field.hasFocus)
        composer.field.set_text("")
        composer.field.insert("/" + name)
        card = composer.prompts.card
        assert card is not None
        row = next(row for row in card.rows() if row.words == name)
        click(person, row)
        assert composer.text() == ""
        return modal(person, ServerContentDialog)

    assert not tools.mcp.state(server.id).is_running, "it starts when the user asks for it"
    dialog = pick("Notes")
    person.wait(lambda: len(dialog.rows) == 3)
    click(person, dialog.rows[0])
    assert dialog.form is not None
    click(person, dialog.insert)
    assert composer.text() == "", "its argument is missing"
    dialog.form.values[0].first.setText("Ada")  # type: ignore[attr-defined]
    click(person, dialog.insert)
    person.wait(lambda: composer.text() == "Greet Ada.")
    dialog = pick("Notes")
    person.wait(lambda: len(dialog.rows) == 3)
    click(person, dialog.rows[1])
    person.wait(lambda: [item.name for item in composer.draft.items] == ["today (Notes, notes://today)"])
    assert composer.draft.texts == ["buy milk"]
    dialog = pick("Notes")
    person.wait(lambda: len(dialog.rows) == 3)
    click(person, dialog.rows[2])
    assert dialog.form is not None
    day, topic, _ = dialog.form.written
    person.wait(lambda: [row.words for row in day.proposals] == ["monday", "tuesday"])
    click(person, day.proposals[1])
    assert (day.text, day.proposals) == ("tuesday", [])
    QTest.keyClicks(topic.first, "tues")
    person.wait(lambda: [row.words for row in topic.proposals] == ["tuesday/food"])
    click(person, topic.proposals[0])
    click(person, dialog.insert)
    person.wait(lambda: composer.draft.texts == ["buy milk", "tuesday, tuesday/food, all"])
    assert composer.draft.items[1].name == "Notes of a day (Notes, notes://tuesday/tuesday/food)"
    dialog = pick("greet")
    assert dialog.form is not None, "a known prompt has its own row"
    composer.field.insert("Hi!")
    dialog.form.values[0].first.setText("Ada")  # type: ignore[attr-defined]
    click(person, dialog.insert)
    person.wait(lambda: composer.text() == "Hi!\n\nGreet Ada.")
    assert tools.controller.set_on(server.id, False) == ""
    composer.field.set_text("")
    composer.field.insert("/greet")
    assert not composer.prompts.is_open
    person.leave()


def test_servers_of_another_program_are_added_one_by_one_and_stay_off(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    file = tmp_path / "mcp.json"
    servers = {"one": {"command": "npx", "args": ["-y", "one"]}, "two": {"url": "https://example.org/mcp"}, "bad": {}}
    file.write_text(json.dumps({"mcpServers": servers}))
    person.window.open_settings("search_service")
    settings = modal(person, SettingsDialog)
    settings.tool_servers.take_over(file)
    dialog = modal(person, ToolProposalDialog)
    assert [toggle.isChecked() for toggle, _ in dialog.toggles] == [False, False]
    assert not dialog.add.isEnabled()
    dialog.toggles[0][0].click()
    click(person, dialog.add)
    added = person.hearth.tools.controller.servers.servers
    assert [(one.command, one.args, one.is_on) for one in added] == [("npx", ("-y", "one"), False)]
    settings.reject()


def test_the_engine_calls_a_tool_goes_on_and_asks(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive("in-thread", model="starter-chat")
    person.wait_ready()
    host: Any = person.hearth.worker._host
    session = host._engine.session
    tokenizer = session.model.tokenizer
    script = Script(tokenizer, min(tokenizer.stop_token_ids))
    page = "https://en.wikipedia.org/wiki/Lima"
    said = iter([
        "I compute.\n" + HERMES.write([Call("calculate", {"expression": "6*7"})]), "It is 42.",
        "I look it up.\n" + HERMES.write([Call("read_web_page", {"url": page})]),
    ])  # fmt: skip

    def sampler(sampling: Any) -> Any:
        script.text = next(said)
        return script.sampler(sampling)

    monkeypatch.setattr("engine.session.chat_session.make_sampler", sampler)
    switch(person, "calculate", "read_web_page")
    person.send("What is 6 times 7?")
    person.wait(lambda: len(person.finished) == 2)
    called, answer = person.shown[1:]
    assert (called.text.strip(), called.calls[0].tool, states(called)) == ("I compute.", "calculate", [CallState.DONE])
    assert answer.text == "It is 42."
    prompt = tokenizer.decode(session._tokens, skip_special=False)
    assert "= 42" in prompt
    assert "calculate" in prompt
    person.send("How many people live in Lima?")
    person.wait(lambda: len(person.finished) == 3 and states(person.shown[-1]) == [CallState.ASKING])
    assert (person.shown[-1].calls[0].arguments, person.shown[-1].calls[0].scope) == ({"url": page}, "en.wikipedia.org")
    take_pictures(person)


def test_a_question_whose_dialog_goes_is_cancelled(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    below = QDialog(person.window)
    below.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    below.open()
    replies = list[Reply]()
    question = Question("Rooms", "Which city?", {"properties": {}})
    threading.Thread(target=lambda: replies.append(person.hearth.tools.box.ask(question)), daemon=True).start()
    modal(person, ServerQuestionDialog)
    below.accept()
    person.wait(lambda: replies == [Reply("cancel")])
