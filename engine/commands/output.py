"""Helpers of all commands: load the model, print JSON and figures."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from engine.commands.console import ProgressBar
from engine.config import EngineConfig
from engine.job import CancelCheck, Job, never

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel


SETTLING_S = 30.0  # longest wait for background work after a load


def engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """Return the EngineConfig of the flags common to commands with a model."""
    return EngineConfig(
        device=arguments.device,
        threads=arguments.threads,
        context=arguments.context,
        mode=getattr(arguments, "mode", "auto"),
        vram_budget_gib=arguments.vram_budget,
        hardware_file=arguments.hardware,
        kv_cache=arguments.kv_cache,
        template=arguments.template,
        activation=arguments.activation,
        sequences=getattr(arguments, "batch", 1),
        draft=getattr(arguments, "draft", "auto"),
    )


def load_model(arguments: argparse.Namespace, cancelled: CancelCheck = never) -> LoadedModel:
    from engine.session.loaded_model import LoadedModel

    with ProgressBar("Loading") as progress, ProgressBar("Preparing the CPU kernels") as preparing:
        model = LoadedModel.load(arguments.model, engine_config(arguments), Job(cancelled, progress), preparing)
    print_note(model.opened.activation_warning)
    return model


def print_note(words: str) -> None:
    """Print a note for the user to stderr; nothing if empty."""
    if words:
        print(f"Note: {words}", file=sys.stderr)


def print_json(values: dict[str, Any]) -> None:
    # ASCII only, because it survives any terminal or pipe encoding and preserves odd paths.
    print(json.dumps(values, allow_nan=False), flush=True)


def sampling_values(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "thinking",
             "thought_tokens")  # fmt: skip
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"
