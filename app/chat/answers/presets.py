"""Presets: how words are chosen, under a name. Also the one table of what can be chosen there, with bounds and words.

Values are fields of engine.config.SamplingConfig; what a preset does not say is left to the settings, and what these do
not say to the model. Knows no Qt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from app.chat.preset_store import PresetStore, checked_name
from app.settings import Setting, described
from app.translation import noted, tr

BALANCED = "balanced"  # the preset that is in force where none was chosen
MAX_STOPS, STOP_LENGTH = 8, 100

# The same fields as in the settings, in the order in which they are shown.
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed")


@dataclass(frozen=True)
class Preset:
    """values: those fields of SamplingConfig that it decides; stop is a list of texts. about: one line for people."""

    id: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


BUILT_IN = (
    Preset("precise", noted("Precise"), {"temperature": 0.2, "top_p": 0.9}, noted("Facts, code, translations")),
    Preset(BALANCED, noted("Balanced"), {}, noted("As in the settings, else as the model's makers advise")),
    Preset(
        "creative",
        noted("Creative"),
        {"temperature": 1.0, "top_p": 0.98, "top_k": 0, "min_p": 0.05},
        noted("Stories, ideas"),
    ),
)


class Presets(PresetStore[Preset]):
    """Those that come with Hearth, and a person's own."""

    kind: ClassVar[str] = "presets"
    holds_none: ClassVar[str] = noted("{name} holds no presets.")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__([replace(one, name=tr(one.name), about=tr(one.about)) for one in BUILT_IN], path)

    def from_json(self, values: Mapping[str, Any]) -> Preset:
        given = values.get("values")
        if not isinstance(given, dict):
            raise ValueError("A preset has no values.")
        checked = checked_sampling(given)
        if len(checked) < len(given):
            raise ValueError("A value of the preset makes no sense.")
        return Preset(str(values["id"]), checked_name(values.get("name")), checked)

    def to_json_values(self, thing: Preset) -> dict[str, Any]:
        return {"name": thing.name, "values": dict(thing.values)}


def fields_of_sampling() -> tuple[Setting, ...]:
    """What a preset can decide, stop texts apart, as the settings describe it; None is: the preset says nothing."""
    by_name = {setting.name: setting for setting in described()}
    return tuple(replace(by_name[name], default=None, none=noted("As is")) for name in SAMPLING)


def checked_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that a preset or a chat may have; whatever makes no sense is left out."""
    by_name = {setting.name: setting for setting in fields_of_sampling()}
    good: dict[str, Any] = {}
    for name, value in values.items():
        setting = by_name.get(name)
        if setting is not None and value is not None and setting.fault(value) is None:
            good[name] = float(value) if setting.kind == "number" else value
        elif name == "stop" and (stops := checked_stops(value)) is not None:
            good[name] = stops
    return good


def checked_stops(value: object) -> list[str] | None:
    """Texts at which an answer ends; None where that is no such list."""
    if not isinstance(value, list | tuple) or len(value) > MAX_STOPS:
        return None
    if not all(isinstance(text, str) and 0 < len(text) <= STOP_LENGTH for text in value):
        return None
    return list(dict.fromkeys(value))
