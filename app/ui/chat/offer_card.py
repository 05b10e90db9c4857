"""A card that offers a larger model for this PC, then shows its download: on the first launch, or under an answer.

The buttons emit signals; the card itself downloads nothing.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.models import model_labels
from app.models.model_rows import ModelRow
from app.translation import tr
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.widgets.controls import Button, IconButton, Label, Progress
from app.units import NARROW, gigabytes

HIGH = 60


def pitch(row: ModelRow, instead_of: str = "") -> tuple[str, str]:
    """Return title and line of the offer, or of its download.

    instead_of: name of the model whose answer the offer follows.
    """
    download = row.download
    if row.preparing is not None:
        return tr("{name} is being prepared for this PC", name=row.name), tr("You can keep chatting meanwhile.")
    if download is not None:
        left, right = model_labels.download_lines(download)
        titles = {
            "failed": tr("Couldn't download {name}", name=row.name),
            "paused": tr("{name} is paused", name=row.name),
        }
        words = model_labels.stopped_why(download) or "  ·  ".join(p for p in (left, right) if p)
        return titles.get(download.state, tr("Downloading {names}", names=row.name)), words
    if row.installed is not None:
        return tr("{name} is on this PC", name=row.name), tr("Load it, and the next answer comes from it.")
    title = tr("{name} runs well on this PC", name=row.name)
    if instead_of:
        title = tr("{model} is only a demonstration. {name} answers this better", model=instead_of, name=row.name)
    parts = [*([] if instead_of else [tr("better answers")]), tr("{size} to download", size=gigabytes(row.n_bytes))]
    if row.rate is not None:
        parts.insert(0, tr("about {rate}", rate=f"{model_labels.estimated(row.rate.tok_s)}{NARROW}tok/s"))
    line = ", ".join(parts)
    return title, f"{line[0].upper()}{line[1:]}"


class OfferCard(QFrame):
    """The offer card, hidden without an offer. Signals carry an id, of the row or of the download, except
    `dismissed`."""

    download = Signal(str)
    use = Signal(str)
    pause = Signal(str)
    resume = Signal(str)
    cancel = Signal(str)
    dismissed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "card")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.row: ModelRow | None = None
        self.instead_of = ""  # as in `pitch`
        self.title = Label("", "label", elide=True)
        self.line = Label("", "small", "ink3", elide=True)
        self.figures = Label("", "meta")
        self.progress = Progress(tr("Download"))
        self.get = Button(tr("Download"), "secondary", "get")
        self.load = Button(tr("Load"), "secondary")
        self.hold = IconButton("pause", tr("Pause the download"))
        self.go_on = Button(tr("Resume"), "secondary")
        self.close_button = IconButton("close", tr("Not now"))
        self.close_button.glyph_px = self.hold.glyph_px = 16
        words = self._words = QVBoxLayout()
        words.addStretch(1)
        head = QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.figures)
        words.addLayout(head)
        words.addWidget(self.line)
        words.addWidget(self.progress)
        words.addStretch(1)
        self._row = QHBoxLayout(self)
        self._row.addLayout(words, 1)
        for button in (self.get, self.load, self.hold, self.go_on, self.close_button):
            self._row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.get.clicked.connect(lambda: self._tell(self.download, "row"))
        self.load.clicked.connect(lambda: self._tell(self.use, "row"))
        self.hold.clicked.connect(lambda: self._tell(self.pause, "download"))
        self.go_on.clicked.connect(lambda: self._tell(self.resume, "download"))
        self.close_button.clicked.connect(self._close)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_row(self, row: ModelRow | None) -> None:
        """Show an offer or its progress; None hides the card."""
        self.row = row
        if row is None:
            self.hide()
            return
        title, line = pitch(row, self.instead_of)
        self.title.setText(title)
        fetched = row.download
        failed = fetched is not None and fetched.state == "failed"
        stopped = fetched is not None and (failed or bool(model_labels.stopped_why(fetched)))
        self.line.set_look("small", "bad" if failed else "warn" if stopped else "ink3")
        moving = fetched is not None and not stopped
        self.line.setText("" if moving else line)
        self.line.setVisible(not moving)
        self.figures.setText(line if moving else "")
        self.figures.setVisible(moving)
        runs = fetched is not None and fetched.state in ("queued", "downloading", "waiting", "checking")
        self.progress.setVisible(moving)
        self._words.setSpacing(theme.px(8 if moving else 3))
        if fetched is not None:
            self.progress.set_done(fetched.done_bytes / max(fetched.total_bytes, 1))
        self._offer(self.get, fetched is None and row.installed is None)
        self._offer(self.load, fetched is None and row.installed is not None and row.preparing is None)
        self._offer(self.hold, runs and fetched is not None and fetched.state != "checking")
        self._offer(self.go_on, fetched is not None and not runs)
        self.go_on.setText(tr("Try again") if failed else tr("Resume"))
        self.close_button.set_name(tr("Cancel the download") if fetched is not None else tr("Not now"))
        self.setAccessibleName(f"{title}. {line}")
        self.show()

    def _offer(self, button: Button, shown: bool) -> None:
        had = button.hasFocus()
        button.setVisible(shown)
        if had and not shown:  # else Qt would move the focus to a neighbour
            self.close_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _tell(self, signal: object, whose: str) -> None:
        row = self.row
        if row is not None:
            found = row.id if whose == "row" else row.download.id if row.download else ""
            signal.emit(found)  # type: ignore[attr-defined]

    def _close(self) -> None:
        if self.row is not None and self.row.download is not None:
            self.cancel.emit(self.row.download.id)
            return
        within = self.isAncestorOf(QApplication.focusWidget() or self.window())
        self.show_row(None)
        if within:
            self.window().setFocus(Qt.FocusReason.OtherFocusReason)
        self.dismissed.emit()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(HIGH))
        set_margins(self._row, theme.px(16), 0, theme.px(8), 0, self.isRightToLeft())
        self._row.setSpacing(theme.px(6))
        self.show_row(self.row)
