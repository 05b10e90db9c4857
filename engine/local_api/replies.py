"""Answers in the shape of OpenAI's API: complete, or as the chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from engine.local_api.api_request import ApiRequest, What
from engine.local_api.failures import ApiError
from engine.local_api.likelihoods import Likelihood, TokenLikelihood
from engine.local_api.parts import Part, ThoughtPart, WholeAnswer
from engine.local_api.turns import End
from engine.tool_calls.call_reader import CallPart, TextPart

DONE = "data: [DONE]\n\n"
STILL_HERE = ": one moment\n\n"  # a comment, by which a client sees that the connection lives

_PREFIXES: dict[What, str] = {"chat": "chatcmpl-", "completion": "cmpl-"}
_KINDS: dict[tuple[What, bool], str] = {
    ("chat", False): "chat.completion",
    ("chat", True): "chat.completion.chunk",
    ("completion", False): "text_completion",
    ("completion", True): "text_completion",
}


def event(values: dict[str, Any], kind: str = "") -> str:
    """Return one event of a stream. kind: its type, in protocols that have types."""
    named = f"event: {kind}\n" if kind else ""
    return f"{named}data: {json.dumps(values, allow_nan=False)}\n\n"


class Reply(Protocol):
    """The reply to one request: complete, or as the events of a stream, each a text to send."""

    def whole(self, answer: WholeAnswer, tokens: Sequence[TokenLikelihood], end: End) -> dict[str, Any]:
        """Return the complete reply. answer: all of the answer. tokens: if their probabilities were requested."""

    def opening(self, prompt_tokens: int) -> list[str]:
        """Return the events before the answer."""

    def piece(self, parts: Sequence[Part], tokens: Sequence[TokenLikelihood]) -> list[str]:
        """Return the events for more of the answer."""

    def closing(self, end: End) -> list[str]:
        """Return the events after the answer."""

    def failed(self, failure: ApiError) -> list[str]:
        """Return the events for an answer that could not be completed."""


class CompletionReply:
    """A reply of OpenAI's chat completions or completions, by the model with that name."""

    def __init__(self, api_request: ApiRequest, model: str) -> None:
        self._api_request = api_request
        self._is_chat = api_request.what == "chat"
        self._n_calls = 0
        self._head = {
            "id": _PREFIXES[api_request.what] + uuid.uuid4().hex,
            "object": _KINDS[api_request.what, api_request.streams],
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, answer: WholeAnswer, tokens: Sequence[TokenLikelihood], end: End) -> dict[str, Any]:
        said: dict[str, Any] = {"text": answer.text}
        if self._is_chat:
            message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
            if answer.thought:
                message["reasoning_content"] = answer.thought
            if answer.calls:
                message["content"] = answer.text or None
                message["tool_calls"] = [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in answer.calls
                ]
            said = {"message": message}
        return {
            **self._head,
            "choices": [self._choice(said, tokens, end.finish_reason)],
            "usage": _usage(end),
        }

    def opening(self, prompt_tokens: int) -> list[str]:
        if not self._is_chat:
            return []
        return [self._chunk({"delta": {"role": "assistant", "content": ""}}, ())]

    def piece(self, parts: Sequence[Part], tokens: Sequence[TokenLikelihood]) -> list[str]:
        """Return a chunk for each part. The first one has all tokens."""
        if not self._is_chat:
            return [self._chunk({"text": WholeAnswer.of(parts).text}, tokens)]
        deltas = [self._delta(part) for part in parts] or [{}]
        return [self._chunk({"delta": delta}, () if i else tokens) for i, delta in enumerate(deltas)]

    def closing(self, end: End) -> list[str]:
        said: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        events = [self._chunk(said, (), end.finish_reason)]
        if self._api_request.tells_usage:
            events.append(event({**self._head, "choices": [], "usage": _usage(end)}))
        return [*events, DONE]

    def failed(self, failure: ApiError) -> list[str]:
        return [event(failure.values)]

    def _delta(self, part: Part) -> dict[str, Any]:
        if isinstance(part, ThoughtPart):
            return {"reasoning_content": part.text}
        if isinstance(part, TextPart):
            return {"content": part.text}
        if isinstance(part, CallPart):
            self._n_calls += 1
            function = {"name": part.name, "arguments": ""}
            call = {"index": self._n_calls - 1, "id": part.id, "type": "function", "function": function}
        else:
            call = {"index": self._n_calls - 1, "function": {"arguments": part.text}}
        return {"tool_calls": [call]}

    def _chunk(self, said: dict[str, Any], tokens: Sequence[TokenLikelihood], finish_reason: str | None = None) -> str:
        usage = {"usage": None} if self._api_request.tells_usage else {}
        return event({**self._head, "choices": [self._choice(said, tokens, finish_reason)], **usage})

    def _choice(
        self, said: dict[str, Any], tokens: Sequence[TokenLikelihood], finish_reason: str | None
    ) -> dict[str, Any]:
        logprobs: dict[str, Any] | None = None
        if self._api_request.alternatives is not None and (tokens or not self._api_request.streams):
            logprobs = _of_chat(tokens) if self._is_chat else _of_completion(tokens)
        return {"index": 0, **said, "logprobs": logprobs, "finish_reason": finish_reason}


def _usage(end: End) -> dict[str, Any]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.tokens,
        "total_tokens": end.prompt_tokens + end.tokens,
        "prompt_tokens_details": {"cached_tokens": end.reused_tokens},
        "completion_tokens_details": {"reasoning_tokens": end.thought_tokens},
    }


def _of_chat(tokens: Sequence[TokenLikelihood]) -> dict[str, Any]:
    content = [{**_spelt(token), "top_logprobs": [_spelt(other) for other in token.others]} for token in tokens]
    return {"content": content, "refusal": None}


def _spelt(one: Likelihood) -> dict[str, Any]:
    return {"token": one.text, "logprob": one.logprob, "bytes": list(one.spelt)}


def _of_completion(tokens: Sequence[TokenLikelihood]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{other.text: other.logprob for other in reversed(token.others)} for token in tokens],
        "text_offset": [token.start for token in tokens],
    }
