"""Failures as clients of OpenAI's API expect them, each with a status and a clear message."""

from __future__ import annotations

import logging
from typing import Any

from engine import errors

log = logging.getLogger(__name__)


class ApiError(Exception):
    """A request that gets no answer. code: for programs; param: the invalid field, if any."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}
        self.message, self.param = _sendable(message), None if param is None else _sendable(param)

    @property
    def values(self) -> dict[str, Any]:
        """Return the body of a response, or of an event in a stream."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def anthropic_values(self) -> dict[str, Any]:
        """Return the body of a response as Anthropic's API has it, with param and code beside."""
        kind = _ANTHROPIC_KINDS.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        about = {"type": kind, "message": self.message, "param": self.param, "code": self.code}
        return {"type": "error", "error": about}


_ANTHROPIC_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error",
}  # fmt: skip


def _sendable(text: str) -> str:
    """Return the text with unpaired surrogates, which JSON allows and UTF-8 does not, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def wrong(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """Return the error for invalid values in a request."""
    return ApiError(400, code, message, param)


def no_model() -> ApiError:
    return ApiError(503, "no_model", "No model is loaded. Load one in Hearth, then ask again.")


def interrupted(why: str) -> ApiError:
    """Return the error for an answer that cannot be completed; it may be requested again."""
    return ApiError(503, "interrupted", why)


# Status and code for errors of the engine; the nearest base class counts.
_REFUSALS: dict[type[errors.EngineError], tuple[int, str]] = {
    errors.ContextOverflowError: (400, "context_length_exceeded"),
    errors.InvalidRequestError: (400, "invalid_value"),
    errors.UnsupportedModelError: (400, "unsupported_model"),
    errors.ChatTemplateError: (400, "chat_template_failed"),
    errors.HostMemoryError: (503, "out_of_memory"),
    errors.DeviceMemoryError: (503, "out_of_memory"),
    errors.DeviceFailedError: (503, "device_failed"),
}


def failure_of(error: Exception) -> ApiError:
    """Return the client's error for an exception. A bug is logged in full and reported in one sentence."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, errors.EngineError):
        status, code = next((_REFUSALS[cls] for cls in type(error).__mro__ if cls in _REFUSALS), (500, "engine_failed"))
        return ApiError(status, code, f"{error.message} {error.hint}" if status >= 500 else error.message)
    if isinstance(error, MemoryError):
        return ApiError(503, "out_of_memory", "The memory is used up. Close other programs, or request less.")
    log.error("A request of the local API failed", exc_info=error)
    return ApiError(500, "internal_error", "Hearth has a fault of its own; its log says more.")
