"""The row of an answer's sources: what it cites, and what else was found for its question in the user's documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.chat.store.conversation import Attachment
from app.translation import figure, tr, tr_n
from app.ui.documents.document_labels import source_words
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.flow import Flow

WIDEST, HEIGHT = 300, 28


@dataclass(frozen=True)
class Sources:
    """The sources of an answer. known: all of its branch up to its question, by number. own: of its question."""

    known: Mapping[int, Attachment] = field(default_factory=dict)
    own: tuple[Attachment, ...] = ()

    @classmethod
    def by(cls, known: Iterable[Attachment], own: Iterable[Attachment]) -> Sources:
        """Return them by their numbers. In a chat from a file, the first one with a number counts."""
        by_number: dict[int, Attachment] = {}
        for one in known:
            by_number.setdefault(_number(one), one)
        return cls(by_number, tuple(own))


def sources_of(attachments: Iterable[Attachment]) -> Iterable[Attachment]:
    """Return those attachments that were found in documents."""
    return (one for one in attachments if one.source is not None)


def _number(source: Attachment) -> int:
    return source.source.number if source.source is not None else 0


class SourceButton(Button):
    """A source, such as "[1] contract.pdf, page 3"."""

    def __init__(self, source: Attachment) -> None:
        words = source_words(source)
        super().__init__(words.replace("&", "&&"), "quiet", "file", tr("Show {name}", name=words))
        self.padding_px, self.glyph_px, self.height_px, self.radius_px = 4, 15, HEIGHT, 7
        self.setAccessibleName(words)
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("chip"))

    def sizeHint(self) -> QSize:
        return super().sizeHint().boundedTo(QSize(theme.px(WIDEST), theme.px(HEIGHT)))


class AnswerSources(QWidget):
    """The cited sources, and a button that shows the others. asked: the Attachment of a source to show."""

    asked = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.buttons: list[SourceButton] = []
        self._sources, self._text = Sources(), ""
        self._width = 0
        self.is_open = False
        self.whole = Label("", "meta", wrap=True)
        self._rows = QWidget()
        self._flow = Flow(self._rows)
        self.more = Button("", "quiet", "right")
        self.more.padding_px, self.more.glyph_px, self.more.height_px = 4, 15, HEIGHT
        self.more.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.more.clicked.connect(self._unfold)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(2))
        column.addWidget(self.whole)
        column.addWidget(self._rows)
        self.setAccessibleName(tr("Sources"))
        theme.current().changed.connect(self._restyle)
        self._restyle()

    @property
    def has_some(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.buttons) or not self.more.isHidden() or not self.whole.isHidden()

    def show_sources(self, sources: Sources, text: str) -> None:
        """Show the sources of an answer. text: the answer's."""
        if (sources, text) != (self._sources, self._text):
            self._sources, self._text = sources, text
            self._fill()

    def set_width(self, width: int) -> None:
        """Lay out for a column of that width."""
        self._width = width
        self._fit()

    def _fill(self) -> None:
        from app.text.markdown_marks import cited  # Markdown-it is not needed for the first paint

        had_focus = any(button.hasFocus() for button in self.buttons)
        while self._flow.count():
            self._flow.takeAt(0)
        for button in self.buttons:
            button.hide()
            button.deleteLater()
        known, numbers = self._sources.known, cited(self._text, self._sources.known)
        others = [one for one in self._sources.own if _number(one) not in numbers]
        shown = [known[number] for number in numbers] + (others if self.is_open else [])
        self.buttons = [SourceButton(one) for one in shown]
        for button, one in zip(self.buttons, shown, strict=True):
            button.clicked.connect(lambda _=False, one=one: self.asked.emit(one))
            self._flow.addWidget(button)
            button.show()
        n, whole = len(others), sum(not one.source.part for one in self._sources.own if one.source is not None)
        if whole == len(self._sources.own) and not numbers:
            words = tr_n("{n} document", "{n} documents", n, n=figure(n))
        elif whole == len(self._sources.own):
            words = tr_n("{n} more document", "{n} more documents", n, n=figure(n))
        elif numbers:
            words = tr_n("{n} more that was found", "{n} more that were found", n, n=figure(n))
        else:
            words = tr_n("{n} source that was found", "{n} sources that were found", n, n=figure(n))
        self.more.setText(words)
        self.more.set_glyph("down" if self.is_open else "left" if self.isRightToLeft() else "right")
        self.more.setAccessibleDescription(tr("Expanded") if self.is_open else tr("Collapsed"))
        self._flow.addWidget(self.more)
        self.more.setVisible(bool(others))
        self.whole.setText(
            tr_n(
                "The whole of {n} document went along", "The whole of {n} documents went along", whole, n=figure(whole)
            )
        )
        self.whole.setVisible(whole > 0)
        if had_focus:
            self.more.setFocus()
        self._fit()

    def _unfold(self) -> None:
        self.is_open = not self.is_open
        self._fill()

    def _fit(self) -> None:
        if self._width:
            self._flow.invalidate()
            self._rows.setFixedHeight(self._flow.heightForWidth(self._width))
            self._rows.setVisible(self._rows.height() > 0)

    def _restyle(self) -> None:
        self.more.setFont(theme.font("chip"))
        self.whole.setContentsMargins(theme.px(4), 0, theme.px(4), 0)
        self._flow.setSpacing(theme.px(8))
        self._fit()
