"""The card at the foot of the sidebar: the loaded model and what it is doing.

With a GPU, a bar shows how much of its memory Hearth and other programs use. A press opens how the model runs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPalette, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.clients.engine_status import EngineStatus, Phase
from app.translation import tr
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.look.painting import antialiased, block, outline
from app.ui.widgets.controls import Dot, IconButton, Label, MemoryBar, PlainButton, Progress
from app.units import memory_of, rate, seconds

if TYPE_CHECKING:
    from engine.machine.monitor import GpuSample, MachineSample


def dot_token(status: EngineStatus) -> str:
    """Return the dot's colour. Ember always means that the machine is working."""
    if status.working:
        return "hot_fill"
    return {Phase.READY: "ok", Phase.FAILED: "bad"}.get(status.phase, "control")


def state_line(status: EngineStatus, memory: str = "") -> str:
    """Return the state as text with its most useful figure; when idle, that is the GPU memory if a GPU is used."""
    if status.phase is Phase.LOADING and status.compiling and not status.cancelling:
        done = min(status.done + 1, status.total)
        return tr("Getting ready, {done} of {total}", done=done, total=status.total)  # the card is narrow
    if status.phase is Phase.WRITING and status.tok_s is not None:
        return f"{status.word} · {rate(status.tok_s)}"
    if status.phase is Phase.READY and memory:
        return f"{status.word} · {memory} VRAM"
    if status.phase is Phase.READY and status.load_s is not None:
        return f"{status.word} · {tr('loaded in {time}', time=seconds(status.load_s))}"
    return status.word


def gpu_of(sample: MachineSample, name: str) -> GpuSample | None:
    """Return the GPU with that name; of several, the one where Hearth uses most memory. None for an empty name."""
    named = [gpu for gpu in sample.gpus if gpu.name == name] or list(sample.gpus)
    return max(named, key=lambda gpu: gpu.vram_process_bytes or 0, default=None) if name else None


class EngineCard(PlainButton):
    """Dot, name and state; a progress bar while a model loads, a VRAM bar while one is on a GPU.

    load_stop_requested: the user cancels the load.
    """

    load_stop_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setProperty("focusRadius", 12)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._column = QVBoxLayout(self)
        self._head = QHBoxLayout()
        self.dot = Dot("hot_fill", True)
        self.name = Label("", "label", elide=True)
        self._head.addWidget(self.dot)
        self._head.addWidget(self.name, 1)
        self.stop = IconButton("close", tr("Stop loading"))
        self.stop.glyph_px, self.stop.height_px = 14, 32
        self.stop.clicked.connect(self.load_stop_requested)
        self.stop.setParent(self)  # over the corner, not in the layout: the lines below must keep their width
        self.progress = Progress(tr("Loading"), height=4)
        self.line = Label("", "meta", elide=True)
        self._column.addLayout(self._head)
        self.memory = MemoryBar()
        self._column.addWidget(self.progress)
        self._column.addWidget(self.memory)
        self._column.addWidget(self.line)
        for part in (self.dot, self.name, self.progress, self.line, self.memory):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            part.setForegroundRole(QPalette.ColorRole.WindowText)  # not the button's
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._sample: MachineSample | None = None
        self.set_status(EngineStatus())

    def set_sample(self, sample: MachineSample) -> None:
        self._sample = sample
        self.set_status(self._status)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status."""
        self._status = status
        gpu = gpu_of(self._sample, status.gpu) if self._sample is not None else None
        known = gpu is not None and gpu.vram_used_bytes is not None and gpu.vram_total_bytes is not None
        self.dot.set_state(dot_token(status), status.working)
        self.name.setText(status.model or tr("Engine"))
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
        self.stop.setVisible(status.phase is Phase.LOADING and not status.cancelling)
        self._place_stop()
        self.setAccessibleName(f"{status.model or tr('Engine')}, {line}")
        self.setAccessibleDescription(tr("How the model runs here"))
        self.setToolTip("\n".join(part for part in (status.description, status.device, status.device_reason) if part))

    def sizeHint(self) -> QSize:
        return self._column.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return self._column.minimumSize()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_stop()

    def _place_stop(self) -> None:
        room = theme.px(22) if self.stop.isVisibleTo(self) else 0
        set_margins(self._head, 0, 0, room, 0, self.isRightToLeft())
        inset = theme.px(3)
        x = inset if self.isRightToLeft() else self.width() - self.stop.width() - inset
        self.stop.move(x, inset)

    def paintEvent(self, event: QPaintEvent) -> None:
        t, painter, rect, radius = theme.current().tokens, antialiased(self), QRectF(self.rect()), theme.px(12)
        pressed, hover = self.isDown(), self.underMouse() and not self.stop.underMouse()
        block(painter, rect, theme.mix(t.card, t.ink, 0.04 if pressed else 0.0), radius)
        outline(painter, rect, t.control if pressed else t.edge if hover else t.line, radius)

    def _restyle(self) -> None:
        self._column.setContentsMargins(theme.px(10), theme.px(9), theme.px(12), theme.px(10))
        self._column.setSpacing(theme.px(5))
        self._head.setSpacing(theme.px(6))
