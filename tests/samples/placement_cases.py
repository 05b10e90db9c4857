"""Models, machines and statistics of a few numbers each, for tests of the solver."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.config import Mode, ModelConfig
from engine.machine.cpu_and_ram import CpuInfo, RamInfo
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.placement.activity import activity_of
from engine.placement.cost_model import Machine
from engine.placement.gpu_bytes import GpuBytes
from engine.placement.model_bytes import ModelBytes, PredictorBytes
from engine.placement.placement_problem import FixedBytes, Problem, TokenContext, build_problem
from engine.sparsity.stats import NeuronStats

MIB = 1 << 20


def a_config(activation: str = "relu-glu", n_layers: int = 4, d_ff: int = 256, **changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "family": "llama", "n_layers": n_layers, "d_model": 64, "d_ff": d_ff, "n_heads": 4, "n_kv_heads": 2,
        "head_dim": 16, "vocab_size": 512, "max_context": 512, "rope_theta": 1e4, "norm_eps": 1e-5,
        "activation": activation, "tied_embeddings": False, "bos_token_id": None, "eos_token_ids": (),
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})


def a_model(
    config: ModelConfig, neuron: int = 3 * 8192, codec: str = "f16", row_wise: bool = False,
    on_gpu: GpuBytes | None = None,
) -> ModelBytes:  # fmt: skip
    """As if its vectors were far wider than the configuration says: bytes that a GPU and a CPU need time for."""
    ones = np.ones(config.n_layers, np.int64)
    gated, has_ffn = config.gated, ones.copy()
    has_ffn[list(config.mixer_only_layers)] = 0
    return ModelBytes(
        config=config,
        attention=ones * MIB,
        first=has_ffn * (neuron // (3 if gated else 2)),
        second=has_ffn * (neuron // 3 if gated else 0),
        down=has_ffn * (neuron // (3 if gated else 2)),
        embedding=2 * MIB,
        head=2 * MIB,
        attention_codecs=(codec,) * config.n_layers,
        first_codecs=(codec,) * config.n_layers,
        down_codecs=(codec,) * config.n_layers,
        head_codec=codec,
        down_is_row_wise=row_wise,
        on_gpu=on_gpu,
    )


def some_stats(config: ModelConfig, seed: int = 0, share: float = 0.2) -> NeuronStats:
    """Some neurons fire often, most seldom, and each layer in its own way."""
    rng = np.random.default_rng(seed)
    ranks = (1 + np.arange(config.n_neurons)) / config.n_neurons
    layers = []
    for _ in range(config.n_layers):
        skewed = ranks ** -rng.uniform(0.1, 1.5)
        layers.append(rng.permutation(np.minimum(1, share * skewed / skewed.mean())))
    return NeuronStats((1000 * np.array(layers)).astype(np.int64), 1000, "measured", "a text")


def a_profile(
    vram: int | None = 64 * MIB, gpu_gb_s: float = 500, cpu_gb_s: float = 50, exchange_s: float | None = 12e-6
) -> HardwareProfile:
    gpus = ()
    if vram is not None:
        gpus = (GpuInfo(0, "A GPU", "8.9", vram, vram, 4 * MIB, gpu_gb_s * 1e9, 25e9, None, True),)
    cpu = CpuInfo("A CPU", 8, 16, ("avx2",), cpu_gb_s * 1e9)
    return HardwareProfile(cpu, RamInfo(64 << 30, 60 << 30), gpus, () if gpus else ("no GPU",), exchange_s)


def a_problem(
    config: ModelConfig | None = None,
    mode: Mode = "exact",
    profile: HardwareProfile | None = None,
    stats: NeuronStats | None = None,
    predictors: PredictorBytes | None = None,
    fixed_vram: int = 5 * MIB,
    pinned_bytes: int = 0,
    **model: Any,
) -> Problem:
    config = config or a_config()
    profile = profile or a_profile()
    gpu = profile.gpus[0] if profile.gpus else None
    activity = activity_of(config, mode, stats or some_stats(config), predictors)
    machine = Machine.of(profile, 7, gpu)
    return build_problem(
        a_model(config, **model), activity, machine, mode, TokenContext(512, 256, "f16"), predictors,
        FixedBytes(fixed_vram, MIB, pinned_bytes),
    )  # fmt: skip
