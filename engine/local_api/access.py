"""Access checks: Host and key are verified, and bodies limited in size and time, before any other processing.

A web page in a browser can reach this port, even under its own domain name. So the name must be this machine's, and
other origins get no response data. Every refusal has the shape of OpenAI's or Anthropic's, depending on the path.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.local_api.failures import ApiError
from engine.local_api.keys import KeyCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 4 << 20
BODY_S = 30.0  # until a body is there
MOST_REQUESTS = 64  # at once, those that wait in the line included
LET_IN = "hearth_let_in"  # in the scope of a request that brought the key
_CLOSE = {"Connection": "close"}  # not where a body may still be coming: its sender would hear of a reset alone
ANTHROPIC_PATH = "/v1/messages"  # and what begins with it
IGNORED_FIELDS = "Hearth-Ignored-Fields"  # header of a response
_MOST_NAMES, _LONGEST_NAME = 20, 80  # in it
_SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Access:
    """Middleware in front of the application. key: a new one applies from the next request on."""

    def __init__(self, app: ASGIApp, key: KeyCheck, port: int, refused: Callable[[ApiError], None]) -> None:
        self._app = app
        self.key = key
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        self._refused = refused
        self._n_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_let_in = False
        try:
            try:
                self._check(scope["headers"])
                scope[LET_IN] = is_let_in = True
                self._n_requests += 1
                self._check_room()
                body = await _body(scope["headers"], receive)
            except ApiError as failure:
                self._refused(failure)
                await refusal(failure, scope["path"])(scope, receive, send)
                return
            await self._app(scope, _with_body(body, receive), send)
        finally:
            self._n_requests -= is_let_in

    def _check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Raises: ApiError."""
        if [value.strip().lower() for name, value in headers if name == b"host"] not in [
            [host] for host in self._hosts
        ]:
            raise ApiError(
                403, "host_not_allowed", "This server answers only to 127.0.0.1 and localhost with its port as host."
            )  # fmt: skip
        bearer = [value for name, value in headers if name == b"authorization"]
        keys = [value for name, value in headers if name == b"x-api-key"]
        if not bearer and not keys:
            raise _unknown("The key is missing: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'.")
        scheme, _, key = bearer[0].partition(b" ") if len(bearer) == 1 else (b"", b"", b"")
        keys = [*(keys if len(keys) == 1 else []), *([key] if scheme.lower() == b"bearer" else [])]
        if not any(self.key.fits(key.strip()) for key in keys):
            raise _unknown("The key is wrong. Hearth shows the right one where the server is switched on.")

    def _check_room(self) -> None:
        """Raises: ApiError. Requests without the key are not counted."""
        if self._n_requests > MOST_REQUESTS:
            raise ApiError(
                429, "too_many_requests", f"More than {MOST_REQUESTS} requests are under way; ask again later.",
                headers={"Retry-After": "2"},
            )  # fmt: skip


def _unknown(message: str) -> ApiError:
    return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})


async def _body(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    """Raises: ApiError if it is too large or arrives too slowly."""
    too_large = ApiError(413, "body_too_large", f"The body is larger than {MOST_BODY_BYTES >> 20} MiB.")
    length = next((value for name, value in headers if name == b"content-length"), b"0")
    if int(length) > MOST_BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "incomplete_body", "The body ended too early.", headers=_CLOSE)
                body += message.get("body", b"")
                if len(body) > MOST_BODY_BYTES:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise ApiError(
            408, "body_too_slow", f"The body was not there after {BODY_S:.0f} seconds.", headers=_CLOSE
        ) from None


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns the body that was read."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return waiting.pop() if waiting else await receive()

    return give


def refusal(failure: ApiError, path: str) -> Any:
    """Return the response for a refusal of a request to a path, in the shape of its API."""
    from starlette.responses import JSONResponse

    values = failure.anthropic_values if path.startswith(ANTHROPIC_PATH) else failure.values
    return JSONResponse(values, failure.status, {**_SAFE_HEADERS, **failure.headers})


def reply_headers(ignored: Sequence[str] = ()) -> dict[str, str]:
    """Return the headers of a response. ignored: fields of the request to name, whatever their characters."""
    if not ignored:
        return dict(_SAFE_HEADERS)
    named = [re.sub(r"[^\w.\[\]-]", "?", name, flags=re.ASCII)[:_LONGEST_NAME] for name in ignored[:_MOST_NAMES]]
    more = ["and others"] if len(ignored) > _MOST_NAMES else []
    return {**_SAFE_HEADERS, IGNORED_FIELDS: ", ".join([*named, *more])}
