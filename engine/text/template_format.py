"""str.format and str.format_map for chat templates: Jinja's sandboxed formatter, with limits on width and size.

Attributes and items in a format string pass through the sandbox, as in any expression of a template.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jinja2.sandbox import SandboxedFormatter

from engine.errors import ChatTemplateError

if TYPE_CHECKING:
    from engine.text.template_sandbox import TemplateSandbox

_WIDE = re.compile(r"\d{4}")


class BoundedFormatter(SandboxedFormatter):
    """Formats one text. Raises: ChatTemplateError for a width or precision above 999, or a result beyond the budget."""

    def __init__(self, sandbox: TemplateSandbox) -> None:
        super().__init__(sandbox)
        self._budget = sandbox.budget
        self._written = 0

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._budget.tick()
        self._budget.weigh(value, printable=True)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        # Python has inserted the widths from the arguments before it calls this.
        if _WIDE.search(format_spec):
            raise ChatTemplateError("The model's chat template formats with a width of more than 999 characters.")
        text: str = super().format_field(value, format_spec)
        self._written += len(text)
        self._budget.allow(self._written)
        return text
