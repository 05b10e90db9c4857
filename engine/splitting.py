"""How byte-level vocabularies cut text into words before merging: one rule per name that GGUF files give.

The rules are those of the families' own tokenizer.json files, put together from the tokenizers library's parts, so
that both routes give the same ids. It reads no files (engine/gguf_vocabulary.py does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.errors import UnsupportedModelError

_WORDS_BY_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%(suffix)s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%(suffix)s"
    r"|\p{N}%(digits)s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%(digits)s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Splitting:
    """One rule. Without a pattern, GPT-2's own applies, after `digits` and punctuation are set apart."""

    pattern: str | None = None
    digits: Literal["with letters' rule", "each", "threes"] = "with letters' rule"
    composes: bool = False  # NFC first
    whole_words: bool = False  # a word that is a token is that token, whatever the merges say
    adds_bos: bool = False  # where the file does not say

    def parts(self) -> tuple[Any, Any]:
        """The normalizer (or None) and the pre-tokenizer, as the tokenizers library has them."""
        from tokenizers import Regex, normalizers, pre_tokenizers

        def byte_level(use_regex: bool) -> Any:
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)

        if self.pattern is not None:
            steps = [pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"), byte_level(False)]
        elif self.digits == "each":
            steps = [pre_tokenizers.Digits(individual_digits=True), byte_level(True)]
        elif self.digits == "threes":
            steps = [
                pre_tokenizers.Punctuation(behavior="contiguous"),
                byte_level(True),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
            ]
        else:
            steps = [byte_level(True)]
        return normalizers.NFC() if self.composes else None, pre_tokenizers.Sequence(steps)


GPT2 = Splitting()
OPT = Splitting(adds_bos=True)
FALCON = Splitting(digits="threes")
SINGLE_DIGITS = Splitting(digits="each")
LLAMA3 = Splitting(pattern=_WORDS % {"digits": "{1,3}"}, whole_words=True, adds_bos=True)
DBRX = Splitting(pattern=_WORDS % {"digits": "{1,3}"})
QWEN2 = Splitting(pattern=_WORDS % {"digits": ""}, composes=True)
TEKKEN = Splitting(pattern=_WORDS_BY_CASE % {"suffix": "", "digits": ""}, whole_words=True, adds_bos=True)
GPT4O = Splitting(pattern=_WORDS_BY_CASE % {"suffix": _CONTRACTIONS + "?", "digits": "{1,3}"})

_NAMED = {
    "gpt-2": GPT2,
    "gpt2": GPT2,
    "phi-2": GPT2,
    "falcon": FALCON,
    "smollm": SINGLE_DIGITS,
    "starcoder": SINGLE_DIGITS,
    "refact": SINGLE_DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "smaug-bpe": DBRX,
    "dbrx": DBRX,  # Phi-4 too
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": TEKKEN,
    "gpt-4o": GPT4O,  # Phi-4-mini too
}
_UNNAMED = (None, "", "default")
# Files of 2023 give no name; then the architecture says whose vocabulary it is.
_BY_ARCHITECTURE = {"opt": OPT, "falcon": FALCON, "starcoder": SINGLE_DIGITS, "qwen2": QWEN2, "qwen3": QWEN2}


def splitting_of(metadata: Mapping[str, Any]) -> Splitting:
    """The rule that a GGUF file's vocabulary is cut by.

    Raises: UnsupportedModelError with the name that Hearth does not know.
    """
    name = metadata.get("tokenizer.ggml.pre")
    if name in _UNNAMED:
        if "<|begin_of_text|>" in metadata.get("tokenizer.ggml.tokens", ()):
            return LLAMA3
        architecture = metadata.get("general.architecture")
        return _BY_ARCHITECTURE.get(architecture, GPT2) if isinstance(architecture, str) else GPT2
    if not isinstance(name, str) or name not in _NAMED:
        raise UnsupportedModelError(
            f"The GGUF file's vocabulary splits text as {name!r}; Hearth knows {', '.join(sorted(_NAMED))}."
        )
    return _NAMED[name]
