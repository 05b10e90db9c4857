"""Turns the user's actions on chats into calls of store and engine: a message in, an answer out.

It connects chat_memory, chat_turns and engine_client, and tells the window what to show. Imports no widget.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.answers.answer_queue import Answer, AnswerQueue
from app.chat.answers.answer_settings import AnswerSettings
from app.chat.answers.chat_status import status_at, status_here
from app.chat.chat_choices import ChatChoices
from app.chat.chat_turns import STILL_ANSWERING, ChatTurns, Gather, versions_of
from app.chat.engine_failures import EngineFailures
from app.chat.engine_settings import EngineSettings
from app.chat.next_message import NextMessage
from app.chat.open_chat import OpenChat
from app.chat.projects.project import MODEL
from app.chat.store.conversation import (
    Attachment,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    Unsent,
    branch,
    title_from,
)
from app.chat.unsent_requests import UnsentRequests
from app.clients.engine_status import EngineStatus, Phase
from app.clients.servers import CHOICE, Place
from app.models.model_rows import SHIPPED_ID, listed_id
from app.models.model_switch import LOAD_LAST, STARTER, ModelSwitch
from app.problems import Problems
from app.settings import AppSettings
from app.translation import tr
from app.user_messages import Action, UserMessage, describe

if TYPE_CHECKING:
    from app.chat.answers.answer_policy import AnswerPolicy
    from app.chat.answers.inspection import Inspection
    from app.chat.chat_memory import ChatMemory
    from app.chat.message_action import MessageAction
    from app.chat.tool_rounds import ToolRounds
    from app.clients.answer_request import AnswerRequest
    from app.clients.engine_client import EngineClient
    from app.clients.remote_client import RemoteClient
    from app.errors import RescueReport, StoreError
    from app.tools.questions import Question
    from engine.service import protocol


class ChatController(QObject):
    """All slots return at once. After `start`, events are signals on the main thread."""

    conversations_changed = Signal(list)
    conversation_opened = Signal(object, list)  # Conversation | None, its messages
    search_results = Signal(str, object)  # list[SearchHit], or None: the search has ended
    message_added = Signal(object)
    message_resumed = Signal(object)  # an answer that is being continued
    branch_changed = Signal(list, str)  # the messages shown now; id of the one to keep in view, or "": the last
    versions_changed = Signal(object)  # dict: id of a shown message with several versions -> (which, of how many)
    message_wanted = Signal(str, str)  # message to scroll to, text to mark in it
    text_appended = Signal(str, str)
    message_finished = Signal(object)
    message_updated = Signal(object)  # with new states of its calls of tools
    calls_begun = Signal(str, bool)  # chat whose answer has ended with calls of tools; whether one waits for the user
    messages_dropped = Signal(str, int)
    status_changed = Signal(EngineStatus)  # of the engine
    chat_status_changed = Signal(EngineStatus)  # for the open chat: ready while another chat is answered
    running_changed = Signal(object)  # id of the chat that is being answered, or None
    problem = Signal(UserMessage)
    problem_solved = Signal()
    toast = Signal(str, object)  # text; a callable that undoes the action, a Severity if nothing was done, or None
    title_changed = Signal(str)
    model_loaded = Signal(object)  # protocol.LoadedModelInfo
    model_changed = Signal(str)  # the model that is loaded now
    window_action = Signal(str)  # remedies of the window: settings, folder

    def __init__(
        self,
        engine: EngineClient,
        memory: ChatMemory,
        policy: AnswerPolicy,
        switch: ModelSwitch,
        rounds: ToolRounds,
        remote: RemoteClient | None = None,
        gather: Gather = lambda *_: False,
    ) -> None:
        """policy: how chats are answered. rounds: runs calls of tools. remote: answers the chats that are sent to a
        server. gather: as in ChatTurns."""
        super().__init__()
        self._engine, self._remote = engine, remote
        self._memory = memory
        self._policy = policy
        self.switch = switch
        self.choices = ChatChoices(memory, policy.projects)
        self._new_folder = ""  # of the next new chat
        self._place: Place | None = None  # of the open chat, as last emitted
        self.answers = AnswerQueue(engine, remote)
        self.turns = ChatTurns(memory, self.answers, self.settings_for, gather)
        self.turns.changed.connect(self._message_updated)
        self.rounds = rounds
        self._unsent = UnsentRequests(memory, engine, self.settings_for)
        self.next = NextMessage(memory, self.answers, self._unsent.cut)
        self.opened = OpenChat(memory)
        self._search = ""
        self.problems = Problems()  # kinds: "engine", "store" and, for a chat, "answer"
        self.failures = EngineFailures(engine, switch, self.problems)
        self._engine_settings = EngineSettings(engine, switch, policy)
        self._engine_settings.said.connect(lambda words: self.toast.emit(words, "info"))
        self._engine_settings.moving.connect(lambda: self.answers.abandon(MessageState.CANCELLED, waiting_too=False))
        self.switch.changed.connect(self.model_changed)
        self.switch.said.connect(lambda words: self.toast.emit(words, "info"))
        self.problems.shown.connect(self.problem)
        self.problems.none.connect(self.problem_solved)
        self.switch.chosen.connect(partial(self.problems.solve, "engine"))
        memory.opened.connect(self._reopen)
        self.opened.shown.connect(self._chat_shown)
        self.opened.opening.connect(lambda _: self.next.show(""))  # the composer is another chat's now
        self.opened.stayed.connect(lambda _: self.next.show(self.opened.id or ""))
        self.opened.branch_changed.connect(self._branch_changed)
        self.opened.message_wanted.connect(self.message_wanted)
        memory.changed.connect(self._emit_conversations)
        memory.trouble.connect(self._store_trouble)
        memory.solved.connect(partial(self.problems.solve, "store"))
        engine.status_changed.connect(self._emit_status)
        engine.loaded.connect(self.model_loaded)
        self.choices.changed.connect(self.check_place)
        if remote is not None:
            remote.status_changed.connect(self._emit_status)
        self.answers.grew.connect(self._answer_grew)
        self.answers.ended.connect(self._answer_ended)
        self.answers.failed.connect(self.failures.answer_failed)
        self.answers.running_changed.connect(self.running_changed)
        self.turns.added.connect(self._message_added)
        self.turns.resumed.connect(self._message_resumed)
        self.turns.branch_changed.connect(self._branch_changed)
        self.turns.said.connect(self.toast)
        rounds.changed.connect(self._message_updated)
        rounds.ended.connect(self._rounds_ended)
        rounds.broken_off.connect(self._broken_off)
        self.next.due.connect(self._ask)
        self.next.said.connect(self.toast)

    def start(self) -> None:
        """Open the chats and load the model, both in the background."""
        self._memory.open()
        self.load_model()

    @property
    def open_conversation(self) -> str | None:
        """The id of the open chat; None for a new one."""
        return self.opened.id

    @property
    def is_answering_here(self) -> bool:
        """Whether this PC answers a chat, or an answer waits, or the tools that it called run."""
        return self.answers.has_any_here or self.rounds.are_running

    # --- messages

    def settings_for(self, conversation: Conversation | None) -> AnswerSettings:
        """Return the chat's current answer settings; None: a new chat."""
        folder = self.choices.folder_of(conversation)
        return self._policy.settings_for(self.choices.of(conversation), self.model, folder)

    def place_of(self, conversation: Conversation | None) -> Place | None:
        """Return the server that the user chose for a chat; None: this PC answers."""
        return self._policy.place_for(self.choices.of(conversation))

    @property
    def place(self) -> Place | None:
        """The server of the open or new chat; None: this PC."""
        return self.place_of(self._memory.conversation(self.opened.id) if self.opened.id else None)

    def set_place(self, place: Place | None) -> bool:
        """Let a server, or this PC for None, answer the open chat. Return False while it is being answered."""
        if self.answers.of(self.opened.id) is not None and place != self.place:
            self.toast.emit(tr(STILL_ANSWERING), "warn")
            return False
        # An empty choice keeps the chat on this PC if its project names a server.
        inherits = self._policy.place_for(self.choices.inherited) is not None
        here: dict[str, str] | None = {} if inherits else None
        self.choices.set(**{CHOICE: here if place is None else place.choice})
        return True

    def check_place(self) -> None:
        """Emit the status if the open chat's server changed."""
        if self.place != self._place:
            self._place = self.place
            if self.opened.id is None or self._memory.conversation(self.opened.id) is not None:
                self._emit_status()

    @Slot(str)
    @Slot(str, object)
    def send(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Send the user's message to the open chat or a new one, after the answer in progress."""
        text = text.strip()
        if not text and not attachments:
            return
        if self.opened.id is not None and (
            self.answers.of(self.opened.id) is not None
            or self.next.of(self.opened.id)
            or self.rounds.is_running(self.opened.id)
        ):
            self.next.add(self.opened.id, text, attachments)
            return
        self._answer_goes_on()
        if self.opened.id is not None:
            self.rounds.stop(self.opened.id)
        self._ask(self.begin(text or attachments[0].name), text, attachments)

    def begin(self, text: str) -> str:
        """Return the id of the open chat. A new one is stored, with a title from its first question."""
        if self.opened.id is None:
            conversation = Conversation(title=title_from(text), folder=self.choices.folder, choices=self.choices.values)
            self._memory.add(conversation)
            self.opened.show(conversation)
        assert self.opened.id is not None
        return self.opened.id

    @Slot(str, object)
    def send_next(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send a message that was written while the open chat was answered. Its attachments are not counted yet."""
        if self.answers.of(self.opened.id) is None and attachments:  # the answer has just ended
            self.next.returned.emit(Unsent(text, attachments), True)
        else:
            self.send(text, attachments)

    def _ask(self, chat: str, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        self._bring_model(chat)
        self.turns.ask(chat, text, attachments)
        self._wake()
        self._emit_status()

    def _bring_model(self, chat: str) -> None:
        """Load the model that a chat or its project has chosen, if another one is loaded; after a running answer."""
        choices = self.choices.of(self._memory.conversation(chat))
        model = str(choices.get(MODEL) or "")
        if model and self._policy.place_for(choices) is None and listed_id(self.switch.wanted) != model:
            self.switch.use(STARTER if model == SHIPPED_ID else model)

    def _wake(self) -> None:
        """Load the last model if the open chat's answer waits for one and none is loading."""
        answer = self.answers.of(self.opened.id)
        if answer is None or answer.place is not None or self._engine.status.phase not in (Phase.OFF, Phase.FAILED):
            return
        self.problems.solve("engine")
        self.failures.revive_engine()
        self.load_last()

    def question_of(self, answer: Message) -> Message | None:
        """Return the question of the open chat that this message answers, with or without calls of tools before it."""
        messages = (self._memory.messages(self.opened.id) if self.opened.id else None) or []
        way = branch(messages, answer.parent)
        there = bool(way) and way[-1].id == answer.parent
        return next((one for one in reversed(way) if one.role is Role.USER), None) if there else None

    def next_request(self, text: str, attachments: tuple[Attachment, ...] = ()) -> AnswerRequest:
        """Return the request that sending this message now would make."""
        return self._unsent.next(self.opened.id, text, attachments)

    @Slot(object)
    def act(self, act: MessageAction) -> None:
        if self.opened.id is None:
            return
        if act.call_id:
            self.rounds.act(self.opened.id, act)
            self._emit_status()
            return
        if act.act in ("edit", "regenerate", "continue"):
            self._answer_goes_on()
        if self.rounds.pending(self.opened.id) is not None:
            self.rounds.stop(self.opened.id)
            self.next.take_back()
        if act.act in ("edit", "regenerate", "continue"):
            self._bring_model(self.opened.id)
        self.turns.act(self.opened.id, act)
        self._wake()
        self._emit_status()

    def branch_at(self, message_id: str, begun: Inspection) -> None:
        """Answer again beside an answer of the open chat, beginning with recorded tokens."""
        if self.opened.id is not None:
            self._answer_goes_on()
            self.turns.branch_at(self.opened.id, message_id, begun)
            self._wake()
            self._emit_status()

    @property
    def records_tokens(self) -> bool:
        """Whether the tokens of the open chat's answers are recorded."""
        return self._policy.inspects(self.choices.in_force)

    def record_tokens(self, on: bool) -> None:
        """Record the tokens of the open chat's answers from now on, or stop that."""
        self.choices.set(inspect=on)
        self.toast.emit(tr("Recording the tokens of this chat") if on else tr("Recording stopped"), None)

    def _message_added(self, chat: str, message: Message) -> None:
        if chat == self.opened.id:
            self.message_added.emit(message)

    def _message_resumed(self, chat: str, message: Message) -> None:
        if chat == self.opened.id:
            self.message_resumed.emit(message)

    def _branch_changed(self, chat: str, keep: str) -> None:
        if chat == self.opened.id:
            shown = self._memory.branch_of(chat) or []
            self._emit_versions(shown)
            self.branch_changed.emit(shown, keep)
            self._emit_status()

    def _emit_versions(self, shown: list[Message]) -> None:
        messages = (self._memory.messages(self.opened.id) if self.opened.id else None) or []
        self.versions_changed.emit(versions_of(messages, shown))

    @property
    def has_tool_consents(self) -> bool:
        """Whether some calls of tools in the open chat run without a question."""
        return self.rounds.has_consents(self._memory.conversation(self.opened.id))

    @property
    def tool_questions(self) -> dict[str, Question]:
        """The questions of MCP servers that wait in the open chat, by the ids of the calls."""
        return self.rounds.questions(self.opened.id)

    def drop_tool_consents(self) -> None:
        """Ask again before every call in the open chat and in the chats of its folder."""
        if self.opened.id is not None:
            self.rounds.drop_consents(self.opened.id)
            self.toast.emit(tr("Hearth asks again before every call"), None)

    def _message_updated(self, chat: str, message: Message) -> None:
        if chat == self.opened.id:
            self.message_updated.emit(message)
            self._emit_status()

    def _rounds_ended(self, chat: str, message: Message) -> None:
        """Let the model continue after calls, once their answer is kept as ended."""
        QTimer.singleShot(0, self, lambda: self._go_on(chat, message))

    def _go_on(self, chat: str, message: Message) -> None:
        self.turns.go_on(chat, message)
        self._wake()
        self._emit_status()

    def _broken_off(self, chat: str, message: Message) -> None:
        self.toast.emit(tr("The model repeated its calls of tools, so they were not run again"), "warn")

    @Slot()
    def stop(self) -> None:
        """Stop the open chat's answer or its calls of tools, or else the running answer. Its text so far is kept."""
        if self.opened.id is not None and self.rounds.pending(self.opened.id) is not None:
            self.rounds.stop(self.opened.id)
            self.next.take_back()
            return
        answer = self.answers.of(self.opened.id) or self.answers.running
        if answer is not None:
            self.answers.stop(answer)

    def _answer_goes_on(self) -> None:
        """Remove the open chat's problems: it is being answered again."""
        self.problems.solve("answer", "attachment", chat=self.opened.id or "")

    def _send_again(self) -> None:
        """Answer the last question of the open chat again."""
        chat = self.opened.id
        if chat is None or self._memory.branch_of(chat) is None or self._memory.conversation(chat) is None:
            return
        self._answer_goes_on()
        self.turns.send_again(chat)
        self._wake()
        self._emit_status()

    def _answer_here(self) -> None:
        """Let this PC answer the open chat, beginning with its last question."""
        if self.opened.id is None or not self.set_place(None):
            return
        self._send_again()

    # --- chats

    def _reopen(self) -> None:
        """Open the chat of the last run, unless the user already writes in a new one.

        A run that was killed in mid-answer stored none: open the newest chat, as a rule the one with that answer.
        """
        if not self._memory.has_early_draft:
            newest = next(iter(self._memory.conversations()), None) if self._memory.was_cut_off else None
            self.opened.reopen(newest.id if newest else self._policy.settings.last_conversation)

    @Slot()
    def new_chat(self, folder: str = "") -> None:
        """Show an empty chat, which is stored with its first message. folder: that it belongs to; empty: none."""
        self._new_folder = folder
        self.opened.show(None)

    @Slot(str)
    def open(self, conversation_id: str) -> None:
        self.opened.open(conversation_id)

    @Slot(str, str, str)
    def open_at(self, conversation_id: str, message_id: str, text: str = "") -> None:
        """Open a chat on the branch with that message, scroll to it and mark the text."""
        self.opened.open_at(conversation_id, message_id, text)

    def _chat_shown(self, conversation: Conversation | None, shown: list[Message]) -> None:
        folder, self._new_folder = self._new_folder, ""
        self.choices.show(conversation, folder)
        self._emit_versions(shown)
        self.conversation_opened.emit(conversation, shown)
        self.next.show(self.opened.id or "")
        self.problems.show_chat(self.opened.id or "")
        self._emit_status()

    @Slot(str, str)
    def rename(self, conversation_id: str, title: str) -> None:
        title = " ".join(title.split())
        conversation = self._memory.conversation(conversation_id)
        if conversation is None or not title or title == conversation.title:
            return
        self._memory.rename(conversation_id, title)
        if conversation_id == self.opened.id:
            self.title_changed.emit(title)

    @Slot(str)
    def delete(self, conversation_id: str) -> None:
        """Move a chat to the bin and stop its answer."""
        if self._memory.conversation(conversation_id) is None:
            return
        self.rounds.stop(conversation_id)
        was_open = self.opened.is_or_will_be(conversation_id)
        self._memory.delete(conversation_id)
        self.problems.discard_chat(conversation_id)
        if was_open:
            self.new_chat()
        self.toast.emit(tr("Chat moved to the bin"), partial(self._undo_delete, conversation_id, was_open))

    def _undo_delete(self, conversation_id: str, reopen: bool) -> None:
        if self._memory.restore(conversation_id) and reopen and self.opened.id is None:
            self.open(conversation_id)

    @Slot(str)
    def search(self, text: str) -> None:
        """Search all chats; an empty text ends the search. Results of an older search are ignored."""
        self._search = text = text.strip()
        if not text:
            self.search_results.emit("", None)
        else:
            self._memory.search(
                text, lambda hits: self.search_results.emit(text, hits) if self._search == text else None
            )

    # --- settings, remedies, end

    @Slot(AppSettings)
    def settings_changed(self, settings: AppSettings) -> None:
        """Apply new settings: sampling from the next answer on; engine settings reload the model."""
        self._engine_settings.take(settings)

    # --- the model

    @property
    def model(self) -> str:
        """The loaded model, else the one that is loading or was tried last: an id or a path."""
        return self.switch.model

    @property
    def status(self) -> EngineStatus:
        """The engine's current status."""
        return self._engine.status

    def keep_model(self, model: str) -> None:
        """Keep a model, an id of the library, as the open chat's choice if its project names another one."""
        wanted = self.choices.inherited.get(MODEL)
        self.choices.set(**{MODEL: model if wanted not in (None, model) else None})

    @Slot(str)
    def use_model(self, model: str) -> None:
        """Load this model in place of the current one, after the running answer."""
        self.switch.use(model)

    @Slot()
    def load_model(self) -> None:
        """Load the wanted model with its current settings and choices."""
        self.switch.load()

    def choose_draft(self, draft: str) -> None:
        """Let this smaller model guess for the model: its id, "off", or "" for automatic."""
        self.switch.choose_draft(draft)

    @Slot()
    def load_last(self) -> None:
        self.switch.load_last()

    @Slot()
    def unload(self) -> None:
        """Free the model's memory after the running answer."""
        self.switch.unload()

    @Slot()
    def cancel_load(self) -> None:
        """Cancel the load. No model is loaded then."""
        self.switch.cancel_load()

    @Slot(str)
    def remedy(self, action: str) -> None:
        """Do what a banner's button offers."""
        match action:
            case Action.RETRY_LOAD | Action.RESTART_ENGINE | Action.LOAD_STARTER:
                self.problems.solve("engine")
                if action == Action.LOAD_STARTER:
                    self.switch.wanted = STARTER
                if action == Action.RESTART_ENGINE:
                    self.failures.restart_engine()
                self.load_model()
            case _ if action == LOAD_LAST:
                self.load_last()
            case Action.ANSWER_HERE:
                self._answer_here()
            case Action.SEND_AGAIN:
                self.problems.solve("engine")
                self._send_again()
            case Action.NEW_CHAT:
                self._answer_goes_on()
                self.new_chat()
            case Action.RETRY_SAVE:
                self._memory.retry_now()
            case Action.REPAIR_CHATS | Action.REOPEN_CHATS:
                self._memory.repair()
            case Action.USE_COPY:
                self._memory.repair(from_copy=True)
            case _:
                self.window_action.emit(action)

    def close(self) -> None:
        """Save everything that is not saved yet. The owner closes the queues."""
        self.switch.stop()
        self.next.end()
        self.rounds.close()
        self.answers.abandon(MessageState.INTERRUPTED, waiting_too=True)
        self._memory.end()

    # --- what happens

    def _emit_conversations(self) -> None:
        """Stop what runs in chats that are gone, however they were deleted, and emit the others."""
        for answer in self.answers.everyone:
            if self._memory.conversation(answer.conversation_id) is None:
                self.answers.stop(answer)
        for chat in self.rounds.running_chats:
            if self._memory.conversation(chat) is None:
                self.rounds.stop(chat)
        if self.opened.id is not None and self._memory.conversation(self.opened.id) is None:
            self.new_chat()
        self.conversations_changed.emit(self._memory.conversations())

    def _emit_status(self) -> None:
        self.status_changed.emit(self._engine.status)
        self.chat_status_changed.emit(self._chat_status())

    def _chat_status(self) -> EngineStatus:
        answer = self.answers.of(self.opened.id)
        is_running = answer is not None and answer is self.answers.running
        shown = (self._memory.branch_of(self.opened.id) if self.opened.id else None) or []
        place = answer.place if answer is not None else self.place
        if place is None:
            can_load = self.switch.name_to_bring_back
            status = status_here(self._engine.status, can_load, answer is not None, is_running, shown)
            calls_run = answer is None and self.rounds.is_running(self.opened.id)
            return replace(status, phase=Phase.THINKING) if calls_run else status
        if is_running and self._remote is not None:
            return self._remote.status
        return status_at(place, answer is not None, shown)

    def _answer_grew(self, answer: Answer, text: str) -> None:
        self._memory.update(answer.conversation_id, answer.message)
        if answer.conversation_id == self.opened.id:
            self.text_appended.emit(answer.message.id, text)

    def _answer_ended(self, answer: Answer, result: protocol.GenerationResult | None) -> None:
        self._memory.update(answer.conversation_id, answer.message)
        if answer.record is not None and answer.record.rows:
            self._memory.keep_inspection(answer.message.id, answer.record)
        if answer.message.calls:
            answer.message = self.rounds.begin(answer.conversation_id, answer.message)
            asks = any(call.state is CallState.ASKING for call in answer.message.calls)
            self.calls_begun.emit(answer.conversation_id, asks)
        if answer.conversation_id == self.opened.id:
            if result is not None and result.dropped_messages:
                self.messages_dropped.emit(answer.message.id, result.dropped_messages)
            self.message_finished.emit(answer.message)
        self._emit_status()

    def _store_trouble(self, error: StoreError | RescueReport | BaseException) -> None:
        self.answers.allow_all()
        self.problems.report("store", describe(error))
