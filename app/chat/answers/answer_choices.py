"""Which persona, preset, sampling and mode an answer gets: the chat's choice, else the model's default, else the
settings.

It keeps the defaults by model in a small JSON file of the config folder. Knows no Qt, asks no engine, shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.chat.answers.personas import NO_PERSONA, Persona, Personas
from app.chat.answers.presets import BALANCED, Preset, Presets, checked_sampling
from app.chat.preset_store import PresetStoreError, read_json, write_json
from app.settings import AppSettings
from engine.config import MODES

SCHEMA_VERSION = 1
MAX_MODELS = 2_000
NAMES = ("persona", "preset", "sampling", "mode")  # what of Conversation.choices is ours


@dataclass(frozen=True)
class Chosen:
    """What is in force for a chat. sampling: what the person changed by hand, over the preset."""

    persona: Persona | None
    preset: Preset
    sampling: Mapping[str, Any]
    mode: str  # auto, sparse, exact or dense
    instructions: str
    in_force: Mapping[str, Any] = field(default_factory=dict)  # fields of SamplingConfig that differ from the model's

    @property
    def is_changed(self) -> bool:
        """Whether the sampling is another than the preset's."""
        return bool(self.sampling)


class AnswerChoices:
    """The shelves, the defaults by model, and what comes of them for a chat."""

    def __init__(self, personas: Personas, presets: Presets, path: Path | None = None) -> None:
        """Nothing is read here. path: None keeps the defaults in memory."""
        self.personas, self.presets = personas, presets
        self._path = path
        self._defaults: dict[str, dict[str, Any]] = {}
        self._newer = False  # the file belongs to a newer Hearth and stays as it is

    def read(self) -> None:
        """Take personas, presets and defaults of their files; what makes no sense is left out."""
        self.personas.read()
        self.presets.read()
        if self._path is None:
            return
        try:
            values = read_json(self._path)
        except (OSError, PresetStoreError):
            return
        if not isinstance(values, dict):
            return
        version = values.get("schema_version")
        self._newer = type(version) is int and version > SCHEMA_VERSION
        models = values.get("models")
        if self._newer or not isinstance(models, dict):
            return
        for model, chosen in list(models.items())[:MAX_MODELS]:
            if isinstance(chosen, dict) and (good := checked_choices(chosen)):
                self._defaults[model] = good

    def chosen(self, choices: Mapping[str, Any], model: str, settings: AppSettings) -> Chosen:
        """What is in force for a chat with these choices, answered by that model."""
        # What was deleted since counts as never chosen, wherever it was chosen.
        own, default = checked_choices(choices), self._defaults.get(model, {})
        persona_id = own.get("persona", default.get("persona", NO_PERSONA))
        persona = self.personas.get(persona_id)
        preset = self.presets.get(own.get("preset", "")) or self.presets.get(default.get("preset", ""))
        if preset is None:
            preset = self.presets.get(BALANCED)
        assert preset is not None, "it comes with Hearth"
        # A model's own tuning belongs to its default preset: it goes where another is chosen.
        inherited = {} if own.keys() & {"preset", "sampling"} else default.get("sampling", {})
        sampling = own.get("sampling", inherited)
        mode = own.get("mode") or default.get("mode") or settings.mode
        instructions = settings.system_prompt if persona is None else persona.instructions
        in_force = {**settings.sampling(), **preset.values, **sampling}
        return Chosen(persona, preset, sampling, mode, instructions, in_force)

    def default_of(self, model: str) -> dict[str, Any]:
        """What new chats with a model begin with, where a person said so."""
        return dict(self._defaults.get(model, {}))

    def set_default(self, model: str, choices: Mapping[str, Any] | None) -> None:
        """What new chats with this model are to begin with; None: nothing of their own."""
        good = checked_choices(choices or {})
        if good:
            self._defaults[model] = good
        else:
            self._defaults.pop(model, None)

    def to_json(self) -> dict[str, Any]:
        """The defaults by model."""
        return {"schema_version": SCHEMA_VERSION, "models": {name: dict(v) for name, v in self._defaults.items()}}

    def save(self, values: dict[str, Any]) -> None:
        """Write what `to_json` gave; callable from any thread. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)


def checked_choices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a chat's choices that are ours and make sense."""
    good: dict[str, Any] = {}
    for name in ("persona", "preset"):
        if isinstance(values.get(name), str) and len(values[name]) <= 100:
            good[name] = values[name]
    if isinstance(values.get("sampling"), dict):
        good["sampling"] = checked_sampling(values["sampling"])
    if values.get("mode") in MODES:
        good["mode"] = values["mode"]
    return good
