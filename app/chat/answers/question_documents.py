"""Finds what of the user's documents goes along with a question of a chat. No Qt."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.store.conversation import Attachment, Conversation, Message, branch, content_of
from app.later import Later

if TYPE_CHECKING:
    from app.documents import gathering, index_words
else:
    index_words = Later("app.documents.index_words")
    gathering = Later("app.documents.gathering")

UNKNOWN_CONTEXT = 4_096  # tokens, while no model is loaded
_ANSWER_SHARE, _ANSWER_TOKENS = 4, 2_048  # what is left for the answer: a quarter of the context, at most this many
Then = Callable[[tuple[Attachment, ...]], None]


class Finder(Protocol):
    """Finds texts in folders of documents: app/documents/documents.py."""

    def find(self, question: str, folders: Collection[str], space: int, given: gathering.Given, then: Then) -> None: ...


class Memory(Protocol):
    """All chats: app/chat/chat_memory.py."""

    def conversation(self, conversation_id: str) -> Conversation | None: ...

    def messages(self, conversation_id: str) -> list[Message] | None: ...


class QuestionDocuments:
    """Searches the documents for the questions of all chats."""

    def __init__(
        self, memory: Memory, policy: AnswerPolicy, finder: Finder, model: Callable[[], str],
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
        if conversation is None:
            return False
        choices = self._policy.in_force(conversation)
        chosen = self._policy.chosen(choices, self._model())
        if not chosen.documents or self._policy.place_for(choices) is not None:
            return False
        before = branch(self._memory.messages(chat) or [], question.parent) if question.parent else []
        given = gathering.Given.by([one for message in before for one in message.attachments])
        instructions = self._policy.settings_for(choices, self._model(), conversation.folder).system_prompt
        texts = [content_of(m.text, m.attachments) for m in (*before, question)]
        used = sum(map(index_words.weight, (*texts, instructions)))
        total = self._context() or UNKNOWN_CONTEXT
        space = index_words.CHARS_PER_TOKEN * (total - min(total // _ANSWER_SHARE, _ANSWER_TOKENS)) - used
        self._finder.find(question.text, chosen.documents, max(space, 0), given, then)
        return True
