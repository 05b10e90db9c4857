"""The prompt of a request: what the model's chat template makes of its messages and tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import SamplingConfig
from engine.errors import ContextOverflowError
from engine.text.context_fit import ChatMessage, ContextWindow, Encode, most_chars
from engine.tool_calls.call_format import CallFormat
from engine.tool_calls.call_style import call_style
from engine.tool_calls.chat_encoder import chat_encoder

if TYPE_CHECKING:
    from engine.local_api.api_request import ApiRequest
    from engine.session.loaded_model import LoadedModel
    from engine.text.tokenizer import Tokenizer
    from engine.thinking_level import Level


@dataclass(frozen=True)
class Asked:
    """The prompt of a request, for the engine. opened: the marker of a thought that the prompt opens. calls: the format
    in which the model writes calls; None without tools. stops: texts that end the answer outside of calls; without
    tools, they are in `sampling`.
    """

    prompt: list[int]
    sampling: SamplingConfig
    opened: str = ""
    calls: CallFormat | None = None
    stops: tuple[str, ...] = ()


def asked(api_request: ApiRequest, model: LoadedModel, capacity: int) -> Asked:
    """Return what a request asks of a model. capacity: tokens of the context.

    Raises: ContextOverflowError, and errors of the chat template and the sampling.
    """
    sampling, tokenizer = model.sampling.changed(api_request.sampling), model.tokenizer
    if api_request.what == "completion":
        given = api_request.prompt
        check_length(len(given), capacity)
        if isinstance(given, str):
            given = tokenizer.encode(given, special=True, add_bos=tokenizer.adds_bos)
        return Asked(given, sampling)

    def fit(messages: list[ChatMessage], encode: Encode) -> list[int]:
        return ContextWindow(capacity).fit(messages, sampling.max_tokens, encode, "stop").prompt

    prompt = _prompt(api_request, tokenizer, sampling.thinking, capacity, fit)
    opened = "" if api_request.continues else tokenizer.opened_thought(prompt)
    sampling = model.chat_sampling(sampling)
    if not api_request.use.tools or tokenizer.template is None:
        return Asked(prompt, sampling, opened)
    without = sampling.changed({"stop": ()})
    return Asked(prompt, without, opened, call_style(tokenizer.template).format, sampling.stop)


def count_tokens(api_request: ApiRequest, model: LoadedModel) -> int:
    """Return the number of tokens in the prompt of a chat, from any thread.

    Raises: ContextOverflowError if it is far too long, and errors of the chat template.
    """
    thinking = model.sampling.changed(api_request.sampling).thinking
    return len(
        _prompt(api_request, model.tokenizer, thinking, model.context, lambda messages, encode: encode(messages))
    )


def _prompt(
    api_request: ApiRequest,
    tokenizer: Tokenizer,
    thinking: Level | None,
    capacity: int,
    fit: Callable[[list[ChatMessage], Encode], list[int]],
) -> list[int]:
    """Return the prompt of a chat. fit: encodes what fits of the messages.

    Raises: ContextOverflowError if it is far too long, and errors of the chat template.
    """
    given, tools = _with_one_system(api_request.messages), api_request.use.tools
    check_length(len(str([given, [tool.values for tool in tools]])), capacity)
    return fit(given, chat_encoder(tokenizer, tools, thinking, api_request.continues))


def _with_one_system(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with the system messages at the beginning joined: many templates take one alone."""
    n_first = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if n_first < 2:
        return messages
    content = "\n\n".join(message["content"] for message in messages[:n_first])
    return [{"role": "system", "content": content}, *messages[n_first:]]


def check_length(n_chars: int, capacity: int) -> None:
    """Raises: ContextOverflowError for more characters than can ever fit, before they become tokens."""
    if n_chars > most_chars(capacity):
        raise ContextOverflowError(f"The request is far longer than the context, which holds {capacity} tokens.")
