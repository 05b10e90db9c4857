"""What a chat without messages shows: the mark, the state in words, this PC, and three things to try.

It offers nothing that does not work yet, and it leaves a place in its middle for the composer.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.engine_status import EngineStatus, Phase
from app.ui import icons, theme
from app.ui.controls import Label
from app.ui.painting import antialiased, block, outline
from app.ui.transcript import text_column

PROMPTS = (
    ("pen", "A story", "Tell me a story about a small fox"),
    ("search", "A question", "What is the capital of Peru?"),
    ("table", "A small sum", "Tom has 5 apples and gives away 2. How many are left?"),
)
_TITLES = {Phase.READY: "Ready when you are", Phase.FAILED: "No model is loaded", Phase.OFF: "No model is loaded"}


class PromptCard(QPushButton):
    """A message to try, as a card that can be pressed."""

    def __init__(self, glyph: str, title: str, prompt: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.glyph, self.title, self.prompt = glyph, title, prompt
        self.setAccessibleName(f"{title}: {prompt}")
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setProperty("focusRadius", 12)
        self.setAutoDefault(False)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(118))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(118))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(120), theme.px(118))

    def paintEvent(self, event: QPaintEvent) -> None:
        t, px, painter = theme.current().tokens, theme.px, antialiased(self)
        rect = QRectF(self.rect())
        pressed, hover = self.isDown(), self.underMouse()
        ground = theme.mix(t.card, t.ink, 0.06 if pressed else 0.02 if hover else 0)
        block(painter, rect, ground, px(12))
        outline(painter, rect, t.control if pressed else t.edge if hover else t.line, px(12))
        side, inset = px(18), px(16)
        left = self.width() - inset - side if self.isRightToLeft() else inset
        icons.paint(painter, self.glyph, QRectF(left, inset, side, side), theme.colour("ink2"))
        room = QRectF(inset, inset + side + px(8), self.width() - 2 * inset, theme.line_height("label"))
        leading = Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignTop
        painter.setFont(theme.font("label"))
        painter.setPen(theme.colour("ink"))
        painter.drawText(room, leading, self.title)
        painter.setFont(theme.font("small"))
        painter.setPen(theme.colour("ink2" if hover or pressed else "ink3"))
        top = room.bottom() + px(3)
        words = QRectF(inset, top, self.width() - 2 * inset, self.height() - top - px(8))
        painter.drawText(words, int(leading) | Qt.TextFlag.TextWordWrap, self.prompt)


class EmptyPage(QScrollArea):
    """The page of a new chat. `prompt_chosen` gives the text of a card that was pressed."""

    prompt_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setAccessibleName("New chat")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        centre = Qt.AlignmentFlag.AlignHCenter
        self._mark = icons.Glyph("mark", px=56)
        self._title = Label("", "display", align=centre)
        self._sign = icons.Glyph("check", "ok", 16)
        self._machine = Label("", "label")
        self._about = Label("", "small", "ink3", wrap=True, align=centre)
        self._privacy = Label("Nothing you type leaves this computer.", "meta")
        self.cards = [PromptCard(*prompt) for prompt in PROMPTS]

        machine = QHBoxLayout()
        machine.setSpacing(theme.px(6))
        machine.addStretch(1)
        machine.addWidget(self._sign)
        machine.addWidget(self._machine)
        machine.addStretch(1)
        cards = QHBoxLayout()
        cards.setSpacing(theme.px(12))
        for card in self.cards:
            cards.addWidget(card, 1)
            card.clicked.connect(lambda _=False, card=card: self.prompt_chosen.emit(card.prompt))
        privacy = QHBoxLayout()
        privacy.setSpacing(theme.px(4))
        privacy.addStretch(1)
        privacy.addWidget(icons.Glyph("lock", "ink3", 14))
        privacy.addWidget(self._privacy)
        privacy.addStretch(1)
        self.composer_place = QVBoxLayout()

        self._content = QWidget()
        self._column = QVBoxLayout(self._content)
        self._column.setSpacing(0)
        self._column.addStretch(1)
        self._column.addWidget(self._mark, 0, centre)
        self._column.addSpacing(theme.px(16))
        self._column.addWidget(self._title)
        self._column.addSpacing(theme.px(10))
        self._column.addLayout(machine)
        self._column.addSpacing(theme.px(4))
        self._column.addWidget(self._about)
        self._column.addSpacing(theme.px(26))
        self._column.addLayout(self.composer_place)
        self._column.addSpacing(theme.px(12))
        self._column.addLayout(cards)
        self._column.addStretch(1)
        self._column.addSpacing(theme.px(12))
        self._column.addLayout(privacy)
        self.setWidget(self._content)
        self._content.setAutoFillBackground(False)
        theme.current().changed.connect(self._lay_out)
        self.set_machine_line("")
        self.set_status(EngineStatus())

    def set_status(self, status: EngineStatus) -> None:
        """What the engine is doing, as the page's title; the model in one sentence."""
        self._title.setText(_TITLES.get(status.phase, status.word))
        about = f"{status.model} is {status.description[:1].lower()}{status.description[1:]}"
        self._about.setText(f"{about} It works offline." if status.description else "")
        self._about.setVisible(bool(status.description))

    def set_machine_line(self, line: str) -> None:
        """This PC in one line; empty until it is known."""
        self._machine.setText(line)
        self._machine.setVisible(bool(line))
        self._sign.setVisible(bool(line))
        has_gpu = not line.startswith("No GPU")
        self._sign.set_look("check" if has_gpu else "chip", "ok" if has_gpu else "ink3")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        left, width = text_column(self.width())
        right = max(self.viewport().width() - left - width, 0)
        self._column.setContentsMargins(left, theme.px(16), right, theme.px(18))
