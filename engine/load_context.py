"""What a model is loaded with: its files, its weights, and how it is to be run. Data; it loads nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.backends import Backend
from engine.config import EngineConfig, KvCodec
from engine.load_steps import LoadSteps
from engine.machine.cpu_and_ram import RamInfo
from engine.model.model_files import OpenedModel
from engine.model.weights import ModelWeights
from engine.modes import ModeChooser
from native_kernels.kv_blocks import KvLayout


@dataclass(frozen=True, eq=False)
class LoadContext:
    """The weights are in memory; nothing is on a GPU yet."""

    opened: OpenedModel
    weights: ModelWeights
    modes: ModeChooser
    backend: Backend
    engine: EngineConfig  # as it was asked for
    context: int  # tokens
    kv_codec: KvCodec
    ram: RamInfo  # before anything of the model was in it
    chosen: str = ""  # why this GPU of those there are, in words
    steps: LoadSteps = field(default_factory=LoadSteps)  # what loading takes

    @property
    def kv_layout(self) -> KvLayout:
        """How keys and values are kept."""
        return KvLayout(self.opened.config.head_dim, self.kv_codec)
