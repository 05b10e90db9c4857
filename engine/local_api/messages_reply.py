"""Answers in the shape of Anthropic's Messages API: complete, or as the events of a stream."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from engine.local_api.api_request import ApiRequest
from engine.local_api.failures import ApiError
from engine.local_api.likelihoods import TokenLikelihood
from engine.local_api.parts import Part, ThoughtPart, WholeAnswer
from engine.local_api.replies import event
from engine.local_api.turns import End
from engine.tool_calls.call_reader import ArgumentsPart, CallPart

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "cancelled": "end_turn"}
_FIELDS = {"thinking": "thinking", "text": "text", "input_json": "partial_json"}  # of deltas


class MessagesReply:
    """The reply to one request, by the model with that name."""

    def __init__(self, api_request: ApiRequest, model: str) -> None:
        self._stops = api_request.sampling.get("stop", [])
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model}
        self._n_blocks = 0
        self._open = ""  # the kind of the open block

    def whole(self, answer: WholeAnswer, tokens: Sequence[TokenLikelihood], end: End) -> dict[str, Any]:
        """A call whose arguments were cut off is left out."""
        content: list[dict[str, Any]] = []
        if answer.thought:
            content.append({"type": "thinking", "thinking": answer.thought, "signature": ""})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for call in answer.calls:
            try:
                given = json.loads(call.arguments)
            except ValueError:
                continue
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        return {**self._head, "content": content, **self._stopped(end), "usage": _usage(end)}

    def opening(self, prompt_tokens: int) -> list[str]:
        usage = {"input_tokens": prompt_tokens, "output_tokens": 0}
        stopped = {"stop_reason": None, "stop_sequence": None}
        message: dict[str, Any] = {**self._head, "content": [], **stopped, "usage": usage}
        return [_event("message_start", message=message)]

    def piece(self, parts: Sequence[Part], tokens: Sequence[TokenLikelihood]) -> list[str]:
        return [text for part in parts for text in self._of(part)]

    def closing(self, end: End) -> list[str]:
        last = _event("message_delta", delta=self._stopped(end), usage=_usage(end))
        return [*self._close(), last, _event("message_stop")]

    def failed(self, failure: ApiError) -> list[str]:
        return [_event("error", error=failure.anthropic_values["error"])]

    def _of(self, part: Part) -> list[str]:
        if isinstance(part, CallPart):
            block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            return [*self._close(), *self._begin("input_json", block)]
        if isinstance(part, ArgumentsPart):
            return [self._delta("input_json", part.text)]
        if isinstance(part, ThoughtPart):
            return self._more("thinking", part.text, {"type": "thinking", "thinking": "", "signature": ""})
        return self._more("text", part.text, {"type": "text", "text": ""})

    def _more(self, kind: str, text: str, block: dict[str, Any]) -> list[str]:
        begun = [] if self._open == kind else [*self._close(), *self._begin(kind, block)]
        return [*begun, self._delta(kind, text)]

    def _begin(self, kind: str, block: dict[str, Any]) -> list[str]:
        self._open, self._n_blocks = kind, self._n_blocks + 1
        return [_event("content_block_start", index=self._n_blocks - 1, content_block=block)]

    def _delta(self, kind: str, text: str) -> str:
        delta = {"type": f"{kind}_delta", _FIELDS[kind]: text}
        return _event("content_block_delta", index=self._n_blocks - 1, delta=delta)

    def _close(self) -> list[str]:
        was, self._open = self._open, ""
        return [_event("content_block_stop", index=self._n_blocks - 1)] if was else []

    def _stopped(self, end: End) -> dict[str, Any]:
        if end.stop_text in self._stops:
            return {"stop_reason": "stop_sequence", "stop_sequence": end.stop_text}
        return {"stop_reason": _REASONS[end.finish_reason], "stop_sequence": None}


def _usage(end: End) -> dict[str, int]:
    return {
        "input_tokens": end.prompt_tokens - end.reused_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": end.reused_tokens,
        "output_tokens": end.tokens,
    }


def _event(kind: str, **values: Any) -> str:
    return event({"type": kind, **values}, kind)
