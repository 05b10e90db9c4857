"""The command train: create predictors, and print their cost and loss. engine/training/training.py does the work."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import load_model, percent, print_json
from engine.errors import Cancelled
from engine.job import Job

if TYPE_CHECKING:
    from engine.training.training import Trained


def train(arguments: argparse.Namespace) -> int:
    from engine.evaluation.evaluate import read_text
    from engine.training import training
    from engine.training.error_budget import Goal

    text = read_text(Path(arguments.text)) if arguments.text else None
    goal = Goal(perplexity_rise=arguments.budget / 100)
    options = training.TrainingOptions(arguments.kind, arguments.tokens, goal, seed=arguments.seed)
    device = training.training_device(arguments.device)
    arguments.mode, arguments.device = "exact", "cpu"
    try:
        with interrupt_as_cancel() as cancelled:
            model = load_model(arguments, cancelled)
            with ProgressBar("Training") as progress:
                trained = training.train(model, text, options, device, Job(cancelled, progress))
    except Cancelled:
        print("Stopped. The same command continues from here.", file=sys.stderr)
        return 130
    if arguments.json:
        print_json(trained.values())
        return 0
    _print(model.opened.name, trained)
    return 0


def _print(name: str, trained: Trained) -> None:
    predictor, budget = trained.predictor, trained.predictor.budget
    assert budget is not None, "training measures one"
    print(f"{name}: predictors of {predictor.n_bytes / 1e6:.2f} MB in {trained.seconds:.0f} s on {trained.device}")
    for i, layer in enumerate(predictor.layers):
        words = layer.kind.replace("_", " ")
        if layer.rank is not None:
            words += f", rank {layer.rank}"
        if layer.copy is not None:
            words += f", {layer.copy.bits} bit"
        print(f"  layer {i:3d}: {words}; {percent(layer.active_share)} of the neurons, recall {percent(layer.recall)}")
    for text in budget.measured:
        print(
            f"  {text.text}: perplexity {100 * text.perplexity_rise:+.2f}%, same token {percent(text.top1_agreement)}"
        )
    if not budget.held:
        print("  That is more than the budget, so auto does not use them; --mode sparse does.")
    print(f"  {trained.file}")
