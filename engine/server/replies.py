"""Answers in the shape of OpenAI's API: complete, or as the chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from engine.server.api_request import ApiRequest, What
from engine.server.likelihoods import Likelihood, TokenLikelihood
from engine.server.turns import End
from engine.text.thoughts import ReplySplitter

DONE = "data: [DONE]\n\n"
STILL_HERE = ": one moment\n\n"  # a comment, by which a client sees that the connection lives

_PREFIXES: dict[What, str] = {"chat": "chatcmpl-", "completion": "cmpl-"}
_KINDS: dict[tuple[What, bool], str] = {
    ("chat", False): "chat.completion",
    ("chat", True): "chat.completion.chunk",
    ("completion", False): "text_completion",
    ("completion", True): "text_completion",
}


def event(values: dict[str, Any]) -> str:
    """Return one event of a stream."""
    return f"data: {json.dumps(values, allow_nan=False)}\n\n"


class Reply:
    """The reply to one request, by the model with that name."""

    def __init__(self, api_request: ApiRequest, model: str) -> None:
        self._api_request = api_request
        self._is_chat = api_request.what == "chat"
        self._splitter = ReplySplitter()
        self._head = {
            "id": _PREFIXES[api_request.what] + uuid.uuid4().hex,
            "object": _KINDS[api_request.what, api_request.streams],
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, tokens: Sequence[TokenLikelihood], end: End) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if self._is_chat:
            parts = zip(self._splitter.append(text), self._splitter.finish(), strict=True)  # as in a stream
            thought, answer = ("".join(part) for part in parts)
            told = {"reasoning_content": thought} if thought else {}
            said = {"message": {"role": "assistant", "content": answer, "refusal": None, **told}}
        return {
            **self._head,
            "choices": [self._choice(said, tokens, end.finish_reason)],
            "usage": _usage(end),
        }

    def opening(self) -> dict[str, Any] | None:
        """Return the first chunk of a stream; None for an empty one."""
        if not self._is_chat:
            return None
        return self._chunk(self._choice({"delta": {"role": "assistant", "content": ""}}, (), None))

    def piece(self, text: str, tokens: Sequence[TokenLikelihood]) -> dict[str, Any] | None:
        """Return the chunk for more of the answer; None while its text may be the beginning of a mark."""
        said: dict[str, Any] = {"text": text}
        if self._is_chat:
            said = {"delta": _delta(*self._splitter.append(text))}
            if not said["delta"] and not tokens:
                return None
        return self._chunk(self._choice(said, tokens, None))

    def closing(self, end: End) -> dict[str, Any]:
        """Return the last chunk of the answer, with the text that `piece` held back."""
        said: dict[str, Any] = {"delta": _delta(*self._splitter.finish())} if self._is_chat else {"text": ""}
        return self._chunk(self._choice(said, (), end.finish_reason))

    def usage(self, end: End) -> dict[str, Any] | None:
        """Return the last chunk, if the client requested it."""
        return {**self._head, "choices": [], "usage": _usage(end)} if self._api_request.tells_usage else None

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self._api_request.tells_usage else {}
        return {**self._head, "choices": [choice], **usage}

    def _choice(
        self, said: dict[str, Any], tokens: Sequence[TokenLikelihood], finish_reason: str | None
    ) -> dict[str, Any]:
        logprobs: dict[str, Any] | None = None
        if self._api_request.alternatives is not None and (tokens or not self._api_request.streams):
            logprobs = _of_chat(tokens) if self._is_chat else _of_completion(tokens)
        return {"index": 0, **said, "logprobs": logprobs, "finish_reason": finish_reason}


def _delta(thought: str, answer: str) -> dict[str, str]:
    parts = {"reasoning_content": thought, "content": answer}
    return {name: text for name, text in parts.items() if text}


def _usage(end: End) -> dict[str, Any]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.tokens,
        "total_tokens": end.prompt_tokens + end.tokens,
        "prompt_tokens_details": {"cached_tokens": end.reused_tokens},
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
