"""The status of one chat, from the status of the engine or the server that answers it. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.chat.store.conversation import Message
from app.clients.engine_status import EngineStatus, Phase
from app.clients.servers import Place


def status_here(
    engine: EngineStatus, can_load: str, is_asked: bool, is_running: bool, shown: Sequence[Message]
) -> EngineStatus:
    """Return the status of a chat that this PC answers.

    can_load: name of the model that the next message loads. is_asked: whether an answer runs or waits. shown: the
    chat's messages, whose last figures count while it is not being answered.
    """
    status = engine
    if status.phase in (Phase.OFF, Phase.FAILED):
        status = replace(status, can_load=can_load)
    if is_running:
        return status
    if is_asked:  # it waits for the engine or another chat's answer
        can_think = status.answering or status.phase is Phase.READY
        return replace(status, phase=Phase.THINKING if can_think else status.phase, queued=True)
    stats = next((m.stats for m in reversed(shown) if m.stats), {})
    return replace(
        status,
        phase=Phase.READY if status.answering else status.phase,
        tok_s=stats.get("decode_tok_s"),
        tokens=stats.get("tokens", 0),
        context_used=stats.get("context_used"),
        left_out=stats.get("left_out", stats.get("dropped_messages")) or 0,
        gpu_share=stats.get("gpu_neuron_load") if status.gpu else None,
    )


def status_at(place: Place, is_asked: bool, shown: Sequence[Message]) -> EngineStatus:
    """Return the status of a chat that a server answers, whatever the engine does. is_asked, shown: as above."""
    server = place.server
    status = EngineStatus(Phase.READY, place.model, server=server.name, host=server.host, server_here=server.is_here)
    if is_asked:
        return replace(status, phase=Phase.THINKING, queued=True)
    stats = next((m.stats for m in reversed(shown) if m.stats and m.stats.get("server") == server.name), {})
    return replace(status, tok_s=stats.get("decode_tok_s"), tokens=stats.get("tokens") or 0)
