"""Models loaded onto the tests' GPU of NumPy, as LoadedModel.load does it on a machine with a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu import FakeGpu
from samples.placement_cases import a_profile

from engine.config import EngineConfig
from engine.gpu import sample_activity
from engine.gpu.trial import choice, self_test
from engine.machine.graphics import GpuInfo
from engine.placement import memory_plan
from engine.session.loaded_model import LoadedModel

GIB = 1 << 30


def same_scratch_for_every_budget(patch: pytest.MonkeyPatch) -> None:
    """Let a VRAM budget decide about weights alone, as `budget_for_experts` assumes."""
    patch.setattr(memory_plan, "USUAL_CONTEXT_BYTES", 0)
    patch.setattr(memory_plan, "prefill_bytes", lambda *_: 24 << 20)


class FakeGpuMachine:
    """A machine whose CPU is so slow that everything belongs on the GPU. GPUs: those that were opened."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.gpus: list[FakeGpu] = []
        self.make: Callable[[], FakeGpu] = FakeGpu
        self._file = folder / "slow.json"
        a_profile(vram=4 * GIB, cpu_gb_s=1e-3, exchange_s=1e-6).save(self._file)
        patch.setattr(sample_activity, "_TOKENS", 64)  # 4,096 take 3 s
        patch.setattr(choice, "open_gpu", self._open)
        patch.setattr(self_test, "tried", lambda *gpu: self_test.Findings(captures=True))

    def load(self, model: Path, **changes: Any) -> LoadedModel:
        return LoadedModel.load(model, self.config(**changes))

    def config(self, **changes: Any) -> EngineConfig:
        values: dict[str, Any] = {"device": "cuda", "threads": 1, "hardware_file": str(self._file), **changes}
        return EngineConfig(**values)

    def budget_for_experts(self, model: Path, experts: float, **changes: Any) -> float:
        """Return a VRAM budget in GiB that holds all of a model but its experts, and about so many of those."""
        loaded = self.load(model, **changes)
        try:
            assert loaded.gpu is not None
            placement = loaded.gpu.placement
            n_experts = placement.n_layers * loaded.opened.config.n_experts
            return (placement.vram_bytes - (1 - experts / n_experts) * placement.hot_bytes) / GIB
        finally:
            loaded.close()

    def _open(self, info: GpuInfo) -> FakeGpu:
        self.gpus.append(self.make())
        return self.gpus[-1]
