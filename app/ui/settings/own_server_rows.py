"""What the settings show of the server on this PC below its switch: address and key to copy, and who talks to it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.servers.own_server import OwnServer
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.widgets.controls import COPIED_MS, Button, IconButton, Label
from app.ui.widgets.floating import confirm
from engine.service.protocol import ServerState

HIDDEN = "•" * 24
MOST_TALKING = 5


class _Row(QFrame):
    """A name, a value that can be copied, and what can be done with it."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title, self.value = Label(title, "label"), Label("", "small", "ink", elide=True)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self.title)
        words.addWidget(self.value)
        self._across = QHBoxLayout(self)
        self._across.addLayout(words, 1)
        self.copied = ""
        self.copy = Button(tr("Copy"), "secondary", "copy")
        self.copy.clicked.connect(self._copy)
        self._resting = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._resting.timeout.connect(lambda: self.copy.setText(tr("Copy")))
        self._across.addWidget(self.copy)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _copy(self) -> None:
        """Copy the value, and say for a moment that this was done."""
        QGuiApplication.clipboard().setText(self.copied)
        self.copy.setText(tr("Copied"))
        self._resting.start()

    def add(self, widget: QWidget) -> None:
        """A control at the end of the row."""
        self._across.insertWidget(self._across.count() - 1, widget)

    def show_value(self, shown: str, copied: str) -> None:
        """What stands there, and what is copied."""
        self.value.setText(shown)
        self.copied = copied
        self.copy.setEnabled(bool(copied))
        self.copy.setAccessibleName(tr("Copy: {what}", what=self.title.words))

    def is_found_by(self, words: list[str]) -> bool:
        """Whether every one of the words, in lower case, stands in the row."""
        said = f"{self.title.words} {tr('local server for other programs, openai api')}".casefold()
        return all(word in said for word in words)

    def _restyle(self) -> None:
        px = theme.px
        self._across.setContentsMargins(px(16), px(9), px(16), px(9))
        self._across.setSpacing(px(8))
        self.setMinimumHeight(px(58))


class OwnServerRows:
    """The rows, kept as the server is. They are the dialog's, which takes them along when it goes."""

    def __init__(self, server: OwnServer) -> None:
        self._server = server
        self.address, self.key, self.talking = _Row(tr("Address")), _Row(tr("Key")), _Row(tr("Connected now"))
        self.talking.copy.hide()
        self.eye = IconButton("eye", tr("Show the key"))
        self.eye.setCheckable(True)
        self.eye.clicked.connect(self.show)
        self.renew = Button(tr("Renew"), "secondary")
        self.renew.setToolTip(tr("Programs that have the old key are refused from then on"))
        self.renew.clicked.connect(self._ask_renew)
        self.key.add(self.eye)
        self.key.add(self.renew)
        server.changed.connect(self.show)
        self.address.destroyed.connect(self._leave)
        self.show()

    @property
    def rows(self) -> list[_Row]:
        return [self.address, self.key, self.talking]

    def _leave(self, *_: Any) -> None:
        self._server.changed.disconnect(self.show)

    def _ask_renew(self) -> None:
        confirm(
            self.key, tr("Renew the key?"), tr("Every program that talks to this server needs the new one."),
            tr("Keep"), tr("Renew"), self._server.renew_key,
        ).danger.set_look("secondary")  # fmt: skip

    def show(self) -> None:
        """Show the server as it is now."""
        server, state = self._server, self._server.state
        if server.is_wanted:  # never before: a keyring may ask the person to unlock it
            server.need_key()
        self.address.show_value(state.address or ("–" if server.is_wanted else tr("Switched off")), state.address)
        shown = self.eye.isChecked()
        self.eye.set_words(tr("Hide the key") if shown else tr("Show the key"))
        self.key.show_value((server.key if shown else HIDDEN) if server.key else "–", server.key)
        for control in (self.eye, self.renew):
            control.setEnabled(bool(server.key))
        self.talking.value.setText(talking_words(state))
        self.talking.value.setToolTip("\n".join(client_words(one) for one in state.talking))


def state_text(server: OwnServer) -> str:
    """What has become of the switch, in a sentence. There is always one: the rows below must not move when it is
    switched under the pointer."""
    if server.trouble is not None:
        return server.trouble.sentence
    state = server.state
    if not server.is_wanted:
        return tr("Off. No other program can use a model here.")
    if not state.on:
        return tr("It is being switched on.")
    parts = [tr("On, answered by {model}.", model=state.model) if state.model else
             tr("On, but no model is loaded: programs are told so.")]  # fmt: skip
    if state.refused:
        parts.append(tr_n("{n} request was refused.", "{n} requests were refused.", state.refused,
                          n=figure(state.refused)))  # fmt: skip
    if state.last_error:
        parts.append(state.last_error)
    return " ".join(parts)


def talking_words(state: ServerState) -> str:
    """Who talks to the server, in a line."""
    if not state.on:
        return "–"
    if state.talking:
        return ", ".join(client_words(one) for one in state.talking[:MOST_TALKING])
    return tr_n("None. {n} request answered so far.", "None. {n} requests answered so far.", state.answered,
                n=figure(state.answered))  # fmt: skip


def client_words(one: dict[str, Any]) -> str:
    """One program that talks to the server."""
    client = str(one.get("client") or tr("A program"))
    if one.get("state") == "waiting":
        return tr("{client} waits", client=client)
    tokens = int(one.get("tokens") or 0)
    return tr_n("{client}: {n} token", "{client}: {n} tokens", tokens, client=client, n=figure(tokens))
