"""Choose a GGUF model's display name: general.name, unless it is meaningless.

Converters take general.name from the folder they run in, such as a training run ("Smollm2 135M 8k Lc100K Mix1 Ep2"), a
commit, or a word such as "model". Then the file name without its codec is better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BETWEEN_WORDS = re.compile(r"[\s_\-.]+")
# Suffixes, in the order in which they are removed.
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_CODEC = re.compile(
    r"[-_.](?:(?:i1|ud|imat)[-_.])?(?:I?Q\d(?:_\w{1,3}){0,2}|TQ\d_\d|(?:BF|F|FP)(?:16|32)|MXFP4(?:_MOE)?)$",
    re.IGNORECASE,
)
# fmt: off
_EMPTY_WORDS = frozenset({
    "base", "checkpoint", "checkpoints", "ckpt", "converted", "export", "final", "fp16", "ggml", "gguf", "hf", "latest",
    "llama", "local", "main", "merged", "model", "models", "none", "null", "out", "output", "snapshot", "snapshots",
    "temp", "test", "tmp", "training", "unknown", "unnamed", "untitled", "v1", "v2", "weights",
})
# fmt: on
# Words that only the folder of a training run has: an epoch, a step, a mixture of data, a long context's stage.
_TRAINING_WORD = re.compile(
    r"(?:ep|epoch|epochs|mix|lc|step|steps|ckpt|checkpoint|iter|seed|bs|run|exp)\d+k?|\d+steps|\d*e-\d+|lr\d*",
    re.IGNORECASE,
)
_HASH = re.compile(r"[0-9a-f]{12,}", re.IGNORECASE)


def model_name(metadata: Mapping[str, Any], stem: str) -> str:
    """Return the display name of the GGUF model in the file `stem`, uncleaned."""
    stated = metadata.get("general.name")
    stated = stated.strip() if isinstance(stated, str) else ""
    if _says_something(stated):
        return stated
    whole = _SHARD.sub("", stem)
    own = _CODEC.sub("", whole)
    if _says_something(own):
        return own
    parts = [metadata.get(f"general.{key}") for key in ("basename", "size_label", "finetune")]
    words = [part.strip() for part in parts if isinstance(part, str) and _says_something(part, alone=False)]
    if words and isinstance(parts[0], str) and words[0] == parts[0].strip():
        return " ".join(words)
    return stated if stated and not _HASH.search(stated) else own or whole or stem


def _says_something(name: str, alone: bool = True) -> bool:
    """Return whether a user could identify the model by it. alone: whether it is the whole name."""
    if "/" in name or "\\" in name:
        return False
    words = [word for word in _BETWEEN_WORDS.split(name.lower()) if word]
    if any(_TRAINING_WORD.fullmatch(word) or _HASH.fullmatch(word) for word in words):
        return False
    telling = [word for word in words if not alone or (word not in _EMPTY_WORDS and re.search(r"[^\W\d_]{2}", word))]
    return bool(telling)
