"""Chooses how a chat is answered: persona, preset, sampling, mode, thinking, tools, documents. The chat's own choice
comes first, then the model's default, then the settings.

Keeps the defaults of models in a small JSON file in the config folder. No Qt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.chat.answers.answer_labels import MODES
from app.chat.answers.personas import NO_PERSONA, Persona, Personas
from app.chat.answers.presets import BALANCED, Preset, Presets, checked_sampling
from app.chat.answers.saved_prompts import SavedPrompts
from app.chat.store.preset_store import VersionedFile
from app.settings import AppSettings
from engine.thinking_level import LEVELS, Level

SCHEMA_VERSION = 1
MAX_MODELS = 2_000
MOST_TOOLS = 200  # that are on in a chat
MOST_FOLDERS, LONGEST_PATH = 100, 4_096  # of documents, of a chat
NAMES = ("persona", "preset", "sampling", "mode", "thinking", "tools", "documents")  # our keys of Conversation.choices


@dataclass(frozen=True)
class Chosen:
    """The answer settings that apply to a chat. sampling: changed by hand, on top of the preset."""

    persona: Persona | None
    preset: Preset
    sampling: Mapping[str, Any]
    mode: str  # auto, sparse, exact or dense
    instructions: str
    thinking: Level | None = None  # None: as the model's chat template does by itself
    tools: tuple[str, ...] = ()  # names of those that are on
    documents: tuple[str, ...] = ()  # folders that are searched for each question
    in_force: Mapping[str, Any] = field(default_factory=dict)  # fields of SamplingConfig to override

    @property
    def is_changed(self) -> bool:
        """Whether the sampling differs from the preset's."""
        return bool(self.sampling)


class AnswerChoices(VersionedFile):
    """Personas, presets, saved prompts and the defaults of models, and the result for a chat."""

    def __init__(
        self, personas: Personas, presets: Presets, path: Path | None = None, prompts: SavedPrompts | None = None
    ) -> None:
        """Read nothing. path: None keeps the defaults in memory. prompts: None: the built-in ones."""
        self.personas, self.presets, self.prompts = personas, presets, prompts or SavedPrompts()
        super().__init__(path, SCHEMA_VERSION)
        self._defaults: dict[str, dict[str, Any]] = {}

    def read(self) -> None:
        """Read personas, presets, prompts and defaults; invalid values are skipped."""
        self.personas.read()
        self.presets.read()
        self.prompts.read()
        models = self.values().get("models")
        if not isinstance(models, dict):
            return
        for model, chosen in list(models.items())[:MAX_MODELS]:
            if isinstance(chosen, dict) and (good := checked_choices(chosen)):
                self._defaults[model] = good

    def chosen(self, choices: Mapping[str, Any], model: str, settings: AppSettings) -> Chosen:
        """Return what applies to a chat with these choices that `model` answers."""
        # A deleted persona or preset counts as never chosen.
        own, default = checked_choices(choices), self._defaults.get(model, {})
        persona_id = own.get("persona", default.get("persona", NO_PERSONA))
        persona = self.personas.get(persona_id)
        preset = self.presets.get(own.get("preset", "")) or self.presets.get(default.get("preset", ""))
        if preset is None:
            preset = self.presets.get(BALANCED)
        assert preset is not None, "it comes with Hearth"
        # A model's own sampling belongs to its default preset: another preset drops it.
        inherited = {} if own.keys() & {"preset", "sampling"} else default.get("sampling", {})
        sampling = own.get("sampling", inherited)
        mode = own.get("mode") or default.get("mode") or settings.mode
        instructions = settings.system_prompt if persona is None else persona.instructions
        thinking = own.get("thinking", default.get("thinking"))
        in_force = {**settings.sampling(), **preset.values, **sampling}
        if thinking is not None:
            in_force["thinking"] = thinking
        tools = tuple(own.get("tools", default.get("tools", ())))
        documents = tuple(own.get("documents", default.get("documents", ())))
        return Chosen(persona, preset, sampling, mode, instructions, thinking, tools, documents, in_force)

    def default_of(self, model: str) -> dict[str, Any]:
        """Return the user's default choices for new chats with a model."""
        return dict(self._defaults.get(model, {}))

    def set_default(self, model: str, choices: Mapping[str, Any] | None) -> None:
        """Set the default choices for new chats with a model; None: remove them."""
        good = checked_choices(choices or {})
        if good:
            self._defaults[model] = good
        else:
            self._defaults.pop(model, None)

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "models": {name: dict(v) for name, v in self._defaults.items()}}


def checked_choices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid ones of our choices."""
    good: dict[str, Any] = {}
    for name in ("persona", "preset"):
        if isinstance(values.get(name), str) and len(values[name]) <= 100:
            good[name] = values[name]
    if isinstance(values.get("sampling"), dict):
        good["sampling"] = checked_sampling(values["sampling"])
    if values.get("mode") in ("auto", *MODES):
        good["mode"] = values["mode"]
    if values.get("thinking") in LEVELS:
        good["thinking"] = values["thinking"]
    for name, most, longest in (("tools", MOST_TOOLS, 100), ("documents", MOST_FOLDERS, LONGEST_PATH)):
        listed = values.get(name)
        if isinstance(listed, list) and all(isinstance(one, str) and len(one) <= longest for one in listed[:most]):
            good[name] = listed[:most]
    return good
