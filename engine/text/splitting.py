"""How byte-level vocabularies split text into words before merging: one rule per name in GGUF files.

The rules are those of the families' own tokenizer.json files, built from the tokenizers library's parts, so that both
routes give the same ids; for rare families, those that llama.cpp applies for the same name.
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
_MARKS_AND_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _letters(ranges: str) -> str:
    """Return a character class from code points: some look like others or would be composed by an editor."""
    pairs = (part.partition("-") for part in ranges.split())
    return "".join(rf"\x{{{first}}}-\x{{{last or first}}}" for first, _, last in pairs)


# fmt: off
# The letters for which DeepSeek's first models know an upper and a lower case.
_CASED = _letters(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_PUNCTUATION = _letters("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_EAST_ASIAN = _letters("4E00-9FA5 800-4E00 AC00-D7FF")
_HAN_AND_KANA = _letters("4E00-9FA5 3040-309F 30A0-30FF")
_BLOOM_WORDS = " ?[^" + r"\s(|.,!?" + _letters("2026 3002 FF0C 3001 964 6D4 60C") + ")]+"
# fmt: on


@dataclass(frozen=True)
class Splitting:
    """A splitting rule: patterns, each applied to what the previous ones left whole. Without any, GPT-2's own applies,
    after `digits` and punctuation are separated.
    """

    patterns: tuple[str, ...] = ()
    digits: Literal["with letters' rule", "each", "threes"] = "with letters' rule"
    composes: bool = False  # NFC first
    whole_words: bool = False  # a word that is a token is that token, whatever the merges say
    adds_bos: bool = False  # where the file does not say

    def parts(self) -> tuple[Any, Any]:
        """Return the normalizer (or None) and the pre-tokenizer of the tokenizers library."""
        from tokenizers import Regex, normalizers, pre_tokenizers

        def byte_level(use_regex: bool) -> Any:
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)

        if self.patterns:
            cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
            steps = [*cuts, byte_level(False)]
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
NEOX = Splitting(composes=True)  # GPT-NeoX's own tokenizer.json, which Pythia, OLMo 1, MPT and DCLM share
OPT = Splitting(adds_bos=True)
FALCON = Splitting(digits="threes")
SINGLE_DIGITS = Splitting(digits="each")
LLAMA3 = Splitting((_WORDS % {"digits": "{1,3}"},), whole_words=True, adds_bos=True)
DBRX = Splitting((_WORDS % {"digits": "{1,3}"},))
QWEN2 = Splitting((_WORDS % {"digits": ""},), composes=True)
# Marks, such as accents by themselves, belong to words.
QWEN35 = Splitting((
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
), composes=True)  # fmt: skip
STABLELM2 = Splitting((_WORDS % {"digits": ""},))
SEED_CODER = Splitting((STABLELM2.patterns[0].replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+"),))
BAILING = Splitting((
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
))  # fmt: skip
TEKKEN = Splitting((_WORDS_BY_CASE % {"suffix": "", "digits": ""},), whole_words=True, adds_bos=True)
GPT4O = Splitting((_WORDS_BY_CASE % {"suffix": _CONTRACTIONS + "?", "digits": "{1,3}"},))
DEEPSEEK_LLM = Splitting((
    r"[\r\n]", rf"\s?[{_CASED}]+", rf"\s?[{_PUNCTUATION}]+", r"\s+\z", f"[{_EAST_ASIAN}]+", r"\p{N}+",
))  # fmt: skip
DEEPSEEK_CODER = Splitting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", f"[{_EAST_ASIAN}]+", r"\p{N}"))
DEEPSEEK_V3 = Splitting((r"\p{N}{1,3}", f"[{_HAN_AND_KANA}]+", _MARKS_AND_WORDS))
# Kimi and Moonlight: as GPT-4o's, but Han characters are words of their own.
KIMI = Splitting((
    r"\p{Han}+|" + GPT4O.patterns[0].replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"[\r\n/]*", r"[\r\n]*"),
))  # fmt: skip
BLOOM = Splitting((_BLOOM_WORDS,))
VIKING = Splitting((_BLOOM_WORDS, r"\p{N}"))
# The rule of llama.cpp for files that name none.
UNNAMED = Splitting((r"[\p{P}$+<=>^~|]+", _GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]"))

_BY_RULE = (
    (GPT2, "gpt-2 gpt2 phi-2 jais gigachat trillion granite-docling exaone4"),
    (NEOX, "mpt olmo"),
    (FALCON, "falcon"),
    (SINGLE_DIGITS, "smollm starcoder refact command-r codeshell exaone minerva-7b"),
    (LLAMA3, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    (DBRX, "dbrx smaug-bpe chatglm-bpe glm4"),  # dbrx: Phi-4 too
    (QWEN2, "qwen2 deepseek-r1-qwen"),
    (QWEN35, "qwen35"),
    (STABLELM2, "stablelm2 megrez hunyuan grok-2 solar-open"),
    (SEED_CODER, "seed-coder"),
    (BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (TEKKEN, "tekken"),
    (GPT4O, "gpt-4o llama4 minimax-m2 kanana2"),  # gpt-4o: Phi-4-mini too
    (DEEPSEEK_LLM, "deepseek-llm"),
    (DEEPSEEK_CODER, "deepseek-coder"),
    (DEEPSEEK_V3, "deepseek-v3 hunyuan-dense joyai-llm"),
    (KIMI, "kimi-k2"),
    (BLOOM, "bloom poro-chat gpt3-finnish"),
    (VIKING, "viking"),
)
_NAMED = {name: rule for rule, names in _BY_RULE for name in names.split()}
_UNNAMED = (None, "", "default")
# Files of 2023 have no name; then the architecture determines the rule.
_BY_ARCHITECTURE = {
    "opt": OPT,
    "falcon": FALCON,
    "starcoder": SINGLE_DIGITS,
    "refact": SINGLE_DIGITS,
    "qwen2": QWEN2,
    "qwen3": QWEN2,
    "gpt2": GPT2,
    "gptneox": NEOX,
    "mpt": NEOX,
    "olmo": NEOX,
    "phi2": GPT2,
}


def splitting_of(metadata: Mapping[str, Any]) -> tuple[Splitting, str]:
    """Return the splitting rule of a GGUF file's vocabulary, and a note for the user if it is a guess.

    Raises: UnsupportedModelError with the unknown name.
    """
    name = metadata.get("tokenizer.ggml.pre")
    if name in _UNNAMED:
        if "<|begin_of_text|>" in metadata.get("tokenizer.ggml.tokens", ()):
            return LLAMA3, ""
        architecture = metadata.get("general.architecture")
        if isinstance(architecture, str) and architecture in _BY_ARCHITECTURE:
            return _BY_ARCHITECTURE[architecture], ""
        return UNNAMED, (
            "The file does not say how its vocabulary splits text (tokenizer.ggml.pre), so llama.cpp's default "
            "applies; a newer file of the same model may answer better."
        )
    if not isinstance(name, str) or name not in _NAMED:
        raise UnsupportedModelError(
            f"The GGUF file's vocabulary splits text as {name!r}; Hearth supports {', '.join(sorted(_NAMED))}.",
            "Choose a model whose GGUF file names one of these, or its safetensors with tokenizer.json.",
        )
    return _NAMED[name], ""


def known_patterns() -> frozenset[str]:
    """Return every pattern of the table, all from published families."""
    return frozenset(pattern for rule in (*_NAMED.values(), UNNAMED) for pattern in rule.patterns)
