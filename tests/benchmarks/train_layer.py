"""How long fitting one layer's predictors takes, by shape and device: the cuts, every rank, the copies.

    python tests/benchmarks/train_layer.py --d 4096 --f 11008 --positions 40000 --device cuda

Inputs are made of few features at a time; a tenth of the neurons fire. Shares are those of this made-up layer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.training.gate_copies import CopyMaker
from engine.training.low_rank import GateCuts, LowRankFitter, Recipe
from engine.training.training import ranks_for


def made_up(d: int, f: int, n: int, device: str) -> tuple[Any, Any, Any, Any]:
    """Inputs f16 [N, D], contribution f16 [N, F], gate [F, D] and its bias [F]."""
    draw = torch.Generator(device).manual_seed(0)
    features = torch.randn(2 * d, d, generator=draw, device=device)
    features *= (torch.arange(1, 2 * d + 1, device=device) ** -0.4)[:, None]
    w = torch.randn(f, d, generator=draw, device=device)
    x, contribution = np.empty((n, d), np.float16), np.empty((n, f), np.float16)
    bias = None
    for start in range(0, n, 2048):
        size = min(2048, n - start)
        present = torch.rand(size, 2 * d, generator=draw, device=device) < 0.05
        values = torch.randn(size, 2 * d, generator=draw, device=device).abs() * present
        inputs = values @ features
        inputs /= inputs.pow(2).mean(1, keepdim=True).sqrt()
        gate = inputs @ w.T
        bias = -gate[:1024].quantile(0.9, 0) if bias is None else bias
        x[start : start + size] = inputs.half().cpu().numpy()
        contribution[start : start + size] = (gate + bias).relu().half().cpu().numpy()
    assert bias is not None
    return x, contribution, w.cpu().numpy(), bias.cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, default=4096)
    parser.add_argument("--f", type=int, default=11008)
    parser.add_argument("--positions", type=int, default=40000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    device = arguments.device
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        found = work()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - started
        return found

    x, contribution, w, bias = timed(
        "making it up", lambda: made_up(arguments.d, arguments.f, arguments.positions, device)
    )

    def moments() -> tuple[Any, Any]:
        second = np.zeros((arguments.d, arguments.d))
        for start in range(0, len(x), 4096):
            part = x[start : start + 4096].astype(np.float32)
            second += part.T @ part
        return x.mean(0, dtype=np.float64), second / len(x)

    mean, second = timed("moments", moments)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    cuts = timed("cuts", lambda: GateCuts(w, bias, mean, second, device))
    fitter = timed("placing", lambda: LowRankFitter(x[:-512], contribution[:-512], device))
    held = contribution[-512:].astype(np.float64)
    shares = {}
    for rank in ranks_for(arguments.d):
        start = timed(f"cut {rank}", lambda rank=rank: cuts.cut(rank, "q4_0"))
        fitted = timed(f"fit {rank}", lambda start=start: fitter.fit(start, Recipe(arguments.steps)))
        for name, one in (("cut", start), ("fit", fitted)):
            order = np.argsort(-one.scores(x[-512:].astype(np.float32)), axis=None)
            kept = held.ravel()[order].cumsum()
            shares[f"{name} {rank}"] = round(float(np.searchsorted(kept, 0.99 * kept[-1]) / kept.size), 4)
        n_bytes = sum(matrix.n_bytes for matrix in start.packed()) + 4 * (rank + arguments.f)
        shares[f"bytes {rank} of f16 ffn"] = round(n_bytes / (6 * w.size), 4)
    maker = timed("copy maker", lambda: CopyMaker(w, bias, mean, second, device))
    for bits in (2, 3):
        timed(f"copy {bits} bits", lambda bits=bits: maker.fit(bits))
    peak = None if device == "cpu" else torch.cuda.max_memory_allocated()
    print(json.dumps({"shape": [arguments.d, arguments.f, arguments.positions], "device": device, "seconds": seconds,
                      "share_at_99": shares, "peak_device_bytes": peak}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
