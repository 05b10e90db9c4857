"""Organizes chats: pins, folders and their settings, export, import and the bin. Every action on the list can be
undone.

It shows nothing: texts for a toast are a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.chat_memory import ChatMemory
from app.chat.imports.chat_import import ChatImport, ImportSummary
from app.chat.projects.project import SERVER, Project
from app.chat.store.conversation import BinnedChat, Conversation, WholeChat
from app.translation import figure, tr, tr_n
from app.user_messages import UserMessage, describe

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background
T = TypeVar("T")


class ChatFolders(QObject):
    """All methods return at once; the memory's `changed` follows with the new list."""

    toast = Signal(str, object)  # text, and a callable that undoes the action, or None
    problem = Signal(str, UserMessage)  # "import" or "export", and why it failed
    solved = Signal(str)  # "import" or "export" succeeded
    projects_changed = Signal()
    renamed = Signal(str, str)  # a folder, and its new name; empty: it was removed

    def __init__(self, memory: ChatMemory, policy: AnswerPolicy, save: Save = lambda name, write: None) -> None:
        """policy: has the projects. save: writes a small file in the background."""
        super().__init__()
        self._memory, self._policy, self._save = memory, policy, save
        self.projects = policy.projects
        self.imports = ChatImport(memory)
        self.imports.failed.connect(partial(self._not_done, "import"))
        self.imports.done.connect(self._imported_elsewhere)

    def place(self, conversation_id: str, pinned: bool, folder: str) -> None:
        """Pin or unpin a chat and set its folder; empty: none."""
        chat = self._memory.conversation(conversation_id)
        if chat is None or (chat.pinned, chat.folder) == (pinned, folder):
            return
        if folder != chat.folder:
            words = (
                tr("Moved to “{folder}”", folder=folder)
                if folder
                else tr("Removed from “{folder}”", folder=chat.folder)
            )
        else:
            words = tr("Chat pinned") if pinned else tr("Chat unpinned")
        self._put(conversation_id, pinned, folder)
        self.toast.emit(words, partial(self._put, conversation_id, chat.pinned, chat.folder))

    def _put(self, conversation_id: str, pinned: bool, folder: str) -> None:
        if self._memory.conversation(conversation_id) is not None:
            self._memory.set_pinned(conversation_id, pinned)
            self._memory.set_folder(conversation_id, folder)

    def rename_folder(self, name: str, new_name: str) -> None:
        """Rename a folder with its settings. If the name exists, merge both; that folder keeps its own settings."""
        new_name = " ".join(new_name.split())
        before = self._chats_in(name)
        project, other = self.projects.of(name), self.projects.of(new_name)
        if not new_name or new_name == name or not (before or project):
            return
        merges = other is not None or any(c.folder == new_name for c in self._memory.conversations())
        self.projects.rename(name, new_name)
        self._memory.set_folders(dict.fromkeys(before, new_name))
        self.renamed.emit(name, new_name)
        self._projects_changed()
        if merges:
            self.toast.emit(
                tr("Moved to “{folder}”, which already existed", folder=new_name),
                partial(self._put_back, before, {name: project, new_name: other}),
            )

    def take_out(self, name: str) -> None:
        """Remove a folder and its settings; its chats stay, and so does the file of its notes."""
        before, project = self._chats_in(name), self.projects.of(name)
        if before or project:
            self.projects.put(name, None)
            self._memory.set_folders(dict.fromkeys(before, ""))
            self.renamed.emit(name, "")
            self._projects_changed()
            self.toast.emit(
                tr("Removed from “{folder}”: {chats}", folder=name, chats=_chats(len(before))),
                partial(self._put_back, before, {name: project}),
            )

    def _chats_in(self, folder: str) -> dict[str, str]:
        return {c.id: c.folder for c in self._memory.conversations() if c.folder == folder}

    # --- projects

    def read_projects(self) -> None:
        self.projects.read()
        self.projects_changed.emit()

    def set_project(self, folder: str, project: Project | None) -> None:
        """Set the settings of a folder; None removes them."""
        if project != self.projects.of(folder):
            self.projects.put(folder, project)
            self._projects_changed()

    def _projects_changed(self) -> None:
        written = self.projects.to_json()
        self._save("save the projects", lambda: self.projects.save(written))
        self.projects_changed.emit()

    def question_before_move(self, conversation_id: str, folder: str) -> str:
        """Return what a chat would send to a server, and does not send now, if it moved to a folder; "": nothing."""
        chat = self._memory.conversation(conversation_id)
        if chat is None:
            return ""
        before = self._policy.place_for(self._policy.in_force(chat))
        after = self._policy.place_for(self._policy.in_force(replace(chat, folder=folder)))
        project = self.projects.of(folder)
        if after is None:
            return ""
        to = tr("{server} on this PC", server=after.server.name) if after.server.is_here else after.server.host
        if after != before:
            return tr(
                "Your next message sends this whole chat and its attachments to {host}.",
                host=to,
            )
        if project is not None and folder != chat.folder and (project.instructions or project.notes):
            return tr("With your next message, the instructions and notes of this project go to {host}.", host=to)
        return ""

    # --- the bin

    def read_bin(self, then: Callable[[list[BinnedChat]], None]) -> None:
        """Pass the deleted chats that can still be restored to `then`, last deleted first."""
        self._memory.read_bin(then)

    def restore(self, conversation_id: str) -> None:
        if self._memory.restore(conversation_id):
            self.toast.emit(tr("Chat restored"), None)

    def erase(self, conversation_ids: Sequence[str]) -> None:
        """Delete chats for good."""
        self._memory.erase(conversation_ids)

    # --- files

    def export_chats(
        self,
        path: Path,
        conversation_ids: Sequence[str] | None = None,
        write_one: Callable[[Path, WholeChat], None] | None = None,
    ) -> None:
        """Export chats, or all of them: JSON to .json, one chat as Markdown to .md, else Markdown files in a folder.

        write_one: writes one chat in another format, in another thread.
        """
        done, failed = partial(self._exported, path), partial(self._not_done, "export")
        self._memory.export_chats(path, conversation_ids, done, failed, write_one)

    def read_chat(self, conversation_id: str, make: Callable[[WholeChat], T], then: Callable[[T], None]) -> None:
        """Pass what `make` returns for a chat, in another thread, to `then`."""
        self._memory.read_chat(conversation_id, make, then, partial(self._not_done, "export"))

    def _exported(self, path: Path, count: int) -> None:
        self.solved.emit("export")
        self.toast.emit(
            tr_n("{n} chat exported to {name}", "{n} chats exported to {name}", count, n=figure(count), name=path.name),
            None,
        )

    def import_chats(self, *paths: Path) -> None:
        """Import the chats of files that Hearth exported, each all or none; those of others by `imports`, together."""
        self._memory.look_at_export(paths, partial(self._import, paths), partial(self._not_done, "import"))

    def _import(self, paths: Sequence[Path], ours: Sequence[bool]) -> None:
        for path, is_ours in zip(paths, ours, strict=True):
            if is_ours:
                self._memory.import_chats(path, self._imported, partial(self._not_done, "import"))
        if others := [path for path, is_ours in zip(paths, ours, strict=True) if not is_ours]:
            self.imports.start(others)

    def _imported_elsewhere(self, summary: ImportSummary) -> None:
        self.solved.emit("import")
        for chat in summary.chats:
            self._kept_here(chat)

    def _imported(self, added: list[Conversation], known: int) -> None:
        self.solved.emit("import")
        added = [self._kept_here(chat) for chat in added]
        if not added:
            here = tr_n("{n} chat was already here", "{n} chats were already here", known, n=figure(known))
            self.toast.emit(here if known else tr("There is no chat in this file"), "info" if known else "warn")
            return
        words = tr_n("{n} chat imported", "{n} chats imported", len(added), n=figure(len(added)))
        if known:
            words += ", " + tr_n("{n} was already here", "{n} were already here", known)
        self.toast.emit(words, partial(self.undo_import, added))

    def _kept_here(self, chat: Conversation) -> Conversation:
        """Keep an imported chat from what its project would send elsewhere: its server, and tools. Return it so."""
        inherited = self._policy.in_force(replace(chat, choices={}))
        nothing: dict[str, Any] = {SERVER: {}, "tools": []}
        held = {name: none for name, none in nothing.items() if inherited.get(name)}
        if held:
            self._memory.set_choices(chat.id, {**chat.choices, **held})
        return self._memory.conversation(chat.id) or chat

    def undo_import(self, added: Sequence[Conversation]) -> None:
        """Remove imported chats. One that has changed since goes to the bin."""
        unchanged = [chat.id for chat in added if self._memory.conversation(chat.id) == chat]
        self._memory.delete_all([chat.id for chat in added])
        self._memory.erase(unchanged)

    def delete_folder(self, name: str) -> None:
        """Move a folder's chats to the bin, and remove its settings; the file of its notes stays."""
        gone, project = list(self._chats_in(name)), self.projects.of(name)
        if gone or project:
            self._memory.delete_all(gone)
            self.projects.put(name, None)
            self._projects_changed()
            words = tr_n("{n} chat deleted", "{n} chats deleted", len(gone), n=figure(len(gone)))
            self.toast.emit(words, partial(self._restore_folder, name, gone, project))

    def _restore_folder(self, name: str, gone: Sequence[str], project: Project | None) -> None:
        self._memory.restore_all(gone)
        self._put_back({}, {name: project})

    def _not_done(self, during: str, error: BaseException) -> None:
        self.problem.emit(during, describe(error, during=during))

    def _put_back(self, folders: Mapping[str, str], projects: Mapping[str, Project | None]) -> None:
        for name, project in projects.items():
            self.projects.put(name, project)
        known = {key: folder for key, folder in folders.items() if self._memory.conversation(key) is not None}
        self._memory.set_folders(known)
        self._projects_changed()


def _chats(count: int) -> str:
    return tr_n("{n} chat", "{n} chats", count, n=figure(count))
