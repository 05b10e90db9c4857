"""Prompts and resources of MCP servers behind "/", and their questions outside of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication, QFrame, QVBoxLayout, QWidget

from app.documents import attachment_texts as texts
from app.documents.attachment_texts import AttachmentError
from app.text.markdown_blocks import displayable
from app.tools.call_text import breakable, label, visible
from app.tools.mcp.client import Content
from app.tools.mcp.server_list import ToolServer, ToolServerError
from app.tools.mcp.servers_controller import ToolServersController
from app.tools.questions import OpenQuestion, Reply
from app.translation import tr
from app.ui.composer.composer import Composer
from app.ui.composer.slash_prompts import ServerPrompt
from app.ui.look import theme
from app.ui.transcript.tool_call_view import ServerQuestion
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.pick_menu import clear
from app.ui.widgets.pick_row import INSET, PickRow
from app.ui.widgets.question_form import QuestionForm, Written

if TYPE_CHECKING:
    from app.chat.tool_rounds import ToolRounds
    from app.tools.mcp.results import Prompt, Resource, Template

WIDE_PX = 480
TYPING_MS = 250  # after the last letter, before a server is asked for proposals
LONGEST_NOTE = 80  # characters beside a row's name


class ServerContent(QObject):
    """Connects the servers with the composer; create one per window.

    Each server that is on has a row behind "/". The row starts the server, and from then on each of its prompts has a
    row too.
    """

    def __init__(
        self, window: QWidget, composer: Composer, controller: ToolServersController, rounds: ToolRounds
    ) -> None:
        super().__init__(window)
        self._window, self._composer, self._controller = window, composer, controller
        controller.changed.connect(self._show)
        rounds.unplaced.connect(self._ask)
        self._composer.prompts.server_requested.connect(self._open)
        self._show()

    @Slot()
    def _show(self) -> None:
        rows: list[ServerPrompt] = []
        for server in self._controller.servers.servers:
            content = self._controller.known_content(server.id)
            if server.is_on and not (content is not None and content.is_empty):
                for prompt in content.prompts if content is not None else ():
                    name = label(prompt.title or prompt.name)
                    rows.append(ServerPrompt(f"{server.id}/{prompt.name}", name, label(server.name), "lines"))
                rows.append(ServerPrompt(server.id, label(server.name), tr("Prompts and files of this server")))
        self._composer.prompts.set_server_prompts(rows)

    @Slot(str)
    def _open(self, row: str) -> None:
        server_id, _, name = row.partition("/")
        server = self._controller.servers.get(server_id)
        if server is None:
            return
        content = self._controller.known_content(server_id) or Content()
        prompt = next((one for one in content.prompts if one.name == name), None) if name else None
        ServerContentDialog(self._window, self._controller, server, self._composer, prompt).open()

    @Slot(object)
    def _ask(self, opened: OpenQuestion) -> None:
        ServerQuestionDialog(QApplication.activeModalWidget() or self._window, opened).open()


class ServerQuestionDialog(Dialog):
    """A server's question that belongs to no call in a chat. Closing it cancels the question."""

    def __init__(self, parent: QWidget, opened: OpenQuestion) -> None:
        self.question = ServerQuestion(opened.question)
        super().__init__(parent, self.question.title.words, wide_px=WIDE_PX)
        self.question.title.hide()
        self.body.addWidget(self.question)
        self.question.buttons.hide()
        for button in (self.question.cancel, self.question.decline, self.question.send):
            self.add_button(button)
        self.question.form.changed.connect(self.fit)

        def reply(action: str, values: object) -> None:
            if action == "accept" and isinstance(values, dict):
                opened.reply(Reply("accept", values))
            elif action == "decline":
                opened.reply(Reply("decline"))
            self.accept()

        self.question.decided.connect(reply)
        # also where the window closes: the server's thread waits
        self.destroyed.connect(lambda: opened.reply(Reply("cancel")))


class ServerContentDialog(Dialog):
    """Lists what a server offers, asks for the arguments of a prompt, and puts the text into the composer.

    prompt: to begin with; None: the list. The server starts when the dialog opens.
    """

    def __init__(
        self,
        parent: QWidget,
        controller: ToolServersController,
        server: ToolServer,
        composer: Composer,
        prompt: Prompt | None = None,
    ) -> None:
        super().__init__(parent, label(server.name), wide_px=WIDE_PX)
        self._controller, self._server, self._composer = controller, server, composer
        self._work = threading.Event()  # of what is asked for now; set: cancelled
        self._proposing = threading.Event()  # the same, of proposals
        self._propose_now: Callable[[], None] = lambda: None
        self._typing = QTimer(self, singleShot=True, interval=TYPING_MS)
        self._typing.timeout.connect(lambda: self._propose_now())
        self.rows: list[PickRow] = []
        self.form: QuestionForm | None = None
        self.about = Label("", "row", wrap=True)
        self.about.hide()
        self._list = QFrame()
        self._column = QVBoxLayout(self._list)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.body.addWidget(self.about)
        self.body.addWidget(self._list)
        self.add_close(tr("Cancel"))
        self.insert = self.add_button(Button(tr("Insert"), "primary"))
        self.insert.hide()
        self.finished.connect(self._typing.stop)
        self.finished.connect(lambda _: self._work.set())
        self.finished.connect(lambda _: self._proposing.set())
        self.finished.connect(lambda _: composer.field.setFocus())
        if prompt is None:
            self.say(tr("Asking the server what it offers"))
            self._work = controller.list_content(server.id, self._show)
        else:
            self._pick_prompt(prompt)

    def _show(self, found: Content | ToolServerError) -> None:
        if isinstance(found, ToolServerError):
            self.say(found.message)
            return
        clear(self._column)
        if found.is_empty:
            self.say(tr("This server offers no prompts and no files."))
            return
        self.say(tr("A prompt is put into the message, and a file is attached. You see both before you send them."))
        self._add(
            tr("Prompts"),
            "lines",
            [(one.title or one.name, one.description, partial(self._pick_prompt, one)) for one in found.prompts],
        )
        files: list[tuple[Resource | Template, Callable[[], None]]] = [
            *((one, partial(self._pick_resource, one)) for one in found.resources),
            *((one, partial(self._pick_template, one)) for one in found.templates),
        ]
        self._add(tr("Files"), "file", [(one.name, one.description or one.address, act) for one, act in files])
        self.fit()
        self.rows[0].setFocus()

    def _add(self, head: str, glyph: str, entries: Sequence[tuple[str, str, Callable[[], None]]]) -> None:
        title = Label(head, "metastrong")
        title.setContentsMargins(theme.px(INSET), theme.px(6), theme.px(INSET), theme.px(4))
        self._column.addWidget(title)
        title.setVisible(bool(entries))
        for name, note, act in entries:
            row = PickRow(label(name), glyph, " ".join(visible(note).split())[:LONGEST_NOTE])
            row.setToolTip(visible(note))
            row.clicked.connect(lambda _=False, act=act: act())
            self._column.addWidget(row)
            row.show()
            self.rows.append(row)

    def _pick_prompt(self, prompt: Prompt) -> None:
        self._ask_for(prompt, prompt.title or prompt.name, partial(self._fill, prompt))

    def _pick_template(self, template: Template) -> None:
        self._ask_for(template, template.name, lambda values: self._pick_resource(template.filled(values)))

    def _ask_for(self, offer: Prompt | Template, name: str, act: Callable[[dict[str, str]], None]) -> None:
        """Show a field for each argument, and call `act` with the values."""
        if not offer.arguments:
            act({})
            return
        clear(self._column)
        self.heading.setText(label(name))
        self.about.setText(breakable(visible(offer.description)))
        self.about.setVisible(bool(offer.description))
        self.form = form = QuestionForm(offer.arguments)
        self._column.addWidget(form)
        form.show()  # at once, like the rows above, so that the dialog's height is right
        form.changed.connect(self.fit)
        self.insert.clicked.connect(lambda: self._send(act))
        self.insert.show()
        self.say(tr("What you enter goes to the server {server}.", server=label(self._server.name)))
        content = self._controller.known_content(self._server.id)
        if content is not None and content.completes:
            for field in form.written:
                field.first.textEdited.connect(lambda _, field=field: self._propose_soon(offer, field))
            self._propose(offer, form.written[0])
        form.focus_first()

    def _propose_soon(self, offer: Prompt | Template, field: Written) -> None:
        self._proposing.set()
        self._propose_now = partial(self._propose, offer, field)
        self._typing.start()

    def _propose(self, offer: Prompt | Template, field: Written) -> None:
        """Ask the server for values of a field, and show them below it."""
        if field.field.is_secret or self.form is None:
            return

        def show(found: tuple[str, ...] | ToolServerError) -> None:
            field.propose(() if isinstance(found, ToolServerError) else found)

        given = {one.field.name: one.text for one in self.form.written if one is not field and one.text}
        name, begun = field.field.name, field.text
        self._proposing = self._controller.complete(self._server.id, offer, name, begun, given, show)

    def _send(self, act: Callable[[dict[str, str]], None]) -> None:
        answer = self.form.answer() if self.form is not None else {}
        if answer is not None:
            act(answer)

    def _wait(self) -> None:
        """Cancel what was asked for before, and say that the server is asked."""
        self._work.set()
        self._proposing.set()
        self.insert.setEnabled(False)
        self.say(tr("Waiting for {server}", server=label(self._server.name)))

    def _fill(self, prompt: Prompt, arguments: dict[str, str]) -> None:
        self._wait()

        def put(text: str) -> None:
            self.accept()
            field = self._composer.field
            cursor = field.textCursor()
            follows = cursor.block().text()[: cursor.positionInBlock()].strip()
            field.insert(displayable(f"\n\n{text}" if follows else text))

        self._work = self._controller.fill_prompt(self._server.id, prompt.name, arguments, partial(self._take, put))

    def _pick_resource(self, resource: Resource) -> None:
        def attach(text: str) -> None:
            attachment = texts.of_server(resource.name, self._server.name, resource.address, text)
            self.accept()
            self._composer.draft.add(attachment)

        self._wait()
        work = partial(self._take, attach)
        self._work = self._controller.read_resource(self._server.id, resource.address, work)

    def _take(self, act: Callable[[str], None], found: str | ToolServerError) -> None:
        try:
            if isinstance(found, ToolServerError):
                raise found
            act(found)
        except (ToolServerError, AttachmentError) as error:
            self.insert.setEnabled(True)
            self.say(error.message)

    def return_pressed(self) -> None:
        if self.insert.isVisible():
            self.insert.click()
        elif isinstance(row := self.focusWidget(), PickRow):
            row.click()
