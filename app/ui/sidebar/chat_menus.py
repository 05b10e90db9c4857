"""The menus of the sidebar's list: of a chat, of a folder, and of the list. The list performs the actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt

from app.chat.store.conversation import Conversation
from app.shortcuts import keys
from app.translation import tr
from app.ui.look import icons
from app.ui.widgets.floating import Menu

if TYPE_CHECKING:
    from app.ui.sidebar.chat_list import ChatList


def chat_menu(view: ChatList, chat: Conversation) -> Menu:
    menu = _menu(tr("Chat"), view)
    menu.add(tr("Rename"), "pen", lambda: view.rename(chat.id), keys("rename_in_list"))
    add_rows(menu, view, chat)
    menu.addSeparator()
    add_exports(menu, view, chat)
    menu.addSeparator()
    menu.add(tr("Delete"), "trash", lambda: view.delete_requested.emit(chat.id), keys("delete_in_list"), "bad")
    return menu


def add_rows(menu: Menu, view: ChatList, chat: Conversation) -> None:
    """Add pinning and folders; also used by the title bar's menu, like `add_exports`."""
    pin = (tr("Unpin"), "unpin") if chat.pinned else (tr("Pin"), "pin")
    menu.add(*pin, lambda: view.placed.emit(chat.id, not chat.pinned, chat.folder))
    _add_folders(menu, view, chat)


def add_exports(menu: Menu, view: ChatList, chat: Conversation) -> None:
    menu.add(tr("Print or export"), "put", lambda: view.asked.emit("print_chat", chat.id))
    menu.add(tr("Export as Markdown"), "put", lambda: view.asked.emit("export_markdown", chat.id))
    menu.add(tr("Export as JSON"), "put", lambda: view.asked.emit("export_json", chat.id))


def folders_menu(view: ChatList, chat: Conversation) -> Menu:
    menu = _menu(tr("Move to folder"), view)
    _fill_folders(menu, view, chat, view.chats.folders)
    return menu


def folder_menu(view: ChatList, name: str) -> Menu:
    menu = _menu(tr("Folder"), view)
    menu.add(tr("New chat here"), "plus", lambda: view.asked.emit("new_chat_in", name))
    menu.add(tr("Project settings…"), "settings", lambda: view.asked.emit("project", name))
    menu.addSeparator()
    menu.add(tr("Rename"), "pen", lambda: view.rename_folder(name), keys("rename_in_list"))
    menu.add(tr("Remove folder, keep chats"), "folder", lambda: view.asked.emit("take_out", name))
    menu.addSeparator()
    menu.add(tr("Delete folder and chats"), "trash", lambda: view.asked.emit("delete_folder", name), "", "bad")
    return menu


def list_menu(view: ChatList) -> Menu:
    menu = _menu(tr("All chats"), view)
    menu.add(tr("New project…"), "folder-new", lambda: view.asked.emit("new_project", ""))
    menu.addSeparator()
    menu.add(tr("Import chats"), "get", lambda: view.asked.emit("import_chats", ""))
    menu.add(tr("Export all as JSON"), "put", lambda: view.asked.emit("export_all", ""))
    menu.add(tr("Export all as Markdown"), "put", lambda: view.asked.emit("export_all_markdown", ""))
    menu.addSeparator()
    menu.add(tr("Bin"), "trash", lambda: view.asked.emit("bin", ""))
    return menu


def _menu(name: str, view: ChatList) -> Menu:
    menu = Menu(name, view)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def _add_folders(menu: Menu, view: ChatList, chat: Conversation) -> None:
    folders = view.chats.folders
    if not folders:
        menu.add(tr("Move to a new folder"), "folder-new", lambda: view.asked.emit("new_folder", chat.id))
        return
    inner = Menu(tr("Move to folder"), menu)
    inner.setTitle(tr("Move to folder"))
    inner.setIcon(icons.icon("folder", "ink2", 16))
    _fill_folders(inner, view, chat, folders)
    menu.addMenu(inner)


def _fill_folders(menu: Menu, view: ChatList, chat: Conversation, folders: Sequence[str]) -> None:
    def move(folder: str) -> Callable[[], None]:
        return lambda: view.placed.emit(chat.id, chat.pinned, folder)

    for name in folders:
        shown = name.replace("&", "&&").replace("\t", " ")  # Qt would take & for a mnemonic and a tab for a shortcut
        menu.add(shown, "check" if name == chat.folder else "folder", move(name))
    if folders:
        menu.addSeparator()
    menu.add(tr("New folder"), "folder-new", lambda: view.asked.emit("new_folder", chat.id))
    if chat.folder:
        menu.add(tr("Remove from folder"), "close", move(""))
