"""Attachments of the draft: read in the background, measured, and sent with the message.

It counts no tokens: context_count.py tells it how much of each text fits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.chat.store.conversation import Attachment, new_id
from app.later import Later
from app.translation import tr
from engine.errors import Cancelled

if TYPE_CHECKING:
    from app.documents import attachment_texts as texts
    from app.documents.reading import reader
else:
    texts = Later("app.documents.attachment_texts")
    reader = Later("app.documents.reading.reader")


@dataclass(frozen=True)
class Measure:
    """A text's tokens, and how much of it fits the loaded model's context."""

    tokens: int
    kept_tokens: int
    kept_chars: int


@dataclass(frozen=True)
class Attached:
    """One attachment. attachment: None while it is read. measure: None until it is known."""

    id: str
    name: str
    attachment: Attachment | None = None
    measure: Measure | None = None

    @property
    def has_room(self) -> bool:
        """Whether any of it fits; True while unknown."""
        return self.measure is None or self.measure.kept_chars > 0

    def as_sent(self) -> Attachment | None:
        """Return the beginning that fits; None: nothing."""
        if self.attachment is None or self.measure is None:
            return self.attachment
        m = self.measure
        return texts.cut(self.attachment, m.kept_chars, m.kept_tokens, m.tokens)


class DraftAttachments(QObject):
    """Files are read in threads; everything else happens on the main thread."""

    changed = Signal()  # the list, or what is known of an attachment
    refused = Signal(str, str)  # one sentence on why a file was refused, and the chat ("": a new one)
    added = Signal(str)  # a file was attached in this chat
    _read = Signal(str, object)  # id, Attachment or AttachmentError

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._items: dict[str, Attached] = {}
        self._others: dict[str, dict[str, Attached]] = {}  # of other chats' drafts, by chat
        self._chat = ""
        self._read.connect(self._is_read, Qt.ConnectionType.QueuedConnection)

    @property
    def items(self) -> list[Attached]:
        """The attachments in the order in which they were added."""
        return list(self._items.values())

    @property
    def is_reading(self) -> bool:
        return any(item.attachment is None for item in self._items.values())

    @property
    def texts(self) -> list[str]:
        """The full texts of those that are read."""
        return [item.attachment.text for item in self._items.values() if item.attachment is not None]

    def add_files(self, paths: Sequence[Path]) -> None:
        """Read files in the background."""
        for path in paths:
            if self._has_room(reader.display_name(path)):
                item = Attached(new_id(), reader.display_name(path))
                self._items[item.id] = item
                threading.Thread(target=self._read_file, args=(item.id, path), name="attachment", daemon=True).start()
        self.changed.emit()

    def add_paste(self, text: str) -> bool:
        """Attach a long paste. Returns False if there is no room for it; then it is pasted as text."""
        try:
            return self.add(texts.pasted(text))
        except texts.AttachmentError:
            return False

    def add(self, attachment: Attachment) -> bool:
        """Attach a text. Returns False if there is no room for it."""
        if not self._has_room(attachment.name):
            return False
        item = Attached(new_id(), attachment.name, attachment)
        self._items[item.id] = item
        self.changed.emit()
        return True

    def remove(self, item_id: str) -> None:
        """Remove an attachment and stop reading it."""
        if self._items.pop(item_id, None) is not None:
            self.changed.emit()

    def measure(self, texts: Sequence[str], measures: Sequence[Measure]) -> None:
        """Set the measures of these texts; ignored if other texts are attached by now."""
        read = [item for item in self._items.values() if item.attachment is not None]
        if [item.attachment.text for item in read if item.attachment is not None] != list(texts):
            return
        before = dict(self._items)
        for item, measure in zip(read, measures, strict=True):
            self._items[item.id] = Attached(item.id, item.name, item.attachment, measure)
        if before != self._items:
            self.changed.emit()

    def take(self) -> tuple[Attachment, ...]:
        """Return what fits, to be sent, and clear the draft."""
        sent = tuple(kept for item in self._items.values() if (kept := item.as_sent()) is not None)
        self._items.clear()
        self.changed.emit()
        return sent

    def take_whole(self) -> tuple[Attachment, ...]:
        """Return the whole attachments and clear the draft."""
        whole = tuple(item.attachment for item in self._items.values() if item.attachment is not None)
        self._items.clear()
        self.changed.emit()
        return whole

    def give_back(self, given: Sequence[Attachment]) -> None:
        """Attach what was taken and not sent, before what was attached since."""
        since, self._items = self._items, {}
        for attachment in given:
            item = Attached(new_id(), attachment.name, attachment)
            self._items[item.id] = item
        self._items |= since
        self.changed.emit()

    def switch(self, chat: str) -> None:
        """Switch to another chat's draft; each chat keeps its attachments."""
        if chat != self._chat:
            self._others[self._chat] = self._items
            self._chat, self._items = chat, self._others.pop(chat, {})
            self.changed.emit()

    def _has_room(self, name: str) -> bool:
        if len(self._items) < texts.MOST_FILES:
            return True
        words = tr("{name} was not attached. A message can have {most} attachments.", name=name, most=texts.MOST_FILES)
        self.refused.emit(words, self._chat)
        return False

    # --- the threads

    def _read_file(self, item_id: str, path: Path) -> None:
        result: Attachment | texts.AttachmentError
        try:
            result = texts.read(path, self._is_gone(item_id))
        except texts.AttachmentError as error:
            result = error
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001 - a file that breaks its reader is refused like any other
            result = texts.AttachmentError(
                tr("{name} could not be read: {why}.", name=reader.display_name(path), why=error)
            )
        with contextlib.suppress(RuntimeError):  # the window is gone
            self._read.emit(item_id, result)

    def _is_gone(self, item_id: str) -> Callable[[], bool]:
        return lambda: not any(item_id in items for items in [self._items, *self._others.values()])

    @Slot(str, object)
    def _is_read(self, item_id: str, result: Attachment | Exception) -> None:
        drafts = {self._chat: self._items, **self._others}
        chat = next((chat for chat, items in drafts.items() if item_id in items), None)
        if chat is None:
            return
        items = drafts[chat]
        if isinstance(result, Exception):
            del items[item_id]
            self.refused.emit(str(result), chat)
        else:
            items[item_id] = Attached(item_id, items[item_id].name, result)
            self.added.emit(chat)
        self.changed.emit()
