"""The prompts from which models write calibration text: kinds, their shares, and how a model receives each.

They are Hearth's own (assets/calibration), one file per kind.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal

from engine.loading import sample_text

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

# chat: a user's message in the chat template, the model's answer to its end; a model without its own template continues
# the message as a text. talk: the same, but the model writes on over the ends of turns, for both sides. text: the
# beginning of a text, after BOS. free: BOS alone.
Form = Literal["chat", "talk", "text", "free"]


@dataclass(frozen=True)
class KindOfText:
    """One kind of text: its form, its share of the positions (any scale), and the most tokens after a prompt."""

    name: str
    form: Form
    share: float
    most_tokens: int = 256


# Chats weigh more than all the rest, because Hearth is used for them, and conversations most of all: their hot neurons
# differ most from those of other text. Measured on the starter model (tests/benchmarks/hot_set_coverage.py): with equal
# shares conversations lose 13 points of coverage, to gain 1 to 3 on prose.
KINDS = (
    KindOfText("questions", "chat", 1.0, 160),
    KindOfText("dialogue", "talk", 2.0),
    KindOfText("free", "free", 1.0),
    KindOfText("prose", "text", 1.0),
    KindOfText("encyclopedia", "text", 1.0),
    KindOfText("code", "text", 0.2),
    KindOfText("tables", "text", 0.2),
    KindOfText("languages", "text", 0.2),
)


def read_prompts(kind: KindOfText) -> list[str]:
    """Return the prompts of a kind; one empty one for free writing. Raises: ModelNotFoundError if they are missing."""
    if kind.form == "free":
        return [""]
    return list(sample_text.read_prompts(kind.name))


def usable_kinds(model: LoadedModel) -> list[KindOfText]:
    """Return the kinds that this model can write: free ones only with a BOS token."""
    return [kind for kind in KINDS if kind.form != "free" or model.bos_token_id is not None]


def encode_prompt(model: LoadedModel, kind: KindOfText, prompt: str) -> list[int]:
    """Return the token ids of the prompt; at most half of the model's context."""
    if kind.form in ("chat", "talk") and model.tokenizer.chat_template is not None:
        ids = model.tokenizer.encode_chat([{"role": "user", "content": prompt}])
    else:
        beginning = [] if model.bos_token_id is None else [model.bos_token_id]
        ids = beginning + model.tokenizer.encode(prompt if kind.form in ("text", "free") else prompt + "\n")
    return ids[: max(1, model.opened.config.max_context // 2)]


def recipe_fingerprint() -> str:
    """Return the SHA-256 of everything here that determines what is written."""
    digest = hashlib.sha256()
    for kind in KINDS:
        digest.update(repr((astuple(kind), read_prompts(kind))).encode())
    return digest.hexdigest()
