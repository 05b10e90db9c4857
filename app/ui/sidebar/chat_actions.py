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

if TYPE_CHECKING:
    from app.chat.chat_folders import ChatFolders
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
        self._list.placed.connect(folders.place)
        self._list.folder_renamed.connect(folders.rename_folder)
        self._list.asked.connect(self.do)

    def bind(self, commands: Commands) -> None:
        """Bind the commands for the visible chat and for all chats."""
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
        """Add the actions on the visible chat, except renaming and deleting."""
        chat = self._shown()
        if chat is not None:
            chat_menus.add_rows(menu, self._list, chat)

    def _step(self, step: int) -> None:
        if chat := self._list.neighbour(step):
            self._sidebar.conversation_selected.emit(chat)

    def do(self, act: str, whose: str) -> None:
        """Run a command on a chat or folder. whose: the chat's id, or the folder's name."""
        chat = self._list.chats.conversation(whose)
        if act == "take_out":
            self._folders.take_out(whose)
        elif act == "import_chats":
            self._import()
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
        dialog.named.connect(lambda name: self._folders.place(chat.id, chat.pinned, name))
        dialog.open()

    def _show_bin(self, chats: list[BinnedChat]) -> None:
        dialog = BinDialog(self._window, chats)
        dialog.restore_asked.connect(self._folders.restore)
        dialog.erase_asked.connect(self._folders.erase)
        dialog.open()

    # -------------------------------------------------------------- files

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

    def _import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self._window, tr("Import chats"), str(_documents()), tr("Chats (*.json)"))
        if path:
            self._folders.import_chats(Path(path))


def _documents() -> Path:
    return Path(QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation))


def _with_ending(path: Path, ending: str) -> Path:
    """Return the path with the ending that was offered, because the ending selects the format."""
    return path if path.suffix.lower() == f".{ending}" else path.with_name(f"{path.name}.{ending}")
