"""Connects the composer with what the next prompt needs: attachments, token count, overflow policy, drafts.

It also creates the inspector, which shows the prompt of an answer that is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from app.chat.context_count import ContextCount
from app.translation import tr
from app.ui.chat.chat_inspector import ChatInspector
from app.ui.composer.context_meter import ContextPopup
from app.ui.composer.file_drop import FileDrop
from app.user_messages import UserMessage

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController
    from app.chat.chat_memory import ChatMemory
    from app.clients.engine_client import EngineClient
    from app.ui.chat.chat_page import ChatPage
    from engine.service.protocol import CountResult


class ChatContext(QObject):
    """Counts the next prompt, saves drafts and edits, and opens the context popup."""

    def __init__(
        self, window: QWidget, page: ChatPage, chat: ChatController, engine: EngineClient, memory: ChatMemory
    ) -> None:
        super().__init__(window)
        self._page, self._chat, self._engine, self._memory = page, chat, engine, memory
        self._count: CountResult | None = None
        self.inspector = ChatInspector(window, page, chat, memory)
        composer, chat_problems = page.composer, chat.problems
        FileDrop(page, composer)
        self.counter = ContextCount(
            engine, composer.draft, composer.text, chat.next_request, lambda: chat.place is not None
        )
        self.counter.setParent(self)  # it reads the field, so it must not outlive it
        self.counter.counted.connect(self._counted)
        self.popup = ContextPopup(window)
        self.popup.picked.connect(self._pick)
        composer.context_requested.connect(self._open_popup)
        composer.changed.connect(self.counter.ask_soon)
        composer.draft.refused.connect(self._refused)
        composer.draft.added.connect(lambda chat: chat_problems.solve("attachment", chat=chat))
        page.draft_changed.connect(memory.set_draft)
        page.transcript.edited.connect(memory.set_edit)
        memory.opened.connect(lambda: page.take_new_draft(memory.draft("")))
        memory.opened.connect(lambda: page.transcript.take_edits(memory.edits))
        chat.conversation_opened.connect(self.counter.clear)
        for happened in (chat.message_finished, chat.branch_changed, chat.choices.changed):
            happened.connect(self.counter.begin_anew)

    def show_context(self) -> None:
        """Open the context popup, or the settings if the chat shows no figure."""
        if self._page.composer.meter.isVisible():
            self._open_popup()
        else:
            self.popup.size_requested.emit()

    def _open_popup(self) -> None:
        self.popup.set_policy(self._policy)
        self._tell()
        self.popup.open_at(self._page.composer.meter)

    @property
    def _policy(self) -> str:
        """The policy of the open chat for a full context."""
        return self._chat.settings_for(self._memory.conversation(self._chat.open_conversation)).overflow

    def _pick(self, policy: str) -> None:
        self._chat.choices.set(overflow=policy)

    @Slot(object)
    def _counted(self, count: CountResult | None) -> None:
        if count is not None and self._policy == "summarise":
            count = replace(count, dropped_messages=0)  # a summary will stand for them
        self._count = count
        self._page.composer.set_count(count)
        if self.popup.is_open:
            self._tell()

    def _tell(self) -> None:
        self.popup.show_count(self._page.composer.status, self._count)

    @Slot(str, str)
    def _refused(self, sentence: str, chat: str) -> None:
        message = UserMessage(tr("Couldn't attach that"), sentence, severity="warn")
        self._chat.problems.report("attachment", message, chat)
