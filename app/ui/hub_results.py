"""What the hub answers: cards of a search's hits, and what one repository offers, variant by variant.

They show records and tell what was asked for; they fetch nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QRectF, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QPainter
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app import model_words
from app.engine_status import gigabytes
from app.model_rows import fit_words
from app.ui import theme
from app.ui.card_frame import SIDE_PX, TOP_PX, CardFrame
from app.ui.controls import Button, Chip, IconButton, Label, Rule
from app.ui.icons import Glyph
from app.user_messages import UserMessage
from engine.library.records import Estimate, HubModel, Listing, Variant

HUB_PAGE = "https://huggingface.co/"
HUB_CARD_PX = 104
RATE_PX, CHIP_PX = 104, 104  # columns of a variant's row
FORMATS = {"powerinfer-gguf": "GGUF of PowerInfer", "gguf": "GGUF", "safetensors": "Safetensors", "bundle": "Bundle"}


def count(number: int) -> str:
    """A large count, short: "1.2M", "34k", "812"."""
    if number >= 1_000_000:
        return f"{number / 1e6:.1f}M".replace(".0M", "M")
    return f"{number / 1e3:.0f}k" if number >= 10_000 else f"{number:,}"


def hub_line(model: HubModel) -> str:
    """How a repository stands on the hub, in one line."""
    likes = f"{count(model.likes)} like" + ("" if model.likes == 1 else "s")
    parts = (model.licence, f"{count(model.downloads)} downloads", likes, model.updated[:10])
    return " · ".join(part for part in parts if part)


class HubCard(CardFrame):
    """A hit of a search on the hub; a click, or its button, looks into the repository."""

    looked_into = Signal(str)

    def __init__(self, model: HubModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.high_px = HUB_CARD_PX
        self.model = model
        self.owner, _, self.name = model.repo.partition("/")
        self.look = Button("Look inside", parent=self)
        self.look.setAccessibleName(f"Look inside: {model.repo}")
        self.look.clicked.connect(lambda: self.looked_into.emit(model.repo))
        self.pressed.connect(lambda: self.looked_into.emit(model.repo))
        access = "asks for access" if model.gated else ""
        self.setAccessibleName(". ".join(part for part in (self.name, self.owner, hub_line(model), access) if part))
        self.restyle()

    def arrange(self) -> None:
        box, size = self.inside(), self.look.sizeHint()
        rect = QRectF(box.right() - size.width(), box.bottom() - size.height(), size.width(), size.height())
        self.look.setGeometry(self.mirrored(rect).toRect())

    def paint_words(self, painter: QPainter) -> None:
        px, box = theme.px, self.inside()
        taken = self.chip(painter, "Asks for access", box.right(), box.top(), "", True) if self.model.gated else 0
        room = box.width() - (taken + px(10) if taken else 0)
        self.write(painter, self.name, QRectF(box.left(), box.top(), room, px(20)), "heading")
        self.write(painter, self.owner, QRectF(box.left(), box.top() + px(21), room, px(16)), "meta")
        wide = box.width() - self.look.width() - px(12)
        line = QRectF(box.left(), box.bottom() - px(32), wide, px(32))
        self.write(painter, hub_line(self.model), line, "meta", "ink2")


class VariantRow(QFrame):
    """One way to fetch a repository: what it is called, its size, how it would lie here, and Download or why not."""

    wanted = Signal(str)

    def __init__(self, variant: Variant, estimate: Estimate | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.variant = variant
        row = QHBoxLayout(self)
        row.setContentsMargins(theme.px(SIDE_PX), theme.px(10), theme.px(TOP_PX), theme.px(10))
        row.setSpacing(theme.px(12))
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(Label(variant.name, "label", elide=True))
        size = gigabytes(variant.n_bytes)
        files = f"{len(variant.files)} files" if len(variant.files) > 1 else ""
        about = " · ".join(part for part in (size, FORMATS[variant.format], files) if part)
        words.addWidget(Label(about, "meta", elide=True))
        row.addLayout(words, 1)
        said = [variant.name, about]
        self.button: Button | None = None
        if variant.refused:
            end = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            why = Label(variant.refused, "small", "ink2", wrap=True, align=end)
            row.addWidget(why, 1)
            said.append(variant.refused)
        else:
            rate, span = model_words.speed(estimate)
            if estimate is not None:
                speed = QVBoxLayout()
                speed.setSpacing(1)
                for text, role in ((rate, "label"), (span, "meta")):
                    label = Label(text, role, align=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                    label.setMinimumWidth(theme.px(RATE_PX))
                    speed.addWidget(label)
                row.addLayout(speed)
            verdict, token = fit_words(estimate)
            if verdict:
                place = QHBoxLayout()
                place.addStretch(1)
                place.addWidget(Chip(verdict, token))  # type: ignore[arg-type]
                column = QFrame()
                column.setLayout(place)
                place.setContentsMargins(0, 0, 0, 0)
                column.setMinimumWidth(theme.px(CHIP_PX))
                row.addWidget(column)
            self.button = Button("Download", "secondary", "get")
            self.button.glyph_px = 16
            self.button.setAccessibleName(f"Download: {variant.name}, {size}")
            self.button.clicked.connect(lambda: self.wanted.emit(self.variant.name))
            row.addWidget(self.button)
            said += [verdict, f"{rate} {span}".strip("– ")]
        self.setAccessibleName(". ".join(part for part in said if part))
        self.setMinimumHeight(theme.px(58))


class RepositoryView(QFrame):
    """One repository of the hub: on its way, refused with a reason, or a list of variants. `show_` calls say which."""

    back = Signal()
    wanted = Signal(str, str)  # repository, variant
    remedy = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Repository")
        self.repo = ""
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(theme.px(12))
        self._head = QHBoxLayout()
        self._head.setSpacing(theme.px(8))
        self.back_button = IconButton("left", "Back to the models", "Esc")
        self.back_button.clicked.connect(self.back)
        self._title, self._line = Label("", "heading", elide=True), Label("", "meta", elide=True)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self._title)
        words.addWidget(self._line)
        self.page_button = Button("Open its page", "quiet")
        self.page_button.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(HUB_PAGE + self.repo)))
        self._head.addWidget(self.back_button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._head.addLayout(words, 1)
        self._head.addWidget(self.page_button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._column.addLayout(self._head)
        self._inner: QFrame | None = None
        self.rows: list[VariantRow] = []

    def _fresh(self, repo: str, line: str) -> QVBoxLayout:
        self.repo = repo
        self._title.setText(repo)
        self._line.setText(line)
        self._line.setVisible(bool(line))
        self.page_button.setToolTip(HUB_PAGE + repo)
        if self._inner is not None:
            self._inner.hide()
            self._inner.deleteLater()
        self.rows = []
        self._inner = QFrame()
        column = QVBoxLayout(self._inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(4))
        self._column.addWidget(self._inner)
        return column

    def show_waiting(self, repo: str) -> None:
        """The repository is being asked for."""
        self._fresh(repo, "Asking the hub what it offers")

    def show_message(self, repo: str, message: UserMessage) -> None:
        """It cannot be looked into, and why."""
        column = self._fresh(repo, "")
        note = Note()
        note.show_message(message)
        note.remedy.connect(self.remedy)
        column.addWidget(note)

    def show_listing(self, listing: Listing, estimates: Mapping[str, Estimate]) -> None:
        """What it offers, what Hearth reads of it first."""
        column = self._fresh(listing.model.repo, hub_line(listing.model))
        if listing.model.gated:
            words = "Its makers ask who fetches it: agree on its page once, and give Hearth an access token."
            column.addWidget(Label(words, "small", wrap=True))
            column.addSpacing(theme.px(6))
        readable = sorted(listing.variants, key=lambda variant: (bool(variant.refused), variant.n_bytes))
        card = QFrame()
        card.setProperty("kind", "card")
        inside = QVBoxLayout(card)
        inside.setContentsMargins(1, 1, 1, 1)
        inside.setSpacing(0)
        for i, variant in enumerate(readable):
            if i:
                inside.addWidget(Rule())
            row = VariantRow(variant, estimates.get(variant.name))
            row.wanted.connect(lambda name: self.wanted.emit(self.repo, name))
            inside.addWidget(row)
            self.rows.append(row)
        if readable:
            column.addWidget(card)
        else:
            column.addWidget(Label("It holds no file that Hearth reads: GGUF or safetensors.", "small", wrap=True))


class Note(QFrame):
    """What stands where cards would be: icon, a word on why, what to try, at most two buttons. Centred."""

    remedy = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(theme.px(16), theme.px(28), theme.px(16), theme.px(28))
        column.setSpacing(theme.px(6))
        centre = Qt.AlignmentFlag.AlignHCenter
        self.glyph = Glyph("search", "ink3", 22)
        self.title = Label("", "label", wrap=True, align=centre)
        self.line = Label("", "small", wrap=True, align=centre)
        column.addWidget(self.glyph, 0, centre)
        column.addWidget(self.title)
        column.addWidget(self.line)
        column.addSpacing(theme.px(4))
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(theme.px(8))
        self._buttons.addStretch(1)
        self.first, self.second = Button(""), Button("", "quiet")
        self._acts = ["", ""]
        for i, button in enumerate((self.first, self.second)):
            button.clicked.connect(lambda _=False, i=i: self.remedy.emit(self._acts[i]))
            self._buttons.addWidget(button)
        self._buttons.addStretch(1)
        column.addLayout(self._buttons)

    def say(self, title: str, line: str, glyph: str = "search", act: tuple[str, str] = ("", ""),
            second: tuple[str, str] = ("", ""), token: str = "ink3") -> None:  # fmt: skip
        """act, second: words of a button and what it gives by `remedy`."""
        self.glyph.set_look(glyph, token)
        self.title.setText(title)
        self.line.setText(line)
        self.line.setVisible(bool(line))
        for i, (button, (words, what)) in enumerate(zip((self.first, self.second), (act, second), strict=True)):
            button.setText(words)
            button.updateGeometry()
            button.setVisible(bool(words))
            self._acts[i] = what
        self.setAccessibleName(f"{title}. {line}".strip())

    def show_message(self, message: UserMessage) -> None:
        """A failure in its own words."""
        act = (message.remedy, message.remedy_action) if message.remedy_action else ("", "")
        token = {"bad": "bad", "warn": "warn"}.get(message.severity, "ink3")
        glyph = "info" if message.severity == "info" else "warn"
        self.say(message.title, message.sentence, glyph, act, message.second or ("", ""), token)
