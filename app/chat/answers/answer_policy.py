"""Decides how a chat is answered: from the chat's own choices, its model's default and the settings. Knows no Qt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.chat.answers.answer_choices import AnswerChoices, Chosen
from app.chat.answers.answer_settings import AnswerSettings, overflow_of
from app.chat.answers.personas import Personas
from app.chat.answers.presets import Presets
from app.chat.projects.notes import NotesFile, NotesText
from app.chat.projects.project import Projects, instructions_of
from app.chat.store.conversation import Conversation
from app.clients.servers import Place
from app.models.model_rows import listed_id
from app.settings import AppSettings
from app.tools.propose_note import TOOL as NOTE_TOOL

INSPECT = "inspect"  # key of Conversation.choices: whether tokens are recorded
ToolsFor = Callable[[Sequence[str]], tuple[dict[str, Any], ...]]  # names -> definitions of those that exist
PlaceFor = Callable[[Mapping[str, Any]], Place | None]  # a chat's choices -> the server it is sent to


class AnswerPolicy:
    """Resolves settings, server and tools for an answer. The controller updates `settings` and `has_predictors`."""

    def __init__(
        self,
        settings: AppSettings,
        choices: AnswerChoices | None = None,
        place_for: PlaceFor = lambda choices: None,
        tools_for: ToolsFor = lambda names: (),
        projects: Projects | None = None,
        context_tokens: Callable[[], int | None] = lambda: None,
    ) -> None:
        """choices: personas, presets and the defaults of models; None: the built-in ones. projects: None: there are
        none. context_tokens: of the loaded model; None: not known."""
        self.settings = settings
        self.choices = choices or AnswerChoices(Personas(), Presets())
        self.has_predictors = True  # whether the loaded model has predictors
        self.projects = projects or Projects()
        self._place_for, self._tools_for, self._context_tokens = place_for, tools_for, context_tokens

    def in_force(self, conversation: Conversation) -> Mapping[str, Any]:
        """Return a chat's choices with those that it inherits from its project."""
        return self.projects.in_force(conversation.choices, conversation.folder)

    def place_for(self, choices: Mapping[str, Any]) -> Place | None:
        """Return the server that a chat with these choices is sent to; None: this PC answers."""
        return self._place_for(choices)

    def known_as(self, choices: Mapping[str, Any], model: str) -> str:
        """Return the key of the model that answers a chat: `model` on this PC, or a server's model."""
        place = self.place_for(choices)
        return listed_id(model) if place is None else f"{place.server.id}/{place.model}"

    def chosen(self, choices: Mapping[str, Any], model: str) -> Chosen:
        """Return the persona, preset, sampling and mode of a chat with these choices."""
        return self.choices.chosen(choices, self.known_as(choices, model), self.settings)

    def notes_for(self, folder: str, place: Place | None) -> NotesText:
        """Return the notes of a folder as a prompt has them. place: where the prompt goes; a server is sent all."""
        notes = self.projects.notes_of(folder)
        return NotesText() if notes is None else notes.read(self._context_tokens() if place is None else None)

    def notes_to_propose(self, conversation: Conversation) -> NotesFile | None:
        """Return the notes for which the model may propose lines in a chat; None: there are none."""
        project = self.projects.of(conversation.folder)
        can = project is not None and project.proposes and self.place_for(self.in_force(conversation)) is None
        return self.projects.notes_of(conversation.folder) if can else None

    def settings_for(self, choices: Mapping[str, Any], model: str, folder: str = "") -> AnswerSettings:
        """Return the answer settings of a chat in a folder with these choices, where `model` is loaded on this PC.

        Sparse mode becomes automatic if the model has no predictors.
        """
        chosen = self.chosen(choices, model)
        automatic = chosen.mode == "auto" or (chosen.mode == "sparse" and not self.has_predictors)
        mode = None if automatic else chosen.mode
        place, project = self.place_for(choices), self.projects.of(folder)
        tools = self._tools_for(chosen.tools) if place is None and chosen.tools else ()
        instructions = [chosen.instructions, instructions_of(choices)]
        if project is not None:  # first, as all chats of a project begin like this and share the computed prompt
            notes = self.notes_for(folder, place)
            instructions = [project.instructions, notes.framed, *instructions]
            if project.notes and project.proposes and not notes.fault and place is None:
                tools = (*(tool for tool in tools if tool["name"] != NOTE_TOOL.name), NOTE_TOOL.definition)
        system = "\n\n".join(part.strip() for part in instructions if part.strip())
        inspect = place is None and self.inspects(choices)
        return AnswerSettings(system, dict(chosen.in_force), mode, overflow_of(choices), place, tools, inspect)

    def inspects(self, choices: Mapping[str, Any]) -> bool:
        """Return whether the tokens of a chat's answers are recorded, if this PC gives them."""
        return bool(choices.get(INSPECT, self.settings.inspect))
