"""The bar at the foot of the Models page: long work that no visible card shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.models import model_labels
from app.models.model_rows import ModelRow
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Button, Dot, IconButton, Label, Progress


@dataclass(frozen=True)
class Work:
    """One line of work. done: 0 to 1, None if unknown. key: passed by `shown` and `stopped`."""

    key: str
    words: str
    right: str = ""
    done: float | None = None
    resting: bool = False
    can_show: bool = False
    can_stop: bool = False


class WorkBar(QFrame):
    """The work bar, hidden without work."""

    shown = Signal(str)
    stopped = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "status")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.work: Work | None = None
        self.row = QHBoxLayout(self)
        self.dot = Dot("hot_fill", True)
        middle = QVBoxLayout()
        line = QHBoxLayout()
        self.words, self.right = Label("", "small", "ink", elide=True), Label("", "meta")
        line.addWidget(self.words, 1)
        line.addWidget(self.right)
        self.progress = Progress(tr("Progress"), 4)
        middle.addStretch(1)
        middle.addLayout(line)
        middle.addWidget(self.progress)
        middle.addStretch(1)
        self._middle = middle
        self.show_button = Button(tr("Show"), "quiet")
        self.stop_button = IconButton("close", tr("Stop"))
        self.row.addWidget(self.dot)
        self.row.addLayout(middle, 1)
        self.row.addWidget(self.show_button)
        self.row.addWidget(self.stop_button)
        self.show_button.clicked.connect(lambda: self.work and self.shown.emit(self.work.key))
        self.stop_button.clicked.connect(lambda: self.work and self.stopped.emit(self.work.key))
        theme.current().changed.connect(self.restyle)
        self.restyle()
        self.hide()

    def restyle(self) -> None:
        """Apply sizes after a change of theme or zoom."""
        self._middle.setSpacing(theme.px(5))
        self.row.setSpacing(theme.px(10))
        self.setFixedHeight(theme.px(52))

    def set_margins(self, left: int, right: int) -> None:
        """Align the text with the page's column."""
        self.row.setContentsMargins(left, 0, right, 0)

    def set_work(self, work: Work | None) -> None:
        """Show a line of work; None hides the bar."""
        if work == self.work:
            return
        self.work = work
        self.setVisible(work is not None)
        if work is None:
            return
        self.words.setText(work.words)
        self.right.setText(work.right)
        self.progress.setVisible(work.done is not None)
        self.progress.name = work.words
        self.progress.set_done(work.done or 0.0)
        self.dot.set_state("warn" if work.resting else "hot_fill", not work.resting)
        self.show_button.setVisible(work.can_show)
        self.stop_button.setVisible(work.can_stop)
        self.stop_button.set_name(tr("Stop: {words}", words=work.words))
        self.setAccessibleName(f"{work.words} {work.right}".strip())


def downloads_work(rows: Sequence[ModelRow]) -> Work | None:
    going = [row for row in rows if row.download is not None and row.download.state not in {"done", "failed", "paused"}]
    if not going:
        return None
    gets = [row.download for row in going if row.download is not None]
    done, total = sum(get.done_bytes for get in gets), sum(get.total_bytes for get in gets)
    paces = [get.bytes_per_s for get in gets if get.bytes_per_s]
    names = going[0].name
    if len(going) > 1:
        names = tr("{name} and {more} more", name=names, more=len(going) - 1)
    right = model_labels.fetched(done, total)
    if paces:
        right += f" · {model_labels.pace(sum(paces))}"
    moving = any(get.state in {"downloading", "checking"} for get in gets)
    if moving:
        words = tr("Downloading {names}", names=names)
    elif gets[0].state == "waiting":
        words = tr("Waiting for the network: {names}", names=names)
    else:
        words = tr("Queued: {names}", names=names)
    return Work("downloads", words, right, done / total if total else None, not moving, can_show=True)
