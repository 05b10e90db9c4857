"""The error of a built-in tool: a sentence that the model can read and act on. No Qt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from app.tools.tool import ToolResult
from engine.errors import Cancelled

log = logging.getLogger(__name__)


class ToolError(Exception):
    """A call that failed. `message`: for the model, in English; says what is wrong and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def result_of(name: str, run: Callable[[], str | ToolResult]) -> ToolResult:
    """Return the result of a call; whatever `run` raises becomes an error. The log never holds arguments or texts."""
    try:
        result = run()
        return ToolResult(result) if isinstance(result, str) else result
    except ToolError as error:
        log.info("%s failed, and the model was told why", name)
        return ToolResult(error.message, is_error=True)
    except Cancelled:
        log.info("%s was stopped", name)
        return ToolResult("The call was stopped before it ended.", is_error=True)
    except Exception as error:  # noqa: BLE001 - the model reads that the call failed, whatever the reason
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        place = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
        log.warning("%s failed: %s at %s", name, type(error).__name__, place)  # the message may hold untrusted text
        return ToolResult("The tool failed because of an error in Hearth. Go on without it.", is_error=True)


def text_argument(arguments: Mapping[str, Any], name: str, most: int) -> str:
    """Return an argument that must be text, without spaces around it. Raises ToolError."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolError(f"The argument '{name}' is missing. Give it as text.")
    if len(value) > most:
        raise ToolError(f"The argument '{name}' has {len(value):,} characters; at most {most:,} are allowed.")
    return value.strip()


def whole_argument(arguments: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    """Return an argument that must be a whole number in these bounds. Raises ToolError."""
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ToolError(f"The argument '{name}' must be a whole number between {low:,} and {high:,}.")
    return value
