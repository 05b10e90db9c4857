"""The variants of a repository: which of its files form a model that Hearth reads. Makes no requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from engine.library.records import HubFile, ModelFormat, Variant
from engine.loading import embedding_models

PREDICTOR_FOLDER = "predictors"  # where files of a predictor repository go, beside the weights
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_CODEC = re.compile(
    r"(?:^|[-._])(bf16|fp?16|fp?32|i?q\d(?:_\d|_k(?:_(?:xl|[sml]))?|_(?:xxs|xs|s|m|nl))?(?:_[a-z])?)(?=$|[-._])",
    re.IGNORECASE,
)
_SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_BESIDE_WEIGHTS = (
    "config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json", "tokenizer.model",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja", "chat_template.json", *embedding_models.FILES,
)  # fmt: skip
_PAPERS = ("LICENSE", "LICENSE.*", "NOTICE", "NOTICE.*", "USE_POLICY.md")
_NOT_MODELS = re.compile(r"(^|/)(mmproj|imatrix|mtp-|dflash-)|[-._]imatrix|gpuidx", re.IGNORECASE)
_PICKLED = (".bin", ".ckpt", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".msgpack")
# Published with PowerInfer's models: plain tensors, read without running code by engine/sparsity.
_PLAIN_TENSORS = re.compile(r"(activation|model)_\d{1,4}\.pt")


def is_pickled(name: str) -> bool:
    """Return whether reading a file might run code in it. Hearth reads some pickles without running any."""
    last = name.rsplit("/", 1)[-1].lower()
    return last.endswith(_PICKLED) and not _PLAIN_TENSORS.fullmatch(last)


def codec_of(name: str) -> str:
    """Return the codec according to the file's name, such as "q4_0" or "f16"; empty if unknown."""
    found = _CODEC.findall(name.rsplit("/", 1)[-1].removesuffix(".gguf"))
    codec = found[-1].lower().replace("fp", "f") if found else ""
    return "q4_0" if codec == "q4" else codec  # as PowerInfer's files are called


def variants_of(files: Sequence[HubFile]) -> tuple[Variant, ...]:
    """Return the variants of these files, smallest first; those that Hearth cannot read with the reason."""
    found = [*_gguf_variants(files), *_safetensors_variants(files)]
    if not found:
        pickles = tuple(file for file in files if is_pickled(file.name) or file.name.endswith(".pt"))
        refused = "There are no weights in it."
        if any(is_pickled(file.name) for file in pickles):
            refused = "Only pickled weights, which can run code when they are opened."
        elif pickles:
            refused = "Only predictors: they are fetched with the model that they belong to."
        return (Variant("", "safetensors", "", pickles, sum(file.n_bytes for file in pickles), refused),)
    return tuple(sorted(found, key=lambda variant: (bool(variant.refused), variant.n_bytes)))


def matching(files: Iterable[HubFile], patterns: Sequence[str]) -> tuple[HubFile, ...]:
    """Return the files that match a pattern, each once. A star does not match a slash."""
    return tuple(file for file in files if any(_fits(file.name, pattern) for pattern in patterns))


def _fits(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and all(map(fnmatchcase, name.split("/"), pattern.split("/")))


def _gguf_variants(files: Sequence[HubFile]) -> list[Variant]:
    models: dict[str, list[HubFile]] = {}
    for file in files:
        if file.name.lower().endswith(".gguf") and not _NOT_MODELS.search(file.name):
            split = _SPLIT.fullmatch(file.name)
            models.setdefault(split[1] + ".gguf" if split else file.name, []).append(file)
    counts = tuple(file for file in files if re.fullmatch(r"(.*/)?activation_\d{1,4}\.pt", file.name))
    codecs = [codec_of(name) for name in models]
    found = []
    for (name, parts), codec in zip(models.items(), codecs, strict=True):
        whole = tuple(sorted(parts, key=lambda file: file.name))
        refused = _missing_part(whole)
        sparse = "powerinfer" in name.lower() or bool(counts)
        wanted = whole + (counts if sparse else ())
        called = codec if codec and codecs.count(codec) == 1 else name.rsplit("/", 1)[-1].removesuffix(".gguf")
        kind: ModelFormat = "powerinfer-gguf" if sparse else "gguf"
        found.append(Variant(called, kind, codec, wanted, sum(file.n_bytes for file in wanted), refused))
    return found


def _missing_part(files: tuple[HubFile, ...]) -> str:
    split = _SPLIT.fullmatch(files[0].name)
    return f"{int(split[3]) - len(files)} of its {int(split[3])} parts are missing." if (
        split and int(split[3]) != len(files)
    ) else ""  # fmt: skip


def _safetensors_variants(files: Sequence[HubFile]) -> list[Variant]:
    weights = [file for file in files if _SAFETENSORS.fullmatch(file.name)]
    whole = [file for file in weights if file.name == "model.safetensors"]
    beside = [f for f in files if f.name in _BESIDE_WEIGHTS or any(fnmatchcase(f.name, p) for p in _PAPERS)]
    if whole:  # one file counts more than parts of the same
        weights = whole
        beside = [file for file in beside if file.name != "model.safetensors.index.json"]
    if not weights:
        return []
    names = {file.name for file in beside}
    refused = ""
    if "config.json" not in names:
        refused = "It has weights but no config.json, so their meaning is unknown."
    elif not whole and "model.safetensors.index.json" not in names:
        refused = "Its weights are in several files, and their index is missing."
    elif not names & {"tokenizer.json", "tokenizer.model", "vocab.json"}:
        refused = "It has no tokenizer that Hearth reads."
    wanted = (*weights, *beside, *(file for file in files if re.fullmatch(r"activation/activation_\d+\.pt", file.name)))
    return [Variant("safetensors", "safetensors", "", wanted, sum(file.n_bytes for file in wanted), refused)]
