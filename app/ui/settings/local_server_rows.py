"""The rows below the local server's switch in the settings: address and key to copy, and connected programs."""

from __future__ import annotations

from typing import Any

from shiboken6 import isValid

from app.servers.local_server import LocalServer
from app.translation import figure, tr, tr_n
from app.ui.settings.setting_groups import ValueRow
from app.ui.widgets.controls import Button, IconButton
from app.ui.widgets.floating import confirm
from engine.service.protocol import ServerState

HIDDEN = "•" * 24
MOST_TALKING = 5


class LocalServerRows:
    """The rows, updated with the server. The dialog owns them."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self.address, self.key, self.talking = (
            ValueRow(title, tr("local server for other programs, openai api"))
            for title in (tr("Address"), tr("Key"), tr("Connected now"))
        )
        self.talking.copy.hide()
        self.eye = IconButton("eye", tr("Show the key"))
        self.eye.setCheckable(True)
        self.eye.clicked.connect(self.show)
        self.renew = Button(tr("Renew"), "secondary")
        self.renew.setToolTip(tr("Programs with the old key will be refused"))
        self.renew.clicked.connect(self._ask_renew)
        self.key.add(self.eye)
        self.key.add(self.renew)
        server.changed.connect(self.show)
        self.address.destroyed.connect(self._leave)
        self.show()

    @property
    def rows(self) -> list[ValueRow]:
        return [self.address, self.key, self.talking]

    def _leave(self, *_: Any) -> None:
        if isValid(self._server):  # it is deleted first where the window closes
            self._server.changed.disconnect(self.show)

    def _ask_renew(self) -> None:
        confirm(
            self.key, tr("Renew the key?"), tr("Every program that talks to this server needs the new one."),
            tr("Keep"), tr("Renew"), self._server.renew_key,
        ).danger.set_look("secondary")  # fmt: skip

    def show(self) -> None:
        """Show the server's current state."""
        server, state = self._server, self._server.state
        if server.is_wanted:  # not before: the keyring may ask the user to unlock it
            server.need_key()
        self.address.show_value(state.address or ("–" if server.is_wanted else tr("Switched off")), state.address)
        shown = self.eye.isChecked()
        self.eye.set_name(tr("Hide the key") if shown else tr("Show the key"))
        self.key.show_value((server.key if shown else HIDDEN) if server.key else "–", server.key)
        for control in (self.eye, self.renew):
            control.setEnabled(bool(server.key))
        self.talking.value.setText(clients_text(state))
        self.talking.value.setToolTip("\n".join(client_text(one) for one in state.talking))


def state_text(server: LocalServer) -> str:
    """Return the state of the server in a sentence.

    It is never empty: the rows below must not move when the switch under the pointer is pressed.
    """
    if server.trouble is not None:
        return server.trouble.sentence
    state = server.state
    if not server.is_wanted:
        return tr("Off. No other program can use a model here.")
    if not state.on:
        return tr("Starting.")
    client = server.loaded_for[1]
    if state.model and client:
        parts = [tr("On, answered by {model}, which {client} asked for.", model=state.model, client=client)]
    elif state.model:
        parts = [tr("On, answered by {model}.", model=state.model)]
    elif server.loads_models:
        parts = [tr("On. No model is loaded; a request loads the one that it names.")]
    else:
        parts = [tr("On, but no model is loaded, so requests are refused.")]
    if state.refused:
        parts.append(tr_n("{n} request was refused.", "{n} requests were refused.", state.refused,
                          n=figure(state.refused)))  # fmt: skip
    if state.last_error:
        parts.append(state.last_error)
    return " ".join(parts)


def clients_text(state: ServerState) -> str:
    """Return the connected programs in a line."""
    if not state.on:
        return "–"
    if state.talking:
        return ", ".join(client_text(one) for one in state.talking[:MOST_TALKING])
    return tr_n("None. {n} request answered so far.", "None. {n} requests answered so far.", state.answered,
                n=figure(state.answered))  # fmt: skip


def client_text(one: dict[str, Any]) -> str:
    """Return the text for one connected program."""
    client = str(one.get("client") or tr("A program"))
    if one.get("state") == "waiting":
        return tr("{client} waits", client=client)
    tokens = int(one.get("tokens") or 0)
    return tr_n("{client}: {n} token", "{client}: {n} tokens", tokens, client=client, n=figure(tokens))
