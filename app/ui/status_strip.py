"""The strip at the foot of the page: model, device, rate, context, load of the machine. It shows and decides nothing.

Where there is not room for everything, the least needed facts give way first; a screen reader always gets all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QHelpEvent, QPaintEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QToolTip, QWidget

from app.engine_status import NARROW, EngineStatus, memory_of, rate, sentence
from app.translation import figure, tr
from app.ui import theme
from app.ui.direction import leading, order
from app.ui.painting import antialiased, say_changed
from engine.monitor import GpuSample, MachineSample

HEIGHT_PX, MARGIN_PX, GAP_PX = 28, 24, 18
UNKNOWN = "–"


@dataclass(frozen=True)
class Fact:
    """One figure of the strip. `spoken` is how a screen reader says it; the highest `rank` gives way first.

    `widest` is the widest that the words get, so that the facts beside it stand still while figures change. `more` is
    told where the mouse rests on it.
    """

    words: str
    spoken: str
    rank: int
    widest: str = ""
    strong: bool = False
    more: str = ""


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{figure(value, '.0f')}%"


def engine_facts(status: EngineStatus) -> list[Fact]:
    """What the strip says of the engine, from the left."""
    facts = [Fact(status.model or tr("No model"), tr("Model {model}", model=status.model or tr("none")), 3)]
    if status.server:
        spoken = tr("Sent to {server}, not on this PC", server=status.server)
        facts.append(Fact(tr("Sent to {server}", server=status.server), spoken, 2))
    if status.device:
        spoken = tr("Runs on {device}", device=status.device)
        facts.append(Fact(status.device, spoken, 8, more=sentence(spoken, status.device_reason)))
    speed = rate(status.tok_s)
    said = tr("unknown") if status.tok_s is None else speed.replace("tok/s", tr("tokens per second"))
    facts.append(
        Fact(speed, tr("Speed {rate}", rate=said), 1, f"{figure(888.8, '.1f')}{NARROW}tok/s", strong=status.answering)
    )
    if status.card:
        share = UNKNOWN if status.gpu_share is None else percent(100 * status.gpu_share)
        why = tr("Of the neurons computed, those on the GPU; the CPU computes the others at the same time.")
        facts.append(
            Fact(
                tr("{share} on the GPU", share=share),
                tr("Neurons on the GPU {share}", share=share),
                4,
                tr("100% on the GPU"),
                more=why,
            )
        )
    if status.context_total is not None:
        used = UNKNOWN if status.context_used is None else figure(status.context_used)
        words = tr("{used} of {total}", used=used, total=figure(status.context_total))
        facts.append(Fact(tr("Context {words}", words=words), tr("Context used {words} tokens", words=words), 2))
    return facts


def card_of(sample: MachineSample, name: str) -> GpuSample | None:
    """The card of that name; of several the one that holds most of ours; None where no card computes."""
    named = [gpu for gpu in sample.gpus if gpu.name == name] or list(sample.gpus)
    return max(named, key=lambda gpu: gpu.vram_process_bytes or 0, default=None) if name else None


def machine_facts(sample: MachineSample, card: str = "") -> list[Fact]:
    """What the strip says of the machine, from the left of its right part; the card that computes is kept longest."""
    ram = memory_of(sample.ram_used_bytes, sample.ram_total_bytes)
    facts = [
        Fact(
            f"CPU {percent(sample.cpu_percent)}",
            tr("Processor load {load}", load=percent(sample.cpu_percent)),
            7,
            "CPU 100%",
        ),
        Fact(f"RAM {ram}", tr("Memory used {ram}", ram=ram), 9),
    ]
    used = card_of(sample, card)
    for number, gpu in enumerate(sample.gpus):
        if gpu.load_percent is None and gpu.vram_used_bytes is None:
            continue
        name = "GPU" if len(sample.gpus) == 1 else f"GPU {gpu.index}"
        load, memory = percent(gpu.load_percent), memory_of(gpu.vram_used_bytes, gpu.vram_total_bytes)
        rank = 5 if gpu is used else 10 + 2 * number
        facts.append(
            Fact(
                f"{name} {load}",
                tr("{name} load {load}", name=gpu.name, load=load),
                rank,
                f"{name} 100%",
                more=_in_full(gpu),
            )
        )
        facts.append(
            Fact(
                f"VRAM {memory}",
                tr("{name} memory used {memory}", name=gpu.name, memory=memory),
                rank + 1,
                more=_in_full(gpu),
            )
        )
    return facts


def _in_full(gpu: GpuSample) -> str:
    """All that is known of a card, a line each."""
    memory = memory_of(gpu.vram_used_bytes, gpu.vram_total_bytes)
    if gpu.vram_process_bytes:
        ours = figure(gpu.vram_process_bytes / 2**30, ".1f")
        memory = tr("{memory}, {ours}\u202fGB of it Hearth", memory=memory, ours=ours)
    heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}{NARROW}°C"
    power = "" if gpu.power_w is None else f"{gpu.power_w:.0f}{NARROW}W"
    parts = (tr("Load {load}", load=percent(gpu.load_percent)), tr("Memory {memory}", memory=memory), heat, power)
    return "\n".join((gpu.name, *(part for part in parts if part)))


def _advance(role: str, words: str) -> int:
    return QFontMetrics(theme.font(role)).horizontalAdvance(words)


class StatusStrip(QFrame):
    """28 high, painted: facts of the engine from the left, facts of the machine from the right."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "strip")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._left: list[Fact] = engine_facts(EngineStatus())
        self._right: list[Fact] = []
        self._card = ""
        self._sample: MachineSample | None = None
        self._places: list[tuple[QRectF, Fact]] = []  # where what is shown was painted
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._tell()

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine at this moment."""
        facts = engine_facts(status)
        if facts != self._left:
            self._left = facts
            self._tell()
        if status.card != self._card:
            self._card = status.card
            if self._sample is not None:
                self.set_sample(self._sample)

    def set_sample(self, sample: MachineSample) -> None:
        """Show the machine at this moment."""
        self._sample = sample
        facts = machine_facts(sample, self._card)
        if facts != self._right:
            self._right = facts
            self._tell()

    def words(self) -> str:
        """Everything the strip knows, as it is spoken."""
        return ", ".join(fact.spoken for fact in (*self._left, *self._right))

    def shown(self) -> list[str]:
        """The facts that there is room for at the present width, from the left."""
        left, right = self._fitting()
        return [fact.words for fact in (*left, *right)]

    def _tell(self) -> None:
        self.setAccessibleName(self.words())
        say_changed(self)
        self.update()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(HEIGHT_PX) + 1)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(400), theme.px(HEIGHT_PX) + 1)

    @staticmethod
    def _width(fact: Fact) -> int:
        if fact.widest:  # the same whether it is strong just now or not
            return max(_advance("metastrong", fact.words), _advance("metastrong", fact.widest))
        return _advance("metastrong" if fact.strong else "meta", fact.words)

    def _fitting(self) -> tuple[list[Fact], list[Fact]]:
        left, right = list(self._left), list(self._right)
        room, gap = self.width() - 2 * theme.px(MARGIN_PX), theme.px(GAP_PX)
        while len(left) + len(right) > 1:
            facts = (*left, *right)
            if sum(self._width(fact) for fact in facts) + gap * (len(facts) - 1) <= room:
                break
            least = max(facts, key=lambda fact: fact.rank)
            (left if least in left else right).remove(least)
        return left, right

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = antialiased(self)
        left, right = self._fitting()
        gap, x = theme.px(GAP_PX), theme.px(MARGIN_PX)
        end = self.width() - x
        mirrored = self.isRightToLeft()
        self._places = []

        def draw(fact: Fact, at: int, width: int) -> None:
            role = "metastrong" if fact.strong else "meta"
            painter.setFont(theme.font(role))
            painter.setPen(theme.colour(theme.ROLES[role].token))
            box = QRectF(self.width() - at - width if mirrored else at, 1, width, self.height() - 1)
            self._places.append((box, fact))
            words = QFontMetrics(painter.font()).elidedText(fact.words, Qt.TextElideMode.ElideRight, width + 1)
            flags = leading(mirrored) | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
            painter.drawText(box, flags | order(words), words)

        for fact in left:
            width = min(self._width(fact), max(end - x, 0))
            draw(fact, x, width)
            x += width + gap
        x = end - sum(self._width(fact) for fact in right) - gap * (len(right) - 1)
        for fact in right:
            draw(fact, x, self._width(fact))
            x += self._width(fact) + gap

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.told_at(QPointF(event.pos())), self)
            return True
        return super().event(event)

    def told_at(self, place: QPointF) -> str:
        """What is told where the mouse rests: more of the fact there, or everything where not all has room."""
        more = next((fact.more for box, fact in self._places if box.contains(place)), "")
        hidden = len(self._left) + len(self._right) > len(self.shown())
        everything = "\n".join(fact.spoken for fact in (*self._left, *self._right))
        return more or (everything if hidden else "")
