"""Personas: named instructions that the model gets before a chat. No Qt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from app.chat.store.preset_store import PresetStore, checked_name
from app.translation import noted, tr

MAX_INSTRUCTIONS = 20_000  # characters
NO_PERSONA = ""  # its id: the settings' instructions apply


@dataclass(frozen=True)
class Persona:
    """instructions: the system message."""

    id: str
    name: str
    instructions: str


BUILT_IN = (
    Persona(
        "concise", noted("Concise"),
        "Answer in as few words as will do. No introduction, no summary, no pleasantries.",
    ),
    Persona(
        "teacher", noted("Patient teacher"),
        "You are a patient teacher. Explain step by step in plain words, with one small example. Say what a term means "
        "when you first use it. End with one question that checks whether it was understood.",
    ),
    Persona(
        "programmer", noted("Programmer"),
        "You are an experienced programmer. Give working code first, then at most three sentences on why it is so. "
        "Name the language of every code block. Say plainly what you are not sure of.",
    ),
    Persona(
        "editor", noted("Copy editor"),
        "Correct spelling, grammar and punctuation of the text that you are given. Keep its meaning, its tone and its "
        "language. Give the corrected text first, then a short list of what was changed.",
    ),
)  # fmt: skip


class Personas(PresetStore[Persona]):
    """The built-in personas and the user's own."""

    kind: ClassVar[str] = "personas"
    holds_none: ClassVar[str] = noted("{name} contains no personas.")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__([replace(one, name=tr(one.name)) for one in BUILT_IN], path)

    def from_json(self, values: Mapping[str, Any]) -> Persona:
        instructions = values.get("instructions")
        if not isinstance(instructions, str) or len(instructions) > MAX_INSTRUCTIONS:
            raise ValueError(f"A persona's instructions are text of at most {MAX_INSTRUCTIONS:,} characters.")
        return Persona(str(values["id"]), checked_name(values.get("name")), instructions)

    def to_json_values(self, thing: Persona) -> dict[str, Any]:
        return {"name": thing.name, "instructions": thing.instructions}
