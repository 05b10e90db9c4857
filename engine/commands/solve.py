"""The command solve: print which neurons and parts of a model go where. engine/placement/solving.py does the work."""

from __future__ import annotations

import argparse
import sys

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import engine_config, number, percent, print_json
from engine.errors import Cancelled
from engine.job import Job


def solve(arguments: argparse.Namespace) -> int:
    from engine.gpu.placement_text import experts_text
    from engine.placement.solving import solve_model
    from engine.session.resolve_model import open_named

    engine = engine_config(arguments)
    opened = open_named(arguments.model, arguments.activation)
    try:
        with ProgressBar("Solving") as progress, interrupt_as_cancel() as cancelled:
            solved = solve_model(opened, engine, Job(cancelled, progress), again=arguments.again)
    except Cancelled:
        print("Stopped. The earlier placement is unchanged.", file=sys.stderr)
        return 130
    if arguments.json:
        print_json(solved.to_json())
        return 0
    placement = solved.placement
    origin = "unchanged since it was solved" if solved.reused else "solved"
    if solved.changed:
        origin = f"solved again: {', '.join(solved.changed)} changed"
    neurons = f"{placement.hot_neurons} of {opened.config.all_placed_neurons} neurons"
    if opened.config.n_experts:
        neurons = experts_text(placement, opened.config)
    print(f"{opened.name}: {number(placement.predicted_tok_s)} tok/s predicted in {placement.mode} mode ({origin})")
    print(f"  {neurons} on the GPU ({placement.hot_bytes / 1e6:.1f} MB), "
          f"which compute {percent(placement.gpu_neuron_load)} of those that a token needs")  # fmt: skip
    print(f"  attention of {placement.attention.count('gpu')} of {placement.n_layers} layers on the GPU, "
          f"head on the {placement.head.upper()}")  # fmt: skip
    for words, n_bytes, parts in (
        ("VRAM", placement.vram_bytes, placement.vram_parts_bytes),
        ("RAM ", placement.ram_bytes, placement.ram_parts_bytes),
    ):
        shown = ", ".join(f"{name.replace('_', ' ')} {part / 1e6:.1f}" for name, part in parts.items() if part)
        print(f"  {words} {n_bytes / 1e6:.1f} MB{': ' * bool(shown)}{shown}")
    if placement.disk_bytes:
        print(f"  {placement.disk_bytes / 1e6:.1f} MB of experts on the disk, of which a token reads about "
              f"{placement.disk_read_bytes / 1e6:.1f} MB; the prediction is without the time for that")  # fmt: skip
    print(f"  at most {100 * placement.gap:.2g}% above the best placement there is")
    for note in placement.notes:
        print(f"  note: {note}")
    return 0
