"""A small set of the tiny models in which every feature of a graph occurs: COVER.

What is expensive (batches, programs of several modes, GPUs, bundles) runs every day with these models alone, and with
all of them by `-m slow`. A feature must occur on each of GROUPS that has it at all: a GPU and a batch have code of
their own for a dense FFN and for experts. `python family_cover.py` prints the set that a greedy search finds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from family_models import CASES, save_model
from support.repetitions import some_daily

from engine.config import ModelConfig
from engine.model.graph import graph_of
from engine.model.weights import open_model

COVER = (
    "llama-biases", "relu-llama", "prosparse", "bamboo", "opt-350m", "falcon-40b", "gemma2", "phi4-mini", "command-r",
    "olmo2", "ministral3", "hunyuan", "hunyuan-moe", "turbosparse-mixtral", "glm4-moe-air", "minimax-m2", "gpt-oss",
    "smallthinker-21b", "qwen3.5", "qwen3.5-moe", "deepseek-v2-lite", "deepseek-v2", "mistral4", "nemotron-h",
    "nemotron-h-moe", "granite-hybrid", "llama4-interleaved", "phimoe", "lfm2", "lfm2-moe", "gemma3n", "gemma4",
    "gemma4-e", "gemma4-moe",
)  # fmt: skip
WITH_EXPERTS = tuple(
    name
    for name, case in CASES.items()
    if {"num_local_experts", "num_experts", "n_routed_experts"} & case.arguments.keys()
)
GROUPS = (
    tuple(one for one in CASES if one not in WITH_EXPERTS),
    tuple(one for one in CASES if one in WITH_EXPERTS),
    tuple(CASES),
)
# They are read from files or become tables before a graph is run, or number layers; tests of their own have them.
NO_FEATURES = (
    "RopeScaling.", "Temperature.", "ModelConfig.family", "ModelConfig.rope_scaling", "ModelConfig.n_",
    "ModelConfig.bos_token_id", "ModelConfig.eos_token_ids", "ModelConfig.max_context", "ModelConfig.ffn_only_layers",
    "ModelConfig.mixer_only_layers", "ModelConfig.delta_layers", "ModelConfig.unrotated", "ModelConfig.windows",
    "ModelConfig.d_ff_by_layer", "ModelConfig.gate_cutoffs", "AttentionSpec.kv_from=none", "AttentionSpec.window=one",
    "DeltaSpec.key_heads",
)  # fmt: skip


def of_cover(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters, those outside of COVER marked `slow`."""
    return some_daily(names, COVER)


def features(config: ModelConfig) -> set[str]:
    """Return what a model asks of the code: its settings and the steps of its layers, each without its sizes."""
    found = set(_kinds(config))
    for layer in graph_of(config).layers:
        found |= {kind for step in layer for kind in _kinds(step)}
        found.add("layer: " + " ".join(type(step).__name__ for step in layer))
    return {one for one in found if not one.startswith(NO_FEATURES)}


def _kinds(value: Any) -> Iterable[str]:
    """Yield `Class.field=kind` for each field of a dataclass and of those within it."""
    for field in fields(value):
        inner = getattr(value, field.name)
        for one in inner if isinstance(inner, tuple) and inner else (inner,):
            if is_dataclass(one):
                yield from _kinds(one)
            yield f"{type(value).__name__}.{field.name}={_kind(one)}"


def _kind(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return "none" if value == 0 else "one" if value == 1 else "some"
    return "empty" if value == () else type(value).__name__


def uncovered(of: Mapping[str, set[str]], cover: Iterable[str]) -> set[str]:
    """Return the features that a group has and none of the cover in it."""
    missing = [_all(of, group) - _all(of, set(group) & set(cover)) for group in GROUPS]
    return set[str]().union(*missing)


def _all(of: Mapping[str, set[str]], names: Iterable[str]) -> set[str]:
    return set[str]().union(*(of[name] for name in names))


def smallest_cover(of: Mapping[str, set[str]]) -> list[str]:
    """Return models that leave nothing uncovered, by the greedy search for a set cover in one group after the other."""
    found = list[str]()
    for group in GROUPS:
        while missing := _all(of, group) - _all(of, set(group) & set(found)):
            found.append(max(group, key=lambda name: len(of[name] & missing)))
    for name in reversed(found):
        others = [other for other in found if other != name]
        found = found if uncovered(of, others) else others
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            save_model(name, Path(folder) / name)
        by_name = {name: features(open_model(Path(folder) / name).config) for name in CASES}
    sys.stdout.write(f"{smallest_cover(by_name)}\n")
