"""A request for one answer, as plain data: what engine_client.py and remote_client.py send."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.clients.servers import Place


@dataclass(frozen=True)
class AnswerRequest:
    """One answer to be given. continues: the last message is the model's own and is written on. place: the server
    that is to give it; None: this PC."""

    messages: list[dict[str, str]]
    sampling: dict[str, Any] = field(default_factory=dict)
    mode: str | None = None
    overflow: str = "roll"
    continues: bool = False
    place: Place | None = None
