"""The command profile: how often each neuron is active, as figures and as a plot. engine/training/profiler.py
counts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import load_model, percent, print_json
from engine.errors import Cancelled
from engine.job import Job
from engine.training.locality import locality
from engine.training.profiler import Profiled


def profile(arguments: argparse.Namespace) -> int:
    from engine.evaluation.evaluate import read_text
    from engine.session.resolve_model import open_named
    from engine.training import profiler
    from engine.training.plot import check_plot_file, draw_locality

    plot = Path(arguments.plot) if arguments.plot else None
    if plot is not None:
        check_plot_file(plot)
    text = read_text(Path(arguments.text)) if arguments.text else None
    opened = open_named(arguments.model, arguments.activation)
    profiler.check_zeros(opened)
    found = profiler.published_stats(opened) if text is None and arguments.tokens is None else None
    if found is not None:
        print(f"Read the statistics that come with {opened.name}; --text or --tokens counts again.", file=sys.stderr)
    else:
        device, arguments.device, arguments.mode = arguments.device, "cpu", "exact"
        try:
            with interrupt_as_cancel() as cancelled:
                model = load_model(arguments, cancelled)
                with ProgressBar("Writing and counting" if text is None else "Counting") as progress:
                    found = profiler.profile(model, text, arguments.tokens, device=device, job=Job(cancelled, progress))
        except Cancelled:
            print("Stopped. The same command continues from here.", file=sys.stderr)
            return 130
    if plot is not None:
        draw_locality(found.stats, plot, opened.name)
    if arguments.json:
        print_json({**found.values(), "plot": None if plot is None else str(plot)})
        return 0
    _print(opened.name, found)
    return 0


def _print(name: str, found: Profiled) -> None:
    figures, tokens = locality(found.stats), found.stats.tokens
    over = "tokens whose number is not known" if tokens is None else f"{tokens} tokens"
    whole = figures.whole
    print(f"{name}: counted over {over}, {percent(whole.fired_share)} of the neurons fire for a token")
    print(f"  {percent(whole.share_for_80_percent)} of all neurons carry 80% of the activations")
    print("  layer  fired  neurons for 80%")
    for i, layer in enumerate(figures.layers):
        share = percent(layer.share_for_80_percent)
        print(f"  {i:5d}  {percent(layer.fired_share):>5}  {layer.neurons_for_80_percent} ({share})")
    print(f"  {found.file}")
