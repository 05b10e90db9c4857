"""Text written by the engine, made fit for the window: figures, internal names, names of files."""

from __future__ import annotations

import re

from app.units import NARROW, gigabytes

_SIZES = {"bytes": 1, "kB": 10**3, "KiB": 1 << 10, "MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}
_SIZE = re.compile(rf"\b(\d+(?:\.\d+)?)[ {NARROW}]({'|'.join(_SIZES)})\b")
_UNIT = re.compile(r"(?<=\d) (?=(?:tok/s|ms|s|min|h|GB|MB)\b)")
_PLAIN_ALL_THE_SAME = re.compile(r"(?<=\w)'s\b|\bQ\d_\w+")  # "the card's memory", "the model in Q4_0"
# A file that an error's message begins with, or reads from: "a b.gguf is empty.", "rope_theta in config.json is 0."
_FILE_NAME = re.compile(
    r"""(?:^(?!The |Tensor )(?:(?! in | is | has )[^'"/\\\n]){1,120}?|(?<= in )[^\s'"/\\]{1,120}?)"""
    r"""\.(?:gguf|safetensors|json|jinja|bin|pth?)\b"""
)
_CODE = re.compile(r"""[_{}<>\[\]`'"|\\]|\w[.:/]\w*[A-Za-z]|\b0x|[a-z][A-Z]|\b(?!NVIDIA\b)[A-Z]{5,}""")


def plain_figures(text: str) -> str:
    """Convert sizes to GB of 10^9 bytes, with a narrow space before units."""

    def size(match: re.Match[str]) -> str:
        n_bytes = float(match[1]) * _SIZES[match[2]]
        return gigabytes(n_bytes) if n_bytes >= 1e6 else match[0]

    return _UNIT.sub(NARROW, _SIZE.sub(size, text))


def is_plain(*texts: str) -> bool:
    """Return whether texts consist of words and figures only, without internal names."""
    return all(_CODE.search(_PLAIN_ALL_THE_SAME.sub("", text)) is None for text in texts)


def named_file(text: str) -> str:
    """Return the name of the file that an error's message is about; empty if it names none."""
    file = _FILE_NAME.search(text)
    return file[0] if file is not None else ""
