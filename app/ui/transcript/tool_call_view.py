"""The calls of tools with which an answer ends: a row for each, and below it what was asked for and what came back.

A call that waits for the user's consent is open and shows all of its arguments above the buttons.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QApplication, QFrame, QSizePolicy, QVBoxLayout, QWidget

from app.chat.store.conversation import CallState, ToolCall
from app.text.markdown_blocks import displayable
from app.tools.call_text import arguments_text, breakable, label, one_line, visible
from app.tools.propose_note import PROPOSE_NOTE, note_in
from app.tools.questions import Question, fields_of
from app.translation import noted, tr
from app.ui.look import icons, theme
from app.ui.look.direction import set_margins
from app.ui.transcript.folding_row import FoldingRow
from app.ui.transcript.text.framed_text import HIGHEST_PX, FramedText
from app.ui.widgets.controls import Button, Dot, Label
from app.ui.widgets.floating import announce
from app.ui.widgets.flow import Flow
from app.ui.widgets.question_form import QuestionForm
from app.units import seconds

CHEVRON_PX, INDENT, LINE = 14, 14, 2
MOST_LINES = 12  # of arguments and of a result, before they scroll
STATES = {
    CallState.ASKING: noted("Waiting for you"),
    CallState.RUNNING: noted("Running"),
    CallState.DONE: noted("Done"),
    CallState.FAILED: noted("Failed"),
    CallState.REFUSED: noted("Refused"),
    CallState.NOT_RUN: noted("Not run"),
}


@dataclass(frozen=True)
class ToolWords:
    """The facts about the chat and its tools that the rows show.

    titles: of the known tools, by name. has_folder: whether the chat is in a folder, so that consent can cover it.
    questions: of servers, by the ids of the calls during which they came.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    has_folder: bool = False
    questions: Mapping[str, Question] = field(default_factory=dict)

    def title(self, call: ToolCall) -> str:
        """Return the title of a call's tool; its name if the tool is not known."""
        return label(self.titles.get(call.tool, call.tool))


class _Head(Button):
    """The tool's icon and title, and a chevron after them."""

    chevron = "right"

    def set_glyph(self, glyph: str) -> None:
        self.chevron = glyph
        self.update()

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(hint.width() + theme.px(CHEVRON_PX + 2), hint.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.width() < self.sizeHint().width():  # the title takes all of it
            return
        side, pad = theme.px(CHEVRON_PX), theme.px(3)
        x = pad if self.isRightToLeft() else self.width() - pad - side
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        icons.paint(painter, self.chevron, QRectF(x, (self.height() - side) / 2, side, side), theme.colour("ink3"))


class ConsentButton(Button):
    """A button that answers the question of a call.

    It ignores presses of the mouse just after another answer: the second half of a double click would answer the next
    question, which has moved under the pointer.
    """

    _answered_at = float("-inf")  # time.monotonic() of the last answer, of all questions

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if time.monotonic() - ConsentButton._answered_at < QApplication.doubleClickInterval() / 1000:
            event.accept()
        else:
            super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self.isDown():
            ConsentButton._answered_at = time.monotonic()
        super().mouseReleaseEvent(event)

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())


class CallDetails(QFrame):
    """What the model asked for, and what it reads of the result; a question with buttons while the call asks.

    decided: allow_once, allow_in_chat, allow_in_folder or refuse; to a question of the server accept, decline or
    cancel, and the values that the user entered.
    """

    decided = Signal(str, object)
    text_selected = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._asks, self._width = False, theme.px(720)
        self.inquiry: ServerQuestion | None = None  # a question of the server
        self.question = Label("", "label", wrap=True)
        self.receiver = Label("", "small", wrap=True)
        self.arguments = FramedText(tr("What the model asked for"), "code")
        self.result = FramedText(tr("What the model reads"), "small")
        self.once = ConsentButton(tr("Allow once"), "primary")
        self.in_chat = ConsentButton()
        self.in_folder = ConsentButton()
        self.refuse = ConsentButton(tr("Refuse"))
        self.buttons = QWidget()
        self._flow = Flow(self.buttons)
        acts = {"allow_once": self.once, "allow_in_chat": self.in_chat, "allow_in_folder": self.in_folder,
                "refuse": self.refuse}  # fmt: skip
        for act, button in acts.items():
            self._flow.addWidget(button)
            button.clicked.connect(lambda _=False, act=act: self.decided.emit(act, {}))
        self._column = QVBoxLayout(self)
        for part in (self.question, self.receiver, self.arguments, self.buttons, self.result):
            self._column.addWidget(part)
        for framed in (self.arguments, self.result):
            framed.text.selected.connect(self.text_selected)
        theme.current().changed.connect(self._restyle)

    def show_call(self, call: ToolCall, words: ToolWords) -> None:
        self._asks = asks = call.state is CallState.ASKING
        title, what = words.title(call), one_line(call.scope) or words.title(call)
        is_note = call.tool == PROPOSE_NOTE and not call.source
        self.question.setText(
            tr("Add this to the notes?") if is_note else tr("Allow “{title}”?", title=breakable(title))
        )
        self.once.setText(tr("Accept") if is_note else tr("Allow once"))
        self.refuse.setText(tr("Don't add") if is_note else tr("Refuse"))
        if is_note:
            self.receiver.setText(tr("The model proposes a line at the end of {path}:", path=breakable(what)))
        elif call.source:
            server = breakable(one_line(call.source))
            self.receiver.setText(tr("The model wants to send this to the server {server}:", server=server))
        else:
            self.receiver.setText(tr("The model wants to send this to {receiver}:", receiver=breakable(what)))
        for button, sentence in (
            (self.in_chat, noted("Allow {what} in this chat")),
            (self.in_folder, noted("Allow {what} in this folder")),
        ):
            button.setText(tr(sentence, what=label(what)).replace("&", "&&"))
            button.setToolTip(tr(sentence, what=what) if label(what) != what else "")
            button.updateGeometry()
        for part in (self.question, self.receiver, self.buttons):
            part.setVisible(asks)
        self.arguments.caption.setVisible(not asks)
        self.in_chat.setVisible(not is_note)
        self.in_folder.setVisible(words.has_folder and not is_note)
        self._show_question(words.questions.get(call.id))
        self.arguments.setVisible(self.inquiry is None)
        self.result.setVisible(bool(call.result) and self.inquiry is None)
        theme.set_property(self, "kind", "card" if self._is_card else "")
        self._restyle()
        most = MOST_LINES * theme.line_height("code")
        arguments = visible(note_in(call.arguments)) if is_note and asks else arguments_text(call.arguments)
        self.arguments.text.show_text(arguments, HIGHEST_PX if asks else most)
        self.result.text.show_text(displayable(call.result), most)

    @property
    def _is_card(self) -> bool:
        return self._asks or self.inquiry is not None

    def _show_question(self, question: Question | None) -> None:
        if self.inquiry is not None and self.inquiry.question != question:
            self.inquiry.hide()
            self.inquiry.deleteLater()
            self.inquiry = None
        if question is not None and self.inquiry is None:
            self.inquiry = ServerQuestion(question)
            self.inquiry.decided.connect(self.decided)
            self._column.insertWidget(0, self.inquiry)

    def set_width(self, width: int) -> None:
        """Lay the texts out for a column of that width."""
        inner = width - 2 * (theme.px(16) + 1) if self._is_card else width - theme.px(INDENT)
        for framed in (self.arguments, self.result):
            framed.set_width(inner)
        if self.inquiry is not None:
            self.inquiry.form.set_width(inner)

    def _restyle(self) -> None:
        px = theme.px
        self._flow.setSpacing(px(8))
        self._column.setSpacing(px(10))
        if self._is_card:
            self._column.setContentsMargins(px(16), px(14), px(16), px(14))
        else:
            set_margins(self._column, px(INDENT), 0, 0, 0, self.isRightToLeft())


class ServerQuestion(QFrame):
    """A question of an MCP server: its name and words, the fields, and a warning if it asks for a secret.

    decided: accept, decline or cancel, and the values that the user entered.
    """

    decided = Signal(str, object)

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question
        server = breakable(one_line(question.server))
        fields = fields_of(question.schema)
        self.title = Label(tr("The server {server} asks you:", server=server), "label", wrap=True)
        self.message = Label(breakable(visible(question.message)), "row", wrap=True)
        self.form = QuestionForm(fields or ())
        self.note = Label("", "small", wrap=True)
        self.note.setText(tr("Your answer goes to this server. The model sees it only if the server tells it."))
        if fields is None:
            self.note.setText(tr("Hearth cannot show the fields that this server asks for."))
        elif question.asks_secret:
            self.note.setText(
                tr(
                    "This looks like a request for a password or key. Hearth cannot tell who receives it. "
                    "Enter it only if you trust this server."
                )
            )
            self.note.set_look("small", "warn")
        self.send = ConsentButton(tr("Send"), "primary")
        self.decline = ConsentButton(tr("Decline"))
        self.cancel = ConsentButton(tr("Cancel"))
        self.send.setVisible(fields is not None)
        self.send.clicked.connect(self._send)
        for act, button in (("decline", self.decline), ("cancel", self.cancel)):
            button.clicked.connect(lambda _=False, act=act: self.decided.emit(act, {}))
        self.buttons = QWidget()
        flow = Flow(self.buttons)
        flow.setSpacing(theme.px(8))
        for button in (self.send, self.decline, self.cancel):
            flow.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(10))
        for part in (self.title, self.message, self.form, self.note, self.buttons):
            column.addWidget(part)
        self.form.setVisible(bool(fields))

    def _send(self) -> None:
        values = self.form.answer()
        if values is not None:
            self.decided.emit("accept", values)


class ToolCallView(FoldingRow):
    """One call: a row, and its details, which are built when it is first opened.

    decided: as in CallDetails, with the id of the call in between.
    """

    decided = Signal(str, str, object)
    text_selected = Signal()

    def __init__(self, call: ToolCall, words: ToolWords, width: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.call, self._words, self._width = call, words, width
        self._details: CallDetails | None = None
        self.source = Label("", "meta", elide=True)
        self.source.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self._dot = Dot("hot_fill", working=True)
        self.state = Label("", "meta")
        self.row.addWidget(self.source)
        self.row.addWidget(self._dot)
        self.row.addWidget(self.state)
        self.row.addStretch(1)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._show()
        self.set_open(self.is_asking)

    def make_head(self) -> Button:
        head = _Head("", "quiet", "tool")
        head.glyph_px = 15
        return head

    @property
    def is_asking(self) -> bool:
        """Whether the call waits for the user: for consent, or for the answer to a question of its server."""
        return self.call.state is CallState.ASKING or self.call.id in self._words.questions

    @property
    def details(self) -> CallDetails:
        if self._details is None:
            self._details = CallDetails(self.room)
            self._details.decided.connect(lambda act, values: self.decided.emit(act, self.call.id, values))
            self._details.text_selected.connect(self.text_selected)
            self.inside.addWidget(self._details)
        return self._details

    def show_call(self, call: ToolCall) -> None:
        """Show a newer state of the call. It opens to ask, and closes after the answer unless the user opened it."""
        self._change(call, self._words)

    def set_words(self, words: ToolWords) -> None:
        """Set the titles of tools, whether the chat is in a folder, and the questions of servers."""
        self._change(self.call, words)

    def _change(self, call: ToolCall, words: ToolWords) -> None:
        if (call, words) == (self.call, self._words):
            return
        was_asking = self.is_asking
        self.call, self._words = call, words
        if was_asking and not self.is_asking and self.room.isAncestorOf(QApplication.focusWidget() or self):
            self.head.setFocus(Qt.FocusReason.OtherFocusReason)
        self._show()
        if self.is_asking and not was_asking:
            self.chosen = False
        if self.is_asking != was_asking and not self.chosen:
            self.set_open(self.is_asking)

    def set_primary(self, primary: bool) -> None:
        """Set whether "Allow once" is the primary button: of the first question only."""
        self.details.once.set_look("primary" if primary else "secondary")

    def set_width(self, width: int) -> None:
        """Lay the texts out for a column of that width."""
        self._width = width
        if self._details is not None:
            self._details.set_width(width)

    def set_open(self, shown: bool) -> None:
        if shown:
            self._fill()
        super().set_open(shown)
        self.head.setAccessibleDescription(tr("Expanded") if shown else tr("Collapsed"))
        self.head.setToolTip(tr("Hide the details") if shown else tr("Show the details"))
        if shown and self.is_asking:
            inquiry = self.details.inquiry
            announce(self, self.details.question.words if inquiry is None else inquiry.title.words)

    def _show(self) -> None:
        call = self.call
        title, source = self._words.title(call), label(call.source)
        timed = call.state is CallState.DONE and call.seconds is not None
        state = seconds(call.seconds) if timed else tr(STATES[CallState.ASKING if self.is_asking else call.state])
        self.head.setText(title.replace("&", "&&"))
        self.head.setAccessibleName(", ".join(part for part in (title, source, state) if part))
        self.head.updateGeometry()
        self.source.setText(source)
        self.source.setVisible(bool(source))
        self.state.setText(state)
        failed, running = call.state is CallState.FAILED, call.state is CallState.RUNNING and not self.is_asking
        self.state.set_look("metastrong" if self.is_asking or failed else "meta", "bad" if failed else None)
        self._dot.setVisible(running)
        self._dot.set_state("hot_fill", working=running)
        if self.is_open:  # else when it is opened: a long result takes 0.1 s
            self._fill()
        self.update()

    def _fill(self) -> None:
        self.details.show_call(self.call, self._words)
        self.details.set_width(self._width)

    def _restyle(self) -> None:
        px = theme.px
        self.row.setSpacing(px(8))
        set_margins(self.inside, 0, px(2), 0, px(6), self.isRightToLeft())
        if self.is_open:
            self._fill()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.room.isHidden() or self.is_asking:
            return
        place = self.details.geometry().translated(self.room.pos()).intersected(self.room.geometry())
        x = self.width() - theme.px(LINE) if self.isRightToLeft() else 0
        QPainter(self).fillRect(QRectF(x, place.y(), theme.px(LINE), place.height()), theme.colour("edge"))


class ToolCalls(QWidget):
    """All calls of an answer. decided: as in ToolCallView."""

    decided = Signal(str, str, object)
    text_selected = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.views: list[ToolCallView] = []
        self._words = ToolWords()
        self._width = theme.px(720)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(theme.px(2))

    def show_calls(self, calls: Sequence[ToolCall]) -> None:
        """Show the calls, keeping the rows of those that are shown already."""
        known = {view.call.id: view for view in self.views}
        self.views = []
        for place, call in enumerate(calls):
            view = known.pop(call.id, None)
            if view is None:
                view = ToolCallView(call, self._words, self._width, self)
                view.decided.connect(self.decided)
                view.text_selected.connect(self.text_selected)
                self._column.insertWidget(place, view)
            else:
                view.show_call(call)
            self.views.append(view)
        for gone in known.values():
            self._column.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        asking = [view for view in self.views if view.is_asking]
        for view in asking:
            view.set_primary(view is asking[0])

    def set_words(self, words: ToolWords) -> None:
        """Set the titles of tools, and whether the chat is in a folder."""
        self._words = words
        for view in self.views:
            view.set_words(words)

    def set_width(self, width: int) -> None:
        """Lay the calls out for a column of that width."""
        self._width = width
        for view in self.views:
            view.set_width(width)
