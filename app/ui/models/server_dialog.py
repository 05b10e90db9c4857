"""The dialog that adds or changes a server: address, key, name, and the models to offer.

Nothing is sent to the server before the user presses the button that lists its models. The key is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.clients.servers import MAX_MODELS, NAME_LENGTH, Server
from app.translation import figure, noted, tr, tr_n
from app.ui.look import theme
from app.ui.models.model_dialogs import card_of_rows, two_lines
from app.ui.widgets.controls import Button, Label, Toggle
from app.ui.widgets.dialog import Dialog
from app.user_messages import UserMessage
from engine.errors import InvalidRequestError
from engine.remote_servers.address import checked_address, is_this_pc
from engine.remote_servers.wire import is_name

MOST_ROWS = 40
KEY_NOTE = noted("The key is stored in this system's keyring and sent only to this address.")
OPEN_NOTE = noted("Not encrypted: others in this network can read what is sent.")


class ServerDialog(Dialog):
    """look_requested: address and key, to list the models. entered: name, address, key (None: unchanged), models.

    remove_requested: remove the server.
    """

    look_requested = Signal(str, str)
    entered = Signal(str, str, object, list)
    remove_requested = Signal()

    def __init__(self, parent: QWidget, server: Server | None = None) -> None:
        super().__init__(
            parent, tr("Add a server") if server is None else server.name,
            tr("A server that speaks OpenAI's API: a program on this PC such as Ollama, or another machine. Only chats "
               "for which you choose it are sent there."), 480,
        )  # fmt: skip
        self.server = server
        self._picked: dict[str, None] = dict.fromkeys(server.models if server is not None else ())
        self._listed: list[str] = list(self._picked)
        self.address = self._field(tr("Address"), "https://example.org/v1")
        self.key = self._field(tr("Key"), tr("Unchanged") if server is not None and server.has_key else
                               tr("Leave empty if it needs none"))  # fmt: skip
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key_note = Label("", "meta", wrap=True)
        self.body.addWidget(self.key_note)
        self.name = self._field(tr("Name"), tr("Any name"))
        self.name.setMaxLength(NAME_LENGTH)
        if server is not None:
            self.address.setText(server.address)
            self.address.setReadOnly(True)
            self.address.setToolTip(
                tr("For another address, add another server. Chats are never moved to another address.")
            )
            self.name.setText(server.name)
        self._add_models()
        self._add_buttons()
        for field in (self.address, self.name, self.filter):
            field.textChanged.connect(self._refresh)
        self._refresh()
        (self.address if server is None else self.name).setFocus()

    def _field(self, words: str, hint: str) -> QLineEdit:
        column = QVBoxLayout()
        column.setSpacing(theme.px(3))
        column.addWidget(Label(words, "small", "ink2"))
        field = QLineEdit()
        field.setProperty("kind", "field")
        field.setPlaceholderText(hint)
        field.setAccessibleName(words)
        field.setFont(theme.font("row"))
        column.addWidget(field)
        self.body.addLayout(column)
        return field

    def _add_models(self) -> None:
        head = QHBoxLayout()
        self.models_head = Label(tr("Models"), "small", "ink2")
        self.look = Button(tr("List its models"), "secondary")
        self.look.setToolTip(tr("Asks this address which models it has"))
        self.look.clicked.connect(self._ask)
        head.addWidget(self.models_head, 1)
        head.addWidget(self.look)
        self.body.addLayout(head)
        self.filter = QLineEdit()
        self.filter.setProperty("kind", "field")
        self.filter.setPlaceholderText(tr("Type to filter, or a model's name"))
        self.filter.setAccessibleName(tr("Filter models, or the name of one"))
        self.filter.setFont(theme.font("row"))
        self.filter.returnPressed.connect(self._take_typed)
        self.body.addWidget(self.filter)
        self.says = Label("", "small", wrap=True)
        self.body.addWidget(self.says)
        self._list = QVBoxLayout()
        self.body.addLayout(self._list)

    def _add_buttons(self) -> None:
        if self.server is not None:
            self.remove = self.add_button(Button(tr("Remove"), "danger"), at_start=True)
            self.remove.clicked.connect(self._remove)
        self.add_close(tr("Cancel"))
        self.keep = self.add_button(Button(tr("Add") if self.server is None else tr("Keep"), "primary"))
        self.keep.clicked.connect(self._enter)

    # --- models

    @property
    def picked(self) -> list[str]:
        return list(self._picked)

    def show_looked(self, found: Sequence[str] | UserMessage) -> None:
        """Show the server's models, or why they are unknown."""
        self.look.setEnabled(True)
        if isinstance(found, UserMessage):
            self._say(found.sentence, "bad")
        else:
            self._listed = list(dict.fromkeys([*self._picked, *found]))
            if len(found) == 1:
                self._picked[found[0]] = None
            many = tr_n("It has {n} model. Choose which are offered.", "It has {n} models. Choose which are offered.",
                        len(found), n=figure(len(found)))  # fmt: skip
            self._say(many if found else tr("It lists no models. Type the name of one."), "ink2")
        self._refresh()

    def _ask(self) -> None:
        self.look.setEnabled(False)
        self._say(tr("Asking the server"), "ink2")
        self.look_requested.emit(self.address.text().strip(), self.key.text().strip())

    def _say(self, words: str, token: str) -> None:
        self.says.setText(words)
        self.says.set_look("small", token)
        self.fit()

    def _take_typed(self) -> None:
        """Pick the only model that the filter shows, or add one that the server does not list."""
        typed = self.filter.text().strip()
        shown = self._shown()
        if not is_name(typed) or len(shown) > 1:
            return
        if not shown:
            self._listed.insert(0, typed)
        self._pick(shown[0] if shown else typed, True)
        self.filter.clear()
        self._refresh()

    def _shown(self) -> list[str]:
        """Return the models that the filter lets through; only one if it is one's whole name."""
        typed = self.filter.text().strip().casefold()
        exact = [model for model in self._listed if model.casefold() == typed]
        return exact[:1] or [model for model in self._listed if typed in model.casefold()]

    def _pick(self, model: str, on: bool) -> None:
        if on and len(self._picked) < MAX_MODELS:
            self._picked[model] = None
        else:
            self._picked.pop(model, None)
        self._show_enough()

    def _refresh(self) -> None:
        typed, shown = self.filter.text().strip(), self._shown()[:MOST_ROWS]
        while (item := self._list.takeAt(0)) is not None:
            if (gone := item.widget()) is not None:
                gone.hide()
                gone.deleteLater()
        if shown:
            card = card_of_rows([self._model_row(model) for model in shown])
            self._list.addWidget(card)
            card.show()  # a hidden widget takes no space in a layout
        elif typed:
            self._say(tr("Enter adds “{model}”.", model=typed), "ink2")
        self._show_enough()
        self.fit()

    def _model_row(self, model: str) -> QWidget:
        toggle = Toggle(model)
        toggle.setChecked(model in self._picked)
        toggle.clicked.connect(lambda: self._pick(model, toggle.isChecked()))
        return two_lines(model, "", toggle)

    # --- entering

    def _show_enough(self) -> None:
        try:
            address = checked_address(self.address.text())
        except InvalidRequestError:
            address = ""
        parts = urlsplit(address)
        is_open = parts.scheme == "http" and not is_this_pc(parts.hostname or "")
        self.key_note.setText(tr(OPEN_NOTE) if is_open else tr(KEY_NOTE))
        self.key_note.set_look("meta", "warn" if is_open else "ink3")
        self.look.setEnabled(bool(self.address.text().strip()))
        self.keep.setEnabled(bool(address and self._picked))
        self.keep.setToolTip("" if self._picked else tr("Choose a model first"))

    def return_pressed(self) -> None:
        if self.filter.hasFocus():
            return  # it added the typed model
        for button in (self.keep, self.look):
            if button.isEnabled():
                button.click()
                return

    def _enter(self) -> None:
        typed = self.key.text().strip()
        key = typed if typed or self.server is None else None
        self.key.clear()
        self.accept()
        self.entered.emit(self.name.text(), self.address.text(), key, self.picked)

    def _remove(self) -> None:
        self.reject()
        self.remove_requested.emit()
