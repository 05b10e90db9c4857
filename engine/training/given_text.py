"""A user's own text as sequences for profiling and training: conversations through the chat template, the rest as it
is.

The form matters for which neurons are active: the same small talk as plain lines and in the chat template has different
hot neurons. Text is neither downloaded nor written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.errors import ChatTemplateError

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

CONTEXT_TOKENS = 512  # of a sequence: as `eval` cuts text by default
TURNS = 16  # of a conversation
_SPEAKER = re.compile(r"(User|Human|Assistant|AI|Bot):[ \t]*(.*)", re.IGNORECASE)
_OF_PERSON = ("user", "human")
Message = dict[str, str]


def text_sequences(model: LoadedModel, text: str, tokens: int | None = None) -> list[list[int]]:
    """Return the text as sequences in its order; at most `tokens` in all, the last one shortened.

    Lines that begin with `User:` or `Human:`, and `Assistant:`, `AI:` or `Bot:` form a conversation if the model has a
    chat template, which is applied to TURNS at a time. All other text is cut into windows of the context that `eval`
    uses, each after the BOS token.
    """
    chats = model.tokenizer.chat_template is not None
    found: list[list[int]] = []
    left = tokens
    for part in _parts(text) if chats else [text]:
        sequences = _plain(model, part) if isinstance(part, str) else _conversation(model, part)
        for sequence in sequences:
            if left is not None and left <= 0:
                return found
            found.append(sequence[:left])
            left = None if left is None else left - len(sequence)
    return found


def _parts(text: str) -> Iterator[str | list[Message]]:
    """Yield plain passages and conversations, in order. A line without a speaker belongs to the previous one."""
    plain: list[str] = []
    messages: list[Message] = []
    for line in text.split("\n"):
        said = _SPEAKER.match(line)
        if said is None and (not messages or not line.strip()):
            if messages:
                yield from _ended(messages)
                messages = []
            plain.append(line)
            continue
        if said is None:
            messages[-1]["content"] += "\n" + line
            continue
        if plain:
            yield "\n".join(plain)
            plain = []
        role = "user" if said[1].lower() in _OF_PERSON else "assistant"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += "\n" + said[2]
        else:
            messages.append({"role": role, "content": said[2]})
    if messages:
        yield from _ended(messages)
    if plain:
        yield "\n".join(plain)


def _ended(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield conversations of at most TURNS turns that begin with the user."""
    start = 0 if messages[0]["role"] == "user" else 1
    for at in range(start, len(messages), TURNS):
        yield messages[at : at + TURNS]


def _plain(model: LoadedModel, text: str) -> Iterator[list[int]]:
    ids = model.tokenizer.encode(text) if text.strip() else []
    bos = [] if model.text_bos_id is None else [model.text_bos_id]
    step = min(CONTEXT_TOKENS, model.opened.config.max_context) - len(bos)
    for at in range(0, len(ids), step):
        yield bos + ids[at : at + step]


def _conversation(model: LoadedModel, messages: list[Message]) -> Iterator[list[int]]:
    """Yield the turns in the template, the last answer after its opening marker."""
    answer = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
    asked = messages[:-1] if answer else messages
    try:
        ids = model.tokenizer.encode_chat(asked)
    except ChatTemplateError:  # a template that knows other orders of turns than this one
        lines = "\n".join(f"{message['role'].title()}: {message['content']}" for message in messages)
        yield from _plain(model, lines)
        return
    ids = ids + model.tokenizer.encode(answer)
    yield ids[: min(2 * CONTEXT_TOKENS, model.opened.config.max_context)]
