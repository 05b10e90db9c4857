"""The prompt of a request: what the model's chat template makes of its messages and tools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.config import SamplingConfig
from engine.errors import ContextOverflowError
from engine.text.context_fit import ChatMessage, ChatRoom, most_chars
from engine.tools.call_format import CallFormat
from engine.tools.call_style import call_style

if TYPE_CHECKING:
    from engine.server.api_request import ApiRequest
    from engine.session.loaded_model import LoadedModel
    from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """What the engine computes for a request. opened: the marker of a thought that the prompt opens. calls: the format
    in which the model writes calls; None without tools.
    """

    prompt: list[int]
    sampling: SamplingConfig
    opened: str = ""
    calls: CallFormat | None = None


def asked(api_request: ApiRequest, model: LoadedModel, capacity: int) -> Asked:
    """Return what a request asks of a model. capacity: tokens of the context.

    Raises: ContextOverflowError, and errors of the chat template and the sampling.
    """
    sampling, tokenizer = model.sampling.changed(api_request.sampling), model.tokenizer
    if api_request.what == "completion":
        given = api_request.prompt
        _check_length(len(given), capacity)
        if isinstance(given, str):
            given = tokenizer.encode(given, special=True, add_bos=tokenizer.adds_bos)
        return Asked(given, sampling)
    messages, tools = _prepared(api_request, tokenizer, capacity)
    if api_request.continues:
        encode = partial(tokenizer.encode_continued, thinking=sampling.thinking)
    else:
        encode = partial(tokenizer.encode_chat, thinking=sampling.thinking, tools=tools)
    prompt = ChatRoom(capacity).fit(messages, sampling.max_tokens, encode, "stop").prompt
    opened = "" if api_request.continues else tokenizer.opened_thought(prompt)
    calls = call_style(tokenizer.template).format if api_request.use.tools and tokenizer.template else None
    return Asked(prompt, model.chat_sampling(sampling), opened, calls)


def count_tokens(api_request: ApiRequest, model: LoadedModel) -> int:
    """Return the number of tokens in the prompt of a chat, from any thread.

    Raises: ContextOverflowError if it is far too long, and errors of the chat template.
    """
    thinking = model.sampling.changed(api_request.sampling).thinking
    messages, tools = _prepared(api_request, model.tokenizer, model.context)
    return len(model.tokenizer.encode_chat(messages, thinking, tools))


def _prepared(api_request: ApiRequest, tokenizer: Tokenizer, capacity: int) -> tuple[list[ChatMessage], Any]:
    """Return the messages and tools of a chat as the model's template takes them. Raises: ContextOverflowError."""
    messages, tools = list(api_request.messages), [tool.values for tool in api_request.use.tools]
    if tokenizer.template is not None and (tools or any(message.keys() - {"role", "content"} for message in messages)):
        messages, tools = call_style(tokenizer.template).prepare(messages, tools)
    _check_length(len(str([messages, tools])) if tools else sum(len(m["content"] or "") for m in messages), capacity)
    return messages, tools or None


def _check_length(n_chars: int, capacity: int) -> None:
    if n_chars > most_chars(capacity):
        raise ContextOverflowError(f"The request is far longer than the context, which holds {capacity} tokens.")
