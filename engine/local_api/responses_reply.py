"""Answers in the shape of OpenAI's Responses API: complete, or as the events of a stream."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from engine.local_api.api_request import ApiRequest
from engine.local_api.failures import ApiError
from engine.local_api.likelihoods import TokenLikelihood
from engine.local_api.parts import Part, ThoughtPart, WholeAnswer
from engine.local_api.replies import event
from engine.local_api.turns import End
from engine.tool_calls.call_reader import ArgumentsPart, CallPart

_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
# Of items with content: the type of its part, and the name of its events.
_CONTENTS = {
    "message": ("output_text", "response.output_text"),
    "reasoning": ("reasoning_text", "response.reasoning_text"),
}


class ResponsesReply:
    """The reply to one request, by the model with that name."""

    def __init__(self, api_request: ApiRequest, model: str) -> None:
        sampling, use = api_request.sampling, api_request.use
        constraint = api_request.constraint
        tools = [{"type": "function", "strict": None, **tool.values["function"]} for tool in use.tools]
        text_format = (
            {"type": "text"}
            if constraint is None
            else {"type": "json_schema", "name": "answer", "schema": constraint.source}
        )
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": int(time.time()), "model": model,
            "error": None, "incomplete_details": None, "instructions": api_request.instructions, "metadata": {},
            "max_output_tokens": sampling.get("max_tokens"), "temperature": sampling.get("temperature"),
            "top_p": sampling.get("top_p"), "parallel_tool_calls": use.is_parallel, "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None}, "store": False, "text": {"format": text_format},
            "tool_choice": use.choice, "tools": tools, "truncation": "disabled", "usage": None,
        }  # fmt: skip
        self._items: list[dict[str, Any]] = []  # the last one may be open
        self._is_open = False
        self._numbers = itertools.count()

    def whole(self, answer: WholeAnswer, tokens: Sequence[TokenLikelihood], end: End) -> dict[str, Any]:
        self.piece(list(answer.parts), tokens)
        self._close(end)
        return self._response(end)

    def opening(self, prompt_tokens: int) -> list[str]:
        response = {**self._head, "status": "in_progress", "output": []}
        return [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]

    def piece(self, parts: Sequence[Part], tokens: Sequence[TokenLikelihood]) -> list[str]:
        return [text for part in parts for text in self._of(part)]

    def closing(self, end: End) -> list[str]:
        closed, response = self._close(end), self._response(end)
        return [*closed, self._event(f"response.{response['status']}", response=response)]

    def failed(self, failure: ApiError) -> list[str]:
        error = {"code": failure.code, "message": failure.message}
        response = {**self._head, "status": "failed", "error": error, "output": self._items}
        return [self._event("response.failed", response=response)]

    def _response(self, end: End) -> dict[str, Any]:
        is_cut = end.finish_reason == "length"
        return {
            **self._head,
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": self._items,
            "usage": _usage(end),
        }

    def _of(self, part: Part) -> Iterable[str]:
        if isinstance(part, CallPart):
            yield from self._close()
            yield self._begin("function_call", call_id=part.id, name=part.name, arguments="")
        elif isinstance(part, ArgumentsPart):
            self._items[-1]["arguments"] += part.text
            yield self._about_item("response.function_call_arguments.delta", delta=part.text)
        else:
            yield from self._more("reasoning" if isinstance(part, ThoughtPart) else "message", part.text)

    def _more(self, kind: str, text: str) -> Iterable[str]:
        part, name = _CONTENTS[kind]
        if not self._is_open or self._items[-1]["type"] != kind:
            yield from self._close()
            own: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
            yield self._begin(kind, **own, content=[])
            extra: dict[str, Any] = {"annotations": [], "logprobs": []} if kind == "message" else {}
            self._items[-1]["content"].append({"type": part, "text": "", **extra})
            yield self._about_item("response.content_part.added", content_index=0, part=self._items[-1]["content"][0])
        self._items[-1]["content"][0]["text"] += text
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._about_item(f"{name}.delta", content_index=0, delta=text, **logprobs)

    def _begin(self, kind: str, **values: Any) -> str:
        item = {"type": kind, "id": _PREFIXES[kind] + uuid.uuid4().hex, "status": "in_progress", **values}
        self._items.append(item)
        self._is_open = True
        return self._event("response.output_item.added", output_index=len(self._items) - 1, item=item)

    def _close(self, end: End | None = None) -> list[str]:
        """Close the open item. end: of the answer, which may have cut it off."""
        if not self._is_open:
            return []
        self._is_open = False
        item = self._items[-1]
        item["status"] = "incomplete" if end is not None and end.finish_reason == "length" else "completed"
        if item["type"] == "function_call":
            done = [
                self._about_item(
                    "response.function_call_arguments.done", arguments=item["arguments"], name=item["name"]
                )
            ]
        else:
            part, name = item["content"][0], _CONTENTS[item["type"]][1]
            logprobs: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
            done = [
                self._about_item(f"{name}.done", content_index=0, text=part["text"], **logprobs),
                self._about_item("response.content_part.done", content_index=0, part=part),
            ]
        return [*done, self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)]

    def _about_item(self, kind: str, **values: Any) -> str:
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **values)

    def _event(self, kind: str, **values: Any) -> str:
        return event({"type": kind, "sequence_number": next(self._numbers), **values}, kind)


def _usage(end: End) -> dict[str, Any]:
    return {
        "input_tokens": end.prompt_tokens,
        "input_tokens_details": {"cached_tokens": end.reused_tokens},
        "output_tokens": end.tokens,
        "output_tokens_details": {"reasoning_tokens": end.thought_tokens},
        "total_tokens": end.prompt_tokens + end.tokens,
    }
