"""The updates dialog: the state of a newer version, and one button for the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.translation import figure, tr
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.indicators import Progress
from app.units import gigabytes
from app.user_messages import UserMessage
from engine import __version__

Phase = Literal["idle", "looking", "newest", "found", "downloading", "ready", "installing"]


@dataclass(frozen=True)
class UpdateState:
    """The state of updates. offered: whether this build offers updates. way: "tarball" or "deb"; "" if Hearth cannot
    install them here. size, done: bytes of the file for this PC. previous: the version to go back to, or "".
    """

    offered: bool = False
    way: str = ""
    previous: str = ""
    phase: Phase = "idle"
    version: str = ""
    notes: str = ""
    page: str = ""
    size: int = 0
    done: int = 0
    failure: UserMessage | None = None


class UpdatesDialog(Dialog):
    """Emits what the user clicked; app/desktop/updates.py does it and calls show_state."""

    look = Signal()
    download = Signal()
    stop = Signal()
    install = Signal()
    page = Signal()  # open the release's web page
    go_back = Signal()

    def __init__(self, parent: QWidget, state: UpdateState) -> None:
        super().__init__(parent, tr("Updates"), wide_px=480)
        self.failure = Label("", "small", "bad", wrap=True)
        self.notes = Label("", "small", "ink", wrap=True)
        self.progress, self.figures = Progress(tr("Download")), Label("", "meta", "ink2")
        for widget in (self.failure, self.notes, self.progress, self.figures):
            self.body.addWidget(widget)
        self.back = self.add_button(Button("", "quiet"), at_start=True)
        self.back.clicked.connect(self.go_back)
        self.web = self.add_button(Button(tr("Open its page"), "quiet"), at_start=True)
        self.web.clicked.connect(self.page)
        self.close_button = self.add_close()
        self.cancel = self.add_button(Button(tr("Cancel")))
        self.cancel.clicked.connect(self.stop)
        self.act = self.add_button(Button("", "primary"))
        self.act.clicked.connect(lambda: {"found": self.download, "ready": self.install}.get(
            self.state.phase, self.look).emit())  # fmt: skip
        self.show_state(state)

    def show_state(self, state: UpdateState) -> None:
        """Show the state and offer the steps that it allows."""
        self.state, phase = state, state.phase
        can_install = bool(state.way and state.size)
        self.failure.setVisible(state.failure is not None)
        if state.failure is not None:
            self.failure.setText(f"{state.failure.title}. {state.failure.sentence}")
        self.notes.setVisible(bool(state.notes) and phase in ("found", "downloading", "ready"))
        self.notes.setText(state.notes)
        self.progress.setVisible(phase == "downloading")
        self.figures.setVisible(phase == "downloading")
        self.progress.set_done(state.done / state.size if state.size else 0)
        self.figures.setText(
            tr("{done} of {total} MB", done=figure(state.done / 1e6, ".0f"), total=figure(state.size / 1e6, ".0f"))
        )
        self.back.setText(tr("Go back to {version}", version=state.previous))
        self.back.setVisible(bool(state.previous) and phase in ("idle", "newest", "found"))
        self.web.setVisible(bool(state.page) and phase in ("found", "ready"))
        self.cancel.setVisible(phase in ("looking", "downloading", "installing"))
        words = {
            "idle": tr("Check now"), "newest": tr("Check again"),
            "found": tr("Download {size}", size=gigabytes(state.size)) if can_install else "",
            "ready": tr("Install and restart") if state.way == "tarball" else tr("Open the installer"),
        }  # fmt: skip
        self.act.setText(words.get(phase, ""))
        self.act.setVisible(state.offered and bool(words.get(phase)))
        self.say(_sentence(state, can_install))


def _sentence(state: UpdateState, can_install: bool) -> str:
    if not state.offered:
        return " ".join((tr("This is version {version}.", version=__version__),
                         tr("This build offers no updates. Get new versions where you got this one.")))  # fmt: skip
    match state.phase:
        case "looking":
            return tr("Looking for a newer version…")
        case "newest":
            return tr("Version {version} is the newest.", version=__version__)
        case "downloading":
            return tr("Downloading version {version}…", version=state.version)
        case "ready" if state.way == "deb":
            return tr("Version {version} is downloaded and verified. Your system's installer opens it; restart Hearth "
                      "afterwards.", version=state.version)  # fmt: skip
        case "ready":
            return tr("Version {version} is downloaded and verified. Version {own} stays installed, so that you can go "
                      "back to it.", version=state.version, own=__version__)  # fmt: skip
        case "installing":
            return tr("Installing version {version}…", version=state.version)
        case "found" if can_install:
            return tr("Version {version} is available; this is {own}.", version=state.version, own=__version__)
        case "found":
            return tr("Version {version} is available; this is {own}. Get it where you got this one.",
                      version=state.version, own=__version__)  # fmt: skip
    return " ".join((tr("This is version {version}.", version=__version__),
                     tr("Nothing is requested until you check.")))  # fmt: skip
