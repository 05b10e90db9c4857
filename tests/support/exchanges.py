"""Experts that move whenever they can, and what a GPU makes of tokens meanwhile."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from samples.experts_gguf import make_tiny_mixtral
from support.gpu_batches import CLOSE, Batched
from support.gpu_tokens import by_cpu, some_experts

from engine.gpu.weights import expert_slots
from engine.model.weights import load_weights, open_model
from engine.session.generate import decode_batch
from native_kernels.cuda.gpu import Gpu

AT_ONCE = {"TIME_SHARE": 100.0, "LEAST_GAIN": 0.0, "HYSTERESIS": 1.0}


def moves_at_once(put: Any = setattr) -> None:
    """Move experts after every token that makes another expert hotter. put: sets an attribute."""
    for name, value in AT_ONCE.items():
        put(expert_slots, name, value)


def wrong_with_exchanges(gpu: Gpu, n_tokens: int = 12) -> list[str]:
    """Decode with experts that move, one sequence and two together; return what differs from the CPU."""
    tokens, wrong = np.random.default_rng(2).integers(3, 256, n_tokens).tolist(), []
    moves_at_once()
    with tempfile.TemporaryDirectory() as folder:
        opened = open_model(make_tiny_mixtral(Path(folder) / "m.gguf"))
        config, weights = opened.config, load_weights(opened, hold="f32")
        wanted, _ = by_cpu(config, weights, "dense", tokens)
        model = Batched(gpu, (config, weights), "dense", some_experts(config, [2] * config.n_layers), 2)
        slots, cache = model.on_gpu.loaded.expert_slots, model.on_gpu.cache()
        found = np.stack([model.on_gpu.decoder.step(token, cache) for token in tokens])
        caches = [model.on_gpu.cache() for _ in range(2)]
        together = np.stack([decode_batch(model.together, [token, token], caches) for token in tokens])
        for name, logits, close in (
            ("one", found, 1e-4),
            ("two", together[:, 0], CLOSE),
            ("two", together[:, 1], CLOSE),
        ):
            off_by = float(np.abs(logits - wanted).max() / np.abs(wanted).max())
            if not off_by < close:
                wrong.append(f"experts that move, {name} at once: off by {off_by:.1e} of the largest logit")
        if slots is None or not slots.exchanged:
            wrong.append("no expert moved")
        model.close()
    return wrong
