"""The addresses of the local API: requests enter the queue, and their events become responses."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.local_api.access import refusal, reply_headers
from engine.local_api.api_request import ApiRequest, read_api_request
from engine.local_api.embeddings import embeddings_reply, read_embeddings_request
from engine.local_api.failures import ApiError, failure_of
from engine.local_api.likelihoods import TokenLikelihood
from engine.local_api.messages_reply import MessagesReply
from engine.local_api.messages_request import read_messages_request
from engine.local_api.parts import Part, WholeAnswer
from engine.local_api.prompts import count_tokens
from engine.local_api.replies import STILL_HERE, CompletionReply, Reply
from engine.local_api.responses_reply import ResponsesReply
from engine.local_api.responses_request import read_responses_request
from engine.local_api.turns import Begun, End, Line, Piece, Turn, TurnEvent

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from engine.local_api.served import ServedModels, Target

log = logging.getLogger(__name__)

STILL_HERE_EVERY_S = 15.0
_LONGEST_CLIENT = 60  # characters of a client's name
_PATHS = (
    "/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
    "/v1/messages/count_tokens",
)  # fmt: skip
_GONE = ApiError(499, "client_gone", "The client has gone.")

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Dialect:
    """How requests of one address are read, and replies to them written."""

    read: Callable[[bytes], ApiRequest]
    reply: Callable[[ApiRequest, str], Reply]


CHAT = Dialect(partial(read_api_request, "chat"), CompletionReply)
COMPLETION = Dialect(partial(read_api_request, "completion"), CompletionReply)
RESPONSES = Dialect(read_responses_request, ResponsesReply)
MESSAGES = Dialect(read_messages_request, MessagesReply)


class Routes:
    """refused: called with every failure."""

    def __init__(self, line: Line, models: ServedModels, refused: Callable[[ApiError], None]) -> None:
        self._line, self._served, self._refused = line, models, refused

    def application(self) -> Starlette:
        app = Starlette(
            routes=[
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/models/{name:path}", self._model, methods=["GET"]),
                Route("/v1/chat/completions", self._endpoint(CHAT), methods=["POST"]),
                Route("/v1/completions", self._endpoint(COMPLETION), methods=["POST"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
                Route("/v1/responses", self._endpoint(RESPONSES), methods=["POST"]),
                Route("/v1/messages", self._endpoint(MESSAGES), methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
            ],
            exception_handlers={ApiError: self._refuse, HTTPException: self._refuse_unknown, Exception: self._refuse},
        )
        app.router.redirect_slashes = False
        return app

    async def _models(self, request: Request) -> Response:
        listed = await asyncio.to_thread(self._served.listed)
        ends = {"first_id": listed[0]["id"] if listed else None, "last_id": listed[-1]["id"] if listed else None}
        return JSONResponse({"object": "list", "data": listed, "has_more": False, **ends}, headers=reply_headers())

    async def _model(self, request: Request) -> Response:
        target = await self._target(request.path_params["name"])
        return JSONResponse(await asyncio.to_thread(self._served.values, target), headers=reply_headers())

    async def _count_tokens(self, request: Request) -> Response:
        api_request = read_messages_request(await request.body(), counts=True)
        target, model = await self._target(api_request.model), self._served.loaded()
        if model is not None and target.is_model(model):
            n_tokens = await asyncio.to_thread(count_tokens, api_request, model)
        else:
            n_tokens = (await self._end_of(request, replace(api_request, counts=True), target)).prompt_tokens
        return JSONResponse({"input_tokens": n_tokens}, headers=reply_headers(api_request.ignored))

    async def _embeddings(self, request: Request) -> Response:
        api_request = read_embeddings_request(await request.body())
        target = await self._target(api_request.model)
        end = await self._end_of(request, api_request, target)
        reply = await asyncio.to_thread(embeddings_reply, api_request, target.name, end)
        return JSONResponse(reply, headers=reply_headers(api_request.ignored))

    async def _end_of(self, request: Request, api_request: ApiRequest, target: Target) -> End:
        """Return the end of a request that has nothing before it. Raises: ApiError."""
        turn = self._join(request, api_request, target)
        watching = asyncio.create_task(_watch(request, turn))
        try:
            end = await turn.events.get()
        finally:
            watching.cancel()
            self._line.leave(turn)
        if not isinstance(end, End):
            raise _failure(end)
        return end

    def _join(self, request: Request, api_request: ApiRequest, target: Target) -> Turn:
        """Add the request to the queue. Raises: ApiError if that is full."""
        turn = Turn(api_request, _client(request), asyncio.get_running_loop(), target)
        self._line.join(turn)
        return turn

    async def _target(self, name: str) -> Target:
        """Raises: as ServedModels.find."""
        if self._served.loads:  # it may read the list of models
            return await asyncio.to_thread(self._served.find, name)
        return self._served.find(name)

    def _endpoint(self, dialect: Dialect) -> Endpoint:
        async def answer(request: Request) -> Response:
            api_request = dialect.read(await request.body())
            target = await self._target(api_request.model)
            turn = self._join(request, api_request, target)
            watching = asyncio.create_task(_watch(request, turn))
            is_handed_on = False
            try:
                first = await turn.events.get()
                if not isinstance(first, Begun):
                    raise _failure(first)
                reply = dialect.reply(api_request, target.name)
                if api_request.streams:
                    is_handed_on = True
                    return AnswerStream(self._line, turn, self._chunks(turn, reply.opening(first.prompt_tokens), reply))
                return JSONResponse(await _whole(turn, reply), headers=reply_headers(api_request.ignored))
            finally:
                watching.cancel()
                if not is_handed_on:
                    self._line.leave(turn)

        return answer

    async def _chunks(self, turn: Turn, opening: list[str], reply: Reply) -> AsyncIterator[str]:
        for event in opening:
            yield event
        while True:
            try:
                async with asyncio.timeout(STILL_HERE_EVERY_S):
                    news = await turn.events.get()
            except TimeoutError:
                yield STILL_HERE
                continue
            if isinstance(news, Piece):
                for event in reply.piece(news.parts, news.tokens):
                    yield event
                continue
            if isinstance(news, End):
                last = reply.closing(news)
            else:
                failure = _failure(news)
                self._refused(failure)
                last = reply.failed(failure)
            for event in last:
                yield event
            return

    async def _refuse(self, request: Request, error: Exception) -> Response:
        failure = failure_of(error)
        if failure is not _GONE:
            self._refused(failure)
        response: Response = refusal(failure, request.url.path)
        return response

    async def _refuse_unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path[:100]
        if error.status_code == 405:
            failure = ApiError(405, "method_not_allowed", f"{path} does not take {request.method}.",
                                 headers=dict(error.headers or {}))  # fmt: skip
        else:
            failure = ApiError(404, "not_found", f"There is no {path} here; there are {', '.join(_PATHS)}.")
        return await self._refuse(request, failure)


class AnswerStream(StreamingResponse):
    """A stream of events. Its request ends with it in every case, also before the first event was read."""

    def __init__(self, line: Line, turn: Turn, chunks: AsyncIterator[str]) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers=reply_headers(turn.api_request.ignored))
        self._line, self._turn = line, turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._line.leave(self._turn)


async def _whole(turn: Turn, reply: Reply) -> dict[str, Any]:
    """Raises: ApiError."""
    found, tokens = list[Part](), list[TokenLikelihood]()
    while True:
        news = await turn.events.get()
        if isinstance(news, End):
            return reply.whole(WholeAnswer.of(found), tokens, news)
        if not isinstance(news, Piece):
            raise _failure(news)
        found += news.parts
        tokens += news.tokens


async def _watch(request: Request, turn: Turn) -> None:
    """End the request when its client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    turn.leave()
    turn.events.put_nowait(_GONE)


def _failure(news: TurnEvent) -> ApiError:
    assert isinstance(news, ApiError), "an answer begins once, and nothing follows its end"
    return news


def _client(request: Request) -> str:
    """Return the client's name, safe to show."""
    name = re.sub(r"[^ -~]+", " ", request.headers.get("user-agent", "")).strip()
    return name[:_LONGEST_CLIENT]
