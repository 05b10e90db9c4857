"""The command catalogue: available models, and how each would run on this or another machine."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from engine.commands.output import number, print_json

if TYPE_CHECKING:
    from engine.library.estimate.catalogue import Estimated
    from engine.library.records import Estimate

_FITS = {"gpu": "fits the GPU", "hybrid": "GPU + CPU", "cpu": "CPU only", "disk": "experts on disk"}


def catalogue(arguments: argparse.Namespace) -> int:
    from engine.library.estimate.catalogue import Catalogue, Estimates, load_catalogue
    from engine.library.estimate.machines import known_machine
    from engine.machine.measured_hardware import load_profile

    known = load_catalogue()
    if arguments.query:
        known = Catalogue(known.matching(arguments.query))
    machine = known_machine(load_profile(arguments.hardware) if arguments.hardware else None)
    found = Estimates(known).all(machine, arguments.vram_budget, arguments.context)
    for one in found:
        if arguments.json:
            print_json(_fields(one))
        else:
            print(_line(one))
    if not arguments.json:
        print(_conclusion(len(found), machine.gpu_reason, machine.measured))
    return 0


def _fields(one: Estimated) -> dict[str, Any]:
    entry, estimate = one.entry, one.estimate
    return {
        "id": entry.id,
        "repo": entry.repo,
        "name": entry.name,
        "bytes": entry.n_bytes,
        "parameters": entry.parameters,
        "family": entry.family,
        "kind": entry.kind,
        "format": entry.format,
        "codec": entry.codec,
        "active_share": entry.sparsity.active_share,
        "licence": entry.licence,
        "gated": entry.gated,
        "fits": estimate.fits,
        "predicted_tok_s": estimate.predicted_tok_s,
        "low_tok_s": estimate.low_tok_s,
        "high_tok_s": estimate.high_tok_s,
        "predicted_from": estimate.predicted_from,
        "vram_bytes": estimate.vram_bytes,
        "ram_bytes": estimate.ram_bytes,
        "vram_budget_bytes": estimate.vram_budget_bytes,
        "ram_budget_bytes": estimate.ram_budget_bytes,
        "short_bytes": estimate.short_bytes,
        "disk_bytes": estimate.disk_bytes,
        "gpu_neuron_load": estimate.gpu_neuron_load,
        "context": estimate.context,
        "notes": list(estimate.notes),
        "once_prepared": estimate.once_prepared,
        "research": entry.research,
    }


def _line(one: Estimated) -> str:
    entry, estimate = one.entry, one.estimate
    fits = _FITS.get(estimate.fits) or too_big(estimate)
    rate = "" if estimate.predicted_tok_s is None else f"{number(estimate.predicted_tok_s)} tok/s"
    if estimate.low_tok_s is not None and estimate.low_tok_s != estimate.high_tok_s:
        rate += f" ({number(estimate.low_tok_s)} to {number(estimate.high_tok_s)})"
    size = f"{entry.n_bytes / 1e9:.1f} GB"
    return f"{entry.id:<32} {entry.kind:<5} {size:>9}  {fits:<14} {rate:<26} {entry.licence}"


def _conclusion(n: int, reason: str, measured: bool) -> str:
    rates = "" if measured else " Memory speed not measured yet; rates are estimated from similar PCs."
    return f"{n} models. {reason}{rates}"


def too_big(estimate: Estimate) -> str:
    """Return how much is missing, with tenths of a GB for small amounts; never 0 GB."""
    missing = max(estimate.short_bytes, 1) / 1e9
    return f"{math.ceil(missing * 10) / 10:.1f} GB too big" if missing < 3 else f"{math.ceil(missing)} GB too big"
