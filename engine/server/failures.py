"""Failures in the shape that clients of OpenAI's API know, each with a status and clear words."""

from __future__ import annotations

import logging
from typing import Any

from engine import errors

log = logging.getLogger(__name__)


class ApiError(Exception):
    """A request that gets no answer. code: for programs; param: the field that is wrong, where one is."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}
        self.message, self.param = _sendable(message), None if param is None else _sendable(param)

    @property
    def values(self) -> dict[str, Any]:
        """As the body of a reply, or of an event in a stream."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def _sendable(text: str) -> str:
    """The text with halves of characters, which JSON can bring and UTF-8 cannot carry, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def wrong(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A request whose values make no sense."""
    return ApiError(400, code, message, param)


def no_model() -> ApiError:
    return ApiError(503, "no_model", "No model is loaded. Load one in Hearth, then ask again.")


def interrupted(why: str) -> ApiError:
    """An answer that was begun and cannot be finished; it may be asked for again."""
    return ApiError(503, "interrupted", why)


# The status and code of what the engine refuses; the nearest class counts.
_REFUSALS: dict[type[errors.EngineError], tuple[int, str]] = {
    errors.ContextOverflowError: (400, "context_length_exceeded"),
    errors.InvalidRequestError: (400, "invalid_value"),
    errors.ChatTemplateError: (400, "chat_template_failed"),
    errors.HostMemoryError: (503, "out_of_memory"),
    errors.DeviceMemoryError: (503, "out_of_memory"),
    errors.DeviceFailedError: (503, "device_failed"),
}


def failure_of(error: Exception) -> ApiError:
    """What a client hears of an exception. A bug of ours goes to the log whole, and to the client in one sentence."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, errors.EngineError):
        status, code = next((_REFUSALS[cls] for cls in type(error).__mro__ if cls in _REFUSALS), (500, "engine_failed"))
        return ApiError(status, code, f"{error.message} {error.hint}" if status >= 500 else error.message)
    if isinstance(error, MemoryError):
        return ApiError(503, "out_of_memory", "The memory is used up. Close other programs, or ask for less.")
    log.error("A request of the local API failed", exc_info=error)
    return ApiError(500, "internal_error", "Hearth has a fault of its own; its log says more.")
