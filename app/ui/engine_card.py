"""The card at the foot of the sidebar: which model is loaded, what it is doing, as a dot and in words, and, where a
graphics card computes, how much of its memory is taken and by whom.
"""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.engine_status import EngineStatus, Phase, memory_of, rate, seconds
from app.ui import theme
from app.ui.controls import Dot, Label, MemoryBar, Progress
from app.ui.status_strip import card_of
from engine.monitor import MachineSample


def dot_token(status: EngineStatus) -> str:
    """Colour of the dot: ember is only ever a machine at work."""
    if status.working:
        return "hot_fill"
    return {Phase.READY: "ok", Phase.FAILED: "bad"}.get(status.phase, "control")


def state_line(status: EngineStatus, memory: str = "") -> str:
    """The state in words, with the one figure that belongs to it; at rest that is the card's memory, if one is used."""
    if status.phase is Phase.WRITING and status.tok_s is not None:
        return f"{status.word} · {rate(status.tok_s)}"
    if status.phase is Phase.READY and memory:
        return f"{status.word} · {memory} VRAM"
    if status.phase is Phase.READY and status.load_s is not None:
        return f"{status.word} · loaded in {seconds(status.load_s)}"
    return status.word


class EngineCard(QFrame):
    """Dot, name and state; a progress bar while a model loads, a bar of VRAM while one is on a card."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "card")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._column = QVBoxLayout(self)
        self._head = QHBoxLayout()
        self.dot = Dot("hot_fill", True)
        self.name = Label("", "label", elide=True)
        self._head.addWidget(self.dot)
        self._head.addWidget(self.name, 1)
        self.progress = Progress("Loading", height=4)
        self.line = Label("", "meta", elide=True)
        self._column.addLayout(self._head)
        self.memory = MemoryBar()
        self._column.addWidget(self.progress)
        self._column.addWidget(self.memory)
        self._column.addWidget(self.line)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._sample: MachineSample | None = None
        self.set_status(EngineStatus())

    def set_sample(self, sample: MachineSample) -> None:
        """Show the machine at this moment."""
        self._sample = sample
        self.set_status(self._status)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine at this moment."""
        self._status = status
        gpu = card_of(self._sample, status.card) if self._sample is not None else None
        known = gpu is not None and gpu.vram_used_bytes is not None and gpu.vram_total_bytes is not None
        self.dot.set_state(dot_token(status), status.working)
        self.name.setText(status.model or "Engine")
        line = state_line(status, memory_of(gpu.vram_used_bytes, gpu.vram_total_bytes) if gpu and known else "")
        self.line.setText(line)
        loading = status.phase is Phase.LOADING and status.total > 0
        self.progress.setVisible(loading)
        if loading:
            self.progress.set_done(status.done / status.total)
        self.memory.setVisible(known and not loading)
        if gpu is not None and gpu.vram_used_bytes is not None and gpu.vram_total_bytes:
            ours = gpu.vram_process_bytes if gpu.vram_process_bytes is not None else status.vram_bytes or 0
            self.memory.set_parts(ours / gpu.vram_total_bytes, gpu.vram_used_bytes / gpu.vram_total_bytes)
        self.setAccessibleName(f"{status.model or 'Engine'}, {line}")
        self.setToolTip("\n".join(part for part in (status.description, status.device, status.device_reason) if part))

    def _restyle(self) -> None:
        self._column.setContentsMargins(theme.px(10), theme.px(9), theme.px(12), theme.px(10))
        self._column.setSpacing(theme.px(5))
        self._head.setSpacing(theme.px(6))
