"""Attachments as tiles: name, how much of it the model reads, and a button to remove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QApplication, QBoxLayout, QHBoxLayout, QSizePolicy, QWidget

from app.chat.store.conversation import Attachment
from app.documents.draft_attachments import Attached
from app.later import Later
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.look.painting import antialiased, block, outline
from app.ui.widgets.controls import Button, IconButton, Label
from app.ui.widgets.flow import Flow

if TYPE_CHECKING:
    from app.documents import attachment_texts as texts
else:
    texts = Later("app.documents.attachment_texts")

HEIGHT, NAME_PX, RADIUS = 32, 200, 8
GLYPHS = {"pasted": "lines", "text": "file", "pdf": "file"}


def _tokens(n: int) -> str:
    return tr_n("{n} token", "{n} tokens", n, n=figure(n))


def facts_of(item: Attached) -> tuple[str, str]:
    """Return a tile's text for a draft's attachment, and its colour token."""
    if item.attachment is None:
        return tr("Reading"), "ink3"
    measure = item.measure
    if measure is None or (item.has_room and not measure.tokens):  # not counted yet, or no tokenizer here
        return size_of(item.attachment), "ink3"
    if not item.has_room:
        return tr("No room for {tokens}", tokens=_tokens(measure.tokens)), "bad"
    if measure.kept_tokens < measure.tokens:
        return tr("first {kept} of {tokens}", kept=figure(measure.kept_tokens), tokens=_tokens(measure.tokens)), "warn"
    return _tokens(measure.tokens), "ink3"


def size_of(attachment: Attachment) -> str:
    """Return how much of an attachment was sent, else its pages, else its characters."""
    kept = texts.kept_of(attachment)
    if kept is not None:
        return tr("first {kept} of {tokens}", kept=figure(kept[0]), tokens=_tokens(kept[1]))
    if attachment.n_pages:
        return tr_n("{n} page", "{n} pages", attachment.n_pages, n=figure(attachment.n_pages))
    n = len(attachment.text)
    return tr_n("{n} character", "{n} characters", n, n=figure(n))


class _Name(Button):
    """The name as a quiet button without a background of its own."""

    def __init__(self, words: str, glyph: str) -> None:
        super().__init__(words.replace("&", "&&"), "quiet", glyph)
        self.padding_px, self.glyph_px, self.height_px, self.radius_px = 8, 15, HEIGHT, RADIUS
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("chip"))

    def sizeHint(self) -> QSize:
        return super().sizeHint().boundedTo(QSize(theme.px(NAME_PX), theme.px(HEIGHT)))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(64), theme.px(HEIGHT)).boundedTo(self.sizeHint())


class AttachmentChip(QWidget):
    """One attachment. opened: show its text; removed: remove it."""

    opened = Signal(str)  # its id
    removed = Signal(str)

    def __init__(self, name: str, glyph: str, item_id: str, can_remove: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.id = item_id
        self.name = _Name(name, glyph)
        self.facts = Label("", "meta")
        self._row = QHBoxLayout(self)
        self._row.addWidget(self.name)
        self._row.addWidget(self.facts)
        self.remove: IconButton | None = None
        if can_remove:
            self.remove = IconButton("close", tr("Remove {name}", name=name), parent=self)
            self.remove.glyph_px = 12
            self.remove.clicked.connect(lambda: self.removed.emit(self.id))
            self._row.addWidget(self.remove)
        self.name.clicked.connect(lambda: self.opened.emit(self.id))
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def say(self, facts: str, token: str, tooltip: str = "") -> None:
        """Set the facts beside the name."""
        if self.facts.words != facts:
            self.facts.setText(facts)
        if self.facts.token != token:
            self.facts.set_look("meta", token)
        words = self.name.text().replace("&&", "&")
        self.name.setAccessibleName(f"{words}, {facts}")
        self.name.setToolTip(tooltip or tr("Show {name}", name=words))
        self.updateGeometry()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(HEIGHT))
        end = 0 if self.remove is not None else theme.px(10)
        self._row.setContentsMargins(0, 0, end if not self.isRightToLeft() else 0, 0)
        self._row.setSpacing(theme.px(2))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, rect, radius = antialiased(self), QRectF(self.rect()), theme.px(RADIUS)
        block(painter, rect, theme.colour("sunken"), radius)
        outline(painter, rect, theme.colour("edge"), radius)


class AttachmentRow(QWidget):
    """The attachments of the message being written; hidden if there are none."""

    opened = Signal(str)
    removed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: dict[str, AttachmentChip] = {}
        self._flow = Flow(self)
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(tr("Attached to this message"))
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_items(self, items: Sequence[Attached]) -> bool:
        """Show these attachments. Return whether a removed tile had the focus."""
        wanted = {item.id for item in items}
        had_focus = False
        for item_id in [known for known in self.chips if known not in wanted]:
            chip = self.chips.pop(item_id)
            focus = QApplication.focusWidget()
            had_focus = had_focus or (focus is not None and chip.isAncestorOf(focus))
            self._flow.removeWidget(chip)
            chip.hide()
            chip.deleteLater()
        for item in items:
            if item.id not in self.chips:
                kind = item.attachment.kind if item.attachment is not None else "text"
                chip = AttachmentChip(item.name, GLYPHS[kind], item.id, can_remove=True, parent=self)
                chip.opened.connect(self.opened)
                chip.removed.connect(self.removed)
                self._flow.addWidget(chip)
                self.chips[item.id] = chip
                chip.show()
            facts, token = facts_of(item)
            self.chips[item.id].say(facts, token, _tooltip(item))
        self.setVisible(bool(items))
        self._flow.invalidate()
        self.updateGeometry()
        return had_focus

    def sizeHint(self) -> QSize:
        return QSize(0, self._flow.heightForWidth(max(self.width(), theme.px(160))))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, theme.px(HEIGHT))

    def _restyle(self) -> None:
        self._flow.setSpacing(theme.px(6))


class SentAttachments(QWidget):
    """The attachments of a sent message. opened: index of the one to show."""

    opened = Signal(int)

    def __init__(self, given: Sequence[Attachment], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chips: list[AttachmentChip] = []
        self._box = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._box.setContentsMargins(0, 0, 0, 0)
        self._box.setSpacing(theme.px(6))
        for place, attachment in enumerate(given):
            glyph = GLYPHS.get(attachment.kind, "file")
            chip = AttachmentChip(attachment.name, glyph, str(place), can_remove=False, parent=self)
            chip.say(size_of(attachment), "ink2")
            chip.opened.connect(lambda place: self.opened.emit(int(place)))
            self._box.addWidget(chip, 0, Qt.AlignmentFlag.AlignTrailing)
            self._chips.append(chip)

    def fit(self, most: int) -> None:
        """Lay the tiles out in a row if they fit into `most`, else in a column."""
        widths = [chip.sizeHint().width() for chip in self._chips]
        gap, in_a_row = self._box.spacing(), sum(widths) + self._box.spacing() * (len(widths) - 1)
        rows = 1 if in_a_row <= most else len(widths)
        direction = QBoxLayout.Direction.LeftToRight if rows == 1 else QBoxLayout.Direction.TopToBottom
        self._box.setDirection(direction)
        wide = min(in_a_row if rows == 1 else max(widths), most)
        self.setFixedSize(wide, rows * theme.px(HEIGHT) + (rows - 1) * gap)


def _tooltip(item: Attached) -> str:
    if item.attachment is None:
        return tr("Reading {name}", name=item.name)
    parts = [tr("Show {name}", name=item.name), size_of(item.attachment)]
    if item.measure is not None and item.has_room and item.measure.kept_tokens < item.measure.tokens:
        parts.append(tr("Only its beginning fits into the context"))
    return "\n".join(parts)
