"""The row of the settings for the web search: which service answers it, and its address or key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QWidget

from app.settings import description_of, worded
from app.translation import tr
from app.ui.look import theme
from app.ui.settings.setting_rows import SettingRow
from app.ui.widgets.controls import Button, Label, Segments
from engine.errors import InvalidRequestError
from engine.remote_servers.address import checked_address

NONE, SEARXNG, BRAVE = "", "searxng", "brave"


class SearchRow(SettingRow):
    """A choice of services; below it the address of SearXNG, or the key for Brave.

    search_changed: the service, the address, and the key (None: as it is; "": delete it). Nothing is emitted for a
    service whose address or key is missing.
    """

    search_changed = Signal(str, str, object)

    def __init__(self, has_key: bool = False, parent: QWidget | None = None) -> None:
        """Build the row. has_key: whether a key for Brave is stored."""
        setting = replace(
            worded(description_of("search_service")),
            title=tr("Web search"),
            description=tr("The service that searches the web when a model asks for it."),
            group=tr("Tools"),
        )
        super().__init__(setting, parent)
        self._has_key = has_key
        self._address = ""  # the last one emitted or shown
        self._kind = NONE
        self.segments = Segments(self.setting.choices, name=self.setting.title)
        self.segments.picked.connect(self._pick)
        self._head.addWidget(self.segments, 0, Qt.AlignmentFlag.AlignVCenter)
        self.row.setDirection(QBoxLayout.Direction.TopToBottom)
        self.address = self._field(tr("Address of SearXNG"), "https://searx.example.org")
        self.key = self._field(tr("Key for Brave Search"), "")
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.remove_button = Button(tr("Remove key"), "danger")
        self.remove_button.clicked.connect(self._remove_key)
        self.says = Label("", "small", wrap=True)
        for part in (self.address, self.key, self.says):
            self.row.addWidget(part)
        self.row.addWidget(self.remove_button, 0, Qt.AlignmentFlag.AlignLeading)
        self.address.editingFinished.connect(self._finish)
        self.key.editingFinished.connect(self._finish)
        self.restyle()
        self._refresh()

    def _field(self, name: str, hint: str) -> QLineEdit:
        field = QLineEdit()
        field.setProperty("kind", "field")
        field.setAccessibleName(name)
        field.setPlaceholderText(hint)
        return field

    def show_search(self, kind: str, address: str) -> None:
        """Show the stored service and address."""
        self._kind, self._address = kind, address
        self.segments.set_value(kind)
        self.address.setText(address)
        self._refresh()

    def show_value(self, value: Any) -> None:
        self.show_search(str(value), self._address)

    def text_for(self, value: Any) -> str:
        return dict(self.setting.choices).get(value, "")

    def _offer_back(self, value: Any) -> None:
        """Offer nothing: the first choice is the default."""

    def _pick(self, kind: str) -> None:
        self._kind = kind
        self._refresh()
        if kind == NONE or (kind == SEARXNG and self._address) or (kind == BRAVE and self._has_key):
            self.search_changed.emit(kind, self._address, None)
        else:
            (self.address if kind == SEARXNG else self.key).setFocus(Qt.FocusReason.OtherFocusReason)

    def _finish(self) -> None:
        """Take the address or key that was typed."""
        if self._kind == SEARXNG:
            address = self.address.text().strip()
            if address == self._address:
                return
            try:
                checked_address(address)
            except InvalidRequestError as error:
                if address:
                    self._say(error.message, "bad")
                return
            self._address = address
            self._refresh()
            self.search_changed.emit(SEARXNG, address, None)
        elif self._kind == BRAVE and (key := self.key.text().strip()):
            self._has_key = True
            self.key.clear()
            self._refresh()
            self.search_changed.emit(BRAVE, self._address, key)

    def _remove_key(self) -> None:
        self._has_key, self._kind = False, NONE
        self.segments.set_value(NONE)
        self.segments.buttons[NONE].setFocus(Qt.FocusReason.OtherFocusReason)
        self._refresh()
        self.search_changed.emit(NONE, self._address, "")

    def _refresh(self) -> None:
        brave = self._kind == BRAVE
        self.address.setVisible(self._kind == SEARXNG)
        self.key.setVisible(brave)
        self.key.setPlaceholderText(tr("Unchanged") if self._has_key else tr("Paste the key here"))
        self.remove_button.setVisible(brave and self._has_key)
        notes = {
            NONE: "",
            SEARXNG: tr("Searches are sent to this address only. It must allow the format JSON."),
            BRAVE: tr("The key is stored in this system's keyring and sent only to Brave."),
        }
        self._say(notes[self._kind], "ink3")

    def _say(self, words: str, token: str) -> None:
        self.says.setText(words)
        self.says.set_look("small", token)
        self.says.setVisible(bool(words))
        theme.set_property(self.address, "state", "bad" if token == "bad" else "")

    def restyle(self) -> None:
        super().restyle()
        self.row.setSpacing(theme.px(8))
        for field in (self.address, self.key):
            field.setFont(theme.font("row"))
