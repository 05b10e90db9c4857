"""The results of a hub search: a section of cards, or the reason why it is empty."""

from __future__ import annotations

from collections.abc import Sequence, Set

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.translation import figure, noted, tr, tr_n
from app.ui.look import theme
from app.ui.widgets.card_frame import CardFrame, CardGrid
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.empty_state import EmptyState
from app.user_messages import UserMessage
from engine.library.records import HubModel

HUB_PAGE = "https://huggingface.co/"
HUB_CARD_PX = 104


def count(number: int) -> str:
    """Return a short form of a count: "1.2M", "34k", "812"."""
    if number >= 1_000_000:
        return f"{figure(round(number / 1e6, 1), 'g')}M"
    return f"{number / 1e3:.0f}k" if number >= 10_000 else figure(number)


def hub_line(model: HubModel) -> str:
    """Return licence, downloads, likes and date of a repository in one line."""
    likes = tr_n("{n} like", "{n} likes", model.likes, n=count(model.likes))
    downloads = tr("{downloads} downloads", downloads=count(model.downloads))
    parts = (model.licence, downloads, likes, model.updated[:10])
    return " · ".join(part for part in parts if part)


class HubCard(CardFrame):
    """A search result. A click, or its button, opens the repository."""

    looked_into = Signal(str)

    def __init__(self, model: HubModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.high_px = HUB_CARD_PX
        self.model = model
        self.owner, _, self.name = model.repo.partition("/")
        self.look = Button(tr("Show files"), parent=self)
        self.look.setAccessibleName(tr("Show files: {repo}", repo=model.repo))
        self.look.clicked.connect(lambda: self.looked_into.emit(model.repo))
        self.pressed.connect(lambda: self.looked_into.emit(model.repo))
        access = tr("asks for access") if model.gated else ""
        self.setAccessibleName(". ".join(part for part in (self.name, self.owner, hub_line(model), access) if part))
        self.restyle()

    def arrange(self) -> None:
        box, size = self.inside(), self.look.sizeHint()
        rect = QRectF(box.right() - size.width(), box.bottom() - size.height(), size.width(), size.height())
        self.look.setGeometry(self.mirrored(rect).toRect())

    def paint_text(self, painter: QPainter) -> None:
        px, box = theme.px, self.inside()
        taken = self.chip(painter, tr("Asks for access"), box.right(), box.top(), "", True) if self.model.gated else 0
        room = box.width() - (taken + px(10) if taken else 0)
        self.write(painter, self.name, QRectF(box.left(), box.top(), room, px(20)), "heading")
        self.write(painter, self.owner, QRectF(box.left(), box.top() + px(21), room, px(16)), "meta")
        wide = box.width() - self.look.width() - px(12)
        line = QRectF(box.left(), box.bottom() - px(32), wide, px(32))
        self.write(painter, hub_line(self.model), line, "meta", "ink2")


class HubResults(QFrame):
    """The section of search results below the known models. found: None until the hub has answered."""

    looked_into = Signal(str)
    remedy = Signal(str)  # action; "" searches again

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.found: list[HubModel] | UserMessage | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(10))
        self.head = Label(tr("On the Hugging Face hub"), "smallstrong")
        self.line = Label(tr("Searching"), "small")
        self.empty_state = EmptyState()
        self.empty_state.remedy.connect(self.remedy)
        self.ask = Button(tr("Search the hub"), "secondary", "search")
        self.ask.clicked.connect(lambda: self.remedy.emit(""))
        self.grid = CardGrid(tr("Models on the hub"))
        self.cards: list[HubCard] = []
        for widget in (self.head, self.line, self.empty_state, self.grid):
            column.addWidget(widget)
        column.insertWidget(2, self.ask, 0, Qt.AlignmentFlag.AlignLeading)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.head.setFixedHeight(theme.px(30))

    def set_found(self, found: Sequence[HubModel] | UserMessage | None) -> None:
        """Set the results; None before the hub has answered. `show_for` shows them."""
        self.found = found if found is None or isinstance(found, UserMessage) else list(found)

    def show_for(self, text: str, known: Set[str], has_known: bool, asked: bool) -> None:
        """Show the results for a text, except repositories that are already known; "" hides the section.

        has_known: whether known models are shown above. asked: whether the hub was asked; nothing is sent before the
        user asks.
        """
        hits = [hit for hit in self.found if hit.repo not in known] if isinstance(self.found, list) else []
        if [card.model for card in self.cards] != hits:
            self.grid.set_cards([])
            for card in self.cards:
                self.grid.discard(card)
            self.cards = [HubCard(hit) for hit in hits]
            for card in self.cards:
                card.looked_into.connect(self.looked_into)
        nothing = self.found is not None and not hits
        self.setVisible(bool(text))
        self.head.setVisible(has_known or not nothing)
        self.line.setVisible(self.found is None)
        first = tr("Press Enter to search the hub. Only then are your words sent to it.")
        self.line.setText(tr("Searching") if asked else first)
        self.ask.setVisible(not asked and self.found is None)
        self.empty_state.setVisible(nothing)
        self.grid.set_cards(self.cards)
        self.grid.setVisible(bool(hits))
        if isinstance(self.found, UserMessage):
            self.empty_state.show_message(self.found)
        elif nothing:
            words = (
                noted("The hub has nothing more for “{text}”")
                if has_known
                else noted("The hub has nothing for “{text}”")
            )
            self.empty_state.say(
                tr(words, text=text),
                tr("Try fewer words, or paste a repository link."),
            )
