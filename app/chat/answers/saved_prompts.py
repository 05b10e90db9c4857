"""Saved prompts: named texts to begin a message with. They may have {variables} to fill in. No Qt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from app.chat.store.preset_store import PresetStore, checked_name
from app.translation import noted, tr

MAX_TEXT = 20_000  # characters
VARIABLE = re.compile(r"\{([^\W\d_][\w -]{0,39})\}")


@dataclass(frozen=True)
class SavedPrompt:
    """text: with variables such as {topic}."""

    id: str
    name: str
    text: str

    @property
    def variables(self) -> list[str]:
        """The names of its variables, each once, in order."""
        return list(dict.fromkeys(VARIABLE.findall(self.text)))


def _built_in() -> list[SavedPrompt]:
    """Return the built-in prompts in the user's language."""
    topic, reader, number, language, text = (
        f"{{{name}}}" for name in (tr("topic"), tr("reader"), tr("number"), tr("language"), tr("text"))
    )
    explain = tr("Explain {topic} so that {reader} understands it.", topic=topic, reader=reader)
    summarise = tr("Summarise this text in at most {number} sentences:", number=number)
    translate = tr("Translate this text into {language}:", language=language)
    return [
        SavedPrompt("explain", tr("Explain"), explain),
        SavedPrompt("summarise", tr("Summarise"), f"{summarise}\n\n{text}"),
        SavedPrompt("translate", tr("Translate"), f"{translate}\n\n{text}"),
    ]


class SavedPrompts(PresetStore[SavedPrompt]):
    """The built-in prompts and the user's own."""

    kind: ClassVar[str] = "prompts"
    holds_none: ClassVar[str] = noted("{name} contains no prompts.")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(_built_in(), path)

    def from_json(self, values: Mapping[str, Any]) -> SavedPrompt:
        text = values.get("text")
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise ValueError(f"A prompt is a text of at most {MAX_TEXT:,} characters.")
        return SavedPrompt(str(values["id"]), checked_name(values.get("name")), text)

    def to_json_values(self, thing: SavedPrompt) -> dict[str, Any]:
        return {"name": thing.name, "text": thing.text}


def matching(prompts: Sequence[SavedPrompt], typed: str) -> list[SavedPrompt]:
    """Return the prompts whose name has what was typed; first those that begin with it."""
    wanted = typed.casefold()
    found = [one for one in prompts if wanted in one.name.casefold()]
    return sorted(found, key=lambda one: not one.name.casefold().startswith(wanted))
