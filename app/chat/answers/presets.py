"""Presets: named sampling settings. Also the table of what a preset can set, with limits and labels. No Qt.

Values are fields of engine.config.SamplingConfig. What a preset leaves open comes from the settings, else from the
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from app.chat.store.preset_store import PresetStore, checked_name
from app.settings import Setting, described
from app.translation import noted, tr

BALANCED = "balanced"  # the preset of chats that chose none
MAX_STOPS, STOP_LENGTH = 8, 100

# The same fields as in the settings, in display order.
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "thought_tokens", "seed")


@dataclass(frozen=True)
class Preset:
    """values: the fields of SamplingConfig that it sets; stop is a list of texts. about: one line for users."""

    id: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


BUILT_IN = (
    Preset("precise", noted("Precise"), {"temperature": 0.2, "top_p": 0.9}, noted("Facts, code, translations")),
    Preset(BALANCED, noted("Balanced"), {}, noted("As in the settings, otherwise as the model's maker recommends")),
    Preset(
        "creative",
        noted("Creative"),
        {"temperature": 1.0, "top_p": 0.98, "top_k": 0, "min_p": 0.05},
        noted("Stories, ideas"),
    ),
)


class Presets(PresetStore[Preset]):
    """The built-in presets and the user's own."""

    kind: ClassVar[str] = "presets"
    holds_none: ClassVar[str] = noted("{name} contains no presets.")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__([replace(one, name=tr(one.name), about=tr(one.about)) for one in BUILT_IN], path)

    def from_json(self, values: Mapping[str, Any]) -> Preset:
        given = values.get("values")
        if not isinstance(given, dict):
            raise ValueError("A preset has no values.")
        checked = checked_sampling(given)
        if len(checked) < len(given):
            raise ValueError("A value of the preset is invalid.")
        return Preset(str(values["id"]), checked_name(values.get("name")), checked)

    def to_json_values(self, thing: Preset) -> dict[str, Any]:
        return {"name": thing.name, "values": dict(thing.values)}


def fields_of_sampling() -> tuple[Setting, ...]:
    """Return what a preset can set, without stop texts, as the settings describe it. None: left open."""
    by_name = {setting.name: setting for setting in described()}
    return tuple(replace(by_name[name], default=None, none=noted("As is")) for name in SAMPLING)


def checked_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a preset or a chat may have; invalid ones are dropped."""
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
    """Return a list of stop texts; None if it is not valid."""
    if not isinstance(value, list | tuple) or len(value) > MAX_STOPS:
        return None
    if not all(isinstance(text, str) and 0 < len(text) <= STOP_LENGTH for text in value):
        return None
    return list(dict.fromkeys(value))
