"""The prompts that models are made to write calibration text from: kinds, their shares, and how each is put to a model.

They are Hearth's own (assets/calibration), one file a kind; no foreign text is among them. Nothing is written here.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal

from engine.assets import asset_root
from engine.errors import ModelNotFoundError

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

# chat: a person's message in the chat template, the model's answer to its end; a model without a template of its own
# goes on with the message as a text. talk: the same, but the model writes on over the ends of turns, both sides of it.
# text: the beginning of a text, behind BOS. free: BOS alone.
Form = Literal["chat", "talk", "text", "free"]
_BETWEEN = "\n---\n"


@dataclass(frozen=True)
class KindOfText:
    """One kind of text: how it is put, its share of the positions (any scale), most tokens written behind a prompt."""

    name: str
    form: Form
    share: float
    most_tokens: int = 256


# Chats weigh more than all the rest, because that is what Hearth is used for, and conversations most of all: hot
# neurons of conversations are the farthest from those of other text. Measured on the starter model
# (tests/benchmarks/hot_set_coverage.py): with equal shares conversations lose 13 points of coverage, to spare 1 to 3 on
# prose.
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
    """The prompts of a kind; one empty one for free writing. Raises: ModelNotFoundError where they are missing."""
    if kind.form == "free":
        return [""]
    path = asset_root() / "calibration" / f"{kind.name}.txt"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelNotFoundError(
            f"{path} cannot be read: {error.strerror or error}.", "Install Hearth again."
        ) from error
    return text.rstrip("\n").split(_BETWEEN)


def usable_kinds(model: LoadedModel) -> list[KindOfText]:
    """The kinds that this model can be made to write: freely only where there is a BOS token to begin with."""
    return [kind for kind in KINDS if kind.form != "free" or model.bos_token_id is not None]


def encode_prompt(model: LoadedModel, kind: KindOfText, prompt: str) -> list[int]:
    """The token ids that the model is given to go on from; at most half of its context."""
    if kind.form in ("chat", "talk") and model.tokenizer.chat_template is not None:
        ids = model.tokenizer.encode_chat([{"role": "user", "content": prompt}])
    else:
        beginning = [] if model.bos_token_id is None else [model.bos_token_id]
        ids = beginning + model.tokenizer.encode(prompt if kind.form in ("text", "free") else prompt + "\n")
    return ids[: max(1, model.opened.config.max_context // 2)]


def recipe_fingerprint() -> str:
    """SHA-256 of everything here that decides what is written."""
    digest = hashlib.sha256()
    for kind in KINDS:
        digest.update(repr((astuple(kind), read_prompts(kind))).encode())
    return digest.hexdigest()
