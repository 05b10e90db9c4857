"""The user's actions on messages of a chat: ask, edit, regenerate, continue, delete.

A chat is a tree: an edited question or a new answer is added beside the old one, and nothing is lost. Answers go to
answer_queue.py, messages to chat_memory.py. It does not know which chat is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.chat.answers.answer_queue import Answer, AnswerQueue
from app.chat.answers.answer_settings import AnswerSettings, request_for
from app.chat.answers.inspection import Inspection
from app.chat.chat_memory import ChatMemory
from app.chat.message_action import MessageAction, can_continue
from app.chat.store.conversation import Attachment, Conversation, Message, MessageState, Role, branch, siblings
from app.clients.answer_request import AnswerRequest
from app.clients.servers import Place
from app.text.thinking import ThoughtClock
from app.translation import figure, noted, tr, tr_n

# Calls back with texts for a question of a chat; returns False, and does nothing, if there are none.
Gather = Callable[[str, Message, Callable[[tuple[Attachment, ...]], None]], bool]
SettingsFor = Callable[[Conversation | None], AnswerSettings]
Change = Callable[[AnswerRequest], AnswerRequest]

STILL_ANSWERING = noted("Still answering: stop it first, or wait")


def versions_of(messages: Sequence[Message], shown: Sequence[Message]) -> dict[str, tuple[int, int]]:
    """Return which version each shown message with several versions is: (number from 1, count). Cost: linear."""
    shared = {parent for parent, count in Counter(message.parent for message in messages).items() if count > 1}
    families: dict[str, list[Message]] = {parent: [] for parent in shared}
    for message in messages if shared else ():
        if message.parent in shared:
            families[message.parent].append(message)
    versions = {}
    for message in shown if shared else ():
        family = [other.id for other in families.get(message.parent, ()) if other.role is message.role]
        if len(family) > 1:
            versions[message.id] = (family.index(message.id) + 1, len(family))
    return versions


class ChatTurns(QObject):
    """All methods return at once; events are signals with the chat's id first."""

    added = Signal(str, object)  # a message was added at the end of the branch
    resumed = Signal(str, object)  # this answer is being continued
    branch_changed = Signal(str, str)  # another branch is shown; id of the message to keep in view, or "": the last
    said = Signal(str, object)  # text for a toast, and what undoes the action
    changed = Signal(str, object)  # a question, to which texts were added

    def __init__(
        self, memory: ChatMemory, answers: AnswerQueue, settings_for: SettingsFor, gather: Gather = lambda *_: False
    ) -> None:
        """settings_for: a chat's answer settings; called for every answer. gather: finds texts for a question in the
        user's documents.
        """
        super().__init__()
        self._gather = gather
        self._memory = memory
        self._answers = answers
        self._settings_for = settings_for

    # --- asking

    def ask(self, chat: str, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Add a question at the end of the branch and answer it."""
        self._question(chat, self._new_question(chat, text, attachments))

    def _new_question(self, chat: str, text: str, attachments: tuple[Attachment, ...]) -> Message:
        shown = self._memory.branch_of(chat)
        return Message(Role.USER, text, parent=shown[-1].id if shown else "", attachments=attachments)

    def add_question(self, chat: str, text: str, attachments: tuple[Attachment, ...] = ()) -> Message:
        """Add a question at the end of the branch, to be answered with `add_version`."""
        question = self._new_question(chat, text, attachments)
        self._memory.append(chat, question)
        self.added.emit(chat, question)
        return question

    def add_version(
        self, chat: str, question: Message, who: dict[str, Any], place: Place | None, change: Change
    ) -> Answer:
        """Add another answer to a question. The caller sets `may_start` and advances the queue.

        who: figures until the answer has its own. place: the server that answers. change: applied to its request.
        """
        message = Message(Role.ASSISTANT, "", state=MessageState.WRITING, stats=who, parent=question.id)
        answer = Answer(chat, message, lambda: change(self._request_to(place, chat, question)), place=place, who=who)
        self._memory.append(chat, message)
        if not any(one.parent == question.id for one in (self._memory.messages(chat) or [])[:-1]):
            self._search(answer, question)
        self.branch_changed.emit(chat, "")
        self._answers.add(answer)
        return answer

    def _question(self, chat: str, question: Message) -> None:
        answer = self._new_answer(chat, question)
        self._memory.append(chat, question, partial(self._question_stored, answer))
        self.added.emit(chat, question)
        self._search(answer, question)
        self._begin(answer)

    def _search(self, answer: Answer, question: Message) -> None:
        """Let an answer wait until texts for its question were looked for."""
        answer.searching = True
        if not self._gather(answer.conversation_id, question, partial(self._gathered, answer, question.id)):
            answer.searching = False

    def _gathered(self, answer: Answer, question_id: str, found: tuple[Attachment, ...]) -> None:
        chat = answer.conversation_id
        question = next((m for m in self._memory.messages(chat) or [] if m.id == question_id), None)
        if question is not None and found:
            question = replace(question, attachments=(*question.attachments, *found))
            self._memory.update(chat, question)
            self.changed.emit(chat, question)
        answer.searching = False
        self._answers.advance()

    def _new_answer(self, chat: str, answered: Message) -> Answer:
        place = self._place_of(chat)
        # The server is stored with the first word, so that it is known after a crash.
        who = place.figures if place is not None else None
        message = Message(Role.ASSISTANT, "", state=MessageState.WRITING, stats=who, parent=answered.id)
        return Answer(chat, message, lambda: self._request_to(place, chat, answered), place=place)

    def _place_of(self, chat: str) -> Place | None:
        """Return the chat's current server; None: none."""
        return self._settings_for(self._memory.conversation(chat)).place

    def request(self, chat: str, answered: Message) -> AnswerRequest:
        """Return the request for an answer to a question, or after the calls of an answer."""
        return self._request_to(self._place_of(chat), chat, answered)

    def _request_to(self, place: Place | None, chat: str, answered: Message) -> AnswerRequest:
        """Return the request as a server is sent it, or this PC, whatever the chat has chosen since."""
        way = branch(self._memory.messages(chat) or [answered], answered.id)
        settings = self._settings_for(self._memory.conversation(chat))
        if place is not None and settings.place is None:
            settings = replace(settings, tools=())  # chats of servers have none
        return request_for(way, answered.id, replace(settings, place=place), chat)

    def _question_stored(self, answer: Answer) -> None:
        answer.may_start = True
        self._answers.advance()

    def _begin(self, answer: Answer) -> None:
        self._memory.append(answer.conversation_id, answer.message)
        self.added.emit(answer.conversation_id, answer.message)
        answer.may_start = answer.may_start or self._memory.is_stalled
        self._answers.add(answer)

    def go_on(self, chat: str, message: Message) -> None:
        """Answer again after the calls of an answer have ended, if that is the last one on the branch."""
        shown = self._memory.branch_of(chat) if self._memory.conversation(chat) is not None else None
        if not shown or shown[-1].id != message.id or self._answers.of(chat) is not None:
            return
        answer = self._new_answer(chat, message)
        answer.may_start = True
        self._begin(answer)

    def send_again(self, chat: str) -> None:
        """Answer the last question again. An earlier answer with text stays; an empty one is removed."""
        shown = self._memory.branch_of(chat)
        if not shown or self._answers.of(chat) is not None:
            return
        answered = self._answered_by(chat, shown[-1]) or shown[-1]
        if answered.role is Role.USER or answered.calls:
            self._answer_anew(chat, answered, shown[-1])

    def _answered_by(self, chat: str, answer: Message) -> Message | None:
        """Return what an answer answers: a question, or an answer whose calls it has read; None for other messages."""
        if answer.role is not Role.ASSISTANT:
            return None
        parent = next((m for m in self._memory.messages(chat) or [] if m.id == answer.parent), None)
        return parent if parent is not None and (parent.role is Role.USER or parent.calls) else None

    def _answer_anew(self, chat: str, question: Message, attempt: Message) -> None:
        if attempt.role is Role.ASSISTANT and not attempt.text.strip() and not attempt.calls:
            self._memory.remove(chat, attempt.id)
        answer = self._new_answer(chat, question)
        answer.may_start = True
        self._memory.append(chat, answer.message)
        self.branch_changed.emit(chat, "")
        self._answers.add(answer)

    # --- actions on one message

    def act(self, chat: str, act: MessageAction) -> None:
        """Apply an action to a message of a chat in memory."""
        message = next((m for m in self._memory.messages(chat) or [] if m.id == act.message_id), None)
        if message is None:
            return
        if act.act == "switch":
            self._switch(chat, message, act.step)
        elif self._answers.of(chat) is not None:
            self.said.emit(tr(STILL_ANSWERING), "warn")
        elif act.act == "edit":
            self._edit(chat, message, act.text.strip())
        elif act.act == "regenerate":
            self._regenerate(chat, message)
        elif act.act == "continue":
            self._continue(chat, message)
        elif act.act == "unsummarise":
            self._unsummarise(chat)
        else:
            self._delete(chat, message)

    def _edit(self, chat: str, message: Message, text: str) -> None:
        """Add another version of a question and answer it; the old one stays beside it."""
        if not text or message.role is not Role.USER:
            return
        own = tuple(one for one in message.attachments if one.source is None)
        version = Message(Role.USER, text, parent=message.parent, attachments=own)
        answer = self._new_answer(chat, version)
        self._memory.append(chat, version, partial(self._question_stored, answer))
        self._search(answer, version)
        self._memory.append(chat, answer.message)
        self.branch_changed.emit(chat, "")
        answer.may_start = answer.may_start or self._memory.is_stalled
        self._answers.add(answer)

    def _regenerate(self, chat: str, message: Message) -> None:
        answered = self._answered_by(chat, message)
        if answered is not None:
            self._answer_anew(chat, answered, message)

    def _continue(self, chat: str, message: Message) -> None:
        """Let this PC continue its own answer, even if the chat is now sent to a server."""
        shown = self._memory.branch_of(chat) or []
        if not can_continue(message) or not shown or shown[-1].id != message.id:
            return
        stats = message.stats or {}

        def request() -> AnswerRequest:
            asked = self._request_to(None, chat, self._answered_by(chat, message) or message)
            said = [*asked.messages, {"role": str(Role.ASSISTANT), "content": message.text}]
            return replace(asked, messages=said, continues=True)

        thoughts = ThoughtClock(message.text, float(stats.get("thought_s") or 0), int(stats.get("thought_tokens") or 0))
        writing = replace(message, state=MessageState.WRITING)
        answer = Answer(
            chat, writing, request, may_start=True, thoughts=thoughts, before=message.stats,
            record=Inspection(before=message.text),
        )  # fmt: skip
        self._memory.update(chat, writing)
        self.resumed.emit(chat, writing)
        self._answers.add(answer)

    def branch_at(self, chat: str, message_id: str, begun: Inspection) -> None:
        """Add another answer beside this one: it begins with the recorded tokens, and this PC continues it."""
        message = next((m for m in self._memory.messages(chat) or [] if m.id == message_id), None)
        answered = None if message is None else self._answered_by(chat, message)
        if answered is None:
            return
        if self._answers.of(chat) is not None:
            self.said.emit(tr(STILL_ANSWERING), "warn")
            return
        version = Message(Role.ASSISTANT, begun.before, state=MessageState.WRITING, parent=answered.id)

        def request() -> AnswerRequest:
            return replace(
                self._request_to(None, chat, answered), prompt=(*begun.prompt, *begun.ids), n_begun=len(begun.rows),
                continues=bool(begun.before), inspect=True,
            )  # fmt: skip

        self._memory.append(chat, version)
        self.branch_changed.emit(chat, "")
        self._answers.add(Answer(chat, version, request, may_start=True, record=begun))

    def _switch(self, chat: str, message: Message, step: int) -> None:
        family = siblings(self._memory.messages(chat) or [], message.id)
        place = family.index(message.id) + step
        if 0 <= place < len(family) and step:
            self._memory.set_leaf(chat, family[place])
            self.branch_changed.emit(chat, family[place])

    def _unsummarise(self, chat: str) -> None:
        """Forget the summaries of a chat's branch: its messages are sent again, as far as they fit."""
        for message in self._memory.branch_of(chat) or []:
            if (message.stats or {}).get("summary"):
                stats = {key: value for key, value in (message.stats or {}).items() if not key.startswith("summar")}
                self._memory.update(chat, replace(message, stats=stats))
        conversation = self._memory.conversation(chat)
        if conversation is not None:
            self._memory.set_choices(chat, {**conversation.choices, "overflow": "roll"})
        self.branch_changed.emit(chat, "")
        self.said.emit(tr("The original messages are used again, as far as they fit"), None)

    # --- deleting

    def _delete(self, chat: str, message: Message) -> None:
        """Delete a question with its answers, or an answer. Later messages stay and move up, unless another version
        takes the place of a deleted answer."""
        messages = self._memory.messages(chat) or []
        others = [one for one in siblings(messages, message.id) if one != message.id]
        leaf = ""
        if message.role is Role.USER:
            going = _answers_to(messages, message)
            words = tr("Question and answer deleted") if going else tr("Message deleted")
            going = [*going, message]
        elif others:
            going = _below(messages, message)[::-1]
            words, leaf = tr("Answer deleted"), others[-1]
            if len(going) > 1:
                words = tr_n("{n} message deleted", "{n} messages deleted", len(going), n=figure(len(going)))
        else:
            going, words = [message], tr("Answer deleted")
        for gone in going:
            self._memory.remove(chat, gone.id)
        if leaf:
            self._memory.set_leaf(chat, leaf)
        self.branch_changed.emit(chat, leaf or message.parent)
        self.said.emit(words, partial(self._undo_delete, chat, [m.id for m in going], message.id))

    def _undo_delete(self, chat: str, ids: list[str], keep: str) -> None:
        back = [self._memory.put_back(chat, message_id) for message_id in reversed(ids)]
        if any(back):  # show the former branch again
            self.branch_changed.emit(chat, keep)


def _answers_to(messages: Sequence[Message], question: Message) -> list[Message]:
    """Return all answers to a question, those after calls of tools included, the last ones first."""
    ids = {question.id}
    found: list[Message] = []
    for one in messages:
        if one.parent in ids and one.role is Role.ASSISTANT:
            found.append(one)
            if one.calls:
                ids.add(one.id)
    return found[::-1]


def _below(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return a message and all messages after it, on every branch."""
    ids = {message.id}
    found = [message]
    for one in messages:
        if one.parent in ids and one.id not in ids:
            ids.add(one.id)
            found.append(one)
    return found
