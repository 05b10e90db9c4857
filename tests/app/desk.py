"""A controller with a real store and a fake for the engine, without a window, and everything it said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_host import FakeEngine
from pytestqt.qtbot import QtBot

from app.chat.answers.answer_policy import AnswerPolicy, PlaceFor
from app.chat.answers.question_documents import Finder, QuestionDocuments
from app.chat.chat_controller import ChatController
from app.chat.chat_memory import ChatMemory
from app.chat.projects.project import Projects
from app.chat.store.conversation import Conversation, Message, MessageState
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.chat.tool_rounds import ToolRounds
from app.clients.engine_client import EngineClient
from app.clients.engine_process import ProcessHost, Timeouts
from app.clients.engine_status import EngineStatus
from app.clients.engine_worker import EngineWorker, InThreadHost
from app.clients.remote_client import RemoteClient
from app.models.model_switch import ModelSwitch
from app.settings import AppSettings
from app.tools.consents import FolderConsents
from app.tools.tool import ToolSource
from app.tools.tool_box import ToolBox
from app.user_messages import UserMessage

FAKE = [sys.executable, str(Path(__file__).with_name("fake_host.py"))]


class Desk:
    """A controller with everything it needs, and everything it said."""

    def __init__(
        self,
        qtbot: QtBot,
        folder: Path,
        location: str = "in-thread",
        model: str = "fake",
        settings: AppSettings | None = None,
        store: type[Store] = Store,
        remote: RemoteClient | None = None,
        place_for: PlaceFor = lambda choices: None,
        sources: Sequence[ToolSource] = (),
        finder: Finder | None = None,
    ) -> None:
        self.qtbot = qtbot
        self.path = folder / "chats.db"
        self.saves, self.reads = Operations(retry_s=0.05), Operations()
        timeouts = Timeouts(backoff_s=(0.01,))
        self.worker = EngineWorker(
            location,
            {
                "process": lambda emit: ProcessHost(emit, folder, FAKE, timeouts),
                "in-thread": lambda emit: InThreadHost(emit, FakeEngine),  # type: ignore[arg-type]
            },
        )
        self.engine = EngineClient(self.worker)
        self.memory = ChatMemory(lambda: store.rescue(self.path), self.saves, self.reads)
        settings = settings or AppSettings()
        self.box = ToolBox(sources)
        self.projects = Projects()
        self.policy = AnswerPolicy(
            settings, place_for=place_for, tools_for=self.box.definitions, projects=self.projects
        )
        self.engine_options: dict[str, Any] = {}  # that are kept for the model
        switch = ModelSwitch(self.engine, settings, model, lambda model: self.engine_options)
        self.consents = FolderConsents()
        rounds = ToolRounds(
            self.memory, self.box, self.consents, lambda name, write: write(),
            tools_on=lambda conversation: self.policy.chosen(self.policy.in_force(conversation), "").tools,
            notes_of=self.policy.notes_to_propose,
        )  # fmt: skip
        context = lambda: self.engine.status.context_total  # noqa: E731
        gather = QuestionDocuments(self.memory, self.policy, finder, lambda: model, context).gather if finder else None
        self.controller = ChatController(
            self.engine, self.memory, self.policy, switch, rounds, remote, gather or (lambda *of: False)
        )
        self.messages: dict[str, Message] = {}  # as the page would show them
        self.order: list[str] = []
        self.opened: Conversation | None = None
        self.conversations: list[Conversation] = []
        self.statuses: list[EngineStatus] = []
        self.chat_statuses: list[EngineStatus] = []
        self.problems: list[UserMessage] = []
        self.problem: UserMessage | None = None
        self.toasts: list[tuple[str, Any]] = []
        self.drafts: list[str] = []
        self.versions: dict[str, tuple[int, int]] = {}
        self.dropped: list[tuple[str, int]] = []
        self.hits: list[tuple[str, Any]] = []
        self.pid = 0
        self.closed = False
        self.is_open = False
        self.memory.opened.connect(lambda: setattr(self, "is_open", True))
        c = self.controller
        c.conversation_opened.connect(self._open)
        c.message_added.connect(self._add)
        c.message_resumed.connect(self._resume)
        c.branch_changed.connect(lambda messages, keep: self._show(messages))
        c.versions_changed.connect(lambda versions: setattr(self, "versions", versions))
        c.text_appended.connect(self._append)
        c.message_finished.connect(self._finish)
        c.message_updated.connect(self._update)
        c.conversations_changed.connect(lambda value: setattr(self, "conversations", value))
        c.status_changed.connect(self.statuses.append)
        c.chat_status_changed.connect(self.chat_statuses.append)
        c.problem.connect(self._problem)
        c.problem_solved.connect(lambda: setattr(self, "problem", None))
        c.toast.connect(lambda words, undo: self.toasts.append((words, undo)))
        c.next.returned.connect(lambda unsent, goes: self.drafts.append(unsent.text))
        c.messages_dropped.connect(lambda message, count: self.dropped.append((message, count)))
        c.search_results.connect(lambda text, hits: self.hits.append((text, hits)))
        self.engine.process_started.connect(lambda pid: setattr(self, "pid", pid))
        self.worker.start()
        c.start()

    def _open(self, conversation: Conversation | None, messages: list[Message]) -> None:
        self.opened = conversation
        self._show(messages)

    def _show(self, messages: list[Message]) -> None:
        self.order = [message.id for message in messages]
        self.messages = {message.id: message for message in messages}

    def _add(self, message: Message) -> None:
        assert message.id not in self.messages
        self.order.append(message.id)
        self.messages[message.id] = message

    def _resume(self, message: Message) -> None:
        assert message.id == self.order[-1]
        self.messages[message.id] = message

    def _append(self, message_id: str, text: str) -> None:
        if message_id in self.messages:  # else of a branch that is not shown
            message = self.messages[message_id]
            self.messages[message_id] = replace(message, text=message.text + text)

    def _finish(self, message: Message) -> None:
        if message.id not in self.messages:
            return
        assert message.text == self.messages[message.id].text, "the text that was streamed is the text that is kept"
        self.messages[message.id] = message

    def _update(self, message: Message) -> None:
        assert message.id in self.messages
        self.messages[message.id] = message

    def _problem(self, message: UserMessage) -> None:
        self.problem = message
        self.problems.append(message)

    @property
    def shown(self) -> list[Message]:
        return [self.messages[message_id] for message_id in self.order]

    @property
    def last(self) -> Message:
        return self.shown[-1]

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def wait_ready(self) -> None:
        self.wait(lambda: self.engine.is_ready and self.is_open)

    def say(self, text: str) -> Message:
        """Send and wait for the end of the answer."""
        self.controller.send(text)
        self.wait(lambda: self.last.state is not MessageState.WRITING)
        return self.last

    def stored(self) -> list[Message]:
        """What the file holds now, read by somebody else."""
        store = Store.open(self.path)
        messages = [m for c in reversed(store.conversations()) for m in store.messages(c.id)]
        store.close()
        return messages

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.controller.close()
            assert self.worker.shutdown(60.0)
            assert self.saves.close(60.0) == []
            assert self.reads.close(60.0) == []


MakeDesk = Callable[..., Desk]
