"""Ask an OpenAI-compatible server for its models, or for an answer to a chat.

The key is sent only to the server's own address. Nothing is retried: a chat is sent again only by the user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import (
    Cancelled,
    ContextOverflowError,
    InvalidRequestError,
    RemoteKeyError,
    RemoteServerError,
    RemoteUnreachableError,
)
from engine.job import CancelCheck, never
from engine.remote_servers.connection import Connection
from engine.remote_servers.wire import AnswerText, EventReader, StrangeAnswerError, is_name, models_in, parsed, said_in

if TYPE_CHECKING:
    import httpx2

MAX_MODELS = 1000
MAX_LIST_BYTES = 4 << 20
MAX_FAILURE_BYTES = 64 << 10
SAY_EVERY_S = 1 / 30
# Sampling values that every such server accepts; the others are specific to this engine.
SENT = ("temperature", "top_p", "max_tokens", "seed", "stop")
MOST_STOPS = 4
_FULL = ("context_length", "maximum context", "context length", "context window", "too long")

Say = Callable[[str, int], None]


@dataclass(frozen=True)
class RemoteServer:
    """A server. address: from checked_address. name: the user's name for it. key: "" if none is needed."""

    address: str
    name: str
    key: str = ""

    def __repr__(self) -> str:
        return f"RemoteServer({self.address!r}, {self.name!r})"

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    # --- models

    def models(self, cancelled: CancelCheck = never) -> list[str]:
        """Return the ids of its models, at most MAX_MODELS. Raises: Cancelled, RemoteServerError."""
        with closing(Connection(self.name, cancelled)) as connection:
            response = connection.open("GET", f"{self.address}/models", self._headers())
            body = self._whole(connection, MAX_LIST_BYTES if response.status_code == 200 else MAX_FAILURE_BYTES)
            if response.status_code != 200:
                raise self._refusal(response, body, "")
            self._check_coding(response)
        try:
            return models_in(parsed(body), MAX_MODELS)
        except StrangeAnswerError as error:
            raise self._strange(error) from None

    # --- an answer

    def answer(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        sampling: Mapping[str, Any],
        say: Say = lambda text, pieces: None,
        cancelled: CancelCheck = never,
    ) -> dict[str, Any]:
        """Request an answer; call `say` with each new text and the number of pieces so far.

        Returns text, finish_reason (stop, length, cancelled), tokens and prompt_tokens as the server counts them (None
        if it does not), total_s, ttft_s, decode_tok_s. Raises: RemoteServerError and subclasses, ContextOverflowError.
        """
        if not is_name(model):
            raise InvalidRequestError("That is not the name of a model.")
        said = _Said(say)
        try:
            with closing(Connection(self.name, cancelled)) as connection:
                self._converse(connection, _body(model, messages, sampling), said)
        except Cancelled:
            said.add(said.answer.close())
            said.answer.finish_reason = "cancelled"
        finally:
            said.flush()
        return said.result()

    def _converse(self, connection: Connection, body: dict[str, Any], said: _Said) -> None:
        url = f"{self.address}/chat/completions"
        response = connection.open("POST", url, {**self._headers(), "Accept": "text/event-stream"}, body)
        if response.status_code != 200:
            raise self._refusal(response, self._whole(connection, MAX_FAILURE_BYTES), str(body["model"]))
        self._check_coding(response)
        try:
            if "event-stream" in response.headers.get("content-type", ""):
                self._hear(connection, said)
            else:  # it does not stream
                said.add(said.answer.take(parsed(self._whole(connection, MAX_LIST_BYTES))))
        except StrangeAnswerError as error:
            raise self._strange(error) from None
        if not said.answer.finish_reason:
            raise RemoteUnreachableError(f"The connection to {self.name} was lost.")

    def _hear(self, connection: Connection, said: _Said) -> None:
        events = EventReader()
        for block in connection.blocks():
            if block is None:
                said.flush()
                continue
            for data in events.feed(block):
                if data.strip() == "[DONE]":
                    said.end()
                    return
                said.add(said.answer.take(parsed(data)))
                if said.answer.is_full:
                    return
        for data in events.end():
            if data.strip() != "[DONE]":
                said.add(said.answer.take(parsed(data)))

    # --- failures

    @staticmethod
    def _whole(connection: Connection, most: int) -> bytes:
        body = bytearray()
        for block in connection.blocks():
            body += block or b""
            if len(body) > most:
                break
        return bytes(body[:most])

    def _check_coding(self, response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self._strange(StrangeAnswerError("it is packed"))

    def _strange(self, error: StrangeAnswerError) -> RemoteServerError:
        return RemoteServerError(
            f"{self.name} answers in another way than such servers do ({error}).", "Check the server's address."
        )

    def _refusal(self, response: httpx2.Response, body: bytes, model: str) -> Exception:
        """Return the exception for a status other than 200."""
        status = response.status_code
        try:
            said = said_in(parsed(body))
        except StrangeAnswerError:
            said = ""
        words = f" ({status}: {said})" if said else f" ({status})"
        if 300 <= status < 400:
            return RemoteServerError(
                f"{self.name} redirects to another address, which Hearth does not follow.",
                "Enter the server's own address.",
            )
        if status in (401, 403):
            return RemoteKeyError(f"{self.name} does not accept the key{words}.")
        if status in (400, 413, 422) and any(word in said.lower() for word in _FULL):
            return ContextOverflowError(f"The chat is longer than {model} on {self.name} can see at once.")
        if status == 404 and model:
            return RemoteServerError(f"{self.name} has no model called {model}.", "Choose another of its models.")
        if status == 429:
            return RemoteServerError(
                f"{self.name} asks to wait: there were too many requests.", "Try again in some minutes."
            )
        if status >= 500:
            return RemoteServerError(f"{self.name} failed{words}.", "Try again in some minutes.")
        return RemoteServerError(f"{self.name} does not take the request{words}.", "Check the server's address.")


class _Said:
    """The answer so far, passed on at a pace that the window can follow, with its times."""

    def __init__(self, say: Say) -> None:
        self.answer = AnswerText()
        self._say = say
        self._parts: list[str] = []
        self._waiting: list[str] = []
        self._began = time.perf_counter()
        self._first: float | None = None
        self._last = self._began
        self._reported_at = 0.0

    def add(self, text: str) -> None:
        now = time.perf_counter()
        if text:
            self._first = self._first or now
            self._last = now
            self._parts.append(text)
            self._waiting.append(text)
        if self._waiting and now - self._reported_at >= SAY_EVERY_S:
            self.flush()

    def end(self) -> None:
        """Handle the server's end marker."""
        self.add(self.answer.close())
        self.answer.finish_reason = self.answer.finish_reason or "stop"

    def flush(self) -> None:
        if self._waiting:
            text, self._waiting = "".join(self._waiting), []
            self._reported_at = time.perf_counter()
            self._say(text, self.answer.pieces)

    def result(self) -> dict[str, Any]:
        answer, first = self.answer, self._first
        span = self._last - first if first is not None else 0.0
        counted = answer.tokens if answer.tokens and answer.tokens > 1 else None
        return {
            "text": "".join(self._parts), "finish_reason": answer.finish_reason, "tokens": answer.tokens,
            "prompt_tokens": answer.prompt_tokens, "total_s": time.perf_counter() - self._began,
            "ttft_s": None if first is None else first - self._began,
            "decode_tok_s": (counted - 1) / span if counted and span > 0 else None,
        }  # fmt: skip


def _body(model: str, messages: Sequence[Mapping[str, str]], sampling: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {name: sampling[name] for name in SENT if sampling.get(name) not in (None, (), [])}
    if "stop" in chosen:
        chosen["stop"] = list(chosen["stop"])[:MOST_STOPS]
    said = [{"role": str(one["role"]), "content": str(one["content"])} for one in messages]
    return {
        "model": model, "messages": said, "stream": True, "stream_options": {"include_usage": True}, **chosen
    }  # fmt: skip
