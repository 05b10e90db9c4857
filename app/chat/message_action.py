"""A user's action on one message of a chat, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.chat.store.conversation import Message, MessageState, Role

_CUT = {MessageState.LENGTH, MessageState.CANCELLED, MessageState.FAILED, MessageState.INTERRUPTED}

ActionName = Literal[
    "edit", "regenerate", "other_model", "continue", "delete", "switch", "unsummarise", "note", "print",
    "inspect", "side_by_side",
    "allow_once", "allow_in_chat", "allow_in_folder", "refuse", "accept", "decline", "cancel",
]  # fmt: skip


@dataclass(frozen=True)
class MessageAction:
    """One action. text: of an edited message. step: the version to switch to, relative to this one.

    "note" adds `text` to the notes of the project. "print" asks how the message is printed or exported. "inspect" opens
    the inspector. "other_model" is "regenerate" after the user chose another model. "side_by_side" shows all versions
    of an answer. "unsummarise" is of the whole branch. "allow_once" to "refuse" answer the question whether a call of a
    tool may run; the last three reply to a question of its server with `values`. call_id: of that call.
    """

    act: ActionName
    message_id: str
    text: str = ""
    step: int = 0
    call_id: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def can_continue(message: Message) -> bool:
    """Whether an answer ended before its end, with words that can be written on.

    A server's answer cannot: its API has no agreed way to ask for that, and many would begin the answer again.
    """
    if (message.stats or {}).get("server"):
        return False
    ended_early = message.role is Role.ASSISTANT and message.state in _CUT and not message.calls
    return ended_early and bool(message.text.strip())
