"""What a person can do with one message of a chat, as plain data from the page to whoever does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Act = Literal["edit", "regenerate", "continue", "delete", "switch"]


@dataclass(frozen=True)
class MessageAct:
    """One act. text: what an edited message says now; step: to which version to switch, counted from this one."""

    act: Act
    message_id: str
    text: str = ""
    step: int = 0
