"""Hearth's own prompts in assets/calibration, and the sample text that consists of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from engine.assets import asset_root
from engine.errors import ChatTemplateError, ModelNotFoundError
from engine.text.tokenizer import Tokenizer

_BETWEEN = "\n---\n"
_CHATS = ("questions", "dialogue")  # as messages of a person, if the model has a chat template
_SLOW_S = 0.2  # for a chat template that renders one message
_TURNS = ("dialogue", "prose", "dialogue", "encyclopedia", "questions", "prose", "dialogue", "code", "encyclopedia",
          "questions", "languages", "dialogue", "tables")  # fmt: skip


def read_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts in assets/calibration/<name>.txt. Raises: ModelNotFoundError if they are missing."""
    path = asset_root() / "calibration" / f"{name}.txt"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelNotFoundError(
            f"{path} cannot be read: {error.strerror or error}.", "Install Hearth again."
        ) from error
    return tuple(text.rstrip("\n").split(_BETWEEN))


def mixed_tokens(tokenizer: Tokenizer, n_tokens: int) -> list[int]:
    """Return the tokens of prompts of all kinds, conversations most of all; n_tokens, or all that there are.

    A chat template that fails, or is slow, is not used again. Raises: ModelNotFoundError if the prompts are missing.
    """
    found, renders = tokenizer.encode("", add_bos=True), tokenizer.chat_template is not None
    for name, prompt in _prompts():
        if len(found) >= n_tokens:
            break
        if name in _CHATS and renders:
            began = time.monotonic()
            try:
                found += tokenizer.encode_chat([{"role": "user", "content": prompt}])
                renders = time.monotonic() - began < _SLOW_S
                continue
            except ChatTemplateError:
                renders = False
        found += tokenizer.encode(prompt + "\n")
    return found[:n_tokens]


def _prompts() -> Iterator[tuple[str, str]]:
    """Yield kinds and prompts, each prompt once."""
    left = {name: list(reversed(read_prompts(name))) for name in _TURNS}
    while any(left.values()):
        for name in _TURNS:
            if left[name]:
                yield name, left[name].pop()
