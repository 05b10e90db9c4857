"""The tools of an MCP server in its dialog, with a switch to approve each, and the texts that describe a server.

A server wrote the texts of its tools: invisible characters are shown as escapes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from urllib.parse import urlsplit

from PySide6.QtCore import Qt
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout

from app.tools.call_text import breakable, label, one_line, visible
from app.tools.mcp.client import ListedTool, ToolState
from app.tools.mcp.confined import can_confine
from app.tools.mcp.server_list import Definition, ToolServer
from app.translation import noted, tr
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.widgets.controls import Chip, IconButton, Label, Toggle

LONGEST_DESCRIPTION = 300  # characters in the list; the definition has all of it
MOST_LINES = 14  # of a definition, before it scrolls
STATES = {
    ToolState.APPROVED: (noted("Approved"), "ok"),
    ToolState.NEW: (noted("New"), ""),
    ToolState.CHANGED: (noted("Changed"), "warn"),
    ToolState.GONE: (noted("Gone"), "warn"),
}
NOTES = {
    ToolState.CHANGED: noted("The server has changed it since you approved it. It is off until you approve it again."),
    ToolState.GONE: noted("You approved it, but the server no longer offers it."),
}


def command_line(server: ToolServer) -> str:
    """Return a program's whole command line as a shell would read it, or a server's whole address."""
    return visible(shlex.join((server.command, *server.args))) if server.kind == "stdio" else visible(server.address)


def short_target(server: ToolServer) -> str:
    """Return the command line, or the host of an address."""
    return command_line(server) if server.kind == "stdio" else urlsplit(server.address).netloc


def is_open(server: ToolServer) -> bool:
    """Return whether nothing confines the program of a server."""
    return server.kind == "stdio" and not (server.is_confined and can_confine())


def rights_text(server: ToolServer) -> str:
    """Return what a program can reach, as a sentence."""
    if is_open(server):
        return tr("It runs with your rights and is not confined: it can do whatever you can do on this PC.")
    return tr(
        "It runs with your rights, confined by Landlock: it can change only its own folder and the folders that you "
        "name. It can use the network."
    )


def definition_text(one: Definition) -> str:
    """Return all that the user approves of a tool."""
    parts = [one.name, one.title, one.description, _json(one.parameters)]
    if one.annotations:
        parts += [tr("The server's hints:"), _json(one.annotations)]
    return visible("\n\n".join(part for part in parts if part))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


class ApprovalRow(QFrame):
    """A tool: title, state, description and switch; below them its whole definition, folded at first.

    approve: called with the definition and whether it is approved now; returns "" or why it is not.
    """

    def __init__(self, listed: ListedTool, approve: Callable[[Definition, bool], str], fit: Callable[[], None]) -> None:
        """fit: called after the height has changed."""
        super().__init__()
        self.listed, self._approve, self._fit = listed, approve, fit
        definition = listed.definition
        title = label(definition.label)
        self.title = Label(breakable(title), "label", wrap=True)
        self.fold = IconButton("right", tr("Show the definition of {tool}", tool=title))
        self.fold.setAccessibleDescription(tr("Collapsed"))
        self.fold.clicked.connect(self._toggle_text)
        self.chip = Chip("")
        self.toggle = Toggle(tr("Approve {tool}", tool=title), listed.state in (ToolState.APPROVED, ToolState.GONE))
        self.toggle.clicked.connect(self._switch)
        head = QHBoxLayout()
        head.addWidget(self.fold)
        head.addWidget(self.title, 1)
        for part in (self.chip, self.toggle):
            head.addWidget(part, 0, Qt.AlignmentFlag.AlignVCenter)
        self._head = head
        said = one_line(definition.description)
        if len(said) > LONGEST_DESCRIPTION:
            said = said[:LONGEST_DESCRIPTION] + "…"
        self.description = Label(breakable(said), "small", wrap=True)
        self.description.setVisible(bool(said))
        self.note = Label("", "small", wrap=True)
        self.text: QPlainTextEdit | None = None  # built when it is first opened
        self._column = QVBoxLayout(self)
        self._column.addLayout(head)
        self._below = QVBoxLayout()
        self._below.addWidget(self.description)
        self._below.addWidget(self.note)
        self._column.addLayout(self._below)
        self._show_state(listed.state)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _show_state(self, state: ToolState) -> None:
        words, self.chip.tone = STATES[state]  # type: ignore[assignment]
        self.chip.setText(tr(words))
        self.chip.updateGeometry()
        self.chip.update()
        self._say(tr(NOTES[state]) if state in NOTES else "", "warn")

    def _say(self, words: str, token: str) -> None:
        self.note.setText(words)
        self.note.set_look("small", token)
        self.note.setVisible(bool(words))

    def _switch(self) -> None:
        on, state = self.toggle.isChecked(), self.listed.state
        if fault := self._approve(self.listed.definition, on):
            self.toggle.setChecked(not on)
            self._say(fault, "bad")
        elif on:
            self._show_state(ToolState.GONE if state is ToolState.GONE else ToolState.APPROVED)
        else:
            self._show_state(ToolState.NEW)
        self._fit()

    def _toggle_text(self) -> None:
        if self.text is None:
            self.text = self._made_text()
            self._column.addWidget(self.text)
        shown = self.text.isHidden()
        self.text.setVisible(shown)
        self.fold.set_glyph("down" if shown else "right")
        tool = label(self.listed.definition.label)
        self.fold.set_name(
            tr("Hide the definition of {tool}", tool=tool) if shown else tr("Show the definition of {tool}", tool=tool)
        )
        self.fold.setAccessibleDescription(tr("Expanded") if shown else tr("Collapsed"))
        self._restyle()
        self._fit()

    def _made_text(self) -> QPlainTextEdit:
        words = definition_text(self.listed.definition)
        if self.listed.state is ToolState.CHANGED and self.listed.approved is not None:
            before = definition_text(self.listed.approved)
            words = "\n\n".join((tr("NOW"), words, tr("AS YOU APPROVED IT"), before))
        name = tr("Definition of {tool}", tool=label(self.listed.definition.label))
        text = read_only(name, words)
        text.hide()
        return text

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(6), px(6), px(12), px(10))
        self._column.setSpacing(px(2))
        self._head.setSpacing(px(6))
        inset = self.fold.sizeHint().width() + px(6)  # below the title
        set_margins(self._below, inset, 0, 0, 0, self.isRightToLeft())
        self._below.setSpacing(px(2))
        if self.text is not None:
            fit_lines(self.text, MOST_LINES)


def read_only(name: str, words: str) -> QPlainTextEdit:
    """Return a text that is selectable and scrolls; set its height with `fit_lines`."""
    text = QPlainTextEdit()
    text.setProperty("kind", "field")
    text.setReadOnly(True)
    text.setTabChangesFocus(True)
    text.setAccessibleName(name)
    text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    text.setPlainText(words)
    return text


def fit_lines(text: QPlainTextEdit, most: int) -> None:
    """Set font and height of a read-only text: as many lines as it has, at most `most`."""
    text.setFont(theme.font("code"))
    lines = min(max(text.blockCount(), 2), most)
    text.setFixedHeight(lines * theme.line_height("code") + theme.px(18))
