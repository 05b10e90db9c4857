"""What tests of preparing share: a shelf of one model, a machine on paper whose memory is slow, and tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.config import EngineConfig
from engine.errors import ModelNotFoundError
from engine.job import Progress, StagedJob
from engine.library.prepare.prepare_gains import Gains
from engine.library.prepare.prepare_plan import Amounts
from engine.library.records import InstalledModel, Sparsity
from engine.service.jobs import run_job

SMALL = Amounts(profile_tokens=128, train_tokens=1024, sign_tokens=1024)
RARELY = Sparsity(active_share=0.08)
ASSETS = Path(__file__).parents[2] / "assets"


def installed(path: Path, **changes: Any) -> InstalledModel:
    """A model that was taken in place."""
    folder = path if path.is_dir() else path.parent
    values: dict[str, Any] = {"state": "needs preparing", **changes}
    return InstalledModel("local/tiny", "Tiny", str(folder), str(path), (), 0, False, "in place", **values)


def vram_for(gains: Gains, share: float) -> float:
    """The VRAM budget in GiB that holds this share of the weights, besides what a GPU always needs."""
    return (gains._setting.fixed_vram + share * gains._setting.model.total) / (1 << 30)


@dataclass
class OneModel:
    """A library that holds one model, as preparing.py asks for it. prepared: every call, in order."""

    model: InstalledModel
    folder: Path
    prepared: list[Path | None] = field(default_factory=list)

    def models(self) -> list[InstalledModel]:
        return [self.model]

    def get(self, id: str) -> InstalledModel:
        if id != self.model.id:
            raise ModelNotFoundError(f"There is no model {id}.")
        return self.model

    def prepared_folder(self, id: str) -> Path:
        return self.folder / ".prepared" / id

    def set_prepared(self, id: str, bundle: Path | None = None, still_needed: str = "") -> InstalledModel:
        self.prepared.append(bundle)
        self.model = replace(self.model, prepared=str(bundle or ""), state="ready", reason=still_needed)
        return self.model


def slow_machine(path: Path, gpu: bool = False) -> str:
    """A hardware profile whose RAM gives 20 MB/s, so that bytes are all that counts, with or without its GPU."""
    values = json.loads((ASSETS / "hardware" / "pc-low.json").read_text("utf-8"))
    values["cpu"]["bytes_per_s"] = 2e7
    values["gpus"][0]["pcie_bytes_per_s"] = 2e7
    if not gpu:
        values["gpus"] = []
    path.write_text(json.dumps(values), "utf-8")
    return str(path)


def sparse_model(folder: Path, **changes: Any) -> Path:
    """A ReLU model most of which is neurons, as a folder of 32-bit numbers."""
    options: dict[str, Any] = {"n_layers": 3, "d_model": 64, "d_ff": 1024, "max_context": 128, **changes}
    return make_tiny_model(folder, **options)


def sparse_gguf(path: Path, **changes: Any) -> Path:
    """The same as a Q8_0 file, whose downs lie row by row."""
    options: dict[str, Any] = {"n_layers": 3, "d_model": 64, "d_ff": 1024, "max_context": 128, **changes}
    return make_tiny_gguf(path, **options)


def reference(hardware: str | None = None, **changes: Any) -> EngineConfig:
    """Run by the operators of NumPy with one thread, planned for that machine: its many would wait for each other."""
    return EngineConfig(backend="reference", hardware_file=hardware, **{"threads": 1, **changes})


class Recorded:
    """Runs jobs in the caller's thread and remembers them. before: called with each job's name; may raise."""

    def __init__(self, before: Callable[[str], None] = lambda job: None) -> None:
        self.jobs: list[tuple[str, dict[str, Any]]] = []
        self._before = before

    def run(self, job: str, arguments: Mapping[str, Any], report: Any, cancelled: Any) -> dict[str, Any]:
        self.jobs.append((job, dict(arguments)))
        self._before(job)

        def stage(name: str) -> Progress:
            return lambda done, total: report(name, done, total)

        return run_job(job, arguments, StagedJob(cancelled, stage))

    def close(self) -> None:
        """Do nothing: there is no process."""

    @property
    def names(self) -> list[str]:
        return [job for job, _ in self.jobs]
