"""The variants of a hub repository: size, fit on this PC, and Download or why not."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.models import model_labels
from app.models.model_rows import fit_text
from app.translation import noted, tr, tr_n
from app.ui.look import theme
from app.ui.models.hub_results import HUB_PAGE, hub_line
from app.ui.widgets.card_frame import SIDE_PX, TOP_PX
from app.ui.widgets.controls import Button, Chip, IconButton, Label, Rule
from app.ui.widgets.empty_state import EmptyState
from app.units import gigabytes
from app.user_messages import UserMessage
from engine.library.records import Estimate, Listing, Variant

RATE_PX, CHIP_PX = 104, 104  # columns of a variant's row
FORMATS = {
    "powerinfer-gguf": noted("GGUF of PowerInfer"),
    "gguf": noted("GGUF"),
    "safetensors": noted("Safetensors"),
    "bundle": noted("Bundle"),
}


class VariantRow(QFrame):
    """One variant of a repository: name, size, fit, and Download or why not."""

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
        files = tr_n("{n} file", "{n} files", len(variant.files)) if len(variant.files) > 1 else ""
        about = " · ".join(part for part in (size, tr(FORMATS[variant.format]), files) if part)
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
            rate, span = model_labels.speed(estimate)
            if estimate is not None:
                speed = QVBoxLayout()
                speed.setSpacing(1)
                for text, role in ((rate, "label"), (span, "meta")):
                    label = Label(text, role, align=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                    label.setMinimumWidth(theme.px(RATE_PX))
                    speed.addWidget(label)
                row.addLayout(speed)
            verdict, token = fit_text(estimate)
            if verdict:
                place = QHBoxLayout()
                place.addStretch(1)
                place.addWidget(Chip(verdict, token))  # type: ignore[arg-type]
                column = QFrame()
                column.setLayout(place)
                place.setContentsMargins(0, 0, 0, 0)
                column.setMinimumWidth(theme.px(CHIP_PX))
                row.addWidget(column)
            self.button = Button(tr("Download"), "secondary", "get")
            self.button.glyph_px = 16
            self.button.setAccessibleName(tr("Download: {name}, {size}", name=variant.name, size=size))
            self.button.clicked.connect(lambda: self.wanted.emit(self.variant.name))
            row.addWidget(self.button)
            said += [verdict, f"{rate} {span}".strip("– ")]
        self.setAccessibleName(". ".join(part for part in said if part))
        self.setMinimumHeight(theme.px(58))


class RepositoryView(QFrame):
    """A repository: loading, refused with a reason, or a list of variants, set by the `show_` methods."""

    back = Signal()
    wanted = Signal(str, str)  # repository, variant
    remedy = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Repository"))
        self.repo = ""
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(theme.px(12))
        self._head = QHBoxLayout()
        self._head.setSpacing(theme.px(8))
        self.back_button = IconButton("left", tr("Back to the models"), "Esc")
        self.back_button.clicked.connect(self.back)
        self._title, self._line = Label("", "heading", elide=True), Label("", "meta", elide=True)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self._title)
        words.addWidget(self._line)
        self.page_button = Button(tr("Open its page"), "quiet")
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
        self._fresh(repo, tr("Reading the list of files"))

    def show_message(self, repo: str, message: UserMessage) -> None:
        """Show why the repository cannot be read."""
        column = self._fresh(repo, "")
        empty_state = EmptyState()
        empty_state.show_message(message)
        empty_state.remedy.connect(self.remedy)
        column.addWidget(empty_state)

    def show_listing(self, listing: Listing, estimates: Mapping[str, Estimate]) -> None:
        """Show the variants, readable ones first."""
        column = self._fresh(listing.model.repo, hub_line(listing.model))
        if listing.model.gated:
            words = tr(
                "Its maker requires you to accept terms. Accept them on the model's page, then give Hearth an "
                "access token."
            )
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
            column.addWidget(Label(tr("It has no file that Hearth reads: GGUF or safetensors."), "small", wrap=True))
