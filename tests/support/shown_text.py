"""Facts in texts that a user reads, so that a test does not repeat their sentences."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?!\w)(?: ?%| (?:tok/s|tokens/s|[kMGT]i?B|ms|min|s|h)\b)?")
_SPACES = str.maketrans("\u202f\u00a0", "  ")


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text with their units, in order: "12.5 of 24 GB, 6%" has ["12.5", "24 GB", "6%"].

    A number in a name counts only if it stands alone: "RTX 4090" has one, "Qwen3 8B" none.
    """
    return [match[0].rstrip(",") for match in _NUMBER.finditer(text.translate(_SPACES))]
