"""Finds what of the user's documents goes along with a question of a chat. No Qt."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import Attachment, Message, branch, content_of
from app.documents.gathering import Given
from app.documents.index_words import CHARS_PER_TOKEN, weight

UNKNOWN_CONTEXT = 4_096  # tokens, while no model is loaded
_ANSWER_SHARE, _ANSWER_TOKENS = 4, 2_048  # what is left for the answer: a quarter of the context, at most so many
Then = Callable[[tuple[Attachment, ...]], None]


class Finder(Protocol):
    """Finds texts in folders of documents: app/documents/documents.py."""

    def find(self, question: str, folders: Collection[str], space: int, given: Given, then: Then) -> None: ...


class QuestionDocuments:
    """One for the window."""

    def __init__(
        self, memory: ChatMemory, policy: AnswerPolicy, finder: Finder, model: Callable[[], str],
        context: Callable[[], int | None],
    ) -> None:  # fmt: skip
        """model: the one that is loaded. context: its tokens; None: unknown."""
        self._memory, self._policy, self._finder = memory, policy, finder
        self._model, self._context = model, context

    def gather(self, chat: str, question: Message, then: Then) -> bool:
        """Call back with the texts for a question. Return False, and do nothing, if the chat uses no documents.

        A chat that is sent to a server uses none: they stay on this PC.
        """
        conversation = self._memory.conversation(chat)
        if conversation is None or self._policy.place_for(conversation.choices) is not None:
            return False
        chosen = self._policy.chosen(conversation.choices, self._model())
        if not chosen.documents:
            return False
        before = branch(self._memory.messages(chat) or [], question.parent) if question.parent else []
        given = Given.by([one for message in before for one in message.attachments])
        used = sum(weight(content_of(m.text, m.attachments)) for m in (*before, question)) + weight(chosen.instructions)
        total = self._context() or UNKNOWN_CONTEXT
        space = CHARS_PER_TOKEN * (total - min(total // _ANSWER_SHARE, _ANSWER_TOKENS)) - used
        self._finder.find(question.text, chosen.documents, max(space, 0), given, then)
        return True
