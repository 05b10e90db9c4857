"""Runs the calls of tools with which answers end: asks the user where that is needed, and lets the model continue.

A call waits for the user's consent unless its tool is local, or a consent for this chat or its folder covers it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.chat.chat_memory import ChatMemory
from app.chat.message_action import MessageAction
from app.chat.projects.notes import NotesError, NotesFile
from app.chat.store.conversation import CallState, Conversation, Message, Role, ToolCall, branch
from app.tools import model_texts
from app.tools.consents import FolderConsents
from app.tools.propose_note import ADDED, PROPOSE_NOTE, note_in
from app.tools.questions import OpenQuestion, Question, Reply
from app.tools.tool import Tool, ToolResult
from app.tools.tool_box import ToolBox

MOST_ROUNDS = 25  # answers with calls to one question
MOST_EQUAL = 3  # equal calls to one question that are run; a further one ends the turn
SHARE_OF_CONTEXT, SHARE_OF_TURN = 0.25, 0.5  # that one result, and all results of a turn, may take
FEWEST_CHARS = 200  # of a result, even if the turn has no room left
_CHARS_PER_TOKEN = 3  # fewer than in most texts of Latin letters; in others a character may be a token

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background


class ToolRounds(QObject):
    """Runs, refuses and cancels the calls of all chats. The first argument of a signal with two is the chat's id."""

    changed = Signal(str, object)  # the Message with new states of its calls
    ended = Signal(str, object)  # the Message whose calls have all ended: the model may read the results
    asked = Signal(str, object)  # the Message with calls that wait for the user
    unplaced = Signal(object)  # an OpenQuestion of a server of which no call runs
    broken_off = Signal(str, object)  # the Message whose calls were not run, because the model repeats itself

    def __init__(
        self,
        memory: ChatMemory,
        box: ToolBox,
        consents: FolderConsents,
        save: Save,
        context_tokens: Callable[[], int | None] = lambda: None,
        tools_on: Callable[[Conversation], Collection[str]] | None = None,
        notes_of: Callable[[Conversation], NotesFile | None] = lambda conversation: None,
    ) -> None:
        """save: writes the consents. context_tokens: of the loaded model; None: not known. tools_on: names of the tools
        that are on in a chat; None: all are. notes_of: the notes for which the model may propose lines; None: none."""
        super().__init__()
        self._memory, self._box, self._consents, self._save = memory, box, consents, save
        self._context_tokens, self._tools_on, self._notes_of = context_tokens, tools_on, notes_of
        self._is_closed = False
        self._running: dict[tuple[str, str], threading.Event] = {}  # (message, call) -> whether it is to be cancelled
        self._chats: dict[tuple[str, str], str] = {}  # of those calls
        self._questions: dict[tuple[str, str], OpenQuestion] = {}  # of the servers of those calls
        box.asked.connect(self._ask)
        memory.changed.connect(self._clear_folders)
        memory.imported.connect(self._ask_in)

    # --- states

    def pending(self, chat: str | None) -> Message | None:
        """Return the shown message of a chat in memory whose calls have not all ended."""
        shown = (self._memory.branch_of(chat) if chat else None) or []
        last = shown[-1] if shown else None
        return last if last is not None and any(not call.has_ended for call in last.calls) else None

    @property
    def are_running(self) -> bool:
        """Whether calls of any chat run."""
        return bool(self._running)

    @property
    def running_chats(self) -> set[str]:
        """The chats whose calls run."""
        return set(self._chats.values())

    def is_running(self, chat: str | None) -> bool:
        """Whether calls of a chat run, and none waits for the user."""
        message = self.pending(chat)
        if message is None or any((message.id, call.id) in self._questions for call in message.calls):
            return False
        return all(call.state is not CallState.ASKING for call in message.calls)

    def waits(self, chat: str) -> bool:
        """Whether a chat waits for the user's consent, or for an answer to a server's question."""
        return self.pending(chat) is not None and not self.is_running(chat)

    def questions(self, chat: str | None) -> dict[str, Question]:
        """Return the questions of servers that wait for the user, by the ids of the calls during which they came."""
        return {key[1]: one.question for key, one in self._questions.items() if self._chats.get(key) == chat}

    # --- start of a round

    def begin(self, chat: str, message: Message) -> Message:
        """Begin the calls of an answer that has just ended. Return it with their states; `changed` follows for each
        change after that.
        """
        conversation = self._memory.conversation(chat)
        messages = self._memory.messages(chat) or []
        if conversation is None:
            return message
        before = _calls_before(branch(messages, message.parent))
        if self._goes_round(before, message):
            self.broken_off.emit(chat, message)
            return message
        calls = tuple(self._judged(call, conversation) for call in message.calls)
        message = replace(message, calls=calls)
        self._memory.update(chat, message)
        for call in calls:
            if call.state is CallState.RUNNING:
                self._run(chat, message.id, call)
        if any(call.state is CallState.ASKING for call in calls):
            self.asked.emit(chat, message)
        elif all(call.has_ended for call in calls):
            self.ended.emit(chat, message)
        return message

    def _goes_round(self, before: list[list[ToolCall]], message: Message) -> bool:
        known = [_signature(call) for calls in before for call in calls]
        return len(before) >= MOST_ROUNDS or any(known.count(_signature(one)) >= MOST_EQUAL for one in message.calls)

    def _judged(self, call: ToolCall, conversation: Conversation) -> ToolCall:
        """Return the call as it is now: it runs, it waits for the user, or it has failed."""
        if (notes := self._notes_for(call, conversation)) is not None:
            return replace(call, state=CallState.ASKING, scope=str(notes.path))
        tool = self._offered(call.tool, conversation)
        if tool is None:
            return replace(call, state=CallState.FAILED, result=model_texts.gone(call.tool))
        call = replace(call, source=tool.source)
        if tool.is_local:
            return replace(call, state=CallState.RUNNING)
        scope = self._box.scope(call.tool, call.arguments)
        allowed = scope.key in (*_allowed_in(conversation), *self._consents.of(conversation.folder))
        return replace(call, state=CallState.RUNNING if allowed else CallState.ASKING, scope=scope.label)

    def _notes_for(self, call: ToolCall, conversation: Conversation) -> NotesFile | None:
        """Return the notes for which a call proposes a line; None if it is a call of another tool."""
        return self._notes_of(conversation) if call.tool == PROPOSE_NOTE and note_in(call.arguments) else None

    def _offered(self, name: str, conversation: Conversation) -> Tool | None:
        """Return the tool if it can be called now and is on in the chat."""
        is_on = self._tools_on is None or name in self._tools_on(conversation)
        return self._box.find(name) if is_on else None

    def _run(self, chat: str, message_id: str, call: ToolCall) -> None:
        cancelled = self._running[message_id, call.id] = threading.Event()
        self._chats[message_id, call.id] = chat
        self._box.run(
            call.tool, call.arguments, cancelled.is_set,
            lambda result, seconds: self._ended(chat, message_id, call.id, result, seconds),
        )  # fmt: skip

    # --- the user's answers

    def act(self, chat: str, act: MessageAction) -> None:
        """Let a call that waits run, or refuse it."""
        conversation, call = self._memory.conversation(chat), self._call(chat, act.message_id, act.call_id)
        if act.act in ("accept", "decline", "cancel"):
            self._reply(chat, act.message_id, act.call_id, Reply(act.act, act.values))
            return
        if conversation is None or call is None or call.state is not CallState.ASKING:
            return
        if act.act == "refuse":
            self._set(chat, act.message_id, replace(call, state=CallState.REFUSED))
            return
        if (notes := self._notes_for(call, conversation)) is not None:
            self._add_note(chat, act.message_id, call, notes)
            return
        tool = self._offered(call.tool, conversation)
        if tool is None:
            self._set(chat, act.message_id, replace(call, state=CallState.FAILED, result=model_texts.gone(call.tool)))
            return
        scope = self._box.scope(call.tool, call.arguments)
        if (scope.label, tool.source) != (call.scope, call.source):  # not what the user was asked about
            self._set(chat, act.message_id, replace(call, scope=scope.label, source=tool.source))
            return
        key = scope.key
        if act.act == "allow_in_chat":
            allowed = list(dict.fromkeys((*_allowed_in(conversation), key)))
            self._memory.set_choices(chat, {**conversation.choices, "allowed": allowed})
        elif act.act == "allow_in_folder":
            self._consents.add(conversation.folder, key)
            self._save_consents()
        self._set(chat, act.message_id, replace(call, state=CallState.RUNNING))
        self._run(chat, act.message_id, call)
        if act.act != "allow_once":
            self._allow_others(chat, act.message_id, key)

    def _ask(self, opened: OpenQuestion) -> None:
        """Show a server's question at the call of one of its tools that has run longest."""
        for key, chat in self._chats.items():
            call = self._call(chat, *key)
            if key in self._running and call is not None and call.source == opened.question.server:
                if key in self._questions:
                    continue
                self._questions[key] = opened
                message = self._message(chat, key[0])
                self.changed.emit(chat, message)
                self.asked.emit(chat, message)
                return
        self.unplaced.emit(opened)

    def _reply(self, chat: str, message_id: str, call_id: str, reply: Reply) -> None:
        opened = self._questions.pop((message_id, call_id), None)
        if opened is not None:
            opened.reply(reply)
            if (message := self._message(chat, message_id)) is not None:
                self.changed.emit(chat, message)

    def _discard(self, message_id: str, call_id: str) -> threading.Event | None:
        """Forget a call that has ended or is cancelled; a question of its server is cancelled."""
        self._chats.pop((message_id, call_id), None)
        if (opened := self._questions.pop((message_id, call_id), None)) is not None:
            opened.reply(Reply("cancel"))
        return self._running.pop((message_id, call_id), None)

    def _add_note(self, chat: str, message_id: str, call: ToolCall, notes: NotesFile) -> None:
        """Add a proposed line that the user accepted, unless its file is not the one that the user was shown."""
        if str(notes.path) != call.scope:
            self._set(chat, message_id, replace(call, scope=str(notes.path)))
            return
        try:
            notes.append(note_in(call.arguments))
        except NotesError as error:
            self._set(chat, message_id, replace(call, state=CallState.FAILED, result=str(error)))
        else:
            self._set(chat, message_id, replace(call, state=CallState.DONE, result=ADDED))

    def _allow_others(self, chat: str, message_id: str, key: str) -> None:
        """Run the other calls of the message that the consent covers too."""
        message = self._message(chat, message_id)
        for call in message.calls if message is not None else ():
            waits = call.state is CallState.ASKING and self._box.find(call.tool) is not None
            if waits and self._box.scope(call.tool, call.arguments).key == key:
                self._set(chat, message_id, replace(call, state=CallState.RUNNING))
                self._run(chat, message_id, call)

    def has_consents(self, conversation: Conversation | None) -> bool:
        """Whether some calls of the chat run without a question."""
        if conversation is None:
            return False
        return bool(_allowed_in(conversation) or self._consents.of(conversation.folder))

    def drop_consents(self, chat: str) -> None:
        """Ask again for every call in a chat and its folder."""
        conversation = self._memory.conversation(chat)
        if conversation is not None:
            choices = {name: value for name, value in conversation.choices.items() if name != "allowed"}
            self._memory.set_choices(chat, choices)
            self._consents.drop(conversation.folder)
            self._save_consents()

    def _clear_folders(self) -> None:
        """Forget the consents of folders that have no chat any more: another folder may get the name."""
        if self._memory.is_sound is not None:
            self._ask_in(self._consents.folders - {one.folder for one in self._memory.conversations()})

    def _ask_in(self, folders: Iterable[str]) -> None:
        """Ask again in these folders."""
        known = self._consents.folders & set(folders)
        for folder in known:
            self._consents.drop(folder)
        if known:
            self._save_consents()

    def _save_consents(self) -> None:
        written = self._consents.to_json()
        self._save("save what tools may do", lambda: self._consents.save(written))

    def stop(self, chat: str) -> None:
        """End the calls of a chat that have not ended. The model does not continue."""
        for message in list(self._memory.messages(chat) or ()):
            if all(call.has_ended for call in message.calls):
                continue
            for call in message.calls:
                if (cancelled := self._discard(message.id, call.id)) is not None:
                    cancelled.set()
            calls = tuple(one if one.has_ended else replace(one, state=CallState.NOT_RUN) for one in message.calls)
            self._update(chat, replace(message, calls=calls))

    def close(self) -> None:
        """End all calls: the window closes. The next start reads them as not run."""
        self._is_closed = True
        for cancelled in self._running.values():
            cancelled.set()
        for opened in self._questions.values():
            opened.reply(Reply("cancel"))

    # --- ending

    def _ended(self, chat: str, message_id: str, call_id: str, result: ToolResult, seconds: float) -> None:
        call = self._call(chat, message_id, call_id)
        if self._discard(message_id, call_id) is None or call is None or self._is_closed:
            return  # it was stopped, or the chat is gone
        state = CallState.FAILED if result.is_error else CallState.DONE
        text = self._cut(chat, message_id, result.text)
        self._set(chat, message_id, replace(call, state=state, result=text, seconds=round(seconds, 3)))

    def _cut(self, chat: str, message_id: str, text: str) -> str:
        """Return what of a result leaves room for the others of the turn, and for the answer."""
        tokens = self._context_tokens()
        if tokens is None:
            return text
        way = branch(self._memory.messages(chat) or [], message_id)
        used = sum(_size(call.result) for calls in _calls_before(way) for call in calls)
        room = min(tokens * SHARE_OF_CONTEXT, tokens * SHARE_OF_TURN - used)
        per_char = _size(text) / max(1, len(text))
        return model_texts.cut(text, max(FEWEST_CHARS, int(room / per_char)) if per_char else len(text))

    def _set(self, chat: str, message_id: str, call: ToolCall) -> None:
        message = self._message(chat, message_id)
        if message is None:
            return
        calls = tuple(call if one.id == call.id else one for one in message.calls)
        message = replace(message, calls=calls)
        self._update(chat, message)
        if all(one.has_ended for one in calls):
            self.ended.emit(chat, message)

    def _update(self, chat: str, message: Message) -> None:
        self._memory.update(chat, message)
        self.changed.emit(chat, message)

    def _message(self, chat: str, message_id: str) -> Message | None:
        if self._memory.conversation(chat) is None:
            return None
        return next((one for one in self._memory.messages(chat) or [] if one.id == message_id), None)

    def _call(self, chat: str, message_id: str, call_id: str) -> ToolCall | None:
        message = self._message(chat, message_id)
        return next((one for one in message.calls if one.id == call_id), None) if message is not None else None


def _allowed_in(conversation: Conversation) -> tuple[str, ...]:
    allowed = conversation.choices.get("allowed")
    return tuple(one for one in allowed if isinstance(one, str)) if isinstance(allowed, list) else ()


def _calls_before(way: list[Message]) -> list[list[ToolCall]]:
    """Return the calls of each answer to the last question of a branch."""
    rounds: list[list[ToolCall]] = []
    for message in way:
        if message.role is Role.USER:
            rounds = []
        elif message.calls:
            rounds.append(list(message.calls))
    return rounds


def _size(text: str) -> float:
    """Return about how many tokens a text has, rather too many."""
    other = sum(not char.isascii() for char in text)
    return other + (len(text) - other) / _CHARS_PER_TOKEN


def _signature(call: ToolCall) -> str:
    return json.dumps([call.tool, call.arguments], sort_keys=True)
