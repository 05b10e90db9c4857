"""The dialogs of an import: what can be imported and how to get it, the progress, and what was imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.chat.imports.chat_import import ImportSummary
from app.translation import figure, noted, tr, tr_n
from app.ui.widgets.controls import Button, Label, Progress
from app.ui.widgets.dialog import Dialog, Facts

# Programs, and how to get their chats.
_SOURCES = (
    ("ChatGPT", noted("Settings, Data controls, Export data. Choose the ZIP file that you are sent.")),
    ("Claude", noted("Settings, Privacy, Export data. Choose the ZIP file that you are sent.")),
    ("Open WebUI", noted("Settings, Data controls, Export chats. Choose the JSON file.")),
    ("LM Studio", noted("Choose the folder “.lmstudio/conversations” in your home folder.")),
    ("Jan", noted("Choose the folder “threads” in Jan's data folder.")),
    ("GPT4All", noted("Choose the folder of its models, which also holds its chats.")),
    ("Hearth", noted("Menu of all chats, Export all as JSON. Choose the JSON file.")),
)


class ImportDialog(Dialog):
    """Where chats can come from. file_requested, folder_requested: choose a file, or a folder."""

    file_requested = Signal()
    folder_requested = Signal()

    def __init__(self, parent: QWidget) -> None:
        words = tr("Choose what the other program exported, or drop it on the list of chats. Nothing leaves this PC.")
        super().__init__(parent, tr("Import chats"), words, 520)
        self.body.addWidget(Facts([(name, tr(how)) for name, how in _SOURCES]))
        self.cancel_button = self.add_button(Button(tr("Cancel")))
        self.folder_button = self.add_button(Button(tr("Choose a folder")))
        self.file_button = self.add_button(Button(tr("Choose a file"), "primary"))
        self.file_button.setDefault(True)
        self.cancel_button.clicked.connect(self.reject)
        for button, asked in ((self.folder_button, self.folder_requested), (self.file_button, self.file_requested)):
            button.clicked.connect(self.accept)
            button.clicked.connect(asked)
        self.file_button.setFocus()


class ProgressDialog(Dialog):
    """The progress of an import. Closing it leaves the import running. cancel_requested: end it."""

    cancel_requested = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, tr("Importing chats"), tr("Reading the file"), 420)
        self.bar = Progress(tr("Importing chats"))
        self.body.addWidget(self.bar)
        self.cancel_button = self.add_button(Button(tr("Cancel import")), at_start=True)
        self.cancel_button.clicked.connect(self.cancel_requested)
        self.add_close(tr("Continue in the background"))

    def show_progress(self, share: float, chats: int) -> None:
        """share: of the bytes. chats: so far."""
        self.bar.set_done(share)
        self.sentence.setText(tr_n("{n} chat so far", "{n} chats so far", chats, n=figure(chats)))


class SummaryDialog(Dialog):
    """The result of an import. undo_requested: remove the imported chats."""

    undo_requested = Signal()

    def __init__(self, parent: QWidget, summary: ImportSummary) -> None:
        super().__init__(parent, title_of(summary), "", 480)
        self.rows = rows_of(summary)
        if self.rows:
            self.body.addWidget(Facts(self.rows))
        if summary.cut:
            self.body.addWidget(
                Label(
                    tr("The file is cut off or damaged: chats after that place are missing. Export it again."),
                    "small", "warn", wrap=True,
                )
            )  # fmt: skip
        self.undo_button = Button(tr("Undo import"))
        if summary.chats:
            self.add_button(self.undo_button, at_start=True)
            self.undo_button.clicked.connect(self._undo)
        self.add_close()

    def _undo(self) -> None:
        self.accept()
        self.undo_requested.emit()


def title_of(summary: ImportSummary) -> str:
    """Return how many chats were imported, and from where."""
    n = len(summary.chats)
    if not n:
        return tr("No new chats")
    return tr_n(
        "{n} chat imported from {programs}",
        "{n} chats imported from {programs}",
        n,
        n=figure(n),
        programs=", ".join(summary.programs),
    )


def rows_of(summary: ImportSummary) -> list[tuple[str, str]]:
    """Return what there is to say of an import, as (name, value)."""
    staged = summary.staged
    rows = []
    if summary.chats:
        rows.append((tr("Messages"), figure(staged.messages)))
        folders = sorted({chat.folder for chat in summary.chats})
        rows.append((tr("Folder"), "; ".join(folders)))
    if staged.here:
        words = tr_n("{n} chat, which stays as it is", "{n} chats, which stay as they are", staged.here,
                     n=figure(staged.here))  # fmt: skip
        rows.append((tr("Already here"), words))
    if staged.binned:
        words = tr_n("{n} chat. Restore it there.", "{n} chats. Restore them there.", staged.binned,
                     n=figure(staged.binned))  # fmt: skip
        rows.append((tr("In the bin"), words))
    if skipped := _skipped(summary.skipped):
        rows.append((tr("Skipped"), skipped))
    if left_out := _left_out(summary.left_out):
        rows.append((tr("Left out"), tr("{parts}. Their places are marked.", parts=left_out)))
    return rows


def _skipped(counts: Mapping[str, int]) -> str:
    """Return the chats that were skipped, by reason."""

    def n(reason: str) -> int:
        return counts.get(reason, 0)

    said = (
        (n("empty"), tr_n("{n} without messages", "{n} without messages", n("empty"))),
        (n("twice"), tr_n("{n} that is there twice", "{n} that are there twice", n("twice"))),
        (n("damaged"), tr_n("{n} damaged", "{n} damaged", n("damaged"))),
        (n("large"), tr_n("{n} too large", "{n} too large", n("large"))),
        (n("version"), tr_n("{n} of an unknown version", "{n} of an unknown version", n("version"))),
        (n("unknown"), tr_n("{n} that is not a chat", "{n} that are not chats", n("unknown"))),
    )
    return ", ".join(words for count, words in said if count)


def _left_out(counts: Mapping[str, int]) -> str:
    """Return the parts of messages that were left out, by kind."""

    def n(kind: str) -> int:
        return counts.get(kind, 0)

    said = (
        (n("pictures"), tr_n("{n} picture", "{n} pictures", n("pictures"), n=figure(n("pictures")))),
        (n("recordings"), tr_n("{n} recording", "{n} recordings", n("recordings"), n=figure(n("recordings")))),
        (n("files"), tr_n("{n} file", "{n} files", n("files"), n=figure(n("files")))),
        (n("others"), tr_n("{n} other part", "{n} other parts", n("others"), n=figure(n("others")))),
    )
    return ", ".join(words for count, words in said if count)


def known_folders() -> Sequence[Path]:
    """Return folders in which other programs on this PC keep their chats, if they exist."""
    home = Path.home()
    folders = (
        home / ".lmstudio" / "conversations",
        home / ".cache" / "lm-studio" / "conversations",
        home / ".local" / "share" / "Jan" / "data" / "threads",
        home / "jan" / "threads",
        home / "AppData" / "Roaming" / "Jan" / "data" / "threads",
        home / ".local" / "share" / "nomic.ai" / "GPT4All",
        home / "AppData" / "Local" / "nomic.ai" / "GPT4All",
    )
    return [folder for folder in folders if folder.is_dir()]
