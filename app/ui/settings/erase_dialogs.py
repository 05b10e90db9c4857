"""The dialog that chooses stored data to delete, and the dialog with the progress.

app/desktop/erasing.py deletes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent, QFontMetrics
from PySide6.QtWidgets import QWidget

from app.stored_data import GROUPS, Erased, Group, Undeleted
from app.translation import noted, tr, tr_n
from app.ui.look import theme
from app.ui.models.model_dialogs import card_of_rows, two_lines
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import confirm
from app.ui.widgets.indicators import Progress
from app.ui.widgets.switches import Toggle
from app.units import gigabytes

SMALL = noted("Less than 1\u202fMB")
MOST_NAMED = 100  # of the files that could not be deleted


class EraseDialog(Dialog):
    """The groups with their sizes. chosen: names of the groups to delete, after a confirmation."""

    chosen = Signal(object)  # list[str]

    def __init__(self, parent: QWidget, groups: Sequence[Group] = GROUPS) -> None:
        super().__init__(
            parent, tr("Delete what Hearth stores on this PC"),
            tr("Choose what to delete. Hearth itself stays installed."), 520,
        )  # fmt: skip
        self._groups = {group.name: group for group in groups}
        self._sizes: dict[str, int] = {}
        self.sizes: dict[str, Label] = {}
        self.toggles: dict[str, Toggle] = {}
        rows = []
        # One width for all sizes, so that the text does not wrap again when sizes arrive.
        room = QFontMetrics(theme.font("meta")).horizontalAdvance(tr(SMALL)) + 2
        for group in groups:
            size = self.sizes[group.name] = Label("–", "meta", "ink2", align=Qt.AlignmentFlag.AlignRight)
            size.setMinimumWidth(room)
            toggle = self.toggles[group.name] = Toggle(tr(group.title), True)
            toggle.clicked.connect(self._count)
            rows.append(two_lines(tr(group.title), tr(group.line), size, toggle))
        self.body.addWidget(card_of_rows(rows))
        self.cancel = self.add_close(tr("Cancel"))
        self.delete = self.add_button(Button(tr("Delete…"), "danger"))
        self.delete.clicked.connect(self._ask)
        self._count()

    def show_size(self, name: str, n_bytes: int | None) -> None:
        """Show a group's size; None if unknown."""
        if n_bytes is not None:
            self._sizes[name] = n_bytes
        self.sizes[name].setText(_size(n_bytes))
        self.toggles[name].setAccessibleDescription(_size(n_bytes))
        self._count()

    @property
    def names(self) -> list[str]:
        return [name for name, toggle in self.toggles.items() if toggle.isChecked()]

    def _total(self) -> str:
        """Return the size of the chosen groups; "" while it is unknown."""
        known = [self._sizes[name] for name in self.names if name in self._sizes]
        return _size(sum(known)) if len(known) == len(self.names) else ""

    def _count(self) -> None:
        total = self._total()
        self.delete.setEnabled(bool(self.names))
        self.delete.setText(tr("Delete {size}…", size=total) if total and self.names else tr("Delete…"))
        self.fit()

    def _ask(self) -> None:
        names, total = self.names, self._total()
        if len(names) == len(self._groups):
            what = tr("Everything that Hearth stores on this PC is deleted.")
        else:
            titles = ", ".join(tr(self._groups[name].title) for name in names)
            what = tr("This is deleted: {groups}.", groups=titles)
        confirm(
            self, tr("Delete {size} for good?", size=total) if total else tr("Delete this for good?"),
            " ".join((what, tr("It cannot be undone."),
                      tr("Hearth stops what it is doing, deletes it, and starts again."))),
            tr("Keep"), tr("Delete"), partial(self._choose, names),
        )  # fmt: skip

    def _choose(self, names: list[str]) -> None:
        for control in (*self.toggles.values(), self.cancel, self.delete):
            control.setEnabled(False)
        self.say(tr("Hearth is closing, to delete this."))
        self.chosen.emit(names)

    def reject(self) -> None:
        if self.cancel.isEnabled():  # not while deleting has begun
            super().reject()


class ErasingDialog(Dialog):
    """The progress of deleting, and what was left.

    stopped: keep the rest. accepted: Hearth starts again; rejected: it does not.
    """

    stopped = Signal()

    def __init__(self, total: int, parent: QWidget | None = None) -> None:
        super().__init__(parent, tr("Deleting"), tr("Hearth is ending what it was doing."), 440)
        self._total, self._is_done = max(total, 1), False
        self.progress = Progress(tr("Deleting"))
        self.body.addWidget(self.progress)
        self.stop = self.add_button(Button(tr("Stop")))
        self.stop.clicked.connect(self._stop)
        self.close_button = self.add_button(Button(tr("Close Hearth")))
        self.close_button.clicked.connect(self.reject)
        self.again = self.add_button(Button(tr("Start Hearth again"), "primary"))
        self.again.clicked.connect(self.accept)
        for button in (self.close_button, self.again):
            button.hide()

    def show_done(self, n_bytes: int) -> None:
        """Show how many bytes were deleted."""
        self.progress.set_done(n_bytes / self._total)
        self.say(tr("{done} of {total}", done=_size(n_bytes), total=_size(max(self._total, n_bytes))))

    def finish(self, erased: Erased) -> None:
        """Show files that could not be deleted, or close if there are none."""
        self._is_done = True
        if not erased.undeleted and not erased.stopped:
            self.accept()
            return
        self.progress.hide()
        self.body.removeWidget(self.progress)
        self.stop.hide()
        self.close_button.show()
        self.again.show()
        self.again.setDefault(True)
        left = erased.undeleted[:MOST_NAMED]
        if left:
            card = card_of_rows([_row(one) for one in left])
            self.body.addWidget(card)
            card.show()  # now, because the dialog's height depends on it
        more = len(erased.undeleted) - len(left)
        if more:
            self.body.addWidget(Label(tr_n("and {n} more", "and {n} more", more), "small", wrap=True))
        self.heading.setText(tr("Stopped") if erased.stopped else tr("Not everything was deleted"))
        deleted = tr("{size} deleted.", size=_size(erased.n_bytes))
        self.say(f"{deleted} {tr('What is left is still there:') if left else tr('The rest is still there.')}")
        self.again.setFocus()
        if self.parentWidget() is None:
            self.move(self.screen().availableGeometry().center() - self.rect().center())

    def _stop(self) -> None:
        self.stop.setEnabled(False)
        self.stopped.emit()

    def reject(self) -> None:
        if self._is_done:
            super().reject()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._is_done:
            super().closeEvent(event)
        else:
            event.ignore()


def _row(left: Undeleted) -> QWidget:
    return two_lines(left.what, left.why)


def _size(n_bytes: int | None) -> str:
    if n_bytes == 0:
        return tr("Empty")
    return tr(SMALL) if n_bytes and n_bytes < 500_000 else gigabytes(n_bytes)
