"""A model that GPU and CPU decode together. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import Mode, ModelConfig
from engine.executor.slots import SlotTable
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.gpu.weights.layers import GpuModel
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor


@dataclass(frozen=True, eq=False)
class TokenModel:
    """A model in one mode. on_gpu: its weights on the GPU.

    tables: [L], the hot neurons; None: none are. slots: expert slots; None for a model without experts.
    """

    config: ModelConfig
    weights: ModelWeights
    on_gpu: GpuModel
    mode: Mode
    predictor: Predictor | None = None
    tables: Sequence[SlotTable] | None = None
    slots: ExpertSlots | None = None
