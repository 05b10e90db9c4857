"""The requests of messages that are not sent yet, to count their tokens and to cut their attachments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.answers.answer_settings import AnswerSettings, request_for
from app.chat.store.conversation import Attachment, Conversation, Message, Role, Unsent
from app.later import Later

if TYPE_CHECKING:
    from app.chat.chat_memory import ChatMemory
    from app.clients.answer_request import AnswerRequest
    from app.clients.engine_client import EngineClient
    from app.documents import attachment_texts
else:
    attachment_texts = Later("app.documents.attachment_texts")


class UnsentRequests:
    """settings_for: returns the answer settings of a chat, or of a new one for None."""

    def __init__(
        self, memory: ChatMemory, engine: EngineClient, settings_for: Callable[[Conversation | None], AnswerSettings]
    ) -> None:
        self._memory, self._engine, self._settings_for = memory, engine, settings_for

    def next(self, chat: str | None, text: str, attachments: tuple[Attachment, ...] = ()) -> AnswerRequest:
        """Return the request that sending this message to a chat now would make. chat: None for a new one."""
        shown = (self._memory.branch_of(chat) if chat else None) or []
        question = Message(Role.USER, text, attachments=attachments)
        return request_for([*shown, question], question.id, self._settings_for(self._memory.conversation(chat)))

    def cut(self, chat: str, unsent: Unsent, then: Callable[[tuple[Attachment, ...]], None]) -> None:
        """Call back with what of a message's attachments its chat's context has space for."""
        conversation = self._memory.conversation(chat)
        settings, shown = self._settings_for(conversation), self._memory.branch_of(chat)
        if settings.place is not None or shown is None or not self._engine.has_model:
            then(unsent.attachments)  # a server cuts by its own rules
            return
        names = tuple(replace(one, text="") for one in unsent.attachments)
        question = Message(Role.USER, unsent.text, attachments=names)
        request = request_for([*shown, question], question.id, settings)
        self._engine.count_aside(
            request,
            [one.text for one in unsent.attachments],
            lambda count: then(attachment_texts.cut_to(unsent.attachments, count)),
        )
