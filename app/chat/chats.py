"""Creates and connects the objects that keep and answer chats. No window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chat.answer_setup import AnswerSetup
from app.chat.answers.answer_choices import AnswerChoices
from app.chat.answers.answer_policy import AnswerPolicy, PlaceFor
from app.chat.answers.mode_rates import ModeRates
from app.chat.answers.personas import Personas
from app.chat.answers.presets import Presets
from app.chat.answers.question_documents import Finder, QuestionDocuments, Then
from app.chat.answers.saved_prompts import SavedPrompts
from app.chat.chat_controller import ChatController
from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import ChatMemory
from app.chat.chat_titles import ChatTitles
from app.chat.kept_chats import KeptChats
from app.chat.projects.project import Projects
from app.chat.tool_rounds import ToolRounds
from app.later import Later
from app.models.model_switch import STARTER, Choices, ModelSwitch
from app.tools.consents import FolderConsents
from app.tools.tool_box import ToolBox

if TYPE_CHECKING:
    from app.chat.store import store
    from app.chat.store.conversation import Message
    from app.chat.store.operations import Operations
    from app.clients.clients import Clients
    from app.settings import AppPaths, AppSettings
else:
    store = Later("app.chat.store.store")


@dataclass(frozen=True)
class ChatFileAccess:
    """Background access to the files of the chats. saves, reads: threads for the store. save_small: writes a small file
    in the background."""

    saves: Operations
    reads: Operations
    save_small: Callable[[str, Callable[[], object]], None]


class Chats:
    """The objects that keep and answer chats. They read nothing before `setup.read` and `controller.start`."""

    def __init__(
        self,
        places: AppPaths,
        settings: AppSettings,
        clients: Clients,
        files: ChatFileAccess,
        place_for: PlaceFor,
        engine_options_for: Choices,
        model: str = "",
    ) -> None:
        """engine_options_for: the EngineConfig fields kept for a model. model: to load first; empty: the model in the
        settings."""
        engine = clients.engine
        self.memory = ChatMemory(lambda: store.Store.rescue(places.chats_file), files.saves, files.reads)
        box = self.box = ToolBox()  # empty until the window has offered its tools
        choices = AnswerChoices(
            Personas(places.personas_file), Presets(places.presets_file), places.answers_file,
            SavedPrompts(places.prompts_file),
        )  # fmt: skip
        self.projects = Projects(places.projects_file)
        policy = AnswerPolicy(
            settings, choices, place_for, box.definitions, self.projects, lambda: engine.status.context_total or None
        )
        switch = ModelSwitch(engine, settings, model or settings.model or STARTER, engine_options_for)
        self.consents = FolderConsents(places.consents_file)
        rounds = ToolRounds(
            self.memory,
            box,
            self.consents,
            files.save_small,
            lambda: engine.status.context_total or None,
            lambda conversation: policy.chosen(policy.in_force(conversation), self.controller.model).tools,
            policy.notes_to_propose,
        )
        self._documents: QuestionDocuments | None = None
        self._policy, self._engine = policy, engine
        self.controller = ChatController(engine, self.memory, policy, switch, rounds, clients.remote, self._gather)
        rates = ModeRates(places.rates_file)
        self.setup = AnswerSetup(self.controller, engine, self.memory, policy, rates, box, files.save_small)
        self.folders = ChatFolders(self.memory, policy, files.save_small)
        self.folders.projects_changed.connect(self.controller.choices.changed)
        self.folders.renamed.connect(self.controller.choices.rename_folder)
        self.titles = ChatTitles(engine, self.memory, self.controller)
        self.kept_chats = KeptChats(engine, self.memory, places.prompts_folder, settings.kept_chats_gb)

    def use_documents(self, finder: Finder) -> None:
        """Search these documents for the questions of chats that name folders of them. Call once."""
        self._documents = QuestionDocuments(
            self.memory, self._policy, finder, lambda: self.controller.model, lambda: self._engine.status.context_total
        )

    def _gather(self, chat: str, question: Message, then: Then) -> bool:
        return self._documents is not None and self._documents.gather(chat, question, then)
