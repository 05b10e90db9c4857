"""Connects the actions on chats in the sidebar and title bar with the controllers.

It asks for a folder's name or a file where needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, QStandardPaths
from PySide6.QtWidgets import QFileDialog, QWidget

from app.chat.store.chat_files import file_name
from app.chat.store.conversation import BinnedChat, Conversation
from app.translation import tr
from app.ui.sidebar import chat_menus
from app.ui.sidebar.bin_dialog import BinDialog
from app.ui.sidebar.folder_dialog import FolderDialog
from app.ui.sidebar.import_dialogs import ImportDialog, ProgressDialog, SummaryDialog, known_folders, title_of
from app.ui.widgets.floating import confirm

if TYPE_CHECKING:
    from app.chat.chat_folders import ChatFolders
    from app.chat.imports.chat_import import ImportSummary
    from app.ui.keyboard.commands import Commands
    from app.ui.printing.export_actions import ExportActions
    from app.ui.printing.export_dialog import Form
    from app.ui.sidebar.sidebar import Sidebar
    from app.ui.widgets.floating import Menu


_FORMS: dict[str, Form] = {"print_chat": "print", "export_pdf": "pdf", "export_web": "web"}


class ChatActions(QObject):
    """The chat actions of a window; create one per window."""

    def __init__(self, window: QWidget, sidebar: Sidebar, shown: Callable[[], str], folders: ChatFolders) -> None:
        """Connect the sidebar's list. shown: returns the id of the visible chat, or ""."""
        super().__init__(window)
        self._window, self._sidebar, self._id_shown, self._folders = window, sidebar, shown, folders
        self._list = sidebar.panel.list
        self._printing: ExportActions | None = None
        self._list.placed.connect(self._place)
        self._list.folder_renamed.connect(folders.rename_folder)
        self._list.asked.connect(self.do)
        self._list.files_dropped.connect(lambda paths: folders.import_chats(*paths))
        self._progress: ProgressDialog | None = None
        folders.imports.began.connect(self._show_progress)
        folders.imports.done.connect(self._show_summary)
        folders.imports.cancelled.connect(
            lambda: folders.toast.emit(tr("Import cancelled. Nothing was imported."), "info")
        )
        for ended in (folders.imports.done, folders.imports.cancelled, folders.imports.failed):
            ended.connect(self._close_progress)

    def bind(self, commands: Commands) -> None:
        for act in ("rename_chat", "pin_chat", "move_chat", "delete_chat", "export_markdown", "export_json", *_FORMS):
            commands.bind(act, partial(self._do_here, act), lambda: self._shown() is not None)
        for act in ("export_all", "export_all_markdown"):
            commands.bind(act, partial(self.do, act, ""), lambda: bool(self._list.chats.conversations))
        for act in ("import_chats", "bin"):
            commands.bind(act, partial(self.do, act, ""))
        commands.bind("previous_chat", lambda: self._step(-1), lambda: bool(self._list.chats.rows))
        commands.bind("next_chat", lambda: self._step(1), lambda: bool(self._list.chats.rows))

    def _shown(self) -> Conversation | None:
        return self._list.chats.conversation(self._id_shown())

    def _do_here(self, act: str) -> None:
        chat = self._shown()
        if chat is not None:
            self.do(act, chat.id)

    def add_rows(self, menu: Menu) -> None:
        """Add pinning and folders of the visible chat."""
        if chat := self._shown():
            chat_menus.add_rows(menu, self._list, chat)

    def add_exports(self, menu: Menu) -> None:
        """Add exports of the visible chat."""
        if chat := self._shown():
            chat_menus.add_exports(menu, self._list, chat)

    def _step(self, step: int) -> None:
        if chat := self._list.neighbour(step):
            self._sidebar.conversation_selected.emit(chat)

    def do(self, act: str, whose: str) -> None:
        """Run a command on a chat or folder. whose: the chat's id, or the folder's name."""
        chat = self._list.chats.conversation(whose)
        if act == "take_out":
            self._folders.take_out(whose)
        elif act == "delete_folder":
            self._folders.delete_folder(whose)
        elif act == "import_chats":
            self._ask_what_to_import()
        elif act == "bin":
            self._folders.read_bin(self._show_bin)
        elif act == "export_all":
            self._export(tr("Hearth chats"), "json", None)
        elif act == "export_all_markdown":
            self._export_folder()
        elif chat is None:
            return
        elif act == "rename_chat":
            self._sidebar.rename(chat.id)
        elif act == "delete_chat":
            self._sidebar.delete_requested.emit(chat.id)
        elif act == "pin_chat":
            self._folders.place(chat.id, not chat.pinned, chat.folder)
        elif act == "move_chat":
            self._ask_where(chat)
        elif act == "new_folder":
            self._ask_name(chat)
        elif act in _FORMS:
            self._export_actions().ask(chat, _FORMS[act])
        elif act in ("export_markdown", "export_json"):
            self._export(file_name(chat.title), "md" if act == "export_markdown" else "json", [chat.id])

    def print_message(self, message_id: str) -> None:
        """Ask how a message of the visible chat is printed or exported."""
        chat = self._shown()
        if chat is not None:
            self._export_actions().ask(chat, "print", message_id)

    def _export_actions(self) -> ExportActions:
        if self._printing is None:
            from app.ui.printing.export_actions import ExportActions

            self._printing = ExportActions(self._window, self._folders, _documents())
        return self._printing

    def _ask_where(self, chat: Conversation) -> None:
        if not self._list.chats.folders:
            self._ask_name(chat)
            return
        menu = chat_menus.folders_menu(self._list, chat)
        middle = QPoint((self._window.width() - menu.sizeHint().width()) // 2, self._window.height() // 4)
        menu.popup(self._window.mapToGlobal(middle))
        menu.setActiveAction(menu.actions()[0])

    def _ask_name(self, chat: Conversation) -> None:
        dialog = FolderDialog(self._window, self._list.chats.folders)
        dialog.named.connect(lambda name: self._place(chat.id, chat.pinned, name))
        dialog.open()

    def _place(self, chat: str, pinned: bool, folder: str) -> None:
        """Pin and move a chat; ask first if it would send something elsewhere in that folder."""
        if question := self._folders.question_before_move(chat, folder):
            confirm(
                self._window, tr("Move this chat to “{folder}”?", folder=folder), question, tr("Stay"), tr("Move"),
                lambda: self._folders.place(chat, pinned, folder),
            ).danger.set_look("secondary")  # fmt: skip
        else:
            self._folders.place(chat, pinned, folder)

    def _show_bin(self, chats: list[BinnedChat]) -> None:
        dialog = BinDialog(self._window, chats)
        dialog.restore_requested.connect(self._folders.restore)
        dialog.erase_requested.connect(self._folders.erase)
        dialog.open()

    # --- files

    def _export(self, name: str, ending: str, conversation_ids: list[str] | None) -> None:
        title = tr("Export this chat") if conversation_ids else tr("Export all chats")
        kind = tr("Markdown (*.md)") if ending == "md" else tr("JSON, which Hearth can import (*.json)")
        path, _ = QFileDialog.getSaveFileName(self._window, title, str(_documents() / f"{name}.{ending}"), kind)
        if path:
            self._folders.export_chats(_with_ending(Path(path), ending), conversation_ids)

    def _export_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self._window, tr("Folder for the exported chats"), str(_documents()))
        if path:
            self._folders.export_chats(Path(path) / tr("Hearth chats"))

    def _ask_what_to_import(self) -> None:
        if self._folders.imports.is_running:
            self._show_progress()
            return
        dialog = ImportDialog(self._window)
        dialog.file_requested.connect(self._import_files)
        dialog.folder_requested.connect(self._import_folder)
        dialog.open()

    def _import_files(self) -> None:
        kinds = tr("Chats (*.json *.jsonl *.zip *.chat)")
        paths, _ = QFileDialog.getOpenFileNames(self._window, tr("Import chats"), str(_downloads()), kinds)
        if paths:
            self._folders.import_chats(*map(Path, paths))

    def _import_folder(self) -> None:
        start = next(iter(known_folders()), _downloads())
        path = QFileDialog.getExistingDirectory(self._window, tr("Folder of chats"), str(start))
        if path:
            self._folders.import_chats(Path(path))

    def _show_progress(self) -> None:
        if self._progress is None:
            dialog = self._progress = ProgressDialog(self._window)
            self._folders.imports.progressed.connect(dialog.show_progress)
            dialog.cancel_requested.connect(self._folders.imports.cancel)
            dialog.finished.connect(self._discard_progress)
        self._progress.open()

    def _discard_progress(self) -> None:
        self._progress = None

    def _close_progress(self) -> None:
        if self._progress is not None:
            self._progress.accept()

    def _show_summary(self, summary: ImportSummary) -> None:
        """Show what was imported: as a note only if the user continued in the meantime."""
        undo = partial(self._folders.undo_import, summary.chats)
        if self._progress is None:
            self._folders.toast.emit(title_of(summary), undo if summary.chats else None)
            return
        dialog = SummaryDialog(self._window, summary)
        dialog.undo_requested.connect(undo)
        dialog.open()


def _downloads() -> Path:
    return _folder(QStandardPaths.StandardLocation.DownloadLocation)


def _documents() -> Path:
    return _folder(QStandardPaths.StandardLocation.DocumentsLocation)


def _folder(kind: QStandardPaths.StandardLocation) -> Path:
    """Return a folder of the user; their home folder if it is missing: file dialogs would take it for a name."""
    found = Path(QStandardPaths.writableLocation(kind))
    return found if found.is_dir() else Path.home()


def _with_ending(path: Path, ending: str) -> Path:
    """Return the path with the ending that was offered, because the ending selects the format."""
    return path if path.suffix.lower() == f".{ending}" else path.with_name(f"{path.name}.{ending}")
