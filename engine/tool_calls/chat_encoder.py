"""Encode conversations with tools, calls and results for a model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.errors import ChatTemplateError
from engine.tool_calls.call_style import call_style
from engine.tool_calls.tool import Tool

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer
    from engine.thinking_level import Level

Message = dict[str, Any]


def chat_encoder(
    tokenizer: Tokenizer, tools: Sequence[Tool] = (), thinking: Level | None = None, continues: bool = False
) -> Callable[[list[Message]], list[int]]:
    """Return what encodes messages as a prompt. Messages are as CallStyle.prepare takes them.
    continues: the last one is the assistant's, and is continued.

    Some templates fail for some schemas of tools; then the tools are described in the system message. What is returned
    raises ChatTemplateError and InvalidRequestError, as Tokenizer.encode_chat.
    """
    plain = partial(tokenizer.encode_continued if continues else tokenizer.encode_chat, thinking=thinking)
    values = [tool.values for tool in tools]

    def encode(messages: list[Message]) -> list[int]:
        has_calls = any(message.keys() - {"role", "content"} for message in messages)
        if tokenizer.template is None or not (values or has_calls):
            return plain(messages)
        style = call_style(tokenizer.template)
        while True:
            prepared, described = style.prepare(messages, values)
            try:
                return plain(prepared) if described is None else plain(prepared, tools=described)
            except ChatTemplateError:
                if described is None:
                    raise
                style = replace(style, describes=False)

    return encode
