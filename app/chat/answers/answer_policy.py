"""Decides how a chat is answered: from the chat's own choices, its model's default and the settings. Knows no Qt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.chat.answers.answer_choices import AnswerChoices, Chosen
from app.chat.answers.answer_settings import AnswerSettings, overflow_of
from app.chat.answers.personas import Personas
from app.chat.answers.presets import Presets
from app.clients.servers import Place
from app.models.model_rows import listed_id
from app.settings import AppSettings

ToolsFor = Callable[[Sequence[str]], tuple[dict[str, Any], ...]]  # names -> definitions of those that exist
PlaceFor = Callable[[Mapping[str, Any]], Place | None]  # a chat's choices -> the server it is sent to


class AnswerPolicy:
    """One for the window. The chat controller keeps `settings` and `has_predictors` up to date."""

    def __init__(
        self,
        settings: AppSettings,
        choices: AnswerChoices | None = None,
        place_for: PlaceFor = lambda choices: None,
        tools_for: ToolsFor = lambda names: (),
    ) -> None:
        """choices: personas, presets and the defaults of models; None: the built-in ones."""
        self.settings = settings
        self.choices = choices or AnswerChoices(Personas(), Presets())
        self.has_predictors = True  # whether the loaded model has predictors
        self._place_for, self._tools_for = place_for, tools_for

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

    def settings_for(self, choices: Mapping[str, Any], model: str) -> AnswerSettings:
        """Return the answer settings of a chat with these choices, where `model` is loaded on this PC.

        Sparse mode becomes automatic if the model has no predictors.
        """
        chosen = self.chosen(choices, model)
        automatic = chosen.mode == "auto" or (chosen.mode == "sparse" and not self.has_predictors)
        mode = None if automatic else chosen.mode
        place = self.place_for(choices)
        tools = self._tools_for(chosen.tools) if place is None and chosen.tools else ()
        return AnswerSettings(chosen.instructions, dict(chosen.in_force), mode, overflow_of(choices), place, tools)
