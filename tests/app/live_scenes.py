"""Moments of a machine at work, made up, for the Live page: figures as monitor and engine would give them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from app.clients.engine_status import EngineStatus, Phase
from app.clients.live_figures import LiveFigures
from engine.machine.monitor import GpuSample, MachineSample
from engine.service.protocol import GenerationResult, Live

GIB = 1 << 30
CARD = "NVIDIA GeForce RTX 4070"
LAYERS, GROUPS = 32, 22

ON_CARD = EngineStatus(
    phase=Phase.WRITING, model="Bamboo DPO 7B", device="RTX 4070 + CPU, 8 threads", gpu=CARD, vram_bytes=9 * GIB,
    gpu_share=0.83, tok_s=38.7, tokens=400,
)  # fmt: skip
ON_CPU = replace(ON_CARD, device="CPU, 8 threads", gpu="", vram_bytes=None, gpu_share=None)


def a_card(index: int = 0, at: int = 0, name: str = CARD) -> GpuSample:
    load = 68 + 12 * math.sin(at / 4 + index)
    held = int((9.4 - 3 * index) * GIB)
    return GpuSample(index, name, load, held + int(1.1 * GIB), 12 * GIB, held, 61.0, 142.0)


def a_sample(at: int = 0, gpus: tuple[GpuSample, ...] = (), why: str = "") -> MachineSample:
    return MachineSample(46 + 9 * math.sin(at / 5), 38.0, 12 * GIB, 32 * GIB, int(6.2 * GIB), gpus, why)


def a_live(card: bool = True, layers: int = LAYERS, seed: int = 7) -> Live:
    rng = random.Random(seed)
    on_gpu = [0.36 + 0.16 * math.sin(i / 4 + 1) if card else 0.0 for i in range(layers)]
    fired = [
        [min(100, int(100 * rng.random() * math.exp(-group / 4))) for group in range(GROUPS)] for _ in range(layers)
    ]
    gpu = {"attention": 6.3e-3, "predictor": 1.8e-3, "ffn": 14.1e-3, "head": 2.1e-3, "wait": 0.6e-3}
    cpu = {"ffn": 13.2e-3, "wait": 10.9e-3, "sampling": 0.7e-3, "other": 0.8e-3}
    alone = {"attention": 6.3e-3, "predictor": 1.8e-3, "ffn": 14.1e-3, "head": 2.1e-3, "sampling": 0.6e-3,
             "other": 0.7e-3}  # fmt: skip
    return Live(
        "answer-1", "sparse", 400, 39.1, 38.7, 0.34, 612.0, 0.138, 0.11, 0.83 if card else None, 25.6e-3,
        cpu if card else alone, gpu if card else {}, on_gpu=on_gpu, fired=fired,
    )  # fmt: skip


def a_live_of_experts(layers: int = 48, n: int = 128, used: int = 8, resident: float = 0.42, seed: int = 7) -> Live:
    """As of a Qwen3-30B-A3B of which a part of the experts is on the GPU. Some in RAM are hotter than some there."""
    rng = random.Random(seed)
    chosen, there = [], []
    for _ in range(layers):
        shares = [math.exp(-i / 22) * rng.uniform(0.75, 1.25) for i in range(n)]
        shares = sorted((one * used / sum(shares) for one in shares), reverse=True)
        has = [rng.random() < 1 / (1 + math.exp((i - resident * n) / 2.5)) for i in range(n)]
        pairs = range(0, n, 2)
        chosen.append([min(100, round(50 * (shares[i] + shares[i + 1]))) for i in pairs])
        there.append([50 * (has[i] + has[i + 1]) for i in pairs])
    on_gpu = [sum(row) / 100 / len(row) for row in there]
    gpu = {"attention": 1.4e-3, "ffn": 2.6e-3, "head": 0.4e-3, "wait": 1.9e-3}
    cpu = {"ffn": 3.1e-3, "wait": 2.9e-3, "sampling": 0.3e-3, "other": 0.4e-3}
    return Live(
        "answer-1", "dense", 400, 149.0, 146.2, 0.41, 812.0, 0.063, 0.063, 0.87, 6.7e-3, cpu, gpu, has_zeros=False,
        is_counted=False, on_gpu=on_gpu, n_experts=n, n_experts_used=used, expert_hits=0.87, exchanged=214,
        chosen=chosen, resident=there,
    )  # fmt: skip


def a_result() -> GenerationResult:
    return GenerationResult(
        text="x", finish_reason="stop", context_full=False, prompt_tokens=100, reused_tokens=0, tokens=400,
        dropped_messages=0, context_used=410, context_total=4096, total_s=10.0, ttft_s=0.34, prefill_tok_s=612.0,
        decode_tok_s=38.7, gpu_neuron_load=0.83, active_share=0.138, fired_share=0.11, vram_bytes=9 * GIB,
        ram_bytes=GIB, mode="sparse", model="Bamboo DPO 7B",
    )  # fmt: skip


def a_minute(figures: LiveFigures, status: EngineStatus = ON_CARD, n_gpus: int = 1, lost_at: int = 99) -> float:
    """Sixty samples into the figures; the time at their end. lost_at: second at which the first card is lost."""
    why = "" if n_gpus else "no NVIDIA driver is installed"
    for at in range(60):
        writes = at > 12
        figures.take_status(replace(status, phase=status.phase if writes else Phase.READY, tokens=max(0, at - 12) * 39))
        gpus = tuple(
            GpuSample(i, CARD, reason="the GPU is lost") if at >= lost_at and not i else a_card(i, at)
            for i in range(n_gpus)
        )
        figures.take_sample(a_sample(at, gpus, why), 100.0 + at)
    figures.take_status(status)
    return 159.2
