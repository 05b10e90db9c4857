"""The tool with which a model proposes a line for the notes of a project. Its calls write nothing by themselves.

It is on in the chats of a project with notes. Each call waits until the user accepts it; no consent covers another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.tools.tool import Tool
from app.translation import noted

PROPOSE_NOTE = "propose_note"
LONGEST_NOTE = 2_000  # characters
ADDED = "The user accepted the note. It is in the notes now."

TOOL = Tool(
    PROPOSE_NOTE,
    noted("Propose a note"),
    "Proposes one short note for the notes of this project. The user accepts or refuses it. Use it for a fact or a "
    "decision that later chats of the project need, not for everything.",
    {
        "type": "object",
        "properties": {"note": {"type": "string", "description": "The note, in one line."}},
        "required": ["note"],
    },
)


def note_in(arguments: Mapping[str, Any]) -> str:
    """Return the proposed note of a call on one line, cut to LONGEST_NOTE characters; "" if there is none."""
    note = arguments.get("note")
    return " ".join(note.split())[:LONGEST_NOTE] if isinstance(note, str) else ""
