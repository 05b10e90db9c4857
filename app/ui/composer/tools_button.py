"""The composer's Tools button and its menu: which tools the open chat can use."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.tools.call_text import label, visible
from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer
from app.translation import figure, tr, tr_n
from app.ui.composer.switch_menu import SwitchMenu, SwitchRow
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.pick_menu import clear
from app.ui.widgets.pick_row import INSET, PickRow

WIDTH = 340
LONGEST_TOOLTIP = 400  # characters; the author of the tool wrote the description for models


def cost_of_tools(n: int) -> str:
    """Return how many tokens the definitions of the tools that are on take, as a sentence."""
    return tr_n(
        "The tools that are on take {n} token of the context.", "The tools that are on take {n} tokens of the context.",
        n, n=figure(n),
    )  # fmt: skip


class ToolRow(SwitchRow):
    """A tool's title, and a switch."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool.name, label(tool.title), visible(tool.description)[:LONGEST_TOOLTIP])
        self.tool = tool


class ToolsMenu(SwitchMenu):
    """The tools in groups by their source, with a switch each. It stays open while tools are switched.

    picked: names of the tools that are on. manage_requested: open the settings of tools. ask_again: forget what calls
    are allowed in the chat and its folder.
    """

    picked = Signal(list)
    manage_requested = Signal()
    ask_again = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Tools of this chat"), window, WIDTH)
        self._offer = ToolOffer()
        self.body.addLayout(self.switches)
        self.cost = Label("", "meta", wrap=True)
        self.body.addWidget(self.cost)
        self.add_rule()
        self.ask = PickRow(tr("Ask again before every call"), "lock")
        self.ask.clicked.connect(self._ask_again)
        self.body.addWidget(self.ask)
        self.manage = PickRow(tr("Manage tools…"), "settings")
        self.manage.clicked.connect(self._manage)
        self.body.addWidget(self.manage)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def show_offer(self, offer: ToolOffer) -> None:
        """Show the tools, and which are on. Rows stay while the tools are the same."""
        before, self._offer = self._offer, offer
        if before.tools != offer.tools or not self.switches.count():
            clear(self.switches)
            for source, tools in offer.groups:
                head = self.add_head(label(source) if source else tr("Built in"), self.switches)
                head.show()  # at once, like the rows, so that the card's height is right
                for tool in tools:
                    self.add_row(ToolRow(tool))
        for row in self.rows():
            row.toggle.setChecked(row.key in offer.on)
        known = offer.tokens is not None and offer.n_on > 0
        if offer.tokens is not None and known:
            self.cost.setText(cost_of_tools(offer.tokens))
        self.cost.setVisible(known)
        self.ask.setVisible(offer.has_consents)
        self.place()

    def switch(self, name: str, is_on: bool) -> None:
        picked = self._offer.picked(name, is_on)
        # switched again before the answer comes, this choice counts too
        self._offer = replace(self._offer, on=frozenset(picked), tokens=None)
        self.picked.emit(picked)

    def _ask_again(self) -> None:
        self.dismiss()
        self.ask_again.emit()

    def _manage(self) -> None:
        self.dismiss()
        self.manage_requested.emit()

    def _restyle(self) -> None:
        self.cost.setContentsMargins(theme.px(INSET), theme.px(6), theme.px(INSET), theme.px(2))


class ToolsButton(Button):
    """Opens the menu of tools, and shows how many are on.

    tools_picked: the names of the tools that are on. tools_page_wanted: open the settings of tools.
    consents_dropped: as ToolsMenu.ask_again.
    """

    tools_picked = Signal(list)
    tools_page_wanted = Signal()
    consents_dropped = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "tool", parent=parent)
        self._offer = ToolOffer()
        self._menu: ToolsMenu | None = None  # built on first use
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.clicked.connect(self.open_menu)
        self.set_tools(self._offer)

    @property
    def menu_of_tools(self) -> ToolsMenu:
        if self._menu is None:
            self._menu = ToolsMenu(self.window())
            self._menu.picked.connect(self.tools_picked)
            self._menu.manage_requested.connect(self.tools_page_wanted)
            self._menu.ask_again.connect(self.consents_dropped)
        return self._menu

    def set_tools(self, offer: ToolOffer) -> None:
        self._offer = offer
        n = offer.n_on
        self.setText(figure(n) if n else "")
        words = tr_n("Tools: {n} is on", "Tools: {n} are on", n, n=figure(n)) if n else tr("Tools: none is on")
        self.setAccessibleName(words)
        self.setToolTip(words)
        self.updateGeometry()
        if self._menu is not None and self._menu.is_open:
            if offer.is_shown:
                self._menu.show_offer(offer)
            else:
                self._menu.dismiss()

    def open_menu(self) -> None:
        if self.menu_of_tools.is_open:
            self.menu_of_tools.dismiss()
        elif self._offer.is_shown:
            self.menu_of_tools.show_offer(self._offer)
            self.menu_of_tools.open_at(self)
