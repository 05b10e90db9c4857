"""The context of a load: files, weights, and how to run them. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.config import EngineConfig, KvCodec
from engine.job import Job
from engine.load_steps import LoadSteps
from engine.loading.backends import Backend
from engine.loading.modes import ModeChooser
from engine.machine.cpu_and_ram import RamInfo
from engine.model.draft_layer import DraftLayer, load_drafts
from engine.model.model_files import OpenedModel
from engine.model.weights import ModelWeights
from engine.text.tokenizer import Tokenizer
from native_kernels.kv_blocks import KvLayout


@dataclass(frozen=True, eq=False)
class LoadContext:
    """A model whose weights are in memory and nothing is on a GPU yet."""

    opened: OpenedModel
    weights: ModelWeights
    modes: ModeChooser
    backend: Backend
    engine: EngineConfig  # as requested
    context: int  # tokens
    kv_codec: KvCodec
    ram: RamInfo  # before the model was loaded
    tokenizer: Tokenizer
    drafts: DraftLayer | None = None  # the layer that drafts tokens
    drafts_reason: str = ""  # what became of it, a sentence; empty: the files have none
    chosen: str = ""  # why this GPU, or why none
    steps: LoadSteps = field(default_factory=LoadSteps)  # times of the loading steps

    def with_drafts(self, job: Job, extra_bytes: int, fits: bool) -> LoadContext:
        """Return it with the layer that drafts tokens, if the files have one. As `load_drafts`."""
        drafts, reason = load_drafts(self.opened, self.weights, job, extra_bytes, fits)
        return replace(self, drafts=drafts, drafts_reason=reason)

    @property
    def kv_layout(self) -> KvLayout:
        return self.opened.config.kv_layout(self.kv_codec)
