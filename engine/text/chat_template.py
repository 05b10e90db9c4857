"""A model's chat template: messages in, prompt text out.

engine/text/tokenizer.py makes token ids. The template is an untrusted program: it runs in the sandbox of
engine/text/template_sandbox.py, which limits its time, output and memory. Every failure is a ChatTemplateError.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.errors import ChatTemplateError

if TYPE_CHECKING:
    from jinja2 import Template

TIME_LIMIT_S = 2.0
OUTPUT_LIMIT_CHARS = 4 << 20
SOURCE_LIMIT_CHARS = 128 << 10  # the largest templates in use have 30 thousand


class ChatTemplate:
    """A template and the two tokens it may name. Compiled at the first rendering; renderings are serialised.

    name: "own" for a model's own, else the built-in one's. stops: texts, also of special tokens, that end an answer.
    """

    def __init__(
        self,
        source: str,
        bos_token: str | None = None,
        eos_token: str | None = None,
        *,
        name: str = "own",
        stops: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        self.name = name
        self.stops = stops
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self._compiled: Template | None = None
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the prompt for these messages, as transformers' apply_chat_template would write it.

        variables: further ones for the template. tools: as OpenAI's API lists them.
        Cost: about 60 ms the first time (jinja2 loads), then below 1 ms; at most TIME_LIMIT_S of this thread's CPU time
        each for compiling and rendering, and OUTPUT_LIMIT_CHARS. Raises: ChatTemplateError, with the template's message
        if it called raise_exception.
        """
        with self._lock:
            try:
                template = self._template()
                values = {
                    **(variables or {}),
                    **self._tokens,
                    "messages": [dict(message) for message in messages],
                    "add_generation_prompt": add_generation_prompt,
                    "tools": tools,
                    "documents": None,
                }
                return "".join(template.root_render_func(template.new_context(values)))
            except ChatTemplateError:
                raise
            except RecursionError:
                raise ChatTemplateError("The model's chat template is nested or calls itself too deeply.") from None
            except MemoryError:
                raise ChatTemplateError("The model's chat template needs more memory than there is.") from None
            except Exception as error:
                raise ChatTemplateError(_in_words(error)) from error

    def _template(self) -> Template:
        from engine.text.template_budget import Budget
        from engine.text.template_sandbox import TemplateSandbox

        if len(self.source) > SOURCE_LIMIT_CHARS:
            raise ChatTemplateError(
                f"The model's chat template has {len(self.source)} characters; {SOURCE_LIMIT_CHARS} are allowed."
            )
        if self._compiled is None:
            sandbox = TemplateSandbox(Budget(TIME_LIMIT_S, OUTPUT_LIMIT_CHARS))
            self._compiled = sandbox.from_string(self.source)
        environment = self._compiled.environment
        assert isinstance(environment, TemplateSandbox)
        environment.budget = Budget(TIME_LIMIT_S, OUTPUT_LIMIT_CHARS)
        return self._compiled


def _in_words(error: Exception) -> str:
    """Return one sentence for any exception of Jinja or of the template's own expressions."""
    from jinja2 import TemplateSyntaxError
    from jinja2.exceptions import SecurityError

    words = " ".join(str(error).split())[:300] or "it gives no reason"
    if isinstance(error, TemplateSyntaxError):
        return f"The model's chat template is wrong in line {error.lineno}: {words}"
    if isinstance(error, SecurityError):
        return f"The model's chat template reaches for something forbidden: {words}"
    return f"The model's chat template failed: {words}"
