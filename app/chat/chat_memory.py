"""All chats used since the start, in memory. The store follows in the background; nothing waits for it.

It decides what to keep and how to save it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.answers.inspection import Inspection
from app.chat.chat_search import ChatSearch
from app.chat.store.chat_files import is_ours, read_json, write_json, write_markdown, write_markdown_folder
from app.chat.store.conversation import (
    BinnedChat,
    Conversation,
    Message,
    MessageState,
    SearchHit,
    TakenOut,
    Unsent,
    WholeChat,
    branch,
    interrupted,
    newest_leaf,
    put_in,
    take_out,
)
from app.chat.store.operations import Operations
from app.chat.store.store import Staged, Store
from app.errors import RescueReport, StoreError

T = TypeVar("T")
log = logging.getLogger(__name__)

SAVE_EVERY_MS = 500  # of a growing message: a kill loses at most this much
BIN_DAYS = 30  # a deleted chat can be restored for so long

OpenStore = Callable[[], tuple[Store, RescueReport | None]]


class ChatMemory(QObject):
    """Conversations and messages: changed in memory first, then in the store. All methods return at once.

    saves and reads are two queues, so that a save that waits for disk space does not block reading an old chat.
    """

    opened = Signal()  # the store's chats are loaded
    changed = Signal()  # the list of conversations
    imported = Signal(object)  # the names of folders that got chats from a file
    trouble = Signal(object)  # StoreError or RescueReport, for a banner
    solved = Signal()  # saving works again

    def __init__(self, open_store: OpenStore, saves: Operations, reads: Operations) -> None:
        super().__init__()
        self._open_store = open_store
        self._saves, self._reads = saves, reads
        self._store: Store | None = None  # set in the thread of `saves`, before any other work there
        self._conversations: dict[str, Conversation] = {}
        self._bin: dict[str, BinnedChat] = {}  # deleted since the start; everything in the bin once it is read
        self._erased: set[str] = set()
        self._chats: dict[str, list[Message]] = {}
        self._branches: dict[str, tuple[str, list[Message]]] = {}  # leaf and branch; of 5,000 messages in 10 ms
        self._growing: dict[str, Message] = {}  # messages with unsaved text
        self._drafted: set[str] = set()  # chats with an unsaved draft
        self.edits: dict[str, str] = {}  # texts of messages that are being edited, by id
        self._edited: set[str] = set()  # messages with an unsaved edit
        self._new_draft: str | None = None  # of the new chat; None: not read yet
        self.has_early_draft = False  # the user began a message before the chats were open
        self._removed: dict[str, TakenOut] = {}
        self._report: RescueReport | None = None  # what was wrong with the file, while chats are in memory only
        self._has_changes = False  # the user's, since the start
        self._repaired = False
        self.was_cut_off = False  # the last run was killed during an answer
        self.is_sound: bool | None = None  # whether the file was opened intact; None: still opening
        self._stall: StoreError | None = None  # why saves wait
        self._started_at = time.time()
        self._ending = False
        self._timer = QTimer(self, singleShot=True, interval=SAVE_EVERY_MS)
        self._timer.timeout.connect(self._save_growing)
        self._search = ChatSearch(reads, self._searchable, self.trouble.emit)
        saves.stalled.connect(self._stalled)
        saves.resumed.connect(self._resumed)

    # --- opening

    def open(self) -> None:
        """Open the store in the background. `opened` follows, and `trouble` if there was any."""
        self._saves.run("open the chats", self._read_store, self._is_open, self._is_not_open)

    def _is_not_open(self, error: BaseException) -> None:
        self.is_sound = False
        self.trouble.emit(error)

    def _read_store(self) -> tuple[RescueReport | None, list[Conversation], str, dict[str, str]]:
        self._store, report = self._open_store()
        with contextlib.suppress(StoreError):  # the next start marks them, and `read` shows them as interrupted
            self.was_cut_off = self._store.mark_interrupted() > 0
        return report, self._store.conversations(), self._store.draft(), self._store.edits()

    def _is_open(self, result: tuple[RescueReport | None, list[Conversation], str, dict[str, str]]) -> None:
        report, conversations, draft, self.edits = result
        if self._ending:
            return
        self._conversations = {c.id: c for c in conversations} | self._conversations
        self.has_early_draft = bool(self._new_draft)
        self._new_draft = "\n".join(part for part in (draft, self._new_draft) if part)
        self.is_sound = report is None
        self._take(report)
        has_changes = self._has_changes
        self._keep("empty the bin", lambda: self._stored.empty_bin(self._started_at, BIN_DAYS))
        self._has_changes = has_changes  # of the user's
        self._search.store_is_open()
        self.changed.emit()
        self.opened.emit()

    def repair(self, from_copy: bool = False) -> None:
        """Open the file again and write everything in memory to it. from_copy: as in Store.repair."""

        def work() -> tuple[RescueReport | None, list[Conversation]]:
            return self._stored.repair(from_copy), self._stored.conversations()

        self._saves.run("repair the chats", work, self._is_repaired, self._not_repaired)

    def _take(self, report: RescueReport | None) -> None:
        self._report = report
        if report is not None:
            self.trouble.emit(report)

    def _not_repaired(self, error: BaseException) -> None:
        self.trouble.emit(self._report if self._report is not None and self._report.in_memory else error)

    def _is_repaired(self, result: tuple[RescueReport | None, list[Conversation]]) -> None:
        report, conversations = result
        self._conversations = {c.id: c for c in conversations} | self._conversations  # those that could not be read
        self.solved.emit()
        self._take(report)
        self.changed.emit()
        for conversation_id, messages in self._chats.items():
            if conversation := self._conversations.get(conversation_id):
                self._keep("save the chat", partial(self._save_head, conversation))
                for message in messages:
                    self._keep("save the message", partial(self._append, conversation_id, message))
                self._keep("save the chat", partial(self._save_head, conversation))  # appending has moved its leaf

    # --- conversations

    def conversations(self) -> list[Conversation]:
        """Return all conversations, newest first."""
        return sorted(self._conversations.values(), key=lambda c: c.updated_at, reverse=True)

    def conversation(self, conversation_id: str | None) -> Conversation | None:
        return self._conversations.get(conversation_id or "")

    def add(self, conversation: Conversation) -> None:
        self._conversations[conversation.id] = conversation
        self._chats[conversation.id] = []
        self._keep("save the chat", partial(self._save_head, conversation))

    def rename(self, conversation_id: str, title: str) -> None:
        self._set_head(conversation_id, title=title)

    def set_pinned(self, conversation_id: str, pinned: bool) -> None:
        self._set_head(conversation_id, pinned=pinned)

    def set_folder(self, conversation_id: str, folder: str) -> None:
        """Set a chat's folder; empty: none."""
        self._set_head(conversation_id, folder=folder)

    def set_folders(self, folders: Mapping[str, str]) -> None:
        """Set the folders of many chats at once, by id."""
        for conversation_id, folder in folders.items():
            conversation = replace(self._conversations[conversation_id], folder=folder)
            self._conversations[conversation_id] = conversation
            self._keep("save the chat", partial(self._save_head, conversation))
        self.changed.emit()

    def set_choices(self, conversation_id: str, choices: dict[str, Any]) -> None:
        """Replace a chat's own choices."""
        self._set_head(conversation_id, choices=choices)

    def set_leaf(self, conversation_id: str, message_id: str) -> None:
        """Show the branch through that message, down to its newest message."""
        leaf = newest_leaf(self._chats.get(conversation_id, []), message_id)
        self._set_head(conversation_id, leaf=leaf)

    def draft(self, conversation_id: str) -> str:
        """Return a chat's unsent text; an empty id is the new chat."""
        conversation = self._conversations.get(conversation_id)
        return conversation.draft if conversation else "" if conversation_id else self._new_draft or ""

    def set_draft(self, conversation_id: str, text: str) -> None:
        """Set a chat's unsent text. Saved within SAVE_EVERY_MS; does not emit `changed`."""
        if text == self.draft(conversation_id):
            return
        if conversation := self._conversations.get(conversation_id):
            self._conversations[conversation_id] = replace(conversation, draft=text)
        elif not conversation_id:
            self._new_draft = text
        self._drafted.add(conversation_id)
        self._save_soon()

    def set_edit(self, message_id: str, text: str) -> None:
        """Set the text of a message that is being edited; empty: it no longer is. Saved within SAVE_EVERY_MS."""
        if text != self.edits.get(message_id, ""):
            self.edits[message_id] = text
            self._edited.add(message_id)
            self._save_soon()

    def _set_head(self, conversation_id: str, **fields: Any) -> None:
        before = self._conversations[conversation_id]
        conversation = replace(before, **fields)
        if conversation != before:
            self._conversations[conversation_id] = conversation
            self._keep("save the chat", partial(self._save_head, conversation))
            self.changed.emit()

    def set_queued(self, conversation_id: str, queued: Unsent | None) -> None:
        """Set the message to send when the running answer ends; None: none."""
        self._set_head(conversation_id, queued=queued)

    # --- the bin

    def delete(self, conversation_id: str) -> None:
        """Move a chat to the bin. The first start after BIN_DAYS deletes it for good."""
        self.delete_all([conversation_id])

    def delete_all(self, conversation_ids: Sequence[str]) -> None:
        """Move chats to the bin at once."""
        self._save_drafts()
        now, gone = time.time(), [one for one in conversation_ids if one in self._conversations]
        self._bin |= {one: BinnedChat(self._conversations.pop(one), now) for one in gone}
        self._keep("delete a chat", lambda: self._stored.delete(*gone))
        self.changed.emit()

    def restore(self, conversation_id: str) -> bool:
        """Take a chat out of the bin. Returns False if it is not there."""
        return bool(self.restore_all([conversation_id]))

    def restore_all(self, conversation_ids: Sequence[str]) -> list[str]:
        """Take chats out of the bin at once. Returns the ids of those that were there."""
        back = [one for one in conversation_ids if one in self._bin]
        if back:
            self._conversations |= {one: self._bin.pop(one).conversation for one in back}
            self._keep("bring a chat back", lambda: self._stored.restore(*back))
            self.changed.emit()
        return back

    def erase(self, conversation_ids: Sequence[str]) -> None:
        """Delete chats in the bin for good."""
        gone = [one for one in conversation_ids if self._bin.pop(one, None) is not None]
        self._erased.update(gone)
        for one in gone:
            self._branches.pop(one, None)
            for message in self._chats.pop(one, ()):
                self._growing.pop(message.id, None)
        self._keep("erase deleted chats", lambda: self._stored.erase(gone))

    def read_bin(self, then: Callable[[list[BinnedChat]], None]) -> None:
        """Read the bin, last deleted first; behind the opening of the store, if it is not open yet."""

        def take(stored: list[BinnedChat]) -> None:
            gone = self._conversations.keys() | self._erased  # saved after it was read
            self._bin = {b.conversation.id: b for b in stored if b.conversation.id not in gone} | self._bin
            then(sorted(self._bin.values(), key=lambda binned: binned.deleted_at, reverse=True))

        queue = self._saves if self.is_sound is None else self._reads
        queue.run("read the bin", lambda: self._stored.binned(), take, self.trouble.emit)

    # --- files

    def export_chats(
        self,
        path: Path,
        conversation_ids: Sequence[str] | None,
        then: Callable[[int], None],
        failed: Callable[[BaseException], None],
        write_one: Callable[[Path, WholeChat], None] | None = None,
    ) -> None:
        """Export chats, or all of them, oldest first: to one JSON file if the path ends in .json, one chat to a
        Markdown file if it ends in .md, else to a folder of Markdown files. `then` gets their number; `failed` an
        OSError or a StoreError. write_one: writes one chat to the path in another format."""
        wanted = set(self._conversations if conversation_ids is None else conversation_ids)
        heads = sorted((c for c in self._conversations.values() if c.id in wanted), key=lambda c: (c.created_at, c.id))
        here = {c.id: WholeChat(c, tuple(self._chats[c.id])) for c in heads if c.id in self._chats}

        if write_one is None and path.suffix.lower() == ".md":
            write_one = write_markdown

        def write() -> int:
            chats = (here.get(c.id) or WholeChat(c, tuple(self._stored.messages(c.id))) for c in heads)
            if write_one is None:
                return (write_json if path.suffix.lower() == ".json" else write_markdown_folder)(path, chats)
            for chat in chats:
                write_one(path, chat)
            return len(heads)

        self._reads.run("export chats", write, then, failed)

    def read_chat(
        self,
        conversation_id: str,
        make: Callable[[WholeChat], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Read a chat with all its messages, and pass what `make` returns for it to `then`. `make` runs in the thread
        of the reads. `failed` gets its error, or a StoreError."""
        head = self._conversations[conversation_id]
        here = self._chats.get(conversation_id)
        messages = None if here is None else tuple(here)

        def read() -> T:
            return make(WholeChat(head, tuple(self._stored.messages(head.id)) if messages is None else messages))

        self._reads.run("read a chat to print", read, then, failed)

    def import_chats(
        self, path: Path, then: Callable[[list[Conversation], int], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Import the chats of a JSON file, all or none. `then` gets the added chats and the number of those that
        existed; `failed` a ChatFileError, an OSError or a StoreError."""

        def store(chats: list[WholeChat]) -> None:
            def taken(added: list[Conversation]) -> None:
                self._add_imported(added)
                then(added, len(chats) - len(added))

            if not self._ending:
                self._saves.run("import chats from a file", lambda: self._stored.add_chats(chats), taken, failed)

        self._reads.run("read a file of chats", lambda: read_json(path), store, failed)

    def look_at_export(
        self, paths: Sequence[Path], then: Callable[[list[bool]], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Pass to `then` which of the files Hearth exported; an OSError to `failed`."""
        self._reads.run("look at a file of chats", lambda: [is_ours(path) for path in paths], then, failed)

    def stage(self, batch: Path, then: Callable[[Staged], None], failed: Callable[[BaseException], None]) -> None:
        """Take in a file of chats unseen: see Store.stage. `failed` gets a StoreError."""
        self._saves.run("import chats from a file", lambda: self._stored.stage(batch), then, failed)

    def show_staged(self, then: Callable[[list[Conversation]], None], failed: Callable[[BaseException], None]) -> None:
        """Make all staged chats visible, and pass them to `then`; a StoreError to `failed`."""

        def taken(added: list[Conversation]) -> None:
            self._add_imported(added)
            then(added)

        self._saves.run("show the imported chats", lambda: self._stored.show_staged(), taken, failed)

    def drop_staged(self, then: Callable[[object], None]) -> None:
        """Remove all staged chats. If that fails, the next start does."""
        self._saves.run("drop the imported chats", lambda: self._stored.drop_staged(), then, then)

    def _add_imported(self, added: Sequence[Conversation]) -> None:
        self._conversations |= {c.id: c for c in added}
        self._erased.difference_update(c.id for c in added)
        if added:
            self.imported.emit({c.folder for c in added})
            self.changed.emit()
            self._search.grow_soon()

    # --- search

    def search(self, text: str, then: Callable[[list[SearchHit]], None]) -> None:
        """Search all chats in the background, once the store is open. Nothing happens while the window closes."""
        self._search.search(text, then)

    def _searchable(self) -> Store | None:
        """Return the store once its chats are in memory: a hit in another chat could not be opened."""
        return None if self._ending or self.is_sound is None else self._store

    # --- messages

    def messages(self, conversation_id: str) -> list[Message] | None:
        """Return all messages of a chat in memory, of every branch; None: call `read` first."""
        return self._chats.get(conversation_id)

    def branch_of(self, conversation_id: str) -> list[Message] | None:
        """Return the shown messages of a chat in memory; None: call `read` first."""
        messages = self._chats.get(conversation_id)
        if messages is None:
            return None
        conversation = self._conversations.get(conversation_id)
        leaf, kept = conversation.leaf if conversation else "", self._branches.get(conversation_id)
        if kept is None or kept[0] != leaf:
            kept = self._branches[conversation_id] = leaf, branch(messages, leaf)
        return list(kept[1])

    def read(self, conversation_id: str, then: Callable[[], None], failed: Callable[[], None] = lambda: None) -> None:
        def not_read(error: BaseException) -> None:
            self.trouble.emit(error)
            failed()

        def stored() -> list[Message]:
            # What is under way in the file was interrupted: our own messages are in memory.
            return [interrupted(message) for message in self._stored.messages(conversation_id)]

        def take(messages: list[Message]) -> None:
            self._chats.setdefault(conversation_id, messages)
            then()

        self._reads.run("read a chat", stored, take, not_read)

    def append(self, conversation_id: str, message: Message, then: Callable[[], None] = lambda: None) -> None:
        """Add a message after its parent and show its branch. `then` is called when it is stored."""
        self._chats[conversation_id].append(message)
        _, shown = self._branches.pop(conversation_id, ("", []))
        if shown and shown[-1].id == message.parent:
            self._branches[conversation_id] = message.id, [*shown, message]
        conversation = self._conversations[conversation_id]
        self._conversations[conversation_id] = replace(conversation, updated_at=message.created_at, leaf=message.id)
        self._keep("save the message", partial(self._append, conversation_id, message), lambda _: then())
        self.changed.emit()

    def update(self, conversation_id: str, message: Message) -> None:
        """Replace a message with a newer state; ignored if its chat was deleted for good. A growing one is saved every
        SAVE_EVERY_MS."""
        messages = self._chats.get(conversation_id)
        if messages is None:
            return
        messages[_place(messages, message.id)] = message
        _, shown = self._branches.get(conversation_id, ("", []))
        for place in range(len(shown) - 1, -1, -1):
            if shown[place].id == message.id:
                shown[place] = message
                break
        if message.state is MessageState.WRITING:
            self._growing[message.id] = message
            self._save_soon()
        else:
            self._growing.pop(message.id, None)
            self._keep("save the answer", lambda: self._stored.update_message(message))
            self._search.grow_soon()

    def keep_inspection(self, message_id: str, record: Inspection) -> None:
        """Keep what was recorded of an answer's tokens, after what is kept of them already. It goes with its answer."""

        def save() -> None:
            data = self._stored.inspection(message_id)
            before = Inspection.from_bytes(data) if data is not None else None
            whole = record if before is None else before.followed_by(record)
            self._stored.save_inspection(message_id, whole.to_bytes())

        self._keep("save what was recorded of tokens", save)

    def read_inspection(self, message_id: str, then: Callable[[Inspection | None], None]) -> None:
        """Read the recorded tokens of an answer; None: not recorded."""

        def read() -> Inspection | None:
            data = self._stored.inspection(message_id)
            return None if data is None else Inspection.from_bytes(data)

        queue = self._reads if self.is_stalled else self._saves  # after a record that is being saved
        queue.run("read what was recorded of tokens", read, then, self.trouble.emit)

    def export_inspection(
        self, record: Inspection, path: Path, then: Callable[[None], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Write what was recorded of an answer's tokens to a file of JSON lines."""

        def write() -> None:
            with path.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in record.lines())

        self._reads.run("export tokens", write, then, failed)

    def remove(self, conversation_id: str, message_id: str) -> None:
        """Remove a message until `put_back`; its followers attach to the message before it. The next start deletes it
        for good."""
        leaf = self._conversations[conversation_id].leaf
        left, removed = take_out(self._chats[conversation_id], message_id, leaf)
        self._chats[conversation_id], self._removed[message_id] = left, removed
        self._branches.pop(conversation_id, None)
        self._growing.pop(message_id, None)
        self._keep("remove a message", lambda: self._stored.remove_message(message_id))
        if leaf == message_id:
            parent = removed.message.parent
            self._set_head(conversation_id, leaf=parent and newest_leaf(left, parent))

    def put_back(self, conversation_id: str, message_id: str) -> bool:
        """Undo `remove`. Returns False if there is nothing to undo."""
        removed = self._removed.pop(message_id, None)
        messages = self._chats.get(conversation_id)
        if removed is None or messages is None or conversation_id not in self._conversations:
            return False
        parent = removed.message.parent
        while parent in self._removed:  # removed after this one and not put back yet
            parent = self._removed[parent].message.parent
        back = self._chats[conversation_id] = put_in(messages, removed, parent)
        self._branches.pop(conversation_id, None)
        followers = [m.id for m in back if m.parent == message_id]
        self._keep("bring a message back", lambda: self._stored.put_back(message_id, parent, followers))
        self._set_head(conversation_id, leaf=removed.leaf)
        return True

    def _save_soon(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def _save_growing(self) -> None:
        # While a save waits for disk space, more copies of the same message would pile up behind it.
        if "save what is written" in self._saves.waiting():
            self._timer.start()
            return
        growing, self._growing = self._growing, {}
        for message in growing.values():
            self._keep("save what is written", partial(self._update, message))
        self._save_drafts()

    def _save_drafts(self) -> None:
        drafted, self._drafted = self._drafted, set()
        for conversation_id in drafted:
            if conversation := self.conversation(conversation_id):
                self._keep("save what is written", partial(self._save_head, conversation))
            elif not conversation_id:
                draft = self._new_draft or ""
                self._keep("save what is written", partial(self._save_draft, draft))
        edited, self._edited = self._edited, set()
        for message_id in edited:
            self._keep("save what is written", partial(self._save_edit, message_id, self.edits[message_id]))

    # --- saving

    @property
    def _stored(self) -> Store:
        if self._store is None:
            raise RuntimeError("The chats could not be opened, so nothing can be saved.")
        return self._store

    def _save_head(self, conversation: Conversation) -> None:
        self._stored.save_conversation(conversation)

    def _save_draft(self, text: str) -> None:
        self._stored.save_draft(text)

    def _save_edit(self, message_id: str, text: str) -> None:
        self._stored.save_edit(message_id, text)

    def _append(self, conversation_id: str, message: Message) -> None:
        self._stored.append(conversation_id, message)

    def _update(self, message: Message) -> None:
        self._stored.update_message(message)

    def _keep(self, name: str, work: Callable[[], object], then: Callable[[object], None] | None = None) -> None:
        self._has_changes = True
        self._saves.keep_trying(name, work, then, self._lost)

    def _lost(self, error: BaseException) -> None:
        """Handle a save that waiting cannot mend. A damaged file is rescued once and written again."""
        log.info("a chat could not be saved: %s", error)
        self.trouble.emit(error)
        if isinstance(error, StoreError) and error.kind == "damaged" and not (self._repaired or self._ending):
            self._repaired = True
            self.repair()

    @property
    def is_stalled(self) -> bool:
        """Whether saves wait, for disk space or another program."""
        return self._stall is not None

    @property
    def unsaved(self) -> StoreError | RescueReport | None:
        """Why what the user wrote would be lost if Hearth ended now; None: it would not."""
        if self._report is not None and self._report.in_memory and (self._has_changes or self._drafted or self._edited):
            return self._report
        return self._stall

    def _stalled(self, error: StoreError) -> None:
        self._stall = error
        self.trouble.emit(error)

    def _resumed(self) -> None:
        self._stall = None
        self.solved.emit()

    def end(self) -> None:
        """Hand over everything unsaved and start nothing new: the queues are about to be closed."""
        self._save_drafts()
        self._search.stop()
        self._ending = True

    def close(self) -> None:
        """Close the file, after both queues have ended."""
        if self._store is not None:
            self._store.close()

    def retry_now(self) -> None:
        self._saves.retry_now()


def _place(messages: list[Message], message_id: str) -> int:
    """Return a message's index, searching from the end, where most changes are."""
    return next(i for i in range(len(messages) - 1, -1, -1) if messages[i].id == message_id)
