"""The page of a chat without messages: logo, state, this PC, three prompts to try, and on first launch a larger model.

It offers nothing that does not work yet. The composer is placed in its middle.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QScrollArea,
    QSizePolicy,
    QSpacerItem,
    QVBoxLayout,
    QWidget,
)

from app.clients.engine_status import EngineStatus, Phase
from app.models.model_rows import ModelRow
from app.translation import noted, tr
from app.ui.chat.offer_card import OfferCard
from app.ui.look import icons, theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import antialiased, block, outline
from app.ui.transcript.message_column import text_column
from app.ui.widgets.controls import Label, PlainButton

PROMPTS = (
    ("pen", noted("A story"), noted("Tell me a story about a small fox")),
    ("search", noted("A question"), noted("What is the capital of Peru?")),
    ("table", noted("A small sum"), noted("Tom has 5 apples and gives away 2. How many are left?")),
)
_TITLES = {
    Phase.READY: noted("Ready when you are"),
    Phase.FAILED: noted("No model is loaded"),
    Phase.OFF: noted("No model is loaded"),
}
STAYS_HERE = noted("Nothing you type leaves this computer.")
STAYS_HERE_BUT = noted("Nothing leaves this computer unless you allow a tool to send it.")
CARD, CARD_GAP, INSET, GLYPH = 118, 12, 16, 18
MARK, MARK_GAP = 56, 16


class PromptCard(PlainButton):
    """A prompt to try, as a clickable card."""

    def __init__(self, glyph: str, title: str, prompt: str, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.glyph, self.title, self.prompt = glyph, title, prompt
        self.setAccessibleName(f"{title}: {prompt}")
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setProperty("focusRadius", 12)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self.update)

    def height_for(self, width: int) -> int:
        """Return the height that shows all text at a width."""
        words = QRect(0, 0, width - 2 * theme.px(INSET), 10_000)
        lines = QFontMetrics(theme.font("small")).boundingRect(words, Qt.TextFlag.TextWordWrap, self.prompt).height()
        return max(theme.px(CARD), self._text_top() + lines + theme.px(INSET))

    def title_width(self) -> int:
        """Return the width that shows the title on one line."""
        return QFontMetrics(theme.font("label")).horizontalAdvance(self.title) + 2 * theme.px(INSET) + 1

    @staticmethod
    def _text_top() -> int:
        return theme.px(INSET + GLYPH + 8) + theme.line_height("label") + theme.px(3)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(CARD))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(120), theme.px(CARD))

    def paintEvent(self, event: QPaintEvent) -> None:
        t, px, painter = theme.current().tokens, theme.px, antialiased(self)
        rect = QRectF(self.rect())
        pressed, hover = self.isDown(), self.underMouse()
        ground = theme.mix(t.card, t.ink, 0.06 if pressed else 0.02 if hover else 0)
        block(painter, rect, ground, px(12))
        outline(painter, rect, t.control if pressed else t.edge if hover else t.line, px(12))
        side, inset = px(GLYPH), px(INSET)
        left = self.width() - inset - side if self.isRightToLeft() else inset
        icons.paint(painter, self.glyph, QRectF(left, inset, side, side), theme.colour("ink2"))
        content = QRectF(inset, inset + side + px(8), self.width() - 2 * inset, theme.line_height("label"))
        flags = leading(self.isRightToLeft()) | Qt.AlignmentFlag.AlignTop
        painter.setFont(theme.font("label"))
        painter.setPen(theme.colour("ink"))
        painter.drawText(content, flags | order(self.title), self.title)
        painter.setFont(theme.font("small"))
        painter.setPen(theme.colour("ink2" if hover or pressed else "ink3"))
        top = self._text_top()
        words = QRectF(inset, top, self.width() - 2 * inset, self.height() - top - px(4))
        painter.drawText(words, flags | Qt.TextFlag.TextWordWrap | order(self.prompt), self.prompt)


class EmptyPage(QScrollArea):
    """The page of a new chat. prompt_chosen: the prompt of a clicked card."""

    prompt_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setAccessibleName(tr("New chat"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        centre = Qt.AlignmentFlag.AlignHCenter
        self._head = QWidget()
        head = QVBoxLayout(self._head)
        head.setContentsMargins(0, 0, 0, 0)
        head.addWidget(icons.Glyph("mark", px=MARK), 0, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self._title = Label("", "display", align=centre)
        self._icon = icons.Glyph("check", "ok", 16)
        self._machine = Label("", "label", elide=True)
        self._about = Label("", "small", "ink3", wrap=True, align=centre)
        self._gaps: list[tuple[QSpacerItem, int]] = []
        self._privacy = Label(tr(STAYS_HERE), "meta")
        self._tools_send, self._status = False, EngineStatus()
        self.cards = [PromptCard(glyph, tr(title), tr(prompt)) for glyph, title, prompt in PROMPTS]
        self.offer = OfferCard()
        self.offer.dismissed.connect(self._lay_out)

        machine = QHBoxLayout()
        machine.setSpacing(theme.px(6))
        machine.addStretch(1)
        machine.addWidget(self._icon)
        machine.addWidget(self._machine)
        machine.addStretch(1)
        cards = self._cards = QHBoxLayout()
        for card in self.cards:
            cards.addWidget(card, 1)
            card.clicked.connect(lambda _=False, card=card: self.prompt_chosen.emit(card.prompt))
        privacy = QHBoxLayout()
        privacy.setSpacing(theme.px(4))
        privacy.addStretch(1)
        self._lock = icons.Glyph("lock", "ink3", 14)
        privacy.addWidget(self._lock)
        privacy.addWidget(self._privacy)
        privacy.addStretch(1)
        self.composer_place = QVBoxLayout()

        self._content = QWidget()
        self._column = QVBoxLayout(self._content)
        self._column.setSpacing(0)
        self._column.addStretch(1)
        self._column.addWidget(self._head)
        self._column.addWidget(self._title)
        self._add_gap(10)
        self._column.addLayout(machine)
        self._add_gap(4)
        self._column.addWidget(self._about)
        self._add_gap(26)
        self._column.addLayout(self.composer_place)
        self._add_gap(12)
        self._column.addLayout(cards)
        self._add_gap(12)
        self._column.addWidget(self.offer)
        self._column.addStretch(1)
        self._add_gap(12)
        self._column.addLayout(privacy)
        self.setWidget(self._content)
        self._content.setAutoFillBackground(False)
        self._content.installEventFilter(self)
        theme.current().changed.connect(self._lay_out)
        self.set_machine_line("")
        self.set_status(EngineStatus())

    def _add_gap(self, px: int) -> None:
        gap = QSpacerItem(0, 0, QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self._column.addItem(gap)
        self._gaps.append((gap, px))

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's state as the title, and describe the model in a sentence."""
        title = tr(_TITLES[status.phase]) if status.phase in _TITLES else status.word
        described = tr(status.description)
        what = f"{described[:1].lower()}{described[1:]}"
        # Keep the line while it is empty: the composer must not move when the model is loaded.
        line = tr("{model} is {what} It works offline.", model=status.model, what=what) if status.description else " "
        if status.is_base:
            line = tr("This is a base model: it continues text rather than answering.")
        self._status = status
        self._show_where(status)
        if status.server:
            where = {"model": status.model, "server": status.server}
            line = (tr("{model} on {server}, not on this PC.", **where) if status.leaves else
                    tr("{model} in {server}, another program on this PC.", **where))  # fmt: skip
        if status.phase in (Phase.OFF, Phase.FAILED):
            line = tr("Your next message loads {model}.", model=status.can_load) if status.can_load else " "
        before = (self._title.words, self._about.words)
        self._title.setText(title)
        if (title, line) != before:  # the status changes a hundred times a second during an answer
            self._about.setText(line)
            self._lay_out()

    def set_tools_send(self, tools_send: bool) -> None:
        """Set whether a tool is on that may send something, with the user's consent."""
        self._tools_send = tools_send
        self._show_where(self._status)

    def _show_where(self, status: EngineStatus) -> None:
        """Say whether typed text stays on this PC."""
        if status.leaves:
            words = tr("What you write in this chat is sent to {server}.", server=status.server)
        elif status.server:
            words = tr("What you write in this chat is sent to {server} on this PC.", server=status.server)
        else:
            words = tr(STAYS_HERE_BUT if self._tools_send else STAYS_HERE)
        self._privacy.setText(words)
        glyph = "away" if status.leaves else "chip" if status.server else "lock"
        self._lock.set_look(glyph, "away" if status.leaves else "ink3")

    def set_offer(self, row: ModelRow | None) -> None:
        """Offer a larger model, or show its download; None hides the card."""
        self.offer.show_row(row)
        self._lay_out()

    def set_machine_line(self, line: str, has_gpu: bool = False) -> None:
        """Describe this PC in one line; empty until it is known."""
        self._machine.setText(line)
        self._icon.setVisible(bool(line))
        self._icon.set_look("check" if has_gpu else "chip", "ok" if has_gpu else "ink3")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        px = theme.px
        left, width = text_column(self.width())
        right = max(self.viewport().width() - left - width, 0)
        self._column.setContentsMargins(left, px(16), right, px(18))
        self._cards.setSpacing(px(CARD_GAP))
        self._head.setFixedHeight(px(MARK + MARK_GAP))
        each = (width - (len(self.cards) - 1) * px(CARD_GAP)) // len(self.cards)
        beside = all(card.title_width() <= each for card in self.cards)
        direction = QBoxLayout.Direction
        self._cards.setDirection(direction.LeftToRight if beside else direction.TopToBottom)
        each = each if beside else width
        high = max(card.height_for(each) for card in self.cards)
        for card in self.cards:
            card.setFixedHeight(high)
        for gap, size in self._gaps:
            gap.changeSize(0, px(size), QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self._column.invalidate()
        self._place_mark()

    def _place_mark(self) -> None:
        """Hide the logo in a low window, to make space for composer and cards."""
        width, column = self.viewport().width(), self._column
        wanted = max(column.totalHeightForWidth(width), column.totalMinimumSize().height())
        if self._head.isHidden():
            wanted += theme.px(MARK + MARK_GAP)
        self._head.setVisible(wanted <= self.viewport().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest and watched is self._content:
            self._place_mark()  # the composer was added, or a line wraps
        return super().eventFilter(watched, event)
